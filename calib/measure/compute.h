/* Times one rank's compute on the processor that it has: matrix products over a grid of shapes,
 * those of experts, a large copy, the smallest product, an element-wise sum, GELU, attention, rows
 * put in the order of their experts.
 *
 * All ranks work at the same time, as in a step, and the slowest counts. Times are those of the
 * processor's own clock: on a CPU the thread's CPU time, because wall time says nothing about a
 * kernel while ranks share cores; on a GPU events before and behind the work. What a host takes to
 * launch work ahead of a GPU is its thread's CPU time.
 */
#ifndef SBP_CALIB_MEASURE_COMPUTE_H
#define SBP_CALIB_MEASURE_COMPUTE_H

#include "calib/samples/sweep.h"

struct sbp_compute; /* one rank's matrices and clocks */

/* A call of the network that runs beside products. */
struct sbp_beside {
    /* Puts it into the stream, or, where that is NULL, returns when it is over. */
    enum sbp_status (*call)(void *context, void *stream, struct sbp_diag *diag);
    /* Fails where what was put into a stream never ends. */
    enum sbp_status (*look)(void *context, struct sbp_diag *diag);
    void *context;
};

/* The processor of one rank. */
struct sbp_processor {
    char name[128];       /* of a device that ranks do not share, "NVIDIA H200"; "": the host's */
    int64_t memory_bytes; /* of that device; 0: the rank's share of the host's */
    int64_t copy_bytes;   /* of the copy: beyond the caches, and little of the memory */
    unsigned lacks;       /* bits of enum sbp_lack */
};

struct sbp_compute_ops {
    enum sbp_products products; /* which list of products is timed */
    /* The processor, where `ranks` ranks share this host. E_BACKEND. */
    enum sbp_status (*find)(int ranks, struct sbp_processor *processor, struct sbp_diag *diag);
    /* E_MEMORY, E_BACKEND; nothing is left allocated then. */
    enum sbp_status (*open)(struct sbp_compute **compute, int64_t copy_bytes,
                            struct sbp_diag *diag);
    void (*close)(struct sbp_compute *compute); /* NULL is legal */
    /* Does the work of a cell (product, grouped products, copy, launch, stream; GELU, attention,
     * rows and the link to the host where the list of products has them) once and times it. A
     * matrix has up to copy_bytes, or what the largest of the list has, those of a group together.
     * E_BACKEND. */
    enum sbp_status (*repeat)(struct sbp_compute *compute, const struct sbp_cell *cell,
                              double *time_s, struct sbp_diag *diag);
    /* Does so many products of a cell's sizes one behind the other, and the call (NULL: none)
     * beside them, and times until all are over, by one clock for both: that of the wall on a CPU.
     * E_BACKEND, E_MEMORY, and as the call fails. */
    enum sbp_status (*beside)(struct sbp_compute *compute, const struct sbp_cell *cell,
                              int products, const struct sbp_beside *beside, double *time_s,
                              struct sbp_diag *diag);
};

extern const struct sbp_compute_ops sbp_compute_cpu;

#endif
