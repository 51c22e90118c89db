/* Root mean square normalisation (Zhang and Sennrich, 2019): of tokens, with the hidden dimension
 * whole or split over ranks, and of heads, whose first features are normalised. */
#include "kernels/cpu/rows_priv.h"

enum { FEATURE_TILE = 256 };

/* Rows `stride` apart, of which `in` features are here and `size` are normalised together. */
struct rows {
    int64_t count, stride, in, size;
    double epsilon;
};

static double inverse_root(const struct rows *rows, real squares)
{
    return 1 / sqrt((double)squares / (double)rows->size + rows->epsilon);
}

static void sum_squares(real *sums, const stored *x, const struct rows *rows)
{
    for (int64_t r = 0; r < rows->count; r++)
        sums[r] = (real)CPU(row_dot)(x + r * rows->stride, x + r * rows->stride, rows->in);
}

SBP_SIMD_WIDE
static void normalise(stored *y, const stored *x, const real *sums, const stored *gain,
                      const struct rows *rows)
{
    for (int64_t r = 0; r < rows->count; r++) {
        const real factor = (real)inverse_root(rows, sums[r]);
        const stored *from = x + r * rows->stride;
        stored *to = y + r * rows->stride;
        SBP_INDEPENDENT
        for (int64_t i = 0; i < rows->in; i++)
            to[i] = store(load(from[i]) * factor * load(gain[i]));
    }
}

/* sum dy gain x */
SBP_SIMD_WIDE
static double weighted_sum(const stored *dy, const stored *gain, const stored *x, int64_t n)
{
    double lane[LANES] = {0}, rest = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] += (double)load(dy[i + j]) * (double)load(gain[i + j]) * (double)load(x[i + j]);
    for (; i < n; i++)
        rest += (double)load(dy[i]) * (double)load(gain[i]) * (double)load(x[i]);
    return lane_sum(lane, rest);
}

/* dx = rstd (dy gain - x rstd^2 mean(dy gain x)), by the row's sum of dy gain x. */
SBP_SIMD_WIDE
static void row_gradient(stored *dx, const stored *dy, const stored *x, const stored *gain,
                         double factor, double sum, const struct rows *rows)
{
    const real scale = (real)factor;
    const real back = (real)(factor * factor * factor * sum / (double)rows->size);
    SBP_INDEPENDENT
    for (int64_t i = 0; i < rows->in; i++)
        dx[i] = store(scale * load(dy[i]) * load(gain[i]) - load(x[i]) * back);
}

/* dgain = sum dy x rstd, for features first .. first + width - 1: column sums over the rows. */
SBP_SIMD_WIDE
static void gain_tile(stored *dgain, const stored *dy, const stored *x, const real *sums,
                      const struct rows *rows, int64_t first, int64_t width, bool adds)
{
    double gains[FEATURE_TILE] = {0};
    for (int64_t r = 0; r < rows->count; r++) {
        const double factor = inverse_root(rows, sums[r]);
        const stored *row = x + r * rows->stride + first;
        const stored *gradient = dy + r * rows->stride + first;
        for (int64_t i = 0; i < width; i++)
            gains[i] += (double)load(gradient[i]) * ((double)load(row[i]) * factor);
    }
    SBP_INDEPENDENT
    for (int64_t i = 0; i < width; i++)
        dgain[first + i] = store((adds ? load(dgain[first + i]) : 0) + (real)gains[i]);
}

static void gain_gradient(stored *dgain, const stored *dy, const stored *x, const real *sums,
                          const struct rows *rows, bool adds)
{
    for (int64_t first = 0; dgain != NULL && first < rows->in; first += FEATURE_TILE)
        gain_tile(dgain, dy, x, sums, rows, first,
                  rows->in - first < FEATURE_TILE ? rows->in - first : FEATURE_TILE, adds);
}

/* ---- of tokens ------------------------------------------------------------------------------ */

static struct rows tokens_of(int64_t tokens, int64_t in, int64_t hidden, double epsilon)
{
    return (struct rows){
        .count = tokens, .stride = in, .in = in, .size = hidden, .epsilon = epsilon};
}

void CPU(rmsnorm_sums)(void *sums, const void *x, int64_t tokens, int64_t in)
{
    const struct rows rows = tokens_of(tokens, in, in, 0);
    sum_squares(sums, x, &rows);
}

void CPU(rmsnorm_forward)(void *y, const void *x, const void *sums, const void *gain,
                          int64_t tokens, int64_t in, int64_t hidden, double epsilon)
{
    const struct rows rows = tokens_of(tokens, in, hidden, epsilon);
    normalise(y, x, sums, gain, &rows);
}

void CPU(rmsnorm_backward_sums)(void *backward_sums, const void *dy, const void *x,
                                const void *gain, int64_t tokens, int64_t in)
{
    real *to = backward_sums;
    for (int64_t t = 0; t < tokens; t++)
        to[t] =
            (real)weighted_sum((const stored *)dy + t * in, gain, (const stored *)x + t * in, in);
}

void CPU(rmsnorm_backward)(void *dx, void *dgain, const void *dy, const void *x, const void *sums,
                           const void *backward_sums, const void *gain, int64_t tokens, int64_t in,
                           int64_t hidden, double epsilon, bool adds)
{
    const struct rows rows = tokens_of(tokens, in, hidden, epsilon);
    const real *squares = sums, *reduced = backward_sums;
    for (int64_t t = 0; t < tokens; t++)
        row_gradient((stored *)dx + t * in, (const stored *)dy + t * in, (const stored *)x + t * in,
                     gain, inverse_root(&rows, squares[t]), (double)reduced[t], &rows);
    gain_gradient(dgain, dy, x, sums, &rows, adds);
}

/* ---- of heads ------------------------------------------------------------------------------- */

static struct rows heads_of(int64_t heads, int64_t width, int64_t size, double epsilon)
{
    return (struct rows){
        .count = heads, .stride = width, .in = size, .size = size, .epsilon = epsilon};
}

/* Features behind those that are normalised pass as they are. */
static void pass_on(stored *to, const stored *from, const struct rows *rows)
{
    for (int64_t r = 0; r < rows->count; r++)
        for (int64_t i = rows->in; i < rows->stride; i++)
            to[r * rows->stride + i] = from[r * rows->stride + i];
}

void CPU(head_norm_forward)(void *y, void *sums, const void *x, const void *gain, int64_t heads,
                            int64_t width, int64_t size, double epsilon)
{
    const struct rows rows = heads_of(heads, width, size, epsilon);
    sum_squares(sums, x, &rows);
    normalise(y, x, sums, gain, &rows);
    pass_on(y, x, &rows);
}

void CPU(head_norm_backward)(void *dx, void *dgain, const void *dy, const void *x, const void *sums,
                             const void *gain, int64_t heads, int64_t width, int64_t size,
                             double epsilon, bool adds)
{
    const struct rows rows = heads_of(heads, width, size, epsilon);
    const real *squares = sums;
    for (int64_t r = 0; r < heads; r++) {
        const stored *row = (const stored *)x + r * width;
        const stored *gradient = (const stored *)dy + r * width;
        row_gradient((stored *)dx + r * width, gradient, row, gain, inverse_root(&rows, squares[r]),
                     weighted_sum(gradient, gain, row, size), &rows);
    }
    pass_on(dx, dy, &rows);
    gain_gradient(dgain, dy, x, sums, &rows, adds);
}
