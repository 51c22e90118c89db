#include "planner/paths/path.h"

#include <string.h>

#include "costmodel/program/price.h"
#include "costmodel/timeline/timeline_path.h"
#include "planner/paths/path_message_driven.h"

/* ---- paths as sums -------------------------------------------------------------------------- */

static size_t length_of(const struct sbp_path *path)
{
    return 5 * (size_t)path->pieces + (size_t)path->stages;
}

static enum sbp_status begin_path(const struct sbp_plan *plan, struct sbp_arena *arena,
                                  struct sbp_path *path)
{
    const int stages = (int)plan->parallel.pipeline;
    const int pieces = stages * (int)plan->parallel.chunks;
    *path = (struct sbp_path){.pieces = pieces, .stages = stages};
    path->all = SBP_NEW(arena, double, length_of(path));
    if (path->all == NULL)
        return SBP_E_MEMORY;
    double **const part[] = {&path->forward, &path->backward, &path->weight,
                             &path->sent,    &path->returned, &path->end};
    for (int i = 0; i < 6; i++)
        *part[i] = path->all + (size_t)i * (size_t)pieces;
    return SBP_OK;
}

bool sbp_path_equal(const struct sbp_path *a, const struct sbp_path *b)
{
    return a->pieces == b->pieces && a->stages == b->stages &&
           memcmp(a->all, b->all, length_of(a) * sizeof *a->all) == 0;
}

double sbp_path_length_s(const struct sbp_path *path, const struct sbp_path *times)
{
    double seconds = 0;
    for (size_t i = 0; i < length_of(path); i++)
        seconds += path->all[i] * times->all[i];
    return seconds;
}

void sbp_path_mix(const struct sbp_path *path, const double *share, int count,
                  struct sbp_path *mixed)
{
    for (size_t i = 0; i < length_of(mixed); i++) {
        mixed->all[i] = 0;
        for (int k = 0; k < count; k++)
            mixed->all[i] += share[k] * path[k].all[i];
    }
}

/* On the way to the last stage and back it passes the first chunks of the stages before it. */
enum sbp_status sbp_path_longest(const struct sbp_plan *plan, struct sbp_arena *arena,
                                 struct sbp_path *path)
{
    const struct sbp_parallel *parallel = &plan->parallel;
    const int stages = (int)parallel->pipeline;
    const bool late = parallel->schedule == SBP_ZERO_BUBBLE;
    SBP_TRY(begin_path(plan, arena, path));
    path->end[late ? stages - 1 : 0] = 1;
    for (int piece = 0; piece < path->pieces; piece++) {
        const bool turns = piece % stages == stages - 1, passed = piece < stages && !turns;
        const double all = (double)sbp_parallel_micro_batches(parallel, &plan->graph);
        path->forward[piece] = turns ? all : passed ? 1 : 0;
        path->backward[piece] = turns ? all : passed && !late ? 1 : 0;
        path->weight[piece] = path->backward[piece];
        path->sent[piece] = passed ? 1 : 0;
        path->returned[piece] = piece > 0 && piece < stages && !late ? 1 : 0;
    }
    return SBP_OK;
}

/* ---- what a step takes ---------------------------------------------------------------------- */

double sbp_path_message_s(const struct sbp_plan *plan, int tensor, double parts)
{
    const struct sbp_element_bytes bytes = sbp_program_element_bytes(&plan->graph.precision);
    struct sbp_group group = sbp_collective_group_one();
    if (tensor < 0 || plan->stage_level < 0)
        return 0;
    group.members[plan->stage_level] = 2;
    double elements = 1;
    for (int dim = 0; dim < SBP_MAX_DIMS; dim++)
        elements *= (double)plan->graph.tensor[tensor].shape.size[dim];
    return sbp_collective_group_s(&plan->cluster, SBP_SEND_RECV, &group,
                                  elements / parts * (double)bytes.activation);
}

/* A message of the activation that crosses before an operator: no device has less than its share.
 */
static double least_message_s(const struct sbp_plan *plan, int op)
{
    return sbp_path_message_s(plan, sbp_stages_crossing(&plan->graph, op),
                              (double)plan->mesh.devices);
}

double sbp_path_messages_s(const struct sbp_plan *plan, const struct sbp_path *path,
                           const int *first)
{
    double seconds = 0;
    for (int piece = 0; piece < path->pieces; piece++) {
        if (path->sent[piece] > 0)
            seconds += path->sent[piece] * least_message_s(plan, first[piece + 1]);
        if (path->returned[piece] > 0)
            seconds += path->returned[piece] * least_message_s(plan, first[piece]);
    }
    return seconds;
}

struct sbp_timeline_request sbp_plan_timeline(const struct sbp_plan *plan, int64_t micro_batches,
                                              const struct sbp_stage_cost *cost)
{
    const struct sbp_parallel *parallel = &plan->parallel;
    return (struct sbp_timeline_request){.schedule = parallel->schedule,
                                         .stages = (int)parallel->pipeline,
                                         .micro_batches = (int)micro_batches,
                                         .chunks = (int)parallel->chunks,
                                         .pipeline_limit = (int)parallel->pipeline_limit,
                                         .stage = cost};
}

/* Costs of pieces as their flops have them, of a micro-batch on a stage's devices. */
static enum sbp_status expect_costs(const struct sbp_plan *plan, const int *first,
                                    struct sbp_arena *arena, struct sbp_stage_cost **cost)
{
    const struct sbp_graph *graph = &plan->graph;
    const int stages = (int)plan->parallel.pipeline, chunks = (int)plan->parallel.chunks;
    const struct sbp_element_bytes bytes = sbp_program_element_bytes(&graph->precision);
    const struct sbp_pricing pricing = sbp_price_setup(graph, &plan->stage, &bytes);
    *cost = SBP_NEW(arena, struct sbp_stage_cost, (size_t)stages * (size_t)chunks);
    if (*cost == NULL)
        return SBP_E_MEMORY;
    for (int piece = 0; piece < stages * chunks; piece++) {
        struct sbp_stage_cost *to = &(*cost)[piece % stages * chunks + piece / stages];
        double forward = 0, backward = 0;
        for (int op = first[piece]; op < first[piece + 1]; op++) {
            forward += sbp_op_forward_flops(graph, op) / (double)plan->mesh.devices;
            backward += sbp_op_backward_flops(graph, op) / (double)plan->mesh.devices;
        }
        to->forward_s = sbp_cluster_kernel_s(&plan->stage, pricing.type, forward, 0);
        to->backward_input_s = sbp_cluster_kernel_s(&plan->stage, pricing.type, backward / 2, 0);
        to->backward_weight_s = to->backward_input_s;
        to->recompute_s = plan->parallel.recompute == SBP_RECOMPUTE_FULL ? to->forward_s : 0;
        to->send_forward_s =
            piece + 1 < stages * chunks ? least_message_s(plan, first[piece + 1]) : 0;
        to->send_backward_s = piece > 0 ? least_message_s(plan, first[piece]) : 0;
    }
    return SBP_OK;
}

/* What of an end no overlap hides. */
static double end_s(const struct sbp_stage_end *end)
{
    const struct sbp_offload *offload = &end->offload;
    return (1 - end->sync_overlap) * end->sync_s +
           (offload->buckets > 0
                ? offload->buckets * (offload->in_s + offload->step_s + offload->out_s)
                : end->optimizer_s);
}

/* In the shape of a path; ends may be NULL. */
static enum sbp_status take_times(const struct sbp_plan *plan, const struct sbp_stage_cost *costs,
                                  const struct sbp_stage_end *ends, struct sbp_arena *arena,
                                  struct sbp_path *times)
{
    const int chunks = (int)plan->parallel.chunks;
    SBP_TRY(begin_path(plan, arena, times));
    for (int piece = 0; piece < times->pieces; piece++) {
        const struct sbp_stage_cost *cost =
            &costs[piece % times->stages * chunks + piece / times->stages];
        times->forward[piece] = cost->forward_s;
        times->backward[piece] = cost->recompute_s + cost->backward_input_s;
        times->weight[piece] = cost->backward_weight_s;
        times->sent[piece] = cost->send_forward_s;
        times->returned[piece] = cost->send_backward_s;
    }
    for (int stage = 0; ends != NULL && stage < times->stages; stage++)
        times->end[stage] = end_s(&ends[stage]);
    return SBP_OK;
}

/* ---- the longest paths that are known ------------------------------------------------------- */

/* The critical path of a timeline, which need not be known; then the path is left as it is. */
static enum sbp_status trace_path(const struct sbp_timeline_request *request,
                                  const struct sbp_timeline *timeline, struct sbp_arena *scratch,
                                  struct sbp_path *path)
{
    const bool late = request->schedule == SBP_ZERO_BUBBLE;
    struct sbp_timeline_path traced;
    const enum sbp_status status = sbp_timeline_critical(request, timeline, -1, scratch, &traced);
    if (status != SBP_OK)
        return status == SBP_E_UNSUPPORTED ? SBP_OK : status;
    for (int v = 0; v < path->pieces; v++) {
        path->forward[v] = (double)traced.forward[v];
        path->backward[v] = (double)traced.backward[v];
        path->weight[v] = (double)(late ? traced.weight[v] : traced.backward[v]);
        path->sent[v] = (double)traced.send_forward[v];
        path->returned[v] = (double)traced.send_backward[v];
    }
    for (int stage = 0; stage < path->stages; stage++)
        path->end[stage] = stage == traced.end ? 1 : 0;
    return SBP_OK;
}

static bool knows_paths(const struct sbp_plan *plan)
{
    const struct sbp_parallel *parallel = &plan->parallel;
    return parallel->pipeline > 1 &&
           (sbp_timeline_is_fixed(parallel->schedule) || parallel->schedule == SBP_MESSAGE_DRIVEN);
}

/* Plays the schedule with the times that are expected. */
static enum sbp_status expect_path(const struct sbp_plan *plan, struct sbp_arena *scratch,
                                   struct sbp_path *path, struct sbp_diag *diag)
{
    const int64_t count = sbp_parallel_micro_batches(&plan->parallel, &plan->graph);
    int *first = SBP_NEW(scratch, int, path->pieces + 1);
    struct sbp_stage_cost *cost;
    struct sbp_timeline timeline;
    struct sbp_path times;
    if (first == NULL)
        return SBP_E_MEMORY;
    SBP_TRY(sbp_stages_cut(&plan->graph, path->pieces, plan->parallel.stage_cut, first, diag));
    SBP_TRY(expect_costs(plan, first, scratch, &cost));
    SBP_TRY(take_times(plan, cost, NULL, scratch, &times));
    if (plan->parallel.schedule == SBP_MESSAGE_DRIVEN)
        return sbp_path_driven(&times, count, plan->parallel.pipeline_limit, scratch, path);
    struct sbp_timeline_request request = sbp_plan_timeline(plan, count, cost);
    request.record = request.is_brief = true;
    SBP_TRY(sbp_timeline_simulate(&request, scratch, &timeline, diag));
    return trace_path(&request, &timeline, scratch, path);
}

enum sbp_status sbp_path_expected(const struct sbp_plan *plan, struct sbp_arena *arena,
                                  struct sbp_path *path, struct sbp_diag *diag)
{
    struct sbp_arena scratch;
    SBP_TRY(sbp_path_longest(plan, arena, path));
    if (!knows_paths(plan))
        return SBP_OK;
    sbp_arena_init(&scratch);
    const enum sbp_status status = expect_path(plan, &scratch, path, diag);
    sbp_arena_free(&scratch);
    return status;
}

enum sbp_status sbp_path_of_step(const struct sbp_plan *plan, const struct sbp_strategy *strategy,
                                 struct sbp_arena *arena, struct sbp_path *path,
                                 struct sbp_path *times, struct sbp_diag *diag)
{
    const struct sbp_element_bytes bytes = sbp_program_element_bytes(&plan->graph.precision);
    const struct sbp_step_request request = {.graph = &plan->graph,
                                             .cluster = &plan->cluster,
                                             .parallel = &plan->parallel,
                                             .strategy = strategy,
                                             .bytes = &bytes,
                                             .record = true,
                                             .is_brief = true};
    struct sbp_step step;
    SBP_TRY(sbp_path_longest(plan, arena, path));
    SBP_TRY(sbp_step_make(&request, &step, diag));
    const struct sbp_timeline_request played =
        sbp_plan_timeline(plan, step.micro_batches, step.cost);
    enum sbp_status status = take_times(plan, step.cost, step.end, arena, times);
    if (status == SBP_OK && plan->parallel.schedule == SBP_MESSAGE_DRIVEN &&
        plan->parallel.pipeline > 1)
        status = sbp_path_driven(times, step.micro_batches, plan->parallel.pipeline_limit,
                                 &step.arena, path);
    else if (status == SBP_OK && knows_paths(plan))
        status = trace_path(&played, &step.timeline, &step.arena, path);
    sbp_step_free(&step);
    return status;
}
