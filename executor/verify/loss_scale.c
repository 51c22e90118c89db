#include "executor/verify/loss_scale.h"

/* The defaults of PyTorch's torch.amp.GradScaler: init_scale, growth_factor, backoff_factor,
 * growth_interval. The least is that of Megatron-LM's --min-loss-scale. */
static const double FIRST = 0x1p16, GROWTH = 2, BACKOFF = 0.5, LEAST = 1;
enum { GROWTH_INTERVAL = 2000 };

struct sbp_loss_scaler sbp_loss_scaler(bool is_on)
{
    return (struct sbp_loss_scaler){.scale = is_on ? FIRST : 1, .is_on = is_on};
}

void sbp_loss_scaler_begin_step(struct sbp_loss_scaler *scaler)
{
    const bool overflowed = scaler->overflowed;
    scaler->overflowed = false;
    if (!scaler->is_on || !scaler->has_begun) {
        scaler->has_begun = true;
        return;
    }
    scaler->left_out += overflowed;
    scaler->good_steps = overflowed ? 0 : scaler->good_steps + 1;
    if (overflowed && scaler->scale > LEAST)
        scaler->scale *= BACKOFF;
    if (scaler->good_steps == GROWTH_INTERVAL) {
        scaler->scale *= GROWTH;
        scaler->good_steps = 0;
    }
}
