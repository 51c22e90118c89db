/* Graph, cluster and mesh of a plan, read from its model and its cluster.
 *
 * Private to the two ways to begin a plan: from two files, and from a plan file. On failure the
 * caller frees the plan.
 */
#ifndef SBP_PLANNER_PLAN_PLAN_PRIV_H
#define SBP_PLANNER_PLAN_PLAN_PRIV_H

#include "planner/plan/plan.h"

enum sbp_status sbp_plan_load(const struct sbp_json *model, const struct sbp_json *cluster,
                              struct sbp_plan *plan) SBP_MUST_USE;

#endif
