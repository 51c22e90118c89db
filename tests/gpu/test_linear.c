/* Biases and their gradients on the GPU, of whole numbers: exact. */
#include "tests/gpu/device.h"

static void compare(struct device *d, int64_t tokens, int64_t out)
{
    struct check *check = d->check;
    const int64_t n = tokens * out;
    const bool adds = check_integer(check, 0, 1) == 1;
    const double *x = check_whole(check, n), *bias = check_whole(check, out);
    double *sums = check_whole(check, out), *y = check_zeros(check, n);
    void *at = device_reals(d, x, n), *to = device_reals(d, adds ? sums : NULL, out);
    for (int64_t i = 0; i < out && !adds; i++)
        sums[i] = 0;
    for (int64_t i = 0; i < n; i++) {
        sums[i % out] += x[i];
        y[i] = x[i] + bias[i % out];
    }
    d->kernels.column_sums(&d->cuda, to, at, tokens, out, adds);
    d->kernels.add_bias(&d->cuda, at, device_reals(d, bias, out), tokens, out);
    check_equal(check, "sums", to, sums, out);
    check_equal(check, "y", at, y, n);
}

static void any_shape(struct check *check)
{
    DEVICE_BEGIN(d, check)
    compare(&d, check_integer(check, 0, 60), device_columns(check, 600));
}

/* Several parts of rows. */
static void large(struct check *check)
{
    DEVICE_BEGIN(d, check)
    compare(&d, check_integer(check, 256, 700), device_columns(check, 40));
}

/* The order of sums is of the sizes alone. */
static void bits(struct check *check)
{
    DEVICE_BEGIN(d, check)
    const int64_t tokens = check_integer(check, 1, 400), out = device_columns(check, 60);
    const void *x = device_reals(&d, check_uniform(check, tokens * out), tokens * out);
    void *sums = check_blank(check, out), *again = check_blank(check, out);
    d.kernels.column_sums(&d.cuda, sums, x, tokens, out, false);
    d.cuda.multiprocessors += 3;
    device_order(check->seed + 1);
    d.kernels.column_sums(&d.cuda, again, x, tokens, out, false);
    device_same(&d, "sums", again, sums, out * check->kernels->real_bytes);
}

/* Sums in single precision are stored, or added to what is there. */
static void put_sums(struct check *check)
{
    DEVICE_BEGIN(d, check)
    const int64_t n = device_columns(check, 3000);
    const double *sums = check_uniform(check, n);
    double *want = check_uniform(check, n);
    const bool adds = check_integer(check, 0, 1) == 1;
    void *to = device_reals(&d, adds ? want : NULL, n);
    for (int64_t i = 0; i < n; i++)
        want[i] = sums[i] + (adds ? want[i] : 0);
    d.kernels.put_sums(&d.cuda, to, device_wide(&d, sums, n), n, adds);
    check_equal(check, "sums", to, want, n);
}

/* More columns than scratch has sums of: refused, as a launch is. */
static void too_wide(struct check *check)
{
    DEVICE_BEGIN(d, check)
    d.kernels.column_sums(&d.cuda, NULL, NULL, 1, SBP_CUDA_SCRATCH_BYTES / 4 + 1, false);
    assert_int_equal(d.cuda.error, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECK_TABLES(any_shape, 12), CHECK_TABLES(large, 3),    CHECK_TABLES(bits, 4),
        CHECK_TABLES(put_sums, 8),   CHECK_TABLES(too_wide, 1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
