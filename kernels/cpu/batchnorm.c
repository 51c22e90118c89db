/* Batch normalisation of rows of images x(rows, channels, width), a channel at a time. */
#include "kernels/cpu/rows_priv.h"

static int64_t start_of(const struct sbp_norm_rows *rows, int64_t i, int64_t channel)
{
    const int64_t row = rows->row != NULL ? rows->row[i] : i;
    return (row * rows->channels + channel) * rows->width;
}

static double elements(const struct sbp_norm_rows *rows)
{
    return (double)rows->count * (double)rows->width;
}

/* Twice over the elements: squares of what is left of the mean cancel nothing. */
static void measure(real *statistics, const stored *x, const struct sbp_norm_rows *rows,
                    int64_t channel, double epsilon)
{
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < rows->count; i++)
        sum += CPU(row_sum)(x + start_of(rows, i, channel), rows->width);
    const double mean = sum / elements(rows);
    for (int64_t i = 0; i < rows->count; i++)
        for (int64_t j = 0; j < rows->width; j++) {
            const double left = (double)load(x[start_of(rows, i, channel) + j]) - mean;
            squares += left * left;
        }
    statistics[0] = (real)mean;
    statistics[1] = (real)(1 / sqrt(squares / elements(rows) + epsilon));
}

void CPU(batchnorm_statistics)(void *statistics, const void *x, const struct sbp_norm_rows *rows,
                               double epsilon)
{
    for (int64_t c = 0; c < rows->channels; c++)
        measure((real *)statistics + 2 * c, x, rows, c, epsilon);
}

void CPU(batchnorm_forward)(void *y, const void *x, const void *statistics, const void *gain,
                            const void *shift, const struct sbp_norm_rows *rows)
{
    for (int64_t c = 0; c < rows->channels; c++) {
        const real *const of = (const real *)statistics + 2 * c;
        const real factor = of[1] * load(((const stored *)gain)[c]);
        const real added = load(((const stored *)shift)[c]);
        for (int64_t i = 0; i < rows->count; i++) {
            const int64_t at = start_of(rows, i, c);
            for (int64_t j = at; j < at + rows->width; j++)
                ((stored *)y)[j] = store((load(((const stored *)x)[j]) - of[0]) * factor + added);
        }
    }
}

/* Sums over the rows of dy and of dy xhat. */
struct sums {
    double dy, product;
};

static struct sums sum_up(const stored *dy, const stored *x, const real *of,
                          const struct sbp_norm_rows *rows, int64_t channel)
{
    struct sums sums = {0, 0};
    for (int64_t i = 0; i < rows->count; i++) {
        const int64_t at = start_of(rows, i, channel);
        for (int64_t j = at; j < at + rows->width; j++) {
            sums.dy += (double)load(dy[j]);
            sums.product += (double)load(dy[j]) * (double)((load(x[j]) - of[0]) * of[1]);
        }
    }
    return sums;
}

/* dx = rstd gain (dy - mean(dy) - xhat mean(dy xhat)) */
static void spread_back(stored *dx, const stored *dy, const stored *x, const real *of,
                        const struct sbp_norm_rows *rows, int64_t channel, struct sums sums,
                        real gain)
{
    const real mean = (real)(sums.dy / elements(rows));
    const real slope = (real)(sums.product / elements(rows));
    for (int64_t i = 0; i < rows->count; i++) {
        const int64_t at = start_of(rows, i, channel);
        for (int64_t j = at; j < at + rows->width; j++) {
            const real xhat = (load(x[j]) - of[0]) * of[1];
            dx[j] = store(of[1] * gain * (load(dy[j]) - mean - xhat * slope));
        }
    }
}

void CPU(batchnorm_backward)(void *dx, void *dgain, void *dshift, const void *dy, const void *x,
                             const void *statistics, const void *gain,
                             const struct sbp_norm_rows *rows, bool adds)
{
    stored *const to_gain = dgain, *const to_shift = dshift;
    for (int64_t c = 0; c < rows->channels; c++) {
        const real *const of = (const real *)statistics + 2 * c;
        const struct sums sums = sum_up(dy, x, of, rows, c);
        if (to_gain != NULL)
            to_gain[c] = store((adds ? load(to_gain[c]) : 0) + (real)sums.product);
        if (to_shift != NULL)
            to_shift[c] = store((adds ? load(to_shift[c]) : 0) + (real)sums.dy);
        spread_back(dx, dy, x, of, rows, c, sums, load(((const stored *)gain)[c]));
    }
}
