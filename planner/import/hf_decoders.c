/* Dense decoders: gpt2, llama and its relatives, gemma. */
#include "planner/import/hf_families_priv.h"

#include <math.h>

#include <cjson/cJSON.h>

static const char *const GELU[] = {"gelu_new", "gelu_pytorch_tanh", "gelu", NULL};
static const char *const SILU[] = {"silu", "swish", NULL};

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
    sbp_import_note_decoder(import);
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
static const struct sbp_import_field QWEN3[] = {DECODER(1e-6), KV_HEADS(32),
                                                MAYBE("head_dim", "head_dim", 128),
                                                SIZE("ffn", "intermediate_size"), END};
static const struct sbp_import_field PHI3[] = {DECODER(1e-5), GROUPED(NAN),
                                               SIZE("ffn", "intermediate_size"),
                                               CHANCE("dropout", "resid_pdrop", 0), END};

static enum sbp_status rest_of_llama(struct sbp_import *import)
{
    sbp_import_note_decoder(import);
    return sbp_import_put_biases(import, false, true);
}

static enum sbp_status rest_of_mistral(struct sbp_import *import)
{
    sbp_import_note_decoder(import);
    return sbp_import_put_window(import, 4096, sbp_import_size(import, "layers"));
}

/* A window only where use_sliding_window asks for one, and not in the first max_window_layers. */
static enum sbp_status put_late_windows(struct sbp_import *import)
{
    struct sbp_json member;
    bool used = false;
    int64_t whole = 28;
    if (sbp_import_given(&import->config, "use_sliding_window", &member))
        SBP_TRY(sbp_json_bool(&member, &used));
    if (!used)
        return SBP_OK;
    if (sbp_import_given(&import->config, "max_window_layers", &member))
        SBP_TRY(sbp_json_int64(&member, 0, SBP_IMPORT_MOST, &whole));
    return sbp_import_put_window(import, 4096, sbp_import_size(import, "layers") - whole);
}

static enum sbp_status rest_of_qwen2(struct sbp_import *import)
{
    sbp_import_note_decoder(import);
    sbp_import_put_flag(import, "qkv_bias", true);
    return put_late_windows(import);
}

static enum sbp_status rest_of_qwen3(struct sbp_import *import)
{
    sbp_import_note_decoder(import);
    sbp_import_put_flag(import, "qk_norm", true);
    SBP_TRY(put_late_windows(import));
    return sbp_import_put_biases(import, false, true);
}

static enum sbp_status rest_of_phi3(struct sbp_import *import)
{
    sbp_import_note_decoder(import);
    return sbp_import_put_window(import, 0, sbp_import_size(import, "layers"));
}

/* ---- gemma ---- */

/* transformers fills in what the published text_config leaves out. */
#define GEMMA(vocabulary)                                                                          \
    SIZE("layers", "num_hidden_layers"), SIZE("hidden", "hidden_size"),                            \
        MAYBE("heads", "num_attention_heads", 8), MAYBE("vocab", "vocab_size", (vocabulary)),      \
        NUMBER("epsilon", "rms_norm_eps", 1e-6),                                                   \
        CHANCE("attention_dropout", "attention_dropout", 0),                                       \
        FLAG("tied", "tie_word_embeddings", 1), KV_HEADS(4), MAYBE("head_dim", "head_dim", 256),   \
        MAYBE("ffn", "intermediate_size", 9216)
static const struct sbp_import_field GEMMA2[] = {GEMMA(256000), END};
static const struct sbp_import_field GEMMA3[] = {GEMMA(262208), END};
static const struct sbp_import_switch GEMMA_SWITCHES[] = {{"use_bidirectional_attention", false},
                                                          {NULL, false}};

static void note_cap(struct sbp_import *import, const char *key, bool absent)
{
    struct sbp_json cap;
    const bool capped =
        sbp_json_has(&import->config, key) ? sbp_import_given(&import->config, key, &cap) : absent;
    if (capped)
        sbp_import_note(import, "%s is left out", key);
}

/* One layer in `period` sees everything, the others a window. */
static enum sbp_status rest_of_gemma(struct sbp_import *import, int64_t period, bool capped)
{
    const int64_t layers = sbp_import_size(import, "layers");
    sbp_import_note_decoder(import);
    sbp_import_put_flag(import, "sandwich_norm", true);
    sbp_import_note(import, "the gate's activation is priced as silu");
    note_cap(import, "attn_logit_softcapping", capped);
    note_cap(import, "final_logit_softcapping", capped);
    SBP_TRY(sbp_import_put_window(import, 4096, layers - layers / period));
    return sbp_import_put_biases(import, false, true);
}

static enum sbp_status rest_of_gemma2(struct sbp_import *import)
{
    return rest_of_gemma(import, 2, true);
}

static enum sbp_status rest_of_gemma3(struct sbp_import *import)
{
    struct sbp_json member;
    int64_t period = 6;
    if (sbp_import_given(&import->config, "sliding_window_pattern", &member) ||
        sbp_import_given(&import->config, "_sliding_window_pattern", &member))
        SBP_TRY(sbp_json_int64(&member, 1, SBP_IMPORT_MOST, &period));
    sbp_import_put_flag(import, "qk_norm", true);
    return rest_of_gemma(import, period, false);
}

/* ---- the table ---- */

const struct sbp_import_family sbp_import_decoders[] = {
    {"gpt2", "gpt", GPT2, GPT2_SWITCHES, GELU, .rest = rest_of_gpt2},
    {"llama", "llama", LLAMA, NULL, SILU, .rest = rest_of_llama},
    {"mistral", "llama", MISTRAL, NULL, SILU, .rest = rest_of_mistral},
    {"qwen2", "llama", QWEN2, NULL, SILU, .rest = rest_of_qwen2},
    {"qwen3", "llama", QWEN3, NULL, SILU, .rest = rest_of_qwen3},
    {"phi3", "llama", PHI3, NULL, SILU, .rest = rest_of_phi3},
    {"gemma2", "llama", GEMMA2, GEMMA_SWITCHES, GELU, .rest = rest_of_gemma2},
    {"gemma3_text", "llama", GEMMA3, GEMMA_SWITCHES, GELU, .rest = rest_of_gemma3},
    {.name = NULL},
};
