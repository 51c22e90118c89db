#include "executor/device/memory.h"

#include <stdlib.h>
#include <string.h>

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
