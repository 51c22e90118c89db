/* A model as a list of layers. */
#include "costmodel/graph_build.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/text.h"

#define MOST_LAYERS 10000

/* One layer of the list while it is read. */
struct layer {
    struct sbp_json at;
    enum sbp_op_kind kind;
    char name[SBP_OP_NAME_BYTES];
    int index;
    int input[SBP_MAX_INPUTS]; /* tensors */
};

struct reader {
    struct sbp_builder builder;
    struct sbp_json root, layers;
};

/* Keys besides op, name and inputs. */
static const char *const OWN_KEYS[SBP_OP_KINDS][6] = {
    [SBP_OP_LINEAR] = {"in", "out", "bias", "out_heads", "tied"},
    [SBP_OP_EMBEDDING] = {"vocab", "hidden", "positions"},
    [SBP_OP_LAYERNORM] = {"epsilon"},
    [SBP_OP_ATTENTION] = {"heads", "causal"},
    [SBP_OP_DROPOUT] = {"p"},
};

static enum sbp_status check_layer_keys(const struct layer *layer)
{
    const char *known[10] = {"op", "name"};
    int count = 2;
    if (layer->kind != SBP_OP_EMBEDDING) /* reads token ids, nothing else */
        known[count++] = "inputs";
    for (int i = 0; OWN_KEYS[layer->kind][i] != NULL; i++)
        known[count++] = OWN_KEYS[layer->kind][i];
    return sbp_json_keys(&layer->at, known);
}

/* --- names --- */

static int find_op(const struct sbp_graph *graph, const char *name)
{
    for (int i = 0; i < graph->op_count; i++)
        if (strcmp(graph->op[i].name, name) == 0)
            return i;
    return -1;
}

static enum sbp_status read_name(const struct reader *reader, struct layer *layer)
{
    const struct sbp_json where = sbp_build_at(&layer->at, "name");
    if (!sbp_json_has(&layer->at, "name"))
        (void)snprintf(layer->name, sizeof layer->name, "%s%d", sbp_op(layer->kind)->name,
                       layer->index);
    else
        SBP_TRY(sbp_json_name(&where, layer->name, (int)sizeof layer->name));
    if (strcmp(layer->name, "input") == 0)
        return sbp_json_refuse(&where, "\"input\" is the name of the model's input");
    const int other = find_op(reader->builder.graph, layer->name);
    if (other >= 0)
        return sbp_json_refuse(&where, "\"%s\" is the name of layers[%d] already", layer->name,
                               other);
    return SBP_OK;
}

/* Whether a later layer is called so: a better complaint than "unknown". */
static bool stands_later(const struct reader *reader, const char *name, int index)
{
    struct sbp_json element, member;
    const char *text;
    int count;
    if (sbp_json_length(&reader->layers, &count) != SBP_OK)
        return false;
    for (int i = index + 1; i < count; i++)
        if (sbp_json_element(&reader->layers, i, &element) == SBP_OK &&
            sbp_json_has(&element, "name") &&
            sbp_json_member(&element, "name", &member) == SBP_OK && cJSON_IsString(member.node) &&
            sbp_json_string(&member, &text) == SBP_OK && strcmp(text, name) == 0)
            return true;
    return false;
}

static const char *nearest_op(struct sbp_graph *graph, const char *name)
{
    const char **names = SBP_NEW(&graph->arena, const char *, graph->op_count + 1);
    if (names == NULL)
        return NULL;
    for (int i = 0; i < graph->op_count; i++)
        names[i] = graph->op[i].name;
    return sbp_nearest(name, names);
}

static enum sbp_status refuse_input(struct reader *reader, const struct layer *layer,
                                    const struct sbp_json *at, const char *name)
{
    if (strcmp(name, layer->name) == 0)
        return sbp_json_refuse(at, "\"%.60s\" is this layer itself", name);
    if (stands_later(reader, name, layer->index))
        return sbp_json_refuse(at, "\"%.60s\" stands later: a layer reads earlier ones", name);
    const char *nearest = nearest_op(reader->builder.graph, name);
    if (nearest != NULL)
        return sbp_json_refuse(at, "no earlier layer is called \"%.60s\", did you mean \"%s\"?",
                               name, nearest);
    return sbp_json_refuse(at, "no earlier layer is called \"%.60s\" (nor is it \"input\")", name);
}

static enum sbp_status model_input(const struct reader *reader, const struct sbp_json *at,
                                   int *tensor)
{
    *tensor = reader->builder.graph->input;
    if (*tensor < 0)
        return sbp_json_refuse(at,
                               "the model's input is token ids, which only the embedding reads");
    return SBP_OK;
}

static enum sbp_status find_input(struct reader *reader, const struct layer *layer,
                                  const struct sbp_json *at, int *tensor)
{
    const struct sbp_graph *graph = reader->builder.graph;
    const char *name;
    SBP_TRY(sbp_json_string(at, &name));
    if (strcmp(name, "input") == 0)
        return model_input(reader, at, tensor);
    const int op = find_op(graph, name);
    if (op < 0)
        return refuse_input(reader, layer, at, name);
    *tensor = graph->op[op].output;
    return SBP_OK;
}

static enum sbp_status read_inputs(struct reader *reader, struct layer *layer)
{
    const int needed = sbp_op(layer->kind)->inputs;
    struct sbp_json inputs, element;
    int count;
    if (needed == 0)
        return SBP_OK;
    if (!sbp_json_has(&layer->at, "inputs")) {
        if (needed != 1)
            return sbp_json_refuse(&layer->at, "%s needs \"inputs\": the names of %d layers",
                                   sbp_op(layer->kind)->name, needed);
        if (layer->index == 0)
            return model_input(reader, &layer->at, &layer->input[0]);
        layer->input[0] = sbp_build_last(&reader->builder);
        return SBP_OK;
    }
    SBP_TRY(sbp_json_member(&layer->at, "inputs", &inputs));
    SBP_TRY(sbp_json_length(&inputs, &count));
    if (count != needed)
        return sbp_json_refuse(&inputs, "names %d inputs, %s has %d", count,
                               sbp_op(layer->kind)->name, needed);
    for (int i = 0; i < count; i++) {
        SBP_TRY(sbp_json_element(&inputs, i, &element));
        SBP_TRY(find_input(reader, layer, &element, &layer->input[i]));
    }
    return SBP_OK;
}

/* --- operators --- */

static enum sbp_status find_table(const struct reader *reader, const struct layer *layer,
                                  int *table)
{
    const struct sbp_graph *graph = reader->builder.graph;
    const struct sbp_json where = sbp_build_at(&layer->at, "tied");
    const char *name;
    SBP_TRY(sbp_json_string(&where, &name));
    const int op = find_op(graph, name);
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

static enum sbp_status read_out(const struct layer *layer, struct sbp_build_linear *linear)
{
    struct sbp_json member;
    SBP_TRY(sbp_json_member(&layer->at, "out", &member));
    SBP_TRY(sbp_json_int64(&member, 1, SBP_MOST_SIZE, &linear->out));
    SBP_TRY(sbp_json_get_int64(&layer->at, "out_heads", 1, SBP_MOST_SIZE, &linear->heads));
    if (linear->heads > 0 && linear->out % linear->heads != 0) {
        const struct sbp_json where = sbp_build_at(&layer->at, "out_heads");
        return sbp_json_refuse(&where, "%lld heads do not divide the %lld outputs",
                               (long long)linear->heads, (long long)linear->out);
    }
    return SBP_OK;
}

static enum sbp_status read_linear(struct reader *reader, const struct layer *layer)
{
    const struct sbp_tensor *input = &reader->builder.graph->tensor[layer->input[0]];
    const int64_t features = input->shape.size[SBP_DIM_FEATURE] * input->shape.size[SBP_DIM_INNER];
    struct sbp_build_linear linear = {.name = layer->name, .input = layer->input[0], .table = -1};
    int64_t in = features;
    SBP_TRY(sbp_json_get_int64(&layer->at, "in", 1, SBP_MOST_SIZE, &in));
    if (in != features) {
        const struct sbp_json where = sbp_build_at(&layer->at, "in");
        return sbp_json_refuse(&where, "%lld, but its input \"%s\" has %lld features",
                               (long long)in, input->name, (long long)features);
    }
    if (sbp_json_has(&layer->at, "tied"))
        SBP_TRY(find_table(reader, layer, &linear.table));
    else
        SBP_TRY(read_out(layer, &linear));
    SBP_TRY(sbp_json_get_bool(&layer->at, "bias", &linear.bias));
    return sbp_build_linear(&reader->builder, &layer->at, &linear);
}

static enum sbp_status read_embedding(struct reader *reader, const struct layer *layer)
{
    const int64_t sequence = reader->builder.graph->sequence;
    struct sbp_build_embedding embedding = {.name = layer->name};
    struct sbp_json member;
    if (layer->index != 0)
        return sbp_json_refuse(&layer->at,
                               "an embedding reads the model's input, the token ids: it "
                               "must be the first layer");
    SBP_TRY(sbp_json_member(&layer->at, "vocab", &member));
    SBP_TRY(sbp_json_int64(&member, 1, INT32_MAX, &embedding.vocab)); /* ids are 32-bit */
    SBP_TRY(sbp_json_member(&layer->at, "hidden", &member));
    SBP_TRY(sbp_json_int64(&member, 1, SBP_MOST_SIZE, &embedding.hidden));
    SBP_TRY(sbp_json_get_int64(&layer->at, "positions", 1, INT32_MAX, &embedding.positions));
    if (embedding.positions > 0 && embedding.positions < sequence) {
        const struct sbp_json where = sbp_build_at(&layer->at, "positions");
        return sbp_json_refuse(&where, "%lld positions are fewer than the sequence's %lld",
                               (long long)embedding.positions, (long long)sequence);
    }
    return sbp_build_embedding(&reader->builder, &layer->at, &embedding);
}

static enum sbp_status read_layernorm(struct reader *reader, const struct layer *layer)
{
    double epsilon = 1e-5;
    SBP_TRY(sbp_json_get_double(&layer->at, "epsilon", 1e-30, 1, &epsilon));
    return sbp_build_layernorm(&reader->builder, &layer->at, layer->name, layer->input[0], epsilon);
}

static enum sbp_status read_attention(struct reader *reader, const struct layer *layer)
{
    struct sbp_json member;
    int64_t heads;
    bool causal = true;
    SBP_TRY(sbp_json_member(&layer->at, "heads", &member));
    SBP_TRY(sbp_json_int64(&member, 1, SBP_MOST_SIZE, &heads));
    SBP_TRY(sbp_json_get_bool(&layer->at, "causal", &causal));
    return sbp_build_attention(&reader->builder, &layer->at, layer->name, layer->input[0], heads,
                               causal);
}

static enum sbp_status read_add(struct reader *reader, const struct layer *layer)
{
    return sbp_build_add(&reader->builder, &layer->at, layer->name, layer->input[0],
                         layer->input[1]);
}

static enum sbp_status read_elementwise(struct reader *reader, const struct layer *layer)
{
    double probability = 0;
    if (layer->kind == SBP_OP_DROPOUT) {
        struct sbp_json member;
        SBP_TRY(sbp_json_member(&layer->at, "p", &member));
        SBP_TRY(sbp_json_double(&member, 0, 1, &probability));
        if (probability >= 1)
            return sbp_json_refuse(&member, "must be at least 0 and less than 1");
    }
    return sbp_build_elementwise(&reader->builder, &layer->at, layer->kind, layer->name,
                                 layer->input[0], probability);
}

static enum sbp_status read_cross_entropy(struct reader *reader, const struct layer *layer)
{
    return sbp_build_cross_entropy(&reader->builder, &layer->at, layer->name, layer->input[0]);
}

typedef enum sbp_status read_function(struct reader *reader, const struct layer *layer);
static read_function *const READ[SBP_OP_KINDS] = {
    [SBP_OP_LINEAR] = read_linear,
    [SBP_OP_RELU] = read_elementwise,
    [SBP_OP_GELU] = read_elementwise,
    [SBP_OP_EMBEDDING] = read_embedding,
    [SBP_OP_LAYERNORM] = read_layernorm,
    [SBP_OP_ATTENTION] = read_attention,
    [SBP_OP_ADD] = read_add,
    [SBP_OP_DROPOUT] = read_elementwise,
    [SBP_OP_CROSS_ENTROPY] = read_cross_entropy,
};

/* --- the list --- */

static enum sbp_status read_kind(const struct sbp_json *at, enum sbp_op_kind *kind)
{
    struct sbp_json member;
    int choice;
    SBP_TRY(sbp_json_member(at, "op", &member));
    SBP_TRY(sbp_json_choice(&member, sbp_op_names(), &choice));
    *kind = (enum sbp_op_kind)choice;
    return SBP_OK;
}

static enum sbp_status read_layer(struct reader *reader, int index)
{
    struct layer layer = {.index = index};
    SBP_TRY(sbp_json_element(&reader->layers, index, &layer.at));
    SBP_TRY(read_kind(&layer.at, &layer.kind));
    SBP_TRY(check_layer_keys(&layer));
    SBP_TRY(read_name(reader, &layer));
    if (reader->builder.graph->loss >= 0)
        return sbp_json_refuse(&layer.at, "stands after the loss, which must be the last layer");
    SBP_TRY(read_inputs(reader, &layer));
    return READ[layer.kind](reader, &layer);
}

/* Whether a layer reads the model's input, by default or by name. */
static bool reads_input(const struct sbp_json *layer, int index)
{
    struct sbp_json inputs, element;
    const char *name;
    int count;
    if (!sbp_json_has(layer, "inputs"))
        return index == 0;
    if (sbp_json_member(layer, "inputs", &inputs) != SBP_OK || !cJSON_IsArray(inputs.node) ||
        sbp_json_length(&inputs, &count) != SBP_OK || count < 1 ||
        sbp_json_element(&inputs, 0, &element) != SBP_OK || !cJSON_IsString(element.node))
        return false;
    return sbp_json_string(&element, &name) == SBP_OK && strcmp(name, "input") == 0;
}

/* `in` of the first linear that reads the model's input; 0 when there is none. */
static enum sbp_status features_of_linears(const struct reader *reader, int count,
                                           int64_t *features)
{
    struct sbp_json layer;
    enum sbp_op_kind kind;
    for (int i = 0; i < count && *features == 0; i++) {
        SBP_TRY(sbp_json_element(&reader->layers, i, &layer));
        SBP_TRY(read_kind(&layer, &kind));
        if (kind == SBP_OP_LINEAR && reads_input(&layer, i))
            SBP_TRY(sbp_json_get_int64(&layer, "in", 1, SBP_MOST_SIZE, features));
    }
    return SBP_OK;
}

static enum sbp_status read_model_input(struct reader *reader, int count)
{
    static const char *const CHOICES[] = {"free", "split", NULL};
    struct sbp_json first, member;
    enum sbp_op_kind kind;
    int64_t features = 0;
    int choice = 0;
    if (sbp_json_has(&reader->root, "input")) {
        SBP_TRY(sbp_json_member(&reader->root, "input", &member));
        SBP_TRY(sbp_json_choice(&member, CHOICES, &choice));
    }
    SBP_TRY(sbp_json_element(&reader->layers, 0, &first));
    SBP_TRY(read_kind(&first, &kind));
    if (kind == SBP_OP_EMBEDDING) {
        if (choice == 1 || sbp_json_has(&reader->root, "features")) {
            const struct sbp_json where =
                sbp_build_at(&reader->root, choice == 1 ? "input" : "features");
            return sbp_json_refuse(&where, "this model's input is token ids (an embedding)");
        }
        return SBP_OK;
    }
    reader->builder.graph->input_split = choice == 1;
    SBP_TRY(sbp_json_get_int64(&reader->root, "features", 1, SBP_MOST_SIZE, &features));
    if (features == 0)
        SBP_TRY(features_of_linears(reader, count, &features));
    if (features == 0)
        return sbp_json_refuse(&first, "how many features the model's input has is not said: give "
                                       "\"in\" of the linear that reads it, or the model's "
                                       "\"features\"");
    return sbp_build_input(&reader->builder, &reader->root, features);
}

/* An output that nobody reads has no gradient: only the last layer's may be one. */
static enum sbp_status check_dead_ends(struct reader *reader)
{
    struct sbp_graph *graph = reader->builder.graph;
    bool *read = SBP_NEW(&graph->arena, bool, graph->tensor_count);
    struct sbp_json layer;
    if (read == NULL)
        return sbp_fail(reader->root.diag, SBP_E_MEMORY, "%s: out of memory", reader->root.file);
    for (int i = 0; i < graph->op_count; i++)
        for (int input = 0; input < graph->op[i].input_count; input++)
            read[graph->op[i].input[input]] = true;
    for (int i = 0; i < graph->op_count - 1; i++) {
        if (read[graph->op[i].output])
            continue;
        SBP_TRY(sbp_json_element(&reader->layers, i, &layer));
        return sbp_json_refuse(&layer,
                               "no layer reads the output of \"%s\"; only the last layer's "
                               "may be unread",
                               graph->op[i].name);
    }
    return SBP_OK;
}

enum sbp_status sbp_graph_read_layers(const struct sbp_json *at, struct sbp_graph *graph,
                                      enum sbp_attention_kind attention)
{
    static const char *const KEYS[] = {"input", "features", NULL};
    struct reader reader = {.root = *at};
    int count;
    SBP_TRY(sbp_graph_check_keys(at, KEYS));
    SBP_TRY(sbp_json_member(at, "layers", &reader.layers));
    SBP_TRY(sbp_json_length(&reader.layers, &count));
    if (count < 1 || count > MOST_LAYERS)
        return sbp_json_refuse(&reader.layers, "has %d layers, legal are 1 to %d", count,
                               MOST_LAYERS);
    SBP_TRY(sbp_build_open(&reader.builder, at, graph, count));
    reader.builder.attention = attention;
    SBP_TRY(read_model_input(&reader, count));
    for (int i = 0; i < count; i++)
        SBP_TRY(read_layer(&reader, i));
    SBP_TRY(check_dead_ends(&reader));
    return sbp_build_close(&reader.builder, at);
}
