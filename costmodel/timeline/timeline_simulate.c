/* The simulation of a step: checks the request, plays its schedule, reports what came out. */
#include "costmodel/timeline/timeline_run_priv.h"

#include <math.h>
#include "base/math/numeric.h"

/* Limits of a request: larger values are mistakes, and keep indices and memory small. */
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

bool sbp_timeline_delays_gradients(enum sbp_schedule schedule)
{
    return schedules[schedule]->simulate != NULL;
}

int sbp_timeline_weight_versions(enum sbp_schedule schedule, int stages, int stage)
{
    const bool has_older = schedule == SBP_CDP_V1 || (schedule == SBP_CDP_V2 && stage + 1 < stages);
    return has_older ? 2 : 1;
}

static const struct sbp_schedule_entry *entry_of(const struct sbp_timeline_request *request)
{
    if (sbp_timeline_delays_gradients(request->schedule)) {
        if (request->placement == SBP_PLACE_REPLICAS)
            return &sbp_schedule_replicas;
        if (request->placement == SBP_PLACE_GROUPS)
            return &sbp_schedule_pyramid;
    }
    return schedules[request->schedule];
}

/* --- requests --- */

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
        {"send_gradients_s", cost->send_gradients_s},
    };
    SBP_TRY(check_times("stage", index, time, sizeof time / sizeof *time, diag));
    const struct {
        const char *name;
        int64_t bytes;
    } size[] = {
        {"static_bytes", cost->static_bytes},
        {"kept_bytes", cost->kept_bytes},
        {"transient_bytes", cost->transient_bytes},
        {"parked_inputs_bytes", cost->parked_inputs_bytes},
        {"parked_gradients_bytes", cost->parked_gradients_bytes},
    };
    for (size_t i = 0; i < sizeof size / sizeof *size; i++)
        if (size[i].bytes < 0 || size[i].bytes > MAX_BYTES)
            return sbp_fail(diag, SBP_E_INPUT,
                            "timeline: stage[%d].%s: %lld is no size, must be in 0 .. 2^53", index,
                            size[i].name, (long long)size[i].bytes);
    if (cost->parked_inputs_bytes > cost->kept_bytes)
        return sbp_fail(diag, SBP_E_INPUT,
                        "timeline: stage[%d].parked_inputs_bytes: %lld are more than the %lld that "
                        "are kept",
                        index, (long long)cost->parked_inputs_bytes, (long long)cost->kept_bytes);
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

/* Checks that the sum of bytes held at a time fits an int64_t: one device may have every stage. */
static enum sbp_status check_bytes(const struct sbp_timeline_request *request,
                                   struct sbp_diag *diag)
{
    int64_t most = 0;
    for (int i = 0; i < request->stages * sbp_timeline_run_chunks(request); i++) {
        const struct sbp_stage_cost *cost = &request->stage[i];
        int64_t kept = cost->kept_bytes + cost->parked_gradients_bytes;
        if (!sbp_mul_i64(kept, request->micro_batches, &kept) || !sbp_add_i64(most, kept, &most) ||
            !sbp_add_i64(most, cost->static_bytes, &most) ||
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
    const struct sbp_schedule_entry *schedule = entry_of(request);
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
    SBP_TRY(check_int("stages x chunks", request->stages * sbp_timeline_run_chunks(request), 1,
                      MAX_VIRTUAL, diag));
    if ((int64_t)request->stages * sbp_timeline_run_chunks(request) >
        MAX_WORK / request->micro_batches)
        return sbp_fail(diag, SBP_E_INPUT,
                        "timeline: micro_batches: %d on %d stages of %d chunks are too many, "
                        "stages x chunks x micro_batches must be at most 2^26",
                        request->micro_batches, request->stages, sbp_timeline_run_chunks(request));
    return schedule->check == NULL ? SBP_OK : schedule->check(request, diag);
}

static enum sbp_status check(const struct sbp_timeline_request *request, struct sbp_diag *diag)
{
    SBP_TRY(check_counts(request, diag));
    for (int i = 0; i < request->stages * sbp_timeline_run_chunks(request); i++)
        SBP_TRY(check_cost(&request->stage[i], i, diag));
    for (int s = 0; request->end != NULL && s < request->stages; s++)
        SBP_TRY(check_end(&request->end[s], s, diag));
    return check_bytes(request, diag);
}

/* --- playing --- */

static double finish(struct sbp_timeline_run *run)
{
    double makespan_s = 0;
    for (int d = 0; d < run->devices; d++) {
        sbp_timeline_run_end(run, d);
        if (run->lane[d].end_s > makespan_s)
            makespan_s = run->lane[d].end_s;
    }
    return makespan_s;
}

static bool sends_cost(const struct sbp_timeline_run *run)
{
    for (int v = 0; v < run->stages; v++)
        if (sbp_timeline_run_cost(run, v)->send_forward_s > 0 ||
            sbp_timeline_run_cost(run, v)->send_backward_s > 0)
            return true;
    return false;
}

/* Makespans of what was played, without and with gradient synchronisation. */
static void finish_both(struct sbp_timeline_run *run, double *without_sync_s, double *with_sync_s)
{
    const bool recording = run->recording;
    run->recording = false;
    run->free_sync = true;
    *without_sync_s = finish(run);
    run->recording = recording;
    run->free_sync = false;
    *with_sync_s = finish(run);
}

static void report(const struct sbp_timeline_run *run, struct sbp_timeline *timeline)
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

static enum sbp_status prepare(struct sbp_timeline_run *run)
{
    const bool is_listed = run->schedule->play == NULL && run->schedule->arrange != NULL;
    run->works = !is_listed
                     ? 0
                     : (run->schedule->splits_backward ? 3 : 2) * run->stages * run->micro_batches;
    SBP_TRY(sbp_timeline_run_allocate(run));
    struct sbp_timeline_work *at = run->work;
    for (int d = 0; is_listed && d < run->devices; d++) {
        at = run->schedule->arrange(run, d, at);
        run->first[d + 1] = at - run->work;
    }
    for (int v = 0; v < run->stages; v++)
        run->static_bytes[v % run->devices] += sbp_timeline_run_cost(run, v)->static_bytes;
    return SBP_OK;
}

/* One step with a flush. The real play comes last, so that its lanes and records are those that
 * are reported. */
static enum sbp_status simulate_step(struct sbp_timeline_run *run, struct sbp_arena *arena,
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
        SBP_TRY(sbp_timeline_run_restart(run));
        finish_both(run, &free_s, &without_sends_s);
        run->free_sends = false;
    }
    if (run->request->record)
        SBP_TRY(sbp_timeline_run_start_recording(run, arena, timeline));
    SBP_TRY(sbp_timeline_run_restart(run));
    double without_sync_s;
    finish_both(run, &without_sync_s, &timeline->makespan_s);
    if (!run->request->is_brief)
        sbp_timeline_expose(timeline, sends ? without_sends_s : timeline->makespan_s,
                            sends ? free_s : without_sync_s);
    report(run, timeline);
    return SBP_OK;
}

enum sbp_status sbp_timeline_simulate(const struct sbp_timeline_request *request,
                                      struct sbp_arena *arena, struct sbp_timeline *timeline,
                                      struct sbp_diag *diag)
{
    SBP_TRY(check(request, diag));
    struct sbp_arena scratch = {0};
    struct sbp_timeline_run run = {.request = request,
                                   .schedule = entry_of(request),
                                   .scratch = &scratch,
                                   .devices = request->stages,
                                   .stages = request->stages * sbp_timeline_run_chunks(request),
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

/* --- works --- */

/* Works of a device, at most; updates are works where each device makes its own. The list of a
 * pyramid's group has several steps, of which it does fewer micro-batches each. */
static int64_t most_works(const struct sbp_timeline_request *request)
{
    const bool updates =
        request->placement == SBP_PLACE_REPLICAS || request->placement == SBP_PLACE_GROUPS;
    const int kinds = schedules[request->schedule]->splits_backward || updates ? 3 : 2;
    return (int64_t)kinds * sbp_timeline_run_chunks(request) * request->micro_batches;
}

enum sbp_status sbp_timeline_works(const struct sbp_timeline_request *request, int device,
                                   struct sbp_arena *arena, struct sbp_timeline_work **work,
                                   int64_t *count, struct sbp_diag *diag)
{
    SBP_TRY(check_counts(request, diag));
    const struct sbp_schedule_entry *schedule = entry_of(request);
    const struct sbp_timeline_run run = {.request = request,
                                         .devices = request->stages,
                                         .stages =
                                             request->stages * sbp_timeline_run_chunks(request),
                                         .micro_batches = request->micro_batches};
    if (schedule->arrange == NULL)
        return sbp_fail(diag, SBP_E_UNSUPPORTED, "timeline: schedule: %s has no fixed order",
                        sbp_timeline_schedule_name(request->schedule));
    *work = SBP_NEW(arena, struct sbp_timeline_work, most_works(request));
    if (*work == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for the works of a step");
    *count = schedule->arrange(&run, device, *work) - *work;
    return SBP_OK;
}
