/* Judges how well a fit predicts: in sample, and on sizes and group shapes that it was not shown.
 *
 * - Errors are |predicted / measured - 1|.
 * - Held-out sizes: a curve of the other sizes, with method and segments chosen anew, predicts
 *   every second size of a shape; of fewer than eight sizes all others predict each one but the
 *   smallest.
 * - Held-out shapes: the curves and formulas of all other shapes predict a shape. Shapes between
 *   others are told from those beyond them (more nodes or fewer, or the only ones over several).
 * - Mis-ordered pairs: measured times differ by over 1.2x and the prediction puts the longer one
 *   first, so that a planner would choose wrongly.
 * - Falling pairs: the smaller message of a group takes longer. No rising curve orders them, so
 *   at least these are mis-ordered in sample.
 */
#ifndef SBP_CALIB_FIT_QUALITY_H
#define SBP_CALIB_FIT_QUALITY_H

#include "calib/fit/shapes.h"

struct sbp_errors {
    int count;
    double median, most; /* most: nine of ten are not above */
    int64_t pairs;       /* looked at */
    double mis_ordered;  /* share of the pairs */
    double falling;      /* share of the pairs that no curve that rises orders */
};

struct sbp_shape_quality {
    enum sbp_curve_method method;
    double in_sample, held_out_sizes, held_out_shape; /* medians; NAN: not to be said */
};

struct sbp_quality {
    struct sbp_errors in_sample, held_out_sizes;
    struct sbp_errors between, beyond; /* held-out shapes */
    double noise;                      /* median spread of a point; 0: none has one */
    struct sbp_shape_quality *shape;   /* (shapes) */
};

/* Predicts the seconds of a size of a shape; NAN: it cannot. */
typedef double sbp_predict_fn(const void *model, const struct sbp_measured_group *shape,
                              double bytes);

/* Sums up the errors over all samples of all shapes; scratch comes from the arena. E_MEMORY. */
enum sbp_status sbp_quality_errors(const struct sbp_measured_groups *shapes,
                                   sbp_predict_fn *predict, const void *model,
                                   struct sbp_arena *arena, struct sbp_errors *errors,
                                   struct sbp_diag *diag) SBP_MUST_USE;

/* Judges the curves and formulas of a network whose curve[i] is of shapes->shape[i], and sets their
 * errors: of a curve the one that nine of ten held-out sizes stay below, of a formula the same of
 * held-out shapes. quality->shape comes from the arena. E_INTERNAL, E_MEMORY. */
enum sbp_status sbp_quality_judge(const struct sbp_measured_groups *shapes,
                                  struct sbp_network *network, struct sbp_arena *arena,
                                  struct sbp_quality *quality, struct sbp_diag *diag) SBP_MUST_USE;

#endif
