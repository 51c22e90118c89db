/* Variable elimination on a pairwise problem: the order, the tables, and passes over them.
 *
 * Each variable owns a bucket: its own costs, its edges to variables eliminated later, and the
 * messages of earlier buckets that speak of it. Minimising the bucket over its variable gives a
 * message over the bucket's scope (its neighbours at that time) to the bucket of the scope's next
 * variable. Buckets with an empty scope are chained, so that all of them form one tree whose last
 * bucket knows the whole (Dechter, Bucket elimination, Artificial Intelligence 113, 1999).
 * Variables with one choice are folded into their neighbours' costs. Internal to the
 * searches that are built on it (`exact`, planner/problem/pareto_labels_priv.h,
 * planner/problem/minimax.h).
 */
#ifndef SBP_PLANNER_PROBLEM_BUCKET_ELIMINATION_PRIV_H
#define SBP_PLANNER_PROBLEM_BUCKET_ELIMINATION_PRIV_H

#include "planner/problem/elimination_order_priv.h"
#include "planner/problem/live_ranges_priv.h"
#include "planner/problem/problem.h"
#include "planner/problem/solver_priv.h"

/* A table read by a bucket: rows along the bucket's variable are contiguous. */
struct sbp_bucket_factor {
    const double *table;
    int arity;      /* scope variables of the bucket that the table depends on */
    int child;      /* bucket whose message it is, -1: an edge */
    int level;      /* 1 + the deepest of `place`; 0 when arity is 0 */
    bool has_rows;  /* false: a message that does not speak of the bucket's variable */
    int *place;     /* (arity) places in the bucket's scope, ascending */
    size_t *stride; /* (arity) */
};

struct sbp_bucket {
    int variable, domain;
    int width, *scope; /* variables, the one eliminated last first; the next one last */
    int *scope_domain;
    size_t size; /* product of the scope's domains */
    int parent;  /* bucket that reads the message; -1 for the last */
    int factor_count, child_count;
    struct sbp_bucket_factor *factor; /* edges, then children's messages */
    double *own;     /* (domain) costs of the variable alone; INFINITY: forbidden */
    double *priced;  /* (domain) own plus prices times usages */
    double *message; /* (size) least priced cost of everything eliminated so far */
    double *outside; /* (size) least priced cost of everything else; NULL until asked */
};

struct sbp_elimination_tree {
    const struct sbp_problem *problem;
    struct sbp_arena arena;
    int count;                 /* buckets, in order of elimination */
    struct sbp_bucket *bucket; /* (count) */
    int *bucket_of;            /* (variable_count), -1: one choice only */
    double constant;           /* cost of what was folded away; INFINITY: forbidden */
    size_t largest_domain;
};

/* Chooses the order (least fill or smallest table, whichever needs less arithmetic) and allocates
 * all tables. E_UNSUPPORTED, with their size, above most_bytes; E_MEMORY. On failure *tree is
 * empty. */
enum sbp_status sbp_elimination_build(const struct sbp_problem *problem, double most_bytes,
                                      struct sbp_elimination_tree *tree,
                                      struct sbp_diag *diag) SBP_MUST_USE;
void sbp_elimination_free(struct sbp_elimination_tree *tree);

/* priced = own + sum over points of price * usage; price NULL: own costs alone. */
void sbp_elimination_price(struct sbp_elimination_tree *tree, const struct sbp_live *live,
                           const double *price);

/* Calls visit for every assignment (tuple) of the bucket's scope, in row-major order, with the sums
 * over the variable's choices: base (domain) plus edges plus, if asked, messages. Stops when visit
 * returns false, and returns whether it never did. */
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

/* Offset of the factor's row (or entry, when it has no rows) for a tuple of the bucket's scope. */
static inline size_t sbp_bucket_factor_offset(const struct sbp_bucket_factor *factor,
                                              const int *tuple)
{
    size_t offset = 0;
    for (int j = 0; j < factor->arity; j++)
        offset += (size_t)tuple[factor->place[j]] * factor->stride[j];
    return offset;
}

/* Fills in all messages; *least is the least priced cost of all. False: the search is over. */
bool sbp_elimination_up(struct sbp_elimination_tree *tree, struct sbp_solver_run *search,
                        double *rows, double *least);
/* Fills in all outside tables from the messages (E_MEMORY when they cannot be allocated); *done is
 * false when the search is over. */
enum sbp_status sbp_elimination_down(struct sbp_elimination_tree *tree,
                                     struct sbp_solver_run *search, double *rows,
                                     bool *done) SBP_MUST_USE;
/* Completes choice (variable_count) from the messages. */
void sbp_elimination_recover(const struct sbp_elimination_tree *tree, double *rows, int *choice);

#endif
