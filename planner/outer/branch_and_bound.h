/* The outer search: how the step is cut (stages, micro-batches, schedule, ZeRO, recompute,
 * offload), with the best strategy for each cut. Inputs: a plan without a strategy and a request.
 * Results: the best plans and a lower bound over all cuts.
 *
 * It is a best-first branch and bound over candidates, each a way to cut the step
 * (planner/outer/step_cuts.h):
 *   1. Initial plans, whose layers all split the batch alike, show which candidates are promising;
 *      these are searched first.
 *   2. A candidate is bounded by arithmetic alone, then over its strategies (sbp_inner_bound), then
 *      solved (sbp_inner_solve), without the memory limit first: that takes little time and mostly
 *      shows that other candidates are better.
 *   3. It is solved along one path through its stages; where the plan's longest path is another,
 *      along that one and mixtures of paths, too (planner/paths/path_mixture.h). Enumerating paths
 *      (planner/outer/path_enumeration.h) closes the gap that is left, last of all.
 *   4. Now and then a dive solves the candidate whose plan is expected to be cheapest before its
 *      turn: a good plan refutes candidates. A candidate is dropped once its lower bound reaches
 *      the best plan.
 *   5. Recompute and offload shorten no path through a step. Candidates with them wait until memory
 *      binds for the base, the candidate without. (Message-driven stages are greedy, so that their
 *      step may become shorter all the same: bounds hold, but such a plan may be missed.)
 *   6. Where no plan fits, candidates are solved for least memory. The plan that needs least is the
 *      answer if it fits, else it says which memory would do.
 */
#ifndef SBP_PLANNER_OUTER_BRANCH_AND_BOUND_H
#define SBP_PLANNER_OUTER_BRANCH_AND_BOUND_H

#include "planner/inner/cut_solve.h"
#include "planner/inner/solution_pool.h"
#include "planner/plan/plan.h"

/* Searches all cuts that the request's space leaves open; keys that the request gives stay as in
 * `given`. Fills the pool, which it initialises, with the `most` best distinct plans; their
 * strategies come out of the arena. With most > 1 a solved candidate is divided into parts
 * (planner/space/subspace.h), which are candidates like others, and the search ends when no open
 * bound is below the last plan asked for. The outcome is that of the best plan; its lower bound
 * holds over the whole space. Without a plan, needed_bytes is a memory that is enough, where
 * outcome->least_memory has the plan, and least_bytes one below which nothing fits. E_INPUT,
 * E_UNSUPPORTED: no candidate has a legal strategy; diag says why of the first one. */
enum sbp_status sbp_outer_search(const struct sbp_plan *given, const struct sbp_request *request,
                                 int most, struct sbp_arena *arena, struct sbp_pool *pool,
                                 struct sbp_outcome *outcome, struct sbp_diag *diag) SBP_MUST_USE;

#endif
