/* Cyclic data parallelism on replicas (replicas.h): where sums of gradients go, and how long steps
 * take. */
#include <stdio.h>

#include "base/math/random.h"
#include "costmodel/timeline/replicas.h"
#include "costmodel/timeline/works.h"
#include "tests/support/played.h"

#define SEED UINT64_C(5501)

enum { MOST_N = 9 };

static struct sbp_stage_cost cost[MOST_N];
static struct sbp_stage_end end[MOST_N];

static struct sbp_timeline_request request_of(enum sbp_schedule schedule, int n)
{
    return cyclic_request(schedule, n, n, SBP_PLACE_REPLICAS, cost, end);
}

/* --- routes --- */

/* Whether all messages of a stage and the one that they come from or go to say the same. */
static void check_peer(enum sbp_schedule schedule, int n, int chunk, int stage, bool late)
{
    const struct sbp_sum_route take = sbp_replicas_take(schedule, n, chunk, stage, late);
    int senders = 0;
    if (take.peer < 0)
        return;
    for (int i = 0; i < 2; i++) {
        const struct sbp_sum_route pass = sbp_replicas_pass(schedule, n, chunk, take.peer, i == 1);
        senders += pass.peer == stage && pass.finished == take.finished;
    }
    assert_int_equal(take.finished, late);
    assert_int_equal(senders, 1);
}

/* The sum so far goes through all micro-batches in order, and the finished one comes to each stage
 * but that which finished it. */
static void check_chunk(enum sbp_schedule schedule, int n, int chunk)
{
    int passed[2] = {0, 0};
    for (int stage = 0; stage < n; stage++) {
        const int own = sbp_replicas_micro_batch(n, stage);
        const struct sbp_sum_route so_far = sbp_replicas_take(schedule, n, chunk, stage, false);
        const bool finishes = sbp_replicas_take(schedule, n, chunk, stage, true).peer < 0;
        assert_int_equal(so_far.peer, own == 0 ? -1 : sbp_replicas_micro_batch(n, own - 1));
        assert_int_equal(finishes, own == n - 1);
        for (int late = 0; late < 2; late++) {
            check_peer(schedule, n, chunk, stage, late == 1);
            passed[late] += sbp_replicas_pass(schedule, n, chunk, stage, late == 1).peer >= 0;
        }
        /* u_ij of the paper, section 3.2: fresh where j >= N - i + 1. */
        assert_int_equal(sbp_replicas_update_first(schedule, n, chunk, stage),
                         schedule == SBP_CDP_V2 && chunk + 1 >= n - (own + 1) + 1);
    }
    assert_int_equal(passed[0], n);
    assert_int_equal(passed[1], n - 2);
}

static void test_routes(void **state)
{
    (void)state;
    for (int n = 2; n <= MOST_N; n++)
        for (int chunk = 0; chunk < n; chunk++) {
            check_chunk(SBP_CDP_V1, n, chunk);
            check_chunk(SBP_CDP_V2, n, chunk);
        }
}

/* --- works --- */

/* All passes of a step, and each chunk's update between the last pass that reads the older weights
 * and the first that reads the newer ones. */
static void check_works(enum sbp_schedule schedule, int n, int stage)
{
    struct sbp_arena arena = {0};
    struct sbp_diag diag = {{0}};
    struct sbp_timeline_work *work;
    int64_t count;
    int passes[MOST_N] = {0}, updates[MOST_N] = {0};
    const struct sbp_timeline_request request = request_of(schedule, n);
    assert_int_equal(sbp_timeline_works(&request, stage, &arena, &work, &count, &diag), SBP_OK);
    assert_int_equal(count, 3 * n);
    for (int64_t i = 0; i < count; i++) {
        const int chunk = work[i].stage;
        if (work[i].kind == SBP_WORK_UPDATE) {
            assert_int_equal(passes[chunk],
                             sbp_replicas_update_first(schedule, n, chunk, stage) ? 0 : 2);
            updates[chunk]++;
            continue;
        }
        assert_int_equal(work[i].micro_batch, n + sbp_replicas_micro_batch(n, stage));
        assert_int_equal(work[i].kind, passes[chunk] == 0 ? SBP_WORK_FORWARD : SBP_WORK_BACKWARD);
        passes[chunk]++;
    }
    for (int chunk = 0; chunk < n; chunk++)
        assert_true(passes[chunk] == 2 && updates[chunk] == 1);
    sbp_arena_free(&arena);
}

static void test_works(void **state)
{
    (void)state;
    for (int n = 2; n <= MOST_N; n++)
        for (int stage = 0; stage < n; stage++) {
            check_works(SBP_CDP_V1, n, stage);
            check_works(SBP_CDP_V2, n, stage);
        }
}

/* --- time --- */

static void set_equal(double backward_s, double update_s, double sum_s)
{
    for (int j = 0; j < MOST_N; j++) {
        cost[j] = (struct sbp_stage_cost){.forward_s = 1,
                                          .backward_input_s = backward_s,
                                          .send_gradients_s = sum_s,
                                          .static_bytes = 10,
                                          .kept_bytes = 1};
        end[j] = (struct sbp_stage_end){.optimizer_s = update_s};
    }
}

/* A replica never waits where messages take no longer than half a forward pass: a step is its
 * passes and updates. Longer ones make a round, of chunk 1 from the last replica to the one before
 * it, which goes on to that chunk, and back. */
static void test_equal(void **state)
{
    (void)state;
    for (int n = 2; n <= MOST_N; n++)
        for (int rule = 0; rule < 2; rule++)
            for (int slow = 0; slow < 3; slow++) {
                struct sbp_arena arena = {0};
                const double sum_s = 0.5 * slow, step_s = n * 3.25;
                set_equal(2, 0.25, sum_s);
                const struct sbp_timeline_request request =
                    request_of(rule == 0 ? SBP_CDP_V1 : SBP_CDP_V2, n);
                const struct sbp_timeline timeline = simulate(&request, &arena);
                const double round_s = (n - 1) * 3.25 + 2 + 2 * sum_s;
                if (slow < 2) {
                    near(timeline.makespan_s, step_s);
                    near(timeline.exposed_s, 0);
                } else {
                    near(timeline.makespan_s, rule == 1 && round_s > step_s ? round_s : step_s);
                }
                assert_int_equal(timeline.devices, n);
                near(timeline.stale_share, rule == 0 ? 1 : (n - 1) / (2.0 * n));
                for (int d = 0; d < n; d++) {
                    assert_int_equal(timeline.device[d].in_flight, n);
                    assert_int_equal(timeline.device[d].peak_bytes, 11 * n);
                    near(timeline.device[d].compute_s, step_s);
                }
                sbp_arena_free(&arena);
            }
}

/* What of messages takes longer than what they have time for shows, as sums of gradients. */
static void test_slow_messages(void **state)
{
    (void)state;
    struct sbp_arena arena = {0};
    const double sum_s = 20;
    set_equal(2, 0.25, sum_s);
    const struct sbp_timeline_request request = request_of(SBP_CDP_V2, 2);
    const struct sbp_timeline timeline = simulate(&request, &arena);
    assert_true(timeline.makespan_s > 2 * 3.25);
    near(timeline.exposed_sync_s, timeline.makespan_s - 2 * 3.25);
    near(timeline.exposed_send_s, 0);
    sbp_arena_free(&arena);
}

/* --- random chunks --- */

struct pass {
    double begin_s, end_s;
};

struct played {
    const struct sbp_timeline_request *request;
    int n, steps;
    struct pass *pass; /* (kinds, steps + 1, n stages, n chunks); updates from step -1 on */
};

static struct pass *pass_of(const struct played *played, enum sbp_work_kind kind, int step,
                            int stage, int chunk)
{
    const int n = played->n;
    return &played->pass[(((int)kind * (played->steps + 1) + step + 1) * n + stage) * n + chunk];
}

static void gather(const struct sbp_timeline *timeline, struct played *played)
{
    for (int64_t k = 0; k < timeline->interval_count; k++) {
        const struct sbp_timeline_interval *at = &timeline->interval[k];
        const enum sbp_work_kind kind = at->kind == SBP_INTERVAL_FORWARD     ? SBP_WORK_FORWARD
                                        : at->kind == SBP_INTERVAL_BACKWARD  ? SBP_WORK_BACKWARD
                                        : at->kind == SBP_INTERVAL_OPTIMIZER ? SBP_WORK_UPDATE
                                                                             : SBP_WORK_KINDS;
        if (kind == SBP_WORK_KINDS)
            continue;
        struct pass *pass = pass_of(played, kind, at->step, at->device, at->stage);
        assert_true(pass->end_s == 0);
        *pass = (struct pass){at->begin_s, at->end_s};
        if (kind != SBP_WORK_UPDATE)
            assert_int_equal(at->micro_batch, sbp_replicas_micro_batch(played->n, at->device));
    }
}

/* Sums are complete before they are used: each backward pass begins after that of the micro-batch
 * before and a message, and an update after that of the last micro-batch, a message (unless it is
 * the same stage) and the stage's own sum. */
static void check_sums(const struct played *played, int step, int stage, int chunk)
{
    const int n = played->n, own = sbp_replicas_micro_batch(n, stage);
    const double sum_s = cost[chunk].send_gradients_s;
    const struct pass *back = pass_of(played, SBP_WORK_BACKWARD, step, stage, chunk);
    const struct pass *update = pass_of(played, SBP_WORK_UPDATE, step, stage, chunk);
    const int finisher = sbp_replicas_micro_batch(n, n - 1);
    if (own > 0)
        after(back->begin_s,
              pass_of(played, SBP_WORK_BACKWARD, step, stage + 1, chunk)->end_s + sum_s);
    after(update->begin_s, pass_of(played, SBP_WORK_BACKWARD, step, finisher, chunk)->end_s +
                               (own < n - 1 ? sum_s : 0) + end[chunk].sync_s);
}

/* Versions: under cdp-v1 both passes read what the update of two steps before made, under cdp-v2
 * those that are fresh that of the step before (section 3.2), and none later. */
static void check_versions(const struct played *played, int step, int stage, int chunk)
{
    const bool v2 = played->request->schedule == SBP_CDP_V2;
    const int own = sbp_replicas_micro_batch(played->n, stage);
    const bool fresh = v2 && chunk + 1 >= played->n - own;
    const struct pass *forward = pass_of(played, SBP_WORK_FORWARD, step, stage, chunk);
    const struct pass *back = pass_of(played, SBP_WORK_BACKWARD, step, stage, chunk);
    const struct pass *newest = pass_of(played, SBP_WORK_UPDATE, step - 1, stage, chunk);
    after(back->begin_s, forward->end_s);
    if (fresh)
        after(forward->begin_s, newest->end_s);
    else
        after(newest->begin_s, back->end_s);
    if (fresh && step + 1 < played->steps)
        after(pass_of(played, SBP_WORK_UPDATE, step, stage, chunk)->begin_s, back->end_s);
    if (!fresh && step > 0)
        after(forward->begin_s, pass_of(played, SBP_WORK_UPDATE, step - 2, stage, chunk)->end_s);
}

static void set_random(struct sbp_random *random)
{
    for (int j = 0; j < MOST_N; j++) {
        cost[j] = (struct sbp_stage_cost){.forward_s = 0.1 + sbp_random_unit(random),
                                          .backward_input_s = 0.1 + sbp_random_unit(random),
                                          .backward_weight_s = sbp_random_unit(random),
                                          .send_gradients_s = 3 * sbp_random_unit(random)};
        end[j] = (struct sbp_stage_end){.optimizer_s = 0.1 + sbp_random_unit(random),
                                        .sync_s = sbp_random_unit(random)};
    }
}

static void test_random(void **state)
{
    (void)state;
    struct sbp_random random;
    sbp_random_seed(&random, SEED);
    printf("seed %llu\n", (unsigned long long)SEED);
    for (int round = 0; round < 200; round++) {
        struct sbp_arena arena = {0};
        const int n = 2 + (int)sbp_random_below(&random, MOST_N - 1);
        set_random(&random);
        const struct sbp_timeline_request request =
            request_of(round % 2 ? SBP_CDP_V1 : SBP_CDP_V2, n);
        const struct sbp_timeline timeline = simulate(&request, &arena);
        struct played played = {.request = &request, .n = n, .steps = timeline.steps};
        played.pass = SBP_NEW(&arena, struct pass, SBP_WORK_KINDS * (played.steps + 1) * n * n);
        assert_non_null(played.pass);
        gather(&timeline, &played);
        double work_s = 0;
        for (int chunk = 0; chunk < n; chunk++)
            work_s += cost[chunk].forward_s + cost[chunk].backward_input_s +
                      cost[chunk].backward_weight_s + end[chunk].optimizer_s;
        after(timeline.makespan_s, work_s);
        after(timeline.makespan_s, work_s + timeline.exposed_s);
        for (int step = 0; step < played.steps; step++)
            for (int stage = 0; stage < n; stage++)
                for (int chunk = 0; chunk < n; chunk++) {
                    check_sums(&played, step, stage, chunk);
                    check_versions(&played, step, stage, chunk);
                }
        sbp_arena_free(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_routes), cmocka_unit_test(test_works),
        cmocka_unit_test(test_equal),  cmocka_unit_test(test_slow_messages),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
