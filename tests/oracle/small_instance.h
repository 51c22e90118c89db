/* A random small model on a random small cluster, as a plan without a strategy: what oracles of
 * whole searches open. One seed, one instance. */
#ifndef SBP_TESTS_SMALL_INSTANCE_H
#define SBP_TESTS_SMALL_INSTANCE_H

#include "planner/plan/plan.h"
#include "planner/plan/request.h"
#include "small_models.h"

struct small_instance {
    uint64_t seed;
    bool is_measured; /* times of some collectives are */
    struct small_model model;
    struct small_text cluster;
    struct sbp_request request;
    struct sbp_plan plan; /* freed by sbp_plan_free */
};

/* The texts alone. linears: layers of a chain; sizes of the cluster as small_cluster_draw has them.
 * seed, is_measured and request are the caller's. */
void small_instance_draw(struct small_instance *instance, enum small_kind kind, int linears,
                         int outer, int inner);
/* Draws, and begins the plan. */
void small_instance_open(struct small_instance *instance, enum small_kind kind, int linears,
                         int outer, int inner);
/* The plan cut as a parallel says; fails the test where that is not legal. */
void small_instance_cut(struct small_instance *instance, const struct sbp_parallel *parallel);
/* Fails the test, and says for which instance. */
void small_instance_complain(const struct small_instance *instance, const char *format, ...)
    SBP_PRINTF(2, 3);

#endif
