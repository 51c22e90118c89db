/* Forms whole grids of rates out of the sizes that were timed.
 *
 * A grid of a cluster file has a rate for every combination of its sizes. Not all are timed: the
 * largest take too long, and the time of a calibration ends. A size stays where at least a third of
 * its combinations with the others were timed; the rates that are missing then are filled in.
 *
 * A missing rate is told from its neighbours in the planes of two axes: from one size to the next
 * of an axis it changes by the same factor as one step beside (the mean over planes). So rates that
 * no longer rise stay. All lie between the least and the best that were timed.
 */
#ifndef SBP_CALIB_FIT_GRID_FIT_H
#define SBP_CALIB_FIT_GRID_FIT_H

#include "calib/samples/points.h"

#define SBP_MAX_GRID_POINTS  SBP_MAX_GEMMS
#define SBP_LEAST_GRID_PARTS 3 /* one such part of a size's combinations is timed at least */

struct sbp_grid_point {
    int64_t size[SBP_RATE_AXES];
    double flops; /* FLOP/s, > 0 */
};

/* count[0] = 0: nothing was timed. */
struct sbp_grid_fit {
    int count[SBP_RATE_AXES];
    int64_t size[SBP_RATE_AXES][SBP_MAX_GRID_POINTS]; /* (count) rising */
    int timed;                                        /* so many rates; the others are filled in */
    double flops[SBP_LEAST_GRID_PARTS *
                 SBP_MAX_GRID_POINTS]; /* FLOP/s: (count[0], count[1], count[2]) row-major */
};

/* points (count), SBP_MAX_GRID_POINTS at most, which all differ in size, are reordered. */
void sbp_grid_fit(struct sbp_grid_point *points, int count, struct sbp_grid_fit *fit);
/* The rates of a grid. */
int sbp_grid_fit_rates(const struct sbp_grid_fit *fit);

#endif
