/* Layer norm on the GPU beside its CPU twin in double: phases, and both at once. */
#include <math.h>

#include "tests/gpu/device.h"

static const double EPSILON = 1e-5;

struct problem {
    int64_t tokens, hidden;
    double *x, *gain, *shift, *dy;
    double *sums, *backward_sums, *y, *dx, *dgain, *dshift; /* the twin's */
    bool adds;
};

static void run_twin(const struct device *d, struct problem *p)
{
    const struct sbp_kernels *k = d->twin;
    k->layernorm_sums(p->sums, p->x, p->tokens, p->hidden);
    k->layernorm_forward(p->y, p->x, p->sums, p->gain, p->shift, p->tokens, p->hidden, p->hidden,
                         EPSILON);
    k->layernorm_backward_sums(p->backward_sums, p->dy, p->x, p->sums, p->gain, p->tokens,
                               p->hidden, p->hidden, EPSILON);
    k->layernorm_backward(p->dx, p->dgain, p->dshift, p->dy, p->x, p->sums, p->backward_sums,
                          p->gain, p->tokens, p->hidden, p->hidden, EPSILON, p->adds);
}

/* dgain and dshift begin as what is added to. */
static struct problem draw(struct check *check, const struct device *d, int64_t tokens,
                           int64_t hidden)
{
    const int64_t n = tokens * hidden;
    struct problem p = {.tokens = tokens,
                        .hidden = hidden,
                        .x = check_uniform(check, n),
                        .gain = check_uniform(check, hidden),
                        .shift = check_uniform(check, hidden),
                        .dy = check_uniform(check, n),
                        .sums = check_zeros(check, 2 * tokens),
                        .backward_sums = check_zeros(check, 2 * tokens),
                        .y = check_zeros(check, n),
                        .dx = check_zeros(check, n),
                        .dgain = check_uniform(check, hidden),
                        .dshift = check_uniform(check, hidden),
                        .adds = check_integer(check, 0, 1) == 1};
    (void)d;
    return p;
}

struct outputs {
    void *sums, *backward_sums, *y, *dx, *dgain, *dshift;
};

static void expect(const struct device *d, const struct problem *p, const struct outputs *o)
{
    const struct check *check = d->check;
    const int64_t n = p->tokens * p->hidden;
    check_wide_near(check, "sums", o->sums, p->sums, 2 * p->tokens, 4e-6);
    check_near(check, "y", o->y, p->y, n, check_tolerance(check, 1e-5, 0));
    check_near(check, "dx", o->dx, p->dx, n, check_tolerance(check, 2e-5, 0));
    check_near(check, "dgain", o->dgain, p->dgain, p->hidden, check_tolerance(check, 2e-5, 0));
    check_near(check, "dshift", o->dshift, p->dshift, p->hidden, check_tolerance(check, 4e-6, 0));
}

static void phases(struct device *d, const struct problem *p, const double *dgain,
                   const double *dshift)
{
    const struct sbp_cuda_kernels *k = &d->kernels;
    const int64_t n = p->tokens * p->hidden, tokens = p->tokens, hidden = p->hidden;
    const struct outputs o = {device_wide(d, NULL, 2 * tokens), device_wide(d, NULL, 2 * tokens),
                              device_reals(d, NULL, n),         device_reals(d, NULL, n),
                              device_reals(d, dgain, hidden),   device_reals(d, dshift, hidden)};
    const void *x = device_reals(d, p->x, n), *gain = device_reals(d, p->gain, hidden);
    const void *dy = device_reals(d, p->dy, n);
    k->layernorm_sums(&d->cuda, o.sums, x, tokens, hidden);
    k->layernorm_forward(&d->cuda, o.y, x, o.sums, gain, device_reals(d, p->shift, hidden), tokens,
                         hidden, hidden, EPSILON);
    k->layernorm_backward_sums(&d->cuda, o.backward_sums, dy, x, o.sums, gain, tokens, hidden,
                               hidden, EPSILON);
    k->layernorm_backward(&d->cuda, o.dx, o.dgain, o.dshift, dy, x, o.sums, o.backward_sums, gain,
                          tokens, hidden, hidden, EPSILON, p->adds);
    /* Not wanted. */
    k->layernorm_backward(&d->cuda, o.dx, NULL, NULL, dy, x, o.sums, o.backward_sums, gain, tokens,
                          hidden, hidden, EPSILON, p->adds);
    expect(d, p, &o);
    check_wide_near(d->check, "backward sums", o.backward_sums, p->backward_sums, 2 * tokens, 2e-5);
}

static void whole(struct device *d, const struct problem *p, const double *dgain,
                  const double *dshift)
{
    const struct sbp_cuda_kernels *k = &d->kernels;
    const int64_t n = p->tokens * p->hidden, tokens = p->tokens, hidden = p->hidden;
    const struct outputs o = {.sums = device_wide(d, NULL, 2 * tokens),
                              .y = device_reals(d, NULL, n),
                              .dx = device_reals(d, NULL, n),
                              .dgain = device_reals(d, dgain, hidden),
                              .dshift = device_reals(d, dshift, hidden)};
    const void *x = device_reals(d, p->x, n), *gain = device_reals(d, p->gain, hidden);
    k->layernorm_whole_forward(&d->cuda, o.y, o.sums, x, gain, device_reals(d, p->shift, hidden),
                               tokens, hidden, EPSILON);
    k->layernorm_whole_backward(&d->cuda, o.dx, o.dgain, o.dshift, device_reals(d, p->dy, n), x,
                                o.sums, gain, tokens, hidden, EPSILON, p->adds);
    expect(d, p, &o);
}

static void compare(struct check *check, struct device *d, int64_t tokens, int64_t hidden)
{
    struct problem p = draw(check, d, tokens, hidden);
    double *dgain = check_zeros(check, hidden), *dshift = check_zeros(check, hidden);
    for (int64_t i = 0; i < hidden; i++) {
        dgain[i] = p.adds ? p.dgain[i] : (double)NAN;
        dshift[i] = p.adds ? p.dshift[i] : (double)NAN;
    }
    run_twin(d, &p);
    phases(d, &p, dgain, dshift);
    whole(d, &p, dgain, dshift);
}

static void any_shape(struct check *check)
{
    DEVICE_BEGIN(d, check)
    compare(check, &d, check_size(check, 9), device_columns(check, 700));
}

/* Rows longer than a block takes in one turn, and more tokens than a part of the sums has. */
static void large(struct check *check)
{
    DEVICE_BEGIN(d, check)
    compare(check, &d, 2, 5003);
    compare(check, &d, 301, 9);
}

/* Some features of a hidden dimension, in the phases. */
static void part_of_the_features(struct check *check)
{
    DEVICE_BEGIN(d, check)
    const int64_t tokens = check_size(check, 5), in = device_columns(check, 60), n = tokens * in;
    const int64_t hidden = in * check_integer(check, 2, 4);
    const double *x = check_uniform(check, n), *gain = check_uniform(check, in);
    double *sums = check_zeros(check, 2 * tokens), *y = check_zeros(check, n);
    double *backward_sums = check_zeros(check, 2 * tokens);
    for (int64_t t = 0; t < tokens; t++)
        sums[2 * t + 1] = 1.5 * (double)hidden; /* of all ranks */
    d.twin->layernorm_forward(y, x, sums, gain, gain, tokens, in, hidden, EPSILON);
    d.twin->layernorm_backward_sums(backward_sums, x, x, sums, gain, tokens, in, hidden, EPSILON);
    const void *at = device_reals(&d, x, n), *gains = device_reals(&d, gain, in);
    const void *given = device_wide(&d, sums, 2 * tokens);
    void *to = device_reals(&d, NULL, n), *of = device_wide(&d, NULL, 2 * tokens);
    d.kernels.layernorm_forward(&d.cuda, to, at, given, gains, gains, tokens, in, hidden, EPSILON);
    d.kernels.layernorm_backward_sums(&d.cuda, of, at, at, given, gains, tokens, in, hidden,
                                      EPSILON);
    check_near(check, "y", to, y, n, check_tolerance(check, 1e-5, 0));
    check_wide_near(check, "backward sums", of, backward_sums, 2 * tokens, 2e-5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECK_TABLES(any_shape, 15),
        CHECK_TABLES(large, 1),
        CHECK_TABLES(part_of_the_features, 5),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
