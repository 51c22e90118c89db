/* Measuring: performs the cells of a sweep, run after run, and hands on each as it is done.
 *
 * A run is one pass over all cells; several runs tell noise that lasts for minutes from noise
 * within them. What is left of the time is shared out over what is left to do: a cell may take up
 * to CELL_SHARES times its share. All decisions come from values that all ranks have agreed on.
 */
#ifndef SBP_CALIB_MEASURE_MEASURE_H
#define SBP_CALIB_MEASURE_MEASURE_H

#include "calib/measure/compute.h"
#include "calib/samples/placement.h"
#include "calib/samples/sample_file.h"
#include "calib/samples/sweep.h"

struct sbp_measuring {
    struct sbp_endpoint ranks;         /* whose calls are timed */
    const struct sbp_sampler *sampler; /* borrowed, as what follows */
    const struct sbp_compute_ops *compute;
    const struct sbp_rank_placement *placement;
    const struct sbp_sample_sweep *sweep;
    int runs;
    uint64_t seed;    /* of the order; the same on all ranks */
    double budget_s;  /* ranks may differ by what they have used up: the least counts */
    const bool *done; /* (runs, sweep->count): measured before; rank 0's counts */
    bool progress;    /* this rank shows a progress line */

    /* Called on rank 0 alone with each result, which lives as long as the call. */
    enum sbp_status (*take)(void *context, const struct sbp_result *result, struct sbp_diag *diag);
    void *context;
};

/* Collective. *finished: every cell was measured; else the time was over.
 * E_MEMORY, E_BACKEND, E_PEER, what take returns. */
enum sbp_status sbp_measure(const struct sbp_measuring *measuring, bool *finished,
                            struct sbp_diag *diag) SBP_MUST_USE;

#endif
