/* Solves least absolute deviations with parameters >= 0, as a linear program on GLPK:
 *   minimise sum_i (u_i + v_i) over x, u, v >= 0, with sum_j matrix_ij x_j + u_i - v_i = target_i
 * and further rows sum_j order_kj x_j >= 0.
 */
#ifndef SBP_CALIB_FIT_LAD_H
#define SBP_CALIB_FIT_LAD_H

#include <stdbool.h>

#include "base/status.h"

#define SBP_LAD_COLUMNS 8

struct sbp_lad {
    int rows, columns;    /* columns <= SBP_LAD_COLUMNS */
    const double *matrix; /* (rows, columns) row-major, finite */
    const double *target; /* (rows) */
    int order_rows;
    const double *order; /* (order_rows, columns) */
};

/* Whether this build has GLPK. */
bool sbp_lad_is_available(void);

/* x: (columns). E_UNSUPPORTED without GLPK; E_INTERNAL: GLPK gave up; E_MEMORY. */
enum sbp_status sbp_lad_solve(const struct sbp_lad *lad, double *x,
                              struct sbp_diag *diag) SBP_MUST_USE;

#endif
