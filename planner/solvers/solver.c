#include "planner/solvers/solver.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "planner/limits.h"
#include "planner/reduction/reduction.h"
#include "planner/solvers/solver_run.h"

const struct sbp_solver sbp_solvers[] = {
    {"exact", "variable elimination with Pareto labels under a capacity; proves its answer",
     sbp_exact_solve},
    {"exhaustive", "every assignment, vectorised; proves its answer", sbp_exhaustive_solve},
    {"ilp", "GLPK on the linearised problem; proves its answer or gives a bound", sbp_ilp_solve},
    {"dual", "prices of usage over time; repairs, bounds and divides; for large problems",
     sbp_dual_solve},
    {"coordinate-descent", "best value of one variable at a time, restarted",
     sbp_coordinate_descent_solve},
    {"metropolis-hastings", "random changes of one variable, worse ones with small probability",
     sbp_metropolis_solve},
    {"random", "independent random assignments", sbp_coordinate_descent_random},
    {NULL, NULL, NULL},
};

const struct sbp_solver *sbp_solver_find(const char *name)
{
    for (const struct sbp_solver *solver = sbp_solvers; solver->name != NULL; solver++)
        if (strcmp(solver->name, name) == 0)
            return solver;
    return NULL;
}

/* Solves by `solver`; NULL: by exact, or by the solver of that name where exact refuses. */
static enum sbp_status solve_by(const struct sbp_solver *solver, const char *fallback,
                                const struct sbp_problem *problem,
                                const struct sbp_solver_options *options,
                                struct sbp_solution *solution, const struct sbp_solver **used,
                                struct sbp_diag *diag)
{
    const double start_s = sbp_clock_s();
    struct sbp_diag refusal = {0};
    *used = solver != NULL ? solver : sbp_solver_find("exact");
    enum sbp_status status = (*used)->solve(problem, options, solution, &refusal);
    if (status == SBP_E_UNSUPPORTED && solver == NULL) {
        const struct sbp_solver_options left =
            sbp_solver_options_left(*options, sbp_clock_s() - start_s, 0);
        *used = sbp_solver_find(fallback);
        refusal = (struct sbp_diag){0};
        status = (*used)->solve(problem, &left, solution, &refusal);
    }
    return status == SBP_OK ? SBP_OK : sbp_fail(diag, status, "%s", refusal.text);
}

enum sbp_status sbp_solver_solve(const struct sbp_solver *solver, const struct sbp_problem *problem,
                                 const struct sbp_solver_options *options,
                                 struct sbp_solution *solution, const struct sbp_solver **used,
                                 struct sbp_diag *diag)
{
    return solve_by(solver, "coordinate-descent", problem, options, solution, used, diag);
}

/* Makes the solution of a reduced problem one of the whole. upper_bound: the call's; 0: none. */
static enum sbp_status complete(const struct sbp_reduction *reduction, double start_s,
                                double upper_bound, struct sbp_solution *solution)
{
    const double before_s = sbp_clock_s() - start_s - solution->wall_s;
    for (int i = 0; i < solution->curve_count; i++)
        solution->curve[i].elapsed_s += before_s;
    solution->wall_s = sbp_clock_s() - start_s;
    if (isfinite(solution->lower_bound))
        solution->lower_bound -= SBP_PROBLEM_ROUND_OFF * fabs(solution->lower_bound);
    if (solution->status == SBP_PLAN_NONE_CHEAPER)
        solution->lower_bound = fmax(solution->lower_bound, upper_bound);
    if (solution->choice == NULL)
        return SBP_OK;
    int *choice = calloc((size_t)reduction->source->variable_count + 1, sizeof *choice);
    if (choice == NULL)
        return SBP_E_MEMORY;
    sbp_reduction_complete(reduction, solution->choice, choice);
    free(solution->choice);
    solution->choice = choice;
    solution->cost = sbp_problem_cost(reduction->source, choice);
    if (solution->cost >= SBP_FORBIDDEN ||
        !sbp_problem_fits(reduction->source, sbp_problem_peak_usage(reduction->source, choice)))
        return SBP_E_INTERNAL;
    if (solution->status == SBP_PLAN_OPTIMAL)
        solution->lower_bound = solution->cost;
    return SBP_OK;
}

/* The answer where every choice is forbidden. */
static enum sbp_status refuse_all(const struct sbp_problem *problem,
                                  const struct sbp_solver_options *options,
                                  struct sbp_solution *solution)
{
    struct sbp_solver_run run;
    SBP_TRY(sbp_solver_run_begin(&run, problem, options, solution));
    solution->evaluations = 1;
    sbp_solver_run_end(&run, true);
    return SBP_OK;
}

enum sbp_status sbp_solver_solve_reduced(const struct sbp_solver *solver,
                                         const struct sbp_problem *problem,
                                         const struct sbp_solver_options *options,
                                         struct sbp_solution *solution,
                                         const struct sbp_solver **used, struct sbp_diag *diag)
{
    const double start_s = sbp_clock_s();
    struct sbp_reduction reduction;
    enum sbp_status status = sbp_reduction_make(problem, &reduction);
    *used = solver != NULL ? solver : sbp_solver_find("exact");
    if (status == SBP_OK && reduction.is_forbidden) {
        status = refuse_all(problem, options, solution);
    } else if (status == SBP_OK) {
        const struct sbp_solver_options left =
            sbp_solver_options_left(*options, sbp_clock_s() - start_s, 0);
        status = solve_by(solver, "dual", &reduction.problem, &left, solution, used, diag);
        if (status == SBP_OK)
            status = complete(&reduction, start_s, options->upper_bound, solution);
    }
    sbp_reduction_free(&reduction);
    if (status == SBP_E_MEMORY)
        return sbp_fail(diag, status, "out of memory");
    return status == SBP_E_INTERNAL
               ? sbp_fail(diag, status, "a choice of the reduced problem is none of the whole")
               : status;
}

const char *sbp_solver_status_name(enum sbp_plan_status status)
{
    static const char *const names[] = {
        [SBP_PLAN_OPTIMAL] = "optimal",           [SBP_PLAN_FEASIBLE] = "feasible",
        [SBP_PLAN_INFEASIBLE] = "infeasible",     [SBP_PLAN_TIME_LIMIT] = "time_limit",
        [SBP_PLAN_NONE_CHEAPER] = "none_cheaper",
    };
    const size_t index = (size_t)status;
    return index < sizeof names / sizeof *names ? names[index] : "unknown";
}

void sbp_solver_solution_free(struct sbp_solution *solution)
{
    if (solution == NULL)
        return;
    free(solution->choice);
    solution->choice = NULL;
}

enum sbp_status sbp_solver_run_begin(struct sbp_solver_run *search,
                                     const struct sbp_problem *problem,
                                     const struct sbp_solver_options *options,
                                     struct sbp_solution *solution)
{
    *solution = (struct sbp_solution){
        .status = SBP_PLAN_TIME_LIMIT, .cost = INFINITY, .lower_bound = -INFINITY};
    const double now_s = sbp_clock_s();
    *search = (struct sbp_solver_run){
        .problem = problem,
        .options = options,
        .solution = solution,
        .most_evaluations = options->max_evaluations,
        .upper_bound =
            options->upper_bound > 0 || options->upper_bound < 0 ? options->upper_bound : INFINITY,
        .check_every = SBP_PROBLEM_FIRST_CHECK,
        .start_s = now_s,
        .check_s = now_s,
        .shown_s = now_s,
    };
    solution->choice = calloc((size_t)problem->variable_count + 1, sizeof *solution->choice);
    return solution->choice == NULL ? SBP_E_MEMORY : SBP_OK;
}

/* Chooses when to read the clock next: evaluations differ in cost by a factor of a million. */
static void plan_next_check(struct sbp_solver_run *search, double now_s)
{
    const double since_s = now_s - search->check_s;
    if (since_s < SBP_PROBLEM_CHECK_S / 2 && search->check_every < SBP_PROBLEM_LAST_CHECK)
        search->check_every *= 2;
    else if (since_s > SBP_PROBLEM_CHECK_S * 2 && search->check_every > 1)
        search->check_every /= 2;
    search->check_s = now_s;
    search->check_at = search->solution->evaluations + search->check_every;
    if (search->most_evaluations > 0 && search->check_at > search->most_evaluations)
        search->check_at = search->most_evaluations;
}

bool sbp_solver_run_check(struct sbp_solver_run *search)
{
    const struct sbp_solver_options *options = search->options;
    struct sbp_solution *solution = search->solution;
    const double now_s = sbp_clock_s();
    plan_next_check(search, now_s);
    if (options->progress != NULL && now_s - search->shown_s >= SBP_PROBLEM_PROGRESS_S) {
        search->shown_s = now_s;
        options->progress(options->progress_context, solution->evaluations, solution->cost,
                          now_s - search->start_s);
    }
    if ((options->stop != NULL && *options->stop != 0) ||
        (options->time_limit_s > 0 && now_s - search->start_s >= options->time_limit_s) ||
        (search->most_evaluations > 0 && solution->evaluations >= search->most_evaluations))
        solution->stopped = true;
    return solution->stopped;
}

/* Drops every other point of a full curve, so that the spacing doubles; the newest stays. */
static void thin_curve(struct sbp_solution *solution)
{
    int kept = 0;
    for (int i = 1; i < solution->curve_count; i += 2)
        solution->curve[kept++] = solution->curve[i];
    solution->curve_count = kept;
}

static void note_cost(struct sbp_solver_run *search, double cost)
{
    struct sbp_solution *solution = search->solution;
    solution->cost = cost;
    if (solution->curve_count == SBP_CURVE_POINTS)
        thin_curve(solution);
    solution->curve[solution->curve_count++] = (struct sbp_curve_point){
        .evaluations = solution->evaluations,
        .elapsed_s = sbp_clock_s() - search->start_s,
        .best = cost,
    };
}

void sbp_solver_run_offer(struct sbp_solver_run *search, const int *choice, double cost)
{
    if (!(cost < search->solution->cost) || !(cost < search->upper_bound))
        return;
    memcpy(search->solution->choice, choice,
           (size_t)search->problem->variable_count * sizeof *choice);
    note_cost(search, cost);
}

/* The status of a search that found no choice. */
static enum sbp_plan_status empty_status(const struct sbp_solver_run *search, bool proved)
{
    if (!proved)
        return SBP_PLAN_TIME_LIMIT;
    return search->upper_bound < INFINITY ? SBP_PLAN_NONE_CHEAPER : SBP_PLAN_INFEASIBLE;
}

void sbp_solver_run_end(struct sbp_solver_run *search, bool proved)
{
    struct sbp_solution *solution = search->solution;
    if (solution->cost < INFINITY)
        solution->cost = sbp_problem_cost(search->problem, solution->choice);
    if (solution->cost < SBP_FORBIDDEN && solution->cost < search->upper_bound) {
        if (proved)
            solution->lower_bound = solution->cost;
        const bool met = solution->cost <= solution->lower_bound;
        solution->status = met ? SBP_PLAN_OPTIMAL : SBP_PLAN_FEASIBLE;
    } else {
        solution->cost = INFINITY;
        free(solution->choice);
        solution->choice = NULL;
        solution->status = empty_status(search, proved);
        if (solution->status == SBP_PLAN_NONE_CHEAPER)
            solution->lower_bound = fmax(solution->lower_bound, search->upper_bound);
    }
    solution->wall_s = sbp_clock_s() - search->start_s;
}

enum sbp_status sbp_solver_run_result(enum sbp_status status, const char *solver,
                                      struct sbp_solution *solution, struct sbp_diag *diag)
{
    if (status != SBP_OK)
        sbp_solver_solution_free(solution);
    return status == SBP_E_MEMORY ? sbp_fail(diag, status, "%s: out of memory", solver) : status;
}

static double least_entry(const double *cost, size_t count)
{
    double least = INFINITY;
    for (size_t i = 0; i < count; i++)
        least = cost[i] < least ? cost[i] : least;
    return least;
}

double sbp_solver_run_trivial_bound(const struct sbp_problem *problem)
{
    double sum = 0;
    for (int v = 0; v < problem->variable_count; v++)
        sum += least_entry(problem->variable[v].cost, (size_t)problem->variable[v].domain);
    for (int e = 0; e < problem->edge_count; e++) {
        const struct sbp_edge *edge = &problem->edge[e];
        sum += least_entry(edge->cost, sbp_problem_entries(problem, edge));
    }
    return sum;
}
