/* Searches that leave what they find in a plan, as commands do. */
#ifndef SBP_TESTS_SUPPORT_SOLVE_PLAN_H
#define SBP_TESTS_SUPPORT_SOLVE_PLAN_H

#include "planner/outer/branch_and_bound.h"

/* Over the strategies of the plan's cut, as a search goes about it. */
static inline enum sbp_status solve_as(struct sbp_plan *plan,
                                       const struct sbp_solve_request *request,
                                       struct sbp_outcome *outcome, struct sbp_diag *diag)
{
    const enum sbp_status status =
        sbp_inner_solve(&plan->cut, request, &plan->arena, outcome, diag);
    if (status == SBP_OK)
        plan->strategy = outcome->strategy;
    return status;
}

static inline enum sbp_status solve_plan(struct sbp_plan *plan, const struct sbp_request *request,
                                         struct sbp_outcome *outcome, struct sbp_diag *diag)
{
    return solve_as(plan, &(const struct sbp_solve_request){.asked = *request}, outcome, diag);
}

/* Over all that the request leaves open, for the `most` best plans. */
static inline enum sbp_status explore_top(struct sbp_plan *plan, const struct sbp_request *request,
                                          int most, struct sbp_pool *ranking,
                                          struct sbp_outcome *outcome, struct sbp_diag *diag)
{
    SBP_TRY(sbp_outer_search(plan, request, most, &plan->arena, ranking, outcome, diag));
    if (ranking->count == 0)
        return SBP_OK;
    plan->strategy = ranking->plan[0].strategy;
    return sbp_plan_cut(plan, &ranking->plan[0].parallel, diag);
}

static inline enum sbp_status explore_plan(struct sbp_plan *plan, const struct sbp_request *request,
                                           struct sbp_outcome *outcome, struct sbp_diag *diag)
{
    struct sbp_pool ranking;
    return explore_top(plan, request, 1, &ranking, outcome, diag);
}

#endif
