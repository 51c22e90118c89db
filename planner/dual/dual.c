#include <math.h>

#include "planner/limits.h"
#include "planner/dual/dual_priv.h"

/* All parts of one search. */
struct searching {
    struct sbp_solver_run run;
    struct sbp_dual dual;
    struct sbp_dual_blocks blocks;
    struct sbp_dual_state state;
    struct sbp_dual_ascent ascent;
    struct sbp_dual_search search;
    struct sbp_dual_branch branch;
};

static enum sbp_status prepare(struct searching *s, const struct sbp_problem *problem)
{
    SBP_TRY(sbp_dual_init(&s->dual, problem, &s->run));
    SBP_TRY(sbp_dual_blocks_make(&s->dual, &s->blocks));
    SBP_TRY(sbp_dual_state_init(&s->state, &s->dual));
    SBP_TRY(sbp_dual_ascent_init(&s->ascent, &s->state, &s->blocks));
    SBP_TRY(sbp_dual_branch_init(&s->branch, &s->ascent));
    return sbp_dual_search_init(&s->search, &s->state, &s->blocks);
}

/* Whether no choice can cost less than what is known. */
static bool is_met(const struct searching *s)
{
    return s->branch.is_done || sbp_dual_is_met(&s->dual, s->dual.bound);
}

/* Repairs random choices until one fits or so much work is done. False when the search must stop.
 */
static bool look_for_choice(struct searching *s, double work)
{
    struct sbp_dual *dual = &s->dual;
    const double end = dual->work + work;
    while (dual->work < end && !(s->run.solution->cost < INFINITY)) {
        for (int v = 0; v < dual->variable_count; v++)
            s->state.choice[v] = (int)sbp_random_below(&dual->random, (uint64_t)dual->domain[v]);
        sbp_dual_relax(dual, s->state.choice);
        sbp_dual_state_load(&s->state, s->state.choice);
        if (sbp_dual_repair_run(&s->ascent.repair))
            (void)sbp_dual_descend(&s->state);
        sbp_dual_state_offer(&s->state);
        if (sbp_dual_spend(dual, 1))
            return false;
    }
    return true;
}

/* Loads the choice that the best prices lead to, repaired; behind parts of a division messages
 * begin almost anew. False: it does not fit. */
static bool load_priced(struct searching *s)
{
    struct sbp_dual *dual = &s->dual;
    (void)sbp_dual_pass(dual, s->branch.has_begun ? SBP_PROBLEM_DUAL_FIRST_PASSES : 1);
    if (s->run.solution->stopped)
        return false;
    sbp_dual_read(dual, s->ascent.choice);
    sbp_dual_relax(dual, s->ascent.choice);
    sbp_dual_state_load(&s->state, s->ascent.choice);
    return sbp_dual_repair_run(&s->ascent.repair) && sbp_dual_descend(&s->state);
}

/* Looks for better choices under the best prices, in turn around the best one and around the one
 * that these prices lead to: it often ends elsewhere, and better as the prices are. False when the
 * search must stop. */
static bool search_around(struct searching *s, int turn, double work)
{
    sbp_dual_set_prices(&s->dual, s->dual.best_price);
    if (!(s->run.solution->cost < INFINITY))
        return look_for_choice(s, work);
    if (turn % 2 == 0 || !load_priced(s))
        sbp_dual_state_load(&s->state, s->run.solution->choice);
    return sbp_dual_search_run(&s->search, work);
}

/* Raises the bound, by prices of the whole problem first, then part by part where it is small.
 * False when the search must stop. */
static bool raise_bound(struct searching *s, int turn, double work)
{
    if (turn < SBP_PROBLEM_DUAL_WHOLE_TURNS || s->branch.is_closed ||
        !(s->run.solution->cost < INFINITY))
        return sbp_dual_ascent_run(&s->ascent, work);
    return sbp_dual_branch_run(&s->branch, work);
}

/* Turns of bounds and of neighbourhoods, each longer than the one before. */
static void take_turns(struct searching *s)
{
    const struct sbp_solver_options *options = s->run.options;
    const bool goes_on =
        options->uses_time && (options->time_limit_s > 0 || options->max_evaluations > 0);
    double work = SBP_PROBLEM_DUAL_FIRST_TURN * (s->dual.entries + s->dual.span_entries + 1);
    for (int turn = 0; goes_on || turn < SBP_PROBLEM_DUAL_TURNS; turn++) {
        if (!raise_bound(s, turn, work) || s->dual.open_count == 0 || is_met(s) ||
            !search_around(s, turn,
                           s->branch.has_begun ? SBP_PROBLEM_BRANCH_SEARCH * work : work) ||
            is_met(s))
            break;
        work *= SBP_PROBLEM_DUAL_TURN_GROWTH;
    }
}

enum sbp_status sbp_dual_solve(const struct sbp_problem *problem,
                               const struct sbp_solver_options *options,
                               struct sbp_solution *solution, struct sbp_diag *diag)
{
    struct searching s = {0};
    enum sbp_status status = sbp_solver_run_begin(&s.run, problem, options, solution);
    if (status == SBP_OK)
        status = prepare(&s, problem);
    if (status == SBP_OK) {
        take_turns(&s);
        solution->lower_bound = s.dual.bound;
        sbp_solver_run_end(&s.run, is_met(&s) || (s.dual.open_count == 0 && !solution->stopped));
        if (solution->status == SBP_PLAN_INFEASIBLE &&
            sbp_problem_cost(problem, s.ascent.choice) < SBP_FORBIDDEN)
            solution->shortfall =
                sbp_problem_peak_usage(problem, s.ascent.choice) - problem->capacity;
    }
    sbp_dual_branch_free(&s.branch);
    sbp_dual_free(&s.dual);
    return sbp_solver_run_result(status, "dual", solution, diag);
}
