/* Compute of a GPU: products by cuBLAS, timed by events on a stream. */
#include "calib/measure/compute.h"

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/math/random.h"
#include "calib/measure/gpu.h"
#include "executor/gpu/gpu.h"

#define LEAST_COPY_BYTES ((int64_t)1 << 20)
#define COPY_SHARE       32                /* of the memory, at most one such part */
#define DRAWN            ((int64_t)100003) /* elements; no multiple of a row */
#define NONE             (-1)
/* A product is repeated back to back, as a step's kernels follow each other, up to so much work. */
#define BATCH_FLOP 1e12
#define MOST_BATCH 64

struct sbp_compute {
    int64_t copy_bytes;
    void *y, *a, *b; /* the largest of each over the shapes; a and b serve the copy as well */
    int64_t a_bytes, b_bytes;
    int filled; /* enum sbp_type that a and b hold numbers of; NONE */
    cudaStream_t stream;
    cudaEvent_t before, behind;
    cublasHandle_t blas;
};

/* Half-precision products add up in fp32. A number of [0.5, 1) is `half` and any mantissa. */
static const struct {
    cudaDataType_t data;
    cublasComputeType_t sum;
    uint64_t half;
    int mantissa_bits;
} types[SBP_TYPES] = {
    [SBP_FP32] = {CUDA_R_32F, CUBLAS_COMPUTE_32F, 0x3f000000, 23},
    [SBP_FP64] = {CUDA_R_64F, CUBLAS_COMPUTE_64F, 0x3fe0000000000000, 52},
    [SBP_BF16] = {CUDA_R_16BF, CUBLAS_COMPUTE_32F, 0x3f00, 7},
    [SBP_FP16] = {CUDA_R_16F, CUBLAS_COMPUTE_32F, 0x3800, 10},
};

/* The one place where a code of cuBLAS becomes a status. */
static enum sbp_status check_cublas(struct sbp_diag *diag, const char *call, cublasStatus_t code)
{
    if (code == CUBLAS_STATUS_SUCCESS)
        return SBP_OK;
    return sbp_fail(diag, code == CUBLAS_STATUS_ALLOC_FAILED ? SBP_E_MEMORY : SBP_E_BACKEND,
                    "%s: %s", call, cublasGetStatusString(code));
}

#define CUBLAS_TRY(diag, function, ...)                                                            \
    SBP_TRY(check_cublas((diag), #function, function(__VA_ARGS__)))

static enum sbp_status cuda_find(int ranks, struct sbp_processor *processor, struct sbp_diag *diag)
{
    struct cudaDeviceProp device;
    size_t unused, total;
    int current;
    (void)ranks; /* each has a device of its own */
    *processor = (struct sbp_processor){.name = ""};
    SBP_CUDA_TRY(diag, cudaGetDevice, &current);
    SBP_CUDA_TRY(diag, cudaGetDeviceProperties, &device, current);
    SBP_CUDA_TRY(diag, cudaMemGetInfo, &unused, &total);
    (void)snprintf(processor->name, sizeof processor->name, "%.127s", device.name);
    processor->memory_bytes = (int64_t)total;
    processor->copy_bytes = sbp_product_list(SBP_PRODUCTS_GPU)->copy_bytes;
    while (processor->copy_bytes > LEAST_COPY_BYTES &&
           processor->copy_bytes > processor->memory_bytes / COPY_SHARE)
        processor->copy_bytes /= 2;
    return SBP_OK;
}

/* --- matrices --- */

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* What fails here failed before, in a call that was checked. */
static void cuda_close(struct sbp_compute *compute)
{
    if (compute == NULL)
        return;
    if (compute->blas != NULL)
        (void)cublasDestroy(compute->blas);
    if (compute->behind != NULL)
        (void)cudaEventDestroy(compute->behind);
    if (compute->before != NULL)
        (void)cudaEventDestroy(compute->before);
    if (compute->stream != NULL)
        (void)cudaStreamDestroy(compute->stream);
    sbp_memory_cuda.release(compute->b);
    sbp_memory_cuda.release(compute->a);
    sbp_memory_cuda.release(compute->y);
    free(compute);
}

static enum sbp_status allocate(struct sbp_compute *compute, struct sbp_diag *diag)
{
    const struct sbp_product_list *list = sbp_product_list(SBP_PRODUCTS_GPU);
    int64_t y_bytes = 1;
    compute->a_bytes = compute->b_bytes = compute->copy_bytes;
    for (int i = 0; i < list->count; i++) {
        const struct sbp_gemm_point *gemm = &list->shape[i];
        const int64_t bytes = sbp_cluster_type_bytes(gemm->type);
        y_bytes = larger(y_bytes, gemm->m * gemm->n * bytes);
        compute->a_bytes = larger(compute->a_bytes, gemm->m * gemm->k * bytes);
        compute->b_bytes = larger(compute->b_bytes, gemm->k * gemm->n * bytes);
    }
    compute->y = sbp_memory_cuda.allocate(y_bytes);
    compute->a = sbp_memory_cuda.allocate(compute->a_bytes);
    compute->b = sbp_memory_cuda.allocate(compute->b_bytes);
    if (compute->y == NULL || compute->a == NULL || compute->b == NULL)
        return sbp_fail(diag, SBP_E_MEMORY,
                        "the GPU has no memory for matrices and a copy of %lld bytes",
                        (long long)compute->copy_bytes);
    return SBP_OK;
}

static enum sbp_status make_clock(struct sbp_compute *compute, struct sbp_diag *diag)
{
    SBP_CUDA_TRY(diag, cudaStreamCreateWithFlags, &compute->stream, cudaStreamNonBlocking);
    SBP_CUDA_TRY(diag, cudaEventCreate, &compute->before);
    SBP_CUDA_TRY(diag, cudaEventCreate, &compute->behind);
    CUBLAS_TRY(diag, cublasCreate, &compute->blas);
    CUBLAS_TRY(diag, cublasSetStream, compute->blas, compute->stream);
    return SBP_OK;
}

static enum sbp_status cuda_open(struct sbp_compute **compute, int64_t copy_bytes,
                                 struct sbp_diag *diag)
{
    *compute = calloc(1, sizeof **compute);
    if (*compute == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    (*compute)->copy_bytes = copy_bytes;
    (*compute)->filled = NONE;
    enum sbp_status status = allocate(*compute, diag);
    if (status == SBP_OK)
        status = make_clock(*compute, diag);
    if (status == SBP_OK)
        return SBP_OK;
    cuda_close(*compute);
    *compute = NULL;
    return status;
}

/* Numbers, because units that multiply zeros take less power and clock higher: a piece, then what
 * is there over and over. */
static enum sbp_status spread(struct sbp_compute *compute, unsigned char *at, int64_t bytes,
                              const void *piece, int64_t piece_bytes, struct sbp_diag *diag)
{
    int64_t there = piece_bytes < bytes ? piece_bytes : bytes;
    if (sbp_memory_cuda.from_host(at, piece, there) != SBP_OK)
        return sbp_fail(diag, SBP_E_BACKEND, "matrices cannot be copied to the GPU");
    while (there < bytes) {
        const int64_t next = there < bytes - there ? there : bytes - there;
        SBP_CUDA_TRY(diag, cudaMemcpyAsync, at + there, at, (size_t)next, cudaMemcpyDeviceToDevice,
                     compute->stream);
        there += next;
    }
    SBP_CUDA_TRY(diag, cudaStreamSynchronize, compute->stream);
    return SBP_OK;
}

static void draw(unsigned char *piece, enum sbp_type type, uint64_t seed)
{
    const int64_t bytes = sbp_cluster_type_bytes(type);
    const uint64_t mantissas = ((uint64_t)1 << types[type].mantissa_bits) - 1;
    struct sbp_random random;
    sbp_random_seed(&random, seed);
    for (int64_t i = 0; i < DRAWN; i++) {
        const uint64_t number = types[type].half | (sbp_random_next(&random) & mantissas);
        for (int64_t b = 0; b < bytes; b++) /* little-endian, as every host of CUDA is */
            piece[i * bytes + b] = (unsigned char)(number >> (8 * b) & 255);
    }
}

/* So that both factors are numbers of the type. */
static enum sbp_status fill(struct sbp_compute *compute, enum sbp_type type, struct sbp_diag *diag)
{
    const int64_t bytes = DRAWN * sbp_cluster_type_bytes(type);
    if (compute->filled == (int)type)
        return SBP_OK;
    unsigned char *piece = malloc((size_t)bytes);
    if (piece == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    draw(piece, type, 1);
    enum sbp_status status = spread(compute, compute->a, compute->a_bytes, piece, bytes, diag);
    draw(piece, type, 2);
    if (status == SBP_OK)
        status = spread(compute, compute->b, compute->b_bytes, piece, bytes, diag);
    free(piece);
    compute->filled = status == SBP_OK ? (int)type : NONE;
    return status;
}

/* --- one repetition --- */

/* cuBLAS stores by columns: y^T(n,m) = b^T(n,k) a^T(k,m) has the rows of y(m,n) = a(m,k) b(k,n). */
static enum sbp_status multiply(struct sbp_compute *compute, const struct sbp_cell *cell,
                                struct sbp_diag *diag)
{
    const int m = (int)cell->m, n = (int)cell->n, k = (int)cell->k;
    const cudaDataType_t data = types[cell->type].data;
    const float one = 1, zero = 0;
    const double wide_one = 1, wide_zero = 0;
    const bool is_wide = cell->type == SBP_FP64;
    CUBLAS_TRY(diag, cublasGemmEx, compute->blas, CUBLAS_OP_N, CUBLAS_OP_N, n, m, k,
               is_wide ? (const void *)&wide_one : &one, compute->b, data, n, compute->a, data, k,
               is_wide ? (const void *)&wide_zero : &zero, compute->y, data, n,
               types[cell->type].sum, CUBLAS_GEMM_DEFAULT);
    return SBP_OK;
}

static int batch_of(const struct sbp_cell *cell)
{
    const double flop = 2.0 * (double)cell->m * (double)cell->n * (double)cell->k;
    if (cell->work == SBP_WORK_COPY || flop >= BATCH_FLOP)
        return 1;
    return flop * MOST_BATCH <= BATCH_FLOP ? MOST_BATCH : (int)(BATCH_FLOP / flop);
}

static enum sbp_status enqueue(struct sbp_compute *compute, const struct sbp_cell *cell, int batch,
                               struct sbp_diag *diag)
{
    if (cell->work == SBP_WORK_COPY) {
        compute->filled = NONE;
        SBP_CUDA_TRY(diag, cudaMemcpyAsync, compute->b, compute->a, (size_t)compute->copy_bytes,
                     cudaMemcpyDeviceToDevice, compute->stream);
        return SBP_OK;
    }
    for (int i = 0; i < batch; i++)
        SBP_TRY(multiply(compute, cell, diag));
    return SBP_OK;
}

static enum sbp_status cuda_repeat(struct sbp_compute *compute, const struct sbp_cell *cell,
                                   double *time_s, struct sbp_diag *diag)
{
    const int batch = batch_of(cell);
    float elapsed_ms;
    if (cell->work != SBP_WORK_COPY)
        SBP_TRY(fill(compute, cell->type, diag));
    SBP_CUDA_TRY(diag, cudaEventRecord, compute->before, compute->stream);
    SBP_TRY(enqueue(compute, cell, batch, diag));
    SBP_CUDA_TRY(diag, cudaEventRecord, compute->behind, compute->stream);
    SBP_CUDA_TRY(diag, cudaEventSynchronize, compute->behind);
    SBP_CUDA_TRY(diag, cudaEventElapsedTime, &elapsed_ms, compute->before, compute->behind);
    *time_s = (double)elapsed_ms * 1e-3 / batch;
    return SBP_OK;
}

const struct sbp_compute_ops sbp_compute_cuda = {
    .products = SBP_PRODUCTS_GPU,
    .find = cuda_find,
    .open = cuda_open,
    .close = cuda_close,
    .repeat = cuda_repeat,
};
