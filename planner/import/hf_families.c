#include "planner/import/hf_families_priv.h"

#include <math.h>
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
    char text[256];
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

/* Defaults are those of transformers' configuration classes. */
#define SIZE(ours, ...)                                                                            \
    {                                                                                              \
        ours, {__VA_ARGS__}, SBP_IMPORT_SIZE, true, NAN                                            \
    }
#define MAYBE(ours, key, a)                                                                        \
    {                                                                                              \
        ours, {key}, SBP_IMPORT_SIZE, false, (a)                                                   \
    }
/* Where the config says null, the model file's default holds. */
#define COUNT_OF(ours, key, a)                                                                     \
    {                                                                                              \
        ours, {key}, SBP_IMPORT_SIZE_OR_NULL, false, (a)                                           \
    }
#define NUMBER(ours, key, a)                                                                       \
    {                                                                                              \
        ours, {key}, SBP_IMPORT_NUMBER, false, (a)                                                 \
    }
#define CHANCE(ours, key, a)                                                                       \
    {                                                                                              \
        ours, {key}, SBP_IMPORT_PROBABILITY, false, (a)                                            \
    }
#define FLAG(ours, key, a)                                                                         \
    {                                                                                              \
        ours, {key}, SBP_IMPORT_FLAG, false, (a)                                                   \
    }
#define END                                                                                        \
    {                                                                                              \
        NULL, {NULL}, SBP_IMPORT_SIZE, false, NAN                                                  \
    }

static const char *const GELU[] = {"gelu_new", "gelu_pytorch_tanh", "gelu", NULL};
static const char *const SILU[] = {"silu", "swish", NULL};
static const char *const RELU[] = {"relu", NULL};
static const struct sbp_import_switch NO_SWITCHES[] = {{NULL, false}};

/* ---- shared ---- */

/* Fields of every decoder of tokens with rotated positions. */
#define DECODER(norm_epsilon)                                                                      \
    SIZE("layers", "num_hidden_layers", "n_layer", "num_layers"),                                  \
        SIZE("hidden", "hidden_size", "n_embd", "d_model"),                                        \
        SIZE("heads", "num_attention_heads", "n_head"), SIZE("vocab", "vocab_size"),               \
        NUMBER("epsilon", "rms_norm_eps", norm_epsilon),                                           \
        CHANCE("attention_dropout", "attention_dropout", 0),                                       \
        FLAG("tied", "tie_word_embeddings", 0)
/* Heads of keys and values: as many as heads of queries where the config says null; `absent` where
 * it has no such key (NAN: as many as heads of queries). */
#define KV_HEADS(absent)  COUNT_OF("kv_heads", "num_key_value_heads", (absent))
#define GROUPED(kv_heads) KV_HEADS(kv_heads), MAYBE("head_dim", "head_dim", NAN)

/* The number of classes of the head, from their names or from their count. */
static enum sbp_status put_classes(struct sbp_import *import)
{
    struct sbp_json member;
    int64_t classes;
    if (sbp_import_given(&import->config, "id2label", &member)) {
        if (!cJSON_IsObject(member.node) || member.node->child == NULL)
            return sbp_json_refuse(&member, "expected an object with a name for each class");
        classes = cJSON_GetArraySize(member.node);
    } else if (sbp_import_given(&import->config, "num_labels", &member)) {
        SBP_TRY(sbp_json_int64(&member, 1, SBP_IMPORT_MOST, &classes));
    } else {
        return sbp_json_refuse(&import->config,
                               "key \"id2label\" (or \"num_labels\") is missing: the classes of "
                               "the head; supported are models with one");
    }
    sbp_import_put_number(import, "classes", (double)classes);
    return SBP_OK;
}

/* The library's class that the config was written for; "" where it names none. */
static const char *class_of(const struct sbp_import *import)
{
    struct sbp_json member;
    if (!sbp_import_given(&import->config, "architectures", &member) || !cJSON_IsArray(member.node))
        return "";
    const char *name = cJSON_GetStringValue(cJSON_GetArrayItem(member.node, 0));
    return name == NULL ? "" : name;
}

static void note_other_head(struct sbp_import *import, const char *taken)
{
    const char *name = class_of(import);
    if (name[0] != '\0')
        sbp_import_note(import, "%.60s: taken as %s", name, taken);
}

/* Decoders are imported as language models, whatever head the published weights have. */
static void note_decoder(struct sbp_import *import)
{
    const char *name = class_of(import), *causal = "CausalLM", *gpt2 = "LMHeadModel";
    if (strstr(name, causal) == NULL && strstr(name, gpt2) == NULL)
        note_other_head(import, "a language model, with the head over its vocabulary");
}

/* Notes that attention over a window is priced as full attention. used: the default where the key
 * use_sliding_window is missing. */
static void note_window(struct sbp_import *import, bool used)
{
    struct sbp_json window, use;
    if (!sbp_import_given(&import->config, "sliding_window", &window))
        return;
    if (sbp_import_given(&import->config, "use_sliding_window", &use))
        used = cJSON_IsTrue(use.node);
    if (used && cJSON_IsNumber(window.node))
        sbp_import_note(import, "sliding_window %g: attention over everything is assumed",
                        window.node->valuedouble);
}

/* One key decides the biases of queries, keys, values and the projection. */
static enum sbp_status put_biases(struct sbp_import *import)
{
    bool bias = false;
    struct sbp_json member;
    if (sbp_import_given(&import->config, "attention_bias", &member))
        SBP_TRY(sbp_json_bool(&member, &bias));
    sbp_import_put_flag(import, "qkv_bias", bias);
    sbp_import_put_flag(import, "projection_bias", bias);
    return SBP_OK;
}

/* ---- gpt2 ---- */

static const struct sbp_import_field GPT2[] = {
    SIZE("layers", "n_layer", "num_hidden_layers"),
    SIZE("hidden", "n_embd", "hidden_size"),
    SIZE("heads", "n_head", "num_attention_heads"),
    SIZE("vocab", "vocab_size"),
    SIZE("positions", "n_positions", "max_position_embeddings", "n_ctx"),
    NUMBER("epsilon", "layer_norm_epsilon", 1e-5),
    CHANCE("dropout", "resid_pdrop", 0.1),
    CHANCE("attention_dropout", "attn_pdrop", 0.1),
    FLAG("tied", "tie_word_embeddings", 1),
    END};
static const struct sbp_import_switch GPT2_SWITCHES[] = {{"scale_attn_weights", true},
                                                         {"scale_attn_by_inverse_layer_idx", false},
                                                         {"add_cross_attention", false},
                                                         {NULL, false}};

static enum sbp_status rest_of_gpt2(struct sbp_import *import)
{
    const struct cJSON *hidden = cJSON_GetObjectItemCaseSensitive(import->model, "hidden");
    const struct cJSON *residual = cJSON_GetObjectItemCaseSensitive(import->model, "dropout");
    struct sbp_json member;
    double embedding = 0.1;
    int64_t ffn = hidden == NULL ? 0 : 4 * (int64_t)hidden->valuedouble;
    if (sbp_import_given(&import->config, "n_inner", &member))
        SBP_TRY(sbp_json_int64(&member, 1, SBP_IMPORT_MOST, &ffn));
    sbp_import_put_number(import, "ffn", (double)ffn);
    note_decoder(import);
    if (sbp_import_given(&import->config, "embd_pdrop", &member))
        SBP_TRY(sbp_json_double(&member, 0, 1, &embedding));
    if (residual != NULL && embedding != residual->valuedouble)
        sbp_import_note(import, "embd_pdrop %g: taken as resid_pdrop, %g", embedding,
                        residual->valuedouble);
    return SBP_OK;
}

/* ---- llama and its relatives ---- */

static const struct sbp_import_field LLAMA[] = {DECODER(1e-6), GROUPED(NAN),
                                                SIZE("ffn", "intermediate_size"),
                                                FLAG("ffn_bias", "mlp_bias", 0), END};
static const struct sbp_import_field MISTRAL[] = {DECODER(1e-6), GROUPED(8),
                                                  SIZE("ffn", "intermediate_size"), END};
static const struct sbp_import_field QWEN2[] = {DECODER(1e-6), GROUPED(32),
                                                SIZE("ffn", "intermediate_size"), END};

static enum sbp_status rest_of_llama(struct sbp_import *import)
{
    note_decoder(import);
    note_window(import, false);
    return put_biases(import);
}

static enum sbp_status rest_of_mistral(struct sbp_import *import)
{
    note_decoder(import);
    note_window(import, true);
    return SBP_OK;
}

static enum sbp_status rest_of_qwen2(struct sbp_import *import)
{
    note_decoder(import);
    note_window(import, false);
    sbp_import_put_flag(import, "qkv_bias", true);
    return SBP_OK;
}

static const struct sbp_import_field QWEN3[] = {DECODER(1e-6), KV_HEADS(32),
                                                MAYBE("head_dim", "head_dim", 128),
                                                SIZE("ffn", "intermediate_size"), END};

static enum sbp_status rest_of_qwen3(struct sbp_import *import)
{
    sbp_import_put_flag(import, "qk_norm", true);
    return rest_of_llama(import);
}

/* ---- mixtures ---- */

static const struct sbp_import_field MIXTRAL[] = {
    DECODER(1e-5),
    GROUPED(8),
    SIZE("ffn", "intermediate_size"),
    SIZE("experts", "num_local_experts", "num_experts"),
    SIZE("top_k", "num_experts_per_tok", "num_experts_per_token"),
    END};

static const struct sbp_import_field QWEN3_MOE[] = {
    DECODER(1e-6),
    GROUPED(4),
    SIZE("ffn", "moe_intermediate_size"),
    SIZE("experts", "num_experts", "num_local_experts"),
    SIZE("top_k", "num_experts_per_tok"),
    END};

/* Refuses any value of the key but one. */
static enum sbp_status must_be(struct sbp_import *import, const char *key, int64_t value,
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

static enum sbp_status rest_of_qwen3_moe(struct sbp_import *import)
{
    struct sbp_json dense;
    SBP_TRY(must_be(import, "decoder_sparse_step", 1, "experts in every layer"));
    if (sbp_import_given(&import->config, "mlp_only_layers", &dense) &&
        (!cJSON_IsArray(dense.node) || cJSON_GetArraySize(dense.node) > 0))
        return sbp_json_refuse(&dense, "only [] is supported: experts in every layer");
    return rest_of_qwen3(import);
}

/* ---- deepseek ---- */

#define LATENT                                                                                     \
    SIZE("kv_rank", "kv_lora_rank"), SIZE("nope", "qk_nope_head_dim"),                             \
        SIZE("rope", "qk_rope_head_dim"), SIZE("value", "v_head_dim"),                             \
        SIZE("ffn", "intermediate_size"), SIZE("experts", "n_routed_experts"),                     \
        SIZE("top_k", "num_experts_per_tok"), SIZE("expert_ffn", "moe_intermediate_size")
static const struct sbp_import_field DEEPSEEK[] = {DECODER(1e-6), LATENT, END};

static enum sbp_status put_count(struct sbp_import *import, const char *ours, const char *theirs,
                                 int64_t absent)
{
    struct sbp_json member;
    int64_t value = absent;
    if (sbp_import_given(&import->config, theirs, &member))
        SBP_TRY(sbp_json_int64(&member, 0, SBP_IMPORT_MOST, &value));
    sbp_import_put_number(import, ours, (double)value);
    return SBP_OK;
}

/* Queries are compressed to a rank, unless the rank is null. */
static enum sbp_status put_query_rank(struct sbp_import *import)
{
    struct sbp_json member;
    int64_t rank = 1536;
    if (sbp_import_given(&import->config, "q_lora_rank", &member))
        SBP_TRY(sbp_json_int64(&member, 1, SBP_IMPORT_MOST, &rank));
    else if (sbp_json_has(&import->config, "q_lora_rank"))
        return SBP_OK;
    sbp_import_put_number(import, "q_rank", (double)rank);
    return SBP_OK;
}

static enum sbp_status rest_of_deepseek(struct sbp_import *import)
{
    const bool third = strcmp(import->family->name, "deepseek_v3") == 0;
    struct sbp_json member;
    int64_t predicted = 0;
    note_decoder(import);
    SBP_TRY(must_be(import, "moe_layer_freq", 1, "experts in every layer after the dense ones"));
    SBP_TRY(put_query_rank(import));
    SBP_TRY(put_count(import, "dense_layers", "first_k_dense_replace", third ? 3 : 0));
    SBP_TRY(put_count(import, "shared_experts", "n_shared_experts", third ? 1 : 0));
    /* A bias balances the loads without a loss (DeepSeek-V3, section 2.1.2). */
    sbp_import_put_flag(import, "router_bias", third);
    if (sbp_import_given(&import->config, "num_nextn_predict_layers", &member))
        SBP_TRY(sbp_json_int64(&member, 0, SBP_IMPORT_MOST, &predicted));
    if (predicted > 0)
        sbp_import_note(import, "num_nextn_predict_layers %lld: multi-token prediction is left out",
                        (long long)predicted);
    return put_biases(import);
}

/* ---- bert ---- */

static const struct sbp_import_field BERT[] = {
    SIZE("layers", "num_hidden_layers"),
    SIZE("hidden", "hidden_size"),
    SIZE("heads", "num_attention_heads"),
    SIZE("ffn", "intermediate_size"),
    SIZE("vocab", "vocab_size"),
    SIZE("positions", "max_position_embeddings"),
    MAYBE("types", "type_vocab_size", 2),
    NUMBER("epsilon", "layer_norm_eps", 1e-12),
    CHANCE("dropout", "hidden_dropout_prob", 0.1),
    CHANCE("attention_dropout", "attention_probs_dropout_prob", 0.1),
    END};
static const struct sbp_import_switch BERT_SWITCHES[] = {
    {"is_decoder", false}, {"add_cross_attention", false}, {NULL, false}};

/* In model files the last layer of a masked language model shares the embedding's table. */
static enum sbp_status must_be_tied(const struct sbp_import *import)
{
    struct sbp_json member;
    bool tied = true;
    if (sbp_import_given(&import->config, "tie_word_embeddings", &member))
        SBP_TRY(sbp_json_bool(&member, &tied));
    return tied ? SBP_OK
                : sbp_json_refuse(&member, "false is not supported for a masked language model, "
                                           "supported is true");
}

/* Takes the head of the published weights; where none is named, the encoder and its pooler. */
static enum sbp_status rest_of_bert(struct sbp_import *import)
{
    struct sbp_json member;
    const char *head = "pooler";
    if (sbp_import_given(&import->config, "position_embedding_type", &member)) {
        const char *type;
        SBP_TRY(sbp_json_string(&member, &type));
        if (strcmp(type, "absolute") != 0)
            return sbp_json_refuse(&member, "\"%.40s\" is not supported, supported is absolute",
                                   type);
    }
    const char *name = class_of(import);
    if (strcmp(name, "BertForPreTraining") == 0)
        sbp_import_note(import, "BertForPreTraining: next sentence prediction is left out");
    else if (strcmp(name, "BertForMaskedLM") != 0 && strcmp(name, "BertModel") != 0)
        note_other_head(import, "the encoder and its pooler");
    if (strcmp(name, "BertForMaskedLM") == 0 || strcmp(name, "BertForPreTraining") == 0) {
        head = "mlm";
        SBP_TRY(must_be_tied(import));
    }
    sbp_import_put_text(import, "head", head);
    return SBP_OK;
}

/* ---- images ---- */

static const struct sbp_import_field VIT[] = {
    SIZE("layers", "num_hidden_layers"),
    SIZE("hidden", "hidden_size"),
    SIZE("heads", "num_attention_heads"),
    SIZE("ffn", "intermediate_size"),
    MAYBE("image", "image_size", 224),
    MAYBE("patch", "patch_size", 16),
    MAYBE("channels", "num_channels", 3),
    NUMBER("epsilon", "layer_norm_eps", 1e-12),
    CHANCE("dropout", "hidden_dropout_prob", 0),
    CHANCE("attention_dropout", "attention_probs_dropout_prob", 0),
    FLAG("qkv_bias", "qkv_bias", 1),
    END};

static const struct sbp_import_field RESNET[] = {MAYBE("channels", "num_channels", 3), END};
static const struct sbp_import_switch RESNET_SWITCHES[] = {
    {"downsample_in_first_stage", false}, {"downsample_in_bottleneck", false}, {NULL, false}};

static bool same_list(const struct cJSON *list, const int *values, int count)
{
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != count)
        return false;
    for (int i = 0; i < count; i++) {
        const struct cJSON *element = cJSON_GetArrayItem(list, i);
        if (!cJSON_IsNumber(element) || element->valuedouble != values[i])
            return false;
    }
    return true;
}

/* Finds the published depth with these blocks, their kind and their widths. */
static enum sbp_status rest_of_resnet(struct sbp_import *import)
{
    static const struct {
        int depth, blocks[4];
        bool basic;
    } DEPTHS[] = {{18, {2, 2, 2, 2}, true},
                  {34, {3, 4, 6, 3}, true},
                  {50, {3, 4, 6, 3}, false},
                  {101, {3, 4, 23, 3}, false},
                  {152, {3, 8, 36, 3}, false}};
    static const int WIDTHS[2][4] = {{256, 512, 1024, 2048}, {64, 128, 256, 512}};
    struct sbp_json depths, widths, type;
    const char *layer = "bottleneck";
    SBP_TRY(sbp_json_member(&import->config, "depths", &depths));
    SBP_TRY(sbp_json_member(&import->config, "hidden_sizes", &widths));
    if (sbp_import_given(&import->config, "layer_type", &type))
        SBP_TRY(sbp_json_string(&type, &layer));
    SBP_TRY(must_be(import, "embedding_size", 64, "a published size"));
    const bool basic = strcmp(layer, "basic") == 0;
    if (!basic && strcmp(layer, "bottleneck") != 0)
        return sbp_json_refuse(&type,
                               "\"%.40s\" is not supported, supported are basic and "
                               "bottleneck",
                               layer);
    if (!same_list(widths.node, WIDTHS[basic ? 1 : 0], 4))
        return sbp_json_refuse(&widths, "supported are the published widths of %s layers", layer);
    for (size_t i = 0; i < sizeof DEPTHS / sizeof DEPTHS[0]; i++)
        if (DEPTHS[i].basic == basic && same_list(depths.node, DEPTHS[i].blocks, 4)) {
            sbp_import_put_number(import, "depth", DEPTHS[i].depth);
            return put_classes(import);
        }
    return sbp_json_refuse(&depths,
                           "no published depth of %s layers, supported are those of "
                           "ResNet-18, 34, 50, 101 and 152",
                           layer);
}

/* ---- the table ---- */

const struct sbp_import_family sbp_import_families[] = {
    {"gpt2", "gpt", GPT2, GPT2_SWITCHES, GELU, false, rest_of_gpt2},
    {"llama", "llama", LLAMA, NO_SWITCHES, SILU, false, rest_of_llama},
    {"mistral", "llama", MISTRAL, NO_SWITCHES, SILU, false, rest_of_mistral},
    {"qwen2", "llama", QWEN2, NO_SWITCHES, SILU, false, rest_of_qwen2},
    {"qwen3", "llama", QWEN3, NO_SWITCHES, SILU, false, rest_of_qwen3},
    {"mixtral", "mixtral", MIXTRAL, NO_SWITCHES, SILU, false, rest_of_mistral},
    {"qwen3_moe", "mixtral", QWEN3_MOE, NO_SWITCHES, SILU, false, rest_of_qwen3_moe},
    {"deepseek_v2", "deepseek", DEEPSEEK, NO_SWITCHES, SILU, false, rest_of_deepseek},
    {"deepseek_v3", "deepseek", DEEPSEEK, NO_SWITCHES, SILU, false, rest_of_deepseek},
    {"bert", "bert", BERT, BERT_SWITCHES, GELU, false, rest_of_bert},
    {"vit", "vit", VIT, NO_SWITCHES, GELU, true, put_classes},
    {"resnet", "resnet", RESNET, RESNET_SWITCHES, RELU, true, rest_of_resnet},
};
const int sbp_import_family_count =
    (int)(sizeof sbp_import_families / sizeof sbp_import_families[0]);
