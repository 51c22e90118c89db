/* Statistics against naive computations: counting, exact binomial sums, a grid over the quadrant.
 */
#include <math.h>
#include <string.h>

#include "base/math/random.h"
#include "base/math/stats.h"
#include "tests/support/seeded.h"
#include "tests/support/unit.h"

#define SEED UINT64_C(90210)

static void assert_near(const char *what, double actual, double expected, double tolerance)
{
    if (!(fabs(actual - expected) <= tolerance))
        fail_msg("%s is %.17g, expected %.17g within %g (seed %llu)", what, actual, expected,
                 tolerance, (unsigned long long)SEED);
}

/* The k-th smallest value by counting who is smaller; no sorting. */
static double naive_kth(const double *values, int n, int k)
{
    for (int i = 0; i < n; i++) {
        int smaller = 0, equal = 0;
        for (int j = 0; j < n; j++) {
            smaller += values[j] < values[i];
            equal += values[j] == values[i];
        }
        if (smaller <= k && k < smaller + equal)
            return values[i];
    }
    fail_msg("no value of rank %d among %d", k, n);
    return 0;
}

static void test_median(void **state)
{
    (void)state;
    struct sbp_random random;
    sbp_random_seed(&random, SEED);
    for (int round = 0; round < 300; round++) {
        double values[40], copy[40];
        const int n = 1 + (int)sbp_random_below(&random, 40);
        for (int i = 0; i < n; i++)
            values[i] = (double)sbp_random_below(&random, 25) - 12; /* ties are common */
        memcpy(copy, values, sizeof copy);
        const double expected = (naive_kth(copy, n, (n - 1) / 2) + naive_kth(copy, n, n / 2)) / 2;
        assert_near("median", sbp_median(values, n), expected, 0);
        for (int i = 0; i < n; i++)
            assert_near("sorted value", values[i], naive_kth(copy, n, i), 0);
    }
}

/* P(first <= B <= n - first) for B ~ Bin(n, 1/2), by Pascal's triangle. */
static double naive_coverage(int n, int first)
{
    double row[64] = {1};
    for (int i = 1; i <= n; i++)
        for (int k = i; k > 0; k--)
            row[k] += row[k - 1];
    double sum = 0;
    for (int k = first; k <= n - first; k++)
        sum += row[k];
    return ldexp(sum, -n);
}

static void test_interval_is_the_tightest(void **state)
{
    (void)state;
    static const double confidences[] = {0.5, 0.9, 0.95, 0.99};
    double sorted[64];
    for (int i = 0; i < 64; i++)
        sorted[i] = i + 1; /* a value is its rank */
    for (int n = 1; n < 50; n++) {
        for (int c = 0; c < 4; c++) {
            double low, high;
            int first = 0;
            for (int j = 1; j <= n - j + 1 && naive_coverage(n, j) >= confidences[c]; j++)
                first = j;
            const bool reached = sbp_median_interval(sorted, n, confidences[c], &low, &high);
            assert_int_equal(reached, first > 0);
            assert_near("low rank", low, first > 0 ? first : 1, 0);
            assert_near("high rank", high, first > 0 ? n - first + 1 : n, 0);
        }
    }
}

/* Rows of the published table where the tightest pair is symmetric. */
static void test_interval_table_rows(void **state)
{
    (void)state;
    static const int rows[][3] = {{6, 1, 6}, {7, 1, 7}, {10, 2, 9}, {13, 3, 11}, {15, 4, 12}};
    double sorted[16];
    for (int i = 0; i < 16; i++)
        sorted[i] = i + 1;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double low, high;
        assert_true(sbp_median_interval(sorted, rows[i][0], 0.95, &low, &high));
        assert_near("low rank", low, rows[i][1], 0);
        assert_near("high rank", high, rows[i][2], 0);
    }
    double low, high;
    assert_false(sbp_median_interval(sorted, 5, 0.95, &low, &high));
}

/* At n = 100000 the weights span 10^30000; the normal approximation gives the rank. */
static void test_interval_of_many(void **state)
{
    (void)state;
    enum { MANY = 100000 };
    static double sorted[MANY];
    for (int i = 0; i < MANY; i++)
        sorted[i] = i + 1;
    double low, high;
    assert_true(sbp_median_interval(sorted, MANY, 0.95, &low, &high));
    assert_near("low rank", low, 0.5 * MANY - 0.5 * 1.959964 * sqrt(MANY), 1.5);
    assert_near("ranks mirror", low + high, MANY + 1, 0);
}

struct system {
    int n;
    double x[12], y[12], t[12], weight[12];
};

static double residual(const struct system *s, double a, double b)
{
    double sum = 0;
    for (int i = 0; i < s->n; i++) {
        const double error = s->weight[i] * (s->x[i] * a + s->y[i] * b - s->t[i]);
        sum += error * error;
    }
    return sum;
}

/* The least residual on a grid that is refined around its best point; the problem is convex. */
static double naive_least_residual(const struct system *s)
{
    double a = 50, b = 50, step = 5;
    double best = residual(s, a, b);
    while (step > 1e-9) {
        bool moved = false;
        const double centre_a = a, centre_b = b;
        for (int i = -10; i <= 10; i++) {
            for (int j = -10; j <= 10; j++) {
                const double try_a = fmax(0, centre_a + i * step);
                const double try_b = fmax(0, centre_b + j * step);
                const double now = residual(s, try_a, try_b);
                if (now < best) {
                    best = now;
                    a = try_a;
                    b = try_b;
                    moved = true;
                }
            }
        }
        if (!moved)
            step /= 4;
    }
    return best;
}

static void test_fit_is_least(void **state)
{
    (void)state;
    struct sbp_random random = seeded(SEED);
    int on_edge = 0;
    for (int round = 0; round < 60; round++) {
        struct system s = {.n = 3 + (int)sbp_random_below(&random, 10)};
        for (int i = 0; i < s.n; i++) {
            s.x[i] = 1 + 4 * sbp_random_unit(&random);
            s.y[i] = 1 + 4 * sbp_random_unit(&random);
            s.t[i] = 20 * sbp_random_unit(&random) - 2;
            s.weight[i] = 0.2 + sbp_random_unit(&random);
        }
        double a, b;
        assert_true(sbp_fit_nonnegative(s.n, s.x, s.y, s.t, s.weight, &a, &b));
        assert_true(a >= 0 && b >= 0);
        on_edge += a == 0 || b == 0;
        const double expected = naive_least_residual(&s);
        assert_near("residual", residual(&s, a, b), expected, 1e-7 * (1 + expected));
    }
    assert_true(on_edge > 5 && on_edge < 55); /* both branches were met */
}

/* Latency and bandwidth apart by 15 orders of magnitude are still recovered. */
static void test_fit_recovers_badly_scaled_truth(void **state)
{
    (void)state;
    const double alpha = 2.5e-6, beta = 1.25e-10;
    double x[15], y[15], t[15], weight[15], a, b;
    for (int i = 0; i < 15; i++) {
        x[i] = 3;
        y[i] = 0.75 * ldexp(1024, i);
        t[i] = alpha * x[i] + beta * y[i];
        weight[i] = 1 / t[i];
    }
    assert_true(sbp_fit_nonnegative(15, x, y, t, weight, &a, &b));
    assert_near("alpha", a, alpha, 1e-12 * alpha);
    assert_near("beta", b, beta, 1e-12 * beta);
}

static void test_fit_of_degenerate_systems(void **state)
{
    (void)state;
    static const double zeros[3] = {0}, ones[3] = {1, 1, 1}, twos[3] = {2, 2, 2};
    static const double negative[3] = {-1, -2, -3};
    double a = -1, b = -1;
    assert_false(sbp_fit_nonnegative(0, ones, ones, ones, ones, &a, &b));
    assert_false(sbp_fit_nonnegative(3, ones, ones, ones, zeros, &a, &b));
    static const double not_finite[3] = {1, INFINITY, 1};
    assert_false(sbp_fit_nonnegative(3, ones, not_finite, ones, ones, &a, &b));
    assert_near("a is untouched", a, -1, 0);

    assert_true(sbp_fit_nonnegative(3, zeros, twos, ones, ones, &a, &b)); /* x is empty */
    assert_near("a", a, 0, 0);
    assert_near("b", b, 0.5, 1e-15);
    assert_true(sbp_fit_nonnegative(3, ones, twos, ones, ones, &a, &b)); /* parallel columns */
    assert_near("explained", a + 2 * b, 1, 1e-15);
    assert_true(sbp_fit_nonnegative(3, ones, twos, negative, ones, &a, &b)); /* nothing fits */
    assert_near("a", a, 0, 0);
    assert_near("b", b, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_median),
        cmocka_unit_test(test_interval_is_the_tightest),
        cmocka_unit_test(test_interval_table_rows),
        cmocka_unit_test(test_interval_of_many),
        cmocka_unit_test(test_fit_is_least),
        cmocka_unit_test(test_fit_recovers_badly_scaled_truth),
        cmocka_unit_test(test_fit_of_degenerate_systems),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
