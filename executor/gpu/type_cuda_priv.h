/* The element type of one compilation of a table's operators: SBP_STORED, as of the CPU's
 * (kernels/cpu/real_priv.h), and, with SBP_TF32, single precision whose products round their
 * factors to TF32. */
#ifndef SBP_EXECUTOR_GPU_TYPE_CUDA_PRIV_H
#define SBP_EXECUTOR_GPU_TYPE_CUDA_PRIV_H

#include "executor/gpu/rank_cuda_priv.h"

#ifndef SBP_TF32
#define SBP_TF32 0
#endif
#if SBP_TF32
#define REAL        SBP_F32
#define DATA        CUDA_R_32F
#define TABLE       sbp_gpu_rank_tf32
#define NAME        "cuda-tf32"
#define TYPED(name) sbp_gpu_tf32_##name
#elif SBP_STORED == 0
#define REAL        SBP_F32
#define DATA        CUDA_R_32F
#define TABLE       sbp_gpu_rank_f32
#define NAME        "cuda-f32"
#define TYPED(name) sbp_gpu_f32_##name
#elif SBP_STORED == 2
#define REAL        SBP_REAL_BF16
#define DATA        CUDA_R_16BF
#define TABLE       sbp_gpu_rank_bf16
#define NAME        "cuda-bf16"
#define TYPED(name) sbp_gpu_bf16_##name
#else
#define REAL        SBP_REAL_FP16
#define DATA        CUDA_R_16F
#define TABLE       sbp_gpu_rank_fp16
#define NAME        "cuda-f16"
#define TYPED(name) sbp_gpu_fp16_##name
#endif
#define REAL_BYTES (SBP_STORED == 0 ? 4 : 2)

#define SUM (SBP_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F)

/* A call of the kernel of that name. */
#define LAUNCH(kernel, ...)                                                                        \
    do {                                                                                           \
        struct sbp_gpu_rank *const gpu = sbp_gpu_rank_here();                                      \
        gpu->kernels[REAL].kernel(&gpu->cuda, __VA_ARGS__);                                        \
    } while (0)

/* A factor as its rows lie in memory, `row` elements from one to the next; transposed: of its
 * transpose. */
struct factor {
    const void *at;
    int64_t row;
    bool transposed;
};

/* Whether cuBLAS, which counts in int, has such a product. */
static inline bool is_countable(int64_t m, int64_t n, int64_t k, int64_t a_row, int64_t b_row)
{
    const int64_t most = SBP_LARGEST_MATRIX_SIDE;
    return m <= most && n <= most && k <= most && a_row <= most && b_row <= most;
}

/* y(m,n) = a(m,k) b(k,n), or is added to; y is of single precision (CUDA_R_32F) or as its factors
 * are (DATA). cuBLAS stores by columns: y^T(n,m) = b^T(n,k) a^T(k,m) has the rows of y. Keeps the
 * first product that was refused. */
static inline void multiply(void *y, cudaDataType_t type, struct factor a, struct factor b,
                            int64_t m, int64_t n, int64_t k, bool adds)
{
    struct sbp_gpu_rank *const gpu = sbp_gpu_rank_here();
    const float one = 1, beta = adds ? 1 : 0;
    if (m == 0 || n == 0 || (k == 0 && adds))
        return;
    if (k == 0) {
        gpu->kernels[type == DATA ? REAL : SBP_F32].zero(&gpu->cuda, y, m * n);
        return;
    }
    const cublasStatus_t status =
        is_countable(m, n, k, a.row, b.row)
            ? cublasGemmEx(gpu->blas, b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                           a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N, (int)n, (int)m, (int)k, &one,
                           b.at, DATA, (int)b.row, a.at, DATA, (int)a.row, &beta, y, type, (int)n,
                           SUM, CUBLAS_GEMM_DEFAULT)
            : CUBLAS_STATUS_INVALID_VALUE;
    if (gpu->refused == CUBLAS_STATUS_SUCCESS) {
        gpu->refused = status;
        gpu->refused_call = "cublasGemmEx";
    }
}

/* In the scratch a product's factors lie behind its sums, at a multiple of so many bytes, for
 * accesses of any width. */
#define SCRATCH_APART 256
/* Numbers of 4 bytes that half of the scratch has room for: a column of a product's factors and
 * sums, while rows of a weight's gradient have the other half. */
#define LARGEST_COLUMN ((SBP_CUDA_SCRATCH_BYTES / 2 - SCRATCH_APART) / (int64_t)sizeof(float))

/* Operators of images and of their tokens, which have a file of their own. */
#define IMAGE_OPERATORS(X)                                                                         \
    X(token_types_forward)                                                                         \
    X(token_types_backward)                                                                        \
    X(first_token_forward)                                                                         \
    X(first_token_backward)                                                                        \
    X(patches_forward)                                                                             \
    X(patches_backward)                                                                            \
    X(conv2d_forward)                                                                              \
    X(conv2d_backward_input)                                                                       \
    X(conv2d_backward_weight)                                                                      \
    X(maxpool_forward)                                                                             \
    X(maxpool_backward)                                                                            \
    X(avgpool_forward)                                                                             \
    X(avgpool_backward)                                                                            \
    X(batchnorm_statistics)                                                                        \
    X(batchnorm_forward)                                                                           \
    X(batchnorm_backward)
#define IMAGE_DECLARE(name) __typeof__(*((const struct sbp_kernels *)0)->name) TYPED(name);
IMAGE_OPERATORS(IMAGE_DECLARE)
#undef IMAGE_DECLARE

#endif
