/* The parts of one sbp_outer_search. branch_and_bound.c decides which candidate is next,
 * initial_plans.c makes initial plans, node_solve.c bounds and solves a candidate, branching.c
 * divides a solved one, infeasible.c finds the plan of least memory where nothing fits. Internal.
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

/* How much is known of a candidate: its arithmetic bound; the bound over strategies; its plan
 * without the memory limit, which does not fit; no plan below the ceiling of the first try; plans
 * along mixtures of paths; everything. */
enum sbp_knowledge { SBP_LISTED, SBP_BOUNDED, SBP_RELAXED, SBP_TRIED, SBP_MIXED, SBP_SOLVED };

struct sbp_node {
    struct sbp_parallel parallel;
    const struct sbp_subspace *part; /* part of its strategies; NULL: all of them */
    enum sbp_knowledge knowledge;
    double bound_s, time_s; /* with the memory limit and without (bases alone) */
    int base;               /* index of the sibling without recompute and offload */
    bool is_base, siblings_are_open;
    double least_bytes; /* of a device, by the memory model; 0: not known, INFINITY: not legal */
    struct sbp_mixture *mixture; /* its paths, for path enumeration; NULL unless SBP_MIXED */
};

struct sbp_branch_and_bound {
    const struct sbp_plan *given; /* the workload, and how the step is cut where it is given */
    struct sbp_arena *plans;      /* holds the results */
    struct sbp_cut cut;           /* the candidate at hand */
    struct sbp_arena cut_arena;
    struct sbp_arena solve_arena; /* strategies found for it */
    const struct sbp_request *request;
    struct sbp_solve_request solve; /* common to all candidates */
    struct sbp_outcome *out;
    struct sbp_diag *diag;
    struct sbp_arena arena;
    struct sbp_price_cache cache;
    double start_s;

    struct sbp_node *node; /* (node_count) */
    int node_count, node_room;
    struct sbp_queue queue; /* open candidates, by bound */
    struct sbp_queue dives; /* open candidates, by expected cost */
    int turns, wait;        /* turns since the last dive, and turns before the next */
    bool is_dive;           /* the candidate at hand comes from dives */
    double overhead; /* least ratio of compiled to modelled bytes among plans that did not fit; 0:
                        none */
    double open_s;   /* least bound of candidates that were closed without a proof */
    double first_open_s; /* that of the first pass; -INFINITY: there was none */
    bool has_passed;     /* the first pass is over */
    double open_work;    /* of the second pass, in tuples */

    struct sbp_pool *pool;
    struct sbp_pool found;           /* the best plan of the candidate at hand */
    struct sbp_pool first;           /* the best initial plan */
    bool memory_binds, is_too_large; /* of the candidate at hand */
    bool any_legal;
    struct sbp_diag refusal; /* why the first illegal candidate is not legal */

    int cuts;             /* candidates that were divided into parts */
    int64_t work;         /* operators of the candidates solved since the first division */
    int64_t first_cut_at; /* evaluations at the first division */
};

/* ---- branch_and_bound.c ---------------------------------------------------------------------- */

/* Cuts the step as a candidate does, into e->cut. Fails as sbp_cut_make. */
enum sbp_status sbp_outer_cut(struct sbp_branch_and_bound *e, const struct sbp_parallel *parallel,
                              struct sbp_diag *diag) SBP_MUST_USE;
/* Opens a candidate. E_MEMORY. */
enum sbp_status sbp_outer_push(struct sbp_branch_and_bound *e, int index) SBP_MUST_USE;
/* Whether the user, the time limit or the budget ends the search. */
bool sbp_outer_is_over(struct sbp_branch_and_bound *e);

/* Whether the second pass has spent its work; without a plan it goes on. */
static inline bool sbp_outer_is_spent(const struct sbp_branch_and_bound *e)
{
    return e->has_passed && e->open_work > SBP_OUTER_OPEN_WORK && e->pool->count > 0;
}

/* Objective of the best plan so far, that of the candidate at hand included. */
static inline double sbp_outer_best_s(const struct sbp_branch_and_bound *e)
{
    const double ranked_s = e->pool->count > 0 ? e->pool->plan[0].objective_s : INFINITY;
    return fmin(fmin(ranked_s, sbp_pool_goal_s(&e->first)), sbp_pool_goal_s(&e->found));
}

/* Seconds from the start at which the search ends; INFINITY: never. Without a plan it leaves time
 * to look for the one of least memory. */
static inline double sbp_outer_limit_s(const struct sbp_branch_and_bound *e)
{
    const double limit_s = e->request->solver_options.time_limit_s;
    const double share =
        isfinite(sbp_outer_best_s(e)) ? SBP_OUTER_TIME_SHARE : 1 - SBP_OUTER_LEAST_MEMORY_TIME;
    return limit_s > 0 ? share * limit_s : INFINITY;
}

/* Cost below which a plan is still looked for. */
static inline double sbp_outer_goal_s(const struct sbp_branch_and_bound *e)
{
    const double most_s = e->request->most_s > 0 ? e->request->most_s : INFINITY;
    return fmin(most_s, fmin(sbp_pool_goal_s(e->pool), sbp_pool_goal_s(&e->found)));
}

/* Whether a bound reaches the goal, so that the candidate is dropped. */
static inline bool sbp_outer_is_refuted(const struct sbp_branch_and_bound *e, double bound_s)
{
    return bound_s >= sbp_outer_goal_s(e) * (1 - SBP_INNER_ROUND_OFF);
}

/* Whether it is proved that no candidate has a plan that fits. */
static inline bool sbp_outer_is_infeasible(const struct sbp_branch_and_bound *e)
{
    return e->pool->count == 0 && isinf(e->open_s) && e->open_s > 0 && !e->out->stopped;
}

/* Whether a candidate failed because the search's memory is spent. The search goes on without it,
 * and says so. */
static inline bool sbp_outer_leaves_out(struct sbp_branch_and_bound *e, enum sbp_status status)
{
    struct sbp_arena_budget *const budget = e->request->search_memory;
    if (status != SBP_E_MEMORY || budget == NULL || !budget->refused)
        return false;
    budget->refused = false;
    e->out->left_out = true;
    return true;
}

/* Whether solves give bounds: heuristics do not, nor does a budget of evaluations, which is spent
 * by one solver. */
static inline bool sbp_outer_proves(const struct sbp_branch_and_bound *e)
{
    const struct sbp_solver *solver = e->request->solver;
    return (solver == NULL || strcmp(solver->name, "exact") == 0) &&
           e->request->solver_options.max_evaluations == 0;
}

/* ---- initial_plans.c ------------------------------------------------------------------------- */

/* Makes initial plans, ranks the best one (with one plan asked for), and opens the candidates whose
 * initial plans cost at most SBP_OUTER_PROMISING_RATIO times as much. Bounds can be weak, so that
 * the order by bounds alone finds good plans late; these candidates lead to a good plan early,
 * which refutes others. */
enum sbp_status sbp_outer_open_promising(struct sbp_branch_and_bound *e) SBP_MUST_USE;
/* Ranks the best initial plan, if there is one that is not ranked. */
enum sbp_status sbp_outer_rank_first(struct sbp_branch_and_bound *e) SBP_MUST_USE;

/* ---- node_solve.c ------------------------------------------------------------------------- */

/* The request for a candidate's spaces. Trims the price cache: no other candidate's space may be
 * alive. */
struct sbp_solve_request sbp_outer_request(struct sbp_branch_and_bound *e,
                                           const struct sbp_node *node);
/* Weights along the longest path of e->cut by work alone, which needs no strategy. */
enum sbp_status sbp_outer_plain_weights(struct sbp_branch_and_bound *e,
                                        struct sbp_path_weights *weights,
                                        struct sbp_diag *diag) SBP_MUST_USE;
/* Adds a solver's answer to the search's. */
void sbp_outer_note_outcome(struct sbp_branch_and_bound *e, const struct sbp_outcome *found);

/* Bounds a candidate over its strategies, with the memory limit and without. *legal false: it has
 * no strategy. Interrupted, the candidate keeps its bound and stays open. */
enum sbp_status sbp_outer_bound(struct sbp_branch_and_bound *e, struct sbp_node *node,
                                bool *legal) SBP_MUST_USE;
/* Cost below which a candidate's plan is looked for; INFINITY: any. Where memory binds, the search
 * for the cheapest plan may take long and end at a poor one, so that before any plan is known only
 * plans close to the bound are looked for. */
double sbp_outer_ceiling_s(const struct sbp_branch_and_bound *e, const struct sbp_node *node);
/* Solves a candidate along paths and mixtures of them; sets e->found, e->memory_binds,
 * e->is_too_large and the node's bound. Where path enumeration may help, the node keeps its paths
 * and is SBP_MIXED. */
enum sbp_status sbp_outer_solve(struct sbp_branch_and_bound *e, struct sbp_node *node) SBP_MUST_USE;
/* Closes the gap that mixtures leave: plans that are good along all paths, one after the other. */
enum sbp_status sbp_outer_enumerate_paths(struct sbp_branch_and_bound *e,
                                          struct sbp_node *node) SBP_MUST_USE;

/* ---- branching.c ------------------------------------------------------------------------- */

/* Ranks the best plan of `found`, a strategy of e->cut and of a part (NULL: of the whole space),
 * and empties `found`. *ranked: the plan as it was ranked; objective_s is INFINITY where there was
 * none. */
enum sbp_status sbp_outer_rank(struct sbp_branch_and_bound *e, struct sbp_pool *found,
                               const struct sbp_subspace *part,
                               struct sbp_pool_plan *ranked) SBP_MUST_USE;
/* Ranks a solved candidate's plan. The rest of the candidate stays open for path enumeration or,
 * with several plans asked for, as parts. */
enum sbp_status sbp_outer_close(struct sbp_branch_and_bound *e, int index) SBP_MUST_USE;

/* ---- infeasible.c ------------------------------------------------------------------------- */

/* Where nothing was found: solves the candidates of least memory by the model, and takes the plan
 * that needs least once compiled. If it fits it is ranked, else the outcome says which memory would
 * do. */
enum sbp_status sbp_outer_take_least_memory(struct sbp_branch_and_bound *e) SBP_MUST_USE;

#endif
