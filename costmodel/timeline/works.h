/* The order of a device's works under a schedule, which does not depend on how long they take.
 *
 * A work is one pass of one micro-batch over one virtual stage. A stage's program runs the works
 * one after the other (costmodel/program/task.h), as the simulated timeline does.
 *
 * Under message-driven the first and the last stage have an order, too. Stages between them do what
 * has come: their forward works in order of micro-batches, their backward works likewise, and of
 * two that could go on the backward one (Myelin, algorithm 2).
 *
 * Without a flush (cdp) a step's works on a stage are those between the updates of two steps:
 * forward passes of the step that follows are among them, of micro-batches that count on.
 */
#ifndef SBP_COSTMODEL_TIMELINE_WORKS_H
#define SBP_COSTMODEL_TIMELINE_WORKS_H

#include "costmodel/timeline/timeline.h"

enum sbp_work_kind {
    SBP_WORK_FORWARD,
    SBP_WORK_BACKWARD,
    SBP_WORK_WEIGHT,
    SBP_WORK_UPDATE, /* optimizer, where no end of a step has it; micro_batch is the step */
    SBP_WORK_KINDS
};

/* Eight bytes: orders are long, and works are passed by value. */
struct sbp_timeline_work {
    int16_t kind, stage; /* virtual stage */
    int32_t micro_batch;
};

/* Whether arrivals decide which work of a stage comes next. */
static inline bool sbp_timeline_is_driven(enum sbp_schedule schedule, int stages, int stage)
{
    return schedule == SBP_MESSAGE_DRIVEN && stage > 0 && stage < stages - 1;
}

/* The works of a device in order; costs of the request count for nothing. Where arrivals decide it
 * is the order that holds most micro-batches at a time. cdp placed as a pipeline: micro_batch is
 * that of the step, plus micro_batches for the next one. *work is the arena's. E_INPUT as
 * sbp_timeline_simulate; E_UNSUPPORTED: the schedule has no fixed order; E_MEMORY. */
enum sbp_status sbp_timeline_works(const struct sbp_timeline_request *request, int device,
                                   struct sbp_arena *arena, struct sbp_timeline_work **work,
                                   int64_t *count, struct sbp_diag *diag) SBP_MUST_USE;

#endif
