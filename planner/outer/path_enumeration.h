/* Path enumeration: closes the gap between bound and plan of a candidate with several stages.
 *
 * A mixture of paths evens stages out as no plan does, so that its bound may stay below every plan.
 * Here plans are asked for that cost less than the goal along every known path
 * (planner/solvers/minimax.h). Such a plan is priced: either it is the best so far, or the path
 * that makes it longer becomes known. Where no such plan is left, the goal is the bound of the
 * candidate.
 */
#ifndef SBP_PLANNER_OUTER_PATH_ENUMERATION_H
#define SBP_PLANNER_OUTER_PATH_ENUMERATION_H

#include "planner/paths/path_mixture.h"
#include "planner/space/solve_request.h"

struct sbp_path_enumeration {
    const struct sbp_cut *cut;
    const struct sbp_solve_request *request; /* as the candidate is searched; weights is not read */
    struct sbp_mixture *mixture;             /* paths of the cut, weighted */
    double goal_s;                           /* only plans that cost less are looked for */
    /* Takes a plan that costs less than all before; the strategy is valid during the call. */
    void (*offer)(void *context, const struct sbp_strategy *strategy, double objective_s);
    void *context;
    /* In and out. Lower bound of the candidate's plans that cost less than the goal and all that
     * was offered. */
    double bound_s;
    /* Out. */
    int64_t evaluations;
    bool stopped;
    bool memory_binds; /* a plan that costs less than the goal did not fit */
};

/* For spaces with a free mesh whose prices bound the step (sbp_inner_is_bounded). Does nothing
 * where the problem is too large. Deterministic but for the request's time limit and flag. E_MEMORY
 * and what sbp_mixture_add fails with. */
enum sbp_status sbp_path_enumerate(struct sbp_path_enumeration *enumeration,
                                   struct sbp_diag *diag) SBP_MUST_USE;

#endif
