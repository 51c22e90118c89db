/* What is left of a candidate of several stages when its paths and their mixtures have said what
 * they can: a mixture evens stages out as no plan does. Here plans are asked for that cost less
 * than the goal along every known path (planner/problem/minimax.h). One that does is priced: it is
 * better than what is known, or the path that makes it longer is known from then on. Where there is
 * none, the candidate is settled.
 */
#ifndef SBP_PLANNER_OUTER_PATH_ENUMERATION_H
#define SBP_PLANNER_OUTER_PATH_ENUMERATION_H

#include "planner/paths/path_mixture.h"
#include "planner/space/solve_request.h"

struct sbp_path_enumeration {
    const struct sbp_cut *cut;
    const struct sbp_solve_request
        *request;                /* as the candidate is searched; its weights does not count */
    struct sbp_mixture *mixture; /* of the cut, played */
    double goal_s;               /* only plans that cost less are looked for */
    /* Takes a plan that costs less than all before; the strategy changes when it returns. */
    void (*offer)(void *context, const struct sbp_strategy *strategy, double objective_s);
    void *context;
    /* In and out. No plan of the candidate costs less than this, or than the goal or what was
     * offered where that is less. */
    double bound_s;
    /* Out. */
    int64_t evaluations;
    bool stopped;
    bool memory_binds; /* a plan that costs less than the goal did not fit */
};

/* Of spaces whose prices bound the step (sbp_inner_is_bounded) and whose mesh is free. Does nothing
 * where the problem is too large. Deterministic but for the request's time limit and flag. E_MEMORY
 * and what sbp_mixture_add fails with. */
enum sbp_status sbp_path_enumerate(struct sbp_path_enumeration *enumeration,
                                   struct sbp_diag *diag) SBP_MUST_USE;

#endif
