/* Where the chunks of a stage keep what on a device, and optimizer states on its host.
 *
 * A device's arena holds the states of one chunk after the other, the bucket that offloaded ones of
 * all chunks pass through, then the frames of micro-batches in flight, then what one micro-batch at
 * work needs besides. Host memory holds the offloaded states of one chunk after the other. The
 * order of the works says when a frame begins and ends, so that frames are placed ahead of a step.
 * Where arrivals decide, that is the order with most micro-batches in flight: it gives micro-batch
 * m frame m mod the limit, which is free in every other order, too, since the first stage begins
 * none before the one that many before it has come back. Every part of a frame has a region of its
 * own, where it gets the lowest hole that is large enough. Frames of chunks differ in size: they
 * share a region, since they are not fullest at the same time, or, where gaps would cost more,
 * those that are about alike have slots of one size. Without a flush steps have no begin and no end
 * at which frames are free: micro-batches take as many frames of a chunk as are in flight in turn,
 * one step after the other. Offsets are multiples of 64.
 */
#ifndef SBP_COSTMODEL_PROGRAM_STAGE_LAYOUT_H
#define SBP_COSTMODEL_PROGRAM_STAGE_LAYOUT_H

#include "costmodel/program/step.h"
#include "costmodel/timeline/works.h"

struct sbp_stage_layout {
    int chunks;
    int64_t micro_batches;
    const struct sbp_program **program; /* (chunks) the step's */
    int64_t *states_at;                 /* (chunks) */
    int64_t *host_at;                   /* (chunks) in host memory */
    int64_t bucket_at;
    int64_t (*frame_at)[SBP_FRAME_PARTS]; /* (chunks, micro_batches) row-major, of the arena */
    int64_t *turns;       /* (chunks) without a flush: frames, the first of which in frame_at; NULL:
                             one a micro-batch */
    int64_t frames_bytes; /* of all regions */
    int64_t work_at;
    int64_t bytes;      /* the whole arena */
    int64_t host_bytes; /* of host memory, exactly */
};

/* The frame, of those of its chunk, that a micro-batch of a step (from 0) has there. */
static inline int64_t sbp_stage_frame(const struct sbp_stage_layout *layout, int chunk,
                                      int64_t step, int64_t micro_batch)
{
    return layout->turns == NULL
               ? micro_batch
               : (step * layout->micro_batches + micro_batch) % layout->turns[chunk];
}

/* The works of a stage in order (costmodel/timeline/works.h); *work is the arena's. E_UNSUPPORTED:
 * the schedule has no fixed order; E_INPUT, E_MEMORY. */
enum sbp_status sbp_stage_works(const struct sbp_step *step, int stage, struct sbp_arena *arena,
                                struct sbp_timeline_work **work, int64_t *count,
                                struct sbp_diag *diag) SBP_MUST_USE;

/* Lay out a stage whose programs are compiled; and one program alone with one micro-batch. Arrays
 * are the arena's; the programs must outlive the layout. Fail as sbp_stage_works; E_MEMORY. */
enum sbp_status sbp_stage_layout_make(const struct sbp_step *step, int stage,
                                      struct sbp_arena *arena, struct sbp_stage_layout *layout,
                                      struct sbp_diag *diag) SBP_MUST_USE;
enum sbp_status sbp_stage_layout_alone(const struct sbp_program *program, struct sbp_arena *arena,
                                       struct sbp_stage_layout *layout,
                                       struct sbp_diag *diag) SBP_MUST_USE;

/* Where a buffer of a chunk's program lies in the arena, of the micro-batch that has a frame. */
int64_t sbp_stage_buffer_at(const struct sbp_stage_layout *layout, int chunk, int64_t frame,
                            const struct sbp_buffer *buffer);

/* Slots in which messages between stages wait behind the arena, as `sbplan run` has them.
 *
 * A stage that sends copies its message into a free slot of its own and goes on; from there it
 * moves to a free slot of the stage that receives, out of which that copies it. Each side of a
 * direction has two, so that one can be filled while the other is on its way: with one, stages
 * would wait longer, but under no order of works for ever. Where arrivals decide what a stage does
 * next there is a slot for every micro-batch in flight, of both sides together: none waits to send.
 * The executor proves before a run that they suffice (executor/run/message_lane.h); where the
 * trainer's profile says that messages have slots they are a part of a stage's memory.
 *
 * Each side of a direction has so many slots, but no more than messages in a step. The step's
 * timeline is known. */
int sbp_stage_slots(const struct sbp_step *step);
/* Bytes of the slots of a device of a stage: of what it sends and of what its neighbours send it,
 * each direction's as large as its largest message. 0 without a flush, where there are copies
 * instead. INT64_MAX: they pass 2^63. */
int64_t sbp_stage_slot_bytes(const struct sbp_step *step, int stage);

#endif
