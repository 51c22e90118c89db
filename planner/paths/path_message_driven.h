/* The longest path that is known through a step under `message-driven`, whose stages do what has
 * come.
 *
 * Known is the order of each direction on every stage and link, all of the first stage's (it takes
 * in a micro-batch in place of one that has come back) and all of the last one's (a micro-batch
 * turns at once). A stage between them does some works in an order that is not known: a path
 * through such a stage enters it once, has all works there that cannot come earlier, and leaves it
 * after the last of them.
 */
#ifndef SBP_PLANNER_PATHS_PATH_MESSAGE_DRIVEN_H
#define SBP_PLANNER_PATHS_PATH_MESSAGE_DRIVEN_H

#include "planner/paths/path.h"

/* times: of works, messages and ends, in the shape of a path of as many pieces as stages, >= 2;
 * limit: micro-batches in flight, 0: as many as stages; path: of that shape, written over. The
 * scratch arena keeps nothing. Of equal paths it is the first. Steps of more than
 * SBP_PATHS_DRIVEN_WORKS micro-batches x stages (32 MiB of scratch) leave the path as it is.
 * E_MEMORY. */
enum sbp_status sbp_path_driven(const struct sbp_path *times, int64_t micro_batches, int64_t limit,
                                struct sbp_arena *scratch, struct sbp_path *path) SBP_MUST_USE;

#endif
