#include "executor/run/runner_priv.h"

#include <math.h>
#include <string.h>

#include "executor/run/run_memory.h"
#include "executor/run/run_times.h"

/* ---- a rank's own ---------------------------------------------------------------------------- */

static enum sbp_status check_high_water(const struct sbp_runner *runner, struct sbp_diag *diag)
{
    const int64_t rounded = (runner->rank.high_water_bytes + 63) / 64 * 64;
    const int64_t planned = sbp_run_arena_bytes(runner->job->step, runner->stage);
    if (rounded == planned)
        return SBP_OK;
    return sbp_fail(diag, SBP_E_INTERNAL,
                    "rank %d used %lld bytes of its arena, the plan says %lld",
                    sbp_runner_world_rank(runner), (long long)rounded, (long long)planned);
}

/* Slots of messages between stages, of the step. */
static enum sbp_status check_slots(const struct sbp_runner *runner,
                                   const struct sbp_message_lane *lane, struct sbp_diag *diag)
{
    const int64_t rounded = (lane->high_water_bytes + 63) / 64 * 64;
    if (rounded == runner->messenger.slot_bytes)
        return SBP_OK;
    return sbp_fail(
        diag, SBP_E_INTERNAL, "rank %d used %lld bytes of slots of messages, %lld are predicted",
        sbp_runner_world_rank(runner), (long long)rounded, (long long)runner->messenger.slot_bytes);
}

static enum sbp_status check_host(const struct sbp_runner *runner, struct sbp_diag *diag)
{
    const int64_t planned = runner->job->step->memory[runner->stage].host_bytes;
    if (runner->rank.host_high_water_bytes == planned)
        return SBP_OK;
    return sbp_fail(diag, SBP_E_INTERNAL,
                    "rank %d used %lld bytes of host memory, the plan says %lld",
                    sbp_runner_world_rank(runner), (long long)runner->rank.host_high_water_bytes,
                    (long long)planned);
}

enum sbp_status sbp_run_fill_report(const struct sbp_runner *runner,
                                    const struct sbp_message_lane *lane,
                                    struct sbp_rank_report *report, struct sbp_diag *diag)
{
    SBP_TRY(check_high_water(runner, diag));
    SBP_TRY(check_slots(runner, lane, diag));
    SBP_TRY(check_host(runner, diag));
    report->step.loss = sbp_rank_loss(&runner->rank);
    report->calls = sbp_channel_calls(&runner->channel);
    report->has_loss = runner->layout.program[runner->layout.chunks - 1]->loss_buffer >= 0;
    report->has_odd_gradient = runner->rank.known.has_odd_gradient != 0;
    report->step.grad_norm = runner->rank.known.grad_norm;
    report->step.loss_scale = runner->rank.known.loss_scale;
    report->step.left_out = runner->rank.known.overflowed != 0;
    report->high_water_bytes = (runner->rank.high_water_bytes + 63) / 64 * 64;
    report->slot_high_water_bytes = (lane->high_water_bytes + 63) / 64 * 64;
    report->host_high_water_bytes = runner->rank.host_high_water_bytes;
    return SBP_OK;
}

/* ---- all ranks' ------------------------------------------------------------------------------ */

/* The first of loss, norm and gradients that is no finite number. */
static void keep_odd(struct sbp_run_result *result, int step, const struct sbp_rank_report *report)
{
    const bool loss = report->has_loss && !isfinite(report->step.loss);
    const bool is_handled = report->step.left_out && report->step.loss_scale > 1;
    const bool norm = !isfinite(report->step.grad_norm) && !is_handled;
    const char *what = loss ? "loss" : norm ? "gradient norm" : "gradient";
    const bool is_later = result->odd.step > 0 && result->odd.step <= step;
    if ((!loss && !norm && !report->has_odd_gradient) || is_later ||
        (result->odd.step > 0 && !loss))
        return;
    result->odd.step = step + 1;
    result->odd.what = what;
}

/* The loss is the last stage's; a stage without weights has no norm. */
static void keep_maxima(struct sbp_run_result *result, int step,
                        const struct sbp_rank_report *report)
{
    struct sbp_run_step *most = &result->step[step];
    keep_odd(result, step, report);
    if (isnan(report->step.grad_norm) || isnan(most->grad_norm))
        most->grad_norm = NAN;
    else
        most->grad_norm = fmax(most->grad_norm, report->step.grad_norm);
    result->calls = report->calls > result->calls ? report->calls : result->calls;
    if (report->has_loss)
        most->loss = report->step.loss;
    most->wall_s = fmax(most->wall_s, report->step.wall_s);
    most->compute_s = fmax(most->compute_s, report->step.compute_s);
    most->communication_s = fmax(most->communication_s, report->step.communication_s);
    if (report->high_water_bytes > result->high_water_bytes)
        result->high_water_bytes = report->high_water_bytes;
    if (report->slot_high_water_bytes > result->slot_bytes)
        result->slot_bytes = report->slot_high_water_bytes;
    if (report->host_high_water_bytes > result->host_high_water_bytes)
        result->host_high_water_bytes = report->host_high_water_bytes;
}

/* The slowest rank's arithmetic of each task of a stage. */
static void keep_slowest(const double *compute_s, int64_t tasks, double *slowest_s)
{
    for (int64_t i = 0; i < tasks; i++)
        slowest_s[i] = fmax(slowest_s[i], compute_s[i]);
}

static enum sbp_status hear_report(struct sbp_runner *runner, int step, int peer,
                                   double **slowest_s, struct sbp_diag *diag)
{
    const struct sbp_run_job *job = runner->job;
    const int stage = (int)(peer / job->step->mesh.devices);
    const int64_t tasks = job->tasks[stage].count;
    struct sbp_rank_report other;
    SBP_TRY(
        sbp_channel_receive(&runner->channel, peer, SBP_TAG_REPORT, &other, sizeof other, diag));
    if (job->step->replicates) /* each has the loss of its micro-batch */
        other.step.loss = job->result->step[step].loss +
                          (peer % job->step->mesh.devices == 0 ? other.step.loss : 0);
    keep_maxima(job->result, step, &other);
    SBP_TRY(sbp_channel_receive(&runner->channel, peer, SBP_TAG_REPORT, runner->compute_s,
                                tasks * (int64_t)sizeof *runner->compute_s, diag));
    keep_slowest(runner->compute_s, tasks, slowest_s[stage]);
    return SBP_OK;
}

/* Zeros, for every task of every stage. */
static double **all_tasks(const struct sbp_run_job *job, struct sbp_arena *arena)
{
    double **seconds = SBP_NEW(arena, double *, job->step->stages);
    for (int stage = 0; seconds != NULL && stage < job->step->stages; stage++) {
        seconds[stage] = SBP_NEW(arena, double, job->tasks[stage].count + 1);
        if (seconds[stage] == NULL)
            return NULL;
    }
    return seconds;
}

/* Tells the others whether the run ends with the step: under a schedule without a flush they wait
 * for it before they update. */
static enum sbp_status tell_verdict(struct sbp_runner *runner, struct sbp_diag *diag)
{
    const struct sbp_run_job *job = runner->job;
    runner->odd_step = job->result->odd.step;
    for (int peer = 1; peer < job->ranks; peer++)
        SBP_TRY(sbp_channel_send(&runner->channel, peer, SBP_TAG_VERDICT, &runner->odd_step,
                                 sizeof runner->odd_step, diag));
    return SBP_OK;
}

static enum sbp_status hear_reports(struct sbp_runner *runner, int step,
                                    const struct sbp_rank_report *own, struct sbp_diag *diag)
{
    const struct sbp_run_job *job = runner->job;
    struct sbp_run_step *const result = &job->result->step[step];
    struct sbp_run_prediction replay;
    double **slowest_s = all_tasks(job, &runner->arena);
    if (slowest_s == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for the step's times");
    *result = own->step;
    keep_maxima(job->result, step, own);
    keep_slowest(runner->compute_s, runner->tasks->count, slowest_s[runner->stage]);
    for (int peer = 1; peer < job->ranks; peer++)
        SBP_TRY(hear_report(runner, step, peer, slowest_s, diag));
    SBP_TRY(tell_verdict(runner, diag));
    SBP_TRY(sbp_run_replay(job->step, job->tasks, slowest_s, &runner->arena, &replay, diag));
    result->replay_s = replay.step_s;
    result->exposed_s = replay.exposed_s;
    result->bubble_s = replay.bubble_s;
    return SBP_OK;
}

/* Of a list of several steps: what was not played yet takes as long as where it was. */
static enum sbp_status fill_phases(struct sbp_runner *runner, struct sbp_diag *diag)
{
    const struct sbp_program *program = runner->layout.program[0];
    const struct sbp_tasks *tasks = runner->tasks;
    double *const played_s = SBP_NEW(&runner->arena, double, program->instr_count + 1);
    if (played_s == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for the step's times");
    for (int64_t i = 0; i < tasks->count; i++)
        played_s[tasks->task[i].instr] = fmax(played_s[tasks->task[i].instr], runner->compute_s[i]);
    for (int64_t i = 0; i < tasks->count; i++)
        if (!(runner->compute_s[i] > 0))
            runner->compute_s[i] = played_s[tasks->task[i].instr];
    return SBP_OK;
}

enum sbp_status sbp_run_gather_reports(struct sbp_runner *runner, int step,
                                       const struct sbp_rank_report *report, struct sbp_diag *diag)
{
    const struct sbp_arena_mark mark = sbp_arena_mark(&runner->arena);
    const int64_t bytes = runner->tasks->count * (int64_t)sizeof *runner->compute_s;
    for (int64_t i = 0; i < runner->tasks->count; i++)
        runner->compute_s[i] = runner->intervals[i].compute_s;
    if (sbp_tasks_steps(runner->tasks) > 1)
        SBP_TRY(fill_phases(runner, diag));
    if (!sbp_runner_leads(runner)) {
        SBP_TRY(
            sbp_channel_send(&runner->channel, 0, SBP_TAG_REPORT, report, sizeof *report, diag));
        return sbp_channel_send(&runner->channel, 0, SBP_TAG_REPORT, runner->compute_s, bytes,
                                diag);
    }
    const enum sbp_status status = hear_reports(runner, step, report, diag);
    sbp_arena_release(&runner->arena, mark);
    return status;
}

/* Where a rank's intervals stand in the result. */
static struct sbp_run_interval *intervals_of(const struct sbp_run_job *job, int rank)
{
    return job->result->intervals + rank * job->result->most_tasks;
}

enum sbp_status sbp_run_gather_intervals(struct sbp_runner *runner, struct sbp_diag *diag)
{
    const struct sbp_run_job *job = runner->job;
    const int64_t one = (int64_t)sizeof *runner->intervals;
    const int64_t bytes = runner->tasks->count * one;
    if (!job->options->trace)
        return SBP_OK;
    if (!sbp_runner_leads(runner))
        return sbp_channel_send(&runner->channel, 0, SBP_TAG_INTERVALS, runner->intervals, bytes,
                                diag);
    memcpy(intervals_of(job, 0), runner->intervals, (size_t)bytes);
    for (int peer = 1; peer < job->ranks; peer++)
        SBP_TRY(sbp_channel_receive(&runner->channel, peer, SBP_TAG_INTERVALS,
                                    intervals_of(job, peer),
                                    job->tasks[peer / job->step->mesh.devices].count * one, diag));
    return SBP_OK;
}
