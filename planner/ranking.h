/* The best distinct plans of a search, in order.
 *
 * Plans are distinct where the step is cut otherwise (planner/candidates.h) or a layer is split
 * otherwise (planner/part.h).
 */
#ifndef SBP_PLANNER_RANKING_H
#define SBP_PLANNER_RANKING_H

#include "planner/part.h"

struct sbp_ranked {
    struct sbp_parallel parallel;
    struct sbp_strategy strategy;
    const struct sbp_split *split; /* which plan it is; NULL where one is asked for */
    double objective_s;
};

struct sbp_ranking {
    int most, count;         /* plans asked for, and found */
    struct sbp_ranked *plan; /* (most) the best first */
    int proved;              /* of the first so many it is proved that there are no better ones */
    double rest_s;           /* a plan that is not listed costs at least this; INFINITY: no more */
};

/* Strategies come out of the plan's arena. E_MEMORY. */
enum sbp_status sbp_ranking_init(struct sbp_ranking *ranking, struct sbp_plan *plan,
                                 int most) SBP_MUST_USE;
/* A plan is wanted if it costs less than this; INFINITY while there are too few. */
double sbp_ranking_goal_s(const struct sbp_ranking *ranking);
/* Takes the plan's strategy at its parallel in its place, where it costs less than the goal and,
 * with the same split (the pointer says so, and is kept), less than what is listed. */
void sbp_ranking_offer(struct sbp_ranking *ranking, const struct sbp_plan *plan,
                       const struct sbp_split *split, double objective_s);
/* With all open_s or more that is not settled: counts what is proved. */
void sbp_ranking_close(struct sbp_ranking *ranking, double open_s);

#endif
