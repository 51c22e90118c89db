/* A rank's thread on its GPU: each lane is a stream, and events order what one does behind another.
 */
#ifndef SBP_EXECUTOR_GPU_RANK_CUDA_PRIV_H
#define SBP_EXECUTOR_GPU_RANK_CUDA_PRIV_H

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include "executor/gpu/gpu.h"

/* A task's place in time. */
struct sbp_gpu_task {
    cudaEvent_t begin, end;
};

struct sbp_gpu_rank {
    struct sbp_cuda cuda;                       /* of the lane at hand */
    struct sbp_cuda_kernels kernels[SBP_REALS]; /* there is none of SBP_F64 */
    cudaStream_t stream[SBP_DEVICE_LANES];
    void *scratch[SBP_DEVICE_LANES]; /* of lanes that launch kernels */
    enum sbp_device_lane lane;       /* at hand */
    cublasHandle_t blas;             /* of compute */
    cublasStatus_t refused;          /* the first product that was, */
    const char *refused_call;
    struct sbp_gpu_products *products; /* products_cuda.c; NULL: none yet */
    cudaEvent_t origin;                /* of the step's times */
    struct sbp_gpu_task *task;         /* (tasks) */
    int64_t tasks;
    int64_t *given, given_count; /* of the step, (tasks) in the order given */
    int64_t over;                /* so many of them from the first on */
    bool is_in_task;             /* the last one given has not ended */
    unsigned char *staging;      /* pinned: what goes to the device in small pieces */
    int64_t staged_bytes;        /* of it that a lane may still read */
    enum sbp_status (*look)(void *context, int64_t task, struct sbp_diag *diag);
    void *context;
    enum sbp_status failed; /* the first failure of the device, which outlives what it fails */
    struct sbp_diag why;
};

/* This thread's. */
struct sbp_gpu_rank *sbp_gpu_rank_here(void);

/* Keeps the first failure of a call that is not waited for: who waits is told of it. */
void sbp_gpu_rank_keep(const char *call, cudaError_t code);
/* Looks once, and keeps what fails. */
void sbp_gpu_rank_look(void);
/* Waits for a lane, looking meanwhile. Fails as the device did first. */
enum sbp_status sbp_gpu_rank_wait(enum sbp_device_lane lane) SBP_MUST_USE;

extern const struct sbp_device_lanes sbp_gpu_rank_lanes;
/* Opens and closes what lanes have. On failure close what is there. */
enum sbp_status sbp_gpu_lanes_open(struct sbp_gpu_rank *gpu, struct sbp_diag *diag) SBP_MUST_USE;
void sbp_gpu_lanes_close(struct sbp_gpu_rank *gpu);

/* Of the scratch of compute: what cuBLASLt works in, and behind it room for a number a row. */
#define SBP_GPU_ROWS_BYTES      ((size_t)1 << 20)
#define SBP_GPU_WORKSPACE_BYTES ((size_t)SBP_CUDA_SCRATCH_BYTES - SBP_GPU_ROWS_BYTES)

/* c(m,n) = a(m,k) b(k,n), and more; all is stored by columns, closely, a turned factor as its
 * transpose. NULL where nothing is to be done. */
struct sbp_gpu_product {
    const void *a, *b;
    const void *bias;    /* (m) is added to every column */
    void *before_gelu;   /* (m,n) with a bias: is the sum, and c its gelu, of the tanh form */
    const void *gelu_of; /* (m,n) c is multiplied by the gelu's slope there */
    void *row_sums;      /* (m) of a, which is not turned; nothing else is done then */
    bool adds;           /* c is added to */
    void *c;
    int64_t m, n, k;
    bool a_turned, b_turned;
    cudaDataType_t data;
    cublasComputeType_t sum;
};
/* False: there is no such product, and nothing was done. */
bool sbp_gpu_multiply_further(struct sbp_gpu_rank *gpu, const struct sbp_gpu_product *product);
void sbp_gpu_products_close(struct sbp_gpu_rank *gpu);

extern const struct sbp_kernels sbp_gpu_rank_f32, sbp_gpu_rank_tf32, sbp_gpu_rank_bf16,
    sbp_gpu_rank_fp16;

#endif
