/* The simplest layout that published runs cannot tell from a plan.
 *
 * A plan's step is known to within the error of its trainer (costmodel/cluster/runtime.h). A free
 * search gains less than that in many places and splits layers in many ways for it. Here uniform
 * layouts, which every trainer can run, are priced from the simplest on: data parallelism alone,
 * then with one more kind of parallelism each.
 */
#ifndef SBP_PLANNER_VALIDATE_SIMPLEST_H
#define SBP_PLANNER_VALIDATE_SIMPLEST_H

#include "planner/degrees/degrees.h"

struct sbp_simplest {
    bool is_found;
    struct sbp_degrees degrees; /* as asked for: what is not given follows */
    double step_s;
};

/* Prices layouts until one takes no longer than step_s (1 + error) and fits in limit_bytes of a
 * device. Nothing is found where the cluster's trainer has no known error, nor after the limits of
 * options. The plan is read only.
 * E_MEMORY, and what a search fails with but for layouts that are not legal. */
enum sbp_status sbp_simplest_find(const struct sbp_plan *plan, double step_s, int64_t limit_bytes,
                                  const struct sbp_solver_options *options,
                                  struct sbp_simplest *simplest,
                                  struct sbp_diag *diag) SBP_MUST_USE;
/* "--tp 4 --zero 1": the degrees that differ from their defaults, as options of `sbplan price`.
 * Returns buffer (SBP_SIMPLEST_BYTES). */
#define SBP_SIMPLEST_BYTES 128
const char *sbp_simplest_options(const struct sbp_simplest *simplest, char *buffer);

#endif
