/* Computes small statistics of measurements. Input: arrays of numbers. Output: the median, an
 * interval for it that assumes no distribution, and the least-squares fit of two factors that are
 * not negative. */
#ifndef SBP_BASE_MATH_STATS_H
#define SBP_BASE_MATH_STATS_H

#include <stdbool.h>

/* Sorts values (n) in place and returns the median (mean of the middle two for even n); n >= 1. */
double sbp_median(double *values, int n);
/* Order-statistic confidence interval of the median of *sorted* values (binomial, exact): the
 * innermost symmetric pair of ranks that reaches `confidence` (e.g. 0.95), so never narrower than
 * Le Boudec, Performance Evaluation, table A.1, which also takes lopsided pairs. False (and the
 * whole range) when n is too small to reach the confidence; n >= 1. */
bool sbp_median_interval(const double *sorted, int n, double confidence, double *low, double *high);

/* Minimises sum_i (weight_i (x_i a + y_i b - t_i))^2 over a, b >= 0; rows: n of each array.
 * Returns false when the system is empty, all weights are zero or something is not finite;
 * degenerate columns get 0. */
bool sbp_fit_nonnegative(int n, const double *x, const double *y, const double *t,
                         const double *weight, double *a, double *b);

#endif
