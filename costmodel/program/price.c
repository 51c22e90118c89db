#include "costmodel/program/price.h"

#include <math.h>

struct sbp_pricing sbp_price_setup(const struct sbp_graph *graph, const struct sbp_cluster *cluster,
                                   const struct sbp_element_bytes *bytes)
{
    enum sbp_type type = graph->precision.activation;
    if (bytes->activation == 8)
        type = SBP_FP64;
    else if (bytes->activation == 4)
        type = SBP_FP32;
    const enum sbp_type products = graph->precision.products;
    const bool keeps = type == graph->precision.activation && cluster->flops[products] > 0;
    return (struct sbp_pricing){
        .graph = graph,
        .cluster = cluster,
        .bytes = *bytes,
        .type = type,
        .product_type = keeps ? products : type}; /* a device without the type multiplies as ever */
}

static double product_s(const struct sbp_pricing *pricing, const struct sbp_product *product,
                        enum sbp_pass pass)
{
    const struct sbp_device_product of_device = {.type = pricing->product_type,
                                                 .pass = pass,
                                                 .m = product->m,
                                                 .n = product->n,
                                                 .k = product->k,
                                                 .elements = product->elements,
                                                 .grouped = product->grouped};
    return sbp_cluster_product_s(pricing->cluster, &of_device);
}

/* Fused attention reaches its share of the peak. Unfused kernels pass over all scores many times
 * more than operands are read, where the device says how often. */
static double attention_s(const struct sbp_pricing *pricing, const struct sbp_work *work,
                          enum sbp_pass pass, double bytes)
{
    const struct sbp_attention_work *attention = &work->attention;
    const struct sbp_device_rates *rates = &pricing->cluster->rates;
    const struct sbp_device_attention of_device = {.type = pricing->type,
                                                   .pass = pass,
                                                   .head_size = attention->head_size,
                                                   .sequence = attention->sequence,
                                                   .rows = attention->rows};
    if (attention->fused)
        return sbp_cluster_attention_s(pricing->cluster, &of_device, work->flops, bytes);
    if (!(rates->unfused.share > 0))
        return sbp_cluster_kernel_s(
            pricing->cluster, pricing->type,
            work->flops / sbp_device_factor(rates->sustained[pricing->type]), bytes);
    const double passes =
        pass == SBP_PASS_FORWARD ? rates->unfused.forward_passes : rates->unfused.backward_passes;
    const double more = (passes - attention->score_passes) * attention->scores;
    return sbp_cluster_unfused_attention_s(pricing->cluster, pricing->type, attention->full_flops,
                                           bytes + more * (double)pricing->bytes.activation);
}

/* Memory or arithmetic, whichever takes longer. Rows in another order have kernels of their own,
 * where the device says a rate of them. */
static double stream_s(const struct sbp_pricing *pricing, const struct sbp_work *work, double bytes)
{
    const double element = (double)pricing->bytes.activation;
    const double apart = pricing->cluster->rates.dispatch == NULL ? 0 : work->row_elements;
    const double rows_s =
        apart > 0 ? sbp_cluster_rows_s(pricing->cluster, apart * element, work->row * element) : 0;
    return rows_s +
           fmax(sbp_cluster_kernel_s(pricing->cluster, pricing->type, work->flops,
                                     bytes - apart * element),
                sbp_cluster_vector_s(pricing->cluster, pricing->type, work->vector_operations));
}

double sbp_price_pass_s(const struct sbp_pricing *pricing, int op, const struct sbp_factor *factor,
                        enum sbp_pass pass)
{
    const struct sbp_work work = sbp_op_work(pricing->graph, op, factor, pass);
    if (work.time_s > 0)
        return work.time_s;
    const double bytes = work.elements * (double)pricing->bytes.activation +
                         work.gradient_elements * (double)pricing->bytes.gradient + work.bytes;
    double launches = work.flops > 0 || bytes > 0 ? 1 : 0;
    double seconds = work.attention.given ? attention_s(pricing, &work, pass, bytes)
                                          : stream_s(pricing, &work, bytes);
    for (int i = 0; i < work.product_count; i++) {
        const struct sbp_product *product = &work.product[i];
        seconds += product->count * product_s(pricing, product, pass);
        launches += product->count;
    }
    if (pass == SBP_PASS_FORWARD && pricing->graph->op[op].kind == SBP_OP_MOE)
        seconds += pricing->cluster->runtime.experts_wait_s;
    return seconds + launches * pricing->cluster->kernel_launch_s;
}

/* Attention without measured rates and custom operators run at the peak. */
static double most_share(const struct sbp_pricing *pricing, const struct sbp_attention_work *work,
                         enum sbp_pass pass)
{
    const struct sbp_device_rates *rates = &pricing->cluster->rates;
    if (!work->given)
        return 1;
    if (work->fused)
        return sbp_device_most_attention_share(rates, pricing->type, pass);
    return sbp_device_factor(rates->unfused.share) *
           sbp_device_factor(rates->sustained[pricing->type]);
}

/* Flops of the arithmetic's type in the time of one of the products' type. */
static double exchange(const struct sbp_pricing *pricing)
{
    const double one_s = sbp_cluster_kernel_s(pricing->cluster, pricing->type, 1, 0);
    if (pricing->product_type == pricing->type || !(one_s > 0))
        return 1;
    return sbp_cluster_kernel_s(pricing->cluster, pricing->product_type, 1, 0) / one_s;
}

double sbp_price_least_peak_flops(const struct sbp_pricing *pricing, int op, enum sbp_pass pass)
{
    const struct sbp_factor whole = sbp_op_factor_one();
    const struct sbp_work work = sbp_op_work(pricing->graph, op, &whole, pass);
    const double most =
        sbp_device_most_product_share(&pricing->cluster->rates, pricing->product_type, pass);
    const double each = exchange(pricing);
    double flops = work.flops / most_share(pricing, &work.attention, pass);
    for (int i = 0; i < work.product_count; i++) {
        const struct sbp_product *product = &work.product[i];
        flops += 2 * each * product->count * product->m * product->n * product->k / most;
    }
    return flops;
}

double sbp_price_update_bytes(const struct sbp_pricing *pricing)
{
    const struct sbp_element_bytes *bytes = &pricing->bytes;
    const double moments = sbp_graph_training_moments(&pricing->graph->training);
    return (double)bytes->gradient + 2 * (double)bytes->weight + 2 * (double)bytes->master +
           2 * moments * (double)bytes->moment;
}

double sbp_price_update_s(const struct sbp_pricing *pricing, double parameters)
{
    return sbp_cluster_kernel_s(pricing->cluster, pricing->type, 0,
                                parameters * sbp_price_update_bytes(pricing)) +
           pricing->cluster->kernel_launch_s;
}

/* ---- what hides --------------------------------------------------------------------------------
 */

static double inner_share(const struct sbp_runtime *runtime, enum sbp_op_kind kind)
{
    switch (kind) {
    case SBP_OP_MOE:
        return runtime->hidden[SBP_HIDES_EXPERTS];
    case SBP_OP_ATTENTION:
    case SBP_OP_GROUPED_ATTENTION:
    case SBP_OP_LATENT_ATTENTION:
        return runtime->hidden[SBP_HIDES_CONTEXT];
    default:
        return 0; /* a few scalars a token, which the next kernel waits for */
    }
}

double sbp_price_hidden_share(const struct sbp_runtime *runtime, enum sbp_section section,
                              enum sbp_cause cause, enum sbp_op_kind kind)
{
    switch (cause) {
    case SBP_CAUSE_ACTIVATION:
    case SBP_CAUSE_ACTIVATION_GRADIENT:
        return runtime->hidden[SBP_HIDES_ACTIVATIONS];
    case SBP_CAUSE_OPERATOR:
        return inner_share(runtime, kind);
    case SBP_CAUSE_WEIGHT:
        return runtime->hidden[SBP_HIDES_WEIGHTS];
    case SBP_CAUSE_WEIGHT_GRADIENT:
        return section == SBP_SECTION_STEP ? 0 : runtime->hidden[SBP_HIDES_GRADIENTS];
    default:
        return 0;
    }
}

/* ---- a program's instructions -------------------------------------------------------------- */

/* Operators in phases are charged as a whole in the last phase that passes over the block. */
static double compute_s(const struct sbp_pricing *pricing, const struct sbp_program *program,
                        const struct sbp_instr *instr)
{
    const struct sbp_factor factor =
        sbp_strategy_factor(program->graph, &program->mesh, &program->strategy, instr->op);
    const enum sbp_op_kind kind = program->graph->op[instr->op].kind;
    if (instr->kind == SBP_INSTR_FORWARD) {
        const bool phased = sbp_op_forward_phases(kind) > 1;
        const bool half = instr->section == SBP_SECTION_RECOMPUTE &&
                          program->parallel.recompute == SBP_RECOMPUTE_SELECTIVE &&
                          sbp_op_has_weight_phase(program->graph, instr->op);
        return phased && instr->phase != 1
                   ? 0
                   : sbp_price_pass_s(pricing, instr->op, &factor, SBP_PASS_FORWARD) /
                         (half ? 2 : 1);
    }
    if (sbp_op_has_weight_phase(program->graph, instr->op)) {
        const int weights = sbp_op_weight_phase(kind);
        return instr->phase == weights
                   ? sbp_price_pass_s(pricing, instr->op, &factor, SBP_PASS_WEIGHT_GRADIENT)
               : instr->phase == weights / 2 /* the middle one, where the experts work */
                   ? sbp_price_pass_s(pricing, instr->op, &factor, SBP_PASS_INPUT_GRADIENT)
                   : 0;
    }
    if ((sbp_op_norm_sums(kind) > 0 && instr->phase == 0) ||
        (kind == SBP_OP_CROSS_ENTROPY && instr->phase == 1))
        return 0;
    return sbp_price_pass_s(pricing, instr->op, &factor, SBP_PASS_INPUT_GRADIENT) +
           sbp_price_pass_s(pricing, instr->op, &factor, SBP_PASS_WEIGHT_GRADIENT);
}

struct sbp_group sbp_price_stage_group(const struct sbp_cluster *whole,
                                       const struct sbp_cluster *stage, int64_t pipeline,
                                       int stages, struct sbp_group group)
{
    for (int level = 0; level < whole->level_count && stages > 1; level++) {
        const int64_t parts = whole->level[level].size / stage->level[level].size;
        if (stages == pipeline) {
            group.members[level] *= (double)parts;
        } else if (parts > 1) {
            group.members[level] *= stages;
            break;
        }
    }
    return group;
}

static struct sbp_group group_of(const struct sbp_program *program,
                                 const struct sbp_cluster *cluster, const struct sbp_instr *instr)
{
    const struct sbp_group group = sbp_collective_group_of(&program->mesh, instr->box.axes);
    return program->scope.whole == NULL
               ? group
               : sbp_price_stage_group(program->scope.whole, cluster,
                                       sbp_parallel_groups(&program->parallel), instr->stages,
                                       group);
}

/* How an instruction sends tokens to experts; copies 0: it does not. */
static struct sbp_dispatch dispatch_of(const struct sbp_program *program,
                                       const struct sbp_cluster *cluster,
                                       const struct sbp_instr *instr)
{
    if (instr->kind != SBP_INSTR_INNER || instr->cause != SBP_CAUSE_OPERATOR)
        return (struct sbp_dispatch){0};
    return sbp_op_dispatch(&program->graph->op[instr->op], &cluster->runtime);
}

static double communication_s(const struct sbp_program *program, const struct sbp_cluster *cluster,
                              const struct sbp_instr *instr)
{
    const struct sbp_dispatch dispatch = dispatch_of(program, cluster, instr);
    const struct sbp_cluster *net = program->scope.whole == NULL ? cluster : program->scope.whole;
    const struct sbp_group group = group_of(program, cluster, instr);
    const double bytes = sbp_price_call_bytes(program, instr);
    if (dispatch.copies > 0)
        return instr->times * sbp_collective_dispatch_s(cluster, &group, &dispatch, bytes);
    return instr->times * sbp_collective_group_s(instr->stages > 1 ? net : cluster, instr->box.kind,
                                                 &group, bytes);
}

struct sbp_network_price sbp_price_of_network(const struct sbp_program *program,
                                              const struct sbp_cluster *cluster,
                                              const struct sbp_instr *instr,
                                              struct sbp_group *group)
{
    const struct sbp_cluster *net = program->scope.whole == NULL ? cluster : program->scope.whole;
    const struct sbp_dispatch dispatch = dispatch_of(program, cluster, instr);
    *group = group_of(program, cluster, instr);
    if (dispatch.copies > 0)
        return sbp_collective_dispatch_price(cluster, group, &dispatch,
                                             sbp_price_call_bytes(program, instr));
    return sbp_collective_price(instr->stages > 1 ? net : cluster, instr->box.kind, group,
                                sbp_price_call_bytes(program, instr));
}

/* Weights are gathered in the type that operators compute in, updated ones in their own. */
static int64_t weight_element(const struct sbp_program *program, const struct sbp_instr *instr)
{
    const bool computes = program->bytes.compute > 0 &&
                          program->buffer[instr->buffer[SBP_AT_OUT]].use == SBP_USE_GATHERED;
    return computes ? program->bytes.compute : program->bytes.weight;
}

double sbp_price_call_bytes(const struct sbp_program *program, const struct sbp_instr *instr)
{
    const int64_t element = instr->statistic                            ? program->bytes.statistic
                            : instr->cause == SBP_CAUSE_WEIGHT_GRADIENT ? program->bytes.reduce
                            : instr->cause == SBP_CAUSE_WEIGHT ? weight_element(program, instr)
                                                               : program->bytes.activation;
    const double elements =
        instr->kind == SBP_INSTR_INNER ? instr->inner_elements : (double)instr->box.elements;
    return elements * (double)element;
}

/* Adding two gradients, converting a weight, and reading all gradients for the norm move bytes like
 * any kernel. */
static double moved_instr_s(const struct sbp_pricing *pricing, const struct sbp_program *program,
                            const struct sbp_instr *instr)
{
    double bytes = 0;
    if (instr->kind == SBP_INSTR_ADD_GRADIENT) {
        bytes = 3 * (double)sbp_program_buffer_bytes(program, instr->buffer[SBP_AT_OUT]);
    } else if (instr->kind == SBP_INSTR_CONVERT) {
        bytes = (double)sbp_program_buffer_bytes(program, instr->buffer[SBP_AT_IN]) +
                (double)sbp_program_buffer_bytes(program, instr->buffer[SBP_AT_OUT]);
    } else if (instr->kind == SBP_INSTR_NORM) {
        for (int t = 0; t < program->graph->tensor_count; t++)
            bytes +=
                (double)sbp_weight_updated(&program->shard[t], t) * (double)program->bytes.gradient;
    }
    return sbp_cluster_kernel_s(pricing->cluster, pricing->type, 0, bytes);
}

/* All buckets together; only a cluster that says how fast its hosts are has plans that offload. */
static double host_copy_s(const struct sbp_pricing *pricing, const struct sbp_program *program)
{
    const double rate = pricing->cluster->host_link_bytes_per_s;
    return rate > 0 ? (double)program->host_bytes / rate : 0;
}

void sbp_program_price(struct sbp_program *program, const struct sbp_cluster *cluster)
{
    const struct sbp_pricing pricing = sbp_price_setup(program->graph, cluster, &program->bytes);
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
        case SBP_INSTR_INNER:
        case SBP_INSTR_GATHER:
        case SBP_INSTR_SCATTER:
        case SBP_INSTR_SEND:
        case SBP_INSTR_PASS:
            instr->communication_s = communication_s(program, cluster, instr);
            break;
        case SBP_INSTR_UPDATE:
            instr->compute_s = sbp_price_update_s(
                &pricing,
                (double)sbp_weight_updated(&program->shard[instr->tensor], instr->tensor));
            break;
        case SBP_INSTR_COPY_IN:
        case SBP_INSTR_COPY_OUT:
            instr->compute_s = host_copy_s(&pricing, program);
            break;
        default:
            instr->compute_s = moved_instr_s(&pricing, program, instr);
        }
    }
}

double sbp_price_traffic_bytes(const struct sbp_program *program, const struct sbp_cluster *cluster,
                               const struct sbp_instr *instr)
{
    const struct sbp_group group = group_of(program, cluster, instr);
    const struct sbp_dispatch dispatch = dispatch_of(program, cluster, instr);
    const double members = sbp_collective_group_size(&group);
    if (members <= 1 || !sbp_program_is_call(instr))
        return 0;
    if (dispatch.copies > 0)
        return instr->times * sbp_collective_dispatch_bytes(cluster, &group, &dispatch,
                                                            sbp_price_call_bytes(program, instr));
    return instr->times * sbp_collective_share(instr->box.kind, members) *
           sbp_price_call_bytes(program, instr);
}

static void add_memory(const struct sbp_program *program, struct sbp_totals *totals)
{
    for (int i = 0; i < program->buffer_count; i++) {
        const int64_t bytes = sbp_program_slot_bytes(program, i);
        const enum sbp_buffer_use use = program->buffer[i].use;
        if (use == SBP_USE_WEIGHT || use == SBP_USE_VERSION)
            totals->weight_bytes += bytes;
        else if (use == SBP_USE_GRADIENT || use == SBP_USE_SUM)
            totals->gradient_bytes += bytes;
        else if (use == SBP_USE_MOMENT)
            totals->moment_bytes += bytes;
        else if (use == SBP_USE_MASTER)
            totals->master_bytes += bytes;
        else if (use == SBP_USE_BUCKET)
            totals->bucket_bytes += bytes;
    }
    totals->activation_bytes = program->arena_bytes - program->persistent_bytes;
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
        if (instr->kind == SBP_INSTR_UPDATE || sbp_program_is_host_copy(instr))
            totals.optimizer_s += instr->compute_s;
        if (!sbp_program_is_call(instr))
            continue;
        totals.communication_bytes += sbp_price_traffic_bytes(program, cluster, instr);
        if (instr->cause == SBP_CAUSE_ACTIVATION)
            totals.forward_activation_elements += sbp_collective_traffic_bytes(
                &program->mesh, instr->box.kind, instr->box.axes, (double)instr->box.elements);
    }
    totals.step_s = totals.compute_s + totals.communication_s;
    add_memory(program, &totals);
    totals.device_bytes = program->arena_bytes + cluster->reserve_bytes;
    return totals;
}
