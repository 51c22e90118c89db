/* The reference of a verification: the same graph on one device in double, and its error sizes.
 *
 * A second rank, the shadow, computes the step in single precision alongside, instruction by
 * instruction. Its deviation from the reference tells how large the errors are that a value
 * inherits (executor/verify/magnitude_priv.h). Of a run that stores 16 bits the shadow rounds what
 * an instruction leaves as the run does.
 *
 * Where gradients are of an older state (cdp) the step is computed micro-batch by micro-batch, each
 * from the weights that its recurrence says (executor/verify/delayed_priv.h).
 *
 * A sampled verification has one piece of the model at a time
 * (executor/verify/layers_priv.h): it fetches the piece's weights at each visit, holds what comes
 * into each piece of the rows under way, and forms gradients of the outputs that are kept
 * (executor/verify/magnitude_priv.h) alone.
 */
#ifndef SBP_EXECUTOR_VERIFY_REFERENCE_PRIV_H
#define SBP_EXECUTOR_VERIFY_REFERENCE_PRIV_H

#include "executor/rank/rank.h"
#include "executor/verify/delayed_priv.h"
#include "executor/verify/layers_priv.h"
#include "executor/verify/magnitude_priv.h"

enum { SBP_SHADOWS = 5 }; /* with other roundings to 16 bits each */

/* A value that is no parameter gradient, with the sizes that its bound is made of. */
struct sbp_reference_output {
    double *value, *sum; /* (elements) and the sum of the absolute values of its terms */
    double *inherited;   /* (tokens) standard deviation of an element */
    double terms;
    int64_t features;
};

/* What two scores may be off by: terms of each, the sum of the absolute values of all of them, and
 * the standard deviation of what they inherit. */
struct sbp_reference_score {
    double terms, sum, inherited;
};

/* A piece of the model, in double and in single precision. */
struct sbp_reference_piece {
    struct sbp_program program, shadow_program;
    struct sbp_stage_layout layout, shadow_layout;
    double *in; /* what comes into it of the rows under way; NULL: the model begins here */
    float *shadow_in;
};

struct sbp_reference {
    struct sbp_arena arena;
    struct sbp_graph graph; /* the run's, of the rows that it takes at a time; no moments, no
                               clipping */
    struct sbp_layers layers;
    struct sbp_norm_groups groups;
    struct sbp_delayed delayed; /* without a step: gradients are of the weights as they stand */
    struct sbp_reference_piece *piece;                  /* (layers.pieces) */
    const struct sbp_program *program, *shadow_program; /* of the piece at hand */
    struct sbp_rank rank, shadow;                       /* at that piece */
    double *back;                                       /* the gradient between two pieces */
    float *shadow_back;
    double scale;                     /* as in struct sbp_lockstep */
    enum sbp_real real;               /* the run's */
    double loss_scale;                /* of the step's gradients in the run */
    int shadow_number;                /* below SBP_SHADOWS: on which grid it rounds to 16 bits */
    struct sbp_magnitude **magnitude; /* (tensor_count), NULL for what is no parameter */
    struct sbp_reference_output *
        *output; /* (tensor_count), NULL unless sbp_reference_end_instr says so */
    double loss, loss_sum, loss_inherited;
    double *variance; /* the mean of shadows so far (shadows_priv.h); NULL: there is one alone */
    struct sbp_given_experts given; /* of mixtures, those of the run; NULL: it is of no run */
    int32_t *taken;                 /* (most experts) scratch */
    /* Holds the score of an expert that the run chose to the best one that was left: they differ by
     * no more than sums of so many terms, and of such a size, may. `copy`: of all tokens. */
    void (*judge)(void *context, int op, int64_t copy, double run, double best,
                  const struct sbp_reference_score *size);
    void *judge_context;
    struct sbp_post *post; /* borrowed: shows that it is at work; NULL: nobody watches */
    bool is_sampled;
    /* Sets the weights of the piece at hand for a sampled verification; the older ones where the
     * visit reads those. */
    enum sbp_status (*fetch)(void *context, const struct sbp_layers_pass *visit,
                             struct sbp_diag *diag);
    void *fetch_context;
};

/* What a reference is of. */
struct sbp_reference_of {
    const struct sbp_graph *graph;
    const struct sbp_cluster *cluster;
    const struct sbp_step *step; /* what runs, which must outlive the reference; NULL: a step that
                                    computes its gradients from the weights as they stand */
    uint64_t seed;
    enum sbp_real real; /* the run's */
    bool is_sampled;    /* the caller sets `fetch` before it runs */
};

/* On failure nothing is left allocated. */
enum sbp_status sbp_reference_open(struct sbp_reference *reference,
                                   const struct sbp_reference_of *of,
                                   struct sbp_diag *diag) SBP_MUST_USE;
void sbp_reference_close(struct sbp_reference *reference);
/* Bytes that reference and shadow take, by their compiled programs; nothing of that is allocated.
 * Fails as opening does. */
enum sbp_status sbp_reference_bytes(const struct sbp_reference_of *of, double *bytes,
                                    struct sbp_diag *diag) SBP_MUST_USE;

/* Turns to a piece of the model. */
void sbp_reference_turn(struct sbp_reference *reference, int piece);
/* What its operators read of a weight, in double and in single precision, and the gradient that
 * they form. */
static inline double *sbp_reference_read(struct sbp_reference *reference, int tensor)
{
    return sbp_rank_buffer(&reference->rank, reference->program->weight_buffer[tensor]);
}
static inline float *sbp_reference_read_shadow(struct sbp_reference *reference, int tensor)
{
    return sbp_rank_buffer(&reference->shadow, reference->shadow_program->weight_buffer[tensor]);
}
static inline const double *sbp_reference_formed(struct sbp_reference *reference, int tensor)
{
    return sbp_rank_buffer(&reference->rank, reference->program->gradient_buffer[tensor]);
}

/* Before the weights of a step are set. */
void sbp_reference_begin_step(struct sbp_reference *reference);
/* Whole tensors, row-major. Weights are the caller's to set, in both precisions, before a run, or,
 * of a sample, those of the piece at hand when they are fetched. The shadow's are NULL where it
 * takes those of the reference. */
double *sbp_reference_weight(struct sbp_reference *reference, int tensor);
float *sbp_reference_shadow_weight(struct sbp_reference *reference, int tensor);
/* After a run, what it has of a gradient, all of it unless that is a sample: where an element of
 * the whole stands in it (-1: nowhere), and by place its values. */
int64_t sbp_reference_place(const struct sbp_reference *reference, int tensor, int64_t index);
const double *sbp_reference_gradient(struct sbp_reference *reference, int tensor);
/* Of an element of a gradient: the sum of the absolute values of its terms, and the standard
 * deviation of the errors that these bring along; -1: it is exactly 0. */
double sbp_reference_sum(const struct sbp_reference *reference, int tensor, int64_t place);
double sbp_reference_inherited(const struct sbp_reference *reference, int tensor, int64_t place);
/* How many terms it sums in the mean: rows of its operator's output (places of images), or those
 * that an expert gets. */
double sbp_reference_terms(const struct sbp_reference *reference, int tensor);

/* Copies of the tokens of the whole batch that a mixture has. */
int64_t sbp_reference_choices(const struct sbp_reference *reference, int op);

/* Forward and backward of a step (from 1) from the weights that were set, and those before. It may
 * run again with another shadow, which changes inherited errors alone; not of a sample. */
enum sbp_status sbp_reference_run(struct sbp_reference *reference, int64_t step,
                                  struct sbp_diag *diag) SBP_MUST_USE;

/* The ends of a step, besides parameters: an activation that no operator reads, and the gradient of
 * an input that comes out of an earlier layer. The instruction that completes it where it rests, in
 * any program of the graph, or -1; its OUT holds the block when the instruction is over. */
int sbp_reference_end_instr(const struct sbp_program *program, int tensor);

#endif
