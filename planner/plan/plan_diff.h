/* What differs between two plans, in a few words: for tables of plans that change with a setting.
 */
#ifndef SBP_PLANNER_PLAN_PLAN_DIFF_H
#define SBP_PLANNER_PLAN_PLAN_DIFF_H

#include "planner/plan/plan.h"

/* "pipeline 1 -> 2, block0.qkv batch 8 -> batch 4 x column 2 (+3 layers)": keys of the step first,
 * then of the layers that are split otherwise the one with most parameters; "" for two plans that
 * are the same. Layers are known by their names, so that the plans may be of different models. A
 * micro-batch that is the whole batch stays it. Returns buffer. */
#define SBP_PLAN_CHANGE_BYTES 120
const char *sbp_plan_change(const struct sbp_plan *before, const struct sbp_plan *after,
                            char *buffer);

#endif
