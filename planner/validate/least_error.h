/* Finds where predictions are the least off: a point of the unit cube at which the mean absolute
 * error of some points is the least.
 *
 * Input: a function that tells all errors at once, and where to begin. Output: the best that was
 * found. Coordinates that gain less than `hold` times their way stay where they began, so that
 * what errors do not determine is kept.
 *
 * Errors may bend (a pass takes the longer of what its device and its host take), and their
 * absolute sum has ridges off all axes, on which no coordinate alone gains anything. So a few
 * rounds of steps along the axes find the valley, and then each round takes slopes and goes where
 * the sum of the absolute linear errors is the least within a radius that follows how well the
 * slopes, each taken on the side where the way goes, told the truth: the successive linear programs
 * of Osborne and Watson (1971, "On an algorithm for discrete nonlinear L1 approximation", The
 * Computer Journal 14). The same input gives the same output.
 */
#ifndef SBP_PLANNER_VALIDATE_LEAST_ERROR_H
#define SBP_PLANNER_VALIDATE_LEAST_ERROR_H

#include "base/status.h"

#define SBP_LEAST_ERROR_MOST 8 /* coordinates */

struct sbp_least_error {
    int coordinates, points; /* up to SBP_LEAST_ERROR_MOST; any number */
    double hold;             /* error that a coordinate must gain on its way from 0 to 1 */
    /* Fills (points) errors at (coordinates) values from 0 to 1. */
    enum sbp_status (*errors)(void *context, const double *at, double *error);
    void *context;
};

/* at: (coordinates) where to begin, then the best. A beginning outside of the cube is kept where
 * nothing inside is better. Fails as `errors`, with the best so far; E_MEMORY. */
enum sbp_status sbp_least_error_find(const struct sbp_least_error *problem, double *at,
                                     struct sbp_diag *diag) SBP_MUST_USE;

#endif
