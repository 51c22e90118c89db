/* Operators that take elements one by one: relu, gelu, sums, scaling, dropout. */
#include <string.h>

#include "base/math/random.h"
#include "kernels/cpu/cpu_priv.h"
#include "kernels/cpu/real_priv.h"

/* gelu(x) = x/2 (1 + tanh u), u = sqrt(2/pi) (x + c x^3) (Hendrycks and Gimpel, 2016); since
 * (1 + tanh u)/2 is the logistic function of 2u, one exponential does. */
#define GELU_TWICE_ROOT ((real)1.5957691216057307118) /* 2 sqrt(2/pi) */
#define GELU_CUBIC      ((real)0.044715)

void CPU(relu_forward)(void *y, const void *x, int64_t n)
{
    real *to = y;
    const real *from = x;
    for (int64_t i = 0; i < n; i++)
        to[i] = from[i] > 0 ? from[i] : 0;
}

void CPU(relu_backward)(void *dx, const void *x, const void *dy, int64_t n)
{
    real *to = dx;
    const real *input = x, *gradient = dy;
    for (int64_t i = 0; i < n; i++)
        to[i] = input[i] > 0 ? gradient[i] : 0;
}

static real gelu_gate(real x)
{
    const real twice_u = GELU_TWICE_ROOT * (x + GELU_CUBIC * x * x * x);
    return 1 / (1 + real_exp(-twice_u));
}

void CPU(gelu_forward)(void *y, const void *x, int64_t n)
{
    real *to = y;
    const real *from = x;
    for (int64_t i = 0; i < n; i++)
        to[i] = from[i] * gelu_gate(from[i]);
}

void CPU(gelu_backward)(void *dx, const void *x, const void *dy, int64_t n)
{
    real *to = dx;
    const real *input = x, *gradient = dy;
    for (int64_t i = 0; i < n; i++) {
        const real at = input[i], gate = gelu_gate(at);
        const real slope = GELU_TWICE_ROOT * (1 + 3 * GELU_CUBIC * at * at);
        to[i] = gradient[i] * (gate + at * gate * (1 - gate) * slope);
    }
}

void CPU(add)(void *y, const void *a, const void *b, int64_t n)
{
    real *to = y;
    const real *left = a, *right = b;
    for (int64_t i = 0; i < n; i++)
        to[i] = left[i] + right[i];
}

void CPU(scale)(void *x, double factor, int64_t n)
{
    real *at = x;
    for (int64_t i = 0; i < n; i++)
        at[i] *= (real)factor;
}

void CPU(absolute)(void *x, int64_t n)
{
    real *at = x;
    for (int64_t i = 0; i < n; i++)
        at[i] = real_fabs(at[i]);
}

void CPU(zero)(void *x, int64_t n)
{
    if (n > 0)
        memset(x, 0, (size_t)n * sizeof(real));
}

void CPU(dropout_forward)(void *y, uint8_t *mask, const void *x, const struct sbp_region *region,
                          double p, uint64_t seed, uint64_t stream)
{
    real *to = y;
    const real *from = x;
    const real factor = (real)(1 / (1 - p));
    const int64_t n = sbp_region_elements(region), run = sbp_cpu_region_run(region);
    for (int64_t start = 0; start < n; start += run) {
        const uint64_t global = (uint64_t)sbp_region_global(region, start);
        for (int64_t i = 0; i < run; i++) {
            const bool kept = sbp_random_unit_at(seed, stream, global + (uint64_t)i) >= p;
            mask[start + i] = kept;
            to[start + i] = kept ? from[start + i] * factor : 0;
        }
    }
}

void CPU(dropout_backward)(void *dx, const uint8_t *mask, const void *dy, int64_t n, double p)
{
    real *to = dx;
    const real *gradient = dy;
    const real factor = (real)(1 / (1 - p));
    for (int64_t i = 0; i < n; i++)
        to[i] = mask[i] ? gradient[i] * factor : 0;
}
