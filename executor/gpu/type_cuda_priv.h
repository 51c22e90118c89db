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

/* Keeps the first product that was refused. */
static inline void note_product(struct sbp_gpu_rank *gpu, cublasStatus_t status)
{
    if (gpu->refused == CUBLAS_STATUS_SUCCESS) {
        gpu->refused = status;
        gpu->refused_call = "cublasGemmEx";
    }
}

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
