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

/* A device works in lanes, beside its rank, which goes on, and beside each other. Each lane does
 * one thing after the other. */
enum sbp_device_lane {
    SBP_DEVICE_COMPUTE, /* also messages, and whatever is of no task */
    SBP_DEVICE_COLLECTIVE,
    SBP_DEVICE_COPY_IN,
    SBP_DEVICE_COPY_OUT,
    SBP_DEVICE_LANES
};

/* Lanes are given tasks, by their places in a list, one at a time. Compute is the line of the rank:
 * another lane's task comes behind all of it so far, and what compute is given next behind that
 * task, unless it is left beside. Kernels, collectives and the memory's copies of the thread go to
 * the lane of the task at hand; the memory's to_host waits for that lane alone. What fails is told
 * by `finish`. */
struct sbp_device_lanes {
    /* Makes room for the times of a list of so many tasks. E_MEMORY, E_BACKEND. */
    enum sbp_status (*reserve)(int64_t tasks, struct sbp_diag *diag);
    /* Has look called again and again while the rank waits for the device, with the first task
     * given that is not over, -1: none; its failure ends the wait, and is the device's from then
     * on. */
    void (*watch)(enum sbp_status (*look)(void *context, int64_t task, struct sbp_diag *diag),
                  void *context);
    void (*look)(void);       /* has it called once, as a wait would */
    void (*begin_step)(void); /* everything is over */
    /* Also behind one of the step that was left beside, -1: behind none. */
    void (*begin)(int64_t task, enum sbp_device_lane lane, int64_t behind);
    void (*end)(bool beside);    /* of the task at hand, which may be left beside */
    void (*await)(int64_t task); /* compute waits for one that was left beside */
    void *(*stream)(void);       /* of the lane at hand: cudaStream_t */
    /* A copy by the lane at hand; host memory is of allocate_host, and nobody touches either side
     * until the task is over. E_RANGE: bytes < 0. */
    enum sbp_status (*copy)(void *to, const void *from, int64_t bytes, bool to_host);
    /* When a task of this step, which is over, began and ended, in seconds from begin_step on. */
    void (*times)(int64_t task, double *begin_s, double *end_s);
};

/* A rank computes on one thread, from open to close; the rest but `kernels` is called between. */
struct sbp_device_ops {
    const char *name;
    const struct sbp_memory_ops *memory;
    int (*count)(void); /* of them that this host has */
    /* Memory of the host for the lanes' copies; as of a table of memory. */
    void *(*allocate_host)(int64_t bytes);
    void (*release_host)(void *memory);
    const struct sbp_device_lanes *lanes; /* NULL: all is done when a call returns */
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
    /* Seconds this rank has spent computing, where there are no lanes, which tell times: CPU time
     * of the thread (wall time means little when ranks share cores). */
    double (*compute_s)(void);
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

/* "cpu", "cuda"; "auto": cuda where it can be loaded and the host has a GPU, else cpu. E_USAGE:
 * another name; E_UNSUPPORTED with a text that says what this build has. */
enum sbp_status sbp_device_find(const char *name, const struct sbp_device_ops **device,
                                struct sbp_diag *diag) SBP_MUST_USE;
/* The same; NULL on failure. */
const struct sbp_device_ops *sbp_device(const char *name, struct sbp_diag *diag);

#endif
