/* How well a fit predicts: in sample, on sizes and on group shapes that it was not shown.
 *
 * Held-out sizes: of every shape each second size is predicted by a curve of the others, methods
 * and segments chosen anew; of fewer than eight sizes each one by all others. Held-out shapes: each
 * shape is predicted by the curves and formulas of all others; those between the others and those
 * beyond them (more nodes or fewer, or the only ones over several nodes) are told apart. Errors are
 * |predicted / measured - 1|. A pair of points that differ by over 1.2x is mis-ordered when the
 * prediction puts the larger one first: what a planner would choose wrongly. Where it is the
 * smaller message of a group that takes longer, no curve that rises orders them: such pairs are
 * falling, and the least that can be mis-ordered in sample.
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

/* A predictor of a sample of a shape: seconds, NAN where it says nothing. */
typedef double sbp_predict_fn(const void *model, const struct sbp_measured_group *shape,
                              double bytes);

/* Over all samples of all shapes; scratch from the arena. E_MEMORY. */
enum sbp_status sbp_quality_errors(const struct sbp_measured_groups *shapes,
                                   sbp_predict_fn *predict, const void *model,
                                   struct sbp_arena *arena, struct sbp_errors *errors,
                                   struct sbp_diag *diag) SBP_MUST_USE;

/* Judges the curves and formulas of a network whose curve[i] is of shapes->shape[i], and sets the
 * errors e of both: of a curve what nine of ten held-out sizes stay below, of a formula the same of
 * held-out shapes. quality->shape comes from the arena. E_INTERNAL, E_MEMORY. */
enum sbp_status sbp_quality_judge(const struct sbp_measured_groups *shapes,
                                  struct sbp_network *network, struct sbp_arena *arena,
                                  struct sbp_quality *quality, struct sbp_diag *diag) SBP_MUST_USE;

#endif
