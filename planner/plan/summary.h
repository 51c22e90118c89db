/* What a plan costs, in the units that users count in: the one place where they are derived.
 */
#ifndef SBP_PLANNER_PLAN_SUMMARY_H
#define SBP_PLANNER_PLAN_SUMMARY_H

#include <stdbool.h>

#include "planner/plan/plan.h"

struct sbp_summary {
    struct sbp_step_totals totals;      /* of a device, the mean over stages */
    double forward_activation_elements; /* boxed forward: AutoDDL figure 3's measure */
    int64_t stages, micro_batches;
    int64_t worst_stage;            /* that holds the most */
    struct sbp_stage_memory memory; /* of that stage */
    int64_t activation_bytes;       /* in flight, and work buffers; without token ids */
    int64_t devices, tokens;        /* tokens of a step: global batch x sequence */
    double tokens_per_s;
    double mfu;                /* the model's flops over what the devices could do in a step */
    double gpu_hours_per_step; /* devices x step */
    int64_t index_bytes;       /* token ids, labels, positions */
    int64_t reserve_bytes, memory_bytes; /* of the cluster's device */
};
struct sbp_summary sbp_summary_make(const struct sbp_plan *plan, const struct sbp_step *step);
/* Device seconds that are not communication: forward, backward, formed again, optimizer. */
double sbp_summary_work_s(const struct sbp_summary *summary);

/* Steps, days and GPU-hours of training on so many tokens. */
struct sbp_training_cost {
    double steps, days, gpu_hours;
};
struct sbp_training_cost sbp_summary_training(const struct sbp_summary *summary, double tokens);

/* The objects `cost`, `memory`, `model` and `parallel` of plans and of --json outputs. */
void sbp_summary_put_cost(struct cJSON *parent, const struct sbp_summary *summary, bool *failed);
void sbp_summary_put_memory(struct cJSON *parent, const struct sbp_summary *summary, bool *failed);
/* A row for each stage: its device's times and memory. */
void sbp_summary_put_stages(struct cJSON *parent, const struct sbp_step *step, bool *failed);
void sbp_summary_put_model(struct cJSON *parent, const struct sbp_graph *graph, bool *failed);
void sbp_summary_put_parallel(struct cJSON *parent, const struct sbp_parallel *parallel,
                              bool *failed);

#endif
