/* The choices whose largest of several costs is small.
 *
 * Several pairwise problems over the same variables, domains and edges say what a choice costs
 * along several paths; what counts is the largest. Every variable is chosen in turn, in the order
 * against which variable elimination (planner/elimination.h) works out what the rest costs at
 * least, along each path and the best mixtures of them (planner/minimax_mix.c). A part of a choice
 * goes when one of these is too much, or when an earlier one with the same neighbours costs no more
 * along any path.
 */
#ifndef SBP_PLANNER_MINIMAX_H
#define SBP_PLANNER_MINIMAX_H

#include "planner/problem.h"
#include "planner/solver.h"

/* A full choice that costs less than *below along all paths, the largest of which is given. It may
 * lower *below, and ends the search when it clears *more. Looked at are then all choices, but for
 * those that cost no less than one that was shown. */
typedef enum sbp_status sbp_minimax_show(void *context, const int *choice, double largest,
                                         double *below, bool *more);

struct sbp_minimax {
    int paths;
    const struct sbp_problem *problem; /* (paths) without usages */
    double below;                      /* choices must cost less along all paths */
    int64_t most_work;                 /* cells of tables that are looked at */
    struct sbp_solver_options options; /* the time limit and the flag */
    sbp_minimax_show *show;
    void *context;
};

struct sbp_minimax_result {
    bool done; /* everything was looked at */
    int64_t evaluations;
    bool stopped; /* by flag or time limit */
};

/* Deterministic but for time limit and flag. E_UNSUPPORTED: tables are too large or the problems
 * differ in more than costs; E_MEMORY; what show fails with. */
enum sbp_status sbp_minimax_solve(const struct sbp_minimax *minimax,
                                  struct sbp_minimax_result *result,
                                  struct sbp_diag *diag) SBP_MUST_USE;

#endif
