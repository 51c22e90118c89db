/* Dynamic loss scaling (Micikevicius et al., 2018, section 3.2), as the kernels' step_begin must do
 * it: verification holds what they decide beside it.
 *
 * Gradients in half precision are multiplied by a scale, lest small ones become 0. An overflow
 * shows that it was too large: the step changes nothing and the scale is halved. After many steps
 * without one it is doubled. Whether a step overflowed is a sum over the ranks of all stages, so
 * that all scales are the same and all ranks leave a step out, or none.
 */
#ifndef SBP_EXECUTOR_VERIFY_LOSS_SCALE_H
#define SBP_EXECUTOR_VERIFY_LOSS_SCALE_H

#include <stdbool.h>
#include <stdint.h>

struct sbp_loss_scaler {
    double scale; /* of the step under way, a power of 2; 1 where nothing is scaled */
    bool is_on, has_begun;
    bool overflowed;    /* in the step under way, as the caller says */
    int64_t good_steps; /* since the scale last changed */
    int64_t left_out;   /* steps before the one under way */
};

/* Before the first step. A scaler that is off keeps a scale of 1. */
struct sbp_loss_scaler sbp_loss_scaler(bool is_on);
/* Takes the step before into account. */
void sbp_loss_scaler_begin_step(struct sbp_loss_scaler *scaler);

#endif
