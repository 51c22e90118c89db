/* The physical program: the instructions that one device executes in a training step, in order.
 *
 * It is compiled from graph, mesh and labelled strategy; the boxing planner provides the
 * collectives between operators. All ranks run the same program on blocks of the same sizes (SPMD).
 * The cost model prices its instructions, the memory model is its buffer layout, and the executor
 * interprets it: what is priced is what runs. Where weight gradients wait (zero-bubble) they stand
 * behind all input gradients, and what runs once a step behind them.
 *
 * Each stage of a pipeline has a program for one micro-batch: the operators of a scope, the
 * activation that comes in and the one that goes out. Work that happens once a step, whatever the
 * number of micro-batches, stands in it once and carries the section `step`.
 */
#ifndef SBP_COSTMODEL_PROGRAM_PROGRAM_H
#define SBP_COSTMODEL_PROGRAM_PROGRAM_H

#include "costmodel/layout/boxing.h"
#include "costmodel/program/parallel.h"
#include "costmodel/program/strategy.h"

/* Element type of a buffer; SBP_BUFFER_REAL is the floating-point type of the buffer's use,
 * SBP_BUFFER_LOSS the one that cross-entropy works in where that is another (no run has such a
 * buffer). SBP_BUFFER_STATISTIC is for sums, maxima and norms, which a type of 16 bits cannot hold:
 * fp32 there, the activations' type elsewhere. */
enum sbp_buffer_type {
    SBP_BUFFER_REAL,
    SBP_BUFFER_INT32,
    SBP_BUFFER_BYTE,
    SBP_BUFFER_LOSS,
    SBP_BUFFER_STATISTIC
};

/* Parts of the frame that a micro-batch has while it is in flight. */
enum sbp_frame_part {
    SBP_FRAME_KEPT, /* from its forward pass to its backward pass */
    /* Where weight gradients wait (zero-bubble), what they read: of the forward pass, from there to
     * their end; of the input gradients, from those to their end. */
    SBP_FRAME_INPUTS,
    SBP_FRAME_GRADIENTS,
    SBP_FRAME_PARTS
};

enum sbp_buffer_use {
    SBP_USE_WEIGHT,   /* persistent */
    SBP_USE_VERSION,  /* another version of a weight, of an older step: persistent */
    SBP_USE_GRADIENT, /* of a weight, persistent */
    SBP_USE_SUM,      /* of a weight's gradients over micro-batches, persistent */
    SBP_USE_MOMENT,   /* optimizer state, persistent */
    SBP_USE_MASTER,   /* master copy of a weight, or of its gradient for the update, in mixed
                         precision: persistent */
    SBP_USE_MAIL,     /* what another chunk of the device has sent: persistent, since it may be for
                         the next step */
    SBP_USE_BUCKET,   /* offloaded optimizer states pass through it: persistent */
    SBP_USE_INDEX,    /* token ids, positions, labels of a micro-batch, from its begin to its end */
    SBP_USE_ACTIVATION, /* lives from first to last use; kept for backward when that is later */
    SBP_USE_WORK,       /* boxing pack and unpack space, scratch, small reductions */
    SBP_USE_GATHERED,   /* a weight whole out of its shards (ZeRO 3), or converted */
    SBP_USE_UNREDUCED,  /* a whole gradient on its way to its shards (ZeRO 2 and 3), or a part of
                           one on its way to its sum; both in the type that operators compute in */
    SBP_USES
};

struct sbp_buffer {
    enum sbp_buffer_use use;
    enum sbp_buffer_type type;
    int tensor;           /* the logical tensor, -1: none */
    struct sbp_dist dist; /* of that tensor (its gradient's where it is one) */
    int64_t elements;
    int first, last;      /* instructions between which it lives, both included; persistent: all */
    int group;            /* > 0: it lives as long as the last of its group */
    int shares;           /* a persistent one whose place it takes, since no device has both; -1 */
    int64_t offset_bytes; /* in the arena, a multiple of 64 */
};

#define SBP_INSTR_MAP(X)                                                                           \
    X(INPUT, "input")                     /* OUT = this rank's block of the model's input */       \
    X(FORWARD, "forward")                 /* operator op, phase */                                 \
    X(BACKWARD, "backward")               /* operator op, phase */                                 \
    X(BOX, "box")                         /* one boxing step: OUT from IN, WORK, WORK2 */          \
    X(REDUCE, "reduce")                   /* in-place all-reduce of OUT over box.axes */           \
    X(INNER, "inner")                     /* `times` collectives inside an operator; sums of tied  \
                                             weights' gradients and of the norm: OUT over stages,  \
                                             or, local, over the chunks of one */                  \
    X(GATHER, "gather")                   /* weight OUT from the shards IN (ZeRO), or its owner */ \
    X(CONVERT, "convert")                 /* weight OUT in the type of computing, from IN */       \
    X(SCATTER, "scatter")                 /* gradient's shard OUT, summed, from IN */              \
    X(RECEIVE, "receive")                 /* OUT from a neighbour stage, or, local, from WORK */   \
    X(SEND, "send")                       /* IN to a neighbour stage, or, local, to the next, the  \
                                             previous chunk's WORK */                              \
    X(TAKE, "take")                       /* sum OUT of a weight's gradients from another replica  \
                                             (costmodel/timeline/replicas.h): in backward so far,  \
                                             in step finished */                                   \
    X(PASS, "pass")                       /* IN to another one, likewise */                        \
    X(ADD_GRADIENT, "add-gradient")       /* OUT = IN + IN2, three buffers */                      \
    X(OUTPUT_GRADIENT, "output-gradient") /* OUT = the fixed gradient of a lossless model */       \
    X(NORM, "norm")                       /* OUT = sum of squares of all weight gradients */       \
    X(COPY_IN, "copy-in")                 /* bucket OUT = states in host memory, in turns */       \
    X(UPDATE, "update") /* weight W from gradient DW, moments SAVED, SAVED2; its master copy W2    \
                           and the gradient's, DW2, where there are any; offloaded states: from    \
                           the bucket */                                                           \
    X(COPY_OUT, "copy-out") /* states in host memory = bucket IN, in turns */

#define SBP_INSTR_ENUM(name, text) SBP_INSTR_##name,
enum sbp_instr_kind { SBP_INSTR_MAP(SBP_INSTR_ENUM) };
#undef SBP_INSTR_ENUM
const char *sbp_program_instr_name(enum sbp_instr_kind kind);

/* When an instruction runs. The sections of a micro-batch mix in the order of the list. A step
 * instruction stands where its data is ready, although it runs after the last micro-batch. */
#define SBP_SECTION_MAP(X)                                                                         \
    X(FORWARD, "forward")                                                                          \
    X(RECOMPUTE, "recompute") /* of forward, once more, in backward */                             \
    X(BACKWARD, "backward")                                                                        \
    X(BACKWARD_WEIGHT, "backward-weight") /* may wait: nobody upstream needs it */                 \
    X(STEP, "step")                       /* once a step: synchronisation, norm, update */

#define SBP_SECTION_ENUM(name, text) SBP_SECTION_##name,
enum sbp_section { SBP_SECTION_MAP(SBP_SECTION_ENUM) SBP_SECTIONS };
#undef SBP_SECTION_ENUM
const char *sbp_program_section_name(enum sbp_section section);

/* Why a collective is there, for reports. */
enum sbp_cause {
    SBP_CAUSE_NONE,
    SBP_CAUSE_ACTIVATION, /* boxing of an activation, forward */
    SBP_CAUSE_ACTIVATION_GRADIENT,
    SBP_CAUSE_WEIGHT_GRADIENT,
    SBP_CAUSE_OPERATOR, /* inside a composite operator */
    SBP_CAUSE_SCALAR,   /* loss, gradient norm */
    SBP_CAUSE_WEIGHT,   /* ZeRO: weights gathered, or handed on by their owner */
    SBP_CAUSE_STAGE,    /* messages between stages */
    SBP_CAUSES
};
const char *sbp_program_cause_name(enum sbp_cause cause);

#define SBP_INSTR_BUFFERS 20
struct sbp_instr {
    enum sbp_instr_kind kind;
    enum sbp_section section;
    int op, phase; /* op: whom it serves; -1: the step as a whole (input at rest, norm) */
    int tensor;    /* BOX, ADD_GRADIENT, INPUT, UPDATE, GATHER, ...: the logical tensor */
    int buffer[SBP_INSTR_BUFFERS];
    struct sbp_boxing_step box; /* BOX; the other collectives use kind, axes and elements */
    double inner_elements;      /* INNER: n of the cost formula, which need not be whole */
    int times;                  /* INNER: so many, one after the other; others 1 */
    int stages;                 /* the group has members in so many stages; 1: in this one */
    bool statistic;             /* INNER, REDUCE: of statistics, else of activations or gradients */
    int reduction;              /* REDUCE: enum sbp_comm_reduction (0 sum, 1 max) */
    enum sbp_cause cause;
    double factor;                     /* loss scaling, norm weights */
    double compute_s, communication_s; /* the price */
};

struct sbp_element_bytes {
    int64_t weight, gradient, moment, activation;
    int64_t master;          /* 0: no copy */
    int64_t gradient_master; /* of the gradient converted for the update; 0: no copy */
    int64_t compute;   /* of the copy of a weight that an operator reads; 0: the weight itself */
    int64_t sum;       /* of the gradient summed over micro-batches; 0: in `gradient` itself */
    int64_t loss;      /* of the logits in cross-entropy; 0: as activations */
    int64_t logit;     /* that cross-entropy holds of each logit besides; 0 with `loss` */
    int64_t reduce;    /* of a weight gradient while it is summed over members */
    int64_t statistic; /* of sums, maxima and norms: 4 at the least */
    bool scales_loss; /* gradients in fp16 carry a scale; a step in which they overflow is left out,
                         for which their norm is summed over all ranks */
};
/* Element sizes of a model's precision policy, and of a run in one floating-point type. */
struct sbp_element_bytes sbp_program_element_bytes(const struct sbp_precision *precision);
struct sbp_element_bytes sbp_program_run_bytes(enum sbp_real real);
/* The type in which a model's plan runs: one of 16 bits where that has the policy's bytes, namely
 * the one whose rate the cluster gives; else single precision. */
enum sbp_real sbp_program_run_real(const struct sbp_precision *precision,
                                   const struct sbp_cluster *cluster);
/* Whether a run in that type has the bytes of a policy, and multiplies in its type. */
bool sbp_program_runs_policy(const struct sbp_precision *precision, enum sbp_real real);
/* Whether a step sums the squares of all gradients: for clipping, or to find overflows. */
static inline bool sbp_program_has_norm(const struct sbp_training *training,
                                        const struct sbp_element_bytes *bytes)
{
    return training->clip_norm > 0 || bytes->scales_loss;
}

/* The part of a step that a program covers. */
struct sbp_scope {
    int first_op, end_op;  /* operators first_op .. end_op - 1; they meet the others in one
                              activation before and one after them (costmodel/program/stages.h) */
    int64_t micro_batches; /* of a step */
    const struct sbp_parallel *parallel; /* ZeRO, recompute, offload, pipeline; copied. NULL: the
                                            default */
    const struct sbp_cluster *whole;     /* of all stages; borrowed. NULL: there is one stage */
    const int *holders; /* (tensor_count) stages that hold a weight; borrowed. NULL: one */
    const int *copies;  /* (tensor_count) chunks of the stage that do; borrowed. NULL: one */
    int versions;       /* of each weight that the stage holds, 2 or fewer: one */
};

/* How the states of a weight are shared out: under ZeRO level 1 to 3 the i-th member of a group
 * over `axes` holds elements i x `elements` and on of the block, row-major; the last shards may end
 * beyond it. Level 0: whole, and `elements` are the block's. A device updates so many.
 *
 * With an owner (enum sbp_owner) one member holds all of the block, of level 3, and the others
 * nothing. Weights over the same axes are dealt out by size, a round of one a member: those of a
 * round take the place in memory of the first, the largest, and are updated at the same time. */
struct sbp_weight_shard {
    int level;
    sbp_axes axes;
    int64_t elements;
    int64_t begin; /* elements that the device updates of the tensors before it */
    int64_t owner; /* member that holds it; -1: there is none */
    int leader;    /* with an owner: the first tensor of its round */
};
/* Elements of a weight that are a device's to update: of the leader, for those of a round. */
static inline int64_t sbp_weight_updated(const struct sbp_weight_shard *shard, int tensor)
{
    return shard->owner >= 0 && shard->leader != tensor ? 0 : shard->elements;
}

struct sbp_program {
    struct sbp_arena arena;        /* owns the arrays */
    const struct sbp_graph *graph; /* borrowed, must outlive the program */
    struct sbp_scope scope;        /* its pointers must outlive the program, too */
    struct sbp_parallel parallel;
    struct sbp_mesh mesh;
    struct sbp_element_bytes bytes;
    struct sbp_strategy strategy; /* a copy */
    int instr_count, buffer_count;
    struct sbp_instr *instr;
    struct sbp_buffer *buffer;
    int *weight_buffer, *gradient_buffer; /* (tensor_count), -1 where there is none */
    int *other_version; /* (tensor_count) where a weight has two versions, which take turns, step by
                           step: the buffer of the other one; -1 */
    int *other_gradient; /* (tensor_count) where finished sums wait beside the next step's gradient:
                            the other buffer, as they take turns, step by step; -1 */
    int *first_moment, *second_moment; /* (tensor_count), -1 where there is none */
    int *master, *gradient_master;     /* (tensor_count), -1 where there is none */
    struct sbp_weight_shard *shard;    /* (tensor_count) */
    int64_t parameters; /* elements of weights that the device works with: whole blocks */
    int *ids_buffer, *positions_buffer; /* (op_count) of tables of tokens; -1 */
    int labels_buffer, loss_buffer;     /* -1: none */
    int groups;                         /* of buffers */
    int64_t arena_bytes;                /* high-water mark: end of the last buffer */
    int64_t live_bytes;                 /* most that is in use at once: an arena without gaps */
    /* The arena in its order; micro-batches in flight need a frame each (program_layout.c). */
    int64_t persistent_bytes; /* what keeps its value from step to step; a bucket is the last */
    int64_t bucket_bytes;     /* of these, which chunks of a stage share */
    int64_t kept_bytes;       /* what forward leaves for backward, with token ids and labels */
    int64_t frame_bytes[SBP_FRAME_PARTS]; /* a frame, part by part; up to arena_bytes: what one
                                             micro-batch at work needs beside its frame */
    int64_t host_bytes;                   /* offloaded states, in host memory */
};

/* Place of each operand in instr.buffer; -1 where the instruction has none. An early phase also
 * names the buffers of later phases, so that they live from the first phase on. */
enum {
    SBP_AT_OUT = 0, /* output (forward), gradient of the first input (backward), target (others) */
    SBP_AT_IN = 1,  /* inputs (forward and backward), source (others) */
    SBP_AT_IN2 = 2, /* add, keys and values; row numbers of an embedding, labels */
    SBP_AT_IN3 = 3, /* the keys' shared part */
    SBP_AT_W = 4,   /* weights in the order of struct sbp_op_node: linear W, table, gain */
    SBP_AT_W2 = 5,  /* bias, positions, shift */
    SBP_AT_DY = 8,  /* backward: output gradient */
    SBP_AT_DW = 9,  /* backward: gradients of the weights */
    SBP_AT_DW2 = 10,
    SBP_AT_SAVED = 13,  /* what forward leaves for backward: attention's probabilities, norm sums,
                           cross-entropy maxima, a mask where there is nothing else */
    SBP_AT_SAVED2 = 14, /* cross-entropy sums, norm backward sums, the output in backward */
    SBP_AT_SAVED3 = 15, /* masks and indices, where SAVED is taken */
    SBP_AT_WORK = 16,   /* scratch; boxing: pack buffer */
    SBP_AT_WORK2 = 17,  /* boxing: unpack buffer */
    SBP_AT_OUT2 = 18,   /* gradients of further inputs */
    SBP_AT_OUT3 = 19,
};

/* Phases. Embedding: IN = token ids, IN2 = row of the position table. Norms of tokens: forward 0
 * writes SAVED (sums), 1 reads it; backward 0 writes SAVED2, 1 reads both. Cross-entropy: IN =
 * logits, IN2 = labels, forward 0 writes SAVED (maxima), 1 SAVED2 (sums), 2 OUT (the loss);
 * backward writes OUT = logits' gradient times instr.factor; with a loss type of its own forward 0
 * writes WORK = the logits in it, IN of all that follows, forward 1 has WORK2 = exponentials,
 * backward 0 writes WORK = their gradient and WORK2 = the wide logits', and backward 1 converts
 * that to OUT. Attention: OUT = y, SAVED = what backward needs, WORK = scratch; backward: OUT =
 * gradient of IN, SAVED2 = y. Where its queries are split by sequence, INNER gathers keys and
 * values of IN (grouped: IN2) into the same WORK before each pass, and sums their gradients there
 * into OUT, the gradient of IN (of IN2: OUT2), after backward. By a ring INNER before a pass stands
 * for calls that the attention makes, with blocks in WORK, and backward itself writes the gradients
 * of keys and values there (OUT, OUT2, OUT3). Products with weights (linear, conv2d, summa_linear,
 * custom): backward 0 writes OUT = input gradient, 1 writes DW from IN and DY; INNER before one of
 * summa_linear stands for calls that the product makes, with panels in WORK. Where conv2d's images
 * are split by rows, INNER before it fetches the rows of other members that windows reach to SAVED,
 * by way of WORK; backward 0 leaves their gradients in WORK, and INNER behind it brings them to
 * their owners, who add them to OUT. Moe: forward 0 writes scores and copies of tokens to SAVED,
 * their experts and slots to SAVED3, 1 all else of SAVED, 2 OUT; INNER behind 0 and behind 1 sends
 * copies by way of WORK where experts lie apart; backward 0 to 2 go back, write OUT, and leave
 * gradients in SAVED, from which 3 writes DW. Dropout: SAVED = mask. Backward with instr.factor ==
 * 1 adds to DW instead of writing it (the second use of a tied
 * weight). Where the box of an instruction's output has P axes, one member (coordinate 0 on all of
 * them) adds bias or positions. Operators in place: forward has IN = OUT, backward DY = OUT.
 */

/* The whole model in one stage, all of the batch at once, nothing sharded beyond the strategy. */
struct sbp_scope sbp_program_scope_whole(const struct sbp_graph *graph);
/* Compiles, lays out and prices the scope for one micro-batch (graph->micro_batch). `cluster` and
 * `mesh` are the stage's own; `bytes` decides buffer sizes and traffic. The strategy must be closed
 * (sbp_strategy_close) on that mesh. The caller frees the program (sbp_program_free); on failure
 * nothing is left allocated. E_RANGE when a device's buffers pass 2^62 bytes; E_INPUT for a
 * distribution that cannot be boxed; E_MEMORY. */
enum sbp_status
sbp_program_make_scope(const struct sbp_graph *graph, const struct sbp_cluster *cluster,
                       const struct sbp_mesh *mesh, const struct sbp_strategy *strategy,
                       const struct sbp_element_bytes *bytes, const struct sbp_scope *scope,
                       struct sbp_program *program, struct sbp_diag *diag) SBP_MUST_USE;
/* The same of the whole scope. */
enum sbp_status sbp_program_make(const struct sbp_graph *graph, const struct sbp_cluster *cluster,
                                 const struct sbp_mesh *mesh, const struct sbp_strategy *strategy,
                                 const struct sbp_element_bytes *bytes, struct sbp_program *program,
                                 struct sbp_diag *diag) SBP_MUST_USE;
void sbp_program_free(struct sbp_program *program);
/* Whether a buffer keeps its place from step to step. */
bool sbp_program_buffer_persists(const struct sbp_buffer *buffer);
/* Bytes of a buffer, not rounded; -1 when they overflow. */
int64_t sbp_program_buffer_bytes(const struct sbp_program *program, int buffer);
/* Bytes of a buffer in the arena, rounded up to 64; 0 of one in another's place. Its size must be
 * known to fit. */
int64_t sbp_program_slot_bytes(const struct sbp_program *program, int buffer);
/* Sets the price of every instruction (price.c), by the stage's own cluster; the compiler has
 * called it. */
void sbp_program_price(struct sbp_program *program, const struct sbp_cluster *cluster);

struct sbp_totals {
    double step_s, compute_s, communication_s, optimizer_s;
    double by_cause_s[SBP_CAUSES];
    double communication_bytes;         /* sent by a device in a step */
    double forward_activation_elements; /* boxed forward: AutoDDL figure 3's measure */
    /* activation_bytes: the arena above what persists, at its high-water mark: activations kept for
     * backward, boxing and work buffers. device_bytes: arena + reserve. */
    int64_t weight_bytes, moment_bytes, master_bytes, bucket_bytes, activation_bytes;
    int64_t gradient_bytes; /* with their sums over micro-batches */
    int64_t device_bytes;
};
/* Totals of a step that has one micro-batch. */
struct sbp_totals sbp_program_totals(const struct sbp_program *program,
                                     const struct sbp_cluster *cluster);

/* Whether an instruction calls the communication backend, and the n of its cost formula in bytes:
 * weight gradients count in the type that they are summed in, weights in their own, statistics in
 * theirs, all else as activations. */
bool sbp_program_is_call(const struct sbp_instr *instr);
/* Whether it stands for calls that the operator behind it makes as it goes: SUMMA's, panel by
 * panel, and those of attention by a ring, block by block. */
bool sbp_program_is_operators_own(const struct sbp_program *program, const struct sbp_instr *instr);
/* Whether it brings offloaded states to the device, or takes them back. */
static inline bool sbp_program_is_host_copy(const struct sbp_instr *instr)
{
    return instr->kind == SBP_INSTR_COPY_IN || instr->kind == SBP_INSTR_COPY_OUT;
}
double sbp_price_call_bytes(const struct sbp_program *program, const struct sbp_instr *instr);
/* Price of one call of an instruction with communication_s > 0, and its basis; `cluster` is the
 * stage's. */
struct sbp_network_price sbp_price_of_network(const struct sbp_program *program,
                                              const struct sbp_cluster *cluster,
                                              const struct sbp_instr *instr,
                                              struct sbp_group *group);
/* Bytes that a device sends in an instruction; 0 where it does not communicate. */
double sbp_price_traffic_bytes(const struct sbp_program *program, const struct sbp_cluster *cluster,
                               const struct sbp_instr *instr);

/* One entry of the list that a run's log must equal. */
struct sbp_call {
    enum sbp_collective kind;
    sbp_axes axes;
    int64_t count; /* elements as the backend gets them: all-reduce: count; others: per member */
    int instr;
    int stages, tensor; /* of the instruction: a group over several stages is that of its tensor */
    bool statistic;     /* of the instruction: what an element is */
};
/* Calls of one step in order; *calls is allocated in the arena. */
enum sbp_status sbp_program_calls(const struct sbp_program *program, struct sbp_arena *arena,
                                  struct sbp_call **calls, int *count) SBP_MUST_USE;

#endif
