#include "planner/inner/cut_solve_priv.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "planner/bounds/message_passing.h"
#include "planner/limits.h"
#include "planner/pricing/working_set.h"

/* ---- from a space to a choice --------------------------------------------------------------- */

static int degree_of(const struct sbp_problem *problem, int variable, double *cells)
{
    int degree = 0;
    *cells = 1;
    for (int e = 0; e < problem->edge_count; e++) {
        const struct sbp_edge *edge = &problem->edge[e];
        if (edge->a != variable && edge->b != variable)
            continue;
        const int other = edge->a == variable ? edge->b : edge->a;
        *cells *= problem->variable[other].domain;
        degree++;
    }
    return degree;
}

/* Folds rest states away where small tables are left, so that solvers see operators alone. */
static enum sbp_status fold_rests(const struct sbp_space *space, struct sbp_problem *problem,
                                  struct sbp_elimination *steps, int *count)
{
    *count = 0;
    for (int v = 0; v < space->variable_count; v++) {
        double cells = 0;
        if (space->variable[v].op >= 0 || problem->variable[v].interval_count > 0 ||
            degree_of(problem, v, &cells) > 2 || cells > SBP_INNER_FOLD_CELLS)
            continue;
        SBP_TRY(sbp_problem_eliminate(problem, v, &steps[*count]));
        ++*count;
    }
    return SBP_OK;
}

static void unfold_rests(const struct sbp_problem *problem, const struct sbp_elimination *steps,
                         int count, int *choice)
{
    while (count-- > 0)
        sbp_problem_recover(problem, &steps[count], choice);
}

/* The request's time and evaluations that earlier rounds have left. */
static struct sbp_solver_options options_left(const struct sbp_inner_job *job)
{
    return sbp_solver_options_left(job->request->asked.solver_options, sbp_clock_s() - job->start_s,
                                   job->outcome->evaluations);
}

static void note_solution(struct sbp_inner_job *job, const struct sbp_solution *solution,
                          const char *name)
{
    struct sbp_outcome *outcome = job->outcome;
    outcome->evaluations += solution->evaluations;
    outcome->algorithm = name;
    outcome->stopped |= solution->stopped;
    if (solution->curve_count > 0 && outcome->curve_count == 0) {
        outcome->curve_count = solution->curve_count;
        memcpy(outcome->curve, solution->curve, sizeof outcome->curve);
    }
}

/* Makes a space whose costs are modelled bytes, summed over all memory stages; seconds, added as if
 * they were bytes, decide between equal ones. With weighs_work the working set of each operator
 * counts in part: a device holds only its largest one, and none is known to be it. */
static enum sbp_status count_bytes(const struct sbp_space *space, bool weighs_work,
                                   struct sbp_arena *arena, struct sbp_space *bytes)
{
    struct sbp_working working;
    *bytes = *space;
    bytes->variable = SBP_NEW(arena, struct sbp_space_variable, space->variable_count);
    if (bytes->variable == NULL)
        return SBP_E_MEMORY;
    if (weighs_work)
        SBP_TRY(sbp_working_init(&working, space, arena));
    for (int v = 0; v < space->variable_count; v++) {
        struct sbp_space_variable *to = &bytes->variable[v];
        *to = space->variable[v];
        to->cost_s = SBP_TAKE(arena, double, to->choice_count);
        if (to->cost_s == NULL)
            return SBP_E_MEMORY;
        for (int c = 0; c < to->choice_count; c++) {
            to->cost_s[c] = space->variable[v].cost_s[c];
            for (int p = 0; p < space->weights->memory_stages; p++)
                to->cost_s[c] += sbp_space_unary_bytes(space, v, c, p);
            if (weighs_work)
                to->cost_s[c] += SBP_INNER_WORKING_SHARE * sbp_working_own(&working, v, c);
        }
    }
    return SBP_OK;
}

/* One call of sbp_inner_solve_space. */
struct solving {
    struct sbp_inner_job *job;
    const struct sbp_space *space; /* as given, or priced in bytes */
    double capacity_bytes, goal_s;
    struct sbp_message_reduction reduction; /* .choice is NULL: the space was solved whole */
    int *choice;                            /* (variables) choice of the space */
    double bound_s;
};

/* Solves a space by tables over pairs of choices. */
static enum sbp_status solve_tables(struct solving *s, const struct sbp_space *space,
                                    const struct sbp_solver *solver,
                                    const struct sbp_solver_options *options,
                                    struct sbp_solution *solution, bool *found)
{
    struct sbp_inner_job *job = s->job;
    struct sbp_problem problem;
    const struct sbp_solver *used = NULL;
    int folded = 0;
    struct sbp_elimination *steps =
        SBP_NEW(&job->scratch, struct sbp_elimination, space->variable_count + 1);
    if (steps == NULL)
        return SBP_E_MEMORY;
    SBP_TRY(sbp_pricing_problem(space, s->capacity_bytes, &problem, job->diag));
    enum sbp_status status = fold_rests(space, &problem, steps, &folded);
    if (status == SBP_OK)
        status = sbp_solver_solve(solver, &problem, options, solution, &used, job->diag);
    *found = status == SBP_OK && solution->choice != NULL;
    if (status == SBP_OK)
        note_solution(job, solution, used->name);
    if (*found) {
        memcpy(s->choice, solution->choice, (size_t)space->variable_count * sizeof *s->choice);
        unfold_rests(&problem, steps, folded, s->choice);
    }
    sbp_problem_free(&problem);
    return status;
}

static double proved_s(const struct sbp_solution *solution)
{
    return solution->status == SBP_PLAN_INFEASIBLE   ? INFINITY
           : solution->status == SBP_PLAN_TIME_LIMIT ? -INFINITY
                                                     : solution->lower_bound;
}

static enum sbp_status solve_whole(struct solving *s, bool *found)
{
    struct sbp_solution solution = {0};
    struct sbp_solver_options options = options_left(s->job);
    options.upper_bound = s->goal_s;
    const enum sbp_status status =
        solve_tables(s, s->space, s->job->request->asked.solver, &options, &solution, found);
    if (status == SBP_OK)
        s->bound_s = proved_s(&solution);
    sbp_solver_solution_free(&solution);
    return status;
}

/* Whether the time limit or the user ends the search. */
static bool is_interrupted(const struct solving *s)
{
    const double limit_s = s->job->request->asked.solver_options.time_limit_s;
    return sbp_space_interrupted(s->space) ||
           (limit_s > 0 && sbp_clock_s() - s->job->start_s >= limit_s);
}

/* Solves the choices that message passing leaves. Its bound and its choice are the answer where the
 * tables' solver does not finish. */
static enum sbp_status solve_reduced(struct solving *s, bool *found)
{
    const struct sbp_message_reduction *reduction = &s->reduction;
    struct sbp_solution solution = {0};
    struct sbp_solver_options options = options_left(s->job);
    /* The known choice must stay below the limit. */
    options.upper_bound = fmin(s->goal_s, reduction->upper_s * (1 + SBP_INNER_ROUND_OFF));
    options.max_evaluations =
        isfinite(s->capacity_bytes) ? s->job->most_table_evaluations : SBP_INNER_FREE_EVALUATIONS;
    const enum sbp_status status = solve_tables(s, &reduction->space, s->job->request->asked.solver,
                                                &options, &solution, found);
    if (status == SBP_OK) {
        s->bound_s = fmax(s->bound_s, fmin(proved_s(&solution), options.upper_bound));
        /* The budget of tables ends this solve, not the search. */
        if (!is_interrupted(s))
            s->job->outcome->stopped = false;
    }
    for (int v = 0; *found && v < s->space->variable_count; v++)
        s->choice[v] = reduction->original[v][s->choice[v]];
    *found = *found && solution.cost <= reduction->upper_s;
    sbp_solver_solution_free(&solution);
    return status;
}

/* Whether tables may say more than messages did. Where the exact solver refuses them for their size,
 * they only take long, and what else solves them finds no better choice (bench front: DeepSeek-V3 on
 * 16,384 devices, 5 s each time). */
static bool tables_help(const struct solving *s, bool has_choice)
{
    const double bytes = sizeof(double) * sbp_message_cells(&s->reduction.space);
    return !s->reduction.is_settled && !s->job->outcome->stopped &&
           !(has_choice && bytes > SBP_PROBLEM_EXACT_BYTES);
}

static enum sbp_status reduce_and_solve(struct solving *s, bool *found)
{
    SBP_TRY(sbp_message_reduce(s->space, s->capacity_bytes, s->goal_s, &s->job->scratch,
                               &s->reduction));
    s->job->outcome->evaluations += s->reduction.evaluations;
    s->job->outcome->stopped |= s->reduction.stopped;
    s->job->outcome->algorithm = "exact";
    s->bound_s = s->reduction.lower_s;
    const bool has_choice = s->reduction.upper_s < s->goal_s;
    if (tables_help(s, has_choice)) {
        struct sbp_diag *const diag = s->job->diag, refusal = {{0}};
        s->job->diag = &refusal;
        const enum sbp_status status = solve_reduced(s, found);
        s->job->diag = diag;
        /* Without memory for tables the messages' choice and bound are the answer. */
        if (status != SBP_OK && !(status == SBP_E_MEMORY && has_choice))
            return sbp_fail(diag, status, "%s", refusal.text);
    }
    if (!*found && has_choice) {
        memcpy(s->choice, s->reduction.choice,
               (size_t)s->space->variable_count * sizeof *s->choice);
        *found = true;
    }
    return SBP_OK;
}

/* Message passing is for `exact` alone: other solvers are asked for to be compared, on the whole
 * space. */
static bool may_reduce(const struct solving *s)
{
    const struct sbp_solver *solver = s->job->request->asked.solver;
    return (solver == NULL || strcmp(solver->name, "exact") == 0) &&
           s->job->request->asked.solver_options.max_evaluations == 0 &&
           sbp_message_cells(s->space) >
               (isfinite(s->capacity_bytes) ? SBP_INNER_FEW_CAPACITY_CELLS : SBP_INNER_FEW_CELLS);
}

enum sbp_status sbp_inner_solve_space(struct sbp_inner_job *job, const struct sbp_space *space,
                                      double capacity_bytes, int **choice, double *bound_s)
{
    struct sbp_space bytes;
    const bool least = capacity_bytes == SBP_FOR_BYTES;
    struct solving s = {.job = job,
                        .space = space,
                        .capacity_bytes = least ? INFINITY : capacity_bytes,
                        .goal_s = job->bounds && !least ? sbp_inner_goal_s(job) : INFINITY,
                        .choice = SBP_NEW(&job->scratch, int, space->variable_count + 1),
                        .bound_s = -INFINITY};
    bool found = false;
    *choice = NULL;
    if (s.choice == NULL)
        return SBP_E_MEMORY;
    if (least) {
        SBP_TRY(count_bytes(space, job->is_for_bytes, &job->scratch, &bytes));
        s.space = &bytes;
    }
    SBP_TRY(may_reduce(&s) ? reduce_and_solve(&s, &found) : solve_whole(&s, &found));
    *bound_s = s.bound_s;
    *choice = found ? s.choice : NULL;
    return SBP_OK;
}
