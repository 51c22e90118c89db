/* The k cheapest distinct choices of a pairwise problem, in order.
 *
 * Lawler's partition (Management Science 18, 1972): the choices other than the best one fall into
 * disjoint parts, one per variable, which agree with the best up to that variable and differ there;
 * the best of each part is found by `exact`, the cheapest of these is next, and its part is split
 * in turn. The capacity holds in every part. Costs that differ by round-off alone may change
 * places.
 */
#ifndef SBP_PLANNER_TOP_H
#define SBP_PLANNER_TOP_H

#include "planner/solver.h"

struct sbp_top {
    int count;  /* choices found, at most k */
    int proved; /* so many of the first ones are proved to be the cheapest, in this order */
    int variable_count;
    int *choice;        /* (count, variable_count) row-major, cheapest first; owned */
    double *cost;       /* (count) ascending; owned */
    double lower_bound; /* of everything that is not listed; INFINITY: there is nothing else */
    /* optimal: all listed are proved, and fewer than k only where there are no more; feasible: some
     * are not; without any: infeasible, none_cheaper or time_limit, as of a single solution. */
    enum sbp_plan_status status;
    double shortfall; /* infeasible: least possible peak usage minus capacity, else 0 */
    int64_t evaluations;
    double wall_s;
    bool stopped; /* by time, evaluations or the flag */
};

/* k >= 1. Of the options seed, time_limit_s, max_evaluations, stop, progress and upper_bound count;
 * a choice that costs upper_bound or more is not listed. Deterministic for a seed.
 * E_MEMORY; E_UNSUPPORTED and E_* where `exact` says so of the whole problem. On failure *top is
 * empty. */
enum sbp_status sbp_solve_top(const struct sbp_problem *problem,
                              const struct sbp_solver_options *options, int k, struct sbp_top *top,
                              struct sbp_diag *diag) SBP_MUST_USE;
/* Accepts NULL and an empty top. */
void sbp_top_free(struct sbp_top *top);

#endif
