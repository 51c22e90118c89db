/* Sizes of an operator's blocks on a device, and counts of them that its costs share. */
#include "costmodel/model/op_cost_block_priv.h"

#include <math.h>

struct sbp_factor sbp_op_factor_one(void)
{
    struct sbp_factor factor;
    for (int r = 0; r < SBP_MAX_ROLES; r++)
        factor.of[r] = 1;
    return factor;
}

/* ---- sizes ---------------------------------------------------------------------------------- */

static void copy_shape(const struct sbp_graph *graph, int tensor, double size[SBP_MAX_DIMS])
{
    for (int dim = 0; dim < SBP_MAX_DIMS; dim++)
        size[dim] = tensor < 0 ? 1 : (double)graph->tensor[tensor].shape.size[dim];
}

static void divide(double size[SBP_MAX_DIMS], struct sbp_state state, double factor)
{
    if (state.kind == SBP_SPLIT)
        size[state.dim] /= factor;
}

/* A tied table (vocabulary, 1, hidden, 1) as the linear's W (in, 1, out, 1). */
static void transpose(double size[SBP_MAX_DIMS])
{
    const double rows = size[SBP_DIM_IN];
    size[SBP_DIM_IN] = size[SBP_DIM_OUT];
    size[SBP_DIM_OUT] = rows;
}

struct sbp_op_sizes sbp_op_sizes(const struct sbp_graph *graph, int op,
                                 const struct sbp_factor *factor)
{
    const struct sbp_op_node *node = &graph->op[op];
    struct sbp_op_sizes sizes;
    for (int i = 0; i < SBP_MAX_INPUTS; i++)
        copy_shape(graph, i < node->input_count ? node->input[i] : -1, sizes.input[i]);
    for (int w = 0; w < SBP_MAX_WEIGHTS; w++)
        copy_shape(graph, w < node->weight_count ? node->weight[w] : -1, sizes.weight[w]);
    copy_shape(graph, node->output, sizes.output);
    if (node->transposed_weight)
        transpose(sizes.weight[0]);
    for (int r = 0; r < node->entry->role_count; r++) {
        const struct sbp_role *role = &node->entry->role[r];
        for (int i = 0; i < node->input_count; i++)
            divide(sizes.input[i], role->input[i], factor->of[r]);
        for (int w = 0; w < node->weight_count; w++)
            divide(sizes.weight[w], role->weight[w], factor->of[r]);
        if (node->output >= 0)
            divide(sizes.output, role->output, factor->of[r]);
    }
    return sizes;
}

/* ---- counts -----------------------------------------------------------------------------------
 */

double sbp_op_factor_of(const struct sbp_op_node *node, const struct sbp_factor *factor,
                        const char *role)
{
    const int index = sbp_op_role(node->entry, role);
    return index < 0 ? 1 : factor->of[index];
}

double sbp_op_index_bytes(const int64_t kernel[2])
{
    return (double)kernel[0] * (double)kernel[1] <= 256 ? 1 : 4;
}

double sbp_op_patches(const struct sbp_op_node *node, const struct sbp_op_sizes *sizes)
{
    return sizes->output[SBP_DIM_BATCH] *
           fmin(sizes->output[SBP_DIM_SEQUENCE], (double)node->patches);
}

/* Keys that a query sees on average, in a window or not: the causal query at place p (from 1) sees
 * p of them, or its window. */
static double keys_seen(const struct sbp_op_node *node, double keys)
{
    const double window = (double)node->attention.window, all = (keys + 1) / 2;
    if (!node->attention.causal)
        return keys;
    if (node->attention.window == 0)
        return all;
    const double whole = fmin(keys, window); /* queries that see all before them */
    const double within = (whole * (whole + 1) / 2 + (keys - whole) * window) / keys;
    return node->attention.windowed * within + (1 - node->attention.windowed) * all;
}

struct sbp_op_scores sbp_op_scores(const struct sbp_graph *graph, int op,
                                   const struct sbp_op_sizes *sizes)
{
    const struct sbp_op_node *node = &graph->op[op];
    const double keys = (double)graph->tensor[node->input[0]].shape.size[SBP_DIM_SEQUENCE];
    const double queries = sbp_op_tokens(sizes->output) * sizes->output[SBP_DIM_FEATURE];
    return (struct sbp_op_scores){.all = queries * keys, .kept = queries * keys_seen(node, keys)};
}

double sbp_op_own_keys(const struct sbp_op_node *node, const struct sbp_op_sizes *sizes)
{
    if (node->kind == SBP_OP_ATTENTION) /* queries, keys and values are packed */
        return sbp_op_volume(sizes->input[0]) - sbp_op_volume(sizes->output);
    double elements = 0;
    for (int i = 1; i < node->input_count; i++)
        elements += sbp_op_volume(sizes->input[i]);
    return elements;
}

double sbp_op_slots(const struct sbp_op_node *node, const struct sbp_op_sizes *sizes)
{
    const double experts = sizes->weight[0][SBP_DIM_OUT];
    const double share =
        sbp_op_tokens(sizes->input[0]) * (double)node->moe.top_k / experts * node->moe.capacity;
    return experts * ceil(share * (1 - 1e-12));
}

struct sbp_op_grid sbp_op_grid(const struct sbp_op_node *node, const struct sbp_factor *factor,
                               const struct sbp_op_sizes *sizes)
{
    const double rows = sbp_op_factor_of(node, factor, "grid_row");
    const double columns = sbp_op_factor_of(node, factor, "grid_column");
    const double panels = fmax(rows, columns);
    return (struct sbp_op_grid){.rows = rows,
                                .columns = columns,
                                .panels = panels,
                                .m = sbp_op_tokens(sizes->input[0]),
                                .width = sbp_op_features(sizes->input[0]) * columns / panels,
                                .n = sbp_op_features(sizes->output)};
}

static bool splits_any(const struct sbp_op_node *node, int r)
{
    const struct sbp_role *role = &node->entry->role[r];
    bool splits = role->output.kind == SBP_SPLIT;
    for (int i = 0; i < node->input_count; i++)
        splits |= role->input[i].kind == SBP_SPLIT;
    for (int w = 0; w < node->weight_count; w++)
        splits |= role->weight[w].kind == SBP_SPLIT;
    return splits;
}

double sbp_op_parts_of(const struct sbp_op_node *node, const struct sbp_factor *factor, int except)
{
    double parts = 1;
    for (int r = 0; r < node->entry->role_count; r++)
        if (r != except && splits_any(node, r))
            parts *= factor->of[r];
    return parts;
}

double sbp_op_custom_parts(const struct sbp_graph *graph, const struct sbp_op_node *node,
                           const struct sbp_factor *factor)
{
    return sbp_op_parts_of(node, factor, -1) * (double)graph->global_batch /
           (double)graph->micro_batch;
}

struct sbp_halo sbp_op_halo(const struct sbp_graph *graph, const struct sbp_op_node *node,
                            const struct sbp_factor *factor)
{
    return sbp_halo_of(graph, node, sbp_op_factor_of(node, factor, "height"));
}

double sbp_op_row_elements(const struct sbp_op_sizes *sizes)
{
    return sizes->input[0][SBP_DIM_BATCH] * sbp_op_features(sizes->input[0]);
}
