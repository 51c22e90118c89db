/* Times the compute of a GPU by events on a stream: products by cuBLAS, those in fp8 by cuBLASLt,
 * attention and rows by the project's own kernels. */
#include "calib/measure/compute.h"

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/math/random.h"
#include "calib/measure/fp8_cuda.h"
#include "calib/measure/gpu.h"
#include "calib/measure/kernels_cuda.h"
#include "executor/gpu/gpu.h"

#define LEAST_COPY_BYTES ((int64_t)1 << 20)
#define COPY_SHARE       32                /* of the memory, at most one such part */
#define DRAWN            ((int64_t)100003) /* elements; no multiple of a row */
#define NONE             (-1)
#define STREAM_ROWS      1024 /* of the columns that an element-wise sum goes through */
/* Products are repeated back to back, as the kernels of a step follow each other, up to this work.
 */
#define BATCH_FLOP 1e12
#define MOST_BATCH 64
/* Before the clock starts the stream is kept busy for as long as the host takes to hand over a
 * batch (10 us a product, measured on a host of H100), else small products would wait for it. */
#define HANDOVER_S       15e-6
#define MOST_BYTES_PER_S 8e12 /* that a device copies, so that copies last long enough */
/* Products that follow each other without a look at the clock, under load. */
#define LOAD_BATCH 16
#define CALL_AHEAD 8 /* calls that a collective takes to hand over, as NCCL does */

struct sbp_compute {
    int64_t copy_bytes;
    unsigned char *y, *a, *b; /* the largest over the shapes; a and b serve the copy as well */
    int64_t a_bytes, b_bytes;
    int64_t y_bytes;
    void *host; /* (host_bytes) of the host, for the link; NULL before the first */
    int64_t host_bytes;
    int filled;                /* enum sbp_type that a and b hold numbers of; NONE */
    bool is_loaded;            /* the device comes from a sustained load */
    cudaStream_t stream, lane; /* lane: of collectives beside products; NULL before the first */
    cudaEvent_t before, behind, joined; /* joined: the end of a collective */
    cublasHandle_t blas;
    struct sbp_fp8 *fp8;          /* NULL before the first product in it */
    struct sbp_kernels_gpu *work; /* NULL before the first attention, or rows */
};

/* Half-precision products add up in fp32. `half` is 0.5. In fp8, which cuBLASLt has alone, bits of
 * E4M3 are numbers of E5M2, too, and below 2^-5 few are left. */
static const struct {
    cudaDataType_t data;
    cublasComputeType_t sum;
    uint64_t half;
    int mantissa_bits, halvings;
} types[SBP_TYPES] = {
    [SBP_FP32] = {CUDA_R_32F, CUBLAS_COMPUTE_32F, 0x3f000000, 23, 7},
    [SBP_FP64] = {CUDA_R_64F, CUBLAS_COMPUTE_64F, 0x3fe0000000000000, 52, 7},
    [SBP_BF16] = {CUDA_R_16BF, CUBLAS_COMPUTE_32F, 0x3f00, 7, 7},
    [SBP_FP16] = {CUDA_R_16F, CUBLAS_COMPUTE_32F, 0x3800, 10, 7},
    [SBP_FP8] = {CUDA_R_8F_E4M3, CUBLAS_COMPUTE_32F, 0x30, 3, 4},
};

/* Turns a code of cuBLAS into a status. */
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
    processor->lacks = (sbp_fp8_is_offered() ? 0 : SBP_LACKS_FP8) |
                       (sbp_kernels_gpu_is_built() ? 0 : SBP_LACKS_KERNELS);
    processor->copy_bytes = sbp_sweep_products(SBP_PRODUCTS_GPU)->copy_bytes;
    while (processor->copy_bytes > LEAST_COPY_BYTES &&
           processor->copy_bytes > processor->memory_bytes / COPY_SHARE)
        processor->copy_bytes /= 2;
    return SBP_OK;
}

/* --- matrices --- */

/* Ignores codes, since a failure here follows one of a call that was checked. */
static void cuda_close(struct sbp_compute *compute)
{
    if (compute == NULL)
        return;
    sbp_kernels_gpu_close(compute->work);
    sbp_fp8_close(compute->fp8);
    if (compute->blas != NULL)
        (void)cublasDestroy(compute->blas);
    if (compute->joined != NULL)
        (void)cudaEventDestroy(compute->joined);
    if (compute->lane != NULL)
        (void)cudaStreamDestroy(compute->lane);
    if (compute->behind != NULL)
        (void)cudaEventDestroy(compute->behind);
    if (compute->before != NULL)
        (void)cudaEventDestroy(compute->before);
    if (compute->stream != NULL)
        (void)cudaStreamDestroy(compute->stream);
    if (compute->host != NULL)
        (void)cudaFreeHost(compute->host);
    sbp_memory_cuda.release(compute->b);
    sbp_memory_cuda.release(compute->a);
    sbp_memory_cuda.release(compute->y);
    free(compute);
}

static enum sbp_status allocate(struct sbp_compute *compute, struct sbp_diag *diag)
{
    compute->y_bytes = 1;
    compute->a_bytes = compute->b_bytes = compute->copy_bytes;
    sbp_sweep_product_bytes(sbp_sweep_products(SBP_PRODUCTS_GPU), &compute->y_bytes,
                            &compute->a_bytes, &compute->b_bytes);
    compute->y = sbp_memory_cuda.allocate(compute->y_bytes);
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

/* Fills a matrix with a piece of numbers, then with copies of what is there. */
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

/* A number of either sign below 1, each half as far from 0 half as often: bits change as in
 * training. Units that multiply zeros, or numbers alike, take less power and clock higher. */
static uint64_t draw_number(enum sbp_type type, struct sbp_random *random)
{
    const int mantissa_bits = types[type].mantissa_bits;
    const int sign_bit = (int)(8 * sbp_cluster_type_bytes(type)) - 1;
    const uint64_t mantissa = sbp_random_next(random) & (((uint64_t)1 << mantissa_bits) - 1);
    const uint64_t coins = sbp_random_next(random);
    uint64_t halvings = 0;
    while (halvings < (uint64_t)types[type].halvings && (coins >> halvings & 1) != 0)
        halvings++;
    return (types[type].half - (halvings << mantissa_bits)) | mantissa | (coins >> 63) << sign_bit;
}

static void draw(unsigned char *piece, enum sbp_type type, uint64_t seed)
{
    const int64_t bytes = sbp_cluster_type_bytes(type);
    struct sbp_random random;
    sbp_random_seed(&random, seed);
    for (int64_t i = 0; i < DRAWN; i++) {
        const uint64_t number = draw_number(type, &random);
        for (int64_t b = 0; b < bytes; b++) /* little-endian, as every host of CUDA is */
            piece[i * bytes + b] = (unsigned char)(number >> (8 * b) & 255);
    }
}

/* Makes both factors numbers of the type. */
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

/* cuBLAS stores by columns: y^T(n,m) = b^T(n,k) a^T(k,m) has the rows of y(m,n) = a(m,k) b(k,n). A
 * factor that lies transposed in memory has its own rows by columns. */
static enum sbp_status multiply(struct sbp_compute *compute, const struct sbp_cell *cell,
                                int64_t expert, struct sbp_diag *diag)
{
    const int64_t bytes = expert * sbp_cluster_type_bytes(cell->type);
    const int m = (int)cell->m, n = (int)cell->n, k = (int)cell->k;
    const cudaDataType_t data = types[cell->type].data;
    const float one = 1, zero = 0;
    const double wide_one = 1, wide_zero = 0;
    const bool is_wide = cell->type == SBP_FP64;
    const bool a_turned = cell->pass == SBP_PASS_WEIGHT_GRADIENT;
    const bool b_turned = cell->pass == SBP_PASS_INPUT_GRADIENT;
    CUBLAS_TRY(diag, cublasGemmEx, compute->blas, b_turned ? CUBLAS_OP_T : CUBLAS_OP_N,
               a_turned ? CUBLAS_OP_T : CUBLAS_OP_N, n, m, k,
               is_wide ? (const void *)&wide_one : &one, compute->b + bytes * cell->k * cell->n,
               data, b_turned ? k : n, compute->a + bytes * cell->m * cell->k, data,
               a_turned ? m : k, is_wide ? (const void *)&wide_zero : &zero,
               compute->y + bytes * cell->m * cell->n, data, n, types[cell->type].sum,
               CUBLAS_GEMM_DEFAULT);
    return SBP_OK;
}

/* Products that follow each other for one cell: of experts each has matrices of its own, behind
 * those of the one before it. */
static int64_t products_of(const struct sbp_cell *cell)
{
    return cell->work == SBP_CELL_GROUPED ? cell->experts : 1;
}

/* The second half of b = a + the first half of b, as columns: cuBLAS has an element-wise sum of
 * matrices alone. Bits that are no fp32 numbers move as fast. */
static enum sbp_status stream(struct sbp_compute *compute, int64_t bytes, struct sbp_diag *diag)
{
    const float one = 1;
    const float *a = (const void *)compute->a;
    float *b = (void *)compute->b;
    const int64_t count = bytes / (int64_t)sizeof *b;
    const int rows = count < STREAM_ROWS ? (int)count : STREAM_ROWS;
    const int columns = (int)(count / rows);
    CUBLAS_TRY(diag, cublasSgeam, compute->blas, CUBLAS_OP_N, CUBLAS_OP_N, rows, columns, &one, a,
               rows, &one, b, rows, b + count, rows);
    return SBP_OK;
}

static bool is_kernel(const struct sbp_cell *cell)
{
    return cell->work == SBP_CELL_ATTENTION || cell->work == SBP_CELL_ROWS;
}

static bool is_product(const struct sbp_cell *cell)
{
    return cell->work != SBP_CELL_COPY && cell->work != SBP_CELL_LINK &&
           cell->work != SBP_CELL_STREAM && !is_kernel(cell);
}

static int batch_of(const struct sbp_cell *cell)
{
    const double flop = sbp_cell_product_flops(cell);
    const int most = (int)(MOST_BATCH / products_of(cell));
    if (!is_product(cell) || flop >= BATCH_FLOP || most < 1)
        return 1;
    return flop * most <= BATCH_FLOP ? most : (int)(BATCH_FLOP / flop);
}

static enum sbp_status reserve_host(struct sbp_compute *compute, int64_t bytes,
                                    struct sbp_diag *diag)
{
    if (bytes <= compute->host_bytes)
        return SBP_OK;
    if (compute->host != NULL)
        SBP_CUDA_TRY(diag, cudaFreeHost, compute->host);
    compute->host = NULL;
    compute->host_bytes = 0;
    SBP_CUDA_TRY(diag, cudaMallocHost, &compute->host, (size_t)bytes);
    compute->host_bytes = bytes;
    return SBP_OK;
}

static enum sbp_status copy_there_and_back(struct sbp_compute *compute, int64_t bytes,
                                           struct sbp_diag *diag)
{
    SBP_CUDA_TRY(diag, cudaMemcpyAsync, compute->host, compute->a, (size_t)bytes,
                 cudaMemcpyDeviceToHost, compute->stream);
    SBP_CUDA_TRY(diag, cudaMemcpyAsync, compute->a, compute->host, (size_t)bytes,
                 cudaMemcpyHostToDevice, compute->stream);
    return SBP_OK;
}

static enum sbp_status enqueue(struct sbp_compute *compute, const struct sbp_cell *cell, int batch,
                               struct sbp_diag *diag)
{
    if (!is_product(cell))
        compute->filled = NONE;
    if (is_kernel(cell))
        return sbp_kernels_gpu_launch(compute->work, cell, compute->b, compute->a, diag);
    if (cell->work == SBP_CELL_STREAM)
        return stream(compute, cell->bytes, diag);
    if (cell->work == SBP_CELL_LINK)
        return copy_there_and_back(compute, cell->bytes, diag);
    if (cell->work == SBP_CELL_COPY) {
        SBP_CUDA_TRY(diag, cudaMemcpyAsync, compute->b, compute->a, (size_t)compute->copy_bytes,
                     cudaMemcpyDeviceToDevice, compute->stream);
        return SBP_OK;
    }
    for (int i = 0; i < batch; i++)
        for (int64_t expert = 0; expert < products_of(cell); expert++)
            SBP_TRY(cell->type == SBP_FP8 ? sbp_fp8_multiply(compute->fp8, compute->y, compute->a,
                                                             compute->b, compute->stream, diag)
                                          : multiply(compute, cell, expert, diag));
    return SBP_OK;
}

/* Keeps the stream busy while the host hands over so many calls. */
static enum sbp_status start_ahead(struct sbp_compute *compute, int64_t calls,
                                   struct sbp_diag *diag)
{
    const int64_t half = compute->y_bytes / 2;
    const double copy_s = 2 * (double)half / MOST_BYTES_PER_S;
    for (double ahead_s = 0; ahead_s < (double)calls * HANDOVER_S && half > 0; ahead_s += copy_s)
        SBP_CUDA_TRY(diag, cudaMemcpyAsync, compute->y, compute->y + half, (size_t)half,
                     cudaMemcpyDeviceToDevice, compute->stream);
    return SBP_OK;
}

static enum sbp_status time_batch(struct sbp_compute *compute, const struct sbp_cell *cell,
                                  int batch, double *time_s, struct sbp_diag *diag)
{
    float elapsed_ms;
    SBP_CUDA_TRY(diag, cudaEventRecord, compute->before, compute->stream);
    SBP_TRY(enqueue(compute, cell, batch, diag));
    SBP_CUDA_TRY(diag, cudaEventRecord, compute->behind, compute->stream);
    SBP_CUDA_TRY(diag, cudaEventSynchronize, compute->behind);
    SBP_CUDA_TRY(diag, cudaEventElapsedTime, &elapsed_ms, compute->before, compute->behind);
    *time_s = (double)elapsed_ms * 1e-3 / batch;
    return SBP_OK;
}

/* Loads the device before the first repetition; the others follow each other closely. */
static enum sbp_status time_sustained(struct sbp_compute *compute, const struct sbp_cell *cell,
                                      double *time_s, struct sbp_diag *diag)
{
    const double most_s = (double)cell->load_s;
    for (double load_s = 0; !compute->is_loaded && load_s < most_s; load_s += LOAD_BATCH * *time_s)
        SBP_TRY(time_batch(compute, cell, LOAD_BATCH, time_s, diag));
    compute->is_loaded = true;
    return time_batch(compute, cell, LOAD_BATCH, time_s, diag);
}

/* The host's own time for launches that the device need not be done with. */
static enum sbp_status time_host(struct sbp_compute *compute, const struct sbp_cell *cell,
                                 double *time_s, struct sbp_diag *diag)
{
    const double start_s = sbp_thread_cpu_s();
    SBP_TRY(enqueue(compute, cell, MOST_BATCH, diag));
    *time_s = (sbp_thread_cpu_s() - start_s) / MOST_BATCH;
    SBP_CUDA_TRY(diag, cudaStreamSynchronize, compute->stream);
    return SBP_OK;
}

static enum sbp_status plan_fp8(struct sbp_compute *compute, const struct sbp_cell *cell,
                                struct sbp_diag *diag)
{
    const struct sbp_gemm_point product = sbp_cell_product(cell);
    if (compute->fp8 == NULL)
        SBP_TRY(sbp_fp8_open(&compute->fp8, diag));
    return sbp_fp8_plan(compute->fp8, &product, diag);
}

/* Queries, keys, values and output gradients are numbers as the factors of products are. */
static enum sbp_status open_work(struct sbp_compute *compute, struct sbp_diag *diag)
{
    const int64_t bytes = DRAWN * sbp_cluster_type_bytes(SBP_BF16);
    SBP_TRY(sbp_kernels_gpu_open(&compute->work, compute->copy_bytes, compute->stream, diag));
    const struct sbp_gpu_operands operands = sbp_kernels_gpu_operands(compute->work);
    unsigned char *piece = malloc((size_t)bytes);
    if (piece == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    draw(piece, SBP_BF16, 3);
    enum sbp_status status = spread(compute, operands.qkv, operands.qkv_bytes, piece, bytes, diag);
    draw(piece, SBP_BF16, 4);
    if (status == SBP_OK)
        status = spread(compute, operands.dy, operands.dy_bytes, piece, bytes, diag);
    free(piece);
    return status;
}

static enum sbp_status prepare_kernel(struct sbp_compute *compute, const struct sbp_cell *cell,
                                      struct sbp_diag *diag)
{
    if (compute->work == NULL)
        SBP_TRY(open_work(compute, diag));
    return sbp_kernels_gpu_prepare(compute->work, cell, diag);
}

static enum sbp_status cuda_repeat(struct sbp_compute *compute, const struct sbp_cell *cell,
                                   double *time_s, struct sbp_diag *diag)
{
    const int batch = batch_of(cell);
    if (is_product(cell))
        SBP_TRY(fill(compute, cell->type, diag));
    if (is_kernel(cell))
        SBP_TRY(prepare_kernel(compute, cell, diag));
    if (cell->work == SBP_CELL_LINK)
        SBP_TRY(reserve_host(compute, cell->bytes, diag));
    if (cell->type == SBP_FP8)
        SBP_TRY(plan_fp8(compute, cell, diag));
    if (cell->work == SBP_CELL_SUSTAINED)
        return time_sustained(compute, cell, time_s, diag);
    compute->is_loaded = false;
    if (cell->work == SBP_CELL_HOST)
        return time_host(compute, cell, time_s, diag);
    SBP_TRY(start_ahead(compute, batch * products_of(cell), diag));
    return time_batch(compute, cell, batch, time_s, diag);
}

/* --- beside a collective --- */

static enum sbp_status open_lane(struct sbp_compute *compute, struct sbp_diag *diag)
{
    if (compute->lane == NULL)
        SBP_CUDA_TRY(diag, cudaStreamCreateWithFlags, &compute->lane, cudaStreamNonBlocking);
    if (compute->joined == NULL)
        SBP_CUDA_TRY(diag, cudaEventCreate, &compute->joined);
    return SBP_OK;
}

/* Puts the call into the lane, which it shares with nothing, from where `before` is on. */
static enum sbp_status fork_call(struct sbp_compute *compute, const struct sbp_beside *beside,
                                 struct sbp_diag *diag)
{
    SBP_CUDA_TRY(diag, cudaStreamWaitEvent, compute->lane, compute->before, 0);
    SBP_TRY(beside->call(beside->context, compute->lane, diag));
    SBP_CUDA_TRY(diag, cudaEventRecord, compute->joined, compute->lane);
    return SBP_OK;
}

/* Looks at the call meanwhile: what NCCL fails at may never end. */
static enum sbp_status wait_beside(struct sbp_compute *compute, const struct sbp_beside *beside,
                                   struct sbp_diag *diag)
{
    for (;;) {
        const cudaError_t code = cudaEventQuery(compute->behind);
        if (code != cudaErrorNotReady)
            return sbp_cuda_check(diag, "cudaEventQuery", (int)code);
        (void)cudaGetLastError(); /* or the next launch is blamed for it */
        if (beside != NULL)
            SBP_TRY(beside->look(beside->context, diag));
        (void)sched_yield();
    }
}

static enum sbp_status cuda_beside(struct sbp_compute *compute, const struct sbp_cell *cell,
                                   int products, const struct sbp_beside *beside, double *time_s,
                                   struct sbp_diag *diag)
{
    struct sbp_cell product = *cell;
    float elapsed_ms;
    product.work = SBP_CELL_GEMM;
    compute->is_loaded = false;
    SBP_TRY(open_lane(compute, diag));
    SBP_TRY(fill(compute, product.type, diag));
    SBP_TRY(
        start_ahead(compute, CALL_AHEAD + (products < MOST_BATCH ? products : MOST_BATCH), diag));
    SBP_CUDA_TRY(diag, cudaEventRecord, compute->before, compute->stream);
    if (beside != NULL)
        SBP_TRY(fork_call(compute, beside, diag));
    SBP_TRY(enqueue(compute, &product, products, diag));
    if (beside != NULL)
        SBP_CUDA_TRY(diag, cudaStreamWaitEvent, compute->stream, compute->joined, 0);
    SBP_CUDA_TRY(diag, cudaEventRecord, compute->behind, compute->stream);
    SBP_TRY(wait_beside(compute, beside, diag));
    SBP_CUDA_TRY(diag, cudaEventElapsedTime, &elapsed_ms, compute->before, compute->behind);
    *time_s = (double)elapsed_ms * 1e-3;
    return SBP_OK;
}

const struct sbp_compute_ops sbp_compute_cuda = {
    .products = SBP_PRODUCTS_GPU,
    .find = cuda_find,
    .open = cuda_open,
    .close = cuda_close,
    .repeat = cuda_repeat,
    .beside = cuda_beside,
};
