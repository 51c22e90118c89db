/* Sizes that refuse to wrap. */
#include "base/math/numeric.h"
#include "tests/support/unit.h"

static void test_checked_sizes(void **state)
{
    (void)state;
    int64_t result = -5;
    assert_true(sbp_mul_i64(INT64_C(1) << 31, INT64_C(1) << 31, &result));
    assert_int_equal(result, INT64_C(1) << 62);
    assert_true(sbp_mul_i64(INT64_MAX, 1, &result));
    assert_int_equal(result, INT64_MAX);
    assert_true(sbp_add_i64(INT64_MAX - 3, 3, &result));
    assert_int_equal(result, INT64_MAX);
    result = 42;
    assert_false(sbp_mul_i64(INT64_C(1) << 62, 2, &result));
    assert_false(sbp_mul_i64(-1, 1, &result));
    assert_false(sbp_mul_i64(0, -1, &result));
    assert_false(sbp_add_i64(INT64_MAX, 1, &result));
    assert_false(sbp_add_i64(-1, 2, &result));
    assert_int_equal(result, 42); /* untouched by refusals */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_checked_sizes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
