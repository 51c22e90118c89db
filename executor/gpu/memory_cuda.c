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

/* cudaMalloc aligns to 256 bytes. The null stream is waited for, since streams that do not block on
 * it would see memory that is not zeroed yet. */
static void *cuda_allocate(int64_t bytes)
{
    const size_t size = bytes > 0 ? (size_t)bytes : 1;
    void *memory = NULL;
    if (bytes < 0 || cudaMalloc(&memory, size) != cudaSuccess)
        return NULL;
    if (cudaMemset(memory, 0, size) == cudaSuccess && cudaStreamSynchronize(NULL) == cudaSuccess)
        return memory;
    (void)cudaFree(memory); /* the device has failed already */
    return NULL;
}

static void cuda_release(void *memory)
{
    (void)cudaFree(memory); /* what fails here failed before, in a call that is checked */
}

static enum sbp_status copy(void *to, const void *from, int64_t bytes, enum cudaMemcpyKind kind)
{
    if (bytes < 0)
        return SBP_E_RANGE;
    if (bytes == 0)
        return SBP_OK;
    SBP_CUDA_TRY(NULL, cudaMemcpy, to, from, (size_t)bytes, kind);
    /* A copy from pageable memory may come back before the last bytes are there. */
    SBP_CUDA_TRY(NULL, cudaStreamSynchronize, NULL);
    return SBP_OK;
}

static enum sbp_status cuda_to_host(void *host, const void *memory, int64_t bytes)
{
    return copy(host, memory, bytes, cudaMemcpyDeviceToHost);
}

static enum sbp_status cuda_from_host(void *memory, const void *host, int64_t bytes)
{
    return copy(memory, host, bytes, cudaMemcpyHostToDevice);
}

const struct sbp_memory_ops sbp_memory_cuda = {
    .name = "cuda",
    .allocate = cuda_allocate,
    .release = cuda_release,
    .to_host = cuda_to_host,
    .from_host = cuda_from_host,
};
