/* Variable elimination under a capacity: messages of Pareto labels (cost, usage at open points).
 *
 * A label stands for one assignment of all variables eliminated so far. A point of time is open
 * while variables on both sides of the message are live there; the usage at a closed point was
 * checked against the capacity and is forgotten. The search drops a label when another one is no
 * worse in cost and at every open point, when its usage does not fit beside the least usage of the
 * rest, or when its priced cost plus that of the rest (a Lagrangian bound) is no better than a
 * known choice. Internal to `exact`.
 */
#ifndef SBP_PLANNER_SOLVERS_PARETO_LABELS_PRIV_H
#define SBP_PLANNER_SOLVERS_PARETO_LABELS_PRIV_H

#include "planner/solvers/bucket_elimination_priv.h"

struct sbp_pareto_result {
    bool done;  /* false when the search had to stop */
    bool found; /* a choice cheaper than upper_bound; if done and not found, none exists */
    double cost;
};

/* Solves by labels. The tree must have been through an up and a down pass under `price`
 * (point_count). upper_bound: cost of a known choice, or INFINITY. choice (variable_count) receives
 * the best choice when one is found. E_UNSUPPORTED: labels need more than SBP_PROBLEM_EXACT_BYTES;
 * E_MEMORY. */
enum sbp_status sbp_pareto_solve(const struct sbp_elimination_tree *tree,
                                 const struct sbp_live *live, const double *price,
                                 double upper_bound, struct sbp_solver_run *search, int *choice,
                                 struct sbp_pareto_result *result,
                                 struct sbp_diag *diag) SBP_MUST_USE;

#endif
