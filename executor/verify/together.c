#include "executor/verify/together_priv.h"

#include <math.h>
#include <stdlib.h>

#include "base/math/random.h"

enum { PROBES = 64, STREAM_SIGNS = 0x51 }; /* as many as a draw has bits */

static double error_of(const struct sbp_deviating *of, int64_t at)
{
    const double error = (double)of->shadow[at] - of->exact[at];
    return isfinite(error) ? error : 0;
}

double sbp_together_sums(const struct sbp_deviating *of)
{
    double mean = 0;
    for (int64_t i = 0; i < of->features; i++) {
        double sum = 0;
        for (int64_t at = i; at < of->tokens * of->features; at += of->features)
            sum += error_of(of, at);
        mean += sum * sum / (double)of->features;
    }
    return mean;
}

/* The sums of a token's features with the signs of each probe; returns the sum of their squares. */
static double probe_token(const struct sbp_deviating *of, int64_t token, double (*sum)[PROBES])
{
    double squares = 0;
    for (int p = 0; p < PROBES; p++)
        (*sum)[p] = 0;
    for (int64_t i = 0; i < of->features; i++) {
        const uint64_t signs = sbp_random_bits_at(0, STREAM_SIGNS, (uint64_t)i);
        const double value = of->exact[token * of->features + i];
        squares += value * value;
        for (int p = 0; p < PROBES; p++)
            (*sum)[p] += signs >> p & 1 ? value : -value;
    }
    return squares;
}

double sbp_together_bytes(double features)
{
    return PROBES * features * sizeof(double);
}

enum sbp_status sbp_together_product(const struct sbp_deviating *x, const struct sbp_deviating *y,
                                     double *factor)
{
    double(*const sums)[PROBES] = calloc((size_t)x->features, sizeof *sums);
    double apart = 0, together = 0;
    if (sums == NULL)
        return SBP_E_MEMORY;
    for (int64_t t = 0; t < x->tokens; t++) {
        double sum[PROBES];
        const double squares = probe_token(y, t, &sum);
        for (int64_t i = 0; i < x->features; i++) {
            const double error = error_of(x, t * x->features + i);
            apart += squares * error * error;
            for (int p = 0; p < PROBES; p++)
                sums[i][p] += sum[p] * error;
        }
    }
    for (int64_t i = 0; i < x->features; i++)
        for (int p = 0; p < PROBES; p++)
            together += sums[i][p] * sums[i][p] / PROBES;
    free(sums);
    *factor = apart > 0 && isfinite(together) ? fmax(1, together / apart) : 1;
    return SBP_OK;
}
