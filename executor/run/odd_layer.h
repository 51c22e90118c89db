/* Finds the layer that made the first NaN or infinity of a step.
 *
 * A step whose loss, norm or gradient is no finite number is run a second time (run.c), and after
 * each of its tasks the buffers that it wrote are read. The weights are still those that the step
 * began with, since no update takes such a gradient, and so are data and dropout. A step that goes
 * well pays for one pass over its gradients, and for none where clipping sums their squares anyway.
 */
#ifndef SBP_EXECUTOR_RUN_ODD_LAYER_H
#define SBP_EXECUTOR_RUN_ODD_LAYER_H

#include "executor/rank/rank.h"

/* A layer whose values are odd: NaN or infinity. Ranks send it as bytes, so it holds no pointers.
 */
struct sbp_odd_layer {
    bool found;
    char layer[64], what[24]; /* "h3.mlp.fc1"; "output", "input gradient", "weight gradient" */
    int rank;                 /* among those of all stages */
    int op, instr;            /* its place in the graph, and in its stage's program */
    bool is_backward;
    int micro_batch;
};

/* "layer h3.mlp.fc1: its output holds NaN or infinity (step 2, rank 1)"; returns text. */
const char *sbp_odd_layer_text(const struct sbp_odd_layer *odd, int step, char *text, int size);

/* Whether a step makes the values of `a` before those of `b`; what is not found comes last. */
bool sbp_odd_layer_precedes(const struct sbp_odd_layer *a, const struct sbp_odd_layer *b);

/* Before an UPDATE of a step that forms no norm: has the device leave it out if its gradient is not
 * finite, by the sum of its squares: in double those above 1e154 are not. */
void sbp_odd_layer_watch(struct sbp_rank *rank, const struct sbp_instr *instr);
/* Before the second look at a step. */
void sbp_odd_layer_clear(struct sbp_rank *rank);
/* After a task was executed: if it wrote odd values, and none were found before, *odd becomes its
 * layer, without the rank. Fails as the device does. */
enum sbp_status sbp_odd_layer_look(struct sbp_rank *rank, const struct sbp_task *task,
                                   struct sbp_odd_layer *odd, struct sbp_diag *diag) SBP_MUST_USE;

#endif
