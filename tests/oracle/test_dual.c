/* The bounds of the solver `dual` against an enumerator that shares no code with it, under random
 * prices of usage: no choice that fits costs less than the bound, and none with a value less than
 * the bound and that value's slack. Seeds printed. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "planner/dual/dual_priv.h"
#include "random_problem.h"
#include "tests/support/unit.h"

enum { PROBLEMS = 1200, LARGEST = 4 };

struct least {
    const struct sbp_problem *problem;
    int choice[MOST_VARIABLES];
    double all, with[MOST_VARIABLES][LARGEST]; /* least costs of choices that fit */
};

static void enumerate(struct least *least, int variable)
{
    const struct sbp_problem *problem = least->problem;
    if (variable < problem->variable_count) {
        for (int k = 0; k < problem->variable[variable].domain; k++) {
            least->choice[variable] = k;
            enumerate(least, variable + 1);
        }
        return;
    }
    const double cost = plain_cost(problem, least->choice);
    if (!(cost < INFINITY) || plain_peak(problem, least->choice) > problem->capacity)
        return;
    least->all = fmin(least->all, cost);
    for (int v = 0; v < problem->variable_count; v++)
        least->with[v][least->choice[v]] = fmin(least->with[v][least->choice[v]], cost);
}

static void find_least(const struct sbp_problem *problem, struct least *least)
{
    *least = (struct least){.problem = problem, .all = INFINITY};
    for (int v = 0; v < MOST_VARIABLES; v++)
        for (int k = 0; k < LARGEST; k++)
            least->with[v][k] = INFINITY;
    enumerate(least, 0);
}

static bool is_bound(double bound, double cost)
{
    return bound <= cost + CLOSE * (1 + fabs(cost));
}

/* Returns whether some slack was above 0. */
static bool check(const struct recipe *recipe, const struct sbp_problem *problem)
{
    const struct sbp_solver_options options = {.seed = recipe->seed};
    struct sbp_solution solution;
    struct sbp_solver_run search;
    struct sbp_dual dual;
    struct least least;
    double slack[MOST_VARIABLES][LARGEST], *rows[MOST_VARIABLES];
    bool rises = false;
    find_least(problem, &least);
    assert_int_equal(sbp_solver_run_begin(&search, problem, &options, &solution), SBP_OK);
    assert_int_equal(sbp_dual_init(&dual, problem, &search), SBP_OK);
    for (int v = 0; v < MOST_VARIABLES; v++)
        rows[v] = slack[v];
    for (int p = 0; p < dual.point_count; p++)
        dual.price[p] = fmax(0, sbp_random_unit(&dual.random) - 0.5);
    sbp_dual_set_prices(&dual, dual.price);
    for (int round = 0; round < 3; round++) {
        const double passed = sbp_dual_pass(&dual, 1), bound = sbp_dual_slacks(&dual, rows);
        bool good = is_bound(passed, least.all) && is_bound(bound, least.all);
        for (int v = 0; v < problem->variable_count; v++)
            for (int k = 0; k < problem->variable[v].domain; k++) {
                good = good && is_bound(bound + slack[v][k], least.with[v][k]);
                rises |= slack[v][k] > CLOSE;
            }
        if (!good) {
            print_problem(recipe, problem, "dual");
            fail_msg("bounds %.17g and %.17g, least cost %.17g, or slacks", passed, bound,
                     least.all);
        }
    }
    sbp_dual_free(&dual);
    sbp_solver_solution_free(&solution);
    return rises;
}

static void test_bounds(void **state)
{
    (void)state;
    int rises = 0;
    for (uint64_t seed = 0; seed < PROBLEMS; seed++) {
        const struct recipe recipe = draw_recipe(seed);
        struct sbp_problem problem;
        build(&recipe, &problem);
        rises += check(&recipe, &problem);
        sbp_problem_free(&problem);
    }
    printf("%d problems of seeds 0 on, %d with values that raise the bound\n", PROBLEMS, rises);
    assert_true(rises > PROBLEMS / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
