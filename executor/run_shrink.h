/* Makes a plan's model small enough that one device can verify its plan.
 *
 * Verification holds a step to one device in double, which takes about 32 bytes a parameter and all
 * activations of the batch. The shrunk plan keeps what a plan decides: every layer and its roles,
 * where activations rest, stages and their boundaries, schedule, ZeRO levels, recomputation. Widths
 * are divided by one number, heads, vocabulary, sequence with windows over it, and batch become as
 * small as the splits let them: what divides evenly in the plan does so in the small one.
 */
#ifndef SBP_EXECUTOR_RUN_SHRINK_H
#define SBP_EXECUTOR_RUN_SHRINK_H

#include "planner/plan/plan.h"

/* Fills plan and step (made for a run, with elements of `bytes`), which point into each other: they
 * must not be moved, and the caller frees the step, then the plan. E_UNSUPPORTED where the plan is
 * legal for no smaller model, E_MEMORY; on failure nothing is left allocated. */
enum sbp_status sbp_run_shrink(const struct sbp_plan *plan, const struct sbp_element_bytes *bytes,
                               struct sbp_plan *small, struct sbp_step *step,
                               struct sbp_diag *diag) SBP_MUST_USE;

#endif
