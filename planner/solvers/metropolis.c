#include <math.h>
#include <string.h>

#include "base/math/portable.h"
#include "planner/limits.h"
#include "planner/solvers/assignment_priv.h"
#include "planner/solvers/solver_run.h"

static const double beta_ladder[] = {SBP_PROBLEM_BETA_LADDER};
enum { LADDER_LENGTH = sizeof beta_ladder / sizeof *beta_ladder };

/* exp(-40) is below the resolution of a 53-bit random number. */
#define LARGEST_EXPONENT 40.0

struct metropolis {
    struct sbp_solver_run search;
    struct sbp_assignment state;
    struct sbp_random random;
    struct sbp_penalty penalty;
    double base_beta;
};

static double weigh(struct sbp_penalty penalty, struct sbp_energy energy)
{
    return energy.cost + penalty.forbidden * (double)energy.forbidden +
           penalty.excess * energy.excess;
}

/* Draws a variable and another value of it. */
static void draw_move(struct metropolis *metropolis, int *variable, int *value)
{
    const struct sbp_assignment *state = &metropolis->state;
    *variable =
        state->free_variable[sbp_random_below(&metropolis->random, (uint64_t)state->free_count)];
    const int domain = state->problem->variable[*variable].domain;
    *value = (int)sbp_random_below(&metropolis->random, (uint64_t)domain - 1);
    *value += *value >= state->choice[*variable];
}

static void offer_state(struct metropolis *metropolis)
{
    struct sbp_assignment *state = &metropolis->state;
    const double best = fmin(metropolis->search.solution->cost, metropolis->search.upper_bound);
    /* A new best must differ by more than the drift of sums that moves have changed. */
    if (!sbp_assignment_is_feasible(state) ||
        (best < INFINITY && !(state->energy.cost < best - SBP_PROBLEM_ROUND_OFF * fabs(best))))
        return;
    sbp_assignment_reset(state); /* large parts that came and went may drift by any share */
    if (sbp_assignment_is_feasible(state))
        sbp_solver_run_offer(&metropolis->search, state->choice, state->energy.cost);
}

static double quantile(double *values, int count, double share)
{
    for (int i = 1; i < count; i++) {
        const double moving = values[i];
        int at = i;
        for (; at > 0 && values[at - 1] > moving; at--)
            values[at] = values[at - 1];
        values[at] = moving;
    }
    return count == 0 ? 0 : values[(int)(share * (count - 1))];
}

/* Walks downhill by random moves, then samples the uphill changes from there. beta accepts a low
 * quantile of them with probability 1/e. Every sampled move counts as an evaluation. */
static double find_beta(struct metropolis *metropolis)
{
    double uphill[SBP_PROBLEM_SCALE_UPHILL];
    int count = 0;
    for (int move = 0; move < SBP_PROBLEM_SCALE_MOVES && count < SBP_PROBLEM_SCALE_UPHILL; move++) {
        if (sbp_solver_run_over(&metropolis->search))
            break;
        int variable, value;
        draw_move(metropolis, &variable, &value);
        const struct sbp_energy change =
            sbp_assignment_move_change(&metropolis->state, variable, value);
        const double up = weigh(metropolis->penalty, change);
        metropolis->search.solution->evaluations++;
        if (up <= 0) {
            sbp_assignment_move(&metropolis->state, variable, value, change);
            offer_state(metropolis);
        } else if (change.forbidden <= 0 && move >= SBP_PROBLEM_SCALE_MOVES / 2)
            uphill[count++] = up;
    }
    const double scale = quantile(uphill, count, SBP_PROBLEM_SCALE_QUANTILE);
    return 1 / (scale > 0 ? scale : metropolis->state.cost_unit);
}

/* Metropolis-Hastings from the present state. The proposal is symmetric, so that the acceptance is
 * min(1, exp(-beta * (new - current))). False when the search must stop. */
static bool walk(struct metropolis *metropolis, double beta, int64_t moves)
{
    struct sbp_assignment *state = &metropolis->state;
    for (int64_t move = 0; move < moves; move++) {
        if (sbp_solver_run_over(&metropolis->search))
            return false;
        int variable, value;
        draw_move(metropolis, &variable, &value);
        const struct sbp_energy change = sbp_assignment_move_change(state, variable, value);
        metropolis->search.solution->evaluations++;
        const double exponent = beta * weigh(metropolis->penalty, change);
        if (exponent > 0 && (exponent > LARGEST_EXPONENT ||
                             sbp_random_unit(&metropolis->random) >= sbp_exp(-exponent)))
            continue;
        sbp_assignment_move(state, variable, value, change);
        offer_state(metropolis);
    }
    return true;
}

static int64_t moves_per_restart(const struct sbp_solver_run *search, int restarts)
{
    double moves = 0;
    for (int v = 0; v < search->problem->variable_count; v++)
        moves += SBP_PROBLEM_MOVES_PER_VALUE * (double)search->problem->variable[v].domain;
    moves = fmin(fmax(moves, SBP_PROBLEM_LEAST_MOVES), SBP_PROBLEM_MOST_MOVES);
    if (search->most_evaluations > 0)
        moves = (double)search->most_evaluations;
    return (int64_t)fmax(1, ceil(moves / restarts));
}

static void run_restarts(struct metropolis *metropolis)
{
    const struct sbp_solver_options *options = metropolis->search.options;
    struct sbp_solution *solution = metropolis->search.solution;
    const int restarts = options->restarts > 0 ? options->restarts : SBP_PROBLEM_RESTARTS;
    const int64_t moves = moves_per_restart(&metropolis->search, restarts);
    if (sbp_solver_run_over(&metropolis->search))
        return;
    offer_state(metropolis);
    for (int r = 0; r < restarts && metropolis->state.free_count > 0; r++) {
        sbp_assignment_randomise(&metropolis->state, &metropolis->random);
        if (r == 0)
            metropolis->base_beta = find_beta(metropolis);
        offer_state(metropolis);
        const double beta = options->mh_beta > 0
                                ? options->mh_beta
                                : metropolis->base_beta * beta_ladder[r % LADDER_LENGTH];
        if (!walk(metropolis, beta, moves) || solution->cost <= solution->lower_bound)
            break;
        /* A walk that ends over the capacity asks for a higher price of excess. */
        if (metropolis->state.energy.excess > 0)
            metropolis->penalty.excess *= SBP_PROBLEM_EXCESS_GROWTH;
    }
}

enum sbp_status sbp_metropolis_solve(const struct sbp_problem *problem,
                                     const struct sbp_solver_options *options,
                                     struct sbp_solution *solution, struct sbp_diag *diag)
{
    struct metropolis metropolis = {0};
    enum sbp_status status = sbp_solver_run_begin(&metropolis.search, problem, options, solution);
    if (status == SBP_OK)
        status = sbp_assignment_init(&metropolis.state, problem);
    if (status == SBP_OK) {
        const struct sbp_assignment *state = &metropolis.state;
        solution->lower_bound = sbp_solver_run_trivial_bound(problem);
        sbp_random_seed(&metropolis.random, options->seed);
        metropolis.penalty = (struct sbp_penalty){.forbidden = state->cost_spread,
                                                  .excess = state->cost_unit / state->excess_unit};
        run_restarts(&metropolis);
        sbp_solver_run_end(&metropolis.search, false);
    }
    sbp_assignment_free(&metropolis.state);
    return sbp_solver_run_result(status, "metropolis-hastings", solution, diag);
}
