/* Products in fp8 on the stand-in: each pass multiplies what lies where fp8_cuda.h says, and a GPU
 * without them is told. */
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>

#include "base/math/random.h"
#include "calib/measure/fp8_cuda.h"
#include "executor/gpu/gpu.h"
#include "tests/support/unit.h"

enum { M = 32, N = 48, K = 64 };

/* Eighths from 1 to 1.75, of either sign, as E4M3 and as E5M2, whose mantissa has quarters alone.
 */
static uint8_t draw(struct sbp_random *random, bool is_gradient, float *value)
{
    const int steps = (int)sbp_random_below(random, is_gradient ? 4 : 8);
    const int is_negative = (int)sbp_random_below(random, 2);
    *value = (is_negative ? -1 : 1) * (1 + (float)steps / (is_gradient ? 4 : 8));
    return (uint8_t)((is_gradient ? 0x3c : 0x38) | steps | is_negative << 7);
}

static void *on_device(const void *host, int64_t bytes)
{
    void *memory = sbp_memory_cuda.allocate(bytes);
    assert_non_null(memory);
    assert_int_equal(sbp_memory_cuda.from_host(memory, host, bytes), SBP_OK);
    return memory;
}

static float number_of(uint16_t bf16)
{
    union {
        uint32_t bits;
        float number;
    } wide = {.bits = (uint32_t)bf16 << 16};
    return wide.number;
}

static void check_pass(enum sbp_pass pass, cudaStream_t stream)
{
    static uint8_t a[M * K], b[N * K];
    static float x[M * K], w[N * K];
    static uint16_t y[M * N];
    struct sbp_random random;
    struct sbp_fp8 *fp8;
    const struct sbp_gemm_point product = {SBP_FP8, M, N, K, pass};
    sbp_random_seed(&random, 7 + (uint64_t)pass);
    for (int i = 0; i < M * K; i++)
        a[i] = draw(&random, pass == SBP_PASS_INPUT_GRADIENT, &x[i]);
    for (int i = 0; i < N * K; i++)
        b[i] = draw(&random, pass == SBP_PASS_WEIGHT_GRADIENT, &w[i]);
    void *of_a = on_device(a, sizeof a), *of_b = on_device(b, sizeof b);
    void *of_y = on_device(y, sizeof y);
    assert_int_equal(sbp_fp8_open(&fp8, NULL), SBP_OK);
    assert_int_equal(sbp_fp8_plan(fp8, &product, NULL), SBP_OK);
    assert_int_equal(sbp_fp8_multiply(fp8, of_y, of_a, of_b, stream, NULL), SBP_OK);
    assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
    assert_int_equal(sbp_memory_cuda.to_host(y, of_y, sizeof y), SBP_OK);
    for (int m = 0; m < M; m++)
        for (int n = 0; n < N; n++) {
            float sum = 0; /* exact: few bits of few numbers */
            for (int k = 0; k < K; k++)
                sum += x[m * K + k] * w[n * K + k];
            const float got = number_of(y[m * N + n]);
            if (fabsf(got - sum) > fabsf(sum) / 256)
                fail_msg("pass %d, (%d, %d): %g, expected %g", pass, m, n, (double)got,
                         (double)sum);
        }
    sbp_fp8_close(fp8);
    sbp_memory_cuda.release(of_y);
    sbp_memory_cuda.release(of_b);
    sbp_memory_cuda.release(of_a);
}

static void test_passes(void **state)
{
    cudaStream_t stream;
    (void)state;
    assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    for (int pass = 0; pass < SBP_PASSES; pass++)
        check_pass((enum sbp_pass)pass, stream);
    assert_int_equal(cudaStreamDestroy(stream), cudaSuccess);
}

/* Sizes that tensor cores do not take are refused with their name. */
static void test_refusals(void **state)
{
    struct sbp_fp8 *fp8;
    struct sbp_diag diag = {0};
    const struct sbp_gemm_point odd = {SBP_FP8, M, N, K + 8, SBP_PASS_FORWARD};
    (void)state;
    assert_true(sbp_fp8_is_offered());
    assert_int_equal(sbp_fp8_open(&fp8, NULL), SBP_OK);
    assert_int_equal(sbp_fp8_plan(fp8, &odd, &diag), SBP_E_BACKEND);
    assert_string_equal(diag.text, "cublasLtMatmulAlgoGetHeuristic: a failure of the stand-in");
    sbp_fp8_close(fp8);
    assert_int_equal(setenv("SBP_DOUBLE_FAIL", "fp8:1", 1), 0);
    assert_false(sbp_fp8_is_offered());
    assert_int_equal(setenv("SBP_DOUBLE_FAIL", "cublasLtCreate:1", 1), 0);
    assert_false(sbp_fp8_is_offered());
    assert_true(sbp_fp8_is_offered());
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_passes),
                                       cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
