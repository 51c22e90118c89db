#include "planner/import/hf.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/file.h"
#include "base/text.h"
#include "costmodel/model/graph.h"
#include "planner/import/hf_families_priv.h"

/* ---- families ---- */

static void list_families(struct sbp_text *text)
{
    for (int i = 0; sbp_import_family(i) != NULL; i++)
        sbp_text_add(text, "%s%s",
                     i == 0                             ? ""
                     : sbp_import_family(i + 1) != NULL ? ", "
                                                        : " and ",
                     sbp_import_family(i)->name);
}

static enum sbp_status refuse_family(const struct sbp_json *at, const char *what)
{
    struct sbp_text names = {0};
    list_families(&names);
    const enum sbp_status status =
        sbp_json_refuse(at, "%s, supported are %s", what, names.failed ? "few" : names.bytes);
    sbp_text_free(&names);
    return status;
}

static const struct sbp_import_family *named_family(const char *name)
{
    for (int i = 0; sbp_import_family(i) != NULL; i++)
        if (strcmp(sbp_import_family(i)->name, name) == 0)
            return sbp_import_family(i);
    return NULL;
}

/* Files of BERT's authors have token types but no model_type. ALBERT's files look the same, but its
 * layers share weights, which is not supported; they also have an embedding_size. */
static bool is_original_bert(const struct sbp_json *config)
{
    return sbp_json_has(config, "type_vocab_size") && !sbp_json_has(config, "embedding_size");
}

/* Sets the import's family, and its config where the language model is a part of the file's. */
static enum sbp_status find_family(struct sbp_import *import)
{
    struct sbp_json text, member = import->config;
    const char *name = "bert";
    char what[96];
    if (sbp_json_has(&import->config, "model_type")) {
        SBP_TRY(sbp_json_member(&import->config, "model_type", &member));
        SBP_TRY(sbp_json_string(&member, &name));
    } else if (cJSON_IsObject(import->config.node) && !is_original_bert(&import->config)) {
        return refuse_family(&import->config, "key \"model_type\" is missing");
    } else if (!cJSON_IsObject(import->config.node)) {
        return sbp_json_member(&import->config, "model_type", &member); /* says what it is */
    }
    import->family = named_family(name);
    if (import->family != NULL)
        return SBP_OK;
    if (import->config.node == import->whole.node &&
        sbp_import_given(&import->config, "text_config", &text) && cJSON_IsObject(text.node)) {
        import->config = text;
        return find_family(import);
    }
    (void)snprintf(what, sizeof what, "\"%.40s\" is not supported", name);
    return refuse_family(&member, what);
}

/* ---- fields ---- */

static enum sbp_status refuse_missing(const struct sbp_import *import,
                                      const struct sbp_import_field *field)
{
    if (field->theirs[1] == NULL)
        return sbp_json_refuse(&import->config, "key \"%s\" is missing: %s needs it",
                               field->theirs[0], import->family->name);
    return sbp_json_refuse(&import->config, "key \"%s\" (or \"%s\") is missing: %s needs it",
                           field->theirs[0], field->theirs[1], import->family->name);
}

static enum sbp_status put_given(struct sbp_import *import, const struct sbp_import_field *field,
                                 const struct sbp_json *member)
{
    int64_t size;
    double number;
    bool flag;
    switch (field->type) {
    case SBP_IMPORT_SIZE:
    case SBP_IMPORT_SIZE_OR_NULL:
        SBP_TRY(sbp_json_int64(member, 1, SBP_IMPORT_MOST, &size));
        sbp_import_put_number(import, field->ours, (double)size);
        return SBP_OK;
    case SBP_IMPORT_FLAG:
        SBP_TRY(sbp_json_bool(member, &flag));
        sbp_import_put_flag(import, field->ours, flag);
        return SBP_OK;
    default:
        SBP_TRY(sbp_json_double(member, 0, 1, &number));
        if (field->type == SBP_IMPORT_PROBABILITY && number >= 1)
            return sbp_json_refuse(member, "must be at least 0 and less than 1");
        sbp_import_put_number(import, field->ours, number);
        return SBP_OK;
    }
}

/* The first of the field's keys that the config has. */
static bool find_given(const struct sbp_import *import, const struct sbp_import_field *field,
                       struct sbp_json *member)
{
    for (int i = 0; i < 4 && field->theirs[i] != NULL; i++)
        if (sbp_import_given(&import->config, field->theirs[i], member))
            return true;
    return false;
}

static enum sbp_status put_field(struct sbp_import *import, const struct sbp_import_field *field)
{
    struct sbp_json member;
    if (find_given(import, field, &member))
        return put_given(import, field, &member);
    if (field->required)
        return refuse_missing(import, field);
    if (isnan(field->absent) ||
        (field->type == SBP_IMPORT_SIZE_OR_NULL && sbp_json_has(&import->config, field->theirs[0])))
        return SBP_OK;
    if (field->type == SBP_IMPORT_FLAG)
        sbp_import_put_flag(import, field->ours, field->absent > 0);
    else
        sbp_import_put_number(import, field->ours, field->absent);
    return SBP_OK;
}

/* ---- switches ---- */

static enum sbp_status check_activation(struct sbp_import *import)
{
    const char *const *supported = import->family->activations;
    struct sbp_json member;
    const char *name;
    char legal[96] = "";
    size_t used = 0;
    if (!sbp_import_given(&import->config, "hidden_activation", &member) &&
        !sbp_import_given(&import->config, "hidden_act", &member) &&
        !sbp_import_given(&import->config, "activation_function", &member))
        return SBP_OK;
    SBP_TRY(sbp_json_string(&member, &name));
    for (int i = 0; supported[i] != NULL; i++) {
        if (strcmp(name, supported[i]) == 0) {
            if (strcmp(name, "gelu") == 0)
                sbp_import_note(import, "activation gelu: its tanh form is used");
            return SBP_OK;
        }
        used += (size_t)snprintf(legal + used, sizeof legal - used, "%s%s", i == 0 ? "" : ", ",
                                 supported[i]);
    }
    return sbp_json_refuse(&member, "\"%.40s\" is not supported for %s, supported: %s", name,
                           import->family->name, legal);
}

static enum sbp_status check_switches(const struct sbp_import *import)
{
    const struct sbp_import_switch *s = import->family->switches;
    for (; s != NULL && s->key != NULL; s++) {
        bool value = s->supported;
        struct sbp_json member;
        if (!sbp_import_given(&import->config, s->key, &member))
            continue;
        SBP_TRY(sbp_json_bool(&member, &value));
        if (value != s->supported)
            return sbp_json_refuse(&member, "%s is not supported, supported is %s",
                                   value ? "true" : "false", value ? "false" : "true");
    }
    return SBP_OK;
}

/* Publishers quantize weights to serve a model, not to train it. */
static void note_quantization(struct sbp_import *import)
{
    struct sbp_json member;
    if (sbp_import_given(&import->config, "quantization_config", &member))
        sbp_import_note(import, "quantization_config is ignored: weights are trained unquantized");
}

/* ---- precision ---- */

/* The key that says in which type the weights are published, in the file or in the part of it that
 * is imported. */
static bool find_type(const struct sbp_import *import, const char **key, struct sbp_json *type)
{
    static const char *const KEYS[] = {"dtype", "torch_dtype"};
    const struct sbp_json *const places[] = {&import->whole, &import->config};
    for (int place = 0; place < 2; place++)
        for (int i = 0; i < 2; i++)
            if (sbp_import_given(places[place], KEYS[i], type)) {
                *key = KEYS[i];
                return true;
            }
    return false;
}

/* The precision, and `why`: where it is from. */
static enum sbp_status find_precision(const struct sbp_import *import, const char *option,
                                      const char **precision, char *why, size_t size)
{
    static const char *const TYPES[] = {"float32", "bfloat16", "float16", NULL};
    static const char *const PRECISIONS[] = {"fp32", "mixed", "fp16"};
    struct sbp_json type, quantized;
    const char *key;
    int choice = 0;
    if (option != NULL) {
        *precision = option;
        (void)snprintf(why, size, "as asked");
    } else if (find_type(import, &key, &type)) {
        SBP_TRY(sbp_json_choice(&type, TYPES, &choice));
        *precision = PRECISIONS[choice];
        (void)snprintf(why, size, "%s %s", key, TYPES[choice]);
    } else if (sbp_import_given(&import->config, "quantization_config", &quantized)) {
        *precision = "mixed";
        (void)snprintf(why, size, "no torch_dtype, but quantized");
    } else {
        *precision = "fp32";
        (void)snprintf(why, size, "no torch_dtype");
    }
    return SBP_OK;
}

/* ---- options ---- */

static enum sbp_status check_options(const struct sbp_import_options *options,
                                     struct sbp_diag *diag)
{
    if (options->global_batch < 1 || options->global_batch > SBP_IMPORT_MOST)
        return sbp_fail(diag, SBP_E_INPUT, "global batch %lld, legal are 1 to 2^31",
                        (long long)options->global_batch);
    if (options->vocab_multiple < 0 || options->vocab_multiple > SBP_IMPORT_MOST)
        return sbp_fail(diag, SBP_E_INPUT, "vocabulary multiple %lld, legal are 1 to 2^31",
                        (long long)options->vocab_multiple);
    return SBP_OK;
}

/* Refuses a sequence that is longer than the learned positions. */
static enum sbp_status check_positions(const struct sbp_import *import, int64_t sequence)
{
    const struct sbp_import_field *field = import->family->fields;
    const double positions = (double)sbp_import_size(import, "positions");
    struct sbp_json member;
    while (field->ours != NULL && strcmp(field->ours, "positions") != 0)
        field++;
    if (field->ours == NULL || (double)sequence <= positions || !find_given(import, field, &member))
        return SBP_OK;
    return sbp_json_refuse(&member, "a sequence of %lld tokens, legal are 1 to %.0f",
                           (long long)sequence, positions);
}

/* Rotated positions have no end; a sequence beyond the trained length is worth a note. */
static void note_long_sequence(struct sbp_import *import, int64_t sequence)
{
    struct sbp_json trained;
    if (cJSON_HasObjectItem(import->model, "positions") ||
        !sbp_import_given(&import->config, "max_position_embeddings", &trained) ||
        !cJSON_IsNumber(trained.node) || trained.node->valuedouble >= (double)sequence)
        return;
    sbp_import_note(import, "sequence %lld is longer than max_position_embeddings, %.0f",
                    (long long)sequence, trained.node->valuedouble);
}

static enum sbp_status check_sequence(struct sbp_import *import,
                                      const struct sbp_import_options *options)
{
    if (import->family->images)
        return SBP_OK;
    if (options->sequence < 1)
        return sbp_json_refuse(&import->config,
                               "%s needs --sequence N: the training decides it, not the config",
                               import->family->name);
    note_long_sequence(import, options->sequence);
    return check_positions(import, options->sequence);
}

/* ---- writing the model ---- */

static void make_name(const struct sbp_import *import, char *name, size_t size)
{
    static const struct {
        const char *name;
        double layers, hidden;
    } PUBLISHED[] = {{"gpt2-small", 12, 768},
                     {"gpt2-medium", 24, 1024},
                     {"gpt2-large", 36, 1280},
                     {"gpt2-xl", 48, 1600}};
    const double layers = (double)sbp_import_size(import, "layers"),
                 hidden = (double)sbp_import_size(import, "hidden");
    const char *family = import->family->name;
    for (size_t i = 0; i < sizeof PUBLISHED / sizeof PUBLISHED[0]; i++)
        if (strcmp(family, "gpt2") == 0 && layers == PUBLISHED[i].layers &&
            hidden == PUBLISHED[i].hidden && (double)sbp_import_size(import, "ffn") == 4 * hidden &&
            (double)sbp_import_size(import, "vocab") == 50257) {
            (void)snprintf(name, size, "%s", PUBLISHED[i].name);
            return;
        }
    if (layers > 0)
        (void)snprintf(name, size, "%s-%.0fx%.0f", family, layers, hidden);
    else
        (void)snprintf(name, size, "%s-%.0f", family, (double)sbp_import_size(import, "depth"));
}

/* Says in one line what the config does not decide. */
static void note_assumed(struct sbp_import *import, const struct sbp_import_options *options,
                         const char *precision, const char *why)
{
    const int64_t vocab = sbp_import_size(import, "vocab");
    const int64_t multiple = sbp_import_size(import, "vocab_multiple");
    const char *flash = import->family->convolutions ? "" : "attention flash, ";
    if (import->family->images)
        sbp_import_note(import, "assumed: precision %s (%s), %s%lld images a step", precision, why,
                        flash, (long long)options->global_batch);
    else
        sbp_import_note(import,
                        "assumed: precision %s (%s), %svocabulary %lld padded to %lld, %lld "
                        "sequences of %lld tokens a step",
                        precision, why, flash, (long long)vocab,
                        (long long)((vocab + multiple - 1) / multiple * multiple),
                        (long long)options->global_batch, (long long)options->sequence);
}

static enum sbp_status put_options(struct sbp_import *import,
                                   const struct sbp_import_options *options)
{
    const int64_t multiple = options->vocab_multiple == 0 ? 128 : options->vocab_multiple;
    const char *precision;
    char why[64];
    SBP_TRY(find_precision(import, options->precision, &precision, why, sizeof why));
    if (!import->family->images)
        sbp_import_put_number(import, "vocab_multiple", (double)multiple);
    sbp_import_put_number(import, "global_batch", (double)options->global_batch);
    if (options->sequence > 0)
        sbp_import_put_number(import, "sequence", (double)options->sequence);
    sbp_import_put_text(import, "precision", precision);
    if (!import->family->convolutions)
        sbp_import_put_text(import, "attention", "flash");
    note_assumed(import, options, precision, why);
    return SBP_OK;
}

/* Order of keys: name and source, then the config's, then the options'. */
static enum sbp_status write_model(struct sbp_import *import,
                                   const struct sbp_import_options *options)
{
    char name[64];
    sbp_import_put_text(import, "name", "");
    sbp_import_put_text(import, "architecture", import->family->architecture);
    const bool part = import->config.node != import->whole.node;
    sbp_import_note(import, "Hugging Face model_type %s, %s%.100s", import->family->name,
                    part ? "text_config of " : "", sbp_file_name(import->config.file));
    if (part)
        sbp_import_note(import, "text_config alone is imported, what else the model has is not");
    for (const struct sbp_import_field *field = import->family->fields; field->ours != NULL;
         field++)
        SBP_TRY(put_field(import, field));
    SBP_TRY(check_activation(import));
    SBP_TRY(check_switches(import));
    if (import->family->rest != NULL)
        SBP_TRY(import->family->rest(import));
    SBP_TRY(check_sequence(import, options));
    note_quantization(import);
    SBP_TRY(put_options(import, options));
    make_name(import, name, sizeof name);
    struct cJSON *text = cJSON_CreateString(options->name == NULL ? name : options->name);
    if (text == NULL || !cJSON_ReplaceItemInObjectCaseSensitive(import->model, "name", text))
        import->failed = true;
    return SBP_OK;
}

/* Restates a refusal of the model file in terms of the config: names the config's key and place. */
static enum sbp_status translate(const struct sbp_import *import, const char *name,
                                 struct sbp_diag *diag)
{
    const size_t start = strlen(name) + strlen(": ");
    const char *key = diag != NULL && strlen(diag->text) > start ? diag->text + start : "";
    const char *end = strstr(key, ": ");
    struct sbp_diag refusal;
    struct sbp_json member;
    for (const struct sbp_import_field *field = import->family->fields;
         end != NULL && field->ours != NULL; field++)
        if (strlen(field->ours) == (size_t)(end - key) &&
            strncmp(field->ours, key, (size_t)(end - key)) == 0 &&
            find_given(import, field, &member)) {
            refusal = *diag;
            member.diag = diag;
            diag->text[0] = '\0'; /* or the first message would stay */
            return sbp_json_refuse(&member, "%s", refusal.text + (end - diag->text) + 2);
        }
    return SBP_E_INPUT;
}

/* Has the reader of model files check names, precision and sizes. */
static enum sbp_status check_model(const struct sbp_import *import, struct sbp_diag *diag)
{
    struct sbp_graph graph;
    struct sbp_json at;
    char name[512];
    (void)snprintf(name, sizeof name, "model imported from %s", import->config.file);
    sbp_json_at(import->model, name, diag, &at);
    const enum sbp_status status = sbp_graph_read(&at, &graph);
    if (status != SBP_OK)
        return status == SBP_E_INPUT ? translate(import, name, diag) : status;
    sbp_graph_free(&graph);
    return SBP_OK;
}

static enum sbp_status fill(struct sbp_import *import, const struct sbp_import_options *options,
                            struct sbp_diag *diag)
{
    enum sbp_status status = SBP_OK;
    import->failed = import->model == NULL || import->notes == NULL;
    if (!import->failed)
        status = write_model(import, options);
    if (!import->failed && status == SBP_OK) {
        import->failed = !cJSON_AddItemToObject(import->model, "notes", import->notes);
        if (!import->failed)
            import->notes = NULL; /* now owned by the model */
    }
    if (import->failed && status == SBP_OK)
        return sbp_fail(diag, SBP_E_MEMORY, "%s: out of memory", import->config.file);
    return status == SBP_OK ? check_model(import, diag) : status;
}

enum sbp_status sbp_import_hf(const struct sbp_json *config,
                              const struct sbp_import_options *options, struct cJSON **model,
                              struct sbp_diag *diag)
{
    struct sbp_import import = {.config = *config, .whole = *config, .sequence = options->sequence};
    *model = NULL;
    SBP_TRY(find_family(&import));
    SBP_TRY(check_options(options, diag));
    import.model = cJSON_CreateObject();
    import.notes = cJSON_CreateArray();
    const enum sbp_status status = fill(&import, options, diag);
    if (status == SBP_OK)
        *model = import.model;
    else
        cJSON_Delete(import.model);
    cJSON_Delete(import.notes);
    return status;
}
