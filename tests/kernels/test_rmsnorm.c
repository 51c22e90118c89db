/* Root mean square norms of tokens and of heads against their definition, by central differences,
 * and with the hidden dimension split over simulated ranks. */
#include <math.h>
#include <string.h>

#include "tests/kernels/check.h"

static const double EPSILON = 1e-5;

/* Rows of `width` features, the first `size` of which are normalised. */
struct problem {
    struct check *check;
    int64_t rows, width, size;
    double *x, *gain, *dy, *y;
};

static struct problem draw(struct check *check, int64_t width, int64_t size)
{
    struct problem p = {.check = check, .rows = check_size(check, 9), .width = width, .size = size};
    p.x = check_uniform(check, p.rows * width);
    p.gain = check_uniform(check, size);
    p.dy = check_uniform(check, p.rows * width);
    p.y = check_zeros(check, p.rows * width);
    return p;
}

static double *naive_forward(const struct problem *p)
{
    for (int64_t r = 0; r < p->rows; r++) {
        const double *x = p->x + r * p->width;
        long double squares = 0;
        for (int64_t i = 0; i < p->size; i++)
            squares += (long double)x[i] * (long double)x[i];
        const long double root = sqrtl(squares / (long double)p->size + (long double)EPSILON);
        for (int64_t i = 0; i < p->width; i++)
            p->y[r * p->width + i] =
                i < p->size ? (double)((long double)x[i] / root) * p->gain[i] : x[i];
    }
    return p->y;
}

static double evaluate(void *context)
{
    const struct problem *p = context;
    return check_dot(naive_forward(p), p->dy, p->rows * p->width);
}

struct result {
    double *y, *dx, *dgain;
};

static struct result make_result(const struct problem *p)
{
    const int64_t n = p->rows * p->width;
    return (struct result){check_zeros(p->check, n), check_zeros(p->check, n),
                           check_zeros(p->check, p->size)};
}

/* A second micro-batch like the first: gradients are twice those of one, bit by bit. */
static void expect_twice(struct check *check, const void *dgain, const double *once, int64_t n)
{
    double *twice = check_zeros(check, n);
    for (int64_t i = 0; i < n; i++)
        twice[i] = 2 * once[i];
    check_near(check, "accumulated dgain", dgain, twice, n, check_roundings(check, 0, 0, 2));
}

/* ---- of tokens ------------------------------------------------------------------------------ */

struct rank {
    struct sbp_digits digits;
    int64_t in;
    void *x, *gain, *dy, *sums, *backward_sums;
};

static struct rank make_rank(const struct problem *p, const struct sbp_digits *digits)
{
    struct check *check = p->check;
    struct rank rank = {.digits = *digits, .in = sbp_digits_local_size(digits)};
    const int64_t n = p->rows * rank.in;
    rank.x = check_reals(check, check_columns(check, p->x, p->rows, digits), n);
    rank.dy = check_reals(check, check_columns(check, p->dy, p->rows, digits), n);
    rank.gain = check_reals(check, check_columns(check, p->gain, 1, digits), rank.in);
    rank.sums = check_wide_blank(check, p->rows);
    rank.backward_sums = check_wide_blank(check, p->rows);
    return rank;
}

/* All ranks get the sum over the ranks, of the forward or the backward sums. */
static void all_reduce(const struct problem *p, struct rank *ranks, int64_t count, bool backward)
{
    const struct sbp_kernels *k = sbp_kernels_cpu(sbp_real_wide(p->check->kernels->real));
    void *total = check_wide_blank(p->check, p->rows);
    k->zero(total, p->rows);
    for (int64_t r = 0; r < count; r++)
        k->add(total, total, backward ? ranks[r].backward_sums : ranks[r].sums, p->rows);
    for (int64_t r = 0; r < count; r++)
        memcpy(backward ? ranks[r].backward_sums : ranks[r].sums, total,
               (size_t)(p->rows * k->real_bytes));
}

static void finish_rank(const struct problem *p, const struct rank *rank, struct result *result)
{
    struct check *check = p->check;
    const int64_t n = p->rows * rank->in;
    void *y = check_blank(check, n), *dx = check_blank(check, n);
    void *dgain = check_blank(check, rank->in);
    check->kernels->rmsnorm_forward(y, rank->x, rank->sums, rank->gain, p->rows, rank->in, p->size,
                                    EPSILON);
    check->kernels->rmsnorm_backward(dx, dgain, rank->dy, rank->x, rank->sums, rank->backward_sums,
                                     rank->gain, p->rows, rank->in, p->size, EPSILON, false);
    const double *once = check_doubles(check, dgain, rank->in);
    check_put_columns(result->y, check_doubles(check, y, n), p->rows, &rank->digits);
    check_put_columns(result->dx, check_doubles(check, dx, n), p->rows, &rank->digits);
    check_put_columns(result->dgain, once, 1, &rank->digits);
    check->kernels->rmsnorm_backward(dx, dgain, rank->dy, rank->x, rank->sums, rank->backward_sums,
                                     rank->gain, p->rows, rank->in, p->size, EPSILON, true);
    expect_twice(check, dgain, once, rank->in);
}

static struct result run(const struct problem *p, const struct check_split *split)
{
    const struct sbp_kernels *k = p->check->kernels;
    struct rank ranks[27];
    for (int64_t r = 0; r < split->ranks; r++) {
        const struct sbp_digits digits = check_rank_digits(split, r);
        ranks[r] = make_rank(p, &digits);
        k->rmsnorm_sums(ranks[r].sums, ranks[r].x, p->rows, ranks[r].in);
    }
    all_reduce(p, ranks, split->ranks, false);
    for (int64_t r = 0; r < split->ranks; r++)
        k->rmsnorm_backward_sums(ranks[r].backward_sums, ranks[r].dy, ranks[r].x, ranks[r].gain,
                                 p->rows, ranks[r].in);
    all_reduce(p, ranks, split->ranks, true);
    struct result result = make_result(p);
    for (int64_t r = 0; r < split->ranks; r++)
        finish_rank(p, &ranks[r], &result);
    return result;
}

static void expect(const char *what, const double *got, const double *want, int64_t n,
                   double tolerance, const struct check *check)
{
    struct check as_double = {.kernels = sbp_kernels_cpu(SBP_F64), .seed = check->seed};
    check_near(&as_double, what, got, want, n, tolerance);
}

static void expect_gradients(struct problem *p, const struct result *got)
{
    struct check *check = p->check;
    const int64_t n = p->rows * p->width;
    /* A row of few features may be tiny, and its factor large. */
    const double tolerance = check_roundings(check, p->size < 4 ? 2e-2 : 1e-4, 1e-7, 4);
    expect("y", got->y, naive_forward(p), n, check_tolerance(check, 1e-5, 1e-12), check);
    expect("dx", got->dx, check_gradient(check, evaluate, p, p->x, n), n, tolerance, check);
    expect("dgain", got->dgain, check_gradient(check, evaluate, p, p->gain, p->size), p->size,
           tolerance, check);
}

static void unsplit(struct check *check)
{
    const struct check_split one = {.whole = {.rest = check_size(check, 100)}, .ranks = 1};
    struct problem p = draw(check, one.whole.rest, one.whole.rest);
    const struct result got = run(&p, &one);
    expect_gradients(&p, &got);
}

static void split_hidden(struct check *check)
{
    const struct check_split split = check_split(check, 7);
    const struct check_split one = {.whole = {.rest = split.global}, .ranks = 1};
    const struct problem p = draw(check, split.global, split.global);
    const struct result got = run(&p, &split), want = run(&p, &one);
    const double tolerance = check_roundings(check, p.size < 4 ? 2e-2 : 2e-5, 1e-10, 2);
    expect("split y", got.y, want.y, p.rows * p.width, tolerance, check);
    expect("split dx", got.dx, want.dx, p.rows * p.width, tolerance, check);
    expect("split dgain", got.dgain, want.dgain, p.size, tolerance, check);
}

/* ---- of heads ------------------------------------------------------------------------------- */

/* Keys are normalised, values beside them pass. */
static void heads(struct check *check)
{
    const int64_t size = check_size(check, 20);
    struct problem p = draw(check, check_integer(check, 1, 2) * size, size);
    const int64_t n = p.rows * p.width;
    const void *x = check_reals(check, p.x, n), *gain = check_reals(check, p.gain, size);
    const void *dy = check_reals(check, p.dy, n);
    void *y = check_blank(check, n), *dx = check_blank(check, n);
    void *dgain = check_blank(check, size), *sums = check_wide_blank(check, p.rows);
    const struct sbp_kernels *k = check->kernels;
    k->head_norm_forward(y, sums, x, gain, p.rows, p.width, size, EPSILON);
    k->head_norm_backward(dx, dgain, dy, x, sums, gain, p.rows, p.width, size, EPSILON, false);
    struct result got = {check_doubles(check, y, n), check_doubles(check, dx, n),
                         check_doubles(check, dgain, size)};
    expect_gradients(&p, &got);
    k->head_norm_backward(dx, dgain, dy, x, sums, gain, p.rows, p.width, size, EPSILON, true);
    expect_twice(check, dgain, got.dgain, size);
}

/* A row of zeros has nothing to divide by: it stays so, and nothing is infinite. */
static void zero_row(struct check *check)
{
    const double zeros[] = {0, 0, 0, 0}, gain[] = {1, 2, 3, 4};
    const void *x = check_reals(check, zeros, 4);
    void *sums = check_wide_blank(check, 1), *y = check_blank(check, 4);
    check->kernels->rmsnorm_sums(sums, x, 1, 4);
    check->kernels->rmsnorm_forward(y, x, sums, check_reals(check, gain, 4), 1, 4, 4, EPSILON);
    check_equal(check, "y", y, zeros, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECK_TABLES(unsplit, 20),
        CHECK_TABLES(split_hidden, 40),
        CHECK_TABLES(heads, 20),
        CHECK_TABLES(zero_row, 1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
