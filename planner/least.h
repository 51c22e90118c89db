/* The least memory per device that a plan of a search would do with, where nothing fits.
 *
 * Best first over what the memory model bounds: a candidate's strategy that needs least by the
 * model is compiled, until no candidate's bound is below the least of these.
 */
#ifndef SBP_PLANNER_LEAST_H
#define SBP_PLANNER_LEAST_H

#include "planner/optimise.h"

struct sbp_least_candidate {
    int order; /* of equal ones the first comes first */
    struct sbp_parallel parallel;
    double bound_bytes; /* no strategy of it needs less */
};

/* Sorts the candidates. *bytes: what a device needs of the best of them, 0 without any; *parallel:
 * which one. The plan is left with any. Deterministic; looks at so many candidates at most. */
enum sbp_status sbp_least_find(struct sbp_plan *plan, const struct sbp_request *request,
                               struct sbp_least_candidate *candidate, int count, int64_t *bytes,
                               struct sbp_parallel *parallel, struct sbp_diag *diag) SBP_MUST_USE;

#endif
