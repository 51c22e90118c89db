/* A plan: a model, a cluster, how the step is cut, a labelled strategy, and how it was found.
 *
 * The plan file holds its inputs whole, so that a plan can be explained, priced again and run
 * without their files. Reading believes nothing that it can work out again: it checks legality,
 * divisibility, costs, memory, and that the strategy compiles to the collectives in the file.
 */
#ifndef SBP_PLANNER_PLAN_PLAN_H
#define SBP_PLANNER_PLAN_PLAN_H

#include "costmodel/program/cut.h"

struct cJSON;

/* The model and the cluster of a plan, as they were read: nothing changes them afterwards. */
struct sbp_workload {
    struct cJSON *model_json, *cluster_json; /* owned; sources of the next two */
    struct sbp_graph model;                  /* shapes of the global batch */
    struct sbp_cluster cluster;
};

struct sbp_plan {
    struct sbp_arena arena;
    struct sbp_workload workload;
    struct sbp_cut cut;           /* points into the workload: a plan must not be moved */
    struct sbp_strategy strategy; /* over the cut's graph and mesh */
    struct cJSON *search; /* owned, may be NULL: how the plan was found (space, algorithm, seed,
                             status, lower_bound_s, evaluations, command); without wall times, so
                             that a seed determines every byte of the file */
};

/* Begins a plan without a strategy, of one stage and one micro-batch. Takes over model and cluster
 * (also on failure) and reads the workload from them; the file names are for messages. *plan is
 * zeroed first; on failure nothing is left allocated. E_INPUT, E_MEMORY. */
enum sbp_status sbp_plan_begin(struct cJSON *model, const char *model_file, struct cJSON *cluster,
                               const char *cluster_file, struct sbp_plan *plan,
                               struct sbp_diag *diag) SBP_MUST_USE;

/* Cuts the plan's step in another way. The strategy belongs to the old cut: the caller must set a
 * new one. On failure the plan is unchanged. Fails as sbp_cut_make. */
enum sbp_status sbp_plan_cut(struct sbp_plan *plan, const struct sbp_parallel *parallel,
                             struct sbp_diag *diag) SBP_MUST_USE;

/* The ZeRO level of a layer's weights: its own, else the step's. */
int sbp_plan_zero(const struct sbp_plan *plan, int op);

/* Reads a plan file and checks all of it; only the lower bound of its search is believed. *plan is
 * zeroed first; on failure nothing is left allocated. E_INPUT, E_IO, E_MEMORY. */
enum sbp_status sbp_plan_read(const char *path, struct sbp_plan *plan,
                              struct sbp_diag *diag) SBP_MUST_USE;
void sbp_plan_free(struct sbp_plan *plan);

#define SBP_PLAN_FORMAT  "sbplan plan"
#define SBP_PLAN_VERSION 1
/* The whole plan, with its step as sbp_cut_step made it, as JSON, which the caller deletes: format,
 * version, hashes of model and cluster, model, cluster, search, parallel, strategy (boxing, axes;
 * for each layer its role on each axis, its factors per level, and where its output rests), cost,
 * memory, collectives. E_MEMORY. */
enum sbp_status sbp_plan_json(const struct sbp_plan *plan, const struct sbp_step *step,
                              struct cJSON **json, struct sbp_diag *diag) SBP_MUST_USE;
/* The list of collectives in the file, which the caller deletes: those of every program of the step
 * for one micro-batch; pieces that share a program share its entries. NULL when memory is out. */
struct cJSON *sbp_plan_collectives(const struct sbp_step *step);

#endif
