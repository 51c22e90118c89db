/* The choices whose largest of several costs is small.
 *
 * Several pairwise problems over the same variables, domains and edges say what a choice costs
 * along several paths; what counts is the largest. Every variable is chosen in turn, in the order
 * against which variable elimination (planner/problem/bucket_elimination_priv.h) works out what the
 * rest costs at least, along each path and the best mixtures of them
 * (planner/problem/minimax_bounds.c). A part of a choice goes when one of these is too much, or
 * when an earlier one with the same neighbours costs no more along any path.
 */
#ifndef SBP_PLANNER_PROBLEM_MINIMAX_H
#define SBP_PLANNER_PROBLEM_MINIMAX_H

#include "planner/problem/problem.h"
#include "planner/problem/solver.h"

/* A full choice that costs less than *below along all paths, the largest of which is given. It may
 * lower *below, and ends the search when it clears *more. Looked at are then all choices, but for
 * those that cost no less than one that was shown. */
typedef enum sbp_status sbp_minimax_show(void *context, const int *choice, double largest,
                                         double *below, bool *more);

struct sbp_minimax {
    int paths;
    const struct sbp_problem *problem; /* (paths) without usages */
    double below;                      /* choices must cost less along all paths */
    int64_t most_work;                 /* as result.work counts it */
    struct sbp_solver_options options; /* the time limit and the flag */
    sbp_minimax_show *show;
    void *context;
};

struct sbp_minimax_result {
    bool done;           /* everything was looked at */
    int64_t evaluations; /* parts of choices that were bounded one by one */
    int64_t work;        /* these, along every path, and comparisons of parts */
    bool stopped;        /* by flag or time limit */
};

/* Deterministic but for time limit and flag. E_UNSUPPORTED: tables are too large or the problems
 * differ in more than costs (the order of their edges counts); E_MEMORY; what show fails with. The
 * result says what was done either way. */
enum sbp_status sbp_minimax_solve(const struct sbp_minimax *minimax,
                                  struct sbp_minimax_result *result,
                                  struct sbp_diag *diag) SBP_MUST_USE;

#endif
