/* What the families share: writing keys of the model, and keys that several of them have. */
#include "planner/import/hf_families_priv.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

/* ---- reading keys and writing the model ---- */

bool sbp_import_given(const struct sbp_json *config, const char *key, struct sbp_json *member)
{
    return sbp_json_has(config, key) && sbp_json_member(config, key, member) == SBP_OK &&
           !cJSON_IsNull(member->node);
}

void sbp_import_put_number(struct sbp_import *import, const char *key, double value)
{
    import->failed |= cJSON_AddNumberToObject(import->model, key, value) == NULL;
}

void sbp_import_put_flag(struct sbp_import *import, const char *key, bool value)
{
    import->failed |= cJSON_AddBoolToObject(import->model, key, value) == NULL;
}

void sbp_import_put_text(struct sbp_import *import, const char *key, const char *value)
{
    import->failed |= cJSON_AddStringToObject(import->model, key, value) == NULL;
}

void sbp_import_note(struct sbp_import *import, const char *format, ...)
{
    char text[320];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    struct cJSON *note = cJSON_CreateString(text);
    if (note == NULL || !cJSON_AddItemToArray(import->notes, note)) {
        cJSON_Delete(note);
        import->failed = true;
    }
}

int64_t sbp_import_size(const struct sbp_import *import, const char *ours)
{
    const struct cJSON *member = cJSON_GetObjectItemCaseSensitive(import->model, ours);
    return cJSON_IsNumber(member) ? (int64_t)member->valuedouble : 0;
}

/* ---- keys of several families ---- */

const char *sbp_import_class_of(const struct sbp_import *import)
{
    struct sbp_json member;
    if (!sbp_import_given(&import->config, "architectures", &member) || !cJSON_IsArray(member.node))
        return "";
    const char *name = cJSON_GetStringValue(cJSON_GetArrayItem(member.node, 0));
    return name == NULL ? "" : name;
}

void sbp_import_note_other_head(struct sbp_import *import, const char *taken)
{
    const char *name = sbp_import_class_of(import);
    if (name[0] != '\0')
        sbp_import_note(import, "%.60s: taken as %s", name, taken);
}

void sbp_import_note_decoder(struct sbp_import *import)
{
    static const char *const HEADS[] = {"CausalLM", "LMHeadModel", "ConditionalGeneration"};
    const char *name = sbp_import_class_of(import);
    bool has_head = false;
    for (size_t i = 0; i < sizeof HEADS / sizeof *HEADS; i++)
        has_head |= strstr(name, HEADS[i]) != NULL;
    if (!has_head)
        sbp_import_note_other_head(import, "a language model, with the head over its vocabulary");
}

enum sbp_status sbp_import_put_biases(struct sbp_import *import, bool absent, bool projection)
{
    bool bias = absent;
    struct sbp_json member;
    if (sbp_import_given(&import->config, "attention_bias", &member))
        SBP_TRY(sbp_json_bool(&member, &bias));
    sbp_import_put_flag(import, "qkv_bias", bias);
    sbp_import_put_flag(import, "projection_bias", projection && bias);
    return SBP_OK;
}

enum sbp_status sbp_import_must_be(struct sbp_import *import, const char *key, int64_t value,
                                   const char *why)
{
    struct sbp_json member;
    int64_t given;
    if (!sbp_import_given(&import->config, key, &member))
        return SBP_OK;
    SBP_TRY(sbp_json_int64(&member, 0, SBP_IMPORT_MOST, &given));
    if (given == value)
        return SBP_OK;
    return sbp_json_refuse(&member, "%lld is not supported, supported is %lld: %s",
                           (long long)given, (long long)value, why);
}

enum sbp_status sbp_import_put_count(struct sbp_import *import, const char *ours,
                                     const char *theirs, int64_t absent)
{
    struct sbp_json member;
    int64_t value = absent;
    if (sbp_import_given(&import->config, theirs, &member))
        SBP_TRY(sbp_json_int64(&member, 0, SBP_IMPORT_MOST, &value));
    sbp_import_put_number(import, ours, (double)value);
    return SBP_OK;
}

/* ---- windows ---- */

/* How many layers of the list have a window. */
static enum sbp_status count_windows(const struct sbp_json *types, int64_t layers,
                                     int64_t *windowed)
{
    static const char *const NAMES[] = {"full_attention", "sliding_attention", NULL};
    struct sbp_json type;
    int count, choice;
    SBP_TRY(sbp_json_length(types, &count));
    if (count != layers)
        return sbp_json_refuse(types, "names %d layers, num_hidden_layers is %lld", count,
                               (long long)layers);
    *windowed = 0;
    for (int i = 0; i < count; i++) {
        SBP_TRY(sbp_json_element(types, i, &type));
        SBP_TRY(sbp_json_choice(&type, NAMES, &choice));
        *windowed += choice;
    }
    return SBP_OK;
}

enum sbp_status sbp_import_put_window(struct sbp_import *import, int64_t absent, int64_t windowed)
{
    const int64_t layers = sbp_import_size(import, "layers");
    struct sbp_json window, types;
    int64_t tokens = absent;
    if (sbp_import_given(&import->config, "sliding_window", &window))
        SBP_TRY(sbp_json_int64(&window, 1, INT32_MAX, &tokens));
    else if (sbp_json_has(&import->config, "sliding_window"))
        tokens = 0; /* null: none */
    if (sbp_import_given(&import->config, "layer_types", &types))
        SBP_TRY(count_windows(&types, layers, &windowed));
    if (tokens == 0 || windowed <= 0)
        return SBP_OK;
    sbp_import_put_number(import, "window", (double)tokens);
    if (windowed >= layers)
        return SBP_OK;
    sbp_import_put_number(import, "window_layers", (double)windowed);
    sbp_import_note(import,
                    "%lld of %lld layers attend to a window of %lld tokens: every layer is priced "
                    "as the mean of all",
                    (long long)windowed, (long long)layers, (long long)tokens);
    return SBP_OK;
}

/* ---- the tables ---- */

const struct sbp_import_family *sbp_import_family(int i)
{
    static const struct sbp_import_family *const TABLES[] = {
        sbp_import_decoders, sbp_import_mixtures, sbp_import_encoders};
    for (size_t t = 0; t < sizeof TABLES / sizeof *TABLES; t++)
        for (const struct sbp_import_family *family = TABLES[t]; family->name != NULL; family++)
            if (i-- == 0)
                return family;
    return NULL;
}
