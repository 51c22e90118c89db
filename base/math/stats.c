#include "base/math/stats.h"

#include <math.h>
#include <stdlib.h>

static int compare_doubles(const void *left, const void *right)
{
    const double a = *(const double *)left;
    const double b = *(const double *)right;
    return (a > b) - (a < b);
}

double sbp_median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, compare_doubles);
    const int middle = n / 2;
    if (n % 2 == 1)
        return values[middle];
    return values[middle - 1] + (values[middle] - values[middle - 1]) / 2;
}

/* Binomial(n, 1/2) weight of i - 1 from that of i. */
static double weight_below(double weight_of_i, int i, int n)
{
    return weight_of_i * (double)i / (double)(n - i + 1);
}

bool sbp_median_interval(const double *sorted, int n, double confidence, double *low, double *high)
{
    /* [X(j), X(n-j+1)] holds the median with probability P(j <= B <= n - j), B ~ Bin(n, 1/2).
     * Weights are relative to the middle one, which keeps them in range for every n. */
    const int middle = n / 2;
    const double middle_weight = n % 2 == 0 ? 1.0 : 2.0; /* odd n: two equal weights */
    double total = middle_weight;
    double weight = 1.0;
    for (int i = middle; i > 0; i--) {
        weight = weight_below(weight, i, n);
        total += 2 * weight;
    }
    double covered = middle_weight;
    int rank = middle;
    weight = 1.0;
    while (rank > 0 && covered < confidence * total) {
        weight = weight_below(weight, rank, n);
        covered += 2 * weight;
        rank--;
    }
    const int first = rank > 0 ? rank - 1 : 0;
    *low = sorted[first];
    *high = sorted[n - 1 - first];
    return rank > 0;
}

/* A weighted least-squares problem in two columns of unit length. */
struct fit {
    int n;
    const double *x, *y, *t, *weight;
    double x_scale, y_scale; /* 1 / length of a column, 0 for an empty one */
    double xy, xt, yt, tt;   /* inner products of the scaled columns and t */
};

static double inverse_length(double squared)
{
    return squared > 0 ? 1 / sqrt(squared) : 0;
}

static void fit_init(struct fit *fit)
{
    double xx = 0, yy = 0;
    for (int i = 0; i < fit->n; i++) {
        const double w = fit->weight[i];
        xx += w * fit->x[i] * (w * fit->x[i]);
        yy += w * fit->y[i] * (w * fit->y[i]);
    }
    fit->x_scale = inverse_length(xx);
    fit->y_scale = inverse_length(yy);
    for (int i = 0; i < fit->n; i++) {
        const double x = fit->weight[i] * fit->x[i] * fit->x_scale;
        const double y = fit->weight[i] * fit->y[i] * fit->y_scale;
        const double t = fit->weight[i] * fit->t[i];
        fit->xy += x * y;
        fit->xt += x * t;
        fit->yt += y * t;
        fit->tt += t * t;
    }
}

/* Unconstrained solution in scaled units, by orthogonalising y against x; false when the columns
 * are parallel or one is empty. */
static bool fit_both(const struct fit *fit, double *a, double *b)
{
    double rr = 0, rt = 0;
    for (int i = 0; i < fit->n; i++) {
        const double w = fit->weight[i];
        const double r = w * (fit->y[i] * fit->y_scale - fit->xy * fit->x[i] * fit->x_scale);
        rr += r * r;
        rt += r * w * fit->t[i];
    }
    const double parallel = 1e-20; /* squared sine of the angle; rounding leaves about 1e-31 */
    if (fit->x_scale <= 0 || fit->y_scale <= 0 || rr < parallel)
        return false;
    *b = rt / rr;
    *a = fit->xt - fit->xy * *b;
    return true;
}

bool sbp_fit_nonnegative(int n, const double *x, const double *y, const double *t,
                         const double *weight, double *a, double *b)
{
    bool weighted = false;
    for (int i = 0; i < n; i++)
        weighted = weighted || weight[i] > 0;
    struct fit fit = {.n = n, .x = x, .y = y, .t = t, .weight = weight};
    fit_init(&fit);
    if (!weighted || !isfinite(fit.xy + fit.xt + fit.yt + fit.tt))
        return false;
    double scaled_a, scaled_b;
    if (!fit_both(&fit, &scaled_a, &scaled_b) || scaled_a < 0 || scaled_b < 0) {
        /* The optimum lies on an edge of the quadrant: alone, a unit column explains its
         * positive inner product with t, squared. */
        scaled_a = fmax(fit.xt, 0);
        scaled_b = fmax(fit.yt, 0);
        if (scaled_a >= scaled_b)
            scaled_b = 0;
        else
            scaled_a = 0;
    }
    *a = scaled_a * fit.x_scale;
    *b = scaled_b * fit.y_scale;
    return true;
}
