/* The order of a device's works under a schedule, which does not depend on how long they take.
 *
 * A work is one pass of one micro-batch over one virtual stage. A stage's program runs the works
 * one after the other (costmodel/program/task.h), as the simulated timeline does.
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

/* The works of a device in order; costs of the request count for nothing. *work is the arena's.
 * E_INPUT as sbp_timeline_simulate; E_UNSUPPORTED: the schedule has no fixed order; E_MEMORY. */
enum sbp_status sbp_timeline_works(const struct sbp_timeline_request *request, int device,
                                   struct sbp_arena *arena, struct sbp_timeline_work **work,
                                   int64_t *count, struct sbp_diag *diag) SBP_MUST_USE;

#endif
