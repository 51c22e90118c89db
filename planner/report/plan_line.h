/* Describes a plan in one line. Input: a plan and the kind of its space. Output: a short text that
 * says how the step is cut, then how its layers are split. */
#ifndef SBP_PLANNER_REPORT_PLAN_LINE_H
#define SBP_PLANNER_REPORT_PLAN_LINE_H

#include "planner/plan/plan.h"
#include "planner/plan/request.h"

/* "pipeline 8 1f1b, micro-batch 64, ZeRO 1, recompute, batch 4 x column 8 (96), ...". Defaults are
 * left out. Layers are those with weights of their own; every repeat counts, and the most frequent
 * strategy comes first. With one mesh for all layers: "data 4 x tensor 8". Returns buffer. */
#define SBP_PLAN_LINE_BYTES 79
const char *sbp_plan_line(const struct sbp_plan *plan, enum sbp_space_kind space, char *buffer);

/* "ZeRO 1", or "ZeRO 0-1" where layers differ: the levels of all layers with weights, of which
 * `parallel` has but the default; "" where all are 0. A plan may be without a strategy. Returns
 * buffer (SBP_PLAN_LINE_ZERO_BYTES). */
#define SBP_PLAN_LINE_ZERO_BYTES 40
const char *sbp_plan_line_zero(const struct sbp_plan *plan, char *buffer);

#endif
