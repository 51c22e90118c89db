/* Timing one rank's compute: matrix products over a grid of shapes, a large copy, the smallest
 * product.
 *
 * By thread CPU time, because wall time says nothing about a kernel while ranks share cores; all
 * ranks work at the same time, as in a step, and the slowest counts.
 */
#ifndef SBP_CALIB_GEMM_H
#define SBP_CALIB_GEMM_H

#include "calib/cell.h"
#include "calib/products.h"
#include "calib/samples.h"

/* Bytes of the copy for so many ranks on this machine: beyond the caches, all ranks' buffers
 * together a quarter of memory at most. */
int64_t sbp_copy_bytes(int ranks);

#define SBP_MAX_GEMMS 64
struct sbp_compute_times {
    int gemm_count;
    struct sbp_gemm_point gemm[SBP_MAX_GEMMS];
    /* The copy, then (gemm_count); a count of 0: not timed. */
    struct sbp_samples samples[SBP_MAX_GEMMS + 1];
    int64_t copy_bytes; /* read once and written once */
    double launch_s;    /* of the smallest product; 0: not timed */
};

/* One rank's matrices. */
struct sbp_compute {
    int64_t copy_bytes;
    float *y, *a, *b; /* the largest of each over the shapes; a and b serve the copy as well */
};

/* E_MEMORY; nothing is left allocated then. */
enum sbp_status sbp_compute_open(struct sbp_compute *compute, int64_t copy_bytes,
                                 struct sbp_diag *diag) SBP_MUST_USE;
void sbp_compute_close(struct sbp_compute *compute);
/* Does the work of a cell (product, copy or launch) once; its thread CPU time. */
double sbp_compute_repeat(const struct sbp_compute *compute, const struct sbp_cell *cell);

#endif
