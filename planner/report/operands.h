/* What a layer of a plan reads and writes, and where; and whom a collective joins. Input: a plan.
 * Output: the tensors of an operator with their distributions, and groups in words. */
#ifndef SBP_PLANNER_REPORT_OPERANDS_H
#define SBP_PLANNER_REPORT_OPERANDS_H

#include "planner/plan/plan.h"

struct sbp_operand {
    const char *use; /* "input", "weight", "gradient", "output", "rests" */
    int tensor;
    struct sbp_dist dist;
};
#define SBP_MOST_OPERANDS (SBP_MAX_INPUTS + 2 * SBP_MAX_WEIGHTS + 2)

/* The tensors of an operator in the order of the list above; returns how many there are. */
int sbp_operands_of(const struct sbp_plan *plan, int op,
                    struct sbp_operand operand[SBP_MOST_OPERANDS]);

/* "16x1x48x1"; returns text. */
#define SBP_SHAPE_BYTES 96
const char *sbp_operands_shape_text(const struct sbp_shape *shape, char text[SBP_SHAPE_BYTES]);

/* Members of a collective's group by level, "node 2 x gpu 4", and stages where it spans some;
 * returns text. */
#define SBP_GROUP_BYTES 192
const char *sbp_operands_group_text(const struct sbp_plan *plan, const struct sbp_instr *instr,
                                    char text[SBP_GROUP_BYTES]);

#endif
