/* One program under examination by the second opinion: what has been seen of it so far. Internal.
 */
#ifndef SBP_PLANNER_CHECK_FLOW_H
#define SBP_PLANNER_CHECK_FLOW_H

#include "planner/check_parts.h"

/* An activation's block comes out of its producer, is boxed to where it rests and from there to
 * what each reader wants; gradients go the same way backwards. `root` is the block at rest that a
 * block was boxed from, `of` the tensor that it was boxed for. */
struct sbp_flow {
    struct sbp_checker *c;
    const struct sbp_program *program;
    const struct sbp_graph *graph;
    struct sbp_held_weight *held; /* (tensor_count) */
    bool *there;                  /* (buffer_count) has been written */
    int *root, *of;               /* (buffer_count) */
    int *forward, *backward;      /* (op_count) instructions of the passes, done again left out */
    int *sums;                    /* (tensor_count) additions of gradients */
    int *formed, *updated;        /* (tensor_count) of weights */
    int *stage_sums, *gathered;   /* (tensor_count) once a step */
    struct sbp_dist *gradient;    /* (tensor_count) state of a weight's, as far as it is summed */
    unsigned *inner;              /* (op_count) collectives inside an operator that were seen */
    int *parts;                   /* (tensor_count) of its gradient */
    int norms;
};

/* After the last instruction: every operator ran in all its phases with all its collectives, every
 * gradient got all its parts, every weight was updated once. */
enum sbp_status sbp_check_complete(struct sbp_flow *flow) SBP_MUST_USE;

#endif
