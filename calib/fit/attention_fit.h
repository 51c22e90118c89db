/* Forms rates of attention on grids out of the times of its cells.
 *
 * Input are the times of compute (calib/samples/points.h). A grid of a cluster file has a rate for
 * every combination of its sizes, so a head size or a sequence of which one was not timed, as where
 * the time was over, is left out. Rates are of the flops that sbp_op_work counts.
 */
#ifndef SBP_CALIB_FIT_ATTENTION_FIT_H
#define SBP_CALIB_FIT_ATTENTION_FIT_H

#include "calib/samples/points.h"

#define SBP_ATTENTION_PASSES 2 /* forward, input gradient */

/* One pass over a grid; head_sizes 0: it has none. */
struct sbp_attention_grid {
    int head_sizes, sequences;
    int64_t head_size[SBP_MAX_ATTENTION]; /* (head_sizes) rising */
    int64_t sequence[SBP_MAX_ATTENTION];  /* (sequences) rising */
    double flops[SBP_MAX_ATTENTION];      /* FLOP/s: (head_sizes, sequences) row-major */
};

/* By enum sbp_pass. */
struct sbp_attention_fit {
    enum sbp_type type;
    int64_t rows; /* queries x heads of every cell */
    struct sbp_attention_grid grid[SBP_ATTENTION_PASSES];
};

/* Cells of one type, of which a product was timed, and of the same rows count: those of which there
 * are most, of as many the last. */
void sbp_attention_fit(const struct sbp_compute_times *times, struct sbp_attention_fit *fit);
bool sbp_attention_fit_is_empty(const struct sbp_attention_fit *fit);

#endif
