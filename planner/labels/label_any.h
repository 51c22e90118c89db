/* Some labels of a space that are legal together, whatever they cost.
 *
 * Where sizes leave little to divide, the labels of what is cheapest may not be legal, nor those of
 * anything near it, though others are.
 */
#ifndef SBP_PLANNER_LABELS_LABEL_ANY_H
#define SBP_PLANNER_LABELS_LABEL_ANY_H

#include "planner/space/space.h"

/* Looks for them by random steps (planner/labels/label_walk.h) after none of which more is broken
 * than before, a tenth of a second or so. The space must have choices (not space->is_refuted).
 * *found: *strategy (allocated by sbp_strategy_alloc) has them, closed; else it has nothing of use.
 * The same seed finds the same. E_MEMORY. */
enum sbp_status sbp_label_any(const struct sbp_space *space, uint64_t seed,
                              struct sbp_strategy *strategy, bool *found) SBP_MUST_USE;

#endif
