/* How far a plan's price can be trusted: the interval of its step by the errors that a calibration
 * gave to the cluster's measured collectives, and what of the step rests on prices that were
 * extrapolated or poorly fitted.
 *
 * The ends of the interval are the step with every collective at the low, or the high, end of its
 * own interval: where some are under and some over, the step lies closer.
 */
#ifndef SBP_PLANNER_REPORT_PRICE_INTERVAL_H
#define SBP_PLANNER_REPORT_PRICE_INTERVAL_H

#include <stdio.h>

#include "base/table.h"
#include "costmodel/program/step.h"
#include "planner/plan/plan.h"

#define SBP_MOST_DOUBTS 32

/* Collectives of a kind and group that should not be trusted. */
struct sbp_doubt {
    enum sbp_collective kind;
    double nodes, ranks_per_node;
    enum sbp_basis basis; /* the worst */
    double error;         /* the largest e */
    double seconds;       /* of a device in a step, hidden or not */
};

struct sbp_price_interval {
    bool is_given; /* the cluster holds measured groups; all else is of use only then */
    double low_s, high_s;
    int doubt_count;
    struct sbp_doubt doubt[SBP_MOST_DOUBTS]; /* longest first; those under a hundredth of the step
                                                are left out */
};

/* step: the plan's own. E_MEMORY and what compiling a step says. */
enum sbp_status sbp_price_interval_make(const struct sbp_plan *plan, const struct sbp_step *step,
                                        struct sbp_price_interval *trust,
                                        struct sbp_diag *diag) SBP_MUST_USE;

/* Nothing where it is not given. E_IO. */
enum sbp_status sbp_price_interval_print(const struct sbp_price_interval *trust, double step_s,
                                         FILE *out) SBP_MUST_USE;
/* A cell "12.3 ms .. 45.6 ms" of a table of plans, with a star where there are doubts; "-" where
 * the interval is not given. */
void sbp_price_interval_cell(struct sbp_table *table, const struct sbp_price_interval *trust);
/* Below that table, where the row has a star: its longest doubt, "data-parallel *: 12 % of ...".
 * E_IO. */
enum sbp_status sbp_price_interval_print_star(const struct sbp_price_interval *trust, double step_s,
                                              const char *row, FILE *out) SBP_MUST_USE;
/* cost.step_low_s, cost.step_high_s, and "doubts". */
void sbp_price_interval_put(struct cJSON *json, const struct sbp_price_interval *trust,
                            bool *failed);

#endif
