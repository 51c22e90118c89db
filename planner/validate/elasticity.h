/* By how much the step of a plan would be shorter were the machine a little faster in one way.
 *
 * Input: a plan with its strategy. Output: for each constant of the machine the derivative of the
 * logarithm of the step's time by that of the constant, with the sign of what is saved: 0.3 means
 * that 1 % more of it saves 0.3 % of the step. The plan stays as it is, which is the derivative of
 * the optimum, too, where the plan is optimal and no other one is as good.
 */
#ifndef SBP_PLANNER_VALIDATE_ELASTICITY_H
#define SBP_PLANNER_VALIDATE_ELASTICITY_H

#include "planner/plan/plan.h"

struct sbp_elasticity {
    double arithmetic;           /* the rates of products and kernels */
    double memory_bandwidth;     /* of a device */
    double link[SBP_MAX_LEVELS]; /* bandwidth between the members of a level; of a calibration
                                    those within a node count for the innermost level, those
                                    between nodes for the outermost; of curves also latencies */
};

/* Prices the plan once for each. Fails as sbp_cut_make and sbp_cut_step. */
enum sbp_status sbp_elasticity_make(const struct sbp_plan *plan, struct sbp_elasticity *elasticity,
                                    struct sbp_diag *diag) SBP_MUST_USE;

#endif
