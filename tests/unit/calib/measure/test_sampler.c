/* Repeating: when the samples of a cell are enough, and when its time ends. */
#include "base/math/stats.h"
#include "calib/measure/sampler.h"
#include "tests/support/unit.h"

/* One rank's communication: what is reduced over it stays. */
static enum sbp_status alone_reduce(struct sbp_comm *comm, int group, void *buffer, int64_t count,
                                    enum sbp_real real, enum sbp_comm_reduction reduction)
{
    (void)comm, (void)group, (void)buffer, (void)count, (void)real, (void)reduction;
    return SBP_OK;
}

static enum sbp_status alone_barrier(struct sbp_comm *comm)
{
    (void)comm;
    return SBP_OK;
}

struct series {
    const double *time_s;
    int length, at; /* over and over */
};

static enum sbp_status next_time(void *context, double *time_s, struct sbp_diag *diag)
{
    (void)diag;
    struct series *series = context;
    *time_s = series->time_s[series->at++ % series->length];
    return SBP_OK;
}

static void sample(const double *time_s, int length, double cap_s, struct sbp_samples *samples)
{
    static const struct sbp_comm_ops ops = {.all_reduce = alone_reduce, .barrier = alone_barrier};
    const struct sbp_sampler sampler = {.ops = &ops};
    struct series series = {time_s, length, 0};
    double own[SBP_MAX_REPEATS], took_s;
    assert_int_equal(
        sbp_sampler_repeat(&sampler, cap_s, next_time, &series, samples, own, &took_s, NULL),
        SBP_OK);
    assert_memory_equal(own, samples->time_s, (size_t)samples->count * sizeof *own);
}

static void test_steady_times_settle_at_once(void **state)
{
    (void)state;
    static const double steady[] = {8e-6, 1e-5}; /* farther apart than 5 % of any median */
    static const double equal[] = {1e-5};
    struct sbp_samples samples;
    sample(equal, 1, 1, &samples);
    assert_int_equal(samples.count, 7);
    assert_true(samples.settled);
    sample(steady, 2, 1, &samples);
    assert_int_equal(samples.count, SBP_MAX_REPEATS);
}

/* The interval of the median holds it in 95 % of all cases, whatever the distribution: chances by
 * counting every pattern of which side of the median each value falls on. */
static void test_seven_are_the_first_that_can_settle(void **state)
{
    (void)state;
    for (int n = 3; n <= 12; n++) {
        double values[12], low, high;
        for (int i = 0; i < n; i++)
            values[i] = i;
        const bool known = sbp_median_interval(values, n, 0.95, &low, &high);
        int inside = 0;
        for (int pattern = 0; pattern < 1 << n; pattern++) {
            int below = 0;
            for (int i = 0; i < n; i++)
                below += pattern >> i & 1;
            inside += below > (int)low && below <= (int)high;
        }
        assert_int_equal(known, n >= 6);
        if (known)
            assert_true(inside >= 0.95 * (1 << n));
    }
}

static void test_time_ends_what_does_not_settle(void **state)
{
    (void)state;
    static const double wild[] = {1, 2, 1, 3, 1, 5};
    struct sbp_samples samples;
    sample(wild, 6, 0, &samples); /* each says that it took over a second */
    assert_int_equal(samples.count, 3);
    assert_false(samples.settled);
    sample(wild, 6, 8.5, &samples);
    assert_in_range(samples.count, 3, SBP_MAX_REPEATS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steady_times_settle_at_once),
        cmocka_unit_test(test_seven_are_the_first_that_can_settle),
        cmocka_unit_test(test_time_ends_what_does_not_settle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
