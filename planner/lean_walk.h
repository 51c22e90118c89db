/* From a plan to plans that need less memory, by their compiled programs.
 *
 * The memory model of a space (planner/pricing/memory_model.c) is a lower bound: it knows neither
 * copies that boxing makes on the way nor what lies beside them, which is much of what a lean plan
 * needs. What needs least by the model is therefore not what needs least. Here a plan's labels are
 * walked from one to the next, each compiled and laid out: simulated annealing on a device's bytes
 * (Kirkpatrick et al., 1983). What the model says rules most steps out before they are compiled.
 */
#ifndef SBP_PLANNER_LEAN_WALK_H
#define SBP_PLANNER_LEAN_WALK_H

#include "planner/inner/solution_pool.h"
#include "planner/plan/request.h"

/* Of walks that set out to find what is elsewhere. */
#define SBP_HOT 0.01

/* Looks at up to `programs` strategies of the request's space, at the plan's parallel, from
 * *leanest's on, or from another one that needs less, where it is of the space (NULL: none), at a
 * temperature of that share of its bytes at first (SBP_HOT); keeps the leanest in it (strategy,
 * device_bytes, objective_s), which never needs more afterwards. The same seed walks the same way.
 * Does nothing where all layers share one mesh, under boxing=paper, whose rests are of two kinds
 * that labels do not tell apart, or where the strategy is not of the space. Several threads may
 * walk at once, each with a plan of its own and a request without a store. Ends early on the
 * request's flag and deadline. *evaluations grows by the programs that were compiled. E_MEMORY. */
enum sbp_status sbp_walk_leaner(const struct sbp_plan *plan, const struct sbp_request *request,
                                uint64_t seed, double hot, int64_t programs,
                                const struct sbp_strategy *other, struct sbp_ranked *leanest,
                                int64_t *evaluations, struct sbp_diag *diag) SBP_MUST_USE;

#endif
