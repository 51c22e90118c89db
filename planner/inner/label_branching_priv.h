/* The labelled search: the cheapest strategy where labels, divisibility or memory bind.
 *
 * The unlabelled search prices the best line-up of any two neighbours and knows neither the
 * plan-wide divisibility nor the program's memory layout. Here every axis is a family of its own,
 * so that a choice is a label and the price of the pairwise problem is the price of the plan. Best
 * first: the cheapest choice of a part of the space is compiled; where it is not legal or does not
 * fit, the part is divided (by the axes that may split the class that does not divide, else by the
 * choice itself, Lawler 1972). The least bound of the parts left is a bound of the space.
 */
#ifndef SBP_PLANNER_INNER_LABEL_BRANCHING_PRIV_H
#define SBP_PLANNER_INNER_LABEL_BRANCHING_PRIV_H

#include "costmodel/program/cut.h"
#include "planner/space/solve_request.h"

struct sbp_label_branching {
    const struct sbp_cut *cut;
    const struct sbp_solve_request *request;
    double capacity_bytes;      /* of the space's memory model, INFINITY: none */
    struct sbp_strategy *trial; /* scratch, allocated by sbp_strategy_alloc */
    /* Closes, compiles and prices the trial, and keeps it when it is the best so far. E_INPUT: not
     * legal; *best_s is the objective of the best kept, INFINITY before the first. */
    enum sbp_status (*price)(void *context, double *best_s, bool *fits);
    void *context;
    double start_s; /* of the whole search, whose time limit this one keeps */
    double best_s;  /* in and out */
    /* Out. No strategy of the space costs less; -INFINITY: not known, INFINITY: there is none. */
    double bound_s;
    int64_t evaluations;
    bool stopped;
};

/* Does nothing (bound -INFINITY) where the labelled space is too large. Deterministic: stops after
 * a fixed number of sub-problems, or on the request's time limit and flag. E_MEMORY. */
enum sbp_status sbp_label_branch(struct sbp_label_branching *branching,
                                 struct sbp_diag *diag) SBP_MUST_USE;

#endif
