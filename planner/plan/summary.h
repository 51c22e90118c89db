/* Derives the numbers that users count in (tokens/s, MFU, GPU-hours, bytes by purpose) from a
 * priced step. Plan files and all reports take them from here.
 */
#ifndef SBP_PLANNER_PLAN_SUMMARY_H
#define SBP_PLANNER_PLAN_SUMMARY_H

#include <stdbool.h>

#include "planner/plan/plan.h"

struct sbp_summary {
    struct sbp_step_totals totals;      /* per device, mean over stages */
    double forward_activation_elements; /* elements boxed in forward passes, the measure of AutoDDL,
                                           figure 3 */
    int64_t stages, micro_batches;
    int64_t worst_stage;            /* the stage that holds most memory */
    struct sbp_stage_memory memory; /* of that stage */
    int64_t activation_bytes;       /* in flight, and work buffers; without index_bytes */
    int64_t devices, tokens;        /* tokens per step: global batch x sequence */
    double tokens_per_s;
    double mfu;                /* the model's flops as a share of those that the devices could do */
    double gpu_hours_per_step; /* devices x step */
    int64_t index_bytes;       /* token ids, labels, positions */
    int64_t reserve_bytes, memory_bytes; /* a device's reserve, and its memory */
};
struct sbp_summary sbp_summary_make(const struct sbp_plan *plan, const struct sbp_step *step);
/* What rates count: "tokens", or "images" or "samples" where a model reads no tokens; and how many
 * of them a step has. */
const char *sbp_summary_unit(const struct sbp_graph *graph, int64_t *count);
/* Device seconds without communication: forward, backward, recomputation, optimizer. */
double sbp_summary_work_s(const struct sbp_summary *summary);

struct sbp_training_cost {
    double steps, days, gpu_hours;
};
/* Cost of training on so many tokens. */
struct sbp_training_cost sbp_summary_training(const struct sbp_summary *summary, double tokens);

/* Add the objects `cost`, `memory`, `model` and `parallel` of plan files and --json outputs;
 * *failed is set when memory is out. */
void sbp_summary_put_cost(struct cJSON *parent, const struct sbp_summary *summary, bool *failed);
void sbp_summary_put_memory(struct cJSON *parent, const struct sbp_summary *summary, bool *failed);
/* Adds the array `stages`: times and memory of a device of each stage. */
void sbp_summary_put_stages(struct cJSON *parent, const struct sbp_step *step, bool *failed);
void sbp_summary_put_model(struct cJSON *parent, const struct sbp_graph *graph, bool *failed);
void sbp_summary_put_parallel(struct cJSON *parent, const struct sbp_parallel *parallel,
                              bool *failed);

#endif
