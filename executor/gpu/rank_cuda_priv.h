/* A rank's thread on its GPU: all that it computes follows one another on one stream.
 */
#ifndef SBP_EXECUTOR_GPU_RANK_CUDA_PRIV_H
#define SBP_EXECUTOR_GPU_RANK_CUDA_PRIV_H

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include "executor/gpu/gpu.h"

struct sbp_gpu_rank {
    struct sbp_cuda cuda;
    struct sbp_cuda_kernels kernels[SBP_REALS]; /* there is none of SBP_F64 */
    cudaStream_t stream;
    cublasHandle_t blas;
    cublasStatus_t refused; /* the first product that was */
    cudaEvent_t before, behind;
    bool is_timed; /* `before` was recorded, and nothing was waited for since */
    double compute_s;
    enum sbp_status failed; /* the first failure of the device, which outlives what it fails */
    struct sbp_diag why;
};

/* This thread's, which is about to launch something. */
struct sbp_gpu_rank *sbp_gpu_rank_here(void);

extern const struct sbp_kernels sbp_gpu_rank_f32, sbp_gpu_rank_tf32, sbp_gpu_rank_bf16,
    sbp_gpu_rank_fp16;

#endif
