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
    cublasStatus_t refused; /* the first product that was, */
    const char *refused_call;
    struct sbp_gpu_products *products; /* products_cuda.c; NULL: none yet */
    cudaEvent_t before, behind;
    bool is_timed; /* `before` was recorded, and nothing was waited for since */
    double compute_s;
    enum sbp_status failed; /* the first failure of the device, which outlives what it fails */
    struct sbp_diag why;
};

/* This thread's, which is about to launch something. */
struct sbp_gpu_rank *sbp_gpu_rank_here(void);

/* c(m,n) = a(m,k) b(k,n) + bias(m) in every column; all is stored by columns, closely, a turned
 * factor as its transpose. */
struct sbp_gpu_product {
    const void *a, *b, *bias;
    void *c;
    int64_t m, n, k;
    bool a_turned, b_turned;
    cudaDataType_t data;
    cublasComputeType_t sum;
};
/* False: there is no such product, and nothing was done. */
bool sbp_gpu_multiply_biased(struct sbp_gpu_rank *gpu, const struct sbp_gpu_product *product);
void sbp_gpu_products_close(struct sbp_gpu_rank *gpu);

extern const struct sbp_kernels sbp_gpu_rank_f32, sbp_gpu_rank_tf32, sbp_gpu_rank_bf16,
    sbp_gpu_rank_fp16;

#endif
