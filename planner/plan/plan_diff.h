/* Describes in a few words how one plan differs from another. Input: two plans. Output: a short
 * text, for tables that list plans over a setting. */
#ifndef SBP_PLANNER_PLAN_PLAN_DIFF_H
#define SBP_PLANNER_PLAN_PLAN_DIFF_H

#include "planner/plan/plan.h"

/* Writes "pipeline 1 -> 2, block0.qkv batch 8 -> batch 4 x column 2 (+3 layers)": first the keys of
 * `parallel`, then the largest of the layers that are split differently, by parameters; "" for
 * equal plans. Layers are matched by name, so that the plans may be of different models. Two
 * micro-batches that are each the whole batch count as equal. buffer (SBP_PLAN_CHANGE_BYTES);
 * returns buffer. */
#define SBP_PLAN_CHANGE_BYTES 120
const char *sbp_plan_change(const struct sbp_plan *before, const struct sbp_plan *after,
                            char *buffer);

/* Whether the outputs of two operators, of plans over the same levels, rest in as many ways of each
 * state at each level. */
bool sbp_plan_rests_alike(const struct sbp_plan *a, int one, const struct sbp_plan *b, int two);

#endif
