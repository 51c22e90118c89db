/* The least largest cost along several paths, beside plain enumeration, on random problems. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "planner/minimax.h"
#include "random_problem.h"

enum { MOST_PATHS = 6, INSTANCES = 2000 };

struct paths {
    struct recipe recipe;
    int count;
    struct sbp_problem path[MOST_PATHS];
};

/* Paths share what is forbidden: the first one's tables with other costs, some of them alike. */
static void redraw(struct sbp_random *random, const struct recipe *recipe, double *cost,
                   size_t count)
{
    const bool same = sbp_random_below(random, 3) == 0;
    for (size_t i = 0; i < count && !same; i++)
        if (cost[i] < SBP_FORBIDDEN)
            cost[i] = recipe->whole ? (double)sbp_random_below(random, 5)
                                    : sbp_random_unit(random) * (1 + cost[i]);
}

static void draw_paths(uint64_t seed, struct paths *paths)
{
    struct sbp_random random;
    sbp_random_seed(&random, seed);
    paths->recipe = draw_recipe(seed);
    paths->recipe.capacity = UNLIMITED;
    paths->count = 1 + (int)sbp_random_below(&random, MOST_PATHS);
    for (int p = 0; p < paths->count; p++) {
        struct sbp_problem *path = &paths->path[p];
        build(&paths->recipe, path);
        for (int v = 0; v < path->variable_count && p > 0; v++)
            redraw(&random, &paths->recipe, path->variable[v].cost,
                   (size_t)path->variable[v].domain);
        for (int e = 0; e < path->edge_count && p > 0; e++)
            redraw(&random, &paths->recipe, path->edge[e].cost,
                   (size_t)path->variable[path->edge[e].a].domain *
                       (size_t)path->variable[path->edge[e].b].domain);
    }
}

static double largest_of(const struct paths *paths, const int *choice)
{
    double largest = -INFINITY;
    for (int p = 0; p < paths->count; p++)
        largest = fmax(largest, sbp_problem_cost(&paths->path[p], choice));
    return largest;
}

static double least_of_all(const struct paths *paths, int *choice, int variable)
{
    double least = INFINITY;
    if (variable == paths->path[0].variable_count)
        return largest_of(paths, choice);
    for (int k = 0; k < paths->path[0].variable[variable].domain; k++) {
        choice[variable] = k;
        least = fmin(least, least_of_all(paths, choice, variable + 1));
    }
    return least;
}

struct shown {
    const struct paths *paths;
    double least;
    int count;
};

static enum sbp_status take(void *context, const int *choice, double largest, double *below,
                            bool *more)
{
    struct shown *shown = context;
    const double cost = largest_of(shown->paths, choice);
    if (fabs(cost - largest) > CLOSE * (1 + fabs(cost)) || !(largest < *below))
        fail_msg("seed %" PRIu64 ": a choice of %.17g is shown as %.17g below %.17g",
                 shown->paths->recipe.seed, cost, largest, *below);
    shown->least = fmin(shown->least, cost);
    shown->count++;
    *below = largest;
    *more = true;
    return SBP_OK;
}

static struct shown search(const struct paths *paths, double below)
{
    struct shown shown = {paths, INFINITY, 0};
    struct sbp_minimax_result result;
    struct sbp_diag diag = {{0}};
    const struct sbp_minimax minimax = {.paths = paths->count,
                                        .problem = paths->path,
                                        .below = below,
                                        .most_work = INT64_C(100000000),
                                        .show = take,
                                        .context = &shown};
    if (sbp_minimax_solve(&minimax, &result, &diag) != SBP_OK || !result.done)
        fail_msg("seed %" PRIu64 ": %s", paths->recipe.seed, diag.text);
    return shown;
}

static void check(uint64_t seed, struct sbp_random *random, int *found)
{
    struct paths paths;
    int choice[MOST_VARIABLES] = {0};
    draw_paths(seed, &paths);
    const double least = least_of_all(&paths, choice, 0);
    const bool is_legal = least < SBP_FORBIDDEN;
    const double below = is_legal && sbp_random_below(random, 2) == 0
                             ? least + CLOSE + fabs(least) * sbp_random_unit(random)
                             : SBP_FORBIDDEN;
    const struct shown shown = search(&paths, below);
    if (is_legal ? fabs(shown.least - least) > CLOSE * (1 + fabs(least)) : shown.count > 0)
        fail_msg("seed %" PRIu64 ", %d paths: found %.17g, least %.17g", seed, paths.count,
                 shown.least, least);
    if (is_legal)
        assert_int_equal(search(&paths, least - CLOSE * (1 + fabs(least))).count, 0);
    *found += is_legal;
    for (int p = 0; p < paths.count; p++)
        sbp_problem_free(&paths.path[p]);
}

static void test_against_all(void **state)
{
    (void)state;
    struct sbp_random random;
    int found = 0;
    sbp_random_seed(&random, 7);
    for (uint64_t seed = 0; seed < INSTANCES; seed++)
        check(seed, &random, &found);
    print_message("%d problems, %d with a choice\n", INSTANCES, found);
    assert_true(found > INSTANCES / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
