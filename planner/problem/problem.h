/* The pairwise problem, which every solver takes (DESIGN.md, section 6).
 *
 * Choose one value from each variable's domain so that the sum of the variables' and the edges'
 * costs is least, while the summed usages of the variables that are live stay within the capacity
 * at every point of time. The planner states costs in seconds and usages in bytes; solvers do not
 * care. A cost of SBP_FORBIDDEN (10^18) or more rules a value or a pair of values out, and is never
 * added up.
 */
#ifndef SBP_PLANNER_PROBLEM_PROBLEM_H
#define SBP_PLANNER_PROBLEM_PROBLEM_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/status.h"

#define SBP_FORBIDDEN 1e18
/* Share of the capacity that summing 10^4 usages may lose in double precision. */
#define SBP_CAPACITY_ROUND_OFF 1e-12

struct sbp_interval {
    int64_t from, to; /* from <= time < to; from == to: never live */
};

struct sbp_variable {
    char name[48];
    int domain;                          /* >= 1 */
    double *cost;                        /* (domain) */
    int interval_count;                  /* >= 0; 0: uses nothing */
    const struct sbp_interval *interval; /* (interval_count); usages of overlapping ones add up */
    double *usage;                       /* (interval_count, domain), >= 0; NULL when count is 0 */
};

struct sbp_edge {
    int a, b;     /* variables, a != b */
    double *cost; /* (domain of a, domain of b) row-major */
};

struct sbp_problem {
    struct sbp_arena arena; /* owns all below */
    int variable_count, edge_count;
    struct sbp_variable *variable;
    struct sbp_edge *edge; /* at most one per pair of variables */
    double capacity;       /* INFINITY: unlimited */
    /* Allocated entries of the two arrays, which grow, and a hash table of edges by pair: open
     * addressing, a power of two of slots, each an edge's index + 1, or 0. */
    int variable_room, edge_room, slot_count;
    int *slot;
};

/* Makes an empty problem of unlimited capacity with room for so many variables and edges; more may
 * be added. E_MEMORY; the problem may be freed either way. */
enum sbp_status sbp_problem_init(struct sbp_problem *problem, int variables,
                                 int edges) SBP_MUST_USE;
/* The same out of a budget (NULL: none), which solvers of the problem take their tables from, too.
 */
enum sbp_status sbp_problem_init_within(struct sbp_problem *problem, int variables, int edges,
                                        struct sbp_arena_budget *budget) SBP_MUST_USE;
/* Accepts NULL and an empty problem. */
void sbp_problem_free(struct sbp_problem *problem);

/* Adds a variable with zeroed costs and usages and returns its index, or -1 when memory is out. The
 * name and the intervals (interval_count) are copied. */
int sbp_problem_add_variable(struct sbp_problem *problem, const char *name, int domain,
                             int interval_count, const struct sbp_interval *intervals);
/* The table of the edge between a and b, which is added, zeroed, when there is none. *transposed:
 * rows are b's values, because the edge was added as (b, a). NULL when memory is out. */
double *sbp_problem_edge_table(struct sbp_problem *problem, int a, int b, bool *transposed);

/* Adds an edge, which there is none of yet, with a table (domain of a, domain of b) that outlives
 * the problem and that no one writes. False when memory is out. */
bool sbp_problem_share_table(struct sbp_problem *problem, int a, int b, double *table);

/* The sum of two costs, forbidden if either is. */
static inline double sbp_problem_add_costs(double a, double b)
{
    return a >= SBP_FORBIDDEN || b >= SBP_FORBIDDEN ? SBP_FORBIDDEN : a + b;
}
/* The cost, with INFINITY for forbidden, which sums keep. */
static inline double sbp_problem_usable(double cost)
{
    return cost >= SBP_FORBIDDEN ? INFINITY : cost;
}
static inline size_t sbp_problem_entries(const struct sbp_problem *problem,
                                         const struct sbp_edge *edge)
{
    return (size_t)problem->variable[edge->a].domain * (size_t)problem->variable[edge->b].domain;
}

/* Cost of a full choice (variable_count); SBP_FORBIDDEN when any part of it is forbidden. */
double sbp_problem_cost(const struct sbp_problem *problem, const int *choice);
/* Its largest usage over time; INFINITY when there is no memory to sort the times. */
double sbp_problem_peak_usage(const struct sbp_problem *problem, const int *choice);
/* Whether a usage is within the capacity, up to the round-off of summing it. */
bool sbp_problem_fits(const struct sbp_problem *problem, double usage);

/* The JSON format of the public IOPDDL benchmark: {"problem": {"name"?, "nodes": {"intervals":
 * [[lo,hi]...], "costs": [[...]...], "usages": [[...]...]}, "edges": {"nodes": [[a,b]...], "costs":
 * [[...]...]}, "usage_limit": n}}; [0,0] uses nothing. The writer turns further intervals of a
 * variable into helper nodes that are tied to it, and an unlimited capacity into no usage_limit.
 * The reader adds up edges that are given twice. It knows this format alone, so that files of 10^5
 * nodes and 100 MB take seconds; errors read `file: problem.nodes.costs[3]: ...`. On failure
 * *problem is empty, and nothing is written. E_INPUT, E_IO, E_MEMORY. */
enum sbp_status sbp_problem_read(const char *path, struct sbp_problem *problem,
                                 struct sbp_diag *diag) SBP_MUST_USE;
enum sbp_status sbp_problem_write(const struct sbp_problem *problem, const char *path,
                                  struct sbp_diag *diag) SBP_MUST_USE;

/* The removal of a variable that uses nothing and has at most two edges: its least cost moves to
 * the edge between its neighbours, and `best` keeps the value that attains it. The planner so folds
 * away the layouts between two layers, which leaves the classical tables from strategy to strategy.
 */
struct sbp_elimination {
    int variable, left, right; /* neighbours; right == -1: only one; left == -1: none */
    int right_domain;          /* 1 when there is no right */
    int *best;                 /* (domain left, domain right), row-major; owned by the arena */
};
/* Removes the variable. It stays in the problem with domain 1 and no edge, so that indices do not
 * move; its cost is 0, or the least of its costs when it had no neighbour to give it to.
 * E_UNSUPPORTED, with the problem unchanged: it has a usage or more than two edges. E_MEMORY. */
enum sbp_status sbp_problem_eliminate(struct sbp_problem *problem, int variable,
                                      struct sbp_elimination *step) SBP_MUST_USE;
/* Fills in choice[step->variable] from its neighbours' values. Steps are undone in reverse order.
 */
void sbp_problem_recover(const struct sbp_problem *problem, const struct sbp_elimination *step,
                         int *choice);

#endif
