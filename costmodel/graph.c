#include "costmodel/graph.h"

#include <assert.h>
#include <string.h>

#include "costmodel/graph_build.h"

/* --- reading --- */

enum sbp_status sbp_graph_check_keys(const struct sbp_json *at, const char *const *own)
{
    static const char *const COMMON[] = {"name",      "global_batch", "sequence",
                                         "precision", "optimizer",    "clip_norm",
                                         "attention", "notes",        "layers"};
    const char *known[SBP_MODEL_MOST_KEYS + 1] = {0};
    int count = 0;
    for (size_t i = 0; i < sizeof COMMON / sizeof COMMON[0]; i++)
        known[count++] = COMMON[i];
    for (int i = 0; own[i] != NULL; i++) {
        assert(count < SBP_MODEL_MOST_KEYS);
        known[count++] = own[i];
    }
    return sbp_json_keys(at, known);
}

static enum sbp_status read_sizes(const struct sbp_json *at, struct sbp_graph *graph)
{
    struct sbp_json member;
    SBP_TRY(sbp_json_member(at, "name", &member));
    SBP_TRY(sbp_json_name(&member, graph->name, (int)sizeof graph->name));
    SBP_TRY(sbp_json_member(at, "global_batch", &member));
    SBP_TRY(sbp_json_int64(&member, 1, SBP_MOST_SIZE, &graph->global_batch));
    graph->sequence = 1;
    return sbp_json_get_int64(at, "sequence", 1, SBP_MOST_SIZE, &graph->sequence);
}

static enum sbp_status read_attention(const struct sbp_json *at, enum sbp_attention_kind *kind)
{
    static const char *const NAMES[] = {"materialised", "flash", NULL};
    static const enum sbp_attention_kind KINDS[] = {SBP_ATTENTION_MATERIALISED,
                                                    SBP_ATTENTION_FLASH};
    struct sbp_json member;
    int choice = 0;
    if (sbp_json_has(at, "attention")) {
        SBP_TRY(sbp_json_member(at, "attention", &member));
        SBP_TRY(sbp_json_choice(&member, NAMES, &choice));
    }
    *kind = KINDS[choice];
    return SBP_OK;
}

static enum sbp_status read_form(const struct sbp_json *at, struct sbp_graph *graph,
                                 enum sbp_attention_kind attention)
{
    static const char *const ARCHITECTURES[] = {"gpt", NULL};
    struct sbp_json member;
    int choice;
    if (!sbp_json_has(at, "architecture"))
        return sbp_graph_read_layers(at, graph, attention);
    SBP_TRY(sbp_json_member(at, "architecture", &member));
    SBP_TRY(sbp_json_choice(&member, ARCHITECTURES, &choice));
    return sbp_graph_read_gpt(at, graph, attention);
}

static enum sbp_status read_model(const struct sbp_json *at, struct sbp_graph *graph)
{
    enum sbp_attention_kind attention = SBP_ATTENTION_MATERIALISED;
    SBP_TRY(read_sizes(at, graph));
    SBP_TRY(sbp_graph_read_training(at, graph));
    SBP_TRY(read_attention(at, &attention));
    return read_form(at, graph, attention);
}

enum sbp_status sbp_graph_read(const struct sbp_json *at, struct sbp_graph *graph)
{
    *graph = (struct sbp_graph){.input = -1, .loss = -1};
    const enum sbp_status status = read_model(at, graph);
    if (status != SBP_OK)
        sbp_graph_free(graph);
    return status;
}

void sbp_graph_free(struct sbp_graph *graph)
{
    if (graph == NULL)
        return;
    sbp_arena_free(&graph->arena);
    *graph = (struct sbp_graph){.input = -1, .loss = -1};
}

/* --- questions --- */

static bool reads(const struct sbp_op_node *op, int tensor)
{
    for (int i = 0; i < op->input_count; i++)
        if (op->input[i] == tensor)
            return true;
    for (int i = 0; i < op->weight_count; i++)
        if (op->weight[i] == tensor)
            return true;
    return false;
}

int sbp_graph_consumers(const struct sbp_graph *graph, int tensor, int *ops, int capacity)
{
    int count = 0;
    for (int i = 0; i < graph->op_count; i++) {
        if (!reads(&graph->op[i], tensor))
            continue;
        if (count < capacity)
            ops[count] = i;
        count++;
    }
    return count;
}

int64_t sbp_tensor_parameters(const struct sbp_tensor *tensor)
{
    int64_t elements = 1;
    for (int dim = 0; dim < SBP_MAX_DIMS; dim++)
        elements *= dim == tensor->valid_dim ? tensor->valid_rows : tensor->shape.size[dim];
    return elements;
}

/* --- flops --- */

static double elements_of(const struct sbp_tensor *tensor)
{
    double elements = 1;
    for (int dim = 0; dim < SBP_MAX_DIMS; dim++)
        elements *= (double)tensor->shape.size[dim];
    return elements;
}

static double input_elements(const struct sbp_graph *graph, const struct sbp_op_node *op)
{
    return elements_of(&graph->tensor[op->input[0]]);
}

static double tokens_of(const struct sbp_graph *graph)
{
    return (double)graph->global_batch * (double)graph->sequence;
}

/* Of what is no product: operations an element of the first input, exp, tanh and sqrt as one each.
 * These operators are bound by memory; the numbers only keep a device with slow arithmetic from
 * looking free. */
static const struct {
    double forward, backward;
} PER_ELEMENT[SBP_OP_KINDS] = {
    [SBP_OP_RELU] = {1, 1}, [SBP_OP_GELU] = {9, 17},   [SBP_OP_LAYERNORM] = {8, 14},
    [SBP_OP_ADD] = {1, 0},  [SBP_OP_DROPOUT] = {2, 2}, [SBP_OP_CROSS_ENTROPY] = {5, 3},
};
#define SOFTMAX_PER_SCORE 6

/* Scores (queries x keys over all heads) that attention forms, and the flops of one product of
 * theirs with a head's rows. */
struct scores {
    double count, product;
};

static struct scores attention_scores(const struct sbp_graph *graph, const struct sbp_op_node *op,
                                      bool causal)
{
    const struct sbp_shape *shape = &graph->tensor[op->output].shape;
    const double sequence = (double)shape->size[SBP_DIM_SEQUENCE];
    const double keys = causal ? (sequence + 1) / 2 : sequence; /* mean over the queries */
    const double count =
        (double)shape->size[SBP_DIM_BATCH] * (double)shape->size[SBP_DIM_FEATURE] * sequence * keys;
    return (struct scores){count, 2 * count * (double)shape->size[SBP_DIM_INNER]};
}

/* 2 multiply-adds a token and weight element. */
static double linear_flops(const struct sbp_graph *graph, const struct sbp_op_node *op)
{
    return 2 * tokens_of(graph) * elements_of(&graph->tensor[op->weight[0]]);
}

double sbp_op_forward_flops(const struct sbp_graph *graph, int op)
{
    const struct sbp_op_node *node = &graph->op[op];
    if (node->kind == SBP_OP_LINEAR)
        return linear_flops(graph, node);
    if (node->kind == SBP_OP_EMBEDDING) /* adds the positions */
        return node->weight_count > 1 ? elements_of(&graph->tensor[node->output]) : 0;
    if (node->kind == SBP_OP_ATTENTION) { /* QK^T and PV */
        const struct scores scores = attention_scores(graph, node, node->attention.causal);
        return 2 * scores.product + SOFTMAX_PER_SCORE * scores.count;
    }
    return PER_ELEMENT[node->kind].forward * input_elements(graph, node);
}

double sbp_op_backward_flops(const struct sbp_graph *graph, int op)
{
    const struct sbp_op_node *node = &graph->op[op];
    if (node->kind == SBP_OP_LINEAR) {
        const bool no_input_gradient = node->input[0] == graph->input && !graph->input_split;
        return (no_input_gradient ? 1 : 2) * linear_flops(graph, node);
    }
    if (node->kind == SBP_OP_EMBEDDING) /* scatter-adds to the tables */
        return node->weight_count * elements_of(&graph->tensor[node->output]);
    if (node->kind == SBP_OP_ATTENTION) {
        /* dV, dP, dQ, dK; flash forms the scores once more (Dao et al., 2022, algorithm 4). */
        const struct scores scores = attention_scores(graph, node, node->attention.causal);
        const int products = node->attention.kind == SBP_ATTENTION_FLASH ? 5 : 4;
        return products * scores.product + SOFTMAX_PER_SCORE * scores.count;
    }
    return PER_ELEMENT[node->kind].backward * input_elements(graph, node);
}

double sbp_graph_model_flops(const struct sbp_graph *graph)
{
    double forward = 0, unneeded = 0;
    for (int i = 0; i < graph->op_count; i++) {
        const struct sbp_op_node *op = &graph->op[i];
        if (op->kind == SBP_OP_LINEAR) {
            const struct sbp_tensor *weight = &graph->tensor[op->weight[0]];
            const double flops = 2 * tokens_of(graph) * (double)sbp_tensor_parameters(weight);
            forward += flops;
            if (op->input[0] == graph->input && !graph->input_split)
                unneeded += flops; /* the gradient of a free input is not computed */
        } else if (op->kind == SBP_OP_ATTENTION) {
            forward += 2 * attention_scores(graph, op, false).product;
        }
    }
    return 3 * forward - unneeded;
}
