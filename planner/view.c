#include "planner/view.h"

#include <string.h>

#include "costmodel/price.h"
#include "costmodel/timeline_path.h"

/* ---- paths ---------------------------------------------------------------------------------- */

static enum sbp_status begin_path(const struct sbp_plan *plan, struct sbp_arena *arena,
                                  struct sbp_path *path)
{
    const int pieces = (int)(plan->parallel.pipeline * plan->parallel.chunks);
    *path = (struct sbp_path){.pieces = pieces,
                              .forward = SBP_NEW(arena, double, pieces),
                              .backward = SBP_NEW(arena, double, pieces),
                              .weight = SBP_NEW(arena, double, pieces),
                              .sent = SBP_NEW(arena, double, pieces),
                              .returned = SBP_NEW(arena, double, pieces)};
    return path->forward == NULL || path->backward == NULL || path->weight == NULL ||
                   path->sent == NULL || path->returned == NULL
               ? SBP_E_MEMORY
               : SBP_OK;
}

/* On the way to the last stage and back it passes the first chunks of the stages before it. */
enum sbp_status sbp_path_longest(const struct sbp_plan *plan, struct sbp_arena *arena,
                                 struct sbp_path *path)
{
    const struct sbp_parallel *parallel = &plan->parallel;
    const int stages = (int)parallel->pipeline;
    const bool late = parallel->schedule == SBP_ZERO_BUBBLE;
    SBP_TRY(begin_path(plan, arena, path));
    path->end = late ? stages - 1 : 0;
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

bool sbp_path_equal(const struct sbp_path *a, const struct sbp_path *b)
{
    const size_t bytes = (size_t)a->pieces * sizeof *a->forward;
    return a->pieces == b->pieces && a->end == b->end &&
           memcmp(a->forward, b->forward, bytes) == 0 &&
           memcmp(a->backward, b->backward, bytes) == 0 && memcmp(a->weight, b->weight, bytes) == 0;
}

/* A message of the activation that crosses before an operator: no device has less than its share.
 */
static double least_message_s(const struct sbp_plan *plan, int op)
{
    const struct sbp_element_bytes bytes = sbp_element_bytes_of(&plan->graph.precision);
    const int tensor = sbp_graph_crossing(&plan->graph, op);
    struct sbp_group group = sbp_group_one();
    if (tensor < 0 || plan->stage_level < 0)
        return 0;
    group.members[plan->stage_level] = 2;
    double elements = 1;
    for (int dim = 0; dim < SBP_MAX_DIMS; dim++)
        elements *= (double)plan->graph.tensor[tensor].shape.size[dim];
    return sbp_collective_group_s(&plan->cluster, SBP_SEND_RECV, &group,
                                  elements / (double)plan->mesh.devices * (double)bytes.activation);
}

/* Takes over what a timeline's path counts. */
static void take_path(const struct sbp_plan *plan, const struct sbp_timeline_path *from,
                      struct sbp_path *path)
{
    const bool late = plan->parallel.schedule == SBP_ZERO_BUBBLE;
    path->end = from->end;
    for (int v = 0; v < path->pieces; v++) {
        path->forward[v] = (double)from->forward[v];
        path->backward[v] = (double)from->backward[v];
        path->weight[v] = (double)(late ? from->weight[v] : from->backward[v]);
        path->sent[v] = (double)from->send_forward[v];
        path->returned[v] = (double)from->send_backward[v];
    }
}

/* The critical path of a timeline, which need not be known; then the path is left as it is. */
static enum sbp_status trace_path(const struct sbp_plan *plan,
                                  const struct sbp_timeline_request *request,
                                  const struct sbp_timeline *timeline, struct sbp_arena *arena,
                                  struct sbp_path *path)
{
    struct sbp_timeline_path traced;
    const enum sbp_status status = sbp_timeline_critical(request, timeline, -1, arena, &traced);
    if (status == SBP_OK)
        take_path(plan, &traced, path);
    return status == SBP_E_UNSUPPORTED ? SBP_OK : status;
}

static struct sbp_timeline_request timeline_of(const struct sbp_plan *plan, int64_t micro_batches,
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
    const struct sbp_element_bytes bytes = sbp_element_bytes_of(&graph->precision);
    const struct sbp_pricing pricing = sbp_pricing_make(graph, &plan->stage, &bytes);
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

enum sbp_status sbp_path_expected(const struct sbp_plan *plan, struct sbp_arena *arena,
                                  struct sbp_path *path, struct sbp_diag *diag)
{
    const struct sbp_parallel *parallel = &plan->parallel;
    struct sbp_arena scratch;
    struct sbp_stage_cost *cost;
    struct sbp_timeline timeline;
    SBP_TRY(sbp_path_longest(plan, arena, path));
    if (parallel->pipeline == 1 || !sbp_schedule_is_fixed(parallel->schedule))
        return SBP_OK;
    int *first = SBP_NEW(arena, int, path->pieces + 1);
    if (first == NULL)
        return SBP_E_MEMORY;
    SBP_TRY(sbp_stages_cut(&plan->graph, path->pieces, parallel->stage_cut, first, diag));
    sbp_arena_init(&scratch);
    enum sbp_status status = expect_costs(plan, first, &scratch, &cost);
    if (status == SBP_OK) {
        struct sbp_timeline_request request =
            timeline_of(plan, sbp_parallel_micro_batches(parallel, &plan->graph), cost);
        request.record = true;
        status = sbp_timeline_simulate(&request, &scratch, &timeline, diag);
        if (status == SBP_OK)
            status = trace_path(plan, &request, &timeline, arena, path);
    }
    sbp_arena_free(&scratch);
    return status;
}

enum sbp_status sbp_path_of_step(const struct sbp_plan *plan, const struct sbp_strategy *strategy,
                                 struct sbp_arena *arena, struct sbp_path *path,
                                 struct sbp_diag *diag)
{
    const struct sbp_element_bytes bytes = sbp_element_bytes_of(&plan->graph.precision);
    const struct sbp_step_request request = {.graph = &plan->graph,
                                             .cluster = &plan->cluster,
                                             .parallel = &plan->parallel,
                                             .strategy = strategy,
                                             .bytes = &bytes,
                                             .record = true};
    struct sbp_step step;
    SBP_TRY(sbp_path_longest(plan, arena, path));
    if (plan->parallel.pipeline == 1 || !sbp_schedule_is_fixed(plan->parallel.schedule))
        return SBP_OK;
    SBP_TRY(sbp_step_make(&request, &step, diag));
    const struct sbp_timeline_request played = timeline_of(plan, step.micro_batches, step.cost);
    const enum sbp_status status = trace_path(plan, &played, &step.timeline, arena, path);
    sbp_step_free(&step);
    return status;
}

/* ---- the objective -------------------------------------------------------------------------- */

static double messages_s(const struct sbp_plan *plan, const struct sbp_path *path, const int *first)
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

static void weigh_piece(const struct sbp_plan *plan, const struct sbp_path *path, int piece,
                        struct sbp_view *view)
{
    for (int op = view->first[piece]; op < view->first[piece + 1]; op++) {
        view->forward[op] = path->forward[piece];
        view->backward[op] = path->backward[piece];
        view->weight[op] = path->weight[piece];
        view->end[op] = piece % (int)plan->parallel.pipeline == path->end ? 1 : 0;
    }
}

/* ---- memory --------------------------------------------------------------------------------- */

/* As many micro-batches as fill the pipeline keep as many in flight as all. */
static int enough_micro_batches(const struct sbp_plan *plan)
{
    const struct sbp_parallel *parallel = &plan->parallel;
    const int64_t micro_batches = sbp_parallel_micro_batches(parallel, &plan->graph);
    const int64_t enough = parallel->schedule == SBP_INTERLEAVED
                               ? 3 * parallel->pipeline
                               : parallel->pipeline + parallel->pipeline_limit + 1;
    return (int)(micro_batches < enough ? micro_batches : enough);
}

/* The schedule, where all works take as long. */
static enum sbp_status play(const struct sbp_plan *plan, struct sbp_arena *arena,
                            struct sbp_timeline *timeline, struct sbp_diag *diag)
{
    const struct sbp_parallel *parallel = &plan->parallel;
    const int stages = (int)parallel->pipeline, chunks = (int)parallel->chunks;
    struct sbp_stage_cost *cost =
        SBP_NEW(arena, struct sbp_stage_cost, (size_t)stages * (size_t)chunks);
    if (cost == NULL)
        return SBP_E_MEMORY;
    for (int i = 0; i < stages * chunks; i++)
        cost[i] = (struct sbp_stage_cost){
            .forward_s = 1, .backward_input_s = 1, .backward_weight_s = 1, .kept_bytes = 1};
    struct sbp_timeline_request request = timeline_of(plan, enough_micro_batches(plan), cost);
    request.record = chunks > 1;
    return sbp_timeline_simulate(&request, arena, timeline, diag);
}

/* Chunks take turns: how many micro-batches of each a stage keeps when it keeps most of all. */
static void count_chunks(const struct sbp_timeline *timeline, int stage, int stages, int chunks,
                         int *now, double *kept)
{
    int held = 0, most = 0;
    for (int chunk = 0; chunk < chunks; chunk++)
        now[chunk] = 0;
    for (int64_t i = 0; i < timeline->interval_count; i++) {
        const struct sbp_timeline_interval *interval = &timeline->interval[i];
        const bool comes = interval->kind == SBP_INTERVAL_FORWARD;
        if (interval->device != stage || (!comes && interval->kind != SBP_INTERVAL_BACKWARD))
            continue;
        now[interval->chunk] += comes ? 1 : -1;
        held += comes ? 1 : -1;
        for (int chunk = 0; chunk < chunks && held > most; chunk++)
            kept[chunk * stages + stage] = now[chunk];
        most = held > most ? held : most;
    }
}

/* kept: (pieces) micro-batches that each keeps. In a fixed order of works that does not depend on
 * what they take. What messages decide does: there the first stage has its limit in flight, and
 * every other one micro-batch at least. */
static enum sbp_status count_kept(const struct sbp_plan *plan, struct sbp_arena *arena,
                                  double *kept, struct sbp_diag *diag)
{
    const struct sbp_parallel *parallel = &plan->parallel;
    const int64_t micro_batches = sbp_parallel_micro_batches(parallel, &plan->graph);
    const int stages = (int)parallel->pipeline, chunks = (int)parallel->chunks;
    struct sbp_timeline timeline = {0};
    int *now = SBP_NEW(arena, int, chunks);
    if (now == NULL)
        return SBP_E_MEMORY;
    if (parallel->schedule != SBP_GPIPE && parallel->schedule != SBP_ONE_F_ONE_B)
        SBP_TRY(play(plan, arena, &timeline, diag));
    for (int stage = 0; stage < stages; stage++) {
        const int64_t behind = stages - stage;
        if (parallel->schedule == SBP_GPIPE)
            kept[stage] = (double)micro_batches;
        else if (parallel->schedule == SBP_ONE_F_ONE_B)
            kept[stage] = (double)(behind < micro_batches ? behind : micro_batches);
        else if (chunks > 1)
            count_chunks(&timeline, stage, stages, chunks, now, kept);
        else
            kept[stage] = parallel->schedule == SBP_MESSAGE_DRIVEN && stage > 0
                              ? 1
                              : timeline.device[stage].in_flight;
    }
    return SBP_OK;
}

/* (stages, sites): operators of a stage, and micro-batches of them that it keeps. */
struct stage_sums {
    int stages, ops;
    double *held, *kept;
};

/* Whether stage a holds and keeps no less of anything than stage b. */
static bool covers(const struct stage_sums *sums, int a, int b)
{
    const size_t ops = (size_t)sums->ops;
    for (size_t op = 0; op < ops; op++)
        if (sums->held[(size_t)a * ops + op] < sums->held[(size_t)b * ops + op] ||
            sums->kept[(size_t)a * ops + op] < sums->kept[(size_t)b * ops + op])
            return false;
    return true;
}

/* Points are the stages that no other one covers. */
static void find_points(const struct stage_sums *sums, struct sbp_view *view)
{
    for (int stage = 0; stage < sums->stages; stage++) {
        bool covered = false;
        for (int i = 0; i < view->points && !covered; i++)
            covered = covers(sums, view->stage[i], stage);
        for (int other = stage + 1; other < sums->stages && !covered; other++)
            covered = covers(sums, other, stage);
        if (!covered)
            view->stage[view->points++] = stage;
    }
}

static enum sbp_status set_memory(const struct sbp_plan *plan, struct sbp_arena *arena,
                                  struct sbp_view *view, struct sbp_diag *diag)
{
    const struct sbp_graph *graph = &plan->graph;
    const int stages = (int)plan->parallel.pipeline;
    const size_t cells = (size_t)stages * (size_t)graph->op_count;
    const struct stage_sums sums = {.stages = stages,
                                    .ops = graph->op_count,
                                    .held = SBP_NEW(arena, double, cells),
                                    .kept = SBP_NEW(arena, double, cells)};
    double *kept = SBP_NEW(arena, double, view->pieces);
    if (sums.held == NULL || sums.kept == NULL || kept == NULL)
        return SBP_E_MEMORY;
    SBP_TRY(count_kept(plan, arena, kept, diag));
    for (int piece = 0; piece < view->pieces; piece++)
        for (int op = view->first[piece]; op < view->first[piece + 1]; op++) {
            const size_t at =
                (size_t)(piece % stages) * (size_t)graph->op_count + (size_t)graph->op[op].site;
            view->kept[op] = kept[piece];
            sums.held[at] += 1;
            sums.kept[at] += kept[piece];
        }
    find_points(&sums, view);
    for (int piece = 0; piece < view->pieces; piece++)
        for (int op = view->first[piece]; op < view->first[piece + 1]; op++) {
            view->point[op] = -1;
            for (int i = 0; i < view->points; i++)
                if (view->stage[i] == piece % stages)
                    view->point[op] = i;
        }
    return SBP_OK;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static enum sbp_status begin(const struct sbp_plan *plan, struct sbp_arena *arena,
                             struct sbp_view *view, struct sbp_diag *diag)
{
    const struct sbp_parallel *parallel = &plan->parallel;
    const size_t ops = (size_t)plan->graph.op_count, stages = (size_t)parallel->pipeline;
    const size_t pieces = stages * (size_t)parallel->chunks;
    *view = (struct sbp_view){.forward = SBP_NEW(arena, double, ops),
                              .backward = SBP_NEW(arena, double, ops),
                              .weight = SBP_NEW(arena, double, ops),
                              .end = SBP_NEW(arena, double, ops),
                              .pieces = (int)pieces,
                              .first = SBP_NEW(arena, int, pieces + 1),
                              .stage = SBP_NEW(arena, int, stages),
                              .point = SBP_NEW(arena, int, ops),
                              .kept = SBP_NEW(arena, double, ops)};
    if (view->forward == NULL || view->backward == NULL || view->weight == NULL ||
        view->end == NULL || view->first == NULL || view->stage == NULL || view->point == NULL ||
        view->kept == NULL)
        return SBP_E_MEMORY;
    SBP_TRY(sbp_stages_cut(&plan->graph, view->pieces, parallel->stage_cut, view->first, diag));
    return set_memory(plan, arena, view, diag);
}

enum sbp_status sbp_view_make(const struct sbp_plan *plan, const struct sbp_path *path,
                              struct sbp_arena *arena, struct sbp_view *view, struct sbp_diag *diag)
{
    SBP_TRY(begin(plan, arena, view, diag));
    view->message_s = messages_s(plan, path, view->first);
    for (int piece = 0; piece < view->pieces; piece++)
        weigh_piece(plan, path, piece, view);
    return SBP_OK;
}

enum sbp_status sbp_view_mean(const struct sbp_plan *plan, struct sbp_arena *arena,
                              struct sbp_view *view, struct sbp_diag *diag)
{
    const double stages = (double)plan->parallel.pipeline;
    const double each = (double)sbp_parallel_micro_batches(&plan->parallel, &plan->graph) / stages;
    struct sbp_path path;
    SBP_TRY(begin(plan, arena, view, diag));
    SBP_TRY(begin_path(plan, arena, &path));
    for (int op = 0; op < plan->graph.op_count; op++) {
        view->forward[op] = view->backward[op] = view->weight[op] = each;
        view->end[op] = 1 / stages;
    }
    for (int piece = 0; piece < path.pieces; piece++) {
        path.sent[piece] = piece + 1 < path.pieces ? each : 0;
        path.returned[piece] = piece > 0 ? each : 0;
    }
    view->message_s = messages_s(plan, &path, view->first);
    return SBP_OK;
}
