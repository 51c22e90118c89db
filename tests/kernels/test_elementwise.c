/* Element-wise operators against their formulas in long double, gradients by central
 * differences. */
#include <math.h>

#include "tests/kernels/check.h"

static long double gelu(long double x)
{
    const long double root = 0.79788456080286535588L; /* sqrt(2/pi) */
    return x / 2 * (1 + tanhl(root * (x + 0.044715L * x * x * x)));
}

static void relu(struct check *check)
{
    const int64_t n = check_size(check, 100);
    const double *x = check_whole(check, n), *dy = check_whole(check, n);
    double *want = check_zeros(check, n), *want_dx = check_zeros(check, n);
    for (int64_t i = 0; i < n; i++) {
        want[i] = fmax(x[i], 0);
        want_dx[i] = x[i] > 0 ? dy[i] : 0;
    }
    void *y = check_blank(check, n), *dx = check_blank(check, n);
    check->kernels->relu_forward(y, check_reals(check, x, n), n);
    check_equal(check, "y", y, want, n);
    check->kernels->relu_backward(dx, check_reals(check, x, n), check_reals(check, dy, n), n);
    check_equal(check, "dx", dx, want_dx, n);
    void *in_place = check_reals(check, x, n);
    check->kernels->relu_forward(in_place, in_place, n);
    check_equal(check, "y in place", in_place, want, n);
    in_place = check_reals(check, dy, n);
    check->kernels->relu_backward(in_place, check_reals(check, x, n), in_place, n);
    check_equal(check, "dx in place", in_place, want_dx, n);
}

static void gelu_both(struct check *check)
{
    const int64_t n = check_size(check, 200);
    double *x = check_uniform(check, n);
    const double *dy = check_whole(check, n);
    double *want = check_zeros(check, n), *want_dx = check_zeros(check, n);
    for (int64_t i = 0; i < n; i++) {
        x[i] *= 4; /* reaches both tails */
        want[i] = (double)gelu((long double)x[i]);
        const long double h = 0x1p-20L, at = (long double)x[i];
        want_dx[i] = dy[i] * (double)((gelu(at + h) - gelu(at - h)) / (2 * h));
    }
    void *y = check_blank(check, n), *dx = check_reals(check, dy, n);
    check->kernels->gelu_forward(y, check_reals(check, x, n), n);
    check_near(check, "y", y, want, n, check_tolerance(check, 1e-6, 1e-14));
    check->kernels->gelu_backward(dx, check_reals(check, x, n), dx, n);
    check_near(check, "dx", dx, want_dx, n, check_tolerance(check, 4e-6, 1e-10));
}

/* Far out gelu is the identity or zero, never an overflow. */
static void gelu_tails(struct check *check)
{
    const double x[] = {-1e4, -100, 0, 100, 1e4}, y[] = {0, 0, 0, 100, 1e4};
    const double dx[] = {0, 0, 0.5, 1, 1}, ones[] = {1, 1, 1, 1, 1};
    void *got = check_blank(check, 5);
    check->kernels->gelu_forward(got, check_reals(check, x, 5), 5);
    check_equal(check, "y", got, y, 5);
    check->kernels->gelu_backward(got, check_reals(check, x, 5), check_reals(check, ones, 5), 5);
    check_equal(check, "dx", got, dx, 5);
}

static void tanh_both(struct check *check)
{
    const int64_t n = check_size(check, 200);
    const double *x = check_uniform(check, n), *dy = check_whole(check, n);
    double *want = check_zeros(check, n), *want_dx = check_zeros(check, n);
    void *y = check_blank(check, n), *dx = check_blank(check, n);
    check->kernels->tanh_forward(y, check_reals(check, x, n), n);
    for (int64_t i = 0; i < n; i++) {
        const double out = check_at(check, y, i); /* backward takes it as it was rounded */
        want[i] = (double)tanhl((long double)x[i]);
        want_dx[i] = dy[i] * (1 - out * out);
    }
    check_near(check, "y", y, want, n, check_tolerance(check, 1e-6, 1e-14));
    check->kernels->tanh_backward(dx, y, check_reals(check, dy, n), n);
    check_near(check, "dx", dx, want_dx, n, check_tolerance(check, 1e-6, 1e-14));
}

struct gates {
    int64_t n;
    double *x;
    const double *dy;
};

static long double swiglu(long double gate, long double up)
{
    return gate / (1 + expl(-gate)) * up;
}

static double evaluate_gates(void *context)
{
    const struct gates *gates = context;
    double sum = 0;
    for (int64_t i = 0; i < gates->n; i++)
        sum += gates->dy[i] *
               (double)swiglu((long double)gates->x[2 * i], (long double)gates->x[2 * i + 1]);
    return sum;
}

static void swiglu_both(struct check *check)
{
    struct gates gates = {.n = check_size(check, 60)};
    const int64_t n = gates.n;
    gates.x = check_uniform(check, 2 * n);
    gates.dy = check_whole(check, n);
    for (int64_t i = 0; i < 2 * n; i++)
        gates.x[i] *= 4; /* reaches both tails */
    double *want = check_zeros(check, n);
    for (int64_t i = 0; i < n; i++)
        want[i] = (double)swiglu((long double)gates.x[2 * i], (long double)gates.x[2 * i + 1]);
    const double *want_dx = check_gradient(check, evaluate_gates, &gates, gates.x, 2 * n);
    void *y = check_blank(check, n), *dx = check_blank(check, 2 * n);
    const void *x = check_reals(check, gates.x, 2 * n);
    check->kernels->swiglu_forward(y, x, n);
    check_near(check, "y", y, want, n, check_tolerance(check, 1e-6, 1e-14));
    check->kernels->swiglu_backward(dx, x, check_reals(check, gates.dy, n), n);
    check_near(check, "dx", dx, want_dx, 2 * n, check_tolerance(check, 4e-6, 1e-7));
}

/* A gate that is far closed lets nothing through, one that is far open all: nothing overflows. */
static void swiglu_tails(struct check *check)
{
    const double x[] = {-1e4, 3, -100, 2, 100, 2}, ones[] = {1, 1, 1};
    const double y[] = {0, 0, 200}, dx[] = {0, 0, 0, 0, 2, 100};
    void *got = check_blank(check, 3), *back = check_blank(check, 6);
    check->kernels->swiglu_forward(got, check_reals(check, x, 6), 3);
    check_near(check, "y", got, y, 3, 1e-30);
    check->kernels->swiglu_backward(back, check_reals(check, x, 6), check_reals(check, ones, 3), 3);
    check_near(check, "dx", back, dx, 6, 1e-30);
}

static void arithmetic(struct check *check)
{
    const struct sbp_kernels *k = check->kernels;
    const int64_t n = check_size(check, 100);
    const double *a = check_whole(check, n), *b = check_whole(check, n);
    double *sum = check_zeros(check, n), *scaled = check_zeros(check, n);
    double *positive = check_zeros(check, n);
    for (int64_t i = 0; i < n; i++) {
        sum[i] = a[i] + b[i];
        scaled[i] = a[i] * -0.375;
        positive[i] = fabs(a[i]);
    }
    void *y = check_blank(check, n), *left = check_reals(check, a, n);
    const void *right = check_reals(check, b, n);
    k->add(y, left, right, n);
    check_equal(check, "a + b", y, sum, n);
    k->add(left, left, right, n);
    check_equal(check, "a += b", left, sum, n);
    y = check_reals(check, a, n);
    k->scale(y, -0.375, n);
    check_equal(check, "scaled", y, scaled, n);
    y = check_reals(check, a, n);
    k->absolute(y, n);
    check_equal(check, "absolute", y, positive, n);
    k->zero(y, n);
    check_equal(check, "zero", y, check_zeros(check, n), n);
    k->zero(NULL, 0);
}

/* A region of one random split a dimension, and the whole's elements. */
struct block {
    struct check_split split[SBP_MAX_DIMS];
    int64_t elements, ranks;
};

static struct block draw_block(struct check *check)
{
    struct block block = {.elements = 1, .ranks = 1};
    for (int i = 0; i < SBP_MAX_DIMS; i++) {
        block.split[i] = check_split(check, 3);
        block.elements *= block.split[i].global;
        block.ranks *= block.split[i].ranks;
    }
    return block;
}

static struct sbp_region rank_region(const struct block *block, int64_t rank)
{
    struct sbp_region region = {.first = 0};
    for (int i = 0; i < SBP_MAX_DIMS; i++) {
        region.dim[i] = check_rank_digits(&block->split[i], rank % block->split[i].ranks);
        rank /= block->split[i].ranks;
    }
    return region;
}

/* Every rank's mask is the whole's at its global indices, and follows the counter generator. */
static void dropout(struct check *check)
{
    const struct block block = draw_block(check);
    const double p = check->round % 4 == 0 ? 0 : check->round % 4 == 1 ? 0.1 : 0.25;
    const double *x = check_whole(check, block.elements);
    for (int64_t rank = 0; rank < block.ranks && rank < 4; rank++) {
        const struct sbp_region region = rank_region(&block, rank);
        const int64_t n = block.elements / block.ranks;
        double *local = check_zeros(check, n), *want = check_zeros(check, n);
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = sbp_region_global(&region, i);
            local[i] = x[at];
            want[i] = sbp_random_unit_at(7, 3, (uint64_t)at) >= p ? x[at] / (1 - p) : 0;
        }
        void *y = check_blank(check, n), *dx = check_blank(check, n);
        const void *from = check_reals(check, local, n);
        uint8_t *mask = check_bytes(check, n);
        check->kernels->dropout_forward(y, mask, from, &region, p, 7, 3);
        check_near(check, "y", y, want, n, check_tolerance(check, 1e-6, 1e-15));
        check->kernels->dropout_backward(dx, mask, from, n, p);
        check_equal(check, "dx of dy = x", dx, check_doubles(check, y, n), n);
    }
}

/* In vectors an element has the same bits as alone, so they do not depend on how blocks are cut. */
static void alone(struct check *check)
{
    const struct sbp_kernels *k = check->kernels;
    const int64_t n = check_size(check, 100), bytes = k->real_bytes;
    double *x = check_uniform(check, n);
    for (int64_t i = 0; i < n; i++)
        x[i] *= 8;
    const char *from = check_reals(check, x, n),
               *dy = check_reals(check, check_uniform(check, n), n);
    char *whole = check_blank(check, n), *parts = check_blank(check, n);
    k->gelu_forward(whole, from, n);
    for (int64_t i = 0; i < n; i++)
        k->gelu_forward(parts + i * bytes, from + i * bytes, 1);
    assert_memory_equal(whole, parts, (size_t)(n * bytes));
    k->gelu_backward(whole, from, dy, n);
    for (int64_t i = 0; i < n; i++)
        k->gelu_backward(parts + i * bytes, from + i * bytes, dy + i * bytes, 1);
    assert_memory_equal(whole, parts, (size_t)(n * bytes));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECK_TABLES(relu, 20),       CHECK_TABLES(gelu_both, 20),   CHECK_TABLES(gelu_tails, 1),
        CHECK_TABLES(tanh_both, 20),  CHECK_TABLES(swiglu_both, 20), CHECK_TABLES(swiglu_tails, 1),
        CHECK_TABLES(arithmetic, 20), CHECK_TABLES(dropout, 30),     CHECK_TABLES(alone, 10),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
