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

struct sbp_op_scores sbp_op_scores(const struct sbp_graph *graph, int op,
                                   const struct sbp_op_sizes *sizes)
{
    const struct sbp_op_node *node = &graph->op[op];
    const double keys = (double)graph->tensor[node->input[0]].shape.size[SBP_DIM_SEQUENCE];
    const double queries = sbp_op_tokens(sizes->output) * sizes->output[SBP_DIM_FEATURE];
    const double own = sizes->output[SBP_DIM_SEQUENCE];
    const bool causal = node->attention.causal;
    return (struct sbp_op_scores){.all = queries * keys,
                                  .kept = queries * (causal ? (keys + 1) / 2 : keys),
                                  .formed = queries * (causal ? keys - (own - 1) / 2 : keys)};
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

static struct sbp_op_halo halo_of(const struct sbp_op_node *node, double rank, double rows_in,
                                  double rows_out, double ways)
{
    const double kernel = (double)node->window.kernel[0], stride = (double)node->window.stride[0];
    const double padding = (double)node->window.padding[0];
    const double own = rank * rows_in, next = own + rows_in;
    const double first = fmax(0, rank * rows_out * stride - padding);
    const double end =
        fmin(ways * rows_in, ((rank + 1) * rows_out - 1) * stride - padding + kernel);
    return (struct sbp_op_halo){.above = fmax(0, fmin(end, own) - first),
                                .below = fmax(0, end - fmax(first, next))};
}

struct sbp_op_halo sbp_op_halo(const struct sbp_graph *graph, const struct sbp_op_node *node,
                               const struct sbp_factor *factor)
{
    const double ways = sbp_op_factor_of(node, factor, "height");
    const struct sbp_shape *in = &graph->tensor[node->input[0]].shape;
    const struct sbp_shape *out = &graph->tensor[node->output].shape;
    const double rows_in = (double)in->size[SBP_DIM_SEQUENCE] / ways;
    const double rows_out = (double)out->size[SBP_DIM_SEQUENCE] / ways;
    struct sbp_op_halo worst = {0, 0};
    for (double rank = 0; rank < ways && ways > 1; rank++) {
        const struct sbp_op_halo halo = halo_of(node, rank, rows_in, rows_out, ways);
        if (halo.above + halo.below > worst.above + worst.below)
            worst = halo;
    }
    return worst;
}

double sbp_op_row_elements(const struct sbp_op_sizes *sizes)
{
    return sizes->input[0][SBP_DIM_BATCH] * sbp_op_features(sizes->input[0]);
}

double sbp_op_halo_elements(const struct sbp_graph *graph, const struct sbp_op_node *node,
                            const struct sbp_factor *factor, const struct sbp_op_sizes *sizes)
{
    const struct sbp_op_halo halo = sbp_op_halo(graph, node, factor);
    return (halo.above + halo.below) * sbp_op_row_elements(sizes);
}
