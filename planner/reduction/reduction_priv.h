/* The problem under way to its reduction: a graph whose variables lose values and are merged.
 *
 * reduction_graph.c holds the graph, reduction_ties.c makes it consistent and merges what is tied,
 * reduction_usage.c joins usages over time, reduction_values.c drops dominated values,
 * reduction_unused.c folds variables without usage, reduction.c puts all in order and builds what
 * is left.
 */
#ifndef SBP_PLANNER_REDUCTION_REDUCTION_PRIV_H
#define SBP_PLANNER_REDUCTION_REDUCTION_PRIV_H

#include "planner/problem/live_ranges.h"
#include "planner/reduction/reduction.h"

struct sbp_reducer_edge {
    int a, b;           /* variables; a is -1 where the edge is gone */
    const double *cost; /* (values left of a, values left of b) row-major */
    double *owned;      /* cost, where it is the graph's own; NULL: it is the source's */
    bool is_partial;    /* it may hold a forbidden pair */
};

/* What the values of a variable use at points first <= p < last. */
struct sbp_reducer_span {
    int first, last;
    double *usage; /* (domain) the least of them is 0, the largest is not */
};

struct sbp_reducer_variable {
    int domain;
    int *value;             /* (domain) in the source, ascending */
    double *cost;           /* (domain) */
    int degree, room;       /* edges; room of the list */
    int *edge;              /* (degree) */
    bool is_gone, is_dirty; /* is_dirty: to be looked at by the rule under way */
    /* After sbp_reduction_join_usages: */
    int span_count;
    struct sbp_reducer_span *span; /* in order, disjoint; what all values use is taken off */
};

struct sbp_reducer {
    const struct sbp_problem *source;
    struct sbp_reduction *reduction;
    struct sbp_live live; /* of the source */
    struct sbp_arena scratch;
    int variable_count, edge_count;
    struct sbp_reducer_variable *variable;
    struct sbp_reducer_edge *edge;
    int queue_count, *queue; /* (variable_count) dirty variables, in a ring */
    int queue_first;
    int *picked;       /* (largest domain) scratch: values */
    double *base;      /* (points + 1) that every choice uses */
    double constant;   /* cost of what is gone without a neighbour */
    bool is_forbidden; /* every choice is */
};

/* --- reduction_graph.c --- */

/* Copies what the source says; its tables are borrowed. E_MEMORY; may be freed either way. */
enum sbp_status sbp_reduction_begin(struct sbp_reducer *reducer,
                                    struct sbp_reduction *reduction) SBP_MUST_USE;
void sbp_reduction_end(struct sbp_reducer *reducer);
/* The end of an edge that is not the variable. */
static inline int sbp_reduction_other(const struct sbp_reducer_edge *edge, int variable)
{
    return edge->a == variable ? edge->b : edge->a;
}
/* The cost of a pair, seen from the variable. */
static inline double sbp_reduction_cost(const struct sbp_reducer *reducer,
                                        const struct sbp_reducer_edge *edge, int variable, int own,
                                        int other)
{
    const size_t columns = (size_t)reducer->variable[edge->b].domain;
    return edge->a == variable ? edge->cost[(size_t)own * columns + (size_t)other]
                               : edge->cost[(size_t)other * columns + (size_t)own];
}
/* The edge between two variables; -1: there is none. */
int sbp_reduction_find(const struct sbp_reducer *reducer, int a, int b);
/* Takes an edge out of the lists of its ends and frees its table. */
void sbp_reduction_remove_edge(struct sbp_reducer *reducer, int edge);
/* Gives an edge other ends and a table of the graph's own, and enters it in their lists; adds it up
 * with the one that is there. False when memory is out; the table is the graph's either way. */
bool sbp_reduction_put_edge(struct sbp_reducer *reducer, int edge, int a, int b, double *table,
                            bool is_partial);
/* A table out of the source's budget; NULL when memory is out. */
double *sbp_reduction_take_table(struct sbp_reducer *reducer, size_t entries);
/* Keeps the values that are listed (count, ascending indices). False when memory is out. */
bool sbp_reduction_keep_values(struct sbp_reducer *reducer, int variable, const int *kept,
                               int count);
/* Notes that a variable is gone, and returns the step's map to fill in; NULL when memory is out. */
int *sbp_reduction_note_step(struct sbp_reducer *reducer, struct sbp_reduction_step step);
/* The queue of variables to look at. */
void sbp_reduction_mark(struct sbp_reducer *reducer, int variable);
void sbp_reduction_mark_all(struct sbp_reducer *reducer);
void sbp_reduction_mark_around(struct sbp_reducer *reducer, int variable);
int sbp_reduction_next(struct sbp_reducer *reducer); /* -1: none */

/* --- rules: *changed is set where they change something; E_MEMORY --- */

/* Drops values without an allowed partner; sets is_forbidden where a variable has none left. */
enum sbp_status sbp_reduction_make_consistent(struct sbp_reducer *reducer,
                                              bool *changed) SBP_MUST_USE;
/* Merges variables that are tied to another one. */
enum sbp_status sbp_reduction_merge_tied(struct sbp_reducer *reducer, bool *changed) SBP_MUST_USE;
/* Moves edges that are sums of their ends' terms into these. */
void sbp_reduction_fold_separable(struct sbp_reducer *reducer);
/* Joins the usages of merged variables, anew: spans and base. */
enum sbp_status sbp_reduction_join_usages(struct sbp_reducer *reducer) SBP_MUST_USE;
/* Drops values that another one is as good as. */
enum sbp_status sbp_reduction_drop_dominated(struct sbp_reducer *reducer,
                                             bool *changed) SBP_MUST_USE;
/* Folds variables without usage that have two neighbours at most. */
enum sbp_status sbp_reduction_fold_unused(struct sbp_reducer *reducer, bool *changed) SBP_MUST_USE;

#endif
