/* Times one rank's compute on the processor that it has: matrix products over a grid of shapes,
 * those of experts, a large copy, the smallest product, an element-wise sum, GELU, attention, rows
 * put in the order of their experts.
 *
 * All ranks work at the same time, as in a step, and the slowest counts. Times are those of the
 * processor's own clock: on a CPU the thread's CPU time, because wall time says nothing about a
 * kernel while ranks share cores; on a GPU events before and behind the work.
 */
#ifndef SBP_CALIB_MEASURE_COMPUTE_H
#define SBP_CALIB_MEASURE_COMPUTE_H

#include "calib/samples/sweep.h"

struct sbp_compute; /* one rank's matrices and clocks */

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
    /* Does the work of a cell (product, grouped products, copy, launch, stream; GELU, attention and
     * rows where the list of products has them) once and times it. A matrix has up to copy_bytes,
     * or what the largest of the list has, those of a group together. E_BACKEND. */
    enum sbp_status (*repeat)(struct sbp_compute *compute, const struct sbp_cell *cell,
                              double *time_s, struct sbp_diag *diag);
};

extern const struct sbp_compute_ops sbp_compute_cpu;

#endif
