#include "executor/run.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/launcher.h"
#include "base/machine.h"
#include "base/math/numeric.h"
#include "costmodel/program/runnable.h"
#include "executor/message_lane.h"
#include "executor/rank/rank.h"
#include "executor/run_agree.h"
#include "executor/run_memory.h"

enum { TAG_REPORT = 1, TAG_INTERVALS = 2, TAG_VERDICT = 4, TAG_ODD = 6 };

/* The data that all rank mains share; only rank 0 writes to the result. */
struct job {
    const struct sbp_step *step;
    int64_t ranks;                    /* of all stages */
    const struct sbp_tasks *tasks;    /* (stages) of a step */
    struct sbp_message_plan messages; /* of all of them */
    const struct sbp_cluster *cluster;
    const struct sbp_run_options *options;
    struct sbp_run_result *result;
    struct sbp_watch watch;        /* over the ranks of this process */
    struct sbp_verify_need verify; /* what verification takes; nothing without it */
    _Atomic(void *)
        space; /* kept for the kernels until all ranks have the memory they need; NULL: used */
    int64_t space_bytes;
    int refused; /* how many ranks there are, where the plan is for another number; else 0 */
};

/* One rank under way. */
struct runner {
    struct job *job;
    int stage;
    const struct sbp_tasks *tasks; /* of the stage */
    struct sbp_arena arena;
    struct sbp_channel channel;
    struct sbp_stage_layout layout; /* of the arena */
    struct sbp_rank rank;
    struct sbp_verifier *verifier;      /* NULL: no verification */
    struct sbp_run_interval *intervals; /* (tasks) */
    double *compute_s;                  /* (most tasks of a stage) to send, or received */
    void *scratch;                      /* one real on the device */
    int odd_gradient;                   /* the first tensor of the step that has one; -1: none */
    struct sbp_post *post;              /* NULL: nobody watches */
    struct sbp_odd_layer *second_look;  /* what it finds; NULL: this is the first look at a step */
    struct sbp_progress progress;       /* of the lead */
    struct sbp_run_fault fault;         /* tests only */
};

/* A rank's share of a step's report, sent as bytes. */
struct report {
    struct sbp_run_step step;
    bool has_loss, has_odd_gradient;
    int calls;
    int64_t high_water_bytes;
};

/* Among the ranks of all stages. */
static int world_rank(const struct runner *runner)
{
    return sbp_channel_rank(&runner->channel, runner->stage, runner->rank.rank);
}

static bool is_lead(const struct runner *runner)
{
    return world_rank(runner) == 0;
}

/* Whether loss scaling handles the overflow of the step under way: all its updates leave out what
 * they would do. A scale of 1 cannot be halved. */
static bool is_left_out(const struct sbp_rank *rank)
{
    return rank->scaler.overflowed && rank->scaler.scale > 1;
}

/* Whether an update takes its gradient, which must be finite: else the weights would no longer be
 * those of the step's begin, and the first layer that made it could not be found. Of clipped
 * gradients the norm tells; all ranks have the same. */
static enum sbp_status takes_gradient(struct runner *runner, const struct sbp_instr *instr,
                                      bool *takes, struct sbp_diag *diag)
{
    struct sbp_rank *rank = &runner->rank;
    struct sbp_update update;
    *takes = false;
    if (runner->second_look != NULL)
        return SBP_OK;
    SBP_TRY(sbp_rank_prepare_update(rank, &update, diag));
    *takes = isfinite(rank->grad_norm) || is_left_out(rank);
    if (is_left_out(rank))
        return SBP_OK;
    if (rank->program->graph->training.clip_norm <= 0)
        SBP_TRY(sbp_odd_layer_is_finite(
            rank, sbp_rank_shard(rank, instr->tensor, instr->buffer[SBP_AT_DW]),
            rank->program->shard[instr->tensor].elements, runner->scratch, takes, diag));
    if (!*takes && runner->odd_gradient < 0)
        runner->odd_gradient = instr->tensor;
    return SBP_OK;
}

static enum sbp_status execute(struct runner *runner, const struct sbp_task *task,
                               struct sbp_diag *diag)
{
    const struct sbp_run_options *options = runner->job->options;
    const struct sbp_instr *instr = &runner->rank.program->instr[task->instr];
    const int piece = task->chunk * runner->job->step->stages + runner->stage;
    const enum sbp_fault fault =
        options->fault_instr == task->instr && options->fault_piece == piece ? options->fault
                                                                             : SBP_FAULT_NONE;
    struct sbp_verifier *verifier = runner->second_look == NULL ? runner->verifier : NULL;
    if (fault != SBP_FAULT_NONE)
        SBP_TRY(sbp_run_fault_before(&runner->fault, fault, &runner->rank, instr, diag));
    if (verifier != NULL && instr->kind == SBP_INSTR_UPDATE)
        SBP_TRY(sbp_verify_update(verifier, instr, diag));
    else
        SBP_TRY(sbp_rank_execute(&runner->rank, instr, diag));
    if (fault != SBP_FAULT_NONE)
        SBP_TRY(sbp_run_fault_after(&runner->fault, fault, &runner->rank, instr, diag));
    if (verifier != NULL)
        SBP_TRY(sbp_verify_watch(verifier, task->instr, diag));
    return runner->second_look == NULL ? SBP_OK
                                       : sbp_odd_layer_look(&runner->rank, task, runner->scratch,
                                                            runner->second_look, diag);
}

/* Runs a task and takes its time, without what verification adds to it and without the data of a
 * micro-batch that it begins. */
static enum sbp_status execute_timed(struct runner *runner, int64_t index, double step_start_s,
                                     struct sbp_diag *diag)
{
    const struct sbp_task *task = &runner->tasks->task[index];
    const struct sbp_device_ops *device = runner->rank.device;
    const struct sbp_channel *channel = &runner->channel;
    bool takes = true;
    sbp_post_task(channel->post, (int)index);
    sbp_rank_turn(&runner->rank, task->chunk);
    if (task->begins)
        SBP_TRY(sbp_rank_begin_work(&runner->rank, task, diag));
    if (runner->rank.program->instr[task->instr].kind == SBP_INSTR_UPDATE)
        SBP_TRY(takes_gradient(runner, &runner->rank.program->instr[task->instr], &takes, diag));
    const double wall_s = sbp_clock_s(), compute_s = device->compute_s();
    const double exchange_wall_s = channel->wall_s, exchange_cpu_s = channel->cpu_s;
    const struct sbp_spent spent = sbp_verify_spent(runner->verifier);
    if (takes)
        SBP_TRY(execute(runner, task, diag));
    const enum sbp_status status = device->finish();
    if (status != SBP_OK)
        return sbp_fail(diag, status, "device %s failed", device->name);
    const struct sbp_spent now = sbp_verify_spent(runner->verifier);
    struct sbp_run_interval *interval = &runner->intervals[index];
    interval->start_s = wall_s - step_start_s;
    interval->wall_s = sbp_clock_s() - wall_s - (now.wall_s - spent.wall_s);
    interval->communication_s = channel->wall_s - exchange_wall_s;
    interval->compute_s =
        fmax(0, device->compute_s() - compute_s - (channel->cpu_s - exchange_cpu_s) -
                    (now.cpu_s - spent.cpu_s));
    return task->ends ? sbp_rank_end_work(&runner->rank, task, diag) : SBP_OK;
}

static enum sbp_status check_high_water(const struct runner *runner, struct sbp_diag *diag)
{
    const int64_t rounded = (runner->rank.high_water_bytes + 63) / 64 * 64;
    const int64_t planned = sbp_run_arena_bytes(runner->job->step, runner->stage);
    if (rounded == planned)
        return SBP_OK;
    return sbp_fail(diag, SBP_E_INTERNAL,
                    "rank %d used %lld bytes of its arena, the plan says %lld", world_rank(runner),
                    (long long)rounded, (long long)planned);
}

static enum sbp_status run_tasks(struct runner *runner, double start_s, struct report *report,
                                 struct sbp_diag *diag)
{
    for (int64_t i = 0; i < runner->tasks->count; i++) {
        SBP_TRY(execute_timed(runner, i, start_s, diag));
        report->step.compute_s += runner->intervals[i].compute_s;
        report->step.communication_s += runner->intervals[i].communication_s;
    }
    return sbp_rank_end_step(&runner->rank, diag);
}

static enum sbp_status run_instructions(struct runner *runner, struct report *report,
                                        struct sbp_diag *diag)
{
    struct sbp_message_lane lane;
    sbp_channel_begin_step(&runner->channel);
    SBP_TRY(sbp_channel_barrier(&runner->channel, diag));
    const struct sbp_spent spent = sbp_verify_spent(runner->verifier);
    const double start_s = sbp_clock_s();
    SBP_TRY(sbp_message_lane_begin(&lane, &runner->job->messages, &runner->channel, diag));
    const enum sbp_status played = run_tasks(runner, start_s, report, diag);
    report->step.wall_s =
        sbp_clock_s() - start_s - (sbp_verify_spent(runner->verifier).wall_s - spent.wall_s);
    SBP_TRY(sbp_message_lane_end(&lane, &runner->channel, played, diag));
    SBP_TRY(sbp_channel_check(&runner->channel, diag));
    SBP_TRY(check_high_water(runner, diag));
    report->step.loss = sbp_rank_loss(&runner->rank);
    report->calls = runner->channel.call_count;
    report->has_loss = runner->layout.program[runner->layout.chunks - 1]->loss_buffer >= 0;
    report->has_odd_gradient = runner->odd_gradient >= 0;
    report->step.grad_norm = runner->rank.grad_norm;
    report->step.loss_scale = runner->rank.scaler.scale;
    report->step.left_out = runner->rank.scaler.overflowed;
    report->high_water_bytes = (runner->rank.high_water_bytes + 63) / 64 * 64;
    return SBP_OK;
}

/* The first of loss, norm and gradients that is no finite number. */
static void keep_odd(struct sbp_run_result *result, int step, const struct report *report)
{
    const bool loss = report->has_loss && !isfinite(report->step.loss);
    const bool is_handled = report->step.left_out && report->step.loss_scale > 1;
    const bool norm = !isfinite(report->step.grad_norm) && !is_handled;
    const char *what = loss ? "loss" : norm ? "gradient norm" : "gradient";
    if ((!loss && !norm && !report->has_odd_gradient) || (result->odd.step > 0 && !loss))
        return;
    result->odd.step = step + 1;
    result->odd.what = what;
}

/* The loss is the last stage's; a stage without weights has no norm. */
static void keep_maxima(struct sbp_run_result *result, int step, const struct report *report)
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
}

/* The slowest rank's arithmetic of each task of a stage. */
static void keep_slowest(const double *compute_s, int64_t tasks, double *slowest_s)
{
    for (int64_t i = 0; i < tasks; i++)
        slowest_s[i] = fmax(slowest_s[i], compute_s[i]);
}

static enum sbp_status hear_report(struct runner *runner, int step, int peer, double **slowest_s,
                                   struct sbp_diag *diag)
{
    const struct job *job = runner->job;
    const int stage = (int)(peer / job->step->mesh.devices);
    const int64_t tasks = job->tasks[stage].count;
    struct report other;
    SBP_TRY(sbp_channel_receive(&runner->channel, peer, TAG_REPORT, &other, sizeof other, diag));
    keep_maxima(job->result, step, &other);
    SBP_TRY(sbp_channel_receive(&runner->channel, peer, TAG_REPORT, runner->compute_s,
                                tasks * (int64_t)sizeof *runner->compute_s, diag));
    keep_slowest(runner->compute_s, tasks, slowest_s[stage]);
    return SBP_OK;
}

/* Zeros, for every task of every stage. */
static double **all_tasks(const struct job *job, struct sbp_arena *arena)
{
    double **seconds = SBP_NEW(arena, double *, job->step->stages);
    for (int stage = 0; seconds != NULL && stage < job->step->stages; stage++) {
        seconds[stage] = SBP_NEW(arena, double, job->tasks[stage].count + 1);
        if (seconds[stage] == NULL)
            return NULL;
    }
    return seconds;
}

static enum sbp_status hear_reports(struct runner *runner, int step, const struct report *own,
                                    struct sbp_diag *diag)
{
    const struct job *job = runner->job;
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
    SBP_TRY(sbp_run_replay(job->step, job->tasks, slowest_s, &runner->arena, &replay, diag));
    result->replay_s = replay.step_s;
    result->exposed_s = replay.exposed_s;
    result->bubble_s = replay.bubble_s;
    return SBP_OK;
}

static enum sbp_status gather_reports(struct runner *runner, int step, const struct report *report,
                                      struct sbp_diag *diag)
{
    const struct sbp_arena_mark mark = sbp_arena_mark(&runner->arena);
    const int64_t bytes = runner->tasks->count * (int64_t)sizeof *runner->compute_s;
    for (int64_t i = 0; i < runner->tasks->count; i++)
        runner->compute_s[i] = runner->intervals[i].compute_s;
    if (!is_lead(runner)) {
        SBP_TRY(sbp_channel_send(&runner->channel, 0, TAG_REPORT, report, sizeof *report, diag));
        return sbp_channel_send(&runner->channel, 0, TAG_REPORT, runner->compute_s, bytes, diag);
    }
    const enum sbp_status status = hear_reports(runner, step, report, diag);
    sbp_arena_release(&runner->arena, mark);
    return status;
}

/* Where a rank's intervals stand in the result. */
static struct sbp_run_interval *intervals_of(const struct job *job, int rank)
{
    return job->result->intervals + rank * job->result->most_tasks;
}

static enum sbp_status gather_intervals(struct runner *runner, struct sbp_diag *diag)
{
    const struct job *job = runner->job;
    const int64_t one = (int64_t)sizeof *runner->intervals;
    const int64_t bytes = runner->tasks->count * one;
    if (!job->options->trace)
        return SBP_OK;
    if (!is_lead(runner))
        return sbp_channel_send(&runner->channel, 0, TAG_INTERVALS, runner->intervals, bytes, diag);
    memcpy(intervals_of(job, 0), runner->intervals, (size_t)bytes);
    for (int peer = 1; peer < job->ranks; peer++)
        SBP_TRY(sbp_channel_receive(&runner->channel, peer, TAG_INTERVALS, intervals_of(job, peer),
                                    job->tasks[peer / job->step->mesh.devices].count * one, diag));
    return SBP_OK;
}

/* Called between the parts of a step only: a terminal must not slow down the timed part. */
static void show_progress(struct runner *runner, int step, const char *part)
{
    const struct sbp_run_options *options = runner->job->options;
    const struct sbp_done *all = options->progress;
    if (is_lead(runner))
        sbp_progress_show(&runner->progress, "step %d of %d: %s",
                          (all != NULL ? all->done : step) + 1,
                          all != NULL ? all->total : options->steps, part);
}

/* Rank 0 tells the others whether the run ends with this step. */
static enum sbp_status hear_verdict(struct runner *runner, bool *ends, struct sbp_diag *diag)
{
    const struct job *job = runner->job;
    if (!is_lead(runner))
        return sbp_channel_receive(&runner->channel, 0, TAG_VERDICT, ends, sizeof *ends, diag);
    *ends = job->result->odd.step > 0;
    for (int peer = 1; peer < job->ranks; peer++)
        SBP_TRY(sbp_channel_send(&runner->channel, peer, TAG_VERDICT, ends, sizeof *ends, diag));
    return SBP_OK;
}

static void stay(struct runner *runner, enum sbp_stay stays, int step)
{
    static const char *const parts[] = {
        [SBP_STAYS_STEP] = "training", [SBP_STAYS_VERIFY] = "verifying"};
    sbp_post_task(runner->channel.post, -1);
    sbp_post_stay(runner->channel.post, stays, step + 1);
    if (stays < (int)(sizeof parts / sizeof *parts) && parts[stays] != NULL)
        show_progress(runner, step, parts[stays]);
}

static enum sbp_status run_step(struct runner *runner, int step, bool *ends, struct sbp_diag *diag)
{
    const struct sbp_run_options *options = runner->job->options;
    struct report report = {0};
    runner->odd_gradient = -1;
    sbp_rank_begin_step(&runner->rank, step + 1);
    if (options->fault_piece % runner->job->step->stages == runner->stage)
        sbp_run_fault_begin_step(options->fault, &runner->rank);
    if (runner->verifier != NULL) {
        stay(runner, SBP_STAYS_VERIFY, step);
        SBP_TRY(sbp_verify_begin_step(runner->verifier, diag));
    }
    stay(runner, SBP_STAYS_STEP, step);
    SBP_TRY(run_instructions(runner, &report, diag));
    if (runner->verifier != NULL) {
        stay(runner, SBP_STAYS_VERIFY, step);
        SBP_TRY(sbp_verify_end_step(runner->verifier, diag));
    }
    stay(runner, SBP_STAYS_REPORT, step);
    SBP_TRY(gather_reports(runner, step, &report, diag));
    return hear_verdict(runner, ends, diag);
}

/* Tells whom it may concern how many steps are finished. */
static enum sbp_status announce(struct runner *runner, int steps, struct sbp_diag *diag)
{
    const struct sbp_run_options *options = runner->job->options;
    if (!is_lead(runner))
        return SBP_OK;
    sbp_progress_end(&runner->progress); /* its line stands where rows go */
    if (options->on_step != NULL)
        SBP_TRY(options->on_step(options->context, runner->job->result, steps, diag));
    if (options->progress != NULL)
        options->progress->done += steps > 0;
    return SBP_OK;
}

/* Looks at an odd step once more; rank 0 keeps the first layer that any rank found. */
static enum sbp_status find_odd_layer(struct runner *runner, int step, struct sbp_diag *diag)
{
    struct report none = {0};
    struct sbp_odd_layer own = {.found = false}, other;
    struct sbp_odd_layer *first = &runner->job->result->odd.layer;
    runner->second_look = &own;
    sbp_odd_layer_clear(&runner->rank);
    sbp_rank_begin_step(&runner->rank, step);
    stay(runner, SBP_STAYS_STEP, step - 1);
    SBP_TRY(run_instructions(runner, &none, diag));
    own.rank = world_rank(runner);
    if (!is_lead(runner))
        return sbp_channel_send(&runner->channel, 0, TAG_ODD, &own, sizeof own, diag);
    *first = own;
    for (int peer = 1; peer < runner->job->ranks; peer++) {
        SBP_TRY(sbp_channel_receive(&runner->channel, peer, TAG_ODD, &other, sizeof other, diag));
        if (sbp_odd_layer_precedes(&other, first))
            *first = other;
    }
    return SBP_OK;
}

static enum sbp_status run_steps(struct runner *runner, struct sbp_diag *diag)
{
    struct sbp_run_result *result = runner->job->result;
    bool ends = false;
    int steps = 0;
    SBP_TRY(announce(runner, 0, diag));
    while (steps < runner->job->options->steps && !ends) {
        SBP_TRY(run_step(runner, steps, &ends, diag));
        SBP_TRY(announce(runner, ++steps, diag));
    }
    SBP_TRY(gather_intervals(runner, diag));
    if (ends)
        SBP_TRY(find_odd_layer(runner, steps, diag));
    if (!is_lead(runner))
        return SBP_OK;
    result->steps = steps;
    if (runner->verifier != NULL) {
        const struct sbp_verify_outcome *outcome = sbp_verify_outcome(runner->verifier);
        result->finding = outcome->first;
        result->worst_ratio = outcome->worst_ratio;
    }
    result->filled = true;
    return SBP_OK;
}

/* ---- all ranks ----------------------------------------------------------------------------- */

static enum sbp_status open_runner(struct runner *runner, const struct sbp_comm_ops *ops,
                                   struct sbp_comm *comm, struct sbp_diag *diag)
{
    const struct job *job = runner->job;
    const int64_t devices = job->step->mesh.devices;
    const struct sbp_device_ops *device = sbp_device(job->options->device, diag);
    if (device == NULL)
        return SBP_E_UNSUPPORTED;
    runner->stage = (int)(ops->rank(comm) / devices);
    runner->tasks = &job->tasks[runner->stage];
    SBP_TRY(sbp_channel_open(&runner->channel, ops, comm, job->step, runner->tasks,
                             device->kernels(job->options->real), &runner->arena, diag));
    runner->channel.post = runner->post;
    runner->intervals = SBP_NEW(&runner->arena, struct sbp_run_interval, runner->tasks->count);
    runner->compute_s = SBP_NEW(&runner->arena, double, job->result->most_tasks + 1);
    if (runner->intervals == NULL || runner->compute_s == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for the step's times");
    SBP_TRY(sbp_stage_layout_make(job->step, runner->stage, &runner->arena, &runner->layout, diag));
    SBP_TRY(sbp_rank_open(&runner->rank, &runner->layout, device, job->options->real,
                          job->options->seed, ops->rank(comm) % devices, &runner->channel, diag));
    sbp_post_stay(runner->post, SBP_STAYS_FILL, 0);
    runner->scratch = device->memory->allocate(sizeof(double));
    if (runner->scratch == NULL || sbp_rank_fill_weights(&runner->rank) != SBP_OK)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for the initial weights");
    if (!job->options->verify)
        return SBP_OK;
    return sbp_verify_open(&runner->rank, job->cluster, &runner->verifier, diag);
}

/* Leaves the kernels the address space that was kept for them, now that all ranks of this process
 * have their memory. What is large is allocated by then. */
static enum sbp_status release_space(struct runner *runner, struct sbp_diag *diag)
{
    struct job *job = runner->job;
    SBP_TRY(sbp_channel_barrier(&runner->channel, diag));
    sbp_machine_release(atomic_exchange(&job->space, NULL), job->space_bytes);
    return SBP_OK;
}

static bool is_mpi(const struct job *job)
{
    return strcmp(job->options->backend, "mpi") == 0;
}

/* Ranks that are processes have their own memory, and a board of posts in common. */
static enum sbp_status join(struct runner *runner, const struct sbp_comm_ops *ops,
                            struct sbp_comm *comm, struct sbp_diag *diag)
{
    struct job *job = runner->job;
    struct sbp_run_pact pact = {
        .step = job->step, .tasks = job->tasks, .options = job->options, .ranks = job->ranks};
    const bool fits = ops->size(comm) == job->ranks;
    if (fits)
        pact.post = runner->post = sbp_watch_post(&job->watch, ops->rank(comm));
    if (fits && is_mpi(job))
        pact.need = sbp_run_need_of(job->step, ops->rank(comm), &job->verify);
    SBP_TRY(sbp_run_agree(&pact, ops, comm, &job->result->ranks_here, diag));
    if (!fits) {
        /* Every rank sees it: no need to end the others. */
        job->refused = ops->size(comm);
        return SBP_OK;
    }
    if (is_mpi(job) && job->options->alarm != NULL) {
        SBP_TRY(sbp_watch_share(&job->watch, ops, comm, diag));
        runner->post = sbp_watch_post(&job->watch, ops->rank(comm));
    }
    return SBP_OK;
}

static void close_runner(struct runner *runner)
{
    sbp_progress_end(&runner->progress);
    sbp_verify_close(runner->verifier);
    sbp_run_fault_free(&runner->fault, &runner->rank);
    if (runner->scratch != NULL)
        runner->rank.device->memory->release(runner->scratch);
    sbp_rank_close(&runner->rank);
    sbp_arena_free(&runner->arena);
    sbp_post_stay(runner->post, SBP_STAYS_LEFT, 0);
}

static enum sbp_status rank_main(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                 void *argument, struct sbp_diag *diag)
{
    struct runner runner = {.job = argument};
    sbp_progress_start(&runner.progress);
    SBP_TRY(join(&runner, ops, comm, diag));
    if (runner.job->refused > 0)
        return SBP_OK;
    enum sbp_status status = open_runner(&runner, ops, comm, diag);
    if (status == SBP_OK)
        status = release_space(&runner, diag);
    if (status == SBP_OK)
        status = run_steps(&runner, diag);
    close_runner(&runner);
    return status;
}

/* Lists the tasks of all stages. */
static enum sbp_status open_tasks(struct job *job, struct sbp_diag *diag)
{
    struct sbp_run_result *result = job->result;
    struct sbp_tasks *tasks = SBP_NEW(&result->arena, struct sbp_tasks, job->step->stages);
    if (tasks == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for the step's tasks");
    job->tasks = result->tasks = tasks;
    for (int stage = 0; stage < job->step->stages; stage++) {
        SBP_TRY(sbp_tasks_make(job->step, stage, &result->arena, &tasks[stage], diag));
        const int64_t bytes = sbp_run_arena_bytes(job->step, stage);
        result->most_tasks =
            tasks[stage].count > result->most_tasks ? tasks[stage].count : result->most_tasks;
        result->arena_bytes = bytes > result->arena_bytes ? bytes : result->arena_bytes;
    }
    SBP_TRY(sbp_message_plan_make(job->step, tasks,
                                  sbp_program_run_bytes(job->options->real).activation,
                                  &result->arena, &job->messages, diag));
    return sbp_run_predict(job->step, tasks, &result->arena, &result->prediction, diag);
}

static enum sbp_status open_result(struct job *job, struct sbp_diag *diag)
{
    const struct sbp_run_options *options = job->options;
    struct sbp_run_result *result = job->result;
    struct sbp_machine machine;
    sbp_machine_find(SBP_CONTROL_GROUP, &machine);
    *result = (struct sbp_run_result){.ranks = (int)job->ranks,
                                      .steps = options->steps,
                                      .cores = machine.cores,
                                      .verified = options->verify};
    SBP_TRY(open_tasks(job, diag));
    result->step = SBP_NEW(&result->arena, struct sbp_run_step, options->steps);
    int64_t count = 0;
    if (options->trace && sbp_mul_i64(job->ranks, result->most_tasks, &count))
        result->intervals = SBP_NEW(&result->arena, struct sbp_run_interval, count);
    if (result->step == NULL || (options->trace && result->intervals == NULL))
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for the run's results");
    return SBP_OK;
}

/* Sees that the ranks of this process find the address space for memory, kernels, and stacks, of a
 * rank and of its lane of messages, and keeps the kernels' part. */
static enum sbp_status keep_space(struct job *job, int64_t ranks, double values,
                                  struct sbp_diag *diag)
{
    enum { STACK_BYTES = 8 << 20 };
    char what[64];
    void *all, *space;
    const int64_t bytes = ranks * SBP_KERNELS_CPU_SPACE_BYTES;
    (void)snprintf(what, sizeof what, "%lld rank%s", (long long)ranks, ranks == 1 ? "" : "s");
    const int64_t whole = bytes + (int64_t)values + 2 * ranks * STACK_BYTES;
    SBP_TRY(sbp_machine_reserve(whole, what, &all, diag));
    sbp_machine_release(all, whole);
    SBP_TRY(sbp_machine_reserve(bytes, what, &space, diag));
    job->space = space;
    job->space_bytes = bytes;
    return SBP_OK;
}

/* Processes wait for each other before MPI tells them who they are, and one may never come. */
static void note_launch(struct job *job)
{
    const int64_t rank = sbp_launcher_rank();
    if (rank >= 0 && rank < job->ranks)
        sbp_post_wait(sbp_watch_post(&job->watch, (int)rank), SBP_WAITS_ALL);
}

/* Counts what verification takes, and sees that the ranks of this process find their memory, as far
 * as it can tell alone: processes of one host compare theirs when they agree. */
static enum sbp_status prepare_process(struct job *job, struct sbp_diag *diag)
{
    double bytes;
    if (job->options->verify)
        SBP_TRY(sbp_verify_count(job->step, job->cluster, &job->verify, diag));
    if (is_mpi(job)) {
        bytes = (double)job->result->arena_bytes + job->verify.rank_bytes +
                (sbp_launcher_rank() <= 0 ? job->verify.reference_bytes : 0);
        return keep_space(job, 1, bytes, diag);
    }
    SBP_TRY(sbp_run_check_threads(job->step, &job->verify, &bytes, diag));
    return keep_space(job, job->ranks, bytes, diag);
}

static enum sbp_status check_backend(const struct job *job, struct sbp_diag *diag)
{
    if (strcmp(job->options->backend, "nccl") == 0)
        return sbp_fail(diag, SBP_E_UNSUPPORTED,
                        "backend nccl: plans run on threads and mpi, NCCL is for calibrating");
    return SBP_OK;
}

static enum sbp_status run_ranks(struct job *job, struct sbp_diag *diag)
{
    SBP_TRY(check_backend(job, diag));
    if (is_mpi(job))
        note_launch(job);
    const enum sbp_status status = prepare_process(job, diag);
    if (is_mpi(job))
        return status == SBP_OK ? sbp_mpi_run(rank_main, job, diag) : sbp_run_refuse(status, diag);
    return status == SBP_OK ? sbp_threads_run((int)job->ranks, rank_main, job, diag) : status;
}

static bool same_states(const struct sbp_program *a, const struct sbp_program *b, int tensor)
{
    return a->shard[tensor].level == b->shard[tensor].level &&
           a->shard[tensor].elements == b->shard[tensor].elements &&
           sbp_dist_equal(&a->mesh, &a->buffer[a->weight_buffer[tensor]].dist,
                          &b->buffer[b->weight_buffer[tensor]].dist);
}

/* Stages and chunks that share a weight sum its gradients block by block, or shard by shard. */
static enum sbp_status check_ties(const struct job *job, struct sbp_diag *diag)
{
    const struct sbp_step *step = job->step;
    const struct sbp_graph *graph = sbp_step_program(step, 0)->graph;
    for (int t = 0; t < graph->tensor_count; t++)
        for (int piece = 0; piece < step->pieces; piece++)
            if (sbp_step_program(step, piece)->weight_buffer[t] >= 0 &&
                !same_states(sbp_step_program(step, piece),
                             sbp_step_program(step, sbp_step_holder(step, t)), t))
                return sbp_fail(diag, SBP_E_UNSUPPORTED,
                                "plan: %s: split or sharded otherwise in another stage or chunk is "
                                "searched and priced, not run: alike is legal",
                                graph->tensor[t].name);
    return SBP_OK;
}

/* Checks what needs no ranks, and makes room for the result. */
static enum sbp_status open_job(struct job *job, struct sbp_diag *diag)
{
    const struct sbp_program *program = &job->step->program[0];
    *job->result = (struct sbp_run_result){0};
    SBP_TRY(sbp_runnable_check(program->graph, &program->mesh, &program->strategy,
                               &program->parallel, diag));
    SBP_TRY(check_ties(job, diag));
    return open_result(job, diag);
}

enum sbp_status sbp_run_check(const struct sbp_step *step, const struct sbp_run_options *options,
                              struct sbp_diag *diag)
{
    struct sbp_run_result result;
    struct job job = {.step = step,
                      .ranks = step->stages * step->mesh.devices,
                      .options = options,
                      .result = &result};
    enum sbp_status status = open_job(&job, diag);
    if (status == SBP_OK)
        status = check_backend(&job, diag);
    sbp_run_free(&result);
    return status;
}

enum sbp_status sbp_run(const struct sbp_step *step, const struct sbp_cluster *cluster,
                        const struct sbp_run_options *options, struct sbp_run_result *result,
                        struct sbp_diag *diag)
{
    struct job job = {.step = step,
                      .ranks = step->stages * step->mesh.devices,
                      .cluster = cluster,
                      .options = options,
                      .result = result};
    enum sbp_status status = open_job(&job, diag);
    if (status == SBP_OK && options->alarm != NULL)
        status = sbp_watch_start(&job.watch, options->alarm, step, job.tasks,
                                 result->prediction.step_s, options->deadline_s, diag);
    if (status == SBP_OK)
        status = run_ranks(&job, diag);
    sbp_watch_stop(&job.watch);
    sbp_machine_release(job.space, job.space_bytes); /* where ranks did not come so far */
    if (status == SBP_OK && job.refused > 0)
        status = sbp_fail(diag, SBP_E_INPUT, "plan is for %lld ranks, %d are running",
                          (long long)job.ranks, job.refused);
    if (status != SBP_OK)
        sbp_run_free(result);
    return status;
}

void sbp_run_free(struct sbp_run_result *result)
{
    sbp_arena_free(&result->arena);
    *result = (struct sbp_run_result){0};
}
