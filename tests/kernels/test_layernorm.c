/* Layer norm against its definition, by central differences, and with the hidden dimension split
 * over simulated ranks. */
#include <math.h>
#include <string.h>

#include "tests/kernels/check.h"

static const double EPSILON = 1e-5;

struct problem {
    struct check *check;
    int64_t tokens, hidden;
    double *x, *gain, *shift, *dy;
};

static struct problem draw(struct check *check, int64_t hidden)
{
    struct problem p = {check, check_size(check, 9), hidden, NULL, NULL, NULL, NULL};
    p.x = check_uniform(check, p.tokens * hidden);
    p.gain = check_uniform(check, hidden);
    p.shift = check_uniform(check, hidden);
    p.dy = check_uniform(check, p.tokens * hidden);
    return p;
}

/* The definition: two passes over each row. */
static double *naive_forward(const struct problem *p, double *y)
{
    for (int64_t t = 0; t < p->tokens; t++) {
        const double *x = p->x + t * p->hidden;
        long double mean = 0, variance = 0;
        for (int64_t i = 0; i < p->hidden; i++)
            mean += (long double)x[i] / (long double)p->hidden;
        for (int64_t i = 0; i < p->hidden; i++)
            variance +=
                ((long double)x[i] - mean) * ((long double)x[i] - mean) / (long double)p->hidden;
        const long double deviation = sqrtl(variance + (long double)EPSILON);
        for (int64_t i = 0; i < p->hidden; i++)
            y[t * p->hidden + i] =
                (double)(((long double)x[i] - mean) / deviation) * p->gain[i] + p->shift[i];
    }
    return y;
}

/* The outputs of all phases, run on the table of `check`, unsplit when there is one rank. */
struct result {
    double *y, *dx, *dgain, *dshift;
};

/* One rank's inputs and reduced sums. */
struct rank {
    struct sbp_digits digits;
    int64_t in;
    void *x, *gain, *shift, *dy, *sums, *backward_sums;
};

static struct rank make_rank(const struct problem *p, const struct sbp_digits *digits)
{
    struct check *check = p->check;
    struct rank rank = {.digits = *digits, .in = sbp_digits_local_size(digits)};
    const int64_t n = p->tokens * rank.in;
    rank.x = check_reals(check, check_columns(check, p->x, p->tokens, digits), n);
    rank.dy = check_reals(check, check_columns(check, p->dy, p->tokens, digits), n);
    rank.gain = check_reals(check, check_columns(check, p->gain, 1, digits), rank.in);
    rank.shift = check_reals(check, check_columns(check, p->shift, 1, digits), rank.in);
    rank.sums = check_wide_blank(check, 2 * p->tokens);
    rank.backward_sums = check_wide_blank(check, 2 * p->tokens);
    return rank;
}

/* All ranks get the sum over the ranks, of the forward or the backward sums. */
static void all_reduce(const struct problem *p, struct rank *ranks, int64_t count, bool backward)
{
    const struct sbp_kernels *k = sbp_kernels_cpu(sbp_real_wide(p->check->kernels->real));
    void *total = check_wide_blank(p->check, 2 * p->tokens);
    k->zero(total, 2 * p->tokens);
    for (int64_t r = 0; r < count; r++)
        k->add(total, total, backward ? ranks[r].backward_sums : ranks[r].sums, 2 * p->tokens);
    for (int64_t r = 0; r < count; r++)
        memcpy(backward ? ranks[r].backward_sums : ranks[r].sums, total,
               (size_t)(2 * p->tokens * k->real_bytes));
}

/* A second micro-batch like the first: gradients are twice those of one, bit by bit. */
static void check_adding(const struct problem *p, const struct rank *rank, void *dx, void *dgain,
                         void *dshift)
{
    struct check *check = p->check;
    double *want[] = {check_doubles(check, dgain, rank->in),
                      check_doubles(check, dshift, rank->in)};
    check->kernels->layernorm_backward(dx, dgain, dshift, rank->dy, rank->x, rank->sums,
                                       rank->backward_sums, rank->gain, p->tokens, rank->in,
                                       p->hidden, EPSILON, true);
    for (int64_t i = 0; i < rank->in; i++) {
        want[0][i] *= 2;
        want[1][i] *= 2;
    }
    const double tolerance = check_roundings(check, 0, 0, 2);
    check_near(check, "accumulated dgain", dgain, want[0], rank->in, tolerance);
    check_near(check, "accumulated dshift", dshift, want[1], rank->in, tolerance);
}

static void finish_rank(const struct problem *p, const struct rank *rank, struct result *result)
{
    struct check *check = p->check;
    const int64_t n = p->tokens * rank->in;
    void *y = check_blank(check, n), *dx = check_blank(check, n);
    void *dgain = check_blank(check, rank->in), *dshift = check_blank(check, rank->in);
    check->kernels->layernorm_forward(y, rank->x, rank->sums, rank->gain, rank->shift, p->tokens,
                                      rank->in, p->hidden, EPSILON);
    check->kernels->layernorm_backward(dx, dgain, dshift, rank->dy, rank->x, rank->sums,
                                       rank->backward_sums, rank->gain, p->tokens, rank->in,
                                       p->hidden, EPSILON, false);
    check_put_columns(result->y, check_doubles(check, y, n), p->tokens, &rank->digits);
    check_put_columns(result->dx, check_doubles(check, dx, n), p->tokens, &rank->digits);
    check_put_columns(result->dgain, check_doubles(check, dgain, rank->in), 1, &rank->digits);
    check_put_columns(result->dshift, check_doubles(check, dshift, rank->in), 1, &rank->digits);
    check_adding(p, rank, dx, dgain, dshift);
}

static struct result run(const struct problem *p, const struct check_split *split)
{
    struct check *check = p->check;
    struct rank ranks[27];
    const int64_t n = p->tokens * p->hidden;
    for (int64_t r = 0; r < split->ranks; r++) {
        const struct sbp_digits digits = check_rank_digits(split, r);
        ranks[r] = make_rank(p, &digits);
        check->kernels->layernorm_sums(ranks[r].sums, ranks[r].x, p->tokens, ranks[r].in);
    }
    all_reduce(p, ranks, split->ranks, false);
    for (int64_t r = 0; r < split->ranks; r++)
        check->kernels->layernorm_backward_sums(ranks[r].backward_sums, ranks[r].dy, ranks[r].x,
                                                ranks[r].sums, ranks[r].gain, p->tokens,
                                                ranks[r].in, p->hidden, EPSILON);
    all_reduce(p, ranks, split->ranks, true);
    struct result result = {check_zeros(check, n), check_zeros(check, n),
                            check_zeros(check, p->hidden), check_zeros(check, p->hidden)};
    for (int64_t r = 0; r < split->ranks; r++)
        finish_rank(p, &ranks[r], &result);
    return result;
}

static double evaluate(void *context)
{
    const struct problem *p = context;
    double y[1024];
    assert_true(p->tokens * p->hidden <= 1024);
    return check_dot(naive_forward(p, y), p->dy, p->tokens * p->hidden);
}

static void expect(const char *what, const double *got, const double *want, int64_t n,
                   double tolerance, const struct check *check)
{
    struct check as_double = {.kernels = sbp_kernels_cpu(SBP_F64), .seed = check->seed};
    check_near(&as_double, what, got, want, n, tolerance);
}

static void unsplit(struct check *check)
{
    const struct check_split one = {.whole = {.rest = check_size(check, 100)}, .ranks = 1};
    struct problem p = draw(check, one.whole.rest);
    const int64_t n = p.tokens * p.hidden;
    const struct result got = run(&p, &one);
    /* A hidden size of 1 or 2 may make the variance tiny, and rstd large. */
    const double tolerance = check_tolerance(check, p.hidden < 4 ? 2e-2 : 1e-4, 1e-7);
    expect("y", got.y, naive_forward(&p, check_zeros(check, n)), n,
           check_tolerance(check, p.hidden < 4 ? 1e-2 : 1e-5, 1e-11), check);
    expect("dx", got.dx, check_gradient(check, evaluate, &p, p.x, n), n, tolerance, check);
    expect("dgain", got.dgain, check_gradient(check, evaluate, &p, p.gain, p.hidden), p.hidden,
           tolerance, check);
    expect("dshift", got.dshift, check_gradient(check, evaluate, &p, p.shift, p.hidden), p.hidden,
           tolerance, check);
}

static void split_hidden(struct check *check)
{
    const struct check_split split = check_split(check, 7);
    const struct check_split one = {.whole = {.rest = split.global}, .ranks = 1};
    const struct problem p = draw(check, split.global);
    const struct result got = run(&p, &split), want = run(&p, &one);
    const double tolerance = check_roundings(check, p.hidden < 4 ? 2e-2 : 2e-5, 1e-10, 2);
    expect("split y", got.y, want.y, p.tokens * p.hidden, tolerance, check);
    expect("split dx", got.dx, want.dx, p.tokens * p.hidden, tolerance, check);
    expect("split dgain", got.dgain, want.dgain, p.hidden, tolerance, check);
    expect("split dshift", got.dshift, want.dshift, p.hidden, tolerance, check);
}

/* A constant row has no variance: the output is the shift, and nothing is infinite. */
static void constant_row(struct check *check)
{
    const double x[] = {3, 3, 3, 3}, gain[] = {1, 2, 3, 4}, shift[] = {5, 6, 7, 8};
    void *sums = check_wide_blank(check, 2), *y = check_blank(check, 4);
    check->kernels->layernorm_sums(sums, check_reals(check, x, 4), 1, 4);
    check->kernels->layernorm_forward(y, check_reals(check, x, 4), sums,
                                      check_reals(check, gain, 4), check_reals(check, shift, 4), 1,
                                      4, 4, EPSILON);
    check_equal(check, "y", y, shift, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECK_TABLES(unsplit, 20),
        CHECK_TABLES(split_hidden, 40),
        CHECK_TABLES(constant_row, 1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
