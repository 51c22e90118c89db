/* How far a plan's price can be trusted: an interval of its step time, from the errors that a
 * calibration noted for the cluster's measured collectives and from those of published runs of the
 * trainer, and the doubts, that is, the collectives of the step whose prices are extrapolated or
 * fit poorly.
 *
 * Each end of the interval is the step with every collective at that end of its own interval.
 * Errors of both signs cancel in part, so that the real step lies further inside.
 */
#ifndef SBP_PLANNER_REPORT_PRICE_INTERVAL_H
#define SBP_PLANNER_REPORT_PRICE_INTERVAL_H

#include <stdio.h>

#include "base/table.h"
#include "costmodel/program/step.h"
#include "planner/plan/plan.h"

#define SBP_MOST_DOUBTS 32

/* Collectives of one kind and group whose price is in doubt. */
struct sbp_doubt {
    enum sbp_collective kind;
    double nodes, ranks_per_node;
    enum sbp_basis basis; /* the worst */
    double error;         /* the largest e */
    double seconds;       /* of a device in a step, hidden or not */
};

struct sbp_price_interval {
    bool is_given;       /* one of the next two; else nothing below is set */
    bool is_calibrated;  /* the cluster has measured groups */
    const char *trainer; /* borrowed from the plan: whose error is known; NULL */
    double low_s, high_s;
    int doubt_count;
    struct sbp_doubt
        doubt[SBP_MOST_DOUBTS]; /* longest first; without those under 1 % of the step */
};

/* Makes the interval of a plan; step is what the plan compiles to. E_MEMORY and what compiling
 * says. */
enum sbp_status sbp_price_interval_make(const struct sbp_plan *plan, const struct sbp_step *step,
                                        struct sbp_price_interval *trust,
                                        struct sbp_diag *diag) SBP_MUST_USE;

/* Prints the interval; nothing where it is not given. E_IO. */
enum sbp_status sbp_price_interval_print(const struct sbp_price_interval *trust, double step_s,
                                         FILE *out) SBP_MUST_USE;
/* Adds a cell "12.3 ms .. 45.6 ms" to a table of plans, with a star where there are doubts; "-"
 * where the interval is not given. */
void sbp_price_interval_cell(struct sbp_table *table, const struct sbp_price_interval *trust);
/* Prints the longest doubt of a row with a star below that table: "data-parallel *: 12 % of ...".
 * E_IO. */
enum sbp_status sbp_price_interval_print_star(const struct sbp_price_interval *trust, double step_s,
                                              const char *row, FILE *out) SBP_MUST_USE;
/* Puts the members cost.step_low_s, cost.step_high_s and "doubts". */
void sbp_price_interval_put(struct cJSON *json, const struct sbp_price_interval *trust,
                            bool *failed);

#endif
