/* Attention and rows of a calibration, by the project's kernels on the stand-in: rows arrive in the
 * order of their experts, attention runs in both passes, and nothing leaves its memory. */
#include <cuda_runtime_api.h>
#include <stdlib.h>

#include "calib/measure/kernels_cuda.h"
#include "calib/measure/row_order.h"
#include "executor/gpu/gpu.h"
#include "tests/support/unit.h"

enum { ROWS = 48, ROW_BYTES = 1024, BYTES = ROWS * ROW_BYTES };

static cudaStream_t open_stream(void)
{
    cudaStream_t stream;
    assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    return stream;
}

static void test_rows(void **state)
{
    static uint16_t from[BYTES / 2], to[BYTES / 2];
    const struct sbp_cell cell = {.work = SBP_CELL_ROWS, .bytes = BYTES, .row_bytes = ROW_BYTES};
    struct sbp_kernels_gpu *work;
    int32_t order[ROWS];
    cudaStream_t stream = open_stream();
    (void)state;
    void *of_from = sbp_memory_cuda.allocate(BYTES), *of_to = sbp_memory_cuda.allocate(BYTES);
    for (int i = 0; i < BYTES / 2; i++) /* bf16 of whole numbers, which copies leave alone */
        from[i] = (uint16_t)(0x3f80 + i / (ROW_BYTES / 2));
    assert_int_equal(sbp_memory_cuda.from_host(of_from, from, BYTES), SBP_OK);
    assert_int_equal(sbp_kernels_gpu_open(&work, BYTES, stream, NULL), SBP_OK);
    assert_int_equal(sbp_kernels_gpu_prepare(work, &cell, NULL), SBP_OK);
    assert_int_equal(sbp_kernels_gpu_launch(work, &cell, of_to, of_from, NULL), SBP_OK);
    assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
    assert_int_equal(sbp_memory_cuda.to_host(to, of_to, BYTES), SBP_OK);
    sbp_row_order(order, ROWS, 10); /* kernels_cuda.c's seed */
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < ROW_BYTES / 2; j++)
            if (to[i * ROW_BYTES / 2 + j] != 0x3f80 + order[i])
                fail_msg("row %d, element %d: %#x, expected row %d", i, j,
                         to[i * ROW_BYTES / 2 + j], (int)order[i]);
    const struct sbp_cell more = {
        .work = SBP_CELL_ROWS, .bytes = 2 * BYTES, .row_bytes = ROW_BYTES};
    assert_int_equal(sbp_kernels_gpu_prepare(work, &more, NULL), SBP_E_MEMORY);
    sbp_kernels_gpu_close(work);
    sbp_memory_cuda.release(of_to);
    sbp_memory_cuda.release(of_from);
    assert_int_equal(cudaStreamDestroy(stream), cudaSuccess);
}

/* A backward pass that comes first has the forward pass of its shape done before it. */
static void test_attention(void **state)
{
    static const enum sbp_pass passes[] = {SBP_PASS_INPUT_GRADIENT, SBP_PASS_FORWARD};
    struct sbp_kernels_gpu *work;
    cudaStream_t stream = open_stream();
    (void)state;
    assert_int_equal(sbp_kernels_gpu_open(&work, BYTES, stream, NULL), SBP_OK);
    for (int64_t head_size = 32; head_size <= 128; head_size *= 2)
        for (int p = 0; p < 2; p++) {
            const struct sbp_cell cell = {.work = SBP_CELL_ATTENTION,
                                          .attention = {SBP_BF16, passes[p], head_size, 40, 2, 1}};
            assert_int_equal(sbp_kernels_gpu_prepare(work, &cell, NULL), SBP_OK);
            assert_int_equal(sbp_kernels_gpu_launch(work, &cell, NULL, NULL, NULL), SBP_OK);
            assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
        }
    sbp_kernels_gpu_close(work);
    assert_int_equal(cudaStreamDestroy(stream), cudaSuccess);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows),
                                       cmocka_unit_test(test_attention)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
