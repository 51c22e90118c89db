/* Reduces a pairwise problem to one with fewer variables, values and edges that has the same best
 * cost, and completes a choice of the reduced problem to one of the whole.
 *
 * Arc consistency drops values without an allowed partner. Where each value of one variable allows
 * just one of another, the two are one variable: costs add up, usages join over time. An edge whose
 * table is a sum of a term of either end goes into the ends' own costs. A value goes where another
 * of its variable costs no more, whatever the neighbours choose, and uses no more at any time. A
 * variable that uses nothing and has one neighbour goes into that one's costs; one that has two
 * becomes an edge between them, where that is no larger. Variables with one value left, and what
 * every value of a variable uses, are one variable with one value.
 *
 * Forbidden pairs of real problems are nearly all ties of the second kind: a search that changes
 * one variable at a time cannot cross them.
 */
#ifndef SBP_PLANNER_REDUCTION_REDUCTION_H
#define SBP_PLANNER_REDUCTION_REDUCTION_H

#include "planner/problem/problem.h"

/* A variable that left the problem: its value follows from another one's. */
struct sbp_reduction_step {
    int variable;  /* of the source */
    int parent[2]; /* of the source; -1: it has no first, or no second one */
    bool is_tie;   /* it is one with its first parent; else it is the best beside both */
    int *map;      /* (domain of parents in the source, or 1) row-major: values in the source */
};

struct sbp_reduction {
    /* What is left; times are numbers of points. Tables may be shared between edges, and none may
     * be written. Its last variable has one value and no edge. */
    struct sbp_problem problem;
    struct sbp_arena arena; /* owns all below */
    const struct sbp_problem *source;
    bool is_forbidden; /* every choice of the source is: then there is no problem */
    int *variable;     /* (variables of problem, less the last) which one of the source it is */
    int **value;       /* (likewise)(domain) values in the source */
    int step_count;
    struct sbp_reduction_step *step; /* in the order in which they were taken */
};

/* Borrows the source, and takes memory out of its budget. Sums are made in another order than in
 * the source, so that costs agree up to round-off. E_MEMORY; the reduction may be freed either way.
 */
enum sbp_status sbp_reduction_make(const struct sbp_problem *source,
                                   struct sbp_reduction *reduction) SBP_MUST_USE;
void sbp_reduction_free(struct sbp_reduction *reduction);

/* choice (variables of the source) from a choice of the reduced problem. */
void sbp_reduction_complete(const struct sbp_reduction *reduction, const int *reduced, int *choice);

#endif
