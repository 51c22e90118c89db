/* Architectures on rows of features: mlp, and wide-deep (Cheng et al., 2016; OneFlow, section
 * 6.3.2): a linear model over one large table beside a perceptron over another.
 */
#include "costmodel/model/graph_read_priv.h"

/* Hidden layers of one width; from the second on they repeat each other. */
static enum sbp_status hidden_layers(struct sbp_blocks *blocks, int64_t first, int64_t count,
                                     struct sbp_blocks_linear linear, int *stream)
{
    const int start = blocks->builder.graph->op_count;
    for (int64_t i = first; i < count; i++) {
        sbp_blocks_enter(blocks, "layer", i);
        SBP_TRY(sbp_blocks_linear(blocks, "linear", linear, stream));
        SBP_TRY(sbp_blocks_elementwise(blocks, SBP_OP_RELU, "relu", stream));
        SBP_TRY(sbp_blocks_elementwise(blocks, SBP_OP_DROPOUT, "dropout", stream));
    }
    sbp_blocks_enter(blocks, NULL, 0);
    sbp_blocks_repeat(blocks, start, count - first);
    return SBP_OK;
}

/* ---- mlp ---- */

struct mlp {
    int64_t features, hidden, layers, classes;
    bool bias;
};

static enum sbp_status read_mlp_keys(struct sbp_blocks *blocks, struct mlp *mlp)
{
    const struct sbp_json *at = &blocks->at;
    *mlp = (struct mlp){.bias = true};
    SBP_TRY(sbp_build_require(at, "features", SBP_MOST_WIDTH, &mlp->features));
    SBP_TRY(sbp_build_require(at, "hidden", SBP_MOST_WIDTH, &mlp->hidden));
    SBP_TRY(sbp_build_require(at, "layers", SBP_MOST_BLOCKS, &mlp->layers));
    SBP_TRY(sbp_json_get_int64(at, "classes", 1, INT32_MAX, &mlp->classes));
    SBP_TRY(sbp_json_get_bool(at, "bias", &mlp->bias));
    return sbp_build_probability(at, "dropout", &blocks->dropout);
}

static enum sbp_status read_mlp(struct sbp_blocks *blocks, struct sbp_graph *graph,
                                enum sbp_attention_kind attention)
{
    struct mlp mlp;
    (void)attention;
    SBP_TRY(read_mlp_keys(blocks, &mlp));
    SBP_TRY(sbp_build_open(&blocks->builder, &blocks->at, graph, 3 * (int)mlp.layers + 2));
    const struct sbp_build_input input = {
        .rows = graph->sequence, .features = mlp.features, .width = 1};
    const struct sbp_blocks_linear linear = {.out = mlp.hidden, .bias = mlp.bias};
    SBP_TRY(sbp_build_input(&blocks->builder, &blocks->at, &input));
    int stream = graph->input;
    SBP_TRY(hidden_layers(blocks, 0, 1, linear, &stream));
    SBP_TRY(hidden_layers(blocks, 1, mlp.layers, linear, &stream));
    if (mlp.classes > 0)
        SBP_TRY(sbp_blocks_head(blocks, mlp.classes, mlp.classes, -1, mlp.bias, stream));
    return sbp_build_close(&blocks->builder, &blocks->at);
}

const struct sbp_architecture sbp_graph_mlp = {
    "mlp", {"layers", "features", "hidden", "classes", "bias", "dropout"}, read_mlp};

/* ---- wide-deep ---- */

struct wide_deep {
    int64_t wide_vocab, vocab, hidden; /* rows of the two tables, width of the deep one */
    int64_t features, layers, ffn;     /* dense features; hidden layers and their width */
};

static enum sbp_status read_wide_deep_keys(struct sbp_blocks *blocks, struct wide_deep *model)
{
    const struct sbp_json *at = &blocks->at;
    int64_t ids;
    *model = (struct wide_deep){0};
    SBP_TRY(sbp_build_require(at, "sequence", INT32_MAX, &ids));
    SBP_TRY(sbp_build_require(at, "vocab", INT32_MAX, &model->vocab));
    model->wide_vocab = model->vocab;
    SBP_TRY(sbp_json_get_int64(at, "wide_vocab", 1, INT32_MAX, &model->wide_vocab));
    SBP_TRY(sbp_build_require(at, "hidden", SBP_MOST_WIDTH, &model->hidden));
    SBP_TRY(sbp_build_require(at, "features", SBP_MOST_WIDTH, &model->features));
    SBP_TRY(sbp_build_require(at, "layers", SBP_MOST_BLOCKS, &model->layers));
    SBP_TRY(sbp_build_require(at, "ffn", SBP_MOST_WIDTH, &model->ffn));
    return sbp_build_probability(at, "dropout", &blocks->dropout);
}

static enum sbp_status table(struct sbp_blocks *blocks, const char *name, int64_t vocab,
                             int64_t hidden, int *stream)
{
    const struct sbp_build_embedding embedding = {.name = name, .vocab = vocab, .hidden = hidden};
    SBP_TRY(sbp_build_embedding(&blocks->builder, &blocks->at, &embedding));
    *stream = sbp_build_last(&blocks->builder);
    return SBP_OK;
}

/* A weight for each id, added over a sample's ids. */
static enum sbp_status wide_part(struct sbp_blocks *blocks, const struct wide_deep *model,
                                 int *stream)
{
    struct sbp_build_window whole = {.name = "wide_sum"};
    SBP_TRY(table(blocks, "wide", model->wide_vocab, 1, stream));
    whole.input = *stream;
    SBP_TRY(sbp_build_pool(&blocks->builder, &blocks->at, SBP_OP_AVGPOOL, &whole));
    *stream = sbp_build_last(&blocks->builder);
    return SBP_OK;
}

/* The first layer reads the ids' vectors and the dense features: a linear over both, side by side,
 * is the sum of two. */
static enum sbp_status deep_part(struct sbp_blocks *blocks, const struct wide_deep *model,
                                 int *stream)
{
    const struct sbp_blocks_linear linear = {.out = model->ffn, .bias = true};
    const struct sbp_blocks_linear dense = {.out = model->ffn}, logit = {.out = 1, .bias = true};
    int beside = blocks->builder.graph->input;
    SBP_TRY(table(blocks, "deep", model->vocab, model->hidden, stream));
    SBP_TRY(sbp_build_flatten(&blocks->builder, &blocks->at, "flatten", *stream));
    *stream = sbp_build_last(&blocks->builder);
    SBP_TRY(sbp_blocks_linear(blocks, "layer0.linear", linear, stream));
    SBP_TRY(sbp_blocks_linear(blocks, "layer0.dense", dense, &beside));
    SBP_TRY(sbp_blocks_add(blocks, "layer0.add", beside, stream));
    SBP_TRY(sbp_blocks_elementwise(blocks, SBP_OP_RELU, "layer0.relu", stream));
    SBP_TRY(sbp_blocks_elementwise(blocks, SBP_OP_DROPOUT, "layer0.dropout", stream));
    SBP_TRY(hidden_layers(blocks, 1, model->layers, linear, stream));
    return sbp_blocks_linear(blocks, "logit", logit, stream);
}

/* The loss of one logit a sample has nothing to split: its gradient stands fixed at the sum. */
static enum sbp_status read_wide_deep(struct sbp_blocks *blocks, struct sbp_graph *graph,
                                      enum sbp_attention_kind attention)
{
    struct wide_deep model;
    int wide, deep;
    (void)attention;
    SBP_TRY(read_wide_deep_keys(blocks, &model));
    SBP_TRY(sbp_build_open(&blocks->builder, &blocks->at, graph, 3 * (int)model.layers + 10));
    const struct sbp_build_input input = {.rows = 1, .features = model.features, .width = 1};
    SBP_TRY(sbp_build_input(&blocks->builder, &blocks->at, &input));
    SBP_TRY(wide_part(blocks, &model, &wide));
    SBP_TRY(deep_part(blocks, &model, &deep));
    SBP_TRY(sbp_blocks_add(blocks, "logits", wide, &deep));
    return sbp_build_close(&blocks->builder, &blocks->at);
}

const struct sbp_architecture sbp_graph_wide_deep = {
    "wide-deep",
    {"layers", "vocab", "wide_vocab", "hidden", "features", "ffn", "dropout"},
    read_wide_deep};
