/* Fits the alpha and beta of a network level to measured times (AutoDDL, section 3.2).
 *
 * Each point is one equation of the paper's linear system, t = steps(kind, g) alpha +
 * share(kind, g) n beta. The coefficients are those of costmodel/cluster/collective_kind.h, by
 * which plans are priced. It is solved by least squares with alpha, beta >= 0.
 */
#ifndef SBP_CALIB_FIT_LEVEL_FIT_H
#define SBP_CALIB_FIT_LEVEL_FIT_H

#include "base/status.h"
#include "costmodel/cluster/collective.h"

#define SBP_FIT_KINDS SBP_LOCAL /* all-reduce .. send-recv */

/* One measured collective. */
struct sbp_fit_point {
    enum sbp_collective kind; /* all-reduce .. send-recv */
    int members;              /* g >= 2 */
    double bytes;             /* n of the cost formula, > 0 */
    double time_s;            /* > 0 */
};

/* The sum that least squares minimises; p is the predicted and t the measured time. */
enum sbp_fit_weights {
    SBP_FIT_RELATIVE,  /* sum (p/t - 1)^2: weights 1/t */
    SBP_FIT_SYMMETRIC, /* sum (p - t)^2 / (p t): half as much and twice as much are equally wrong,
                          so that predictions are not low on the whole, as with RELATIVE */
    SBP_FIT_NONE,      /* sum (p - t)^2, the paper's own: the largest messages decide alone */
};
#define SBP_FIT_WEIGHTS 3
extern const char *const sbp_fit_weights_names[]; /* NULL-ended */

/* How predictions compare with measurements over some points. */
struct sbp_fit_error {
    int points;
    double median, max; /* of |p - t| / t */
    double ratio;       /* geometric mean of p / t: 1 is right on the whole */
};

struct sbp_fit {
    double alpha_s, beta_s_per_byte;
    struct sbp_fit_error error; /* over the points that were fitted */
};

/* E_INPUT: no points, a point out of range, or points that cannot tell alpha from beta (all have
 * the same ratio of steps to bytes); E_MEMORY. */
enum sbp_status sbp_fit_points(const struct sbp_fit_point *points, int count,
                               enum sbp_fit_weights weights, struct sbp_fit *fit,
                               struct sbp_diag *diag) SBP_MUST_USE;

/* Compares other points with given parameters; zeros for no points. E_MEMORY. */
enum sbp_status sbp_fit_judge(double alpha_s, double beta_s_per_byte,
                              const struct sbp_fit_point *points, int count,
                              struct sbp_fit_error *error, struct sbp_diag *diag) SBP_MUST_USE;

/* Seconds that a pair of parameters predicts for a point. */
double sbp_fit_predict_s(double alpha_s, double beta_s_per_byte, const struct sbp_fit_point *point);

#endif
