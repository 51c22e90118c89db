#include "costmodel/timeline/timeline.h"

#include <math.h>
#include <string.h>

#include "base/math/numeric.h"
#include "costmodel/timeline/timeline_run.h"

/* Beyond these a request is a slip, and indices and memory stay small. */
#define MAX_STAGES        4096
#define MAX_MICRO_BATCHES (1 << 20)
#define MAX_CHUNKS        256
#define MAX_VIRTUAL       INT16_MAX          /* stages x chunks */
#define MAX_WORK          (INT64_C(1) << 26) /* stages x chunks x micro-batches */
#define MAX_BUCKETS       (1 << 20)
#define MAX_BYTES         (INT64_C(1) << 53)

static const struct sbp_schedule_entry *const schedules[SBP_SCHEDULES] = {
    [SBP_GPIPE] = &sbp_schedule_gpipe,
    [SBP_ONE_F_ONE_B] = &sbp_schedule_1f1b,
    [SBP_INTERLEAVED] = &sbp_schedule_interleaved,
    [SBP_ZERO_BUBBLE] = &sbp_schedule_zero_bubble,
    [SBP_MESSAGE_DRIVEN] = &sbp_schedule_message_driven,
    [SBP_CDP_V1] = &sbp_schedule_cdp,
    [SBP_CDP_V2] = &sbp_schedule_cdp,
};

static const char *const schedule_names[SBP_SCHEDULES] = {
#define SBP_SCHEDULE_TEXT(symbol, name) [SBP_##symbol] = (name),
    SBP_SCHEDULE_MAP(SBP_SCHEDULE_TEXT)
#undef SBP_SCHEDULE_TEXT
};

const char *sbp_timeline_schedule_name(enum sbp_schedule schedule)
{
    return schedule_names[schedule];
}

bool sbp_timeline_delays_gradients(enum sbp_schedule schedule)
{
    return schedules[schedule]->simulate != NULL;
}

const char *sbp_timeline_placement_name(enum sbp_placement placement)
{
    static const char *const names[SBP_PLACEMENTS] = {
#define SBP_PLACEMENT_TEXT(symbol, name) [SBP_PLACE_##symbol] = (name),
        SBP_PLACEMENT_MAP(SBP_PLACEMENT_TEXT)
#undef SBP_PLACEMENT_TEXT
    };
    return names[placement];
}

/* --- requests --- */

static int chunks_of(const struct sbp_timeline_request *request)
{
    return request->chunks > 0 ? request->chunks : 1;
}

static enum sbp_status check_int(const char *field, int value, int low, int high,
                                 struct sbp_diag *diag)
{
    if (value >= low && value <= high)
        return SBP_OK;
    return sbp_fail(diag, SBP_E_INPUT, "timeline: %s: %d is not in %d .. %d", field, value, low,
                    high);
}

struct named_time {
    const char *name;
    double value_s;
};

static enum sbp_status check_times(const char *of, int index, const struct named_time *time,
                                   int count, struct sbp_diag *diag)
{
    for (int i = 0; i < count; i++)
        if (!(time[i].value_s >= 0) || !isfinite(time[i].value_s))
            return sbp_fail(diag, SBP_E_INPUT,
                            "timeline: %s[%d].%s: %g is no time, must be finite and at least 0", of,
                            index, time[i].name, time[i].value_s);
    return SBP_OK;
}

static enum sbp_status check_cost(const struct sbp_stage_cost *cost, int index,
                                  struct sbp_diag *diag)
{
    const struct named_time time[] = {
        {"forward_s", cost->forward_s},
        {"backward_input_s", cost->backward_input_s},
        {"backward_weight_s", cost->backward_weight_s},
        {"recompute_s", cost->recompute_s},
        {"send_forward_s", cost->send_forward_s},
        {"send_backward_s", cost->send_backward_s},
        {"send_states_s", cost->send_states_s},
    };
    SBP_TRY(check_times("stage", index, time, sizeof time / sizeof *time, diag));
    const struct {
        const char *name;
        int64_t bytes;
    } size[] = {
        {"static_bytes", cost->static_bytes},
        {"kept_bytes", cost->kept_bytes},
        {"transient_bytes", cost->transient_bytes},
    };
    for (size_t i = 0; i < sizeof size / sizeof *size; i++)
        if (size[i].bytes < 0 || size[i].bytes > MAX_BYTES)
            return sbp_fail(diag, SBP_E_INPUT,
                            "timeline: stage[%d].%s: %lld is no size, must be in 0 .. 2^53", index,
                            size[i].name, (long long)size[i].bytes);
    return SBP_OK;
}

static enum sbp_status check_end(const struct sbp_stage_end *end, int index, struct sbp_diag *diag)
{
    const struct sbp_offload *offload = &end->offload;
    const struct named_time time[] = {
        {"sync_s", end->sync_s},
        {"optimizer_s", end->optimizer_s},
        {"offload.in_s", offload->in_s},
        {"offload.step_s", offload->step_s},
        {"offload.out_s", offload->out_s},
        {"offload.chunk_sync_s", offload->chunk_sync_s},
        {"offload.last_chunk_sync_s", offload->last_chunk_sync_s},
    };
    SBP_TRY(check_times("end", index, time, sizeof time / sizeof *time, diag));
    SBP_TRY(check_int("end.offload.buckets", offload->buckets, 0, MAX_BUCKETS, diag));
    SBP_TRY(check_int("end.offload.chunk_buckets", offload->chunk_buckets, 0, MAX_BUCKETS, diag));
    if (!(end->sync_overlap >= 0 && end->sync_overlap <= 1))
        return sbp_fail(diag, SBP_E_INPUT,
                        "timeline: end[%d].sync_overlap: %g is no share, must be in 0 .. 1", index,
                        end->sync_overlap);
    if (end->sync_overlap > 0 && offload->buckets > 0 && offload->chunk_buckets > 0)
        return sbp_fail(diag, SBP_E_INPUT,
                        "timeline: end[%d].sync_overlap: must be 0 where the optimizer's buckets "
                        "are synchronised in chunks",
                        index);
    return SBP_OK;
}

/* All that is held at a time must be countable: a device may have every stage. */
static enum sbp_status check_bytes(const struct sbp_timeline_request *request,
                                   struct sbp_diag *diag)
{
    int64_t most = 0;
    for (int i = 0; i < request->stages * chunks_of(request); i++) {
        const struct sbp_stage_cost *cost = &request->stage[i];
        int64_t kept;
        if (!sbp_mul_i64(cost->kept_bytes, request->micro_batches, &kept) ||
            !sbp_add_i64(most, kept, &most) || !sbp_add_i64(most, cost->static_bytes, &most) ||
            !sbp_add_i64(most, cost->transient_bytes, &most))
            return sbp_fail(diag, SBP_E_INPUT,
                            "timeline: stage[%d].kept_bytes: %d micro-batches of the stages up to "
                            "this one hold more than 2^63 bytes",
                            i, request->micro_batches);
    }
    return SBP_OK;
}

static enum sbp_status check_counts(const struct sbp_timeline_request *request,
                                    struct sbp_diag *diag)
{
    if ((int)request->schedule < 0 || request->schedule >= SBP_SCHEDULES)
        return sbp_fail(diag, SBP_E_INPUT, "timeline: schedule: %d is none",
                        (int)request->schedule);
    const struct sbp_schedule_entry *schedule = schedules[request->schedule];
    SBP_TRY(check_int("stages", request->stages, 1, MAX_STAGES, diag));
    SBP_TRY(check_int("micro_batches", request->micro_batches, 1, MAX_MICRO_BATCHES, diag));
    SBP_TRY(check_int("chunks", request->chunks, 0, MAX_CHUNKS, diag));
    SBP_TRY(check_int("pipeline_limit", request->pipeline_limit, 0, MAX_MICRO_BATCHES, diag));
    if (!schedule->takes_chunks && request->chunks > 1)
        return sbp_fail(diag, SBP_E_INPUT, "timeline: chunks: %s has 1 chunk a stage, not %d",
                        sbp_timeline_schedule_name(request->schedule), request->chunks);
    if (!schedule->takes_limit && request->pipeline_limit > 0)
        return sbp_fail(diag, SBP_E_INPUT,
                        "timeline: pipeline_limit: %s has a limit of its own, must be 0",
                        sbp_timeline_schedule_name(request->schedule));
    if ((int)request->placement < 0 || request->placement >= SBP_PLACEMENTS ||
        (!schedule->takes_placement && request->placement != SBP_PLACE_PIPELINE))
        return sbp_fail(diag, SBP_E_INPUT, "timeline: placement: %s runs in a pipeline only",
                        sbp_timeline_schedule_name(request->schedule));
    SBP_TRY(
        check_int("stages x chunks", request->stages * chunks_of(request), 1, MAX_VIRTUAL, diag));
    if ((int64_t)request->stages * chunks_of(request) > MAX_WORK / request->micro_batches)
        return sbp_fail(diag, SBP_E_INPUT,
                        "timeline: micro_batches: %d on %d stages of %d chunks are too many, "
                        "stages x chunks x micro_batches must be at most 2^26",
                        request->micro_batches, request->stages, chunks_of(request));
    return schedule->check == NULL ? SBP_OK : schedule->check(request, diag);
}

static enum sbp_status check(const struct sbp_timeline_request *request, struct sbp_diag *diag)
{
    SBP_TRY(check_counts(request, diag));
    for (int i = 0; i < request->stages * chunks_of(request); i++)
        SBP_TRY(check_cost(&request->stage[i], i, diag));
    for (int s = 0; request->end != NULL && s < request->stages; s++)
        SBP_TRY(check_end(&request->end[s], s, diag));
    return check_bytes(request, diag);
}

/* --- preparing --- */

static const struct sbp_stage_cost *cost_of(const struct sbp_run *run, int virtual_stage)
{
    const int stages = run->request->stages, chunks = chunks_of(run->request);
    return &run->request->stage[virtual_stage % stages * chunks + virtual_stage / stages];
}

static struct sbp_unit make_unit(const struct sbp_run *run, int virtual_stage)
{
    const struct sbp_stage_cost *cost = cost_of(run, virtual_stage);
    const int stage = virtual_stage % run->request->stages;
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
    if (run->request->end != NULL)
        unit.duration_s[SBP_WORK_UPDATE] = run->request->end[stage].optimizer_s;
    if (!run->free_sends) {
        unit.send_s[SBP_TO_NEXT] = cost->send_forward_s;
        unit.send_s[SBP_TO_PREVIOUS] = cost->send_backward_s;
    }
    return unit;
}

enum sbp_status sbp_run_allocate(struct sbp_run *run)
{
    const int64_t pairs = (int64_t)run->stages * run->micro_batches;
    run->unit = SBP_NEW(run->scratch, struct sbp_unit, run->stages);
    run->lane = SBP_NEW(run->scratch, struct sbp_lane, run->devices);
    run->static_bytes = SBP_NEW(run->scratch, int64_t, run->devices);
    run->gradients_left = SBP_NEW(run->scratch, int, run->stages);
    run->arrival_s[0] = SBP_NEW(run->scratch, double, pairs);
    run->arrival_s[1] = SBP_NEW(run->scratch, double, pairs);
    run->work = SBP_NEW(run->scratch, struct sbp_work, run->works);
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

static void reset(struct sbp_run *run)
{
    const int64_t pairs = (int64_t)run->stages * run->micro_batches;
    for (int64_t i = 0; i < pairs; i++) {
        run->arrival_s[SBP_TO_NEXT][i] = -1;
        run->arrival_s[SBP_TO_PREVIOUS][i] = -1;
    }
    for (int i = 0; i < run->micro_batches; i++)
        *sbp_run_arrival(run, SBP_TO_NEXT, 0, i) = 0;
    for (int d = 0; d < run->devices; d++)
        run->lane[d] = (struct sbp_lane){.gradients_from_s = -1,
                                         .held_bytes = run->static_bytes[d],
                                         .peak_bytes = run->static_bytes[d]};
    for (int v = 0; v < run->stages; v++) {
        run->unit[v] = make_unit(run, v);
        run->gradients_left[v] = run->micro_batches;
    }
}

/* --- playing --- */

enum sbp_status sbp_run_restart(struct sbp_run *run)
{
    const struct sbp_arena_mark mark = sbp_arena_mark(run->scratch);
    reset(run);
    for (int d = 0; run->recording && d < run->devices; d++)
        run->record->memory[run->record->memory_count++] =
            (struct sbp_memory_sample){.device = d, .bytes = run->lane[d].held_bytes};
    const enum sbp_status status =
        run->schedule->play != NULL ? run->schedule->play(run) : sbp_run_play(run);
    sbp_arena_release(run->scratch, mark);
    return status;
}

static double finish(struct sbp_run *run)
{
    double makespan_s = 0;
    for (int d = 0; d < run->devices; d++) {
        sbp_run_end(run, d);
        if (run->lane[d].end_s > makespan_s)
            makespan_s = run->lane[d].end_s;
    }
    return makespan_s;
}

enum sbp_status sbp_run_start_recording(struct sbp_run *run, struct sbp_arena *arena,
                                        struct sbp_timeline *timeline)
{
    /* A pair: its works, recompute and two sends; two samples a work. A stage and step: sync and
     * optimizer, or at most four for every bucket. */
    const int64_t pairs = (int64_t)run->stages * run->micro_batches;
    const int64_t works = (run->schedule->splits_backward ? 3 : 2) * pairs;
    int64_t intervals = works + 3 * pairs;
    for (int s = 0; run->request->end != NULL && s < run->request->stages; s++)
        intervals += (run->steps + 2) * (2 + 4 * (int64_t)run->request->end[s].offload.buckets);
    timeline->interval = SBP_TAKE(arena, struct sbp_timeline_interval, intervals);
    timeline->memory = SBP_TAKE(arena, struct sbp_memory_sample, 2 * works + run->devices);
    run->record = timeline;
    run->recording = true;
    return timeline->interval != NULL && timeline->memory != NULL ? SBP_OK : SBP_E_MEMORY;
}

static bool sends_cost(const struct sbp_run *run)
{
    for (int v = 0; v < run->stages; v++)
        if (cost_of(run, v)->send_forward_s > 0 || cost_of(run, v)->send_backward_s > 0)
            return true;
    return false;
}

/* Makespans of what was played, without and with gradient synchronisation. */
static void finish_both(struct sbp_run *run, double *without_sync_s, double *with_sync_s)
{
    const bool recording = run->recording;
    run->recording = false;
    run->free_sync = true;
    *without_sync_s = finish(run);
    run->recording = recording;
    run->free_sync = false;
    *with_sync_s = finish(run);
}

static void report(const struct sbp_run *run, struct sbp_timeline *timeline)
{
    for (int d = 0; d < run->devices; d++) {
        const struct sbp_lane *lane = &run->lane[d];
        struct sbp_device_timeline *device = &timeline->device[d];
        device->compute_s = lane->compute_s;
        device->end_s = lane->end_s;
        const double busy_s = lane->compute_s + lane->send_s + (lane->end_s - lane->free_s);
        device->bubble_s = fmax(timeline->makespan_s - busy_s, 0); /* sums are rounded */
        device->peak_bytes = lane->peak_bytes;
        device->in_flight = lane->most_in_flight;
        timeline->bubble_s += device->bubble_s;
    }
}

static enum sbp_status prepare(struct sbp_run *run)
{
    run->works = run->schedule->arrange == NULL
                     ? 0
                     : (run->schedule->splits_backward ? 3 : 2) * run->stages * run->micro_batches;
    SBP_TRY(sbp_run_allocate(run));
    struct sbp_work *at = run->work;
    for (int d = 0; run->schedule->arrange != NULL && d < run->devices; d++) {
        at = run->schedule->arrange(run, d, at);
        run->first[d + 1] = at - run->work;
    }
    for (int v = 0; v < run->stages; v++)
        run->static_bytes[v % run->devices] += cost_of(run, v)->static_bytes;
    return SBP_OK;
}

/* One step with a flush. The real play comes last, so that its lanes and records are those that
 * are reported. */
static enum sbp_status simulate_step(struct sbp_run *run, struct sbp_arena *arena,
                                     struct sbp_timeline *timeline)
{
    SBP_TRY(prepare(run));
    timeline->steps = 1;
    timeline->devices = run->devices;
    timeline->device = SBP_NEW(arena, struct sbp_device_timeline, run->devices);
    if (timeline->device == NULL)
        return SBP_E_MEMORY;
    double free_s = 0, without_sends_s = 0;
    const bool sends = sends_cost(run) && !run->request->is_brief;
    if (sends) {
        run->free_sends = true;
        SBP_TRY(sbp_run_restart(run));
        finish_both(run, &free_s, &without_sends_s);
        run->free_sends = false;
    }
    if (run->request->record)
        SBP_TRY(sbp_run_start_recording(run, arena, timeline));
    SBP_TRY(sbp_run_restart(run));
    double without_sync_s;
    finish_both(run, &without_sync_s, &timeline->makespan_s);
    if (!run->request->is_brief)
        sbp_timeline_expose(timeline, sends ? without_sends_s : timeline->makespan_s,
                            sends ? free_s : without_sync_s);
    report(run, timeline);
    return SBP_OK;
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

enum sbp_status sbp_timeline_simulate(const struct sbp_timeline_request *request,
                                      struct sbp_arena *arena, struct sbp_timeline *timeline,
                                      struct sbp_diag *diag)
{
    SBP_TRY(check(request, diag));
    struct sbp_arena scratch = {0};
    struct sbp_run run = {.request = request,
                          .schedule = schedules[request->schedule],
                          .scratch = &scratch,
                          .devices = request->stages,
                          .stages = request->stages * chunks_of(request),
                          .steps = 1,
                          .micro_batches = request->micro_batches};
    struct sbp_timeline result = {0};
    const enum sbp_status status = run.schedule->simulate != NULL
                                       ? run.schedule->simulate(&run, arena, &result)
                                       : simulate_step(&run, arena, &result);
    sbp_arena_free(&scratch);
    if (status == SBP_OK)
        *timeline = result;
    return status;
}
