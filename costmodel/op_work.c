#include "costmodel/op_work.h"

#include <string.h>

struct sbp_factor sbp_factor_one(void)
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
    work->product[work->product_count++] = (struct sbp_product){count, m, n, k};
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

static struct sbp_work no_work(const struct job *job)
{
    (void)job;
    return (struct sbp_work){0};
}

/* A comparison or an addition for each element of each window. */
static struct sbp_work pool_work(const struct job *job)
{
    struct sbp_work work = {0};
    if (job->pass == SBP_PASS_WEIGHT_GRADIENT)
        return work;
    const int64_t *kernel = job->node->window.kernel;
    work.vector_flops = volume(job->sizes.output) * (double)(kernel[0] * kernel[1]);
    work.elements = volume(job->sizes.input[0]) + volume(job->sizes.output);
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

/* A convolution as a product over its windows (implicit GEMM). */
static struct sbp_work conv_work(const struct job *job)
{
    struct sbp_work work = {0};
    const double *out = job->sizes.output;
    const double m = tokens(out) * out[SBP_DIM_INNER];
    const double k = job->sizes.weight[0][0] * job->sizes.weight[0][1];
    const double n = job->sizes.weight[0][2];
    add_matmul(&work, job->pass, 1, m, n, k);
    work.model_flops = 2 * m * n * k;
    return work;
}

/* One product over the patches; class token and positions are added. */
static struct sbp_work patch_work(const struct job *job)
{
    struct sbp_work work = {0};
    if (job->pass == SBP_PASS_INPUT_GRADIENT)
        return work;
    const double m = tokens(job->sizes.output);
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

/* Inputs and output are read or written once forward and twice backward; materialised scores are
 * written and read besides. Backward: dV, dP of the value size; dQ, dK of the other; flash forms
 * the scores once more (Dao et al., 2022, algorithm 4). */
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
    work.elements *= forward ? 1 : 2;
    if (!flash)
        work.elements += (forward ? 1 : 2) * scores.all;
    return work;
}

/* ---- mixture of experts --------------------------------------------------------------------- */

/* Token copies in the slots of the experts that a device holds: every device sends and receives as
 * many, the routing being balanced up to the capacity. */
static double slots(const struct sbp_op_node *node, const struct sbp_op_sizes *sizes)
{
    return tokens(sizes->input[0]) * (double)node->moe.top_k * node->moe.capacity;
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
    /* Out to the slots, back and weighted into the sum; the activation between the products. */
    work.elements = 2 * (block + 2 * sent * hidden) + (forward ? 1 : 2) * sent * ffn * (gates + 1);
    work.vector_flops = sent * (2 * hidden + 4 * ffn);
    work.model_flops =
        2 * tokens(job->sizes.input[0]) *
        (hidden * routed + (double)job->node->moe.top_k * hidden * ffn * (gates + 1));
    return work;
}

/* ---- SUMMA, custom -------------------------------------------------------------------------- */

/* Each device forms its block of the result over the whole inner dimension of the product. */
static struct sbp_work summa_work(const struct job *job)
{
    struct sbp_work work = {0};
    const double rows = factor_of(job->node, job->factor, "grid_row");
    const double columns = factor_of(job->node, job->factor, "grid_column");
    const double m = tokens(job->sizes.input[0]);
    const double in = features(job->sizes.input[0]), out = features(job->sizes.output);
    if (job->pass == SBP_PASS_FORWARD)
        add_product(&work, 1, m, out, in * columns);
    else if (job->pass == SBP_PASS_INPUT_GRADIENT)
        add_product(&work, 1, m, in, out * columns);
    else
        add_product(&work, 1, in / rows * columns, out, m * rows);
    work.model_flops = 2 * m * out * in * columns;
    return work;
}

/* Parts that a custom operator's roles make of its work: those that split any operand. */
static double parts_of(const struct sbp_op_node *node, const struct sbp_factor *factor)
{
    double parts = 1;
    for (int r = 0; r < node->entry->role_count; r++) {
        const struct sbp_role *role = &node->entry->role[r];
        bool splits = role->output.kind == SBP_SPLIT;
        for (int i = 0; i < node->input_count; i++)
            splits |= role->input[i].kind == SBP_SPLIT;
        for (int w = 0; w < node->weight_count; w++)
            splits |= role->weight[w].kind == SBP_SPLIT;
        if (splits)
            parts *= factor->of[r];
    }
    return parts;
}

static struct sbp_work custom_work(const struct job *job)
{
    const struct sbp_custom *custom = job->node->custom;
    const double parts = parts_of(job->node, job->factor);
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

double sbp_work_flops(const struct sbp_work *work)
{
    double flops = work->flops + work->vector_flops;
    for (int i = 0; i < work->product_count; i++)
        flops += 2 * work->product[i].count * work->product[i].m * work->product[i].n *
                 work->product[i].k;
    return flops;
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
 * probabilities. */
static void keep_moe(const struct sbp_op_node *node, const struct sbp_op_sizes *sizes,
                     struct sbp_op_kept *kept)
{
    const double *first = sizes->weight[1];
    kept->inputs = 1;
    kept->elements = slots(node, sizes) * (2 * first[1] + first[2] * (first[3] + 1)) +
                     tokens(sizes->input[0]) * sizes->weight[0][SBP_DIM_OUT];
}

struct sbp_op_kept sbp_op_kept(const struct sbp_graph *graph, int op,
                               const struct sbp_factor *factor)
{
    const struct sbp_op_node *node = &graph->op[op];
    const struct sbp_op_sizes sizes = sbp_op_sizes(graph, op, factor);
    struct sbp_op_kept kept = {0};
    switch (node->kind) {
    case SBP_OP_LINEAR:
    case SBP_OP_SUMMA_LINEAR:
    case SBP_OP_CONV2D:
    case SBP_OP_RELU:
    case SBP_OP_GELU:
    case SBP_OP_SWIGLU:
        kept.inputs = 1;
        break;
    case SBP_OP_LAYERNORM:
        kept.inputs = 1;
        kept.elements = 2 * tokens(sizes.input[0]);
        break;
    case SBP_OP_RMSNORM:
        kept.inputs = 1;
        kept.elements = tokens(sizes.input[0]);
        break;
    case SBP_OP_HEAD_NORM:
        kept.inputs = 1;
        kept.elements = tokens(sizes.input[0]) * sizes.input[0][SBP_DIM_FEATURE];
        break;
    case SBP_OP_TANH:
        kept.output = true;
        break;
    case SBP_OP_BATCHNORM:
        kept.inputs = 1;
        kept.elements = 2 * sizes.input[0][SBP_DIM_FEATURE];
        break;
    case SBP_OP_CROSS_ENTROPY:
        kept.inputs = 1;
        kept.elements = 3 * tokens(sizes.input[0]);
        break;
    case SBP_OP_DROPOUT: /* its mask */
    case SBP_OP_MAXPOOL: /* which element of the window it was */
        kept.bytes = volume(sizes.output);
        break;
    case SBP_OP_ATTENTION:
    case SBP_OP_GROUPED_ATTENTION:
    case SBP_OP_LATENT_ATTENTION:
        keep_attention(graph, op, &sizes, &kept);
        break;
    case SBP_OP_PATCH_EMBEDDING: /* the images, which are the model's input */
        kept.elements = tokens(sizes.output) * sizes.weight[0][0];
        break;
    case SBP_OP_MOE:
        keep_moe(node, &sizes, &kept);
        break;
    case SBP_OP_CUSTOM:
        kept.bytes = node->custom->saved_bytes / parts_of(node, factor);
        break;
    default:
        break;
    }
    return kept;
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
        const struct sbp_attention_shape shape = {.batch = (int64_t)sizes.output[SBP_DIM_BATCH],
                                                  .sequence =
                                                      (int64_t)sizes.output[SBP_DIM_SEQUENCE],
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
    case SBP_OP_SUMMA_LINEAR:
        return volume(sizes.input[0]) + volume(sizes.weight[0]);
    default:
        return 0;
    }
}

/* ---- collectives inside --------------------------------------------------------------------- */

/* A list that grows; groups of one are left out. */
struct inner_list {
    const struct sbp_op_node *node;
    const struct sbp_factor *factor;
    struct sbp_op_inner *inner;
    int count;
};

static void add_over(struct inner_list *list, const char *role, enum sbp_pass pass,
                     enum sbp_collective kind, double elements, int count)
{
    const int index = sbp_op_role(list->node->entry, role);
    if (index < 0 || list->factor->of[index] <= 1 || count <= 0)
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

/* The rows of a window that lie with the neighbours: kernel - stride of them, or none; dX's and
 * dW's windows overlap in the same rows. */
static void inner_halo(struct inner_list *list, const struct sbp_op_sizes *sizes)
{
    const double rows = (double)(list->node->window.kernel[0] - list->node->window.stride[0]);
    const double *in = sizes->input[0];
    if (rows <= 0)
        return;
    const double halo = in[SBP_DIM_BATCH] * rows / 2 * features(in);
    add_over(list, "height", SBP_PASS_FORWARD, SBP_SEND_RECV, halo, 2);
    add_over(list, "height", SBP_PASS_INPUT_GRADIENT, SBP_SEND_RECV, halo, 2);
}

static void inner_experts(struct inner_list *list, const struct sbp_op_sizes *sizes)
{
    const double sent = slots(list->node, sizes) * sizes->weight[1][1];
    add_over(list, "expert", SBP_PASS_FORWARD, SBP_ALL_TO_ALL, sent, 2);
    add_over(list, "expert", SBP_PASS_INPUT_GRADIENT, SBP_ALL_TO_ALL, sent, 2);
}

/* Y = XW moves panels of X and W; dX = dY W^T panels of W, and sums dX; dW = X^T dY panels of X,
 * and sums dW: each time all of X's block row and all of W's block column. */
static void inner_summa(struct inner_list *list, const struct sbp_op_sizes *sizes)
{
    const double rows = factor_of(list->node, list->factor, "grid_row");
    const double columns = factor_of(list->node, list->factor, "grid_column");
    for (int pass = 0; pass < SBP_PASSES; pass++) {
        add_over(list, "grid_column", (enum sbp_pass)pass, SBP_ALL_GATHER,
                 columns * volume(sizes->input[0]), 1);
        add_over(list, "grid_row", (enum sbp_pass)pass, SBP_ALL_GATHER,
                 rows * volume(sizes->weight[0]), 1);
    }
}

static void inner_custom(struct inner_list *list, double element_bytes)
{
    const struct sbp_custom *custom = list->node->custom;
    const double parts = parts_of(list->node, list->factor);
    for (int i = 0; i < custom->collective_count; i++) {
        const struct sbp_custom_collective *c = &custom->collective[i];
        const double ways = list->factor->of[c->role];
        const double bytes = c->divided ? c->bytes * ways / parts : c->bytes;
        add_over(list, custom->entry.role[c->role].name, (enum sbp_pass)c->pass, c->kind,
                 bytes / element_bytes, 1);
    }
}

int sbp_op_inner(const struct sbp_graph *graph, int op, const struct sbp_factor *factor,
                 struct sbp_op_inner inner[SBP_MAX_INNER])
{
    const struct sbp_op_node *node = &graph->op[op];
    const struct sbp_op_sizes sizes = sbp_op_sizes(graph, op, factor);
    struct inner_list list = {.node = node, .factor = factor, .inner = inner};
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
        inner_custom(&list, (double)sbp_type_bytes(graph->precision.activation));
        break;
    default:
        break;
    }
    return list.count;
}
