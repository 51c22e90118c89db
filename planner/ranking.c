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

/* Whether two plans differ in nothing but words. */
static bool is_same_step(const struct sbp_ranked *a, const struct sbp_ranked *b)
{
    return a->step_s == b->step_s && a->device_bytes == b->device_bytes &&
           a->parallel.pipeline == b->parallel.pipeline &&
           a->parallel.micro_batch == b->parallel.micro_batch &&
           sbp_splits_equal(a->split, b->split);
}

/* The place that a plan may write over: its own, a free one or the last; -1: it is not wanted. */
static int place_of(struct sbp_ranking *ranking, const struct sbp_ranked *offered)
{
    for (int i = 0; offered->split != NULL && i < ranking->count; i++) {
        const struct sbp_ranked *listed = &ranking->plan[i];
        if (listed->split == offered->split || is_same_step(listed, offered))
            return offered->objective_s < listed->objective_s ? i : -1;
    }
    if (offered->objective_s >= sbp_ranking_goal_s(ranking))
        return -1;
    return ranking->count < ranking->most ? ranking->count++ : ranking->most - 1;
}

void sbp_ranking_offer(struct sbp_ranking *ranking, const struct sbp_plan *plan,
                       const struct sbp_ranked *offered)
{
    struct sbp_ranked taken = *offered;
    taken.parallel = plan->parallel;
    int at = place_of(ranking, &taken);
    if (at < 0)
        return;
    taken.strategy = ranking->plan[at].strategy;
    sbp_strategy_copy(&plan->graph, &plan->strategy, &taken.strategy);
    for (; at > 0 && ranking->plan[at - 1].objective_s > taken.objective_s; at--)
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
