#include "tests/papers/pipeline.h"

#include <math.h>
#include <stdio.h>

#include "costmodel/program/price.h"
#include "tests/papers/setting.h"

#define NODE_GPUS   6
#define SOCKET_GPUS 3

/* The seconds of a micro-batch, outside the blocks or in one of them. */
struct costs {
    double forward_s, input_s, weight_s;
};

struct plan {
    const struct pipeline_setting *setting;
    struct sbp_cluster cluster;
    struct setting_model model; /* its batch is a micro-batch */
    struct costs block, first, last;
    double boundary_bytes; /* a micro-batch between two blocks */
    double parameters;
};

/* The block that an operator belongs to; -1 before the first, layers after the last one. */
static int block_of(const struct sbp_graph *graph, int op, int layers)
{
    int block = 0;
    if (sscanf(graph->op[op].name, "block%d.", &block) == 1)
        return block;
    return op < graph->op_count / 2 ? -1 : layers;
}

static void sum_costs(struct plan *plan)
{
    const struct sbp_graph *graph = &plan->model.graph;
    const struct sbp_element_bytes bytes = sbp_program_element_bytes(&graph->precision);
    const struct sbp_pricing pricing = sbp_price_setup(graph, &plan->cluster, &bytes);
    const struct sbp_factor one = sbp_op_factor_one();
    for (int op = 0; op < graph->op_count; op++) {
        const int block = block_of(graph, op, plan->setting->model.layers);
        if (block > 0 && block < plan->setting->model.layers)
            continue; /* as block 0 */
        struct costs *costs = block < 0 ? &plan->first : block == 0 ? &plan->block : &plan->last;
        costs->forward_s += sbp_price_pass_s(&pricing, op, &one, SBP_PASS_FORWARD);
        costs->input_s += sbp_price_pass_s(&pricing, op, &one, SBP_PASS_INPUT_GRADIENT);
        costs->weight_s += sbp_price_pass_s(&pricing, op, &one, SBP_PASS_WEIGHT_GRADIENT);
    }
}

static void plan_make(struct plan *plan, const struct pipeline_setting *setting)
{
    struct sbp_diag diag = {{0}};
    *plan = (struct plan){.setting = setting};
    setting_cluster_named("summit-v100", &plan->cluster);
    setting_must(sbp_cluster_shrink(&plan->cluster, setting->inter * setting->data, &diag), &diag);
    setting_cluster_efficiency(setting->efficiency, &plan->cluster);
    setting_gpt_read(&plan->model, &setting->model, setting->micro_batch);
    plan->parameters = (double)plan->model.graph.parameters;
    plan->boundary_bytes = (double)setting->micro_batch * SETTING_GPT_SEQUENCE *
                           setting->model.hidden *
                           (double)sbp_cluster_type_bytes(plan->model.graph.precision.activation);
    sum_costs(plan);
}

/* From this stage's GPU to the next rank's: within a socket, a node, or between nodes. */
static double send_s(const struct plan *plan, int stage)
{
    struct sbp_group group = sbp_collective_group_one();
    const int level = (stage + 1) % NODE_GPUS == 0 ? 0 : (stage + 1) % SOCKET_GPUS == 0 ? 1 : 2;
    group.members[level] = 2;
    return sbp_collective_group_s(&plan->cluster, SBP_SEND_RECV, &group, plan->boundary_bytes);
}

/* All blocks are formed again. */
static struct sbp_stage_cost stage_cost(const struct plan *plan, int stage)
{
    const int stages = plan->setting->inter;
    const double blocks = (double)plan->setting->model.layers / stages;
    const struct costs none = {0};
    const struct costs *first = stage == 0 ? &plan->first : &none;
    const struct costs *last = stage == stages - 1 ? &plan->last : &none;
    return (struct sbp_stage_cost){
        .forward_s = blocks * plan->block.forward_s + first->forward_s + last->forward_s,
        .backward_input_s = blocks * plan->block.input_s + first->input_s + last->input_s,
        .backward_weight_s = blocks * plan->block.weight_s + first->weight_s + last->weight_s,
        .recompute_s = blocks * plan->block.forward_s,
        .send_forward_s = stage + 1 < stages ? send_s(plan, stage) : 0,
        .send_backward_s = stage > 0 ? send_s(plan, stage - 1) : 0,
    };
}

/* Replicas of a stage stand on different nodes, one of them a node, or as few as fit. */
static double all_reduce_s(const struct plan *plan, double bytes)
{
    struct sbp_group group = sbp_collective_group_one();
    group.members[0] = plan->setting->data;
    const double slower = bytes <= plan->setting->slow_bytes ? plan->setting->slow_factor : 1;
    return slower * sbp_collective_group_s(&plan->cluster, SBP_ALL_REDUCE, &group, bytes);
}

static struct sbp_stage_end stage_end(const struct plan *plan)
{
    const struct pipeline_setting *setting = plan->setting;
    const struct sbp_graph *graph = &plan->model.graph;
    const struct sbp_element_bytes bytes = sbp_program_element_bytes(&graph->precision);
    const struct sbp_pricing pricing = sbp_price_setup(graph, &plan->cluster, &bytes);
    const double parameters = plan->parameters / setting->inter;
    const double bucket = (double)setting->bucket;
    const double gradient = (double)bytes.reduce;
    struct sbp_stage_end end = {.sync_s = all_reduce_s(plan, gradient * parameters),
                                .optimizer_s = sbp_price_update_s(&pricing, parameters)};
    if (!setting->offload)
        return end;
    /* Master and moments travel: 12 bytes a parameter, in and out. */
    const double travels = bucket * (double)(bytes.master + 2 * bytes.moment);
    const double link_s = travels / plan->cluster.host_link_bytes_per_s;
    end.offload = (struct sbp_offload){.buckets = (int)ceil(parameters / bucket),
                                       .in_s = link_s,
                                       .step_s = sbp_price_update_s(&pricing, bucket),
                                       .out_s = link_s,
                                       .chunk_buckets = setting->chunk};
    if (setting->chunk > 0) {
        const int rest = end.offload.buckets % setting->chunk;
        end.offload.chunk_sync_s = all_reduce_s(plan, gradient * bucket * setting->chunk);
        end.offload.last_chunk_sync_s = all_reduce_s(plan, gradient * bucket * rest);
    }
    return end;
}

static double play(const struct sbp_timeline_request *request, struct sbp_timeline *timeline,
                   struct sbp_arena *arena)
{
    struct sbp_diag diag = {{0}};
    setting_must(sbp_timeline_simulate(request, arena, timeline, &diag), &diag);
    return timeline->makespan_s;
}

/* A step of stages that do nothing but end. */
static double end_s(const struct sbp_stage_end *end, struct sbp_arena *arena)
{
    const struct sbp_stage_cost idle = {0};
    struct sbp_timeline timeline;
    const struct sbp_timeline_request request = {.schedule = SBP_MESSAGE_DRIVEN,
                                                 .stages = 1,
                                                 .micro_batches = 1,
                                                 .stage = &idle,
                                                 .end = end};
    return play(&request, &timeline, arena);
}

struct pipeline_times pipeline_play(const struct pipeline_setting *setting)
{
    struct sbp_stage_cost stage[PIPELINE_MOST_STAGES];
    struct sbp_stage_end end[PIPELINE_MOST_STAGES];
    struct sbp_timeline timeline;
    struct sbp_arena arena;
    struct plan plan;
    struct pipeline_times times = {0};
    sbp_arena_init(&arena);
    plan_make(&plan, setting);
    for (int i = 0; i < setting->inter; i++) {
        stage[i] = stage_cost(&plan, i);
        end[i] = stage_end(&plan);
    }
    struct sbp_timeline_request request = {.schedule = setting->schedule,
                                           .pipeline_limit = setting->limit,
                                           .stages = setting->inter,
                                           .micro_batches = setting->batch / setting->data /
                                                            setting->micro_batch,
                                           .stage = stage};
    times.pipeline_s = play(&request, &timeline, &arena);
    for (int i = 0; i < timeline.devices; i++)
        times.in_flight[i] = timeline.device[i].in_flight;
    request.end = end;
    times.step_s = play(&request, &timeline, &arena);
    times.stage_parameters = plan.parameters / setting->inter;
    times.sync_s = end[0].sync_s;
    end[0].sync_s = 0;
    end[0].offload.chunk_buckets = 0;
    times.optimizer_s = end_s(&end[0], &arena);
    setting_model_drop(&plan.model);
    sbp_arena_free(&arena);
    return times;
}
