/* What lives where a step needs most memory, as variables of its space.
 *
 * Less memory is needed only if less lives there: steps to leaner labels best begin at what decides
 * on it. Internal to lean_walk.c.
 */
#ifndef SBP_PLANNER_LEAN_PEAK_H
#define SBP_PLANNER_LEAN_PEAK_H

#include "costmodel/program/step.h"
#include "planner/space/space.h"

struct sbp_lean_peak {
    const struct sbp_space *space;
    int count; /* 0: only what always lives */
    int *variable;
    bool *lives;    /* (tensor_count) */
    bool *takes_to; /* (variable_count) */
};

/* Arrays come out of the arena; empty. E_MEMORY. */
enum sbp_status sbp_lean_peak_init(struct sbp_lean_peak *peak, const struct sbp_space *space,
                                   struct sbp_arena *arena) SBP_MUST_USE;
/* The variables, in order, that decide on the instruction at which the step's fullest device has
 * its arena full, and on tensors of which anything lives then and does not always. */
void sbp_lean_peak_find(struct sbp_lean_peak *peak, const struct sbp_step *step);

#endif
