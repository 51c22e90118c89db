/* Devices: where a rank's memory lives, and which kernels compute on it.
 *
 * A device is a table of functions. This build has `cpu`; a table for GPUs would go beside it.
 */
#ifndef SBP_EXECUTOR_DEVICE_DEVICE_H
#define SBP_EXECUTOR_DEVICE_DEVICE_H

#include <stdint.h>

#include "base/status.h"
#include "kernels/kernels.h"

/* Memory that buffers lie in: a host's, or a GPU's (executor/gpu/gpu.h). */
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

struct sbp_device_ops {
    const char *name;
    const struct sbp_memory_ops *memory;
    /* Waits for all kernels that were issued. */
    enum sbp_status (*finish)(void);
    /* Seconds this rank has spent computing: thread CPU time on cpu (wall time means little when
     * ranks share cores), event time on a GPU. */
    double (*compute_s)(void);
    const struct sbp_kernels *(*kernels)(enum sbp_real real);
};

/* "cpu", "cuda"; NULL with a text that says what this build has. */
const struct sbp_device_ops *sbp_device(const char *name, struct sbp_diag *diag);

#endif
