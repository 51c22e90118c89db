/* Opens sets of published runs, whose files name clusters and runtimes. */
#include <cjson/cJSON.h>

#include "planner/configs/config_files.h"

struct context {
    const char *runtime; /* in the place of the set's; NULL: the set's own */
    struct sbp_arena *arena;
};

/* The cluster as a file has it; *file is what messages call it. */
static enum sbp_status open_cluster(const struct sbp_json *at, struct sbp_arena *arena,
                                    struct cJSON **cluster, const char **file)
{
    const char *name = NULL;
    struct sbp_json cursor;
    *file = at->file;
    if (!cJSON_IsString(at->node)) {
        *cluster = cJSON_Duplicate(at->node, true);
        return *cluster == NULL ? sbp_fail(at->diag, SBP_E_MEMORY, "%s: out of memory", at->file)
                                : SBP_OK;
    }
    SBP_TRY(sbp_json_string(at, &name));
    struct sbp_diag why = {{0}};
    const enum sbp_status status = sbp_config_find(SBP_CONFIG_CLUSTER, name, arena, file, &why);
    if (status != SBP_OK)
        return sbp_json_refuse(at, "%s", why.text);
    return sbp_json_open(*file, cluster, &cursor, at->diag);
}

/* Puts the trainer's profile and the device's rates into the cluster. */
static enum sbp_status add_runtime(const struct sbp_json *root, const struct context *context,
                                   struct cJSON *cluster, const char *file)
{
    const char *runtime = context->runtime;
    struct sbp_json at;
    if (runtime == NULL && sbp_json_has(root, "runtime")) {
        SBP_TRY(sbp_json_member(root, "runtime", &at));
        SBP_TRY(sbp_json_string(&at, &runtime));
    }
    SBP_TRY(sbp_config_expand(cluster, file, runtime, context->arena, root->diag));
    return sbp_device_file_fill(cluster, file, context->arena, root->diag);
}

static enum sbp_status find_cluster(void *context, const struct sbp_json *root,
                                    struct cJSON **cluster, const char **found)
{
    const struct context *around = context;
    struct sbp_json at;
    const char *file;
    SBP_TRY(sbp_json_member(root, "cluster", &at));
    SBP_TRY(open_cluster(&at, around->arena, cluster, &file));
    if (cJSON_IsString(at.node))
        *found = file;
    return add_runtime(root, around, *cluster, file); /* on failure the set frees the cluster */
}

enum sbp_status sbp_run_set_open(const char *path, const char *runtime, struct sbp_arena *arena,
                                 struct sbp_run_set *set, struct sbp_diag *diag)
{
    struct context context = {.runtime = runtime, .arena = arena};
    const struct sbp_run_set_finder finder = {.cluster = find_cluster, .context = &context};
    return sbp_run_set_read(path, &finder, set, diag);
}

enum sbp_status sbp_run_set_open_tree(struct cJSON *tree, const char *file, const int *line,
                                      const char *runtime, struct sbp_arena *arena,
                                      struct sbp_run_set *set, struct sbp_diag *diag)
{
    struct context context = {.runtime = runtime, .arena = arena};
    const struct sbp_run_set_finder finder = {.cluster = find_cluster, .context = &context};
    return sbp_run_set_take(tree, file, line, &finder, set, diag);
}
