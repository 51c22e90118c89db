#include "costmodel/timeline_run.h"

int sbp_run_device(const struct sbp_run *run, int stage)
{
    return run->unit[stage].device;
}

double *sbp_run_arrival(const struct sbp_run *run, enum sbp_direction direction, int stage,
                        int micro_batch)
{
    return &run->arrival_s[direction][(int64_t)stage * run->micro_batches + micro_batch];
}

void sbp_run_record(struct sbp_run *run, struct sbp_interval interval)
{
    if (run->recording && interval.end_s > interval.begin_s)
        run->record->interval[run->record->interval_count++] = interval;
}

static void record_work(struct sbp_run *run, int device, struct sbp_work work, double begin_s,
                        double end_s)
{
    static const enum sbp_interval_kind kinds[] = {SBP_INTERVAL_FORWARD, SBP_INTERVAL_BACKWARD,
                                                   SBP_INTERVAL_BACKWARD_WEIGHT};
    struct sbp_interval interval = {.kind = kinds[work.kind],
                                    .device = device,
                                    .stage = work.stage % run->request->stages,
                                    .chunk = work.stage / run->request->stages,
                                    .micro_batch = work.micro_batch,
                                    .begin_s = begin_s,
                                    .end_s = end_s};
    const double recompute_s = run->unit[work.stage].recompute_s;
    if (work.kind == SBP_WORK_BACKWARD && recompute_s > 0) {
        interval.kind = SBP_INTERVAL_RECOMPUTE;
        interval.end_s = begin_s + recompute_s;
        sbp_run_record(run, interval);
        interval.kind = SBP_INTERVAL_BACKWARD;
        interval.begin_s = interval.end_s;
        interval.end_s = end_s;
    }
    sbp_run_record(run, interval);
}

static void record_send(struct sbp_run *run, int device, struct sbp_work work, double begin_s,
                        double end_s)
{
    const struct sbp_interval interval = {.kind = SBP_INTERVAL_SEND,
                                          .device = device,
                                          .stage = work.stage % run->request->stages,
                                          .chunk = work.stage / run->request->stages,
                                          .micro_batch = work.micro_batch,
                                          .begin_s = begin_s,
                                          .end_s = end_s};
    sbp_run_record(run, interval);
}

static void record_memory(struct sbp_run *run, int device, double at_s, int64_t bytes)
{
    if (run->recording)
        run->record->memory[run->record->memory_count++] =
            (struct sbp_memory_sample){.device = device, .at_s = at_s, .bytes = bytes};
}

/* The work whose end lets go of what forward kept. */
static bool releases(const struct sbp_run *run, enum sbp_work_kind kind)
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
    record_send(run, device, work, begin_s, there_s);
    return there_s;
}

int sbp_run_do(struct sbp_run *run, int device, struct sbp_work work, double ready_s)
{
    struct sbp_lane *lane = &run->lane[device];
    const double duration_s = run->unit[work.stage].duration_s[work.kind];
    const double begin_s = lane->free_s > ready_s ? lane->free_s : ready_s;
    const double end_s = begin_s + duration_s;
    lane->free_s = end_s;
    lane->compute_s += duration_s;
    hold(run, device, work, begin_s, end_s);
    record_work(run, device, work, begin_s, end_s);
    if (work.kind == SBP_WORK_WEIGHT)
        return device;
    /* The last virtual stage turns round: its own backward pass waits for its forward pass. */
    const bool turns = work.kind == SBP_WORK_FORWARD && work.stage == run->stages - 1;
    const enum sbp_direction direction =
        work.kind == SBP_WORK_FORWARD && !turns ? SBP_TO_NEXT : SBP_TO_PREVIOUS;
    const int stage = turns ? work.stage : work.stage + (direction == SBP_TO_NEXT ? 1 : -1);
    if (stage < 0)
        return device;
    const int to = sbp_run_device(run, stage);
    *sbp_run_arrival(run, direction, stage, work.micro_batch) =
        send(run, device, to, work, direction, end_s);
    return to;
}

/* When the input of a work is there; < 0: not known yet. */
static double input_s(const struct sbp_run *run, struct sbp_work work)
{
    if (work.kind == SBP_WORK_WEIGHT)
        return 0; /* follows its backward pass in the order */
    const enum sbp_direction direction =
        work.kind == SBP_WORK_FORWARD ? SBP_TO_NEXT : SBP_TO_PREVIOUS;
    return *sbp_run_arrival(run, direction, work.stage, work.micro_batch);
}

/* A stack of devices that may have something to do; none is on it twice. */
struct awake {
    int *device;
    bool *is_in;
    int count;
};

static void wake(struct awake *awake, int device)
{
    if (awake->is_in[device])
        return;
    awake->is_in[device] = true;
    awake->device[awake->count++] = device;
}

/* Every device does what it can and wakes whom it sends to: each work is looked at once for every
 * message that reaches its device, so the whole is linear in the number of works. */
enum sbp_status sbp_run_play(struct sbp_run *run)
{
    struct awake awake = {.device = SBP_NEW(run->scratch, int, run->devices),
                          .is_in = SBP_NEW(run->scratch, bool, run->devices)};
    int64_t *next = SBP_NEW(run->scratch, int64_t, run->devices);
    if (awake.device == NULL || awake.is_in == NULL || next == NULL)
        return SBP_E_MEMORY;
    for (int d = 0; d < run->devices; d++)
        next[d] = run->first[d];
    for (int d = run->devices - 1; d >= 0; d--)
        wake(&awake, d);
    int64_t left = run->first[run->devices];
    while (awake.count > 0) {
        const int d = awake.device[--awake.count];
        awake.is_in[d] = false;
        for (; next[d] < run->first[d + 1]; next[d]++, left--) {
            const struct sbp_work work = run->work[next[d]];
            const double ready_s = input_s(run, work);
            if (ready_s < 0)
                break;
            const int to = sbp_run_do(run, d, work, ready_s);
            if (to != d)
                wake(&awake, to);
        }
    }
    return left == 0 ? SBP_OK : SBP_E_INTERNAL;
}
