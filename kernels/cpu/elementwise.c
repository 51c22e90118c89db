/* Operators that take elements one by one: activations, sums, scaling, dropout. */
#include <string.h>

#include "base/math/random.h"
#include "kernels/cpu/cpu_priv.h"
#include "kernels/cpu/real_priv.h"

/* gelu(x) = x/2 (1 + tanh u), u = sqrt(2/pi) (x + c x^3) (Hendrycks and Gimpel, 2016); since
 * (1 + tanh u)/2 is the logistic function of 2u, one exponential does. */
#define GELU_TWICE_ROOT ((real)1.5957691216057307118) /* 2 sqrt(2/pi) */
#define GELU_CUBIC      ((real)0.044715)

SBP_SIMD_WIDE
void CPU(relu_forward)(void *y, const void *x, int64_t n)
{
    stored *to = y;
    const stored *from = x;
    SBP_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        to[i] = load(from[i]) > 0 ? from[i] : 0;
}

SBP_SIMD_WIDE
void CPU(relu_backward)(void *dx, const void *x, const void *dy, int64_t n)
{
    stored *to = dx;
    const stored *input = x, *gradient = dy;
    SBP_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        to[i] = load(input[i]) > 0 ? gradient[i] : 0;
}

static inline real gelu_gate(real x)
{
    const real twice_u = GELU_TWICE_ROOT * (x + GELU_CUBIC * x * x * x);
    return 1 / (1 + real_exp(-twice_u));
}

SBP_SIMD_WIDE
void CPU(gelu_forward)(void *y, const void *x, int64_t n)
{
    stored *to = y;
    const stored *from = x;
    SBP_INDEPENDENT
    for (int64_t i = 0; i < n; i++) {
        const real at = load(from[i]);
        to[i] = store(at * gelu_gate(at));
    }
}

SBP_SIMD_WIDE
void CPU(gelu_backward)(void *dx, const void *x, const void *dy, int64_t n)
{
    stored *to = dx;
    const stored *input = x, *gradient = dy;
    SBP_INDEPENDENT
    for (int64_t i = 0; i < n; i++) {
        const real at = load(input[i]), gate = gelu_gate(at);
        const real slope = GELU_TWICE_ROOT * (1 + 3 * GELU_CUBIC * at * at);
        to[i] = store(load(gradient[i]) * (gate + at * gate * (1 - gate) * slope));
    }
}

void CPU(tanh_forward)(void *y, const void *x, int64_t n)
{
    stored *to = y;
    const stored *from = x;
    for (int64_t i = 0; i < n; i++)
        to[i] = store(real_tanh(load(from[i])));
}

SBP_SIMD_WIDE
void CPU(tanh_backward)(void *dx, const void *y, const void *dy, int64_t n)
{
    stored *to = dx;
    const stored *output = y, *gradient = dy;
    SBP_INDEPENDENT
    for (int64_t i = 0; i < n; i++) {
        const real at = load(output[i]);
        to[i] = store(load(gradient[i]) * (1 - at * at));
    }
}

SBP_SIMD_WIDE
void CPU(swiglu_forward)(void *y, const void *x, int64_t n)
{
    stored *to = y;
    const stored *from = x;
    SBP_INDEPENDENT
    for (int64_t i = 0; i < n; i++) {
        const real gate = load(from[2 * i]), up = load(from[2 * i + 1]);
        to[i] = store(gate / (1 + real_exp(-gate)) * up);
    }
}

SBP_SIMD_WIDE
void CPU(swiglu_backward)(void *dx, const void *x, const void *dy, int64_t n)
{
    stored *to = dx;
    const stored *input = x, *gradient = dy;
    SBP_INDEPENDENT
    for (int64_t i = 0; i < n; i++) {
        const real gate = load(input[2 * i]), up = load(input[2 * i + 1]), d = load(gradient[i]);
        const real open = 1 / (1 + real_exp(-gate));
        to[2 * i] = store(d * up * open * (1 + gate * (1 - open)));
        to[2 * i + 1] = store(d * gate * open);
    }
}

SBP_SIMD_WIDE
void CPU(add)(void *y, const void *a, const void *b, int64_t n)
{
    stored *to = y;
    const stored *left = a, *right = b;
    SBP_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        to[i] = store(load(left[i]) + load(right[i]));
}

SBP_SIMD_WIDE
void CPU(scale)(void *x, double factor, int64_t n)
{
    stored *at = x;
    SBP_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        at[i] = store(load(at[i]) * (real)factor);
}

SBP_SIMD_WIDE
void CPU(absolute)(void *x, int64_t n)
{
    stored *at = x;
    SBP_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        at[i] = store(real_fabs(load(at[i])));
}

void CPU(zero)(void *x, int64_t n)
{
    if (n > 0)
        memset(x, 0, (size_t)n * sizeof(stored));
}

SBP_SIMD_WIDE
void CPU(to_wide)(void *wide, const void *x, int64_t n)
{
    real *to = wide;
    const stored *from = x;
    SBP_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        to[i] = load(from[i]);
}

SBP_SIMD_WIDE
void CPU(from_wide)(void *x, const void *wide, int64_t n)
{
    stored *to = x;
    const real *from = wide;
    SBP_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        to[i] = store(from[i]);
}

SBP_SIMD_WIDE
static void keep(stored *y, const uint8_t *mask, const stored *x, int64_t n, real factor)
{
    SBP_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        y[i] = store(mask[i] ? load(x[i]) * factor : 0);
}

void CPU(dropout_forward)(void *y, uint8_t *mask, const void *x, const struct sbp_region *region,
                          double p, uint64_t seed, uint64_t stream)
{
    const int64_t n = sbp_region_elements(region), run = sbp_cpu_region_run(region);
    const uint64_t key = sbp_random_key(seed, stream);
    for (int64_t start = 0; start < n; start += run)
        sbp_cpu_decide_dropout(mask + start, run, p, key,
                               (uint64_t)sbp_region_global(region, start));
    keep(y, mask, x, n, (real)(1 / (1 - p)));
}

void CPU(dropout_backward)(void *dx, const uint8_t *mask, const void *dy, int64_t n, double p)
{
    keep(dx, mask, dy, n, (real)(1 / (1 - p)));
}
