/* Every solver against an enumerator that shares no code with them: plain recursion over all
 * assignments, costs and usages summed here. Random problems of many shapes, seeds printed. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math/random.h"
#include "perceptron.h"
#include "planner/solvers/solver.h"
#include "random_problem.h"
#include "tests/support/unit.h"

enum { PROBLEMS = 1200 };

/* --- comparison --- */

/* The answer is what it says it is: a feasible choice at its cost, or none. */
static bool is_consistent(const struct sbp_problem *problem, const struct sbp_solution *solution)
{
    if (solution->choice == NULL)
        return !(solution->cost < INFINITY) &&
               (solution->status == SBP_PLAN_INFEASIBLE || solution->status == SBP_PLAN_TIME_LIMIT);
    const double cost = plain_cost(problem, solution->choice);
    const double peak = plain_peak(problem, solution->choice);
    return (solution->status == SBP_PLAN_OPTIMAL || solution->status == SBP_PLAN_FEASIBLE) &&
           is_close(cost, solution->cost) && peak <= problem->capacity * (1 + 1e-9) &&
           solution->cost == sbp_problem_cost(problem, solution->choice) &&
           solution->lower_bound <= cost + CLOSE * (1 + fabs(cost)) &&
           is_close(peak, sbp_problem_peak_usage(problem, solution->choice));
}

static bool is_proved(const struct sbp_problem *problem, const struct truth *truth,
                      const struct sbp_solution *solution)
{
    if (truth->cost < INFINITY)
        return solution->status == SBP_PLAN_OPTIMAL && is_close(solution->cost, truth->cost);
    const double shortfall =
        truth->least_peak < INFINITY ? truth->least_peak - problem->capacity : 0;
    return solution->status == SBP_PLAN_INFEASIBLE &&
           fabs(solution->shortfall - shortfall) <= 1e-6 * (1 + shortfall);
}

static void run(const char *name, const struct sbp_problem *problem,
                const struct sbp_solver_options *options, struct sbp_solution *solution)
{
    struct sbp_diag diag = {0};
    const struct sbp_solver *solver = sbp_solver_find(name);
    assert_non_null(solver);
    const enum sbp_status status = solver->solve(problem, options, solution, &diag);
    if (status != SBP_OK)
        fail_msg("%s: %s: %s", name, sbp_status_name(status), diag.text);
}

/* Whether this build has the solver: a stub refuses everything. */
static bool is_built(const char *name)
{
    const struct sbp_solver_options options = {0};
    struct sbp_problem problem;
    struct sbp_solution solution;
    struct sbp_diag diag = {0};
    assert_int_equal(sbp_problem_init(&problem, 1, 0), SBP_OK);
    assert_int_equal(sbp_problem_add_variable(&problem, "v", 2, 0, NULL), 0);
    const enum sbp_status status =
        sbp_solver_find(name)->solve(&problem, &options, &solution, &diag);
    if (status == SBP_OK)
        sbp_solver_solution_free(&solution);
    sbp_problem_free(&problem);
    return status == SBP_OK;
}

static void check_exact_answer(const char *name, const struct recipe *recipe,
                               const struct sbp_problem *problem, const struct truth *truth)
{
    const struct sbp_solver_options options = {.seed = recipe->seed};
    struct sbp_solution solution;
    run(name, problem, &options, &solution);
    if (!is_consistent(problem, &solution) || !is_proved(problem, truth, &solution)) {
        print_problem(recipe, problem, name);
        fail_msg("%s: %s, cost %.17g (enumerated %.17g), bound %.17g, shortfall %.17g (least peak "
                 "%.17g)",
                 name, sbp_solver_status_name(solution.status), solution.cost, truth->cost,
                 solution.lower_bound, solution.shortfall, truth->least_peak);
    }
    if (strcmp(name, "exhaustive") == 0)
        assert_true((double)solution.evaluations == truth->assignments);
    sbp_solver_solution_free(&solution);
}

/* With a goal below the optimum nothing is found and the bound is no higher than the optimum; with
 * one above it the optimum is. */
static void check_goal(const char *name, const struct recipe *recipe,
                       const struct sbp_problem *problem, const struct truth *truth, double share)
{
    const double goal = truth->cost + share * (1 + fabs(truth->cost));
    const struct sbp_solver_options options = {.seed = recipe->seed, .upper_bound = goal};
    struct sbp_solution solution;
    if (!(truth->cost < INFINITY) || !(fabs(goal) > 0))
        return;
    run(name, problem, &options, &solution);
    const bool right =
        share > 0 ? solution.status == SBP_PLAN_OPTIMAL && is_close(solution.cost, truth->cost)
                  : solution.choice == NULL && solution.status == SBP_PLAN_NONE_CHEAPER &&
                        solution.lower_bound >= goal &&
                        solution.lower_bound <= truth->cost + CLOSE * (1 + fabs(truth->cost));
    if (!right) {
        print_problem(recipe, problem, name);
        fail_msg("%s below %.17g: %s, cost %.17g (enumerated %.17g), bound %.17g", name, goal,
                 sbp_solver_status_name(solution.status), solution.cost, truth->cost,
                 solution.lower_bound);
    }
    sbp_solver_solution_free(&solution);
}

/* Returns whether the optimum was found. */
static bool check_heuristic(const char *name, const struct recipe *recipe,
                            const struct sbp_problem *problem, const struct truth *truth)
{
    const struct sbp_solver_options options = {
        .seed = recipe->seed, .restarts = 10, .max_evaluations = 3000};
    struct sbp_solution solution;
    run(name, problem, &options, &solution);
    if (!is_consistent(problem, &solution) ||
        solution.cost < truth->cost - CLOSE * (1 + fabs(truth->cost)) ||
        (solution.status == SBP_PLAN_OPTIMAL && !is_close(solution.cost, truth->cost)) ||
        (solution.status == SBP_PLAN_INFEASIBLE && truth->cost < INFINITY) ||
        (truth->cost < INFINITY &&
         solution.lower_bound > truth->cost + CLOSE * (1 + fabs(truth->cost)))) {
        print_problem(recipe, problem, name);
        fail_msg("%s: %s, cost %.17g (enumerated %.17g), bound %.17g", name,
                 sbp_solver_status_name(solution.status), solution.cost, truth->cost,
                 solution.lower_bound);
    }
    const bool found = truth->cost < INFINITY && is_close(solution.cost, truth->cost);
    sbp_solver_solution_free(&solution);
    return found;
}

struct tally {
    int problems, feasible, infeasible, forbidden;
};

static void count(struct tally *tally, const struct truth *truth)
{
    tally->problems++;
    tally->feasible += truth->cost < INFINITY;
    tally->infeasible += !(truth->cost < INFINITY) && truth->least_peak < INFINITY;
    tally->forbidden += !(truth->least_peak < INFINITY);
}

static void compare_all(const char *name, uint64_t problems)
{
    struct tally tally = {0};
    for (uint64_t seed = 0; seed < problems; seed++) {
        const struct recipe recipe = draw_recipe(seed);
        struct sbp_problem problem;
        build(&recipe, &problem);
        struct truth truth = find_truth(&problem);
        check_exact_answer(name, &recipe, &problem, &truth);
        for (int i = 0; i < 4 && strcmp(name, "exhaustive") != 0; i++)
            check_goal(name, &recipe, &problem, &truth,
                       (const double[]){-0.5, -1e-3, 1e-3, 0.5}[i]);
        count(&tally, &truth);
        truth_free(&truth);
        sbp_problem_free(&problem);
    }
    printf("%s: %d problems of seeds 0 on: %d feasible, %d over capacity, %d forbidden\n", name,
           tally.problems, tally.feasible, tally.infeasible, tally.forbidden);
    assert_true(tally.feasible > 0 && tally.infeasible > 0 && tally.forbidden > 0);
}

static void test_exact(void **state)
{
    (void)state;
    compare_all("exact", PROBLEMS);
}

static void test_exhaustive(void **state)
{
    (void)state;
    compare_all("exhaustive", PROBLEMS);
}

static void test_ilp(void **state)
{
    (void)state;
    if (!is_built("ilp")) {
        printf("skipped: this build has no GLPK\n");
        skip();
    }
    compare_all("ilp", PROBLEMS / 2);
}

static void compare_heuristic(const char *name, double least_share)
{
    int found = 0, feasible = 0;
    for (uint64_t seed = 0; seed < PROBLEMS; seed++) {
        const struct recipe recipe = draw_recipe(seed);
        struct sbp_problem problem;
        build(&recipe, &problem);
        struct truth truth = find_truth(&problem);
        found += check_heuristic(name, &recipe, &problem, &truth);
        feasible += truth.cost < INFINITY;
        truth_free(&truth);
        sbp_problem_free(&problem);
    }
    printf("%s: the optimum in %d of %d feasible problems\n", name, found, feasible);
    assert_true(found >= least_share * feasible);
}

static void test_random(void **state)
{
    (void)state;
    compare_heuristic("random", 0.5);
}

static void test_coordinate_descent(void **state)
{
    (void)state;
    compare_heuristic("coordinate-descent", 0.8);
}

static void test_dual(void **state)
{
    (void)state;
    compare_heuristic("dual", 0.9);
}

/* The solver finds nothing below the optimum, and says so or that it ended before; its bound holds
 * either way. */
static void check_unreached(const struct recipe *recipe, const struct sbp_problem *problem,
                            const struct truth *truth)
{
    const double goal = truth->cost - 0.5 * (1 + fabs(truth->cost));
    const struct sbp_solver_options options = {.seed = recipe->seed, .upper_bound = goal};
    struct sbp_solution solution;
    if (!(truth->cost < INFINITY) || goal == 0) /* 0: none */
        return;
    run("dual", problem, &options, &solution);
    const bool ended = solution.status == SBP_PLAN_TIME_LIMIT ||
                       (solution.status == SBP_PLAN_NONE_CHEAPER && solution.lower_bound >= goal);
    if (!ended || solution.choice != NULL ||
        solution.lower_bound > truth->cost + CLOSE * (1 + fabs(truth->cost))) {
        print_problem(recipe, problem, "dual");
        fail_msg("dual below %.17g: %s, bound %.17g (enumerated %.17g)", goal,
                 sbp_solver_status_name(solution.status), solution.lower_bound, truth->cost);
    }
    sbp_solver_solution_free(&solution);
}

/* Without a limit it divides what bounds leave open: what it proves is so, and it proves most. */
static void test_dual_proves(void **state)
{
    (void)state;
    int proved = 0, feasible = 0;
    for (uint64_t seed = 0; seed < PROBLEMS; seed++) {
        const struct recipe recipe = draw_recipe(seed);
        struct sbp_problem problem;
        build(&recipe, &problem);
        struct truth truth = find_truth(&problem);
        check_unreached(&recipe, &problem, &truth);
        const struct sbp_solver_options options = {.seed = seed};
        struct sbp_solution solution;
        run("dual", &problem, &options, &solution);
        const bool right = solution.status == SBP_PLAN_OPTIMAL ? is_close(solution.cost, truth.cost)
                           : solution.status == SBP_PLAN_INFEASIBLE ? !(truth.cost < INFINITY)
                                                                    : true;
        if (!right || !is_consistent(&problem, &solution) ||
            (truth.cost < INFINITY &&
             solution.lower_bound > truth.cost + CLOSE * (1 + fabs(truth.cost)))) {
            print_problem(&recipe, &problem, "dual");
            fail_msg("dual: %s, cost %.17g (enumerated %.17g), bound %.17g",
                     sbp_solver_status_name(solution.status), solution.cost, truth.cost,
                     solution.lower_bound);
        }
        feasible += truth.cost < INFINITY;
        proved += solution.status == SBP_PLAN_OPTIMAL;
        sbp_solver_solution_free(&solution);
        truth_free(&truth);
        sbp_problem_free(&problem);
    }
    printf("dual: %d of %d feasible problems proved\n", proved, feasible);
    assert_true(proved >= 0.98 * feasible);
}

static void test_metropolis_hastings(void **state)
{
    (void)state;
    compare_heuristic("metropolis-hastings", 0.8);
}

/* --- wider problems: no enumeration, but two solvers that share no method --- */

static void test_exact_against_exhaustive_on_long_domains(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct sbp_random random;
        sbp_random_seed(&random, seed);
        const struct recipe recipe = {.seed = seed, .forbidden = 0.05, .whole = seed % 2 == 0};
        struct sbp_problem problem;
        assert_int_equal(sbp_problem_init(&problem, 4, 4), SBP_OK);
        const struct sbp_interval always = {0, 1};
        for (int v = 0; v < 4; v++) {
            const int domain = 10 + (int)sbp_random_below(&random, 20);
            assert_int_equal(sbp_problem_add_variable(&problem, "v", domain, 1, &always), v);
            for (int k = 0; k < domain; k++) {
                problem.variable[v].cost[k] = draw_cost(&random, &recipe);
                problem.variable[v].usage[k] = draw_usage(&random, &recipe);
            }
            if (v > 0)
                add_edge(&problem, &random, &recipe, v - 1, v);
        }
        if (seed % 3 == 0)
            add_edge(&problem, &random, &recipe, 0, 3);
        problem.capacity = (double)sbp_random_below(&random, 20);
        const struct sbp_solver_options options = {.seed = seed};
        struct sbp_solution exact, all;
        run("exact", &problem, &options, &exact);
        run("exhaustive", &problem, &options, &all);
        if (exact.status != all.status || !is_close(exact.cost, all.cost))
            fail_msg("seed %" PRIu64 ": exact %s %.17g, exhaustive %s %.17g", seed,
                     sbp_solver_status_name(exact.status), exact.cost,
                     sbp_solver_status_name(all.status), all.cost);
        sbp_solver_solution_free(&exact);
        sbp_solver_solution_free(&all);
        sbp_problem_free(&problem);
    }
}

static double solve_perceptron(const char *name, const struct sbp_problem *problem, uint64_t seed)
{
    const struct sbp_solver_options options = {.seed = seed};
    struct sbp_solution solution;
    run(name, problem, &options, &solution);
    assert_true(is_consistent(problem, &solution));
    const double cost = solution.cost;
    sbp_solver_solution_free(&solution);
    return cost;
}

static void check_perceptron(int log2_devices, double batch)
{
    struct sbp_problem problem;
    assert_int_equal(perceptron_build(&problem, log2_devices, batch), SBP_OK);
    const double optimum = solve_perceptron("exact", &problem, 0);
    assert_true(is_close(optimum, solve_perceptron("exhaustive", &problem, 0)));
    for (uint64_t seed = 0; seed < 8; seed++) {
        const double descent = solve_perceptron("coordinate-descent", &problem, seed);
        const double walk = solve_perceptron("metropolis-hastings", &problem, seed);
        if (!is_close(descent, optimum) || walk > 1.01 * optimum)
            fail_msg("2^%d devices, batch %g, seed %" PRIu64 ": optimum %.17g, coordinate-descent "
                     "%.17g, metropolis-hastings %.17g",
                     log2_devices, batch, seed, optimum, descent, walk);
    }
    sbp_problem_free(&problem);
}

static void test_perceptron(void **state)
{
    (void)state;
    check_perceptron(7, 1024);
    check_perceptron(7, 32768);
    check_perceptron(12, 1024);
    check_perceptron(12, 32768);
}

/* Optima of these two settings that were known before this code. */
static void test_perceptron_values(void **state)
{
    (void)state;
    static const struct {
        double batch, optimum_s;
    } known[] = {{1024, 2.4968192e-3}, {32768, 20.2808128e-3}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct sbp_problem problem;
        assert_int_equal(perceptron_build(&problem, 7, known[i].batch), SBP_OK);
        const double optimum = solve_perceptron("exact", &problem, 0);
        if (fabs(optimum - known[i].optimum_s) > 1e-12)
            fail_msg("batch %g: %.17g s, known %.17g s", known[i].batch, optimum,
                     known[i].optimum_s);
        sbp_problem_free(&problem);
    }
}

/* --- stopping, limits, determinism --- */

static void test_deterministic_and_curve(void **state)
{
    (void)state;
    struct sbp_problem problem;
    assert_int_equal(perceptron_build(&problem, 7, 1024), SBP_OK);
    for (const struct sbp_solver *solver = sbp_solvers; solver->name != NULL; solver++) {
        if (strcmp(solver->name, "ilp") == 0)
            continue; /* its curve is GLPK's business */
        const struct sbp_solver_options options = {.seed = 7};
        struct sbp_solution first, second;
        run(solver->name, &problem, &options, &first);
        run(solver->name, &problem, &options, &second);
        assert_true(first.cost == second.cost && first.evaluations == second.evaluations);
        assert_memory_equal(first.choice, second.choice, 4 * sizeof *first.choice);
        assert_in_range(first.curve_count, 1, SBP_CURVE_POINTS);
        for (int i = 1; i < first.curve_count; i++) {
            assert_true(first.curve[i].best < first.curve[i - 1].best);
            assert_true(first.curve[i].evaluations >= first.curve[i - 1].evaluations);
        }
        assert_true(is_close(first.curve[first.curve_count - 1].best, first.cost));
        sbp_solver_solution_free(&first);
        sbp_solver_solution_free(&second);
    }
    sbp_problem_free(&problem);
}

static void test_flag_stops(void **state)
{
    (void)state;
    static const atomic_int raised = 1;
    struct sbp_problem problem;
    assert_int_equal(perceptron_build(&problem, 12, 1024), SBP_OK);
    for (const struct sbp_solver *solver = sbp_solvers; solver->name != NULL; solver++) {
        if (!is_built(solver->name))
            continue;
        const struct sbp_solver_options options = {.stop = &raised};
        struct sbp_solution solution;
        run(solver->name, &problem, &options, &solution);
        if (!solution.stopped || !is_consistent(&problem, &solution))
            fail_msg("%s: %s, stopped %d", solver->name, sbp_solver_status_name(solution.status),
                     solution.stopped);
        sbp_solver_solution_free(&solution);
    }
    sbp_problem_free(&problem);
}

/* Nothing costs so little, which a heuristic comes to no end with of its own accord. */
static void test_vain_searches(void **state)
{
    (void)state;
    static const char *const names[] = {"coordinate-descent", "metropolis-hastings", "random"};
    struct sbp_problem problem;
    assert_int_equal(perceptron_build(&problem, 5, 1024), SBP_OK);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct sbp_solver_options options = {.upper_bound = 1e-12};
        struct sbp_solution solution;
        run(names[i], &problem, &options, &solution);
        if (solution.stopped || solution.choice != NULL || solution.status != SBP_PLAN_TIME_LIMIT)
            fail_msg("%s: %s, stopped %d", names[i], sbp_solver_status_name(solution.status),
                     solution.stopped);
        sbp_solver_solution_free(&solution);
    }
    sbp_problem_free(&problem);
}

static void test_evaluations_stop(void **state)
{
    (void)state;
    struct sbp_problem problem;
    assert_int_equal(perceptron_build(&problem, 12, 1024), SBP_OK);
    static const char *const names[] = {"exhaustive", "coordinate-descent", "metropolis-hastings",
                                        "random"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct sbp_solver_options options = {.max_evaluations = 20000};
        struct sbp_solution solution;
        run(names[i], &problem, &options, &solution);
        if (solution.choice == NULL || solution.evaluations > 20000 + 91)
            fail_msg("%s: %" PRId64 " evaluations of 20000", names[i], solution.evaluations);
        assert_true(is_consistent(&problem, &solution));
        sbp_solver_solution_free(&solution);
    }
    sbp_problem_free(&problem);
}

/* A dense graph is beyond exact and exhaustive, which say so before they begin. */
static void test_too_large_is_refused(void **state)
{
    (void)state;
    struct sbp_problem problem;
    assert_int_equal(sbp_problem_init(&problem, 0, 0), SBP_OK);
    for (int v = 0; v < 20; v++)
        assert_int_equal(sbp_problem_add_variable(&problem, "v", 10, 0, NULL), v);
    bool transposed;
    for (int v = 0; v < 20; v++)
        for (int u = 0; u < v; u++)
            assert_non_null(sbp_problem_edge_table(&problem, u, v, &transposed));
    static const char *const names[] = {"exact", "exhaustive"};
    for (size_t i = 0; i < 2; i++) {
        const struct sbp_solver_options options = {0};
        struct sbp_solution solution;
        struct sbp_diag diag = {0};
        assert_int_equal(sbp_solver_find(names[i])->solve(&problem, &options, &solution, &diag),
                         SBP_E_UNSUPPORTED);
        assert_non_null(strstr(diag.text, names[i]));
    }
    sbp_problem_free(&problem);
}

static void test_empty_problem(void **state)
{
    (void)state;
    struct sbp_problem problem;
    assert_int_equal(sbp_problem_init(&problem, 0, 0), SBP_OK);
    for (const struct sbp_solver *solver = sbp_solvers; solver->name != NULL; solver++) {
        if (!is_built(solver->name))
            continue;
        const struct sbp_solver_options options = {.max_evaluations = 10};
        struct sbp_solution solution;
        run(solver->name, &problem, &options, &solution);
        assert_int_equal(solution.status, SBP_PLAN_OPTIMAL);
        assert_true(solution.cost == 0);
        sbp_solver_solution_free(&solution);
    }
    sbp_problem_free(&problem);
}

static void test_names(void **state)
{
    (void)state;
    for (const struct sbp_solver *solver = sbp_solvers; solver->name != NULL; solver++)
        assert_ptr_equal(sbp_solver_find(solver->name), solver);
    assert_null(sbp_solver_find("simulated-annealing"));
    assert_string_equal(sbp_solver_status_name(SBP_PLAN_TIME_LIMIT), "time_limit");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_exhaustive),
        cmocka_unit_test(test_ilp),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_coordinate_descent),
        cmocka_unit_test(test_dual),
        cmocka_unit_test(test_dual_proves),
        cmocka_unit_test(test_metropolis_hastings),
        cmocka_unit_test(test_exact_against_exhaustive_on_long_domains),
        cmocka_unit_test(test_perceptron),
        cmocka_unit_test(test_perceptron_values),
        cmocka_unit_test(test_deterministic_and_curve),
        cmocka_unit_test(test_flag_stops),
        cmocka_unit_test(test_vain_searches),
        cmocka_unit_test(test_evaluations_stop),
        cmocka_unit_test(test_too_large_is_refused),
        cmocka_unit_test(test_empty_problem),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
