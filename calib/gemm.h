/* Timing one rank's compute: matrix products of several shapes and a large copy.
 *
 * By thread CPU time, because wall time says nothing about a kernel while ranks share cores; all
 * ranks work at the same time, as in a step, and the slowest counts.
 */
#ifndef SBP_CALIB_GEMM_H
#define SBP_CALIB_GEMM_H

#include "calib/samples.h"
#include "costmodel/cluster.h"

/* (m,k) x (k,n) in one element type. */
struct sbp_gemm_point {
    enum sbp_type type; /* FP32 or FP64 */
    int64_t m, n, k;
};

#define SBP_MAX_GEMMS 32
struct sbp_compute_times {
    int gemm_count;
    struct sbp_gemm_point gemm[SBP_MAX_GEMMS];
    /* The copy, then (gemm_count); a count of 0: the budget was over. */
    struct sbp_samples samples[SBP_MAX_GEMMS + 1];
    int64_t copy_bytes; /* read once and written once */
};

/* Collective over all ranks. The copy and one shape of each type are timed whatever the budget.
 * E_MEMORY, E_BACKEND, E_PEER. */
enum sbp_status sbp_measure_compute(const struct sbp_sampler *sampler,
                                    struct sbp_compute_times *times,
                                    struct sbp_diag *diag) SBP_MUST_USE;

#endif
