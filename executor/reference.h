/* The reference of a verification: the same graph on one device in double, with magnitudes.
 *
 * A magnitude is the sum of the absolute values of what a parameter gradient (or the loss) adds up,
 * which the rounding error of any order of summation is proportional to.
 */
#ifndef SBP_EXECUTOR_REFERENCE_H
#define SBP_EXECUTOR_REFERENCE_H

#include "executor/rank.h"

struct sbp_reference {
    struct sbp_arena arena;
    struct sbp_graph graph; /* the run's, borrowed arrays; no optimizer state, no clipping */
    struct sbp_program program;
    struct sbp_rank rank;
    double **magnitude; /* (tensor_count), of weights' gradients; NULL for others; owned */
    double **output;    /* (tensor_count), of activations that nobody reads; NULL for others */
    double **output_magnitude; /* of these */
    double *output_terms;      /* (tensor_count) how many terms an element of them sums */
    double loss, loss_magnitude;
};

/* On failure nothing is left allocated. */
enum sbp_status sbp_reference_open(struct sbp_reference *reference, const struct sbp_graph *graph,
                                   const struct sbp_cluster *cluster, uint64_t seed,
                                   struct sbp_diag *diag) SBP_MUST_USE;
void sbp_reference_close(struct sbp_reference *reference);

/* The whole tensor on the reference, row-major; NULL for what is no weight. */
double *sbp_reference_weight(struct sbp_reference *reference, int tensor);
double *sbp_reference_gradient(struct sbp_reference *reference, int tensor);

/* Forward and backward of a step from the weights as they stand. */
enum sbp_status sbp_reference_run(struct sbp_reference *reference, int64_t step,
                                  struct sbp_diag *diag) SBP_MUST_USE;

/* The instruction that completes an activation that no operator reads, where it rests, or -1; for
 * any program of the graph. Its buffer holds the block when the instruction is over. */
int sbp_output_instr(const struct sbp_program *program, int tensor);

#endif
