/* Sizes of the gradients of a mixture's weights: of its router, over all tokens, and of both
 * products of each expert, over the tokens in its slots.
 */
#ifndef SBP_EXECUTOR_VERIFY_MAGNITUDE_MIXTURE_PRIV_H
#define SBP_EXECUTOR_VERIFY_MAGNITUDE_MIXTURE_PRIV_H

#include "executor/verify/magnitude_priv.h"

/* What a BACKWARD instruction adds (sbp_magnitude_note), of a whole verification; E_MEMORY. */
enum sbp_status sbp_magnitude_note_mixture(const struct sbp_lockstep *both,
                                           const struct sbp_instr *instr) SBP_MUST_USE;
/* Bytes that it takes. */
double sbp_magnitude_mixture_bytes(const struct sbp_program *program, int op);

#endif
