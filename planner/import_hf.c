#include "planner/import_hf.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/text.h"
#include "costmodel/graph.h"

#define MOST_SIZE (INT64_C(1) << 31)

/* What a gpt2 config says; keys that it may leave out have the defaults of the publisher's library,
 * which is what that library would build from the same file. */
struct gpt2 {
    int64_t layers, hidden, heads, vocab, positions, ffn;
    double epsilon, residual_dropout, embedding_dropout, attention_dropout;
    bool tied;
    const char *activation;
};

/* --- reading the config --- */

static bool is_given(const struct sbp_json *config, const char *key)
{
    struct sbp_json member;
    return sbp_json_has(config, key) && sbp_json_member(config, key, &member) == SBP_OK &&
           !cJSON_IsNull(member.node);
}

static enum sbp_status require_size(const struct sbp_json *config, const char *key, int64_t *value)
{
    struct sbp_json member;
    SBP_TRY(sbp_json_member(config, key, &member));
    return sbp_json_int64(&member, 1, MOST_SIZE, value);
}

static enum sbp_status read_sizes(const struct sbp_json *config, struct gpt2 *gpt2)
{
    struct sbp_json heads;
    SBP_TRY(require_size(config, "n_layer", &gpt2->layers));
    SBP_TRY(require_size(config, "n_embd", &gpt2->hidden));
    SBP_TRY(require_size(config, "n_head", &gpt2->heads));
    SBP_TRY(require_size(config, "n_positions", &gpt2->positions));
    SBP_TRY(require_size(config, "vocab_size", &gpt2->vocab));
    gpt2->ffn = 4 * gpt2->hidden;
    if (is_given(config, "n_inner"))
        SBP_TRY(require_size(config, "n_inner", &gpt2->ffn));
    if (gpt2->hidden % gpt2->heads == 0)
        return SBP_OK;
    SBP_TRY(sbp_json_member(config, "n_head", &heads));
    return sbp_json_refuse(&heads, "%lld heads do not divide n_embd %lld", (long long)gpt2->heads,
                           (long long)gpt2->hidden);
}

static enum sbp_status read_probability(const struct sbp_json *config, const char *key,
                                        double *value)
{
    struct sbp_json member;
    *value = 0.1;
    if (!sbp_json_has(config, key))
        return SBP_OK;
    SBP_TRY(sbp_json_member(config, key, &member));
    SBP_TRY(sbp_json_double(&member, 0, 1, value));
    return *value < 1 ? SBP_OK : sbp_json_refuse(&member, "must be at least 0 and less than 1");
}

static enum sbp_status read_constants(const struct sbp_json *config, struct gpt2 *gpt2)
{
    gpt2->epsilon = 1e-5;
    gpt2->tied = true;
    SBP_TRY(sbp_json_get_double(config, "layer_norm_epsilon", 1e-30, 1, &gpt2->epsilon));
    SBP_TRY(sbp_json_get_bool(config, "tie_word_embeddings", &gpt2->tied));
    SBP_TRY(read_probability(config, "resid_pdrop", &gpt2->residual_dropout));
    SBP_TRY(read_probability(config, "embd_pdrop", &gpt2->embedding_dropout));
    return read_probability(config, "attn_pdrop", &gpt2->attention_dropout);
}

static enum sbp_status read_activation(const struct sbp_json *config, struct gpt2 *gpt2)
{
    static const char *const SUPPORTED[] = {"gelu_new", "gelu_pytorch_tanh", "gelu", NULL};
    struct sbp_json member;
    gpt2->activation = "gelu_new";
    if (!sbp_json_has(config, "activation_function"))
        return SBP_OK;
    SBP_TRY(sbp_json_member(config, "activation_function", &member));
    SBP_TRY(sbp_json_string(&member, &gpt2->activation));
    for (int i = 0; SUPPORTED[i] != NULL; i++)
        if (strcmp(gpt2->activation, SUPPORTED[i]) == 0)
            return SBP_OK;
    return sbp_json_refuse(&member,
                           "\"%.40s\" is not supported, supported are gelu_new, "
                           "gelu_pytorch_tanh and gelu",
                           gpt2->activation);
}

/* Switches that would make it another model. */
static enum sbp_status check_switches(const struct sbp_json *config)
{
    static const struct {
        const char *key;
        bool supported;
    } SWITCHES[] = {{"scale_attn_weights", true},
                    {"scale_attn_by_inverse_layer_idx", false},
                    {"add_cross_attention", false}};
    for (size_t i = 0; i < sizeof SWITCHES / sizeof SWITCHES[0]; i++) {
        bool value = SWITCHES[i].supported;
        SBP_TRY(sbp_json_get_bool(config, SWITCHES[i].key, &value));
        if (value != SWITCHES[i].supported) {
            struct sbp_json member;
            SBP_TRY(sbp_json_member(config, SWITCHES[i].key, &member));
            return sbp_json_refuse(&member, "%s is not supported", value ? "true" : "false");
        }
    }
    return SBP_OK;
}

static enum sbp_status check_family(const struct sbp_json *config)
{
    struct sbp_json member;
    const char *family;
    SBP_TRY(sbp_json_member(config, "model_type", &member));
    SBP_TRY(sbp_json_string(&member, &family));
    if (strcmp(family, "gpt2") != 0)
        return sbp_json_refuse(&member, "\"%.40s\" is not supported, supported is gpt2 so far",
                               family);
    return SBP_OK;
}

static enum sbp_status check_options(const struct sbp_json *config,
                                     const struct sbp_import_options *options,
                                     const struct gpt2 *gpt2, struct sbp_diag *diag)
{
    if (options->global_batch < 1 || options->global_batch > MOST_SIZE)
        return sbp_fail(diag, SBP_E_INPUT, "global batch %lld, legal are 1 to 2^31",
                        (long long)options->global_batch);
    if (options->vocab_multiple < 0 || options->vocab_multiple > MOST_SIZE)
        return sbp_fail(diag, SBP_E_INPUT, "vocabulary multiple %lld, legal are 1 to 2^31",
                        (long long)options->vocab_multiple);
    if (options->sequence < 1 || options->sequence > gpt2->positions)
        return sbp_fail(diag, SBP_E_INPUT,
                        "%s: n_positions: a sequence of %lld tokens, legal are 1 to %lld",
                        config->file, (long long)options->sequence, (long long)gpt2->positions);
    return SBP_OK;
}

/* --- writing the model --- */

static void make_name(const struct gpt2 *gpt2, char *name, size_t size)
{
    static const struct {
        const char *name;
        int64_t layers, hidden;
    } PUBLISHED[] = {{"gpt2-small", 12, 768},
                     {"gpt2-medium", 24, 1024},
                     {"gpt2-large", 36, 1280},
                     {"gpt2-xl", 48, 1600}};
    for (size_t i = 0; i < sizeof PUBLISHED / sizeof PUBLISHED[0]; i++)
        if (gpt2->layers == PUBLISHED[i].layers && gpt2->hidden == PUBLISHED[i].hidden &&
            gpt2->vocab == 50257) {
            (void)snprintf(name, size, "%s", PUBLISHED[i].name);
            return;
        }
    (void)snprintf(name, size, "gpt2-%lldx%lld", (long long)gpt2->layers, (long long)gpt2->hidden);
}

static bool add_note(struct cJSON *notes, const struct sbp_text *note)
{
    if (note->failed)
        return false;
    struct cJSON *text = cJSON_CreateString(note->bytes);
    return text != NULL && cJSON_AddItemToArray(notes, text);
}

/* What the model file cannot say. */
static bool add_notes(struct cJSON *model, const struct gpt2 *gpt2)
{
    struct cJSON *notes = cJSON_CreateArray();
    struct sbp_text texts[3] = {{0}};
    bool good = notes != NULL;
    if (gpt2->attention_dropout > 0)
        sbp_text_add(&texts[0], "attn_pdrop %g: dropout inside attention is not modelled",
                     gpt2->attention_dropout);
    if (gpt2->embedding_dropout != gpt2->residual_dropout)
        sbp_text_add(&texts[1], "embd_pdrop %g: taken as resid_pdrop, %g", gpt2->embedding_dropout,
                     gpt2->residual_dropout);
    if (strcmp(gpt2->activation, "gelu") == 0)
        sbp_text_add(&texts[2], "activation gelu: its tanh form is used");
    for (int i = 0; i < 3; i++) {
        good = good && (texts[i].length == 0 ? !texts[i].failed : add_note(notes, &texts[i]));
        sbp_text_free(&texts[i]);
    }
    if (good && cJSON_GetArraySize(notes) > 0)
        return cJSON_AddItemToObject(model, "notes", notes);
    cJSON_Delete(notes);
    return good;
}

static bool add_number(struct cJSON *model, const char *key, double value)
{
    return cJSON_AddNumberToObject(model, key, value) != NULL;
}

/* Whole, with every size that the config gives, so that the file stands by itself. */
static bool fill(struct cJSON *model, const struct gpt2 *gpt2,
                 const struct sbp_import_options *options)
{
    const int64_t multiple = options->vocab_multiple == 0 ? 128 : options->vocab_multiple;
    const char *precision = options->precision == NULL ? "fp32" : options->precision;
    char made[64];
    make_name(gpt2, made, sizeof made);
    return cJSON_AddStringToObject(model, "name", options->name == NULL ? made : options->name) !=
               NULL &&
           cJSON_AddStringToObject(model, "architecture", "gpt") != NULL &&
           add_number(model, "layers", (double)gpt2->layers) &&
           add_number(model, "hidden", (double)gpt2->hidden) &&
           add_number(model, "heads", (double)gpt2->heads) &&
           add_number(model, "ffn", (double)gpt2->ffn) &&
           add_number(model, "vocab", (double)gpt2->vocab) &&
           add_number(model, "vocab_multiple", (double)multiple) &&
           add_number(model, "positions", (double)gpt2->positions) &&
           add_number(model, "epsilon", gpt2->epsilon) &&
           add_number(model, "dropout", gpt2->residual_dropout) &&
           cJSON_AddBoolToObject(model, "tied", gpt2->tied) != NULL &&
           add_number(model, "global_batch", (double)options->global_batch) &&
           add_number(model, "sequence", (double)options->sequence) &&
           cJSON_AddStringToObject(model, "precision", precision) != NULL && add_notes(model, gpt2);
}

/* The rest of what is legal is known by the reader of model files: names, precision, sizes. */
static enum sbp_status check_model(const struct cJSON *model, const char *file,
                                   struct sbp_diag *diag)
{
    struct sbp_graph graph;
    struct sbp_json at;
    char name[512];
    (void)snprintf(name, sizeof name, "model imported from %s", file);
    sbp_json_at(model, name, diag, &at);
    SBP_TRY(sbp_graph_read(&at, &graph));
    sbp_graph_free(&graph);
    return SBP_OK;
}

enum sbp_status sbp_import_hf(const struct sbp_json *config,
                              const struct sbp_import_options *options, struct cJSON **model,
                              struct sbp_diag *diag)
{
    struct gpt2 gpt2 = {0};
    *model = NULL;
    SBP_TRY(check_family(config));
    SBP_TRY(read_sizes(config, &gpt2));
    SBP_TRY(read_constants(config, &gpt2));
    SBP_TRY(read_activation(config, &gpt2));
    SBP_TRY(check_switches(config));
    SBP_TRY(check_options(config, options, &gpt2, diag));
    struct cJSON *made = cJSON_CreateObject();
    enum sbp_status status = SBP_OK;
    if (made == NULL || !fill(made, &gpt2, options))
        status = sbp_fail(diag, SBP_E_MEMORY, "%s: out of memory", config->file);
    else
        status = check_model(made, config->file, diag);
    if (status == SBP_OK)
        *model = made;
    else
        cJSON_Delete(made);
    return status;
}
