/* Variable elimination on a pairwise problem: its tables, and passes over them.
 *
 * Each variable owns a bucket: its own costs, its edges to variables that are eliminated later, and
 * the messages of earlier buckets that mention it. Minimising the bucket over its variable gives a
 * message over the bucket's scope (its neighbours at that time) to the bucket of the scope's next
 * variable. Buckets with an empty scope are chained, so that all buckets form one tree and the last
 * one knows the whole cost (Dechter, Bucket elimination, Artificial Intelligence 113, 1999).
 * Variables with one value are folded into their neighbours' costs. Internal to the searches built
 * on it: `exact`, planner/solvers/pareto_labels_priv.h, planner/solvers/minimax.h.
 */
#ifndef SBP_PLANNER_SOLVERS_BUCKET_ELIMINATION_PRIV_H
#define SBP_PLANNER_SOLVERS_BUCKET_ELIMINATION_PRIV_H

#include "planner/solvers/elimination_order_priv.h"
#include "planner/problem/live_ranges.h"
#include "planner/problem/problem.h"
#include "planner/solvers/solver_run.h"

/* A table that a bucket reads; entries along the bucket's variable are contiguous. */
struct sbp_bucket_factor {
    const double *table;
    int arity;      /* scope variables of the bucket that the table depends on */
    int child;      /* the bucket that sent it; -1: an edge */
    int level;      /* 1 + the last of `place`; 0 when arity is 0 */
    bool has_rows;  /* false: a message without the bucket's variable */
    int *place;     /* (arity) places in the bucket's scope, ascending */
    size_t *stride; /* (arity) */
};

struct sbp_bucket {
    int variable, domain;
    int width, *scope; /* variables, the one eliminated last first; the next one last */
    int *scope_domain;
    size_t size; /* product of the scope's domains */
    int parent;  /* the bucket that reads the message; -1 for the last */
    int factor_count, child_count;
    struct sbp_bucket_factor *factor; /* edges, then children's messages */
    double *own;     /* (domain) costs of the variable alone; INFINITY: forbidden */
    double *priced;  /* (domain) own, plus price times usage over its points of time */
    double *message; /* (size) least priced cost of the subtree */
    double *outside; /* (size) least priced cost of the rest; NULL before a down pass */
};

struct sbp_elimination_tree {
    const struct sbp_problem *problem;
    struct sbp_arena arena;
    int count;                 /* buckets, in order of elimination */
    struct sbp_bucket *bucket; /* (count) */
    int *bucket_of;            /* (variable_count); -1: folded away */
    double constant;           /* cost of folded variables; INFINITY: forbidden */
    size_t largest_domain;
};

/* Finds an order and allocates all tables. Borrows the problem. E_UNSUPPORTED, with their size,
 * above most_bytes; E_MEMORY. On failure *tree is empty. */
enum sbp_status sbp_elimination_build(const struct sbp_problem *problem, double most_bytes,
                                      struct sbp_elimination_tree *tree,
                                      struct sbp_diag *diag) SBP_MUST_USE;
void sbp_elimination_free(struct sbp_elimination_tree *tree);

/* Sets priced = own + sum of price * usage over points of time; price (point_count), NULL: 0. */
void sbp_elimination_price(struct sbp_elimination_tree *tree, const struct sbp_live *live,
                           const double *price);

/* Calls visit for every assignment (tuple) of the bucket's scope, in row-major order. row (domain)
 * is base plus edges plus, if with_messages, messages, for each value of the bucket's variable.
 * Stops when visit returns false; returns whether it never did. */
typedef bool sbp_visit_fn(void *context, size_t index, const int *tuple, const double *row);
struct sbp_visit {
    const struct sbp_bucket *bucket;
    const double *base;
    bool with_messages;
    sbp_visit_fn *visit;
    void *context;
    double *rows; /* (SBP_ELIMINATION_MOST_WIDTH + 1, largest domain) scratch */
};
bool sbp_elimination_visit(const struct sbp_visit *visit);

/* Offset of the factor's row (or entry, if it has no rows) for a tuple of the bucket's scope. */
static inline size_t sbp_bucket_factor_offset(const struct sbp_bucket_factor *factor,
                                              const int *tuple)
{
    size_t offset = 0;
    for (int j = 0; j < factor->arity; j++)
        offset += (size_t)tuple[factor->place[j]] * factor->stride[j];
    return offset;
}

/* Up pass: fills in all messages; *least: least priced cost of a choice. rows: scratch as above.
 * False when the search must stop. */
bool sbp_elimination_up(struct sbp_elimination_tree *tree, struct sbp_solver_run *search,
                        double *rows, double *least);
/* Down pass: fills in all outside tables from the messages. *done is false when the search must
 * stop. E_MEMORY. */
enum sbp_status sbp_elimination_down(struct sbp_elimination_tree *tree,
                                     struct sbp_solver_run *search, double *rows,
                                     bool *done) SBP_MUST_USE;
/* Reads the least-cost choice (variable_count) off the messages. */
void sbp_elimination_recover(const struct sbp_elimination_tree *tree, double *rows, int *choice);

#endif
