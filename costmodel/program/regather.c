#include "costmodel/program/regather.h"

#include "costmodel/model/op_cost.h"

enum { NONE = -1, ONE_READER = -2, REFUSED = -3 };

/* Whether an operator's backward pass reads a tensor. */
static bool reads_back(const struct sbp_graph *graph, int op, int tensor)
{
    const struct sbp_factor whole = sbp_op_factor_one();
    const unsigned kept = sbp_op_kept(graph, op, &whole).inputs;
    bool reads = false;
    for (int i = 0; i < graph->op[op].input_count; i++)
        reads |= graph->op[op].input[i] == tensor && (kept >> i & 1) != 0;
    return reads;
}

static void note_reader(const struct sbp_graph *graph, int op, int tensor, int *gatherer)
{
    if (gatherer[tensor] == REFUSED || !reads_back(graph, op, tensor))
        return;
    if (!sbp_op_has_weight_phase(graph, op))
        gatherer[tensor] = REFUSED;
    else
        gatherer[tensor] = gatherer[tensor] == NONE ? ONE_READER : op;
}

void sbp_regather_find(const struct sbp_graph *graph, int first_op, int end_op, const int *segment,
                       int *gatherer)
{
    for (int t = 0; t < graph->tensor_count; t++) {
        const int from = graph->tensor[t].producer;
        gatherer[t] = from >= first_op && from < end_op && segment[from] < 0 ? NONE : REFUSED;
    }
    for (int op = first_op; op < end_op; op++)
        for (int i = 0; i < graph->op[op].input_count; i++)
            note_reader(graph, op, graph->op[op].input[i], gatherer);
    for (int t = 0; t < graph->tensor_count; t++)
        gatherer[t] = gatherer[t] < 0 ? NONE : gatherer[t];
}

static double features_of(const struct sbp_graph *graph, int tensor)
{
    const int64_t *size = graph->tensor[tensor].shape.size;
    return (double)size[SBP_DIM_FEATURE] * (double)size[SBP_DIM_INNER];
}

bool sbp_regather_rests_apart(const struct sbp_graph *graph, int op)
{
    const int output = graph->op[op].output;
    int linears = 0;
    double written = 0;
    if (!graph->op[op].entry->follows || output < 0)
        return false;
    for (int reader = op + 1; reader < graph->op_count; reader++)
        if (graph->op[reader].kind == SBP_OP_LINEAR && graph->op[reader].input[0] == output) {
            linears++;
            written += features_of(graph, graph->op[reader].output);
        }
    return linears > 1 && written >= features_of(graph, output);
}

bool sbp_regather_kept(const struct sbp_mesh *mesh, const struct sbp_dist *produced,
                       const struct sbp_dist *rest, struct sbp_dist *kept)
{
    *kept = *rest;
    if (sbp_dist_of_kind(mesh, produced, SBP_PARTIAL) != 0)
        return false;
    for (int axis = 0; axis < mesh->axis_count; axis++)
        if (produced->axis[axis].kind == SBP_SPLIT && rest->axis[axis].kind != SBP_SPLIT)
            kept->axis[axis] = produced->axis[axis];
    return !sbp_dist_equal(mesh, kept, rest);
}
