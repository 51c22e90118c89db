#include "planner/plan/plan.h"
#include "tests/papers/trial.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "planner/plan/roles.h"
#include "planner/space/space_table.h"
#include "tests/papers/setting.h"
#include "tests/support/solve_plan.h"

static struct cJSON *read_config(const char *folder, const char *name)
{
    struct sbp_diag diag = {{0}};
    struct cJSON *tree = NULL;
    struct sbp_json root;
    char path[4096];
    (void)snprintf(path, sizeof path, SBP_SOURCE_ROOT "/configs/%s/%s.json", folder, name);
    setting_must(sbp_json_open(path, &tree, &root, &diag), &diag);
    return tree;
}

static void must_set(bool done)
{
    struct sbp_diag diag = {"a key could not be set"};
    setting_must(done ? SBP_OK : SBP_E_MEMORY, &diag);
}

static void set(struct cJSON *object, const char *key, struct cJSON *value)
{
    cJSON_DeleteItemFromObjectCaseSensitive(object, key);
    must_set(value != NULL && cJSON_AddItemToObject(object, key, value));
}

static void scale(struct cJSON *object, const char *key, double factor)
{
    const struct cJSON *old = cJSON_GetObjectItemCaseSensitive(object, key);
    if (factor > 0)
        set(object, key, cJSON_CreateNumber(old->valuedouble * factor));
}

static void change_cluster(const struct trial_setting *setting, struct cJSON *cluster)
{
    struct cJSON *level;
    cJSON_ArrayForEach(level, cJSON_GetObjectItemCaseSensitive(cluster, "levels"))
    {
        scale(level, "alpha_s", setting->alpha_scale);
        scale(level, "beta_s_per_byte", setting->beta_scale);
    }
    if (setting->efficiency <= 0)
        return;
    struct cJSON *product = cJSON_CreateObject(), *table = cJSON_CreateArray();
    for (int i = 0; i < 3; i++)
        set(product, (const char *const[]){"m", "n", "k"}[i], cJSON_CreateNumber(1));
    set(product, "efficiency", cJSON_CreateNumber(setting->efficiency));
    must_set(cJSON_AddItemToArray(table, product));
    set(cJSON_GetObjectItemCaseSensitive(cluster, "device"), "gemm", table);
}

void trial_open(const struct trial_setting *setting, struct sbp_plan *plan)
{
    struct sbp_diag diag = {{0}};
    struct cJSON *model = read_config("models", setting->model);
    struct cJSON *cluster = read_config("clusters", setting->cluster);
    if (setting->global_batch > 0)
        set(model, "global_batch", cJSON_CreateNumber((double)setting->global_batch));
    if (setting->precision != NULL)
        set(model, "precision", cJSON_CreateString(setting->precision));
    setting_must(sbp_space_change_model(setting->space, model, &diag), &diag);
    change_cluster(setting, cluster);
    setting_must(sbp_plan_begin(model, setting->model, cluster, setting->cluster, plan, &diag),
                 &diag);
    if (setting->devices > 0)
        setting_must(sbp_cluster_shrink(&plan->workload.cluster, setting->devices, &diag), &diag);
    const struct sbp_parallel plain = sbp_parallel_default(&plan->cut.graph);
    setting_must(sbp_plan_cut(plan, &plain, &diag), &diag);
}

bool trial_cut(struct sbp_plan *plan, int64_t pipeline, int64_t micro_batch)
{
    struct sbp_diag diag = {{0}};
    struct sbp_parallel parallel = plan->cut.parallel;
    parallel.pipeline = pipeline;
    parallel.micro_batch = micro_batch;
    return sbp_plan_cut(plan, &parallel, &diag) == SBP_OK;
}

struct trial trial_search(struct sbp_plan *plan, const struct sbp_request *request)
{
    struct sbp_diag diag = {{0}};
    struct trial trial = {0};
    struct sbp_step step;
    enum sbp_status status = sbp_space_begin(request, plan, &diag);
    if (status == SBP_OK)
        status = solve_plan(plan, request, &trial.outcome, &diag);
    if (status == SBP_E_INPUT)
        return trial;
    setting_must(status, &diag);
    trial.found =
        trial.outcome.status == SBP_PLAN_OPTIMAL || trial.outcome.status == SBP_PLAN_FEASIBLE;
    if (!trial.found)
        return trial;
    setting_must(sbp_cut_step(&plan->cut, &plan->strategy, false, &step, &diag), &diag);
    trial.totals = step.totals;
    sbp_step_free(&step);
    return trial;
}

static int find_op(const struct sbp_plan *plan, const char *layer)
{
    struct sbp_diag diag = {"no such layer"};
    for (int op = 0; op < plan->cut.graph.op_count; op++)
        if (strcmp(plan->cut.graph.op[op].name, layer) == 0)
            return op;
    setting_must(SBP_E_INPUT, &diag);
    return -1;
}

int64_t trial_ways(const struct sbp_plan *plan, const char *layer, const char *role)
{
    const int op = find_op(plan, layer);
    return sbp_role_total(plan, op, sbp_op_role(plan->cut.graph.op[op].entry, role));
}

const char *trial_tuple(const struct sbp_plan *plan, const char *layer, char *buffer)
{
    (void)snprintf(buffer, TRIAL_TUPLE_BYTES, "(%" PRId64 ", %" PRId64 ", %" PRId64 ")",
                   trial_ways(plan, layer, "batch"), trial_ways(plan, layer, "column"),
                   trial_ways(plan, layer, "row"));
    return buffer;
}

struct sbp_fix trial_fix(const char *layer)
{
    struct sbp_fix fix = {.zero = SBP_ANY};
    (void)snprintf(fix.layer, sizeof fix.layer, "%s", layer);
    for (int role = 0; role < SBP_MAX_ROLES; role++)
        for (int level = 0; level < SBP_MAX_LEVELS; level++)
            fix.factor[role][level] = SBP_ANY;
    return fix;
}

void trial_fix_role(const struct sbp_plan *plan, const char *role, int64_t outer, int64_t inner,
                    struct sbp_fix *fix)
{
    const struct sbp_op_entry *entry = plan->cut.graph.op[find_op(plan, fix->layer)].entry;
    int64_t *factor = fix->factor[sbp_op_role(entry, role)];
    factor[0] = outer;
    if (plan->cut.stage.level_count > 1)
        factor[1] = inner;
}
