/* The plan of a search that needs the least memory per device, as far as one is found.
 *
 * Best first over what the memory model bounds, each candidate is asked for the plans that need
 * least by the model, by what always lives and with what operators need while they work; from the
 * leanest of those, walks by compiled programs go on to leaner ones (planner/lean_walk.h), short
 * ones from many, long ones from those that then lead, by several threads; the leanest strategy is
 * tried on the other candidates, and cool walks from it follow as long as they find less. What is
 * found need not be the least: less by less than a ten-thousandth is not looked for, either.
 */
#ifndef SBP_PLANNER_LEAST_H
#define SBP_PLANNER_LEAST_H

#include "planner/inner/cut_solve.h"
#include "planner/inner/solution_pool.h"

struct sbp_least_candidate {
    int order; /* of equal ones the first comes first */
    struct sbp_parallel parallel;
    double bound_bytes; /* no strategy of it needs less */
};

/* Raises bounds of the candidates by a closer look (planner/pricing/working_set.h) and sorts them:
 * the first one's is what no plan of any needs less than. *least: the leanest plan, with its
 * strategy (of the plan's arena), objective and device_bytes; device_bytes 0: none was found. The
 * request's memory limit does not count; it has no store, view or part, as several threads read it.
 * The plan is left with any parallel. Deterministic, for any number of threads, but for the
 * request's time limit and flag; looks at so many candidates and programs at most. *evaluations
 * grows by its own. E_MEMORY. */
enum sbp_status sbp_least_find(struct sbp_plan *plan, const struct sbp_request *request,
                               struct sbp_least_candidate *candidate, int count,
                               struct sbp_ranked *least, int64_t *evaluations,
                               struct sbp_diag *diag) SBP_MUST_USE;

#endif
