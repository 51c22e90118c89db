#include <stdio.h>
#include <stdlib.h>

#include <cjson/cJSON.h>

#include "planner/configs/config_files.h"
#include "planner/plan/plan.h"
#include "base/json/json.h"
#include "oracle_plan.h"
#include "tests/support/compile_plan.h"
#include "tests/support/unit.h"

struct cJSON *parsed(const char *text)
{
    struct cJSON *root = cJSON_Parse(text);
    if (root == NULL)
        fail_msg("no JSON: %s", text);
    return root;
}

struct cJSON *shipped(const char *folder, const char *name)
{
    const char *const source = getenv("SBP_SOURCE_ROOT");
    char path[1024];
    struct sbp_diag diag = {{0}};
    struct sbp_arena arena = {0};
    struct sbp_json at;
    struct cJSON *root = NULL;
    snprintf(path, sizeof path, "%s/configs/%s/%s.json", source != NULL ? source : ".", folder,
             name);
    if (sbp_json_open(path, &root, &at, &diag) != SBP_OK ||
        sbp_config_expand(root, path, NULL, &arena, &diag) != SBP_OK ||
        sbp_device_file_fill(root, path, &arena, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    sbp_arena_free(&arena);
    return root;
}

void begin_plan(struct cJSON *model, struct cJSON *cluster, struct sbp_plan *plan)
{
    struct sbp_diag diag = {{0}};
    if (sbp_plan_begin(model, "model", cluster, "cluster", plan, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
}

struct sbp_totals compiled_totals(const struct sbp_plan *plan)
{
    struct sbp_program program;
    struct sbp_diag diag = {{0}};
    if (compile_plan(plan, &program, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    const struct sbp_totals totals = sbp_program_totals(&program, &plan->workload.cluster);
    sbp_program_free(&program);
    return totals;
}
