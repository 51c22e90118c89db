#include "planner/inputs.h"

#include <string.h>

#include <cjson/cJSON.h>

#include "base/text.h"

/* --- --set --- */

static bool key_of(const char *word, char *key, size_t size)
{
    const char *equals = strchr(word, '=');
    if (equals == NULL || equals == word || (size_t)(equals - word) >= size)
        return false;
    memcpy(key, word, (size_t)(equals - word));
    key[equals - word] = '\0';
    return true;
}

/* A number (sizes as 32K, too), true, false, an object or an array; any other text is a string. */
static enum sbp_status value_of(const char *word, struct cJSON **value, struct sbp_diag *diag)
{
    const char *text = strchr(word, '=') + 1;
    struct sbp_json at;
    double number;
    int64_t size;
    if (strchr("{[\"", text[0]) != NULL && text[0] != '\0')
        return sbp_json_parse(text, "--set", value, &at, diag);
    if (sbp_parse_double(text, &number))
        *value = cJSON_CreateNumber(number);
    else if (sbp_parse_size(text, &size))
        *value = cJSON_CreateNumber((double)size);
    else if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)
        *value = cJSON_CreateBool(text[0] == 't');
    else
        *value = cJSON_CreateString(text);
    return *value == NULL ? sbp_fail(diag, SBP_E_MEMORY, "out of memory") : SBP_OK;
}

static enum sbp_status set_boxing(const struct sbp_json *value, struct sbp_settings *settings)
{
    static const char *const NAMES[] = {"full", "paper", NULL};
    int choice = 0;
    SBP_TRY(sbp_json_choice(value, NAMES, &choice));
    settings->boxing = choice == 0 ? SBP_BOXING_FULL : SBP_BOXING_PAPER;
    return SBP_OK;
}

/* A key of struct sbp_parallel is kept until the model is known. */
static enum sbp_status keep_parallel(const char *key, const struct cJSON *value,
                                     struct sbp_settings *settings, bool *taken,
                                     struct sbp_diag *diag)
{
    for (const char *const *known = sbp_parallel_keys(); *known != NULL; known++) {
        if (strcmp(*known, key) != 0)
            continue;
        *taken = true;
        struct cJSON *copy = cJSON_Duplicate(value, true);
        cJSON_DeleteItemFromObjectCaseSensitive(settings->parallel, key);
        if (copy != NULL && cJSON_AddItemToObject(settings->parallel, key, copy))
            return SBP_OK;
        cJSON_Delete(copy);
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    }
    return SBP_OK;
}

/* The nearest key that is not the model's; NULL. */
static const char *nearest_key(const char *key)
{
    static const char *const KEYS[] = {"boxing", "max_batch_split", NULL};
    const char *nearest = sbp_nearest(key, KEYS);
    return nearest != NULL ? nearest : sbp_nearest(key, sbp_parallel_keys());
}

/* Keys of the search; a slip of one of them is no key of the model. */
static enum sbp_status set_search_key(const char *key, struct cJSON *value, const char *word,
                                      const struct cJSON *model, struct sbp_settings *settings,
                                      bool *taken, struct sbp_diag *diag)
{
    char file[160];
    struct sbp_json at;
    (void)snprintf(file, sizeof file, "--set %.120s", word);
    sbp_json_at(value, file, diag, &at);
    *taken = true;
    if (strcmp(key, "boxing") == 0)
        return set_boxing(&at, settings);
    if (strcmp(key, "max_batch_split") == 0)
        return sbp_json_int64(&at, 1, INT64_C(1) << 31, &settings->max_batch_split);
    *taken = false;
    SBP_TRY(keep_parallel(key, value, settings, taken, diag));
    if (*taken)
        return SBP_OK;
    const char *nearest = nearest_key(key);
    if (nearest != NULL && cJSON_GetObjectItemCaseSensitive(model, key) == NULL)
        return sbp_json_refuse(&at, "unknown key \"%s\", did you mean \"%s\"?", key, nearest);
    return SBP_OK;
}

static enum sbp_status set_key(struct cJSON *model, const char *word, struct sbp_settings *settings,
                               struct sbp_diag *diag)
{
    char key[64];
    struct cJSON *value = NULL;
    bool taken = false;
    if (!key_of(word, key, sizeof key))
        return sbp_fail(diag, SBP_E_USAGE, "--set %.60s: legal is KEY=VALUE", word);
    SBP_TRY(value_of(word, &value, diag));
    enum sbp_status status = set_search_key(key, value, word, model, settings, &taken, diag);
    if (status != SBP_OK || taken) {
        cJSON_Delete(value);
        return status;
    }
    const bool there = cJSON_GetObjectItemCaseSensitive(model, key) != NULL;
    const bool done = there ? cJSON_ReplaceItemInObjectCaseSensitive(model, key, value)
                            : cJSON_AddItemToObject(model, key, value);
    if (done)
        return SBP_OK;
    cJSON_Delete(value);
    return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
}

/* Whether a --set word is about the model. */
static bool is_model_key(const char *word)
{
    char key[64];
    if (!key_of(word, key, sizeof key) || strcmp(key, "boxing") == 0 ||
        strcmp(key, "max_batch_split") == 0)
        return false;
    for (const char *const *known = sbp_parallel_keys(); *known != NULL; known++)
        if (strcmp(*known, key) == 0)
            return false;
    return true;
}

/* "model.json --set a=1": what messages about a changed model name. */
static const char *changed_name(const char *path, const struct sbp_word_list *words,
                                struct sbp_arena *arena)
{
    struct sbp_text text = {0};
    sbp_text_add(&text, "%s", path);
    for (int i = 0; i < words->count; i++)
        if (is_model_key(words->word[i]))
            sbp_text_add(&text, " --set %s", words->word[i]);
    const char *name = text.failed ? NULL : sbp_arena_strdup(arena, text.bytes);
    sbp_text_free(&text);
    return name;
}

static enum sbp_status read_model(const struct sbp_arguments *arguments, struct sbp_arena *arena,
                                  struct sbp_settings *settings, struct cJSON **model,
                                  const char **file, struct sbp_diag *diag)
{
    const char *path;
    struct sbp_json at;
    static const char *const NONE[] = {NULL};
    SBP_TRY(sbp_config_find(SBP_CONFIG_MODEL, arguments->operands.word[0], arena, &path, diag));
    SBP_TRY(sbp_json_open(path, model, &at, diag));
    enum sbp_status status = SBP_OK;
    if (!cJSON_IsObject(*model))
        status = sbp_json_keys(&at, NONE);
    for (int i = 0; i < arguments->set.count && status == SBP_OK; i++)
        status = set_key(*model, arguments->set.word[i], settings, diag);
    *file = changed_name(path, &arguments->set, arena);
    if (status == SBP_OK && *file == NULL)
        status = sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    if (status != SBP_OK)
        cJSON_Delete(*model);
    return status;
}

/* --- --devices --- */

/* The plan carries the cluster that was used: the sizes are changed in the file's tree. */
static enum sbp_status shrink(const struct sbp_json *at, int64_t devices, struct sbp_diag *diag)
{
    struct sbp_cluster cluster;
    struct sbp_json levels, level, size;
    SBP_TRY(sbp_cluster_read(at, &cluster));
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

static enum sbp_status read_cluster(const struct sbp_arguments *arguments, struct sbp_arena *arena,
                                    struct cJSON **cluster, const char **path,
                                    struct sbp_diag *diag)
{
    struct sbp_json at;
    SBP_TRY(sbp_config_find(SBP_CONFIG_CLUSTER, arguments->operands.word[1], arena, path, diag));
    SBP_TRY(sbp_json_open(*path, cluster, &at, diag));
    const enum sbp_status status =
        arguments->devices > 0 ? shrink(&at, arguments->devices, diag) : SBP_OK;
    if (status != SBP_OK)
        cJSON_Delete(*cluster);
    return status;
}

/* What --set says of stages, micro-batches and the like. */
static enum sbp_status read_given(const struct sbp_settings *settings,
                                  struct sbp_parallel *parallel, struct sbp_diag *diag)
{
    struct sbp_json at;
    sbp_json_at(settings->parallel, "--set", diag, &at);
    return sbp_parallel_read(&at, parallel);
}

enum sbp_status sbp_inputs_read(const struct sbp_arguments *arguments, struct sbp_arena *arena,
                                struct sbp_settings *settings, struct sbp_plan *plan,
                                struct sbp_diag *diag)
{
    struct cJSON *model, *cluster;
    const char *model_file, *cluster_file;
    *settings = (struct sbp_settings){.parallel = cJSON_CreateObject()};
    *plan = (struct sbp_plan){0};
    if (settings->parallel == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    SBP_TRY(read_model(arguments, arena, settings, &model, &model_file, diag));
    enum sbp_status status = read_cluster(arguments, arena, &cluster, &cluster_file, diag);
    if (status != SBP_OK) {
        cJSON_Delete(model);
        return status;
    }
    SBP_TRY(sbp_plan_begin(model, model_file, cluster, cluster_file, plan, diag));
    struct sbp_parallel parallel = plan->parallel;
    status = read_given(settings, &parallel, diag);
    if (status == SBP_OK)
        status = sbp_plan_set_parallel(plan, &parallel, diag);
    if (status != SBP_OK)
        sbp_plan_free(plan);
    return status;
}

void sbp_settings_free(struct sbp_settings *settings)
{
    cJSON_Delete(settings->parallel);
    *settings = (struct sbp_settings){0};
}

/* A plan that takes its model's whole batch at once does so with another batch, too. */
static bool takes_whole_batch(const struct cJSON *root, int64_t micro_batch)
{
    const struct cJSON *model = cJSON_GetObjectItemCaseSensitive(root, "model");
    const struct cJSON *batch = cJSON_GetObjectItemCaseSensitive(model, "global_batch");
    return cJSON_IsNumber(batch) && (int64_t)batch->valuedouble == micro_batch;
}

enum sbp_status sbp_fixes_read_parallel(struct sbp_plan *plan, const struct sbp_settings *settings,
                                        const char *path, struct sbp_diag *diag)
{
    struct cJSON *root;
    struct sbp_json at, member;
    struct sbp_parallel parallel = sbp_parallel_default(&plan->graph);
    enum sbp_status status = SBP_OK;
    SBP_TRY(sbp_json_open(path, &root, &at, diag));
    if (cJSON_IsObject(root) && sbp_json_has(&at, "parallel")) {
        status = sbp_json_member(&at, "parallel", &member);
        if (status == SBP_OK)
            status = sbp_parallel_read(&member, &parallel);
        if (takes_whole_batch(root, parallel.micro_batch))
            parallel.micro_batch = plan->graph.global_batch;
    }
    if (status == SBP_OK)
        status = read_given(settings, &parallel, diag);
    if (status == SBP_OK)
        status = sbp_plan_set_parallel(plan, &parallel, diag);
    cJSON_Delete(root);
    return status;
}
