/* The least largest cost along several paths, beside plain enumeration, on random problems. */
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>

#include "planner/limits.h"
#include "planner/solvers/minimax.h"
#include "random_problem.h"
#include "tests/support/unit.h"

enum { MOST_PATHS = 6, INSTANCES = 2000, SHORT_INSTANCES = 300 };
#define MUCH_WORK INT64_C(100000000)
/* Work between two looks at how much there was: a variable's choices along all paths and mixtures,
 * and parts to compare with. */
#define MOST_AT_ONCE 300

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

static void free_paths(struct paths *paths)
{
    for (int p = 0; p < paths->count; p++)
        sbp_problem_free(&paths->path[p]);
}

struct shown {
    const struct paths *paths;
    double least;
    int count, most; /* most: the search ends after so many */
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
    *more = shown->count < shown->most;
    return SBP_OK;
}

static enum sbp_status solve(double below, int64_t most_work, struct shown *shown,
                             struct sbp_minimax_result *result)
{
    struct sbp_diag diag = {{0}};
    const struct sbp_minimax minimax = {.paths = shown->paths->count,
                                        .problem = shown->paths->path,
                                        .below = below,
                                        .most_work = most_work,
                                        .show = take,
                                        .context = shown};
    return sbp_minimax_solve(&minimax, result, &diag);
}

static struct shown search(const struct paths *paths, double below)
{
    struct shown shown = {paths, INFINITY, 0, INT_MAX};
    struct sbp_minimax_result result;
    if (solve(below, MUCH_WORK, &shown, &result) != SBP_OK || !result.done)
        fail_msg("seed %" PRIu64 ": the search did not end", paths->recipe.seed);
    if (result.evaluations > result.work)
        fail_msg("seed %" PRIu64 ": %" PRId64 " evaluations, work %" PRId64, paths->recipe.seed,
                 result.evaluations, result.work);
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
    free_paths(&paths);
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

/* With ever more work: what is done is done, whatever came before it. */
static int work_more_and_more(const struct paths *paths, double least)
{
    struct sbp_minimax_result result = {.done = false};
    int short_of = 0;
    for (int64_t most_work = 0; !result.done; most_work = 2 * most_work + 1) {
        struct shown shown = {paths, INFINITY, 0, INT_MAX};
        assert_int_equal(solve(SBP_FORBIDDEN, most_work, &shown, &result), SBP_OK);
        assert_false(result.stopped);
        if (result.done && fabs(shown.least - least) > CLOSE * (1 + fabs(least)))
            fail_msg("seed %" PRIu64 ", work %" PRId64 ": done with %.17g, least %.17g",
                     paths->recipe.seed, most_work, shown.least, least);
        if (!result.done && result.work <= most_work)
            fail_msg("seed %" PRIu64 ": ended after work %" PRId64 " of %" PRId64,
                     paths->recipe.seed, result.work, most_work);
        if (result.work > most_work + MOST_AT_ONCE)
            fail_msg("seed %" PRIu64 ": work %" PRId64 " though %" PRId64 " was the most",
                     paths->recipe.seed, result.work, most_work);
        short_of += !result.done;
    }
    return short_of;
}

static void test_little_work(void **state)
{
    (void)state;
    int short_of = 0;
    for (uint64_t seed = 0; seed < SHORT_INSTANCES; seed++) {
        struct paths paths;
        int choice[MOST_VARIABLES] = {0};
        draw_paths(seed, &paths);
        const double least = least_of_all(&paths, choice, 0);
        if (least < SBP_FORBIDDEN)
            short_of += work_more_and_more(&paths, least);
        free_paths(&paths);
    }
    assert_true(short_of > SHORT_INSTANCES);
}

/* Who shows a choice may have seen enough. */
static void test_end_early(void **state)
{
    (void)state;
    int ended = 0;
    for (uint64_t seed = 0; seed < SHORT_INSTANCES; seed++) {
        struct paths paths;
        struct sbp_minimax_result result;
        draw_paths(seed, &paths);
        struct shown shown = {&paths, INFINITY, 0, 1};
        assert_int_equal(solve(SBP_FORBIDDEN, MUCH_WORK, &shown, &result), SBP_OK);
        assert_true(shown.count <= 1);
        assert_int_equal(result.done, shown.count == 0);
        assert_false(result.stopped);
        ended += shown.count;
        free_paths(&paths);
    }
    assert_true(ended > SHORT_INSTANCES / 2);
}

/* ---- many parts to compare with -------------------------------------------------------------- */

enum { RING = 4, RING_DOMAIN = 12, RING_PATHS = 3, RINGS = 20, RING_CHOICES = 20736 };

/* The costs along each path of the choices that were shown. */
struct front {
    const struct paths *paths;
    int count;
    double cost[RING_CHOICES][RING_PATHS];
};

static void draw_costs(struct sbp_random *random, double *cost, size_t count)
{
    for (size_t i = 0; i < count; i++)
        cost[i] = sbp_random_unit(random);
}

/* Variables in a ring: what is left depends on two of them, in hundreds of ways. */
static void draw_ring(uint64_t seed, struct paths *paths)
{
    struct sbp_random random;
    sbp_random_seed(&random, seed);
    *paths = (struct paths){.recipe = {.seed = seed}, .count = RING_PATHS};
    for (int p = 0; p < paths->count; p++) {
        struct sbp_problem *path = &paths->path[p];
        assert_int_equal(sbp_problem_init(path, RING, RING), SBP_OK);
        for (int v = 0; v < RING; v++) {
            assert_int_equal(sbp_problem_add_variable(path, "v", RING_DOMAIN, 0, NULL), v);
            draw_costs(&random, path->variable[v].cost, RING_DOMAIN);
        }
        for (int v = 0; v < RING; v++) {
            bool transposed;
            double *cost = sbp_problem_edge_table(path, v, (v + 1) % RING, &transposed);
            assert_non_null(cost);
            draw_costs(&random, cost, RING_DOMAIN * RING_DOMAIN);
        }
    }
}

static void price_choice(const struct paths *paths, const int *choice, double *cost)
{
    for (int p = 0; p < RING_PATHS; p++)
        cost[p] = sbp_problem_cost(&paths->path[p], choice);
}

/* Asks for no less than what it is shown. */
static enum sbp_status add_to_front(void *context, const int *choice, double largest, double *below,
                                    bool *more)
{
    struct front *const front = context;
    (void)largest;
    (void)below;
    (void)more;
    assert_true(front->count < RING_CHOICES);
    price_choice(front->paths, choice, front->cost[front->count++]);
    return SBP_OK;
}

static void search_ring(const struct paths *paths, int64_t most_work, struct front *front,
                        struct sbp_minimax_result *result)
{
    struct sbp_diag diag = {{0}};
    const struct sbp_minimax minimax = {.paths = paths->count,
                                        .problem = paths->path,
                                        .below = SBP_FORBIDDEN,
                                        .most_work = most_work,
                                        .show = add_to_front,
                                        .context = front};
    front->paths = paths;
    front->count = 0;
    assert_int_equal(sbp_minimax_solve(&minimax, result, &diag), SBP_OK);
}

/* Whether a choice that was shown costs no more along any path. */
static bool is_covered(const struct front *front, const double *cost)
{
    bool covered = false;
    for (int i = 0; i < front->count && !covered; i++) {
        covered = true;
        for (int p = 0; p < RING_PATHS; p++)
            covered &= front->cost[i][p] <= cost[p] * (1 + CLOSE);
    }
    return covered;
}

static void check_front(const struct paths *paths, const struct front *front)
{
    for (int index = 0; index < RING_CHOICES; index++) {
        int choice[RING], left = index;
        double cost[RING_PATHS];
        for (int v = 0; v < RING; v++, left /= RING_DOMAIN)
            choice[v] = left % RING_DOMAIN;
        price_choice(paths, choice, cost);
        if (!is_covered(front, cost))
            fail_msg("seed %" PRIu64 ": choice %d is not covered", paths->recipe.seed, index);
    }
}

static void test_rings(void **state)
{
    (void)state;
    static struct front front;
    for (uint64_t seed = 0; seed < RINGS; seed++) {
        struct paths paths;
        struct sbp_minimax_result whole, part;
        draw_ring(seed, &paths);
        search_ring(&paths, MUCH_WORK, &front, &whole);
        assert_true(whole.done && 5 * front.count < 3 * RING_CHOICES);
        check_front(&paths, &front);
        const int64_t most_work = whole.work / 10 * 9;
        search_ring(&paths, most_work, &front, &part);
        if (part.done || part.work > most_work + MOST_AT_ONCE)
            fail_msg("seed %" PRIu64 ": work %" PRId64 " of %" PRId64, seed, part.work, most_work);
        free_paths(&paths);
    }
}

/* ---- what is refused ------------------------------------------------------------------------ */

/* A chain, its edges from the last to the first (backwards) or each from its later end (turned). */
struct form {
    int variables, domain, edges;
    bool backwards, turned;
};

static void form_chain(const struct form *form, struct sbp_problem *problem)
{
    assert_int_equal(sbp_problem_init(problem, form->variables, form->edges), SBP_OK);
    for (int v = 0; v < form->variables; v++)
        assert_int_equal(sbp_problem_add_variable(problem, "v", form->domain, 0, NULL), v);
    for (int i = 0; i < form->edges; i++) {
        bool transposed;
        const int e = form->backwards ? form->edges - 1 - i : i;
        assert_non_null(
            sbp_problem_edge_table(problem, e + form->turned, e + !form->turned, &transposed));
    }
}

static enum sbp_status solve_both(const struct form *a, const struct form *b)
{
    struct paths paths = {.count = 2};
    struct shown shown = {&paths, INFINITY, 0, INT_MAX};
    struct sbp_minimax_result result;
    form_chain(a, &paths.path[0]);
    form_chain(b, &paths.path[1]);
    const enum sbp_status status = solve(1, MUCH_WORK, &shown, &result);
    assert_int_equal(result.done, status == SBP_OK);
    assert_int_equal(shown.count, status == SBP_OK);
    free_paths(&paths);
    return status;
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct form plain = {4, 3, 3, false, false};
    static const struct form others[] = {{5, 3, 3, false, false},
                                         {4, 2, 3, false, false},
                                         {4, 3, 2, false, false},
                                         {4, 3, 3, true, false},
                                         {4, 3, 3, false, true}};
    static const struct form long_one = {SBP_PROBLEM_MINIMAX_VARIABLES + 1, 2, 2, false, false};
    assert_int_equal(solve_both(&plain, &plain), SBP_OK);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        assert_int_equal(solve_both(&plain, &others[i]), SBP_E_UNSUPPORTED);
        assert_int_equal(solve_both(&others[i], &plain), SBP_E_UNSUPPORTED);
    }
    assert_int_equal(solve_both(&long_one, &long_one), SBP_E_UNSUPPORTED);
}

/* ---- what is looked at ---------------------------------------------------------------------- */

static enum sbp_status count_shown(void *context, const int *choice, double largest, double *below,
                                   bool *more)
{
    (void)choice;
    (void)largest;
    (void)below;
    (void)more;
    ++*(int *)context;
    return SBP_OK;
}

/* All choices cost the same: one stands for all but those of the variable that comes last and of
 * the one that it hangs on, whether variables hang together or not. */
static void test_alike(void **state)
{
    (void)state;
    for (int edges = 0; edges <= 3; edges++) {
        struct sbp_problem problem;
        struct sbp_minimax_result result;
        struct sbp_diag diag = {{0}};
        int shown = 0;
        const struct form form = {4, 3, edges, false, false};
        const struct sbp_minimax minimax = {.paths = 1,
                                            .problem = &problem,
                                            .below = 1,
                                            .most_work = MUCH_WORK,
                                            .show = count_shown,
                                            .context = &shown};
        form_chain(&form, &problem);
        assert_int_equal(sbp_minimax_solve(&minimax, &result, &diag), SBP_OK);
        assert_true(result.done);
        assert_true(shown <= form.domain * form.domain);
        sbp_problem_free(&problem);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_all), cmocka_unit_test(test_little_work),
        cmocka_unit_test(test_end_early),   cmocka_unit_test(test_rings),
        cmocka_unit_test(test_refusals),    cmocka_unit_test(test_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
