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
 * its schedule keeps in flight at a time, however long its works take.
 */
#ifndef SBP_PLANNER_VIEW_H
#define SBP_PLANNER_VIEW_H

#include "planner/plan.h"

struct sbp_view {
    /* (op_count) times that a forward pass, the backward pass for input gradients (with what is
     * formed again), the work on weight gradients of a micro-batch, and what comes once a step lie
     * on the path; every operator by itself, repeats included. */
    double *forward, *backward, *weight, *end;
    double message_s;   /* of the path's messages, at the least, whatever the strategy */
    int pieces, *first; /* (pieces + 1) operators where they begin (costmodel/step.h) */
    int points;         /* of memory, >= 1: stages that can be the fullest */
    int *stage;         /* (points) which */
    int *point;         /* (op_count) whether an operator's stage is one: which, -1 */
    double *kept;       /* (op_count) micro-batches whose activations its stage keeps at a time */
};

/* A path, by pieces (costmodel/step.h): how many works of each lie on it, and how many messages
 * that leave each, forward and backward. Works on weight gradients count as many as those on input
 * gradients, unless the schedule parts them. */
struct sbp_path {
    int pieces;
    double *forward, *backward, *weight, *sent, *returned; /* (pieces) */
    int end;                                               /* stage whose end of the step it has */
};

/* Arrays of paths and views come out of the arena. The plan's graph and mesh are cut as its
 * parallel says (sbp_plan_set_parallel). E_INPUT: the model has too few cuts; E_MEMORY.
 *
 * longest: over the last stage and back to the first; where weight gradients come late, the way
 * back is not bound to be long, and the path ends on the last stage. With one stage all there is.
 * expected: the longest if work takes what its flops do. of_step: the longest of a compiled plan.
 * Under a schedule whose orders are not fixed the last two are the first. */
enum sbp_status sbp_path_longest(const struct sbp_plan *plan, struct sbp_arena *arena,
                                 struct sbp_path *path) SBP_MUST_USE;
enum sbp_status sbp_path_expected(const struct sbp_plan *plan, struct sbp_arena *arena,
                                  struct sbp_path *path, struct sbp_diag *diag) SBP_MUST_USE;
enum sbp_status sbp_path_of_step(const struct sbp_plan *plan, const struct sbp_strategy *strategy,
                                 struct sbp_arena *arena, struct sbp_path *path,
                                 struct sbp_diag *diag) SBP_MUST_USE;
bool sbp_path_equal(const struct sbp_path *a, const struct sbp_path *b);

/* The view of a plan's parallel along a path. */
enum sbp_status sbp_view_make(const struct sbp_plan *plan, const struct sbp_path *path,
                              struct sbp_arena *arena, struct sbp_view *view,
                              struct sbp_diag *diag) SBP_MUST_USE;
/* Not along a path, but what a device does in a step, the mean over stages: of communication, which
 * adds up whatever overlaps. */
enum sbp_status sbp_view_mean(const struct sbp_plan *plan, struct sbp_arena *arena,
                              struct sbp_view *view, struct sbp_diag *diag) SBP_MUST_USE;

#endif
