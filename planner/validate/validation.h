/* Validates a set of published runs: prices every run and judges the predictions by the bounds that
 * the set's file states.
 */
#ifndef SBP_PLANNER_VALIDATE_VALIDATION_H
#define SBP_PLANNER_VALIDATE_VALIDATION_H

#include <stdatomic.h>

#include "planner/validate/agreement.h"
#include "planner/validate/run_price.h"

/* A figure beside its bound. */
struct sbp_validation_check {
    const char *figure; /* "error", "rank", "regret", "memory_error", "settled_error",
                           "refused" */
    double value;       /* NAN: no run says anything of it, and the bound does not hold */
    double bound;
    bool holds;
};
#define SBP_VALIDATION_MOST_CHECKS 6

struct sbp_validation {
    struct sbp_arena arena;
    const struct sbp_run_set *set; /* borrowed */
    struct sbp_run_price *price;   /* (run_count) */
    const char **refused; /* (run_count) why a run cannot be expressed; NULL: it is priced */
    int refused_count;
    struct sbp_agreement time;     /* of step times */
    struct sbp_agreement constant; /* of constant utilisation, with the factor that fits best: its
                                      error is factor_error */
    struct sbp_agreement memory, settled; /* the most of a step, and between steps */
    double utilisation; /* of the peak rate, that factor's inverse; NAN: nothing is priced */
    int check_count;
    struct sbp_validation_check check[SBP_VALIDATION_MOST_CHECKS];
    bool holds; /* all checks */
};

/* Prices all runs of a set, which must outlive the validation. `stop` is looked at between runs;
 * NULL: nobody asks. On failure nothing is left allocated. SBP_STOPPED; otherwise as sbp_run_price,
 * for which runs that cannot be expressed are no failure. */
enum sbp_status sbp_validation_make(const struct sbp_run_set *set, const atomic_int *stop,
                                    struct sbp_validation *validation,
                                    struct sbp_diag *diag) SBP_MUST_USE;
void sbp_validation_free(struct sbp_validation *validation);

#endif
