/* Cyclic data parallelism on a pyramid of groups (pyramid.h): who does what when, where sums of
 * gradients go, and how long steps take. The paper's time steps and its rule u_ij (section 3.2) are
 * written down here once more, with stages and micro-batches from 1. */
#include <stdio.h>

#include "base/math/random.h"
#include "costmodel/timeline/pyramid.h"
#include "costmodel/timeline/works.h"
#include "tests/support/played.h"

#define SEED UINT64_C(5502)

enum { MOST_N = 7, STEPS = 9 };

static struct sbp_stage_cost cost[MOST_N];
static struct sbp_stage_end end[MOST_N];

static struct sbp_timeline_request request_of(enum sbp_schedule schedule, int n)
{
    return cyclic_request(schedule, n, n, SBP_PLACE_GROUPS, cost, end);
}

/* u_ij: theta_t, else theta_{t-1}. */
static bool reads_newest(enum sbp_schedule schedule, int n, int i, int j)
{
    return schedule == SBP_CDP_V2 && j >= n - i + 1;
}

static int64_t forward_slot(int64_t micro_batch, int stage)
{
    return 2 * micro_batch + stage;
}

static int64_t backward_slot(int n, int64_t micro_batch, int stage)
{
    return 2 * micro_batch + 2 * n - (stage + 1);
}

/* --- groups --- */

/* A group has one micro-batch at a time, and takes the next one right behind its backward pass:
 * N - j + 1 groups of stage j are as few as can be. Which of a step it does, repeats as it is said,
 * and no earlier. */
static void check_stage(int n, int stage)
{
    const int first = sbp_pyramid_first(n, stage), size = sbp_pyramid_size(n, stage);
    const int period = sbp_pyramid_period(n, stage);
    assert_int_equal(size, n - (stage + 1) + 1);
    for (int64_t m = 0; m < (int64_t)STEPS * n; m++) {
        const int group = sbp_pyramid_group(n, stage, m);
        assert_true(group >= first && group < first + size);
        assert_int_equal(sbp_pyramid_stage(n, group), stage);
        int64_t next = m + 1;
        while (sbp_pyramid_group(n, stage, next) != group)
            next++;
        assert_int_equal(forward_slot(next, stage), backward_slot(n, m, stage) + 1);
        assert_int_equal(sbp_pyramid_group(n, stage, m + (int64_t)period * n), group);
    }
    for (int shorter = 1; shorter < period; shorter++)
        assert_int_not_equal(sbp_pyramid_group(n, stage, (int64_t)shorter * n), first);
}

static void test_groups(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST_N; n++) {
        for (int stage = 0; stage < n; stage++)
            check_stage(n, stage);
        assert_int_equal(sbp_pyramid_groups(n), sbp_pyramid_first(n, n));
        assert_int_equal(2 * sbp_pyramid_groups(n), n * (n + 1));
    }
}

/* --- routes --- */

/* The time step before which a group has a step's update. */
static int64_t update_slot(enum sbp_schedule schedule, int n, int stage, int group, int64_t step)
{
    for (int64_t m = step * n; m < (step + 4) * n; m++) {
        int64_t made;
        if (sbp_pyramid_group(n, stage, m) == group &&
            sbp_pyramid_updates(schedule, n, stage, m, &made) && made == step)
            return forward_slot(m, stage);
    }
    fail_msg("group %d never makes the update of step %d", group, (int)step);
    return -1;
}

/* The finished sum of a step comes to each group of its stage but that which finished it, from one
 * that has it a time step earlier at the least. */
static void check_finished(enum sbp_schedule schedule, int n, int stage, int64_t step)
{
    const int first = sbp_pyramid_first(n, stage), size = sbp_pyramid_size(n, stage);
    const int finisher = sbp_pyramid_group(n, stage, step * n + n - 1);
    int at = finisher, taken = 0;
    int64_t has = backward_slot(n, step * n + n - 1, stage) + 1;
    struct sbp_sum_route pass = sbp_pyramid_pass(schedule, n, finisher, step, n - 1, false);
    assert_int_equal(sbp_pyramid_take(schedule, n, finisher, step, n - 1, true).peer, -1);
    assert_true(update_slot(schedule, n, stage, finisher, step) >= has);
    while (pass.peer >= 0) {
        const struct sbp_sum_route take =
            sbp_pyramid_take(schedule, n, pass.peer, step, n - 1, true);
        assert_true(pass.finished && take.finished);
        assert_int_equal(take.peer, at);
        assert_true(pass.peer >= first && pass.peer < first + size && pass.peer != finisher);
        at = pass.peer;
        assert_true(update_slot(schedule, n, stage, at, step) > has);
        has = update_slot(schedule, n, stage, at, step);
        pass = sbp_pyramid_pass(schedule, n, at, step, n - 1, true);
        taken++;
    }
    assert_int_equal(taken, size - 1);
}

/* The sum so far goes through all micro-batches in order. */
static void check_so_far(enum sbp_schedule schedule, int n, int stage, int64_t step)
{
    for (int i = 0; i < n && sbp_pyramid_size(n, stage) > 1; i++) {
        const int own = sbp_pyramid_group(n, stage, step * n + i);
        const struct sbp_sum_route take = sbp_pyramid_take(schedule, n, own, step, i, false);
        const struct sbp_sum_route pass = sbp_pyramid_pass(schedule, n, own, step, i, false);
        assert_false(take.finished);
        assert_int_equal(take.peer, i == 0 ? -1 : sbp_pyramid_group(n, stage, step * n + i - 1));
        assert_int_equal(pass.finished, i == n - 1);
        if (i < n - 1)
            assert_int_equal(pass.peer, sbp_pyramid_group(n, stage, step * n + i + 1));
    }
}

static void test_routes(void **state)
{
    (void)state;
    for (int n = 2; n <= MOST_N; n++)
        for (int stage = 0; stage < n; stage++)
            for (int64_t step = 0; step < STEPS; step++)
                for (int rule = SBP_CDP_V1; rule <= SBP_CDP_V2; rule++) {
                    check_so_far((enum sbp_schedule)rule, n, stage, step);
                    check_finished((enum sbp_schedule)rule, n, stage, step);
                }
}

/* --- works --- */

/* Plays a group's list again and again: both passes of a micro-batch find the weights after as many
 * updates as u_ij says, and each step has one update. */
static void check_works(enum sbp_schedule schedule, int n, int group)
{
    struct sbp_arena arena = {0};
    struct sbp_diag diag = {{0}};
    struct sbp_timeline_work *work;
    int64_t count, done = 0;
    const int stage = sbp_pyramid_stage(n, group), period = sbp_pyramid_period(n, stage);
    const struct sbp_timeline_request request = request_of(schedule, n);
    assert_int_equal(sbp_timeline_works(&request, group, &arena, &work, &count, &diag), SBP_OK);
    for (int times = 0; times < 3; times++)
        for (int64_t k = 0; k < count; k++) {
            const int step = work[k].micro_batch / n + times * period;
            assert_int_equal(work[k].stage, stage);
            if (work[k].kind == SBP_WORK_UPDATE) {
                assert_int_equal(work[k].micro_batch + times * period, done++);
                continue;
            }
            const int i = work[k].micro_batch % n + 1;
            assert_int_equal(sbp_pyramid_group(n, stage, work[k].micro_batch), group);
            assert_int_equal(work[k].kind, work[k - (k > 0)].kind == SBP_WORK_FORWARD && k > 0
                                               ? SBP_WORK_BACKWARD
                                               : SBP_WORK_FORWARD);
            assert_int_equal(done, step - (reads_newest(schedule, n, i, stage + 1) ? 0 : 1));
        }
    assert_int_equal(done, 3 * period);
    sbp_arena_free(&arena);
}

static void test_works(void **state)
{
    (void)state;
    for (int n = 2; n <= MOST_N; n++)
        for (int group = 0; group < sbp_pyramid_groups(n); group++) {
            check_works(SBP_CDP_V1, n, group);
            check_works(SBP_CDP_V2, n, group);
        }
}

/* --- time --- */

/* How often a chain of waiting goes through an update. A group that takes a micro-batch back goes
 * on with the one N - j behind it; so a chain goes in such leaps through a step, whichever stages
 * they are at, and takes as long. Under cdp-v1 one of them leaves the step, with an update; under
 * cdp-v2 one at stage j has an update where it begins at the first N - j micro-batches of a step
 * (or at the last one before), as leaps of 1, 2, 4, ... micro-batches do. */
static int updates_in_a_row(enum sbp_schedule schedule, int n)
{
    int updates = 0;
    for (int leap = 1, at = 0; schedule == SBP_CDP_V2 && at + leap <= n; at += leap, leap *= 2)
        updates++;
    return updates > 0 ? updates : 1;
}

/* Where stages are alike, a step is as long as all passes of a micro-batch and these updates:
 * messages of the length of half a forward pass hide. */
static void test_equal(void **state)
{
    (void)state;
    for (int n = 2; n <= MOST_N; n++)
        for (int rule = SBP_CDP_V1; rule <= SBP_CDP_V2; rule++) {
            struct sbp_arena arena = {0};
            for (int j = 0; j < n; j++) {
                cost[j] = (struct sbp_stage_cost){.forward_s = 1,
                                                  .backward_input_s = 2,
                                                  .send_gradients_s = 0.5,
                                                  .static_bytes = 10,
                                                  .kept_bytes = 1};
                end[j] = (struct sbp_stage_end){.optimizer_s = 0.25};
            }
            const struct sbp_timeline_request request = request_of((enum sbp_schedule)rule, n);
            const struct sbp_timeline timeline = simulate(&request, &arena);
            near(timeline.makespan_s, 3.0 * n + 0.25 * updates_in_a_row(request.schedule, n));
            near(timeline.exposed_s, 0);
            near(timeline.stale_share, rule == SBP_CDP_V1 ? 1 : (n - 1) / (2.0 * n));
            assert_int_equal(timeline.devices, sbp_pyramid_groups(n));
            for (int d = 0; d < timeline.devices; d++) {
                assert_int_equal(timeline.device[d].in_flight, 1);
                assert_int_equal(timeline.device[d].peak_bytes, 11);
                near(timeline.device[d].compute_s, 3.0 * n / (n - sbp_pyramid_stage(n, d)) + 0.25);
            }
            sbp_arena_free(&arena);
        }
}

/* --- random stages --- */

struct pass {
    double begin_s, end_s;
};

struct played {
    enum sbp_schedule schedule;
    int n, steps;
    struct pass *pass;   /* (2 kinds, n stages, micro-batches of all steps) */
    struct pass *update; /* (groups, steps + 2) from step -2 on */
};

static struct pass *pass_of(const struct played *p, bool back, int stage, int micro_batch)
{
    return &p->pass[((int64_t)(back ? p->n : 0) + stage) * p->n * p->steps + micro_batch];
}

static struct pass *update_of(const struct played *p, int group, int step)
{
    return &p->update[(int64_t)group * (p->steps + 2) + step + 2];
}

static void gather(const struct sbp_timeline *timeline, struct played *p)
{
    for (int64_t k = 0; k < timeline->interval_count; k++) {
        const struct sbp_timeline_interval *at = &timeline->interval[k];
        const bool updates = at->kind == SBP_INTERVAL_OPTIMIZER;
        const bool back = at->kind == SBP_INTERVAL_BACKWARD;
        if (!updates && !back && at->kind != SBP_INTERVAL_FORWARD)
            continue;
        const int micro_batch = at->step * p->n + at->micro_batch;
        struct pass *pass =
            updates ? update_of(p, at->device, at->step) : pass_of(p, back, at->stage, micro_batch);
        assert_true(pass->end_s == 0);
        *pass = (struct pass){at->begin_s, at->end_s};
        assert_int_equal(sbp_pyramid_stage(p->n, at->device), at->stage);
        if (!updates)
            assert_int_equal(at->device, sbp_pyramid_group(p->n, at->stage, micro_batch));
    }
}

/* Messages of activations and gradients, sums, versions, and one micro-batch at a time. */
static void check_pass(const struct played *p, int stage, int m)
{
    const int n = p->n, size = n - stage, step = m / n, i = m % n + 1;
    const int group = sbp_pyramid_group(n, stage, m);
    const struct pass *forward = pass_of(p, false, stage, m), *back = pass_of(p, true, stage, m);
    after(back->begin_s, forward->end_s);
    if (stage > 0)
        after(forward->begin_s,
              pass_of(p, false, stage - 1, m)->end_s + cost[stage - 1].send_forward_s);
    if (stage + 1 < n)
        after(back->begin_s,
              pass_of(p, true, stage + 1, m)->end_s + cost[stage + 1].send_backward_s);
    if (i > 1)
        after(back->begin_s, pass_of(p, true, stage, m - 1)->end_s +
                                 (size > 1 ? cost[stage].send_gradients_s : 0));
    if (m >= size)
        after(forward->begin_s, pass_of(p, true, stage, m - size)->end_s);
    if (reads_newest(p->schedule, n, i, stage + 1))
        after(forward->begin_s, update_of(p, group, step - 1)->end_s);
    else
        after(update_of(p, group, step - 1)->begin_s, back->end_s);
    if (step >= 2)
        after(forward->begin_s, update_of(p, group, step - 2)->end_s);
}

static void check_update(const struct played *p, int group, int step)
{
    const int stage = sbp_pyramid_stage(p->n, group), last = step * p->n + p->n - 1;
    const bool finishes = sbp_pyramid_group(p->n, stage, last) == group;
    after(update_of(p, group, step)->begin_s, pass_of(p, true, stage, last)->end_s +
                                                  (finishes ? 0 : cost[stage].send_gradients_s) +
                                                  end[stage].sync_s);
}

static void set_random(struct sbp_random *random)
{
    for (int j = 0; j < MOST_N; j++) {
        cost[j] = (struct sbp_stage_cost){.forward_s = 0.1 + sbp_random_unit(random),
                                          .backward_input_s = 0.1 + sbp_random_unit(random),
                                          .backward_weight_s = sbp_random_unit(random),
                                          .send_forward_s = sbp_random_unit(random) / 4,
                                          .send_backward_s = sbp_random_unit(random) / 4,
                                          .send_gradients_s = 2 * sbp_random_unit(random)};
        end[j] = (struct sbp_stage_end){.optimizer_s = 0.1 + sbp_random_unit(random),
                                        .sync_s = sbp_random_unit(random)};
    }
}

/* A step is at least the way of a micro-batch and the first stage's update, and what the last
 * stage's only group does. */
static double least_s(int n)
{
    double way_s = end[0].optimizer_s + end[0].sync_s, last_s = 0;
    for (int j = 0; j < n; j++) {
        last_s = cost[j].forward_s + cost[j].backward_input_s + cost[j].backward_weight_s;
        way_s += last_s + (j + 1 < n ? cost[j].send_forward_s : 0) +
                 (j > 0 ? cost[j].send_backward_s : 0);
    }
    last_s = n * last_s + end[n - 1].optimizer_s + end[n - 1].sync_s;
    return way_s > last_s ? way_s : last_s;
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
        const int groups = (int)sbp_pyramid_groups(n);
        set_random(&random);
        const struct sbp_timeline_request request =
            request_of(round % 2 ? SBP_CDP_V1 : SBP_CDP_V2, n);
        const struct sbp_timeline timeline = simulate(&request, &arena);
        struct played p = {.schedule = request.schedule, .n = n, .steps = timeline.steps};
        p.pass = SBP_NEW(&arena, struct pass, 2 * (int64_t)n * n * p.steps);
        p.update = SBP_NEW(&arena, struct pass, (int64_t)groups * (p.steps + 2));
        assert_true(p.pass != NULL && p.update != NULL);
        gather(&timeline, &p);
        after(timeline.makespan_s, least_s(n));
        for (int m = 0; m < n * p.steps; m++)
            for (int stage = 0; stage < n; stage++)
                check_pass(&p, stage, m);
        for (int group = 0; group < groups; group++)
            for (int step = 0; step < p.steps; step++)
                check_update(&p, group, step);
        sbp_arena_free(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups), cmocka_unit_test(test_routes), cmocka_unit_test(test_works),
        cmocka_unit_test(test_equal),  cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
