/* Device memory, by plain calls of the CUDA runtime. */
#include <cuda_runtime_api.h>

#include "executor/gpu/gpu.h"

enum sbp_status sbp_cuda_check(struct sbp_diag *diag, const char *call, int code)
{
    if (code == (int)cudaSuccess)
        return SBP_OK;
    return sbp_fail(diag, code == (int)cudaErrorMemoryAllocation ? SBP_E_MEMORY : SBP_E_BACKEND,
                    "%s: %s", call, cudaGetErrorString((cudaError_t)code));
}

/* The null stream is waited for, since streams that do not block on it would see memory that is not
 * zeroed yet. */
static enum sbp_status zero(void *memory, size_t bytes, struct sbp_diag *diag)
{
    SBP_CUDA_TRY(diag, cudaMemset, memory, 0, bytes);
    SBP_CUDA_TRY(diag, cudaStreamSynchronize, NULL);
    return SBP_OK;
}

enum sbp_status sbp_cuda_allocate(int64_t bytes, void **memory, struct sbp_diag *diag)
{
    const size_t size = bytes > 0 ? (size_t)bytes : 1;
    *memory = NULL;
    if (bytes < 0)
        return sbp_fail(diag, SBP_E_RANGE, "cudaMalloc: a negative size");
    SBP_CUDA_TRY(diag, cudaMalloc, memory, size);
    const enum sbp_status status = zero(*memory, size, diag);
    if (status == SBP_OK)
        return SBP_OK;
    (void)cudaFree(*memory); /* the device has failed already */
    *memory = NULL;
    return status;
}

static void *cuda_allocate(int64_t bytes)
{
    void *memory;
    return sbp_cuda_allocate(bytes, &memory, NULL) == SBP_OK ? memory : NULL;
}

static void cuda_release(void *memory)
{
    (void)cudaFree(memory); /* what fails here failed before, in a call that is checked */
}

enum sbp_status sbp_cuda_copy(void *to, const void *from, int64_t bytes, bool to_host,
                              struct sbp_diag *diag)
{
    const enum cudaMemcpyKind kind = to_host ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice;
    if (bytes < 0)
        return sbp_fail(diag, SBP_E_RANGE, "cudaMemcpy: a negative size");
    if (bytes == 0)
        return SBP_OK;
    SBP_CUDA_TRY(diag, cudaMemcpy, to, from, (size_t)bytes, kind);
    /* A copy from pageable memory may come back before the last bytes are there. */
    SBP_CUDA_TRY(diag, cudaStreamSynchronize, NULL);
    return SBP_OK;
}

static enum sbp_status cuda_to_host(void *host, const void *memory, int64_t bytes)
{
    return sbp_cuda_copy(host, memory, bytes, true, NULL);
}

static enum sbp_status cuda_from_host(void *memory, const void *host, int64_t bytes)
{
    return sbp_cuda_copy(memory, host, bytes, false, NULL);
}

const struct sbp_memory_ops sbp_memory_cuda = {
    .name = "cuda",
    .allocate = cuda_allocate,
    .release = cuda_release,
    .to_host = cuda_to_host,
    .from_host = cuda_from_host,
};
