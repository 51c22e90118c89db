/* Devices: where a rank's memory lives, and which kernels compute on it.
 *
 * A device is a table of functions: `cpu`, and `cuda`, which a module brings (executor/gpu/).
 */
#ifndef SBP_EXECUTOR_DEVICE_DEVICE_H
#define SBP_EXECUTOR_DEVICE_DEVICE_H

#include <stdbool.h>
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

/* A rank computes on one thread, from open to close; the rest but `kernels` is called between. */
struct sbp_device_ops {
    const char *name;
    const struct sbp_memory_ops *memory;
    /* Prepares this thread, a rank of the run, for a device of its host: of several the one of its
     * place among the host's ranks, so that ranks beyond their number share devices; -1: the one
     * that its backend has chosen. E_UNSUPPORTED: the host has none; E_MEMORY, E_BACKEND. On
     * failure there is nothing to close. */
    enum sbp_status (*open)(int place, struct sbp_diag *diag);
    void (*close)(void);
    /* Waits for all kernels that were issued. E_BACKEND: one of them, or of those before, failed,
     * or a copy; the first failure is told, and again by every later call. */
    enum sbp_status (*finish)(struct sbp_diag *diag);
    /* Bytes of memory that are free on it, -1: unknown; NULL: nobody looks here. */
    int64_t (*free_bytes)(void);
    /* Seconds this rank has spent computing: thread CPU time on cpu (wall time means little when
     * ranks share cores), event time on a GPU. */
    double (*compute_s)(void);
    bool counts_thread; /* compute_s is all CPU time of the thread, whatever it does */
    /* NULL: none of this type. */
    const struct sbp_kernels *(*kernels)(enum sbp_real real);
    /* The same, of which products in f32 round their factors to TF32; NULL: it has no such. */
    const struct sbp_kernels *(*kernels_tf32)(enum sbp_real real);
};

extern const struct sbp_device_ops sbp_device_cpu;

/* A module's device: its symbol sbp_device_module. */
struct sbp_device_module {
    const char *version; /* it was built with */
    const struct sbp_device_ops *ops;
};
/* NULL with a text: not in this build, or the module or a library that it needs is not there. */
const struct sbp_device_ops *sbp_device_load_cuda(struct sbp_diag *diag);

/* "cpu", "cuda". E_USAGE: another name; E_UNSUPPORTED with a text that says what this build has. */
enum sbp_status sbp_device_find(const char *name, const struct sbp_device_ops **device,
                                struct sbp_diag *diag) SBP_MUST_USE;
/* The same; NULL on failure. */
const struct sbp_device_ops *sbp_device(const char *name, struct sbp_diag *diag);

#endif
