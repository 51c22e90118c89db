#include "tests/papers/kept.h"

#include <math.h>

#include "costmodel/model/op_cost.h"

static double elements_of(const struct sbp_tensor *tensor)
{
    double elements = 1;
    for (int d = 0; d < SBP_MAX_DIMS; d++)
        elements *= (double)tensor->shape.size[d];
    return elements;
}

/* The first operator, in order, that keeps a tensor for its backward pass; -1: none. */
static int keeper_of(const struct sbp_graph *graph, int tensor)
{
    const struct sbp_factor one = sbp_op_factor_one();
    for (int op = 0; op < graph->op_count; op++) {
        const struct sbp_op_node *node = &graph->op[op];
        const struct sbp_op_kept kept = sbp_op_kept(graph, op, &one);
        if (kept.output && node->output == tensor)
            return op;
        for (int i = 0; i < node->input_count; i++)
            if (node->input[i] == tensor && (kept.inputs >> i & 1) != 0)
                return op;
    }
    return -1;
}

void kept_bytes(const struct sbp_graph *graph, double *bytes)
{
    const struct sbp_factor one = sbp_op_factor_one();
    const double element = (double)sbp_cluster_type_bytes(graph->precision.activation);
    for (int op = 0; op < graph->op_count; op++) {
        const struct sbp_op_kept kept = sbp_op_kept(graph, op, &one);
        bytes[op] = kept.elements * element + kept.statistics * fmax(element, 4) + kept.bytes;
    }
    for (int t = 0; t < graph->tensor_count; t++) {
        if (graph->tensor[t].kind != SBP_ACTIVATION)
            continue;
        const int keeper = keeper_of(graph, t), producer = graph->tensor[t].producer;
        if (keeper >= 0)
            bytes[producer >= 0 ? producer : keeper] += elements_of(&graph->tensor[t]) * element;
    }
}
