/* The step of a layout that degrees describe: what is left to search are the names of axes and
 * where tensors rest. */
#ifndef SBP_PLANNER_VALIDATE_LAYOUT_SEARCH_H
#define SBP_PLANNER_VALIDATE_LAYOUT_SEARCH_H

#include "planner/degrees/degrees.h"
#include "planner/plan/request.h"

/* Cuts the plan as the degrees say and leaves the cheapest strategy under them in it, with its
 * seconds a step. limit_bytes: of a device; 0: the cluster's memory. most_s: strategies that take
 * longer need not be found; 0: any. options: the limits that end the search with the best so far.
 * SBP_NO: no legal strategy has these degrees and fits, or none was found within the limits, why
 * says which; else fails as sbp_degrees_apply and the search. */
enum sbp_status sbp_layout_search(struct sbp_plan *plan, const struct sbp_degrees *degrees,
                                  int64_t limit_bytes, double most_s,
                                  const struct sbp_solver_options *options, double *step_s,
                                  struct sbp_diag *why) SBP_MUST_USE;

#endif
