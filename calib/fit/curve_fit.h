/* Fits a monotone curve of at most three alpha-beta segments to the measured times of one
 * collective and group shape: input are sizes and times, output is the curve.
 *
 * Deviations are relative, so that small messages count as much as large ones. Dynamic programming
 * over the sizes lays out the segments; then their alphas and betas, all >= 0, are found together,
 * so that no segment begins below the end of the one before, by one of two methods:
 * - least absolute deviations, sum |p / t - 1|, as a linear program (calib/fit/lad.h);
 * - least squares, sum (p / t - 1)^2, segment by segment, later ones lifted where they would fall.
 * Held-out sizes decide which: every second size is predicted from the others. Without GLPK there
 * is least squares alone. The curve has as many segments as there are sizes for, up to three; on
 * published logs of 5 to 31 sizes, choosing their number by held-out sizes, too, predicted further
 * sizes worse (median error 4.5 % instead of 2.8 %).
 */
#ifndef SBP_CALIB_FIT_CURVE_FIT_H
#define SBP_CALIB_FIT_CURVE_FIT_H

#include "base/status.h"
#include "costmodel/cluster/network.h"

struct sbp_curve_sample {
    double bytes, time_s; /* > 0 */
};

enum sbp_curve_method { SBP_CURVE_LAD, SBP_CURVE_SQUARES };
#define SBP_CURVE_METHODS 2
/* "least absolute deviations", "least squares" */
const char *sbp_curve_method_text(enum sbp_curve_method method);

struct sbp_curve_fit {
    enum sbp_curve_method method;
    int segment_count;
    struct sbp_segment segment[SBP_NETWORK_SEGMENTS];
};

/* Most sizes of a curve: more than any benchmark prints. */
#define SBP_MOST_CURVE_SAMPLES 512

/* Chooses the method. Sizes rise; count >= 1. A segment has at least two sizes, in curves of 12 or
 * more three. E_INPUT: sizes that do not rise, a value that is not above 0, too many; E_MEMORY. */
enum sbp_status sbp_curve_fit(const struct sbp_curve_sample *samples, int count,
                              struct sbp_curve_fit *fit, struct sbp_diag *diag) SBP_MUST_USE;
/* Fits by one method, with at most `segments` segments, 1 .. SBP_NETWORK_SEGMENTS. E_UNSUPPORTED:
 * least absolute deviations without GLPK. */
enum sbp_status sbp_curve_fit_with(const struct sbp_curve_sample *samples, int count,
                                   enum sbp_curve_method method, int segments,
                                   struct sbp_curve_fit *fit, struct sbp_diag *diag) SBP_MUST_USE;

double sbp_curve_fit_s(const struct sbp_curve_fit *fit, double bytes);

#endif
