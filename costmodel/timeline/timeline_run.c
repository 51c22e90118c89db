/* One play of a schedule: its state, its works one by one, and what is recorded of them. */
#include "costmodel/timeline/timeline_run_priv.h"

#include <math.h>

/* --- names --- */

#define TEXT(symbol, name) name,

const char *sbp_timeline_schedule_name(enum sbp_schedule schedule)
{
    static const char *const names[] = {SBP_SCHEDULE_MAP(TEXT)};
    return names[schedule];
}

const char *sbp_timeline_placement_name(enum sbp_placement placement)
{
    static const char *const names[] = {SBP_PLACEMENT_MAP(TEXT)};
    return names[placement];
}

/* --- preparing --- */

int sbp_timeline_run_chunks(const struct sbp_timeline_request *request)
{
    return request->chunks > 0 ? request->chunks : 1;
}

const struct sbp_stage_cost *sbp_timeline_run_cost(const struct sbp_timeline_run *run,
                                                   int virtual_stage)
{
    const int stages = run->request->stages, chunks = sbp_timeline_run_chunks(run->request);
    return &run->request->stage[virtual_stage % stages * chunks + virtual_stage / stages];
}

static struct sbp_unit make_unit(const struct sbp_timeline_run *run, int virtual_stage)
{
    const struct sbp_stage_cost *cost = sbp_timeline_run_cost(run, virtual_stage);
    struct sbp_unit unit = {
        .device = run->unit[virtual_stage].device,
        .duration_s = {[SBP_WORK_FORWARD] = cost->forward_s,
                       [SBP_WORK_BACKWARD] = cost->recompute_s + cost->backward_input_s,
                       [SBP_WORK_WEIGHT] = cost->backward_weight_s},
        .recompute_s = cost->recompute_s,
        .kept_bytes = cost->kept_bytes,
        .transient_bytes = cost->transient_bytes,
    };
    if (!run->schedule->splits_backward)
        unit.duration_s[SBP_WORK_BACKWARD] += cost->backward_weight_s;
    if (run->schedule->splits_backward) {
        unit.parked_inputs_bytes = cost->parked_inputs_bytes;
        unit.parked_gradients_bytes = cost->parked_gradients_bytes;
    }
    if (run->request->end != NULL && virtual_stage < run->request->stages) /* of all chunks */
        unit.duration_s[SBP_WORK_UPDATE] = run->request->end[virtual_stage].optimizer_s;
    if (!run->free_sends) {
        unit.send_s[SBP_TO_NEXT] = cost->send_forward_s;
        unit.send_s[SBP_TO_PREVIOUS] = cost->send_backward_s;
    }
    return unit;
}

enum sbp_status sbp_timeline_run_allocate(struct sbp_timeline_run *run)
{
    const int64_t pairs = (int64_t)run->stages * run->micro_batches;
    run->unit = SBP_NEW(run->scratch, struct sbp_unit, run->stages);
    run->lane = SBP_NEW(run->scratch, struct sbp_lane, run->devices);
    run->static_bytes = SBP_NEW(run->scratch, int64_t, run->devices);
    run->gradients_left = SBP_NEW(run->scratch, int, run->stages);
    run->arrival_s[0] = SBP_NEW(run->scratch, double, pairs);
    run->arrival_s[1] = SBP_NEW(run->scratch, double, pairs);
    run->work = SBP_NEW(run->scratch, struct sbp_timeline_work, run->works);
    run->first = SBP_NEW(run->scratch, int64_t, (int64_t)run->devices + 1);
    run->awake.device = SBP_NEW(run->scratch, int, run->devices);
    run->awake.is_in = SBP_NEW(run->scratch, bool, run->devices);
    for (int v = 0; run->unit != NULL && v < run->stages; v++)
        run->unit[v].device = v % run->request->stages;
    return run->unit != NULL && run->lane != NULL && run->static_bytes != NULL &&
                   run->gradients_left != NULL && run->arrival_s[0] != NULL &&
                   run->arrival_s[1] != NULL && run->work != NULL && run->first != NULL &&
                   run->awake.device != NULL && run->awake.is_in != NULL
               ? SBP_OK
               : SBP_E_MEMORY;
}

static void reset(struct sbp_timeline_run *run)
{
    const int64_t pairs = (int64_t)run->stages * run->micro_batches;
    for (int64_t i = 0; i < pairs; i++) {
        run->arrival_s[SBP_TO_NEXT][i] = -1;
        run->arrival_s[SBP_TO_PREVIOUS][i] = -1;
    }
    for (int i = 0; i < run->micro_batches; i++)
        *sbp_timeline_run_arrival(run, SBP_TO_NEXT, 0, i) = 0;
    for (int d = 0; d < run->devices; d++)
        run->lane[d] = (struct sbp_lane){.gradients_from_s = -1,
                                         .held_bytes = run->static_bytes[d],
                                         .peak_bytes = run->static_bytes[d]};
    for (int v = 0; v < run->stages; v++) {
        run->unit[v] = make_unit(run, v);
        run->gradients_left[v] = run->micro_batches;
    }
}

/* --- recording --- */

enum sbp_status sbp_timeline_run_start_recording(struct sbp_timeline_run *run,
                                                 struct sbp_arena *arena,
                                                 struct sbp_timeline *timeline)
{
    /* Most intervals: for each pair its works, one recomputation and two sends; for each stage and
     * step, sync and optimizer, or four for every bucket. Memory has two samples a work. */
    const int64_t pairs = (int64_t)run->stages * run->micro_batches;
    const int64_t works = (run->schedule->splits_backward ? 3 : 2) * pairs;
    int64_t intervals = works + 3 * pairs;
    for (int s = 0; run->request->end != NULL && s < run->request->stages; s++)
        intervals += (run->steps + 2) * (2 + 4 * (int64_t)run->request->end[s].offload.buckets);
    if (run->handed != NULL) /* each updates every chunk, before the first step as well */
        intervals += 2 * (pairs + (int64_t)run->stages * run->stages);
    timeline->interval = SBP_TAKE(arena, struct sbp_timeline_interval, intervals);
    timeline->memory = SBP_TAKE(arena, struct sbp_memory_sample, 2 * works + run->devices);
    run->record = timeline;
    run->recording = true;
    return timeline->interval != NULL && timeline->memory != NULL ? SBP_OK : SBP_E_MEMORY;
}

void sbp_timeline_run_record(struct sbp_timeline_run *run, struct sbp_timeline_interval interval)
{
    if (run->recording && interval.end_s > interval.begin_s)
        run->record->interval[run->record->interval_count++] = interval;
}

/* Records a part of a work, even one of no time, since paths are traced through it. It is written
 * in place because a copy would wait for its own fields. */
static void record_part(struct sbp_timeline_run *run, int device, struct sbp_timeline_work work,
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

static void record_work(struct sbp_timeline_run *run, int device, struct sbp_timeline_work work,
                        double begin_s, double end_s)
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

static void record_memory(struct sbp_timeline_run *run, int device, double at_s, int64_t bytes)
{
    if (run->recording)
        run->record->memory[run->record->memory_count++] =
            (struct sbp_memory_sample){.device = device, .at_s = at_s, .bytes = bytes};
}

/* Whether the end of such a work frees the last that its micro-batch held. */
static bool releases(const struct sbp_timeline_run *run, int kind)
{
    return kind == (run->schedule->splits_backward ? SBP_WORK_WEIGHT : SBP_WORK_BACKWARD);
}

static void hold(struct sbp_timeline_run *run, int device, struct sbp_timeline_work work,
                 double begin_s, double end_s)
{
    struct sbp_lane *lane = &run->lane[device];
    const struct sbp_unit *unit = &run->unit[work.stage];
    if (work.kind == SBP_WORK_FORWARD) {
        lane->held_bytes += unit->kept_bytes;
        if (++lane->in_flight > lane->most_in_flight)
            lane->most_in_flight = lane->in_flight;
    }
    if (work.kind == SBP_WORK_BACKWARD)
        lane->held_bytes += unit->parked_gradients_bytes;
    const int64_t during = lane->held_bytes + unit->transient_bytes;
    if (during > lane->peak_bytes)
        lane->peak_bytes = during;
    record_memory(run, device, begin_s, during);
    if (work.kind == SBP_WORK_BACKWARD)
        lane->held_bytes -= unit->kept_bytes - unit->parked_inputs_bytes;
    else if (work.kind == SBP_WORK_WEIGHT)
        lane->held_bytes -= unit->parked_inputs_bytes + unit->parked_gradients_bytes;
    if (releases(run, work.kind)) {
        lane->in_flight--;
        if (--run->gradients_left[work.stage] == 0 && lane->gradients_from_s < 0)
            lane->gradients_from_s = begin_s;
    }
    record_memory(run, device, end_s, lane->held_bytes);
}

/* Sends what a work made at end_s to the device `to`; returns when it is there. */
static double send(struct sbp_timeline_run *run, int device, int to, struct sbp_timeline_work work,
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

int sbp_timeline_run_do(struct sbp_timeline_run *run, int device, struct sbp_timeline_work work,
                        double ready_s)
{
    struct sbp_lane *lane = &run->lane[device];
    const double duration_s = run->unit[work.stage].duration_s[work.kind];
    const double begin_s = lane->free_s > ready_s ? lane->free_s : ready_s;
    const double end_s = begin_s + duration_s;
    lane->free_s = end_s;
    if (work.kind != SBP_WORK_UPDATE ||
        work.micro_batch >= 0) /* updates before the first step are not of this one */
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
    const int to = sbp_timeline_run_device(run, stage, work.micro_batch);
    *sbp_timeline_run_arrival(run, direction, stage, work.micro_batch) =
        send(run, device, to, work, direction, end_s);
    return to;
}

void sbp_timeline_run_wake(struct sbp_timeline_run *run, int device)
{
    struct sbp_awake *awake = &run->awake;
    if (awake->is_in[device])
        return;
    awake->is_in[device] = true;
    awake->device[awake->count++] = device;
}

/* When a work may begin; < 0: not known yet. */
static double ready_s(const struct sbp_timeline_run *run, int device, struct sbp_timeline_work work)
{
    double input_s = 0; /* weight gradients and updates follow what they need in the order */
    if (work.kind <= SBP_WORK_BACKWARD)
        input_s = *sbp_timeline_run_arrival(
            run, work.kind == SBP_WORK_FORWARD ? SBP_TO_NEXT : SBP_TO_PREVIOUS, work.stage,
            work.micro_batch);
    if (input_s < 0 || run->schedule->gate == NULL)
        return input_s;
    return run->schedule->gate(run, device, work, input_s);
}

/* Does what a device can do now; returns the place of what it cannot yet. */
static int64_t go_on(struct sbp_timeline_run *run, int device, int64_t next)
{
    for (; next < run->first[device + 1]; next++) {
        const struct sbp_timeline_work work = run->work[next];
        const double begin_s = ready_s(run, device, work);
        if (begin_s < 0)
            break;
        const int to = sbp_timeline_run_do(run, device, work, begin_s);
        if (to != device)
            sbp_timeline_run_wake(run, to);
        if (run->schedule->done != NULL)
            run->schedule->done(run, device, work, run->lane[device].free_s);
    }
    return next;
}

/* Plays each device as far as it can go and wakes those to which it sends. A work is looked at once
 * for every message that reaches its device, so the time is linear in the number of works. */
enum sbp_status sbp_timeline_run_play(struct sbp_timeline_run *run)
{
    int64_t *next = SBP_NEW(run->scratch, int64_t, run->devices);
    if (next == NULL)
        return SBP_E_MEMORY;
    for (int d = run->devices - 1; d >= 0; d--) {
        next[d] = run->first[d];
        sbp_timeline_run_wake(run, d);
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

enum sbp_status sbp_timeline_run_restart(struct sbp_timeline_run *run)
{
    const struct sbp_arena_mark mark = sbp_arena_mark(run->scratch);
    reset(run);
    for (int d = 0; run->recording && d < run->devices; d++)
        run->record->memory[run->record->memory_count++] =
            (struct sbp_memory_sample){.device = d, .bytes = run->lane[d].held_bytes};
    const enum sbp_status status =
        run->schedule->play != NULL ? run->schedule->play(run) : sbp_timeline_run_play(run);
    sbp_arena_release(run->scratch, mark);
    return status;
}

/* --- after the last work --- */

static void record_end(struct sbp_timeline_run *run, int device, enum sbp_interval_kind kind,
                       double begin_s, double end_s)
{
    const struct sbp_timeline_interval interval = {.kind = kind,
                                                   .device = device,
                                                   .stage = device,
                                                   .micro_batch = -1,
                                                   .begin_s = begin_s,
                                                   .end_s = end_s};
    sbp_timeline_run_record(run, interval);
}

/* One all-reduce, hidden behind the last gradient work as far as overlap and window allow. */
static double sync_whole(struct sbp_timeline_run *run, int device, double sync_s, double at_s)
{
    const double window_s = at_s - run->lane[device].gradients_from_s;
    const double forced_s = (1 - run->request->end[device].sync_overlap) * sync_s;
    const double too_long_s = sync_s - window_s;
    const double exposed_s = forced_s > too_long_s ? forced_s : too_long_s;
    record_end(run, device, SBP_INTERVAL_SYNC, at_s + exposed_s - sync_s, at_s + exposed_s);
    return at_s + exposed_s;
}

static double step_bucket(struct sbp_timeline_run *run, int device,
                          const struct sbp_offload *offload, double at_s)
{
    const double in_s = at_s + offload->in_s, stepped_s = in_s + offload->step_s;
    record_end(run, device, SBP_INTERVAL_OFFLOAD, at_s, in_s);
    record_end(run, device, SBP_INTERVAL_OPTIMIZER, in_s, stepped_s);
    record_end(run, device, SBP_INTERVAL_OFFLOAD, stepped_s, stepped_s + offload->out_s);
    return stepped_s + offload->out_s;
}

/* All-reduces of k buckets back to back; the optimizer takes a bucket when its all-reduce is done
 * (Myelin, V-C and figure 7). */
static double sync_in_chunks(struct sbp_timeline_run *run, int device,
                             const struct sbp_offload *offload, double at_s)
{
    double synced_s = at_s, stepped_s = at_s;
    for (int b = 0; b < offload->buckets; b++) {
        if (b % offload->chunk_buckets == 0) {
            const bool whole = b + offload->chunk_buckets <= offload->buckets;
            const double began_s = synced_s;
            if (!run->free_sync)
                synced_s += whole ? offload->chunk_sync_s : offload->last_chunk_sync_s;
            record_end(run, device, SBP_INTERVAL_SYNC, began_s, synced_s);
        }
        stepped_s = step_bucket(run, device, offload, stepped_s > synced_s ? stepped_s : synced_s);
    }
    return stepped_s;
}

void sbp_timeline_run_end(struct sbp_timeline_run *run, int device)
{
    struct sbp_lane *lane = &run->lane[device];
    lane->end_s = lane->free_s;
    if (run->request->end == NULL)
        return;
    const struct sbp_stage_end *end = &run->request->end[device];
    const struct sbp_offload *offload = &end->offload;
    if (offload->buckets > 0 && offload->chunk_buckets > 0) {
        lane->end_s = sync_in_chunks(run, device, offload, lane->end_s);
        return;
    }
    if (!run->free_sync)
        lane->end_s = sync_whole(run, device, end->sync_s, lane->end_s);
    if (offload->buckets == 0)
        record_end(run, device, SBP_INTERVAL_OPTIMIZER, lane->end_s,
                   lane->end_s + end->optimizer_s);
    if (offload->buckets == 0)
        lane->end_s += end->optimizer_s;
    for (int b = 0; b < offload->buckets; b++)
        lane->end_s = step_bucket(run, device, offload, lane->end_s);
}

void sbp_timeline_expose(struct sbp_timeline *timeline, double without_sends_s, double free_s)
{
    const double sends_s = timeline->makespan_s - without_sends_s,
                 sync_s = without_sends_s - free_s;
    const double rounding_s = 1e-12 * timeline->makespan_s;
    timeline->exposed_send_s = sends_s > rounding_s ? sends_s : 0;
    timeline->exposed_sync_s = sync_s > rounding_s ? sync_s : 0;
    timeline->exposed_s = timeline->exposed_send_s + timeline->exposed_sync_s;
}

/* ---- without a flush ------------------------------------------------------------------------ */

enum sbp_status sbp_timeline_run_keep_steady(struct sbp_timeline_run *run, struct sbp_arena *arena,
                                             struct sbp_timeline *timeline)
{
    timeline->devices = run->devices;
    timeline->device = SBP_NEW(arena, struct sbp_device_timeline, run->devices);
    if (timeline->device == NULL)
        return SBP_E_MEMORY;
    if (!run->request->record)
        return SBP_OK;
    SBP_TRY(sbp_timeline_run_start_recording(run, arena, timeline));
    SBP_TRY(sbp_timeline_run_restart(run));
    run->recording = false;
    return SBP_OK;
}

void sbp_timeline_run_report_steady(const struct sbp_timeline_run *run,
                                    struct sbp_timeline *timeline)
{
    for (int d = 0; d < run->devices; d++) {
        const struct sbp_lane *lane = &run->lane[d];
        struct sbp_device_timeline *device = &timeline->device[d];
        device->compute_s = lane->compute_s / run->steps;
        device->end_s = lane->free_s;
        const double busy_s = device->compute_s + lane->send_s / run->steps;
        device->bubble_s = fmax(timeline->makespan_s - busy_s, 0); /* sums are rounded */
        device->peak_bytes = lane->peak_bytes;
        device->in_flight = lane->most_in_flight;
        timeline->bubble_s += device->bubble_s;
    }
    timeline->steps = run->steps;
    timeline->delays_gradients = true;
}
