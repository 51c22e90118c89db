#include "tests/bench/inputs.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "base/file.h"
#include "base/json/json.h"
#include "tests/bench/measure.h"

#define IMPORT_LIMIT_S 20.0

/* ---- the folder ----------------------------------------------------------------------------- */

enum sbp_status inputs_open(struct inputs *inputs, struct sbp_diag *diag)
{
    const char *parent = getenv("TMPDIR");
    const int length = snprintf(inputs->folder, sizeof inputs->folder, "%s/sbplan-bench-XXXXXX",
                                parent == NULL ? "/tmp" : parent);
    if (length < 0 || (size_t)length >= sizeof inputs->folder)
        return sbp_fail(diag, SBP_E_IO, "TMPDIR: its name is too long");
    if (mkdtemp(inputs->folder) == NULL)
        return sbp_fail(diag, SBP_E_IO, "%s: %s", inputs->folder, strerror(errno));
    return SBP_OK;
}

void inputs_close(struct inputs *inputs)
{
    char path[INPUTS_PATH_BYTES];
    DIR *folder = opendir(inputs->folder);
    if (folder == NULL)
        return;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        const int length = snprintf(path, sizeof path, "%s/%s", inputs->folder, entry->d_name);
        if (entry->d_name[0] != '.' && length > 0 && (size_t)length < sizeof path)
            (void)unlink(path);
    }
    (void)closedir(folder);
    (void)rmdir(inputs->folder);
}

enum sbp_status inputs_write(const struct inputs *inputs, const char *name,
                             const struct sbp_text *text, char *path, struct sbp_diag *diag)
{
    if (text->failed || text->bytes == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "%s: out of memory", name);
    (void)snprintf(path, INPUTS_PATH_BYTES, "%s/%s", inputs->folder, name);
    return sbp_file_write(path, text->bytes, text->length, diag);
}

/* Takes json. */
static enum sbp_status write_json(const struct inputs *inputs, struct cJSON *json, const char *name,
                                  char *path, struct sbp_diag *diag)
{
    struct sbp_text text = {0};
    char *bytes = cJSON_Print(json);
    cJSON_Delete(json);
    if (bytes != NULL)
        sbp_text_add(&text, "%s\n", bytes);
    free(bytes);
    const enum sbp_status status = inputs_write(inputs, name, &text, path, diag);
    sbp_text_free(&text);
    return status;
}

static enum sbp_status open_config(const char *folder, const char *name, struct cJSON **json,
                                   struct sbp_diag *diag)
{
    char path[INPUTS_PATH_BYTES];
    struct sbp_json at;
    (void)snprintf(path, sizeof path, "%s/configs/%s/%s.json", SBP_SOURCE_ROOT, folder, name);
    return sbp_json_open(path, json, &at, diag);
}

static void set_number(struct cJSON *object, const char *key, double value)
{
    cJSON_DeleteItemFromObjectCaseSensitive(object, key);
    (void)cJSON_AddNumberToObject(object, key, value);
}

static void set_string(struct cJSON *object, const char *key, const char *value)
{
    cJSON_DeleteItemFromObjectCaseSensitive(object, key);
    (void)cJSON_AddStringToObject(object, key, value);
}

/* ---- clusters ------------------------------------------------------------------------------- */

/* Level `at` of `count`, of the shipped outer (0) or inner (1) one. */
static struct cJSON *make_level(const struct cJSON *shipped, int64_t size, int at, int count)
{
    static const char *const keys[] = {"alpha_s", "beta_s_per_byte"};
    static const char *const names[] = {"node", "rack", "hall"};
    const int around = count > 1 ? count - 2 - at : 0; /* hops out of the shipped outer level */
    struct cJSON *level = cJSON_Duplicate(cJSON_GetArrayItem(shipped, around < 0 ? 1 : 0), true);
    set_number(level, "size", (double)size);
    for (int i = 0; around > 0 && i < 2; i++) {
        const struct cJSON *value = cJSON_GetObjectItemCaseSensitive(level, keys[i]);
        set_number(level, keys[i], (double)(1 << around) * cJSON_GetNumberValue(value));
    }
    if (around > 0)
        set_string(level, "name", names[around]);
    return level;
}

enum sbp_status inputs_cluster(const struct inputs *inputs, const char *shipped,
                               const int64_t *sizes, int count, char *path, struct sbp_diag *diag)
{
    struct cJSON *json;
    char name[128];
    int used = snprintf(name, sizeof name, "%s", shipped);
    SBP_TRY(open_config("clusters", shipped, &json, diag));
    const struct cJSON *levels = cJSON_GetObjectItemCaseSensitive(json, "levels");
    struct cJSON *made = cJSON_CreateArray();
    for (int i = 0; i < count; i++) {
        (void)cJSON_AddItemToArray(made, make_level(levels, sizes[i], i, count));
        used += snprintf(name + used, sizeof name - (size_t)used, "%s%lld", i == 0 ? "-" : "x",
                         (long long)sizes[i]);
    }
    (void)cJSON_ReplaceItemInObjectCaseSensitive(json, "levels", made);
    cJSON_DeleteItemFromObjectCaseSensitive(json, "source"); /* it speaks of the shipped levels */
    set_string(json, "name", name);
    (void)snprintf(name + used, sizeof name - (size_t)used, ".json");
    return write_json(inputs, json, name, path, diag);
}

/* ---- models --------------------------------------------------------------------------------- */

enum sbp_status inputs_model(const struct inputs *inputs, const char *shipped, int64_t batch,
                             int64_t sequence, char *path, struct sbp_diag *diag)
{
    struct cJSON *json;
    char name[128];
    SBP_TRY(open_config("models", shipped, &json, diag));
    set_number(json, "global_batch", (double)batch);
    if (sequence > 0)
        set_number(json, "sequence", (double)sequence);
    set_string(json, "precision", "mixed");
    (void)snprintf(name, sizeof name, "%s-%lld.json", shipped, (long long)batch);
    return write_json(inputs, json, name, path, diag);
}

static void config_path(const char *config, char *path)
{
    (void)snprintf(path, INPUTS_PATH_BYTES, "%s/../shared/data/hf/%s", SBP_SOURCE_ROOT, config);
}

bool inputs_has_config(const char *config)
{
    char path[INPUTS_PATH_BYTES];
    config_path(config, path);
    return access(path, R_OK) == 0;
}

enum sbp_status inputs_import(const struct inputs *inputs, const char *program, const char *config,
                              int64_t batch, int64_t sequence, char *path, struct sbp_diag *diag)
{
    char source[INPUTS_PATH_BYTES], batch_word[32], sequence_word[32], end[MEASURE_END_BYTES];
    struct measured measured;
    const char *words[] = {program,    "import",      "hf", source,        "--global-batch",
                           batch_word, "-o",          path, "--precision", "mixed",
                           NULL,       sequence_word, NULL};
    config_path(config, source);
    (void)snprintf(batch_word, sizeof batch_word, "%lld", (long long)batch);
    (void)snprintf(sequence_word, sizeof sequence_word, "%lld", (long long)sequence);
    (void)snprintf(path, INPUTS_PATH_BYTES, "%s/imported-%lld.json", inputs->folder,
                   (long long)batch);
    if (sequence > 0)
        words[10] = "--sequence";
    SBP_TRY(measure_run(words, IMPORT_LIMIT_S, &measured, diag));
    enum sbp_status status = SBP_OK;
    if (measured.exit_code != 0)
        status = sbp_fail(diag, SBP_E_INPUT, "import hf %s: %s", config,
                          measure_end_text(&measured, end));
    measure_free(&measured);
    return status;
}
