/* Builders of what multiplies by weights: linear, summa_linear, embedding, moe. */
#include <stdio.h>

#include "costmodel/model/graph_build_priv.h"

static void set_padding(struct sbp_builder *builder, int tensor, int dim, int64_t valid)
{
    struct sbp_tensor *padded = &builder->graph->tensor[tensor];
    if (valid > 0 && valid < padded->shape.size[dim]) {
        padded->valid_dim = dim;
        padded->valid_rows = valid;
    }
}

/* --- linear --- */

/* W (in, in inner, out, out inner) on an input and an output. */
static struct sbp_shape linear_shape(const struct sbp_shape *input, const struct sbp_shape *output)
{
    struct sbp_shape shape = *output;
    sbp_build_set_dim(&shape, SBP_DIM_IN, input->size[SBP_DIM_FEATURE],
                      input->dim_class[SBP_DIM_FEATURE]);
    sbp_build_set_dim(&shape, SBP_DIM_IN_INNER, input->size[SBP_DIM_INNER], SBP_NO_CLASS);
    return shape;
}

/* The head tied to an embedding table: in is the table's dimension 2, out its dimension 0. */
static enum sbp_status tie_weight(struct sbp_builder *builder, const struct sbp_json *at,
                                  struct sbp_op_node *op, int table, struct sbp_shape *output)
{
    const struct sbp_shape input = sbp_build_shape(builder, op->input[0]);
    const struct sbp_shape rows = sbp_build_shape(builder, table);
    if (input.size[SBP_DIM_FEATURE] != rows.size[2] || input.size[SBP_DIM_INNER] != 1)
        return sbp_json_refuse(at, "its input has %lld x %lld features, the table's rows have %lld",
                               (long long)input.size[SBP_DIM_FEATURE],
                               (long long)input.size[SBP_DIM_INNER], (long long)rows.size[2]);
    sbp_build_merge(builder, input.dim_class[SBP_DIM_FEATURE], rows.dim_class[2]);
    op->transposed_weight = true;
    op->weight[op->weight_count++] = table;
    *output = sbp_build_with_features(&input, rows.size[0], rows.dim_class[0], 1);
    return SBP_OK;
}

static enum sbp_status own_weight(struct sbp_builder *builder, const struct sbp_json *at,
                                  struct sbp_op_node *op, const struct sbp_build_linear *linear,
                                  struct sbp_shape *output)
{
    const struct sbp_shape input = sbp_build_shape(builder, op->input[0]);
    const int64_t heads = linear->heads > 0 ? linear->heads : linear->out;
    const char *class_name = linear->out_class != NULL ? linear->out_class : op->name;
    const char *suffix = linear->out_class != NULL ? "" : ".out";
    const int dim_class = sbp_build_class(builder, heads, "%s%s", class_name, suffix);
    *output = sbp_build_with_features(&input, heads, dim_class, linear->out / heads);
    const struct sbp_shape shape = linear_shape(&input, output);
    const double spread = sbp_build_spread(builder, (double)sbp_build_features(&input));
    SBP_TRY(sbp_build_weight(builder, at, op, ".weight", &shape, 0, spread));
    set_padding(builder, op->weight[0], SBP_DIM_OUT, linear->valid_out);
    return SBP_OK;
}

enum sbp_status sbp_build_linear(struct sbp_builder *builder, const struct sbp_json *at,
                                 const struct sbp_build_linear *linear)
{
    const bool grid = linear->summa || (builder->linears_on_grid && linear->table < 0);
    const enum sbp_op_kind kind = grid ? SBP_OP_SUMMA_LINEAR : SBP_OP_LINEAR;
    struct sbp_op_node *op = sbp_build_op(builder, kind, linear->name);
    struct sbp_shape output;
    sbp_build_reads(op, linear->input);
    if (linear->table >= 0)
        SBP_TRY(tie_weight(builder, at, op, linear->table, &output));
    else
        SBP_TRY(own_weight(builder, at, op, linear, &output));
    if (linear->bias) {
        const struct sbp_tensor *weight = &builder->graph->tensor[op->weight[0]];
        const int64_t valid = weight->valid_dim >= 0 ? weight->valid_rows : 0;
        SBP_TRY(sbp_build_bias(builder, at, op, &output));
        set_padding(builder, op->weight[1], SBP_DIM_OUT, valid);
    }
    return sbp_build_output(builder, at, op, &output);
}

/* --- embedding --- */

/* Rows that are added by place or type are never split: a rank looks up whatever it needs. */
static enum sbp_status add_rows(struct sbp_builder *builder, const struct sbp_json *at,
                                struct sbp_op_node *op, const char *part, int64_t rows,
                                struct sbp_shape table)
{
    if (rows == 0)
        return SBP_OK;
    sbp_build_set_dim(&table, SBP_DIM_IN, rows, SBP_NO_CLASS);
    return sbp_build_weight(builder, at, op, part, &table, 0, SBP_INIT_SPREAD);
}

/* The first table of a model names its classes "vocab" and "hidden", later ones their own. */
static int table_class(struct sbp_builder *builder, const struct sbp_op_node *op, int64_t size,
                       const char *what)
{
    for (const struct sbp_op_node *other = builder->graph->op; other < op; other++)
        if (other->kind == SBP_OP_EMBEDDING)
            return sbp_build_class(builder, size, "%s.%s", op->name, what);
    return sbp_build_class(builder, size, "%s", what);
}

enum sbp_status sbp_build_embedding(struct sbp_builder *builder, const struct sbp_json *at,
                                    const struct sbp_build_embedding *embedding)
{
    struct sbp_op_node *op = sbp_build_op(builder, SBP_OP_EMBEDDING, embedding->name);
    const int vocab = table_class(builder, op, embedding->vocab, "vocab");
    const int hidden = table_class(builder, op, embedding->hidden, "hidden");
    struct sbp_shape table = sbp_build_scalar();
    sbp_build_set_dim(&table, SBP_DIM_IN, embedding->vocab, vocab);
    sbp_build_set_dim(&table, SBP_DIM_OUT, embedding->hidden, hidden);
    SBP_TRY(sbp_build_weight(builder, at, op, ".table", &table, 0, SBP_INIT_SPREAD));
    set_padding(builder, op->weight[0], SBP_DIM_IN, embedding->valid_vocab);
    op->positions = embedding->positions > 0 ? op->weight_count : 0;
    SBP_TRY(add_rows(builder, at, op, ".positions", embedding->positions, table));
    op->types = embedding->types > 0 ? op->weight_count : 0;
    SBP_TRY(add_rows(builder, at, op, ".types", embedding->types, table));
    const struct sbp_shape tokens = sbp_build_tokens(builder);
    const struct sbp_shape shape = sbp_build_with_features(&tokens, embedding->hidden, hidden, 1);
    return sbp_build_output(builder, at, op, &shape);
}

/* --- mixture of experts --- */

enum sbp_status sbp_build_read_router(const struct sbp_json *at, struct sbp_build_moe *moe)
{
    static const char *const SCORINGS[] = {"softmax", "sigmoid", NULL};
    int scoring = 0;
    SBP_TRY(sbp_json_get_int64(at, "nodes_per_token", 1, moe->top_k, &moe->nodes_per_token));
    SBP_TRY(sbp_json_get_int64(at, "expert_groups", 1, moe->experts, &moe->groups));
    SBP_TRY(sbp_json_get_choice(at, "scoring", SCORINGS, &scoring));
    moe->sigmoid = scoring == 1;
    return sbp_json_get_bool(at, "router_bias", &moe->router_bias);
}

/* Groups are alike, and those of a token have as many experts as it takes. */
static enum sbp_status check_groups(const struct sbp_json *at, const struct sbp_build_moe *moe)
{
    if (moe->groups == 0)
        return SBP_OK;
    if (moe->experts % moe->groups != 0)
        return SBP_BUILD_REFUSE(at, "expert_groups", "%lld groups do not divide %lld experts",
                                (long long)moe->groups, (long long)moe->experts);
    if (moe->nodes_per_token == 0 || moe->nodes_per_token > moe->groups)
        return SBP_BUILD_REFUSE(at, "expert_groups",
                                "%lld groups need nodes_per_token: how many a token's experts are "
                                "of, legal are 1 to %lld",
                                (long long)moe->groups, (long long)moe->groups);
    if (moe->top_k > moe->experts / moe->groups * moe->nodes_per_token)
        return SBP_BUILD_REFUSE(at, "expert_groups",
                                "%lld experts in each of %lld groups are fewer than the %lld that "
                                "a token takes",
                                (long long)(moe->experts / moe->groups),
                                (long long)moe->nodes_per_token, (long long)moe->top_k);
    return SBP_OK;
}

static enum sbp_status check_moe(const struct sbp_builder *builder, const struct sbp_json *at,
                                 const struct sbp_build_moe *moe)
{
    const struct sbp_shape input = sbp_build_shape(builder, moe->input);
    const struct sbp_json top_k = sbp_build_at(at, "top_k");
    if (moe->top_k > moe->experts)
        return sbp_json_refuse(&top_k, "%lld of %lld experts for a token, legal are 1 to %lld",
                               (long long)moe->top_k, (long long)moe->experts,
                               (long long)moe->experts);
    SBP_TRY(check_groups(at, moe));
    if (input.size[SBP_DIM_INNER] != 1)
        return SBP_BUILD_REFUSE(at, "inputs", "%lld x %lld features: experts need unpacked ones",
                                (long long)input.size[SBP_DIM_FEATURE],
                                (long long)input.size[SBP_DIM_INNER]);
    return SBP_OK;
}

/* Weights of all experts: (experts, a, b, gates). */
static struct sbp_shape expert_shape(int64_t experts, int experts_class, const struct sbp_shape *a,
                                     int64_t ffn, int ffn_class)
{
    struct sbp_shape shape = sbp_build_scalar();
    sbp_build_set_dim(&shape, 0, experts, experts_class);
    sbp_build_set_dim(&shape, 1, a->size[SBP_DIM_FEATURE], a->dim_class[SBP_DIM_FEATURE]);
    sbp_build_set_dim(&shape, 2, ffn, ffn_class);
    return shape;
}

/* The router's bias, or one weight with all biases of the experts and it. */
static enum sbp_status add_biases(struct sbp_builder *builder, const struct sbp_json *at,
                                  struct sbp_op_node *op, const struct sbp_build_moe *moe,
                                  const struct sbp_shape *scores)
{
    const int64_t hidden = sbp_build_features(&builder->graph->tensor[op->input[0]].shape);
    struct sbp_shape biases = sbp_build_vector(scores);
    if (!moe->router_bias && !moe->expert_bias)
        return SBP_OK;
    if (!moe->expert_bias)
        return sbp_build_weight(builder, at, op, ".router_bias", &biases, 0, SBP_INIT_SPREAD);
    biases = sbp_build_scalar();
    sbp_build_set_dim(&biases, 0, moe->experts, SBP_NO_CLASS);
    sbp_build_set_dim(&biases, 2,
                      (moe->gated ? 2 : 1) * moe->ffn + hidden + (moe->router_bias ? 1 : 0),
                      SBP_NO_CLASS);
    return sbp_build_weight(builder, at, op, ".biases", &biases, 0, SBP_INIT_SPREAD);
}

enum sbp_status sbp_build_moe(struct sbp_builder *builder, const struct sbp_json *at,
                              const struct sbp_build_moe *moe)
{
    SBP_TRY(check_moe(builder, at, moe));
    struct sbp_op_node *op = sbp_build_op(builder, SBP_OP_MOE, moe->name);
    const struct sbp_shape input = sbp_build_shape(builder, moe->input);
    const int experts = sbp_build_class(builder, moe->experts, "%s.experts", op->name);
    const int ffn = sbp_build_class(builder, moe->ffn, "%s.ffn", op->name);
    const int64_t hidden = input.size[SBP_DIM_FEATURE];
    sbp_build_reads(op, moe->input);
    op->moe.top_k = moe->top_k;
    op->moe.capacity = moe->capacity;
    op->moe.nodes_per_token = moe->nodes_per_token;
    op->moe.groups = moe->groups;
    op->moe.sigmoid = moe->sigmoid;
    const struct sbp_shape scores = sbp_build_with_features(&input, moe->experts, experts, 1);
    struct sbp_shape router = linear_shape(&input, &scores);
    struct sbp_shape first = expert_shape(moe->experts, experts, &input, moe->ffn, ffn);
    struct sbp_shape second = first;
    sbp_build_set_dim(&second, 1, moe->ffn, ffn);
    sbp_build_set_dim(&second, 2, hidden, input.dim_class[SBP_DIM_FEATURE]);
    sbp_build_set_dim(&first, 3, moe->gated ? 2 : 1, SBP_NO_CLASS);
    const double spread = sbp_build_spread(builder, (double)hidden);
    SBP_TRY(sbp_build_weight(builder, at, op, ".router", &router, 0, spread));
    SBP_TRY(sbp_build_weight(builder, at, op, ".first", &first, 0, spread));
    SBP_TRY(sbp_build_weight(builder, at, op, ".second", &second, 0,
                             sbp_build_spread(builder, (double)moe->ffn)));
    SBP_TRY(add_biases(builder, at, op, moe, &scores));
    return sbp_build_output(builder, at, op, &input);
}
