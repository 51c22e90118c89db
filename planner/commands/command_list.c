#include <string.h>

#include <cjson/cJSON.h>

#include "base/json/json_write.h"
#include "base/table.h"
#include "base/text.h"
#include "planner/commands/commands.h"
#include "planner/configs/config_files.h"

enum { LISTED = SBP_CONFIG_RUNTIME + 1 }; /* kinds of files that are listed */

/* By enum sbp_config_kind. */
static const char *const WORDS[] = {"models", "clusters", "devices", "runtimes", NULL};

/* A listed file; one that cannot be read is listed with the reason. */
struct entry {
    const char *name, *path;
    bool readable;
    struct sbp_diag why;
    struct sbp_graph graph;
    struct sbp_cluster cluster;
};

static void read_entry(enum sbp_config_kind kind, struct sbp_arena *arena, struct entry *entry)
{
    struct cJSON *root;
    struct sbp_json at;
    if (sbp_json_open(entry->path, &root, &at, &entry->why) != SBP_OK)
        return;
    if (kind == SBP_CONFIG_MODEL)
        entry->readable = sbp_graph_read(&at, &entry->graph) == SBP_OK;
    else if (kind == SBP_CONFIG_RUNTIME)
        entry->readable = sbp_runtime_read(&at, INT64_MAX, &entry->cluster.runtime) == SBP_OK;
    else if (kind == SBP_CONFIG_DEVICE)
        entry->readable = sbp_cluster_read_device(&at, arena, &entry->cluster) == SBP_OK;
    else
        entry->readable =
            sbp_config_expand(root, entry->path, NULL, arena, &entry->why) == SBP_OK &&
            sbp_device_file_fill(root, entry->path, arena, &entry->why) == SBP_OK &&
            sbp_cluster_read(&at, arena, &entry->cluster) == SBP_OK;
    cJSON_Delete(root);
}

static void model_cells(struct sbp_table *table, const struct sbp_graph *graph)
{
    char count[32];
    sbp_table_cell(table, "%s", sbp_format_count((double)graph->parameters, count));
    sbp_table_cell(table, "%d", graph->op_count);
    sbp_table_cell(table, "%lld x %lld", (long long)graph->global_batch,
                   (long long)graph->sequence);
}

static void cluster_cells(struct sbp_table *table, const struct sbp_cluster *cluster)
{
    char bytes[32];
    struct sbp_text levels = {0};
    for (int i = 0; i < cluster->level_count; i++)
        sbp_text_add(&levels, "%s%s %lld", i == 0 ? "" : " x ", cluster->level[i].name,
                     (long long)cluster->level[i].size);
    sbp_table_cell(table, "%lld", (long long)sbp_cluster_devices(cluster));
    sbp_table_cell(table, "%s", levels.failed ? "?" : levels.bytes);
    sbp_table_cell(table, "%s", sbp_format_bytes((double)cluster->memory_bytes, bytes));
    sbp_text_free(&levels);
}

static void runtime_cells(struct sbp_table *table, const struct sbp_runtime *runtime)
{
    char seconds[32], bytes[32];
    struct sbp_text hides = {0};
    for (int i = 0; i < SBP_HIDINGS; i++)
        if (runtime->hidden[i] > 0)
            sbp_text_add(&hides, "%s%s %.0f %%", hides.bytes == NULL ? "" : ", ",
                         sbp_runtime_hiding_name((enum sbp_hiding)i), 100 * runtime->hidden[i]);
    sbp_table_cell(table, "%s", hides.failed || hides.bytes == NULL ? "nothing" : hides.bytes);
    sbp_table_cell(table, "%s", sbp_format_seconds(runtime->host_s, seconds));
    sbp_table_cell(table, "%s", sbp_format_bytes((double)runtime->reserve_bytes, bytes));
    sbp_text_free(&hides);
}

/* Rates by the numbers of measured shares, for products and attention. */
static void device_cells(struct sbp_table *table, const struct sbp_cluster *device)
{
    char bytes[32], rate[32];
    const struct sbp_device_rates *rates = &device->rates;
    double peak = 0;
    for (int type = 0; type < SBP_TYPES; type++)
        peak = device->flops[type] > peak ? device->flops[type] : peak;
    sbp_table_cell(table, "%s", sbp_format_bytes((double)device->memory_bytes, bytes));
    sbp_table_cell(table, "%s", sbp_format_count(peak, rate));
    sbp_table_cell(table, "%lld products, %lld attention",
                   (long long)sbp_device_rate_points(rates->grid, rates->grid_count) +
                       rates->efficiency_count,
                   (long long)sbp_device_rate_points(rates->attention, rates->attention_count));
}

static enum sbp_status print_text(enum sbp_config_kind kind, struct entry *entries, int count)
{
    static const char *const TITLES[LISTED][4] = {
        [SBP_CONFIG_MODEL] = {"model", "parameters", "operators", "batch"},
        [SBP_CONFIG_CLUSTER] = {"cluster", "devices", "levels", "memory"},
        [SBP_CONFIG_DEVICE] = {"device", "memory", "peak FLOP/s", "measured rates"},
        [SBP_CONFIG_RUNTIME] = {"runtime", "hides", "launch", "reserve"}};
    struct sbp_table table;
    sbp_table_init(&table, 4, TITLES[kind]);
    for (int i = 0; i < count; i++) {
        sbp_table_cell(&table, "%s", entries[i].name);
        if (!entries[i].readable) {
            sbp_table_cell(&table, "-");
            sbp_table_cell(&table, "%s", entries[i].why.text);
            sbp_table_cell(&table, "-");
        } else if (kind == SBP_CONFIG_MODEL) {
            model_cells(&table, &entries[i].graph);
        } else if (kind == SBP_CONFIG_RUNTIME) {
            runtime_cells(&table, &entries[i].cluster.runtime);
        } else if (kind == SBP_CONFIG_DEVICE) {
            device_cells(&table, &entries[i].cluster);
        } else {
            cluster_cells(&table, &entries[i].cluster);
        }
    }
    const enum sbp_status status = sbp_table_print(&table, stdout, 0);
    sbp_table_free(&table);
    return status;
}

static void put_runtime(struct cJSON *item, const struct sbp_runtime *runtime, bool *failed)
{
    struct cJSON *hides = sbp_json_put_object(item, "hides", failed);
    for (int i = 0; i < SBP_HIDINGS; i++)
        sbp_json_put_number(hides, sbp_runtime_hiding_name((enum sbp_hiding)i), runtime->hidden[i],
                            failed);
    sbp_json_put_number(item, "host_s", runtime->host_s, failed);
    sbp_json_put_number(item, "experts_wait_s", runtime->experts_wait_s, failed);
    sbp_json_put_bool(item, "dispatches_once", runtime->dispatches_once, failed);
    sbp_json_put_bool(item, "sends_block", runtime->sends_block, failed);
    sbp_json_put_bool(item, "has_slots", runtime->has_slots, failed);
    sbp_json_put_number(item, "reserve_bytes", (double)runtime->reserve_bytes, failed);
}

static void put_entry(struct cJSON *list, enum sbp_config_kind kind, const struct entry *entry,
                      bool *failed)
{
    struct cJSON *item = sbp_json_push_object(list, failed);
    sbp_json_put_text(item, "name", entry->name, failed);
    sbp_json_put_text(item, "path", entry->path, failed);
    if (!entry->readable) {
        sbp_json_put_text(item, "error", entry->why.text, failed);
    } else if (kind == SBP_CONFIG_MODEL) {
        sbp_json_put_number(item, "parameters", (double)entry->graph.parameters, failed);
        sbp_json_put_number(item, "global_batch", (double)entry->graph.global_batch, failed);
        sbp_json_put_number(item, "sequence", (double)entry->graph.sequence, failed);
    } else if (kind == SBP_CONFIG_RUNTIME) {
        put_runtime(item, &entry->cluster.runtime, failed);
    } else {
        if (kind == SBP_CONFIG_CLUSTER)
            sbp_json_put_number(item, "devices", (double)sbp_cluster_devices(&entry->cluster),
                                failed);
        sbp_json_put_number(item, "memory_bytes", (double)entry->cluster.memory_bytes, failed);
    }
}

static enum sbp_status print_json(enum sbp_config_kind kind, const struct entry *entries, int count,
                                  struct sbp_diag *diag)
{
    struct cJSON *json = cJSON_CreateObject();
    bool failed = json == NULL;
    struct cJSON *list = sbp_json_put_array(json, WORDS[kind], &failed);
    for (int i = 0; i < count && !failed; i++)
        put_entry(list, kind, &entries[i], &failed);
    return sbp_json_finish(json, failed, diag);
}

static enum sbp_status find_kind(const char *word, enum sbp_config_kind *kind,
                                 struct sbp_diag *diag)
{
    for (int i = 0; i < LISTED; i++)
        if (strcmp(word, WORDS[i]) == 0) {
            *kind = (enum sbp_config_kind)i;
            return SBP_OK;
        }
    const char *nearest = sbp_text_nearest(word, WORDS);
    if (nearest != NULL)
        return sbp_fail(diag, SBP_E_USAGE, "sbplan list: unknown \"%.60s\", did you mean \"%s\"?",
                        word, nearest);
    return sbp_fail(diag, SBP_E_USAGE,
                    "sbplan list: unknown \"%.60s\", legal are models, clusters, devices and "
                    "runtimes",
                    word);
}

static enum sbp_status list(const struct sbp_arguments *arguments, struct sbp_arena *arena,
                            struct sbp_diag *diag)
{
    enum sbp_config_kind kind = SBP_CONFIG_MODEL;
    struct sbp_config_names names;
    SBP_TRY(find_kind(arguments->operands.word[0], &kind, diag));
    SBP_TRY(sbp_config_list(kind, arena, &names, diag));
    struct entry *entries = SBP_NEW(arena, struct entry, names.count);
    if (entries == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    for (int i = 0; i < names.count; i++) {
        entries[i].name = names.name[i];
        entries[i].path = names.path[i];
        read_entry(kind, arena, &entries[i]);
    }
    const enum sbp_status status = arguments->json ? print_json(kind, entries, names.count, diag)
                                                   : print_text(kind, entries, names.count);
    for (int i = 0; i < names.count && kind == SBP_CONFIG_MODEL; i++)
        sbp_graph_free(&entries[i].graph);
    return status;
}

enum sbp_status sbp_command_list(const struct sbp_arguments *arguments, struct sbp_diag *diag)
{
    struct sbp_arena arena = {0};
    const enum sbp_status status = list(arguments, &arena, diag);
    sbp_arena_free(&arena);
    return status;
}
