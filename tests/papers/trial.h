/* Searches of shipped models on shipped clusters, set up as a paper did.
 *
 * A failed step ends the program with a message (tests/papers/setting.h).
 */
#ifndef SBP_TESTS_PAPERS_TRIAL_H
#define SBP_TESTS_PAPERS_TRIAL_H

#include <stdbool.h>

#include "planner/plan/plan.h"
#include "planner/inner/cut_solve.h"
#include "planner/space/space_table.h"

struct trial_setting {
    const char *model, *cluster; /* names in configs/ */
    int64_t devices;             /* 0: all of the cluster's */
    int64_t global_batch;        /* 0: the model's */
    const char *precision;       /* NULL: the model's */
    double alpha_scale;          /* of every level; 0: as the file says */
    double beta_scale;           /* the same */
    double efficiency;           /* share of peak that products reach; 0: as the file says */
    enum sbp_space_kind space;   /* that will be searched; default full */
};

/* A plan without a strategy; one stage, the whole batch at once. */
void trial_open(const struct trial_setting *setting, struct sbp_plan *plan);
/* Stages and sequences of a micro-batch; false where they do not fit model or cluster. */
bool trial_cut(struct sbp_plan *plan, int64_t pipeline, int64_t micro_batch);

/* A plan that a search found, with its price. */
struct trial {
    bool found;
    struct sbp_outcome outcome;
    struct sbp_step_totals totals;
};
/* found is false where the space holds no legal strategy or none that fits. */
struct trial trial_search(struct sbp_plan *plan, const struct sbp_request *request);
/* No limit of memory but that of numbers. */
#define TRIAL_ANY_MEMORY (INT64_C(1) << 60)

/* How many ways a role splits a layer of the plan found. */
int64_t trial_ways(const struct sbp_plan *plan, const char *layer, const char *role);
/* "(4, 8, 2)": ways by batch, column and row; returns the buffer of TRIAL_TUPLE_BYTES. */
#define TRIAL_TUPLE_BYTES 64
const char *trial_tuple(const struct sbp_plan *plan, const char *layer, char *buffer);
/* A fix of a layer that says nothing yet, and how many ways a role splits it at the outermost level
 * and, where the cluster has two, at the next. */
struct sbp_fix trial_fix(const char *layer);
void trial_fix_role(const struct sbp_plan *plan, const char *role, int64_t outer, int64_t inner,
                    struct sbp_fix *fix);

#endif
