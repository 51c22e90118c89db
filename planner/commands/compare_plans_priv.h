/* Compares two plan files. Input: the arguments of `sbplan compare`. Output: a table of both plans'
 * costs, and how the second differs. */
#ifndef SBP_PLANNER_COMMANDS_COMPARE_PLANS_PRIV_H
#define SBP_PLANNER_COMMANDS_COMPARE_PLANS_PRIV_H

#include "planner/cli/options.h"

/* Whether both operands are plan files, not a model and a cluster. */
bool sbp_compare_plans_asked(const struct sbp_arguments *arguments);
/* E_USAGE: an option would change what is searched; and what sbp_plan_read fails with. */
enum sbp_status sbp_compare_plans(const struct sbp_arguments *arguments,
                                  struct sbp_diag *diag) SBP_MUST_USE;

#endif
