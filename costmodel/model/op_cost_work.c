/* The arithmetic and the memory traffic of each operator, by pass: what price.c turns into seconds.
 */
#include "costmodel/model/op_cost_block_priv.h"

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
    const double m = sbp_op_tokens(job->sizes.input[0]);
    const double k = job->sizes.weight[0][0] * job->sizes.weight[0][1];
    const double n = job->sizes.weight[0][2] * job->sizes.weight[0][3];
    add_matmul(&work, job->pass, 1, m, n, k);
    work.model_flops = 2 * m * n * k * valid_share(job->graph, job->node->weight[0]);
    return work;
}

/* Element-wise operators, norms and losses compute little and pass over a block a few times. The
 * table holds for each element of the first input their flops (exp, tanh and sqrt count one), their
 * reads and writes in units of that input, and the operations that kernels execute (kernels/cpu):
 * an exponential is twelve, a random number 30, an addition in double two, another pass one more.
 * Normalisation and cross-entropy read the input twice in forward. */
static const struct stream {
    double forward_flops, backward_flops, forward_passes, backward_passes;
    double forward_operations, backward_operations;
} STREAM[SBP_OP_KINDS] = {
    [SBP_OP_RELU] = {1, 1, 2, 3, 1, 1},
    [SBP_OP_GELU] = {9, 17, 2, 3, SBP_DEVICE_GELU_OPERATIONS, 28},
    [SBP_OP_DROPOUT] = {2, 2, 2, 2, 32, 2},
    [SBP_OP_ADD] = {1, 0, 3, 0, 1, 0},
    [SBP_OP_LAYERNORM] = {8, 14, 3, 5, 14, 42},
    [SBP_OP_RMSNORM] = {5, 9, 3, 5, 10, 30},
    [SBP_OP_BATCHNORM] = {8, 14, 3, 5, 14, 42},
    [SBP_OP_CROSS_ENTROPY] = {5, 3, 2, 2, 22, 14},
    [SBP_OP_SWIGLU] = {3, 6, 1.5, 2.5, 8, 12},
    [SBP_OP_FLATTEN] = {0, 0, 2, 2, 0, 0},
    [SBP_OP_TANH] = {1, 3, 2, 3, 14, 3},
    [SBP_OP_HEAD_NORM] = {5, 9, 3, 5, 10, 30},
};
#define GATE_OPERATIONS 16 /* of an activation with a gate, and of its gradient */
#define GATE_BACKWARD   24

static struct sbp_work stream_work(const struct job *job)
{
    const bool forward = job->pass == SBP_PASS_FORWARD;
    const double elements = sbp_op_volume(job->sizes.input[0]);
    struct sbp_work work = {0};
    if (job->pass == SBP_PASS_WEIGHT_GRADIENT) /* formed with the input's */
        return work;
    const struct stream *each = &STREAM[job->node->kind];
    work.vector_flops = elements * (forward ? each->forward_flops : each->backward_flops);
    work.vector_operations =
        elements * (forward ? each->forward_operations : each->backward_operations);
    work.elements = elements * (forward ? each->forward_passes : each->backward_passes);
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
    work.elements =
        sbp_op_volume(job->sizes.output) +
        (forward ? sbp_op_volume(job->sizes.output) : sbp_op_volume(job->sizes.input[0]));
    return work;
}

static struct sbp_work no_work(const struct job *job)
{
    (void)job;
    return (struct sbp_work){0};
}

/* Forward: one comparison or addition for each element of each window, padding included. Backward:
 * maxpool adds to one element a window, which the kept index names. */
static struct sbp_work pool_work(const struct job *job)
{
    struct sbp_work work = {0};
    if (job->pass == SBP_PASS_WEIGHT_GRADIENT)
        return work;
    const int64_t *kernel = job->node->window.kernel;
    const bool maximum = job->node->kind == SBP_OP_MAXPOOL;
    const double out = sbp_op_volume(job->sizes.output);
    const bool one = maximum && job->pass == SBP_PASS_INPUT_GRADIENT;
    work.vector_flops = out * (one ? 1 : (double)kernel[0] * (double)kernel[1]);
    work.elements = sbp_op_volume(job->sizes.input[0]) + out;
    work.bytes = maximum ? out * sbp_op_index_bytes(kernel) : 0;
    return work;
}

/* Forward reads rows of the token table, adds positions and types, and writes the sum. Backward
 * zeroes the tables' gradients and adds to them. */
static struct sbp_work embedding_work(const struct job *job)
{
    struct sbp_work work = {0};
    if (job->pass == SBP_PASS_INPUT_GRADIENT)
        return work;
    const double block = sbp_op_volume(job->sizes.output);
    const int tables = job->node->weight_count;
    work.elements = 2 * block;
    if (job->pass == SBP_PASS_FORWARD) {
        work.vector_flops = (tables - 1) * block;
    } else {
        work.vector_flops = tables * block;
        work.gradient_elements = sbp_op_volume(job->sizes.weight[0]);
    }
    return work;
}

/* A convolution is a product over its windows. They overlap in memory: implicit GEMM reads the
 * block in which they lie once, not each window (Chetlur et al., cuDNN, 2014, section 3.2). The
 * input's gradient writes that block. */
static struct sbp_work conv_work(const struct job *job)
{
    struct sbp_work work = {0};
    const double *out = job->sizes.output;
    const double m = sbp_op_tokens(out) * out[SBP_DIM_INNER];
    const double k = job->sizes.weight[0][0] * job->sizes.weight[0][1];
    const double n = job->sizes.weight[0][2];
    add_matmul(&work, job->pass, 1, m, n, k);
    work.product[0].elements = sbp_op_volume(job->sizes.input[0]) + k * n + m * n;
    work.model_flops = 2 * m * n * k;
    return work;
}

/* One product over the patches; class token and positions are added. */
static struct sbp_work patch_work(const struct job *job)
{
    struct sbp_work work = {0};
    if (job->pass == SBP_PASS_INPUT_GRADIENT)
        return work;
    const double m = sbp_op_patches(job->node, &job->sizes);
    const double k = job->sizes.weight[0][0], n = job->sizes.weight[0][2];
    add_matmul(&work, job->pass, 1, m, n, k);
    work.elements = 2 * sbp_op_volume(job->sizes.output);
    work.model_flops = 2 * m * n * k;
    return work;
}

/* ---- attention ------------------------------------------------------------------------------ */

/* Forward reads the inputs (keys and values of all context members) and writes the output once,
 * backward does so twice. Materialised probabilities are written in forward, read in backward,
 * where their gradients are written. */
static struct sbp_work attention_work(const struct job *job)
{
    const struct sbp_op_node *node = job->node;
    const bool flash = node->attention.kind == SBP_ATTENTION_FLASH;
    const bool forward = job->pass == SBP_PASS_FORWARD;
    struct sbp_work work = {0};
    if (job->pass == SBP_PASS_WEIGHT_GRADIENT)
        return work;
    const struct sbp_op_scores scores =
        sbp_op_scores(job->graph, (int)(node - job->graph->op), &job->sizes);
    const double qk = 2 * (double)node->attention.qk_size;
    const double value = 2 * (double)node->attention.value_size;
    const double each = sbp_device_score_flops(job->pass, (double)node->attention.qk_size,
                                               (double)node->attention.value_size, flash);
    work.flops = scores.kept * each;
    work.model_flops = scores.kept * (qk + value);
    work.elements = sbp_op_volume(job->sizes.output);
    for (int i = 0; i < node->input_count; i++)
        work.elements += sbp_op_volume(job->sizes.input[i]);
    work.elements +=
        (sbp_op_factor_of(node, job->factor, "context") - 1) * sbp_op_own_keys(node, &job->sizes);
    work.elements *= forward ? 1 : 2;
    work.attention = (struct sbp_attention_work){
        .given = true,
        .fused = flash,
        .head_size = (qk + value) / 4,
        .sequence = (double)job->graph->tensor[node->input[0]].shape.size[SBP_DIM_SEQUENCE],
        .rows = sbp_op_tokens(job->sizes.output) * job->sizes.output[SBP_DIM_FEATURE],
        .scores = flash ? 0 : scores.all,
        .score_passes = forward ? 1 : 2,
        .full_flops = scores.all * each};
    if (!flash)
        work.elements += work.attention.score_passes * scores.all;
    return work;
}

/* ---- mixture of experts --------------------------------------------------------------------- */

/* Elements that are moved in a pass to put copies in order: they arrive by sender and are wanted by
 * expert, and go back the other way round; each reads and writes all of them (Megatron-LM,
 * moe_utils.py, sort_chunks_by_idxs; permute and unpermute where DeepEP brings them). Experts that
 * lie together take copies as dispatch wrote them. */
static double sorted_elements(const struct job *job, double copies)
{
    const double apart = sbp_op_factor_of(job->node, job->factor, "expert") *
                         sbp_op_factor_of(job->node, job->factor, "expert_sequence");
    return apart > 1 ? 4 * copies : 0;
}

static struct sbp_work moe_work(const struct job *job)
{
    const double *first = job->sizes.weight[1];
    const double sent = sbp_op_slots(job->node, &job->sizes), experts = first[0];
    const double hidden = first[1], ffn = first[2], gates = first[3];
    const double routed = job->sizes.weight[0][SBP_DIM_OUT],
                 block = sbp_op_volume(job->sizes.input[0]);
    struct sbp_work work = {0};
    add_matmul(&work, job->pass, 1, sbp_op_tokens(job->sizes.input[0]), routed, hidden);
    add_matmul(&work, job->pass, experts, sent / experts, ffn * gates, hidden);
    add_matmul(&work, job->pass, experts, sent / experts, hidden, ffn);
    work.product[1].grouped = work.product[2].grouped = true;
    if (job->pass == SBP_PASS_WEIGHT_GRADIENT)
        return work;
    const bool forward = job->pass == SBP_PASS_FORWARD;
    /* Dispatch copies tokens to slots, and the sum over experts copies them back: each reads one
     * side and writes the other. In backward the gradients of the gate weights read the experts'
     * outputs as well, with the rows of tokens that they are multiplied by. The activation between
     * the products reads and writes as an operator of its own would. */
    work.row_elements = 2 * (block + sent * hidden) + (forward ? 0 : sent * hidden) +
                        sorted_elements(job, sent * hidden);
    work.row = hidden;
    work.elements = work.row_elements + sent * ffn * (forward ? gates + 1 : 2 * gates + 1);
    work.vector_flops = sent * (2 * hidden + 4 * ffn);
    work.vector_operations = sent * ffn * (forward ? GATE_OPERATIONS : GATE_BACKWARD);
    work.model_flops =
        2 * sbp_op_tokens(job->sizes.input[0]) *
        (hidden * routed + (double)job->node->moe.top_k * hidden * ffn * (gates + 1));
    return work;
}

/* ---- SUMMA, custom -------------------------------------------------------------------------- */

/* Each panel is a rank-k update of the result's block (van de Geijn and Watts, 1997, section 3). */
static struct sbp_work summa_work(const struct job *job)
{
    struct sbp_work work = {0};
    const struct sbp_op_grid grid = sbp_op_grid(job->node, job->factor, &job->sizes);
    add_matmul(&work, job->pass, grid.panels, grid.m, grid.n, grid.width);
    work.model_flops = 2 * grid.panels * grid.m * grid.n * grid.width *
                       valid_share(job->graph, job->node->weight[0]);
    return work;
}

static struct sbp_work custom_work(const struct job *job)
{
    const struct sbp_custom *custom = job->node->custom;
    const double parts = sbp_op_custom_parts(job->graph, job->node, job->factor);
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

bool sbp_op_works_alike(const struct sbp_graph *graph, int op, int other)
{
    return graph->op[op].site == graph->op[other].site &&
           sbp_op_forms_input_gradient(graph, op) == sbp_op_forms_input_gradient(graph, other);
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

double sbp_op_work_flops(const struct sbp_work *work)
{
    double flops = work->flops + work->vector_flops;
    for (int i = 0; i < work->product_count; i++)
        flops += 2 * work->product[i].count * work->product[i].m * work->product[i].n *
                 work->product[i].k;
    return flops;
}

/* ---- sums of flops ----------------------------------------------------------------------------
 */

double sbp_op_forward_flops(const struct sbp_graph *graph, int op)
{
    const struct sbp_factor whole = sbp_op_factor_one();
    const struct sbp_work work = sbp_op_work(graph, op, &whole, SBP_PASS_FORWARD);
    return sbp_op_work_flops(&work);
}

double sbp_op_backward_flops(const struct sbp_graph *graph, int op)
{
    const struct sbp_factor whole = sbp_op_factor_one();
    const struct sbp_work input = sbp_op_work(graph, op, &whole, SBP_PASS_INPUT_GRADIENT);
    const struct sbp_work weights = sbp_op_work(graph, op, &whole, SBP_PASS_WEIGHT_GRADIENT);
    const bool skips = input.product_count > 0 && !sbp_op_forms_input_gradient(graph, op);
    return (skips ? 0 : sbp_op_work_flops(&input)) + sbp_op_work_flops(&weights);
}

double sbp_op_model_flops(const struct sbp_graph *graph)
{
    const struct sbp_factor whole = sbp_op_factor_one();
    double flops = 0;
    for (int op = 0; op < graph->op_count; op++) {
        const struct sbp_work work = sbp_op_work(graph, op, &whole, SBP_PASS_FORWARD);
        const bool gradient =
            graph->op[op].weight_count == 0 || sbp_op_forms_input_gradient(graph, op);
        flops += (gradient ? 3 : 2) * work.model_flops;
    }
    return flops * (double)graph->global_batch / (double)graph->micro_batch;
}
