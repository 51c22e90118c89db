/* Optimizer steps against the textbook formulas in double, and the sum of squares. */
#include <math.h>

#include "tests/kernels/check.h"

/* One weight's state. */
struct weight {
    double w, first, second;
};

static void textbook_sgd(struct weight *at, double g, const struct sbp_update *u)
{
    g = g * u->gradient_scale + u->weight_decay * at->w;
    at->first = u->momentum * at->first + g;
    at->w -= u->learning_rate * at->first;
}

static void textbook_adam(struct weight *at, double g, const struct sbp_update *u)
{
    g *= u->gradient_scale;
    if (u->optimizer == SBP_ADAMW)
        at->w -= u->learning_rate * u->weight_decay * at->w;
    else
        g += u->weight_decay * at->w;
    at->first = u->beta1 * at->first + (1 - u->beta1) * g;
    at->second = u->beta2 * at->second + (1 - u->beta2) * g * g;
    const double mean = at->first / (1 - pow(u->beta1, (double)u->step));
    const double square = at->second / (1 - pow(u->beta2, (double)u->step));
    at->w -= u->learning_rate * mean / (sqrt(square) + u->epsilon);
}

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

static void update(struct check *check)
{
    struct sbp_update u = draw_update(check);
    const bool adam = u.optimizer != SBP_SGD;
    const int64_t n = check_size(check, 50);
    double *want = check_uniform(check, n);
    double *first = check_zeros(check, n), *second = check_zeros(check, n);
    const bool half = check->kernels->real_bytes == 2;
    void *w = check_reals(check, want, n);
    void *master = half ? check_wide_reals(check, want, n) : NULL;
    void *unscaled = half ? check_wide_blank(check, n) : NULL;
    void *moment = adam || u.momentum != 0 ? check_wide_reals(check, first, n) : NULL;
    void *square = adam ? check_wide_reals(check, second, n) : NULL;
    for (u.step = 1; u.step <= 4; u.step++) {
        const double *g = check_uniform(check, n);
        double *scaled = check_zeros(check, n);
        for (int64_t i = 0; i < n; i++)
            scaled[i] = g[i] * u.loss_scale;
        check->kernels->update(w, master, check_reals(check, scaled, n), unscaled, moment, square,
                               n, &u);
        for (int64_t i = 0; i < n; i++) {
            struct weight at = {want[i], first[i], second[i]};
            (adam ? textbook_adam : textbook_sgd)(&at, g[i], &u);
            want[i] = at.w;
            first[i] = at.first;
            second[i] = at.second;
        }
        const double tolerance = check_wide_tolerance(check, 3e-6, 1e-13);
        check_near(check, "w", w, want, n, check_tolerance(check, 3e-6, 1e-13));
        if (half)
            check_wide_near(check, "master copy", master, want, n, tolerance);
        if (moment)
            check_wide_near(check, "first moment", moment, first, n, tolerance);
        if (square)
            check_wide_near(check, "second moment", square, second, n, tolerance);
    }
}

static void sum_squares(struct check *check)
{
    const int64_t n = check->round == 0 ? 0 : check_size(check, 100);
    const double *x = check_whole(check, n), want = 0.25 * check_dot(x, x, n);
    void *sum = check_wide_blank(check, 1);
    check->kernels->sum_squares(sum, check_reals(check, x, n), n, 0.25);
    check_wide_near(check, "sum", sum, &want, 1, 0);
}

/* 63^2, 2^22 times: float sums, also a few side by side, would leave their whole numbers. */
static void long_sum(struct check *check)
{
    const int64_t n = INT64_C(1) << 22;
    const struct sbp_region region = {.dim = {{.rest = n}, {.rest = 1}, {.rest = 1}, {.rest = 1}}};
    void *x = check_blank(check, n), *sum = check_wide_blank(check, 1);
    check->kernels->fill_normal(x, &region, 63, 0, 0, 0, n);
    check->kernels->sum_squares(sum, x, n, 1);
    const double want = 63 * 63 * (double)n;
    check_wide_near(check, "sum", sum, &want, 1, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECK_TABLES(update, 60),
        CHECK_TABLES(sum_squares, 20),
        CHECK_TABLES(long_sum, 1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
