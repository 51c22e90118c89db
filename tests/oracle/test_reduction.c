/* The reduction against an enumerator that shares no code with it: on random problems with memory
 * over time, with ties, sums and equal values put in, the reduced problem has the same best cost
 * and the same least peak, and every choice of it completes to one of the same cost and peak. Then
 * the solvers behind it. Seeds printed. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/reduction/reduction.h"
#include "planner/solvers/solver.h"
#include "random_problem.h"
#include "tests/support/unit.h"

enum { PROBLEMS = 2000, SOLVED = 500 };

/* Each value of one end allows one of the other alone. */
static void tie(struct sbp_problem *problem, struct sbp_random *random, struct sbp_edge *edge)
{
    const int rows = problem->variable[edge->a].domain, columns = problem->variable[edge->b].domain;
    const bool by_row = sbp_random_below(random, 2) == 0;
    for (int i = 0; i < (by_row ? rows : columns); i++) {
        const int partner = (int)sbp_random_below(random, (uint64_t)(by_row ? columns : rows));
        for (int j = 0; j < (by_row ? columns : rows); j++)
            if (j != partner)
                edge->cost[by_row ? i * columns + j : j * columns + i] = SBP_FORBIDDEN;
    }
}

/* A sum of a term of either end. */
static void separate(struct sbp_problem *problem, struct sbp_random *random,
                     const struct recipe *recipe, struct sbp_edge *edge)
{
    const int rows = problem->variable[edge->a].domain, columns = problem->variable[edge->b].domain;
    const struct recipe allowed = {.whole = recipe->whole};
    for (int i = 0; i < rows; i++) {
        const double term = draw_cost(random, &allowed);
        for (int j = 0; j < columns; j++)
            edge->cost[i * columns + j] = term + (i == 0 ? draw_cost(random, &allowed) : 0);
        for (int j = 0; i > 0 && j < columns; j++)
            edge->cost[i * columns + j] += edge->cost[j];
    }
}

/* The last value becomes the first one, a little dearer or not. */
static void repeat_value(struct sbp_problem *problem, struct sbp_random *random, int variable)
{
    struct sbp_variable *v = &problem->variable[variable];
    const int last = v->domain - 1;
    v->cost[last] = v->cost[0] + (double)sbp_random_below(random, 2);
    for (int i = 0; i < v->interval_count; i++)
        v->usage[i * v->domain + last] = v->usage[i * v->domain];
    for (int e = 0; e < problem->edge_count; e++) {
        struct sbp_edge *edge = &problem->edge[e];
        const int rows = problem->variable[edge->a].domain,
                  columns = problem->variable[edge->b].domain;
        for (int j = 0; edge->a == variable && j < columns; j++)
            edge->cost[last * columns + j] = edge->cost[j];
        for (int i = 0; edge->b == variable && i < rows; i++)
            edge->cost[i * columns + last] = edge->cost[i * columns];
    }
}

static void build_special(const struct recipe *recipe, struct sbp_problem *problem)
{
    struct sbp_random random;
    build(recipe, problem);
    sbp_random_seed(&random, recipe->seed ^ UINT64_C(0x7ed));
    for (int e = 0; e < problem->edge_count; e++) {
        const uint64_t kind = sbp_random_below(&random, 6);
        if (kind < 2)
            tie(problem, &random, &problem->edge[e]);
        else if (kind == 2)
            separate(problem, &random, recipe, &problem->edge[e]);
    }
    for (int v = 0; v < problem->variable_count; v++)
        if (sbp_random_below(&random, 4) == 0)
            repeat_value(problem, &random, v);
}

/* --- the reduced problem against the whole --- */

struct tally {
    int feasible, infeasible, forbidden, smaller;
    double variables_before, variables_after;
};

/* Every choice of the reduced problem completes to one of its cost and peak. */
static void check_choices(const struct recipe *recipe, const struct sbp_reduction *reduction)
{
    const struct sbp_problem *reduced = &reduction->problem;
    int choice[MOST_VARIABLES + 1] = {0}, whole[MOST_VARIABLES];
    for (bool more = true; more;) {
        sbp_reduction_complete(reduction, choice, whole);
        const double cost = plain_cost(reduced, choice);
        const double whole_cost = plain_cost(reduction->source, whole);
        const double peak = plain_peak(reduced, choice);
        const double whole_peak = plain_peak(reduction->source, whole);
        if (!is_close(cost, whole_cost) ||
            (reduced->capacity < INFINITY &&
             sbp_problem_fits(reduced, peak) != sbp_problem_fits(reduction->source, whole_peak)) ||
            (peak > reduced->capacity && !is_close(peak, whole_peak))) {
            print_problem(recipe, reduction->source, "reduction");
            fail_msg("cost %.17g, peak %.17g complete to %.17g, %.17g", cost, peak, whole_cost,
                     whole_peak);
        }
        int v = 0;
        while (v < reduced->variable_count && ++choice[v] == reduced->variable[v].domain)
            choice[v++] = 0;
        more = v < reduced->variable_count;
    }
}

static void check_reduction(const struct recipe *recipe, struct tally *tally)
{
    struct sbp_problem problem;
    struct sbp_reduction reduction;
    build_special(recipe, &problem);
    struct truth truth = find_truth(&problem), reduced = {.cost = INFINITY, .least_peak = INFINITY};
    assert_int_equal(sbp_reduction_make(&problem, &reduction), SBP_OK);
    if (!reduction.is_forbidden) {
        reduced = find_truth(&reduction.problem);
        check_choices(recipe, &reduction);
        tally->variables_before += problem.variable_count;
        tally->variables_after += reduction.problem.variable_count - 1;
    }
    /* Below the capacity peaks are not kept: points at which all fits are dropped. */
    const double peak = fmax(truth.least_peak, problem.capacity),
                 reduced_peak = fmax(reduced.least_peak, problem.capacity);
    if (!is_close(truth.cost, reduced.cost) ||
        (problem.capacity < INFINITY && !is_close(peak, reduced_peak)) ||
        (truth.least_peak < INFINITY) != (reduced.least_peak < INFINITY)) {
        print_problem(recipe, &problem, "reduction");
        fail_msg("best cost %.17g, reduced %.17g; least peak %.17g, reduced %.17g", truth.cost,
                 reduced.cost, truth.least_peak, reduced.least_peak);
    }
    tally->feasible += truth.cost < INFINITY;
    tally->infeasible += !(truth.cost < INFINITY) && truth.least_peak < INFINITY;
    tally->forbidden += !(truth.least_peak < INFINITY);
    truth_free(&truth);
    truth_free(&reduced);
    sbp_reduction_free(&reduction);
    sbp_problem_free(&problem);
}

static void test_same_truth(void **state)
{
    (void)state;
    struct tally tally = {0};
    for (uint64_t seed = 0; seed < PROBLEMS; seed++) {
        const struct recipe recipe = draw_recipe(seed);
        check_reduction(&recipe, &tally);
    }
    printf(
        "%d problems of seeds 0 on: %d feasible, %d over capacity, %d forbidden; %.0f variables, "
        "%.0f reduced\n",
        PROBLEMS, tally.feasible, tally.infeasible, tally.forbidden, tally.variables_before,
        tally.variables_after);
    assert_true(tally.feasible > 0 && tally.infeasible > 0 && tally.forbidden > 0);
    assert_true(tally.variables_after < 0.8 * tally.variables_before);
}

/* --- solvers behind it --- */

static void check_answer(const char *name, const struct recipe *recipe,
                         const struct sbp_problem *problem, const struct truth *truth)
{
    const struct sbp_solver_options options = {.seed = recipe->seed, .max_evaluations = 100000};
    struct sbp_solution solution;
    const struct sbp_solver *used;
    struct sbp_diag diag = {0};
    assert_int_equal(sbp_solver_solve_reduced(name == NULL ? NULL : sbp_solver_find(name), problem,
                                              &options, &solution, &used, &diag),
                     SBP_OK);
    const bool has = solution.choice != NULL;
    const bool proved =
        solution.status == SBP_PLAN_OPTIMAL || solution.status == SBP_PLAN_INFEASIBLE;
    const double shortfall =
        truth->least_peak < INFINITY ? truth->least_peak - problem->capacity : 0;
    if ((has && (!is_close(solution.cost, plain_cost(problem, solution.choice)) ||
                 !sbp_problem_fits(problem, plain_peak(problem, solution.choice)))) ||
        (truth->cost < INFINITY &&
         solution.lower_bound > truth->cost + CLOSE * (1 + fabs(truth->cost))) ||
        (proved && !is_close(solution.cost, truth->cost)) || (name == NULL && !proved) ||
        (solution.status == SBP_PLAN_INFEASIBLE &&
         fabs(solution.shortfall - shortfall) > 1e-6 * (1 + shortfall))) {
        print_problem(recipe, problem, used->name);
        fail_msg("%s: %s, cost %.17g (enumerated %.17g), bound %.17g, shortfall %.17g (%.17g)",
                 used->name, sbp_solver_status_name(solution.status), solution.cost, truth->cost,
                 solution.lower_bound, solution.shortfall, shortfall);
    }
    sbp_solver_solution_free(&solution);
}

static void test_solvers_behind(void **state)
{
    (void)state;
    static const char *const names[] = {NULL, "exhaustive", "dual", "coordinate-descent",
                                        "metropolis-hastings"};
    for (uint64_t seed = 0; seed < SOLVED; seed++) {
        const struct recipe recipe = draw_recipe(seed);
        struct sbp_problem problem;
        build_special(&recipe, &problem);
        struct truth truth = find_truth(&problem);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            check_answer(names[i], &recipe, &problem, &truth);
        truth_free(&truth);
        sbp_problem_free(&problem);
    }
}

/* --- problems that misled it --- */

/* Adds a variable; usages NULL: it uses nothing. */
static void add(struct sbp_problem *problem, int domain, const double *costs, const double *usages)
{
    const struct sbp_interval all = {0, 10};
    const int v = sbp_problem_add_variable(problem, "v", domain, usages != NULL, &all);
    assert_true(v >= 0);
    memcpy(problem->variable[v].cost, costs, (size_t)domain * sizeof *costs);
    if (usages != NULL)
        memcpy(problem->variable[v].usage, usages, (size_t)domain * sizeof *usages);
}

static void connect(struct sbp_problem *problem, int a, int b, const double *costs)
{
    bool transposed;
    double *table = sbp_problem_edge_table(problem, a, b, &transposed);
    assert_true(table != NULL && !transposed);
    memcpy(table, costs,
           (size_t)problem->variable[a].domain * (size_t)problem->variable[b].domain *
               sizeof *table);
}

/* Equal entries in two shapes: 2 x 6 and 3 x 4. */
static void make_shapes(struct sbp_problem *problem)
{
    static const double twelve[] = {78, 27, 58, 64, 91, 61, 91, 66, 46, 93, 58, 93};
    problem->capacity = 80;
    add(problem, 2, (const double[]){0, 1}, (const double[]){10, 22});
    add(problem, 6, (const double[]){4, 8, 1, 5, 1, 11}, (const double[]){14, 28, 12, 14, 8, 8});
    add(problem, 3, (const double[]){11, 16, 20}, (const double[]){20, 32, 42});
    add(problem, 4, (const double[]){12, 1, 10, 8}, (const double[]){9, 5, 50, 43});
    connect(problem, 0, 1, twelve);
    connect(problem, 2, 3, twelve);
    connect(problem, 0, 2, (const double[]){70, 52, 49, 56, 31, 84});
    connect(problem, 1, 3, (const double[]){99, 19, 97, 6,  57, 82, 61, 29, 44, 75, 29, 18,
                                            10, 4,  96, 86, 12, 6,  98, 61, 50, 70, 41, 32});
}

/* A dear row that would hide what is off in a cheap one. */
static void make_hidden(struct sbp_problem *problem)
{
    add(problem, 2, (const double[]){0, 0}, NULL);
    add(problem, 2, (const double[]){1, 0}, NULL);
    connect(problem, 0, 1, (const double[]){1e13, 1e13, 0, 5});
}

/* An odd cycle of two groups of values, of which none may meet itself, beside what costs less than
 * nothing. */
static void make_forbidden(struct sbp_problem *problem)
{
    double table[16];
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            table[4 * i + j] = i % 2 == j % 2 ? SBP_FORBIDDEN : i + j;
    for (int v = 0; v < 3; v++)
        add(problem, 4, (const double[]){0, 0, 0, 0}, NULL);
    add(problem, 1, (const double[]){-1000}, NULL);
    connect(problem, 0, 1, table);
    connect(problem, 1, 2, table);
    connect(problem, 0, 2, table);
}

static void test_misleading(void **state)
{
    static void (*const makers[])(struct sbp_problem *) = {make_shapes, make_hidden,
                                                           make_forbidden};
    static const char *const names[] = {NULL, "exhaustive", "dual"};
    const struct recipe recipe = {.seed = 1};
    (void)state;
    for (size_t m = 0; m < sizeof makers / sizeof *makers; m++) {
        struct sbp_problem problem;
        assert_int_equal(sbp_problem_init(&problem, 4, 4), SBP_OK);
        makers[m](&problem);
        struct truth truth = find_truth(&problem);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            check_answer(names[i], &recipe, &problem, &truth);
        truth_free(&truth);
        sbp_problem_free(&problem);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_truth),
        cmocka_unit_test(test_solvers_behind),
        cmocka_unit_test(test_misleading),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
