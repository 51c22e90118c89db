#include "costmodel/program/cut.h"

#include <string.h>

enum sbp_status sbp_cut_graph(const struct sbp_graph *model, int64_t micro_batch,
                              struct sbp_arena *arena, struct sbp_graph *graph,
                              struct sbp_diag *diag)
{
    *graph = *model;
    graph->arena = (struct sbp_arena){0}; /* the model's own; nothing here is freed */
    graph->tensor = SBP_NEW(arena, struct sbp_tensor, model->tensor_count);
    graph->dim_class = SBP_NEW(arena, struct sbp_dim_class, model->class_count);
    if (graph->tensor == NULL || graph->dim_class == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    memcpy(graph->tensor, model->tensor, (size_t)model->tensor_count * sizeof *graph->tensor);
    memcpy(graph->dim_class, model->dim_class,
           (size_t)model->class_count * sizeof *graph->dim_class);
    return sbp_graph_set_micro_batch(graph, micro_batch, diag);
}

enum sbp_status sbp_cut_make(const struct sbp_graph *model, const struct sbp_cluster *cluster,
                             const struct sbp_parallel *parallel, struct sbp_arena *arena,
                             struct sbp_cut *cut, struct sbp_diag *diag)
{
    *cut = (struct sbp_cut){.parallel = *parallel, .cluster = cluster};
    SBP_TRY(sbp_parallel_check(parallel, model, cluster, diag));
    SBP_TRY(sbp_parallel_stage_cluster(parallel, cluster, &cut->stage, &cut->stage_level, diag));
    SBP_TRY(sbp_cut_graph(model, parallel->micro_batch, arena, &cut->graph, diag));
    cut->graph.precision.logit_bytes = cluster->runtime.logit_bytes;
    return sbp_mesh_make(&cut->stage, &cut->mesh, diag);
}

enum sbp_status sbp_cut_step(const struct sbp_cut *cut, const struct sbp_strategy *strategy,
                             bool is_brief, struct sbp_step *step, struct sbp_diag *diag)
{
    const struct sbp_element_bytes bytes = sbp_program_element_bytes(&cut->graph.precision);
    struct sbp_step_request request = sbp_cut_request(cut, strategy, &bytes);
    request.is_brief = is_brief;
    return sbp_step_make(&request, step, diag);
}

enum sbp_status sbp_cut_named_step(const struct sbp_cut *cut, const struct sbp_strategy *strategy,
                                   bool record, struct sbp_step *step, struct sbp_diag *diag)
{
    const struct sbp_element_bytes bytes = sbp_program_element_bytes(&cut->graph.precision);
    struct sbp_step_request request = sbp_cut_request(cut, strategy, &bytes);
    request.record = record;
    request.runs = request.is_brief = true;
    return sbp_step_make(&request, step, diag);
}
