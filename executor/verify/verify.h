/* Verification of a run: every step is computed once more on one device in double precision.
 *
 * At a step's start rank 0 collects the run's parameters and loads them into a reference: the same
 * graph compiled for a mesh of one device, on the same data. At the end it compares, on every rank,
 * every parameter gradient (replicas included), the loss, the norm that clipping used, outputs of a
 * model without loss, and the gradient of an input that comes out of an earlier layer. Each rank
 * checks its own optimizer updates against the textbook formulas, from the run's own gradients,
 * weights and moments.
 *
 * Bound of a sum of n terms x_i over p ranks in unit roundoff u:
 *     |difference| <= c ((sqrt(n) + log2 p) u sum|x_i| + inherited),   c = 8,
 * the first part as in DESIGN.md, section 7, the second the standard deviation of the errors that
 * the terms bring along (derivation in executor/verify/magnitude_priv.h). The first part alone is
 * too narrow by measurement: in perceptrons of four layers behind relu or gelu, double runs of
 * correct plans exceed it by up to a factor of 200, all at elements whose terms are small because
 * an activation is close to 0. In runs of 16 bits u is the arithmetic's, single precision, and
 *     (1 + log2 p) u' sum|x_i| / sqrt(n)
 * is added for what ranks, micro-batches and hops store on the way, with u' = 2^-8 (bfloat16) or
 * 2^-11 (half precision): partial sums of terms that differ in sign are sqrt(n) terms large. Their
 * inherited part is measured by a shadow that rounds where the run stores, with twice its variance
 * under SUMMA, which rounds the sum of every panel. A shadow is one measurement of round-off, and
 * by chance a narrow one: where a bound is passed by less than three times, up to four more shadows
 * round on other grids. Gradients and outputs of the step are held to the mean of their variances
 * then (shadows_priv.h), which count errors that tokens share (together_priv.h); choices of experts
 * to one of the shadows. A sampled verification has one shadow: its reference is computed before
 * the step. Runs in single precision
 * whose products round their factors to TF32 are held as those in bfloat16. Of a step in which
 * gradients overflow, all ranks must leave out the update: their states keep every bit. What is
 * exactly 0 by construction (padding, rows of a table that no token looks up) must be 0; but what
 * only a relu makes 0, in 16 bits need not be: it is not compared.
 *
 * A sampled verification compares of each weight's gradient one output in 32, at least 8, others in
 * each step, and all else as above. Its reference is computed before the step, from weights that
 * rank 0 collects piece by piece of the model, some rows of the batch at a time, so that it holds
 * one piece of the model and the sample (executor/verify/layers_priv.h, magnitude_priv.h). Without
 * a flush each rank keeps its weights of the step before for it.
 */
#ifndef SBP_EXECUTOR_VERIFY_VERIFY_H
#define SBP_EXECUTOR_VERIFY_VERIFY_H

#include "executor/rank/rank.h"

/* The first value that is off. */
struct sbp_finding {
    bool found;
    char what[40];   /* "gradient", "loss", "weight after the update", ... */
    char tensor[64]; /* name, or "" */
    int64_t index;   /* row-major in the whole tensor */
    int64_t rank;    /* whose value it is */
    int64_t step;    /* from 1 */
    double run, reference, bound;
};

/* The outcome of many comparisons. Ranks send it as bytes, so it holds no pointers. */
struct sbp_verify_outcome {
    struct sbp_finding first;
    double worst_ratio; /* the largest |difference| / bound, over bounds that are not 0 */
    int64_t remeasured; /* steps that agree with the mean of several shadows alone */
};

/* Describes a finding for people in one line; returns buffer. */
const char *sbp_verify_finding_text(const struct sbp_finding *finding, char *buffer, int size);

/* Whether |run - reference| <= bound; keeps the worst ratio. NaN is never near, and nothing is near
 * within a bound that is not finite. */
bool sbp_verify_is_near(struct sbp_verify_outcome *outcome, double run, double reference,
                        double bound);

enum { SBP_VERIFY_ONE_IN = 32 }; /* outputs, of a sample */

/* Bytes that verifying a run takes, beside the arenas of its ranks: on rank 0 the reference and its
 * shadow, from their compiled programs, and on every rank what it keeps for comparisons. */
struct sbp_verify_need {
    double reference_bytes;
    double rank_bytes; /* the most of a rank */
};
/* Fails as compiling the reference does; E_MEMORY when there is not even room for its programs. */
enum sbp_status sbp_verify_count(const struct sbp_step *step, const struct sbp_cluster *cluster,
                                 enum sbp_real real, bool is_sampled, struct sbp_verify_need *need,
                                 struct sbp_diag *diag) SBP_MUST_USE;

struct sbp_verifier;

/* Collective over all ranks, like begin_step and end_step. *verifier belongs to the caller (close);
 * NULL on failure. */
enum sbp_status sbp_verify_open(struct sbp_rank *rank, const struct sbp_cluster *cluster,
                                bool is_sampled, struct sbp_verifier **verifier,
                                struct sbp_diag *diag) SBP_MUST_USE;
/* Tests only, alike on all ranks: whether steps in 16 bits are compared with all shadows. */
void sbp_verify_remeasure(struct sbp_verifier *verifier, bool remeasures);
void sbp_verify_close(struct sbp_verifier *verifier);

/* After sbp_rank_begin_step, before the step's first instruction; runs the reference of a sample.
 */
enum sbp_status sbp_verify_begin_step(struct sbp_verifier *verifier,
                                      struct sbp_diag *diag) SBP_MUST_USE;
/* Executes an UPDATE in pieces and checks each of them. */
enum sbp_status sbp_verify_update(struct sbp_verifier *verifier, const struct sbp_instr *instr,
                                  struct sbp_diag *diag) SBP_MUST_USE;
/* After every instruction of the rank's chunk at hand: keeps outputs and the input's gradient
 * before their memory is used again. */
enum sbp_status sbp_verify_watch(struct sbp_verifier *verifier, int instr,
                                 struct sbp_diag *diag) SBP_MUST_USE;
/* After the step's last instruction: runs the reference, unless it has, and compares. */
enum sbp_status sbp_verify_end_step(struct sbp_verifier *verifier,
                                    struct sbp_diag *diag) SBP_MUST_USE;

/* The outcome of all steps so far; complete on rank 0 only. */
const struct sbp_verify_outcome *sbp_verify_outcome(const struct sbp_verifier *verifier);
/* Time that checking added to the steps so far, of this thread: CPU and wall; 0 for NULL. */
struct sbp_spent {
    double cpu_s, wall_s;
};
struct sbp_spent sbp_verify_spent(const struct sbp_verifier *verifier);

#endif
