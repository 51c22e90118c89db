/* Fits the few constants of a trainer that nobody can look up to the steps of measured runs.
 *
 * Input: a set of runs (planner/validate/run_set.h) with measured steps; its cluster's runtime is
 * where the fit begins. Output: for each constant its value of the least mean absolute relative
 * error, within what physics allows, whether the runs determine it, and the error that is left,
 * also of runs that the fit was not shown.
 *
 * Each run's layout is searched once, at first; the fit prices it under other constants, as
 * planner/validate/least_error.h asks for them. The same runs give the same fit.
 */
#ifndef SBP_PLANNER_VALIDATE_TRAINER_FIT_H
#define SBP_PLANNER_VALIDATE_TRAINER_FIT_H

#include <stdatomic.h>

#include "planner/validate/run_set.h"

/* In the order in which few runs free them. */
enum sbp_fitted {
    SBP_FITTED_PRODUCTS,
    SBP_FITTED_HOST,
    SBP_FITTED_STREAMS,
    SBP_FITTED_GRADIENTS,
    SBP_FITTED_ACTIVATIONS,
    SBP_FITTED_ATTENTION,
};
#define SBP_FITTED 6
/* "reaches.products", as in a runtime's file. */
const char *sbp_trainer_fit_name(enum sbp_fitted constant);

#define SBP_FIT_REFUSALS 10

struct sbp_trainer_fit {
    int runs, refused; /* those that were fitted to, and those that cannot be priced */
    struct sbp_diag refusal[SBP_FIT_REFUSALS]; /* of the first of those: "line 3: why", or a run's
                                                  name in place of the line */
    double before[SBP_FITTED], value[SBP_FITTED];
    bool is_free[SBP_FITTED]; /* the runs say something of it; others keep their value */
    int free_count;           /* at most one for two runs */
    double error_before, error;
    double error_left_out; /* mean of runs, each predicted by a fit without it (of more than ten
                              runs, without it and others: ten fits) */
    double most_left_out;  /* nine of ten of these predictions are off by up to this factor, less 1:
                              the error of a runtime */
};

/* Fits, and leaves the values in the runtime of the set's cluster. stop: may be NULL; non-zero ends
 * with SBP_STOPPED. E_INPUT: fewer than two runs with a step can be priced, or a
 * step is a hundred times longer or shorter than predicted; E_MEMORY. */
enum sbp_status sbp_trainer_fit_make(struct sbp_run_set *set, const atomic_int *stop,
                                     struct sbp_trainer_fit *fit,
                                     struct sbp_diag *diag) SBP_MUST_USE;

#endif
