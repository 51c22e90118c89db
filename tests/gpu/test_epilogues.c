/* Products that do more on the way (executor/gpu/products_cuda.c), on the stand-in: beside the same
 * by a product and a kernel, and both beside double precision. And what the library refuses.
 *
 * usage: PROGRAM [SEED]
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <cublasLt.h>

#include "base/math/half.h"
#include "base/math/random.h"
#include "executor/device/device.h"

enum { CASES = 24, MOST_BUFFERS = 16 };

static uint64_t seed = 11;

/* A device under test, with what was allocated on it. */
struct bench {
    const struct sbp_device_ops *device;
    const struct sbp_kernels *k;
    struct sbp_random random;
    void *memory[MOST_BUFFERS], *host[2 * MOST_BUFFERS];
    int memories, hosts;
};

static void bench_open(struct bench *bench, enum sbp_real real, uint64_t stream)
{
    struct sbp_diag diag = {0};
    *bench = (struct bench){.device = sbp_device("cuda", &diag)};
    assert_non_null(bench->device);
    assert_int_equal(bench->device->open(0, &diag), SBP_OK);
    bench->k = bench->device->kernels(real);
    sbp_random_seed(&bench->random, seed + stream);
}

static void bench_close(struct bench *bench)
{
    struct sbp_diag diag = {0};
    if (bench->device->finish(&diag) != SBP_OK)
        fail_msg("%s", diag.text);
    while (bench->memories > 0)
        bench->device->memory->release(bench->memory[--bench->memories]);
    while (bench->hosts > 0)
        free(bench->host[--bench->hosts]);
    bench->device->close();
}

static int64_t draw(struct bench *bench, int64_t most)
{
    return 1 + (int64_t)sbp_random_below(&bench->random, (uint64_t)most);
}

static double *doubles(struct bench *bench, int64_t n)
{
    double *values = calloc((size_t)n, sizeof *values);
    assert_non_null(values);
    assert_in_range(bench->hosts, 0, 2 * MOST_BUFFERS - 1);
    bench->host[bench->hosts++] = values;
    return values;
}

/* Values between -2 and 2 that the type has. */
static double *values(struct bench *bench, int64_t n)
{
    double *drawn = doubles(bench, n);
    for (int64_t i = 0; i < n; i++) {
        double cell = 0;
        sbp_half_put(bench->k->real, &cell, 0,
                     (double)sbp_random_below(&bench->random, 4001) / 1000 - 2);
        drawn[i] = sbp_half_get(bench->k->real, &cell, 0);
    }
    return drawn;
}

/* On the device; NULL: what it had before is not to show. */
static void *put(struct bench *bench, const double *from, int64_t n)
{
    const int64_t bytes = n * bench->k->real_bytes;
    void *memory = bench->device->memory->allocate(bytes), *cells = malloc((size_t)bytes);
    assert_true(memory != NULL && cells != NULL);
    assert_in_range(bench->memories, 0, MOST_BUFFERS - 1);
    bench->memory[bench->memories++] = memory;
    for (int64_t i = 0; i < n; i++)
        sbp_half_put(bench->k->real, cells, i, from != NULL ? from[i] : 1000);
    assert_int_equal(bench->device->memory->from_host(memory, cells, bytes), SBP_OK);
    free(cells);
    return memory;
}

/* Half the distance between neighbours, of a number 1. */
static double unit(const struct bench *bench)
{
    return bench->k->real == SBP_F32 ? 0x1p-24 : bench->k->real == SBP_REAL_BF16 ? 0x1p-8 : 0x1p-11;
}

/* Holds what the device has to n values that may differ by bound[i] before they are rounded. */
static void expect(struct bench *bench, const char *what, const void *got, const double *value,
                   const double *bound, int64_t n)
{
    const int64_t bytes = n * bench->k->real_bytes;
    void *cells = malloc((size_t)bytes);
    assert_non_null(cells);
    assert_int_equal(bench->device->memory->to_host(cells, got, bytes), SBP_OK);
    for (int64_t i = 0; i < n; i++) {
        const double is = sbp_half_get(bench->k->real, cells, i);
        const double most = bound[i] + unit(bench) * (fabs(value[i]) + bound[i]) + 1e-7;
        if (!(fabs(is - value[i]) <= most))
            fail_msg("seed %llu, %s: %s[%lld] is %g, not %g, more than %g off",
                     (unsigned long long)seed, bench->k->name, what, (long long)i, is, value[i],
                     most);
    }
    free(cells);
}

/* ---- forward --------------------------------------------------------------------------------- */

static double gelu(double x)
{
    return x / 2 * (1 + tanh(sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

/* By differences of a function that is smooth. */
static double gelu_slope(double x)
{
    const double h = 1e-4;
    return (gelu(x + h) - gelu(x - h)) / (2 * h);
}

#define STEEPEST 1.13 /* slope of a gelu */

/* c(m,n) = a(m,k) b(k,n) and how far single precision may be off; by rows, factors by strides. */
static void multiply(const double *a, const int64_t a_stride[2], const double *b,
                     const int64_t b_stride[2], const int64_t size[3], double *c, double *off)
{
    for (int64_t i = 0; i < size[0]; i++)
        for (int64_t j = 0; j < size[1]; j++) {
            double sum = 0, all = 0;
            for (int64_t l = 0; l < size[2]; l++) {
                const double part =
                    a[i * a_stride[0] + l * a_stride[1]] * b[l * b_stride[0] + j * b_stride[1]];
                sum += part;
                all += fabs(part);
            }
            c[i * size[1] + j] += sum;
            off[i * size[1] + j] =
                (double)(size[2] + 2) * 0x1p-23 * (all + fabs(c[i * size[1] + j]));
        }
}

static void check_forward(struct bench *bench)
{
    const int64_t tokens = draw(bench, 12), in = draw(bench, 24);
    const int64_t out = draw(bench, 2) == 1 ? 8 * draw(bench, 5) : draw(bench, 40);
    const int64_t n = tokens * out;
    const double *x = values(bench, tokens * in), *w = values(bench, in * out);
    const double *bias = values(bench, out);
    double *z = doubles(bench, n), *off = doubles(bench, n), *y = doubles(bench, n);
    for (int64_t i = 0; i < n; i++)
        z[i] = bias[i % out];
    multiply(x, (int64_t[]){in, 1}, w, (int64_t[]){out, 1}, (int64_t[]){tokens, out, in}, z, off);
    const void *at_x = put(bench, x, tokens * in), *at_w = put(bench, w, in * out);
    const void *at_bias = put(bench, bias, out);
    void *to_z = put(bench, NULL, n), *to_y = put(bench, NULL, n);
    const bool fused =
        bench->k->linear_gelu_forward(to_y, to_z, at_x, at_w, at_bias, tokens, in, out);
    assert_int_equal(fused, out % 8 == 0);
    if (!fused) {
        bench->k->linear_forward(to_z, at_x, at_w, at_bias, tokens, in, out);
        bench->k->gelu_forward(to_y, to_z, n);
    }
    expect(bench, "z", to_z, z, off, n);
    for (int64_t i = 0; i < n; i++) {
        y[i] = gelu(z[i]);
        off[i] = STEEPEST * (off[i] + (fused ? 0 : unit(bench) * fabs(z[i])));
    }
    expect(bench, fused ? "gelu of a product" : "gelu", to_y, y, off, n);
}

/* ---- backward -------------------------------------------------------------------------------- */

static void check_backward_input(struct bench *bench)
{
    const int64_t tokens = draw(bench, 12), out = draw(bench, 24);
    const int64_t in = draw(bench, 2) == 1 ? 8 * draw(bench, 5) : draw(bench, 40);
    const int64_t n = tokens * in;
    const double *dy = values(bench, tokens * out), *w = values(bench, in * out);
    const double *z = values(bench, n);
    double *dx = doubles(bench, n), *off = doubles(bench, n);
    multiply(dy, (int64_t[]){out, 1}, w, (int64_t[]){1, out}, (int64_t[]){tokens, in, out}, dx,
             off);
    const void *at_dy = put(bench, dy, tokens * out), *at_w = put(bench, w, in * out);
    const void *at_z = put(bench, z, n);
    void *to = put(bench, NULL, n), *between = put(bench, NULL, n);
    const bool fused = bench->k->linear_gelu_backward_input(to, at_z, at_dy, at_w, tokens, in, out);
    assert_int_equal(fused, in % 8 == 0);
    if (!fused) {
        bench->k->linear_backward_input(between, at_dy, at_w, tokens, in, out);
        bench->k->gelu_backward(to, at_z, between, n);
    }
    for (int64_t i = 0; i < n; i++) {
        off[i] = STEEPEST * (off[i] + (fused ? 0 : unit(bench) * fabs(dx[i]))) + 1e-6 * fabs(dx[i]);
        dx[i] *= gelu_slope(z[i]);
    }
    expect(bench, fused ? "gradient through a gelu" : "gelu gradient", to, dx, off, n);
}

/* Both ways write the same weight's gradient, bit by bit; the bias's is rounded once more where it
 * is added to. The transposed product leaves it to a kernel. */
static void check_backward_weight(struct bench *bench)
{
    const int64_t tokens = draw(bench, 40), in = draw(bench, 12), out = draw(bench, 40);
    const unsigned adds = (unsigned)draw(bench, 4) - 1;
    const double *x = values(bench, tokens * in), *dy = values(bench, tokens * out);
    double *dw = values(bench, in * out), *dbias = values(bench, out);
    double *off = doubles(bench, in * out), *sums_off = doubles(bench, out);
    void *to = put(bench, dw, in * out), *apart = put(bench, dw, in * out);
    void *to_bias = put(bench, dbias, out), *bias_apart = put(bench, dbias, out);
    const void *at_x = put(bench, x, tokens * in), *at_dy = put(bench, dy, tokens * out);
    for (int64_t i = 0; i < in * out; i++)
        dw[i] = (adds & SBP_ADDS_FIRST) != 0 ? dw[i] : 0;
    for (int64_t i = 0; i < out; i++)
        dbias[i] = (adds & SBP_ADDS_REST) != 0 ? dbias[i] : 0;
    multiply(x, (int64_t[]){1, in}, dy, (int64_t[]){out, 1}, (int64_t[]){in, out, tokens}, dw, off);
    multiply((const double[]){1}, (int64_t[]){0, 0}, dy, (int64_t[]){out, 1},
             (int64_t[]){1, out, tokens}, dbias, sums_off);
    bench->k->linear_backward_weight(to, to_bias, at_x, at_dy, tokens, in, out, adds);
    bench->k->linear_backward_weight(apart, NULL, at_x, at_dy, tokens, in, out, adds);
    expect(bench, "dw", to, dw, off, in * out);
    expect(bench, "dw without a bias", apart, dw, off, in * out);
    bench->k->linear_transposed_backward_weight(apart, bias_apart, at_x, at_dy, tokens, in, out,
                                                adds);
    expect(bench, "dbias by a kernel", bias_apart, dbias, sums_off, out);
    for (int64_t i = 0; i < out; i++)
        sums_off[i] += unit(bench) * (fabs(dbias[i]) + 2);
    expect(bench, "dbias", to_bias, dbias, sums_off, out);
}

/* ---- the cases ------------------------------------------------------------------------------- */

static void for_types(void (*check)(struct bench *bench))
{
    static const enum sbp_real reals[] = {SBP_F32, SBP_REAL_BF16, SBP_REAL_FP16};
    for (int i = 0; i < 3 * CASES; i++) {
        struct bench bench;
        bench_open(&bench, reals[i % 3], (uint64_t)i);
        check(&bench);
        bench_close(&bench);
    }
}

static void gelus_of_products(void **state)
{
    (void)state;
    for_types(check_forward);
}

static void gradients_through_gelus(void **state)
{
    (void)state;
    for_types(check_backward_input);
}

static void gradients_of_biases(void **state)
{
    (void)state;
    for_types(check_backward_weight);
}

/* ---- what the library refuses ---------------------------------------------------------------- */

/* A product of (m,8) and (8,8) whose epilogue has this vector and this second matrix; ways found,
 * -1: it is refused. */
static int ways(cublasLtEpilogue_t epilogue, int64_t m, cudaDataType_t factor, const void *vector,
                const void *aux, int64_t aux_rows)
{
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t best;
    int found = 0;
    bool made =
        cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F) == 0 &&
        cublasLtMatrixLayoutCreate(&a, factor, (uint64_t)m, 8, m) == 0 &&
        cublasLtMatrixLayoutCreate(&b, CUDA_R_16BF, 8, 8, 8) == 0 &&
        cublasLtMatrixLayoutCreate(&c, CUDA_R_16BF, (uint64_t)m, 8, m) == 0 &&
        cublasLtMatmulPreferenceCreate(&preference) == 0 &&
        cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                             &schemes, sizeof schemes) == 0;
    const struct {
        cublasLtMatmulDescAttributes_t attribute;
        const void *value;
        size_t bytes;
    } set[] = {{CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue},
               {CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector, sizeof vector},
               {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof aux},
               {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &aux_rows, sizeof aux_rows}};
    for (size_t i = 0; i < sizeof set / sizeof *set; i++)
        made &= cublasLtMatmulDescSetAttribute(product, set[i].attribute, set[i].value,
                                               set[i].bytes) == 0;
    assert_true(made);
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(NULL, product, a, b, c, c, preference, 1, &best, &found);
    (void)cublasLtMatmulPreferenceDestroy(preference);
    (void)cublasLtMatrixLayoutDestroy(c);
    (void)cublasLtMatrixLayoutDestroy(b);
    (void)cublasLtMatrixLayoutDestroy(a);
    (void)cublasLtMatmulDescDestroy(product);
    return status == CUBLAS_STATUS_SUCCESS ? found : -1;
}

static void illegal_epilogues_are_refused(void **state)
{
    static const double there[8];
    const cublasLtEpilogue_t forward = CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    (void)state;
    assert_int_equal(ways(forward, 16, CUDA_R_16BF, there, there, 16), 1);
    assert_int_equal(ways(forward, 12, CUDA_R_16BF, there, there, 12), -1);
    assert_int_equal(ways(forward, 16, CUDA_R_16BF, there, there, 8), -1);
    assert_int_equal(ways(forward, 16, CUDA_R_16BF, there, there, 0), -1);
    assert_int_equal(ways(forward, 16, CUDA_R_16F, there, there, 16), -1);
    assert_int_equal(ways(forward, 16, CUDA_R_16BF, NULL, there, 16), -1);
    assert_int_equal(ways(forward, 16, CUDA_R_16BF, there, NULL, 16), -1);
    assert_int_equal(ways(CUBLASLT_EPILOGUE_DGELU, 16, CUDA_R_16BF, NULL, there, 16), 1);
    assert_int_equal(ways(CUBLASLT_EPILOGUE_DGELU, 20, CUDA_R_16BF, NULL, there, 20), -1);
    assert_int_equal(ways(CUBLASLT_EPILOGUE_BGRADA, 12, CUDA_R_16BF, there, NULL, 0), 1);
    assert_int_equal(ways(CUBLASLT_EPILOGUE_BGRADA, 12, CUDA_R_16BF, NULL, NULL, 0), -1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gelus_of_products),
        cmocka_unit_test(gradients_through_gelus),
        cmocka_unit_test(gradients_of_biases),
        cmocka_unit_test(illegal_epilogues_are_refused),
    };
    if (argc > 1)
        seed = strtoull(argv[1], NULL, 10);
    print_message("seed %llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
