#include "base/math/portable.h"

#include <math.h>
#include <stdbool.h>

/* ln 2 in two parts: the first has so few digits that products with exponents are exact. */
#define LN2_HIGH 0x1.62e42feep-1
#define LN2_LOW  0x1.a39ef35793c76p-33
#define PER_LN2  0x1.71547652b82fep+0 /* 1 / ln 2 */

/* x = m 2^e with m in [sqrt(1/2), sqrt(2)); ln m = 2 artanh s, s = (m - 1) / (m + 1), whose series
 * has terms s^(2k+1) / (2k+1). |s| < 0.1716, so that those beyond k = 10 are below 2^-57. */
struct logarithm {
    double exponent;     /* e */
    double first, after; /* ln m = first + after, the first term and the others */
};

static struct logarithm take_apart(double x)
{
    enum { TERMS = 10 };
    int exponent;
    double m = frexp(x, &exponent);
    if (m < 0x1.6a09e667f3bcdp-1) {
        m *= 2;
        exponent--;
    }
    const double s = (m - 1) / (m + 1), squared = s * s;
    double series = 0;
    for (int k = TERMS; k >= 1; k--)
        series = squared * (series + 1.0 / (2 * k + 1));
    return (struct logarithm){.exponent = exponent, .first = 2 * s, .after = 2 * s * series};
}

/* Whether x is in the range of the above; else *limit is its logarithm. */
static bool is_plain(double x, double *limit)
{
    *limit = x > 0 ? x : x < 0 || isnan(x) ? NAN : -INFINITY;
    return x > 0 && !isinf(x);
}

double sbp_log(double x)
{
    double limit;
    if (!is_plain(x, &limit))
        return limit;
    const struct logarithm log = take_apart(x);
    return log.exponent * LN2_HIGH + (log.first + (log.after + log.exponent * LN2_LOW));
}

double sbp_log2(double x)
{
    double limit;
    if (!is_plain(x, &limit))
        return limit;
    const struct logarithm log = take_apart(x);
    return log.exponent + (log.first + log.after) * PER_LN2;
}

/* x = k ln 2 + r, |r| <= ln(2) / 2; the power series of e^r ends where terms pass 2^-57. */
double sbp_exp(double x)
{
    enum { TERMS = 14 };
    if (isnan(x))
        return x;
    if (x > 710)
        return INFINITY;
    if (x < -746)
        return 0;
    const double k = rint(x * PER_LN2);
    const double r = (x - k * LN2_HIGH) - k * LN2_LOW;
    double series = 0;
    for (int i = TERMS; i >= 2; i--)
        series = (series + 1) * (r / i);
    return ldexp(1 + (r + r * series), (int)k);
}

double sbp_pow(double x, double y)
{
    if (y == 0 || y == 1)
        return y == 0 ? 1 : x;
    return sbp_exp(y * sbp_log(x));
}
