/* Decoders with mixtures of experts. */
#include "planner/import/hf_families_priv.h"

#include <math.h>

#include <cjson/cJSON.h>

static const char *const SILU[] = {"silu", "swish", NULL};

/* ---- experts in every layer ---- */

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
static const struct sbp_import_field GPT_OSS[] = {
    DECODER(1e-5),
    KV_HEADS(8),
    MAYBE("head_dim", "head_dim", 64),
    SIZE("ffn", "intermediate_size"),
    SIZE("experts", "num_local_experts", "num_experts"),
    SIZE("top_k", "num_experts_per_tok", "experts_per_token"),
    END};

static enum sbp_status rest_of_mixtral(struct sbp_import *import)
{
    sbp_import_note_decoder(import);
    return sbp_import_put_window(import, 0, sbp_import_size(import, "layers"));
}

static enum sbp_status rest_of_qwen3_moe(struct sbp_import *import)
{
    struct sbp_json dense, use;
    sbp_import_note_decoder(import);
    SBP_TRY(sbp_import_must_be(import, "decoder_sparse_step", 1, "experts in every layer"));
    if (sbp_import_given(&import->config, "mlp_only_layers", &dense) &&
        (!cJSON_IsArray(dense.node) || cJSON_GetArraySize(dense.node) > 0))
        return sbp_json_refuse(&dense, "only [] is supported: experts in every layer");
    sbp_import_put_flag(import, "qk_norm", true);
    if (sbp_import_given(&import->config, "use_sliding_window", &use) && cJSON_IsTrue(use.node))
        SBP_TRY(sbp_import_put_window(import, 4096, sbp_import_size(import, "layers")));
    return sbp_import_put_biases(import, false, true);
}

/* Biases everywhere, sinks, and a window in every other layer. */
static enum sbp_status rest_of_gpt_oss(struct sbp_import *import)
{
    const int64_t layers = sbp_import_size(import, "layers");
    sbp_import_note_decoder(import);
    sbp_import_put_flag(import, "sinks", true);
    sbp_import_put_flag(import, "router_bias", true);
    sbp_import_put_flag(import, "expert_bias", true);
    SBP_TRY(sbp_import_put_window(import, 128, layers - layers / 2));
    return sbp_import_put_biases(import, true, true);
}

/* ---- deepseek ---- */

#define LATENT                                                                                     \
    SIZE("kv_rank", "kv_lora_rank"), SIZE("nope", "qk_nope_head_dim"),                             \
        SIZE("rope", "qk_rope_head_dim"), SIZE("value", "v_head_dim"),                             \
        SIZE("ffn", "intermediate_size"), SIZE("experts", "n_routed_experts"),                     \
        SIZE("top_k", "num_experts_per_tok"), SIZE("expert_ffn", "moe_intermediate_size")
static const struct sbp_import_field DEEPSEEK[] = {DECODER(1e-6), LATENT, END};

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

static void note_predicted(struct sbp_import *import)
{
    struct sbp_json member;
    if (sbp_import_given(&import->config, "num_nextn_predict_layers", &member) &&
        cJSON_IsNumber(member.node) && member.node->valuedouble > 0)
        sbp_import_note(import, "num_nextn_predict_layers %g: multi-token prediction is left out",
                        member.node->valuedouble);
}

/* The router takes a token's experts from some groups of them, which lie on a node each
 * (DeepSeek-V3, section 2.1.2). */
static enum sbp_status put_limited_nodes(struct sbp_import *import)
{
    struct sbp_json member;
    int64_t groups = 1, chosen = 0;
    if (sbp_import_given(&import->config, "n_group", &member))
        SBP_TRY(sbp_json_int64(&member, 1, SBP_IMPORT_MOST, &groups));
    if (sbp_import_given(&import->config, "topk_group", &member))
        SBP_TRY(sbp_json_int64(&member, 1, groups, &chosen));
    if (chosen == 0 || chosen == groups || chosen >= sbp_import_size(import, "top_k"))
        return SBP_OK;
    sbp_import_note(import,
                    "topk_group %lld of n_group %lld: a group of experts is taken to lie "
                    "on one node",
                    (long long)chosen, (long long)groups);
    sbp_import_put_number(import, "nodes_per_token", (double)chosen);
    sbp_import_put_number(import, "expert_groups", (double)groups);
    return SBP_OK;
}

/* Sigmoids of scores, and a bias of the router that balances the loads without a loss (DeepSeek-V3,
 * section 2.1.2). */
static void put_sigmoids(struct sbp_import *import)
{
    sbp_import_put_flag(import, "router_bias", true);
    sbp_import_put_text(import, "scoring", "sigmoid");
}

static enum sbp_status finish_deepseek(struct sbp_import *import, int64_t dense, int64_t shared,
                                       bool sigmoids)
{
    sbp_import_note_decoder(import);
    SBP_TRY(sbp_import_must_be(import, "moe_layer_freq", 1,
                               "experts in every layer after the dense ones"));
    SBP_TRY(put_query_rank(import));
    SBP_TRY(sbp_import_put_count(import, "dense_layers", "first_k_dense_replace", dense));
    SBP_TRY(sbp_import_put_count(import, "shared_experts", "n_shared_experts", shared));
    if (sigmoids)
        put_sigmoids(import);
    else
        sbp_import_put_flag(import, "router_bias", false);
    SBP_TRY(put_limited_nodes(import));
    note_predicted(import);
    return sbp_import_put_biases(import, false, true);
}

static enum sbp_status rest_of_deepseek_v2(struct sbp_import *import)
{
    return finish_deepseek(import, 0, 0, false);
}

static enum sbp_status rest_of_deepseek_v3(struct sbp_import *import)
{
    return finish_deepseek(import, 3, 1, true);
}

/* The published code has other defaults than that of DeepSeek-V3: what it may leave out is asked
 * for. */
static enum sbp_status rest_of_kimi(struct sbp_import *import)
{
    static const char *const KEYS[] = {"first_k_dense_replace", "n_shared_experts"};
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++)
        if (!sbp_json_has(&import->config, KEYS[i]))
            return sbp_json_refuse(&import->config, "key \"%s\" is missing: kimi_k2 needs it",
                                   KEYS[i]);
    return finish_deepseek(import, 0, 0, true);
}

/* ---- experts in some layers, and shared ones ---- */

static const struct sbp_import_field GLM4_MOE[] = {DECODER(1e-5),
                                                   GROUPED(8),
                                                   SIZE("ffn", "moe_intermediate_size"),
                                                   SIZE("dense_ffn", "intermediate_size"),
                                                   SIZE("experts", "n_routed_experts"),
                                                   SIZE("top_k", "num_experts_per_tok"),
                                                   FLAG("qk_norm", "use_qk_norm", 0),
                                                   END};
static const struct sbp_import_field LLAMA4[] = {DECODER(1e-5),
                                                 KV_HEADS(8),
                                                 MAYBE("head_dim", "head_dim", 128),
                                                 SIZE("ffn", "intermediate_size"),
                                                 MAYBE("dense_ffn", "intermediate_size_mlp", 16384),
                                                 MAYBE("experts", "num_local_experts", 16),
                                                 MAYBE("top_k", "num_experts_per_tok", 1),
                                                 END};

/* The projection has no bias. */
static enum sbp_status rest_of_glm4_moe(struct sbp_import *import)
{
    sbp_import_note_decoder(import);
    SBP_TRY(sbp_import_put_count(import, "dense_layers", "first_k_dense_replace", 1));
    SBP_TRY(sbp_import_put_count(import, "shared_experts", "n_shared_experts", 1));
    put_sigmoids(import);
    note_predicted(import);
    return sbp_import_put_biases(import, false, false);
}

/* Which layers have experts, where a list says it: every step-th one alone is supported. */
static enum sbp_status read_moe_layers(const struct sbp_json *list, int64_t layers, int64_t *step)
{
    struct sbp_json layer;
    int64_t number;
    int count;
    SBP_TRY(sbp_json_length(list, &count));
    for (int i = 0; i < count; i++) {
        SBP_TRY(sbp_json_element(list, i, &layer));
        SBP_TRY(sbp_json_int64(&layer, 0, layers - 1, &number));
        if (i == 0)
            *step = number + 1;
        if (number != (i + 1) * *step - 1)
            return sbp_json_refuse(&layer,
                                   "%lld is not supported, supported is %lld: every %lld. "
                                   "layer has experts",
                                   (long long)number, (long long)((i + 1) * *step - 1),
                                   (long long)*step);
    }
    if (count == 0 || count != layers / *step)
        return sbp_json_refuse(list, "names %d of %lld layers, supported is every Nth", count,
                               (long long)layers);
    return SBP_OK;
}

static enum sbp_status put_moe_every(struct sbp_import *import)
{
    struct sbp_json member;
    int64_t step = 1;
    if (sbp_import_given(&import->config, "moe_layers", &member))
        SBP_TRY(read_moe_layers(&member, sbp_import_size(import, "layers"), &step));
    else if (sbp_import_given(&import->config, "interleave_moe_layer_step", &member))
        SBP_TRY(sbp_json_int64(&member, 1, sbp_import_size(import, "layers"), &step));
    sbp_import_put_number(import, "moe_every", (double)step);
    return SBP_OK;
}

/* Three layers in four attend within chunks, and normalise queries and keys without weights. */
static enum sbp_status rest_of_llama4(struct sbp_import *import)
{
    struct sbp_json member;
    int64_t chunk = 8192;
    sbp_import_note_decoder(import);
    SBP_TRY(put_moe_every(import));
    sbp_import_put_number(import, "shared_experts", 1);
    if (!sbp_import_given(&import->config, "use_qk_norm", &member) || cJSON_IsTrue(member.node))
        sbp_import_note(import, "use_qk_norm has no weights, and is left out");
    if (sbp_import_given(&import->config, "attention_chunk_size", &member))
        SBP_TRY(sbp_json_int64(&member, 1, SBP_IMPORT_MOST, &chunk));
    if (import->sequence > chunk)
        sbp_import_note(import, "attention_chunk_size %lld: attention over everything is assumed",
                        (long long)chunk);
    return sbp_import_put_biases(import, false, true);
}

/* ---- the table ---- */

const struct sbp_import_family sbp_import_mixtures[] = {
    {"mixtral", "mixtral", MIXTRAL, NULL, SILU, .rest = rest_of_mixtral},
    {"qwen3_moe", "mixtral", QWEN3_MOE, NULL, SILU, .rest = rest_of_qwen3_moe},
    {"gpt_oss", "mixtral", GPT_OSS, NULL, SILU, .rest = rest_of_gpt_oss},
    {"glm4_moe", "mixtral", GLM4_MOE, NULL, SILU, .rest = rest_of_glm4_moe},
    {"llama4_text", "mixtral", LLAMA4, NULL, SILU, .rest = rest_of_llama4},
    {"deepseek_v2", "deepseek", DEEPSEEK, NULL, SILU, .rest = rest_of_deepseek_v2},
    {"deepseek_v3", "deepseek", DEEPSEEK, NULL, SILU, .rest = rest_of_deepseek_v3},
    {"kimi_k2", "deepseek", DEEPSEEK, NULL, SILU, .rest = rest_of_kimi},
    {.name = NULL},
};
