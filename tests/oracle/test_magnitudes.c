/* Solvers that prove their answers, on random problems whose costs and usages lie between 10^-6 and
 * 10^12, against plain enumeration. A choice a tiny part dearer than the best counts as wrong,
 * however large other entries are. Seeds are printed. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "planner/solvers/solver.h"
#include "random_problem.h"
#include "tests/support/unit.h"

enum { PROBLEMS = 1800 };

/* --- problems --- */

static double draw_magnitude(struct sbp_random *random)
{
    return pow(10, 18 * sbp_random_unit(random) - 6);
}

/* How the entries of a problem are spread. */
enum spread { ANY, ONE_LARGE, MANY_LARGE, EITHER_SIGN, SPREADS };

static double respread(struct sbp_random *random, enum spread spread, double cost)
{
    if (cost >= SBP_FORBIDDEN)
        return sbp_random_below(random, 4) == 0 ? INFINITY : cost;
    const double small = 0.01 * (1 + fabs(cost));
    if (spread == ANY)
        return sbp_random_below(random, 8) == 0 ? 0 : draw_magnitude(random);
    const double large = sbp_random_below(random, spread == ONE_LARGE ? 16 : 3) == 0
                             ? draw_magnitude(random)
                             : small;
    return spread == EITHER_SIGN && sbp_random_below(random, 2) == 0 ? -small : large;
}

static void respread_costs(struct sbp_problem *problem, struct sbp_random *random,
                           enum spread spread)
{
    for (int v = 0; v < problem->variable_count; v++)
        for (int k = 0; k < problem->variable[v].domain; k++)
            problem->variable[v].cost[k] = respread(random, spread, problem->variable[v].cost[k]);
    for (int e = 0; e < problem->edge_count; e++) {
        const size_t entries = sbp_problem_entries(problem, &problem->edge[e]);
        for (size_t i = 0; i < entries; i++)
            problem->edge[e].cost[i] = respread(random, spread, problem->edge[e].cost[i]);
    }
}

/* Spreads usages too, and sets the capacity by the peak of a random choice. */
static void respread_usages(struct sbp_problem *problem, struct sbp_random *random, bool wide)
{
    int choice[MOST_VARIABLES];
    for (int v = 0; v < problem->variable_count; v++) {
        const struct sbp_variable *variable = &problem->variable[v];
        choice[v] = (int)sbp_random_below(random, (uint64_t)variable->domain);
        for (int i = 0; i < variable->interval_count * variable->domain; i++)
            if (wide && variable->usage[i] > 0)
                variable->usage[i] = draw_magnitude(random);
    }
    static const double shares[] = {0.5, 0.999999, 1, 1, 1, 1.000001, 1.5, 3};
    if (problem->capacity < INFINITY)
        problem->capacity = plain_peak(problem, choice) * shares[sbp_random_below(random, 8)];
}

static void build_spread(const struct recipe *recipe, struct sbp_problem *problem)
{
    struct sbp_random random;
    sbp_random_seed(&random, recipe->seed ^ UINT64_C(0x59ead));
    build(recipe, problem);
    respread_costs(problem, &random, (enum spread)(recipe->seed / 18 % SPREADS));
    respread_usages(problem, &random, recipe->seed / 72 % 2 == 0);
}

/* --- comparison --- */

/* What a choice's cost may be off by: a share of it, and of its parts where they cancel out. */
static double allowance(const struct sbp_problem *problem, const int *choice)
{
    double sum = 0, size = 0;
    for (int v = 0; v < problem->variable_count; v++) {
        sum += problem->variable[v].cost[choice[v]];
        size += fabs(problem->variable[v].cost[choice[v]]);
    }
    for (int e = 0; e < problem->edge_count; e++) {
        const struct sbp_edge *edge = &problem->edge[e];
        const double cost =
            edge->cost[choice[edge->a] * problem->variable[edge->b].domain + choice[edge->b]];
        sum += cost;
        size += fabs(cost);
    }
    return 2e-9 * fabs(sum) + 1e-11 * size;
}

/* Whether the answer is what it says it is, and the best one where the solver proves. */
static bool is_right(const struct sbp_problem *problem, const struct truth *truth,
                     const struct sbp_solution *solution, bool proves)
{
    if (solution->status == SBP_PLAN_TIME_LIMIT)
        return !proves && solution->choice == NULL && solution->lower_bound <= truth->cost;
    if (solution->choice == NULL) {
        const double shortfall =
            truth->least_peak < INFINITY ? truth->least_peak - problem->capacity : 0;
        return !(truth->cost < INFINITY) && solution->status == SBP_PLAN_INFEASIBLE &&
               fabs(solution->shortfall - shortfall) <= 1e-6 * truth->least_peak;
    }
    const double cost = plain_cost(problem, solution->choice);
    const double allowed = allowance(problem, solution->choice);
    const bool is_best = solution->status == SBP_PLAN_OPTIMAL;
    return (is_best || (!proves && solution->status == SBP_PLAN_FEASIBLE)) &&
           (!is_best || cost <= truth->cost + allowed) &&
           solution->lower_bound <= truth->cost + allowed &&
           fabs(solution->cost - cost) <= allowed &&
           plain_peak(problem, solution->choice) <= problem->capacity * (1 + 1e-11);
}

static bool check(const struct sbp_solver *solver, const struct recipe *recipe,
                  const struct sbp_problem *problem, const struct truth *truth, bool proves)
{
    const int64_t evaluations = proves ? 0 : strcmp(solver->name, "ilp") == 0 ? 2 : 3000;
    const struct sbp_solver_options options = {
        .seed = recipe->seed, .restarts = proves ? 0 : 10, .max_evaluations = evaluations};
    struct sbp_solution solution;
    struct sbp_diag diag = {0};
    const enum sbp_status status = solver->solve(problem, &options, &solution, &diag);
    const bool right = status == SBP_OK && is_right(problem, truth, &solution, proves);
    if (status != SBP_OK) {
        fprintf(stderr, "seed %" PRIu64 ": %s\n", recipe->seed, diag.text);
        return false;
    }
    if (!right) {
        print_problem(recipe, problem, solver->name);
        fprintf(stderr,
                "%s, cost %.17g (enumerated %.17g), bound %.17g, shortfall %.17g (least peak "
                "%.17g)\n",
                sbp_solver_status_name(solution.status), solution.cost, truth->cost,
                solution.lower_bound, solution.shortfall, truth->least_peak);
    }
    sbp_solver_solution_free(&solution);
    return right;
}

/* Whether this build has the solver: a stub refuses everything. */
static bool is_built(const struct sbp_solver *solver)
{
    const struct sbp_solver_options options = {0};
    struct sbp_problem problem;
    struct sbp_solution solution;
    struct sbp_diag diag = {0};
    assert_int_equal(sbp_problem_init(&problem, 0, 0), SBP_OK);
    const bool built = solver->solve(&problem, &options, &solution, &diag) == SBP_OK;
    if (built)
        sbp_solver_solution_free(&solution);
    sbp_problem_free(&problem);
    return built;
}

static void compare(const char *name, bool proves)
{
    const struct sbp_solver *solver = sbp_solver_find(name);
    int wrong = 0, feasible = 0, infeasible = 0;
    if (!is_built(solver)) {
        printf("skipped: this build has no GLPK\n");
        skip();
    }
    for (uint64_t seed = 0; seed < PROBLEMS; seed++) {
        const struct recipe recipe = draw_recipe(seed);
        struct sbp_problem problem;
        build_spread(&recipe, &problem);
        struct truth truth = find_truth(&problem);
        wrong += !check(solver, &recipe, &problem, &truth, proves);
        feasible += truth.cost < INFINITY;
        infeasible += !(truth.cost < INFINITY);
        truth_free(&truth);
        sbp_problem_free(&problem);
    }
    printf("%s: seeds 0 on: %d wrong, %d problems with an answer, %d without\n", name, wrong,
           feasible, infeasible);
    assert_true(feasible > PROBLEMS / 4 && infeasible > PROBLEMS / 20);
    assert_int_equal(wrong, 0);
}

static void test_exact(void **state)
{
    (void)state;
    compare("exact", true);
}

static void test_exhaustive(void **state)
{
    (void)state;
    compare("exhaustive", true);
}

static void test_ilp(void **state)
{
    (void)state;
    compare("ilp", true);
    compare("ilp", false); /* stopped early, with the bound that holds by then */
}

static void test_heuristics(void **state)
{
    (void)state;
    compare("coordinate-descent", false);
    compare("metropolis-hastings", false);
    compare("random", false);
}

/* --- wider problems, where a first choice is seldom the best: ilp against exact --- */

enum { WIDE_PROBLEMS = 80, WIDE_VARIABLES = 16, WIDE_DOMAIN = 5 };

static double draw_wide_cost(struct sbp_random *random)
{
    const uint64_t kind = sbp_random_below(random, 16);
    return kind == 0 ? SBP_FORBIDDEN : kind == 1 ? draw_magnitude(random) : sbp_random_unit(random);
}

static void build_wide(uint64_t seed, struct sbp_problem *problem)
{
    const struct sbp_interval always = {0, 1};
    struct sbp_random random;
    bool transposed;
    sbp_random_seed(&random, seed);
    assert_int_equal(sbp_problem_init(problem, WIDE_VARIABLES, 0), SBP_OK);
    for (int v = 0; v < WIDE_VARIABLES; v++) {
        assert_int_equal(sbp_problem_add_variable(problem, "v", WIDE_DOMAIN, 1, &always), v);
        for (int k = 0; k < WIDE_DOMAIN; k++) {
            problem->variable[v].cost[k] = draw_wide_cost(&random);
            problem->variable[v].usage[k] = (double)sbp_random_below(&random, 100);
        }
        for (int link = 0; link < 2 && v > 0; link++) {
            const int other = link == 0 ? v - 1 : (int)sbp_random_below(&random, (uint64_t)v);
            double *table = sbp_problem_edge_table(problem, other, v, &transposed);
            assert_non_null(table);
            for (int i = 0; i < WIDE_DOMAIN * WIDE_DOMAIN; i++)
                table[i] = draw_wide_cost(&random);
        }
    }
    if (seed % 3 > 0)
        problem->capacity = 400 + (double)sbp_random_below(&random, 400);
}

static void test_ilp_on_wide_problems(void **state)
{
    (void)state;
    int wrong = 0;
    if (!is_built(sbp_solver_find("ilp"))) {
        printf("skipped: this build has no GLPK\n");
        skip();
    }
    for (uint64_t seed = 0; seed < WIDE_PROBLEMS; seed++) {
        const struct sbp_solver_options options = {.seed = seed};
        struct sbp_problem problem;
        struct sbp_solution exact, ilp;
        struct sbp_diag diag = {0};
        build_wide(seed, &problem);
        assert_int_equal(sbp_solver_find("exact")->solve(&problem, &options, &exact, &diag),
                         SBP_OK);
        assert_int_equal(sbp_solver_find("ilp")->solve(&problem, &options, &ilp, &diag), SBP_OK);
        if (ilp.status != exact.status ||
            (exact.choice != NULL && fabs(ilp.cost - exact.cost) > 2e-9 * fabs(exact.cost))) {
            fprintf(stderr, "seed %" PRIu64 ": ilp %s %.17g, exact %s %.17g\n", seed,
                    sbp_solver_status_name(ilp.status), ilp.cost,
                    sbp_solver_status_name(exact.status), exact.cost);
            wrong++;
        }
        sbp_solver_solution_free(&exact);
        sbp_solver_solution_free(&ilp);
        sbp_problem_free(&problem);
    }
    printf("ilp: seeds 0 on: %d of %d wide problems wrong\n", wrong, WIDE_PROBLEMS);
    assert_int_equal(wrong, 0);
}

/* A table of one large entry, from which everything was once scaled. */
static void test_one_large_entry(void **state)
{
    (void)state;
    static const char *const names[] = {"exact", "exhaustive", "ilp"};
    struct sbp_problem problem;
    assert_int_equal(sbp_problem_init(&problem, 1, 0), SBP_OK);
    assert_int_equal(sbp_problem_add_variable(&problem, "v", 3, 0, NULL), 0);
    memcpy(problem.variable[0].cost, (const double[]){0.02, 1e9, 0.01}, 3 * sizeof(double));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct sbp_solver_options options = {0};
        struct sbp_solution solution;
        struct sbp_diag diag = {0};
        if (!is_built(sbp_solver_find(names[i])))
            continue;
        assert_int_equal(sbp_solver_find(names[i])->solve(&problem, &options, &solution, &diag),
                         SBP_OK);
        assert_int_equal(solution.status, SBP_PLAN_OPTIMAL);
        assert_true(solution.cost == 0.01);
        sbp_solver_solution_free(&solution);
    }
    sbp_problem_free(&problem);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_exhaustive),
        cmocka_unit_test(test_ilp),
        cmocka_unit_test(test_heuristics),
        cmocka_unit_test(test_ilp_on_wide_problems),
        cmocka_unit_test(test_one_large_entry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
