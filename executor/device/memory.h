/* Memory that buffers lie in: a host's, or a GPU's (executor/gpu/gpu.h). */
#ifndef SBP_EXECUTOR_DEVICE_MEMORY_H
#define SBP_EXECUTOR_DEVICE_MEMORY_H

#include <stdint.h>

#include "base/status.h"

struct sbp_memory_ops {
    const char *name; /* "host" */
    /* 64-byte aligned zeroed memory, the caller's to release; NULL when it is out or bytes < 0. */
    void *(*allocate)(int64_t bytes);
    void (*release)(void *memory); /* NULL is legal */
    /* Done when they return. E_RANGE: bytes < 0; E_BACKEND. */
    enum sbp_status (*to_host)(void *host, const void *memory, int64_t bytes);
    enum sbp_status (*from_host)(void *memory, const void *host, int64_t bytes);
};

extern const struct sbp_memory_ops sbp_device_host_memory;

#endif
