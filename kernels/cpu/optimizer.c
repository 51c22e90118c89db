/* The optimizers' steps, the squares that clipping sums, and a step's scales. */
#include <assert.h>

#include "kernels/cpu/rows_priv.h"

void CPU(sum_squares)(void *sum, const void *x, int64_t n, double factor)
{
    *(real *)sum = (real)(CPU(row_dot)(x, x, n) * factor);
}

/* ---- a step's scales ------------------------------------------------------------------------ */

/* The defaults of PyTorch's torch.amp.GradScaler: init_scale, growth_factor, backoff_factor,
 * growth_interval. The least is that of Megatron-LM's --min-loss-scale. */
static const double FIRST_SCALE = 0x1p16, GROWTH = 2, BACKOFF = 0.5, LEAST_SCALE = 1;
enum { GROWTH_INTERVAL = 2000 };

static void change_scale(struct sbp_step_state *step)
{
    const bool overflowed = step->overflowed != 0;
    step->left_out += overflowed;
    step->good_steps = overflowed ? 0 : step->good_steps + 1;
    if (overflowed && step->loss_scale > LEAST_SCALE)
        step->loss_scale *= BACKOFF;
    if (step->good_steps == GROWTH_INTERVAL) {
        step->loss_scale *= GROWTH;
        step->good_steps = 0;
    }
}

void CPU(step_begin)(struct sbp_step_state *step, bool scales)
{
    if (step->has_begun == 0)
        step->loss_scale = scales ? FIRST_SCALE : 1;
    else if (scales && step->grad_norm != -1) /* a round ahead of all steps has no norm */
        change_scale(step);
    step->has_begun = 1;
    step->loss = step->loss_ahead;
    step->loss_ahead = step->squares = 0;
    step->grad_norm = -1;
    step->gradient_scale = 1;
    step->overflowed = step->leaves_out = step->has_odd_gradient = 0;
}

void CPU(step_add)(double *sum, const void *value)
{
    *sum += (double)*(const real *)value;
}

void CPU(step_take)(void *value, const double *sum)
{
    *(real *)value = (real)*sum;
}

/* A gradient that overflows in half precision, or is no number, makes the sum infinite or none. */
void CPU(step_decide)(struct sbp_step_state *step, const void *squares, double clip_norm,
                      const struct sbp_update *update, bool scales)
{
    (void)update;
    if (squares == NULL)
        return;
    const double sum = (double)*(const real *)squares, norm = sqrt(sum) / step->loss_scale;
    step->grad_norm = norm;
    step->gradient_scale = clip_norm > 0 && norm > clip_norm ? clip_norm / norm : 1;
    step->leaves_out = !isfinite(sum);
    step->overflowed = scales && step->leaves_out;
}

void CPU(step_watch)(struct sbp_step_state *step, const void *squares)
{
    step->leaves_out = !isfinite(*(const real *)squares);
    step->has_odd_gradient |= step->leaves_out;
}

/* ---- updates -------------------------------------------------------------------------------- */

/* Momentum without damping or Nesterov: b = momentum b + g, w -= rate b (Sutskever et al., 2013,
 * with the rate outside the buffer). */
SBP_SIMD_WIDE
static void sgd(real *w, const real *g, real *buffer, int64_t n, const struct sbp_update *update)
{
    const real rate = (real)update->learning_rate, decay = (real)update->weight_decay;
    const real scale = (real)update->gradient_scale, momentum = (real)update->momentum;
    if (update->momentum == 0) {
        SBP_INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            w[i] -= rate * (g[i] * scale + decay * w[i]);
        return;
    }
    SBP_INDEPENDENT
    for (int64_t i = 0; i < n; i++) {
        buffer[i] = momentum * buffer[i] + (g[i] * scale + decay * w[i]);
        w[i] -= rate * buffer[i];
    }
}

/* Kingma and Ba, 2015, algorithm 1; AdamW shrinks the weight instead of adding the decay to the
 * gradient (Loshchilov and Hutter, 2019, algorithm 2, with the decay scaled by the rate). */
SBP_SIMD_WIDE
static void adam(real *w, const real *g, real *first, real *second, int64_t n,
                 const struct sbp_update *update)
{
    const bool decoupled = update->optimizer == SBP_ADAMW;
    const real coupled = decoupled ? 0 : (real)update->weight_decay;
    const real keep =
        decoupled ? (real)(1 - update->learning_rate * update->weight_decay) : (real)1;
    const real beta1 = (real)update->beta1, rest1 = (real)(1 - update->beta1);
    const real beta2 = (real)update->beta2, rest2 = (real)(1 - update->beta2);
    const double correction1 = 1 - pow(update->beta1, (double)update->step);
    const double correction2 = 1 - pow(update->beta2, (double)update->step);
    const real rate = (real)(update->learning_rate / correction1);
    const real unbias = (real)(1 / sqrt(correction2));
    const real scale = (real)update->gradient_scale, epsilon = (real)update->epsilon;
    SBP_INDEPENDENT
    for (int64_t i = 0; i < n; i++) {
        const real gradient = g[i] * scale + coupled * w[i];
        first[i] = beta1 * first[i] + rest1 * gradient;
        second[i] = beta2 * second[i] + rest2 * gradient * gradient;
        w[i] = w[i] * keep - rate * first[i] / (real_sqrt(second[i]) * unbias + epsilon);
    }
}

static void take_step(real *w, const real *g, real *first, real *second, int64_t n,
                      const struct sbp_update *update)
{
    if (update->optimizer == SBP_SGD) {
        sgd(w, g, first, n, update);
        return;
    }
    assert(update->step >= 1);
    adam(w, g, first, second, n, update);
}

static struct sbp_update scaled_by(const struct sbp_update *update,
                                   const struct sbp_step_state *step)
{
    struct sbp_update scaled = *update;
    if (step == NULL)
        return scaled;
    scaled.loss_scale = step->loss_scale;
    scaled.gradient_scale = step->gradient_scale;
    scaled.step -= step->left_out;
    return scaled;
}

#if STORES_HALF
SBP_SIMD_WIDE
static void unscale(real *restrict to, const stored *restrict g, int64_t n, real factor)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = load(g[i]) * factor;
}

static void update_all(void *w, void *master, const void *g, void *gradient_master, void *first,
                       void *second, int64_t n, const struct sbp_update *update)
{
    unscale(gradient_master, g, n, (real)(1 / update->loss_scale));
    take_step(master, gradient_master, first, second, n, update);
    CPU(from_wide)(w, master, n);
}
#else
static void update_all(void *w, void *master, const void *g, void *gradient_master, void *first,
                       void *second, int64_t n, const struct sbp_update *update)
{
    (void)master;
    (void)gradient_master;
    take_step(w, g, first, second, n, update);
}
#endif

void CPU(update)(void *w, void *master, const void *g, void *gradient_master, void *first,
                 void *second, int64_t n, const struct sbp_update *update,
                 const struct sbp_step_state *step)
{
    const struct sbp_update scaled = scaled_by(update, step);
    if (step == NULL || step->leaves_out == 0)
        update_all(w, master, g, gradient_master, first, second, n, &scaled);
}
