/* The reference of a verification: the same graph on one device in double, and its error sizes.
 *
 * A second rank, the shadow, computes the step in single precision alongside, instruction by
 * instruction. Its deviation from the reference tells how large the errors are that a value
 * inherits (executor/verify/magnitude_priv.h). Of a run that stores 16 bits the shadow rounds what
 * an instruction leaves as the run does.
 *
 * Where gradients are of an older state (cdp) the step is computed micro-batch by micro-batch, each
 * from the weights that its recurrence says (executor/verify/delayed_priv.h).
 */
#ifndef SBP_EXECUTOR_VERIFY_REFERENCE_PRIV_H
#define SBP_EXECUTOR_VERIFY_REFERENCE_PRIV_H

#include "executor/verify/delayed_priv.h"
#include "executor/verify/magnitude_priv.h"
#include "executor/rank/rank.h"

/* A value that is no parameter gradient, with the sizes that its bound is made of. */
struct sbp_reference_output {
    double *value, *sum; /* (elements) and the sum of the absolute values of its terms */
    double *inherited;   /* (tokens) standard deviation of an element */
    double terms;
    int64_t features;
};

struct sbp_reference {
    struct sbp_arena arena;
    struct sbp_graph graph; /* the run's, all of the batch at once, or a micro-batch where gradients
                               are delayed; no moments, no clipping */
    int64_t micro_batches;
    struct sbp_delayed delayed; /* without a step: gradients are of the weights as they stand */
    struct sbp_program program, shadow_program;
    struct sbp_stage_layout layout, shadow_layout;
    struct sbp_rank rank, shadow;
    double scale;                     /* as in struct sbp_lockstep */
    enum sbp_real real;               /* the run's */
    double loss_scale;                /* of the step's gradients in the run */
    struct sbp_magnitude **magnitude; /* (tensor_count), NULL for what is no parameter */
    struct sbp_reference_output *
        *output; /* (tensor_count), NULL unless sbp_reference_end_instr says so */
    double loss, loss_sum, loss_inherited;
    struct sbp_post *post; /* borrowed: shows that it is at work; NULL: nobody watches */
};

/* real: the run's; step: what runs, which must outlive the reference. NULL: a step that computes
 * its gradients from the weights as they stand. On failure nothing is left allocated. */
enum sbp_status sbp_reference_open(struct sbp_reference *reference, const struct sbp_graph *graph,
                                   const struct sbp_cluster *cluster, const struct sbp_step *step,
                                   uint64_t seed, enum sbp_real real,
                                   struct sbp_diag *diag) SBP_MUST_USE;
void sbp_reference_close(struct sbp_reference *reference);
/* Bytes that reference and shadow take, by their compiled programs; nothing of that is allocated.
 * Fails as opening does. */
enum sbp_status sbp_reference_bytes(const struct sbp_graph *graph,
                                    const struct sbp_cluster *cluster, const struct sbp_step *step,
                                    double *bytes, struct sbp_diag *diag) SBP_MUST_USE;

/* Before the weights of a step are set. */
void sbp_reference_begin_step(struct sbp_reference *reference);
/* Whole tensors, row-major. Weights are the caller's to set, in both precisions, before a run; the
 * gradient is there after it. The shadow's are NULL where it takes those of the reference. */
double *sbp_reference_weight(struct sbp_reference *reference, int tensor);
float *sbp_reference_shadow_weight(struct sbp_reference *reference, int tensor);
const double *sbp_reference_gradient(struct sbp_reference *reference, int tensor);
/* Of an element of a gradient: the sum of the absolute values of its terms, and the standard
 * deviation of the errors that these bring along; -1: it is exactly 0. */
double sbp_reference_sum(const struct sbp_reference *reference, int tensor, int64_t index);
double sbp_reference_inherited(const struct sbp_reference *reference, int tensor, int64_t index);

/* Forward and backward of a step (from 1) from the weights that were set, and those before. */
enum sbp_status sbp_reference_run(struct sbp_reference *reference, int64_t step,
                                  struct sbp_diag *diag) SBP_MUST_USE;

/* The ends of a step, besides parameters: an activation that no operator reads, and the gradient of
 * an input that comes out of an earlier layer. The instruction that completes it where it rests, in
 * any program of the graph, or -1; its OUT holds the block when the instruction is over. */
int sbp_reference_end_instr(const struct sbp_program *program, int tensor);

#endif
