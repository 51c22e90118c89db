/* Measures the cells of a sweep, run after run, and hands on each result as soon as it is there.
 *
 * A run is one pass over all cells; several runs tell noise that lasts for minutes from noise
 * within them. The time that is left is divided among the cells that are left; a cell may take up
 * to CELL_SHARES times its part. All decisions come from values that all ranks have agreed on.
 */
#ifndef SBP_CALIB_MEASURE_MEASURE_H
#define SBP_CALIB_MEASURE_MEASURE_H

#include "calib/measure/compute.h"
#include "calib/measure/sampler.h"
#include "calib/samples/sample_file.h"

struct sbp_measuring {
    struct sbp_endpoint ranks;         /* whose calls are timed */
    const struct sbp_sampler *sampler; /* all pointers are borrowed */
    const struct sbp_compute_ops *compute;
    const struct sbp_rank_placement *placement;
    const struct sbp_sample_sweep *sweep;
    int runs;
    uint64_t seed;    /* of the order; the same on all ranks */
    double budget_s;  /* may differ among ranks: the least counts */
    const bool *done; /* (runs, sweep->count): measured before; rank 0's counts */
    bool progress;    /* this rank shows a progress line */

    /* Called on every rank before the first cell, when all ranks have their memory. */
    void (*begin)(void *context);
    /* Called on rank 0 alone with each result, which lives as long as the call. */
    enum sbp_status (*take)(void *context, const struct sbp_result *result, struct sbp_diag *diag);
    void *context;
};

/* Collective. *finished: every cell was measured; else the time was over.
 * E_MEMORY, E_BACKEND, E_PEER, and the errors of `take`. */
enum sbp_status sbp_measure(const struct sbp_measuring *measuring, bool *finished,
                            struct sbp_diag *diag) SBP_MUST_USE;

#endif
