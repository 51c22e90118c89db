/* A whole training step: the programs of all stages, their timeline, its seconds and its bytes.
 *
 * Input are model, cluster, parallel options and a closed strategy; output are times and memory. A
 * stage's program is the work of one micro-batch on one piece of the model; pieces that repeat each
 * other share a program. The program's instructions, by section, become the costs that the timeline
 * schedules; overlap, bubbles and micro-batches in flight come back as seconds and bytes. With one
 * stage and one micro-batch the step is the program itself.
 */
#ifndef SBP_COSTMODEL_PROGRAM_STEP_H
#define SBP_COSTMODEL_PROGRAM_STEP_H

#include "costmodel/program/program.h"
#include "costmodel/program/stages.h"

/* Buckets of offloaded states that a timeline has at most: smaller ones are priced together. Bounds
 * of a step (planner/pricing) count launches of buckets only up to there. */
#define SBP_STEP_MOST_BUCKETS (1 << 20)

struct sbp_step_request {
    const struct sbp_graph *graph;     /* set to parallel->micro_batch; must outlive the step */
    const struct sbp_cluster *cluster; /* of all stages; must outlive the step */
    const struct sbp_parallel *parallel;
    const struct sbp_strategy *strategy; /* closed on the mesh of a stage's cluster */
    const struct sbp_element_bytes *bytes;
    const int *first; /* (pipeline x chunks + 1) boundaries of pieces; NULL: sbp_stages_cut */
    bool record;      /* keep the timeline's intervals and memory */
    bool runs;        /* every piece gets a program of its own: a run tells their tensors apart */
    bool is_brief;    /* totals of what is exposed, hidden or a bubble stay 0 */
};

/* Bytes of a device of a stage. device = weights + gradients + moments + masters + bucket + reserve
 * + messages + (in flight - 1) kept + the peak of one micro-batch, of which `kept` is what it holds
 * between its passes (token ids and labels included) and `transient` the rest. Under the
 * interleaved schedule kept is the mean of the chunks', and under zero-bubble a micro-batch that
 * waits for its weight gradients has `parked` in place of kept; frames lie as in stage_layout.h. */
struct sbp_stage_memory {
    int64_t weight_bytes, gradient_bytes, moment_bytes, master_bytes, bucket_bytes, reserve_bytes;
    int64_t message_bytes; /* slots of messages between stages, of trainers that have them */
    int64_t kept_bytes, parked_bytes, transient_bytes; /* of one micro-batch */
    int in_flight; /* micro-batches (of a chunk each); under message-driven, the most that arrivals
                      can leave with the stage */
    int64_t device_bytes, host_bytes;
    int64_t parameters; /* elements of weights that the device works with: whole blocks */
};

/* Totals of a device, as the mean over stages; with one stage they are that device's. */
struct sbp_step_totals {
    double step_s;
    double compute_s;       /* forward and backward */
    double recompute_s;     /* its boxing is among the communication */
    double optimizer_s;     /* update, norm; host transfers of offloaded states that it waits for */
    double communication_s; /* all of it, hidden or not */
    double by_cause_s[SBP_CAUSES];
    double exposed_s, hidden_s; /* parts of communication_s; waiting for messages counts as exposed,
                                   up to all of it */
    double hidden_by_cause_s[SBP_CAUSES]; /* parts of hidden_s: messages between stages, sums of
                                             gradients beside the backward pass or the optimizer,
                                             and what the trainer hides within passes */
    double bubble_s; /* the rest of the step, in which devices wait for each other or for their
                        hosts: step_s is the sum of compute_s, recompute_s, optimizer_s, exposed_s
                        and it */
    double communication_bytes;       /* sent by a device in a step */
    int64_t device_bytes, host_bytes; /* the most of a stage */
    bool fits_device, fits_host; /* host memory that the cluster does not give fits everything */
};

struct sbp_step {
    struct sbp_arena arena; /* owns the arrays */
    struct sbp_parallel parallel;
    struct sbp_cluster cluster; /* of a stage */
    struct sbp_mesh mesh;       /* of a stage */
    int64_t micro_batches;      /* of a step */
    int stages, pieces;         /* pieces = stages x chunks; piece i is chunk i / stages of stage
                                   i % stages. Replicas: pieces = chunks = stages, and piece i is
                                   chunk i of every stage. A pyramid: stages are its groups, which
                                   have a piece each */
    bool replicates, pyramid;   /* (sbp_parallel_replicates) */
    int *first;                 /* (pieces + 1) */
    int *program_of;            /* (pieces) */
    int *holders;               /* (tensor_count) stages that hold a weight */
    int *copies;                /* (stages, tensor_count) chunks of a stage that do; NULL: there is
                                   one chunk */
    int program_count;
    struct sbp_program *program; /* (program_count) */
    struct sbp_stage_cost *cost; /* (stages, chunks) row-major; where groups hand on: (pieces) */
    struct sbp_stage_end *end;   /* (stages); likewise */
    struct sbp_stage_memory *memory; /* (stages) */
    struct sbp_timeline timeline;
    struct sbp_step_totals totals;
};

/* E_INPUT where parallel does not fit graph or cluster (sbp_parallel_check), the graph holds
 * another micro-batch, or a piece cannot be cut; E_RANGE, E_MEMORY as the compiler. What does not
 * fit in memory is no error: see totals. On failure nothing is left allocated. */
enum sbp_status sbp_step_make(const struct sbp_step_request *request, struct sbp_step *step,
                              struct sbp_diag *diag) SBP_MUST_USE;
void sbp_step_free(struct sbp_step *step);

/* Whether stages have pieces in common, and hand sums of their gradients on. */
static inline bool sbp_step_hands_on(const struct sbp_step *step)
{
    return step->replicates || step->pyramid;
}

/* The functions below alone know where pieces are; all other code calls them. */
static inline int sbp_step_chunks(const struct sbp_step *step)
{
    return step->pyramid ? 1 : step->replicates ? step->pieces : step->pieces / step->stages;
}
static inline int sbp_step_piece(const struct sbp_step *step, int stage, int chunk)
{
    return step->pyramid      ? sbp_pyramid_stage(step->pieces, stage)
           : step->replicates ? chunk
                              : chunk * step->stages + stage;
}
static inline int sbp_step_chunk_of(const struct sbp_step *step, int piece)
{
    return step->pyramid ? 0 : step->replicates ? piece : piece / step->stages;
}
static inline bool sbp_step_has(const struct sbp_step *step, int stage, int piece)
{
    return step->pyramid ? sbp_pyramid_stage(step->pieces, stage) == piece
                         : step->replicates || piece % step->stages == stage;
}
/* The first stage that has a piece, and how many do. */
static inline int sbp_step_stage_of(const struct sbp_step *step, int piece)
{
    return step->pyramid      ? sbp_pyramid_first(step->pieces, piece)
           : step->replicates ? 0
                              : piece % step->stages;
}
static inline int sbp_step_copies(const struct sbp_step *step, int piece)
{
    return step->pyramid      ? sbp_pyramid_size(step->pieces, piece)
           : step->replicates ? step->stages
                              : 1;
}
/* The stage that does a micro-batch of a step, from 0, on a piece. */
static inline int sbp_step_worker(const struct sbp_step *step, int piece, int64_t number,
                                  int micro_batch)
{
    return step->pyramid
               ? sbp_pyramid_group(step->pieces, piece, number * step->micro_batches + micro_batch)
           : step->replicates ? sbp_replicas_micro_batch(step->stages, micro_batch)
                              : piece % step->stages;
}

/* The program of a piece; with one chunk a stage that is the stage's. */
static inline const struct sbp_program *sbp_step_program(const struct sbp_step *step, int piece)
{
    return &step->program[step->program_of[piece]];
}
/* The same of a chunk of a stage. */
static inline const struct sbp_program *sbp_step_chunk(const struct sbp_step *step, int stage,
                                                       int chunk)
{
    return sbp_step_program(step, sbp_step_piece(step, stage, chunk));
}
static inline const struct sbp_stage_cost *sbp_step_cost(const struct sbp_step *step, int stage,
                                                         int chunk)
{
    return &step->cost[sbp_step_hands_on(step) ? sbp_step_piece(step, stage, chunk)
                                               : stage * sbp_step_chunks(step) + chunk];
}
/* The first piece that holds a weight; their number: none does. */
static inline int sbp_step_holder(const struct sbp_step *step, int tensor)
{
    int piece = 0;
    while (piece < step->pieces && sbp_step_program(step, piece)->weight_buffer[tensor] < 0)
        piece++;
    return piece;
}
/* Whether a chunk of a stage holds a weight. */
static inline bool sbp_step_holds(const struct sbp_step *step, int stage, int tensor)
{
    bool holds = false;
    for (int chunk = 0; chunk < sbp_step_chunks(step); chunk++)
        holds |= sbp_step_chunk(step, stage, chunk)->weight_buffer[tensor] >= 0;
    return holds;
}
/* How often all devices of one place run an instruction of a piece in a step. */
double sbp_step_times(const struct sbp_step *step, int piece, const struct sbp_instr *instr);
/* The timeline's request of a step, of the costs that it has. */
struct sbp_timeline_request sbp_step_timeline(const struct sbp_step *step);

/* The work of a micro-batch's passes on a piece, by section, without messages to other stages. */
void sbp_step_pass_times(const struct sbp_step *step, const struct sbp_runtime *runtime, int piece,
                         struct sbp_pass_time pass[SBP_SECTIONS]);

#endif
