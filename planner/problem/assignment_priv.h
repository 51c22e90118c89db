/* A full choice whose cost, forbidden parts and usage are kept up to date move by move.
 *
 * A move changes one variable and is priced in O(degree + points it is live at). What is infeasible
 * is counted apart from the cost: forbidden choices and pairs, and the excess (usage over the
 * capacity, summed over points of time), so that searches may pass through it at a price. Internal
 * to the heuristic solvers.
 */
#ifndef SBP_PLANNER_PROBLEM_ASSIGNMENT_PRIV_H
#define SBP_PLANNER_PROBLEM_ASSIGNMENT_PRIV_H

#include "base/math/random.h"
#include "planner/problem/live_ranges_priv.h"
#include "planner/problem/problem.h"

/* An edge seen from one of its ends. */
struct sbp_neighbour {
    int variable; /* the other end */
    const double *table;
    size_t own_stride, other_stride;
};

/* How much a state costs, or by how much a move changes it. */
struct sbp_energy {
    double cost;       /* of what is not forbidden */
    int64_t forbidden; /* choices and pairs */
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
    double limit;                    /* capacity, round-off allowed */
    int free_count, *free_variable;  /* variables with more than one choice */
    struct sbp_energy energy;
    double cost_unit, excess_unit; /* mean spread of a variable's costs and usages; > 0 */
    double cost_spread;            /* no two choices' costs differ by more; > 0 */
};

/* What a forbidden part and a unit of excess weigh, in units of cost. */
struct sbp_penalty {
    double forbidden, excess;
};

/* The choice is zeroed and priced. E_MEMORY; the state may be freed either way. */
enum sbp_status sbp_assignment_init(struct sbp_assignment *state,
                                    const struct sbp_problem *problem) SBP_MUST_USE;
void sbp_assignment_free(struct sbp_assignment *state);

/* Prices state->choice from scratch, which also ends the drift of many moves. */
void sbp_assignment_reset(struct sbp_assignment *state);
/* A uniformly random choice, priced. Choices that are forbidden by themselves are avoided. */
void sbp_assignment_randomise(struct sbp_assignment *state, struct sbp_random *random);

struct sbp_energy sbp_assignment_move_change(const struct sbp_assignment *state, int variable,
                                             int value);
void sbp_assignment_move(struct sbp_assignment *state, int variable, int value,
                         struct sbp_energy change);

/* row (domain): what each choice of the variable would cost, penalties and all, up to a constant.
 */
void sbp_assignment_row(const struct sbp_assignment *state, int variable,
                        struct sbp_penalty penalty, double *row);

static inline bool sbp_assignment_is_feasible(const struct sbp_assignment *state)
{
    return state->energy.forbidden == 0 && !(state->energy.excess > 0);
}

#endif
