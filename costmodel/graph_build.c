#include "costmodel/graph_build.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Initial values: weights of a GPT and embeddings are normal(0, 0.02), as GPT-2's. Biases, and norm
 * gains around their 1, get the same spread instead of a constant: a bias that a run adds twice, or
 * a shard that it takes from the wrong place, then shows in every number. */
#define INIT_SPREAD 0.02

/* --- classes --- */

static int class_root(struct sbp_builder *builder, int dim_class)
{
    int *parent = builder->parent;
    while (parent[dim_class] != dim_class) {
        parent[dim_class] = parent[parent[dim_class]]; /* halve the path */
        dim_class = parent[dim_class];
    }
    return dim_class;
}

static int SBP_PRINTF(3, 4)
    add_class(struct sbp_builder *builder, int64_t size, const char *format, ...)
{
    struct sbp_graph *graph = builder->graph;
    assert(graph->class_count < builder->class_capacity);
    struct sbp_dim_class *added = &graph->dim_class[graph->class_count];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(added->name, sizeof added->name, format, arguments);
    va_end(arguments);
    added->size = size;
    builder->parent[graph->class_count] = graph->class_count;
    return graph->class_count++;
}

/* The older class names the union: what flows through a network is named where it begins. */
static void merge_classes(struct sbp_builder *builder, int a, int b)
{
    const int first = class_root(builder, a), second = class_root(builder, b);
    assert(builder->graph->dim_class[first].size == builder->graph->dim_class[second].size);
    if (first < second)
        builder->parent[second] = first;
    else
        builder->parent[first] = second;
}

/* --- tensors and operators --- */

struct sbp_json sbp_build_at(const struct sbp_json *object, const char *key)
{
    struct sbp_json member;
    if (sbp_json_has(object, key) && sbp_json_member(object, key, &member) == SBP_OK)
        return member;
    return *object;
}

int sbp_build_last(const struct sbp_builder *builder)
{
    assert(builder->graph->op_count > 0);
    return builder->graph->op[builder->graph->op_count - 1].output;
}

static bool count_elements(const int64_t *size, int64_t *elements)
{
    *elements = 1;
    for (int dim = 0; dim < SBP_MAX_DIMS; dim++)
        if (!sbp_mul_i64(*elements, size[dim], elements) || *elements > SBP_MOST_ELEMENTS)
            return false;
    return true;
}

/* Shape of no class: four ones to fill in. */
static struct sbp_shape scalar_shape(void)
{
    return (struct sbp_shape){
        .size = {1, 1, 1, 1},
        .dim_class = {SBP_NO_CLASS, SBP_NO_CLASS, SBP_NO_CLASS, SBP_NO_CLASS}};
}

static void set_dim(struct sbp_shape *shape, int dim, int64_t size, int dim_class)
{
    shape->size[dim] = size;
    shape->dim_class[dim] = dim_class;
}

static const struct sbp_shape *shape_of(const struct sbp_builder *builder, int tensor)
{
    assert(tensor >= 0 && tensor < builder->graph->tensor_count);
    return &builder->graph->tensor[tensor].shape;
}

static int64_t features_of(const struct sbp_shape *shape)
{
    return shape->size[SBP_DIM_FEATURE] * shape->size[SBP_DIM_INNER];
}

/* `name` is the operator's, `part` the operand's (".weight") or "". */
static enum sbp_status add_tensor(struct sbp_builder *builder, const struct sbp_json *at,
                                  const char *name, const char *part, enum sbp_tensor_kind kind,
                                  const struct sbp_shape *shape, int *index)
{
    struct sbp_graph *graph = builder->graph;
    int64_t elements;
    if (!count_elements(shape->size, &elements))
        return sbp_json_refuse(at, "%s%s of %lld x %lld x %lld x %lld has more than 2^59 elements",
                               name, part, (long long)shape->size[0], (long long)shape->size[1],
                               (long long)shape->size[2], (long long)shape->size[3]);
    assert(graph->tensor_count < builder->tensor_capacity);
    struct sbp_tensor *tensor = &graph->tensor[graph->tensor_count];
    *tensor = (struct sbp_tensor){.kind = kind, .shape = *shape, .producer = -1, .valid_dim = -1};
    (void)snprintf(tensor->name, sizeof tensor->name, "%s%s", name, part);
    tensor->valid_rows = shape->size[0];
    *index = graph->tensor_count++;
    return SBP_OK;
}

static struct sbp_op_node *add_op(struct sbp_builder *builder, enum sbp_op_kind kind,
                                  const char *name)
{
    struct sbp_graph *graph = builder->graph;
    assert(graph->op_count < builder->op_capacity);
    struct sbp_op_node *op = &graph->op[graph->op_count];
    *op = (struct sbp_op_node){
        .kind = kind, .entry = sbp_op(kind), .site = graph->op_count, .repeats = 1, .output = -1};
    for (int i = 0; i < SBP_MAX_INPUTS; i++)
        op->input[i] = -1;
    for (int i = 0; i < SBP_MAX_WEIGHTS; i++)
        op->weight[i] = -1;
    (void)snprintf(op->name, sizeof op->name, "%s", name);
    graph->op_count++;
    return op;
}

static enum sbp_status add_weight(struct sbp_builder *builder, const struct sbp_json *at,
                                  struct sbp_op_node *op, const char *part,
                                  const struct sbp_shape *shape, double mean, double spread)
{
    int tensor;
    SBP_TRY(add_tensor(builder, at, op->name, part, SBP_WEIGHT, shape, &tensor));
    builder->graph->tensor[tensor].init_mean = mean;
    builder->graph->tensor[tensor].init_spread = spread;
    op->weight[op->weight_count++] = tensor;
    return SBP_OK;
}

static void set_padding(struct sbp_builder *builder, int tensor, int dim, int64_t valid)
{
    struct sbp_tensor *padded = &builder->graph->tensor[tensor];
    if (valid > 0 && valid < padded->shape.size[dim]) {
        padded->valid_dim = dim;
        padded->valid_rows = valid;
    }
}

static enum sbp_status add_output(struct sbp_builder *builder, const struct sbp_json *at,
                                  struct sbp_op_node *op, const struct sbp_shape *shape)
{
    SBP_TRY(add_tensor(builder, at, op->name, "", SBP_ACTIVATION, shape, &op->output));
    builder->graph->tensor[op->output].producer = (int)(op - builder->graph->op);
    return SBP_OK;
}

/* (batch, sequence, features, inner) of the model. */
static struct sbp_shape activation_shape(const struct sbp_builder *builder, int64_t features,
                                         int dim_class, int64_t inner)
{
    struct sbp_shape shape = scalar_shape();
    set_dim(&shape, SBP_DIM_BATCH, builder->graph->global_batch, builder->batch);
    set_dim(&shape, SBP_DIM_SEQUENCE, builder->graph->sequence, builder->sequence);
    set_dim(&shape, SBP_DIM_FEATURE, features, dim_class);
    set_dim(&shape, SBP_DIM_INNER, inner, SBP_NO_CLASS);
    return shape;
}

/* A vector over the features of an activation: bias, gain, shift. */
static struct sbp_shape vector_shape(const struct sbp_shape *activation)
{
    struct sbp_shape shape = *activation;
    set_dim(&shape, SBP_DIM_IN, 1, SBP_NO_CLASS);
    set_dim(&shape, SBP_DIM_IN_INNER, 1, SBP_NO_CLASS);
    return shape;
}

/* --- operators --- */

enum sbp_status sbp_build_input(struct sbp_builder *builder, const struct sbp_json *at,
                                int64_t features)
{
    const int dim_class = add_class(builder, features, "input");
    const struct sbp_shape shape = activation_shape(builder, features, dim_class, 1);
    return add_tensor(builder, at, "input", "", SBP_ACTIVATION, &shape, &builder->graph->input);
}

/* W (in, in inner, out, out inner) on an input and an output. */
static struct sbp_shape linear_shape(const struct sbp_shape *input, const struct sbp_shape *output)
{
    struct sbp_shape shape = *output;
    set_dim(&shape, SBP_DIM_IN, input->size[SBP_DIM_FEATURE], input->dim_class[SBP_DIM_FEATURE]);
    set_dim(&shape, SBP_DIM_IN_INNER, input->size[SBP_DIM_INNER], SBP_NO_CLASS);
    return shape;
}

/* The head tied to an embedding table: in is the table's dimension 2, out its dimension 0. */
static enum sbp_status tie_weight(struct sbp_builder *builder, const struct sbp_json *at,
                                  struct sbp_op_node *op, int table, struct sbp_shape *output)
{
    const struct sbp_shape *input = shape_of(builder, op->input[0]);
    const struct sbp_shape *rows = shape_of(builder, table);
    if (input->size[SBP_DIM_FEATURE] != rows->size[2] || input->size[SBP_DIM_INNER] != 1)
        return sbp_json_refuse(at, "its input has %lld x %lld features, the table's rows have %lld",
                               (long long)input->size[SBP_DIM_FEATURE],
                               (long long)input->size[SBP_DIM_INNER], (long long)rows->size[2]);
    merge_classes(builder, input->dim_class[SBP_DIM_FEATURE], rows->dim_class[2]);
    op->transposed_weight = true;
    op->weight[op->weight_count++] = table;
    *output = activation_shape(builder, rows->size[0], rows->dim_class[0], 1);
    return SBP_OK;
}

static enum sbp_status own_weight(struct sbp_builder *builder, const struct sbp_json *at,
                                  struct sbp_op_node *op, const struct sbp_build_linear *linear,
                                  struct sbp_shape *output)
{
    const struct sbp_shape *input = shape_of(builder, op->input[0]);
    const int64_t heads = linear->heads > 0 ? linear->heads : linear->out;
    const char *class_name = linear->out_class != NULL ? linear->out_class : op->name;
    const char *suffix = linear->out_class != NULL ? "" : ".out";
    const int dim_class = add_class(builder, heads, "%s%s", class_name, suffix);
    *output = activation_shape(builder, heads, dim_class, linear->out / heads);
    const struct sbp_shape shape = linear_shape(input, output);
    double spread = builder->linear_spread;
    if (spread <= 0) /* keeps the scale of the activations from layer to layer */
        spread = 1 / sqrt((double)features_of(input));
    SBP_TRY(add_weight(builder, at, op, ".weight", &shape, 0, spread));
    set_padding(builder, op->weight[0], SBP_DIM_OUT, linear->valid_out);
    return SBP_OK;
}

enum sbp_status sbp_build_linear(struct sbp_builder *builder, const struct sbp_json *at,
                                 const struct sbp_build_linear *linear)
{
    struct sbp_op_node *op = add_op(builder, SBP_OP_LINEAR, linear->name);
    struct sbp_shape output;
    op->input[op->input_count++] = linear->input;
    if (linear->table >= 0)
        SBP_TRY(tie_weight(builder, at, op, linear->table, &output));
    else
        SBP_TRY(own_weight(builder, at, op, linear, &output));
    if (linear->bias) {
        const struct sbp_shape shape = vector_shape(&output);
        const struct sbp_tensor *weight = &builder->graph->tensor[op->weight[0]];
        const int64_t valid = weight->valid_dim >= 0 ? weight->valid_rows : 0;
        SBP_TRY(add_weight(builder, at, op, ".bias", &shape, 0, INIT_SPREAD));
        set_padding(builder, op->weight[1], SBP_DIM_OUT, valid);
    }
    return add_output(builder, at, op, &output);
}

enum sbp_status sbp_build_embedding(struct sbp_builder *builder, const struct sbp_json *at,
                                    const struct sbp_build_embedding *embedding)
{
    struct sbp_op_node *op = add_op(builder, SBP_OP_EMBEDDING, embedding->name);
    const int vocab = add_class(builder, embedding->vocab, "vocab");
    const int hidden = add_class(builder, embedding->hidden, "hidden");
    struct sbp_shape table = scalar_shape();
    set_dim(&table, SBP_DIM_IN, embedding->vocab, vocab);
    set_dim(&table, SBP_DIM_OUT, embedding->hidden, hidden);
    SBP_TRY(add_weight(builder, at, op, ".table", &table, 0, INIT_SPREAD));
    set_padding(builder, op->weight[0], SBP_DIM_IN, embedding->valid_vocab);
    if (embedding->positions > 0) {
        /* Rows of positions are never split: a rank looks up whatever its tokens need. */
        set_dim(&table, SBP_DIM_IN, embedding->positions, SBP_NO_CLASS);
        SBP_TRY(add_weight(builder, at, op, ".positions", &table, 0, INIT_SPREAD));
    }
    const struct sbp_shape shape = activation_shape(builder, embedding->hidden, hidden, 1);
    return add_output(builder, at, op, &shape);
}

enum sbp_status sbp_build_layernorm(struct sbp_builder *builder, const struct sbp_json *at,
                                    const char *name, int input, double epsilon)
{
    struct sbp_op_node *op = add_op(builder, SBP_OP_LAYERNORM, name);
    const struct sbp_shape shape = *shape_of(builder, input);
    const struct sbp_shape vector = vector_shape(&shape);
    op->input[op->input_count++] = input;
    op->epsilon = epsilon;
    SBP_TRY(add_weight(builder, at, op, ".gain", &vector, 1, INIT_SPREAD));
    SBP_TRY(add_weight(builder, at, op, ".shift", &vector, 0, INIT_SPREAD));
    return add_output(builder, at, op, &shape);
}

/* Its input's features are heads from here on, whoever made them. */
static void name_heads(struct sbp_builder *builder, const char *name, int dim_class)
{
    struct sbp_dim_class *heads = &builder->graph->dim_class[class_root(builder, dim_class)];
    (void)snprintf(heads->name, sizeof heads->name, "%s.heads", name);
}

enum sbp_status sbp_build_attention(struct sbp_builder *builder, const struct sbp_json *at,
                                    const char *name, int input, int64_t heads, bool causal)
{
    const struct sbp_shape packed = *shape_of(builder, input);
    const struct sbp_json where = sbp_build_at(at, "heads");
    if (packed.size[SBP_DIM_FEATURE] != heads || packed.size[SBP_DIM_INNER] % 3 != 0)
        return sbp_json_refuse(&where,
                               "%lld heads need a packed input of %lld x (3 x head size) features, "
                               "this one has %lld x %lld (the projection's out_heads)",
                               (long long)heads, (long long)heads,
                               (long long)packed.size[SBP_DIM_FEATURE],
                               (long long)packed.size[SBP_DIM_INNER]);
    const int64_t scores[SBP_MAX_DIMS] = {packed.size[0], packed.size[1], packed.size[1], heads};
    int64_t elements;
    if (!count_elements(scores, &elements))
        return sbp_json_refuse(at, "its scores are more than 2^59 elements");
    struct sbp_op_node *op = add_op(builder, SBP_OP_ATTENTION, name);
    op->input[op->input_count++] = input;
    op->attention.causal = causal;
    op->attention.kind = builder->attention;
    op->attention.qk_size = op->attention.value_size = packed.size[SBP_DIM_INNER] / 3;
    name_heads(builder, name, packed.dim_class[SBP_DIM_FEATURE]);
    struct sbp_shape shape = packed;
    shape.size[SBP_DIM_INNER] /= 3;
    return add_output(builder, at, op, &shape);
}

enum sbp_status sbp_build_elementwise(struct sbp_builder *builder, const struct sbp_json *at,
                                      enum sbp_op_kind kind, const char *name, int input,
                                      double probability)
{
    struct sbp_op_node *op = add_op(builder, kind, name);
    const struct sbp_shape shape = *shape_of(builder, input);
    op->input[op->input_count++] = input;
    op->probability = probability;
    return add_output(builder, at, op, &shape);
}

enum sbp_status sbp_build_add(struct sbp_builder *builder, const struct sbp_json *at,
                              const char *name, int left, int right)
{
    const struct sbp_shape a = *shape_of(builder, left), b = *shape_of(builder, right);
    const struct sbp_tensor *tensor = builder->graph->tensor;
    const struct sbp_json where = sbp_build_at(at, "inputs");
    if (left == right)
        return sbp_json_refuse(&where, "adds \"%s\" to itself", tensor[left].name);
    if (memcmp(a.size, b.size, sizeof a.size) != 0)
        return sbp_json_refuse(&where, "\"%s\" has %lld x %lld features, \"%s\" has %lld x %lld",
                               tensor[left].name, (long long)a.size[SBP_DIM_FEATURE],
                               (long long)a.size[SBP_DIM_INNER], tensor[right].name,
                               (long long)b.size[SBP_DIM_FEATURE],
                               (long long)b.size[SBP_DIM_INNER]);
    merge_classes(builder, a.dim_class[SBP_DIM_FEATURE], b.dim_class[SBP_DIM_FEATURE]);
    struct sbp_op_node *op = add_op(builder, SBP_OP_ADD, name);
    op->input[op->input_count++] = left;
    op->input[op->input_count++] = right;
    return add_output(builder, at, op, &a);
}

/* Features of logits that are tokens: what follows a padded linear without mixing features keeps
 * the linear's padding. */
static int64_t valid_features(const struct sbp_builder *builder, int tensor)
{
    const struct sbp_graph *graph = builder->graph;
    const int64_t all = features_of(shape_of(builder, tensor));
    int producer = graph->tensor[tensor].producer;
    while (producer >= 0 && graph->op[producer].entry->follows)
        producer = graph->tensor[graph->op[producer].input[0]].producer;
    if (producer < 0 || graph->op[producer].kind != SBP_OP_LINEAR)
        return all;
    const struct sbp_tensor *weight = &graph->tensor[graph->op[producer].weight[0]];
    return weight->valid_dim >= 0 ? weight->valid_rows : all;
}

enum sbp_status sbp_build_cross_entropy(struct sbp_builder *builder, const struct sbp_json *at,
                                        const char *name, int logits)
{
    const struct sbp_shape *shape = shape_of(builder, logits);
    const struct sbp_json where = sbp_build_at(at, "inputs");
    if (shape->size[SBP_DIM_INNER] != 1)
        return sbp_json_refuse(
            &where, "logits of %lld heads x %lld: a loss needs unpacked features",
            (long long)shape->size[SBP_DIM_FEATURE], (long long)shape->size[SBP_DIM_INNER]);
    if (features_of(shape) > INT32_MAX)
        return sbp_json_refuse(&where, "logits of %lld features: labels are 32-bit, legal are %d",
                               (long long)features_of(shape), INT32_MAX);
    struct sbp_op_node *op = add_op(builder, SBP_OP_CROSS_ENTROPY, name);
    op->input[op->input_count++] = logits;
    op->valid_vocabulary = valid_features(builder, logits);
    builder->graph->loss = builder->graph->op_count - 1;
    return SBP_OK;
}

/* --- opening and closing --- */

enum sbp_status sbp_build_open(struct sbp_builder *builder, const struct sbp_json *at,
                               struct sbp_graph *graph, int most_ops)
{
    *builder = (struct sbp_builder){.graph = graph,
                                    .op_capacity = most_ops,
                                    .tensor_capacity = (1 + SBP_MAX_WEIGHTS) * most_ops + 1,
                                    .class_capacity = 3 * most_ops + 4};
    graph->op = SBP_NEW(&graph->arena, struct sbp_op_node, builder->op_capacity);
    graph->tensor = SBP_NEW(&graph->arena, struct sbp_tensor, builder->tensor_capacity);
    graph->dim_class = SBP_NEW(&graph->arena, struct sbp_dim_class, builder->class_capacity);
    builder->parent = SBP_NEW(&graph->arena, int, builder->class_capacity);
    if (graph->op == NULL || graph->tensor == NULL || graph->dim_class == NULL ||
        builder->parent == NULL)
        return sbp_fail(at->diag, SBP_E_MEMORY, "%s: out of memory", at->file);
    graph->input = -1;
    graph->loss = -1;
    builder->batch = add_class(builder, graph->global_batch, "batch");
    builder->sequence = add_class(builder, graph->sequence, "sequence");
    return SBP_OK;
}

/* Roots move down to consecutive numbers in their order; a class's number is never above its own
 * index, so that this works in place. */
static int number_classes(struct sbp_builder *builder, int *number)
{
    struct sbp_graph *graph = builder->graph;
    int count = 0;
    for (int i = 0; i < graph->class_count; i++) {
        if (class_root(builder, i) != i)
            continue;
        graph->dim_class[count] = graph->dim_class[i];
        number[i] = count++;
    }
    return count;
}

static enum sbp_status close_classes(struct sbp_builder *builder, const struct sbp_json *at)
{
    struct sbp_graph *graph = builder->graph;
    int *number = SBP_NEW(&graph->arena, int, graph->class_count);
    if (number == NULL)
        return sbp_fail(at->diag, SBP_E_MEMORY, "%s: out of memory", at->file);
    const int count = number_classes(builder, number);
    for (int i = 0; i < graph->tensor_count; i++)
        for (int dim = 0; dim < SBP_MAX_DIMS; dim++) {
            int *dim_class = &graph->tensor[i].shape.dim_class[dim];
            if (*dim_class != SBP_NO_CLASS)
                *dim_class = number[class_root(builder, *dim_class)];
        }
    graph->class_count = count;
    if (count > SBP_MAX_CLASSES)
        return sbp_json_refuse(at, "has %d kinds of dimensions, at most %d are supported", count,
                               SBP_MAX_CLASSES);
    return SBP_OK;
}

enum sbp_status sbp_build_close(struct sbp_builder *builder, const struct sbp_json *at)
{
    struct sbp_graph *graph = builder->graph;
    SBP_TRY(close_classes(builder, at));
    graph->parameters = 0;
    for (int i = 0; i < graph->tensor_count; i++)
        if (graph->tensor[i].kind == SBP_WEIGHT &&
            (!sbp_add_i64(graph->parameters, sbp_tensor_parameters(&graph->tensor[i]),
                          &graph->parameters) ||
             graph->parameters > SBP_MOST_ELEMENTS))
            return sbp_json_refuse(at, "has more than 2^59 parameters");
    return SBP_OK;
}
