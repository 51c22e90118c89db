/* In which order to eliminate the variables of a pairwise problem. Internal to `exact`. */
#ifndef SBP_PLANNER_PROBLEM_ELIMINATION_ORDER_PRIV_H
#define SBP_PLANNER_PROBLEM_ELIMINATION_ORDER_PRIV_H

#include "planner/problem/problem.h"

/* A scope so wide would need 2^27 entries even if all its domains were 2. */
enum { SBP_ELIMINATION_MOST_WIDTH = 27 };

struct sbp_elimination_order {
    int count;     /* variables with more than one choice */
    int *variable; /* (count) in order */
    int *width;    /* (count) neighbours left when it is eliminated */
    int **scope;   /* (count)(width) these neighbours; the next one to go stands last */
    double bytes;  /* of all tables; 2^60 and more where one alone has too wide a scope */
    double sums;   /* additions they take */
};

/* The better of two greedy orders: least fill-in first, and smallest table first. Stops short, with
 * the bytes so far, once they pass most_bytes. Allocated in the arena. E_MEMORY. */
enum sbp_status sbp_elimination_order_find(const struct sbp_problem *problem, double most_bytes,
                                           struct sbp_arena *arena,
                                           struct sbp_elimination_order *order) SBP_MUST_USE;

#endif
