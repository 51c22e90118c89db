#include "planner/ranking.h"

#include <math.h>

/* Costs differ by round-off where search and program add in another order. */
#define ROUND_OFF 1e-9

enum sbp_status sbp_ranking_init(struct sbp_ranking *ranking, struct sbp_plan *plan, int most)
{
    *ranking = (struct sbp_ranking){
        .most = most, .plan = SBP_NEW(&plan->arena, struct sbp_ranked, most), .rest_s = -INFINITY};
    if (ranking->plan == NULL)
        return SBP_E_MEMORY;
    for (int i = 0; i < most; i++)
        SBP_TRY(sbp_strategy_alloc(&plan->graph, &plan->arena, &ranking->plan[i].strategy));
    return SBP_OK;
}

double sbp_ranking_goal_s(const struct sbp_ranking *ranking)
{
    return ranking->count == ranking->most ? ranking->plan[ranking->most - 1].objective_s
                                           : INFINITY;
}

/* The place that a plan may write over: its own, a free one or the last; -1: it is not wanted. */
static int place_of(struct sbp_ranking *ranking, const struct sbp_split *split, double objective_s)
{
    for (int i = 0; i < ranking->count; i++)
        if (split != NULL && ranking->plan[i].split == split)
            return objective_s < ranking->plan[i].objective_s ? i : -1;
    if (objective_s >= sbp_ranking_goal_s(ranking))
        return -1;
    return ranking->count < ranking->most ? ranking->count++ : ranking->most - 1;
}

void sbp_ranking_offer(struct sbp_ranking *ranking, const struct sbp_plan *plan,
                       const struct sbp_split *split, double objective_s)
{
    int at = place_of(ranking, split, objective_s);
    if (at < 0)
        return;
    struct sbp_ranked taken = ranking->plan[at];
    taken.parallel = plan->parallel;
    taken.split = split;
    taken.objective_s = objective_s;
    sbp_strategy_copy(&plan->graph, &plan->strategy, &taken.strategy);
    for (; at > 0 && ranking->plan[at - 1].objective_s > objective_s; at--)
        ranking->plan[at] = ranking->plan[at - 1];
    ranking->plan[at] = taken;
}

void sbp_ranking_close(struct sbp_ranking *ranking, double open_s)
{
    ranking->proved = 0;
    while (ranking->proved < ranking->count &&
           ranking->plan[ranking->proved].objective_s * (1 - ROUND_OFF) <= open_s)
        ranking->proved++;
    ranking->rest_s = fmin(open_s, sbp_ranking_goal_s(ranking));
}
