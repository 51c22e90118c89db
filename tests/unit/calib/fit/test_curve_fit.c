/* Curves of segments: known truth is found again, exactly without noise and nearly with it; the
 * linear program against all lines through two points; no curve falls; bad samples are refused. */
#include <math.h>
#include <stdio.h>

#include "base/math/random.h"
#include "calib/fit/curve_fit.h"
#include "calib/fit/lad.h"
#include "tests/support/unit.h"

#define SEED UINT64_C(7301)

static double random_between(struct sbp_random *random, double from, double to)
{
    return from + (to - from) * sbp_random_unit(random);
}

static void near(double value, double expected, double share)
{
    if (!(fabs(value - expected) <= share * fabs(expected)))
        fail_msg("%.9g, expected %.9g within %g", value, expected, share);
}

/* Times of three protocols: latency, then half the bandwidth, then all of it. */
static const struct sbp_segment TRUTH[] = {
    {256, 32768, 1e-5, 2e-10},
    {65536, 4194304, 1.8e-5, 9e-11},
    {8388608, 1073741824, 8e-5, 5e-11},
};

static int make(double noise, struct sbp_random *random, struct sbp_curve_sample *sample)
{
    int count = 0;
    for (int k = 0; k < 3; k++)
        for (double n = TRUTH[k].first_bytes; n <= TRUTH[k].last_bytes; n *= 2)
            sample[count++] =
                (struct sbp_curve_sample){n, (TRUTH[k].alpha_s + n * TRUTH[k].beta_s_per_byte) *
                                                 (1 + noise * random_between(random, -1, 1))};
    return count;
}

static void test_truth(void **state)
{
    (void)state;
    struct sbp_curve_sample sample[64];
    struct sbp_random random;
    sbp_random_seed(&random, SEED);
    const int count = make(0, &random, sample);
    for (int m = sbp_lad_is_available() ? 0 : 1; m < SBP_CURVE_METHODS; m++) {
        struct sbp_curve_fit fit;
        assert_int_equal(sbp_curve_fit_with(sample, count, (enum sbp_curve_method)m, 3, &fit, NULL),
                         SBP_OK);
        assert_int_equal(fit.segment_count, 3);
        for (int k = 0; k < 3; k++) {
            near(fit.segment[k].alpha_s, TRUTH[k].alpha_s, 1e-6);
            near(fit.segment[k].beta_s_per_byte, TRUTH[k].beta_s_per_byte, 1e-6);
            near(fit.segment[k].first_bytes, TRUTH[k].first_bytes, 0);
            near(fit.segment[k].last_bytes, TRUTH[k].last_bytes, 0);
        }
    }
}

static double mean_error(const struct sbp_curve_fit *fit, const struct sbp_curve_sample *sample,
                         int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += fabs(sbp_curve_fit_s(fit, sample[i].bytes) / sample[i].time_s - 1) / count;
    return sum;
}

/* 3 % of noise: the truth is met within it, larger messages included. */
static void test_noise(void **state)
{
    (void)state;
    struct sbp_random random;
    sbp_random_seed(&random, SEED);
    for (int round = 0; round < 50; round++) {
        struct sbp_curve_sample sample[64], clean[64];
        struct sbp_curve_fit fit;
        const int count = make(0.03, &random, sample);
        (void)make(0, &random, clean);
        assert_int_equal(sbp_curve_fit(sample, count, &fit, NULL), SBP_OK);
        const double error = mean_error(&fit, clean, count);
        if (!(error < 0.03))
            fail_msg("seed %llu, round %d: mean error %.3g", (unsigned long long)SEED, round,
                     error);
        near(sbp_curve_fit_s(&fit, 4e9), 8e-5 + 4e9 * 5e-11, 0.03);
    }
}

/* Two of the times three times too long: least absolute deviations go on through the others. */
static void test_outliers(void **state)
{
    (void)state;
    struct sbp_random random;
    sbp_random_seed(&random, SEED);
    if (!sbp_lad_is_available())
        skip();
    for (int round = 0; round < 50; round++) {
        struct sbp_curve_sample sample[64], clean[64];
        struct sbp_curve_fit fit;
        const int count = make(0.03, &random, sample);
        (void)make(0, &random, clean);
        sample[3].time_s *= 3;
        sample[count - 4].time_s *= 3;
        assert_int_equal(sbp_curve_fit_with(sample, count, SBP_CURVE_LAD, 3, &fit, NULL), SBP_OK);
        const double error = mean_error(&fit, clean, count);
        if (!(error < 0.04))
            fail_msg("seed %llu, round %d: mean error %.3g", (unsigned long long)SEED, round,
                     error);
    }
}

static double deviation(const struct sbp_curve_sample *sample, int count, double a, double b)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += fabs((a + b * sample[i].bytes) / sample[i].time_s - 1);
    return sum;
}

/* An optimum of a linear program lies on a corner: here on two of the rows a + b n = t, a = 0 and
 * b = 0. */
static double least_deviation(const struct sbp_curve_sample *sample, int count)
{
    double least = INFINITY;
    for (int i = 0; i < count; i++) {
        least = fmin(least, deviation(sample, count, sample[i].time_s, 0));
        least = fmin(least, deviation(sample, count, 0, sample[i].time_s / sample[i].bytes));
        for (int j = 0; j < i; j++) {
            const double b =
                (sample[i].time_s - sample[j].time_s) / (sample[i].bytes - sample[j].bytes);
            const double a = sample[i].time_s - b * sample[i].bytes;
            if (a >= 0 && b >= 0)
                least = fmin(least, deviation(sample, count, a, b));
        }
    }
    return least;
}

static void test_program(void **state)
{
    (void)state;
    struct sbp_random random;
    sbp_random_seed(&random, SEED);
    if (!sbp_lad_is_available())
        skip();
    for (int round = 0; round < 200; round++) {
        struct sbp_curve_sample sample[12];
        struct sbp_curve_fit fit;
        const int count = 2 + (int)(sbp_random_unit(&random) * 10);
        double bytes = 1;
        for (int i = 0; i < count; i++) {
            bytes *= random_between(&random, 1.1, 9);
            sample[i] = (struct sbp_curve_sample){bytes, (1e-6 + bytes * 1e-11) *
                                                             random_between(&random, 0.3, 3)};
        }
        assert_int_equal(sbp_curve_fit_with(sample, count, SBP_CURVE_LAD, 1, &fit, NULL), SBP_OK);
        const double found =
            deviation(sample, count, fit.segment[0].alpha_s, fit.segment[0].beta_s_per_byte);
        const double least = least_deviation(sample, count);
        if (!(found <= least + 1e-6 && found >= least - 1e-6))
            fail_msg("seed %llu, round %d: %.9g, the least is %.9g", (unsigned long long)SEED,
                     round, found, least);
    }
}

/* --- programs of several columns and rows of order, against all of their corners --- */

enum { ROWS = 6, COLUMNS = 3, LIMITS = ROWS + COLUMNS + 1 };

struct corner_problem {
    double limit[LIMITS][COLUMNS], right[LIMITS]; /* rows, x_j = 0, the row of order = 0 */
};

static double objective(const struct corner_problem *problem, const double *x)
{
    double sum = 0;
    for (int i = 0; i < ROWS; i++) {
        double off = -problem->right[i];
        for (int j = 0; j < COLUMNS; j++)
            off += problem->limit[i][j] * x[j];
        sum += fabs(off);
    }
    return sum;
}

static bool is_legal(const struct corner_problem *problem, const double *x)
{
    double order = 0;
    for (int j = 0; j < COLUMNS; j++) {
        order += problem->limit[LIMITS - 1][j] * x[j];
        if (!(x[j] >= -1e-9))
            return false;
    }
    return order >= -1e-9;
}

/* Cramer's rule; false: the limits meet nowhere. */
static bool meet(const struct corner_problem *problem, const int at[COLUMNS], double x[COLUMNS])
{
    const double *a = problem->limit[at[0]], *b = problem->limit[at[1]], *c = problem->limit[at[2]];
    const double *const rows[] = {a, b, c};
    double cofactor[3][3], determinant = 0;
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) {
            const double *u = rows[(i + 1) % 3], *v = rows[(i + 2) % 3];
            cofactor[i][j] = u[(j + 1) % 3] * v[(j + 2) % 3] - u[(j + 2) % 3] * v[(j + 1) % 3];
        }
    for (int j = 0; j < 3; j++)
        determinant += a[j] * cofactor[0][j];
    for (int j = 0; j < 3; j++)
        x[j] = (problem->right[at[0]] * cofactor[0][j] + problem->right[at[1]] * cofactor[1][j] +
                problem->right[at[2]] * cofactor[2][j]) /
               determinant;
    return fabs(determinant) > 1e-9;
}

static double least_corner(const struct corner_problem *problem)
{
    double least = INFINITY, x[COLUMNS];
    for (int i = 0; i < LIMITS; i++)
        for (int j = 0; j < i; j++)
            for (int k = 0; k < j; k++)
                if (meet(problem, (const int[]){i, j, k}, x) && is_legal(problem, x))
                    least = fmin(least, objective(problem, x));
    return least;
}

static void test_corners(void **state)
{
    (void)state;
    struct sbp_random random;
    sbp_random_seed(&random, SEED + 2);
    if (!sbp_lad_is_available())
        skip();
    for (int round = 0; round < 300; round++) {
        struct corner_problem problem = {.right = {0}};
        double x[COLUMNS] = {0};
        for (int i = 0; i < ROWS; i++) {
            problem.right[i] = random_between(&random, 0.2, 2);
            for (int j = 0; j < COLUMNS; j++)
                problem.limit[i][j] = random_between(&random, 0, 3);
        }
        for (int j = 0; j < COLUMNS; j++) {
            problem.limit[ROWS + j][j] = 1;
            problem.limit[LIMITS - 1][j] = random_between(&random, -1, 1);
        }
        const struct sbp_lad lad = {ROWS,          COLUMNS, &problem.limit[0][0],
                                    problem.right, 1,       problem.limit[LIMITS - 1]};
        assert_int_equal(sbp_lad_solve(&lad, x, NULL), SBP_OK);
        const double found = objective(&problem, x), least = least_corner(&problem);
        if (!is_legal(&problem, x) || !(fabs(found - least) < 1e-6))
            fail_msg("seed %llu, round %d: %.9g, the least corner has %.9g",
                     (unsigned long long)SEED + 2, round, found, least);
    }
}

/* Whatever the samples, times that fall included. */
static void test_monotone(void **state)
{
    (void)state;
    struct sbp_random random;
    sbp_random_seed(&random, SEED + 1);
    for (int round = 0; round < 300; round++) {
        struct sbp_curve_sample sample[40];
        struct sbp_curve_fit fit;
        const int count = 1 + (int)(sbp_random_unit(&random) * 39);
        double bytes = 1, before = 0;
        for (int i = 0; i < count; i++) {
            bytes *= random_between(&random, 1.05, 3);
            sample[i] = (struct sbp_curve_sample){bytes, random_between(&random, 1e-6, 1e-3)};
        }
        assert_int_equal(sbp_curve_fit(sample, count, &fit, NULL), SBP_OK);
        assert_true(fit.segment_count >= 1 && fit.segment_count <= SBP_NETWORK_SEGMENTS);
        for (double n = 0.5; n < 4 * bytes; n *= 1.1) {
            const double now = sbp_curve_fit_s(&fit, n);
            if (!(now >= before * (1 - 1e-12)) || !(now >= 0))
                fail_msg("seed %llu, round %d: %.9g s after %.9g at %g bytes",
                         (unsigned long long)SEED + 1, round, now, before, n);
            before = now;
        }
        for (int k = 0; k < fit.segment_count; k++)
            assert_true(fit.segment[k].alpha_s >= 0 && fit.segment[k].beta_s_per_byte >= 0);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct sbp_curve_sample rows[][2] = {
        {{0, 1}, {2, 1}}, {{1, 1}, {1, 1}}, {{1, 0}, {2, 1}}, {{1, 1}, {2, -1}}, {{1, 1}, {2, NAN}},
    };
    struct sbp_curve_fit fit;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(sbp_curve_fit(rows[i], 2, &fit, NULL), SBP_E_INPUT);
    assert_int_equal(sbp_curve_fit(rows[0], 0, &fit, NULL), SBP_E_INPUT);
    /* 1 / t that no double holds. */
    struct sbp_curve_sample tiny[12];
    for (int i = 0; i < 12; i++)
        tiny[i] = (struct sbp_curve_sample){i + 1.0, i % 2 == 0 ? 1e-310 : 1};
    assert_int_equal(sbp_curve_fit_with(tiny, 12, SBP_CURVE_SQUARES, 3, &fit, NULL), SBP_E_INPUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_truth),    cmocka_unit_test(test_noise),
        cmocka_unit_test(test_outliers), cmocka_unit_test(test_program),
        cmocka_unit_test(test_corners),  cmocka_unit_test(test_monotone),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
