/* The comparison of measured plans, on rounds that are made by hand. */
#include <math.h>
#include <stdio.h>

#include "executor/bench.h"
#include "tests/support/unit.h"

enum { ROUNDS = 9 };

static void open_result(struct sbp_bench_result *result, int count, int rounds)
{
    struct sbp_diag diag = {{0}};
    assert_int_equal(sbp_bench_open(count, rounds, result, &diag), SBP_OK);
    for (int i = 0; i < count; i++) {
        result->row[i].units = 100;
        result->row[i].has_cores = true;
    }
}

/* Rounds around a median, in no order: median + spread x (-4 .. 4). */
static void set_rounds(struct sbp_bench_result *result, int row, enum sbp_bench_metric metric,
                       double median_s, double spread_s)
{
    for (int i = 0; i < result->rounds; i++)
        result->row[row].round_s[metric][i] =
            median_s + spread_s * ((i * 4) % result->rounds - result->rounds / 2);
}

/* Of 9 values the interval of 99 % is the range: 1 - 2 / 512; two ranks further in, 1 - 20 / 512.
 */
static void test_values(void **state)
{
    (void)state;
    struct sbp_bench_result result;
    open_result(&result, 1, ROUNDS);
    set_rounds(&result, 0, SBP_BENCH_WALL, 10, 1);
    sbp_bench_compare(&result);
    const struct sbp_bench_value *wall = &result.row[0].value[SBP_BENCH_WALL];
    assert_true(wall->median_s == 10 && wall->low_s == 6 && wall->high_s == 14);
    assert_true(result.row[0].round_s[SBP_BENCH_WALL][1] == 10); /* as they came */
    assert_true(result.is_confident);
    assert_int_equal(result.compared, SBP_BENCH_WALL);
    assert_int_equal(result.best, 0);
    assert_false(result.row[0].is_apart);
    sbp_bench_free(&result);
}

static void test_apart(void **state)
{
    (void)state;
    struct sbp_bench_result result;
    open_result(&result, 4, ROUNDS);
    set_rounds(&result, 0, SBP_BENCH_WALL, 10, 1);    /* 6 .. 14 */
    set_rounds(&result, 1, SBP_BENCH_WALL, 9, 0.25);  /* 8 .. 10, the best */
    set_rounds(&result, 2, SBP_BENCH_WALL, 11, 0.25); /* 10 .. 12, which meets it */
    set_rounds(&result, 3, SBP_BENCH_WALL, 11.25, 0.25);
    sbp_bench_compare(&result);
    assert_int_equal(result.best, 1);
    assert_false(result.row[0].is_apart || result.row[1].is_apart || result.row[2].is_apart);
    assert_true(result.row[3].is_apart);
    sbp_bench_free(&result);
}

/* One plan without a core a rank: all are compared by their replays. */
static void test_replay(void **state)
{
    (void)state;
    struct sbp_bench_result result;
    open_result(&result, 2, ROUNDS);
    set_rounds(&result, 0, SBP_BENCH_WALL, 1, 0);
    set_rounds(&result, 1, SBP_BENCH_WALL, 2, 0);
    set_rounds(&result, 0, SBP_BENCH_REPLAY, 0.5, 0);
    set_rounds(&result, 1, SBP_BENCH_REPLAY, 0.25, 0);
    sbp_bench_compare(&result);
    assert_int_equal(result.best, 0);
    result.row[1].has_cores = false;
    sbp_bench_compare(&result);
    assert_int_equal(result.compared, SBP_BENCH_REPLAY);
    assert_int_equal(result.best, 1);
    assert_true(result.row[0].is_apart);
    sbp_bench_free(&result);
}

/* A step of twice the tokens may take longer. */
static void test_units(void **state)
{
    (void)state;
    struct sbp_bench_result result;
    open_result(&result, 2, ROUNDS);
    set_rounds(&result, 0, SBP_BENCH_WALL, 10, 0.1);
    set_rounds(&result, 1, SBP_BENCH_WALL, 15, 0.1);
    result.row[1].units = 200;
    sbp_bench_compare(&result);
    assert_int_equal(result.best, 1);
    assert_true(fabs(sbp_bench_each_s(&result, 1, 15) - 0.075) < 1e-15);
    assert_true(result.row[0].is_apart);
    sbp_bench_free(&result);
}

/* Seven rounds tell nobody apart, eight do. */
static void test_too_few(void **state)
{
    (void)state;
    for (int rounds = SBP_BENCH_ROUNDS - 1; rounds <= SBP_BENCH_ROUNDS; rounds++) {
        struct sbp_bench_result result;
        open_result(&result, 2, rounds);
        set_rounds(&result, 0, SBP_BENCH_WALL, 10, 0.1);
        set_rounds(&result, 1, SBP_BENCH_WALL, 20, 0.1);
        sbp_bench_compare(&result);
        assert_int_equal(result.best, 0);
        assert_int_equal(result.is_confident, rounds == SBP_BENCH_ROUNDS);
        assert_int_equal(result.row[1].is_apart, rounds == SBP_BENCH_ROUNDS);
        sbp_bench_free(&result);
    }
}

/* Without a flush the last step is shorter than others, and none of those that count. */
static void test_steps(void **state)
{
    (void)state;
    const struct sbp_bench_options options = {.warmup = 2, .steps = 3};
    struct sbp_bench_plan plan = {0};
    for (int schedule = 0; schedule < SBP_SCHEDULES; schedule++) {
        plan.step.parallel.schedule = (enum sbp_schedule)schedule;
        assert_int_equal(sbp_bench_run_steps(&options, &plan),
                         schedule == SBP_CDP_V1 || schedule == SBP_CDP_V2 ? 6 : 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values), cmocka_unit_test(test_apart), cmocka_unit_test(test_replay),
        cmocka_unit_test(test_steps),  cmocka_unit_test(test_units), cmocka_unit_test(test_too_few),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
