/* Memory of an operator: what it keeps from forward to backward, and its scratch space. */
#include "costmodel/model/op_cost_block_priv.h"

/* ---- what is kept --------------------------------------------------------------------------- */

/* Materialised attention keeps the probabilities and, with dropout, its mask and result
 * (Korthikanti et al., 2022, section 4.1: 5 a s^2 b). Flash attention keeps one log-sum-exp a row.
 */
static void keep_attention(const struct sbp_graph *graph, int op, const struct sbp_op_sizes *sizes,
                           struct sbp_op_kept *kept)
{
    const struct sbp_op_node *node = &graph->op[op];
    const struct sbp_op_scores scores = sbp_op_scores(graph, op, sizes);
    kept->inputs = (1u << node->input_count) - 1;
    kept->output = true;
    if (node->attention.kind == SBP_ATTENTION_FLASH) {
        kept->statistics = sbp_op_tokens(sizes->output) * sizes->output[SBP_DIM_FEATURE];
        return;
    }
    kept->elements = scores.all * (node->attention.dropout > 0 ? 2 : 1);
    kept->bytes = node->attention.dropout > 0 ? scores.all : 0;
}

/* A mixture keeps its input, the token copies that it sent, the outputs of both products, the
 * activation between them and the router's probabilities; and for each copy its expert and slot, 4
 * bytes each. */
static void keep_moe(const struct sbp_op_node *node, const struct sbp_op_sizes *sizes,
                     struct sbp_op_kept *kept)
{
    const double *first = sizes->weight[1];
    kept->inputs = 1;
    kept->elements = sbp_op_slots(node, sizes) * (2 * first[1] + first[2] * (first[3] + 1)) +
                     sbp_op_tokens(sizes->input[0]) * sizes->weight[0][SBP_DIM_OUT];
    kept->bytes = 8 * sbp_op_tokens(sizes->input[0]) * (double)node->moe.top_k;
}

/* Elements of the statistics that a norm or the loss keeps. */
static double statistics(const struct sbp_op_node *node, const double input[SBP_MAX_DIMS])
{
    switch (node->kind) {
    case SBP_OP_LAYERNORM:
    case SBP_OP_RMSNORM:
        return sbp_op_norm_sums(node->kind) * sbp_op_tokens(input);
    case SBP_OP_HEAD_NORM:
        return sbp_op_tokens(input) * input[SBP_DIM_FEATURE];
    case SBP_OP_BATCHNORM:
        return 2 * input[SBP_DIM_FEATURE];
    case SBP_OP_CROSS_ENTROPY:
        return 3 * sbp_op_tokens(input);
    default:
        return 0;
    }
}

/* Operators whose backward pass reads their input. */
static bool keeps_input(enum sbp_op_kind kind)
{
    return kind == SBP_OP_CONV2D || kind == SBP_OP_LINEAR || kind == SBP_OP_SUMMA_LINEAR ||
           kind == SBP_OP_RELU || kind == SBP_OP_GELU || kind == SBP_OP_SWIGLU ||
           kind == SBP_OP_LAYERNORM || kind == SBP_OP_RMSNORM || kind == SBP_OP_HEAD_NORM ||
           kind == SBP_OP_BATCHNORM || kind == SBP_OP_CROSS_ENTROPY;
}

struct sbp_op_kept sbp_op_kept(const struct sbp_graph *graph, int op,
                               const struct sbp_factor *factor)
{
    const struct sbp_op_node *node = &graph->op[op];
    const struct sbp_op_sizes sizes = sbp_op_sizes(graph, op, factor);
    struct sbp_op_kept kept = {.inputs = keeps_input(node->kind) ? 1 : 0,
                               .output = node->kind == SBP_OP_TANH,
                               .statistics = statistics(node, sizes.input[0])};
    switch (node->kind) {
    case SBP_OP_CONV2D: /* with the neighbours' rows, which dW reads again */
        kept.elements = sbp_op_halo(graph, node, factor).total * sbp_op_row_elements(&sizes);
        break;
    case SBP_OP_DROPOUT: /* its mask */
        kept.bytes = sbp_op_volume(sizes.output);
        break;
    case SBP_OP_MAXPOOL: /* which element of the window it was */
        kept.bytes = sbp_op_volume(sizes.output) * sbp_op_index_bytes(node->window.kernel);
        break;
    case SBP_OP_ATTENTION:
    case SBP_OP_GROUPED_ATTENTION:
    case SBP_OP_LATENT_ATTENTION:
        keep_attention(graph, op, &sizes, &kept);
        break;
    case SBP_OP_PATCH_EMBEDDING: /* the images, which are the model's input */
        kept.elements = sbp_op_patches(node, &sizes) * sizes.weight[0][0];
        break;
    case SBP_OP_MOE:
        keep_moe(node, &sizes, &kept);
        break;
    case SBP_OP_CUSTOM:
        kept.bytes = node->custom->saved_bytes / sbp_op_custom_parts(graph, node, factor);
        break;
    default:
        break;
    }
    return kept;
}

struct sbp_latent_parts sbp_op_latent_parts(const struct sbp_graph *graph,
                                            const struct sbp_op_node *node)
{
    const int shared = node->input_count - 1;
    const int64_t rope = graph->tensor[node->input[shared]].shape.size[SBP_DIM_FEATURE];
    return (struct sbp_latent_parts){rope, node->attention.qk_size - rope,
                                     node->attention.value_size};
}

/* Rows at the edges of a block are sent one behind the other; their gradients come so, and are
 * added from there. Those of rows that were fetched are formed before they go back. */
static double halo_scratch_rows(const struct sbp_graph *graph, const struct sbp_op_node *node,
                                const struct sbp_factor *factor, enum sbp_pass pass)
{
    const struct sbp_halo halo = sbp_op_halo(graph, node, factor);
    const double message = sbp_halo_largest_message(&halo);
    switch (pass) {
    case SBP_PASS_FORWARD:
        return message;
    case SBP_PASS_INPUT_GRADIENT:
        return halo.total + message;
    default:
        return 0;
    }
}

double sbp_op_scratch_elements(const struct sbp_graph *graph, int op,
                               const struct sbp_factor *factor, enum sbp_pass pass)
{
    const struct sbp_op_node *node = &graph->op[op];
    const struct sbp_op_sizes sizes = sbp_op_sizes(graph, op, factor);
    const double ways = sbp_op_factor_of(node, factor, "context");
    const bool backward = pass != SBP_PASS_FORWARD;
    switch (node->kind) {
    case SBP_OP_ATTENTION:
    case SBP_OP_GROUPED_ATTENTION:
    case SBP_OP_LATENT_ATTENTION: {
        const int64_t keys = graph->tensor[node->input[0]].shape.size[SBP_DIM_SEQUENCE];
        const struct sbp_attention_shape shape = {.batch = (int64_t)sizes.output[SBP_DIM_BATCH],
                                                  .sequence = keys, /* a tile of rows of them */
                                                  .heads = (int64_t)sizes.output[SBP_DIM_FEATURE],
                                                  .head_size = node->attention.qk_size,
                                                  .causal = node->attention.causal,
                                                  .kind = node->attention.kind};
        struct sbp_attention_shape rows = shape;
        rows.sequence = (int64_t)sizes.output[SBP_DIM_SEQUENCE];
        /* As gathered and in order, the gradients then in place of what was gathered; or one block
         * here and one on its way, gradients likewise, and what probabilities that are kept are
         * divided by so far. */
        const bool rings = node->attention.ring && ways > 1;
        const double ring = backward ? 4 : 2;
        const double blocks = ways <= 1 ? 0 : rings ? ring : 2 * ways;
        const double sums = rings && !backward ? (double)sbp_attention_sums_elements(&rows) : 0;
        const struct sbp_latent_parts parts = sbp_op_latent_parts(graph, node);
        return (double)(node->kind == SBP_OP_LATENT_ATTENTION
                            ? sbp_latent_scratch_elements(&shape, &parts, backward)
                            : sbp_attention_scratch_elements(&shape)) +
               sums + blocks * sbp_op_own_keys(node, &sizes);
    }
    case SBP_OP_MOE:
        return (backward ? 2 : 1) * sbp_op_slots(node, &sizes) * sizes.weight[1][1];
    case SBP_OP_CONV2D:
        return halo_scratch_rows(graph, node, factor, pass) * sbp_op_row_elements(&sizes);
    case SBP_OP_SUMMA_LINEAR: { /* a panel of each operand */
        const struct sbp_op_grid grid = sbp_op_grid(node, factor, &sizes);
        return grid.m * grid.width + grid.width * grid.n;
    }
    default:
        return 0;
    }
}
