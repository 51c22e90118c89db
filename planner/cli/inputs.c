#include "planner/cli/inputs.h"

#include <string.h>

#include <cjson/cJSON.h>

#include "base/text.h"
#include "planner/cli/degree_options.h"
#include "planner/cli/outputs.h"
#include "planner/cli/overrides.h"
#include "planner/configs/config_files.h"
#include "planner/plan/input_kind.h"
#include "planner/space/space_table.h"

/* --- files, changed by words --- */

/* The name of a changed file in messages, "model.json --set a=1". A sweep puts the name of its row
 * in front itself. */
static const char *changed_name(const char *path, enum sbp_override_root root,
                                const struct sbp_word_list *words, struct sbp_arena *arena)
{
    struct sbp_text text = {0};
    sbp_text_add(&text, "%s", path);
    for (int i = 0; i < words->count; i++)
        if (sbp_override_root(words->word[i]) == root)
            sbp_text_add(&text, " --set %s", words->word[i]);
    const char *name = text.failed ? NULL : sbp_arena_strdup(arena, text.bytes);
    sbp_text_free(&text);
    return name;
}

/* A model or a cluster, as its file has it. */
struct file {
    struct cJSON *root; /* owned */
    const char *path, *name;
};

/* A config as Hugging Face publishes it lacks what the training decides. */
static enum sbp_status check_imported(const struct sbp_json *at)
{
    const bool published = sbp_json_has(at, "model_type") || sbp_json_has(at, "architectures");
    if (!published || sbp_json_has(at, "architecture") || sbp_json_has(at, "layers"))
        return SBP_OK;
    return sbp_json_refuse(at,
                           "a Hugging Face config: sbplan import hf %.200s --global-batch N "
                           "--sequence N -o model.json",
                           at->file);
}

static enum sbp_status open_file(const struct sbp_arguments *arguments, enum sbp_config_kind kind,
                                 struct sbp_arena *arena, struct file *file, struct sbp_diag *diag)
{
    static const char *const NONE[] = {NULL};
    const bool model = kind == SBP_CONFIG_MODEL;
    struct sbp_json at;
    SBP_TRY(
        sbp_config_find(kind, arguments->operands.word[model ? 0 : 1], arena, &file->path, diag));
    SBP_TRY(sbp_outputs_check_input(arguments, file->path, diag));
    SBP_TRY(sbp_input_kind_open(file->path, model ? SBP_INPUT_MODEL : SBP_INPUT_CLUSTER,
                                &file->root, &at, diag));
    file->name = changed_name(file->path, model ? SBP_OVERRIDE_MODEL : SBP_OVERRIDE_CLUSTER,
                              &arguments->set, arena);
    if (file->name == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    if (!cJSON_IsObject(file->root))
        return sbp_json_keys(&at, NONE);
    return model ? check_imported(&at) : SBP_OK;
}

static bool sets(const struct sbp_word_list *words, const char *key)
{
    for (int i = 0; i < words->count; i++)
        if (strncmp(words->word[i], key, strlen(key)) == 0)
            return true;
    return false;
}

/* A batch in tokens is whole sequences of the model, as all other words have left it. */
static enum sbp_status set_batch_by_tokens(const struct sbp_arguments *arguments,
                                           const struct file *model,
                                           const struct sbp_settings *settings,
                                           struct sbp_diag *diag)
{
    const int64_t tokens = settings->global_batch_tokens;
    const struct cJSON *length = cJSON_GetObjectItemCaseSensitive(model->root, "sequence");
    struct cJSON *batch = cJSON_GetObjectItemCaseSensitive(model->root, "global_batch");
    const int64_t sequence =
        cJSON_IsNumber(length) && length->valuedouble >= 1 ? (int64_t)length->valuedouble : 1;
    if (tokens == 0)
        return SBP_OK;
    if (sets(&arguments->set, "global_batch=") || sets(&arguments->row, "global_batch="))
        return sbp_fail(diag, SBP_E_USAGE,
                        "--set global_batch_tokens: global_batch says the same in sequences, one "
                        "of them is legal");
    if (tokens % sequence != 0)
        return sbp_fail(diag, SBP_E_INPUT,
                        "--set global_batch_tokens: %lld tokens are not whole sequences of %lld, "
                        "legal are %lld and %lld",
                        (long long)tokens, (long long)sequence,
                        (long long)(tokens / sequence * sequence),
                        (long long)((tokens / sequence + 1) * sequence));
    if (batch != NULL) /* a model without one is refused when it is read */
        (void)cJSON_SetNumberHelper(batch, (double)(tokens / sequence));
    return SBP_OK;
}

static enum sbp_status override(const struct sbp_arguments *arguments, const struct file *model,
                                const struct file *cluster, struct sbp_settings *settings,
                                struct sbp_diag *diag)
{
    const struct sbp_override_target target = {
        .model = model->root, .cluster = cluster->root, .settings = settings};
    for (int i = 0; i < arguments->set.count; i++)
        SBP_TRY(sbp_override("--set", arguments->set.word[i], &target, diag));
    for (int i = 0; i < arguments->row.count; i++)
        SBP_TRY(sbp_override("--sweep", arguments->row.word[i], &target, diag));
    return set_batch_by_tokens(arguments, model, settings, diag);
}

/* --- --devices --- */

/* Cuts the cluster to fewer devices in the tree of its file, for the plan carries the cluster that
 * was used. */
static enum sbp_status shrink(const struct sbp_json *at, int64_t devices, struct sbp_arena *arena,
                              struct sbp_diag *diag)
{
    struct sbp_cluster cluster;
    struct sbp_json levels, level, size;
    SBP_TRY(sbp_cluster_read(at, arena, &cluster));
    SBP_TRY(sbp_cluster_shrink(&cluster, devices, diag));
    SBP_TRY(sbp_json_member(at, "levels", &levels));
    for (int i = 0; i < cluster.level_count; i++) {
        SBP_TRY(sbp_json_element(&levels, i, &level));
        SBP_TRY(sbp_json_member(&level, "size", &size));
        struct cJSON *node = cJSON_GetObjectItemCaseSensitive(level.node, "size");
        (void)cJSON_SetNumberHelper(node, (double)cluster.level[i].size);
    }
    return SBP_OK;
}

/* Reads both files, changed by the words and cut to the devices asked for. */
static enum sbp_status read_files(const struct sbp_arguments *arguments, struct sbp_arena *arena,
                                  struct sbp_settings *settings, struct file *model,
                                  struct file *cluster, struct sbp_diag *diag)
{
    struct sbp_json at;
    SBP_TRY(open_file(arguments, SBP_CONFIG_MODEL, arena, model, diag));
    SBP_TRY(open_file(arguments, SBP_CONFIG_CLUSTER, arena, cluster, diag));
    SBP_TRY(sbp_config_expand(cluster->root, cluster->path, arguments->runtime, arena, diag));
    SBP_TRY(override(arguments, model, cluster, settings, diag));
    SBP_TRY(sbp_config_expand(cluster->root, cluster->name, NULL, arena, diag));
    SBP_TRY(sbp_device_file_fill(cluster->root, cluster->name, arena, diag));
    SBP_TRY(sbp_degree_options_put(arguments, settings, diag));
    const int64_t devices = settings->devices > 0 ? settings->devices : arguments->devices;
    sbp_json_at(cluster->root, cluster->name, diag, &at);
    return devices > 0 ? shrink(&at, devices, arena, diag) : SBP_OK;
}

/* Reads the keys of struct sbp_parallel that --set gives. */
static enum sbp_status read_given(const struct sbp_settings *settings,
                                  struct sbp_parallel *parallel, struct sbp_diag *diag)
{
    struct sbp_json at;
    sbp_json_at(settings->parallel, "--set", diag, &at);
    return sbp_parallel_read(&at, parallel);
}

static bool gives(const struct sbp_settings *settings, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(settings->parallel, key) != NULL;
}

/* Completes an interleaved schedule, which needs several stages and a multiple of as many
 * micro-batches, and one without a flush, which needs a micro-batch a stage of the model: keys that
 * are not given get the least legal value, where a search begins. */
static void complete_schedule(const struct sbp_settings *settings, const struct sbp_graph *graph,
                              struct sbp_parallel *parallel)
{
    const bool interleaved = parallel->schedule == SBP_INTERLEAVED;
    if (!interleaved && !sbp_timeline_delays_gradients(parallel->schedule))
        return;
    if (interleaved && !gives(settings, "pipeline"))
        parallel->pipeline = 2;
    if (interleaved && !gives(settings, "chunks"))
        parallel->chunks = 2;
    const int64_t count = interleaved || parallel->pipeline > parallel->chunks ? parallel->pipeline
                                                                               : parallel->chunks;
    if (!gives(settings, "micro_batch") && graph->global_batch % count == 0)
        parallel->micro_batch = graph->global_batch / count;
}

enum sbp_status sbp_inputs_refuse(const char *file, enum sbp_status status,
                                  const struct sbp_diag *why, struct sbp_diag *diag)
{
    static const char PARALLEL[] = "parallel: ", FIX[] = "fix: ";
    const bool parallel = strncmp(why->text, PARALLEL, strlen(PARALLEL)) == 0;
    const bool fix = strncmp(why->text, FIX, strlen(FIX)) == 0;
    if (file != NULL && parallel)
        return sbp_fail(diag, status, "%s: %s", file, why->text);
    if (file != NULL && fix)
        return sbp_fail(diag, status, "%s: %s", file, why->text + strlen(FIX));
    if (parallel)
        return sbp_fail(diag, status, "--set: %s", why->text + strlen(PARALLEL));
    if (fix)
        return sbp_fail(diag, status, "--fix %s", why->text + strlen(FIX));
    return sbp_fail(diag, status, "%s", why->text);
}

/* Sets the plan's parallel, given by a file or --set. */
static enum sbp_status set_parallel(struct sbp_plan *plan, const struct sbp_parallel *parallel,
                                    const char *file, struct sbp_diag *diag)
{
    struct sbp_diag why = {{0}};
    const enum sbp_status status = sbp_plan_cut(plan, parallel, &why);
    return status == SBP_OK ? SBP_OK : sbp_inputs_refuse(file, status, &why, diag);
}

enum sbp_status sbp_inputs_read(const struct sbp_arguments *arguments, enum sbp_space_kind space,
                                struct sbp_arena *arena, struct sbp_settings *settings,
                                struct sbp_plan *plan, struct sbp_diag *diag)
{
    struct file model = {0}, cluster = {0};
    *settings = (struct sbp_settings){.parallel = cJSON_CreateObject()};
    *plan = (struct sbp_plan){0};
    if (settings->parallel == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    enum sbp_status status = read_files(arguments, arena, settings, &model, &cluster, diag);
    if (status == SBP_OK)
        status = sbp_space_change_model(space, model.root, diag);
    if (status != SBP_OK) {
        cJSON_Delete(model.root);
        cJSON_Delete(cluster.root);
        return status;
    }
    SBP_TRY(sbp_plan_begin(model.root, model.name, cluster.root, cluster.name, plan, diag));
    struct sbp_parallel parallel = plan->cut.parallel;
    status = read_given(settings, &parallel, diag);
    /* Blocks of each stage say how many stages there are. */
    if (parallel.stage_blocks_count > 0 && !gives(settings, "pipeline"))
        parallel.pipeline = parallel.stage_blocks_count / parallel.chunks;
    complete_schedule(settings, &plan->cut.graph, &parallel);
    if (status == SBP_OK) {
        struct sbp_diag why = {{0}};
        status = sbp_plan_cut(plan, &parallel, &why);
        if (status != SBP_OK)
            (void)sbp_degree_options_refuse(arguments, status, &why, diag);
    }
    if (status != SBP_OK)
        sbp_plan_free(plan);
    return status;
}

void sbp_inputs_free_settings(struct sbp_settings *settings)
{
    cJSON_Delete(settings->parallel);
    *settings = (struct sbp_settings){0};
}

/* Whether a plan has one micro-batch: it has one with another batch, too. */
static bool takes_whole_batch(const struct cJSON *root, int64_t micro_batch)
{
    const struct cJSON *model = cJSON_GetObjectItemCaseSensitive(root, "model");
    const struct cJSON *batch = cJSON_GetObjectItemCaseSensitive(model, "global_batch");
    return cJSON_IsNumber(batch) && batch->valuedouble >= (double)micro_batch &&
           batch->valuedouble <= (double)micro_batch;
}

static enum sbp_status read_boxing(const struct sbp_json *root, struct sbp_settings *settings)
{
    struct sbp_json strategy, boxing;
    int choice = 0;
    if (settings->boxing_given || !sbp_json_has(root, "strategy"))
        return SBP_OK;
    SBP_TRY(sbp_json_member(root, "strategy", &strategy));
    if (!cJSON_IsObject(strategy.node) || !sbp_json_has(&strategy, "boxing"))
        return SBP_OK;
    SBP_TRY(sbp_json_member(&strategy, "boxing", &boxing));
    SBP_TRY(sbp_json_choice(&boxing, sbp_strategy_boxing_names(), &choice));
    settings->boxing = (enum sbp_boxing_mode)choice;
    return SBP_OK;
}

static enum sbp_status read_around(const struct sbp_json *root, const struct sbp_plan *plan,
                                   struct sbp_settings *settings, struct sbp_parallel *parallel)
{
    struct sbp_json member;
    if (!cJSON_IsObject(root->node))
        return SBP_OK; /* refused with its layers */
    SBP_TRY(read_boxing(root, settings));
    if (!sbp_json_has(root, "parallel"))
        return SBP_OK;
    SBP_TRY(sbp_json_member(root, "parallel", &member));
    SBP_TRY(sbp_parallel_read(&member, parallel));
    if (takes_whole_batch(root->node, parallel->micro_batch))
        parallel->micro_batch = plan->cut.graph.global_batch;
    return SBP_OK;
}

enum sbp_status sbp_inputs_read_around(struct sbp_plan *plan, struct sbp_settings *settings,
                                       const char *path, struct sbp_diag *diag)
{
    struct cJSON *root;
    struct sbp_json at;
    struct sbp_parallel parallel = sbp_parallel_default(&plan->cut.graph);
    SBP_TRY(sbp_input_kind_open(path, SBP_INPUT_STRATEGY, &root, &at, diag));
    enum sbp_status status = read_around(&at, plan, settings, &parallel);
    if (status == SBP_OK)
        status = read_given(settings, &parallel, diag);
    if (status == SBP_OK)
        status = set_parallel(plan, &parallel, path, diag);
    cJSON_Delete(root);
    return status;
}

/* --- what is read in the place of a model --- */

enum sbp_status sbp_inputs_refuse_name(const char *word, const char *wanted, const char *option,
                                       enum sbp_status status, const struct sbp_diag *why,
                                       struct sbp_diag *diag)
{
    enum sbp_config_kind kind;
    if (status != SBP_E_IO || !sbp_config_is_listed(word, &kind))
        return sbp_fail(diag, status, "%s", why->text);
    const bool model = kind == SBP_CONFIG_MODEL;
    return sbp_fail(diag, SBP_E_INPUT,
                    "%s: this is a listed %s, not a %s: sbplan search %s %s %s makes one", word,
                    sbp_config_kind_name(kind), wanted, model ? word : "MODEL",
                    model ? "CLUSTER" : word, option);
}

enum sbp_status sbp_inputs_read_plan(const char *path, struct sbp_plan *plan, struct sbp_diag *diag)
{
    struct sbp_diag why = {{0}};
    const enum sbp_status status = sbp_plan_read(path, plan, &why);
    return status == SBP_OK
               ? SBP_OK
               : sbp_inputs_refuse_name(path, "plan", "-o plan.json", status, &why, diag);
}
