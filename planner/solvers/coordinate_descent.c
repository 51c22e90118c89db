#include <math.h>

#include "planner/limits.h"
#include "planner/solvers/assignment_priv.h"
#include "planner/solvers/solver_run.h"

struct descent {
    struct sbp_solver_run search;
    struct sbp_assignment state;
    struct sbp_random random;
    struct sbp_penalty penalty;
    int *order;  /* (free variables) */
    double *row; /* (largest domain) */
};

static void shuffle(struct descent *descent)
{
    for (int i = descent->state.free_count - 1; i > 0; i--) {
        const int j = (int)sbp_random_below(&descent->random, (uint64_t)i + 1);
        const int moved = descent->order[i];
        descent->order[i] = descent->order[j];
        descent->order[j] = moved;
    }
}

/* Sets the variable to its best value; returns whether the cost fell. */
static bool improve(struct descent *descent, int variable)
{
    struct sbp_assignment *state = &descent->state;
    const int domain = state->problem->variable[variable].domain, old = state->choice[variable];
    double *row = descent->row;
    sbp_assignment_row(state, variable, descent->penalty, row);
    descent->search.solution->evaluations += domain;
    int best = old;
    for (int k = 0; k < domain; k++)
        if (row[k] < row[best])
            best = k;
    if (!(row[old] - row[best] > SBP_PROBLEM_LEAST_GAIN * (fabs(row[old]) + fabs(row[best]))))
        return false;
    sbp_assignment_move(state, variable, best, sbp_assignment_move_change(state, variable, best));
    return true;
}

static void offer_state(struct descent *descent)
{
    if (sbp_assignment_is_feasible(&descent->state))
        sbp_solver_run_offer(&descent->search, descent->state.choice, descent->state.energy.cost);
}

/* Sweeps over the variables in random order until none improves. False when the search must stop.
 */
static bool descend(struct descent *descent)
{
    bool gained = true;
    while (gained) {
        gained = false;
        shuffle(descent);
        for (int i = 0; i < descent->state.free_count; i++) {
            if (sbp_solver_run_over(&descent->search)) {
                sbp_assignment_reset(&descent->state);
                offer_state(descent);
                return false;
            }
            gained |= improve(descent, descent->order[i]);
        }
        sbp_assignment_reset(&descent->state);
        offer_state(descent);
    }
    return true;
}

/* One restart: a descent, repeated under higher prices of excess while it ends over the capacity.
 * The next restart begins one step below the price that was needed. */
static bool restart_once(struct descent *descent)
{
    for (int rise = 0; rise <= SBP_PROBLEM_EXCESS_RISES; rise++) {
        if (!descend(descent))
            return false;
        if (!(descent->state.energy.excess > 0))
            break;
        descent->penalty.excess *= SBP_PROBLEM_EXCESS_GROWTH;
    }
    descent->penalty.excess /= SBP_PROBLEM_EXCESS_GROWTH;
    return true;
}

/* Sets every variable to the cheapest of its own costs. */
static void set_cheapest(struct sbp_assignment *state)
{
    for (int v = 0; v < state->problem->variable_count; v++) {
        const struct sbp_variable *variable = &state->problem->variable[v];
        state->choice[v] = 0;
        for (int k = 1; k < variable->domain; k++)
            if (variable->cost[k] < variable->cost[state->choice[v]])
                state->choice[v] = k;
    }
    sbp_assignment_reset(state);
}

static enum sbp_status prepare(struct descent *descent)
{
    SBP_TRY(sbp_assignment_init(&descent->state, descent->search.problem));
    struct sbp_assignment *state = &descent->state;
    int largest = 1;
    descent->order = SBP_NEW(&state->arena, int, state->free_count);
    for (int i = 0; descent->order != NULL && i < state->free_count; i++) {
        const int variable = state->free_variable[i];
        descent->order[i] = variable;
        if (state->problem->variable[variable].domain > largest)
            largest = state->problem->variable[variable].domain;
    }
    descent->row = SBP_NEW(&state->arena, double, largest);
    if (descent->order == NULL || descent->row == NULL)
        return SBP_E_MEMORY;
    sbp_random_seed(&descent->random, descent->search.options->seed);
    descent->penalty = (struct sbp_penalty){.forbidden = state->cost_spread,
                                            .excess = state->cost_unit / state->excess_unit};
    return SBP_OK;
}

enum sbp_status sbp_coordinate_descent_solve(const struct sbp_problem *problem,
                                             const struct sbp_solver_options *options,
                                             struct sbp_solution *solution, struct sbp_diag *diag)
{
    struct descent descent = {0};
    enum sbp_status status = sbp_solver_run_begin(&descent.search, problem, options, solution);
    if (status == SBP_OK)
        status = prepare(&descent);
    if (status == SBP_OK) {
        solution->lower_bound = sbp_solver_run_trivial_bound(problem);
        const int restarts = options->restarts > 0 ? options->restarts : SBP_PROBLEM_RESTARTS;
        for (int r = 0; r < restarts; r++) {
            if (r == 0)
                set_cheapest(&descent.state);
            else
                sbp_assignment_randomise(&descent.state, &descent.random);
            if (!restart_once(&descent) || solution->cost <= solution->lower_bound)
                break;
        }
        sbp_solver_run_end(&descent.search, false);
    }
    sbp_assignment_free(&descent.state);
    return sbp_solver_run_result(status, "coordinate-descent", solution, diag);
}

static int64_t default_draws(const struct sbp_problem *problem)
{
    const double draws = SBP_PROBLEM_RANDOM_LOOK_UPS /
                         (1.0 + (double)problem->variable_count + (double)problem->edge_count);
    if (draws > (double)SBP_PROBLEM_RANDOM_MOST)
        return SBP_PROBLEM_RANDOM_MOST;
    return draws < (double)SBP_PROBLEM_RANDOM_LEAST ? SBP_PROBLEM_RANDOM_LEAST : (int64_t)draws;
}

enum sbp_status sbp_coordinate_descent_random(const struct sbp_problem *problem,
                                              const struct sbp_solver_options *options,
                                              struct sbp_solution *solution, struct sbp_diag *diag)
{
    struct descent draw = {0};
    enum sbp_status status = sbp_solver_run_begin(&draw.search, problem, options, solution);
    if (status == SBP_OK)
        status = prepare(&draw);
    if (status == SBP_OK) {
        solution->lower_bound = sbp_solver_run_trivial_bound(problem);
        const int64_t draws =
            options->max_evaluations > 0 ? options->max_evaluations : default_draws(problem);
        while (!sbp_solver_run_over(&draw.search) && solution->evaluations < draws) {
            sbp_assignment_randomise(&draw.state, &draw.random);
            solution->evaluations++;
            offer_state(&draw);
        }
        sbp_solver_run_end(&draw.search, false);
    }
    sbp_assignment_free(&draw.state);
    return sbp_solver_run_result(status, "random", solution, diag);
}
