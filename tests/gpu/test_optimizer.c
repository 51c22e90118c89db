/* Optimizer steps, sums of squares and a step's scales on the GPU: beside the CPU twin in double,
 * and loss scales beside the rules that the device follows. */
#include <math.h>

#include "tests/gpu/device.h"

static struct sbp_update draw_update(struct check *check)
{
    return (struct sbp_update){.optimizer = (enum sbp_optimizer)check_integer(check, 0, 2),
                               .learning_rate = 0.0625,
                               .momentum = check_integer(check, 0, 1) ? 0.875 : 0,
                               .beta1 = 0.9,
                               .beta2 = 0.999,
                               .epsilon = 1e-8,
                               .weight_decay = check_integer(check, 0, 1) ? 0.125 : 0,
                               .gradient_scale = check_integer(check, 0, 1) ? 0.5 : 1,
                               .loss_scale = check->kernels->real_bytes == 2 ? 1024 : 1};
}

struct weights {
    double *w, *first, *second; /* the twin's */
    void *rounded, *master, *unscaled, *moment, *square;
    int64_t n;
};

static struct weights draw_weights(struct device *d, int64_t n, const struct sbp_update *u)
{
    struct check *check = d->check;
    const bool half = check->kernels->real_bytes == 2, adam = u->optimizer != SBP_SGD;
    struct weights at = {.w = check_uniform(check, n),
                         .first = check_zeros(check, n),
                         .second = check_zeros(check, n),
                         .n = n};
    at.rounded = device_reals(d, at.w, n);
    at.master = half ? device_wide(d, at.w, n) : NULL;
    at.unscaled = half && check_integer(check, 0, 3) > 0 ? device_wide(d, NULL, n) : NULL;
    at.moment = adam || u->momentum != 0 ? device_wide(d, at.first, n) : NULL;
    at.square = adam ? device_wide(d, at.second, n) : NULL;
    return at;
}

static void expect_weights(const struct check *check, const struct weights *at)
{
    check_near(check, "w", at->rounded, at->w, at->n, check_tolerance(check, 4e-6, 0));
    if (at->master != NULL)
        check_wide_near(check, "master copy", at->master, at->w, at->n, 4e-6);
    if (at->moment != NULL)
        check_wide_near(check, "first moment", at->moment, at->first, at->n, 4e-6);
    if (at->square != NULL)
        check_wide_near(check, "second moment", at->square, at->second, at->n, 4e-6);
}

/* The twin takes gradients without a loss scale. */
static void run_twin(const struct device *d, struct weights *at, const double *g,
                     struct sbp_update u)
{
    u.loss_scale = 1;
    d->twin->update(at->w, NULL, g, NULL, at->first, at->second, at->n, &u, NULL);
}

static void *scaled(struct device *d, const double *g, int64_t n, double scale)
{
    double *of = check_zeros(d->check, n);
    for (int64_t i = 0; i < n; i++)
        of[i] = g[i] * scale;
    return device_reals(d, of, n);
}

static void update(struct check *check)
{
    DEVICE_BEGIN(d, check)
    struct sbp_update u = draw_update(check);
    const bool is_long = check_integer(check, 0, 5) == 0;
    const int64_t n = is_long ? check_integer(check, 33000, 40000) : check_size(check, 900);
    struct weights at = draw_weights(&d, n, &u);
    for (u.step = 1; u.step <= 3; u.step++) {
        const double *g = check_uniform(check, n);
        void *gradient = scaled(&d, g, n, u.loss_scale);
        d.kernels.update(&d.cuda, at.rounded, at.master, gradient, at.unscaled, at.moment,
                         at.square, n, &u, NULL);
        run_twin(&d, &at, g, u);
        expect_weights(check, &at);
        if (at.unscaled != NULL)
            check_wide_near(check, "unscaled", at.unscaled, g, n, 0);
    }
}

/* Two steps whose scales, clipping and corrections are the device's; an overflow between them is
 * left out and does not count. */
static void device_step(struct check *check)
{
    DEVICE_BEGIN(d, check)
    struct sbp_update u = draw_update(check);
    const bool scales = check->kernels->real == SBP_REAL_FP16;
    const double clip = check_integer(check, 0, 1) ? 0.5 : 0;
    const int64_t n = check_size(check, 300);
    struct weights at = draw_weights(&d, n, &u);
    struct sbp_step_state *const step = (void *)check_bytes(check, sizeof *step);
    u.step = 1;
    for (int i = 0; i < (scales ? 3 : 2); i++) {
        struct sbp_update given = u;
        given.step = i + 1; /* the device counts those left out */
        double *g = check_uniform(check, n), norm = sqrt(check_dot(g, g, n));
        d.kernels.step_begin(&d.cuda, step, scales);
        const double expected = !scales ? 1 : i < 2 ? 0x1p16 : 0x1p15;
        assert_true(step->loss_scale == expected);
        for (int64_t j = 0; j < n; j++)
            g[j] *= 0x1p-4; /* of numbers that half precision holds when scaled */
        norm *= 0x1p-4;
        void *gradient = scaled(&d, g, n, step->loss_scale), *squares = device_wide(&d, NULL, 1);
        if (scales && i == 1)
            sbp_kernels_cpu(SBP_REAL_FP16)->scale(gradient, INFINITY, n);
        d.kernels.sum_squares(&d.cuda, &step->squares_at_hand, gradient, n, 1);
        d.kernels.step_add(&d.cuda, &step->squares, &step->squares_at_hand);
        d.kernels.step_take(&d.cuda, squares, &step->squares);
        d.kernels.step_decide(&d.cuda, step, squares, clip, &given, scales);
        d.kernels.update(&d.cuda, at.rounded, at.master, gradient, at.unscaled, at.moment,
                         at.square, n, &given, step);
        assert_int_equal(step->overflowed, scales && i == 1);
        if (!step->overflowed) {
            u.gradient_scale = clip > 0 && norm > clip ? clip / norm : 1;
            const double norms[] = {norm, u.gradient_scale};
            const float got[] = {(float)step->grad_norm, (float)step->gradient_scale};
            check_wide_near(check, "norm, scale", got, norms, 2, 4e-6);
            run_twin(&d, &at, g, u);
            u.step++;
        }
        expect_weights(check, &at);
    }
}

static void begin(struct device *d, struct sbp_step_state *step, bool overflowed)
{
    step->overflowed = overflowed;
    step->grad_norm = 1; /* as of a step that was decided */
    d->kernels.step_begin(&d->cuda, step, true);
}

/* Halved by an overflow, down to 1; doubled after 2000 good steps. */
static void loss_scales(struct check *check)
{
    DEVICE_BEGIN(d, check)
    struct sbp_step_state *const step = (void *)check_bytes(check, sizeof *step);
    begin(&d, step, false);
    for (int i = 0; i < 20; i++)
        begin(&d, step, true);
    assert_true(step->loss_scale == 1);
    for (int i = 0; i < 1999; i++)
        begin(&d, step, false);
    assert_true(step->loss_scale == 1);
    begin(&d, step, false);
    assert_true(step->loss_scale == 2 && step->good_steps == 0 && step->left_out == 20);
}

/* The loss goes on from the step ahead; an odd gradient's update is left out, and the next is not.
 */
static void sums_go_on(struct check *check)
{
    DEVICE_BEGIN(d, check)
    struct sbp_step_state *const step = (void *)check_bytes(check, sizeof *step);
    const double two = 2, huge = INFINITY;
    void *value = device_wide(&d, &two, 1), *odd = device_wide(&d, &huge, 1);
    d.kernels.step_begin(&d.cuda, step, true);
    d.kernels.step_decide(&d.cuda, step, NULL, 1, &(struct sbp_update){.step = 0}, true);
    assert_true(isfinite(step->first_unbias) && isfinite(step->second_unbias));
    d.kernels.step_begin(&d.cuda, step, true); /* behind a round ahead, which is no good step */
    assert_true(step->good_steps == 0);
    for (int i = 0; i < 3; i++)
        d.kernels.step_add(&d.cuda, &step->loss_ahead, value);
    d.kernels.step_decide(&d.cuda, step, NULL, 1, &(struct sbp_update){.step = 1}, false);
    assert_true(step->grad_norm == -1 && step->gradient_scale == 1 && !step->leaves_out);
    d.kernels.step_watch(&d.cuda, step, odd);
    assert_true(step->leaves_out && step->has_odd_gradient);
    d.kernels.step_watch(&d.cuda, step, value);
    assert_true(!step->leaves_out && step->has_odd_gradient);
    d.kernels.step_begin(&d.cuda, step, false);
    assert_true(step->loss == 6 && step->loss_ahead == 0 && !step->has_odd_gradient);
}

static void sum_squares(struct check *check)
{
    DEVICE_BEGIN(d, check)
    const int64_t n = check->round == 0  ? 0
                      : check->round < 4 ? check_integer(check, 9000, 40000)
                                         : check_size(check, 3000);
    const double *x = check_whole(check, n), want = 0.25 * check_dot(x, x, n);
    void *sum = device_wide(&d, NULL, 1);
    d.kernels.sum_squares(&d.cuda, sum, device_reals(&d, x, n), n, 0.25);
    check_wide_near(check, "sum", sum, &want, 1, 0);
}

/* The order of the sum is of the size alone. */
static void bits(struct check *check)
{
    DEVICE_BEGIN(d, check)
    const int64_t n = check_integer(check, 1, 30000);
    const void *x = device_reals(&d, check_uniform(check, n), n);
    float *const sum = (void *)check_bytes(check, 2 * sizeof *sum);
    d.kernels.sum_squares(&d.cuda, &sum[0], x, n, 0.3);
    d.cuda.multiprocessors += 3;
    device_order(check->seed + 1);
    d.kernels.sum_squares(&d.cuda, &sum[1], x, n, 0.3);
    device_same(&d, "sum", &sum[1], &sum[0], (int64_t)sizeof sum[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECK_TABLES(update, 30),     CHECK_TABLES(device_step, 15), CHECK_TABLES(loss_scales, 1),
        CHECK_TABLES(sum_squares, 8), CHECK_TABLES(bits, 3),         CHECK_TABLES(sums_go_on, 1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
