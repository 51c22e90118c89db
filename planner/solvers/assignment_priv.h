/* A full choice whose cost and usage are kept up to date move by move.
 *
 * A move changes one variable and is priced in O(degree + points of time it is live at). Violations
 * are counted apart from the cost, so that searches may pass through infeasible choices at a price:
 * forbidden values and pairs, and the excess (usage over the capacity, summed over points of time).
 * Internal to the heuristic solvers.
 */
#ifndef SBP_PLANNER_SOLVERS_ASSIGNMENT_PRIV_H
#define SBP_PLANNER_SOLVERS_ASSIGNMENT_PRIV_H

#include "base/math/random.h"
#include "planner/problem/live_ranges.h"
#include "planner/problem/problem.h"

/* An edge seen from one of its ends. */
struct sbp_neighbour {
    int variable; /* the other end */
    const double *table;
    size_t own_stride, other_stride;
};

/* Cost and violations of a state, or their change by a move. */
struct sbp_energy {
    double cost;       /* without forbidden values and pairs */
    int64_t forbidden; /* how many values and pairs are forbidden */
    double excess;
};

struct sbp_assignment {
    const struct sbp_problem *problem;
    struct sbp_arena arena; /* owns all below */
    struct sbp_live live;
    int *first;                      /* (variable_count + 1) into neighbour */
    struct sbp_neighbour *neighbour; /* (2 edges) */
    int *choice;                     /* (variable_count) */
    double *usage;                   /* (points) */
    double limit;                    /* capacity plus round-off */
    int free_count, *free_variable;  /* variables with more than one value */
    struct sbp_energy energy;
    double cost_unit, excess_unit; /* mean spread per variable of costs and usages; > 0 */
    double cost_spread;            /* bounds how much two choices' costs differ; > 0 */
};

/* Price, in units of cost, of a forbidden value or pair and of a unit of excess. */
struct sbp_penalty {
    double forbidden, excess;
};

/* Starts at value 0 of every variable, priced. Borrows the problem. E_MEMORY; the state may be
 * freed either way. */
enum sbp_status sbp_assignment_init(struct sbp_assignment *state,
                                    const struct sbp_problem *problem) SBP_MUST_USE;
void sbp_assignment_free(struct sbp_assignment *state);

/* Prices state->choice from scratch, which also removes the round-off of many moves. */
void sbp_assignment_reset(struct sbp_assignment *state);
/* Draws a random choice and prices it; avoids values that are forbidden by themselves. */
void sbp_assignment_randomise(struct sbp_assignment *state, struct sbp_random *random);

/* The change that variable = value would make; and making it, given that change. */
struct sbp_energy sbp_assignment_move_change(const struct sbp_assignment *state, int variable,
                                             int value);
void sbp_assignment_move(struct sbp_assignment *state, int variable, int value,
                         struct sbp_energy change);

/* row (domain): cost plus penalties of each value of the variable, up to a constant. */
void sbp_assignment_row(const struct sbp_assignment *state, int variable,
                        struct sbp_penalty penalty, double *row);

static inline bool sbp_assignment_is_feasible(const struct sbp_assignment *state)
{
    return state->energy.forbidden == 0 && !(state->energy.excess > 0);
}

#endif
