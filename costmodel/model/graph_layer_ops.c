/* The layers of a list, operator by operator: their keys become calls of the builders. */
#include "costmodel/model/graph_layer_ops_priv.h"

#include <string.h>

#include <cjson/cJSON.h>

/* --- linear, embedding --- */

static enum sbp_status find_table(const struct sbp_layer *layer, int *table)
{
    const struct sbp_graph *graph = layer->builder->graph;
    const struct sbp_json where = sbp_build_at(&layer->at, "tied");
    const char *name;
    SBP_TRY(sbp_json_string(&where, &name));
    const int op = sbp_layer_find(graph, name);
    if (op < 0 || graph->op[op].kind != SBP_OP_EMBEDDING)
        return sbp_json_refuse(&where, "\"%.60s\" is no embedding of this model", name);
    if (sbp_json_has(&layer->at, "out") || sbp_json_has(&layer->at, "out_heads"))
        return sbp_json_refuse(&where, "a tied linear takes its outputs from the embedding: leave "
                                       "out and out_heads away");
    *table = graph->op[op].weight[0];
    if (sbp_graph_consumers(graph, *table, NULL, 0) > 1)
        return sbp_json_refuse(&where, "\"%.60s\" is tied to another linear already", name);
    return SBP_OK;
}

static enum sbp_status read_out(const struct sbp_layer *layer, struct sbp_build_linear *linear)
{
    SBP_TRY(sbp_build_require(&layer->at, "out", SBP_MOST_SIZE, &linear->out));
    SBP_TRY(sbp_json_get_int64(&layer->at, "out_heads", 1, SBP_MOST_SIZE, &linear->heads));
    if (linear->heads > 0 && linear->out % linear->heads != 0)
        return SBP_BUILD_REFUSE(&layer->at, "out_heads",
                                "%lld heads do not divide the %lld outputs",
                                (long long)linear->heads, (long long)linear->out);
    return SBP_OK;
}

static enum sbp_status read_linear(const struct sbp_layer *layer)
{
    const struct sbp_tensor *input = &layer->builder->graph->tensor[layer->input[0]];
    const int64_t features = input->shape.size[SBP_DIM_FEATURE] * input->shape.size[SBP_DIM_INNER];
    struct sbp_build_linear linear = {.name = layer->name,
                                      .input = layer->input[0],
                                      .table = -1,
                                      .summa = layer->kind == SBP_OP_SUMMA_LINEAR};
    int64_t in = features;
    SBP_TRY(sbp_json_get_int64(&layer->at, "in", 1, SBP_MOST_SIZE, &in));
    if (in != features)
        return SBP_BUILD_REFUSE(&layer->at, "in", "%lld, but its input \"%s\" has %lld features",
                                (long long)in, input->name, (long long)features);
    if (sbp_json_has(&layer->at, "tied"))
        SBP_TRY(find_table(layer, &linear.table));
    else
        SBP_TRY(read_out(layer, &linear));
    SBP_TRY(sbp_json_get_bool(&layer->at, "bias", &linear.bias));
    return sbp_build_linear(layer->builder, &layer->at, &linear);
}

static enum sbp_status read_embedding(const struct sbp_layer *layer)
{
    const int64_t sequence = layer->builder->graph->sequence;
    struct sbp_build_embedding embedding = {.name = layer->name};
    SBP_TRY(
        sbp_build_require(&layer->at, "vocab", INT32_MAX, &embedding.vocab)); /* ids are 32-bit */
    SBP_TRY(sbp_build_require(&layer->at, "hidden", SBP_MOST_SIZE, &embedding.hidden));
    SBP_TRY(sbp_json_get_int64(&layer->at, "positions", 1, INT32_MAX, &embedding.positions));
    SBP_TRY(sbp_json_get_int64(&layer->at, "types", 1, INT32_MAX, &embedding.types));
    if (embedding.positions > 0 && embedding.positions < sequence)
        return SBP_BUILD_REFUSE(&layer->at, "positions",
                                "%lld positions are fewer than the sequence's %lld",
                                (long long)embedding.positions, (long long)sequence);
    return sbp_build_embedding(layer->builder, &layer->at, &embedding);
}

static enum sbp_status read_moe(const struct sbp_layer *layer)
{
    struct sbp_build_moe moe = {
        .name = layer->name, .input = layer->input[0], .capacity = 1, .gated = true};
    SBP_TRY(sbp_build_require(&layer->at, "experts", SBP_MOST_SIZE, &moe.experts));
    SBP_TRY(sbp_build_require(&layer->at, "top_k", SBP_MOST_SIZE, &moe.top_k));
    SBP_TRY(sbp_build_require(&layer->at, "ffn", SBP_MOST_SIZE, &moe.ffn));
    SBP_TRY(sbp_json_get_double(&layer->at, "capacity", 1, 1e6, &moe.capacity));
    SBP_TRY(sbp_build_read_router(&layer->at, &moe));
    SBP_TRY(sbp_json_get_bool(&layer->at, "gated", &moe.gated));
    SBP_TRY(sbp_json_get_bool(&layer->at, "expert_bias", &moe.expert_bias));
    return sbp_build_moe(layer->builder, &layer->at, &moe);
}

/* --- norms, element-wise, loss --- */

static enum sbp_status get_epsilon(const struct sbp_layer *layer, double *epsilon)
{
    *epsilon = 1e-5;
    return sbp_json_get_double(&layer->at, "epsilon", 1e-30, 1, epsilon);
}

static enum sbp_status read_norm(const struct sbp_layer *layer)
{
    double epsilon;
    SBP_TRY(get_epsilon(layer, &epsilon));
    return sbp_build_norm(layer->builder, &layer->at, layer->kind, layer->name, layer->input[0],
                          epsilon);
}

static enum sbp_status read_head_norm(const struct sbp_layer *layer)
{
    const struct sbp_shape *shape = &layer->builder->graph->tensor[layer->input[0]].shape;
    int64_t size = shape->size[SBP_DIM_INNER];
    double epsilon;
    SBP_TRY(get_epsilon(layer, &epsilon));
    SBP_TRY(sbp_json_get_int64(&layer->at, "size", 1, SBP_MOST_SIZE, &size));
    return sbp_build_head_norm(layer->builder, &layer->at, layer->name, layer->input[0], size,
                               epsilon);
}

static enum sbp_status read_elementwise(const struct sbp_layer *layer)
{
    double probability = 0;
    if (layer->kind == SBP_OP_DROPOUT) {
        struct sbp_json member;
        SBP_TRY(sbp_json_member(&layer->at, "p", &member));
        SBP_TRY(sbp_build_probability(&layer->at, "p", &probability));
    }
    return sbp_build_elementwise(layer->builder, &layer->at, layer->kind, layer->name,
                                 layer->input[0], probability);
}

static enum sbp_status read_rotary(const struct sbp_layer *layer)
{
    const struct sbp_shape *shape = &layer->builder->graph->tensor[layer->input[0]].shape;
    int64_t size = shape->size[SBP_DIM_INNER];
    SBP_TRY(sbp_json_get_int64(&layer->at, "size", 1, SBP_MOST_SIZE, &size));
    return sbp_build_rotary(layer->builder, &layer->at, layer->name, layer->input[0], size);
}

static enum sbp_status read_add(const struct sbp_layer *layer)
{
    return sbp_build_add(layer->builder, &layer->at, layer->name, layer->input[0], layer->input[1]);
}

static enum sbp_status read_cross_entropy(const struct sbp_layer *layer)
{
    return sbp_build_cross_entropy(layer->builder, &layer->at, layer->name, layer->input[0]);
}

/* --- attention --- */

static enum sbp_status read_context(const struct sbp_layer *layer, bool *ring)
{
    static const char *const NAMES[] = {"gather", "ring", NULL};
    int choice = 0;
    SBP_TRY(sbp_json_get_choice(&layer->at, "context", NAMES, &choice));
    *ring = choice == 1;
    return SBP_OK;
}

static enum sbp_status read_head_sizes(const struct sbp_layer *layer,
                                       struct sbp_build_attention *attention)
{
    const int64_t most = SBP_MOST_SIZE / 4; /* their sums and doubles are sizes as well */
    if (layer->kind == SBP_OP_LATENT_ATTENTION) {
        SBP_TRY(sbp_build_require(&layer->at, "nope", most, &attention->nope));
        SBP_TRY(sbp_build_require(&layer->at, "rope", most, &attention->rope));
        return sbp_build_require(&layer->at, "value", most, &attention->value);
    }
    if (layer->kind == SBP_OP_ATTENTION)
        return SBP_OK;
    attention->kv_heads = attention->heads;
    attention->windowed = 1;
    SBP_TRY(sbp_json_get_int64(&layer->at, "window", 1, INT32_MAX, &attention->window));
    attention->own_window = attention->window;
    SBP_TRY(sbp_json_get_bool(&layer->at, "sinks", &attention->sinks));
    SBP_TRY(sbp_json_get_int64(&layer->at, "kv_heads", 1, most, &attention->kv_heads));
    return sbp_build_require(&layer->at, "head_dim", most, &attention->head_size);
}

static enum sbp_status read_attention(const struct sbp_layer *layer)
{
    struct sbp_build_attention attention = {
        .name = layer->name, .kind = layer->kind, .causal = true};
    memcpy(attention.input, layer->input, sizeof attention.input);
    SBP_TRY(sbp_build_require(&layer->at, "heads", SBP_MOST_SIZE, &attention.heads));
    SBP_TRY(read_head_sizes(layer, &attention));
    SBP_TRY(sbp_json_get_bool(&layer->at, "causal", &attention.causal));
    SBP_TRY(sbp_build_probability(&layer->at, "dropout", &attention.dropout));
    SBP_TRY(read_context(layer, &attention.ring));
    return sbp_build_attention(layer->builder, &layer->at, &attention);
}

/* --- images --- */

/* One number for both sides, or [height, width]. */
static enum sbp_status read_sides(const struct sbp_json *at, int64_t least, int64_t side[2])
{
    struct sbp_json element;
    int count;
    if (!cJSON_IsArray(at->node)) {
        SBP_TRY(sbp_json_int64(at, least, SBP_MOST_IMAGE_SIDE, &side[0]));
        side[1] = side[0];
        return SBP_OK;
    }
    SBP_TRY(sbp_json_length(at, &count));
    if (count != 2)
        return sbp_json_refuse(at, "has %d sides, legal are one number or [height, width]", count);
    for (int i = 0; i < 2; i++) {
        SBP_TRY(sbp_json_element(at, i, &element));
        SBP_TRY(sbp_json_int64(&element, least, SBP_MOST_IMAGE_SIDE, &side[i]));
    }
    return SBP_OK;
}

static enum sbp_status get_sides(const struct sbp_layer *layer, const char *key, int64_t least,
                                 int64_t absent, int64_t side[2])
{
    struct sbp_json member;
    side[0] = side[1] = absent;
    if (!sbp_json_has(&layer->at, key))
        return SBP_OK;
    SBP_TRY(sbp_json_member(&layer->at, key, &member));
    return read_sides(&member, least, side);
}

static enum sbp_status read_kernel(const struct sbp_layer *layer, struct sbp_build_window *window)
{
    struct sbp_json member;
    SBP_TRY(sbp_json_member(&layer->at, "kernel", &member));
    return read_sides(&member, 1, window->kernel);
}

static enum sbp_status read_conv2d(const struct sbp_layer *layer)
{
    struct sbp_build_window window = {.name = layer->name, .input = layer->input[0]};
    SBP_TRY(sbp_build_require(&layer->at, "out", SBP_MOST_SIZE, &window.out));
    SBP_TRY(read_kernel(layer, &window));
    SBP_TRY(get_sides(layer, "stride", 1, 1, window.stride));
    SBP_TRY(get_sides(layer, "padding", 0, 0, window.padding));
    SBP_TRY(sbp_json_get_bool(&layer->at, "bias", &window.bias));
    return sbp_build_conv2d(layer->builder, &layer->at, &window);
}

static enum sbp_status read_pool(const struct sbp_layer *layer)
{
    struct sbp_build_window window = {.name = layer->name, .input = layer->input[0]};
    bool global = false;
    SBP_TRY(sbp_json_get_bool(&layer->at, "global", &global));
    if (global) {
        static const char *const OTHERS[] = {"kernel", "stride", "padding"};
        for (int i = 0; i < 3; i++)
            if (sbp_json_has(&layer->at, OTHERS[i]))
                return SBP_BUILD_REFUSE(&layer->at, OTHERS[i],
                                        "a global pool covers its whole input: leave it "
                                        "away");
        return sbp_build_pool(layer->builder, &layer->at, layer->kind, &window);
    }
    SBP_TRY(read_kernel(layer, &window));
    SBP_TRY(get_sides(layer, "stride", 1, 0, window.stride));
    for (int side = 0; side < 2; side++) /* windows side by side */
        if (window.stride[side] == 0)
            window.stride[side] = window.kernel[side];
    SBP_TRY(get_sides(layer, "padding", 0, 0, window.padding));
    return sbp_build_pool(layer->builder, &layer->at, layer->kind, &window);
}

static enum sbp_status read_flatten(const struct sbp_layer *layer)
{
    if (layer->kind == SBP_OP_FIRST_TOKEN)
        return sbp_build_first_token(layer->builder, &layer->at, layer->name, layer->input[0]);
    return sbp_build_flatten(layer->builder, &layer->at, layer->name, layer->input[0]);
}

static enum sbp_status read_patches(const struct sbp_layer *layer)
{
    struct sbp_build_patches patches = {.name = layer->name,
                                        .height = layer->images->height,
                                        .width = layer->images->width,
                                        .channels = layer->images->channels,
                                        .bias = true,
                                        .class_token = true,
                                        .positions = true};
    if (patches.height == 0)
        return sbp_json_refuse(&layer->at, "reads the model's images: needs the model's \"input\": "
                                           "{\"height\", \"width\", \"channels\"}");
    SBP_TRY(sbp_build_require(&layer->at, "patch", SBP_MOST_IMAGE_SIDE, &patches.patch));
    SBP_TRY(sbp_build_require(&layer->at, "hidden", SBP_MOST_SIZE, &patches.hidden));
    SBP_TRY(sbp_json_get_bool(&layer->at, "bias", &patches.bias));
    SBP_TRY(sbp_json_get_bool(&layer->at, "class_token", &patches.class_token));
    SBP_TRY(sbp_json_get_bool(&layer->at, "positions", &patches.positions));
    return sbp_build_patches(layer->builder, &layer->at, &patches);
}

static enum sbp_status read_custom(const struct sbp_layer *layer)
{
    return sbp_build_custom(layer->builder, &layer->at, layer->name, layer->input,
                            layer->input_count);
}

/* --- the table --- */

typedef enum sbp_status read_function(const struct sbp_layer *layer);
static const struct {
    read_function *read;
    const char *keys[10]; /* besides op, name and inputs */
} READ[SBP_OP_KINDS] = {
    [SBP_OP_LINEAR] = {read_linear, {"in", "out", "bias", "out_heads", "tied"}},
    [SBP_OP_SUMMA_LINEAR] = {read_linear, {"in", "out", "out_heads", "bias"}},
    [SBP_OP_EMBEDDING] = {read_embedding, {"vocab", "hidden", "positions", "types"}},
    [SBP_OP_MOE] = {read_moe,
                    {"experts", "top_k", "ffn", "capacity", "nodes_per_token", "expert_groups",
                     "scoring", "gated", "router_bias", "expert_bias"}},
    [SBP_OP_RELU] = {read_elementwise, {NULL}},
    [SBP_OP_GELU] = {read_elementwise, {NULL}},
    [SBP_OP_TANH] = {read_elementwise, {NULL}},
    [SBP_OP_SWIGLU] = {read_elementwise, {NULL}},
    [SBP_OP_ROTARY] = {read_rotary, {"size"}},
    [SBP_OP_DROPOUT] = {read_elementwise, {"p"}},
    [SBP_OP_LAYERNORM] = {read_norm, {"epsilon"}},
    [SBP_OP_RMSNORM] = {read_norm, {"epsilon"}},
    [SBP_OP_BATCHNORM] = {read_norm, {"epsilon"}},
    [SBP_OP_HEAD_NORM] = {read_head_norm, {"size", "epsilon"}},
    [SBP_OP_ADD] = {read_add, {NULL}},
    [SBP_OP_CROSS_ENTROPY] = {read_cross_entropy, {NULL}},
    [SBP_OP_ATTENTION] = {read_attention, {"heads", "causal", "dropout", "context"}},
    [SBP_OP_GROUPED_ATTENTION] = {read_attention,
                                  {"heads", "kv_heads", "head_dim", "causal", "dropout", "context",
                                   "window", "sinks"}},
    [SBP_OP_LATENT_ATTENTION] = {read_attention,
                                 {"heads", "nope", "rope", "value", "causal", "dropout",
                                  "context"}},
    [SBP_OP_CONV2D] = {read_conv2d, {"out", "kernel", "stride", "padding", "bias"}},
    [SBP_OP_MAXPOOL] = {read_pool, {"kernel", "stride", "padding", "global"}},
    [SBP_OP_AVGPOOL] = {read_pool, {"kernel", "stride", "padding", "global"}},
    [SBP_OP_FLATTEN] = {read_flatten, {NULL}},
    [SBP_OP_FIRST_TOKEN] = {read_flatten, {NULL}},
    [SBP_OP_PATCH_EMBEDDING] = {read_patches,
                                {"patch", "hidden", "bias", "class_token", "positions"}},
    [SBP_OP_CUSTOM] = {read_custom, {NULL}},
};

const char *const *sbp_layer_keys(enum sbp_op_kind kind)
{
    return kind == SBP_OP_CUSTOM ? sbp_build_custom_keys : READ[kind].keys;
}

enum sbp_status sbp_layer_read(const struct sbp_layer *layer)
{
    return READ[layer->kind].read(layer);
}

int sbp_layer_find(const struct sbp_graph *graph, const char *name)
{
    for (int i = 0; i < graph->op_count; i++)
        if (strcmp(graph->op[i].name, name) == 0)
            return i;
    return -1;
}
