/* Gates and rotary embedding on the GPU beside their CPU twins in double. */
#include "tests/gpu/device.h"

static void swiglu(struct check *check)
{
    DEVICE_BEGIN(d, check)
    const int64_t n = device_columns(check, 3000);
    double *x = check_uniform(check, 2 * n), *dy = check_uniform(check, n);
    double *y = check_zeros(check, n), *dx = check_zeros(check, 2 * n);
    for (int64_t i = 0; i < 2 * n; i++)
        x[i] *= 4; /* reaches both tails */
    d.twin->swiglu_forward(y, x, n);
    d.twin->swiglu_backward(dx, x, dy, n);
    const void *from = device_reals(&d, x, 2 * n);
    void *to = device_reals(&d, NULL, n), *back = device_reals(&d, NULL, 2 * n);
    d.kernels.swiglu_forward(&d.cuda, to, from, n);
    d.kernels.swiglu_backward(&d.cuda, back, from, device_reals(&d, dy, n), n);
    check_near(check, "y", to, y, n, check_tolerance(check, 2e-6, 0));
    check_near(check, "dx", back, dx, 2 * n, check_tolerance(check, 4e-6, 0));
}

/* A rank's rows, by their places in the whole sequence, forward and back. A head is one
 * or two times `size` wide, and `over` more. */
static void turn(struct check *check, int64_t heads, int64_t size, int64_t over)
{
    DEVICE_BEGIN(d, check)
    const struct check_split split = check_split(check, 300);
    const struct sbp_digits rows =
        check_rank_digits(&split, check_integer(check, 0, split.ranks - 1));
    const int64_t batch = check_size(check, 3);
    const int64_t width = check_integer(check, 1, 2) * size + over;
    const int64_t n = batch * split.local * heads * width;
    double *x = check_uniform(check, n);
    const bool back = check_integer(check, 0, 1) == 1;
    void *at = device_reals(&d, x, n);
    d.twin->rotary(x, &rows, batch, heads, width, size, back);
    d.kernels.rotary(&d.cuda, at, &rows, batch, heads, width, size, back);
    check_near(check, "x", at, x, n, check_tolerance(check, 1e-6, 0));
}

static void rotary(struct check *check)
{
    const bool is_wide = check_integer(check, 0, 1) == 1;
    const int64_t size = is_wide ? 16 * check_integer(check, 1, 3) : 2 * check_size(check, 20);
    turn(check, check_size(check, 3), size, 0);
}

/* Halves are whole chunks, but heads behind the first begin between two of them. */
static void rotary_of_odd_heads(struct check *check)
{
    turn(check, check_integer(check, 2, 3), 16, check_integer(check, 1, 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECK_TABLES(swiglu, 15),
        CHECK_TABLES(rotary, 24),
        CHECK_TABLES(rotary_of_odd_heads, 6),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
