/* Chooses the order in which variable elimination takes the variables of a pairwise problem. The
 * order decides the size of all tables. Variables with one value have no place in it. Internal to
 * planner/solvers/bucket_elimination_priv.h.
 */
#ifndef SBP_PLANNER_SOLVERS_ELIMINATION_ORDER_PRIV_H
#define SBP_PLANNER_SOLVERS_ELIMINATION_ORDER_PRIV_H

#include "planner/problem/problem.h"

/* Widest scope: a table over it has 2^27 entries even if all domains are 2. */
enum { SBP_ELIMINATION_MOST_WIDTH = 27 };

struct sbp_elimination_order {
    int count;     /* variables with more than one value */
    int *variable; /* (count) in order */
    int *width;    /* (count) neighbours left when it is eliminated */
    int **scope;   /* (count)(width) these neighbours; the next one to be eliminated is last */
    double bytes;  /* of all tables; at least 2^60 where a scope is too wide */
    double sums;   /* additions that fill the tables */
};

/* Finds two greedy orders, least fill-in first and smallest table first, and gives the one that
 * needs less arithmetic. Stops with an incomplete order once its bytes pass most_bytes. Allocated
 * in the arena. E_MEMORY. */
enum sbp_status sbp_elimination_order_find(const struct sbp_problem *problem, double most_bytes,
                                           struct sbp_arena *arena,
                                           struct sbp_elimination_order *order) SBP_MUST_USE;

#endif
