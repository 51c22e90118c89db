/* The architecture "gpt": GPT-2's blocks (Radford et al., 2019). */
#include "costmodel/graph_build.h"

#include <stdio.h>

#define MOST_BLOCKS       1000
#define OPS_OUTSIDE       5  /* embedding, dropout, final norm, head, loss */
#define MOST_OPS_OF_BLOCK 12 /* two of them dropouts */

struct gpt {
    struct sbp_builder builder;
    struct sbp_json at;
    int64_t blocks, hidden, heads, vocab, padded_vocab, positions, ffn;
    double dropout, epsilon;
    bool tied, bias;
};

static enum sbp_status require(const struct sbp_json *at, const char *key, int64_t most,
                               int64_t *value)
{
    struct sbp_json member;
    SBP_TRY(sbp_json_member(at, key, &member));
    return sbp_json_int64(&member, 1, most, value);
}

static enum sbp_status read_vocab(const struct sbp_json *at, struct gpt *gpt)
{
    int64_t multiple = 1;
    SBP_TRY(require(at, "vocab", INT32_MAX, &gpt->vocab)); /* ids are 32-bit */
    SBP_TRY(sbp_json_get_int64(at, "vocab_multiple", 1, INT32_MAX, &multiple));
    gpt->padded_vocab = (gpt->vocab + multiple - 1) / multiple * multiple;
    return SBP_OK;
}

static enum sbp_status check_sizes(const struct gpt *gpt, int64_t sequence)
{
    const struct sbp_json heads = sbp_build_at(&gpt->at, "heads");
    const struct sbp_json positions = sbp_build_at(&gpt->at, "positions");
    const struct sbp_json dropout = sbp_build_at(&gpt->at, "dropout");
    if (gpt->hidden % gpt->heads != 0)
        return sbp_json_refuse(&heads, "%lld heads do not divide the hidden size %lld",
                               (long long)gpt->heads, (long long)gpt->hidden);
    if (gpt->positions < sequence)
        return sbp_json_refuse(&positions, "%lld positions are fewer than the sequence's %lld",
                               (long long)gpt->positions, (long long)sequence);
    if (gpt->dropout >= 1)
        return sbp_json_refuse(&dropout, "must be at least 0 and less than 1");
    return SBP_OK;
}

static enum sbp_status read_gpt(const struct sbp_json *at, int64_t sequence, struct gpt *gpt)
{
    const int64_t most = SBP_MOST_SIZE / 4; /* four times hidden is a size as well */
    SBP_TRY(require(at, "sequence", INT32_MAX, &gpt->positions)); /* positions are 32-bit */
    SBP_TRY(require(at, "layers", MOST_BLOCKS, &gpt->blocks));
    SBP_TRY(require(at, "hidden", most, &gpt->hidden));
    SBP_TRY(require(at, "heads", most, &gpt->heads));
    SBP_TRY(read_vocab(at, gpt));
    SBP_TRY(sbp_json_get_int64(at, "positions", 1, INT32_MAX, &gpt->positions));
    gpt->ffn = 4 * gpt->hidden;
    SBP_TRY(sbp_json_get_int64(at, "ffn", 1, SBP_MOST_SIZE, &gpt->ffn));
    SBP_TRY(sbp_json_get_double(at, "dropout", 0, 1, &gpt->dropout));
    gpt->epsilon = 1e-5;
    SBP_TRY(sbp_json_get_double(at, "epsilon", 1e-30, 1, &gpt->epsilon));
    gpt->tied = gpt->bias = true;
    SBP_TRY(sbp_json_get_bool(at, "tied", &gpt->tied));
    SBP_TRY(sbp_json_get_bool(at, "bias", &gpt->bias));
    return check_sizes(gpt, sequence);
}

/* --- blocks --- */

/* "block3.norm1" in a buffer of the caller. */
static const char *name_in_block(char *name, int64_t block, const char *part)
{
    (void)snprintf(name, SBP_OP_NAME_BYTES, "block%lld.%s", (long long)block, part);
    return name;
}

static enum sbp_status norm(struct gpt *gpt, const char *name, int *stream)
{
    SBP_TRY(sbp_build_norm(&gpt->builder, &gpt->at, SBP_OP_LAYERNORM, name, *stream, gpt->epsilon));
    *stream = sbp_build_last(&gpt->builder);
    return SBP_OK;
}

static enum sbp_status linear(struct gpt *gpt, const char *name, const char *out_class, int64_t out,
                              int64_t heads, int *stream)
{
    const struct sbp_build_linear spec = {.name = name,
                                          .input = *stream,
                                          .out = out,
                                          .heads = heads,
                                          .bias = gpt->bias,
                                          .table = -1,
                                          .out_class = out_class};
    SBP_TRY(sbp_build_linear(&gpt->builder, &gpt->at, &spec));
    *stream = sbp_build_last(&gpt->builder);
    return SBP_OK;
}

static enum sbp_status elementwise(struct gpt *gpt, enum sbp_op_kind kind, const char *name,
                                   int *stream)
{
    const double probability = kind == SBP_OP_DROPOUT ? gpt->dropout : 0;
    if (kind == SBP_OP_DROPOUT && probability <= 0)
        return SBP_OK;
    SBP_TRY(sbp_build_elementwise(&gpt->builder, &gpt->at, kind, name, *stream, probability));
    *stream = sbp_build_last(&gpt->builder);
    return SBP_OK;
}

static enum sbp_status add_residual(struct gpt *gpt, const char *name, int branch, int *stream)
{
    SBP_TRY(sbp_build_add(&gpt->builder, &gpt->at, name, *stream, branch));
    *stream = sbp_build_last(&gpt->builder);
    return SBP_OK;
}

static enum sbp_status attention_half(struct gpt *gpt, int64_t block, int *stream)
{
    char name[SBP_OP_NAME_BYTES];
    int branch = *stream;
    SBP_TRY(norm(gpt, name_in_block(name, block, "norm1"), &branch));
    SBP_TRY(
        linear(gpt, name_in_block(name, block, "qkv"), NULL, 3 * gpt->hidden, gpt->heads, &branch));
    const struct sbp_build_attention attention = {.name = name_in_block(name, block, "attention"),
                                                  .kind = SBP_OP_ATTENTION,
                                                  .input = {branch},
                                                  .heads = gpt->heads,
                                                  .causal = true};
    SBP_TRY(sbp_build_attention(&gpt->builder, &gpt->at, &attention));
    branch = sbp_build_last(&gpt->builder);
    SBP_TRY(linear(gpt, name_in_block(name, block, "projection"), NULL, gpt->hidden, 0, &branch));
    SBP_TRY(elementwise(gpt, SBP_OP_DROPOUT, name_in_block(name, block, "dropout1"), &branch));
    return add_residual(gpt, name_in_block(name, block, "add1"), branch, stream);
}

static enum sbp_status ffn_half(struct gpt *gpt, int64_t block, int *stream)
{
    char name[SBP_OP_NAME_BYTES], ffn[SBP_OP_NAME_BYTES];
    int branch = *stream;
    SBP_TRY(norm(gpt, name_in_block(name, block, "norm2"), &branch));
    SBP_TRY(linear(gpt, name_in_block(name, block, "up"), name_in_block(ffn, block, "ffn"),
                   gpt->ffn, 0, &branch));
    SBP_TRY(elementwise(gpt, SBP_OP_GELU, name_in_block(name, block, "gelu"), &branch));
    SBP_TRY(linear(gpt, name_in_block(name, block, "down"), NULL, gpt->hidden, 0, &branch));
    SBP_TRY(elementwise(gpt, SBP_OP_DROPOUT, name_in_block(name, block, "dropout2"), &branch));
    return add_residual(gpt, name_in_block(name, block, "add2"), branch, stream);
}

static enum sbp_status embed(struct gpt *gpt, int *stream)
{
    const struct sbp_build_embedding embedding = {.name = "embedding",
                                                  .vocab = gpt->padded_vocab,
                                                  .valid_vocab = gpt->vocab,
                                                  .hidden = gpt->hidden,
                                                  .positions = gpt->positions};
    SBP_TRY(sbp_build_embedding(&gpt->builder, &gpt->at, &embedding));
    *stream = sbp_build_last(&gpt->builder);
    return elementwise(gpt, SBP_OP_DROPOUT, "dropout", stream);
}

static enum sbp_status finish(struct gpt *gpt, int *stream)
{
    const struct sbp_graph *graph = gpt->builder.graph;
    SBP_TRY(norm(gpt, "final_norm", stream));
    const struct sbp_build_linear head = {.name = "head",
                                          .input = *stream,
                                          .out = gpt->padded_vocab,
                                          .valid_out = gpt->vocab,
                                          .table = gpt->tied ? graph->op[0].weight[0] : -1};
    SBP_TRY(sbp_build_linear(&gpt->builder, &gpt->at, &head));
    return sbp_build_cross_entropy(&gpt->builder, &gpt->at, "loss", sbp_build_last(&gpt->builder));
}

/* The operators of later blocks are repeats of the first block's. */
static void set_sites(struct sbp_graph *graph, int first, int per_block, int blocks)
{
    for (int i = 0; i < per_block; i++)
        graph->op[first + i].repeats = blocks;
    for (int i = per_block; i < blocks * per_block; i++) {
        graph->op[first + i].site = first + i % per_block;
        graph->op[first + i].repeats = 0;
    }
}

static enum sbp_status build(struct gpt *gpt)
{
    struct sbp_graph *graph = gpt->builder.graph;
    int stream; /* the residual stream */
    SBP_TRY(embed(gpt, &stream));
    const int first = graph->op_count;
    for (int64_t block = 0; block < gpt->blocks; block++) {
        SBP_TRY(attention_half(gpt, block, &stream));
        SBP_TRY(ffn_half(gpt, block, &stream));
    }
    const int blocks = (int)gpt->blocks;
    set_sites(graph, first, (graph->op_count - first) / blocks, blocks);
    return finish(gpt, &stream);
}

enum sbp_status sbp_graph_read_gpt(const struct sbp_json *at, struct sbp_graph *graph,
                                   enum sbp_attention_kind attention)
{
    static const char *const KEYS[] = {"architecture",   "hidden",    "heads",   "vocab",
                                       "vocab_multiple", "positions", "ffn",     "dropout",
                                       "tied",           "bias",      "epsilon", NULL};
    struct gpt gpt = {.at = *at};
    SBP_TRY(sbp_graph_check_keys(at, KEYS));
    SBP_TRY(read_gpt(at, graph->sequence, &gpt));
    SBP_TRY(
        sbp_build_open(&gpt.builder, at, graph, OPS_OUTSIDE + MOST_OPS_OF_BLOCK * (int)gpt.blocks));
    gpt.builder.attention = attention;
    gpt.builder.linear_spread = 0.02;
    SBP_TRY(build(&gpt));
    return sbp_build_close(&gpt.builder, at);
}
