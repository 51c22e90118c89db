/* The context with which kernels are launched. */
#include <cuda_runtime_api.h>

#include "executor/gpu/gpu.h"

enum sbp_status sbp_gpu_context_open(struct sbp_cuda *cuda, void *stream, struct sbp_diag *diag)
{
    struct sbp_cuda_kernels kernels;
    int device;
    *cuda = (struct sbp_cuda){.stream = stream, .scratch_bytes = SBP_CUDA_SCRATCH_BYTES};
    sbp_cuda_kernels_make(&kernels, SBP_F32);
    if (kernels.add == NULL)
        return sbp_fail(diag, SBP_E_UNSUPPORTED,
                        "this build has no kernels for GPUs: configure with -Dcuda=enabled, which "
                        "needs nvcc");
    SBP_CUDA_TRY(diag, cudaGetDevice, &device);
    SBP_CUDA_TRY(diag, cudaDeviceGetAttribute, &cuda->multiprocessors,
                 cudaDevAttrMultiProcessorCount, device);
    SBP_CUDA_TRY(diag, cudaDeviceGetAttribute, &cuda->shared_bytes,
                 cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    SBP_TRY(sbp_cuda_check(diag, "the GPU has no code of the kernels", sbp_cuda_kernels_load()));
    struct sbp_diag why = {0};
    const enum sbp_status status = sbp_cuda_allocate(SBP_CUDA_SCRATCH_BYTES, &cuda->scratch, &why);
    return status == SBP_OK ? SBP_OK
                            : sbp_fail(diag, status, "the scratch of kernels: %s", why.text);
}

void sbp_gpu_context_close(struct sbp_cuda *cuda)
{
    sbp_memory_cuda.release(cuda->scratch);
    *cuda = (struct sbp_cuda){.stream = NULL};
}
