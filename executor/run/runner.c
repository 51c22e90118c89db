#include "executor/run/runner_priv.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/machine.h"
#include "executor/comm/comm_staged.h"
#include "executor/rank/rank_states.h"
#include "executor/run/run_agree.h"
#include "executor/run/run_memory.h"

/* Whether an update takes its gradient, which must be finite: the second look at the step trains on
 * what the weights are then. Of clipped gradients the norm tells, and no weight is updated; else
 * each rank looks at its own, and tensors whose gradient is finite may have been updated. The
 * device leaves such an update out by itself. A weight of two versions would still be copied from
 * one to the other, so that the host reads first what the device decided, once a step where there
 * is a norm. Behind an odd step nothing is updated. */
static enum sbp_status takes_gradient(struct sbp_runner *runner, const struct sbp_instr *instr,
                                      bool *takes, struct sbp_diag *diag)
{
    struct sbp_rank *rank = &runner->rank;
    *takes = runner->second_look == NULL && runner->odd_step == 0 && !runner->is_spoiled;
    if (!*takes)
        return SBP_OK;
    sbp_rank_decide(rank);
    if (rank->norm == NULL)
        sbp_odd_layer_watch(rank, instr);
    if (rank->program->other_version[instr->tensor] < 0)
        return SBP_OK;
    if (rank->norm == NULL || !rank->is_read)
        SBP_TRY(sbp_rank_read_state(rank, diag));
    *takes = rank->known.leaves_out == 0 || sbp_rank_mends_overflow(rank);
    return SBP_OK;
}

/* The fault that is planted in a task. */
static enum sbp_fault fault_of(const struct sbp_runner *runner, const struct sbp_task *task)
{
    const struct sbp_run_options *options = runner->job->options;
    const int piece = task->chunk * runner->job->step->stages + runner->stage;
    return options->fault_instr == task->instr && options->fault_piece == piece ? options->fault
                                                                                : SBP_FAULT_NONE;
}

static enum sbp_status execute(struct sbp_runner *runner, const struct sbp_task *task,
                               struct sbp_diag *diag)
{
    const struct sbp_instr *instr = &runner->rank.program->instr[task->instr];
    const enum sbp_fault fault = fault_of(runner, task);
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
    return runner->second_look == NULL
               ? SBP_OK
               : sbp_odd_layer_look(&runner->rank, task, runner->second_look, diag);
}

/* Whether sums beside have a lane: one of the device, or a thread where a second one may
 * communicate. Faults that spoil numbers are planted in, and a second look is at, what is done in
 * its place. */
static bool has_sum_lane(const struct sbp_runner *runner)
{
    const struct sbp_channel *channel = &runner->channel;
    const enum sbp_fault fault = runner->job->options->fault;
    return (runner->lanes.ops != NULL || channel->ops->is_shared(channel->comm)) &&
           runner->second_look == NULL &&
           (fault == SBP_FAULT_NONE || fault == SBP_FAULT_NO_WAIT || fault == SBP_FAULT_STALL);
}

/* Puts a sum into the device's lane of collectives; of buckets, all that follow it as well. */
static enum sbp_status put_sums(struct sbp_runner *runner, int64_t index, struct sbp_diag *diag)
{
    const struct sbp_tasks *tasks = runner->tasks;
    struct sbp_rank *rank = &runner->rank;
    const bool all = sbp_task_sums_buckets(&tasks->task[index]);
    for (int64_t i = index; i < (all ? tasks->count : index + 1); i++) {
        const struct sbp_task *task = &tasks->task[i];
        if (!task->is_beside || i < runner->lanes.given)
            continue;
        sbp_channel_turn(&runner->channel, i);
        sbp_rank_turn_to(rank, task);
        sbp_run_lanes_begin(&runner->lanes, i, -1);
        SBP_TRY(sbp_rank_execute(rank, &rank->program->instr[task->instr], diag));
        sbp_run_lanes_end(&runner->lanes, true, 0, &runner->intervals[i]);
        runner->lanes.given = i + 1;
    }
    sbp_rank_turn_to(rank, &tasks->task[index]);
    sbp_channel_turn(&runner->channel, index + 1);
    return SBP_OK;
}

/* Leaves a sum to the lane, whose interval that takes, and whose entry of the log. */
static enum sbp_status give_sum(struct sbp_runner *runner, int64_t index, double step_start_s,
                                struct sbp_diag *diag)
{
    if (runner->lanes.ops != NULL)
        return put_sums(runner, index, diag);
    if (runner->sums.running == NULL)
        SBP_TRY(sbp_sum_lane_begin(&runner->sums, &runner->job->sums, &runner->rank, runner->tasks,
                                   runner->intervals, step_start_s, diag));
    sbp_channel_turn(&runner->channel, index + 1);
    return sbp_sum_lane_give(&runner->sums, index, diag);
}

/* Before a task: waits for the sums that it needs, or that communicate before it. */
static enum sbp_status wait_for_sums(struct sbp_runner *runner, int64_t index,
                                     struct sbp_diag *diag)
{
    const struct sbp_task *task = &runner->tasks->task[index];
    if (fault_of(runner, task) == SBP_FAULT_NO_WAIT)
        return SBP_OK;
    sbp_run_lanes_await(&runner->lanes, task->after);
    if (runner->sums.running == NULL || task->after <= runner->sums.waited)
        return SBP_OK;
    SBP_TRY(sbp_sum_lane_wait(&runner->sums, task->after, runner->channel.post, diag));
    sbp_post_task(runner->channel.post, (int)index);
    return SBP_OK;
}

struct clocks {
    double wall_s, compute_s, exchange_wall_s, exchange_cpu_s;
    struct sbp_spent spent; /* by verification */
};

static struct clocks read_clocks(const struct sbp_runner *runner)
{
    const struct sbp_device_ops *device = runner->rank.device;
    return (struct clocks){.wall_s = sbp_clock_s(),
                           .compute_s = device->lanes != NULL ? 0 : device->compute_s(),
                           .exchange_wall_s = runner->channel.wall_s,
                           .exchange_cpu_s = runner->channel.cpu_s,
                           .spent = sbp_verify_spent(runner->verifier)};
}

static void take_times(struct sbp_pace *pace, const struct clocks *from, const struct clocks *to,
                       double waited_s, double step_start_s, struct sbp_run_interval *interval,
                       struct sbp_rank_report *report)
{
    const double beside_s =
        to->exchange_cpu_s - from->exchange_cpu_s + to->spent.cpu_s - from->spent.cpu_s;
    interval->start_s = from->wall_s - waited_s - step_start_s;
    interval->wall_s =
        waited_s + to->wall_s - from->wall_s - (to->spent.wall_s - from->spent.wall_s);
    interval->communication_s = waited_s + to->exchange_wall_s - from->exchange_wall_s;
    interval->compute_s = fmax(0, to->compute_s - from->compute_s - beside_s);
    interval->wall_s +=
        sbp_pace_rest(pace, interval->compute_s, interval->wall_s - interval->communication_s);
    interval->compute_s *= fmax(1, pace->slowdown);
    report->step.compute_s += interval->compute_s;
    report->step.communication_s += interval->communication_s;
}

/* Runs a task and takes its time, without what verification adds to it; lanes of a device tell it
 * at the step's end. waited_s: what the rank waited for the message of the work that the task
 * begins, before it knew which one that is. */
static enum sbp_status execute_timed(struct sbp_runner *runner, int64_t index, double step_start_s,
                                     double waited_s, struct sbp_rank_report *report,
                                     struct sbp_diag *diag)
{
    const struct sbp_task *task = &runner->tasks->task[index];
    struct sbp_run_interval *interval = &runner->intervals[index];
    bool takes = true;
    if (runner->rank.program->instr[task->instr].kind == SBP_INSTR_UPDATE)
        SBP_TRY(takes_gradient(runner, &runner->rank.program->instr[task->instr], &takes, diag));
    const struct clocks from = read_clocks(runner);
    if (runner->lanes.ops != NULL && task->work == SBP_WORK_UPDATE)
        sbp_state_copies_await(&runner->copies);
    sbp_run_lanes_begin(&runner->lanes, index, -1);
    if (takes)
        SBP_TRY(execute(runner, task, diag));
    const struct clocks to = read_clocks(runner);
    if (runner->lanes.ops != NULL)
        sbp_run_lanes_end(&runner->lanes, false, to.spent.wall_s - from.spent.wall_s, interval);
    else
        take_times(&runner->pace, &from, &to, waited_s, step_start_s, interval, report);
    return SBP_OK;
}

/* A task with what stands around it: the data of a micro-batch that it begins, and sums beside. */
static enum sbp_status do_task(struct sbp_runner *runner, int64_t index, double step_start_s,
                               double waited_s, struct sbp_rank_report *report,
                               struct sbp_diag *diag)
{
    const struct sbp_task *task = &runner->tasks->task[index];
    sbp_post_task(runner->channel.post, (int)index);
    sbp_rank_turn_to(&runner->rank, task);
    runner->rank.next_waits = index + 1 < runner->tasks->count && task[1].after > 0;
    SBP_TRY(wait_for_sums(runner, index, diag)); /* before tables are written where one works */
    if (task->begins)
        SBP_TRY(sbp_rank_begin_work(&runner->rank, task, diag));
    if (task->is_beside && has_sum_lane(runner))
        SBP_TRY(give_sum(runner, index, step_start_s, diag));
    else if (runner->lanes.ops != NULL &&
             sbp_program_is_host_copy(&runner->rank.program->instr[task->instr]))
        SBP_TRY(sbp_state_copies_do(&runner->copies, index, diag));
    else
        SBP_TRY(execute_timed(runner, index, step_start_s, waited_s, report, diag));
    if (task->ends)
        sbp_rank_end_work(&runner->rank, task);
    return SBP_OK;
}

/* Without a flush a stage goes on with the next step while others are still at this one. */
static bool has_flush(const struct sbp_runner *runner)
{
    return !sbp_timeline_delays_gradients(runner->job->step->parallel.schedule);
}

/* Whether ranks wait for each other before a step: verification looks at all of them. */
static bool begins_together(const struct sbp_runner *runner)
{
    return has_flush(runner) || runner->verifier != NULL || runner->rank.step <= 1;
}

/* Passes by a work that is not in the round, or of another step; a replay takes its arithmetic of
 * the last time. */
static void skip_work(struct sbp_runner *runner, int64_t first, int64_t end, double start_s)
{
    const bool is_other =
        runner->tasks->task[first].phase != sbp_tasks_phase(runner->tasks, runner->channel.number);
    for (int64_t i = first; i < end; i++) {
        runner->intervals[i].start_s = is_other ? (double)NAN : sbp_clock_s() - start_s;
        runner->intervals[i].wall_s = runner->intervals[i].communication_s = 0;
    }
    sbp_channel_turn(&runner->channel, end);
}

static enum sbp_status hear_verdict(struct sbp_runner *runner, struct sbp_diag *diag)
{
    runner->is_verdict_due = false;
    return sbp_channel_receive(&runner->channel, 0, SBP_TAG_VERDICT, &runner->odd_step,
                               sizeof runner->odd_step, diag);
}

/* A stage without weights, which has no update, hears of an odd step at the next one's end; so do
 * replicas, who have the same finished gradients and see themselves that these are odd. */
static enum sbp_status end_tasks(struct sbp_runner *runner, struct sbp_diag *diag)
{
    if (runner->is_verdict_due)
        SBP_TRY(hear_verdict(runner, diag));
    return sbp_rank_end_step(&runner->rank, diag);
}

static enum sbp_status run_tasks(struct sbp_runner *runner, struct sbp_message_lane *lane,
                                 double start_s, struct sbp_rank_report *report,
                                 struct sbp_diag *diag)
{
    for (;;) {
        int64_t first, end;
        const double wall_s = sbp_clock_s();
        SBP_TRY(sbp_message_lane_next(lane, &first, &end, diag));
        const double waited_s = sbp_tasks_are_driven(runner->tasks) ? sbp_clock_s() - wall_s : 0;
        if (first == end)
            return end_tasks(runner, diag);
        if (!sbp_tasks_have(runner->tasks, &runner->tasks->task[first], runner->channel.number,
                            runner->channel.round)) {
            skip_work(runner, first, end, start_s);
            continue;
        }
        if (runner->tasks->task[first].work == SBP_WORK_UPDATE && runner->is_verdict_due &&
            !runner->job->step->replicates)
            SBP_TRY(hear_verdict(runner, diag));
        for (int64_t i = first; i < end; i++)
            SBP_TRY(do_task(runner, i, start_s, i == first ? waited_s : 0, report, diag));
    }
}

/* The device comes to the end of the round. */
static enum sbp_status end_lanes(struct sbp_runner *runner, enum sbp_round round,
                                 struct sbp_rank_report *report, struct sbp_diag *diag)
{
    SBP_TRY(runner->rank.device->finish(diag));
    sbp_run_lanes_times(&runner->lanes, round, runner->intervals, &report->step);
    return SBP_OK;
}

static enum sbp_status run_instructions(struct sbp_runner *runner, enum sbp_round round,
                                        struct sbp_rank_report *report, struct sbp_diag *diag)
{
    struct sbp_message_lane lane;
    const bool together = begins_together(runner);
    sbp_channel_begin_step(&runner->channel, runner->rank.step - 1, round);
    if (together)
        SBP_TRY(sbp_channel_barrier(&runner->channel, diag));
    const struct sbp_spent spent = sbp_verify_spent(runner->verifier);
    const double start_s = together ? sbp_clock_s() : runner->through_s;
    sbp_run_lanes_begin_step(&runner->lanes);
    sbp_state_copies_begin_step(&runner->copies);
    runner->pace = (struct sbp_pace){.slowdown = runner->job->step->cluster.slowdown};
    SBP_TRY(sbp_message_lane_begin(&lane, &runner->job->messages, runner->tasks, &runner->channel,
                                   &runner->messenger, diag));
    enum sbp_status played = run_tasks(runner, &lane, start_s, report, diag);
    played = sbp_sum_lane_end(&runner->sums, &runner->rank, played, diag);
    report->step.communication_s += runner->sums.waited_s;
    runner->sums.waited_s = 0;
    if (played == SBP_OK)
        played = end_lanes(runner, round, report, diag);
    runner->through_s = sbp_clock_s();
    report->step.wall_s =
        runner->through_s - start_s - (sbp_verify_spent(runner->verifier).wall_s - spent.wall_s);
    SBP_TRY(sbp_message_lane_end(&lane, played, diag));
    SBP_TRY(sbp_channel_check(&runner->channel, diag));
    if (round == SBP_ROUND_AHEAD)
        return SBP_OK;
    return sbp_run_fill_report(runner, &lane, report, diag);
}

/* Called between the parts of a step only: a terminal must not slow down the timed part. */
static void show_progress(struct sbp_runner *runner, int step, const char *part)
{
    const struct sbp_run_options *options = runner->job->options;
    const struct sbp_done *all = options->progress;
    if (sbp_runner_leads(runner))
        sbp_progress_show(&runner->progress, "step %d of %d: %s",
                          (all != NULL ? all->done : step) + 1,
                          all != NULL ? all->total : options->steps, part);
}

static void stay(struct sbp_runner *runner, enum sbp_stay stays, int step)
{
    static const char *const parts[] = {
        [SBP_STAYS_STEP] = "training", [SBP_STAYS_VERIFY] = "verifying"};
    sbp_post_task(runner->channel.post, -1);
    sbp_post_stay(runner->channel.post, stays, step + 1);
    if (stays < (int)(sizeof parts / sizeof *parts) && parts[stays] != NULL)
        show_progress(runner, step, parts[stays]);
}

static enum sbp_round round_of(const struct sbp_runner *runner, int step)
{
    return has_flush(runner) || step + 1 < runner->job->options->steps ? SBP_ROUND_WHOLE
                                                                       : SBP_ROUND_LAST;
}

/* Whether others than rank 0 hear of an odd step when they update in the next one, which is before
 * they spoil its weights: without a flush they have begun that one by then. */
static bool hears_late(const struct sbp_runner *runner, int step)
{
    return !has_flush(runner) && runner->verifier == NULL && step + 1 < runner->job->options->steps;
}

static enum sbp_status share_report(struct sbp_runner *runner, int step,
                                    const struct sbp_rank_report *report, struct sbp_diag *diag)
{
    stay(runner, SBP_STAYS_REPORT, step);
    SBP_TRY(sbp_run_gather_reports(runner, step, report, diag));
    if (sbp_runner_leads(runner))
        return SBP_OK;
    runner->is_verdict_due = hears_late(runner, step);
    return runner->is_verdict_due ? SBP_OK : hear_verdict(runner, diag);
}

/* A step behind an odd one counts for nothing. */
static enum sbp_status run_step(struct sbp_runner *runner, int step, struct sbp_diag *diag)
{
    const struct sbp_run_options *options = runner->job->options;
    struct sbp_rank_report report = {0};
    runner->is_spoiled |= runner->job->step->replicates && runner->rank.known.has_odd_gradient != 0;
    sbp_rank_begin_step(&runner->rank, step + 1);
    if (options->fault_piece % runner->job->step->stages == runner->stage)
        SBP_TRY(sbp_run_fault_begin_step(options->fault, &runner->rank, diag));
    if (runner->verifier != NULL) {
        stay(runner, SBP_STAYS_VERIFY, step);
        SBP_TRY(sbp_verify_begin_step(runner->verifier, diag));
    }
    stay(runner, SBP_STAYS_STEP, step);
    SBP_TRY(run_instructions(runner, round_of(runner, step), &report, diag));
    if (runner->odd_step > 0)
        return SBP_OK;
    if (runner->verifier != NULL) {
        stay(runner, SBP_STAYS_VERIFY, step);
        SBP_TRY(sbp_verify_end_step(runner->verifier, diag));
    }
    return share_report(runner, step, &report, diag);
}

/* Plays a round of a step that is not reported. */
static enum sbp_status run_round(struct sbp_runner *runner, int step, enum sbp_round round,
                                 struct sbp_diag *diag)
{
    struct sbp_rank_report none = {0};
    sbp_rank_begin_step(&runner->rank, step);
    stay(runner, SBP_STAYS_STEP, step > 0 ? step - 1 : 0);
    return run_instructions(runner, round, &none, diag);
}

/* Tells whom it may concern how many steps are finished. */
static enum sbp_status announce(struct sbp_runner *runner, int steps, struct sbp_diag *diag)
{
    const struct sbp_run_options *options = runner->job->options;
    if (!sbp_runner_leads(runner))
        return SBP_OK;
    sbp_progress_end(&runner->progress); /* rows go where its line stands */
    if (options->on_step != NULL) {
        sbp_post_stay(runner->channel.post, SBP_STAYS_OUTPUT, steps);
        SBP_TRY(options->on_step(options->context, runner->job->result, steps, diag));
    }
    if (options->progress != NULL)
        options->progress->done += steps > 0;
    return SBP_OK;
}

/* Without a flush micro-batches of the step that follows are under way: they go to their end, and
 * those of the odd step come once more from its begin. */
static enum sbp_status look_again(struct sbp_runner *runner, int steps, struct sbp_odd_layer *own,
                                  struct sbp_diag *diag)
{
    struct sbp_odd_layer other = {.found = false};
    runner->rank.keeps_apart = true;
    runner->second_look = &other;
    if (!has_flush(runner) && steps < runner->job->options->steps)
        SBP_TRY(run_round(runner, steps + 1, SBP_ROUND_LAST, diag));
    runner->second_look = own;
    sbp_odd_layer_clear(&runner->rank);
    if (!has_flush(runner))
        SBP_TRY(run_round(runner, runner->odd_step - 1, SBP_ROUND_AHEAD, diag));
    return run_round(runner, runner->odd_step, has_flush(runner) ? SBP_ROUND_WHOLE : SBP_ROUND_LAST,
                     diag);
}

/* Looks at the odd step once more; rank 0 keeps the first layer that any rank found. */
static enum sbp_status find_odd_layer(struct sbp_runner *runner, int steps, struct sbp_diag *diag)
{
    struct sbp_odd_layer own = {.found = false}, other;
    struct sbp_odd_layer *first = &runner->job->result->odd.layer;
    SBP_TRY(look_again(runner, steps, &own, diag));
    own.rank = sbp_runner_world_rank(runner);
    if (!sbp_runner_leads(runner))
        return sbp_channel_send(&runner->channel, 0, SBP_TAG_ODD, &own, sizeof own, diag);
    *first = own;
    for (int peer = 1; peer < runner->job->ranks; peer++) {
        SBP_TRY(
            sbp_channel_receive(&runner->channel, peer, SBP_TAG_ODD, &other, sizeof other, diag));
        if (sbp_odd_layer_precedes(&other, first))
            *first = other;
    }
    return SBP_OK;
}

/* Whether the run ends behind so many steps. Where the others hear late of an odd one, rank 0 plays
 * the next one with them. */
static bool ends(const struct sbp_runner *runner, int steps)
{
    const int odd = runner->odd_step;
    return steps == runner->job->options->steps ||
           (odd > 0 && (steps > odd || !hears_late(runner, steps - 1)));
}

/* The last step whose list was gone through whole, if there is one: it is traced. */
static int last_whole(const struct sbp_runner *runner)
{
    const int steps = runner->job->options->steps;
    return has_flush(runner) || steps == 1 ? steps : steps - 1;
}

static enum sbp_status run_steps(struct sbp_runner *runner, struct sbp_diag *diag)
{
    struct sbp_run_result *result = runner->job->result;
    const int whole = last_whole(runner);
    int steps = 0;
    SBP_TRY(announce(runner, 0, diag));
    if (!has_flush(runner))
        SBP_TRY(run_round(runner, 0, SBP_ROUND_AHEAD, diag));
    while (!ends(runner, steps)) {
        SBP_TRY(run_step(runner, steps++, diag));
        if (runner->odd_step == 0 || runner->odd_step == steps)
            SBP_TRY(announce(runner, steps, diag));
        if (steps == whole)
            SBP_TRY(sbp_run_gather_intervals(runner, diag));
    }
    if (steps < whole)
        SBP_TRY(sbp_run_gather_intervals(runner, diag));
    if (runner->odd_step > 0)
        SBP_TRY(find_odd_layer(runner, steps, diag));
    if (!sbp_runner_leads(runner))
        return SBP_OK;
    result->steps = runner->odd_step > 0 ? runner->odd_step : steps;
    if (runner->verifier != NULL) {
        const struct sbp_verify_outcome *outcome = sbp_verify_outcome(runner->verifier);
        result->finding = outcome->first;
        result->worst_ratio = outcome->worst_ratio;
        result->remeasured = outcome->remeasured;
    }
    result->filled = true;
    return SBP_OK;
}

static enum sbp_status open_runner(struct sbp_runner *runner, const struct sbp_comm_ops *ops,
                                   struct sbp_comm *comm, struct sbp_diag *diag)
{
    const struct sbp_run_job *job = runner->job;
    const struct sbp_device_ops *device = job->device;
    const int64_t devices = job->step->mesh.devices;
    runner->stage = (int)(ops->rank(comm) / devices);
    runner->tasks = &job->tasks[runner->stage];
    SBP_TRY(sbp_channel_open(&runner->channel, ops, comm, job->step, runner->tasks,
                             device->kernels(job->options->real), &runner->arena, diag));
    runner->channel.post = runner->post;
    runner->channel.compares = job->options->compares;
    SBP_TRY(sbp_message_way_choose(&runner->channel, job->tasks, job->options->messages,
                                   &runner->arena, &job->result->messages, diag));
    if (!has_flush(runner))
        SBP_TRY(sbp_channel_greet(&runner->channel, job->tasks, &runner->arena, diag));
    SBP_TRY(sbp_run_lanes_open(&runner->lanes, device, &runner->channel, runner->tasks, diag));
    runner->intervals = SBP_NEW(&runner->arena, struct sbp_run_interval, runner->tasks->count);
    runner->compute_s = SBP_NEW(&runner->arena, double, job->result->most_tasks + 1);
    if (runner->intervals == NULL || runner->compute_s == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for the step's times");
    SBP_TRY(sbp_stage_layout_make(job->step, runner->stage, &runner->arena, &runner->layout, diag));
    sbp_message_lane_find(&runner->messenger, &runner->channel, device);
    const int64_t arena_bytes = runner->layout.bytes;
    runner->layout.bytes += runner->messenger.behind_bytes;
    SBP_TRY(sbp_rank_open(&runner->rank, &runner->layout, device, job->options->real,
                          job->options->seed, ops->rank(comm) % devices, &runner->channel, diag));
    runner->rank.labels = job->options->labels;
    runner->copies = (struct sbp_state_copies){.lanes = &runner->lanes,
                                               .rank = &runner->rank,
                                               .tasks = runner->tasks,
                                               .intervals = runner->intervals};
    if (device->lanes != NULL)
        sbp_rank_find_places(&runner->rank, arena_bytes);
    SBP_TRY(sbp_message_lane_reserve(&runner->messenger, runner->rank.memory + arena_bytes, diag));
    sbp_post_stay(runner->post, SBP_STAYS_FILL, 0);
    const enum sbp_status filled = sbp_rank_fill_weights(&runner->rank);
    if (filled != SBP_OK)
        return sbp_fail(diag, filled, "the initial weights on device %s: %s", device->name,
                        filled == SBP_E_MEMORY ? "out of memory" : "they cannot be written");
    SBP_TRY(device->finish(diag));
    if (!job->options->verify)
        return SBP_OK;
    SBP_TRY(sbp_verify_open(&runner->rank, job->cluster, job->options->sampled, &runner->verifier,
                            diag));
    sbp_verify_remeasure(runner->verifier, job->options->remeasures);
    return SBP_OK;
}

/* Leaves the kernels the address space that was kept for them, now that all ranks of this process
 * have their memory. What is large is allocated by then. */
static enum sbp_status release_space(struct sbp_runner *runner, struct sbp_diag *diag)
{
    struct sbp_run_job *job = runner->job;
    SBP_TRY(sbp_channel_barrier(&runner->channel, diag));
    sbp_machine_release(atomic_exchange(&job->space, NULL), job->space_bytes);
    return SBP_OK;
}

/* Ranks that are processes have their own memory, and a board of posts in common. */
static enum sbp_status join(struct sbp_runner *runner, const struct sbp_comm_ops *ops,
                            struct sbp_comm *comm, struct sbp_diag *diag)
{
    struct sbp_run_job *job = runner->job;
    const struct sbp_endpoint host = ops->host(comm);
    struct sbp_run_pact pact = {
        .step = job->step, .tasks = job->tasks, .options = job->options, .ranks = job->ranks};
    const bool fits = ops->size(comm) == job->ranks;
    if (fits)
        pact.post = runner->post = sbp_watch_post(&job->watch, ops->rank(comm));
    if (fits && sbp_run_is_mpi(job))
        pact.need = sbp_run_need_of(job->step, ops->rank(comm), &job->verify, job->device->memory);
    SBP_TRY(sbp_run_agree(&pact, host.ops, host.comm, &job->result->ranks_here, diag));
    if (!fits) {
        /* Every rank sees it: no need to end the others. */
        job->refused = ops->size(comm);
        return SBP_OK;
    }
    if (sbp_run_is_mpi(job) && job->options->alarm != NULL) {
        SBP_TRY(sbp_watch_share(&job->watch, host.ops, host.comm, diag));
        runner->post = sbp_watch_post(&job->watch, ops->rank(comm));
    }
    return SBP_OK;
}

/* Frees what open_runner made, or a part of it. */
static void close_runner(struct sbp_runner *runner)
{
    sbp_progress_end(&runner->progress);
    sbp_verify_close(runner->verifier);
    sbp_run_fault_free(&runner->fault, &runner->rank);
    sbp_message_lane_release(&runner->messenger);
    sbp_rank_close(&runner->rank);
    sbp_run_lanes_close(&runner->lanes);
    sbp_arena_free(&runner->arena);
    sbp_post_stay(runner->post, SBP_STAYS_LEFT, 0);
}

/* at: a backend of the device's memory. */
static enum sbp_status run_by(struct sbp_runner *runner, const struct sbp_endpoint *at,
                              struct sbp_diag *diag)
{
    enum sbp_status status = open_runner(runner, at->ops, at->comm, diag);
    if (status == SBP_OK)
        status = release_space(runner, diag);
    if (status == SBP_OK)
        status = run_steps(runner, diag);
    if (status != SBP_OK)
        sbp_run_lanes_call_off(&runner->lanes);
    close_runner(runner);
    return status;
}

/* Whether a backend's buffers lie on the device: a module has a copy of its table of memory. */
static bool shares_memory(const struct sbp_runner *runner, const struct sbp_endpoint *backend)
{
    return strcmp(backend->ops->memory->name, runner->job->device->memory->name) == 0;
}

static enum sbp_status run_on(struct sbp_runner *runner, const struct sbp_endpoint *backend,
                              struct sbp_diag *diag)
{
    const struct sbp_memory_ops *memory = runner->job->device->memory;
    struct sbp_endpoint staged = {NULL, NULL};
    if (shares_memory(runner, backend))
        return run_by(runner, backend, diag);
    SBP_TRY(sbp_staged_open(backend, memory, &staged, diag));
    const enum sbp_status status = run_by(runner, &staged, diag);
    sbp_staged_close(&staged);
    return status;
}

/* A device that fails is seen later, by a copy or a message that fails for it: its own words come
 * first. */
static enum sbp_status tell_first(const struct sbp_runner *runner, enum sbp_status status,
                                  struct sbp_diag *diag)
{
    struct sbp_diag first = {0};
    const enum sbp_status failed = status == SBP_OK ? SBP_OK : runner->job->device->finish(&first);
    if (failed == SBP_OK)
        return status;
    *diag = first;
    return failed;
}

enum sbp_status sbp_runner_main(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                void *argument, struct sbp_diag *diag)
{
    struct sbp_runner runner = {.job = argument};
    const struct sbp_endpoint backend = {ops, comm};
    sbp_progress_start(&runner.progress);
    SBP_TRY(join(&runner, ops, comm, diag));
    if (runner.job->refused > 0)
        return SBP_OK;
    const bool has_device = ops->memory != &sbp_device_host_memory;
    sbp_post_stay(runner.post, SBP_STAYS_FILL, 0); /* kernels may have to be compiled */
    int place = -1;                                /* the backend has chosen */
    if (!has_device && runner.job->device->memory != &sbp_device_host_memory)
        SBP_TRY(sbp_run_place_here(ops, comm, &place, diag));
    SBP_TRY(runner.job->device->open(place, diag));
    const enum sbp_status status = tell_first(&runner, run_on(&runner, &backend, diag), diag);
    runner.job->device->close();
    return status;
}
