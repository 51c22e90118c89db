#include "planner/plan/plan.h"

#include <stddef.h>

#include <cjson/cJSON.h>

#include "planner/plan/plan_load.h"

enum sbp_status sbp_plan_load(const struct sbp_json *model, const struct sbp_json *cluster,
                              struct sbp_plan *plan)
{
    SBP_TRY(sbp_graph_read(model, &plan->graph));
    SBP_TRY(sbp_cluster_read(cluster, &plan->cluster));
    const struct sbp_parallel plain = sbp_parallel_default(&plan->graph);
    return sbp_plan_set_parallel(plan, &plain, model->diag);
}

enum sbp_status sbp_plan_set_parallel(struct sbp_plan *plan, const struct sbp_parallel *parallel,
                                      struct sbp_diag *diag)
{
    SBP_TRY(sbp_parallel_check(parallel, &plan->graph, &plan->cluster, diag));
    SBP_TRY(sbp_parallel_stage_cluster(parallel, &plan->cluster, &plan->stage, &plan->stage_level,
                                       diag));
    SBP_TRY(sbp_graph_set_micro_batch(&plan->graph, parallel->micro_batch, diag));
    plan->parallel = *parallel;
    return sbp_mesh_make(&plan->stage, &plan->mesh, diag);
}

enum sbp_status sbp_plan_begin(struct cJSON *model, const char *model_file, struct cJSON *cluster,
                               const char *cluster_file, struct sbp_plan *plan,
                               struct sbp_diag *diag)
{
    struct sbp_json model_at, cluster_at;
    *plan = (struct sbp_plan){.model_json = model, .cluster_json = cluster};
    sbp_json_at(model, model_file, diag, &model_at);
    sbp_json_at(cluster, cluster_file, diag, &cluster_at);
    const enum sbp_status status = sbp_plan_load(&model_at, &cluster_at, plan);
    if (status != SBP_OK)
        sbp_plan_free(plan);
    return status;
}

void sbp_plan_free(struct sbp_plan *plan)
{
    if (plan == NULL)
        return;
    sbp_graph_free(&plan->graph);
    sbp_arena_free(&plan->arena);
    cJSON_Delete(plan->model_json);
    cJSON_Delete(plan->cluster_json);
    cJSON_Delete(plan->search);
    *plan = (struct sbp_plan){0};
}

static enum sbp_status make_step(const struct sbp_plan *plan, const struct sbp_strategy *strategy,
                                 bool is_brief, struct sbp_step *step, struct sbp_diag *diag)
{
    const struct sbp_element_bytes bytes = sbp_program_element_bytes(&plan->graph.precision);
    const struct sbp_step_request request = {.graph = &plan->graph,
                                             .cluster = &plan->cluster,
                                             .parallel = &plan->parallel,
                                             .strategy = strategy,
                                             .bytes = &bytes,
                                             .is_brief = is_brief};
    return sbp_step_make(&request, step, diag);
}

enum sbp_status sbp_plan_step(const struct sbp_plan *plan, const struct sbp_strategy *strategy,
                              struct sbp_step *step, struct sbp_diag *diag)
{
    return make_step(plan, strategy, false, step, diag);
}

enum sbp_status sbp_plan_brief_step(const struct sbp_plan *plan,
                                    const struct sbp_strategy *strategy, struct sbp_step *step,
                                    struct sbp_diag *diag)
{
    return make_step(plan, strategy, true, step, diag);
}

enum sbp_status sbp_plan_compile(const struct sbp_plan *plan, struct sbp_program *program,
                                 struct sbp_diag *diag)
{
    const struct sbp_element_bytes bytes = sbp_program_element_bytes(&plan->graph.precision);
    return sbp_program_make(&plan->graph, &plan->stage, &plan->mesh, &plan->strategy, &bytes,
                            program, diag);
}
