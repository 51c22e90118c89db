/* The optimizers' steps, and the squares that clipping sums. */
#include <assert.h>

#include "kernels/cpu/rows_priv.h"

void CPU(sum_squares)(void *sum, const void *x, int64_t n, double factor)
{
    *(real *)sum = (real)(CPU(row_dot)(x, x, n) * factor);
}

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

static void step(real *w, const real *g, real *first, real *second, int64_t n,
                 const struct sbp_update *update)
{
    if (update->optimizer == SBP_SGD) {
        sgd(w, g, first, n, update);
        return;
    }
    assert(update->step >= 1);
    adam(w, g, first, second, n, update);
}

#if STORES_HALF
SBP_SIMD_WIDE
static void unscale(real *restrict to, const stored *restrict g, int64_t n, real factor)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = load(g[i]) * factor;
}

void CPU(update)(void *w, void *master, const void *g, void *gradient_master, void *first,
                 void *second, int64_t n, const struct sbp_update *update)
{
    unscale(gradient_master, g, n, (real)(1 / update->loss_scale));
    step(master, gradient_master, first, second, n, update);
    CPU(from_wide)(w, master, n);
}
#else
void CPU(update)(void *w, void *master, const void *g, void *gradient_master, void *first,
                 void *second, int64_t n, const struct sbp_update *update)
{
    (void)master;
    (void)gradient_master;
    step(w, g, first, second, n, update);
}
#endif
