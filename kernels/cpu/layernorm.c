/* Layer normalisation (Ba et al., 2016), with the hidden dimension whole or split over ranks. */
#include "kernels/cpu/real_priv.h"

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
        const real *row = (const real *)x + t * in;
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < in; i++) {
            sum += (double)row[i];
            squares += (double)row[i] * (double)row[i];
        }
        to[2 * t] = (real)sum;
        to[2 * t + 1] = (real)squares;
    }
}

void CPU(layernorm_forward)(void *y, const void *x, const void *sums, const void *gain,
                            const void *shift, int64_t tokens, int64_t in, int64_t hidden,
                            double epsilon)
{
    const real *gains = gain, *shifts = shift;
    for (int64_t t = 0; t < tokens; t++) {
        const struct moments m = token_moments((const real *)sums + 2 * t, hidden, epsilon);
        const real mean = (real)m.mean, rstd = (real)m.rstd;
        const real *from = (const real *)x + t * in;
        real *to = (real *)y + t * in;
        for (int64_t i = 0; i < in; i++)
            to[i] = (from[i] - mean) * rstd * gains[i] + shifts[i];
    }
}

void CPU(layernorm_backward_sums)(void *backward_sums, const void *dy, const void *x,
                                  const void *sums, const void *gain, int64_t tokens, int64_t in,
                                  int64_t hidden, double epsilon)
{
    real *to = backward_sums;
    const real *gains = gain;
    for (int64_t t = 0; t < tokens; t++) {
        const struct moments m = token_moments((const real *)sums + 2 * t, hidden, epsilon);
        const real *row = (const real *)x + t * in, *gradient = (const real *)dy + t * in;
        double plain = 0, weighted = 0;
        for (int64_t i = 0; i < in; i++) {
            const double dxhat = (double)gradient[i] * (double)gains[i];
            plain += dxhat;
            weighted += dxhat * ((double)row[i] - m.mean);
        }
        to[2 * t] = (real)plain;
        to[2 * t + 1] = (real)(weighted * m.rstd);
    }
}

/* dgain, dshift for features first .. first + width - 1: column sums over the tokens. */
static void parameter_tile(real *dgain, real *dshift, const real *dy, const real *x,
                           const real *sums, int64_t tokens, int64_t in, int64_t hidden,
                           double epsilon, int64_t first, int64_t width, bool adds)
{
    double gains[FEATURE_TILE] = {0}, shifts[FEATURE_TILE] = {0};
    for (int64_t t = 0; t < tokens; t++) {
        const struct moments m = token_moments(sums + 2 * t, hidden, epsilon);
        const real *row = x + t * in + first, *gradient = dy + t * in + first;
        for (int64_t i = 0; i < width; i++) {
            gains[i] += (double)gradient[i] * (((double)row[i] - m.mean) * m.rstd);
            shifts[i] += (double)gradient[i];
        }
    }
    for (int64_t i = 0; i < width; i++) {
        dgain[first + i] = (adds ? dgain[first + i] : 0) + (real)gains[i];
        dshift[first + i] = (adds ? dshift[first + i] : 0) + (real)shifts[i];
    }
}

/* dx = rstd (dxhat - mean(dxhat) - xhat mean(dxhat xhat)) with dxhat = dy gain (Ba et al., 2016).
 */
void CPU(layernorm_backward)(void *dx, void *dgain, void *dshift, const void *dy, const void *x,
                             const void *sums, const void *backward_sums, const void *gain,
                             int64_t tokens, int64_t in, int64_t hidden, double epsilon, bool adds)
{
    const real *gains = gain, *reduced = backward_sums;
    for (int64_t t = 0; t < tokens; t++) {
        const struct moments m = token_moments((const real *)sums + 2 * t, hidden, epsilon);
        const real mean = (real)m.mean, rstd = (real)m.rstd;
        const real plain = (real)((double)reduced[2 * t] / (double)hidden);
        const real weighted = (real)((double)reduced[2 * t + 1] / (double)hidden);
        const real *row = (const real *)x + t * in, *gradient = (const real *)dy + t * in;
        real *to = (real *)dx + t * in;
        for (int64_t i = 0; i < in; i++) {
            const real xhat = (row[i] - mean) * rstd;
            to[i] = rstd * (gradient[i] * gains[i] - plain - xhat * weighted);
        }
    }
    for (int64_t first = 0; first < in; first += FEATURE_TILE)
        parameter_tile(dgain, dshift, dy, x, sums, tokens, in, hidden, epsilon, first,
                       in - first < FEATURE_TILE ? in - first : FEATURE_TILE, adds);
}
