/* The critical path of a step: the longest of its paths whose order is known beforehand.
 *
 * Schedules of a fixed order know all their paths, so that the critical path of the simulated
 * timeline is taken. Under `message-driven` a stage takes what has arrived: only some orders are
 * known, and the longest of those paths is taken (planner/paths/path_message_driven.h). Under
 * cyclic schedules and with one stage it is sbp_path_longest.
 */
#ifndef SBP_PLANNER_PATHS_PATH_CRITICAL_H
#define SBP_PLANNER_PATHS_PATH_CRITICAL_H

#include "planner/paths/path.h"

/* The critical path when every operator takes as long as its flops say. The path is allocated in
 * the arena. E_INPUT: the model has too few places to cut; E_MEMORY. */
enum sbp_status sbp_path_expected(const struct sbp_cut *cut, struct sbp_arena *arena,
                                  struct sbp_path *path, struct sbp_diag *diag) SBP_MUST_USE;
/* The critical path of a strategy, compiled and priced. times: seconds of each pass, message and
 * end in that step, in the shape of a path. Both are allocated in the arena. E_INPUT, E_MEMORY. */
enum sbp_status sbp_path_of_step(const struct sbp_cut *cut, const struct sbp_strategy *strategy,
                                 struct sbp_arena *arena, struct sbp_path *path,
                                 struct sbp_path *times, struct sbp_diag *diag) SBP_MUST_USE;

#endif
