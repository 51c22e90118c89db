/* The best distinct plans that a search has found, cheapest first.
 *
 * Two plans are distinct if a layer is split otherwise (planner/space/subspace.h), or if the step
 * is cut otherwise (planner/outer/step_cuts.h) and that changes its time or memory: recomputing
 * attention is no other plan where a model has none.
 */
#ifndef SBP_PLANNER_INNER_SOLUTION_POOL_H
#define SBP_PLANNER_INNER_SOLUTION_POOL_H

#include "planner/space/subspace.h"

struct sbp_pool_plan {
    struct sbp_parallel parallel;
    struct sbp_strategy strategy;
    const struct sbp_splits *split; /* tells plans apart; NULL with one plan asked for */
    double objective_s;
    double step_s; /* step_s and device_bytes: with several plans asked for */
    int64_t device_bytes;
};

struct sbp_pool {
    int most, count;            /* plans asked for, and found */
    struct sbp_pool_plan *plan; /* (most) the best first */
    int proved;                 /* so many of the first are proved to be the best ones */
    double rest_s;              /* lower bound of all plans not listed; INFINITY: there are none */
    double left_s;              /* the least cost that was offered and found no place */
};

/* Room for `most` plans of the graph, from the arena. E_MEMORY. */
enum sbp_status sbp_pool_init(struct sbp_pool *pool, const struct sbp_graph *graph,
                              struct sbp_arena *arena, int most) SBP_MUST_USE;
/* Cost below which a plan still finds a place; INFINITY while there is room. */
double sbp_pool_goal_s(const struct sbp_pool *pool);
/* Copies a strategy of the cut into its place, if it costs less than the goal and less than the
 * same plan in the pool, which it replaces. With several plans asked for, offered->split is given
 * and must live as long as the pool; a plan that one candidate offers twice has the same pointer.
 */
void sbp_pool_offer(struct sbp_pool *pool, const struct sbp_cut *cut,
                    const struct sbp_strategy *strategy, const struct sbp_pool_plan *offered);
/* Counts the proved plans, where every plan that was not looked at costs open_s or more. */
void sbp_pool_close(struct sbp_pool *pool, double open_s);

#endif
