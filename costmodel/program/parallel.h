/* How a training step is cut in time: pipeline stages and micro-batches; and which states are
 * sharded, recomputed or kept off the device. The strategy says how each operator is cut in space.
 *
 * Stages take whole outer levels of the cluster first, then a divisor of the next one; a stage's
 * own cluster is the rest of every level. A micro-batch is a number of sequences of the whole
 * model batch: those that all replicas of a stage work on at a time.
 */
#ifndef SBP_COSTMODEL_PROGRAM_PARALLEL_H
#define SBP_COSTMODEL_PROGRAM_PARALLEL_H

#include "costmodel/model/graph.h"
#include "costmodel/timeline/pyramid.h"

struct cJSON;

/* Which activations backward recomputes instead of keeping them. */
#define SBP_RECOMPUTE_MAP(X)                                                                       \
    X(NONE, "none")                                                                                \
    X(ATTENTION, "attention") /* of attention: all that it keeps beside its operands */            \
    X(SELECTIVE, "selective") /* as full, but keeps attention's output and half of the products    \
                                 (torchtitan keeps every second one's) */                          \
    X(FULL, "full")           /* all but the input of every `recompute_every` blocks */

#define SBP_RECOMPUTE_ENUM(symbol, name) SBP_RECOMPUTE_##symbol,
enum sbp_recompute { SBP_RECOMPUTE_MAP(SBP_RECOMPUTE_ENUM) SBP_RECOMPUTES };
#undef SBP_RECOMPUTE_ENUM
const char *sbp_parallel_recompute_name(enum sbp_recompute recompute);

/* Who holds the states of parameters that replicas share (CDP, section 4.4). With an owner every
 * weight has one, weights being dealt out by size; it comes to where it is needed, forward and
 * backward, and its gradients go back. */
#define SBP_OWNER_MAP(X)                                                                           \
    X(NONE, "none")           /* as the ZeRO level says */                                         \
    X(BROADCAST, "broadcast") /* all replicas need a weight at once */                             \
    X(HAND_OVER, "hand-over") /* one after the other: point to point, each to the next */

#define SBP_OWNER_ENUM(symbol, name) SBP_OWNER_##symbol,
enum sbp_owner { SBP_OWNER_MAP(SBP_OWNER_ENUM) SBP_OWNERS };
#undef SBP_OWNER_ENUM
const char *sbp_parallel_owner_name(enum sbp_owner owner);

/* Where a pipeline's stages begin. */
#define SBP_STAGE_CUT_MAP(X)                                                                       \
    X(BLOCKS, "blocks") /* blocks are shared out evenly */                                         \
    X(FLOPS, "flops")   /* the most that a piece computes is as little as can be */

#define SBP_STAGE_CUT_ENUM(symbol, name) SBP_CUT_##symbol,
enum sbp_stage_cut { SBP_STAGE_CUT_MAP(SBP_STAGE_CUT_ENUM) SBP_STAGE_CUTS };
#undef SBP_STAGE_CUT_ENUM
const char *sbp_parallel_stage_cut_name(enum sbp_stage_cut cut);

#define SBP_MOST_GIVEN_PIECES 160

struct sbp_parallel {
    int64_t pipeline;             /* stages, >= 1; default 1 */
    enum sbp_stage_cut stage_cut; /* default blocks; of no meaning with one stage */
    int stage_blocks_count;       /* pieces whose blocks the user gave, pipeline x chunks of them,
                                     instead of stage_cut; 0, the default: none */
    uint16_t stage_blocks[SBP_MOST_GIVEN_PIECES]; /* blocks of each piece, in the model's order */
    int64_t chunks;             /* pieces of a stage, >= 1; default 1; more: schedule interleaved;
                                   cyclic ones, whose stages they are, where pipeline is 1, or as
                                   many: then each stage has all of them (replicas) */
    int64_t micro_batch;        /* sequences, divides the global batch; default: all of it */
    enum sbp_schedule schedule; /* default 1f1b */
    int64_t pipeline_limit;     /* micro-batches in flight; 0, the default: as the schedule has it
                                   (costmodel/timeline/timeline.h) */
    int64_t zero; /* ZeRO level of weights whose operator says nothing else, 0 .. 3; default 0 */
    enum sbp_recompute recompute;
    int64_t recompute_every;   /* blocks of a segment under full recompute, >= 1; default 1 */
    bool offload;              /* optimizer states in host memory (Myelin, section V.B) */
    int64_t bucket_parameters; /* that pass through the device at a time, >= 1; default 16 Mi */
    int64_t chunk_factor;      /* buckets an all-reduce covers while the optimizer runs (Myelin,
                                  section V.C); 0, the default: one all-reduce before it */
    double gradient_overlap;   /* share of gradient communication that may hide behind the backward
                                  pass, 0 .. 1; default: the cluster's, written as a negative */
    bool allow_delayed_gradients; /* cyclic schedules update with gradients of an older state */
    bool pyramid; /* cyclic schedules: the j-th of N stages has N - j + 1 groups of devices, for one
                     micro-batch each (costmodel/timeline/pyramid.h); default false: one */
    enum sbp_owner owner;
    bool gather_blocks; /* weights of a block come together and leave together, and its gradients
                           under ZeRO 3 (FSDP's units); default false: by operator */
    bool regather;      /* inputs that were boxed are kept as they rested (what rests whole, as it
                           was produced), and boxed again for the weights' gradients (Korthikanti
                           et al., 2022, section 4.2.2); default false */
    bool keep_sent;     /* a stage holds what it sent until the micro-batch comes back, as autograd
                           does unless it is told otherwise (DeepSpeed); default false */
};

struct sbp_parallel sbp_parallel_default(const struct sbp_graph *graph);
/* Whether every field is the same. */
bool sbp_parallel_equal(const struct sbp_parallel *a, const struct sbp_parallel *b);
/* Whether the step is plain: one stage, all of the batch at once, all states where the strategy
 * leaves them, gradients of the step's own state. */
bool sbp_parallel_is_plain(const struct sbp_parallel *parallel, const struct sbp_graph *graph);

/* Keys of the "parallel" object and of --set, NULL-terminated. */
const char *const *sbp_parallel_keys(void);
/* Reads an object over *parallel: absent keys leave their field alone. "schedule": "none" stands
 * for the default. Refuses unknown keys, types and values with the nearest name or the legal ones.
 */
enum sbp_status sbp_parallel_read(const struct sbp_json *object,
                                  struct sbp_parallel *parallel) SBP_MUST_USE;
/* Adds all members to an object; *failed is set when memory is out. */
void sbp_parallel_write(struct cJSON *object, const struct sbp_parallel *parallel, bool *failed);

/* Whether the parts fit each other, the model and the cluster. E_INPUT: "parallel: KEY: what is
 * wrong, what is legal". */
enum sbp_status sbp_parallel_check(const struct sbp_parallel *parallel,
                                   const struct sbp_graph *graph, const struct sbp_cluster *cluster,
                                   struct sbp_diag *diag) SBP_MUST_USE;

/* The cluster of one stage, and the outermost level that messages between stages cross (-1: there
 * is one stage). E_INPUT as above. */
enum sbp_status sbp_parallel_stage_cluster(const struct sbp_parallel *parallel,
                                           const struct sbp_cluster *cluster,
                                           struct sbp_cluster *stage, int *level,
                                           struct sbp_diag *diag) SBP_MUST_USE;
int64_t sbp_parallel_micro_batches(const struct sbp_parallel *parallel,
                                   const struct sbp_graph *graph);
/* The share of gradient communication that may hide behind the backward pass, at most what the
 * device's overlap_efficiency leaves. Without a flush there is none: a stage goes on with the next
 * step meanwhile. */
double sbp_parallel_hidden_share(const struct sbp_parallel *parallel,
                                 const struct sbp_cluster *cluster);
/* Whether each stage has all pieces of the model, and does one micro-batch of a step. */
static inline bool sbp_parallel_replicates(const struct sbp_parallel *parallel)
{
    return parallel->pipeline > 1 && parallel->chunks > 1 &&
           sbp_timeline_delays_gradients(parallel->schedule);
}
/* Whether groups of devices have the same pieces and hand sums of gradients on. */
static inline bool sbp_parallel_hands_on(const struct sbp_parallel *parallel)
{
    return parallel->pyramid || sbp_parallel_replicates(parallel);
}
/* Groups of devices that the cluster is shared out over. */
static inline int64_t sbp_parallel_groups(const struct sbp_parallel *parallel)
{
    return parallel->pyramid ? sbp_pyramid_groups(parallel->pipeline) : parallel->pipeline;
}
/* Stages that the model's pieces are dealt out over, and these pieces. */
static inline int64_t sbp_parallel_parts(const struct sbp_parallel *parallel)
{
    return sbp_parallel_replicates(parallel) ? 1 : parallel->pipeline;
}
static inline int64_t sbp_parallel_pieces(const struct sbp_parallel *parallel)
{
    return sbp_parallel_parts(parallel) * parallel->chunks;
}
/* Versions of its weights that a piece of the model holds: groups that hand sums on update between
 * the works that read the older and the newer ones. */
static inline int sbp_parallel_versions(const struct sbp_parallel *parallel, int pieces, int piece)
{
    return sbp_parallel_hands_on(parallel)
               ? 1
               : sbp_timeline_weight_versions(parallel->schedule, pieces, piece);
}
/* Whether chunks that follow each other are on one device, and messages between them stay there.
 */
static inline bool sbp_parallel_shares_device(const struct sbp_parallel *parallel)
{
    return parallel->chunks > 1 && sbp_timeline_delays_gradients(parallel->schedule);
}

#endif
