/* Products take a made-up time. With DOUBLE_MULTIPLIES they are made, in single precision as the
 * device's are; else they leave their result alone, for nobody reads it. What is checked is that
 * they stay inside their matrices, in types that go together. */
#include <cublas_v2.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/math/half.h"
#include "tests/support/gpu_double/gpu_double.h"
#include "tests/support/gpu_double/product_double.h"

#ifndef DOUBLE_MULTIPLIES
#define DOUBLE_MULTIPLIES 0
#endif

struct cublasContext {
    cudaStream_t stream;
    const void *factor; /* the first one of the product before */
};

cublasStatus_t cublasCreate(cublasHandle_t *handle)
{
    if (double_fails("cublasCreate"))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = calloc(1, sizeof **handle);
    return *handle != NULL ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle)
{
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode)
{
    return handle != NULL && mode == CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream)
{
    handle->stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS ? "success" : "a failure of the stand-in";
}

static const struct kind {
    cudaDataType_t data;
    cublasComputeType_t sum;
    enum sbp_real real;
    size_t bytes;
    double flops;
} kinds[] = {
    {CUDA_R_32F, CUBLAS_COMPUTE_32F, SBP_F32, 4, DOUBLE_FP32_FLOPS},
    {CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, SBP_F32, 4, DOUBLE_TF32_FLOPS},
    {CUDA_R_64F, CUBLAS_COMPUTE_64F, SBP_F64, 8, DOUBLE_FP64_FLOPS},
    {CUDA_R_16BF, CUBLAS_COMPUTE_32F, SBP_REAL_BF16, 2, DOUBLE_BF16_FLOPS},
    {CUDA_R_16F, CUBLAS_COMPUTE_32F, SBP_REAL_FP16, 2, DOUBLE_FP16_FLOPS},
};

/* Whether a matrix that is stored by columns has legal sizes and lies on the device. */
static bool is_matrix(const void *matrix, int rows, int columns, int stride, size_t bytes)
{
    return rows > 0 && columns > 0 && stride >= rows &&
           double_is_device(matrix,
                            ((size_t)stride * (size_t)(columns - 1) + (size_t)rows) * bytes);
}

/* The same of a factor that is (rows, columns) after the operation. */
static bool is_factor(const void *matrix, cublasOperation_t operation, int rows, int columns,
                      int stride, size_t bytes)
{
    return operation == CUBLAS_OP_N   ? is_matrix(matrix, rows, columns, stride, bytes)
           : operation == CUBLAS_OP_T ? is_matrix(matrix, columns, rows, stride, bytes)
                                      : false;
}

static double cut_off(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits &= ~(((uint64_t)1 << 42) - 1);
    memcpy(&value, &bits, sizeof value);
    return value;
}

static double element(const struct double_product *product, const struct double_factor *of,
                      int64_t row, int64_t column)
{
    const int64_t at = of->turned ? row * of->stride + column : column * of->stride + row;
    const double value = sbp_half_get(product->real, of->at, at);
    return product->is_tf32 ? cut_off(value) : value;
}

/* Adds in the order of k, and rounds each sum to the type of the sum, the result once. */
static double dot(const struct double_product *product, int64_t row, int64_t column, double start)
{
    double sum = 0;
    for (int64_t i = 0; i < product->k; i++) {
        sum += element(product, &product->a, row, i) * element(product, &product->b, i, column);
        sum = product->real == SBP_F64 ? sum : (double)(float)sum;
    }
    return start + sum;
}

/* A factor is read. */
static void touch(const struct double_factor *of, int64_t rows, int64_t columns, int64_t bytes)
{
    const int64_t length = of->turned ? columns : rows, lines = of->turned ? rows : columns;
    for (int64_t line = 0; line < lines; line++)
        double_touch((const char *)of->at + line * of->stride * bytes, (size_t)(length * bytes),
                     false, "a product");
}

/* What an epilogue reads or writes: as many columns as the result, or one. */
static void touch_further(const struct double_product *product, const void *at, int64_t columns,
                          int64_t bytes, bool writes)
{
    if (at != NULL)
        double_touch(at, (size_t)(product->m * columns * bytes), writes, "a product");
}

static void touch_all(const struct double_product *product)
{
    const int64_t bytes = sbp_real_bytes(product->real), of_c = sbp_real_bytes(product->of_c);
    touch(&product->a, product->m, product->k, bytes);
    touch(&product->b, product->k, product->n, bytes);
    for (int64_t column = 0; column < product->n; column++)
        double_touch((char *)product->c + column * product->stride * of_c,
                     (size_t)(product->m * of_c), true, "a product");
    touch_further(product, product->bias, 1, bytes, false);
    touch_further(product, product->before_gelu, product->n, bytes, true);
    touch_further(product, product->gelu_of, product->n, bytes, false);
    touch_further(product, product->row_sums, 1, bytes, true);
}

/* x/2 (1 + tanh u), u = sqrt(2/pi) (x + 0.044715 x^3), and its slope. */
static double gelu(double x, double *slope)
{
    const double root = sqrt(2 / acos(-1.0)), t = tanh(root * (x + 0.044715 * x * x * x));
    *slope = (1 + t) / 2 + x / 2 * (1 - t * t) * root * (1 + 3 * 0.044715 * x * x);
    return x / 2 * (1 + t);
}

/* An element of the result, before it is rounded. */
static double finish(const struct double_product *product, int64_t at, double sum)
{
    double slope;
    if (product->before_gelu != NULL) {
        sbp_half_put(product->real, product->before_gelu, at, sum);
        return gelu(sum, &slope);
    }
    if (product->gelu_of == NULL)
        return sum;
    (void)gelu(sbp_half_get(product->real, product->gelu_of, at), &slope);
    return sum * slope;
}

static void sum_rows(const struct double_product *product)
{
    for (int64_t row = 0; row < product->m; row++) {
        float sum = 0;
        for (int64_t i = 0; i < product->k; i++)
            sum += (float)sbp_half_get(product->real, product->a.at,
                                       product->a.turned ? row * product->a.stride + i
                                                         : i * product->a.stride + row);
        sbp_half_put(product->real, product->row_sums, row, (double)sum);
    }
}

void double_multiply(void *argument)
{
    const struct double_product *product = argument;
    touch_all(product);
    for (int64_t column = 0; column < product->n; column++)
        for (int64_t row = 0; row < product->m; row++) {
            const int64_t at = column * product->stride + row;
            const double start = product->adds ? sbp_half_get(product->of_c, product->c, at)
                                 : product->bias != NULL
                                     ? sbp_half_get(product->real, product->bias, row)
                                     : 0;
            const double sum = dot(product, row, column, start);
            sbp_half_put(product->of_c, product->c, at, finish(product, at, sum));
        }
    if (product->row_sums != NULL)
        sum_rows(product);
}

static double thread_s(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void spend_host_time(void)
{
    const char *text = getenv("SBP_DOUBLE_HOST_S");
    const double until_s = thread_s() + (text != NULL ? strtod(text, NULL) : 0);
    while (thread_s() < until_s) {
    }
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa,
                            cublasOperation_t transb, int m, int n, int k, const void *alpha,
                            const void *A, cudaDataType Atype, int lda, const void *B,
                            cudaDataType Btype, int ldb, const void *beta, void *C,
                            cudaDataType Ctype, int ldc, cublasComputeType_t computeType,
                            cublasGemmAlgo_t algo)
{
    const struct kind *kind = NULL;
    if (double_fails("cublasGemmEx"))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].data == Atype && kinds[i].sum == computeType)
            kind = &kinds[i];
    /* Sums of factors of 16 bits may stay in single precision. */
    const bool is_wide = kind != NULL && kind->bytes == 2 && Ctype == CUDA_R_32F;
    if (kind == NULL || Btype != Atype || (Ctype != Atype && !is_wide) || handle->stream == NULL ||
        alpha == NULL || beta == NULL || algo != CUBLAS_GEMM_DEFAULT)
        return CUBLAS_STATUS_INVALID_VALUE;
    /* They are read as the type of the sum. */
    const double by = kind->bytes == 8 ? *(const double *)alpha : (double)*(const float *)alpha;
    const double adds = kind->bytes == 8 ? *(const double *)beta : (double)*(const float *)beta;
    if (by != 1 || (adds != 0 && adds != 1))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!is_factor(A, transa, m, k, lda, kind->bytes) ||
        !is_factor(B, transb, k, n, ldb, kind->bytes) ||
        !is_matrix(C, m, n, ldc, is_wide ? sizeof(float) : kind->bytes))
        return CUBLAS_STATUS_INVALID_VALUE;
    const double share = A == handle->factor ? 1 : DOUBLE_COLD_SHARE;
    const double time_s =
        double_product_s((DOUBLE_LAUNCH_S + 2.0 * m * n * k / kind->flops) / share);
    if (m == 1 && n == 1 && k == 1)
        spend_host_time();
    handle->factor = A;
    const struct double_product product = {kind->real,
                                           is_wide ? SBP_F32 : kind->real,
                                           computeType == CUBLAS_COMPUTE_32F_FAST_TF32,
                                           m,
                                           n,
                                           k,
                                           {A, transa == CUBLAS_OP_T, lda},
                                           {B, transb == CUBLAS_OP_T, ldb},
                                           C,
                                           ldc,
                                           adds == 1,
                                           NULL,
                                           NULL,
                                           NULL,
                                           NULL};
    return double_launch(handle->stream, DOUBLE_MULTIPLIES ? double_multiply : double_run_nothing,
                         &product, sizeof product, time_s) == cudaSuccess
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_EXECUTION_FAILED;
}

cublasStatus_t cublasSgeam(cublasHandle_t handle, cublasOperation_t transa,
                           cublasOperation_t transb, int m, int n, const float *alpha,
                           const float *A, int lda, const float *beta, const float *B, int ldb,
                           float *C, int ldc)
{
    if (double_fails("cublasSgeam"))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    if (handle->stream == NULL || alpha == NULL || *alpha != 1 || beta == NULL || *beta != 1 ||
        !is_factor(A, transa, m, n, lda, sizeof *A) ||
        !is_factor(B, transb, m, n, ldb, sizeof *B) || !is_matrix(C, m, n, ldc, sizeof *C))
        return CUBLAS_STATUS_INVALID_VALUE;
    const double time_s = DOUBLE_LAUNCH_S + 3.0 * sizeof *C * m * n / DOUBLE_SUM_BYTES_PER_S;
    return double_launch(handle->stream, double_run_nothing, &time_s, sizeof time_s, time_s) ==
                   cudaSuccess
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_EXECUTION_FAILED;
}
