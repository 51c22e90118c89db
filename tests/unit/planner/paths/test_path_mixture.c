/* Mixtures of paths: the game behind them is near its value, their bounds are bounds, and they
 * close gaps that no path closes by itself. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include <cjson/cJSON.h>

#include "planner/plan/plan.h"
#include "planner/paths/path_mixture.h"
#include "planner/inner/cut_solve.h"
#include "planner/paths/path_weights.h"
#include "tests/support/solve_plan.h"
#include "tests/support/unit.h"

static void open_plan(const struct sbp_parallel *how, double alpha_s, struct sbp_plan *plan)
{
    static const char *const model =
        "{\"name\": \"g\", \"architecture\": \"gpt\", \"layers\": 2, \"hidden\": 64, \"heads\": 4, "
        "\"sequence\": 32, \"vocab\": 512, \"global_batch\": 8}";
    char cluster[1024];
    struct sbp_diag diag = {{0}};
    snprintf(cluster, sizeof cluster,
             "{\"name\": \"c\", \"levels\": [{\"name\": \"o\", \"size\": 8, \"alpha_s\": %g, "
             "\"beta_s_per_byte\": 1e-10}, {\"name\": \"i\", \"size\": 8, \"alpha_s\": %g, "
             "\"beta_s_per_byte\": 1e-11}], \"device\": {\"memory_bytes\": 1e12, \"flops\": "
             "{\"fp32\": 1e12}, \"memory_bytes_per_s\": 1e11}}",
             alpha_s, alpha_s / 4);
    if (sbp_plan_begin(cJSON_Parse(model), "model", cJSON_Parse(cluster), "cluster", plan, &diag) !=
        SBP_OK)
        fail_msg("%s", diag.text);
    struct sbp_parallel parallel = plan->cut.parallel;
    parallel.pipeline = how->pipeline;
    parallel.micro_batch = how->micro_batch;
    parallel.schedule = how->schedule;
    if (sbp_plan_cut(plan, &parallel, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
}

/* Returns the cost of the cheapest known plan along a path. */
static double least_s(const struct sbp_mixture *mixture, const struct sbp_path *path)
{
    double least = INFINITY;
    for (int x = 0; x < mixture->plan_count; x++)
        least = fmin(least, sbp_path_length_s(path, &mixture->times[x]));
    return least;
}

/* A mixture of some of the known paths: as often at an end as one path, and of no more messages and
 * works than the longest of them; nearly as long as the longest path for the cheapest plan. */
static void check_mixture(const struct sbp_mixture *mixture)
{
    const struct sbp_path *const path = &mixture->path;
    double ends = 0;
    for (int stage = 0; stage < path->stages; stage++)
        ends += path->end[stage];
    assert_true(fabs(ends - 1) < 1e-9);
    for (int i = 0; i < 5 * path->pieces; i++) {
        double least = INFINITY, most = 0;
        for (int p = 0; p < mixture->path_count; p++) {
            least = fmin(least, mixture->known[p].all[i]);
            most = fmax(most, mixture->known[p].all[i]);
        }
        assert_true(path->all[i] >= least - 1e-9 * most && path->all[i] <= most * (1 + 1e-9));
    }
    if (mixture->path_count <= 3)
        return; /* it may be the newest path alone */
    for (int p = 0; p < mixture->path_count; p++)
        assert_true(least_s(mixture, path) >= least_s(mixture, &mixture->known[p]) * (1 - 2e-2));
}

struct gaps {
    double best_s, alone_s, mixed_s; /* the best plan, the bounds of the first path and of all */
    int rounds;
};

static struct gaps measure(struct sbp_plan *plan)
{
    struct gaps gaps = {INFINITY, 0, 0, 0};
    struct sbp_diag diag = {{0}};
    struct sbp_mixture mixture;
    bool more = true;
    assert_int_equal(sbp_mixture_begin(&plan->cut, &plan->arena, &mixture, &diag), SBP_OK);
    for (; more && gaps.rounds < SBP_PATHS_ROUNDS; gaps.rounds++) {
        struct sbp_path_weights weights;
        struct sbp_outcome found;
        const struct sbp_solve_request request = {
            .asked.space = SBP_SPACE_FULL, .asked.quick = true, .weights = &weights};
        assert_int_equal(
            sbp_path_weights_make(&plan->cut, &mixture.path, &plan->arena, &weights, &diag),
            SBP_OK);
        if (solve_as(plan, &request, &found, &diag) != SBP_OK)
            fail_msg("%s", diag.text);
        assert_true(found.strategy_s == found.objective_s);
        gaps.best_s = fmin(gaps.best_s, found.objective_s);
        gaps.mixed_s = fmax(gaps.mixed_s, found.lower_bound_s);
        if (gaps.rounds == 0)
            gaps.alone_s = found.lower_bound_s;
        if (gaps.rounds + 1 < SBP_PATHS_ROUNDS)
            assert_int_equal(sbp_mixture_add(&mixture, &plan->strategy, &more, &diag), SBP_OK);
        check_mixture(&mixture);
    }
    return gaps;
}

static void test_gaps(void **state)
{
    (void)state;
    static const enum sbp_schedule schedules[] = {SBP_GPIPE, SBP_ONE_F_ONE_B, SBP_ZERO_BUBBLE,
                                                  SBP_MESSAGE_DRIVEN};
    double closed = 0;
    for (int s = 0; s < 4; s++)
        for (int64_t micro_batch = 2; micro_batch <= 8; micro_batch *= 2) {
            struct sbp_plan plan;
            const struct sbp_parallel how = {
                .pipeline = 8, .micro_batch = micro_batch, .schedule = schedules[s]};
            open_plan(&how, 1e-5, &plan);
            const struct gaps gaps = measure(&plan);
            print_message("%-14s micro-batch %2" PRId64 ": %2d rounds, plan %.4g us, first bound "
                          "%.4g us, all %.4g us\n",
                          sbp_timeline_schedule_name(how.schedule), micro_batch, gaps.rounds,
                          1e6 * gaps.best_s, 1e6 * gaps.alone_s, 1e6 * gaps.mixed_s);
            assert_true(gaps.mixed_s <= gaps.best_s * (1 + 1e-9));
            assert_true(gaps.mixed_s >= gaps.alone_s);
            assert_true(gaps.best_s < 1.06 * gaps.mixed_s);
            closed = fmax(closed, gaps.mixed_s / gaps.alone_s - 1);
            sbp_plan_free(&plan);
        }
    assert_true(closed > 0.2);
}

/* A mixture of the paths of a plan, and the best strategy along none of them. */
static void begin_mixture(struct sbp_plan *plan, struct sbp_mixture *mixture)
{
    struct sbp_outcome found;
    struct sbp_diag diag = {{0}};
    const struct sbp_parallel how = {.pipeline = 8, .micro_batch = 2, .schedule = SBP_ZERO_BUBBLE};
    const struct sbp_solve_request request = {.asked.space = SBP_SPACE_FULL, .asked.quick = true};
    open_plan(&how, 1e-5, plan);
    if (solve_as(plan, &request, &found, &diag) != SBP_OK ||
        sbp_mixture_begin(&plan->cut, &plan->arena, mixture, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
}

/* Whether there is more to look along once the plan's strategy is known. */
static bool add_strategy(struct sbp_mixture *mixture, const struct sbp_plan *plan)
{
    struct sbp_diag diag = {{0}};
    bool more;
    if (sbp_mixture_add(mixture, &plan->strategy, &more, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    return more;
}

/* Whether there is more once no plan was found. */
static bool skip_path(struct sbp_mixture *mixture)
{
    bool more;
    assert_int_equal(sbp_mixture_skip(mixture, &more), SBP_OK);
    return more;
}

/* A plan that is known already ends it only once a mixture has been looked along. */
static void test_known_plan(void **state)
{
    (void)state;
    struct sbp_plan plan;
    struct sbp_mixture mixture;
    begin_mixture(&plan, &mixture);
    assert_true(add_strategy(&mixture, &plan));
    assert_true(mixture.path_count == 2 && !mixture.is_played);
    assert_true(sbp_path_equal(&mixture.path, &mixture.known[1]));
    assert_true(add_strategy(&mixture, &plan));
    assert_true(mixture.is_played);
    assert_false(add_strategy(&mixture, &plan));
    assert_true(mixture.path_count == 2 && mixture.plan_count == 1);
    sbp_plan_free(&plan);
}

/* No plan along a path: the best mixture of those that are known, and then their even one. */
static void test_no_plan(void **state)
{
    (void)state;
    struct sbp_plan plan;
    struct sbp_mixture mixture;
    begin_mixture(&plan, &mixture);
    assert_false(skip_path(&mixture));
    (void)add_strategy(&mixture, &plan);
    assert_true(skip_path(&mixture));
    assert_true(mixture.is_played);
    check_mixture(&mixture);
    assert_true(skip_path(&mixture));
    for (size_t i = 0; i < sbp_path_entries(&mixture.path); i++)
        assert_float_equal(mixture.path.all[i],
                           (mixture.known[0].all[i] + mixture.known[1].all[i]) / 2, 1e-12);
    assert_false(skip_path(&mixture));
    sbp_plan_free(&plan);
}

/* The path that bounded most is kept, the first of those that bounded alike. */
static void test_best(void **state)
{
    (void)state;
    static const double bounds_s[] = {-INFINITY, 2, 1, 2, 3};
    static const double best[] = {0, 1, 1, 1, 4};
    struct sbp_plan plan;
    struct sbp_mixture mixture;
    begin_mixture(&plan, &mixture);
    assert_true(sbp_path_equal(&mixture.best, &mixture.known[0]));
    assert_true(sbp_path_equal(&mixture.path, &mixture.known[0]));
    for (int i = 0; i < 5; i++) {
        mixture.path.all[0] = i;
        sbp_mixture_note(&mixture, bounds_s[i]);
        if (i > 0)
            assert_true(mixture.best.all[0] == best[i]);
    }
    assert_true(mixture.best_s == 3);
    sbp_plan_free(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gaps),
        cmocka_unit_test(test_known_plan),
        cmocka_unit_test(test_no_plan),
        cmocka_unit_test(test_best),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
