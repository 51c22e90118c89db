/* Logarithms and exponentials: near the library's, and the same bits wherever they are built. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/math/portable.h"
#include "base/math/random.h"
#include "tests/support/unit.h"

#define SEED  UINT64_C(77)
#define DRAWS 200000

/* A positive number of any size. */
static double draw(struct sbp_random *random)
{
    const double digits = 0.5 + 0.5 * sbp_random_unit(random);
    return ldexp(digits, (int)sbp_random_below(random, 2000) - 1000);
}

static void expect_near(const char *what, double x, double mine, double library, double units)
{
    if (!(fabs(mine - library) <= units * DBL_EPSILON * fabs(library)))
        fail_msg("%s(%a): %.17g, the library has %.17g", what, x, mine, library);
}

static void test_near_the_library(void **state)
{
    struct sbp_random random;
    (void)state;
    sbp_random_seed(&random, SEED);
    for (int i = 0; i < DRAWS; i++) {
        const double x = draw(&random), close = 1 + ldexp(x, i % 60 - 1010);
        const double y = 1400 * (sbp_random_unit(&random) - 0.5);
        expect_near("log", x, sbp_log(x), log(x), 2);
        expect_near("log", close, sbp_log(close), log(close), 2);
        expect_near("log2", x, sbp_log2(x), log2(x), 2);
        expect_near("exp", y, sbp_exp(y), exp(y), 2);
        expect_near("exp", y / 1e6, sbp_exp(y / 1e6), exp(y / 1e6), 2);
        expect_near("pow", y / 700, sbp_pow(x, y / 700), pow(x, y / 700), 1500);
    }
}

static void test_ends_of_the_range(void **state)
{
    (void)state;
    assert_true(sbp_log(1) == 0);
    assert_true(sbp_exp(0) == 1);
    assert_true(sbp_pow(3, 0) == 1);
    assert_true(sbp_pow(3, 1) == 3);
    for (int i = -100; i <= 100; i++)
        assert_true(sbp_log2(ldexp(1, i)) == i);
    assert_true(sbp_log(0) == -INFINITY);
    assert_true(sbp_log(INFINITY) == INFINITY);
    assert_true(isnan(sbp_log(-1)));
    assert_true(isnan(sbp_log(NAN)));
    assert_true(isnan(sbp_exp(NAN)));
    assert_true(sbp_exp(-INFINITY) == 0);
    assert_true(sbp_exp(INFINITY) == INFINITY);
    assert_true(sbp_exp(-1000) == 0);
    assert_true(sbp_exp(1000) == INFINITY);
    expect_near("exp", 709.75, sbp_exp(709.75), exp(709.75),
                2); /* the largest number is e^709.78 */
    assert_true(sbp_exp(709.8) == INFINITY);
    assert_true(sbp_exp(-745) == DBL_TRUE_MIN);
    assert_true(sbp_exp(-746) == 0);
    assert_true(isfinite(sbp_log(DBL_TRUE_MIN)));
}

static uint64_t mix(uint64_t hash, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (hash ^ bits) * UINT64_C(0x100000001b3);
}

/* The bits themselves: of any compiler, at any level of optimisation, on any processor. */
static void test_same_bits(void **state)
{
    struct sbp_random random;
    uint64_t logs = 0, exps = 0;
    (void)state;
    sbp_random_seed(&random, SEED);
    for (int i = 0; i < DRAWS; i++) {
        logs = mix(logs, sbp_log(draw(&random)));
        exps = mix(exps, sbp_exp(1400 * (sbp_random_unit(&random) - 0.5)));
    }
    assert_int_equal(logs, UINT64_C(0x99b5fd1e4b08f8fa));
    assert_int_equal(exps, UINT64_C(0x9b9886f36c6650d3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_near_the_library),
        cmocka_unit_test(test_ends_of_the_range),
        cmocka_unit_test(test_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
