/* Errors of tokens that do not cancel: those whose cause is one. What a loss reads one token of
 * sends its error to all, and tokens that are alike are rounded alike.
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

/* What the errors of a column add up to, squared: its mean over the features. */
double sbp_together_sums(const struct sbp_deviating *of);

/* How many times larger the squared errors of a product, sum_t y_ti (error of x)_tj, are in the
 * mean than if those of its tokens were independent: 1 at least. Estimated by sums over i with
 * random signs (Hutchinson, 1990), so that no product is formed. E_MEMORY. */
enum sbp_status sbp_together_product(const struct sbp_deviating *x, const struct sbp_deviating *y,
                                     double *factor) SBP_MUST_USE;

#endif
