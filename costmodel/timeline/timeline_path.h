/* The critical path of a simulated step: a chain of works and messages that is as long as the step.
 * Each begins the moment the one before it ended.
 *
 * Under a schedule of fixed orders the chain is a path through the step's dependencies whatever its
 * works take, so that its length is a lower bound of the step for other times, too.
 */
#ifndef SBP_COSTMODEL_TIMELINE_TIMELINE_PATH_H
#define SBP_COSTMODEL_TIMELINE_TIMELINE_PATH_H

#include "costmodel/timeline/timeline.h"

struct sbp_timeline_path {
    int virtual_stages; /* stages x chunks; v is chunk v / stages of stage v % stages */
    /* (virtual_stages) counts on the path: passes, where backward includes recomputation and,
     * unless the schedule splits them off, weight gradients; and messages that leave a virtual
     * stage each way. */
    int64_t *forward, *backward, *weight, *send_forward, *send_backward;
    int end;   /* stage that the step ends on */
    bool sums; /* the stage's sum of gradients outlasts what hides it (struct sbp_stage_end): the
                  path goes to the begin of the gradient work with which the sum begins, without
                  that work, and on through all of the sum */
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
