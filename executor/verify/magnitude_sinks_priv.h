/* Bounds of the error of the gradients of attention's sinks. Internal. */
#ifndef SBP_EXECUTOR_VERIFY_MAGNITUDE_SINKS_PRIV_H
#define SBP_EXECUTOR_VERIFY_MAGNITUDE_SINKS_PRIV_H

#include "executor/verify/magnitude_priv.h"

/* After the BACKWARD instruction of a grouped attention with sinks: the gradient of a head's is the
 * sum over its queries of -p sum_d dy y, with p the sink's share of the softmax. Its terms are the
 * products dy y; they inherit what y, dy and p deviate by in the shadow. */
void sbp_magnitude_note_sinks(const struct sbp_lockstep *both, const struct sbp_instr *instr);

#endif
