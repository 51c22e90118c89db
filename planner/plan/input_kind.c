#include "planner/plan/input_kind.h"

#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/file.h"
#include "planner/plan/plan.h"

/* --- kinds --- */

/* What a kind is called, and what takes such a file: the words around its name. */
static const struct {
    const char *name, *before, *behind;
} KINDS[] = {
    [SBP_INPUT_MODEL] = {"a model", "search it first: sbplan search ", " CLUSTER -o plan.json"},
    [SBP_INPUT_CLUSTER] = {"a cluster", "search it first: sbplan search MODEL ", " -o plan.json"},
    [SBP_INPUT_RUNTIME] = {"a runtime", "sbplan search MODEL CLUSTER --runtime ", " takes it"},
    [SBP_INPUT_PLAN] = {"a plan", "sbplan explain ",
                        " shows it, sbplan price MODEL CLUSTER --strategy prices it again"},
    [SBP_INPUT_STRATEGY] = {"a strategy", "sbplan price MODEL CLUSTER --strategy ", " prices it"},
    [SBP_INPUT_PROBLEM] = {"a pairwise problem", "sbplan solve ", " solves it"},
    [SBP_INPUT_MEASUREMENTS] = {"a file of measurements", "sbplan calibrate --from ",
                                " -o cluster.json makes a cluster of it"},
};

static bool has(const struct cJSON *root, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(root, key) != NULL;
}

static bool is_plan(const struct cJSON *root)
{
    const struct cJSON *format = cJSON_GetObjectItemCaseSensitive(root, "format");
    return cJSON_IsString(format) && strcmp(format->valuestring, SBP_PLAN_FORMAT) == 0;
}

/* Layers that say how they are split, and nothing of a model. */
static bool is_strategy(const struct cJSON *root)
{
    const struct cJSON *layers = cJSON_GetObjectItemCaseSensitive(root, "layers");
    return cJSON_IsArray(layers) && has(cJSON_GetArrayItem(layers, 0), "roles") &&
           !has(root, "global_batch") && !has(root, "name");
}

static bool is_runtime(const struct cJSON *root)
{
    static const char *const keys[] = {"hides",    "host_s",  "launch_s",
                                       "messages", "reaches", "unfused_attention"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (has(root, keys[i]))
            return true;
    return false;
}

enum sbp_input_kind sbp_input_kind_of(const struct cJSON *root)
{
    if (!cJSON_IsObject(root))
        return SBP_INPUT_UNKNOWN;
    const bool is[] = {
        [SBP_INPUT_MODEL] = has(root, "global_batch") && !has(root, "format"),
        [SBP_INPUT_CLUSTER] = has(root, "levels") && has(root, "device"),
        [SBP_INPUT_RUNTIME] = is_runtime(root),
        [SBP_INPUT_PLAN] = is_plan(root),
        [SBP_INPUT_STRATEGY] = is_strategy(root),
        [SBP_INPUT_PROBLEM] = has(root, "problem") && !has(root, "name"),
        [SBP_INPUT_MEASUREMENTS] = has(root, "sbplan_samples") || has(root, "nccl_version"),
    };
    enum sbp_input_kind kind = SBP_INPUT_UNKNOWN;
    int count = 0;
    for (int i = 0; i < SBP_INPUT_UNKNOWN; i++)
        if (is[i]) {
            kind = (enum sbp_input_kind)i;
            count++;
        }
    return count == 1 ? kind : SBP_INPUT_UNKNOWN;
}

bool sbp_input_kind_is(const char *path, enum sbp_input_kind kind)
{
    struct sbp_diag unused = {{0}};
    struct cJSON *root;
    struct sbp_json at;
    if (sbp_json_open(path, &root, &at, &unused) != SBP_OK)
        return false;
    const bool is = sbp_input_kind_of(root) == kind;
    cJSON_Delete(root);
    return is;
}

/* --- refusals --- */

static enum sbp_status refuse(const char *file, enum sbp_input_kind found,
                              enum sbp_input_kind wanted, struct sbp_diag *diag)
{
    const bool swapped = (found == SBP_INPUT_MODEL && wanted == SBP_INPUT_CLUSTER) ||
                         (found == SBP_INPUT_CLUSTER && wanted == SBP_INPUT_MODEL);
    if (swapped)
        return sbp_fail(diag, SBP_E_INPUT,
                        "%s: this is %s, not %s: MODEL stands before CLUSTER; swapped?", file,
                        KINDS[found].name, KINDS[wanted].name);
    return sbp_fail(diag, SBP_E_INPUT, "%s: this is %s, not %s: %s%s%s", file, KINDS[found].name,
                    KINDS[wanted].name, KINDS[found].before, file, KINDS[found].behind);
}

enum sbp_status sbp_input_kind_check(const struct sbp_json *root, enum sbp_input_kind wanted)
{
    const enum sbp_input_kind found = sbp_input_kind_of(root->node);
    const bool is_wanted =
        found == wanted || (wanted == SBP_INPUT_STRATEGY && found == SBP_INPUT_PLAN);
    return found == SBP_INPUT_UNKNOWN || is_wanted ? SBP_OK
                                                   : refuse(root->file, found, wanted, root->diag);
}

/* Whether a text that is no JSON holds measurements: lines of samples, or a log's comments. */
static bool holds_measurements(const char *path)
{
    static const char *const MARKS[] = {"{\"sbplan_samples\"", "\n# nThread", "\n# nccl-tests",
                                        "\n# OSU "};
    size_t length = 0;
    char *text = NULL;
    bool found = false;
    if (sbp_file_read(path, &text, &length, NULL) != SBP_OK)
        return false;
    for (size_t i = 0; i < sizeof MARKS / sizeof *MARKS; i++)
        found |= strstr(text, MARKS[i]) != NULL ||
                 strncmp(text, MARKS[i] + (i > 0), strlen(MARKS[i] + (i > 0))) == 0;
    free(text);
    return found;
}

enum sbp_status sbp_input_kind_open(const char *path, enum sbp_input_kind wanted,
                                    struct cJSON **root, struct sbp_json *at, struct sbp_diag *diag)
{
    struct sbp_diag why = {{0}};
    enum sbp_status status = sbp_json_open(path, root, at, &why);
    if (status == SBP_E_INPUT && holds_measurements(path))
        return refuse(path, SBP_INPUT_MEASUREMENTS, wanted, diag);
    if (status != SBP_OK)
        return sbp_fail(diag, status, "%s", why.text);
    at->diag = diag;
    status = sbp_input_kind_check(at, wanted);
    if (status != SBP_OK) {
        cJSON_Delete(*root);
        *root = NULL;
    }
    return status;
}
