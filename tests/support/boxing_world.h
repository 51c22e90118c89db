/* Boxing by simulation: every rank's block of a small tensor is built from the wording of the
 * distributions, the steps are executed with plain loops over the members of a group, and the
 * outcome must be the target distribution of the same tensor, exactly (integers).
 */
#ifndef SBP_TESTS_UNIT_BOXING_WORLD_H
#define SBP_TESTS_UNIT_BOXING_WORLD_H

#include "costmodel/layout/boxing.h"
#include "tests/support/sbp_oracle.h"

#define BOX_MOST_RANKS    16
#define BOX_MOST_ELEMENTS 600

struct box_problem {
    struct sbp_cluster cluster;
    struct sbp_mesh mesh;
    struct sbp_dist from, to;
    struct oracle_tensor tensor;
};

/* Prints it; boxing may be NULL. */
void box_describe(const struct box_problem *p, const struct sbp_boxing *boxing);
/* Runs the steps; fails the test where one does not lead to what it says, or all not to p->to. */
void box_simulate(const struct box_problem *p, const struct sbp_boxing *boxing);

#endif
