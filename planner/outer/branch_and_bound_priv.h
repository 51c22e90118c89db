/* One call of sbp_explore_top, in parts: first plans (initial_plans.c), what is found out about a
 * candidate (node_solve.c), what is left of one that was solved (branching.c), which comes
 * next (branch_and_bound.c), and what would fit where nothing does (infeasible.c). Internal.
 */
#ifndef SBP_PLANNER_OUTER_BRANCH_AND_BOUND_PRIV_H
#define SBP_PLANNER_OUTER_BRANCH_AND_BOUND_PRIV_H

#include <math.h>
#include <string.h>

#include "planner/limits.h"
#include "planner/outer/branch_and_bound.h"
#include "planner/outer/node_queue.h"
#include "planner/paths/path_mixture.h"
#include "planner/paths/path_weights.h"
#include "planner/pricing/price_cache.h"
#include "planner/space/space_table.h"

/* How much is known of a candidate. */
enum sbp_knowledge { SBP_LISTED, SBP_BOUNDED, SBP_RELAXED, SBP_TRIED, SBP_MIXED, SBP_SOLVED };

struct sbp_node {
    struct sbp_parallel parallel;
    const struct sbp_subspace *part; /* of its strategies; NULL: all */
    enum sbp_knowledge knowledge;
    double bound_s, time_s; /* with the limit of memory and without; time_s is of bases */
    int base; /* the candidate that keeps everything on the device, of the same schedule */
    bool is_base, siblings_are_open;
    double least_bytes;          /* of a device, by the model; 0: not known, INFINITY: not legal */
    struct sbp_mixture *mixture; /* of SBP_MIXED, what its paths have said; else NULL */
};

struct sbp_branch_and_bound {
    const struct sbp_plan *given; /* the workload, and how the step is cut where it is given */
    struct sbp_arena *plans;      /* of what the caller gets */
    struct sbp_cut cut;           /* of the candidate at hand */
    struct sbp_arena cut_arena;
    struct sbp_arena solve_arena; /* of strategies that are found for it */
    const struct sbp_request *request;
    struct sbp_solve_request solve; /* how candidates are solved, but for what is their own */
    struct sbp_outcome *out;
    struct sbp_diag *diag;
    struct sbp_arena arena;
    struct sbp_price_cache cache;
    double start_s;

    struct sbp_node *node; /* (node_count) */
    int node_count, node_room;
    struct sbp_queue queue; /* of what is open */
    struct sbp_queue dives; /* of what is open, by what plans are expected to cost */
    int turns, wait; /* taken by bounds since the last dive, and how many are before the next */
    bool is_dive;    /* the candidate at hand comes from there */
    double overhead; /* what leanest plans needed that did not fit, by the model's least: of all
                        candidates the least; 0: not known */
    double open_s;   /* the least bound of candidates that were solved without a proof */

    struct sbp_pool *pool;
    struct sbp_pool found;           /* of the candidate at hand: its best plan */
    struct sbp_pool first;           /* the best of the first plans */
    bool memory_binds, is_too_large; /* of the candidate at hand */
    bool any_legal;
    struct sbp_diag refusal; /* why the first one that is not legal is not */

    int cuts;             /* candidates that were cut in parts */
    int64_t work;         /* since the first: operators of the candidates solved */
    int64_t first_cut_at; /* evaluations */
};

/* ---- branch_and_bound.c ---------------------------------------------------------------------- */

/* Cuts the step as a candidate does: e->cut, where it stays. Fails as sbp_cut_make. */
enum sbp_status sbp_outer_cut(struct sbp_branch_and_bound *e, const struct sbp_parallel *parallel,
                              struct sbp_diag *diag) SBP_MUST_USE;
/* Opens a candidate. E_MEMORY. */
enum sbp_status sbp_outer_push(struct sbp_branch_and_bound *e, int index) SBP_MUST_USE;
/* Whether the user, the time limit or the budget ends the search. */
bool sbp_outer_is_over(struct sbp_branch_and_bound *e);

/* The best plan's objective, of the candidate at hand included. */
static inline double sbp_outer_best_s(const struct sbp_branch_and_bound *e)
{
    const double ranked_s = e->pool->count > 0 ? e->pool->plan[0].objective_s : INFINITY;
    return fmin(fmin(ranked_s, sbp_pool_goal_s(&e->first)), sbp_pool_goal_s(&e->found));
}

/* Only plans that cost less are worth looking for. */
static inline double sbp_outer_goal_s(const struct sbp_branch_and_bound *e)
{
    return fmin(sbp_pool_goal_s(e->pool), sbp_pool_goal_s(&e->found));
}

/* Whether a candidate can no longer hold a plan that is looked for. */
static inline bool sbp_outer_is_refuted(const struct sbp_branch_and_bound *e, double bound_s)
{
    return bound_s >= sbp_outer_goal_s(e) * (1 - SBP_INNER_ROUND_OFF);
}

/* Whether it is proved that no candidate has a plan that fits. */
static inline bool sbp_outer_is_infeasible(const struct sbp_branch_and_bound *e)
{
    return e->pool->count == 0 && isinf(e->open_s) && e->open_s > 0 && !e->out->stopped;
}

/* Whether solvers bound what they solve. Heuristics bound nothing, and budgets are the solver's. */
static inline bool sbp_outer_proves(const struct sbp_branch_and_bound *e)
{
    const struct sbp_solver *solver = e->request->solver;
    return (solver == NULL || strcmp(solver->name, "exact") == 0) &&
           e->request->solver_options.max_evaluations == 0;
}

/* ---- initial_plans.c ------------------------------------------------------------------------- */

/* Where bounds are weak, most of what comes first by its bound is far from good. Ranks the best of
 * the first plans where one plan is asked for, and opens the candidates whose first plans are about
 * as good: searched before the rest they lead to a good plan early, which refutes the rest. */
enum sbp_status sbp_outer_open_promising(struct sbp_branch_and_bound *e) SBP_MUST_USE;
/* Ranks the best of the first plans, if there is one that is not ranked. */
enum sbp_status sbp_outer_rank_first(struct sbp_branch_and_bound *e) SBP_MUST_USE;

/* ---- node_solve.c ------------------------------------------------------------------------- */

/* The request for a candidate's spaces, of which none of another candidate's is alive. */
struct sbp_solve_request sbp_outer_request(struct sbp_branch_and_bound *e,
                                           const struct sbp_node *node);
/* The weights along the longest path, which needs no strategy, of the plan's parallel. */
enum sbp_status sbp_outer_plain_weights(struct sbp_branch_and_bound *e,
                                        struct sbp_path_weights *weights,
                                        struct sbp_diag *diag) SBP_MUST_USE;
/* Adds a solver's answer to the search's. */
void sbp_outer_note_outcome(struct sbp_branch_and_bound *e, const struct sbp_outcome *found);

/* Bounds over strategies, with the limit of memory and without. SBP_OK with *legal false where the
 * candidate has none. Interrupted, it is as good as before and stays open. */
enum sbp_status sbp_outer_bound(struct sbp_branch_and_bound *e, struct sbp_node *node,
                                bool *legal) SBP_MUST_USE;
/* What a candidate's plan may cost that is looked for. Before any plan is known, looking for the
 * cheapest of a candidate that memory binds may take long and end at a poor one: first only good
 * ones are looked for. INFINITY: any. */
double sbp_outer_ceiling_s(const struct sbp_branch_and_bound *e, const struct sbp_node *node);
/* Along paths and mixtures of them: e->found, e->memory_binds, e->is_too_large, and the node's
 * bound. What paths have said is kept in the node where it is worth settling: SBP_MIXED. */
enum sbp_status sbp_outer_solve(struct sbp_branch_and_bound *e, struct sbp_node *node) SBP_MUST_USE;
/* Where mixtures leave a gap: plans that are good along all paths, one after the other. */
enum sbp_status sbp_outer_enumerate_paths(struct sbp_branch_and_bound *e,
                                          struct sbp_node *node) SBP_MUST_USE;

/* ---- branching.c ------------------------------------------------------------------------- */

/* Ranks the best plan of `found`, which is of the plan's parallel and of a part (NULL: of the whole
 * space), and empties it. It becomes the plan's strategy; *ranked: as it was ranked, with
 * objective_s INFINITY where there was none. */
enum sbp_status sbp_outer_rank(struct sbp_branch_and_bound *e, struct sbp_pool *found,
                               const struct sbp_subspace *part,
                               struct sbp_pool_plan *ranked) SBP_MUST_USE;
/* Ranks a solved candidate's plan. What is left of it stays open, to be settled or where more than
 * one plan is asked for. */
enum sbp_status sbp_outer_close(struct sbp_branch_and_bound *e, int index) SBP_MUST_USE;

/* ---- infeasible.c ------------------------------------------------------------------------- */

/* Where nothing was found: of the candidates that need least by the memory model, the plan that
 * needs least as compiled. It is the search's if it fits; else it says what would do. The plan is
 * left with any parallel. */
enum sbp_status sbp_outer_take_least_memory(struct sbp_branch_and_bound *e) SBP_MUST_USE;

#endif
