#include "costmodel/model/op_cost.h"

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

static double volume(const double size[SBP_MAX_DIMS])
{
    return size[0] * size[1] * size[2] * size[3];
}

static double tokens(const double size[SBP_MAX_DIMS])
{
    return size[SBP_DIM_BATCH] * size[SBP_DIM_SEQUENCE];
}

static double features(const double size[SBP_MAX_DIMS])
{
    return size[SBP_DIM_FEATURE] * size[SBP_DIM_INNER];
}

static double factor_of(const struct sbp_op_node *node, const struct sbp_factor *factor,
                        const char *role)
{
    const int index = sbp_op_role(node->entry, role);
    return index < 0 ? 1 : factor->of[index];
}

/* Share of a weight that is no padding. */
static double valid_share(const struct sbp_graph *graph, int tensor)
{
    const struct sbp_tensor *weight = &graph->tensor[tensor];
    return weight->valid_dim < 0
               ? 1
               : (double)weight->valid_rows / (double)weight->shape.size[weight->valid_dim];
}

/* ---- work ----------------------------------------------------------------------------------- */

/* One call of sbp_op_work. */
struct job {
    const struct sbp_graph *graph;
    const struct sbp_op_node *node;
    const struct sbp_factor *factor;
    enum sbp_pass pass;
    struct sbp_op_sizes sizes;
};

static void add_product(struct sbp_work *work, double count, double m, double n, double k)
{
    work->product[work->product_count++] =
        (struct sbp_product){.count = count, .m = m, .n = n, .k = k};
}

/* Y = XW and the two products of its gradients: dX = dY W^T, dW = X^T dY. */
static void add_matmul(struct sbp_work *work, enum sbp_pass pass, double count, double m, double n,
                       double k)
{
    if (pass == SBP_PASS_FORWARD)
        add_product(work, count, m, n, k);
    else if (pass == SBP_PASS_INPUT_GRADIENT)
        add_product(work, count, m, k, n);
    else
        add_product(work, count, k, n, m);
}

static struct sbp_work linear_work(const struct job *job)
{
    struct sbp_work work = {0};
    const double m = tokens(job->sizes.input[0]);
    const double k = job->sizes.weight[0][0] * job->sizes.weight[0][1];
    const double n = job->sizes.weight[0][2] * job->sizes.weight[0][3];
    add_matmul(&work, job->pass, 1, m, n, k);
    work.model_flops = 2 * m * n * k * valid_share(job->graph, job->node->weight[0]);
    return work;
}

/* What moves a block of data a few times and computes little: operations an element of the first
 * input (exp, tanh and sqrt as one each), and reads and writes in units of it. Normalisation and
 * cross-entropy pass over it twice forward. */
static const struct {
    double forward_flops, backward_flops, forward_passes, backward_passes;
} STREAM[SBP_OP_KINDS] = {
    [SBP_OP_RELU] = {1, 1, 2, 3},       [SBP_OP_GELU] = {9, 17, 2, 3},
    [SBP_OP_DROPOUT] = {2, 2, 2, 2},    [SBP_OP_ADD] = {1, 0, 3, 0},
    [SBP_OP_LAYERNORM] = {8, 14, 3, 5}, [SBP_OP_RMSNORM] = {5, 9, 3, 5},
    [SBP_OP_BATCHNORM] = {8, 14, 3, 5}, [SBP_OP_CROSS_ENTROPY] = {5, 3, 2, 2},
    [SBP_OP_SWIGLU] = {3, 6, 1.5, 2.5}, [SBP_OP_FLATTEN] = {0, 0, 2, 2},
    [SBP_OP_TANH] = {1, 3, 2, 3},       [SBP_OP_HEAD_NORM] = {5, 9, 3, 5},
};

static struct sbp_work stream_work(const struct job *job)
{
    const bool forward = job->pass == SBP_PASS_FORWARD;
    const double elements = volume(job->sizes.input[0]);
    struct sbp_work work = {0};
    if (job->pass == SBP_PASS_WEIGHT_GRADIENT) /* formed with the input's */
        return work;
    work.vector_flops = elements * (forward ? STREAM[job->node->kind].forward_flops
                                            : STREAM[job->node->kind].backward_flops);
    work.elements = elements * (forward ? STREAM[job->node->kind].forward_passes
                                        : STREAM[job->node->kind].backward_passes);
    if (job->node->kind == SBP_OP_DROPOUT)
        work.bytes = elements; /* its mask */
    return work;
}

/* Forward copies the token, backward puts it among zeros. */
static struct sbp_work first_token_work(const struct job *job)
{
    struct sbp_work work = {0};
    if (job->pass == SBP_PASS_WEIGHT_GRADIENT)
        return work;
    const bool forward = job->pass == SBP_PASS_FORWARD;
    work.elements = volume(job->sizes.output) +
                    (forward ? volume(job->sizes.output) : volume(job->sizes.input[0]));
    return work;
}

/* Which element of a window: a byte as long as that can count them. */
static double index_bytes(const int64_t kernel[2])
{
    return (double)kernel[0] * (double)kernel[1] <= 256 ? 1 : 4;
}

static struct sbp_work no_work(const struct job *job)
{
    (void)job;
    return (struct sbp_work){0};
}

/* A comparison or an addition for each element of each window, padding included; backward a maximum
 * has one element of its window to add to, which its index names. */
static struct sbp_work pool_work(const struct job *job)
{
    struct sbp_work work = {0};
    if (job->pass == SBP_PASS_WEIGHT_GRADIENT)
        return work;
    const int64_t *kernel = job->node->window.kernel;
    const bool maximum = job->node->kind == SBP_OP_MAXPOOL;
    const double out = volume(job->sizes.output);
    const bool one = maximum && job->pass == SBP_PASS_INPUT_GRADIENT;
    work.vector_flops = out * (one ? 1 : (double)kernel[0] * (double)kernel[1]);
    work.elements = volume(job->sizes.input[0]) + out;
    work.bytes = maximum ? out * index_bytes(kernel) : 0;
    return work;
}

/* Rows of tables: forward reads and writes, positions and types are added; backward adds to the
 * tables' gradients, which are zeroed before. */
static struct sbp_work embedding_work(const struct job *job)
{
    struct sbp_work work = {0};
    if (job->pass == SBP_PASS_INPUT_GRADIENT)
        return work;
    const double block = volume(job->sizes.output);
    const int tables = job->node->weight_count;
    work.elements = 2 * block;
    if (job->pass == SBP_PASS_FORWARD) {
        work.vector_flops = (tables - 1) * block;
    } else {
        work.vector_flops = tables * block;
        work.gradient_elements = volume(job->sizes.weight[0]);
    }
    return work;
}

/* A convolution as a product over its windows, which overlap in memory: implicit GEMM reads (or, of
 * the input's gradient, writes) the block that they lie in and not each of them (Chetlur et al.,
 * cuDNN, 2014, section 3.2). */
static struct sbp_work conv_work(const struct job *job)
{
    struct sbp_work work = {0};
    const double *out = job->sizes.output;
    const double m = tokens(out) * out[SBP_DIM_INNER];
    const double k = job->sizes.weight[0][0] * job->sizes.weight[0][1];
    const double n = job->sizes.weight[0][2];
    add_matmul(&work, job->pass, 1, m, n, k);
    work.product[0].elements = volume(job->sizes.input[0]) + k * n + m * n;
    work.model_flops = 2 * m * n * k;
    return work;
}

/* Rows of a block that are patches: a class token is none. Where the sequence is split, the slowest
 * member has patches alone. */
static double patches(const struct sbp_op_node *node, const struct sbp_op_sizes *sizes)
{
    return sizes->output[SBP_DIM_BATCH] *
           fmin(sizes->output[SBP_DIM_SEQUENCE], (double)node->patches);
}

/* One product over the patches; class token and positions are added. */
static struct sbp_work patch_work(const struct job *job)
{
    struct sbp_work work = {0};
    if (job->pass == SBP_PASS_INPUT_GRADIENT)
        return work;
    const double m = patches(job->node, &job->sizes);
    const double k = job->sizes.weight[0][0], n = job->sizes.weight[0][2];
    add_matmul(&work, job->pass, 1, m, n, k);
    work.elements = 2 * volume(job->sizes.output);
    work.model_flops = 2 * m * n * k;
    return work;
}

/* ---- attention ------------------------------------------------------------------------------ */

#define SOFTMAX_PER_SCORE 6

/* Queries x keys over the heads of the block. Causal attention forms what the slowest rank forms:
 * the last queries see all keys but the average of those after them. */
struct scores {
    double all, formed;
};

static struct scores scores_of(const struct sbp_graph *graph, int op,
                               const struct sbp_op_sizes *sizes)
{
    const struct sbp_op_node *node = &graph->op[op];
    const double keys = (double)graph->tensor[node->input[0]].shape.size[SBP_DIM_SEQUENCE];
    const double queries = tokens(sizes->output) * sizes->output[SBP_DIM_FEATURE];
    const double own = sizes->output[SBP_DIM_SEQUENCE];
    const double seen = node->attention.causal ? keys - (own - 1) / 2 : keys;
    return (struct scores){queries * keys, queries * seen};
}

/* Elements of keys and values (with the keys' shared part) that a device holds of its own. */
static double own_keys(const struct sbp_op_node *node, const struct sbp_op_sizes *sizes)
{
    if (node->kind == SBP_OP_ATTENTION) /* queries, keys and values are packed */
        return volume(sizes->input[0]) - volume(sizes->output);
    double elements = 0;
    for (int i = 1; i < node->input_count; i++)
        elements += volume(sizes->input[i]);
    return elements;
}

/* Inputs, those of all context members, and the output are read or written once forward and twice
 * backward; materialised probabilities are written forward, read and their gradients written
 * backward. Backward: dV, dP of the value size; dQ, dK of the other; flash forms the scores once
 * more (Dao et al., 2022, algorithm 4). */
static struct sbp_work attention_work(const struct job *job)
{
    const struct sbp_op_node *node = job->node;
    const bool flash = node->attention.kind == SBP_ATTENTION_FLASH;
    const bool forward = job->pass == SBP_PASS_FORWARD;
    struct sbp_work work = {0};
    if (job->pass == SBP_PASS_WEIGHT_GRADIENT)
        return work;
    const struct scores scores = scores_of(job->graph, (int)(node - job->graph->op), &job->sizes);
    const double qk = 2 * (double)node->attention.qk_size;
    const double value = 2 * (double)node->attention.value_size;
    const double products = forward ? qk + value : 2 * (qk + value) + (flash ? qk : 0);
    work.flops = scores.formed * (products + SOFTMAX_PER_SCORE);
    work.model_flops = scores.all * (qk + value);
    work.elements = volume(job->sizes.output);
    for (int i = 0; i < node->input_count; i++)
        work.elements += volume(job->sizes.input[i]);
    work.elements += (factor_of(node, job->factor, "context") - 1) * own_keys(node, &job->sizes);
    work.elements *= forward ? 1 : 2;
    if (!flash)
        work.elements += (forward ? 1 : 2) * scores.all;
    return work;
}

/* ---- mixture of experts --------------------------------------------------------------------- */

/* Token copies that a device sends, and, since the experts it holds get as many from each member of
 * its group, receives. A device keeps equally many slots for every expert, full or not: tokens x
 * top_k / experts x capacity, rounded up (Lepikhin et al., GShard, 2020, section 2.2; Fedus et al.,
 * Switch Transformers, 2021, equation 3). The product may miss a whole number by rounding alone. */
static double slots(const struct sbp_op_node *node, const struct sbp_op_sizes *sizes)
{
    const double experts = sizes->weight[0][SBP_DIM_OUT];
    const double share =
        tokens(sizes->input[0]) * (double)node->moe.top_k / experts * node->moe.capacity;
    return experts * ceil(share * (1 - 1e-12));
}

static struct sbp_work moe_work(const struct job *job)
{
    const double *first = job->sizes.weight[1];
    const double sent = slots(job->node, &job->sizes), experts = first[0];
    const double hidden = first[1], ffn = first[2], gates = first[3];
    const double routed = job->sizes.weight[0][SBP_DIM_OUT], block = volume(job->sizes.input[0]);
    struct sbp_work work = {0};
    add_matmul(&work, job->pass, 1, tokens(job->sizes.input[0]), routed, hidden);
    add_matmul(&work, job->pass, experts, sent / experts, ffn * gates, hidden);
    add_matmul(&work, job->pass, experts, sent / experts, hidden, ffn);
    if (job->pass == SBP_PASS_WEIGHT_GRADIENT)
        return work;
    const bool forward = job->pass == SBP_PASS_FORWARD;
    /* Tokens to slots and slots weighted into the sum: each reads one side and writes the other;
     * backward the weights' gradients read the experts' outputs besides. The activation between the
     * products reads and writes as an operator by itself would. */
    work.elements = 2 * (block + sent * hidden) + (forward ? 0 : sent * hidden) +
                    sent * ffn * (forward ? gates + 1 : 2 * gates + 1);
    work.vector_flops = sent * (2 * hidden + 4 * ffn);
    work.model_flops =
        2 * tokens(job->sizes.input[0]) *
        (hidden * routed + (double)job->node->moe.top_k * hidden * ffn * (gates + 1));
    return work;
}

/* ---- SUMMA, custom -------------------------------------------------------------------------- */

/* A panel: the inner features that lie with one member of the longer side, which broadcasts its
 * operand's. X's features are split by columns, W's rows by grid rows, by digits of their own
 * (distribution.h): the other operand's share of a panel lies with all members of the shorter side,
 * as much with each, and is gathered, which takes no longer than a broadcast. */
struct grid {
    double rows, columns, panels;
    double m, width, n; /* a device's rows, a panel's features, a device's columns */
};

static struct grid grid_of(const struct sbp_op_node *node, const struct sbp_factor *factor,
                           const struct sbp_op_sizes *sizes)
{
    const double rows = factor_of(node, factor, "grid_row");
    const double columns = factor_of(node, factor, "grid_column");
    const double panels = fmax(rows, columns);
    return (struct grid){.rows = rows,
                         .columns = columns,
                         .panels = panels,
                         .m = tokens(sizes->input[0]),
                         .width = features(sizes->input[0]) * columns / panels,
                         .n = features(sizes->output)};
}

/* A rank-k update of the result's block for each panel (van de Geijn and Watts, 1997, section 3).
 */
static struct sbp_work summa_work(const struct job *job)
{
    struct sbp_work work = {0};
    const struct grid grid = grid_of(job->node, job->factor, &job->sizes);
    add_matmul(&work, job->pass, grid.panels, grid.m, grid.n, grid.width);
    work.model_flops = 2 * grid.panels * grid.m * grid.n * grid.width *
                       valid_share(job->graph, job->node->weight[0]);
    return work;
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

/* Parts that a custom operator's roles make of its work, those that split any operand; but not role
 * `except` (-1: all). */
static double parts_of(const struct sbp_op_node *node, const struct sbp_factor *factor, int except)
{
    double parts = 1;
    for (int r = 0; r < node->entry->role_count; r++)
        if (r != except && splits_any(node, r))
            parts *= factor->of[r];
    return parts;
}

/* Parts of a custom operator's costs, which are given for the whole model batch. */
static double custom_parts(const struct sbp_graph *graph, const struct sbp_op_node *node,
                           const struct sbp_factor *factor)
{
    return parts_of(node, factor, -1) * (double)graph->global_batch / (double)graph->micro_batch;
}

static struct sbp_work custom_work(const struct job *job)
{
    const struct sbp_custom *custom = job->node->custom;
    const double parts = custom_parts(job->graph, job->node, job->factor);
    struct sbp_work work = {.flops = custom->flops[job->pass] / parts,
                            .bytes = custom->bytes[job->pass] / parts,
                            .time_s = custom->time_s[job->pass] / parts};
    if (job->pass == SBP_PASS_FORWARD)
        work.model_flops = work.flops;
    return work;
}

typedef struct sbp_work work_function(const struct job *job);
static work_function *const WORK[SBP_OP_KINDS] = {
    [SBP_OP_LINEAR] = linear_work,
    [SBP_OP_RELU] = stream_work,
    [SBP_OP_GELU] = stream_work,
    [SBP_OP_EMBEDDING] = embedding_work,
    [SBP_OP_LAYERNORM] = stream_work,
    [SBP_OP_ATTENTION] = attention_work,
    [SBP_OP_ADD] = stream_work,
    [SBP_OP_DROPOUT] = stream_work,
    [SBP_OP_CROSS_ENTROPY] = stream_work,
    [SBP_OP_RMSNORM] = stream_work,
    [SBP_OP_SWIGLU] = stream_work,
    [SBP_OP_ROTARY] = no_work,
    [SBP_OP_GROUPED_ATTENTION] = attention_work,
    [SBP_OP_LATENT_ATTENTION] = attention_work,
    [SBP_OP_CONV2D] = conv_work,
    [SBP_OP_BATCHNORM] = stream_work,
    [SBP_OP_MAXPOOL] = pool_work,
    [SBP_OP_AVGPOOL] = pool_work,
    [SBP_OP_FLATTEN] = stream_work,
    [SBP_OP_PATCH_EMBEDDING] = patch_work,
    [SBP_OP_MOE] = moe_work,
    [SBP_OP_SUMMA_LINEAR] = summa_work,
    [SBP_OP_CUSTOM] = custom_work,
    [SBP_OP_TANH] = stream_work,
    [SBP_OP_HEAD_NORM] = stream_work,
    [SBP_OP_FIRST_TOKEN] = first_token_work,
};

struct sbp_work sbp_op_work(const struct sbp_graph *graph, int op, const struct sbp_factor *factor,
                            enum sbp_pass pass)
{
    const struct job job = {.graph = graph,
                            .node = &graph->op[op],
                            .factor = factor,
                            .pass = pass,
                            .sizes = sbp_op_sizes(graph, op, factor)};
    if (pass == SBP_PASS_WEIGHT_GRADIENT && job.node->weight_count == 0)
        return (struct sbp_work){0};
    return WORK[job.node->kind](&job);
}

static bool is_free(const struct sbp_graph *graph, int tensor)
{
    return tensor == graph->input && !graph->input_split;
}

bool sbp_op_forms_input_gradient(const struct sbp_graph *graph, int op)
{
    const struct sbp_op_node *node = &graph->op[op];
    bool wanted = false;
    for (int i = 0; i < node->input_count; i++)
        wanted |= !is_free(graph, node->input[i]);
    if (node->input_count == 0 || wanted)
        return wanted;
    return node->kind == SBP_OP_LAYERNORM || node->kind == SBP_OP_RMSNORM ||
           node->kind == SBP_OP_HEAD_NORM || node->kind == SBP_OP_BATCHNORM ||
           node->kind == SBP_OP_CROSS_ENTROPY;
}

bool sbp_op_has_weight_phase(const struct sbp_graph *graph, int op)
{
    switch (graph->op[op].kind) {
    case SBP_OP_LINEAR:
    case SBP_OP_CONV2D:
    case SBP_OP_MOE:
    case SBP_OP_SUMMA_LINEAR:
    case SBP_OP_CUSTOM:
        return graph->op[op].weight_count > 0;
    default:
        return false;
    }
}

double sbp_work_flops(const struct sbp_work *work)
{
    double flops = work->flops + work->vector_flops;
    for (int i = 0; i < work->product_count; i++)
        flops += 2 * work->product[i].count * work->product[i].m * work->product[i].n *
                 work->product[i].k;
    return flops;
}

/* ---- rows of other members ------------------------------------------------------------------ */

/* Input rows that lie with other members but in windows of the member's output rows, before and
 * after its own. */
struct halo {
    double above, below;
};

static struct halo halo_of(const struct sbp_op_node *node, double rank, double rows_in,
                           double rows_out, double ways)
{
    const double kernel = (double)node->window.kernel[0], stride = (double)node->window.stride[0];
    const double padding = (double)node->window.padding[0];
    const double own = rank * rows_in, next = own + rows_in;
    const double first = fmax(0, rank * rows_out * stride - padding);
    const double end =
        fmin(ways * rows_in, ((rank + 1) * rows_out - 1) * stride - padding + kernel);
    return (struct halo){.above = fmax(0, fmin(end, own) - first),
                         .below = fmax(0, end - fmax(first, next))};
}

/* Of the member that misses most: others have an image's edge on one side. Rows are split into runs
 * that lie one behind the other. */
static struct halo worst_halo(const struct sbp_graph *graph, const struct sbp_op_node *node,
                              const struct sbp_factor *factor)
{
    const double ways = factor_of(node, factor, "height");
    const struct sbp_shape *in = &graph->tensor[node->input[0]].shape;
    const struct sbp_shape *out = &graph->tensor[node->output].shape;
    const double rows_in = (double)in->size[SBP_DIM_SEQUENCE] / ways;
    const double rows_out = (double)out->size[SBP_DIM_SEQUENCE] / ways;
    struct halo worst = {0, 0};
    for (double rank = 0; rank < ways && ways > 1; rank++) {
        const struct halo halo = halo_of(node, rank, rows_in, rows_out, ways);
        if (halo.above + halo.below > worst.above + worst.below)
            worst = halo;
    }
    return worst;
}

/* Elements of a row of a device's images. */
static double row_elements(const struct sbp_op_sizes *sizes)
{
    return sizes->input[0][SBP_DIM_BATCH] * features(sizes->input[0]);
}

static double halo_elements(const struct sbp_graph *graph, const struct sbp_op_node *node,
                            const struct sbp_factor *factor, const struct sbp_op_sizes *sizes)
{
    const struct halo halo = worst_halo(graph, node, factor);
    return (halo.above + halo.below) * row_elements(sizes);
}

/* ---- what is kept --------------------------------------------------------------------------- */

/* Materialised: probabilities, and with dropout its mask and what it left (Korthikanti et al.,
 * 2022, section 4.1: 5 a s^2 b); flash: a log-sum-exp a row. */
static void keep_attention(const struct sbp_graph *graph, int op, const struct sbp_op_sizes *sizes,
                           struct sbp_op_kept *kept)
{
    const struct sbp_op_node *node = &graph->op[op];
    const struct scores scores = scores_of(graph, op, sizes);
    kept->inputs = (1u << node->input_count) - 1;
    kept->output = true;
    if (node->attention.kind == SBP_ATTENTION_FLASH) {
        kept->elements = tokens(sizes->output) * sizes->output[SBP_DIM_FEATURE];
        return;
    }
    kept->elements = scores.all * (node->attention.dropout > 0 ? 2 : 1);
    kept->bytes = node->attention.dropout > 0 ? scores.all : 0;
}

/* The input; token copies sent, both products' outputs, the activation between, the router's
 * probabilities; which expert and which slot each copy went to, 4 bytes each. */
static void keep_moe(const struct sbp_op_node *node, const struct sbp_op_sizes *sizes,
                     struct sbp_op_kept *kept)
{
    const double *first = sizes->weight[1];
    kept->inputs = 1;
    kept->elements = slots(node, sizes) * (2 * first[1] + first[2] * (first[3] + 1)) +
                     tokens(sizes->input[0]) * sizes->weight[0][SBP_DIM_OUT];
    kept->bytes = 8 * tokens(sizes->input[0]) * (double)node->moe.top_k;
}

/* Statistics that a norm or the loss keeps of its input. */
static double statistics(const struct sbp_op_node *node, const double input[SBP_MAX_DIMS])
{
    switch (node->kind) {
    case SBP_OP_LAYERNORM:
        return 2 * tokens(input);
    case SBP_OP_RMSNORM:
        return tokens(input);
    case SBP_OP_HEAD_NORM:
        return tokens(input) * input[SBP_DIM_FEATURE];
    case SBP_OP_BATCHNORM:
        return 2 * input[SBP_DIM_FEATURE];
    case SBP_OP_CROSS_ENTROPY:
        return 3 * tokens(input);
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
                               .elements = statistics(node, sizes.input[0])};
    switch (node->kind) {
    case SBP_OP_CONV2D: /* with the neighbours' rows, which dW reads again */
        kept.elements = halo_elements(graph, node, factor, &sizes);
        break;
    case SBP_OP_DROPOUT: /* its mask */
        kept.bytes = volume(sizes.output);
        break;
    case SBP_OP_MAXPOOL: /* which element of the window it was */
        kept.bytes = volume(sizes.output) * index_bytes(node->window.kernel);
        break;
    case SBP_OP_ATTENTION:
    case SBP_OP_GROUPED_ATTENTION:
    case SBP_OP_LATENT_ATTENTION:
        keep_attention(graph, op, &sizes, &kept);
        break;
    case SBP_OP_PATCH_EMBEDDING: /* the images, which are the model's input */
        kept.elements = patches(node, &sizes) * sizes.weight[0][0];
        break;
    case SBP_OP_MOE:
        keep_moe(node, &sizes, &kept);
        break;
    case SBP_OP_CUSTOM:
        kept.bytes = node->custom->saved_bytes / custom_parts(graph, node, factor);
        break;
    default:
        break;
    }
    return kept;
}

double sbp_op_scratch_elements(const struct sbp_graph *graph, int op,
                               const struct sbp_factor *factor, enum sbp_pass pass)
{
    const struct sbp_op_node *node = &graph->op[op];
    const struct sbp_op_sizes sizes = sbp_op_sizes(graph, op, factor);
    const double ways = factor_of(node, factor, "context");
    const bool backward = pass != SBP_PASS_FORWARD;
    switch (node->kind) {
    case SBP_OP_ATTENTION:
    case SBP_OP_GROUPED_ATTENTION:
    case SBP_OP_LATENT_ATTENTION: {
        const int64_t keys = graph->tensor[node->input[0]].shape.size[SBP_DIM_SEQUENCE];
        const struct sbp_attention_shape shape = {.batch = (int64_t)sizes.output[SBP_DIM_BATCH],
                                                  .sequence = keys, /* a tile of rows of them */
                                                  .heads = (int64_t)sizes.output[SBP_DIM_FEATURE],
                                                  .head_size = node->attention.value_size,
                                                  .causal = node->attention.causal,
                                                  .kind = node->attention.kind};
        /* Gathered, or one block here and one on its way; gradients likewise. */
        const double blocks = ways <= 1 ? 0 : node->attention.ring ? 2 : ways;
        return (double)sbp_attention_scratch_elements(&shape) +
               (backward ? 2 : 1) * blocks * own_keys(node, &sizes);
    }
    case SBP_OP_MOE:
        return (backward ? 2 : 1) * slots(node, &sizes) * sizes.weight[1][1];
    case SBP_OP_CONV2D: /* what neighbours add to the gradient of rows at the edge */
        return backward ? halo_elements(graph, node, factor, &sizes) : 0;
    case SBP_OP_SUMMA_LINEAR: { /* a panel of each operand */
        const struct grid grid = grid_of(node, factor, &sizes);
        return grid.m * grid.width + grid.width * grid.n;
    }
    default:
        return 0;
    }
}

/* ---- collectives inside --------------------------------------------------------------------- */

/* A list that grows; groups of one are left out, and what would serve the gradient of a free input,
 * which nobody forms (norms and losses do, with their other gradients). */
struct inner_list {
    const struct sbp_graph *graph;
    const struct sbp_op_node *node;
    const struct sbp_factor *factor;
    bool no_input_gradient;
    struct sbp_op_inner *inner;
    int count;
};

static void add_over(struct inner_list *list, const char *role, enum sbp_pass pass,
                     enum sbp_collective kind, double elements, int count)
{
    const int index = sbp_op_role(list->node->entry, role);
    if (index < 0 || list->factor->of[index] <= 1 || count <= 0)
        return;
    if (pass == SBP_PASS_INPUT_GRADIENT && list->no_input_gradient)
        return;
    list->inner[list->count++] = (struct sbp_op_inner){
        .pass = pass, .kind = kind, .roles = 1u << index, .elements = elements, .count = count};
}

static void inner_loss(struct inner_list *list)
{
    unsigned roles = 0;
    for (int r = 0; r < list->node->entry->role_count; r++)
        if (list->node->entry->role[r].output.kind == SBP_PARTIAL && list->factor->of[r] > 1)
            roles |= 1u << r;
    if (roles != 0)
        list->inner[list->count++] = (struct sbp_op_inner){.pass = SBP_PASS_FORWARD,
                                                           .kind = SBP_ALL_REDUCE,
                                                           .roles = roles,
                                                           .elements = 1,
                                                           .count = 1,
                                                           .scalar = true};
}

static void inner_context(struct inner_list *list, const struct sbp_op_sizes *sizes)
{
    const double ways = factor_of(list->node, list->factor, "context");
    const double own = own_keys(list->node, sizes);
    if (list->node->attention.ring) { /* the gradients travel one step further: home */
        add_over(list, "context", SBP_PASS_FORWARD, SBP_SEND_RECV, own, (int)ways - 1);
        add_over(list, "context", SBP_PASS_INPUT_GRADIENT, SBP_SEND_RECV, own, (int)ways - 1);
        add_over(list, "context", SBP_PASS_INPUT_GRADIENT, SBP_SEND_RECV, own, (int)ways);
        return;
    }
    add_over(list, "context", SBP_PASS_FORWARD, SBP_ALL_GATHER, ways * own, 1);
    add_over(list, "context", SBP_PASS_INPUT_GRADIENT, SBP_ALL_GATHER, ways * own, 1);
    add_over(list, "context", SBP_PASS_INPUT_GRADIENT, SBP_REDUCE_SCATTER, ways * own, 1);
}

/* Rows before the own ones and rows after them, one message for each member that they lie with: a
 * large kernel reaches past the neighbours. Backward the same rows of dX go home as sums: the dual.
 */
static void inner_halo(struct inner_list *list, const struct sbp_op_sizes *sizes)
{
    const struct halo halo = worst_halo(list->graph, list->node, list->factor);
    const double side[] = {halo.above, halo.below};
    for (int pass = SBP_PASS_FORWARD; pass <= SBP_PASS_INPUT_GRADIENT; pass++)
        for (int i = 0; i < 2; i++) {
            const double messages = ceil(side[i] / sizes->input[0][SBP_DIM_SEQUENCE]);
            add_over(list, "height", (enum sbp_pass)pass, SBP_SEND_RECV,
                     side[i] / messages * row_elements(sizes), (int)messages);
        }
}

static void inner_experts(struct inner_list *list, const struct sbp_op_sizes *sizes)
{
    const double sent = slots(list->node, sizes) * sizes->weight[1][1];
    add_over(list, "expert", SBP_PASS_FORWARD, SBP_ALL_TO_ALL, sent, 2);
    add_over(list, "expert", SBP_PASS_INPUT_GRADIENT, SBP_ALL_TO_ALL, sent, 2);
    if (list->no_input_gradient) /* dY goes to the experts even so */
        add_over(list, "expert", SBP_PASS_WEIGHT_GRADIENT, SBP_ALL_TO_ALL, sent, 1);
}

/* Y = XW broadcasts panels of X in rows and of W in columns. dX = dY W^T broadcasts W's, and sums
 * dX's in rows; dW = X^T dY broadcasts X's, and sums dW's in columns: a sum is a broadcast
 * backwards and costs the same. A product takes max(rows, columns) (columns - 1 + rows - 1) alpha +
 * (m K / rows + K n / columns) beta for (m, K) x (K, n): what moves is what van de Geijn and Watts
 * (1997, section 3) and Optimus (Xu et al., 2021, section 3.1) move, in as many panels as on the
 * latter's square grid; latency is that of the pipelined ring. */
static void inner_summa(struct inner_list *list, const struct sbp_op_sizes *sizes)
{
    const struct grid grid = grid_of(list->node, list->factor, sizes);
    for (int pass = 0; pass < SBP_PASSES; pass++) {
        add_over(list, "grid_column", (enum sbp_pass)pass, SBP_BROADCAST_COLL, grid.m * grid.width,
                 (int)grid.panels);
        add_over(list, "grid_row", (enum sbp_pass)pass, SBP_BROADCAST_COLL, grid.width * grid.n,
                 (int)grid.panels);
    }
}

static void inner_custom(struct inner_list *list, const struct sbp_graph *graph)
{
    const double element_bytes = (double)sbp_cluster_type_bytes(graph->precision.activation);
    const double batches = (double)graph->global_batch / (double)graph->micro_batch;
    const struct sbp_custom *custom = list->node->custom;
    for (int i = 0; i < custom->collective_count; i++) {
        const struct sbp_custom_collective *c = &custom->collective[i];
        const double parts = c->divided ? parts_of(list->node, list->factor, c->role) : 1;
        const double bytes = c->bytes / parts;
        add_over(list, custom->entry.role[c->role].name, (enum sbp_pass)c->pass, c->kind,
                 bytes / element_bytes / batches, 1);
    }
}

int sbp_op_inner(const struct sbp_graph *graph, int op, const struct sbp_factor *factor,
                 struct sbp_op_inner inner[SBP_MAX_INNER])
{
    const struct sbp_op_node *node = &graph->op[op];
    const struct sbp_op_sizes sizes = sbp_op_sizes(graph, op, factor);
    struct inner_list list = {.graph = graph,
                              .node = node,
                              .factor = factor,
                              .no_input_gradient = !sbp_op_forms_input_gradient(graph, op),
                              .inner = inner};
    const double rows = tokens(sizes.input[0]);
    switch (node->kind) {
    case SBP_OP_LAYERNORM:
    case SBP_OP_RMSNORM: {
        const double sums = node->kind == SBP_OP_LAYERNORM ? 2 * rows : rows;
        add_over(&list, "hidden", SBP_PASS_FORWARD, SBP_ALL_REDUCE, sums, 1);
        add_over(&list, "hidden", SBP_PASS_INPUT_GRADIENT, SBP_ALL_REDUCE, sums, 1);
        break;
    }
    case SBP_OP_CROSS_ENTROPY:
        add_over(&list, "vocab", SBP_PASS_FORWARD, SBP_ALL_REDUCE, rows, 1);
        add_over(&list, "vocab", SBP_PASS_FORWARD, SBP_ALL_REDUCE, 2 * rows, 1);
        inner_loss(&list);
        break;
    case SBP_OP_ATTENTION:
    case SBP_OP_GROUPED_ATTENTION:
    case SBP_OP_LATENT_ATTENTION:
        inner_context(&list, &sizes);
        break;
    case SBP_OP_CONV2D:
        inner_halo(&list, &sizes);
        break;
    case SBP_OP_MOE:
        inner_experts(&list, &sizes);
        break;
    case SBP_OP_SUMMA_LINEAR:
        inner_summa(&list, &sizes);
        break;
    case SBP_OP_CUSTOM:
        inner_custom(&list, graph);
        break;
    default:
        break;
    }
    return list.count;
}
