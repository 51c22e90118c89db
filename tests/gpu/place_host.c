/* Kernels run on the host, one block and one thread after another. */
#include "kernels/cuda/host/host.h"
#include "tests/gpu/device.h"

void device_order(uint64_t seed)
{
    sbp_gpu_host_seed(seed);
}

int64_t device_wide_accesses(void)
{
    return sbp_gpu_host_counts().wide;
}

int device_shared_bytes(void)
{
    return 232448; /* as on sm_90 */
}
