/* Which operator every instruction of a program serves: what reports add up by layer.
 *
 * A collective belongs to the operator whose strategy asks for it: leaving what an operator left
 * partial to the producer, gathering what an operator needs whole to the consumer, the sum of a
 * weight's gradient to the weight's operator.
 */
#ifndef SBP_PLANNER_OWNERS_H
#define SBP_PLANNER_OWNERS_H

#include "costmodel/program.h"

/* owner (instr_count): an operator, or -1 for what serves the step as a whole (the norm). */
void sbp_program_owners(const struct sbp_program *program, int *owner);

#endif
