/* The timeline of a training step: a discrete-event simulation of a schedule over pipeline stages.
 *
 * Input are costs of each stage for one micro-batch, whatever their source. Output is how long the
 * step takes, where devices idle, how much communication is exposed, how much memory is held when,
 * and, on request, every interval for drawing. Functions are pure: nothing is kept between calls.
 *
 * Model. A device does one piece of work at a time, in the order of its schedule. A micro-batch
 * goes forward through the virtual stages 0, 1, ..., stages * chunks - 1 and backward in reverse
 * order; virtual stage v is chunk v / stages of stage v % stages. Between two devices a message
 * takes its sender's send time on a link; a device has one link a direction, which carries one
 * message after the other. Sends overlap with computing unless they block the sender. Receivers
 * always have room. A backward pass is recomputation, then input gradients, then weight gradients,
 * and its message leaves at its end; `zero-bubble` alone does the weight gradients later.
 *
 * Sources: gpipe: Huang et al. 2019. 1f1b: Narayanan et al. (PipeDream) 2019, with a flush.
 * interleaved: Narayanan et al. 2021, section 2.2, in the order of Megatron-LM. zero-bubble: Qi et
 * al. 2023, section 2 (ZB-H1, ZB-H2). message-driven: Singh and Bhatele (Myelin), algorithm 2.
 * cdp-v1, cdp-v2: Fournier and Oyallon, Cyclic Data Parallelism (table 1:
 * tests/papers/cdp_count.h); their steps have no end: the optimizer runs between passes of the next
 * steps, sync_s after the last gradient, for which a pipeline's stage waits. Devices of `replicas`
 * and `groups` have sync_s and optimizer_s each.
 */
#ifndef SBP_COSTMODEL_TIMELINE_TIMELINE_H
#define SBP_COSTMODEL_TIMELINE_TIMELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

#define SBP_SCHEDULE_MAP(X)                                                                        \
    X(GPIPE, "gpipe")                                                                              \
    X(ONE_F_ONE_B, "1f1b")                                                                         \
    X(INTERLEAVED, "interleaved")                                                                  \
    X(ZERO_BUBBLE, "zero-bubble")                                                                  \
    X(MESSAGE_DRIVEN, "message-driven")                                                            \
    X(CDP_V1, "cdp-v1")                                                                            \
    X(CDP_V2, "cdp-v2")

#define SBP_SCHEDULE_ENUM(symbol, name) SBP_##symbol,
enum sbp_schedule { SBP_SCHEDULE_MAP(SBP_SCHEDULE_ENUM) SBP_SCHEDULES };
#undef SBP_SCHEDULE_ENUM
const char *sbp_timeline_schedule_name(enum sbp_schedule schedule);
/* Whether the schedule has no flush, so that a step also updates with gradients of an older state:
 * a different training from that of the other schedules. */
bool sbp_timeline_delays_gradients(enum sbp_schedule schedule);
/* Whether weight gradients wait, as a work of their own behind the input gradients. */
static inline bool sbp_timeline_weights_wait(enum sbp_schedule schedule)
{
    return schedule == SBP_ZERO_BUBBLE;
}
/* Versions of its weights that a stage of a pipeline holds: two where micro-batches that began
 * before an update are in flight after it, and where gradients are always of the older one. */
int sbp_timeline_weight_versions(enum sbp_schedule schedule, int stages, int stage);

/* On which devices cyclic data parallelism computes (Fournier and Oyallon, section 4). */
#define SBP_PLACEMENT_MAP(X)                                                                       \
    X(PIPELINE, "pipeline")      /* a device per stage */                                          \
    X(SINGLE, "single-device")   /* everything on one device */                                    \
    X(DATA, "data-parallel")     /* a device per micro-batch, with all stages */                   \
    X(PYRAMID, "model-parallel") /* N - j + 1 devices of stage j, one micro-batch each */          \
    X(ZERO, "zero")              /* a device per micro-batch; a stage's states go with its work */ \
    X(REPLICAS, "replicas")      /* as data-parallel, and each device makes its own updates, of    \
                                    sums that they hand on (costmodel/timeline/replicas.h) */      \
    X(GROUPS, "groups")          /* as model-parallel, likewise (costmodel/timeline/pyramid.h) */

#define SBP_PLACEMENT_ENUM(symbol, name) SBP_PLACE_##symbol,
enum sbp_placement { SBP_PLACEMENT_MAP(SBP_PLACEMENT_ENUM) SBP_PLACEMENTS };
#undef SBP_PLACEMENT_ENUM
const char *sbp_timeline_placement_name(enum sbp_placement placement);

/* One micro-batch on one chunk of a stage. Times finite and >= 0, bytes in 0 .. 2^53. */
struct sbp_stage_cost {
    double forward_s, backward_input_s, backward_weight_s;
    double recompute_s;                     /* runs first within the backward pass */
    double send_forward_s, send_backward_s; /* to the next, to the previous virtual stage */
    double send_states_s;                   /* the stage's states to another device; zero only */
    double send_gradients_s; /* a sum of its gradients to another device that has the stage */
    int64_t static_bytes;    /* parameters, gradients, optimizer states, buffers: always held */
    int64_t kept_bytes;      /* from the begin of forward to the end of the backward pass */
    int64_t transient_bytes; /* on top while any work of this chunk runs */
    /* Zero-bubble alone has them: the part of kept_bytes that stays to the end of the weight
     * gradients, and what joins it at the begin of the input gradients. */
    int64_t parked_inputs_bytes, parked_gradients_bytes;
};

/* The optimizer with its states in host memory (Myelin, V-B and V-C): a bucket is brought to the
 * device, stepped and taken back, one bucket after the other (there is one buffer). */
struct sbp_offload {
    int buckets;                /* 0: states stay on the device, optimizer_s counts */
    double in_s, step_s, out_s; /* one bucket */
    /* Buckets that one all-reduce covers (the paper's k); all-reduces run back to back beside the
     * optimizer, which waits for the one of its buckets. 0: one all-reduce of sync_s comes first.
     */
    int chunk_buckets;
    double chunk_sync_s;      /* all-reduce of chunk_buckets buckets */
    double last_chunk_sync_s; /* of the rest, buckets % chunk_buckets; unused when 0 */
};

/* Work that follows a stage's last backward pass. */
struct sbp_stage_end {
    double sync_s; /* gradients, among replicas of the stage, in one piece */
    /* Share of sync_s that may hide behind the window from the begin of the last micro-batch's
     * gradient work on the stage (of the chunk that has it first) to the end of the stage's last
     * work: exposed = max((1 - overlap) sync_s, sync_s - window). 0 .. 1; 0 with chunks above. */
    double sync_overlap;
    double optimizer_s;
    struct sbp_offload offload;
};

struct sbp_timeline_request {
    enum sbp_schedule schedule;
    int stages; /* >= 1 */
    /* Micro-batches of a step, >= 1. interleaved: a multiple of stages; cdp: at least stages,
     * exactly as many unless it is placed as a pipeline. */
    int micro_batches;
    int chunks; /* of a stage; interleaved: >= 2, others: 0 or 1 */
    /* Micro-batches in flight. message-driven: injected by the first stage; zero-bubble: on every
     * stage from forward to weight gradients. 0: stages (Myelin's G_inter; ZB-H1); 2 stages - 1 is
     * ZB-H2. Other schedules fix it themselves: 0. With as few as stages, message-driven pays for
     * the slightest latency (a forward pass slips in before a late backward pass); more cost
     * memory.
     */
    int pipeline_limit;
    enum sbp_placement placement; /* cdp only; others: pipeline, which is 0 */
    bool sends_block;             /* the sender does nothing else while a message leaves */
    bool record;                  /* fill interval and memory of the result */
    bool is_brief; /* exposed times stay 0: without them a step is simulated once, not twice */
    const struct sbp_stage_cost *stage; /* (stages, chunks) row-major */
    const struct sbp_stage_end *end;    /* (stages); NULL: a step ends with its last work */
};

enum sbp_interval_kind {
    SBP_INTERVAL_FORWARD,
    SBP_INTERVAL_BACKWARD,
    SBP_INTERVAL_BACKWARD_WEIGHT,
    SBP_INTERVAL_RECOMPUTE,
    SBP_INTERVAL_SEND,
    SBP_INTERVAL_SYNC,
    SBP_INTERVAL_OFFLOAD,
    SBP_INTERVAL_OPTIMIZER,
};

/* backward: input gradients and, unless zero-bubble parts them, weight gradients. A send stands
 * with its sender and with the micro-batch and chunk that it leaves. Works of a device stand in
 * order of time; sends and syncs may overlap with them. */
struct sbp_timeline_interval {
    enum sbp_interval_kind kind;
    int device, stage, chunk;
    int micro_batch; /* of the step; sync, offload, optimizer: -1 */
    int step;        /* 0 where one step is simulated; < 0: update of a step before the first */
    double begin_s, end_s;
};

/* Bytes held from at_s until the next sample of the device; samples of a device are in order of
 * time. */
struct sbp_memory_sample {
    int device;
    double at_s;
    int64_t bytes;
};

struct sbp_device_timeline {
    double compute_s; /* of the step: forward, backward, recomputing; cdp: and optimizer */
    double bubble_s;  /* of the step: neither computing, nor in a blocking send, nor at its end's
                         exposed synchronisation and optimizer */
    double end_s;     /* when the device is through, optimizer included */
    int64_t peak_bytes;
    int in_flight; /* most (micro-batch, chunk) pairs whose activations are held at a time */
};

struct sbp_timeline {
    double makespan_s; /* of a step; without a flush: from step to step once they take the same
                          time, the mean of the later half where they keep differing (of the
                          micro-batch for which it is longest) */
    int steps;         /* simulated; intervals and memory are those of all of them */
    /* Without a flush some passes read parameters that are one step old, and their gradients come
     * one step late: stale_share of the (micro-batch, stage) pairs do. */
    bool delays_gradients;
    double stale_share;
    double bubble_s; /* sum over devices */
    /* Exposed communication: exposed_send_s is the makespan minus that with free sends,
     * exposed_sync_s the latter minus the makespan with free sends and free gradient
     * synchronisation, exposed_s their sum. Each is at least 0 (message-driven scheduling is
     * greedy, so a faster network may cost it a little time). */
    double exposed_s, exposed_send_s, exposed_sync_s;
    int devices; /* = stages in a pipeline; cdp: as its placement has them */
    struct sbp_device_timeline *device;
    int64_t interval_count, memory_count; /* 0 unless recorded */
    struct sbp_timeline_interval *interval;
    struct sbp_memory_sample *memory;
};

/* Simulates a step. Arrays of the result live in the arena; nothing of the request is kept.
 * E_INPUT (diag says which field and what is legal), E_MEMORY. O(work) for fixed orders, O(work log
 * stages) for message-driven. */
enum sbp_status sbp_timeline_simulate(const struct sbp_timeline_request *request,
                                      struct sbp_arena *arena, struct sbp_timeline *timeline,
                                      struct sbp_diag *diag) SBP_MUST_USE;

#endif
