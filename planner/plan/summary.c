#include "planner/plan/summary.h"

#include <string.h>

#include "base/json/json_write.h"
#include "costmodel/program/price.h"

/* Bytes of token ids, labels and positions of one micro-batch; the timeline counts them among kept
 * activations. */
static int64_t index_bytes(const struct sbp_program *program)
{
    int64_t bytes = 0;
    for (int i = 0; i < program->buffer_count; i++)
        if (program->buffer[i].use == SBP_USE_INDEX)
            bytes += sbp_program_slot_bytes(program, i);
    return bytes;
}

static double boxed_forward(const struct sbp_step *step, int64_t micro_batches)
{
    double elements = 0;
    for (int piece = 0; piece < step->pieces; piece++) {
        const struct sbp_program *program = &step->program[step->program_of[piece]];
        elements += sbp_program_totals(program, &step->cluster).forward_activation_elements;
    }
    return elements * (double)micro_batches / step->stages;
}

struct sbp_summary sbp_summary_make(const struct sbp_plan *plan, const struct sbp_step *step)
{
    struct sbp_summary summary = {
        .totals = step->totals,
        .stages = step->stages,
        .micro_batches = sbp_parallel_micro_batches(&plan->cut.parallel, &plan->cut.graph),
        .devices = plan->cut.mesh.devices * step->stages,
        .tokens = plan->cut.graph.global_batch * plan->cut.graph.sequence,
        .memory_bytes = plan->workload.cluster.memory_bytes,
    };
    if (summary.totals.hidden_s <= 1e-9 * summary.totals.communication_s) {
        summary.totals.hidden_s = 0; /* rounding */
        memset(summary.totals.hidden_by_cause_s, 0, sizeof summary.totals.hidden_by_cause_s);
        summary.totals.exposed_s = summary.totals.communication_s;
    }
    for (int stage = 1; stage < step->stages; stage++)
        if (step->memory[stage].device_bytes > step->memory[summary.worst_stage].device_bytes)
            summary.worst_stage = stage;
    const struct sbp_stage_memory *memory = &step->memory[summary.worst_stage];
    summary.memory = *memory;
    summary.forward_activation_elements = boxed_forward(step, summary.micro_batches);
    summary.reserve_bytes = memory->reserve_bytes;
    for (int chunk = 0; chunk < sbp_step_chunks(step); chunk++)
        summary.index_bytes += index_bytes(sbp_step_chunk(step, (int)summary.worst_stage, chunk));
    summary.index_bytes = summary.index_bytes * memory->in_flight / plan->cut.parallel.chunks;
    summary.activation_bytes = memory->device_bytes - memory->weight_bytes -
                               memory->gradient_bytes - memory->moment_bytes -
                               memory->master_bytes - memory->bucket_bytes - memory->reserve_bytes -
                               memory->message_bytes - summary.index_bytes;
    const struct sbp_pricing pricing =
        sbp_price_setup(&plan->cut.graph, &plan->cut.stage, &step->program[0].bytes);
    const double share = sbp_op_model_flops(&plan->cut.graph) / (double)summary.devices;
    const double step_s = summary.totals.step_s;
    if (step_s > 0) {
        summary.tokens_per_s = (double)summary.tokens / step_s;
        summary.mfu =
            sbp_cluster_kernel_s(&plan->workload.cluster, pricing.type, share, 0) / step_s;
    }
    summary.gpu_hours_per_step = (double)summary.devices * step_s / 3600;
    return summary;
}

const char *sbp_summary_unit(const struct sbp_graph *graph, int64_t *count)
{
    bool images = false;
    for (int op = 0; op < graph->op_count; op++)
        images |=
            graph->op[op].kind == SBP_OP_CONV2D || graph->op[op].kind == SBP_OP_PATCH_EMBEDDING;
    const bool tokens = !images && graph->sequence > 1;
    *count = graph->global_batch * (tokens ? graph->sequence : 1);
    return tokens ? "tokens" : images ? "images" : "samples";
}

double sbp_summary_work_s(const struct sbp_summary *summary)
{
    const struct sbp_step_totals *totals = &summary->totals;
    return totals->compute_s + totals->recompute_s + totals->optimizer_s;
}

struct sbp_training_cost sbp_summary_training(const struct sbp_summary *summary, double tokens)
{
    const double steps = tokens / (double)summary->tokens;
    return (struct sbp_training_cost){.steps = steps,
                                      .days = steps * summary->totals.step_s / 86400,
                                      .gpu_hours = steps * summary->gpu_hours_per_step};
}

void sbp_summary_put_cost(struct cJSON *parent, const struct sbp_summary *summary, bool *failed)
{
    struct cJSON *cost = sbp_json_put_object(parent, "cost", failed);
    const struct sbp_step_totals *totals = &summary->totals;
    sbp_json_put_number(cost, "step_s", totals->step_s, failed);
    sbp_json_put_number(cost, "compute_s", sbp_summary_work_s(summary), failed);
    sbp_json_put_number(cost, "recompute_s", totals->recompute_s, failed);
    sbp_json_put_number(cost, "optimizer_s", totals->optimizer_s, failed);
    sbp_json_put_number(cost, "communication_s", totals->communication_s, failed);
    sbp_json_put_number(cost, "exposed_communication_s", totals->exposed_s, failed);
    sbp_json_put_number(cost, "bubble_s", totals->bubble_s, failed);
    sbp_json_put_number(cost, "communication_bytes", totals->communication_bytes, failed);
    sbp_json_put_number(cost, "forward_activation_elements", summary->forward_activation_elements,
                        failed);
    sbp_json_put_number(cost, "tokens_per_s", summary->tokens_per_s, failed);
    sbp_json_put_number(cost, "mfu", summary->mfu, failed);
    sbp_json_put_number(cost, "gpu_hours_per_step", summary->gpu_hours_per_step, failed);
    struct cJSON *causes = sbp_json_put_object(cost, "communication_by_cause_s", failed);
    for (int cause = SBP_CAUSE_ACTIVATION; cause < SBP_CAUSES; cause++)
        sbp_json_put_number(causes, sbp_program_cause_name((enum sbp_cause)cause),
                            totals->by_cause_s[cause], failed);
    struct cJSON *hidden = sbp_json_put_object(cost, "hidden_communication_by_cause_s", failed);
    for (int cause = SBP_CAUSE_ACTIVATION; cause < SBP_CAUSES; cause++)
        if (totals->hidden_by_cause_s[cause] > 0)
            sbp_json_put_number(hidden, sbp_program_cause_name((enum sbp_cause)cause),
                                totals->hidden_by_cause_s[cause], failed);
}

void sbp_summary_put_memory(struct cJSON *parent, const struct sbp_summary *summary, bool *failed)
{
    struct cJSON *object = sbp_json_put_object(parent, "memory", failed);
    const struct sbp_stage_memory *memory = &summary->memory;
    sbp_json_put_number(object, "device_bytes", (double)memory->device_bytes, failed);
    sbp_json_put_number(object, "weight_bytes", (double)memory->weight_bytes, failed);
    sbp_json_put_number(object, "gradient_bytes", (double)memory->gradient_bytes, failed);
    sbp_json_put_number(object, "master_bytes", (double)memory->master_bytes, failed);
    sbp_json_put_number(object, "moment_bytes", (double)memory->moment_bytes, failed);
    sbp_json_put_number(object, "bucket_bytes", (double)memory->bucket_bytes, failed);
    sbp_json_put_number(object, "activation_bytes", (double)summary->activation_bytes, failed);
    sbp_json_put_number(object, "index_bytes", (double)summary->index_bytes, failed);
    if (memory->message_bytes > 0)
        sbp_json_put_number(object, "message_bytes", (double)memory->message_bytes, failed);
    sbp_json_put_number(object, "reserve_bytes", (double)summary->reserve_bytes, failed);
    sbp_json_put_number(object, "available_bytes", (double)summary->memory_bytes, failed);
    sbp_json_put_number(object, "host_bytes", (double)summary->totals.host_bytes, failed);
}

void sbp_summary_put_stages(struct cJSON *parent, const struct sbp_step *step, bool *failed)
{
    struct cJSON *stages = sbp_json_put_array(parent, "stages", failed);
    for (int stage = 0; stage < step->stages && !*failed; stage++) {
        const struct sbp_stage_memory *memory = &step->memory[stage];
        struct cJSON *item = sbp_json_push_object(stages, failed);
        sbp_json_put_number(item, "first_op", step->first[sbp_step_piece(step, stage, 0)], failed);
        sbp_json_put_number(item, "parameters", (double)memory->parameters, failed);
        sbp_json_put_number(item, "compute_s", step->timeline.device[stage].compute_s, failed);
        sbp_json_put_number(item, "bubble_s", step->timeline.device[stage].bubble_s, failed);
        sbp_json_put_number(item, "in_flight", memory->in_flight, failed);
        sbp_json_put_number(item, "kept_bytes", (double)memory->kept_bytes, failed);
        if (memory->parked_bytes > 0)
            sbp_json_put_number(item, "parked_bytes", (double)memory->parked_bytes, failed);
        sbp_json_put_number(item, "device_bytes", (double)memory->device_bytes, failed);
        sbp_json_put_number(item, "host_bytes", (double)memory->host_bytes, failed);
    }
}

void sbp_summary_put_model(struct cJSON *parent, const struct sbp_graph *graph, bool *failed)
{
    struct cJSON *model = sbp_json_put_object(parent, "model", failed);
    sbp_json_put_text(model, "name", graph->name, failed);
    sbp_json_put_number(model, "parameters", (double)graph->parameters, failed);
    sbp_json_put_number(model, "global_batch", (double)graph->global_batch, failed);
    sbp_json_put_number(model, "sequence", (double)graph->sequence, failed);
    sbp_json_put_number(model, "flops", sbp_op_model_flops(graph), failed);
}

void sbp_summary_put_parallel(struct cJSON *parent, const struct sbp_parallel *parallel,
                              bool *failed)
{
    struct cJSON *object = sbp_json_put_object(parent, "parallel", failed);
    sbp_parallel_write(object, parallel, failed);
}
