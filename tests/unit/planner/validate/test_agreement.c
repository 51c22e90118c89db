/* Agreement of predictions with measurements against examples worked out by hand. */
#include <math.h>

#include "planner/validate/agreement.h"
#include "tests/support/unit.h"

#define CLOSE 1e-12

static void assert_near(const char *what, double actual, double expected)
{
    if (!(fabs(actual - expected) <= CLOSE))
        fail_msg("%s is %.17g, expected %.17g", what, actual, expected);
}

static struct sbp_agreement agree(const double *predicted, const double *measured, const int *group,
                                  int count)
{
    struct sbp_arena arena = {0};
    struct sbp_agreement agreement;
    struct sbp_diag diag = {{0}};
    assert_int_equal(
        sbp_agreement_make(predicted, measured, group, count, &arena, &agreement, &diag), SBP_OK);
    sbp_arena_free(&arena);
    return agreement;
}

/* Ratios 0.5, 1, 1.5 and 2: errors 0.5, 0, 0.5, 1. The factor is the median of 2, 1, 2/3, 1/2
 * weighted by the ratios: from below 1/2 has 2 and 2/3 has 3.5 of 5, so that it is 2/3. */
static void test_errors(void **state)
{
    (void)state;
    const double predicted[] = {1, 2, 3, 4}, measured[] = {2, 2, 2, 2};
    const int group[] = {0, 1, 2, 3};
    const struct sbp_agreement a = agree(predicted, measured, group, 4);
    assert_int_equal(a.count, 4);
    assert_near("error", a.error, 0.5);
    assert_near("bias", a.bias, 0.25);
    assert_near("factor", a.factor, 2.0 / 3);
    assert_near("error with it", a.factor_error, (2.0 / 3 + 1.0 / 3 + 0 + 1.0 / 3) / 4);
    assert_int_equal(a.groups, 0);
    assert_true(isnan(a.group_rank) && isnan(a.regret) && isnan(a.worst_regret));
    assert_true(isnan(a.rank)); /* measured times do not vary */
}

/* No factor has a smaller error than the one that is found: a grid around it. */
static void test_factor_is_best(void **state)
{
    (void)state;
    const double predicted[] = {1.3, 2.9, 0.7, 5.1, 8.8}, measured[] = {2, 3.1, 1.9, 4, 11};
    const int group[] = {0, 0, 0, 0, 0};
    const struct sbp_agreement a = agree(predicted, measured, group, 5);
    for (int step = 1; step < 400; step++) {
        double error = 0;
        for (int i = 0; i < 5; i++)
            error += fabs(step * 0.01 * predicted[i] / measured[i] - 1) / 5;
        assert_true(error >= a.factor_error - CLOSE);
    }
}

/* Without ties Spearman's coefficient is 1 - 6 sum d^2 / (n (n^2 - 1)); here d = 0, 1, 1, 2, 2. */
static void test_rank(void **state)
{
    (void)state;
    const double measured[] = {10, 20, 30, 40, 50}, predicted[] = {1, 3, 2, 6, 5};
    const double turned[] = {1, 3, 2, 9, 0.5};
    const int group[] = {7, 7, 7, 7, 7};
    assert_near("neighbours that change places", agree(predicted, measured, group, 5).rank,
                1 - 6.0 * 4 / 120);
    assert_near("the last that comes first", agree(turned, measured, group, 5).rank,
                1 - 6.0 * (1 + 4 + 0 + 1 + 16) / 120);
}

/* Ranks 1.5, 1.5, 3 and 4 beside 1 to 4: covariance 4.5 of variances 4.5 and 5. */
static void test_rank_with_ties(void **state)
{
    (void)state;
    const double predicted[] = {1, 1, 2, 3}, measured[] = {1, 2, 3, 4};
    const int group[] = {0, 0, 0, 0};
    const struct sbp_agreement a = agree(predicted, measured, group, 4);
    assert_near("with a tie", a.rank, 4.5 / sqrt(4.5 * 5));
    assert_int_equal(a.groups, 1);
    assert_near("of the group", a.group_rank, a.rank);
    assert_near("regret: of equals the slower", a.regret, 1);
}

/* Two groups that count, one of three runs that does not, and one whose predictions are equal. */
static void test_groups(void **state)
{
    (void)state;
    const double measured[] = {10, 11, 12, 13, 10, 5, 20, 40, 1, 2, 3, 1, 2, 3, 4};
    const double predicted[] = {1, 2, 3, 4, 1, 2, 3, 4, 3, 2, 1, 9, 9, 9, 9};
    const int group[] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3};
    const struct sbp_agreement a = agree(predicted, measured, group, 15);
    assert_int_equal(a.groups, 2);
    assert_near("rank", a.group_rank, (1 + (1 - 6.0 * 2 / 60)) / 2);
    assert_near("regret", a.regret, (0 + 1) / 2.0);
    assert_near("worst regret", a.worst_regret, 1);
}

static void test_nothing(void **state)
{
    (void)state;
    const struct sbp_agreement a = agree(NULL, NULL, NULL, 0);
    assert_int_equal(a.count, 0);
    assert_true(isnan(a.error) && isnan(a.factor_error) && isnan(a.rank) && isnan(a.regret));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors), cmocka_unit_test(test_factor_is_best),
        cmocka_unit_test(test_rank),   cmocka_unit_test(test_rank_with_ties),
        cmocka_unit_test(test_groups), cmocka_unit_test(test_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
