/* The longest known path through a step under the schedule `message-driven`, whose stages process
 * messages as they arrive.
 *
 * The module knows the order of forward passes and that of backward passes on every stage and link.
 * It knows the whole order of the first stage (a new micro-batch enters when an older one has come
 * back) and of the last stage (a micro-batch turns at once). A stage between them mixes the two
 * directions in an order that is not known: a path through it enters once, counts all passes there
 * that cannot come earlier, and leaves after the last of them.
 */
#ifndef SBP_PLANNER_PATHS_PATH_MESSAGE_DRIVEN_H
#define SBP_PLANNER_PATHS_PATH_MESSAGE_DRIVEN_H

#include "planner/paths/path.h"

/* times: seconds of passes, messages and ends, in the shape of a path with as many pieces as
 * stages,
 * >= 2. limit: micro-batches in flight, 0: as many as stages. path, of the same shape, receives the
 * first of the longest paths; steps of more than SBP_PATHS_DRIVEN_WORKS micro-batches x stages
 * leave it as it is. The scratch arena keeps nothing. E_MEMORY. */
enum sbp_status sbp_path_driven(const struct sbp_path *times, int64_t micro_batches, int64_t limit,
                                struct sbp_arena *scratch, struct sbp_path *path) SBP_MUST_USE;

#endif
