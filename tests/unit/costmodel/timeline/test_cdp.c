/* Cyclic data parallelism in seconds: played schedules (timeline.h) against closed formulas, and
 * against checks of each pass where stages are random. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math/random.h"
#include "costmodel/timeline/works.h"
#include "tests/support/cdp_counts.h"
#include "tests/support/played.h"

#define SEED UINT64_C(4219)

enum { MOST_N = 9 };

/* --- equal stages --- */

static struct sbp_stage_cost cost[MOST_N];
static struct sbp_stage_end end[MOST_N];

static struct sbp_timeline_request request_of(enum sbp_schedule schedule, int n, int micro_batches,
                                              enum sbp_placement placement)
{
    return cyclic_request(schedule, n, micro_batches, placement, cost, end);
}

static void set_equal(double update_s)
{
    for (int j = 0; j < MOST_N; j++) {
        cost[j] = (struct sbp_stage_cost){
            .forward_s = 1, .backward_input_s = 0.5, .backward_weight_s = 0.5, .kept_bytes = 1};
        end[j] = (struct sbp_stage_end){.optimizer_s = update_s};
    }
}

/* Equal passes of one second: seconds are time steps. The recorded passes begin exactly when the
 * paper says, every placement has its devices, and a step takes 2 N where a device has a pass at
 * each time step. */
static void check_equal(enum sbp_schedule schedule, int n, enum sbp_placement placement)
{
    struct sbp_arena arena = {0};
    const struct sbp_timeline_request request = request_of(schedule, n, n, placement);
    const struct sbp_timeline timeline = simulate(&request, &arena);
    const struct sbp_cdp_count count = cdp_count_of(n, placement, true, SBP_CDP_RULE_V2);
    const bool single = placement == SBP_PLACE_SINGLE;
    assert_int_equal(timeline.devices, count.devices);
    near(timeline.makespan_s, single ? 2.0 * n * n : 2.0 * n);
    assert_true(timeline.delays_gradients);
    near(timeline.stale_share, schedule == SBP_CDP_V1 ? 1 : (n - 1) / (2.0 * n));
    near(timeline.exposed_s, 0);
    for (int64_t k = 0; k < timeline.interval_count && !single; k++) {
        const struct sbp_timeline_interval *interval = &timeline.interval[k];
        const int i = interval->micro_batch + 1, j = interval->stage + 1;
        const int64_t slot = interval->kind == SBP_INTERVAL_FORWARD
                                 ? sbp_cdp_forward_slot(n, i, j, interval->step)
                                 : sbp_cdp_backward_slot(n, i, j, interval->step);
        /* A pipeline that fills has room to be early. */
        if (slot >= 2 * n)
            near(interval->begin_s, (double)slot);
        else
            assert_true(interval->begin_s <= (double)slot);
    }
    int most = 0;
    for (int d = 0; d < timeline.devices; d++) {
        most = timeline.device[d].in_flight > most ? timeline.device[d].in_flight : most;
        if (placement == SBP_PLACE_PIPELINE)
            assert_int_equal(timeline.device[d].in_flight, n - d);
    }
    /* One device does the passes of a time step one after the other and may free before it keeps.
     */
    if (single)
        assert_in_range(1000 * most, count.activation_bytes - 500 * n, count.activation_bytes);
    else
        assert_int_equal(1000 * most, count.activation_bytes);
    sbp_arena_free(&arena);
}

static void test_equal(void **state)
{
    (void)state;
    set_equal(0);
    for (int n = 1; n <= MOST_N; n++)
        for (int p = 0; p < SBP_PLACE_REPLICAS; p++) {
            check_equal(SBP_CDP_V1, n, (enum sbp_placement)p);
            check_equal(SBP_CDP_V2, n, (enum sbp_placement)p);
        }
}

static bool is_pass(const struct sbp_timeline_interval *interval, int device)
{
    return interval->device == device &&
           (interval->kind == SBP_INTERVAL_FORWARD || interval->kind == SBP_INTERVAL_BACKWARD);
}

/* The listed works of a stage are those that are simulated between its updates of two steps. */
static void check_works(const struct sbp_timeline *timeline,
                        const struct sbp_timeline_request *request, int device)
{
    struct sbp_arena arena = {0};
    struct sbp_timeline_work *work;
    struct sbp_diag diag = {{0}};
    int64_t count, next = 0;
    assert_int_equal(sbp_timeline_works(request, device, &arena, &work, &count, &diag), SBP_OK);
    assert_int_equal(count, 2 * request->micro_batches);
    for (int64_t k = 0; k < timeline->interval_count && next < count; k++) {
        const struct sbp_timeline_interval *interval = &timeline->interval[k];
        const bool forward = interval->kind == SBP_INTERVAL_FORWARD;
        const int i = (interval->step - 1) * request->micro_batches + interval->micro_batch;
        if (!is_pass(interval, device) || (next == 0 && (!forward || i < work[0].micro_batch)))
            continue; /* of steps before the second one */
        assert_int_equal(work[next].stage, device);
        assert_int_equal(work[next].kind, forward ? SBP_WORK_FORWARD : SBP_WORK_BACKWARD);
        assert_int_equal(work[next].micro_batch, i);
        next++;
    }
    assert_int_equal(next, count);
    sbp_arena_free(&arena);
}

static void test_works(void **state)
{
    (void)state;
    set_equal(0.25);
    for (int n = 1; n <= MOST_N; n++)
        for (int more = 0; more < 4; more++) {
            struct sbp_arena arena = {0};
            const struct sbp_timeline_request request =
                request_of(more % 2 ? SBP_CDP_V1 : SBP_CDP_V2, n, n + more, SBP_PLACE_PIPELINE);
            const struct sbp_timeline timeline = simulate(&request, &arena);
            for (int device = 0; device < n; device++)
                check_works(&timeline, &request, device);
            sbp_arena_free(&arena);
        }
}

/* As many versions as are read between two updates of a stage, and one to be written. */
static void test_versions_of_stages(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST_N; n++)
        for (int j = 1; j <= n; j++) {
            bool older = false;
            for (int i = 1; i <= n; i++)
                older |= sbp_cdp_backward_slot(n, i, j, 5) > sbp_cdp_backward_slot(n, n, j, 4) &&
                         sbp_cdp_forward_slot(n, i, j, 5) < sbp_cdp_backward_slot(n, n, j, 4);
            assert_int_equal(sbp_timeline_weight_versions(SBP_CDP_V2, n, j - 1), older ? 2 : 1);
            assert_int_equal(sbp_timeline_weight_versions(SBP_CDP_V1, n, j - 1), 2);
            assert_int_equal(sbp_timeline_weight_versions(SBP_ONE_F_ONE_B, n, j - 1), 1);
        }
}

/* An optimizer of u seconds and a synchronisation of s in a pipeline: under either rule a stage
 * waits for both, on all stages at once. Where each micro-batch has a device, v1 has a whole step
 * between the last gradients and the first use of what they make. */
static void test_update(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST_N; n++) {
        struct sbp_arena arena = {0};
        set_equal(0.25);
        for (int j = 0; j < n; j++)
            end[j].sync_s = 1.5;
        for (int rule = 0; rule < 2; rule++) {
            const struct sbp_timeline_request request =
                request_of(rule == 0 ? SBP_CDP_V1 : SBP_CDP_V2, n, n, SBP_PLACE_PIPELINE);
            const struct sbp_timeline piped = simulate(&request, &arena);
            near(piped.makespan_s, 2 * n + 1.5 + 0.25);
            near(piped.exposed_sync_s, 1.5);
            assert_in_range(piped.steps, 3, 4);
        }
        struct sbp_timeline_request request = request_of(SBP_CDP_V1, n, n, SBP_PLACE_DATA);
        near(simulate(&request, &arena).exposed_sync_s, 0);
        /* Synchronisation that is longer than a step reaches over two of them. */
        for (int j = 0; j < n; j++)
            end[j].sync_s = 6 * n;
        assert_in_range(simulate(&request, &arena).steps, 6, 12);
        sbp_arena_free(&arena);
    }
}

/* --- random stages --- */

struct pass {
    bool known;
    int device;
    double begin_s, end_s;
};

/* Recorded passes of one simulation by kind (0 forward, 1 backward), step, stage, micro-batch. */
struct played {
    const struct sbp_timeline_request *request;
    const struct sbp_timeline *timeline;
    struct pass *pass;
    double *update_s; /* (steps + 2, stages) end of the update, from step -2 on; < 0: none */
};

static struct pass *pass_of(const struct played *played, int kind, int step, int stage, int i)
{
    const struct sbp_timeline_request *request = played->request;
    return &played->pass[((kind * played->timeline->steps + step) * request->stages + stage) *
                             request->micro_batches +
                         i];
}

static double *update_of(const struct played *played, int step, int stage)
{
    return &played->update_s[(step + 2) * played->request->stages + stage];
}

static void gather(struct played *played, struct sbp_arena *arena)
{
    const struct sbp_timeline_request *request = played->request;
    const int steps = played->timeline->steps;
    played->pass =
        SBP_NEW(arena, struct pass, 2 * steps * request->stages * request->micro_batches);
    played->update_s = SBP_NEW(arena, double, (steps + 2) * request->stages);
    assert_non_null(played->pass);
    assert_non_null(played->update_s);
    for (int k = 0; k < (steps + 2) * request->stages; k++)
        played->update_s[k] = -1;
    for (int64_t k = 0; k < played->timeline->interval_count; k++) {
        const struct sbp_timeline_interval *interval = &played->timeline->interval[k];
        if (interval->kind == SBP_INTERVAL_OPTIMIZER)
            *update_of(played, interval->step, interval->stage) = interval->end_s;
        if (interval->kind != SBP_INTERVAL_FORWARD && interval->kind != SBP_INTERVAL_BACKWARD)
            continue;
        struct pass *pass = pass_of(played, interval->kind == SBP_INTERVAL_BACKWARD, interval->step,
                                    interval->stage, interval->micro_batch);
        assert_false(pass->known);
        *pass = (struct pass){true, interval->device, interval->begin_s, interval->end_s};
    }
    for (int k = 0; k < 2 * steps * request->stages * request->micro_batches; k++)
        assert_true(played->pass[k].known);
}

/* Messages and parameters of one (step, stage, micro-batch). */
static void check_pass(const struct played *played, int step, int stage, int i)
{
    const struct sbp_timeline_request *request = played->request;
    const struct pass *f = pass_of(played, 0, step, stage, i);
    const struct pass *b = pass_of(played, 1, step, stage, i);
    after(b->begin_s, f->end_s);
    if (stage > 0) {
        const struct pass *before = pass_of(played, 0, step, stage - 1, i);
        const bool sent = before->device != f->device;
        after(f->begin_s, before->end_s + (sent ? cost[stage - 1].send_forward_s : 0));
    }
    if (stage + 1 < request->stages) {
        const struct pass *next = pass_of(played, 1, step, stage + 1, i);
        const bool sent = next->device != b->device;
        after(b->begin_s, next->end_s + (sent ? cost[stage + 1].send_backward_s : 0));
    }
    const bool v2 = request->schedule == SBP_CDP_V2;
    const bool late = !v2 && request->placement != SBP_PLACE_PIPELINE;
    const int made_by = v2 && i + stage >= request->stages - 1 ? step - 1 : step - 2;
    if (late || made_by >= 0) {
        assert_true(*update_of(played, made_by, stage) >= 0);
        after(f->begin_s, *update_of(played, made_by, stage));
    }
    /* The update of a step follows all its gradients and their synchronisation. */
    after(*update_of(played, step, stage), b->end_s + end[stage].sync_s + end[stage].optimizer_s);
}

static int by_begin(const void *a, const void *b)
{
    const struct sbp_timeline_interval *const *x = a, *const *y = b;
    return ((*x)->begin_s > (*y)->begin_s) - ((*x)->begin_s < (*y)->begin_s);
}

/* One pass or update at a time on every device; with zero on every stage, states sent between. */
static void check_alone(const struct played *played, struct sbp_arena *arena)
{
    const struct sbp_timeline *timeline = played->timeline;
    const struct sbp_timeline_interval **sorted =
        SBP_NEW(arena, const struct sbp_timeline_interval *, timeline->interval_count);
    const struct sbp_timeline_interval *of_device[MOST_N * MOST_N] = {0}, *of_stage[MOST_N] = {0};
    int64_t count = 0;
    for (int64_t k = 0; k < timeline->interval_count; k++)
        if (timeline->interval[k].kind == SBP_INTERVAL_FORWARD ||
            timeline->interval[k].kind == SBP_INTERVAL_BACKWARD ||
            timeline->interval[k].kind == SBP_INTERVAL_OPTIMIZER)
            sorted[count++] = &timeline->interval[k];
    qsort(sorted, (size_t)count, sizeof *sorted, by_begin);
    for (int64_t k = 0; k < count; k++) {
        const struct sbp_timeline_interval *now = sorted[k];
        if (of_device[now->device] != NULL)
            after(now->begin_s, of_device[now->device]->end_s);
        of_device[now->device] = now;
        if (played->request->placement != SBP_PLACE_ZERO || now->kind == SBP_INTERVAL_OPTIMIZER)
            continue;
        const struct sbp_timeline_interval *before = of_stage[now->stage];
        if (before != NULL)
            after(now->begin_s,
                  before->end_s +
                      (before->device != now->device ? cost[now->stage].send_states_s : 0));
        of_stage[now->stage] = now;
    }
}

static void check_memory(const struct played *played)
{
    const struct sbp_timeline *timeline = played->timeline;
    for (int d = 0; d < timeline->devices; d++) {
        int64_t first = -1, last = -1, most = 0;
        for (int64_t k = 0; k < timeline->memory_count; k++) {
            if (timeline->memory[k].device != d)
                continue;
            last = timeline->memory[k].bytes;
            first = first < 0 ? last : first;
            most = last > most ? last : most;
        }
        assert_int_equal(last, first);
        assert_int_equal(most, timeline->device[d].peak_bytes);
    }
}

static double random_s(struct sbp_random *random)
{
    return 0.1 + sbp_random_unit(random);
}

static void set_random(struct sbp_random *random)
{
    const double costly = sbp_random_below(random, 2) ? 3 : 0.3;
    for (int j = 0; j < MOST_N; j++) {
        cost[j] = (struct sbp_stage_cost){.forward_s = random_s(random),
                                          .backward_input_s = random_s(random),
                                          .backward_weight_s = random_s(random),
                                          .send_forward_s = costly * random_s(random),
                                          .send_backward_s = costly * random_s(random),
                                          .send_states_s = costly * random_s(random),
                                          .static_bytes = (int64_t)sbp_random_below(random, 1000),
                                          .kept_bytes = (int64_t)sbp_random_below(random, 100),
                                          .transient_bytes = (int64_t)sbp_random_below(random, 50)};
        end[j] = (struct sbp_stage_end){.sync_s = costly * random_s(random),
                                        .optimizer_s = random_s(random)};
    }
}

/* The step lies between the shortest and the longest time that a micro-batch of a late step came
 * back after its like in the step before; they are the same where every step is. */
static void check_step(const struct played *played)
{
    const int last = played->timeline->steps - 2, m = played->request->micro_batches;
    double least_s = 1e300, most_s = 0;
    for (int step = last; step > last - (last < 3 ? 1 : last / 3); step--)
        for (int i = m >= 4 * played->request->stages ? m / 2 : 0; i < m; i++) {
            const double step_s = pass_of(played, 1, step, 0, i)->begin_s -
                                  pass_of(played, 1, step - 1, 0, i)->begin_s;
            least_s = step_s < least_s ? step_s : least_s;
            most_s = step_s > most_s ? step_s : most_s;
        }
    after(played->timeline->makespan_s, least_s);
    after(most_s, played->timeline->makespan_s);
}

/* Exposed time is the time that free messages, and then free synchronisation, save. */
static void check_exposed(const struct sbp_timeline_request *request,
                          const struct sbp_timeline *timeline)
{
    struct sbp_stage_cost free_cost[MOST_N];
    struct sbp_stage_end free_end[MOST_N];
    struct sbp_timeline_request other = *request;
    struct sbp_arena arena = {0};
    for (int j = 0; j < MOST_N; j++) {
        free_cost[j] = cost[j];
        free_end[j] = end[j];
        free_cost[j].send_forward_s = free_cost[j].send_backward_s = 0;
        free_cost[j].send_states_s = free_end[j].sync_s = 0;
    }
    other.stage = free_cost;
    const double without_sends_s = simulate(&other, &arena).makespan_s;
    other.end = free_end;
    const double free_s = simulate(&other, &arena).makespan_s;
    /* Plays that do not settle within the same number of steps differ in their last digits. */
    const double slack_s = 1e-3 * timeline->makespan_s;
    const double sends_s = timeline->makespan_s - without_sends_s;
    after(timeline->exposed_send_s, sends_s - slack_s);
    after((sends_s > 0 ? sends_s : 0) + slack_s, timeline->exposed_send_s);
    after(timeline->exposed_sync_s, without_sends_s - free_s - slack_s);
    after(without_sends_s - free_s + slack_s, timeline->exposed_sync_s);
    sbp_arena_free(&arena);
}

/* The pipeline's works in the paper's order for many steps, one after the other: the mean step once
 * all filling is long over, of 120 steps, since short ones may follow long ones. */
enum { LONG_STEPS = 240, LONG_FROM = 118 };

struct line { /* one stage */
    double free_s, link_s[2];
    double there_s[2][LONG_STEPS * 5 * MOST_N]; /* when the input of forward, backward is there */
    double gradients_s[LONG_STEPS];
    int updates; /* done, those of step -2 and -1 included */
};

static void long_send(struct line *from, struct line *to, int way, int i, double send_s)
{
    const double begin_s = from->link_s[way] > from->free_s ? from->link_s[way] : from->free_s;
    from->link_s[way] = begin_s + send_s;
    to->there_s[way][i] = begin_s + send_s;
}

static void long_pass(struct line *line, int n, int m, int stage, int way, int i)
{
    struct line *own = &line[stage];
    const int step = own->updates - 2;
    if (way == 0 && i == (step + 1) * m + n - 1 - stage) {
        const double synced_s = (step < 0 ? 0 : own->gradients_s[step]) + end[stage].sync_s;
        own->free_s = (own->free_s > synced_s ? own->free_s : synced_s) + end[stage].optimizer_s;
        own->updates++;
    }
    if (own->there_s[way][i] > own->free_s)
        own->free_s = own->there_s[way][i];
    own->free_s += way == 0 ? cost[stage].forward_s
                            : cost[stage].backward_input_s + cost[stage].backward_weight_s;
    if (way == 1)
        own->gradients_s[i / m] = own->free_s;
    if (way == 0 && stage + 1 < n)
        long_send(own, own + 1, 0, i, cost[stage].send_forward_s);
    else if (way == 0)
        own->there_s[1][i] = own->free_s;
    else if (stage > 0)
        long_send(own, own - 1, 1, i, cost[stage].send_backward_s);
}

static double long_step_s(int n, int m)
{
    static struct line line[MOST_N];
    memset(line, 0, sizeof line);
    for (int stage = 0; stage < n; stage++)
        line[stage].updates = 1;
    for (int slot = 0; slot < 2 * (LONG_STEPS * m + n); slot++)
        for (int stage = 0; stage < n; stage++)
            for (int way = 0; way <= 1; way++) {
                const int twice = slot - (way == 0 ? stage : 2 * n - 1 - stage);
                if (twice >= 0 && twice % 2 == 0 && twice / 2 < LONG_STEPS * m)
                    long_pass(line, n, m, stage, way, twice / 2);
            }
    const int last = LONG_STEPS - 2;
    return (line[0].gradients_s[last] - line[0].gradients_s[LONG_FROM]) / (last - LONG_FROM);
}

static void check_long(const struct sbp_timeline_request *request,
                       const struct sbp_timeline *timeline)
{
    if (request->placement != SBP_PLACE_PIPELINE)
        return;
    const double step_s = long_step_s(request->stages, request->micro_batches);
    const double slack_s = 2e-3 * step_s;
    after(timeline->makespan_s, step_s - slack_s);
    after(step_s + slack_s, timeline->makespan_s);
}

static void test_random(void **state)
{
    (void)state;
    struct sbp_random random;
    sbp_random_seed(&random, SEED);
    printf("seed %llu\n", (unsigned long long)SEED);
    for (int round = 0; round < 200; round++) {
        struct sbp_arena arena = {0};
        const int n = 1 + (int)sbp_random_below(&random, 6);
        const enum sbp_placement placement = (enum sbp_placement)(round % SBP_PLACE_REPLICAS);
        const int more =
            placement == SBP_PLACE_PIPELINE ? (int)sbp_random_below(&random, 4 * (uint64_t)n) : 0;
        set_random(&random);
        const struct sbp_timeline_request request =
            request_of(round % 2 ? SBP_CDP_V1 : SBP_CDP_V2, n, n + more, placement);
        const struct sbp_timeline timeline = simulate(&request, &arena);
        struct played played = {.request = &request, .timeline = &timeline};
        gather(&played, &arena);
        for (int step = 0; step < timeline.steps; step++)
            for (int stage = 0; stage < n; stage++)
                for (int i = 0; i < n + more; i++)
                    check_pass(&played, step, stage, i);
        check_alone(&played, &arena);
        check_memory(&played);
        check_step(&played);
        check_exposed(&request, &timeline);
        check_long(&request, &timeline);
        for (int d = 0; d < timeline.devices; d++)
            assert_true(timeline.device[d].bubble_s > -1e-6 * timeline.makespan_s);
        sbp_arena_free(&arena);
    }
}

/* Stages that take very different times: some fall behind the first one only after a few steps. */
static void test_unlike_stages(void **state)
{
    (void)state;
    static const double scales[] = {0, 1, 1, 2, 10};
    struct sbp_random random;
    sbp_random_seed(&random, SEED + 1);
    printf("seed %llu\n", (unsigned long long)SEED + 1);
    for (int round = 0; round < 500; round++) {
        struct sbp_arena arena = {0};
        const int n = 1 + (int)sbp_random_below(&random, 6);
        const int more = (int)sbp_random_below(&random, 2 * (uint64_t)n);
        for (int j = 0; j < n; j++) {
            double *const times[] = {&cost[j].forward_s,         &cost[j].backward_input_s,
                                     &cost[j].backward_weight_s, &cost[j].send_forward_s,
                                     &cost[j].send_backward_s,   &end[j].sync_s,
                                     &end[j].optimizer_s};
            for (size_t k = 0; k < sizeof times / sizeof *times; k++)
                *times[k] = scales[sbp_random_below(&random, 5)] * sbp_random_unit(&random);
        }
        struct sbp_timeline_request request =
            request_of(round % 2 ? SBP_CDP_V1 : SBP_CDP_V2, n, n + more, SBP_PLACE_PIPELINE);
        request.record = false;
        const struct sbp_timeline timeline = simulate(&request, &arena);
        check_long(&request, &timeline);
        for (int d = 0; d < n; d++)
            after(timeline.makespan_s, timeline.device[d].compute_s);
        sbp_arena_free(&arena);
    }
}

/* --- what is refused --- */

static void refused(struct sbp_timeline_request request, const char *what)
{
    struct sbp_diag diag = {{0}};
    struct sbp_arena arena = {0};
    struct sbp_timeline timeline;
    assert_int_equal(sbp_timeline_simulate(&request, &arena, &timeline, &diag), SBP_E_INPUT);
    if (strstr(diag.text, what) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", diag.text, what);
    sbp_arena_free(&arena);
}

static void test_refusals(void **state)
{
    (void)state;
    set_equal(0);
    refused(request_of(SBP_CDP_V1, 4, 3, SBP_PLACE_PIPELINE), "at least one for each of the 4");
    refused(request_of(SBP_CDP_V2, 4, 8, SBP_PLACE_ZERO), "placed as zero needs as many as the 4");
    refused(request_of(SBP_GPIPE, 4, 4, SBP_PLACE_DATA), "gpipe runs in a pipeline only");
    end[1].sync_overlap = 0.5;
    refused(request_of(SBP_CDP_V1, 4, 4, SBP_PLACE_PIPELINE), "end[1]: cdp-v1 has no end");
    /* One device has all stages: what no stage holds by itself. */
    static struct sbp_stage_cost many[64];
    for (int j = 0; j < 64; j++)
        many[j] = (struct sbp_stage_cost){.forward_s = 1, .kept_bytes = INT64_C(1) << 52};
    struct sbp_timeline_request request = request_of(SBP_CDP_V2, 64, 64, SBP_PLACE_SINGLE);
    request.stage = many;
    request.end = NULL;
    refused(request, "stage[31].kept_bytes: 64 micro-batches of the stages up to this one hold");
    struct sbp_arena arena = {0};
    struct sbp_cdp_count count;
    assert_int_equal(sbp_cdp_count(0, SBP_PLACE_DATA, true, SBP_CDP_RULE_V1, &cdp_count_sizes,
                                   &arena, &count, NULL),
                     SBP_E_INPUT);
    assert_int_equal(sbp_cdp_count(4, SBP_PLACE_PIPELINE, false, SBP_CDP_RULE_V1, &cdp_count_sizes,
                                   &arena, &count, NULL),
                     SBP_E_INPUT);
    sbp_arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal),
        cmocka_unit_test(test_works),
        cmocka_unit_test(test_versions_of_stages),
        cmocka_unit_test(test_update),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_unlike_stages),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("cdp", tests, NULL, NULL);
}
