/* Roles of an operator in a labelled strategy, per level, as people and files give them.
 *
 * A follower (element-wise operators of one operand, norms) has the roles that follow from where
 * its input rests.
 */
#ifndef SBP_PLANNER_PLAN_ROLES_H
#define SBP_PLANNER_PLAN_ROLES_H

#include <stdbool.h>

#include "planner/plan/plan.h"

/* How many ways a role splits an operator at a level, and over all levels. */
int64_t sbp_role_factor(const struct sbp_cut *cut, const struct sbp_strategy *strategy, int op,
                        int role, int level);
int64_t sbp_role_total(const struct sbp_plan *plan, int op, int role);

/* {"batch": [4, 1], ...}: factors a level, outermost first; roles that split nothing are left out.
 * NULL when memory is out. */
struct cJSON *sbp_roles_json(const struct sbp_plan *plan, int op);
/* "batch 4 x column 8", levels apart as "node: batch 4 | gpu: column 8"; "-" where nothing is
 * split. Returns buffer. */
#define SBP_ROLES_BYTES 256
const char *sbp_roles_text(const struct sbp_plan *plan, int op, char *buffer);
/* The same over all levels together; "whole" where nothing is split. */
const char *sbp_role_totals_text(const struct sbp_plan *plan, int op, char *buffer);

#endif
