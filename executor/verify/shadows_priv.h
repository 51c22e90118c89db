/* The mean of the variances that several shadows of one step show of round-off.
 *
 * A shadow is one sample of round-off. Where the errors of all of a gradient's terms are one error,
 * as behind the one token that the loss reads, the run's error over the shadow's is the quotient of
 * two samples of one distribution: one in twelve passes 8. Over the mean of five squares one in two
 * thousand does (Student's distribution).
 */
#ifndef SBP_EXECUTOR_VERIFY_SHADOWS_PRIV_H
#define SBP_EXECUTOR_VERIFY_SHADOWS_PRIV_H

#include "executor/verify/reference_priv.h"

/* Has room for the means, of a whole verification of a run that stores 16 bits; E_MEMORY. What is
 * inherited is in the reference, as its last run left it. */
enum sbp_status sbp_shadows_open(struct sbp_reference *reference) SBP_MUST_USE;
/* Makes what the reference says is inherited the mean over shadows 0 to `shadow`, of which the last
 * one has run, and those before it were taken in by this function. */
void sbp_shadows_take(struct sbp_reference *reference, int shadow);

#endif
