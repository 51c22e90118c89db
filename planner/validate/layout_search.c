#include "planner/validate/layout_search.h"

#include "planner/outer/branch_and_bound.h"

enum sbp_status sbp_layout_search(struct sbp_plan *plan, const struct sbp_degrees *degrees,
                                  int64_t limit_bytes, double most_s,
                                  const struct sbp_solver_options *options, double *step_s,
                                  struct sbp_diag *why)
{
    struct sbp_degrees_plan made;
    struct sbp_pool pool = {0};
    struct sbp_outcome outcome;
    SBP_TRY(sbp_degrees_apply(degrees, plan, &plan->arena, &made, why));
    const struct sbp_request request = {.space = SBP_SPACE_FULL,
                                        .boxing = SBP_BOXING_FULL,
                                        .given = ~0u,
                                        .memory_limit_bytes = limit_bytes,
                                        .most_s = most_s,
                                        .plan_alone = true,
                                        .solver_options = *options,
                                        .fix = made.fix,
                                        .fix_count = made.fix_count};
    SBP_TRY(sbp_outer_search(plan, &request, 1, &plan->arena, &pool, &outcome, why));
    if (pool.count == 0)
        return sbp_fail(why, SBP_NO, "%s",
                        outcome.stopped ? "the search ended before a legal strategy was found"
                                        : "no legal strategy has these degrees");
    SBP_TRY(sbp_plan_cut(plan, &pool.plan[0].parallel, why));
    plan->strategy = pool.plan[0].strategy;
    *step_s = pool.plan[0].objective_s;
    return SBP_OK;
}
