/* Compares the answer of settling a cut with stages with every labelled strategy of the cut. The
 * goals lie far above the cost of the cheapest plan and just below it. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "planner/plan/plan.h"
#include "labelled.h"
#include "oracle_plan.h"
#include "planner/outer/path_enumeration.h"
#include "planner/paths/path_weights.h"
#include "small_instance.h"
#include "tests/support/solve_plan.h"
#include "tests/support/unit.h"

enum { MOST_STRATEGIES = 2000 };

/* Two stages of two devices; false where the model has too few cuts. */
static bool cut(struct sbp_plan *plan, enum sbp_schedule schedule)
{
    struct sbp_diag refusal = {{0}};
    struct sbp_parallel parallel = plan->cut.parallel;
    parallel.pipeline = 2;
    parallel.schedule = schedule;
    if (parallel.micro_batch % 2 == 0)
        parallel.micro_batch /= 2;
    return sbp_plan_cut(plan, &parallel, &refusal) == SBP_OK;
}

/* Until the first mixture: the fewer paths are known, the more is left to settle. */
static void play(struct small_instance *instance, struct sbp_mixture *mixture)
{
    struct sbp_plan *const plan = &instance->plan;
    struct sbp_diag diag = {{0}};
    bool more = true;
    assert_int_equal(sbp_mixture_begin(&plan->cut, &plan->arena, mixture, &diag), SBP_OK);
    while (more && !mixture->is_played) {
        struct sbp_path_weights weights;
        struct sbp_outcome found;
        struct sbp_solve_request request = {.asked = instance->request};
        request.weights = &weights;
        if (sbp_path_weights_make(&plan->cut, &mixture->path, &plan->arena, &weights, &diag) !=
                SBP_OK ||
            solve_as(plan, &request, &found, &diag) != SBP_OK ||
            sbp_mixture_add(mixture, &plan->strategy, &more, &diag) != SBP_OK)
            small_instance_complain(instance, "%s", diag.text);
    }
}

static void keep_least(void *context, const struct sbp_strategy *strategy, double objective_s)
{
    (void)strategy;
    double *const least_s = context;
    assert_true(objective_s < *least_s);
    *least_s = objective_s;
}

/* The least that was offered below a goal; INFINITY: nothing. What is said to be proved holds, and
 * nothing that was asked is left open. */
static double settle(struct small_instance *instance, double least_s, double goal_s)
{
    struct sbp_mixture mixture;
    struct sbp_diag diag = {{0}};
    double offered_s = INFINITY;
    play(instance, &mixture);
    const struct sbp_solve_request request = {.asked = instance->request};
    struct sbp_path_enumeration settling = {.cut = &instance->plan.cut,
                                            .request = &request,
                                            .mixture = &mixture,
                                            .goal_s = goal_s,
                                            .offer = keep_least,
                                            .context = &offered_s};
    if (sbp_path_enumerate(&settling, &diag) != SBP_OK)
        small_instance_complain(instance, "%s", diag.text);
    const double left_s = fmin(goal_s, offered_s);
    if (settling.bound_s > fmin(least_s, left_s) * (1 + CLOSE) ||
        settling.bound_s < left_s * (1 - 1e-6) || settling.stopped || settling.memory_binds)
        small_instance_complain(instance,
                                "below %.12g: offered %.12g, proved %.12g; of all strategies %.12g",
                                goal_s, offered_s, settling.bound_s, least_s);
    return offered_s;
}

/* Whether the instance has plans, few enough to price them all. */
static bool check(struct small_instance *instance)
{
    static const double above[] = {3, 1.2, 1.02};
    struct sbp_diag diag = {{0}};
    struct labelled_best best;
    if (labelled_search(&instance->plan, &instance->request, MOST_STRATEGIES, &best, &diag) !=
        SBP_OK)
        small_instance_complain(instance, "%s", diag.text);
    if (best.gave_up || best.visited == 0)
        return false;
    for (int i = 0; i < 3; i++) {
        const double found_s = settle(instance, best.objective_s, above[i] * best.objective_s);
        if (!is_close(found_s, best.objective_s))
            small_instance_complain(instance, "offered %.12g, of all strategies %.12g", found_s,
                                    best.objective_s);
    }
    assert_true(isinf(settle(instance, best.objective_s, 0.99 * best.objective_s)));
    return true;
}

static int run(enum small_kind kind, int linears, enum sbp_schedule schedule, uint64_t seed)
{
    int settled = 0;
    for (uint64_t draw = 0; draw < 30; draw++) {
        struct small_instance instance = {.seed = seed + draw * 1000003,
                                          .request = {.space = SBP_SPACE_FULL, .quick = true}};
        small_instance_open(&instance, kind, linears, 2, 2);
        settled += cut(&instance.plan, schedule) && check(&instance);
        sbp_plan_free(&instance.plan);
    }
    print_message("%-12s %-14s seed %" PRIu64 ": %d settled\n", small_kind_name(kind),
                  sbp_timeline_schedule_name(schedule), seed, settled);
    return settled;
}

static void test_settled(void **state)
{
    (void)state;
    static const enum sbp_schedule schedules[] = {SBP_GPIPE, SBP_ONE_F_ONE_B, SBP_ZERO_BUBBLE,
                                                  SBP_MESSAGE_DRIVEN};
    for (uint64_t i = 0; i < 4; i++) {
        assert_true(run(SMALL_CHAIN, 2, schedules[i], 11 + i) > 20);
        assert_true(run(SMALL_CHAIN, 3, schedules[i], 31 + i) > 20);
        assert_true(run(SMALL_LANGUAGE, 0, schedules[i], 21 + i) > 20);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_settled)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
