/* The `cpu` device: host memory, kernels on OpenBLAS that are done when they return. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "executor/device/device.h"

enum { ALIGNMENT = 64 };

static void *host_allocate(int64_t bytes)
{
    if (bytes < 0 || bytes > PTRDIFF_MAX - ALIGNMENT)
        return NULL;
    /* aligned_alloc wants a multiple of the alignment; an empty buffer still has an address. */
    const size_t blocks = bytes == 0 ? 1 : ((size_t)bytes + ALIGNMENT - 1) / ALIGNMENT;
    void *memory = aligned_alloc(ALIGNMENT, blocks * ALIGNMENT);
    if (memory != NULL)
        memset(memory, 0, blocks * ALIGNMENT);
    return memory;
}

static void host_release(void *memory)
{
    free(memory);
}

static enum sbp_status host_copy(void *to, const void *from, int64_t bytes)
{
    if (bytes < 0)
        return SBP_E_RANGE;
    if (bytes > 0)
        memcpy(to, from, (size_t)bytes);
    return SBP_OK;
}

const struct sbp_memory_ops sbp_device_host_memory = {
    .name = "host",
    .allocate = host_allocate,
    .release = host_release,
    .to_host = host_copy,
    .from_host = host_copy,
};

static int cpu_count(void)
{
    return 1;
}

static enum sbp_status cpu_open(int rank, struct sbp_diag *diag)
{
    (void)rank, (void)diag;
    return SBP_OK;
}

static void cpu_close(void)
{
}

static enum sbp_status cpu_finish(struct sbp_diag *diag)
{
    (void)diag;
    return SBP_OK;
}

const struct sbp_device_ops sbp_device_cpu = {
    .name = "cpu",
    .memory = &sbp_device_host_memory,
    .count = cpu_count,
    .allocate_host = host_allocate,
    .release_host = host_release,
    .open = cpu_open,
    .close = cpu_close,
    .finish = cpu_finish,
    .compute_s = sbp_thread_cpu_s,
    .kernels = sbp_kernels_cpu,
};
