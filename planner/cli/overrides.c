#include "planner/cli/overrides.h"

#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/text.h"
#include "costmodel/cluster/cluster.h"
#include "planner/cli/foreign_words.h"

#define KEY_BYTES 160

#define MODEL_PREFIX   "model."
#define CLUSTER_PREFIX "cluster."

static const char *const SEARCH_KEYS[] = {
    "boxing", "max_batch_split", "devices", "global_batch_tokens", "micro_batch_per_replica", NULL};

/* The change that a word makes. */
struct change {
    const char *option, *word;
    char key[KEY_BYTES];
    const struct sbp_override_target *target;
    struct sbp_diag *diag;
};

static bool begins(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool is_among(const char *word, const char *const *words)
{
    for (; *words != NULL; words++)
        if (strcmp(*words, word) == 0)
            return true;
    return false;
}

static bool key_of(const char *word, char *key)
{
    const char *equals = strchr(word, '=');
    if (equals == NULL || equals == word || equals - word >= KEY_BYTES)
        return false;
    memcpy(key, word, (size_t)(equals - word));
    key[equals - word] = '\0';
    return true;
}

static bool is_search_key(const char *key)
{
    return is_among(key, SEARCH_KEYS) || is_among(key, sbp_parallel_keys());
}

enum sbp_override_root sbp_override_root(const char *word)
{
    char key[KEY_BYTES];
    if (!key_of(word, key) || is_search_key(key))
        return SBP_OVERRIDE_SEARCH;
    return begins(key, CLUSTER_PREFIX) ? SBP_OVERRIDE_CLUSTER : SBP_OVERRIDE_MODEL;
}

/* The source of a value in messages, "--set boxing=ful", in the place of a file. */
static const char *name_word(const struct change *change, char *buffer, size_t size)
{
    (void)snprintf(buffer, size, "%s %.160s", change->option, change->word);
    return buffer;
}

/* ---- values --------------------------------------------------------------------------------- */

/* Whether the key's value is a number of bytes, as in memory_bytes. */
static bool is_of_bytes(const struct change *change)
{
    static const char end[] = "_bytes";
    const size_t length = strlen(change->key), cut = sizeof end - 1;
    return length >= cut && strcmp(change->key + length - cut, end) == 0;
}

static enum sbp_status value_of(const struct change *change, struct cJSON **value)
{
    const char *text = strchr(change->word, '=') + 1;
    char file[KEY_BYTES + 64];
    struct sbp_json at;
    double number;
    if (text[0] == '{' || text[0] == '[' || text[0] == '"')
        return sbp_json_parse(text, name_word(change, file, sizeof file), value, &at, change->diag);
    if (sbp_parse_double(text, &number) || sbp_parse_scaled(text, is_of_bytes(change), &number))
        *value = cJSON_CreateNumber(number);
    else if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)
        *value = cJSON_CreateBool(text[0] == 't');
    else
        *value = cJSON_CreateString(text);
    return *value == NULL ? sbp_fail(change->diag, SBP_E_MEMORY, "out of memory") : SBP_OK;
}

/* ---- the search's own keys ------------------------------------------------------------------ */

/* Keeps a key of struct sbp_parallel until the model is known. */
static enum sbp_status keep_parallel(const struct change *change, const struct cJSON *value)
{
    const char *advice =
        cJSON_IsString(value)
            ? sbp_foreign_words_advice(value->valuestring, strlen(value->valuestring))
            : NULL;
    if (advice != NULL)
        return sbp_fail(change->diag, SBP_E_INPUT, "%s %.120s: %s", change->option, change->word,
                        advice);
    struct cJSON *parallel = change->target->settings->parallel;
    struct cJSON *copy = cJSON_Duplicate(value, true);
    cJSON_DeleteItemFromObjectCaseSensitive(parallel, change->key);
    if (copy != NULL && cJSON_AddItemToObject(parallel, change->key, copy))
        return SBP_OK;
    cJSON_Delete(copy);
    return sbp_fail(change->diag, SBP_E_MEMORY, "out of memory");
}

static enum sbp_status set_search_key(const struct change *change, const struct cJSON *value)
{
    struct sbp_settings *settings = change->target->settings;
    char file[KEY_BYTES + 64];
    struct sbp_json at;
    int choice = 0;
    sbp_json_at(value, name_word(change, file, sizeof file), change->diag, &at);
    if (strcmp(change->key, "boxing") == 0) {
        SBP_TRY(sbp_json_choice(&at, sbp_strategy_boxing_names(), &choice));
        settings->boxing = (enum sbp_boxing_mode)choice;
        settings->boxing_given = true;
        return SBP_OK;
    }
    if (strcmp(change->key, "max_batch_split") == 0)
        return sbp_json_int64(&at, 1, INT64_C(1) << 31, &settings->max_batch_split);
    if (strcmp(change->key, "devices") == 0)
        return sbp_json_int64(&at, 1, SBP_CLUSTER_MOST_DEVICES, &settings->devices);
    if (strcmp(change->key, "global_batch_tokens") == 0)
        return sbp_json_int64(&at, 1, INT64_C(1) << 53, &settings->global_batch_tokens);
    if (strcmp(change->key, "micro_batch_per_replica") == 0)
        return sbp_json_int64(&at, 1, INT64_C(1) << 31, &settings->micro_batch_per_replica);
    return keep_parallel(change, value);
}

/* ---- paths ---------------------------------------------------------------------------------- */

/* A segment of a path: a member by name, or an element by index. */
struct segment {
    char name[64];
    int index; /* -1: a name */
};

/* Takes the next segment off a path; a member follows a dot unless it is the first. Returns false
 * where none can be read. */
static bool next_segment(const char **path, bool first, struct segment *segment)
{
    char digits[16];
    int64_t index = 0;
    const bool element = **path == '[';
    if (!first && !element && **path != '.')
        return false;
    if (element || !first)
        ++*path;
    const size_t length = strcspn(*path, element ? "]" : ".[");
    if (length == 0 || length >= sizeof segment->name || (element && (*path)[length] != ']'))
        return false;
    memcpy(segment->name, *path, length);
    segment->name[length] = '\0';
    segment->index = -1;
    *path += length + (element ? 1 : 0);
    if (!element)
        return true;
    (void)snprintf(digits, sizeof digits, "%.15s", segment->name);
    if (!sbp_parse_int64(digits, &index) || index < 0 || index > 1000000)
        return false;
    segment->index = (int)index;
    return true;
}

/* The names of an object's members, as many as there is room for. */
static void member_names(const struct cJSON *object, const char **names, int room)
{
    int count = 0;
    for (const struct cJSON *item = object->child; item != NULL && count + 1 < room;
         item = item->next)
        names[count++] = item->string;
    names[count] = NULL;
}

static enum sbp_status refuse_member(const struct change *change, const char *where,
                                     const struct cJSON *parent, const char *name)
{
    const char *names[64];
    struct sbp_text legal = {0};
    if (!cJSON_IsObject(parent))
        return sbp_fail(change->diag, SBP_E_INPUT, "%s %.120s: %s has no members", change->option,
                        change->word, where);
    member_names(parent, names, 64);
    const char *nearest = sbp_text_nearest(name, names);
    if (nearest != NULL)
        return sbp_fail(change->diag, SBP_E_INPUT,
                        "%s %.120s: %s has no \"%s\", did you mean "
                        "\"%s\"?",
                        change->option, change->word, where, name, nearest);
    for (int i = 0; names[i] != NULL; i++)
        sbp_text_add(&legal, "%s%s", i == 0 ? "" : ", ", names[i]);
    const enum sbp_status status =
        sbp_fail(change->diag, SBP_E_INPUT, "%s %.120s: %s has no \"%s\", it has %s",
                 change->option, change->word, where, name, legal.failed ? "others" : legal.bytes);
    sbp_text_free(&legal);
    return status;
}

static enum sbp_status refuse_element(const struct change *change, const char *where,
                                      const struct cJSON *parent)
{
    if (!cJSON_IsArray(parent))
        return sbp_fail(change->diag, SBP_E_INPUT, "%s %.120s: %s is no list", change->option,
                        change->word, where);
    const int count = cJSON_GetArraySize(parent);
    if (count == 0)
        return sbp_fail(change->diag, SBP_E_INPUT, "%s %.120s: %s is empty", change->option,
                        change->word, where);
    return sbp_fail(change->diag, SBP_E_INPUT, "%s %.120s: %s has %d element%s, the last is [%d]",
                    change->option, change->word, where, count, count == 1 ? "" : "s", count - 1);
}

static struct cJSON *child_of(const struct cJSON *parent, const struct segment *segment)
{
    if (segment->index >= 0)
        return cJSON_IsArray(parent) ? cJSON_GetArrayItem(parent, segment->index) : NULL;
    return cJSON_GetObjectItemCaseSensitive(parent, segment->name);
}

/* Puts a value, whose ownership it takes, at the end of a path below `parent`. `where` is the path
 * so far, for messages. */
static enum sbp_status put(const struct change *change, struct cJSON *parent, const char *where,
                           const struct segment *last, struct cJSON *value)
{
    const bool there = child_of(parent, last) != NULL;
    bool done = false;
    if (last->index >= 0 && there)
        done = cJSON_ReplaceItemInArray(parent, last->index, value);
    else if (last->index < 0 && there)
        done = cJSON_ReplaceItemInObjectCaseSensitive(parent, last->name, value);
    else if (last->index < 0 && cJSON_IsObject(parent))
        done = cJSON_AddItemToObject(parent, last->name, value);
    else {
        cJSON_Delete(value);
        return last->index >= 0 ? refuse_element(change, where, parent)
                                : refuse_member(change, where, parent, last->name);
    }
    if (done)
        return SBP_OK;
    cJSON_Delete(value);
    return sbp_fail(change->diag, SBP_E_MEMORY, "out of memory");
}

/* Follows a path from a file's root and puts the value there. */
static enum sbp_status set_path(const struct change *change, struct cJSON *root, const char *file,
                                const char *path, struct cJSON *value)
{
    const char *at = path;
    struct cJSON *parent = root;
    struct segment segment;
    char where[KEY_BYTES];
    (void)snprintf(where, sizeof where, "the %s", file);
    for (;;) {
        if (!next_segment(&at, at == path, &segment)) {
            cJSON_Delete(value);
            return sbp_fail(change->diag, SBP_E_USAGE,
                            "%s %.120s: \"%.80s\" is no path, as in cluster.levels[0].size",
                            change->option, change->word, change->key);
        }
        if (*at == '\0')
            return put(change, parent, where, &segment, value);
        struct cJSON *child = child_of(parent, &segment);
        if (child == NULL) {
            cJSON_Delete(value);
            return segment.index >= 0 ? refuse_element(change, where, parent)
                                      : refuse_member(change, where, parent, segment.name);
        }
        parent = child;
        (void)snprintf(where, sizeof where, "%.*s", (int)(at - path), path);
    }
}

/* ---- keys without a file -------------------------------------------------------------------- */

/* Finds the path of a member of that name in the cluster: "cluster.device.memory_bytes". A
 * trainer's members are left out: "attention" is a key of models that need not state it. */
static bool find_in_cluster(const struct cJSON *node, const char *name, char *path, size_t used)
{
    int index = 0;
    for (const struct cJSON *item = node->child; item != NULL; item = item->next, index++) {
        const int length = cJSON_IsArray(node)
                               ? snprintf(path + used, KEY_BYTES - used, "[%d]", index)
                               : snprintf(path + used, KEY_BYTES - used, ".%s", item->string);
        if (length < 0 || used + (size_t)length >= KEY_BYTES)
            return false;
        if (cJSON_IsObject(node) && strcmp(item->string, name) == 0)
            return true;
        if (cJSON_IsObject(node) && strcmp(item->string, "runtime") == 0)
            continue;
        if (find_in_cluster(item, name, path, used + (size_t)length))
            return true;
    }
    return false;
}

/* The size of the level that a key names, in one or several: "cluster.levels[0].size" for "node"
 * and "nodes". */
static bool find_level(const struct cJSON *cluster, const char *name, char *path)
{
    const struct cJSON *levels = cJSON_GetObjectItemCaseSensitive(cluster, "levels");
    int index = 0;
    for (const struct cJSON *level = cJSON_IsArray(levels) ? levels->child : NULL; level != NULL;
         level = level->next, index++) {
        const struct cJSON *own = cJSON_GetObjectItemCaseSensitive(level, "name");
        const size_t length = cJSON_IsString(own) ? strlen(own->valuestring) : 0;
        if (length == 0 || strncmp(name, own->valuestring, length) != 0 ||
            (name[length] != '\0' && strcmp(name + length, "s") != 0))
            continue;
        (void)snprintf(path, KEY_BYTES, "cluster.levels[%d].size", index);
        return true;
    }
    return false;
}

/* Checks a key without a prefix that the model does not have: it may be a slip of the search's or
 * the cluster's. */
static enum sbp_status check_bare_key(const struct change *change)
{
    char first[KEY_BYTES], path[KEY_BYTES] = "cluster";
    (void)snprintf(first, sizeof first, "%.*s", (int)strcspn(change->key, ".["), change->key);
    if (cJSON_GetObjectItemCaseSensitive(change->target->model, first) != NULL)
        return SBP_OK;
    const bool level = find_level(change->target->cluster, change->key, path);
    const char *advice = level ? NULL : sbp_foreign_words_advice(change->key, strlen(change->key));
    if (advice != NULL)
        return sbp_fail(change->diag, SBP_E_INPUT, "%s %.120s: unknown key \"%.60s\": %s",
                        change->option, change->word, change->key, advice);
    const char *nearest = level ? path : sbp_text_nearest(change->key, SEARCH_KEYS);
    if (nearest == NULL)
        nearest = sbp_text_nearest(change->key, sbp_parallel_keys());
    if (nearest == NULL && find_in_cluster(change->target->cluster, first, path, strlen(path))) {
        (void)strncat(path, change->key + strlen(first), sizeof path - strlen(path) - 1);
        nearest = path;
    }
    if (nearest == NULL)
        return SBP_OK;
    return sbp_fail(change->diag, SBP_E_INPUT,
                    "%s %.120s: unknown key \"%.60s\", did you mean "
                    "\"%s\"?",
                    change->option, change->word, change->key, nearest);
}

enum sbp_status sbp_override(const char *option, const char *word,
                             const struct sbp_override_target *target, struct sbp_diag *diag)
{
    struct change change = {.option = option, .word = word, .target = target, .diag = diag};
    struct cJSON *value = NULL;
    if (!key_of(word, change.key))
        return sbp_fail(diag, SBP_E_USAGE, "%s %.60s: legal is KEY=VALUE", option, word);
    const bool cluster = begins(change.key, CLUSTER_PREFIX);
    const bool model = begins(change.key, MODEL_PREFIX);
    const bool search = is_search_key(change.key);
    if (!cluster && !model && !search)
        SBP_TRY(check_bare_key(&change));
    SBP_TRY(value_of(&change, &value));
    if (cluster)
        return set_path(&change, target->cluster, "cluster", change.key + strlen(CLUSTER_PREFIX),
                        value);
    if (!search)
        return set_path(&change, target->model, "model",
                        change.key + (model ? strlen(MODEL_PREFIX) : 0), value);
    const enum sbp_status status = set_search_key(&change, value);
    cJSON_Delete(value);
    return status;
}
