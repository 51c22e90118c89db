/* The labelled search: the cheapest strategy of a small space, exactly, where labels, divisibility
 * or memory bind.
 *
 * The unlabelled search prices any two neighbours as if their axes lined up in the best way. It
 * knows neither plan-wide divisibility nor the memory layout of the program. Here every axis is a
 * family of its own, so that a choice is a label and its price is the price of the plan. The search
 * is best first: it compiles the cheapest choice of a part of the space; if that is not legal or
 * does not fit, it divides the part, by the axes that may split the class that does not divide,
 * else by the choice itself (Lawler, 1972). The least bound of the open parts bounds the space.
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
    /* Closes, compiles and prices the trial, and keeps it if it is the best so far. *best_s:
     * objective of the best, INFINITY before the first. E_INPUT: the trial is not legal. */
    enum sbp_status (*price)(void *context, double *best_s, bool *fits);
    void *context;
    double start_s; /* of the whole search: its time limit is counted from here */
    double best_s;  /* in and out */
    /* Out. Lower bound of the space; -INFINITY: not known, INFINITY: no strategy. */
    double bound_s;
    int64_t evaluations;
    bool stopped;
};

/* Leaves the bound at -INFINITY where the labelled space is too large. Stops after a fixed amount
 * of work, so that it is deterministic, or on the request's time limit and flag. E_MEMORY. */
enum sbp_status sbp_label_branch(struct sbp_label_branching *branching,
                                 struct sbp_diag *diag) SBP_MUST_USE;

#endif
