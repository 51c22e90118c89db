/* Element-wise operators on the GPU beside their CPU twins in double; conversions and dropout masks
 * bit for bit. */
#include <math.h>
#include <string.h>

#include "tests/gpu/device.h"

/* Some loops have several turns on the few multiprocessors of a round. */
static int64_t draw_size(struct check *check)
{
    return check_integer(check, 0, 3) == 0 ? check_integer(check, 33000, 50000)
                                           : check_integer(check, 0, 1000);
}

/* Values to 8, where gelu has ended. */
static double *draw_wide(struct check *check, int64_t n)
{
    double *values = check_uniform(check, n);
    for (int64_t i = 0; i < n; i++)
        values[i] *= 4;
    return values;
}

static void unary(struct check *check)
{
    DEVICE_BEGIN(d, check)
    const int64_t n = draw_size(check);
    const double *x = draw_wide(check, n);
    double *want = check_zeros(check, n);
    const void *from = device_reals(&d, x, n);
    void *y = device_reals(&d, NULL, n);
    d.kernels.relu_forward(&d.cuda, y, from, n);
    d.twin->relu_forward(want, x, n);
    check_equal(check, "relu", y, want, n);
    d.kernels.gelu_forward(&d.cuda, y, from, n);
    d.twin->gelu_forward(want, x, n);
    check_near(check, "gelu", y, want, n, check_tolerance(check, 1e-6, 0));
    d.kernels.tanh_forward(&d.cuda, y, from, n);
    d.twin->tanh_forward(want, x, n);
    check_near(check, "tanh", y, want, n, check_tolerance(check, 1e-6, 0));
    y = device_reals(&d, x, n);
    memcpy(want, x, (size_t)n * sizeof *want);
    d.kernels.scale(&d.cuda, y, -0.375, n);
    d.twin->scale(want, -0.375, n);
    check_equal(check, "scaled", y, want, n);
    d.kernels.absolute(&d.cuda, y, n);
    d.twin->absolute(want, n);
    check_equal(check, "absolute", y, want, n);
    d.kernels.zero(&d.cuda, y, n);
    check_equal(check, "zero", y, check_zeros(check, n), n);
}

static void pairs(struct check *check)
{
    DEVICE_BEGIN(d, check)
    const int64_t n = draw_size(check);
    const double *x = draw_wide(check, n), *dy = check_uniform(check, n);
    double *want = check_zeros(check, n);
    const void *at = device_reals(&d, x, n);
    void *to = device_reals(&d, dy, n); /* in place */
    d.kernels.relu_backward(&d.cuda, to, at, to, n);
    d.twin->relu_backward(want, x, dy, n);
    check_equal(check, "relu dx", to, want, n);
    to = device_reals(&d, dy, n);
    d.kernels.gelu_backward(&d.cuda, to, at, to, n);
    d.twin->gelu_backward(want, x, dy, n);
    check_near(check, "gelu dx", to, want, n, check_tolerance(check, 2e-6, 0));
    to = device_reals(&d, dy, n);
    d.kernels.tanh_backward(&d.cuda, to, at, to, n); /* any output serves */
    d.twin->tanh_backward(want, x, dy, n);
    check_near(check, "tanh dx", to, want, n, check_tolerance(check, 2e-6, 0));
    to = device_reals(&d, dy, n);
    d.kernels.add(&d.cuda, to, at, to, n);
    d.twin->add(want, x, dy, n);
    check_equal(check, "sum", to, want, n);
    d.kernels.add(&d.cuda, to, at, at, n);
    d.twin->add(want, x, x, n);
    check_equal(check, "twice", to, want, n);
}

/* Also numbers that 16 bits do not hold, ties among them. */
static void conversions(struct check *check)
{
    DEVICE_BEGIN(d, check)
    const int64_t n = draw_size(check);
    double *x = check_uniform(check, n);
    for (int64_t i = 0; i < n; i++)
        x[i] *= ldexp(1, (int)check_integer(check, -40, 20)) * (1 + ldexp((double)(i % 3), -9));
    const struct sbp_kernels *cpu = check->kernels;
    void *wide = device_wide(&d, x, n), *reals = device_reals(&d, NULL, n);
    void *want = check_blank(check, n), *back = device_wide(&d, NULL, n);
    void *want_back = check_wide_blank(check, n);
    d.kernels.from_wide(&d.cuda, reals, wide, n);
    cpu->from_wide(want, wide, n);
    device_same(&d, "rounded", reals, want, n * cpu->real_bytes);
    d.kernels.to_wide(&d.cuda, back, reals, n);
    cpu->to_wide(want_back, want, n);
    device_same(&d, "wide", back, want_back, n * cpu->wide_bytes);
}

static void bias_gelu(struct check *check)
{
    DEVICE_BEGIN(d, check)
    const int64_t tokens = check_size(check, 40), out = device_columns(check, 600);
    const int64_t n = tokens * out;
    const bool adds = check_integer(check, 0, 1) == 1;
    const double *bias = check_uniform(check, out), *dy = check_uniform(check, n);
    double *x = check_whole(check, n), *y = check_zeros(check, n), *dx = check_zeros(check, n);
    double *dbias = check_uniform(check, out);
    void *at = device_reals(&d, x, n), *got = device_reals(&d, NULL, n);
    void *given = device_reals(&d, adds ? dbias : NULL, out);
    for (int64_t i = 0; i < n; i++)
        x[i] += bias[i % out];
    for (int64_t i = 0; i < out && !adds; i++)
        dbias[i] = 0;
    d.twin->gelu_forward(y, x, n);
    d.twin->gelu_backward(dx, x, dy, n);
    for (int64_t i = 0; i < n; i++)
        dbias[i % out] += dx[i];
    d.kernels.bias_gelu_forward(&d.cuda, got, at, device_reals(&d, bias, out), tokens, out);
    check_equal(check, "x with bias", at, x, n);
    check_near(check, "y", got, y, n, check_tolerance(check, 1e-6, 0));
    void *gradient = device_reals(&d, dy, n);
    d.kernels.bias_gelu_backward(&d.cuda, gradient, given, at, gradient, tokens, out, adds);
    check_near(check, "dx", gradient, dx, n, check_tolerance(check, 2e-6, 0));
    check_near(check, "dbias", given, dbias, out,
               check_roundings(check, 2e-5, 0, 2 + (double)tokens));
}

/* A block of a tensor of up to four dimensions, of which some are split. */
static struct sbp_region draw_region(struct check *check)
{
    struct sbp_region region = {.first = check_integer(check, 0, 3)};
    const bool is_long = check_integer(check, 0, 1) == 1;
    for (int i = 0; i < SBP_MAX_DIMS; i++) {
        const struct check_split split = check_split(check, i == 3 && is_long ? 64 : 4);
        region.dim[i] = check_rank_digits(&split, check_integer(check, 0, split.ranks - 1));
    }
    if (is_long)
        region.dim[3].rest *= 8;
    return region;
}

static void dropout(struct check *check)
{
    DEVICE_BEGIN(d, check)
    struct sbp_region region;
    do
        region = draw_region(check);
    while (sbp_region_elements(&region) > 20000);
    const int64_t n = sbp_region_elements(&region);
    const double p = (double)check_integer(check, 0, 9) / 10, *x = check_uniform(check, n);
    double *want = check_zeros(check, n);
    uint8_t *mask = check_bytes(check, n), *want_mask = check_bytes(check, n);
    void *y = device_reals(&d, NULL, n);
    memset(mask, 7, (size_t)n);
    d.kernels.dropout_forward(&d.cuda, y, mask, device_reals(&d, x, n), &region, p, check->seed, 3);
    d.twin->dropout_forward(want, want_mask, x, &region, p, check->seed, 3);
    device_same(&d, "mask", mask, want_mask, n);
    check_near(check, "y", y, want, n, check_tolerance(check, 1e-6, 0));
    d.kernels.dropout_backward(&d.cuda, y, mask, y, n, p); /* in place */
    d.twin->dropout_backward(want, want_mask, want, n, p);
    check_near(check, "dx", y, want, n, check_roundings(check, 2e-6, 0, 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECK_TABLES(unary, 12),    CHECK_TABLES(pairs, 12),   CHECK_TABLES(conversions, 12),
        CHECK_TABLES(bias_gelu, 8), CHECK_TABLES(dropout, 30),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
