#include "planner/plan/plan.h"

#include <stddef.h>

#include <cjson/cJSON.h>

#include "planner/plan/plan_priv.h"

enum sbp_status sbp_plan_load(const struct sbp_json *model, const struct sbp_json *cluster,
                              struct sbp_plan *plan)
{
    SBP_TRY(sbp_graph_read(model, &plan->workload.model));
    SBP_TRY(sbp_cluster_read(cluster, &plan->arena, &plan->workload.cluster));
    const struct sbp_parallel plain = sbp_parallel_default(&plan->workload.model);
    return sbp_plan_cut(plan, &plain, model->diag);
}

int sbp_plan_zero(const struct sbp_plan *plan, int op)
{
    const int level = plan->strategy.zero[op];
    return level == SBP_ZERO_DEFAULT ? (int)plan->cut.parallel.zero : level;
}

enum sbp_status sbp_plan_cut(struct sbp_plan *plan, const struct sbp_parallel *parallel,
                             struct sbp_diag *diag)
{
    const struct sbp_workload *workload = &plan->workload;
    struct sbp_cut cut;
    SBP_TRY(sbp_cut_make(&workload->model, &workload->cluster, parallel, &plan->arena, &cut, diag));
    plan->cut = cut;
    return SBP_OK;
}

enum sbp_status sbp_plan_begin(struct cJSON *model, const char *model_file, struct cJSON *cluster,
                               const char *cluster_file, struct sbp_plan *plan,
                               struct sbp_diag *diag)
{
    struct sbp_json model_at, cluster_at;
    *plan = (struct sbp_plan){.workload = {.model_json = model, .cluster_json = cluster}};
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
    sbp_graph_free(&plan->workload.model);
    sbp_arena_free(&plan->arena);
    cJSON_Delete(plan->workload.model_json);
    cJSON_Delete(plan->workload.cluster_json);
    cJSON_Delete(plan->search);
    *plan = (struct sbp_plan){0};
}
