/* Errors of tokens that do not cancel, since their cause is one: the token that a loss reads hands
 * its error on to all others, and tokens that are alike are rounded alike.
 */
#ifndef SBP_EXECUTOR_VERIFY_TOGETHER_PRIV_H
#define SBP_EXECUTOR_VERIFY_TOGETHER_PRIV_H

#include <stdint.h>

#include "base/status.h"

/* An operand (tokens, features) as the reference and its shadow have it. */
struct sbp_deviating {
    const double *exact;
    const float *shadow;
    int64_t tokens, features;
};

/* The mean over the features of the square of a column's sum of errors. */
double sbp_together_sums(const struct sbp_deviating *of);

/* How many times larger the squared errors of a product, sum_t y_ti (error of x)_tj, are in the
 * mean than if those of its tokens were independent: 1 at least. Estimated by sums over i with
 * random signs (Hutchinson, 1990), so that no product is formed. E_MEMORY. */
enum sbp_status sbp_together_product(const struct sbp_deviating *x, const struct sbp_deviating *y,
                                     double *factor) SBP_MUST_USE;
double sbp_together_bytes(double features); /* that it allocates for so many of x */

#endif
