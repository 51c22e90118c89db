/* The k cheapest choices against all feasible costs, sorted, of problems small enough to enumerate.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "planner/top.h"
#include "random_problem.h"

enum { PROBLEMS = 900 };

static int compare_costs(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* How many of the enumerated costs, which are sorted, are below a bound. */
static int count_below(const struct truth *truth, double bound)
{
    int count = 0;
    while (count < truth->cost_count && truth->costs[count] < bound)
        count++;
    return count;
}

static bool are_distinct(const struct sbp_top *top)
{
    const size_t count = (size_t)top->variable_count;
    for (int i = 0; i < top->count; i++)
        for (int j = 0; j < i; j++)
            if (memcmp(top->choice + (size_t)i * count, top->choice + (size_t)j * count,
                       count * sizeof *top->choice) == 0)
                return false;
    return true;
}

/* Every listed choice is what it says, in order, and the list is as long and as cheap as it can be.
 */
static bool is_right(const struct sbp_problem *problem, const struct truth *truth, int k,
                     double upper_bound, const struct sbp_top *top)
{
    const int below = count_below(truth, upper_bound);
    bool right = top->count == (below < k ? below : k) && top->proved == top->count;
    for (int i = 0; i < top->count && right; i++) {
        const int *choice = top->choice + i * top->variable_count;
        right = is_close(top->cost[i], truth->costs[i]) &&
                top->cost[i] == sbp_problem_cost(problem, choice) &&
                plain_peak(problem, choice) <= problem->capacity * (1 + 1e-9) &&
                (i == 0 || top->cost[i] >= top->cost[i - 1]);
    }
    const double next = top->count < truth->cost_count ? truth->costs[top->count] : INFINITY;
    right = right && are_distinct(top) && top->lower_bound <= next + CLOSE * (1 + fabs(next));
    if (below > 0)
        return right && top->status == SBP_PLAN_OPTIMAL;
    return right && (top->status == SBP_PLAN_INFEASIBLE || top->status == SBP_PLAN_NONE_CHEAPER);
}

static void check(const struct recipe *recipe, const struct sbp_problem *problem,
                  const struct truth *truth, int k, double upper_bound)
{
    const struct sbp_solver_options options = {.seed = recipe->seed, .upper_bound = upper_bound};
    struct sbp_top top;
    struct sbp_diag diag = {0};
    const enum sbp_status status = sbp_solve_top(problem, &options, k, &top, &diag);
    if (status != SBP_OK)
        fail_msg("seed %" PRIu64 ": %s: %s", recipe->seed, sbp_status_name(status), diag.text);
    if (!is_right(problem, truth, k, upper_bound, &top)) {
        print_problem(recipe, problem, "top");
        for (int i = 0; i < top.count; i++)
            print_message("%d: %.17g, enumerated %.17g\n", i, top.cost[i],
                          i < truth->cost_count ? truth->costs[i] : INFINITY);
        fail_msg("top %d below %g: %s, %d of %d, %d proved, the rest from %.17g", k, upper_bound,
                 sbp_plan_status_name(top.status), top.count, truth->cost_count, top.proved,
                 top.lower_bound);
    }
    sbp_top_free(&top);
}

static void test_against_enumeration(void **state)
{
    (void)state;
    static const int ks[] = {1, 2, 5, 12};
    int bounded = 0;
    for (uint64_t seed = 0; seed < PROBLEMS; seed++) {
        const struct recipe recipe = draw_recipe(seed);
        struct sbp_problem problem;
        build(&recipe, &problem);
        struct truth truth = find_truth(&problem);
        qsort(truth.costs, (size_t)truth.cost_count, sizeof *truth.costs, compare_costs);
        const int k = ks[seed / 5 % 4];
        check(&recipe, &problem, &truth, k, INFINITY);
        /* Between two enumerated costs, so that no round-off decides what lies below. */
        for (int i = 0; i < truth.cost_count && i < 3; i++) {
            const double low = i == 0 ? truth.cost - 1 : truth.costs[i - 1];
            const double middle = low + (truth.costs[i] - low) / 2;
            if (truth.costs[i] - low < 1e-6 || middle == 0)
                continue;
            check(&recipe, &problem, &truth, k, middle);
            bounded++;
        }
        truth_free(&truth);
        sbp_problem_free(&problem);
    }
    print_message("top: %d problems of seeds 0 on, %d upper bounds\n", PROBLEMS, bounded);
    assert_true(bounded > PROBLEMS / 2);
}

/* More than there are: all of them, and nothing else is left. */
static void test_exhausts_small_problems(void **state)
{
    (void)state;
    struct sbp_problem problem;
    assert_int_equal(sbp_problem_init(&problem, 0, 0), SBP_OK);
    for (int v = 0; v < 3; v++)
        assert_int_equal(sbp_problem_add_variable(&problem, "v", 3, 0, NULL), v);
    for (int v = 0; v < 3; v++)
        for (int k = 0; k < 3; k++)
            problem.variable[v].cost[k] = (double)(k << (2 * v));
    const struct sbp_solver_options options = {0};
    struct sbp_top top;
    assert_int_equal(sbp_solve_top(&problem, &options, 100, &top, NULL), SBP_OK);
    assert_int_equal(top.count, 27);
    assert_int_equal(top.proved, 27);
    assert_int_equal(top.status, SBP_PLAN_OPTIMAL);
    assert_true(!(top.lower_bound < INFINITY));
    for (int i = 0; i < 27; i++)
        assert_true(top.cost[i] == i % 3 + i / 3 % 3 * 4 + i / 9 * 16);
    sbp_top_free(&top);
    sbp_problem_free(&problem);
}

static void test_empty_problem(void **state)
{
    (void)state;
    struct sbp_problem problem;
    assert_int_equal(sbp_problem_init(&problem, 0, 0), SBP_OK);
    const struct sbp_solver_options options = {0};
    struct sbp_top top;
    assert_int_equal(sbp_solve_top(&problem, &options, 3, &top, NULL), SBP_OK);
    assert_int_equal(top.count, 1);
    assert_true(top.cost[0] == 0);
    sbp_top_free(&top);
    sbp_top_free(NULL);
    sbp_problem_free(&problem);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_enumeration),
        cmocka_unit_test(test_exhausts_small_problems),
        cmocka_unit_test(test_empty_problem),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
