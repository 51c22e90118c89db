/* The best distinct plans of a search, in order.
 *
 * Plans are distinct where a layer is split otherwise (planner/space/subspace.h), or where the step
 * is cut otherwise (planner/outer/step_cuts.h) and then takes another time or other memory: to form
 * attention again is nothing where there is none.
 */
#ifndef SBP_PLANNER_INNER_SOLUTION_POOL_H
#define SBP_PLANNER_INNER_SOLUTION_POOL_H

#include "planner/space/subspace.h"

struct sbp_pool_plan {
    struct sbp_parallel parallel;
    struct sbp_strategy strategy;
    const struct sbp_splits *split; /* which plan it is; NULL where one is asked for */
    double objective_s;
    double step_s; /* these two where several are asked for */
    int64_t device_bytes;
};

struct sbp_pool {
    int most, count;            /* plans asked for, and found */
    struct sbp_pool_plan *plan; /* (most) the best first */
    int proved;    /* of the first so many it is proved that there are no better ones */
    double rest_s; /* a plan that is not listed costs at least this; INFINITY: no more */
    double left_s; /* the least of what was offered and found no place */
};

/* Strategies of the graph come out of the arena. E_MEMORY. */
enum sbp_status sbp_pool_init(struct sbp_pool *pool, const struct sbp_graph *graph,
                              struct sbp_arena *arena, int most) SBP_MUST_USE;
/* A plan is wanted if it costs less than this; INFINITY while there are too few. */
double sbp_pool_goal_s(const struct sbp_pool *pool);
/* Copies a strategy of the cut into its place, where it costs less than the goal and than the same
 * plan in the list, which it replaces. With several asked for, offered->split is
 * given and kept; of one candidate's plan that is offered twice it is the same pointer. */
void sbp_pool_offer(struct sbp_pool *pool, const struct sbp_cut *cut,
                    const struct sbp_strategy *strategy, const struct sbp_pool_plan *offered);
/* With all open_s or more that is not settled: counts what is proved. */
void sbp_pool_close(struct sbp_pool *pool, double open_s);

#endif
