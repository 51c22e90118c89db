#include "executor/run/device_lanes.h"

#include <math.h>

static const struct sbp_instr *instr_of(const struct sbp_run_lanes *lanes, int64_t task)
{
    return sbp_task_instr(lanes->channel->step, lanes->channel->stage, &lanes->tasks->task[task]);
}

static bool is_message(const struct sbp_instr *instr)
{
    return instr->kind == SBP_INSTR_SEND || instr->kind == SBP_INSTR_RECEIVE ||
           instr->kind == SBP_INSTR_TAKE || instr->kind == SBP_INSTR_PASS;
}

/* Messages between stages stay in the rank's line, so that none waits for a sum beside; so do
 * SUMMA's panels and a ring's blocks, since the line works on them as they come. */
static enum sbp_device_lane lane_of(const struct sbp_run_lanes *lanes, int64_t task)
{
    struct sbp_members members;
    const struct sbp_instr *instr = instr_of(lanes, task);
    if (instr->kind == SBP_INSTR_COPY_IN)
        return SBP_DEVICE_COPY_IN;
    if (instr->kind == SBP_INSTR_COPY_OUT)
        return SBP_DEVICE_COPY_OUT;
    return sbp_program_is_call(instr) && sbp_channel_waits(lanes->channel, task, &members)
               ? SBP_DEVICE_COLLECTIVE
               : SBP_DEVICE_COMPUTE;
}

/* ---- while the rank waits -------------------------------------------------------------------- */

/* The stage that a task's message comes from; -1: it takes none of another one. */
static int sender(const struct sbp_run_lanes *lanes, int64_t task)
{
    const struct sbp_step *step = lanes->channel->step;
    const int stage = lanes->channel->stage;
    const struct sbp_task *own = &lanes->tasks->task[task];
    const struct sbp_instr *instr = instr_of(lanes, task);
    const bool comes_back = instr->section != SBP_SECTION_FORWARD;
    if (instr->kind == SBP_INSTR_TAKE)
        return sbp_task_route(step, stage, own).peer;
    if (instr->kind != SBP_INSTR_RECEIVE || instr->box.kind == SBP_LOCAL)
        return -1;
    return sbp_step_worker(step, sbp_step_piece(step, stage, own->chunk) + (comes_back ? 1 : -1),
                           lanes->channel->number + own->is_ahead, own->micro_batch);
}

/* Notes on the post what the device is at, whom that may wait for with it. */
static void note(struct sbp_run_lanes *lanes, int64_t task)
{
    const struct sbp_channel *channel = lanes->channel;
    const int stage = sender(lanes, task);
    struct sbp_members members;
    lanes->noted = task;
    sbp_post_task(channel->post, (int)task);
    if (sbp_channel_waits(channel, task, &members))
        sbp_post_wait_group(channel->post, &members);
    else
        sbp_post_wait(channel->post,
                      stage < 0 ? SBP_WAITS_NOT : sbp_channel_rank(channel, stage, channel->place));
}

/* A note is written once: the watch looks for how long nothing was. */
static enum sbp_status look(void *context, int64_t task, struct sbp_diag *diag)
{
    struct sbp_run_lanes *lanes = context;
    const struct sbp_channel *channel = lanes->channel;
    if (task >= 0 && task != lanes->at && task != lanes->noted)
        note(lanes, task);
    const enum sbp_status status =
        channel->ops->look == NULL ? SBP_OK : channel->ops->look(channel->comm);
    if (status == SBP_OK)
        return SBP_OK;
    char name[160] = "no task";
    if (task >= 0)
        sbp_task_name(sbp_step_chunk(channel->step, channel->stage, lanes->tasks->task[task].chunk),
                      &lanes->tasks->task[task], name, sizeof name);
    return sbp_fail(diag, status, "%s: %s: %s", name, channel->ops->name,
                    channel->ops->reason(channel->comm));
}

/* ---- opening and closing --------------------------------------------------------------------- */

static void work_on(const struct sbp_run_lanes *lanes, void *stream)
{
    const struct sbp_channel *channel = lanes->channel;
    if (channel->ops->work_on != NULL)
        channel->ops->work_on(channel->comm, stream);
}

enum sbp_status sbp_run_lanes_open(struct sbp_run_lanes *lanes, const struct sbp_device_ops *device,
                                   struct sbp_channel *channel, const struct sbp_tasks *tasks,
                                   struct sbp_diag *diag)
{
    *lanes = (struct sbp_run_lanes){
        .ops = device->lanes, .channel = channel, .tasks = tasks, .at = -1, .noted = -1};
    if (lanes->ops == NULL)
        return SBP_OK;
    SBP_TRY(lanes->ops->reserve(tasks->count, diag));
    lanes->ops->watch(look, lanes);
    work_on(lanes, lanes->ops->stream());
    return SBP_OK;
}

/* A call fails, too, for what fails on the device: then the device tells at which task that was. */
void sbp_run_lanes_call_off(struct sbp_run_lanes *lanes)
{
    if (lanes->ops == NULL || lanes->channel->ops->call_off == NULL)
        return;
    lanes->ops->look();
    lanes->channel->ops->call_off(lanes->channel->comm);
}

void sbp_run_lanes_close(struct sbp_run_lanes *lanes)
{
    if (lanes->ops == NULL)
        return;
    work_on(lanes, NULL);
    lanes->ops->watch(NULL, NULL);
    lanes->ops = NULL;
}

/* ---- tasks ----------------------------------------------------------------------------------- */

void sbp_run_lanes_begin_step(struct sbp_run_lanes *lanes)
{
    lanes->given = lanes->waited = 0;
    lanes->at = lanes->noted = -1;
    if (lanes->ops != NULL)
        lanes->ops->begin_step();
}

void sbp_run_lanes_begin(struct sbp_run_lanes *lanes, int64_t task, int64_t behind)
{
    lanes->at = task;
    if (lanes->ops == NULL)
        return;
    lanes->ops->begin(task, lane_of(lanes, task), behind);
    work_on(lanes, lanes->ops->stream());
    if (lanes->noted >= 0)
        note(lanes, task);
    lanes->noted = -1;
}

void sbp_run_lanes_end(struct sbp_run_lanes *lanes, bool beside, double spent_s,
                       struct sbp_run_interval *interval)
{
    if (lanes->ops == NULL)
        return;
    lanes->ops->end(beside);
    work_on(lanes, lanes->ops->stream());
    interval->compute_s = -spent_s; /* until times are known */
}

/* The last sum beside of so many tasks; -1. */
static int64_t last_sum(const struct sbp_run_lanes *lanes, int64_t after)
{
    int64_t sum = after - 1;
    while (sum >= 0 && !lanes->tasks->task[sum].is_beside)
        sum--;
    return sum;
}

/* Sums follow each other on their lane: behind the last one all are over. */
void sbp_run_lanes_await(struct sbp_run_lanes *lanes, int64_t after)
{
    const int64_t sum = last_sum(lanes, after < lanes->given ? after : lanes->given);
    if (lanes->ops == NULL || after <= lanes->waited)
        return;
    if (sum >= lanes->waited)
        lanes->ops->await(sum);
    lanes->waited = after;
}

/* ---- times ----------------------------------------------------------------------------------- */

static bool is_in(const struct sbp_run_lanes *lanes, int64_t task, enum sbp_round round)
{
    return sbp_tasks_have(lanes->tasks, &lanes->tasks->task[task], lanes->channel->number, round);
}

static void time_task(const struct sbp_run_lanes *lanes, int64_t task,
                      struct sbp_run_interval *interval)
{
    double begin_s, end_s;
    lanes->ops->times(task, &begin_s, &end_s);
    const double wall_s = fmax(0, end_s - begin_s + interval->compute_s);
    const bool waits =
        lane_of(lanes, task) == SBP_DEVICE_COLLECTIVE || is_message(instr_of(lanes, task));
    *interval = (struct sbp_run_interval){.start_s = begin_s,
                                          .wall_s = wall_s,
                                          .compute_s = waits ? 0 : wall_s,
                                          .communication_s = waits ? wall_s : 0};
}

/* For how long the rank's line, which came to the task's begin at line_s, stood still for sums. */
static double stood_s(const struct sbp_run_lanes *lanes, const struct sbp_run_interval *intervals,
                      int64_t task, double line_s)
{
    const int64_t sum = last_sum(lanes, lanes->tasks->task[task].after);
    return sum < 0 ? 0 : fmax(0, intervals[sum].start_s + intervals[sum].wall_s - line_s);
}

/* What the rank's line stood still for: copies to the device that an update waits for. */
static double copied_s(const struct sbp_run_lanes *lanes, const struct sbp_run_interval *interval,
                       int64_t task, double *in_s, double line_s)
{
    double stood_s = 0;
    const enum sbp_instr_kind kind = instr_of(lanes, task)->kind;
    if (kind == SBP_INSTR_COPY_IN)
        *in_s = interval->start_s + interval->wall_s;
    if (kind == SBP_INSTR_UPDATE && *in_s > 0) {
        stood_s = fmax(0, *in_s - line_s);
        *in_s = 0;
    }
    return stood_s;
}

void sbp_run_lanes_times(const struct sbp_run_lanes *lanes, enum sbp_round round,
                         struct sbp_run_interval *intervals, struct sbp_run_step *step)
{
    double line_s = 0, in_s = 0, out_s = 0; /* in_s, out_s: a copy's end */
    if (lanes->ops == NULL)
        return;
    for (int64_t i = 0; i < lanes->tasks->count; i++)
        if (is_in(lanes, i, round))
            time_task(lanes, i, &intervals[i]);
    for (int64_t i = 0; i < lanes->tasks->count; i++) {
        const bool is_left = lanes->tasks->task[i].is_beside && i < lanes->given;
        if (!is_in(lanes, i, round) || is_left)
            continue;
        step->compute_s += copied_s(lanes, &intervals[i], i, &in_s, line_s);
        if (sbp_program_is_host_copy(instr_of(lanes, i))) {
            out_s = fmax(out_s, intervals[i].start_s + intervals[i].wall_s);
            continue;
        }
        step->compute_s += intervals[i].compute_s;
        step->communication_s += intervals[i].communication_s;
        if (lanes->given > 0 && line_s > 0)
            step->communication_s += stood_s(lanes, intervals, i, line_s);
        line_s = intervals[i].start_s + intervals[i].wall_s;
    }
    step->compute_s += fmax(0, out_s - line_s);
}
