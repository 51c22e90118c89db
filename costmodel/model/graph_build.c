#include "base/math/numeric.h"
#include "costmodel/model/graph_build_priv.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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

int sbp_build_class(struct sbp_builder *builder, int64_t size, const char *format, ...)
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

void sbp_build_rename_class(struct sbp_builder *builder, int dim_class, const char *format, ...)
{
    struct sbp_dim_class *named = &builder->graph->dim_class[class_root(builder, dim_class)];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(named->name, sizeof named->name, format, arguments);
    va_end(arguments);
}

void sbp_build_merge(struct sbp_builder *builder, int a, int b)
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

enum sbp_status sbp_build_require(const struct sbp_json *at, const char *key, int64_t most,
                                  int64_t *value)
{
    struct sbp_json member;
    SBP_TRY(sbp_json_member(at, key, &member));
    return sbp_json_int64(&member, 1, most, value);
}

enum sbp_status sbp_build_probability(const struct sbp_json *at, const char *key, double *value)
{
    SBP_TRY(sbp_json_get_double(at, key, 0, 1, value));
    if (*value < 1)
        return SBP_OK;
    return SBP_BUILD_REFUSE(at, key, "must be at least 0 and less than 1");
}

int sbp_build_last(const struct sbp_builder *builder)
{
    assert(builder->graph->op_count > 0);
    return builder->graph->op[builder->graph->op_count - 1].output;
}

bool sbp_build_count(const int64_t size[SBP_MAX_DIMS], int64_t *elements)
{
    *elements = 1;
    for (int dim = 0; dim < SBP_MAX_DIMS; dim++)
        if (!sbp_mul_i64(*elements, size[dim], elements) || *elements > SBP_MOST_ELEMENTS)
            return false;
    return true;
}

struct sbp_shape sbp_build_scalar(void)
{
    return (struct sbp_shape){
        .size = {1, 1, 1, 1},
        .dim_class = {SBP_NO_CLASS, SBP_NO_CLASS, SBP_NO_CLASS, SBP_NO_CLASS}};
}

void sbp_build_set_dim(struct sbp_shape *shape, int dim, int64_t size, int dim_class)
{
    shape->size[dim] = size;
    shape->dim_class[dim] = dim_class;
}

struct sbp_shape sbp_build_shape(const struct sbp_builder *builder, int tensor)
{
    assert(tensor >= 0 && tensor < builder->graph->tensor_count);
    return builder->graph->tensor[tensor].shape;
}

int64_t sbp_build_features(const struct sbp_shape *shape)
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
    if (!sbp_build_count(shape->size, &elements))
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

struct sbp_op_node *sbp_build_op(struct sbp_builder *builder, enum sbp_op_kind kind,
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

void sbp_build_reads(struct sbp_op_node *op, int tensor)
{
    assert(op->input_count < SBP_MAX_INPUTS);
    op->input[op->input_count++] = tensor;
}

enum sbp_status sbp_build_distinct(const struct sbp_builder *builder, const struct sbp_json *at,
                                   const int *input, int count)
{
    for (int i = 0; i < count; i++)
        for (int other = 0; other < i; other++)
            if (input[other] == input[i])
                return SBP_BUILD_REFUSE(at, "inputs", "names \"%s\" twice",
                                        builder->graph->tensor[input[i]].name);
    return SBP_OK;
}

enum sbp_status sbp_build_weight(struct sbp_builder *builder, const struct sbp_json *at,
                                 struct sbp_op_node *op, const char *part,
                                 const struct sbp_shape *shape, double mean, double spread)
{
    int tensor = -1;
    SBP_TRY(add_tensor(builder, at, op->name, part, SBP_WEIGHT, shape, &tensor));
    builder->graph->tensor[tensor].init_mean = mean;
    builder->graph->tensor[tensor].init_spread = spread;
    assert(op->weight_count < SBP_MAX_WEIGHTS);
    op->weight[op->weight_count++] = tensor;
    return SBP_OK;
}

enum sbp_status sbp_build_bias(struct sbp_builder *builder, const struct sbp_json *at,
                               struct sbp_op_node *op, const struct sbp_shape *output)
{
    const struct sbp_shape shape = sbp_build_vector(output);
    return sbp_build_weight(builder, at, op, ".bias", &shape, 0, SBP_INIT_SPREAD);
}

enum sbp_status sbp_build_output(struct sbp_builder *builder, const struct sbp_json *at,
                                 struct sbp_op_node *op, const struct sbp_shape *shape)
{
    SBP_TRY(add_tensor(builder, at, op->name, "", SBP_ACTIVATION, shape, &op->output));
    builder->graph->tensor[op->output].producer = (int)(op - builder->graph->op);
    return SBP_OK;
}

double sbp_build_spread(const struct sbp_builder *builder, double terms)
{
    return builder->linear_spread > 0 ? builder->linear_spread : 1 / sqrt(terms);
}

struct sbp_shape sbp_build_with_features(const struct sbp_shape *tokens, int64_t features,
                                         int dim_class, int64_t inner)
{
    struct sbp_shape shape = *tokens;
    sbp_build_set_dim(&shape, SBP_DIM_FEATURE, features, dim_class);
    sbp_build_set_dim(&shape, SBP_DIM_INNER, inner, SBP_NO_CLASS);
    return shape;
}

struct sbp_shape sbp_build_vector(const struct sbp_shape *activation)
{
    struct sbp_shape shape = *activation;
    sbp_build_set_dim(&shape, SBP_DIM_IN, 1, SBP_NO_CLASS);
    sbp_build_set_dim(&shape, SBP_DIM_IN_INNER, 1, SBP_NO_CLASS);
    return shape;
}

/* --- the model's input --- */

struct sbp_shape sbp_build_tokens(const struct sbp_builder *builder)
{
    struct sbp_shape shape = sbp_build_scalar();
    sbp_build_set_dim(&shape, SBP_DIM_BATCH, builder->graph->global_batch, builder->batch);
    sbp_build_set_dim(&shape, SBP_DIM_SEQUENCE, builder->graph->sequence, builder->sequence);
    return shape;
}

enum sbp_status sbp_build_input(struct sbp_builder *builder, const struct sbp_json *at,
                                const struct sbp_build_input *input)
{
    struct sbp_shape shape = sbp_build_tokens(builder);
    if (input->rows != builder->graph->sequence)
        sbp_build_set_dim(&shape, SBP_DIM_SEQUENCE, input->rows,
                          sbp_build_class(builder, input->rows, input->image ? "height" : "rows"));
    const int features =
        sbp_build_class(builder, input->features, input->image ? "channels" : "input");
    shape = sbp_build_with_features(&shape, input->features, features, input->width);
    return add_tensor(builder, at, "input", "", SBP_ACTIVATION, &shape, &builder->graph->input);
}

/* --- opening and closing --- */

static enum sbp_status read_linears(const struct sbp_json *at, struct sbp_builder *builder)
{
    static const char *const NAMES[] = {"plain", "summa", NULL};
    int choice = 0;
    SBP_TRY(sbp_json_get_choice(at, "linears", NAMES, &choice));
    builder->linears_on_grid = choice == 1;
    return SBP_OK;
}

enum sbp_status sbp_build_open(struct sbp_builder *builder, const struct sbp_json *at,
                               struct sbp_graph *graph, int most_ops)
{
    *builder = (struct sbp_builder){.graph = graph,
                                    .op_capacity = most_ops,
                                    .tensor_capacity = (1 + SBP_MAX_WEIGHTS) * most_ops + 1,
                                    .class_capacity = SBP_BUILD_CLASSES * most_ops + 6};
    graph->op = SBP_NEW(&graph->arena, struct sbp_op_node, builder->op_capacity);
    graph->tensor = SBP_NEW(&graph->arena, struct sbp_tensor, builder->tensor_capacity);
    graph->dim_class = SBP_NEW(&graph->arena, struct sbp_dim_class, builder->class_capacity);
    builder->parent = SBP_NEW(&graph->arena, int, builder->class_capacity);
    if (graph->op == NULL || graph->tensor == NULL || graph->dim_class == NULL ||
        builder->parent == NULL)
        return sbp_fail(at->diag, SBP_E_MEMORY, "%s: out of memory", at->file);
    graph->input = -1;
    graph->loss = -1;
    builder->batch = sbp_build_class(builder, graph->global_batch, "batch");
    builder->sequence = sbp_build_class(builder, graph->sequence, "sequence");
    return read_linears(at, builder);
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
            (!sbp_add_i64(graph->parameters, sbp_graph_tensor_parameters(&graph->tensor[i]),
                          &graph->parameters) ||
             graph->parameters > SBP_MOST_ELEMENTS))
            return sbp_json_refuse(at, "has more than 2^59 parameters");
    return SBP_OK;
}
