/* The whole search: what is around a strategy (stages, micro-batches, schedule, ZeRO, recompute,
 * offload) and the strategy within it.
 *
 * First plans whose layers all split the batch alike say where good plans are, which is searched
 * first; then the rest, best first over lower bounds. A candidate (planner/outer/step_cuts.h) is
 * bounded by arithmetic alone, then over its strategies (sbp_inner_bound), then solved
 * (sbp_inner_solve) along one path through its stages and, where the plan's longest path is another
 * one, along that and mixtures of them (planner/paths/path_mixture.h); what gap these leave is
 * settled last (planner/outer/path_enumeration.h). Solving goes without the limit of memory first,
 * which takes little time and mostly puts others before. Now and then a candidate is solved before
 * its turn, where a good plan is expected, which rules others out. What is bounded by more than the
 * best plan costs is never looked at. Formed again or moved to the host, no path through a step
 * takes less time than without: such candidates wait until memory is seen to bind. (Message-driven
 * stages are greedy, so that the step itself may take less: bounds, which are of paths, hold, but
 * such a plan may be missed.) Where nothing was found, candidates are solved for bytes: the plan
 * among those that needs least is the search's if it fits, or says what would do.
 */
#ifndef SBP_PLANNER_OUTER_BRANCH_AND_BOUND_H
#define SBP_PLANNER_OUTER_BRANCH_AND_BOUND_H

#include "planner/inner/cut_solve.h"
#include "planner/inner/solution_pool.h"
#include "planner/plan/plan.h"

/* Searches everything that the request's space leaves open and the request does not give: as
 * `given` is cut otherwise. Ranks the `most` best distinct plans, whose strategies come out of the
 * arena. Where several are asked for, a solved candidate is cut in parts
 * (planner/space/subspace.h), which are candidates like others, and the search ends when the last
 * plan that is asked for costs no more than any open bound. The outcome speaks of the best alone:
 * its lower bound holds over all of the space; where there is no plan, needed_bytes is what a plan
 * needs, and does; less may do, down to least_bytes. E_INPUT, E_UNSUPPORTED: no candidate has a
 * legal strategy, as the plainest one says. */
enum sbp_status sbp_outer_search(const struct sbp_plan *given, const struct sbp_request *request,
                                 int most, struct sbp_arena *arena, struct sbp_pool *pool,
                                 struct sbp_outcome *outcome, struct sbp_diag *diag) SBP_MUST_USE;

#endif
