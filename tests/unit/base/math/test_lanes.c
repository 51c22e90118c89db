/* Functions of one element against a library in a wider type, and in vectors against alone.
 *
 * SBP_TEST_STRIDE (97) is the step through all floats; 1 takes every one.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/math/lanes.h"
#include "base/math/random.h"
#include "base/math/simd.h"
#include "tests/support/unit.h"

#define SEED  UINT64_C(99)
#define DRAWS 300000

static uint32_t stride(void)
{
    const char *text = getenv("SBP_TEST_STRIDE");
    const unsigned long step = text ? strtoul(text, NULL, 10) : 97;
    return step > 0 && step < 1000000 ? (uint32_t)step : 97;
}

/* ---- exponentials and logarithms ------------------------------------------------------------ */

/* The distance from what is exact, in units in the last place of a float there. */
static double units_f32(float got, double exact)
{
    int exponent;
    (void)frexp(exact, &exponent);
    return fabs((double)got - exact) / ldexp(1, (exponent < -125 ? -125 : exponent) - FLT_MANT_DIG);
}

static double units_f64(double got, long double exact)
{
    int exponent;
    (void)frexpl(exact, &exponent);
    return (double)(fabsl((long double)got - exact) /
                    ldexpl(1, (exponent < -1021 ? -1021 : exponent) - DBL_MANT_DIG));
}

struct worst {
    double units, at;
};

static void keep_worst(struct worst *worst, double units, double at)
{
    if (!(units <= worst->units))
        *worst = (struct worst){units, at};
}

static void expect_within(const char *what, const struct worst *worst, double bound)
{
    print_message("%s: at most %.3f ulp, at %a\n", what, worst->units, worst->at);
    if (!(worst->units <= bound))
        fail_msg("%s(%a) is %g ulp off, the bound is %g", what, worst->at, worst->units, bound);
}

/* Positive floats are in the order of their bits. */
static void test_exp_of_floats(void **state)
{
    struct worst worst = {0, 0};
    (void)state;
    for (uint64_t bits = 0; bits < sbp_lanes_f32_bits(104); bits += stride()) {
        const float x = sbp_lanes_f32_of((uint32_t)bits);
        keep_worst(&worst, units_f32(sbp_lanes_exp_f32(-x), exp(-(double)x)), -(double)x);
        if (x <= 0x1.62e42ep6F) /* the greatest with a finite exponential */
            keep_worst(&worst, units_f32(sbp_lanes_exp_f32(x), exp((double)x)), (double)x);
    }
    expect_within("exp of floats", &worst, 1.1);
}

static void test_log_of_floats(void **state)
{
    struct worst worst = {0, 0};
    (void)state;
    for (uint64_t bits = sbp_lanes_f32_bits(FLT_MIN); bits <= sbp_lanes_f32_bits(FLT_MAX);
         bits += stride()) {
        const float x = sbp_lanes_f32_of((uint32_t)bits);
        keep_worst(&worst, units_f32(sbp_lanes_log_f32(x), log((double)x)), (double)x);
    }
    expect_within("log of floats", &worst, 2);
    assert_true(sbp_lanes_log_f32(1) == 0);
}

static void test_exp_of_doubles(void **state)
{
    struct sbp_random random;
    struct worst worst = {0, 0};
    (void)state;
    sbp_random_seed(&random, SEED);
    for (int i = 0; i < DRAWS; i++) {
        const double wide = -745 + 1454.7 * sbp_random_unit(&random);
        const double x = i % 2 ? wide : ldexp(wide, -(i % 60));
        keep_worst(&worst, units_f64(sbp_lanes_exp_f64(x), expl((long double)x)), x);
    }
    expect_within("exp of doubles", &worst, 1.1);
}

static void test_ends_of_exp(void **state)
{
    const float tiny = 0x1p-149F;
    (void)state;
    assert_true(sbp_lanes_exp_f32(0) == 1 && sbp_lanes_exp_f64(0) == 1);
    assert_true(sbp_lanes_exp_f32(tiny) == 1 && sbp_lanes_exp_f32(-tiny) == 1);
    assert_true(sbp_lanes_exp_f32(INFINITY) == INFINITY && sbp_lanes_exp_f32(-INFINITY) == 0);
    assert_true(sbp_lanes_exp_f64(INFINITY) == INFINITY && sbp_lanes_exp_f64(-INFINITY) == 0);
    assert_true(sbp_lanes_exp_f32(FLT_MAX) == INFINITY && sbp_lanes_exp_f32(-FLT_MAX) == 0);
    assert_true(sbp_lanes_exp_f64(DBL_MAX) == INFINITY && sbp_lanes_exp_f64(-DBL_MAX) == 0);
    assert_true(sbp_lanes_exp_f32(88.73F) == INFINITY && sbp_lanes_exp_f32(-104) == 0);
    assert_true(sbp_lanes_exp_f32(88.722F) < INFINITY && sbp_lanes_exp_f32(-103) == tiny);
    assert_true(sbp_lanes_exp_f64(709.8) == INFINITY && sbp_lanes_exp_f64(-746) == 0);
    assert_true(sbp_lanes_exp_f64(709.7) < INFINITY && sbp_lanes_exp_f64(-745) == 0x1p-1074);
    /* Neighbours: the last finite exponential and the first infinite one; 0 and the least number,
     * at either side of half of it. */
    assert_true(sbp_lanes_exp_f32(0x1.62e42ep6F) < INFINITY);
    assert_true(sbp_lanes_exp_f32(0x1.62e430p6F) == INFINITY);
    assert_true(sbp_lanes_exp_f32(-0x1.9fe36ap6F) == 0 &&
                sbp_lanes_exp_f32(-0x1.9fe368p6F) == tiny);
    assert_true(sbp_lanes_exp_f64(0x1.62e42fefa39efp9) < INFINITY);
    assert_true(sbp_lanes_exp_f64(0x1.62e42fefa39f0p9) == INFINITY);
    assert_true(sbp_lanes_exp_f64(-0x1.74910d52d3052p9) == 0);
    assert_true(sbp_lanes_exp_f64(-0x1.74910d52d3051p9) == 0x1p-1074);
    assert_true(isnan(sbp_lanes_exp_f32(NAN)) && isnan(sbp_lanes_exp_f32(-NAN)));
    assert_true(isnan(sbp_lanes_exp_f64(NAN)) && isnan(sbp_lanes_exp_f64(-NAN)));
}

/* ---- random numbers ------------------------------------------------------------------------- */

/* Worked out from the definition with whole numbers of any length. */
static void test_bits_vector(void **state)
{
    static const uint64_t case_of[][4] = {
        {0, 0, 0, UINT64_C(0x6450182c7cd8384d)},
        {1, 2, 3, UINT64_C(0x3c073b4b8b63c68a)},
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_C(0xc2ad1399c7594a4f)},
        {7, UINT64_C(1) << 40, (UINT64_C(1) << 63) + 5, UINT64_C(0x32594e8e93c8e12d)},
    };
    (void)state;
    for (size_t i = 0; i < sizeof case_of / sizeof case_of[0]; i++) {
        const uint64_t *c = case_of[i];
        assert_true(sbp_random_bits_at(c[0], c[1], c[2]) == c[3]);
        assert_true(sbp_lanes_bits(sbp_random_key(c[0], c[1]), c[2]) == c[3]);
    }
}

/* The same transform of the same bits by the library. */
static double library_normal(uint64_t bits)
{
    const double uniform = ((double)(bits >> 33) + 0.5) * 0x1p-31;
    const double turn = (double)(int32_t)(uint32_t)bits * 0x1p-31;
    return sqrt(-2 * log(uniform)) * sin(acos(0) * turn);
}

static void expect_normal(uint64_t bits)
{
    const double got = (double)sbp_lanes_normal(bits), want = library_normal(bits);
    /* A radius near 0 comes of a float near 1, whose last place is 2^-24. */
    if (!(fabs(got - want) <= (fabs(want) < 0.01 ? 4e-4 : 4e-6)))
        fail_msg("normal of %016llx: %.9g, the library's is %.9g", (unsigned long long)bits, got,
                 want);
}

static void test_normal_of_bits(void **state)
{
    struct sbp_random random;
    (void)state;
    sbp_random_seed(&random, SEED);
    for (int i = 0; i < DRAWS; i++)
        expect_normal(sbp_random_next(&random));
    const uint64_t halves[] = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff};
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 5; j++)
            expect_normal(halves[i] << 32 | halves[j]);
}

static int by_value(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Kolmogorov and Smirnov: the largest distance between the distribution of the draws and the normal
 * one, and none between neighbours' products and 0. */
static void test_distribution(void **state)
{
    double *x = malloc(DRAWS * sizeof *x), most = 0, product = 0;
    (void)state;
    assert_non_null(x);
    for (int i = 0; i < DRAWS; i++) {
        x[i] = sbp_random_normal_at(SEED, 4, (uint64_t)i);
        product += i > 0 ? x[i] * x[i - 1] : 0;
    }
    qsort(x, DRAWS, sizeof *x, by_value);
    for (int i = 0; i < DRAWS; i++) {
        const double below = erfc(-x[i] / sqrt(2)) / 2;
        most = fmax(most, fmax(below - (double)i / DRAWS, (double)(i + 1) / DRAWS - below));
    }
    free(x);
    const double distance = most * sqrt((double)DRAWS), neighbours = product / sqrt((double)DRAWS);
    if (!(distance < 1.95) || !(fabs(neighbours) < 4)) /* one seed of 1000, of 16000 */
        fail_msg("distance %g, neighbours %g (seed %llu)", distance, neighbours,
                 (unsigned long long)SEED);
}

/* ---- in vectors and alone ------------------------------------------------------------------- */

enum { ROW = 1003 };

SBP_SIMD_WIDE
static void in_vectors(float *restrict exps, double *restrict wide, float *restrict normals,
                       const float *restrict x, uint64_t key)
{
    for (int i = 0; i < ROW; i++)
        exps[i] = sbp_lanes_exp_f32(x[i]);
    for (int i = 0; i < ROW; i++)
        wide[i] = sbp_lanes_exp_f64((double)x[i]);
    for (int i = 0; i < ROW; i++)
        normals[i] = sbp_lanes_normal(sbp_lanes_bits(key, (uint64_t)i));
}

static void test_same_bits_in_vectors(void **state)
{
    static float exps[ROW], normals[ROW], x[ROW];
    static double wide[ROW];
    const uint64_t key = sbp_random_key(SEED, 5);
    (void)state;
    for (int i = 0; i < ROW; i++)
        x[i] = -120 + 230.0F * (float)i / ROW;
    in_vectors(exps, wide, normals, x, key);
    for (volatile int i = 0; i < ROW; i++) {
        const float exp_alone = sbp_lanes_exp_f32(x[i]);
        const double wide_alone = sbp_lanes_exp_f64((double)x[i]);
        const double normal_alone = sbp_random_normal_at(SEED, 5, (uint64_t)i);
        assert_memory_equal(&exps[i], &exp_alone, sizeof exp_alone);
        assert_memory_equal(&wide[i], &wide_alone, sizeof wide_alone);
        assert_true((double)normals[i] == normal_alone);
    }
}

/* Every machine and compiler has to give this; a fused multiplication and addition changes it. */
static void test_same_bits_everywhere(void **state)
{
    uint64_t exps = 0, wide = 0, logs = 0, normals = 0;
    (void)state;
    for (int i = 0; i < ROW; i++) {
        const float x = -120 + 230.0F * (float)i / ROW;
        const float normal = sbp_lanes_normal(sbp_lanes_bits(SEED, (uint64_t)i));
        exps = sbp_lanes_mix(exps ^ sbp_lanes_f32_bits(sbp_lanes_exp_f32(x)));
        wide = sbp_lanes_mix(wide ^ sbp_lanes_f64_bits(sbp_lanes_exp_f64((double)x)));
        logs = sbp_lanes_mix(logs ^ sbp_lanes_f32_bits(sbp_lanes_log_f32((float)(i + 1))));
        normals = sbp_lanes_mix(normals ^ sbp_lanes_f32_bits(normal));
    }
    assert_int_equal(exps, UINT64_C(0x9b3253da27150529));
    assert_int_equal(wide, UINT64_C(0x658216083c8042e0));
    assert_int_equal(logs, UINT64_C(0xd4657c5d07b26a2));
    assert_int_equal(normals, UINT64_C(0xca9f74a74e6ba85d));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp_of_floats),        cmocka_unit_test(test_log_of_floats),
        cmocka_unit_test(test_exp_of_doubles),       cmocka_unit_test(test_ends_of_exp),
        cmocka_unit_test(test_bits_vector),          cmocka_unit_test(test_normal_of_bits),
        cmocka_unit_test(test_distribution),         cmocka_unit_test(test_same_bits_in_vectors),
        cmocka_unit_test(test_same_bits_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
