/* Which sums of gradients a stage leaves to its lane of sums, and who waits for them.
 *
 * Such a sum is read when it is over: by norms and updates. A whole gradient on its way to shards,
 * or to an owner, has room of its own only until then (ZeRO 2 and 3): the layout gives that to
 * buffers of later instructions, so that the first task that touches it waits as well. So sums
 * beside need no memory that a step without them does not.
 */
#ifndef SBP_COSTMODEL_PROGRAM_TASK_BESIDE_PRIV_H
#define SBP_COSTMODEL_PROGRAM_TASK_BESIDE_PRIV_H

#include "costmodel/program/task.h"

/* Whether an instruction sums a whole gradient that has its memory until the sum is over. */
bool sbp_task_ends_unreduced(const struct sbp_program *program, const struct sbp_instr *instr);

/* *hides: (instructions of the chunk) sums that go beside the backward pass; the arena's. E_MEMORY.
 */
enum sbp_status sbp_task_beside_find(const struct sbp_step *step, int stage, int chunk,
                                     struct sbp_arena *arena, bool **hides) SBP_MUST_USE;
/* Says of the tasks of a whole list for which of its sums beside they wait. Fails as the layout of
 * a stage does; E_MEMORY. */
enum sbp_status sbp_task_beside_link(const struct sbp_step *step, int stage,
                                     struct sbp_tasks *tasks, struct sbp_arena *scratch,
                                     struct sbp_diag *diag) SBP_MUST_USE;

#endif
