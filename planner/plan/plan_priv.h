/* Reads the workload of a plan and cuts it into one stage and one micro-batch.
 *
 * Shared by the two ways to begin a plan: from two files, and from a plan file. On failure the
 * caller frees the plan. Internal to planner/plan/plan.h.
 */
#ifndef SBP_PLANNER_PLAN_PLAN_PRIV_H
#define SBP_PLANNER_PLAN_PLAN_PRIV_H

#include "planner/plan/plan.h"

enum sbp_status sbp_plan_load(const struct sbp_json *model, const struct sbp_json *cluster,
                              struct sbp_plan *plan) SBP_MUST_USE;

#endif
