/* The solver ilp proves its answers by itself, whatever a linear program says: it forms lower
 * bounds from any multipliers, with the round-off of their sums taken off, and drops values that
 * need not be looked at.
 *
 * It seeks either the least cost of a choice that fits or the least peak usage of a choice that is
 * allowed, and only what is below `limit`. Entries count as no more than a few times what can
 * matter, limit less floor, above the least entry of their table. Forbidden ones do, too.
 * Internal to the solver ilp.
 */
#ifndef SBP_PLANNER_SOLVERS_ILP_BOUND_PRIV_H
#define SBP_PLANNER_SOLVERS_ILP_BOUND_PRIV_H

#include "planner/problem/live_ranges.h"

struct sbp_ilp_bound {
    const struct sbp_problem *problem;
    struct sbp_live live;
    bool of_peak;   /* the peak is sought */
    double limit;   /* above floor */
    double floor;   /* no choice is below */
    int *first;     /* (variable_count + 1) of variable v: values count from first[v] */
    int *first_tie; /* (edge_count + 1) of edge e: a's values, then b's */
    bool *out;      /* (values) not looked at */
    double *least;  /* (variable_count + edge_count) least entry, of values that are in */
    /* Multipliers: an edge's entry costs less by those of its ends, the ends more; a unit of usage
     * at a point costs price. */
    double *tie;        /* (ties) */
    double *price;      /* (points) >= 0 */
    double *sum, *size; /* (values) scratch: terms and their absolute values */
    double *usage;      /* (points) scratch */
};

/* Allocates all arrays; no value is out. E_MEMORY. */
enum sbp_status sbp_ilp_bound_init(struct sbp_ilp_bound *bound, const struct sbp_problem *problem,
                                   struct sbp_arena *arena) SBP_MUST_USE;

/* The least cost by the least entries of the tables; sets floor and least. INFINITY: some table has
 * none. */
double sbp_ilp_bound_of_least(struct sbp_ilp_bound *bound);

/* Puts values out that are in no choice below the limit, until none is left, and sets floor. False:
 * no choice is below the limit. */
bool sbp_ilp_bound_drop(struct sbp_ilp_bound *bound);

/* The entry of a table, v or variable_count + e, as the program and bounds count it. */
double sbp_ilp_bound_entry(const struct sbp_ilp_bound *bound, int table, double cost);

/* A lower bound of what is sought over the choices of values that are in, by the multipliers. */
double sbp_ilp_bound_of(struct sbp_ilp_bound *bound);

#endif
