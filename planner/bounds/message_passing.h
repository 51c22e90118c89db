/* Reduces a space to the choices that a best plan can hold, without a table over pairs.
 *
 * Costs move between variables along edges (min-sum message passing, in the sequential order of
 * Kolmogorov's TRW-S, 2006), which changes no plan's cost; the least of each variable's and each
 * edge's share then add up to a lower bound. Memory has its price (planner/bounds/lagrangian.h). A
 * choice is dropped when the bound with this choice, edges and neighbours included, reaches the
 * cost of a known plan. The known plan is read off the messages, one variable after the other, and
 * improved by single changes.
 */
#ifndef SBP_PLANNER_BOUNDS_MESSAGE_PASSING_H
#define SBP_PLANNER_BOUNDS_MESSAGE_PASSING_H

#include "planner/pricing/edge_tables.h"

struct sbp_message_reduction {
    double lower_s; /* no full choice that fits costs less */
    double upper_s; /* cost of `choice`, by the space's prices; INFINITY: none was found */
    int *choice;    /* (variable_count) the best found that fits; of the space that was given */
    /* The given space with reduced domains, which hold `choice` and every choice that costs less
     * than it and than the goal. Its arrays are the arena's. */
    struct sbp_space space;
    int *count;          /* (variable_count) choices that are left */
    int **original;      /* (variable_count)(count) their numbers in the given space */
    int64_t evaluations; /* choices that were bounded one by one */
    bool is_settled;     /* no choice that is left costs less than `choice` or the goal */
    bool stopped;
};

/* goal_s: choices that cost as much are not looked for; INFINITY: all are. Arrays come out of the
 * arena; the space must outlive the reduction. Ends when tables over the pairs that are left would
 * be small, when the bounds meet, or when they move no more. E_MEMORY, E_UNSUPPORTED as
 * sbp_pricing_make_edges. */
enum sbp_status sbp_message_reduce(const struct sbp_space *space, double capacity_bytes,
                                   double goal_s, struct sbp_arena *arena,
                                   struct sbp_message_reduction *reduction) SBP_MUST_USE;

/* Likewise without a capacity and a known choice: the reduced space holds every choice that costs
 * less than the goal. */
enum sbp_status sbp_message_narrow(const struct sbp_space *space, double goal_s,
                                   struct sbp_arena *arena,
                                   struct sbp_message_reduction *reduction) SBP_MUST_USE;

/* Applies a reduction to a space with the same domains, out of the arena. E_MEMORY. */
enum sbp_status sbp_message_restrict(const struct sbp_space *space,
                                     const struct sbp_message_reduction *reduction,
                                     struct sbp_arena *arena,
                                     struct sbp_space *restricted) SBP_MUST_USE;

/* Cells of the tables over pairs of a space. */
double sbp_message_cells(const struct sbp_space *space);

#endif
