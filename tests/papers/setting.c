#include "tests/papers/setting.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cjson/cJSON.h>

void setting_must(enum sbp_status status, const struct sbp_diag *diag)
{
    if (status == SBP_OK)
        return;
    (void)fprintf(stderr, "%s: %s\n", sbp_status_text(status), diag->text);
    exit(2);
}

struct sbp_cluster setting_cluster(int64_t devices)
{
    struct sbp_cluster cluster = {
        .name = "flat",
        .level_count = 1,
        .level = {{.name = "node", .size = devices, .alpha_s = 1e-5, .beta_s_per_byte = 1e-10}},
        .memory_bytes = INT64_C(1) << 50,
        .memory_bytes_per_s = 1e12,
    };
    cluster.flops[SBP_FP32] = 1e13;
    return cluster;
}

void setting_cluster_named(const char *name, struct sbp_cluster *cluster)
{
    struct sbp_diag diag = {{0}};
    struct sbp_arena arena = {0}; /* of no table that is used */
    struct cJSON *tree = NULL;
    struct sbp_json root;
    char path[4096];
    (void)snprintf(path, sizeof path, SBP_SOURCE_ROOT "/configs/clusters/%s.json", name);
    setting_must(sbp_json_open(path, &tree, &root, &diag), &diag);
    /* Reproductions keep the peaks of data sheets: no rates and no trainer of files beside. */
    cJSON_DeleteItemFromObjectCaseSensitive(cJSON_GetObjectItemCaseSensitive(tree, "device"),
                                            "like");
    cJSON_DeleteItemFromObjectCaseSensitive(tree, "runtime");
    setting_must(sbp_cluster_read(&root, &arena, cluster), &diag);
    cluster->rates = (struct sbp_device_rates){0};
    sbp_arena_free(&arena);
    cJSON_Delete(tree);
}

void setting_cluster_efficiency(double share, struct sbp_cluster *cluster)
{
    for (int pass = 0; pass < SBP_PASSES; pass++)
        cluster->rates.pass_share[pass] = share;
}

void setting_runs_path(const char *name, char *path, size_t size)
{
    (void)snprintf(path, size, SBP_SOURCE_ROOT "/configs/runs/%s", name);
}

void setting_shared_path(const char *name, char *path, size_t size)
{
    (void)snprintf(path, size, SBP_SOURCE_ROOT "/../shared/%s", name);
}

struct sbp_mesh setting_mesh(const struct sbp_cluster *cluster)
{
    struct sbp_diag diag = {{0}};
    struct sbp_mesh mesh;
    setting_must(sbp_mesh_make(cluster, &mesh, &diag), &diag);
    return mesh;
}

void setting_model_read(struct setting_model *model, const char *format, ...)
{
    struct sbp_diag diag = {{0}};
    struct sbp_json root;
    char text[4096];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    setting_must(sbp_json_parse(text, "model", &model->tree, &root, &diag), &diag);
    setting_must(sbp_graph_read(&root, &model->graph), &diag);
}

void setting_model_drop(struct setting_model *model)
{
    sbp_graph_free(&model->graph);
    cJSON_Delete(model->tree);
}

void setting_gpt_read(struct setting_model *model, const struct setting_gpt *gpt, int batch)
{
    setting_model_read(model,
                       "{\"name\": \"gpt\", \"architecture\": \"gpt\", \"layers\": %d, "
                       "\"hidden\": %d, \"heads\": %d, \"sequence\": %d, \"vocab\": %d, "
                       "\"global_batch\": %d, \"precision\": \"mixed\"}",
                       gpt->layers, gpt->hidden, gpt->heads, SETTING_GPT_SEQUENCE,
                       SETTING_GPT_VOCAB, batch);
}
