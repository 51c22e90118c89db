/* What a plan costs, in the units that users count in: the one place where they are derived.
 */
#ifndef SBP_PLANNER_SUMMARY_H
#define SBP_PLANNER_SUMMARY_H

#include <stdbool.h>

#include "planner/plan.h"

struct sbp_summary {
    struct sbp_totals totals;
    int64_t devices, tokens; /* tokens of a step: global batch x sequence */
    double tokens_per_s;
    double mfu;                /* the model's flops over what the devices could do in a step */
    double gpu_hours_per_step; /* devices x step */
    int64_t index_bytes;       /* token ids, labels, positions */
    int64_t reserve_bytes, memory_bytes; /* of the cluster's device */
};
struct sbp_summary sbp_summary_make(const struct sbp_plan *plan, const struct sbp_program *program);

/* Steps, days and GPU-hours of training on so many tokens. */
struct sbp_training_cost {
    double steps, days, gpu_hours;
};
struct sbp_training_cost sbp_summary_training(const struct sbp_summary *summary, double tokens);

/* The objects `cost`, `memory`, `model` and `parallel` of plans and of --json outputs. */
void sbp_put_cost(struct cJSON *parent, const struct sbp_summary *summary, bool *failed);
void sbp_put_memory(struct cJSON *parent, const struct sbp_summary *summary, bool *failed);
void sbp_put_model(struct cJSON *parent, const struct sbp_graph *graph, bool *failed);
void sbp_put_parallel(struct cJSON *parent, const struct sbp_parallel *parallel, bool *failed);

#endif
