#include "costmodel/model/graph.h"

#include <assert.h>

void sbp_graph_free(struct sbp_graph *graph)
{
    if (graph == NULL)
        return;
    sbp_arena_free(&graph->arena);
    *graph = (struct sbp_graph){.input = -1, .loss = -1};
}

enum sbp_status sbp_graph_set_micro_batch(struct sbp_graph *graph, int64_t sequences,
                                          struct sbp_diag *diag)
{
    int batch = SBP_NO_CLASS;
    if (sequences < 1 || graph->global_batch % sequences != 0)
        return sbp_fail(diag, SBP_E_INPUT,
                        "parallel: micro_batch: %lld, divisors of the global batch of %lld are "
                        "legal",
                        (long long)sequences, (long long)graph->global_batch);
    for (int t = 0; t < graph->tensor_count; t++) {
        if (graph->tensor[t].kind != SBP_ACTIVATION)
            continue;
        assert(graph->tensor[t].shape.size[SBP_DIM_BATCH] == graph->micro_batch);
        batch = graph->tensor[t].shape.dim_class[SBP_DIM_BATCH];
        graph->tensor[t].shape.size[SBP_DIM_BATCH] = sequences;
        if (batch != SBP_NO_CLASS)
            graph->dim_class[batch].size = sequences;
    }
    graph->micro_batch = sequences;
    return SBP_OK;
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

bool sbp_graph_is_tied(const struct sbp_graph *graph)
{
    bool is_tied = false;
    for (int op = 0; op < graph->op_count; op++)
        is_tied |= graph->op[op].transposed_weight;
    return is_tied;
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

int64_t sbp_graph_tensor_parameters(const struct sbp_tensor *tensor)
{
    int64_t elements = 1;
    for (int dim = 0; dim < SBP_MAX_DIMS; dim++)
        elements *= dim == tensor->valid_dim ? tensor->valid_rows : tensor->shape.size[dim];
    return elements;
}

int sbp_graph_training_moments(const struct sbp_training *training)
{
    if (training->update.optimizer != SBP_SGD)
        return 2;
    return training->update.momentum > 0 ? 1 : 0;
}
