/* A model as a list of layers. */
#include "costmodel/model/graph_layer_ops_priv.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/text.h"
#include "costmodel/model/graph_read_priv.h"

#define MOST_LAYERS 10000
#define MOST_KEYS   20

struct reader {
    struct sbp_builder builder;
    struct sbp_json root, layers;
    struct sbp_images images;
};

/* Token ids and images are read by those that read nothing else. */
static bool reads_data(enum sbp_op_kind kind)
{
    return kind == SBP_OP_EMBEDDING || kind == SBP_OP_PATCH_EMBEDDING;
}

static enum sbp_status check_layer_keys(const struct sbp_layer *layer)
{
    const char *const *own = sbp_layer_keys(layer->kind);
    const char *known[MOST_KEYS] = {"op", "name"};
    int count = 2;
    if (!reads_data(layer->kind))
        known[count++] = "inputs";
    for (int i = 0; own[i] != NULL; i++) {
        assert(count < MOST_KEYS - 1);
        known[count++] = own[i];
    }
    return sbp_json_keys(&layer->at, known);
}

/* --- names --- */

static enum sbp_status read_name(const struct reader *reader, struct sbp_layer *layer)
{
    const struct sbp_json where = sbp_build_at(&layer->at, "name");
    if (!sbp_json_has(&layer->at, "name"))
        (void)snprintf(layer->name, sizeof layer->name, "%s%d", sbp_op(layer->kind)->name,
                       layer->index);
    else
        SBP_TRY(sbp_json_name(&where, layer->name, (int)sizeof layer->name));
    if (strcmp(layer->name, "input") == 0)
        return sbp_json_refuse(&where, "\"input\" is the name of the model's input");
    const int other = sbp_layer_find(reader->builder.graph, layer->name);
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
    return sbp_text_nearest(name, names);
}

static enum sbp_status refuse_input(struct reader *reader, const struct sbp_layer *layer,
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
                               "the model's input is token ids or images, which only embeddings "
                               "read; features besides have to be said (\"input\")");
    return SBP_OK;
}

static enum sbp_status find_input(struct reader *reader, const struct sbp_layer *layer,
                                  const struct sbp_json *at, int *tensor)
{
    const struct sbp_graph *graph = reader->builder.graph;
    const char *name;
    SBP_TRY(sbp_json_string(at, &name));
    if (strcmp(name, "input") == 0)
        return model_input(reader, at, tensor);
    const int op = sbp_layer_find(graph, name);
    if (op < 0)
        return refuse_input(reader, layer, at, name);
    *tensor = graph->op[op].output;
    return SBP_OK;
}

/* A custom layer has as many inputs as it names. */
static enum sbp_status check_input_count(const struct sbp_layer *layer, const struct sbp_json *at,
                                         int count)
{
    const int needed = sbp_op(layer->kind)->inputs;
    if (layer->kind == SBP_OP_CUSTOM) {
        if (count < 1 || count > SBP_MAX_INPUTS)
            return sbp_json_refuse(at, "names %d inputs, legal are 1 to %d", count, SBP_MAX_INPUTS);
    } else if (count != needed) {
        return sbp_json_refuse(at, "names %d inputs, %s has %d", count, sbp_op(layer->kind)->name,
                               needed);
    }
    return SBP_OK;
}

static enum sbp_status default_input(struct reader *reader, struct sbp_layer *layer)
{
    if (sbp_op(layer->kind)->inputs != 1)
        return sbp_json_refuse(&layer->at, "%s needs \"inputs\": the names of %d layers",
                               sbp_op(layer->kind)->name, sbp_op(layer->kind)->inputs);
    layer->input_count = 1;
    if (layer->index == 0)
        return model_input(reader, &layer->at, &layer->input[0]);
    layer->input[0] = sbp_build_last(&reader->builder);
    return SBP_OK;
}

static enum sbp_status read_inputs(struct reader *reader, struct sbp_layer *layer)
{
    struct sbp_json inputs, element;
    if (reads_data(layer->kind))
        return SBP_OK;
    if (!sbp_json_has(&layer->at, "inputs"))
        return default_input(reader, layer);
    SBP_TRY(sbp_json_member(&layer->at, "inputs", &inputs));
    SBP_TRY(sbp_json_length(&inputs, &layer->input_count));
    SBP_TRY(check_input_count(layer, &inputs, layer->input_count));
    for (int i = 0; i < layer->input_count; i++) {
        SBP_TRY(sbp_json_element(&inputs, i, &element));
        SBP_TRY(find_input(reader, layer, &element, &layer->input[i]));
    }
    return SBP_OK;
}

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
    struct sbp_layer layer = {
        .builder = &reader->builder, .index = index, .images = &reader->images};
    SBP_TRY(sbp_json_element(&reader->layers, index, &layer.at));
    SBP_TRY(read_kind(&layer.at, &layer.kind));
    SBP_TRY(check_layer_keys(&layer));
    SBP_TRY(read_name(reader, &layer));
    if (reader->builder.graph->loss >= 0)
        return sbp_json_refuse(&layer.at, "stands after the loss, which must be the last layer");
    SBP_TRY(read_inputs(reader, &layer));
    return sbp_layer_read(&layer);
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
        if ((kind == SBP_OP_LINEAR || kind == SBP_OP_SUMMA_LINEAR) && reads_input(&layer, i))
            SBP_TRY(sbp_json_get_int64(&layer, "in", 1, SBP_MOST_SIZE, features));
    }
    return SBP_OK;
}

/* "input": a word, or an object that says the shape. */
struct input {
    bool split, shaped;
    struct sbp_build_input shape;
};

static enum sbp_status read_images(const struct sbp_json *at, struct sbp_images *images)
{
    SBP_TRY(sbp_build_require(at, "height", SBP_MOST_IMAGE_SIDE, &images->height));
    SBP_TRY(sbp_build_require(at, "width", SBP_MOST_IMAGE_SIDE, &images->width));
    return sbp_build_require(at, "channels", SBP_MOST_IMAGE_SIDE, &images->channels);
}

static enum sbp_status read_input_object(struct reader *reader, const struct sbp_json *at,
                                         struct input *input)
{
    static const char *const IMAGE[] = {"height", "width", "channels", "split", NULL};
    static const char *const ROWS[] = {"features", "sequence", "split", NULL};
    const bool image =
        sbp_json_has(at, "height") || sbp_json_has(at, "width") || sbp_json_has(at, "channels");
    SBP_TRY(sbp_json_keys(at, image ? IMAGE : ROWS));
    SBP_TRY(sbp_json_get_bool(at, "split", &input->split));
    input->shaped = true;
    if (image) {
        struct sbp_images *images = &reader->images;
        SBP_TRY(read_images(at, images));
        input->shape = (struct sbp_build_input){.rows = images->height,
                                                .features = images->channels,
                                                .width = images->width,
                                                .image = true};
        return SBP_OK;
    }
    SBP_TRY(sbp_build_require(at, "features", SBP_MOST_SIZE, &input->shape.features));
    return sbp_json_get_int64(at, "sequence", 1, SBP_MOST_SIZE, &input->shape.rows);
}

static enum sbp_status read_input(struct reader *reader, struct input *input)
{
    static const char *const CHOICES[] = {"free", "split", NULL};
    struct sbp_json member;
    int choice = 0;
    *input = (struct input){.shape = {.rows = reader->builder.graph->sequence, .width = 1}};
    if (sbp_json_has(&reader->root, "input")) {
        SBP_TRY(sbp_json_member(&reader->root, "input", &member));
        if (cJSON_IsObject(member.node))
            SBP_TRY(read_input_object(reader, &member, input));
        else
            SBP_TRY(sbp_json_choice(&member, CHOICES, &choice));
        input->split |= choice == 1;
    }
    if (!sbp_json_has(&reader->root, "features"))
        return SBP_OK;
    SBP_TRY(sbp_json_member(&reader->root, "features", &member));
    if (input->shaped)
        return sbp_json_refuse(&member, "\"input\" says the model's features already");
    input->shaped = true;
    return sbp_json_int64(&member, 1, SBP_MOST_SIZE, &input->shape.features);
}

static enum sbp_status refuse_unknown_input(const struct sbp_json *layer, enum sbp_op_kind kind)
{
    if (kind == SBP_OP_CONV2D || kind == SBP_OP_MAXPOOL || kind == SBP_OP_AVGPOOL)
        return sbp_json_refuse(layer,
                               "%s reads images here: needs the model's \"input\": "
                               "{\"height\", \"width\", \"channels\"}",
                               sbp_op(kind)->name);
    return sbp_json_refuse(layer, "how many features the model's input has is not said: give "
                                  "\"in\" of the linear that reads it, or the model's "
                                  "\"features\"");
}

/* Token ids and patches of images are no activations; features may come besides them. A first layer
 * that reads something else is refused where it is read. */
static enum sbp_status read_model_input(struct reader *reader, int count)
{
    struct sbp_json first;
    struct input input;
    enum sbp_op_kind kind;
    SBP_TRY(read_input(reader, &input));
    SBP_TRY(sbp_json_element(&reader->layers, 0, &first));
    SBP_TRY(read_kind(&first, &kind));
    const bool data = reads_data(kind);
    if (kind == SBP_OP_PATCH_EMBEDDING && (!input.shape.image || input.split)) {
        const struct sbp_json where = sbp_build_at(&reader->root, "input");
        return sbp_json_refuse(&where, "this model's input is images: needs \"input\": "
                                       "{\"height\", \"width\", \"channels\"}");
    }
    if (kind == SBP_OP_PATCH_EMBEDDING || (data && !input.shaped && !input.split))
        return SBP_OK;
    if (data && !input.shaped) {
        const struct sbp_json where = sbp_build_at(&reader->root, "input");
        return sbp_json_refuse(&where, "this model's input is token ids (an embedding)");
    }
    reader->builder.graph->input_split = input.split;
    if (!input.shaped)
        SBP_TRY(features_of_linears(reader, count, &input.shape.features));
    if (input.shape.features == 0)
        return reads_input(&first, 0) ? refuse_unknown_input(&first, kind) : SBP_OK;
    return sbp_build_input(&reader->builder, &reader->root, &input.shape);
}

/* How often each activation is read. */
static int *count_readers(struct sbp_graph *graph)
{
    int *readers = SBP_NEW(&graph->arena, int, graph->tensor_count);
    for (int i = 0; readers != NULL && i < graph->op_count; i++)
        for (int input = 0; input < graph->op[i].input_count; input++)
            readers[graph->op[i].input[input]]++;
    return readers;
}

/* An output that nobody reads has no gradient: only the last layer's may be one. What an operator
 * changes in place is nobody else's. */
static enum sbp_status check_readers(struct reader *reader)
{
    struct sbp_graph *graph = reader->builder.graph;
    const int *readers = count_readers(graph);
    struct sbp_json layer;
    if (readers == NULL)
        return sbp_fail(reader->root.diag, SBP_E_MEMORY, "%s: out of memory", reader->root.file);
    if (graph->input >= 0 && readers[graph->input] == 0)
        return sbp_json_refuse(&reader->root, "no layer reads \"input\", the model's features");
    for (int i = 0; i < graph->op_count; i++) {
        const struct sbp_op_node *op = &graph->op[i];
        const bool unread = i < graph->op_count - 1 && readers[op->output] == 0;
        const bool shared = op->entry->in_place && readers[op->input[0]] > 1;
        if (!unread && !shared)
            continue;
        SBP_TRY(sbp_json_element(&reader->layers, i, &layer));
        if (shared)
            return sbp_json_refuse(&layer, "%s works in place: no other layer may read \"%s\"",
                                   op->entry->name, graph->tensor[op->input[0]].name);
        return sbp_json_refuse(&layer,
                               "no layer reads the output of \"%s\"; only the last layer's "
                               "may be unread",
                               op->name);
    }
    return SBP_OK;
}

enum sbp_status sbp_graph_read_layers(const struct sbp_json *at, struct sbp_graph *graph,
                                      enum sbp_attention_kind attention)
{
    static const char *const KEYS[] = {"layers", "input", "features", NULL};
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
    SBP_TRY(check_readers(&reader));
    return sbp_build_close(&reader.builder, at);
}
