#include "costmodel/timeline/timeline_run.h"

void sbp_run_record(struct sbp_run *run, struct sbp_timeline_interval interval)
{
    if (run->recording && interval.end_s > interval.begin_s)
        run->record->interval[run->record->interval_count++] = interval;
}

/* What a device did for a work, even in no time: paths are traced through it. Written in place,
 * since a copy would wait for its own fields. */
static void record_part(struct sbp_run *run, int device, struct sbp_work work,
                        enum sbp_interval_kind kind, double begin_s, double end_s)
{
    const int stages = run->request->stages, micro_batches = run->request->micro_batches;
    const bool update = work.kind == SBP_WORK_UPDATE;
    struct sbp_timeline_interval *to = &run->record->interval[run->record->interval_count++];
    to->kind = kind;
    to->device = device;
    to->stage = work.stage % stages;
    to->chunk = work.stage / stages;
    to->micro_batch = update ? -1 : work.micro_batch % micro_batches;
    to->step = update ? work.micro_batch : work.micro_batch / micro_batches;
    to->begin_s = begin_s;
    to->end_s = end_s;
}

static void record_work(struct sbp_run *run, int device, struct sbp_work work, double begin_s,
                        double end_s)
{
    static const enum sbp_interval_kind kinds[SBP_WORK_KINDS] = {
        [SBP_WORK_FORWARD] = SBP_INTERVAL_FORWARD,
        [SBP_WORK_BACKWARD] = SBP_INTERVAL_BACKWARD,
        [SBP_WORK_WEIGHT] = SBP_INTERVAL_BACKWARD_WEIGHT,
        [SBP_WORK_UPDATE] = SBP_INTERVAL_OPTIMIZER,
    };
    const double recompute_s =
        work.kind == SBP_WORK_BACKWARD ? run->unit[work.stage].recompute_s : 0;
    if (recompute_s > 0)
        record_part(run, device, work, SBP_INTERVAL_RECOMPUTE, begin_s, begin_s + recompute_s);
    if (work.kind != SBP_WORK_UPDATE || end_s > begin_s)
        record_part(run, device, work, kinds[work.kind], begin_s + recompute_s, end_s);
}

static void record_memory(struct sbp_run *run, int device, double at_s, int64_t bytes)
{
    if (run->recording)
        run->record->memory[run->record->memory_count++] =
            (struct sbp_memory_sample){.device = device, .at_s = at_s, .bytes = bytes};
}

/* The work whose end lets go of what forward kept. */
static bool releases(const struct sbp_run *run, int kind)
{
    return kind == (run->schedule->splits_backward ? SBP_WORK_WEIGHT : SBP_WORK_BACKWARD);
}

static void hold(struct sbp_run *run, int device, struct sbp_work work, double begin_s,
                 double end_s)
{
    struct sbp_lane *lane = &run->lane[device];
    const struct sbp_unit *unit = &run->unit[work.stage];
    if (work.kind == SBP_WORK_FORWARD) {
        lane->held_bytes += unit->kept_bytes;
        if (++lane->in_flight > lane->most_in_flight)
            lane->most_in_flight = lane->in_flight;
    }
    const int64_t during = lane->held_bytes + unit->transient_bytes;
    if (during > lane->peak_bytes)
        lane->peak_bytes = during;
    record_memory(run, device, begin_s, during);
    if (releases(run, work.kind)) {
        lane->held_bytes -= unit->kept_bytes;
        lane->in_flight--;
        if (--run->gradients_left[work.stage] == 0 && lane->gradients_from_s < 0)
            lane->gradients_from_s = begin_s;
    }
    record_memory(run, device, end_s, lane->held_bytes);
}

/* Sends what a work made at end_s to the device `to`; returns when it is there. */
static double send(struct sbp_run *run, int device, int to, struct sbp_work work,
                   enum sbp_direction direction, double end_s)
{
    const double send_s = run->unit[work.stage].send_s[direction];
    if (to == device || send_s == 0)
        return end_s;
    struct sbp_lane *lane = &run->lane[device];
    const double begin_s =
        lane->link_free_s[direction] > end_s ? lane->link_free_s[direction] : end_s;
    const double there_s = begin_s + send_s;
    lane->link_free_s[direction] = there_s;
    if (run->request->sends_block) {
        lane->send_s += there_s - end_s;
        lane->free_s = there_s;
    }
    if (run->recording)
        record_part(run, device, work, SBP_INTERVAL_SEND, begin_s, there_s);
    return there_s;
}

int sbp_run_do(struct sbp_run *run, int device, struct sbp_work work, double ready_s)
{
    struct sbp_lane *lane = &run->lane[device];
    const double duration_s = run->unit[work.stage].duration_s[work.kind];
    const double begin_s = lane->free_s > ready_s ? lane->free_s : ready_s;
    const double end_s = begin_s + duration_s;
    lane->free_s = end_s;
    if (work.kind != SBP_WORK_UPDATE || work.micro_batch >= 0) /* those before belong elsewhere */
        lane->compute_s += duration_s;
    if (work.kind != SBP_WORK_UPDATE)
        hold(run, device, work, begin_s, end_s);
    if (run->recording)
        record_work(run, device, work, begin_s, end_s);
    if (work.kind >= SBP_WORK_WEIGHT)
        return device;
    /* The last virtual stage turns round: its own backward pass waits for its forward pass. */
    const bool turns = work.kind == SBP_WORK_FORWARD && work.stage == run->stages - 1;
    const enum sbp_direction direction =
        work.kind == SBP_WORK_FORWARD && !turns ? SBP_TO_NEXT : SBP_TO_PREVIOUS;
    const int stage = turns ? work.stage : work.stage + (direction == SBP_TO_NEXT ? 1 : -1);
    if (stage < 0)
        return device;
    const int to = sbp_run_device(run, stage, work.micro_batch);
    *sbp_run_arrival(run, direction, stage, work.micro_batch) =
        send(run, device, to, work, direction, end_s);
    return to;
}

void sbp_run_wake(struct sbp_run *run, int device)
{
    struct sbp_awake *awake = &run->awake;
    if (awake->is_in[device])
        return;
    awake->is_in[device] = true;
    awake->device[awake->count++] = device;
}

/* When a work may begin; < 0: not known yet. */
static double ready_s(const struct sbp_run *run, int device, struct sbp_work work)
{
    double input_s = 0; /* weight gradients and updates follow what they need in the order */
    if (work.kind <= SBP_WORK_BACKWARD)
        input_s =
            *sbp_run_arrival(run, work.kind == SBP_WORK_FORWARD ? SBP_TO_NEXT : SBP_TO_PREVIOUS,
                             work.stage, work.micro_batch);
    if (input_s < 0 || run->schedule->gate == NULL)
        return input_s;
    return run->schedule->gate(run, device, work, input_s);
}

/* Does what a device can do now; returns the place of what it cannot yet. */
static int64_t go_on(struct sbp_run *run, int device, int64_t next)
{
    for (; next < run->first[device + 1]; next++) {
        const struct sbp_work work = run->work[next];
        const double begin_s = ready_s(run, device, work);
        if (begin_s < 0)
            break;
        const int to = sbp_run_do(run, device, work, begin_s);
        if (to != device)
            sbp_run_wake(run, to);
        if (run->schedule->done != NULL)
            run->schedule->done(run, device, work, run->lane[device].free_s);
    }
    return next;
}

/* Every device does what it can and wakes whom it sends to: a work is looked at once for every
 * message that reaches its device, so the whole is linear in the number of works. */
enum sbp_status sbp_run_play(struct sbp_run *run)
{
    int64_t *next = SBP_NEW(run->scratch, int64_t, run->devices);
    if (next == NULL)
        return SBP_E_MEMORY;
    for (int d = run->devices - 1; d >= 0; d--) {
        next[d] = run->first[d];
        sbp_run_wake(run, d);
    }
    while (run->awake.count > 0) {
        const int d = run->awake.device[--run->awake.count];
        run->awake.is_in[d] = false;
        next[d] = go_on(run, d, next[d]);
    }
    for (int d = 0; d < run->devices; d++)
        if (next[d] < run->first[d + 1])
            return SBP_E_INTERNAL;
    return SBP_OK;
}
