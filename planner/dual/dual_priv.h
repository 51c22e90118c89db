/* The parts of the solver `dual`: bounds by prices of usage over time and messages, and choices
 * that are repaired and improved under these prices. Internal to dual.c.
 *
 * The capacity enters by a price for each point of time (Lagrangian relaxation): costs plus price
 * times usage, less price times capacity, never exceed the cost of a choice that fits. What is left
 * is pairwise; messages along edges (min-sum, in the sequential order of Kolmogorov's TRW-S, IEEE
 * PAMI 28, 2006) move costs between variables so that their least shares add up to a bound.
 */
#ifndef SBP_PLANNER_DUAL_DUAL_PRIV_H
#define SBP_PLANNER_DUAL_DUAL_PRIV_H

#include "base/math/random.h"
#include "planner/problem/live_ranges.h"
#include "planner/solvers/solver_run.h"

/* An edge seen from one of its ends. */
struct sbp_dual_link {
    int other;
    const double *to;   /* (own domain, other domain) row-major: rows are own values */
    const double *from; /* (other domain, own domain): rows are the other's values */
    double *in, *out;   /* messages, (own domain) into the variable and (other domain) out of it */
};

/* The problem in the form that all parts work on. Forbidden pairs have a cost beyond any allowed
 * choice's. */
struct sbp_dual {
    const struct sbp_problem *problem;
    struct sbp_solver_run *run;
    struct sbp_arena arena;
    struct sbp_live live;
    struct sbp_random random;
    int variable_count, point_count;
    int *domain;             /* (variables) */
    double **cost, **priced; /* (variables)(domain) own costs; with usage at its prices */
    bool **barred; /* (variables)(domain) values that are left out of bounds and priced choices */
    bool is_whole; /* all costs are whole numbers, and so is every choice's */
    int *first;    /* (variables + 1) into link */
    struct sbp_dual_link *link; /* (2 edges) */
    double *weight;        /* (variables) share of a variable's cost that a message takes along */
    double *share;         /* (largest domain) scratch */
    double *room;          /* (points) limit less what variables of one value use */
    double limit;          /* capacity with its round-off */
    double *price;         /* (points) under trial */
    double *prefix;        /* (points + 1) sums of prices, so that a span's price is a difference */
    double *best_price;    /* (points) of the best bound */
    double bound;          /* that holds, the best so far */
    int open_count, *open; /* variables with more than one value */
    int largest_domain;
    int64_t values;      /* of all variables: what a pass evaluates */
    double entries;      /* of all tables */
    double span_entries; /* of all spans' usages */
    double work; /* entries that were looked at: turns end by it, as it does not depend on time */
    double *row, *other_row, *third_row; /* (largest domain) scratch */
};

/* Borrows the problem. E_MEMORY; may be freed either way. */
enum sbp_status sbp_dual_init(struct sbp_dual *dual, const struct sbp_problem *problem,
                              struct sbp_solver_run *run) SBP_MUST_USE;
void sbp_dual_free(struct sbp_dual *dual);
/* Whether to stop, after so many evaluations more. */
static inline bool sbp_dual_spend(struct sbp_dual *dual, int64_t evaluations)
{
    dual->run->solution->evaluations += evaluations;
    return sbp_solver_run_over(dual->run);
}

/* --- dual_messages.c --- */

/* Sets the priced costs from `price`. */
void sbp_dual_set_prices(struct sbp_dual *dual, const double *price);
/* Passes messages forward and back, so many times. Returns the bound of the last pass, with the
 * capacity at its prices and round-off taken off; -INFINITY when the search must stop. */
double sbp_dual_pass(struct sbp_dual *dual, int passes);
/* row (domain): costs of the variable's values beside its neighbours'; own: its costs, as they are
 * or priced. */
void sbp_dual_row(struct sbp_dual *dual, const int *choice, int variable, const double *own,
                  double *row);
/* Passes once forward and back. slack (variables)(domain): by how much more than the bound that is
 * returned every choice with this value costs at least. */
double sbp_dual_slacks(struct sbp_dual *dual, double **slack);
/* Whether no choice of this bound costs less than what is known. */
bool sbp_dual_is_met(const struct sbp_dual *dual, double bound);
/* Reads a choice off the messages, variable by variable: exact on a tree. */
void sbp_dual_read(struct sbp_dual *dual, int *choice);
/* Single changes until none lowers the priced cost. */
void sbp_dual_relax(struct sbp_dual *dual, int *choice);

/* --- dual_state.c: a choice whose cost and usage over time are kept up to date --- */

struct sbp_dual_state {
    struct sbp_dual *dual;
    int *choice;   /* (variables) */
    double cost;   /* without prices */
    int leaves;    /* of the tree over points: a power of two */
    double *most;  /* (2 leaves) the most usage below a node, less what is added above it */
    double *added; /* (2 leaves) to all points below a node */
    double *base;  /* (points) scratch */
    int trail_count, *trail_variable, *trail_value; /* what moves changed, to be undone */
    int trail_room;
};

enum sbp_status sbp_dual_state_init(struct sbp_dual_state *state,
                                    struct sbp_dual *dual) SBP_MUST_USE;
/* Takes a choice and sums its cost and usage. */
void sbp_dual_state_load(struct sbp_dual_state *state, const int *choice);
/* Whether the usage is within the capacity at all points. */
static inline bool sbp_dual_state_fits(const struct sbp_dual_state *state)
{
    return state->dual->point_count == 0 || state->most[1] <= state->dual->limit;
}
/* The most usage of points first <= p < last. */
double sbp_dual_state_most(const struct sbp_dual_state *state, int first, int last);
/* The point of most usage. */
int sbp_dual_state_fullest(const struct sbp_dual_state *state);
/* Whether no point that uses more after the change is over the capacity then. */
bool sbp_dual_state_admits(const struct sbp_dual_state *state, int variable, int value);
/* Changes a variable; rise: of the cost. */
void sbp_dual_state_move(struct sbp_dual_state *state, int variable, int value, double rise);
/* Forgets the trail, or goes back along it. */
void sbp_dual_state_keep(struct sbp_dual_state *state);
void sbp_dual_state_undo(struct sbp_dual_state *state, double cost);
/* Sums the cost anew; offers the choice to the run if it fits. */
void sbp_dual_state_offer(struct sbp_dual_state *state);

/* --- dual_descent.c --- */

/* The variables that are live in a block of points. */
struct sbp_dual_blocks {
    int *first; /* (blocks + 1) into variable */
    int *variable;
};
enum { SBP_DUAL_BLOCK_POINTS = 64 };
enum sbp_status sbp_dual_blocks_make(struct sbp_dual *dual,
                                     struct sbp_dual_blocks *blocks) SBP_MUST_USE;

/* One variable's change that lowers the usage of a point. */
struct sbp_dual_relief {
    double score; /* cost for a unit of usage; less is better */
    int variable, value;
};
struct sbp_dual_repair {
    struct sbp_dual_state *state;
    const struct sbp_dual_blocks *blocks;
    int tries;             /* variables that are looked at for a point, drawn at random; 0: all */
    const int *also;       /* (also_count) others that are looked at */
    int also_count, steps; /* points that are relieved at most; 0: any number */
    struct sbp_dual_relief *relief; /* (variables) scratch */
};
/* Brings the choice within the capacity: at the fullest point the changes that cost least for a
 * unit of usage, one after the other. False: it got stuck, or the search must stop. */
bool sbp_dual_repair_run(struct sbp_dual_repair *repair);
/* Changes that fit and lower the cost, variable by variable, until there is none. False when the
 * search must stop. */
bool sbp_dual_descend(struct sbp_dual_state *state);
/* Sets the variable to its cheapest value that fits; whether the cost fell. */
bool sbp_dual_improve(struct sbp_dual_state *state, int variable);

/* --- dual_neighbourhood.c --- */

struct sbp_dual_search {
    struct sbp_dual_state *state;
    const struct sbp_dual_blocks *blocks;
    struct sbp_dual_repair repair;
    int *ball, ball_count;     /* variables that may change */
    int *stamp, now;           /* (variables) ball that it is in, if now */
    int *place;                /* (variables) in the ball */
    int *parent, *parent_link; /* (ball) in the forest; -1: it is a root; -2: it stays */
    int *order, order_count;
    double **local; /* (ball)(largest domain) */
    int **best;     /* (ball)(largest domain) */
};
enum sbp_status sbp_dual_search_init(struct sbp_dual_search *search, struct sbp_dual_state *state,
                                     const struct sbp_dual_blocks *blocks) SBP_MUST_USE;
/* Changes neighbourhoods until so much work is done; keeps what costs no more. False when the
 * search must stop. */
bool sbp_dual_search_run(struct sbp_dual_search *search, double work);

/* --- dual_ascent.c --- */

/* Prices under way to the best bound. */
struct sbp_dual_ascent {
    struct sbp_dual_state *state;
    struct sbp_dual_repair repair; /* of all variables */
    int *choice;                   /* (variables) least under the trial prices, nearly */
    double *usage;                 /* (points) of it, and over the capacity */
    double *average;               /* (points) of that over iterations, the latest counting most */
    double scale;                  /* of the step */
    double gainful;                /* scale of the last step that raised the bound */
    double least;                  /* scale at which a round of steps ends */
    int iterations, stalled;
    bool has_gained; /* a step of this round raised the bound */
    bool goes_back;  /* the next step is from the best prices */
    bool is_done;    /* no step is left */
};
enum sbp_status sbp_dual_ascent_init(struct sbp_dual_ascent *ascent, struct sbp_dual_state *state,
                                     const struct sbp_dual_blocks *blocks) SBP_MUST_USE;
/* usage: of the ascent's choice over the capacity, at each point; returns the largest. */
double sbp_dual_ascent_excess(struct sbp_dual_ascent *ascent);
/* Repairs the ascent's choice, improves and offers it. False when the search must stop. */
bool sbp_dual_ascent_try(struct sbp_dual_ascent *ascent);
/* Raises the bound until so much work is done; offers what is repaired on the way. False when the
 * search must stop. */
bool sbp_dual_ascent_run(struct sbp_dual_ascent *ascent, double work);

/* --- dual_branch.c: branch and bound --- */

/* A part of the problem: some values are barred. */
struct sbp_dual_node {
    double bound;
    unsigned char *barred; /* (values / 8) bits */
    double *price;         /* (points) */
};
struct sbp_dual_branch {
    struct sbp_dual_ascent *ascent;
    int count, room;            /* open parts */
    struct sbp_dual_node *node; /* (count) a heap, the least bound first */
    double **slack, **share;    /* (variables)(domain); share: of iterations that chose a value */
    double *direction, *best_price, *base; /* (points + 1) */
    bool *was_barred;                      /* (largest domain) scratch */
    double *conflict;                      /* (variables) scratch */
    bool has_begun;
    bool is_done;   /* no part is left that may hold a better choice */
    bool is_closed; /* the problem is too large, or memory for parts is out */
};
enum sbp_status sbp_dual_branch_init(struct sbp_dual_branch *branch,
                                     struct sbp_dual_ascent *ascent) SBP_MUST_USE;
void sbp_dual_branch_free(struct sbp_dual_branch *branch);
/* Divides open parts, the one with the least bound first, until so much work is done. Raises the
 * bound and offers choices. False when the search must stop. */
bool sbp_dual_branch_run(struct sbp_dual_branch *branch, double work);

#endif
