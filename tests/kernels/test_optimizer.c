/* Optimizer steps against the textbook formulas in double, the sum of squares, and a step's scales.
 */
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
                               n, &u, NULL);
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
    check->kernels->fill_normal(x, &region, 63, 0, 0, 0, n, NULL);
    check->kernels->sum_squares(sum, x, n, 1);
    const double want = 63 * 63 * (double)n;
    check_wide_near(check, "sum", sum, &want, 1, 0);
}

/* ---- a step's scales ------------------------------------------------------------------------- */

static void *one(struct check *check, double value)
{
    return check_wide_reals(check, &value, 1);
}

/* A step whose gradients have the sum of squares, scaled. */
static void play(struct check *check, struct sbp_step_state *state, double squares, double clip,
                 bool scales)
{
    const struct sbp_update u = {.step = 1};
    check->kernels->step_begin(state, scales);
    const double wide = squares * state->loss_scale * state->loss_scale;
    const float single = (float)wide;
    const bool is_wide = check->kernels->wide_bytes == (int)sizeof wide;
    check->kernels->step_decide(state, is_wide ? (const void *)&wide : &single, clip, &u, scales);
}

static void norms_clip(struct check *check)
{
    struct sbp_step_state state = {0};
    check->kernels->step_begin(&state, false);
    assert_true(state.grad_norm == -1 && state.gradient_scale == 1 && state.loss_scale == 1);
    play(check, &state, 16, 0, false);
    assert_true(state.grad_norm == 4 && state.gradient_scale == 1 && !state.leaves_out);
    play(check, &state, 16, 0.5, false);
    assert_true(state.grad_norm == 4 && state.gradient_scale == 0.125);
    play(check, &state, 16, 8, false);
    assert_true(state.gradient_scale == 1);
    play(check, &state, (double)NAN, 8, false); /* is no step that a scale could mend */
    assert_true(state.leaves_out && !state.overflowed);
    play(check, &state, 16, 0, false);
    assert_true(!state.leaves_out && state.left_out == 0);
}

/* Halved by an overflow, down to 1, and doubled after 2000 good steps. */
static void scales_change(struct check *check)
{
    struct sbp_step_state state = {0};
    play(check, &state, 16, 0, true);
    assert_true(state.loss_scale == 0x1p16 && state.grad_norm == 4);
    play(check, &state, HUGE_VAL, 0, true);
    assert_true(state.loss_scale == 0x1p16 && state.overflowed && state.leaves_out);
    play(check, &state, 16, 0, true);
    assert_true(state.loss_scale == 0x1p15 && state.left_out == 1 && state.grad_norm == 4);
    for (int i = 0; i < 1999; i++)
        play(check, &state, 1, 0, true);
    assert_true(state.loss_scale == 0x1p15);
    play(check, &state, 1, 0, true);
    assert_true(state.loss_scale == 0x1p16 && state.good_steps == 0);
    for (int i = 0; i < 20; i++)
        play(check, &state, HUGE_VAL, 0, true);
    assert_true(state.loss_scale == 1 && state.left_out == 20);
}

/* A round ahead of all steps forms no norm: it is no good step. */
static void rounds_ahead_do_not_count(struct check *check)
{
    struct sbp_step_state state = {0};
    check->kernels->step_begin(&state, true);
    check->kernels->step_decide(&state, NULL, 0, &(struct sbp_update){0}, true);
    play(check, &state, 1, 0, true);
    assert_true(state.good_steps == 0 && state.loss_scale == 0x1p16);
    play(check, &state, 1, 0, true);
    assert_true(state.good_steps == 1);
}

/* Sums of a step, of the step ahead, and what each watched update is told. */
static void sums_go_on(struct check *check)
{
    const struct sbp_kernels *k = check->kernels;
    struct sbp_step_state state = {0};
    void *taken = check_wide_blank(check, 1);
    const double want = 5.5;
    k->step_begin(&state, false);
    k->step_add(&state.loss, one(check, 2));
    k->step_add(&state.loss, one(check, 3.5));
    k->step_add(&state.loss_ahead, one(check, 7));
    k->step_take(taken, &state.loss);
    check_wide_near(check, "taken", taken, &want, 1, 0);
    k->step_watch(&state, one(check, HUGE_VAL));
    assert_true(state.leaves_out && state.has_odd_gradient);
    k->step_watch(&state, one(check, 1));
    assert_true(!state.leaves_out && state.has_odd_gradient);
    k->step_begin(&state, false);
    assert_true(state.loss == 7 && state.loss_ahead == 0 && !state.has_odd_gradient);
}

/* An update takes the state's scales for its own, counts the steps that took place, and is left out
 * to the bit. */
static void updates_take_scales(struct check *check)
{
    struct sbp_update u = draw_update(check), own = u;
    const int64_t n = check_size(check, 50);
    const double *start = check_uniform(check, n), *g = check_uniform(check, n);
    void *gradient = check_reals(check, g, n), *unscaled = check_wide_blank(check, n);
    struct sbp_step_state state = {
        .loss_scale = 4, .gradient_scale = 0.25, .left_out = 3, .leaves_out = 0};
    void *w[2], *master[2], *first[2], *second[2];
    for (int i = 0; i < 2; i++) {
        w[i] = check_reals(check, start, n);
        master[i] = check_wide_reals(check, start, n);
        first[i] = check_wide_reals(check, g, n);
        second[i] = check_wide_reals(check, check_zeros(check, n), n);
    }
    own.step = 2;
    own.loss_scale = 4;
    own.gradient_scale = 0.25;
    u.step = 5;
    for (int i = 0; i < 2; i++) {
        state.leaves_out = i; /* the second changes nothing */
        check->kernels->update(w[0], master[0], gradient, unscaled, first[0], second[0], n, &u,
                               &state);
    }
    check->kernels->update(w[1], master[1], gradient, unscaled, first[1], second[1], n, &own, NULL);
    assert_memory_equal(w[0], w[1], (size_t)(n * check->kernels->real_bytes));
    assert_memory_equal(master[0], master[1], (size_t)(n * check->kernels->wide_bytes));
    assert_memory_equal(first[0], first[1], (size_t)(n * check->kernels->wide_bytes));
    assert_memory_equal(second[0], second[1], (size_t)(n * check->kernels->wide_bytes));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECK_TABLES(update, 60),
        CHECK_TABLES(sum_squares, 20),
        CHECK_TABLES(long_sum, 1),
        CHECK_TABLES(norms_clip, 1),
        CHECK_TABLES(scales_change, 1),
        CHECK_TABLES(rounds_ahead_do_not_count, 1),
        CHECK_TABLES(sums_go_on, 1),
        CHECK_TABLES(updates_take_scales, 30),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
