/* The least mean absolute error: where steps along the axes end on a ridge, where errors bend, what
 * errors do not determine, and beginnings outside. */
#include <math.h>
#include <string.h>

#include "base/math/random.h"
#include "planner/validate/least_error.h"
#include "tests/support/unit.h"

static int calls;

static double find(struct sbp_least_error *problem, double *at)
{
    struct sbp_diag diag = {{0}};
    double error[8], sum = 0;
    calls = 0;
    if (sbp_least_error_find(problem, at, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    assert_int_equal(problem->errors(problem->context, at, error), SBP_OK);
    for (int i = 0; i < problem->points; i++)
        sum += fabs(error[i]);
    return sum / problem->points;
}

/* From the bottom of the narrow valley x = y no step along one axis gains anything. */
static enum sbp_status valley(void *context, const double *at, double *error)
{
    (void)context;
    calls++;
    error[0] = 10 * (at[0] - at[1]);
    error[1] = at[0] + at[1] - 1.4;
    return SBP_OK;
}

static void test_ridge(void **state)
{
    (void)state;
    struct sbp_least_error problem = {.coordinates = 2, .points = 2, .errors = valley};
    double at[2] = {0.2, 0.2};
    assert_true(find(&problem, at) < 1e-6);
    assert_true(fabs(at[0] - 0.7) < 1e-5 && fabs(at[1] - 0.7) < 1e-5);
}

/* Steps of a trainer: what the device takes, or the host, whichever is longer; and one that none
 * explains, so that the least is no zero. */
struct bent {
    double truth[3], alien;
};

static double bent_step(int i, const double *at)
{
    static const double work[6][2] = {{4, 1}, {1, 1}, {1, 3}, {9, 1}, {2, 5}, {1, 9}};
    return fmax(work[i][0] * (1 + at[0]) + at[2], work[i][1] * (1 + 3 * at[1]));
}

static enum sbp_status bent(void *context, const double *at, double *error)
{
    const struct bent *bent = context;
    calls++;
    for (int i = 0; i < 6; i++)
        error[i] = bent_step(i, at) / bent_step(i, bent->truth) - 1;
    error[6] = at[0] + at[1] + at[2] + bent->alien;
    return SBP_OK;
}

static void test_bends(void **state)
{
    (void)state;
    const uint64_t seed = 20261126;
    struct sbp_random random;
    struct bent about = {.alien = 0};
    struct sbp_least_error problem = {
        .coordinates = 3, .points = 6, .hold = 1e-5, .errors = bent, .context = &about};
    sbp_random_seed(&random, seed);
    for (int round = 0; round < 50; round++) {
        double at[3], again[3];
        for (int j = 0; j < 3; j++) {
            at[j] = again[j] = sbp_random_unit(&random);
            about.truth[j] = sbp_random_unit(&random);
        }
        about.alien = 10 * sbp_random_unit(&random);
        problem.points = round % 2 == 0 ? 6 : 7; /* without the alien, or with it */
        /* The truth is a point, so the least is no more. */
        double error[7], least = 0;
        (void)bent(&about, about.truth, error);
        for (int i = 0; i < problem.points; i++)
            least += fabs(error[i]) / problem.points;
        const double found = find(&problem, at);
        if (found > 1.002 * least + 3e-5 || calls > 120)
            fail_msg("seed %llu, round %d: %g after %d evaluations, legal is %g",
                     (unsigned long long)seed, round, found, calls, least);
        (void)find(&problem, again);
        assert_memory_equal(at, again, sizeof at);
    }
}

/* Only the sum is determined, and the first coordinate not at all. */
static enum sbp_status sum_alone(void *context, const double *at, double *error)
{
    (void)context;
    error[0] = at[1] + at[2] - 1;
    error[1] = 2 * error[0] + 0.01;
    error[2] = 3 * error[0];
    return SBP_OK;
}

static void test_undetermined(void **state)
{
    (void)state;
    struct sbp_least_error problem = {
        .coordinates = 3, .points = 3, .hold = 1e-3, .errors = sum_alone};
    double at[3] = {0.3, 0.4, 0.1};
    (void)find(&problem, at);
    assert_true(at[0] == 0.3);
    assert_true(fabs(at[1] + at[2] - 1) < 1e-4);
    assert_true(at[1] > 0.4 - 1e-3 && at[2] > 0.1 - 1e-3); /* nothing goes back */
}

static enum sbp_status far_one(void *context, const double *at, double *error)
{
    error[0] = at[0] - *(const double *)context;
    return SBP_OK;
}

static void test_beginning_outside(void **state)
{
    (void)state;
    double truth = 1.5, at = 1.5;
    struct sbp_least_error problem = {
        .coordinates = 1, .points = 1, .errors = far_one, .context = &truth};
    assert_true(find(&problem, &at) == 0 && at == 1.5);
    truth = 0.25;
    assert_true(find(&problem, &at) < 1e-6);
    problem.coordinates = 0; /* nothing is free */
    at = 0.75;
    assert_true(find(&problem, &at) == 0.5 && at == 0.75);
}

static enum sbp_status stops(void *context, const double *at, double *error)
{
    error[0] = at[0];
    return ++*(int *)context > 3 ? SBP_STOPPED : SBP_OK;
}

static void test_stop(void **state)
{
    (void)state;
    int count = 0;
    struct sbp_diag diag = {{0}};
    double at = 1;
    const struct sbp_least_error problem = {
        .coordinates = 1, .points = 1, .errors = stops, .context = &count};
    assert_int_equal(sbp_least_error_find(&problem, &at, &diag), SBP_STOPPED);
    assert_true(at < 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ridge),        cmocka_unit_test(test_bends),
        cmocka_unit_test(test_undetermined), cmocka_unit_test(test_beginning_outside),
        cmocka_unit_test(test_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
