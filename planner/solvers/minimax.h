/* Finds the choice whose worst cost is least. Input: several pairwise problems that differ only in
 * costs, one for each path through a step, and a goal. Output: choices that cost less than the goal
 * along every path, each handed to the caller's function, or the proof that there is none.
 *
 * The search chooses every variable in turn, in the reverse order of variable elimination
 * (planner/solvers/bucket_elimination_priv.h). The elimination works out what the remaining
 * variables cost at least, along each path and along the best mixtures of the paths
 * (planner/solvers/minimax_bounds.c). The search drops a part of a choice when one of these bounds
 * reaches the goal, or when an earlier part with the same neighbours costs no more along any path.
 */
#ifndef SBP_PLANNER_SOLVERS_MINIMAX_H
#define SBP_PLANNER_SOLVERS_MINIMAX_H

#include "planner/problem/problem.h"
#include "planner/solvers/solver.h"

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
