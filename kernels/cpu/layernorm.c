/* Layer normalisation (Ba et al., 2016), with the hidden dimension whole or split over ranks. */
#include "kernels/cpu/rows_priv.h"

enum { FEATURE_TILE = 256 };

/* A token's normalisation, out of its reduced (sum x, sum x^2). */
struct moments {
    double mean, rstd;
};

static struct moments token_moments(const real *sums, int64_t hidden, double epsilon)
{
    const double mean = (double)sums[0] / (double)hidden;
    const double variance = (double)sums[1] / (double)hidden - mean * mean;
    /* Rounded sums of an almost constant row can give a variance just below 0. */
    return (struct moments){mean, 1 / sqrt((variance > 0 ? variance : 0) + epsilon)};
}

void CPU(layernorm_sums)(void *sums, const void *x, int64_t tokens, int64_t in)
{
    real *to = sums;
    for (int64_t t = 0; t < tokens; t++) {
        const stored *row = (const stored *)x + t * in;
        to[2 * t] = (real)CPU(row_sum)(row, in);
        to[2 * t + 1] = (real)CPU(row_dot)(row, row, in);
    }
}

SBP_SIMD_WIDE
void CPU(layernorm_forward)(void *y, const void *x, const void *sums, const void *gain,
                            const void *shift, int64_t tokens, int64_t in, int64_t hidden,
                            double epsilon)
{
    const stored *gains = gain, *shifts = shift;
    for (int64_t t = 0; t < tokens; t++) {
        const struct moments m = token_moments((const real *)sums + 2 * t, hidden, epsilon);
        const real mean = (real)m.mean, rstd = (real)m.rstd;
        const stored *from = (const stored *)x + t * in;
        stored *to = (stored *)y + t * in;
        SBP_INDEPENDENT
        for (int64_t i = 0; i < in; i++)
            to[i] = store((load(from[i]) - mean) * rstd * load(gains[i]) + load(shifts[i]));
    }
}

/* sum dy gain (x - mean) */
SBP_SIMD_WIDE
static double weighted_sum(const stored *dy, const stored *gain, const stored *x, double mean,
                           int64_t n)
{
    double lane[LANES] = {0}, rest = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] += (double)load(dy[i + j]) * (double)load(gain[i + j]) *
                       ((double)load(x[i + j]) - mean);
    for (; i < n; i++)
        rest += (double)load(dy[i]) * (double)load(gain[i]) * ((double)load(x[i]) - mean);
    return lane_sum(lane, rest);
}

void CPU(layernorm_backward_sums)(void *backward_sums, const void *dy, const void *x,
                                  const void *sums, const void *gain, int64_t tokens, int64_t in,
                                  int64_t hidden, double epsilon)
{
    real *to = backward_sums;
    for (int64_t t = 0; t < tokens; t++) {
        const struct moments m = token_moments((const real *)sums + 2 * t, hidden, epsilon);
        const stored *row = (const stored *)x + t * in, *gradient = (const stored *)dy + t * in;
        to[2 * t] = (real)CPU(row_dot)(gradient, gain, in);
        to[2 * t + 1] = (real)(weighted_sum(gradient, gain, row, m.mean, in) * m.rstd);
    }
}

/* dgain, dshift for features first .. first + width - 1: column sums over the tokens. */
SBP_SIMD_WIDE
static void parameter_tile(stored *dgain, stored *dshift, const stored *dy, const stored *x,
                           const real *sums, int64_t tokens, int64_t in, int64_t hidden,
                           double epsilon, int64_t first, int64_t width, bool adds)
{
    double gains[FEATURE_TILE] = {0}, shifts[FEATURE_TILE] = {0};
    for (int64_t t = 0; t < tokens; t++) {
        const struct moments m = token_moments(sums + 2 * t, hidden, epsilon);
        const stored *row = x + t * in + first, *gradient = dy + t * in + first;
        for (int64_t i = 0; i < width; i++) {
            gains[i] += (double)load(gradient[i]) * (((double)load(row[i]) - m.mean) * m.rstd);
            shifts[i] += (double)load(gradient[i]);
        }
    }
    SBP_INDEPENDENT
    for (int64_t i = 0; i < width; i++) {
        dgain[first + i] = store((adds ? load(dgain[first + i]) : 0) + (real)gains[i]);
        dshift[first + i] = store((adds ? load(dshift[first + i]) : 0) + (real)shifts[i]);
    }
}

/* dx = rstd (dxhat - mean(dxhat) - xhat mean(dxhat xhat)) with dxhat = dy gain (Ba et al., 2016).
 */
SBP_SIMD_WIDE
void CPU(layernorm_backward)(void *dx, void *dgain, void *dshift, const void *dy, const void *x,
                             const void *sums, const void *backward_sums, const void *gain,
                             int64_t tokens, int64_t in, int64_t hidden, double epsilon, bool adds)
{
    const stored *gains = gain;
    const real *reduced = backward_sums;
    for (int64_t t = 0; t < tokens; t++) {
        const struct moments m = token_moments((const real *)sums + 2 * t, hidden, epsilon);
        const real mean = (real)m.mean, rstd = (real)m.rstd;
        const real plain = (real)((double)reduced[2 * t] / (double)hidden);
        const real weighted = (real)((double)reduced[2 * t + 1] / (double)hidden);
        const stored *row = (const stored *)x + t * in, *gradient = (const stored *)dy + t * in;
        stored *to = (stored *)dx + t * in;
        SBP_INDEPENDENT
        for (int64_t i = 0; i < in; i++) {
            const real xhat = (load(row[i]) - mean) * rstd;
            to[i] = store(rstd * (load(gradient[i]) * load(gains[i]) - plain - xhat * weighted));
        }
    }
    for (int64_t first = 0; dgain != NULL && first < in; first += FEATURE_TILE)
        parameter_tile(dgain, dshift, dy, x, sums, tokens, in, hidden, epsilon, first,
                       in - first < FEATURE_TILE ? in - first : FEATURE_TILE, adds);
}
