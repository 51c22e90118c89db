/* How a step of stages and micro-batches becomes sums over operators, which is what a search can
 * minimise and what memory is checked against.
 *
 * The length of any path through the dependencies of a step is a lower bound of the step, whatever
 * its operators take: forward through the stages before stage s, all micro-batches on s, back again
 * through the same stages, and the end of the step on the stage that is reached. A path counts each
 * operator's forward pass, backward pass and end of step so and so often: a sum. The step is as
 * long as its longest path; searches minimise one, then price the plan by the timeline.
 *
 * Memory is checked stage by stage: what a stage holds, and activations of as many micro-batches as
 * its schedule keeps in flight at a time, however long its works take; with several chunks also at
 * the moments at which each of them works.
 */
#ifndef SBP_PLANNER_PATHS_PATH_WEIGHTS_H
#define SBP_PLANNER_PATHS_PATH_WEIGHTS_H

#include "planner/paths/path.h"

/* While a piece works its stage keeps activations of so many micro-batches of each of its chunks,
 * the piece's own among them. */
struct sbp_moment {
    int piece;
    double *kept; /* (chunks) */
};

struct sbp_path_weights {
    /* (op_count) times that a forward pass, the backward pass for input gradients (with what is
     * formed again), the work on weight gradients of a micro-batch, and what comes once a step lie
     * on the path; every operator by itself, repeats included. */
    double *forward, *backward, *weight, *end;
    double *crossed;    /* (pieces) messages, there and back, between a piece and the one before */
    double message_s;   /* of all those, at the least, whatever the strategy */
    int pieces, *first; /* (pieces + 1) operators where they begin (costmodel/program/step.h) */
    int memory_stages;  /* >= 1: stages that can be the fullest */
    int *stage;         /* (points) which */
    int *point;         /* (op_count) whether an operator's stage is one: which, -1 */
    double *kept;       /* (op_count) micro-batches whose activations its stage keeps at a time */
    /* Of several chunks, on those stages: at every moment of a piece no more of any chunk is kept
     * than at one of these. */
    int moment_count;
    struct sbp_moment *moment;
};

/* The weights of a plan's parallel along a path. */
enum sbp_status sbp_path_weights_make(const struct sbp_cut *cut, const struct sbp_path *path,
                                      struct sbp_arena *arena, struct sbp_path_weights *weights,
                                      struct sbp_diag *diag) SBP_MUST_USE;
/* Not along a path, but what a device does in a step, the mean over stages: of communication, which
 * adds up whatever overlaps. */
enum sbp_status sbp_path_weights_mean(const struct sbp_cut *cut, struct sbp_arena *arena,
                                      struct sbp_path_weights *weights,
                                      struct sbp_diag *diag) SBP_MUST_USE;

#endif
