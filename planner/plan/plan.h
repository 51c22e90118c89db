/* The plan file: a model, a cluster, a labelled strategy for them, and what it costs.
 *
 * A plan carries its inputs whole, so that it can be explained, priced again and run without them.
 * Reading re-checks everything: legality, divisibility, and that the collectives listed in the file
 * are those that the strategy compiles to.
 */
#ifndef SBP_PLANNER_PLAN_PLAN_H
#define SBP_PLANNER_PLAN_PLAN_H

#include "costmodel/cluster/cluster.h"
#include "costmodel/model/graph.h"
#include "costmodel/cluster/mesh.h"
#include "costmodel/program/parallel.h"
#include "costmodel/program/program.h"
#include "costmodel/program/step.h"
#include "costmodel/program/strategy.h"

struct cJSON;

struct sbp_plan {
    struct sbp_arena arena;
    struct cJSON *model_json, *cluster_json; /* owned; what graph and cluster were read from */
    struct sbp_graph graph;
    struct sbp_cluster cluster;
    struct sbp_parallel parallel;
    struct sbp_cluster stage; /* of one pipeline stage: all of the cluster where there is one */
    int stage_level;          /* outermost level that stages are parted at; -1: one stage */
    struct sbp_mesh mesh;     /* of a stage */
    struct sbp_strategy strategy;
    struct cJSON *search; /* owned, may be NULL: how the plan was found (space, algorithm, seed,
                             status, lower_bound_s, evaluations, command); no times of the clock,
                             so that a seed fixes the file byte by byte */
};

/* A plan without a strategy yet: takes over model and cluster (also on failure), reads graph,
 * cluster and mesh from them; names are for messages. One stage, one micro-batch. *plan is zeroed
 * first; on failure nothing is left allocated. */
enum sbp_status sbp_plan_begin(struct cJSON *model, const char *model_file, struct cJSON *cluster,
                               const char *cluster_file, struct sbp_plan *plan,
                               struct sbp_diag *diag) SBP_MUST_USE;

/* Cuts a plan without a strategy into stages and micro-batches: sizes the graph to the micro-batch
 * and the mesh to the stage. E_INPUT: "parallel: KEY: what is wrong, what is legal". */
enum sbp_status sbp_plan_set_parallel(struct sbp_plan *plan, const struct sbp_parallel *parallel,
                                      struct sbp_diag *diag) SBP_MUST_USE;

/* Devices of all stages. */
static inline int64_t sbp_plan_devices(const struct sbp_plan *plan)
{
    return plan->mesh.devices * plan->parallel.pipeline;
}

/* Reads a plan file and re-checks it; of its search the lower bound is believed. *plan is zeroed
 * first; on failure nothing is left allocated.
 */
enum sbp_status sbp_plan_read(const char *path, struct sbp_plan *plan,
                              struct sbp_diag *diag) SBP_MUST_USE;
void sbp_plan_free(struct sbp_plan *plan);

/* The whole step: every stage's program and the timeline, in the model's own precision. The step
 * must not be moved, nor outlive the plan. */
enum sbp_status sbp_plan_step(const struct sbp_plan *plan, const struct sbp_strategy *strategy,
                              struct sbp_step *step, struct sbp_diag *diag) SBP_MUST_USE;
/* Times and memory alone, in half the time (struct sbp_step_request, is_brief). */
enum sbp_status sbp_plan_brief_step(const struct sbp_plan *plan,
                                    const struct sbp_strategy *strategy, struct sbp_step *step,
                                    struct sbp_diag *diag) SBP_MUST_USE;
/* The strategy compiled and priced in the model's own precision; of a plan of one stage that takes
 * the whole batch at once. */
enum sbp_status sbp_plan_compile(const struct sbp_plan *plan, struct sbp_program *program,
                                 struct sbp_diag *diag) SBP_MUST_USE;

#define SBP_PLAN_FORMAT  "sbplan plan"
#define SBP_PLAN_VERSION 1
/* The whole plan as JSON (caller deletes): format, version, hashes of model and cluster, model,
 * cluster, search, parallel, strategy (boxing, axes; for every layer its roles by axis and per
 * level and where its output rests), cost, memory, collectives. */
enum sbp_status sbp_plan_json(const struct sbp_plan *plan, struct cJSON **json,
                              struct sbp_diag *diag) SBP_MUST_USE;
/* The list of the collectives of a step, as it stands in the file: of every program, once for
 * pieces that share it, each for one micro-batch. NULL when memory is out. */
struct cJSON *sbp_plan_collectives(const struct sbp_step *step);

#endif
