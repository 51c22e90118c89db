/* Architectures on tokens: gpt (Radford et al., 2019), llama (Touvron et al., 2023; also Mistral,
 * Qwen, Gemma, Phi), mixtral (Jiang et al., 2024; also Qwen3-MoE, GLM-4.5, Llama 4 and gpt-oss),
 * deepseek (DeepSeek-AI, 2024) and bert (Devlin et al., 2019).
 */
#include "costmodel/model/graph_read_priv.h"
#include "costmodel/model/graph_transformer_priv.h"

#include <stdio.h>

#define OPS_OUTSIDE   8 /* embedding, its norm and dropout, final norm or transform, head, loss */
#define LINEAR_SPREAD 0.02

/* Keys that stand together in the lists of most architectures. */
#define TOKEN_KEYS                                                                                 \
    "vocab", "vocab_multiple", "dropout", "attention_dropout", "context", "tied", "epsilon"

/* The numbers that all these architectures have. */
struct language {
    struct sbp_transformer transformer;
    int64_t vocab, padded_vocab, positions, types;
    bool tied;
};

/* ---- keys ---- */

static enum sbp_status read_vocab(const struct sbp_json *at, struct language *language)
{
    int64_t multiple = 1;
    SBP_TRY(sbp_build_require(at, "vocab", INT32_MAX, &language->vocab)); /* ids are 32-bit */
    SBP_TRY(sbp_json_get_int64(at, "vocab_multiple", 1, INT32_MAX, &multiple));
    language->padded_vocab = (language->vocab + multiple - 1) / multiple * multiple;
    return SBP_OK;
}

static enum sbp_status read_context(const struct sbp_json *at, bool *ring)
{
    static const char *const NAMES[] = {"gather", "ring", NULL};
    int choice = 0;
    SBP_TRY(sbp_json_get_choice(at, "context", NAMES, &choice));
    *ring = choice == 1;
    return SBP_OK;
}

/* Keys that every architecture here has, or leaves at what its reader set before. */
static enum sbp_status read_common(struct sbp_blocks *blocks, int64_t most,
                                   struct language *language)
{
    const struct sbp_json *at = &blocks->at;
    struct sbp_transformer *t = &language->transformer;
    int64_t sequence;
    SBP_TRY(sbp_build_require(at, "sequence", INT32_MAX, &sequence)); /* positions are 32-bit */
    SBP_TRY(sbp_build_require(at, "layers", SBP_MOST_BLOCKS, &t->blocks));
    SBP_TRY(sbp_build_require(at, "hidden", most, &t->hidden));
    SBP_TRY(sbp_build_require(at, "heads", most, &t->heads));
    SBP_TRY(read_vocab(at, language));
    SBP_TRY(sbp_build_probability(at, "dropout", &blocks->dropout));
    SBP_TRY(sbp_build_probability(at, "attention_dropout", &t->attention_dropout));
    SBP_TRY(sbp_json_get_double(at, "epsilon", 1e-30, 1, &blocks->epsilon));
    SBP_TRY(read_context(at, &t->ring));
    return sbp_json_get_bool(at, "tied", &language->tied);
}

static enum sbp_status check_heads(const struct sbp_json *at, const struct sbp_transformer *t)
{
    const struct sbp_json heads = sbp_build_at(at, "heads");
    if (t->hidden % t->heads == 0)
        return SBP_OK;
    return sbp_json_refuse(&heads, "%lld heads do not divide the hidden size %lld",
                           (long long)t->heads, (long long)t->hidden);
}

static enum sbp_status check_positions(const struct sbp_json *at, int64_t positions,
                                       int64_t sequence)
{
    if (positions >= sequence)
        return SBP_OK;
    return SBP_BUILD_REFUSE(at, "positions", "%lld positions are fewer than the sequence's %lld",
                            (long long)positions, (long long)sequence);
}

/* ---- the whole model ---- */

static enum sbp_status open(struct sbp_blocks *blocks, struct sbp_graph *graph,
                            enum sbp_attention_kind attention, const struct language *language)
{
    const int most = OPS_OUTSIDE + SBP_TRANSFORMER_OPS * (int)language->transformer.blocks;
    SBP_TRY(sbp_build_open(&blocks->builder, &blocks->at, graph, most));
    blocks->builder.attention = attention;
    blocks->builder.linear_spread = LINEAR_SPREAD;
    return SBP_OK;
}

static enum sbp_status embed(struct sbp_blocks *blocks, const struct language *language,
                             int *stream)
{
    const struct sbp_build_embedding embedding = {.name = "embedding",
                                                  .vocab = language->padded_vocab,
                                                  .valid_vocab = language->vocab,
                                                  .hidden = language->transformer.hidden,
                                                  .positions = language->positions,
                                                  .types = language->types};
    SBP_TRY(sbp_build_embedding(&blocks->builder, &blocks->at, &embedding));
    *stream = sbp_build_last(&blocks->builder);
    return SBP_OK;
}

static int table_of(const struct sbp_blocks *blocks)
{
    return blocks->builder.graph->op[0].weight[0];
}

/* Embedding, blocks that begin with norms, a norm, the head. */
static enum sbp_status build_decoder(struct sbp_blocks *blocks, const struct language *language)
{
    int stream;
    SBP_TRY(embed(blocks, language, &stream));
    SBP_TRY(sbp_blocks_elementwise(blocks, SBP_OP_DROPOUT, "dropout", &stream));
    SBP_TRY(sbp_transformer_build(blocks, &language->transformer, &stream));
    SBP_TRY(sbp_blocks_norm(blocks, language->transformer.norm, "final_norm", &stream));
    SBP_TRY(sbp_blocks_head(blocks, language->vocab, language->padded_vocab,
                            language->tied ? table_of(blocks) : -1, false, stream));
    return sbp_build_close(&blocks->builder, &blocks->at);
}

/* ---- gpt ---- */

static enum sbp_status read_gpt(struct sbp_blocks *blocks, struct sbp_graph *graph,
                                enum sbp_attention_kind attention)
{
    const struct sbp_json *at = &blocks->at;
    struct language gpt = {.transformer = {.norm = SBP_OP_LAYERNORM,
                                           .attention = SBP_OP_ATTENTION,
                                           .activation = SBP_OP_GELU,
                                           .causal = true},
                           .tied = true};
    struct sbp_transformer *t = &gpt.transformer;
    bool bias = true;
    blocks->epsilon = 1e-5;
    SBP_TRY(read_common(blocks, SBP_MOST_SIZE / 4, &gpt)); /* four times hidden is a size too */
    gpt.positions = graph->sequence;
    SBP_TRY(sbp_json_get_int64(at, "positions", 1, INT32_MAX, &gpt.positions));
    t->ffn = 4 * t->hidden;
    SBP_TRY(sbp_json_get_int64(at, "ffn", 1, SBP_MOST_SIZE, &t->ffn));
    SBP_TRY(sbp_json_get_bool(at, "bias", &bias));
    t->qkv_bias = t->projection_bias = t->ffn_bias = bias;
    SBP_TRY(check_heads(at, t));
    SBP_TRY(check_positions(at, gpt.positions, graph->sequence));
    SBP_TRY(open(blocks, graph, attention, &gpt));
    return build_decoder(blocks, &gpt);
}

const struct sbp_architecture sbp_graph_gpt = {
    "gpt",
    {"layers", "hidden", "heads", "vocab", "vocab_multiple", "positions", "ffn", "dropout",
     "attention_dropout", "context", "tied", "bias", "epsilon"},
    read_gpt};

/* ---- llama, mixtral ---- */

/* Keys of a block with grouped attention, besides those of all architectures. */
#define GROUPED_KEYS                                                                               \
    "kv_heads", "head_dim", "qkv_bias", "projection_bias", "qk_norm", "sandwich_norm", "sinks",    \
        "window", "window_layers"

static enum sbp_status read_window(const struct sbp_json *at, struct sbp_transformer *t)
{
    const struct sbp_json layers = sbp_build_at(at, "window_layers");
    t->windowed_blocks = t->blocks;
    SBP_TRY(sbp_json_get_int64(at, "window", 1, INT32_MAX, &t->window));
    if (t->window == 0 && sbp_json_has(at, "window_layers"))
        return sbp_json_refuse(&layers, "\"window\" says of how many tokens, and is missing");
    return sbp_json_get_int64(at, "window_layers", 1, t->blocks, &t->windowed_blocks);
}

/* kv_heads: as many as heads; head_dim: hidden / heads. */
static enum sbp_status read_grouped(const struct sbp_json *at, struct sbp_transformer *t)
{
    t->kv_heads = t->heads;
    SBP_TRY(sbp_json_get_int64(at, "kv_heads", 1, SBP_MOST_WIDTH, &t->kv_heads));
    if (sbp_json_has(at, "head_dim")) {
        SBP_TRY(sbp_build_require(at, "head_dim", SBP_MOST_WIDTH, &t->head_size));
    } else {
        SBP_TRY(check_heads(at, t));
        t->head_size = t->hidden / t->heads;
    }
    SBP_TRY(sbp_json_get_bool(at, "qkv_bias", &t->qkv_bias));
    SBP_TRY(sbp_json_get_bool(at, "projection_bias", &t->projection_bias));
    SBP_TRY(sbp_json_get_bool(at, "qk_norm", &t->head_norms));
    SBP_TRY(sbp_json_get_bool(at, "sandwich_norm", &t->sandwich_norm));
    SBP_TRY(sbp_json_get_bool(at, "sinks", &t->sinks));
    return read_window(at, t);
}

static struct language modern(enum sbp_op_kind attention)
{
    return (struct language){.transformer = {.norm = SBP_OP_RMSNORM,
                                             .attention = attention,
                                             .activation = SBP_OP_SWIGLU,
                                             .causal = true,
                                             .moe = {.capacity = 1}}};
}

static enum sbp_status read_llama(struct sbp_blocks *blocks, struct sbp_graph *graph,
                                  enum sbp_attention_kind attention)
{
    struct language llama = modern(SBP_OP_GROUPED_ATTENTION);
    struct sbp_transformer *t = &llama.transformer;
    blocks->epsilon = 1e-5;
    SBP_TRY(read_common(blocks, SBP_MOST_WIDTH, &llama));
    SBP_TRY(read_grouped(&blocks->at, t));
    SBP_TRY(sbp_build_require(&blocks->at, "ffn", SBP_MOST_WIDTH, &t->ffn));
    SBP_TRY(sbp_json_get_bool(&blocks->at, "ffn_bias", &t->ffn_bias));
    SBP_TRY(open(blocks, graph, attention, &llama));
    return build_decoder(blocks, &llama);
}

const struct sbp_architecture sbp_graph_llama = {
    "llama",
    {"layers", "hidden", "heads", "ffn", "ffn_bias", GROUPED_KEYS, TOKEN_KEYS},
    read_llama};

/* Experts and how many a token is sent to; `ffn` is the key of an expert's width. */
static enum sbp_status read_experts(const struct sbp_json *at, const char *ffn,
                                    struct sbp_transformer *t)
{
    SBP_TRY(sbp_build_require(at, "experts", SBP_MOST_WIDTH, &t->moe.experts));
    SBP_TRY(sbp_build_require(at, "top_k", SBP_MOST_WIDTH, &t->moe.top_k));
    SBP_TRY(sbp_build_require(at, ffn, SBP_MOST_WIDTH, &t->moe.ffn));
    SBP_TRY(sbp_json_get_double(at, "capacity", 1, 1e6, &t->moe.capacity));
    struct sbp_build_moe router = {.experts = t->moe.experts, .top_k = t->moe.top_k};
    SBP_TRY(sbp_build_read_router(at, &router));
    t->moe.nodes_per_token = router.nodes_per_token;
    t->moe.groups = router.groups;
    t->moe.sigmoid = router.sigmoid;
    t->moe.router_bias = router.router_bias;
    return SBP_OK;
}

static enum sbp_status read_shared(const struct sbp_json *at, struct sbp_transformer *t)
{
    const struct sbp_json dense = sbp_build_at(at, "dense_layers");
    int64_t shared = 0;
    SBP_TRY(sbp_json_get_int64(at, "shared_experts", 0, SBP_MOST_WIDTH, &shared));
    t->moe.shared_ffn = shared * t->moe.ffn;
    SBP_TRY(sbp_json_get_int64(at, "dense_layers", 0, SBP_MOST_BLOCKS, &t->moe.dense));
    if (t->moe.dense > t->blocks)
        return sbp_json_refuse(&dense, "%lld of %lld layers, legal are 0 to %lld",
                               (long long)t->moe.dense, (long long)t->blocks, (long long)t->blocks);
    return SBP_OK;
}

static enum sbp_status read_mixtral(struct sbp_blocks *blocks, struct sbp_graph *graph,
                                    enum sbp_attention_kind attention)
{
    struct language mixtral = modern(SBP_OP_GROUPED_ATTENTION);
    struct sbp_transformer *t = &mixtral.transformer;
    blocks->epsilon = 1e-5;
    SBP_TRY(read_common(blocks, SBP_MOST_WIDTH, &mixtral));
    SBP_TRY(read_grouped(&blocks->at, t));
    SBP_TRY(read_experts(&blocks->at, "ffn", t));
    SBP_TRY(sbp_json_get_bool(&blocks->at, "expert_bias", &t->moe.expert_bias));
    SBP_TRY(read_shared(&blocks->at, t));
    t->moe.every = 1;
    SBP_TRY(sbp_json_get_int64(&blocks->at, "moe_every", 1, t->blocks, &t->moe.every));
    if (t->moe.dense > 0 || t->moe.every > 1)
        SBP_TRY(sbp_build_require(&blocks->at, "dense_ffn", SBP_MOST_WIDTH, &t->ffn));
    SBP_TRY(open(blocks, graph, attention, &mixtral));
    return build_decoder(blocks, &mixtral);
}

const struct sbp_architecture sbp_graph_mixtral = {
    "mixtral",
    {"layers", "hidden", "heads", GROUPED_KEYS, TOKEN_KEYS, "ffn", "experts", "top_k", "capacity",
     "nodes_per_token", "expert_groups", "scoring", "router_bias", "expert_bias", "shared_experts",
     "dense_layers", "dense_ffn", "moe_every"},
    read_mixtral};

/* ---- deepseek ---- */

static enum sbp_status read_latent(const struct sbp_json *at, struct sbp_transformer *t)
{
    SBP_TRY(sbp_json_get_int64(at, "q_rank", 1, SBP_MOST_WIDTH, &t->latent.q_rank));
    SBP_TRY(sbp_build_require(at, "kv_rank", SBP_MOST_WIDTH, &t->latent.kv_rank));
    SBP_TRY(sbp_build_require(at, "nope", SBP_MOST_WIDTH, &t->latent.nope));
    SBP_TRY(sbp_build_require(at, "rope", SBP_MOST_WIDTH, &t->latent.rope));
    return sbp_build_require(at, "value", SBP_MOST_WIDTH, &t->latent.value);
}

static enum sbp_status read_deepseek(struct sbp_blocks *blocks, struct sbp_graph *graph,
                                     enum sbp_attention_kind attention)
{
    struct language deepseek = modern(SBP_OP_LATENT_ATTENTION);
    struct sbp_transformer *t = &deepseek.transformer;
    blocks->epsilon = 1e-6;
    SBP_TRY(read_common(blocks, SBP_MOST_WIDTH, &deepseek));
    SBP_TRY(read_latent(&blocks->at, t));
    SBP_TRY(read_experts(&blocks->at, "expert_ffn", t));
    SBP_TRY(read_shared(&blocks->at, t));
    if (t->moe.dense > 0)
        SBP_TRY(sbp_build_require(&blocks->at, "ffn", SBP_MOST_WIDTH, &t->ffn));
    SBP_TRY(sbp_json_get_bool(&blocks->at, "qkv_bias", &t->qkv_bias));
    SBP_TRY(sbp_json_get_bool(&blocks->at, "projection_bias", &t->projection_bias));
    SBP_TRY(open(blocks, graph, attention, &deepseek));
    return build_decoder(blocks, &deepseek);
}

const struct sbp_architecture sbp_graph_deepseek = {
    "deepseek",
    {"layers",      "hidden",         "heads",    "q_rank",          "kv_rank",       "nope",
     "rope",        "value",          "ffn",      "dense_layers",    "experts",       "top_k",
     "expert_ffn",  "shared_experts", "capacity", "nodes_per_token", "expert_groups", "scoring",
     "router_bias", TOKEN_KEYS,       "qkv_bias", "projection_bias"},
    read_deepseek};

/* ---- bert ---- */

/* Pooler: the first token through a linear and tanh. Without a loss its gradient is fixed. */
static enum sbp_status pool(struct sbp_blocks *blocks, int64_t hidden, int stream)
{
    const struct sbp_blocks_linear linear = {.out = hidden, .bias = true};
    SBP_TRY(sbp_build_first_token(&blocks->builder, &blocks->at, "first_token", stream));
    stream = sbp_build_last(&blocks->builder);
    SBP_TRY(sbp_blocks_linear(blocks, "pooler", linear, &stream));
    return sbp_blocks_elementwise(blocks, SBP_OP_TANH, "tanh", &stream);
}

/* Masked language model: a transform, then the table with a bias of its own. */
static enum sbp_status predict(struct sbp_blocks *blocks, const struct language *bert, int stream)
{
    const struct sbp_blocks_linear linear = {.out = bert->transformer.hidden, .bias = true};
    SBP_TRY(sbp_blocks_linear(blocks, "transform", linear, &stream));
    SBP_TRY(sbp_blocks_elementwise(blocks, SBP_OP_GELU, "transform_gelu", &stream));
    SBP_TRY(sbp_blocks_norm(blocks, SBP_OP_LAYERNORM, "transform_norm", &stream));
    return sbp_blocks_head(blocks, bert->vocab, bert->padded_vocab, table_of(blocks), true, stream);
}

static enum sbp_status read_bert_head(const struct sbp_json *at, bool *masked)
{
    static const char *const HEADS[] = {"pooler", "mlm", NULL};
    int choice = 0;
    SBP_TRY(sbp_json_get_choice(at, "head", HEADS, &choice));
    *masked = choice == 1;
    return SBP_OK;
}

static enum sbp_status read_bert_keys(struct sbp_blocks *blocks, struct language *bert)
{
    const struct sbp_json *at = &blocks->at;
    struct sbp_transformer *t = &bert->transformer;
    SBP_TRY(read_common(blocks, SBP_MOST_WIDTH, bert));
    bert->positions = 512;
    bert->types = 2;
    SBP_TRY(sbp_json_get_int64(at, "positions", 1, INT32_MAX, &bert->positions));
    SBP_TRY(sbp_json_get_int64(at, "types", 1, INT32_MAX, &bert->types));
    t->ffn = 4 * t->hidden;
    SBP_TRY(sbp_json_get_int64(at, "ffn", 1, SBP_MOST_WIDTH, &t->ffn));
    return check_heads(at, t);
}

static enum sbp_status read_bert(struct sbp_blocks *blocks, struct sbp_graph *graph,
                                 enum sbp_attention_kind attention)
{
    struct language bert = {.transformer = {.norm = SBP_OP_LAYERNORM,
                                            .attention = SBP_OP_ATTENTION,
                                            .activation = SBP_OP_GELU,
                                            .post_norm = true,
                                            .qkv_bias = true,
                                            .projection_bias = true,
                                            .ffn_bias = true}};
    bool masked;
    int stream;
    blocks->epsilon = 1e-12;
    SBP_TRY(read_bert_keys(blocks, &bert));
    SBP_TRY(check_positions(&blocks->at, bert.positions, graph->sequence));
    SBP_TRY(read_bert_head(&blocks->at, &masked));
    SBP_TRY(open(blocks, graph, attention, &bert));
    SBP_TRY(embed(blocks, &bert, &stream));
    SBP_TRY(sbp_blocks_norm(blocks, SBP_OP_LAYERNORM, "embedding_norm", &stream));
    SBP_TRY(sbp_blocks_elementwise(blocks, SBP_OP_DROPOUT, "dropout", &stream));
    SBP_TRY(sbp_transformer_build(blocks, &bert.transformer, &stream));
    SBP_TRY(masked ? predict(blocks, &bert, stream)
                   : pool(blocks, bert.transformer.hidden, stream));
    return sbp_build_close(&blocks->builder, &blocks->at);
}

const struct sbp_architecture sbp_graph_bert = {"bert",
                                                {"layers", "hidden", "heads", "ffn", "vocab",
                                                 "vocab_multiple", "positions", "types", "dropout",
                                                 "attention_dropout", "context", "epsilon", "head"},
                                                read_bert};
