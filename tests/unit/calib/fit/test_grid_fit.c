/* Grids out of points: what a made-up machine reaches is found again, timed or not. */
#include <math.h>

#include "calib/fit/grid_fit.h"
#include "tests/support/unit.h"

enum { SIDE = 4 };
static const int64_t sizes[SIDE] = {48, 192, 768, 3072};

/* A machine whose rate is a product of what each size leaves, saturating at 1e11. */
static double rate_of(const int64_t size[SBP_RATE_AXES])
{
    const double half[SBP_RATE_AXES] = {10, 40, 90};
    double rate = 1e11;
    for (int axis = 0; axis < SBP_RATE_AXES; axis++)
        rate *= (double)size[axis] / ((double)size[axis] + half[axis]);
    return rate;
}

static double work_of(const int64_t size[SBP_RATE_AXES])
{
    return (double)size[0] * (double)size[1] * (double)size[2];
}

static struct sbp_grid_point point_of(int64_t m, int64_t n, int64_t k)
{
    struct sbp_grid_point point = {{m, n, k}, 0};
    point.flops = rate_of(point.size);
    return point;
}

static struct sbp_grid_point points[SBP_MAX_GRID_POINTS];
static struct sbp_grid_fit fit;

/* All combinations of the sizes up to a work, the largest first. */
static int list_points(double most)
{
    int count = 0;
    for (int i = SIDE * SIDE * SIDE - 1; i >= 0; i--) {
        points[count] = point_of(sizes[i / SIDE / SIDE], sizes[i / SIDE % SIDE], sizes[i % SIDE]);
        count += work_of(points[count].size) <= most;
    }
    return count;
}

static void expect_rates(double error)
{
    for (int i = 0; i < sbp_grid_fit_rates(&fit); i++) {
        const int64_t size[] = {fit.size[0][i / fit.count[2] / fit.count[1]],
                                fit.size[1][i / fit.count[2] % fit.count[1]],
                                fit.size[2][i % fit.count[2]]};
        if (!(fabs(fit.flops[i] / rate_of(size) - 1) <= error))
            fail_msg("%lld x %lld x %lld: %g FLOP/s, expected %g", (long long)size[0],
                     (long long)size[1], (long long)size[2], fit.flops[i], rate_of(size));
    }
}

static void expect_counts(int m, int n, int k, int timed)
{
    assert_int_equal(fit.count[0], m);
    assert_int_equal(fit.count[1], n);
    assert_int_equal(fit.count[2], k);
    assert_int_equal(fit.timed, timed);
    for (int axis = 0; axis < SBP_RATE_AXES; axis++)
        for (int i = 1; i < fit.count[axis]; i++)
            assert_true(fit.size[axis][i] > fit.size[axis][i - 1]);
}

static void test_what_was_timed_stays(void **state)
{
    (void)state;
    const int count = list_points(INFINITY);
    assert_int_equal(count, SIDE * SIDE * SIDE);
    sbp_grid_fit(points, count, &fit);
    expect_counts(SIDE, SIDE, SIDE, count);
    expect_rates(1e-12);
}

/* The rule is exact where what the sizes leave multiplies, up to the best that was timed. */
static void test_large_products_are_told_from_small_ones(void **state)
{
    (void)state;
    const int count = list_points(6e8);
    assert_in_range(count, SIDE * SIDE * SIDE / 2, SIDE * SIDE * SIDE - 8);
    double most = 0;
    for (int i = 0; i < count; i++)
        most = fmax(most, points[i].flops);
    sbp_grid_fit(points, count, &fit);
    expect_counts(SIDE, SIDE, SIDE, count);
    expect_rates(rate_of((const int64_t[]){3072, 3072, 3072}) / most - 1 + 1e-12);
}

/* The best point that is missing counts as the second best, the least as the second least. */
static void test_every_hole_is_filled(void **state)
{
    (void)state;
    for (int hole = 0; hole < SIDE * SIDE * SIDE; hole++) {
        const int count = list_points(INFINITY) - 1;
        const bool is_end = hole == 0 || hole == count;
        points[hole] = points[count];
        sbp_grid_fit(points, count, &fit);
        expect_counts(SIDE, SIDE, SIDE, count);
        expect_rates(is_end ? 0.25 : 1e-9);
    }
}

/* Products of other sizes cost the grid nothing, and are no part of it. */
static void test_rare_sizes_go(void **state)
{
    (void)state;
    int count = list_points(6e8);
    const int on_grid = count;
    points[count++] = point_of(256, 256, 256);
    points[count++] = point_of(256, 576, 768);
    points[count++] = point_of(16, 1024, 1024);
    sbp_grid_fit(points, count, &fit);
    expect_counts(SIDE, SIDE, SIDE, on_grid);
}

/* Scattered shapes alone leave a grid still. */
static void test_scattered_shapes(void **state)
{
    (void)state;
    int count = 0;
    for (int i = 0; i < 20; i++)
        points[count++] = point_of(16 + i, 1000 - i * i, 7 * i + 3);
    sbp_grid_fit(points, count, &fit);
    assert_true(fit.timed >= 1 && sbp_grid_fit_rates(&fit) <= SBP_LEAST_GRID_PARTS * fit.timed);
    expect_rates(3);
    sbp_grid_fit(points, 1, &fit);
    expect_counts(1, 1, 1, 1);
    sbp_grid_fit(points, 0, &fit);
    expect_counts(0, 0, 0, 0);
    assert_int_equal(sbp_grid_fit_rates(&fit), 0);
}

/* Rates that fall from size to size are not carried below the least that was timed. */
static void test_rates_stay_among_those_timed(void **state)
{
    (void)state;
    const int count = list_points(6e8);
    double least = INFINITY;
    for (int i = 0; i < count; i++) {
        points[i].flops = 1e9 / work_of(points[i].size);
        least = fmin(least, points[i].flops);
    }
    sbp_grid_fit(points, count, &fit);
    for (int i = 0; i < sbp_grid_fit_rates(&fit); i++)
        assert_true(fit.flops[i] >= least * (1 - 1e-12));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_timed_stays),
        cmocka_unit_test(test_large_products_are_told_from_small_ones),
        cmocka_unit_test(test_every_hole_is_filled),
        cmocka_unit_test(test_rare_sizes_go),
        cmocka_unit_test(test_scattered_shapes),
        cmocka_unit_test(test_rates_stay_among_those_timed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
