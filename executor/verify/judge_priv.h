/* Whether the experts that a run chose are those that exact scores rank highest.
 *
 * Each is held to the one that its own scores rank in that place. It may be another one only where
 * the two are as good but for round-off, which the caller's judge decides. Where experts are of
 * some groups alone, the groups that the run must have opened are held to those with the largest
 * sums likewise: the groups of its experts and, as far as more were open, the best of those whose
 * experts it would not have taken.
 */
#ifndef SBP_EXECUTOR_VERIFY_JUDGE_PRIV_H
#define SBP_EXECUTOR_VERIFY_JUDGE_PRIV_H

#include "executor/verify/magnitude_priv.h"
#include "executor/verify/reference_priv.h"

/* Behind the first phase of a mixture in both precisions; calls reference->judge. E_MEMORY. */
enum sbp_status sbp_judge_choices(struct sbp_reference *reference, const struct sbp_lockstep *both,
                                  const struct sbp_instr *instr) SBP_MUST_USE;

#endif
