/* Prices one published run: its model and cluster, its degrees, nothing searched but the names of
 * axes. */
#ifndef SBP_PLANNER_VALIDATE_RUN_PRICE_H
#define SBP_PLANNER_VALIDATE_RUN_PRICE_H

#include <stdatomic.h>

#include "planner/validate/run_set.h"

struct sbp_run_price {
    double step_s;
    double memory_bytes,
        settled_bytes; /* as the columns, with the cluster's and the run's reserve */
    /* Seconds at the peak rate of what published utilisations count: products, all scores of
     * attention, and a third on top where all is recomputed. Constant utilisation predicts a
     * multiple of it. */
    double peak_s;
};

/* Prices run number `run`. stop: may be NULL; non-zero keeps the best layout so far. SBP_NO: the
 * run cannot be expressed, why says what is in the way; errors as the reader's of the set. */
enum sbp_status sbp_run_price(const struct sbp_run_set *set, int run, const atomic_int *stop,
                              struct sbp_run_price *price, struct sbp_diag *why) SBP_MUST_USE;

/* The layout of a run, found once, to be priced under other constants of the set's cluster. */
struct sbp_run_layout;
/* Fails as sbp_run_price; *layout is the caller's to free. */
enum sbp_status sbp_run_layout_find(const struct sbp_run_set *set, int run, const atomic_int *stop,
                                    struct sbp_run_layout **layout,
                                    struct sbp_diag *why) SBP_MUST_USE;
/* Its step under the cluster that the set has by now, which may differ in rates and runtime alone.
 * Fails as the reader of a cluster. */
enum sbp_status sbp_run_layout_price(const struct sbp_run_set *set, int run,
                                     const struct sbp_run_layout *layout, double *step_s,
                                     struct sbp_diag *diag) SBP_MUST_USE;
void sbp_run_layout_free(struct sbp_run_layout *layout); /* NULL is legal */

#endif
