/* Forms rates of attention on grids out of the times of its cells.
 *
 * Input are the times of compute (calib/samples/points.h). Rates are of the flops that sbp_op_work
 * counts.
 */
#ifndef SBP_CALIB_FIT_ATTENTION_FIT_H
#define SBP_CALIB_FIT_ATTENTION_FIT_H

#include "calib/fit/grid_fit.h"

#define SBP_ATTENTION_PASSES 2 /* forward, input gradient */

/* By enum sbp_pass, over head size, sequence and rows, of which there is one. */
struct sbp_attention_fit {
    enum sbp_type type;
    struct sbp_grid_fit grid[SBP_ATTENTION_PASSES];
};

/* Cells of one type, of which a product was timed, and of the same rows count: those of which there
 * are most, of as many the last. */
void sbp_attention_fit(const struct sbp_compute_times *times, struct sbp_attention_fit *fit);
bool sbp_attention_fit_is_empty(const struct sbp_attention_fit *fit);

#endif
