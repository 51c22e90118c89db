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

static double product_s(const struct sbp_pricing *pricing, const struct sbp_product *product)
{
    const double m = product->m, n = product->n, k = product->k;
    return product->elements > 0
               ? sbp_cluster_product_s(pricing->cluster, pricing->type, m, n, k, product->elements)
               : sbp_cluster_gemm_s(pricing->cluster, pricing->type, m, n, k);
}

double sbp_price_pass_s(const struct sbp_pricing *pricing, int op, const struct sbp_factor *factor,
                        enum sbp_pass pass)
{
    const struct sbp_work work = sbp_op_work(pricing->graph, op, factor, pass);
    if (work.time_s > 0)
        return work.time_s;
    const double bytes = work.elements * (double)pricing->bytes.activation +
                         work.gradient_elements * (double)pricing->bytes.gradient + work.bytes;
    double seconds = sbp_cluster_kernel_s(pricing->cluster, pricing->type, work.flops, bytes);
    for (int i = 0; i < work.product_count; i++) {
        const struct sbp_product *product = &work.product[i];
        seconds += product->count * product_s(pricing, product);
    }
    return seconds;
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

/* Operators in phases are charged whole in the one that passes over the block last. */
static double compute_s(const struct sbp_pricing *pricing, const struct sbp_program *program,
                        const struct sbp_instr *instr)
{
    const struct sbp_factor factor =
        sbp_strategy_factor(program->graph, &program->mesh, &program->strategy, instr->op);
    const enum sbp_op_kind kind = program->graph->op[instr->op].kind;
    if (instr->kind == SBP_INSTR_FORWARD) {
        const bool phased = kind == SBP_OP_LAYERNORM || kind == SBP_OP_CROSS_ENTROPY;
        return phased && instr->phase != 1
                   ? 0
                   : sbp_price_pass_s(pricing, instr->op, &factor, SBP_PASS_FORWARD);
    }
    if (kind == SBP_OP_LINEAR)
        return sbp_price_pass_s(pricing, instr->op, &factor,
                                instr->phase == 0 ? SBP_PASS_INPUT_GRADIENT
                                                  : SBP_PASS_WEIGHT_GRADIENT);
    if (kind == SBP_OP_LAYERNORM && instr->phase == 0)
        return 0;
    return sbp_price_pass_s(pricing, instr->op, &factor, SBP_PASS_INPUT_GRADIENT) +
           sbp_price_pass_s(pricing, instr->op, &factor, SBP_PASS_WEIGHT_GRADIENT);
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
        else if (use == SBP_USE_GRADIENT || use == SBP_USE_SUM)
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
