#include "planner/paths/path_critical.h"

#include <math.h>

#include "costmodel/program/price.h"
#include "costmodel/timeline/timeline_path.h"
#include "planner/paths/path_message_driven.h"

/* Costs of a micro-batch on each piece, (stages, chunks), as the flops of its operators suggest. */
static enum sbp_status expect_costs(const struct sbp_cut *cut, const int *first,
                                    struct sbp_arena *arena, struct sbp_stage_cost **cost)
{
    const struct sbp_graph *graph = &cut->graph;
    const int stages = (int)cut->parallel.pipeline, chunks = (int)cut->parallel.chunks;
    const struct sbp_element_bytes bytes = sbp_program_element_bytes(&graph->precision);
    const struct sbp_pricing pricing = sbp_price_setup(graph, &cut->stage, &bytes);
    *cost = SBP_NEW(arena, struct sbp_stage_cost, (size_t)stages * (size_t)chunks);
    if (*cost == NULL)
        return SBP_E_MEMORY;
    for (int piece = 0; piece < stages * chunks; piece++) {
        struct sbp_stage_cost *to = &(*cost)[piece % stages * chunks + piece / stages];
        double forward = 0, backward = 0;
        for (int op = first[piece]; op < first[piece + 1]; op++) {
            forward += sbp_op_forward_flops(graph, op) / (double)cut->mesh.devices;
            backward += sbp_op_backward_flops(graph, op) / (double)cut->mesh.devices;
        }
        to->forward_s = sbp_cluster_kernel_s(&cut->stage, pricing.type, forward, 0);
        to->backward_input_s = sbp_cluster_kernel_s(&cut->stage, pricing.type, backward / 2, 0);
        to->backward_weight_s = to->backward_input_s;
        to->recompute_s = cut->parallel.recompute == SBP_RECOMPUTE_FULL ? to->forward_s : 0;
        to->send_forward_s =
            piece + 1 < stages * chunks ? sbp_path_least_message_s(cut, first[piece + 1]) : 0;
        to->send_backward_s = piece > 0 ? sbp_path_least_message_s(cut, first[piece]) : 0;
    }
    return SBP_OK;
}

/* Seconds of a stage's end of the step that no overlap hides. */
static double end_s(const struct sbp_stage_end *end)
{
    const struct sbp_offload *offload = &end->offload;
    return (1 - end->sync_overlap) * end->sync_s +
           (offload->buckets > 0
                ? offload->buckets * (offload->in_s + offload->step_s + offload->out_s)
                : end->optimizer_s);
}

/* Copies costs (stages, chunks) and ends (stages; may be NULL) into the shape of a path. */
static enum sbp_status take_times(const struct sbp_cut *cut, const struct sbp_stage_cost *costs,
                                  const struct sbp_stage_end *ends, struct sbp_arena *arena,
                                  struct sbp_path *times)
{
    const int chunks = (int)cut->parallel.chunks;
    SBP_TRY(sbp_path_init(cut, arena, times));
    for (int piece = 0; piece < times->pieces; piece++) {
        const struct sbp_stage_cost *cost =
            &costs[piece % times->stages * chunks + piece / times->stages];
        times->forward[piece] = cost->forward_s;
        times->backward[piece] = cost->recompute_s + cost->backward_input_s;
        times->weight[piece] = cost->backward_weight_s;
        times->sent[piece] = cost->send_forward_s;
        times->returned[piece] = cost->send_backward_s;
    }
    for (int stage = 0; ends != NULL && stage < times->stages; stage++) {
        const int last = sbp_parallel_replicates(&cut->parallel) ? chunks - 1 : stage;
        for (int i = stage; i <= last; i++) /* of replicas: by chunk */
            times->end[stage] += end_s(&ends[i]);
        times->sync[stage] = ends[stage].sync_overlap * ends[stage].sync_s;
    }
    return SBP_OK;
}

/* What the sum of gradients of a stage outlasts the stage's last pass by, behind which it hides
 * (struct sbp_stage_end); not above 0: by nothing. */
static double outlasting_s(const struct sbp_cut *cut, const struct sbp_path *times, int stage)
{
    const bool late = sbp_timeline_weights_wait(cut->parallel.schedule);
    return times->sync[stage] - times->weight[stage] - (late ? 0 : times->backward[stage]);
}

/* Where the sum of gradients outlasts the last pass on the stage of the path's end, which is the
 * path's last one, the path goes through the sum instead of the pass. */
static void follow_sync(const struct sbp_cut *cut, const struct sbp_path *times,
                        struct sbp_path *path)
{
    for (int stage = 0; stage < path->stages; stage++) {
        if (path->end[stage] < 1 || path->weight[stage] < 1 || outlasting_s(cut, times, stage) <= 0)
            continue;
        path->sync[stage] = 1;
        path->weight[stage] -= 1;
        path->backward[stage] -= sbp_timeline_weights_wait(cut->parallel.schedule) ? 0 : 1;
    }
}

/* Counts the timeline's critical path; where its order is not known, path keeps what it holds. */
static enum sbp_status trace_path(const struct sbp_cut *cut,
                                  const struct sbp_timeline_request *request,
                                  const struct sbp_timeline *timeline, struct sbp_arena *scratch,
                                  struct sbp_path *path)
{
    const bool late = sbp_timeline_weights_wait(request->schedule);
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
    for (int stage = 0; stage < path->stages; stage++) {
        path->end[stage] = stage == traced.end ? 1 : 0;
        path->sync[stage] = stage == traced.end && traced.sums ? 1 : 0;
    }
    sbp_path_block(cut, path);
    return SBP_OK;
}

/* The path of Myelin's schedule, which messages drive. */
static enum sbp_status drive_path(const struct sbp_cut *cut, const struct sbp_path *times,
                                  int64_t micro_batches, struct sbp_arena *scratch,
                                  struct sbp_path *path)
{
    struct sbp_path until; /* the end of a stage's sum counts, even where it outlasts all passes */
    SBP_TRY(sbp_path_init(cut, scratch, &until));
    sbp_path_mix(times, &(const double){1}, 1, &until);
    for (int stage = 0; stage < until.stages; stage++)
        until.end[stage] += fmax(0, outlasting_s(cut, times, stage));
    SBP_TRY(sbp_path_driven(&until, micro_batches, cut->parallel.pipeline_limit, scratch, path));
    follow_sync(cut, times, path);
    sbp_path_block(cut, path);
    return SBP_OK;
}

static bool has_known_paths(const struct sbp_cut *cut)
{
    const struct sbp_parallel *parallel = &cut->parallel;
    return parallel->pipeline > 1 &&
           (sbp_timeline_is_fixed(parallel->schedule) || parallel->schedule == SBP_MESSAGE_DRIVEN);
}

/* Simulates the schedule with the expected costs and traces its critical path. */
static enum sbp_status expect_path(const struct sbp_cut *cut, struct sbp_arena *scratch,
                                   struct sbp_path *path, struct sbp_diag *diag)
{
    const int64_t count = sbp_parallel_micro_batches(&cut->parallel, &cut->graph);
    int *first = SBP_NEW(scratch, int, path->pieces + 1);
    struct sbp_stage_cost *cost;
    struct sbp_timeline timeline;
    struct sbp_path times;
    if (first == NULL)
        return SBP_E_MEMORY;
    SBP_TRY(sbp_stages_cut_as(&cut->graph, path->pieces, &cut->parallel, first, diag));
    SBP_TRY(expect_costs(cut, first, scratch, &cost));
    SBP_TRY(take_times(cut, cost, NULL, scratch, &times));
    if (cut->parallel.schedule == SBP_MESSAGE_DRIVEN)
        return drive_path(cut, &times, count, scratch, path);
    struct sbp_timeline_request request = sbp_path_timeline(cut, count, cost);
    request.record = request.is_brief = true;
    SBP_TRY(sbp_timeline_simulate(&request, scratch, &timeline, diag));
    return trace_path(cut, &request, &timeline, scratch, path);
}

enum sbp_status sbp_path_expected(const struct sbp_cut *cut, struct sbp_arena *arena,
                                  struct sbp_path *path, struct sbp_diag *diag)
{
    struct sbp_arena scratch;
    SBP_TRY(sbp_path_longest(cut, arena, path));
    if (!has_known_paths(cut))
        return SBP_OK;
    sbp_arena_init(&scratch);
    const enum sbp_status status = expect_path(cut, &scratch, path, diag);
    sbp_arena_free(&scratch);
    return status;
}

/* A pass on a path, and its times: by device, links and host. */
struct floors {
    double *device, *links, *host;
};

static struct floors floors_of(const struct sbp_path *path, int pass, int piece)
{
    double *const device[] = {path->forward, path->backward, path->weight};
    double *const links[] = {path->forward_links, path->backward_links, path->weight_links};
    double *const host[] = {path->forward_host, path->backward_host, path->weight_host};
    return (struct floors){device[pass] + piece, links[pass] + piece, host[pass] + piece};
}

/* Lets the path count a pass by what it takes longest for. */
static void take_longest(const struct floors *path, const struct floors *times)
{
    const double count = *path->device;
    const double longest = fmax(*times->device, fmax(*times->links, *times->host));
    double *const by = *times->device >= longest  ? path->device
                       : *times->links >= longest ? path->links
                                                  : path->host;
    *path->device = *path->links = *path->host = 0;
    *by = count;
}

/* Parts the time of a pass of two sections at most, which is that of the longest floor of each,
 * into all floors. A message that blocks the sender adds to each. */
static void part_time(const struct sbp_runtime *runtime, const struct sbp_pass_time *first,
                      const struct sbp_pass_time *second, const struct floors *times)
{
    const double blocked =
        *times->device - sbp_runtime_pass_s(runtime, first) - sbp_runtime_pass_s(runtime, second);
    *times->device = blocked + first->device_s + second->device_s;
    *times->links = blocked + first->communication_s + second->communication_s;
    *times->host = blocked + (first->launches + second->launches) * runtime->host_s;
}

/* Sets the times of all floors of a piece's passes, and lets the path follow the longest ones. */
static void take_floors(const struct sbp_cut *cut, const struct sbp_step *step, int piece,
                        struct sbp_path *path, struct sbp_path *times)
{
    const struct sbp_runtime *runtime = &cut->cluster->runtime;
    const struct sbp_pass_time nothing = {0};
    struct sbp_pass_time pass[SBP_SECTIONS];
    const struct sbp_pass_time *const section[][2] = {
        {&pass[SBP_SECTION_FORWARD], &nothing},
        {&pass[SBP_SECTION_RECOMPUTE], &pass[SBP_SECTION_BACKWARD]},
        {&pass[SBP_SECTION_BACKWARD_WEIGHT], &nothing}};
    sbp_step_pass_times(step, runtime, piece, pass);
    for (int i = 0; i < 3; i++) {
        const struct floors by = floors_of(path, i, piece), of = floors_of(times, i, piece);
        part_time(runtime, section[i][0], section[i][1], &of);
        take_longest(&by, &of);
    }
}

enum sbp_status sbp_path_of_step(const struct sbp_cut *cut, const struct sbp_strategy *strategy,
                                 struct sbp_arena *arena, struct sbp_path *path,
                                 struct sbp_path *times, struct sbp_diag *diag)
{
    const struct sbp_element_bytes bytes = sbp_program_element_bytes(&cut->graph.precision);
    struct sbp_step_request request = sbp_cut_request(cut, strategy, &bytes);
    request.record = request.is_brief = true;
    struct sbp_step step;
    SBP_TRY(sbp_path_longest(cut, arena, path));
    SBP_TRY(sbp_step_make(&request, &step, diag));
    struct sbp_timeline_request simulated = sbp_path_timeline(cut, step.micro_batches, step.cost);
    simulated.end = step.end;
    enum sbp_status status = take_times(cut, step.cost, step.end, arena, times);
    if (status == SBP_OK && cut->parallel.schedule == SBP_MESSAGE_DRIVEN &&
        cut->parallel.pipeline > 1)
        status = drive_path(cut, times, step.micro_batches, &step.arena, path);
    else if (status == SBP_OK && has_known_paths(cut))
        status = trace_path(cut, &simulated, &step.timeline, &step.arena, path);
    else if (status == SBP_OK && path->stages == 1)
        follow_sync(cut, times, path);
    for (int piece = 0; status == SBP_OK && piece < path->pieces; piece++)
        take_floors(cut, &step, piece, path, times);
    sbp_step_free(&step);
    return status;
}
