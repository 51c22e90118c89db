/* Variable elimination under a capacity: messages of Pareto labels (cost, usage at open points).
 *
 * A label stands for one assignment of everything eliminated so far. A point of time is open while
 * variables on both sides of the message are live there; usage at points that have closed was
 * checked against the capacity and is forgotten. Labels go when another is no worse in cost and at
 * every open point, when their usage cannot fit with the least usage of the rest, or when their
 * priced cost plus the priced cost of the rest (a Lagrangean bound) is no better than a choice that
 * is known. Internal to `exact`.
 */
#ifndef SBP_PLANNER_PROBLEM_PARETO_LABELS_PRIV_H
#define SBP_PLANNER_PROBLEM_PARETO_LABELS_PRIV_H

#include "planner/problem/bucket_elimination_priv.h"

struct sbp_pareto_result {
    bool done;  /* false: the search is over */
    bool found; /* a choice cheaper than upper_bound; else none exists */
    double cost;
};

/* The tree's messages and outside tables must be priced with `price` (point_count). upper_bound:
 * cost of a known choice, or INFINITY. choice (variable_count) receives the best assignment when
 * one is found. E_UNSUPPORTED when the labels pass SBP_PROBLEM_EXACT_BYTES; E_MEMORY. */
enum sbp_status sbp_pareto_solve(const struct sbp_elimination_tree *tree,
                                 const struct sbp_live *live, const double *price,
                                 double upper_bound, struct sbp_solver_run *search, int *choice,
                                 struct sbp_pareto_result *result,
                                 struct sbp_diag *diag) SBP_MUST_USE;

#endif
