#include "costmodel/model/graph_transformer_priv.h"

#include <stdio.h>

/* ---- attention ---- */

/* A file says how many layers have the window: they lie evenly among all. */
static bool is_windowed(const struct sbp_blocks *blocks, const struct sbp_transformer *t)
{
    return (blocks->number + 1) * t->windowed_blocks / t->blocks >
           blocks->number * t->windowed_blocks / t->blocks;
}

static enum sbp_status attend(struct sbp_blocks *blocks, const struct sbp_transformer *t,
                              const int input[SBP_MAX_INPUTS], int *stream)
{
    char name[SBP_OP_NAME_BYTES];
    (void)snprintf(name, sizeof name, "%sattention", blocks->prefix);
    struct sbp_build_attention attention = {.name = name,
                                            .kind = t->attention,
                                            .heads = t->heads,
                                            .kv_heads = t->kv_heads,
                                            .head_size = t->head_size,
                                            .nope = t->latent.nope,
                                            .rope = t->latent.rope,
                                            .value = t->latent.value,
                                            .dropout = t->attention_dropout,
                                            .window = t->window,
                                            .causal = t->causal,
                                            .ring = t->ring,
                                            .sinks = t->sinks};
    if (t->window > 0)
        attention.windowed = (double)t->windowed_blocks / (double)t->blocks;
    if (is_windowed(blocks, t))
        attention.own_window = t->window;
    for (int i = 0; i < SBP_MAX_INPUTS; i++)
        attention.input[i] = input[i];
    SBP_TRY(sbp_build_attention(&blocks->builder, &blocks->at, &attention));
    *stream = sbp_build_last(&blocks->builder);
    return SBP_OK;
}

static enum sbp_status packed_attention(struct sbp_blocks *blocks, const struct sbp_transformer *t,
                                        int *stream)
{
    const struct sbp_blocks_linear qkv = {
        .out = 3 * t->hidden, .heads = t->heads, .bias = t->qkv_bias};
    SBP_TRY(sbp_blocks_linear(blocks, "qkv", qkv, stream));
    const int input[SBP_MAX_INPUTS] = {*stream};
    return attend(blocks, t, input, stream);
}

/* Norm of the first head_size features of each head, where the model has one. */
static enum sbp_status head_norm(struct sbp_blocks *blocks, const struct sbp_transformer *t,
                                 const char *part, int *stream)
{
    char name[SBP_OP_NAME_BYTES];
    if (!t->head_norms)
        return SBP_OK;
    (void)snprintf(name, sizeof name, "%s%s", blocks->prefix, part);
    SBP_TRY(sbp_build_head_norm(&blocks->builder, &blocks->at, name, *stream, t->head_size,
                                blocks->epsilon));
    *stream = sbp_build_last(&blocks->builder);
    return SBP_OK;
}

/* Places in the sequence turn the first `size` features of each head. */
static enum sbp_status rotary(struct sbp_blocks *blocks, int64_t size, const char *part,
                              int *stream)
{
    char name[SBP_OP_NAME_BYTES];
    (void)snprintf(name, sizeof name, "%s%s", blocks->prefix, part);
    SBP_TRY(sbp_build_rotary(&blocks->builder, &blocks->at, name, *stream, size));
    *stream = sbp_build_last(&blocks->builder);
    return SBP_OK;
}

static enum sbp_status grouped_attention(struct sbp_blocks *blocks, const struct sbp_transformer *t,
                                         int *stream)
{
    int input[SBP_MAX_INPUTS] = {*stream, *stream};
    const struct sbp_blocks_linear q = {
        .out = t->heads * t->head_size, .heads = t->heads, .bias = t->qkv_bias};
    const struct sbp_blocks_linear kv = {
        .out = 2 * t->kv_heads * t->head_size, .heads = t->kv_heads, .bias = t->qkv_bias};
    SBP_TRY(sbp_blocks_linear(blocks, "q", q, &input[0]));
    SBP_TRY(head_norm(blocks, t, "q_norm", &input[0]));
    SBP_TRY(rotary(blocks, t->head_size, "q_rotary", &input[0]));
    SBP_TRY(sbp_blocks_linear(blocks, "kv", kv, &input[1]));
    SBP_TRY(head_norm(blocks, t, "k_norm", &input[1]));
    SBP_TRY(rotary(blocks, t->head_size, "k_rotary", &input[1]));
    return attend(blocks, t, input, stream);
}

/* Queries, keys and values out of low-rank vectors, each with a norm; the keys' rotary part comes
 * straight from the stream, one for all heads, and is rotated where attention reads it. Of a head
 * of queries it is the first features. */
static enum sbp_status latent_attention(struct sbp_blocks *blocks, const struct sbp_transformer *t,
                                        int *stream)
{
    int input[SBP_MAX_INPUTS] = {*stream, *stream, *stream};
    const struct sbp_blocks_linear q_up = {.out = t->heads * (t->latent.nope + t->latent.rope),
                                           .heads = t->heads};
    const struct sbp_blocks_linear kv_up = {.out = t->heads * (t->latent.nope + t->latent.value),
                                            .heads = t->heads};
    const struct sbp_blocks_linear q_down = {.out = t->latent.q_rank, .bias = t->qkv_bias};
    const struct sbp_blocks_linear kv_down = {.out = t->latent.kv_rank, .bias = t->qkv_bias};
    const struct sbp_blocks_linear k_rope = {.out = t->latent.rope, .bias = t->qkv_bias};
    if (t->latent.q_rank > 0) {
        SBP_TRY(sbp_blocks_linear(blocks, "q_down", q_down, &input[0]));
        SBP_TRY(sbp_blocks_norm(blocks, t->norm, "q_norm", &input[0]));
    }
    SBP_TRY(sbp_blocks_linear(blocks, "q_up", q_up, &input[0]));
    SBP_TRY(rotary(blocks, t->latent.rope, "q_rotary", &input[0]));
    SBP_TRY(sbp_blocks_linear(blocks, "kv_down", kv_down, &input[1]));
    SBP_TRY(sbp_blocks_norm(blocks, t->norm, "kv_norm", &input[1]));
    SBP_TRY(sbp_blocks_linear(blocks, "kv_up", kv_up, &input[1]));
    SBP_TRY(sbp_blocks_linear(blocks, "k_rope", k_rope, &input[2]));
    return attend(blocks, t, input, stream);
}

/* ---- feed-forward ---- */

static enum sbp_status feed_forward(struct sbp_blocks *blocks, const struct sbp_transformer *t,
                                    int64_t ffn, int *stream)
{
    const bool gated = t->activation == SBP_OP_SWIGLU;
    const struct sbp_blocks_linear up = {.out = gated ? 2 * ffn : ffn,
                                         .heads = gated ? ffn : 0,
                                         .bias = t->ffn_bias,
                                         .out_class = "ffn"};
    const struct sbp_blocks_linear down = {.out = t->hidden, .bias = t->ffn_bias};
    SBP_TRY(sbp_blocks_linear(blocks, gated ? "gate_up" : "up", up, stream));
    SBP_TRY(sbp_blocks_elementwise(blocks, t->activation, sbp_op(t->activation)->name, stream));
    return sbp_blocks_linear(blocks, "down", down, stream);
}

/* Experts that the router chooses, and beside them one that is shared. */
static enum sbp_status experts(struct sbp_blocks *blocks, const struct sbp_transformer *t,
                               int *stream)
{
    char name[SBP_OP_NAME_BYTES];
    int shared = *stream;
    (void)snprintf(name, sizeof name, "%smoe", blocks->prefix);
    const struct sbp_build_moe moe = {.name = name,
                                      .input = *stream,
                                      .experts = t->moe.experts,
                                      .top_k = t->moe.top_k,
                                      .ffn = t->moe.ffn,
                                      .capacity = t->moe.capacity,
                                      .nodes_per_token = t->moe.nodes_per_token,
                                      .groups = t->moe.groups,
                                      .sigmoid = t->moe.sigmoid,
                                      .gated = t->activation == SBP_OP_SWIGLU,
                                      .router_bias = t->moe.router_bias,
                                      .expert_bias = t->moe.expert_bias};
    SBP_TRY(sbp_build_moe(&blocks->builder, &blocks->at, &moe));
    *stream = sbp_build_last(&blocks->builder);
    if (t->moe.shared_ffn == 0)
        return SBP_OK;
    SBP_TRY(feed_forward(blocks, t, t->moe.shared_ffn, &shared));
    return sbp_blocks_add(blocks, "add_shared", shared, stream);
}

/* ---- blocks ---- */

static enum sbp_status attention_half(struct sbp_blocks *blocks, const struct sbp_transformer *t,
                                      int *stream)
{
    const struct sbp_blocks_linear projection = {.out = t->hidden, .bias = t->projection_bias};
    int branch = *stream;
    if (!t->post_norm)
        SBP_TRY(sbp_blocks_norm(blocks, t->norm, "norm1", &branch));
    if (t->attention == SBP_OP_ATTENTION)
        SBP_TRY(packed_attention(blocks, t, &branch));
    else if (t->attention == SBP_OP_GROUPED_ATTENTION)
        SBP_TRY(grouped_attention(blocks, t, &branch));
    else
        SBP_TRY(latent_attention(blocks, t, &branch));
    SBP_TRY(sbp_blocks_linear(blocks, "projection", projection, &branch));
    SBP_TRY(sbp_blocks_elementwise(blocks, SBP_OP_DROPOUT, "dropout1", &branch));
    if (t->sandwich_norm)
        SBP_TRY(sbp_blocks_norm(blocks, t->norm, "norm1_after", &branch));
    SBP_TRY(sbp_blocks_add(blocks, "add1", branch, stream));
    return t->post_norm ? sbp_blocks_norm(blocks, t->norm, "norm1", stream) : SBP_OK;
}

static enum sbp_status ffn_half(struct sbp_blocks *blocks, const struct sbp_transformer *t,
                                bool mixed, int *stream)
{
    int branch = *stream;
    if (!t->post_norm)
        SBP_TRY(sbp_blocks_norm(blocks, t->norm, "norm2", &branch));
    if (mixed)
        SBP_TRY(experts(blocks, t, &branch));
    else
        SBP_TRY(feed_forward(blocks, t, t->ffn, &branch));
    SBP_TRY(sbp_blocks_elementwise(blocks, SBP_OP_DROPOUT, "dropout2", &branch));
    if (t->sandwich_norm)
        SBP_TRY(sbp_blocks_norm(blocks, t->norm, "norm2_after", &branch));
    SBP_TRY(sbp_blocks_add(blocks, "add2", branch, stream));
    return t->post_norm ? sbp_blocks_norm(blocks, t->norm, "norm2", stream) : SBP_OK;
}

/* Blocks from number `first` to `end`, each `period`th with experts (0: none): what repeats is a
 * period, or a block. */
static enum sbp_status run_of_blocks(struct sbp_blocks *blocks, const struct sbp_transformer *t,
                                     int64_t first, int64_t end, int64_t period, int *stream)
{
    const int first_op = blocks->builder.graph->op_count;
    for (int64_t block = first; block < end; block++) {
        const bool mixed = period > 0 && (block - first + 1) % period == 0;
        sbp_blocks_enter(blocks, "block", block);
        SBP_TRY(attention_half(blocks, t, stream));
        SBP_TRY(ffn_half(blocks, t, mixed, stream));
    }
    sbp_blocks_enter(blocks, NULL, 0);
    sbp_blocks_repeat(blocks, first_op, period > 1 ? (end - first) / period : end - first);
    return SBP_OK;
}

enum sbp_status sbp_transformer_build(struct sbp_blocks *blocks, const struct sbp_transformer *t,
                                      int *stream)
{
    const int64_t dense = t->moe.experts == 0 ? t->blocks : t->moe.dense;
    const int64_t period = t->moe.every > 0 ? t->moe.every : 1;
    const int64_t left = (t->blocks - dense) % period; /* too few for a period: without experts */
    SBP_TRY(run_of_blocks(blocks, t, 0, dense, 0, stream));
    SBP_TRY(run_of_blocks(blocks, t, dense, t->blocks - left, period, stream));
    return run_of_blocks(blocks, t, t->blocks - left, t->blocks, 0, stream);
}
