/* One way to cut a training step in time, over a model and a cluster that stay as they were read.
 *
 * Input: the model's graph, the cluster, and what cuts a step (stages and where they begin,
 * micro-batch, schedule, chunks, ZeRO, recompute, offload). Output: the graph with the shapes of
 * one micro-batch, and the cluster and mesh of one stage. A cut is a value: any number of them may
 * stand beside each other, in any thread.
 */
#ifndef SBP_COSTMODEL_PROGRAM_CUT_H
#define SBP_COSTMODEL_PROGRAM_CUT_H

#include "costmodel/cluster/mesh.h"
#include "costmodel/program/parallel.h"
#include "costmodel/program/step.h"

struct sbp_cut {
    struct sbp_parallel parallel;
    struct sbp_graph graph;            /* shapes of a micro-batch; operators are the model's own */
    const struct sbp_cluster *cluster; /* the whole one; borrowed */
    struct sbp_cluster stage;          /* of one pipeline stage; all of it where there is one */
    int stage_level;      /* outermost level that stages are parted at; -1: one stage */
    struct sbp_mesh mesh; /* of a stage */
};

/* The model's graph at another micro-batch, with arrays of its own, out of the arena, for what that
 * changes; the rest is the model's. E_INPUT, E_MEMORY. */
enum sbp_status sbp_cut_graph(const struct sbp_graph *model, int64_t micro_batch,
                              struct sbp_arena *arena, struct sbp_graph *graph,
                              struct sbp_diag *diag) SBP_MUST_USE;

/* Cuts a step. The model and the cluster must outlive the cut; shapes come out of the arena.
 * E_INPUT: "parallel: KEY: what is wrong, what is legal"; E_MEMORY. */
enum sbp_status sbp_cut_make(const struct sbp_graph *model, const struct sbp_cluster *cluster,
                             const struct sbp_parallel *parallel, struct sbp_arena *arena,
                             struct sbp_cut *cut, struct sbp_diag *diag) SBP_MUST_USE;

/* Devices of all stages. */
static inline int64_t sbp_cut_devices(const struct sbp_cut *cut)
{
    return cut->mesh.devices * sbp_parallel_groups(&cut->parallel);
}

/* What makes the step of a cut under a strategy, with elements of so many bytes; all are borrowed.
 * Callers set what else they want. */
static inline struct sbp_step_request sbp_cut_request(const struct sbp_cut *cut,
                                                      const struct sbp_strategy *strategy,
                                                      const struct sbp_element_bytes *bytes)
{
    return (struct sbp_step_request){.graph = &cut->graph,
                                     .cluster = cut->cluster,
                                     .parallel = &cut->parallel,
                                     .strategy = strategy,
                                     .bytes = bytes};
}

/* The whole step under a strategy, in the model's own precision: every stage's program and the
 * timeline. Brief: times and memory alone, in half the time. The step must not be moved, nor
 * outlive the cut and the strategy. Fails as sbp_step_make. */
enum sbp_status sbp_cut_step(const struct sbp_cut *cut, const struct sbp_strategy *strategy,
                             bool is_brief, struct sbp_step *step,
                             struct sbp_diag *diag) SBP_MUST_USE;
/* The same, brief, with a program for every piece, so that each layer has its name; record: keeps
 * the timeline's intervals and memory. */
enum sbp_status sbp_cut_named_step(const struct sbp_cut *cut, const struct sbp_strategy *strategy,
                                   bool record, struct sbp_step *step,
                                   struct sbp_diag *diag) SBP_MUST_USE;

#endif
