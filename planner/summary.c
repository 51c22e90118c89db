#include "planner/summary.h"

#include "costmodel/price.h"
#include "planner/json_out.h"

struct sbp_summary sbp_summary_make(const struct sbp_plan *plan, const struct sbp_program *program)
{
    struct sbp_summary summary = {
        .totals = sbp_program_totals(program, &plan->cluster),
        .devices = plan->mesh.devices,
        .tokens = plan->graph.global_batch * plan->graph.sequence,
        .reserve_bytes = plan->cluster.reserve_bytes,
        .memory_bytes = plan->cluster.memory_bytes,
    };
    const struct sbp_totals *totals = &summary.totals;
    const struct sbp_pricing pricing =
        sbp_pricing_make(&plan->graph, &plan->cluster, &program->bytes);
    const double share = sbp_graph_model_flops(&plan->graph) / (double)summary.devices;
    if (totals->step_s > 0) {
        summary.tokens_per_s = (double)summary.tokens / totals->step_s;
        summary.mfu = sbp_cluster_kernel_s(&plan->cluster, pricing.type, share, 0) / totals->step_s;
    }
    summary.gpu_hours_per_step = (double)summary.devices * totals->step_s / 3600;
    summary.index_bytes = totals->device_bytes - summary.reserve_bytes - totals->weight_bytes -
                          totals->gradient_bytes - totals->moment_bytes - totals->master_bytes -
                          totals->activation_bytes;
    return summary;
}

struct sbp_training_cost sbp_summary_training(const struct sbp_summary *summary, double tokens)
{
    const double steps = tokens / (double)summary->tokens;
    return (struct sbp_training_cost){.steps = steps,
                                      .days = steps * summary->totals.step_s / 86400,
                                      .gpu_hours = steps * summary->gpu_hours_per_step};
}

void sbp_put_cost(struct cJSON *parent, const struct sbp_summary *summary, bool *failed)
{
    struct cJSON *cost = sbp_put_object(parent, "cost", failed);
    const struct sbp_totals *totals = &summary->totals;
    sbp_put_number(cost, "step_s", totals->step_s, failed);
    sbp_put_number(cost, "compute_s", totals->compute_s, failed);
    sbp_put_number(cost, "optimizer_s", totals->optimizer_s, failed);
    sbp_put_number(cost, "communication_s", totals->communication_s, failed);
    sbp_put_number(cost, "communication_bytes", totals->communication_bytes, failed);
    sbp_put_number(cost, "forward_activation_elements", totals->forward_activation_elements,
                   failed);
    sbp_put_number(cost, "tokens_per_s", summary->tokens_per_s, failed);
    sbp_put_number(cost, "mfu", summary->mfu, failed);
    sbp_put_number(cost, "gpu_hours_per_step", summary->gpu_hours_per_step, failed);
    struct cJSON *causes = sbp_put_object(cost, "communication_by_cause_s", failed);
    for (int cause = SBP_CAUSE_ACTIVATION; cause <= SBP_CAUSE_SCALAR; cause++)
        sbp_put_number(causes, sbp_cause_name((enum sbp_cause)cause), totals->by_cause_s[cause],
                       failed);
}

void sbp_put_memory(struct cJSON *parent, const struct sbp_summary *summary, bool *failed)
{
    struct cJSON *memory = sbp_put_object(parent, "memory", failed);
    const struct sbp_totals *totals = &summary->totals;
    sbp_put_number(memory, "device_bytes", (double)totals->device_bytes, failed);
    sbp_put_number(memory, "weight_bytes", (double)totals->weight_bytes, failed);
    sbp_put_number(memory, "gradient_bytes", (double)totals->gradient_bytes, failed);
    sbp_put_number(memory, "master_bytes", (double)totals->master_bytes, failed);
    sbp_put_number(memory, "moment_bytes", (double)totals->moment_bytes, failed);
    sbp_put_number(memory, "activation_bytes", (double)totals->activation_bytes, failed);
    sbp_put_number(memory, "index_bytes", (double)summary->index_bytes, failed);
    sbp_put_number(memory, "reserve_bytes", (double)summary->reserve_bytes, failed);
    sbp_put_number(memory, "available_bytes", (double)summary->memory_bytes, failed);
}

void sbp_put_model(struct cJSON *parent, const struct sbp_graph *graph, bool *failed)
{
    struct cJSON *model = sbp_put_object(parent, "model", failed);
    sbp_put_text(model, "name", graph->name, failed);
    sbp_put_number(model, "parameters", (double)graph->parameters, failed);
    sbp_put_number(model, "global_batch", (double)graph->global_batch, failed);
    sbp_put_number(model, "sequence", (double)graph->sequence, failed);
    sbp_put_number(model, "flops", sbp_graph_model_flops(graph), failed);
}

void sbp_put_parallel(struct cJSON *parent, const struct sbp_parallel *parallel, bool *failed)
{
    struct cJSON *object = sbp_put_object(parent, "parallel", failed);
    sbp_parallel_write(object, parallel, failed);
}
