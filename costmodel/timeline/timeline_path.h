/* The critical path of a simulated step: the chain of works and messages, each begun the moment the
 * one before it ended, that is as long as the step.
 *
 * Under a schedule of fixed orders the chain is a path through the step's dependencies whatever its
 * works take, and its length a lower bound of any such step.
 */
#ifndef SBP_COSTMODEL_TIMELINE_TIMELINE_PATH_H
#define SBP_COSTMODEL_TIMELINE_TIMELINE_PATH_H

#include "costmodel/timeline/timeline.h"

struct sbp_timeline_path {
    int virtual_stages; /* stages x chunks; v is chunk v / stages of stage v % stages */
    /* (virtual_stages) works on the path; backward: with what is formed again, and with weight
     * gradients unless the schedule parts them; and messages that leave a virtual stage forward and
     * backward. */
    int64_t *forward, *backward, *weight, *send_forward, *send_backward;
    int end; /* stage that the step ends on */
};

/* Whether a schedule's orders are fixed whatever its works take. */
bool sbp_timeline_is_fixed(enum sbp_schedule schedule);

/* The path that ends on `end`, a stage, or on the stage that is through last (-1). The timeline is
 * one of the request, recorded. Arrays come out of the arena. E_UNSUPPORTED, with no text: orders
 * are not fixed, or sends block; E_MEMORY. */
enum sbp_status sbp_timeline_critical(const struct sbp_timeline_request *request,
                                      const struct sbp_timeline *timeline, int end,
                                      struct sbp_arena *arena,
                                      struct sbp_timeline_path *path) SBP_MUST_USE;

#endif
