#include "costmodel/price.h"

#include "costmodel/program_layout.h"

struct sbp_pricing sbp_pricing_make(const struct sbp_graph *graph,
                                    const struct sbp_cluster *cluster,
                                    const struct sbp_element_bytes *bytes)
{
    enum sbp_type type = graph->precision.activation;
    if (bytes->activation == 8)
        type = SBP_FP64;
    else if (bytes->activation == 4)
        type = SBP_FP32;
    return (struct sbp_pricing){.graph = graph, .cluster = cluster, .bytes = *bytes, .type = type};
}

struct sbp_op_local sbp_op_whole(const struct sbp_graph *graph, int op)
{
    const struct sbp_op_node *node = &graph->op[op];
    const int tensor = node->kind == SBP_OP_EMBEDDING ? node->output : node->input[0];
    const int64_t *size = graph->tensor[tensor].shape.size;
    struct sbp_op_local whole = {
        .tokens = (double)size[SBP_DIM_BATCH] * (double)size[SBP_DIM_SEQUENCE],
        .in = 1,
        .out = (double)size[SBP_DIM_FEATURE] * (double)size[SBP_DIM_INNER]};
    if (node->kind == SBP_OP_LINEAR) {
        const int64_t *out = graph->tensor[node->output].shape.size;
        whole.in = whole.out;
        whole.out = (double)out[SBP_DIM_FEATURE] * (double)out[SBP_DIM_INNER];
    } else if (node->kind == SBP_OP_EMBEDDING) {
        whole.in = (double)graph->tensor[node->weight[0]].shape.size[SBP_DIM_IN];
    }
    return whole;
}

/* Reads and writes of the operator's block, in units of the block, by direction. Normalisation and
 * cross-entropy pass over it twice forward; an embedding touches a table row and an output row a
 * token, backward zeroes the table besides. */
struct passes {
    double forward, backward;
};
static const struct passes passes_of[SBP_OP_KINDS] = {
    [SBP_OP_RELU] = {2, 3},      [SBP_OP_GELU] = {2, 3},      [SBP_OP_DROPOUT] = {2, 2},
    [SBP_OP_ADD] = {3, 0},       [SBP_OP_LAYERNORM] = {3, 5}, [SBP_OP_CROSS_ENTROPY] = {2, 2},
    [SBP_OP_EMBEDDING] = {2, 2}, [SBP_OP_ATTENTION] = {2, 4},
};

/* Materialised attention writes and reads its probabilities besides: batch x heads x S x S. */
static double probabilities(const struct sbp_graph *graph, int op, const struct sbp_op_local *local)
{
    const struct sbp_op_node *node = &graph->op[op];
    if (node->kind != SBP_OP_ATTENTION || node->attention.kind == SBP_ATTENTION_FLASH)
        return 0;
    const int64_t *y = graph->tensor[node->output].shape.size;
    const double heads = local->out / (3 * (double)y[SBP_DIM_INNER]);
    return local->tokens * heads * (double)y[SBP_DIM_SEQUENCE];
}

static double share_of(const struct sbp_graph *graph, int op, const struct sbp_op_local *local)
{
    const struct sbp_op_local whole = sbp_op_whole(graph, op);
    return local->tokens / whole.tokens * (local->in / whole.in) * (local->out / whole.out);
}

static double moved_s(const struct sbp_pricing *pricing, int op, const struct sbp_op_local *local,
                      double flops, double passes)
{
    const double elements =
        passes * local->tokens * local->out + passes / 2 * probabilities(pricing->graph, op, local);
    return sbp_cluster_kernel_s(pricing->cluster, pricing->type, flops,
                                elements * (double)pricing->bytes.activation);
}

double sbp_price_forward_s(const struct sbp_pricing *pricing, int op,
                           const struct sbp_op_local *local)
{
    const enum sbp_op_kind kind = pricing->graph->op[op].kind;
    if (kind == SBP_OP_LINEAR)
        return sbp_cluster_gemm_s(pricing->cluster, pricing->type, local->tokens, local->out,
                                  local->in);
    const double flops = kind == SBP_OP_ATTENTION ? sbp_op_forward_flops(pricing->graph, op) *
                                                        share_of(pricing->graph, op, local)
                                                  : 0;
    return moved_s(pricing, op, local, flops, passes_of[kind].forward);
}

double sbp_price_input_gradient_s(const struct sbp_pricing *pricing, int op,
                                  const struct sbp_op_local *local)
{
    const enum sbp_op_kind kind = pricing->graph->op[op].kind;
    if (kind == SBP_OP_LINEAR)
        return sbp_cluster_gemm_s(pricing->cluster, pricing->type, local->tokens, local->in,
                                  local->out);
    if (kind == SBP_OP_EMBEDDING)
        return 0;
    const double flops = kind == SBP_OP_ATTENTION ? sbp_op_backward_flops(pricing->graph, op) *
                                                        share_of(pricing->graph, op, local)
                                                  : 0;
    return moved_s(pricing, op, local, flops, passes_of[kind].backward);
}

double sbp_price_weight_gradient_s(const struct sbp_pricing *pricing, int op,
                                   const struct sbp_op_local *local)
{
    const enum sbp_op_kind kind = pricing->graph->op[op].kind;
    if (kind == SBP_OP_LINEAR)
        return sbp_cluster_gemm_s(pricing->cluster, pricing->type, local->in, local->out,
                                  local->tokens);
    if (kind == SBP_OP_EMBEDDING)
        return moved_s(pricing, op, local, 0, passes_of[kind].backward) +
               sbp_cluster_kernel_s(pricing->cluster, pricing->type, 0,
                                    local->in * local->out * (double)pricing->bytes.gradient);
    return 0;
}

double sbp_price_update_s(const struct sbp_pricing *pricing, double parameters)
{
    const struct sbp_element_bytes *bytes = &pricing->bytes;
    const double moments = sbp_training_moments(&pricing->graph->training);
    const double a_parameter = (double)bytes->gradient + 2 * (double)bytes->weight +
                               2 * (double)bytes->master + 2 * moments * (double)bytes->moment;
    return sbp_cluster_kernel_s(pricing->cluster, pricing->type, 0, parameters * a_parameter);
}

/* ---- a program's instructions -------------------------------------------------------------- */

static double block(const struct sbp_program *program, int buffer, int dim)
{
    const struct sbp_buffer *b = &program->buffer[buffer];
    return (double)sbp_local_size(&program->mesh, &program->graph->tensor[b->tensor].shape,
                                  &b->dist, dim);
}

static struct sbp_op_local local_of(const struct sbp_program *program,
                                    const struct sbp_instr *instr)
{
    const struct sbp_op_node *node = &program->graph->op[instr->op];
    const int weight = instr->buffer[SBP_AT_W];
    const int at = node->kind == SBP_OP_EMBEDDING ? program->ids_buffer : instr->buffer[SBP_AT_IN];
    struct sbp_op_local local = {.tokens = 1, .in = 1, .out = 1};
    if (at >= 0) {
        local.tokens = block(program, at, SBP_DIM_BATCH) * block(program, at, SBP_DIM_SEQUENCE);
        local.out = block(program, at, SBP_DIM_FEATURE) * block(program, at, SBP_DIM_INNER);
    } else { /* dropout backward reads its mask alone */
        local.out = (double)program->buffer[instr->buffer[SBP_AT_SAVED]].elements;
    }
    if (node->kind == SBP_OP_LINEAR) {
        const bool transposed = node->transposed_weight;
        const double in =
            block(program, weight, SBP_DIM_IN) * block(program, weight, SBP_DIM_IN_INNER);
        const double out =
            block(program, weight, SBP_DIM_OUT) * block(program, weight, SBP_DIM_OUT_INNER);
        local.in = transposed ? out : in;
        local.out = transposed ? in : out;
    } else if (node->kind == SBP_OP_EMBEDDING) {
        local.in = block(program, weight, SBP_DIM_IN);
        local.out = block(program, weight, SBP_DIM_OUT);
    }
    return local;
}

/* Operators in phases are charged whole in the one that passes over the block last. */
static double compute_s(const struct sbp_pricing *pricing, const struct sbp_program *program,
                        const struct sbp_instr *instr)
{
    const struct sbp_op_local local = local_of(program, instr);
    const enum sbp_op_kind kind = program->graph->op[instr->op].kind;
    if (instr->kind == SBP_INSTR_FORWARD) {
        const bool phased = kind == SBP_OP_LAYERNORM || kind == SBP_OP_CROSS_ENTROPY;
        return phased && instr->phase != 1 ? 0 : sbp_price_forward_s(pricing, instr->op, &local);
    }
    if (kind == SBP_OP_LINEAR)
        return instr->phase == 0 ? sbp_price_input_gradient_s(pricing, instr->op, &local)
                                 : sbp_price_weight_gradient_s(pricing, instr->op, &local);
    if (kind == SBP_OP_LAYERNORM && instr->phase == 0)
        return 0;
    return sbp_price_input_gradient_s(pricing, instr->op, &local) +
           sbp_price_weight_gradient_s(pricing, instr->op, &local);
}

double sbp_instr_call_bytes(const struct sbp_program *program, const struct sbp_instr *instr)
{
    const int64_t element = instr->cause == SBP_CAUSE_WEIGHT_GRADIENT ? program->bytes.reduce
                                                                      : program->bytes.activation;
    return (double)instr->box.elements * (double)element;
}

/* Adding two gradients, and reading all gradients for the norm, move bytes like any kernel. */
static double moved_instr_s(const struct sbp_pricing *pricing, const struct sbp_program *program,
                            const struct sbp_instr *instr)
{
    double bytes = 0;
    if (instr->kind == SBP_INSTR_ADD_GRADIENT) {
        bytes = 3 * (double)sbp_program_buffer_bytes(program, instr->buffer[SBP_AT_OUT]);
    } else if (instr->kind == SBP_INSTR_NORM) {
        for (int i = 0; i < program->buffer_count; i++)
            if (program->buffer[i].use == SBP_USE_GRADIENT)
                bytes += (double)sbp_program_buffer_bytes(program, i);
    }
    return sbp_cluster_kernel_s(pricing->cluster, pricing->type, 0, bytes);
}

void sbp_program_price(struct sbp_program *program, const struct sbp_cluster *cluster)
{
    const struct sbp_pricing pricing = sbp_pricing_make(program->graph, cluster, &program->bytes);
    for (int i = 0; i < program->instr_count; i++) {
        struct sbp_instr *instr = &program->instr[i];
        instr->compute_s = instr->communication_s = 0;
        switch (instr->kind) {
        case SBP_INSTR_FORWARD:
        case SBP_INSTR_BACKWARD:
            instr->compute_s = compute_s(&pricing, program, instr);
            break;
        case SBP_INSTR_BOX:
        case SBP_INSTR_REDUCE:
            instr->communication_s =
                sbp_collective_s(cluster, &program->mesh, instr->box.kind, instr->box.axes,
                                 sbp_instr_call_bytes(program, instr));
            break;
        case SBP_INSTR_UPDATE:
            instr->compute_s = sbp_price_update_s(
                &pricing, (double)program->buffer[instr->buffer[SBP_AT_W]].elements);
            break;
        default:
            instr->compute_s = moved_instr_s(&pricing, program, instr);
        }
    }
}

static void add_memory(const struct sbp_program *program, struct sbp_totals *totals)
{
    int64_t persistent = 0;
    for (int i = 0; i < program->buffer_count; i++) {
        const int64_t bytes = sbp_program_slot_bytes(program, i);
        const enum sbp_buffer_use use = program->buffer[i].use;
        if (use == SBP_USE_WEIGHT)
            totals->weight_bytes += bytes;
        else if (use == SBP_USE_GRADIENT)
            totals->gradient_bytes += bytes;
        else if (use == SBP_USE_MOMENT)
            totals->moment_bytes += bytes;
        else if (use == SBP_USE_MASTER)
            totals->master_bytes += bytes;
        if (sbp_buffer_persists(&program->buffer[i]))
            persistent += bytes;
    }
    totals->activation_bytes = program->arena_bytes - persistent;
}

struct sbp_totals sbp_program_totals(const struct sbp_program *program,
                                     const struct sbp_cluster *cluster)
{
    struct sbp_totals totals = {0};
    for (int i = 0; i < program->instr_count; i++) {
        const struct sbp_instr *instr = &program->instr[i];
        totals.compute_s += instr->compute_s;
        totals.communication_s += instr->communication_s;
        totals.by_cause_s[instr->cause] += instr->communication_s;
        if (instr->kind == SBP_INSTR_UPDATE)
            totals.optimizer_s += instr->compute_s;
        if (!sbp_instr_is_call(instr))
            continue;
        totals.communication_bytes += sbp_collective_traffic_bytes(
            &program->mesh, instr->box.kind, instr->box.axes, sbp_instr_call_bytes(program, instr));
        if (instr->cause == SBP_CAUSE_ACTIVATION)
            totals.forward_activation_elements += sbp_collective_traffic_bytes(
                &program->mesh, instr->box.kind, instr->box.axes, (double)instr->box.elements);
    }
    totals.step_s = totals.compute_s + totals.communication_s;
    add_memory(program, &totals);
    totals.device_bytes = program->arena_bytes + cluster->reserve_bytes;
    return totals;
}
