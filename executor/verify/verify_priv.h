/* What the files of verification share: a rank's verifier, and what it finds. */
#ifndef SBP_EXECUTOR_VERIFY_VERIFY_PRIV_H
#define SBP_EXECUTOR_VERIFY_VERIFY_PRIV_H

#include "base/math/half.h"
#include "executor/rank/rank_states.h"
#include "executor/verify/blocks_priv.h"
#include "executor/verify/loss_scale.h"
#include "executor/verify/reference_priv.h"
#include "executor/verify/verify.h"

enum { SBP_VERIFY_PIECE = SBP_BLOCKS_PIECE }; /* elements of a piece of an update, too */
static const double SBP_VERIFY_C = 8;         /* of the bound in verify.h */

struct sbp_verifier {
    struct sbp_rank *rank;
    struct sbp_channel *channel;
    int ranks;     /* of all stages */
    int64_t slots; /* (chunks, tensor_count) */
    double u;      /* of the run's reals */
    double wide_u; /* of its arithmetic, statistics and optimizer states */
    double log2_ranks;
    int64_t tokens;
    struct sbp_verify_outcome outcome; /* of this rank's updates; on rank 0 all */
    struct sbp_spent spent;
    void *piece;       /* (SBP_VERIFY_PIECE) reals of the run */
    void *before[3];   /* (2 SBP_VERIFY_PIECE) wide: weight and moments before an update, and after
                          it */
    void *rounded;     /* (SBP_VERIFY_PIECE) reals: a weight that has a master copy */
    uint64_t *updated; /* (chunks, tensor_count) hash of this rank's part of a weight, and of its
                          master copy, after its update */
    int *end_instr;    /* (chunks, tensor_count), see sbp_reference_end_instr */
    void **output;     /* (chunks, tensor_count) this rank's blocks of such a value, one for each
                          micro-batch (of replicas: for each of two steps that take turns; of a
                          pyramid: for either), host memory; or NULL */
    int32_t **chosen;  /* (chunks, op_count) this rank's tables of a mixture of two steps that take
                          turns, (2, micro-batches, tokens, top_k, 2); or NULL */
    struct sbp_reference *reference; /* rank 0 only */
    bool is_sampled;
    bool remeasures;          /* tests only: with each shadow, in 16 bits */
    struct sbp_arena arena;   /* owns the list of visits */
    struct sbp_layers layers; /* of a sample: all ranks give their weights at each visit */
    void **older;   /* (chunks, tensor_count) of a sample without a flush: this rank's part of a
                       weight as the step before read it, host memory; or NULL */
    double *loss;   /* rank 0: (devices) of the replicas so far, by place */
    double squares; /* rank 0: of the step's gradients, each element once */
    struct sbp_loss_scaler scaler; /* rank 0: what every rank's should be */
    bool overflows;                /* rank 0: a gradient of the step is no finite number */
    uint64_t states; /* hash of this rank's states at the step's start, where the loss is scaled */
    uint64_t **hosted; /* (chunks) (tensor_count + buckets) hashes of states in host memory as they
                          were left, of a tensor's part of a bucket at their sum; NULL: none */
};

static inline int sbp_verify_rank(const struct sbp_verifier *v)
{
    return sbp_channel_rank(v->channel, v->channel->stage, v->rank->rank);
}

static inline bool sbp_verify_leads(const struct sbp_verifier *v)
{
    return sbp_verify_rank(v) == 0;
}

/* The place of a chunk's tensor in end_instr and output. */
static inline int64_t sbp_verify_slot(const struct sbp_verifier *v, int chunk, int tensor)
{
    return (int64_t)chunk * v->rank->program->graph->tensor_count + tensor;
}

/* The place of a micro-batch's block in output, of steps of which every second has `odd`; and how
 * many there are. */
static inline int64_t sbp_verify_output_at(const struct sbp_step *step, int64_t odd,
                                           int64_t micro_batch)
{
    return step->pyramid      ? odd * step->micro_batches + micro_batch
           : step->replicates ? odd
                              : micro_batch;
}
static inline int64_t sbp_verify_outputs(const struct sbp_step *step)
{
    return step->pyramid ? 2 * step->micro_batches : step->micro_batches;
}

static inline double sbp_verify_real(const struct sbp_verifier *v, const void *values, int64_t i)
{
    return sbp_half_get(v->rank->kernels->real, values, i);
}

/* Keeps the first finding. */
void sbp_verify_report(struct sbp_verifier *v, const char *what, const char *tensor, int64_t rank,
                       int64_t index, double run, double reference, double bound);
/* Reports values that are not near. */
void sbp_verify_compare(struct sbp_verifier *v, const char *what, const char *tensor, int64_t rank,
                        int64_t index, double run, double reference, double bound);
/* The bound of verify.h; 0 when `inherited` is negative, which says that both must be the same. */
double sbp_verify_bound(const struct sbp_verifier *v, double terms, double sum, double inherited);
/* The time of checks within the step is taken off the step's: between these two. */
struct sbp_spent sbp_verify_start_of_check(void);
void sbp_verify_spend_since(struct sbp_verifier *v, struct sbp_spent start);
/* Hashes what lies in a memory, on top of *hash. */
enum sbp_status sbp_verify_hash_memory(struct sbp_verifier *v, const struct sbp_memory_ops *memory,
                                       const char *from, int64_t bytes, uint64_t *hash,
                                       struct sbp_diag *diag) SBP_MUST_USE;
/* Of this rank's part of a weight, and of its master copy, as they stand. */
enum sbp_status sbp_verify_hash_weight(struct sbp_verifier *v, int tensor, uint64_t *hash,
                                       struct sbp_diag *diag) SBP_MUST_USE;

/* Notes what states in host memory the first step begins with. E_MEMORY. */
enum sbp_status sbp_verify_note_hosted(struct sbp_verifier *v, struct sbp_diag *diag) SBP_MUST_USE;

#endif
