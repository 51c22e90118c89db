/* Root mean square norms on the GPU beside their CPU twins in double: of tokens, of heads. */
#include <math.h>

#include "tests/gpu/device.h"

static const double EPSILON = 1e-5;

/* Rows of `width` features, of which the first `in` are normalised. */
struct problem {
    int64_t rows, width, in;
    double *x, *gain, *dy;
    double *sums, *backward_sums, *y, *dx,
        *dgain;     /* the twin's; dgain begins as what is added to */
    double *before; /* of dgain */
    bool adds;
};

static struct problem draw(struct check *check, int64_t rows, int64_t width, int64_t in)
{
    const int64_t n = rows * width;
    struct problem p = {.rows = rows,
                        .width = width,
                        .in = in,
                        .x = check_uniform(check, n),
                        .gain = check_uniform(check, in),
                        .dy = check_uniform(check, n),
                        .sums = check_zeros(check, rows),
                        .backward_sums = check_zeros(check, rows),
                        .y = check_zeros(check, n),
                        .dx = check_zeros(check, n),
                        .dgain = check_uniform(check, in),
                        .before = check_zeros(check, in),
                        .adds = check_integer(check, 0, 1) == 1};
    for (int64_t i = 0; i < in; i++)
        p.before[i] = p.adds ? p.dgain[i] : (double)NAN;
    return p;
}

struct outputs {
    void *sums, *backward_sums, *y, *dx, *dgain;
};

static struct outputs make_outputs(struct device *d, const struct problem *p)
{
    const int64_t n = p->rows * p->width;
    return (struct outputs){device_wide(d, NULL, p->rows), device_wide(d, NULL, p->rows),
                            device_reals(d, NULL, n), device_reals(d, NULL, n),
                            device_reals(d, p->before, p->in)};
}

static void expect(const struct device *d, const struct problem *p, const struct outputs *o)
{
    const struct check *check = d->check;
    const int64_t n = p->rows * p->width;
    check_near(check, "y", o->y, p->y, n, check_tolerance(check, 1e-5, 0));
    check_near(check, "dx", o->dx, p->dx, n, check_tolerance(check, 5e-5, 0));
    check_near(check, "dgain", o->dgain, p->dgain, p->in, check_tolerance(check, 2e-5, 0));
}

/* `hidden`: of which the features here are some; sums are then taken as those of all. */
static void tokens(struct check *check, struct device *d, int64_t count, int64_t in, int64_t hidden)
{
    struct problem p = draw(check, count, in, in);
    const int64_t n = count * in;
    const struct sbp_cuda_kernels *k = &d->kernels;
    const struct outputs o = make_outputs(d, &p);
    const void *x = device_reals(d, p.x, n), *gain = device_reals(d, p.gain, in);
    const void *dy = device_reals(d, p.dy, n);
    d->twin->rmsnorm_sums(p.sums, p.x, count, in);
    d->twin->rmsnorm_forward(p.y, p.x, p.sums, p.gain, count, in, hidden, EPSILON);
    d->twin->rmsnorm_backward_sums(p.backward_sums, p.dy, p.x, p.gain, count, in);
    d->twin->rmsnorm_backward(p.dx, p.dgain, p.dy, p.x, p.sums, p.backward_sums, p.gain, count, in,
                              hidden, EPSILON, p.adds);
    k->rmsnorm_sums(&d->cuda, o.sums, x, count, in);
    k->rmsnorm_forward(&d->cuda, o.y, x, o.sums, gain, count, in, hidden, EPSILON);
    k->rmsnorm_backward_sums(&d->cuda, o.backward_sums, dy, x, gain, count, in);
    k->rmsnorm_backward(&d->cuda, o.dx, o.dgain, dy, x, o.sums, o.backward_sums, gain, count, in,
                        hidden, EPSILON, p.adds);
    check_wide_near(check, "sums", o.sums, p.sums, count, 4e-6);
    check_wide_near(check, "backward sums", o.backward_sums, p.backward_sums, count, 2e-5);
    expect(d, &p, &o);
    if (hidden != in)
        return;
    const struct outputs once = {.y = o.y, .dx = device_reals(d, NULL, n), .dgain = o.dgain};
    k->rmsnorm_backward(&d->cuda, once.dx, NULL, dy, x, o.sums, NULL, gain, count, in, hidden,
                        EPSILON, p.adds); /* not wanted, and at once */
    expect(d, &p, &once);
}

static void any_shape(struct check *check)
{
    DEVICE_BEGIN(d, check)
    const int64_t in = device_columns(check, 700);
    tokens(check, &d, check_size(check, 9), in, in * check_integer(check, 1, 3));
}

/* Rows longer than a block takes in one turn, and more tokens than a part of the sums has. */
static void large(struct check *check)
{
    DEVICE_BEGIN(d, check)
    tokens(check, &d, 2, 5003, 5003);
    tokens(check, &d, 301, 9, 9);
}

static void heads(struct check *check)
{
    DEVICE_BEGIN(d, check)
    const int64_t in = device_columns(check, 100), count = check_size(check, 40);
    struct problem p = draw(check, count, check_integer(check, 1, 2) * in, in);
    const int64_t n = count * p.width;
    const struct outputs o = make_outputs(&d, &p);
    const void *x = device_reals(&d, p.x, n), *gain = device_reals(&d, p.gain, in);
    d.twin->head_norm_forward(p.y, p.sums, p.x, p.gain, count, p.width, in, EPSILON);
    d.twin->head_norm_backward(p.dx, p.dgain, p.dy, p.x, p.sums, p.gain, count, p.width, in,
                               EPSILON, p.adds);
    d.kernels.head_norm_forward(&d.cuda, o.y, o.sums, x, gain, count, p.width, in, EPSILON);
    d.kernels.head_norm_backward(&d.cuda, o.dx, o.dgain, device_reals(&d, p.dy, n), x, o.sums, gain,
                                 count, p.width, in, EPSILON, p.adds);
    check_wide_near(check, "sums", o.sums, p.sums, count, 4e-6);
    expect(&d, &p, &o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECK_TABLES(any_shape, 15),
        CHECK_TABLES(large, 1),
        CHECK_TABLES(heads, 15),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
