/* The pairwise problem: what every solver solves, and nothing else (design, section 6).
 *
 * Choose one value out of each variable's domain so that the sum of unary costs and of edge costs
 * is least and, at every point of time, the summed usages of the live variables stay within the
 * capacity. Costs are seconds when the planner builds it; solvers do not care. Cost SBP_FORBIDDEN
 * (10^18) or more rules a choice or a pair out; forbidden costs never add up with others.
 */
#ifndef SBP_PLANNER_PROBLEM_PROBLEM_H
#define SBP_PLANNER_PROBLEM_PROBLEM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/status.h"

#define SBP_FORBIDDEN 1e18
/* What summing 10^4 usages may lose in double precision, as a share of the capacity. */
#define SBP_CAPACITY_ROUND_OFF 1e-12

struct sbp_interval {
    int64_t from, to; /* half-open; from == to: never live */
};

struct sbp_variable {
    char name[48];
    int domain;                          /* >= 1 */
    double *cost;                        /* (domain) */
    int interval_count;                  /* >= 0; 0: uses nothing */
    const struct sbp_interval *interval; /* (interval_count); where some overlap, usages add up */
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
    /* Room of the two arrays, which grow when it is used up, and the look-up of edges by pair: open
     * addressing, a power of two of slots, each an edge index + 1 or 0. */
    int variable_room, edge_room, slot_count;
    int *slot;
};

/* An empty problem of unlimited capacity with room for so many variables and edges (more may be
 * added). E_MEMORY; the problem may be freed either way. */
enum sbp_status sbp_problem_init(struct sbp_problem *problem, int variables,
                                 int edges) SBP_MUST_USE;
/* Accepts NULL and an empty problem. */
void sbp_problem_free(struct sbp_problem *problem);

/* Adds a variable with zeroed costs; returns its index, or -1 when memory is out. Usage tables are
 * allocated for `interval_count` intervals (copied). */
int sbp_problem_add_variable(struct sbp_problem *problem, const char *name, int domain,
                             int interval_count, const struct sbp_interval *intervals);
/* The edge's table between a and b, zeroed when new, whichever way round it was first asked for:
 * *transposed says that rows are b's choices. NULL when memory is out. */
double *sbp_problem_edge_table(struct sbp_problem *problem, int a, int b, bool *transposed);

/* Cost of a full choice (SBP_FORBIDDEN when any part of it is), and the largest usage over time
 * (INFINITY when there is no memory to sort the times). */
double sbp_problem_cost(const struct sbp_problem *problem, const int *choice);
double sbp_problem_peak_usage(const struct sbp_problem *problem, const int *choice);
/* Whether a usage is within the capacity, up to the round-off of summing it. */
bool sbp_problem_fits(const struct sbp_problem *problem, double usage);

/* The JSON format of the public IOPDDL benchmark: {"problem": {"name"?, "nodes": {"intervals":
 * [[lo,hi]...], "costs": [[...]...], "usages": [[...]...]}, "edges": {"nodes": [[a,b]...], "costs":
 * [[...]...]}, "usage_limit": n}}; [0,0] uses nothing; a variable with several intervals becomes
 * tied helper nodes on writing; an unlimited capacity is no usage_limit. Edges given twice are
 * added up. Files of 10^5 nodes and 100 MB read in seconds: a reader of this format alone, with
 * errors as `file: problem.nodes.costs[3]: ...`. On failure *problem is empty, and nothing is
 * written. E_INPUT, E_IO, E_MEMORY. */
enum sbp_status sbp_problem_read(const char *path, struct sbp_problem *problem,
                                 struct sbp_diag *diag) SBP_MUST_USE;
enum sbp_status sbp_problem_write(const struct sbp_problem *problem, const char *path,
                                  struct sbp_diag *diag) SBP_MUST_USE;

/* Removes a variable without usages by minimising it out: its cost moves to its neighbours' edge
 * (degree <= 2 only). The best value for each pair of neighbours' values is kept in `recover`, so
 * that sbp_problem_recover can complete a choice. Used to fold away the split states between two
 * layers, which leaves the classical strategy-to-strategy tables. */
struct sbp_elimination {
    int variable, left, right; /* right == -1: degree 1, left == -1: degree 0 */
    int right_domain;          /* 1 when there is no right */
    int *best;                 /* (domain left, domain right), row-major; owned by the arena */
};
/* E_UNSUPPORTED, with the problem as it was: the variable has a usage or more than two edges. */
enum sbp_status sbp_problem_eliminate(struct sbp_problem *problem, int variable,
                                      struct sbp_elimination *step) SBP_MUST_USE;
/* Fills in choice[step->variable]. Undo steps in reverse order. An eliminated variable stays in the
 * problem with domain 1 and no edge, so that indices do not move; its cost is 0, or the least of
 * its costs when it had no neighbour to give it to. */
void sbp_problem_recover(const struct sbp_problem *problem, const struct sbp_elimination *step,
                         int *choice);

#endif
