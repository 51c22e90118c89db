/* The plan file: a model, a cluster, a labelled strategy for them, and what it costs.
 *
 * A plan carries its inputs whole, so that it can be explained, priced again and run without them.
 * Reading re-checks everything: legality, divisibility, and that the collectives listed in the file
 * are those that the strategy compiles to.
 */
#ifndef SBP_PLANNER_PLAN_PLAN_H
#define SBP_PLANNER_PLAN_PLAN_H

#include "costmodel/program/cut.h"

struct cJSON;

/* What a plan is for, as it was read: nothing changes it afterwards. */
struct sbp_workload {
    struct cJSON *model_json, *cluster_json; /* owned; what the next two were read from */
    struct sbp_graph model;                  /* shapes of the global batch */
    struct sbp_cluster cluster;
};

struct sbp_plan {
    struct sbp_arena arena;
    struct sbp_workload workload;
    struct sbp_cut cut;           /* of the workload, so that a plan must not be moved */
    struct sbp_strategy strategy; /* over the cut's graph and mesh */
    struct cJSON *search; /* owned, may be NULL: how the plan was found (space, algorithm, seed,
                             status, lower_bound_s, evaluations, command); no times of the clock,
                             so that a seed fixes the file byte by byte */
};

/* Begins a plan without a strategy: takes over model and cluster (also on failure) and reads the
 * workload from them; names are for messages. One stage, one micro-batch. *plan is zeroed first; on
 * failure nothing is left allocated. */
enum sbp_status sbp_plan_begin(struct cJSON *model, const char *model_file, struct cJSON *cluster,
                               const char *cluster_file, struct sbp_plan *plan,
                               struct sbp_diag *diag) SBP_MUST_USE;

/* Cuts the plan's step in another way; the strategy, which was of the cut before, is the caller's
 * to set. Fails as sbp_cut_make. */
enum sbp_status sbp_plan_cut(struct sbp_plan *plan, const struct sbp_parallel *parallel,
                             struct sbp_diag *diag) SBP_MUST_USE;

/* Reads a plan file and re-checks it; of its search the lower bound is believed. *plan is zeroed
 * first; on failure nothing is left allocated.
 */
enum sbp_status sbp_plan_read(const char *path, struct sbp_plan *plan,
                              struct sbp_diag *diag) SBP_MUST_USE;
void sbp_plan_free(struct sbp_plan *plan);

/* The strategy compiled and priced in the model's own precision; of a plan of one stage that takes
 * the whole batch at once. */
enum sbp_status sbp_plan_compile(const struct sbp_plan *plan, struct sbp_program *program,
                                 struct sbp_diag *diag) SBP_MUST_USE;

#define SBP_PLAN_FORMAT  "sbplan plan"
#define SBP_PLAN_VERSION 1
/* The whole plan, with its step as sbp_cut_step made it, as JSON (caller deletes): format, version,
 * hashes of model and cluster, model, cluster, search, parallel, strategy (boxing, axes; for every
 * layer its roles by axis and per level and where its output rests), cost, memory, collectives. */
enum sbp_status sbp_plan_json(const struct sbp_plan *plan, const struct sbp_step *step,
                              struct cJSON **json, struct sbp_diag *diag) SBP_MUST_USE;
/* The list of the collectives of a step, as it stands in the file: of every program, once for
 * pieces that share it, each for one micro-batch. NULL when memory is out. */
struct cJSON *sbp_plan_collectives(const struct sbp_step *step);

#endif
