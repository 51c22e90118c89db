/* Which rows of images share the statistics of a batch normalisation in a run: those of one
 * member's block of one micro-batch. The reference, which has all rows on one device, normalises by
 * them.
 */
#ifndef SBP_EXECUTOR_VERIFY_NORM_GROUPS_PRIV_H
#define SBP_EXECUTOR_VERIFY_NORM_GROUPS_PRIV_H

#include "costmodel/program/step.h"
#include "executor/rank/rank_memory.h"

/* Whether a model has batch normalisation. */
bool sbp_norm_groups_has(const struct sbp_graph *graph);
/* Groups of a graph of `graph->micro_batch` rows, a multiple of the step's micro-batch; arrays are
 * the arena's. E_MEMORY. */
enum sbp_status sbp_norm_groups_make(const struct sbp_graph *graph, const struct sbp_step *step,
                                     struct sbp_arena *arena,
                                     struct sbp_norm_groups *groups) SBP_MUST_USE;

#endif
