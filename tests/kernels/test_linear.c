/* Linear operators against triple loops; inputs are small whole numbers, so that sums are
 * exact in all types but for the rounding of the result. */
#include <cblas.h>

#include "tests/kernels/check.h"

/* A naive product: element (i, j) of op(a) op(b) summed over k. */
static double *product(struct check *check, const double *a, bool a_transposed, const double *b,
                       bool b_transposed, int64_t m, int64_t n, int64_t k)
{
    double *c = check_zeros(check, m * n);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t l = 0; l < k; l++)
                c[i * n + j] += a[a_transposed ? l * m + i : i * k + l] *
                                b[b_transposed ? j * k + l : l * n + j];
    return c;
}

struct problem {
    int64_t tokens, in, out;
    double *x, *w, *bias, *dy, *dw_before;
};

static struct problem draw(struct check *check)
{
    struct problem p = {.tokens = check_size(check, 40),
                        .in = check_size(check, 70),
                        .out = check_size(check, 300)};
    if (check->round == 0)
        p.tokens = p.in = p.out = 1;
    if (check->round == 1) /* over the tiles of 16-bit products in every direction */
        p = (struct problem){.tokens = 258, .in = 257, .out = 260};
    p.x = check_whole(check, p.tokens * p.in);
    p.w = check_whole(check, p.in * p.out);
    p.bias = check_whole(check, p.out);
    p.dy = check_whole(check, p.tokens * p.out);
    p.dw_before = check_whole(check, p.in * p.out);
    return p;
}

static double *add_bias(const struct problem *p, double *y)
{
    for (int64_t i = 0; i < p->tokens * p->out; i++)
        y[i] += p->bias[i % p->out];
    return y;
}

static double *column_sums(struct check *check, const struct problem *p)
{
    double *sums = check_zeros(check, p->out);
    for (int64_t i = 0; i < p->tokens * p->out; i++)
        sums[i % p->out] += p->dy[i];
    return sums;
}

static void forward(struct check *check)
{
    const struct problem p = draw(check);
    const int64_t n = p.tokens * p.out;
    for (int transposed = 0; transposed < 2; transposed++) {
        void (*const run)(void *, const void *, const void *, const void *, int64_t, int64_t,
                          int64_t) =
            transposed ? check->kernels->linear_transposed_forward : check->kernels->linear_forward;
        double *want = product(check, p.x, false, p.w, transposed, p.tokens, p.out, p.in);
        void *y = check_blank(check, n);
        const void *x = check_reals(check, p.x, p.tokens * p.in);
        const void *w = check_reals(check, p.w, p.in * p.out);
        run(y, x, w, NULL, p.tokens, p.in, p.out);
        check_equal(check, "y", y, want, n);
        run(y, x, w, check_reals(check, p.bias, p.out), p.tokens, p.in, p.out);
        check_equal(check, "y with bias", y, add_bias(&p, want), n);
    }
}

static void added(struct check *check)
{
    const struct problem p = draw(check);
    const int64_t n = p.tokens * p.out;
    double *want = product(check, p.x, false, p.w, false, p.tokens, p.out, p.in);
    void *y = check_reals(check, p.dy, n);
    check->kernels->linear_add(y, check_reals(check, p.x, p.tokens * p.in),
                               check_reals(check, p.w, p.in * p.out), p.tokens, p.in, p.out);
    for (int64_t i = 0; i < n; i++)
        want[i] += p.dy[i];
    check_equal(check, "y with what was there", y, want, n);
}

static void backward_input(struct check *check)
{
    const struct problem p = draw(check);
    const int64_t n = p.tokens * p.in;
    const void *dy = check_reals(check, p.dy, p.tokens * p.out);
    const void *w = check_reals(check, p.w, p.in * p.out);
    void *dx = check_blank(check, n);
    check->kernels->linear_backward_input(dx, dy, w, p.tokens, p.in, p.out);
    check_equal(check, "dx", dx, product(check, p.dy, false, p.w, true, p.tokens, p.in, p.out), n);
    dx = check_blank(check, n);
    check->kernels->linear_transposed_backward_input(dx, dy, w, p.tokens, p.in, p.out);
    check_equal(check, "dx", dx, product(check, p.dy, false, p.w, false, p.tokens, p.in, p.out), n);
}

static void backward_weight(struct check *check)
{
    const struct problem p = draw(check);
    const int64_t n = p.in * p.out;
    const void *x = check_reals(check, p.x, p.tokens * p.in);
    const void *dy = check_reals(check, p.dy, p.tokens * p.out);
    for (int transposed = 0; transposed < 2; transposed++) {
        void (*const run)(void *, void *, const void *, const void *, int64_t, int64_t, int64_t,
                          unsigned) = transposed ? check->kernels->linear_transposed_backward_weight
                                                 : check->kernels->linear_backward_weight;
        double *want = transposed ? product(check, p.dy, true, p.x, false, p.out, p.in, p.tokens)
                                  : product(check, p.x, true, p.dy, false, p.in, p.out, p.tokens);
        void *dw = check_blank(check, n), *dbias = check_blank(check, p.out);
        run(dw, dbias, x, dy, p.tokens, p.in, p.out, 0);
        double *want_bias = column_sums(check, &p);
        check_equal(check, "dw", dw, want, n);
        check_equal(check, "dbias", dbias, want_bias, p.out);
        dw = check_reals(check, p.dw_before, n);
        run(dw, dbias, x, dy, p.tokens, p.in, p.out, SBP_ADDS_FIRST);
        for (int64_t i = 0; i < n; i++)
            want[i] += p.dw_before[i];
        check_equal(check, "accumulated dw", dw, want, n);
        check_equal(check, "dbias beside it", dbias, want_bias, p.out);
        run(dw, dbias, x, dy, p.tokens, p.in, p.out, SBP_ADDS_REST);
        for (int64_t i = 0; i < p.out; i++)
            want_bias[i] *= 2;
        check_equal(check, "accumulated dbias", dbias, want_bias, p.out);
    }
}

static void gemm(struct check *check)
{
    const struct problem p = draw(check);
    if (check->kernels->real_bytes == 2) /* calibration multiplies in the arithmetic's types */
        return;
    void *y = check_blank(check, p.tokens * p.out);
    for (int turned = 0; turned < 3; turned++) {
        const struct sbp_gemm_factor x = {check_reals(check, p.x, p.tokens * p.in), turned == 1};
        const struct sbp_gemm_factor w = {check_reals(check, p.w, p.in * p.out), turned == 2};
        sbp_kernels_cpu_gemm(check->kernels->real, y, x, w, p.tokens, p.out, p.in);
        check_equal(check, "gemm", y,
                    product(check, p.x, x.transposed, p.w, w.transposed, p.tokens, p.out, p.in),
                    p.tokens * p.out);
    }
}

/* Blocks of a dimension that a rank has nothing of. */
static void empty(struct check *check)
{
    const struct sbp_kernels *k = check->kernels;
    const double bias[] = {1, 2, 3}, zero[6] = {0}, twice_bias[] = {1, 2, 3, 1, 2, 3};
    void *y = check_blank(check, 6), *x = check_blank(check, 0), *w = check_blank(check, 0);
    k->linear_forward(y, x, w, NULL, 2, 0, 3);
    check_equal(check, "no inputs", y, zero, 6);
    k->linear_forward(y, x, w, check_reals(check, bias, 3), 2, 0, 3);
    check_equal(check, "bias only", y, twice_bias, 6);
    k->linear_forward(x, x, w, NULL, 0, 0, 0);
    void *dw = check_blank(check, 6), *dbias = check_blank(check, 3);
    k->linear_backward_weight(dw, dbias, x, x, 0, 2, 3, 0);
    check_equal(check, "dw of no tokens", dw, zero, 6);
    check_equal(check, "dbias of no tokens", dbias, zero, 3);
}

/* Main asks BLAS for two threads before any test asks for a table. */
static void one_thread(struct check *check)
{
    (void)check;
    assert_int_equal(openblas_get_num_threads(), 1);
}

int main(void)
{
    openblas_set_num_threads(2);
    const struct CMUnitTest tests[] = {
        CHECK_TABLES(forward, 30),        CHECK_TABLES(added, 30),
        CHECK_TABLES(backward_input, 30), CHECK_TABLES(backward_weight, 30),
        CHECK_TABLES(gemm, 10),           CHECK_TABLES(empty, 1),
        CHECK_TABLES(one_thread, 1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
