/* Reads off a labelled strategy how many ways each role splits an operator, per level of the
 * cluster, and writes that as people and files state it.
 *
 * A follower (an element-wise operator of one operand, a norm) has no labels of its own: its roles
 * follow from where its input rests.
 */
#ifndef SBP_PLANNER_PLAN_ROLES_H
#define SBP_PLANNER_PLAN_ROLES_H

#include <stdbool.h>

#include "planner/plan/plan.h"

/* Ways that a role splits an operator at a level, and over all levels. */
int64_t sbp_role_factor(const struct sbp_cut *cut, const struct sbp_strategy *strategy, int op,
                        int role, int level);
int64_t sbp_role_total(const struct sbp_plan *plan, int op, int role);

/* {"batch": [4, 1], ...}: factors per level, outermost first, without roles that split nothing. The
 * caller deletes it. NULL when memory is out. */
struct cJSON *sbp_roles_json(const struct sbp_plan *plan, int op);
/* "batch 4 x column 8", or with several levels "node: batch 4 | gpu: column 8"; "-" where nothing
 * is split. buffer (SBP_ROLES_BYTES); returns buffer. */
#define SBP_ROLES_BYTES 256
const char *sbp_roles_text(const struct sbp_plan *plan, int op, char *buffer);
/* The same over all levels together, "batch 4 x column 8"; "whole" where nothing is split. */
const char *sbp_role_totals_text(const struct sbp_plan *plan, int op, char *buffer);

#endif
