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

static enum sbp_status cpu_finish(void)
{
    return SBP_OK;
}

static const struct sbp_device_ops cpu_ops = {
    .name = "cpu",
    .memory = &sbp_device_host_memory,
    .finish = cpu_finish,
    .compute_s = sbp_thread_cpu_s,
    .kernels = sbp_kernels_cpu,
};

const struct sbp_device_ops *sbp_device(const char *name, struct sbp_diag *diag)
{
    if (strcmp(name, "cpu") == 0)
        return &cpu_ops;
    if (strcmp(name, "cuda") == 0)
        (void)sbp_fail(diag, SBP_E_UNSUPPORTED, "device cuda: not in this build, which has cpu");
    else
        (void)sbp_fail(diag, SBP_E_USAGE, "device %s: unknown, legal are cpu and cuda", name);
    return NULL;
}
