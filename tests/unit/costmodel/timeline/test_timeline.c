/* Timelines: closed formulas of the papers for equal stages, and for random unequal stages an
 * oracle that takes nothing but the recorded intervals. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math/random.h"
#include "costmodel/timeline/timeline.h"
#include "tests/support/unit.h"

#define SEED UINT64_C(4217)

enum { MAX_STAGES = 8, MAX_CHUNKS = 4, MAX_MICRO_BATCHES = 24 };
enum { FLUSHED = SBP_CDP_V1 }; /* schedules before it end every step */

/* A request with its costs in one place. */
struct setting {
    struct sbp_timeline_request request;
    struct sbp_stage_cost cost[MAX_STAGES * MAX_CHUNKS];
    struct sbp_stage_end end[MAX_STAGES];
};

static int chunks_of(const struct setting *setting)
{
    return setting->request.chunks > 0 ? setting->request.chunks : 1;
}

static struct sbp_timeline simulate(struct setting *setting, struct sbp_arena *arena)
{
    struct sbp_diag diag = {{0}};
    struct sbp_timeline timeline;
    setting->request.stage = setting->cost;
    if (sbp_timeline_simulate(&setting->request, arena, &timeline, &diag) != SBP_OK)
        fail_msg("a legal request was refused: %s", diag.text);
    return timeline;
}

#define near(got, want) near_at((got), (want), __LINE__)
static void near_at(double got, double want, int line)
{
    const double difference = got > want ? got - want : want - got;
    if (difference > 1e-12 * (1 + (want > 0 ? want : -want)))
        fail_msg("line %d: got %.17g, want %.17g", line, got, want);
}

/* Equal stages: forward 2, backward 3 + 1; a byte and a half each, so to say. */
static void set_equal(struct setting *setting, enum sbp_schedule schedule, int stages,
                      int micro_batches, int chunks)
{
    *setting = (struct setting){.request = {.schedule = schedule,
                                            .stages = stages,
                                            .micro_batches = micro_batches,
                                            .chunks = chunks}};
    for (int i = 0; i < stages * chunks_of(setting); i++)
        setting->cost[i] = (struct sbp_stage_cost){.forward_s = 2.0 / chunks_of(setting),
                                                   .backward_input_s = 3.0 / chunks_of(setting),
                                                   .backward_weight_s = 1.0 / chunks_of(setting),
                                                   .static_bytes = 1000,
                                                   .kept_bytes = 10,
                                                   .transient_bytes = 3};
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* --- equal stages, free sends --- */

/* Makespan (m + p - 1)(tf + tb), so idle for (p - 1)/m of the time that it works: Huang et al.,
 * Narayanan et al. 2021 section 2.2. */
static void test_flush(void **state)
{
    (void)state;
    static const enum sbp_schedule schedules[] = {SBP_GPIPE, SBP_ONE_F_ONE_B, SBP_MESSAGE_DRIVEN};
    for (int k = 0; k < 3; k++)
        for (int p = 1; p <= MAX_STAGES; p++)
            for (int m = 1; m <= MAX_MICRO_BATCHES; m++) {
                struct setting setting;
                struct sbp_arena arena = {0};
                set_equal(&setting, schedules[k], p, m, 0);
                const struct sbp_timeline timeline = simulate(&setting, &arena);
                near(timeline.makespan_s, (m + p - 1) * 6.0);
                assert_int_equal(timeline.devices, p);
                for (int s = 0; s < p; s++) {
                    near(timeline.device[s].compute_s, m * 6.0);
                    near(timeline.device[s].bubble_s, (p - 1) * 6.0);
                    const int at_most = least(m, schedules[k] == SBP_ONE_F_ONE_B ? p - s : p);
                    const int in_flight = schedules[k] == SBP_GPIPE ? m
                                          : schedules[k] == SBP_ONE_F_ONE_B
                                              ? at_most
                                              : timeline.device[s].in_flight;
                    assert_in_range(in_flight, 1, schedules[k] == SBP_GPIPE ? m : at_most);
                    assert_int_equal(timeline.device[s].in_flight, in_flight);
                    assert_int_equal(timeline.device[s].peak_bytes, 1000 + 10 * in_flight + 3);
                }
                near(timeline.bubble_s, p * (p - 1) * 6.0);
                near(timeline.exposed_s, 0);
                sbp_arena_free(&arena);
            }
}

/* Interleaving v chunks divides the bubble by v: Narayanan et al. 2021, section 2.2. */
static void test_interleaved(void **state)
{
    (void)state;
    for (int p = 1; p <= 6; p++)
        for (int v = 2; v <= MAX_CHUNKS; v++)
            for (int m = p; m <= MAX_MICRO_BATCHES; m += p) {
                struct setting setting;
                struct sbp_arena arena = {0};
                set_equal(&setting, SBP_INTERLEAVED, p, m, v);
                const struct sbp_timeline timeline = simulate(&setting, &arena);
                near(timeline.makespan_s, m * 6.0 + (p - 1) * 6.0 / v);
                for (int s = 0; s < p; s++) {
                    near(timeline.device[s].bubble_s, (p - 1) * 6.0 / v);
                    /* Warm-up of 2 (p - s - 1) + (v - 1) p passes and the one under way. */
                    assert_int_equal(timeline.device[s].in_flight,
                                     least(m * v, 2 * (p - s - 1) + (v - 1) * p + 1));
                }
                sbp_arena_free(&arena);
            }
}

/* ZB-H1: bubble (p - 1)(tf + tb - tw) with no more in flight than 1F1B has; ZB-H2: with up to
 * 2 p - 1 in flight every stage works without a gap from its first to its last work (Qi et al.,
 * table 1, equal parts). */
static void test_zero_bubble(void **state)
{
    (void)state;
    for (int p = 1; p <= MAX_STAGES; p++)
        for (int m = 2 * p; m <= MAX_MICRO_BATCHES; m++)
            for (int h = 1; h <= 2; h++) {
                struct setting setting;
                struct sbp_arena arena = {0};
                set_equal(&setting, SBP_ZERO_BUBBLE, p, m, 0);
                for (int s = 0; s < p; s++)
                    setting.cost[s].forward_s = setting.cost[s].backward_input_s =
                        setting.cost[s].backward_weight_s = 2;
                setting.request.pipeline_limit = h == 1 ? 0 : 2 * p - 1;
                const struct sbp_timeline timeline = simulate(&setting, &arena);
                near(timeline.makespan_s, m * 6.0 + (p - 1) * 2.0);
                for (int s = 0; s < p; s++) {
                    assert_int_equal(timeline.device[s].in_flight, h == 1 ? p : 2 * p - 1);
                    /* Stage s begins after s forward passes. */
                    if (h == 2)
                        near(timeline.device[s].end_s, s * 2.0 + m * 6.0);
                }
                sbp_arena_free(&arena);
            }
}

/* --- what is refused --- */

static void refused(struct setting *setting, const char *what)
{
    struct sbp_diag diag = {{0}};
    struct sbp_arena arena = {0};
    struct sbp_timeline timeline;
    setting->request.stage = setting->cost;
    assert_int_equal(sbp_timeline_simulate(&setting->request, &arena, &timeline, &diag),
                     SBP_E_INPUT);
    if (strstr(diag.text, what) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", diag.text, what);
    sbp_arena_free(&arena);
}

static void test_refusals(void **state)
{
    (void)state;
    struct setting s;
    set_equal(&s, SBP_GPIPE, 0, 4, 0), refused(&s, "stages: 0 is not in 1 ..");
    set_equal(&s, SBP_GPIPE, 2, 0, 0), refused(&s, "micro_batches: 0 is not in 1 ..");
    set_equal(&s, SBP_GPIPE, 2, 4, 2), refused(&s, "chunks: gpipe has 1 chunk a stage, not 2");
    set_equal(&s, SBP_INTERLEAVED, 4, 4, 1), refused(&s, "at least 2 chunks a stage, not 1");
    set_equal(&s, SBP_INTERLEAVED, 4, 6, 2), refused(&s, "a multiple of the 4 stages, not 6");
    set_equal(&s, SBP_ONE_F_ONE_B, 4, 4, 0), s.request.pipeline_limit = 4;
    refused(&s, "pipeline_limit: 1f1b has a limit of its own");
    set_equal(&s, SBP_ONE_F_ONE_B, 4, 4, 0), s.cost[2].forward_s = -1;
    refused(&s, "stage[2].forward_s: -1 is no time");
    set_equal(&s, SBP_ONE_F_ONE_B, 4, 4, 0), s.cost[1].kept_bytes = -1;
    refused(&s, "stage[1].kept_bytes: -1 is no size");
    set_equal(&s, SBP_ONE_F_ONE_B, 4, 1 << 20, 0), s.cost[1].kept_bytes = INT64_C(1) << 50;
    refused(&s, "hold more than 2^63");
    set_equal(&s, SBP_ONE_F_ONE_B, 4, 4, 0), s.request.schedule = SBP_SCHEDULES;
    refused(&s, "schedule: ");
    set_equal(&s, SBP_ONE_F_ONE_B, 4, 4, 0), s.request.end = s.end, s.end[1].sync_overlap = 1.5;
    refused(&s, "end[1].sync_overlap: 1.5 is no share");
    set_equal(&s, SBP_ONE_F_ONE_B, 4, 4, 0), s.request.end = s.end, s.end[1].offload.buckets = -1;
    refused(&s, "buckets: -1 is not in 0 ..");
    set_equal(&s, SBP_ONE_F_ONE_B, 4, 4, 0), s.request.end = s.end;
    s.end[3] =
        (struct sbp_stage_end){.sync_overlap = 0.5, .offload = {.buckets = 4, .chunk_buckets = 2}};
    refused(&s, "end[3].sync_overlap: must be 0");
}

/* --- the end of a step --- */

static void test_sync(void **state)
{
    (void)state;
    static const double overlaps[] = {0, 0.25, 0.5, 1}, syncs[] = {0, 1, 5, 30};
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4; k++) {
            struct setting setting;
            struct sbp_arena arena = {0};
            set_equal(&setting, SBP_ONE_F_ONE_B, 4, 8, 0);
            setting.request.end = setting.end;
            for (int s = 0; s < 4; s++)
                setting.end[s] = (struct sbp_stage_end){
                    .sync_s = syncs[k], .sync_overlap = overlaps[i], .optimizer_s = 7};
            const struct sbp_timeline timeline = simulate(&setting, &arena);
            /* The window is the last backward pass, 4; stage 0 ends last, at 66. */
            const double forced_s = (1 - overlaps[i]) * syncs[k], rest_s = syncs[k] - 4;
            const double exposed_s = forced_s > rest_s ? forced_s : rest_s;
            near(timeline.makespan_s, 66 + exposed_s + 7);
            near(timeline.exposed_sync_s, exposed_s);
            near(timeline.exposed_s, exposed_s);
            for (int s = 0; s < 4; s++) {
                near(timeline.device[s].end_s, 66 - 4.0 * s + exposed_s + 7);
                near(timeline.device[s].bubble_s, 18);
            }
            sbp_arena_free(&arena);
        }
}

/* n buckets in chunks of k: all-reduces a chunk r apart, optimizer o a bucket. With r >= k o the
 * network decides: n/k r + k o; with r <= k o the optimizer: r + n o. Without chunks: the sum. */
static void test_offload(void **state)
{
    (void)state;
    const double bucket_s = 1 + 2 + 3;
    for (int k = 0; k <= 12; k++)
        for (double sync_s = 2; sync_s < 100; sync_s *= 2) {
            if (k > 0 && 12 % k != 0)
                continue;
            struct setting setting;
            struct sbp_arena arena = {0};
            set_equal(&setting, SBP_GPIPE, 1, 1, 0);
            setting.request.end = setting.end;
            setting.end[0] = (struct sbp_stage_end){
                .sync_s = sync_s,
                .offload = {12, .in_s = 1, .step_s = 2, .out_s = 3, k, sync_s, 0}};
            const struct sbp_timeline timeline = simulate(&setting, &arena);
            const double want_s = k == 0                   ? sync_s + 12 * bucket_s
                                  : sync_s >= k * bucket_s ? 12 / k * sync_s + k * bucket_s
                                                           : sync_s + 12 * bucket_s;
            near(timeline.makespan_s, 6 + want_s);
            near(timeline.exposed_sync_s, want_s - 12 * bucket_s);
            sbp_arena_free(&arena);
        }
}

/* --- exposed sends --- */

/* Two stages, one micro-batch: every message is waited for. */
static void test_exposed(void **state)
{
    (void)state;
    for (int block = 0; block <= 1; block++) {
        struct setting setting;
        struct sbp_arena arena = {0};
        set_equal(&setting, SBP_ONE_F_ONE_B, 2, 1, 0);
        setting.request.sends_block = block;
        setting.cost[0].send_forward_s = 5;
        setting.cost[1].send_backward_s = 11;
        setting.cost[0].send_backward_s = setting.cost[1].send_forward_s = 1000; /* nobody there */
        const struct sbp_timeline timeline = simulate(&setting, &arena);
        near(timeline.makespan_s, 12 + 5 + 11);
        near(timeline.exposed_send_s, 16);
        near(timeline.exposed_sync_s, 0);
        near(timeline.device[0].bubble_s, block ? 28 - 6 - 5 : 28 - 6);
        near(timeline.device[1].bubble_s, block ? 28 - 6 - 11 : 28 - 6);
        sbp_arena_free(&arena);
    }
}

/* --- random stages against the recorded intervals --- */

struct work {
    enum sbp_interval_kind kind;    /* forward, backward, backward-weight */
    int device, stage, micro_batch; /* virtual stage */
    double begin_s, end_s;
    double sent_s;           /* when its message is there; its end where it sends none */
    double early_s, there_s; /* the oracle's begin and arrival */
};

struct played {
    const struct setting *setting;
    const struct sbp_timeline *timeline;
    int count;
    struct work work[3 * MAX_STAGES * MAX_CHUNKS * MAX_MICRO_BATCHES];
};

static bool is_work(enum sbp_interval_kind kind)
{
    return kind == SBP_INTERVAL_FORWARD || kind == SBP_INTERVAL_BACKWARD ||
           kind == SBP_INTERVAL_BACKWARD_WEIGHT;
}

static int virtual_stage(const struct setting *setting,
                         const struct sbp_timeline_interval *interval)
{
    return interval->chunk * setting->request.stages + interval->stage;
}

static const struct sbp_stage_cost *cost_of(const struct setting *setting, int stage)
{
    const int p = setting->request.stages;
    return &setting->cost[stage % p * chunks_of(setting) + stage / p];
}

static struct work *find(struct played *played, enum sbp_interval_kind kind, int stage,
                         int micro_batch)
{
    for (int i = 0; i < played->count; i++) {
        struct work *work = &played->work[i];
        if (work->kind == kind && work->stage == stage && work->micro_batch == micro_batch)
            return work;
    }
    fail_msg("no work of kind %d of stage %d, micro-batch %d", (int)kind, stage, micro_batch);
    return NULL;
}

/* Works in order of time per device, recomputation joined with its backward pass. */
static void gather(struct played *played)
{
    double recomputed_s[MAX_STAGES] = {0};
    played->count = 0;
    for (int64_t i = 0; i < played->timeline->interval_count; i++) {
        const struct sbp_timeline_interval *interval = &played->timeline->interval[i];
        assert_true(interval->device == interval->stage);
        if (interval->kind == SBP_INTERVAL_RECOMPUTE)
            recomputed_s[interval->device] = interval->end_s - interval->begin_s;
        if (!is_work(interval->kind))
            continue;
        struct work *work = &played->work[played->count++];
        *work = (struct work){.kind = interval->kind,
                              .device = interval->device,
                              .stage = virtual_stage(played->setting, interval),
                              .micro_batch = interval->micro_batch,
                              .begin_s = interval->begin_s,
                              .end_s = interval->end_s,
                              .sent_s = interval->end_s};
        if (work->kind == SBP_INTERVAL_BACKWARD) {
            work->begin_s -= recomputed_s[work->device];
            recomputed_s[work->device] = 0;
        }
    }
    for (int64_t i = 0; i < played->timeline->interval_count; i++) {
        const struct sbp_timeline_interval *interval = &played->timeline->interval[i];
        if (interval->kind != SBP_INTERVAL_SEND)
            continue;
        const int stage = virtual_stage(played->setting, interval);
        struct work *forward = find(played, SBP_INTERVAL_FORWARD, stage, interval->micro_batch);
        struct work *backward = find(played, SBP_INTERVAL_BACKWARD, stage, interval->micro_batch);
        /* A backward pass ends after what its forward pass sent began to leave. */
        struct work *from = interval->begin_s >= backward->end_s ? backward : forward;
        assert_true(interval->begin_s >= from->end_s);
        from->sent_s = interval->end_s;
    }
}

static double duration_of(const struct setting *setting, const struct work *work)
{
    const struct sbp_stage_cost *cost = cost_of(setting, work->stage);
    const bool split = setting->request.schedule == SBP_ZERO_BUBBLE;
    return work->kind == SBP_INTERVAL_FORWARD ? cost->forward_s
           : work->kind == SBP_INTERVAL_BACKWARD_WEIGHT
               ? cost->backward_weight_s
               : cost->recompute_s + cost->backward_input_s + (split ? 0 : cost->backward_weight_s);
}

/* The work that a work waits for, for its message or, weight gradients, for its end; NULL: none. */
static struct work *needs(struct played *played, const struct work *work)
{
    const int last = played->setting->request.stages * chunks_of(played->setting) - 1;
    if (work->kind == SBP_INTERVAL_BACKWARD_WEIGHT)
        return find(played, SBP_INTERVAL_BACKWARD, work->stage, work->micro_batch);
    if (work->kind == SBP_INTERVAL_FORWARD)
        return work->stage == 0
                   ? NULL
                   : find(played, SBP_INTERVAL_FORWARD, work->stage - 1, work->micro_batch);
    return work->stage == last
               ? find(played, SBP_INTERVAL_FORWARD, last, work->micro_batch)
               : find(played, SBP_INTERVAL_BACKWARD, work->stage + 1, work->micro_batch);
}

static double send_of(const struct setting *setting, const struct work *work)
{
    const int p = setting->request.stages, last = p * chunks_of(setting) - 1;
    const struct sbp_stage_cost *cost = cost_of(setting, work->stage);
    if (p == 1 || work->kind == SBP_INTERVAL_BACKWARD_WEIGHT)
        return 0;
    if (work->kind == SBP_INTERVAL_FORWARD)
        return work->stage == last ? 0 : cost->send_forward_s;
    return work->stage == 0 ? 0 : cost->send_backward_s;
}

/* Relaxes begins until nothing changes: each work after the one before it on its device, after its
 * input, and a message after the one before it on its link. */
static void relax(struct played *played)
{
    for (int i = 0; i < played->count; i++)
        played->work[i].early_s = played->work[i].there_s = 0;
    for (bool changed = true; changed;) {
        double free_s[MAX_STAGES] = {0}, link_s[MAX_STAGES][2] = {{0}};
        changed = false;
        for (int i = 0; i < played->count; i++) {
            struct work *work = &played->work[i];
            const struct work *input = needs(played, work);
            const double input_s = input == NULL ? 0
                                   : work->kind == SBP_INTERVAL_BACKWARD_WEIGHT
                                       ? input->early_s + duration_of(played->setting, input)
                                       : input->there_s;
            const double begin_s = input_s > free_s[work->device] ? input_s : free_s[work->device];
            const double end_s = begin_s + duration_of(played->setting, work);
            const double send_s = send_of(played->setting, work);
            double *link = &link_s[work->device][work->kind == SBP_INTERVAL_FORWARD];
            const double there_s = send_s > 0 ? (*link > end_s ? *link : end_s) + send_s : end_s;
            if (send_s > 0)
                *link = there_s;
            free_s[work->device] = played->setting->request.sends_block ? there_s : end_s;
            changed = changed || begin_s != work->early_s || there_s != work->there_s;
            work->early_s = begin_s;
            work->there_s = there_s;
        }
    }
}

/* Every work begins exactly when the fixed point says: no dependency broken, none waited for in
 * vain, one work at a time. */
static void check_times(struct played *played)
{
    double free_s[MAX_STAGES] = {0}, latest_s = 0;
    relax(played);
    for (int i = 0; i < played->count; i++) {
        const struct work *work = &played->work[i];
        near(work->begin_s, work->early_s);
        near(work->end_s, work->early_s + duration_of(played->setting, work));
        near(work->sent_s, work->there_s);
        assert_true(work->begin_s >= free_s[work->device] - 1e-9);
        free_s[work->device] = work->end_s;
        if (work->end_s > latest_s)
            latest_s = work->end_s;
        if (played->setting->request.sends_block && work->there_s > latest_s)
            latest_s = work->there_s;
    }
    near(played->timeline->makespan_s, latest_s);
}

static bool is_release(const struct setting *setting, enum sbp_interval_kind kind)
{
    return kind == (setting->request.schedule == SBP_ZERO_BUBBLE ? SBP_INTERVAL_BACKWARD_WEIGHT
                                                                 : SBP_INTERVAL_BACKWARD);
}

static int limit_of(const struct setting *setting, int device)
{
    const struct sbp_timeline_request *request = &setting->request;
    const int p = request->stages, v = chunks_of(setting), m = request->micro_batches;
    const int limit = request->pipeline_limit > 0 ? request->pipeline_limit : p;
    switch (request->schedule) {
    case SBP_ONE_F_ONE_B:
        return least(m, p - device);
    case SBP_INTERLEAVED:
        return least(m * v, 2 * (p - device - 1) + (v - 1) * p + 1);
    case SBP_ZERO_BUBBLE:
    case SBP_MESSAGE_DRIVEN:
        return least(m, limit);
    default:
        return m;
    }
}

/* What a backward pass, and weight gradients that wait, free at their end. */
static int64_t freed_bytes(const struct setting *setting, const struct work *work)
{
    const struct sbp_stage_cost *cost = cost_of(setting, work->stage);
    const bool waits = setting->request.schedule == SBP_ZERO_BUBBLE;
    if (work->kind == SBP_INTERVAL_BACKWARD)
        return cost->kept_bytes - (waits ? cost->parked_inputs_bytes : 0);
    return work->kind == SBP_INTERVAL_BACKWARD_WEIGHT
               ? cost->parked_inputs_bytes + cost->parked_gradients_bytes
               : 0;
}

/* Replays what each work allocates and frees; counts what is in flight. */
static void check_memory(const struct played *played)
{
    const struct setting *setting = played->setting;
    for (int d = 0; d < setting->request.stages; d++) {
        int64_t base = 0, held, peak;
        int in_flight = 0, most = 0;
        for (int c = 0; c < chunks_of(setting); c++)
            base += cost_of(setting, c * setting->request.stages + d)->static_bytes;
        held = peak = base;
        for (int i = 0; i < played->count; i++) {
            const struct work *work = &played->work[i];
            const struct sbp_stage_cost *cost = cost_of(setting, work->stage);
            if (work->device != d)
                continue;
            if (work->kind == SBP_INTERVAL_FORWARD)
                held += cost->kept_bytes, in_flight++;
            if (work->kind == SBP_INTERVAL_BACKWARD && setting->request.schedule == SBP_ZERO_BUBBLE)
                held += cost->parked_gradients_bytes;
            if (held + cost->transient_bytes > peak)
                peak = held + cost->transient_bytes;
            if (in_flight > most)
                most = in_flight;
            held -= freed_bytes(setting, work);
            in_flight -= is_release(setting, work->kind);
        }
        assert_int_equal(held, base);
        assert_int_equal(played->timeline->device[d].peak_bytes, peak);
        assert_int_equal(played->timeline->device[d].in_flight, most);
        assert_in_range(most, 1, limit_of(setting, d));
        int64_t highest = 0, at_end = -1;
        double at_s = 0;
        for (int64_t i = 0; i < played->timeline->memory_count; i++) {
            const struct sbp_memory_sample *sample = &played->timeline->memory[i];
            if (sample->device != d)
                continue;
            assert_true(sample->at_s >= at_s);
            at_s = sample->at_s;
            at_end = sample->bytes;
            if (sample->bytes > highest)
                highest = sample->bytes;
        }
        assert_int_equal(highest, peak);
        assert_int_equal(at_end, base);
    }
}

/* Busiest stage, and the longest way of one micro-batch. */
static void check_bounds(const struct played *played)
{
    const struct setting *setting = played->setting;
    const struct sbp_timeline *timeline = played->timeline;
    double busy_s[MAX_STAGES] = {0}, way_s = 0, bubble_s = 0;
    for (int i = 0; i < played->count; i++) {
        const struct work *work = &played->work[i];
        busy_s[work->device] += duration_of(setting, work);
        if (work->micro_batch == 0 && work->kind != SBP_INTERVAL_BACKWARD_WEIGHT)
            way_s += duration_of(setting, work) + send_of(setting, work);
    }
    assert_true(timeline->makespan_s >= way_s - 1e-9);
    for (int d = 0; d < setting->request.stages; d++) {
        assert_true(timeline->makespan_s >= busy_s[d] - 1e-9);
        near(timeline->device[d].compute_s, busy_s[d]);
        bubble_s += timeline->device[d].bubble_s;
        if (!setting->request.sends_block)
            near(timeline->device[d].bubble_s, timeline->makespan_s - busy_s[d]);
    }
    near(timeline->bubble_s, bubble_s);
}

/* No forward pass begins while a message of a backward pass lies there, but for the injections of
 * the first stage. */
static void check_messages(struct played *played)
{
    for (int i = 0; i < played->count; i++) {
        const struct work *forward = &played->work[i];
        if (forward->kind != SBP_INTERVAL_FORWARD || forward->device == 0)
            continue;
        for (int k = i + 1; k < played->count; k++) {
            const struct work *later = &played->work[k];
            if (later->device == forward->device && later->kind == SBP_INTERVAL_BACKWARD)
                assert_true(needs(played, later)->there_s > forward->begin_s);
        }
    }
}

/* Exposed time is the time that free communication saves. */
static void check_exposed(const struct setting *setting, const struct sbp_timeline *timeline)
{
    struct setting other = *setting;
    struct sbp_arena arena = {0};
    for (int i = 0; i < MAX_STAGES * MAX_CHUNKS; i++)
        other.cost[i].send_forward_s = other.cost[i].send_backward_s = 0;
    const double saved_s = timeline->makespan_s - simulate(&other, &arena).makespan_s;
    near(timeline->exposed_send_s, saved_s > 0 ? saved_s : 0);
    near(timeline->exposed_s, timeline->exposed_send_s);
    sbp_arena_free(&arena);
}

static double random_s(struct sbp_random *random)
{
    return 0.1 + sbp_random_unit(random);
}

static void set_random(struct setting *setting, enum sbp_schedule schedule,
                       struct sbp_random *random)
{
    const int p = 1 + (int)sbp_random_below(random, 6);
    const bool interleaved = schedule == SBP_INTERLEAVED;
    *setting = (struct setting){
        .request = {.schedule = schedule,
                    .stages = p,
                    .micro_batches = interleaved ? p * (1 + (int)sbp_random_below(random, 3))
                                                 : 1 + (int)sbp_random_below(random, 16),
                    .chunks = interleaved ? 2 + (int)sbp_random_below(random, 2) : 0,
                    .sends_block = sbp_random_below(random, 3) == 0,
                    .record = true}};
    if (schedule == SBP_ZERO_BUBBLE || schedule == SBP_MESSAGE_DRIVEN)
        setting->request.pipeline_limit = (int)sbp_random_below(random, 2 * (uint64_t)p);
    const bool sends = sbp_random_below(random, 4) > 0, recompute = sbp_random_below(random, 2);
    for (int i = 0; i < MAX_STAGES * MAX_CHUNKS; i++)
        setting->cost[i] =
            (struct sbp_stage_cost){.forward_s = random_s(random),
                                    .backward_input_s = random_s(random),
                                    .backward_weight_s = random_s(random),
                                    .recompute_s = recompute ? random_s(random) : 0,
                                    .send_forward_s = sends ? random_s(random) : 0,
                                    .send_backward_s = sends ? random_s(random) : 0,
                                    .static_bytes = (int64_t)sbp_random_below(random, 1000),
                                    .kept_bytes = 50 + (int64_t)sbp_random_below(random, 50),
                                    .parked_inputs_bytes = (int64_t)sbp_random_below(random, 50),
                                    .parked_gradients_bytes = (int64_t)sbp_random_below(random, 90),
                                    .transient_bytes = (int64_t)sbp_random_below(random, 50)};
}

static void test_random(void **state)
{
    (void)state;
    static struct setting setting;
    static struct played played;
    struct sbp_random random;
    sbp_random_seed(&random, SEED);
    printf("seed %llu\n", (unsigned long long)SEED);
    for (int round = 0; round < 100 * FLUSHED; round++) {
        struct sbp_arena arena = {0};
        set_random(&setting, (enum sbp_schedule)(round % FLUSHED), &random);
        const struct sbp_timeline timeline = simulate(&setting, &arena);
        played.setting = &setting;
        played.timeline = &timeline;
        gather(&played);
        const int works = setting.request.schedule == SBP_ZERO_BUBBLE ? 3 : 2;
        assert_int_equal(played.count, works * setting.request.stages * chunks_of(&setting) *
                                           setting.request.micro_batches);
        check_times(&played);
        check_memory(&played);
        check_bounds(&played);
        if (setting.request.schedule == SBP_MESSAGE_DRIVEN)
            check_messages(&played);
        check_exposed(&setting, &timeline);
        sbp_arena_free(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flush),       cmocka_unit_test(test_interleaved),
        cmocka_unit_test(test_zero_bubble), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_sync),        cmocka_unit_test(test_offload),
        cmocka_unit_test(test_exposed),     cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests_name("timeline", tests, NULL, NULL);
}
