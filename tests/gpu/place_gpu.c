/* Kernels run on the first GPU, each to its end before its launch returns. Buffers lie in managed
 * memory, so that the host fills and reads them in their places. Exits with 77 where no GPU is. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/gpu/device.h"

static void *allocate(size_t bytes)
{
    void *memory = NULL;
    if (cudaMallocManaged(&memory, bytes, cudaMemAttachGlobal) != cudaSuccess)
        return NULL;
    return memset(memory, 0, bytes);
}

static void release(void *memory)
{
    (void)cudaFree(memory); /* a failure of a kernel before was told by wait_for_kernels */
}

static void wait_for_kernels(void)
{
    const cudaError_t error = cudaDeviceSynchronize();
    if (error != cudaSuccess)
        fail_msg("a kernel: %s", cudaGetErrorString(error));
}

void device_order(uint64_t seed)
{
    (void)seed;
}

int device_shared_bytes(void)
{
    int bytes = 0;
    assert_int_equal(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0),
                     cudaSuccess);
    return bytes;
}

/* Before the runtime begins, which reads the variable then. */
__attribute__((constructor)) static void begin(void)
{
    int devices = 0;
    const int is_set = setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
    const cudaError_t error = cudaGetDeviceCount(&devices);
    if (is_set != 0 || error != cudaSuccess || devices == 0) {
        (void)fprintf(stderr, "no GPU: %s\n", cudaGetErrorString(error));
        _exit(77);
    }
    check_memory = (struct check_memory){allocate, release, wait_for_kernels};
}
