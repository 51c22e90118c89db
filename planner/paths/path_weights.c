#include "planner/paths/path_weights.h"

#include <string.h>

#include "costmodel/program/price.h"
#include "costmodel/program/stages.h"
#include "costmodel/timeline/works.h"
#include "planner/limits.h"

/* ---- the objective -------------------------------------------------------------------------- */

static void count_messages(const struct sbp_cut *cut, const struct sbp_path *path,
                           struct sbp_path_weights *weights)
{
    weights->message_s = sbp_path_messages_s(cut, path, weights->first);
    for (int piece = 1; piece < path->pieces; piece++)
        weights->crossed[piece] = path->sent[piece - 1] + path->returned[piece];
}

static void weigh_piece(const struct sbp_path *path, int piece, struct sbp_path_weights *weights)
{
    for (int op = weights->first[piece]; op < weights->first[piece + 1]; op++) {
        weights->forward[op] = path->forward[piece];
        weights->backward[op] = path->backward[piece];
        weights->weight[op] = path->weight[piece];
        weights->forward_links[op] = path->forward_links[piece];
        weights->backward_links[op] = path->backward_links[piece];
        weights->weight_links[op] = path->weight_links[piece];
        weights->end[op] = path->end[piece % path->stages];
        weights->sync[op] = path->sync[piece % path->stages];
    }
}

static bool is_work(const struct sbp_pricing *pricing, int op, enum sbp_pass pass)
{
    const struct sbp_factor whole = sbp_op_factor_one();
    return sbp_price_pass_s(pricing, op, &whole, pass) > 0;
}

/* Passes of a piece, or what an operator launches in each; without recomputation. */
struct passes {
    double forward, backward, weight;
};

static struct passes launches_of(const struct sbp_pricing *pricing, int op)
{
    const struct sbp_graph *graph = pricing->graph;
    const bool phases = sbp_op_has_weight_phase(graph, op);
    const bool has_weights = is_work(pricing, op, SBP_PASS_WEIGHT_GRADIENT);
    const bool forms =
        sbp_op_forms_input_gradient(graph, op) && is_work(pricing, op, SBP_PASS_INPUT_GRADIENT);
    return (struct passes){.forward = is_work(pricing, op, SBP_PASS_FORWARD),
                           .backward = forms || (!phases && has_weights),
                           .weight = phases && has_weights};
}

static double times(const struct passes *launches, const struct passes *passes)
{
    return launches->forward * passes->forward + launches->backward * passes->backward +
           launches->weight * passes->weight;
}

/* Repeats of an operator launch alike, but the first may form no gradient of its input. A step
 * without a flush takes less than the longest path through it, so that hosts bound nothing there.
 */
static enum sbp_status count_launches(const struct sbp_cut *cut, const struct sbp_path *path,
                                      struct sbp_arena *arena, struct sbp_path_weights *weights)
{
    const bool flushes = !sbp_timeline_delays_gradients(cut->parallel.schedule);
    const double host_s = flushes ? cut->cluster->runtime.host_s : 0;
    const struct sbp_graph *graph = &cut->graph;
    const struct sbp_element_bytes bytes = sbp_program_element_bytes(&graph->precision);
    const struct sbp_pricing pricing = sbp_price_setup(graph, &cut->stage, &bytes);
    struct passes *const launches = SBP_NEW(arena, struct passes, graph->op_count);
    if (launches == NULL)
        return SBP_E_MEMORY;
    for (int v = 0; v < path->pieces && host_s > 0; v++) {
        const struct passes hosts = {path->forward_host[v], path->backward_host[v],
                                     path->weight_host[v]};
        const struct passes all = {hosts.forward + path->forward[v] + path->forward_links[v],
                                   hosts.backward + path->backward[v] + path->backward_links[v],
                                   hosts.weight + path->weight[v] + path->weight_links[v]};
        for (int op = weights->first[v]; op < weights->first[v + 1]; op++) {
            const int site = graph->op[op].site;
            launches[op] = site < op && sbp_op_works_alike(graph, op, site)
                               ? launches[site]
                               : launches_of(&pricing, op);
            weights->launch_s += host_s * times(&launches[op], &hosts);
            weights->host_s += host_s * times(&launches[op], &all);
        }
    }
    return SBP_OK;
}

/* ---- memory --------------------------------------------------------------------------------- */

/* Micro-batches to simulate. A full pipeline keeps as many in flight as any longer one: one group
 * more goes through all states of the schedule (costmodel/program/step.c), none of which keeps
 * more. */
static int enough_micro_batches(const struct sbp_cut *cut)
{
    const struct sbp_parallel *parallel = &cut->parallel;
    const int64_t micro_batches = sbp_parallel_micro_batches(parallel, &cut->graph);
    const int64_t pieces = parallel->pipeline * parallel->chunks;
    const int64_t enough = parallel->schedule == SBP_INTERLEAVED
                               ? 2 * parallel->pipeline
                               : pieces + parallel->pipeline_limit + 1;
    return (int)(micro_batches < enough ? micro_batches : enough);
}

/* Simulates the schedule with passes that all take one second. */
static enum sbp_status simulate(const struct sbp_cut *cut, struct sbp_arena *arena,
                                struct sbp_timeline *timeline, struct sbp_diag *diag)
{
    const struct sbp_parallel *parallel = &cut->parallel;
    const int stages = (int)sbp_parallel_parts(parallel), chunks = (int)parallel->chunks;
    struct sbp_stage_cost *cost =
        SBP_NEW(arena, struct sbp_stage_cost, (size_t)stages * (size_t)chunks);
    if (cost == NULL)
        return SBP_E_MEMORY;
    for (int i = 0; i < stages * chunks; i++)
        cost[i] = (struct sbp_stage_cost){
            .forward_s = 1, .backward_input_s = 1, .backward_weight_s = 1, .kept_bytes = 1};
    struct sbp_timeline_request request = sbp_path_timeline(cut, enough_micro_batches(cut), cost);
    request.record = chunks > 1;
    request.is_brief = true;
    return sbp_timeline_simulate(&request, arena, timeline, diag);
}

/* Counts the forward passes of each chunk before the stage's first backward pass. Chunks take
 * turns, so that the stage keeps most then. */
static void count_chunks(const struct sbp_timeline *timeline, int stage, int stages, double *kept)
{
    for (int64_t i = 0; i < timeline->interval_count; i++) {
        const struct sbp_timeline_interval *interval = &timeline->interval[i];
        if (interval->device != stage)
            continue;
        if (interval->kind == SBP_INTERVAL_BACKWARD)
            return;
        kept[interval->chunk * stages + stage] += interval->kind == SBP_INTERVAL_FORWARD;
    }
}

/* kept, parked: (pieces), zeroed: micro-batches that each piece keeps, of zero-bubble those that
 * have not gone back: they are the bytes of a timeline where each keeps one; and those beside them
 * whose weight gradients wait. A schedule of fixed order keeps them whatever the passes take. Under
 * `message-driven` a stage has room for all that the first one has in flight, and the last stage
 * for one. */
static enum sbp_status count_kept(const struct sbp_cut *cut, struct sbp_arena *arena,
                                  struct sbp_timeline *timeline, double *kept, double *parked,
                                  struct sbp_diag *diag)
{
    const struct sbp_parallel *parallel = &cut->parallel;
    const int64_t micro_batches = sbp_parallel_micro_batches(parallel, &cut->graph);
    const int stages = (int)sbp_parallel_parts(parallel), chunks = (int)parallel->chunks;
    for (int piece = 0; piece < stages * chunks && sbp_parallel_hands_on(parallel); piece++)
        kept[piece] = 1;
    if (sbp_parallel_hands_on(parallel))
        return SBP_OK;
    if (parallel->schedule != SBP_GPIPE && parallel->schedule != SBP_ONE_F_ONE_B)
        SBP_TRY(simulate(cut, arena, timeline, diag));
    for (int stage = 0; stage < stages; stage++) {
        const int64_t behind = stages - stage;
        const bool is_driven = sbp_timeline_is_driven(parallel->schedule, stages, stage);
        if (parallel->schedule == SBP_GPIPE)
            kept[stage] = (double)micro_batches;
        else if (parallel->schedule == SBP_ONE_F_ONE_B)
            kept[stage] = (double)(behind < micro_batches ? behind : micro_batches);
        else if (chunks > 1)
            count_chunks(timeline, stage, stages, kept);
        else
            kept[stage] = (double)timeline->device[is_driven ? 0 : stage].peak_bytes;
        if (sbp_timeline_weights_wait(parallel->schedule))
            parked[stage] = (double)timeline->device[stage].in_flight - kept[stage];
    }
    return SBP_OK;
}

/* Whether a listed moment of the piece, from `first` on, keeps no less of any chunk. */
static bool is_known(const struct sbp_path_weights *weights, int first, int piece, int chunks,
                     const double *kept)
{
    for (int i = first; i < weights->moment_count; i++) {
        bool covers = weights->moment[i].piece == piece;
        for (int chunk = 0; chunk < chunks && covers; chunk++)
            covers = weights->moment[i].kept[chunk] >= kept[chunk];
        if (covers)
            return true;
    }
    return false;
}

static enum sbp_status add_moment(struct sbp_arena *arena, struct sbp_path_weights *weights,
                                  int first, int piece, int chunks, const double *kept)
{
    if (is_known(weights, first, piece, chunks, kept))
        return SBP_OK;
    struct sbp_moment *const moment = &weights->moment[weights->moment_count];
    *moment = (struct sbp_moment){piece, SBP_NEW(arena, double, chunks)};
    if (moment->kept == NULL)
        return SBP_E_MEMORY;
    memcpy(moment->kept, kept, (size_t)chunks * sizeof *kept);
    weights->moment_count++;
    return SBP_OK;
}

/* Lists the moments of a stage in the order of its passes, which is fixed. More micro-batches than
 * were simulated would not put fewer forward passes before any backward pass, so that the stage
 * keeps no less. */
static enum sbp_status find_moments(const struct sbp_timeline *timeline, int stage, int stages,
                                    int chunks, struct sbp_arena *arena,
                                    struct sbp_path_weights *weights)
{
    const int first = weights->moment_count;
    double *const kept = SBP_NEW(arena, double, chunks);
    if (kept == NULL)
        return SBP_E_MEMORY;
    for (int64_t i = 0; i < timeline->interval_count; i++) {
        const struct sbp_timeline_interval *interval = &timeline->interval[i];
        const bool forward = interval->kind == SBP_INTERVAL_FORWARD;
        if (interval->device != stage || (!forward && interval->kind != SBP_INTERVAL_BACKWARD))
            continue;
        kept[interval->chunk] += forward;
        SBP_TRY(add_moment(arena, weights, first, interval->chunk * stages + stage, chunks, kept));
        kept[interval->chunk] -= !forward;
    }
    return SBP_OK;
}

/* (stages, sites): how many versions of a site's operators a stage holds, and micro-batches of them
 * it keeps, and parks. */
struct stage_sums {
    int stages, ops;
    double *held, *kept, *parked;
};

/* Whether the mean of stages a and c, a having the given share, has no less of anything than b. */
static bool has_no_less(const double *sum, size_t ops, int a, int c, double share, int b)
{
    for (size_t op = 0; op < ops; op++) {
        const double mean =
            share * sum[(size_t)a * ops + op] + (1 - share) * sum[(size_t)c * ops + op];
        if (mean < sum[(size_t)b * ops + op] * (1 - SBP_PROBLEM_ROUND_OFF))
            return false;
    }
    return true;
}

/* Whether a mean of stages a and c holds, keeps and parks no less of anything than stage b: one of
 * the two then has no less bytes. */
static bool mean_covers(const struct stage_sums *sums, int a, int c, double share, int b)
{
    const size_t ops = (size_t)sums->ops;
    return has_no_less(sums->held, ops, a, c, share, b) &&
           has_no_less(sums->kept, ops, a, c, share, b) &&
           has_no_less(sums->parked, ops, a, c, share, b);
}

static bool covers(const struct stage_sums *sums, int a, int b)
{
    return mean_covers(sums, a, a, 1, b);
}

/* Memory stages are those that no other stage covers. */
static void find_memory_stages(const struct stage_sums *sums, struct sbp_path_weights *weights)
{
    for (int stage = 0; stage < sums->stages; stage++) {
        bool covered = false;
        for (int i = 0; i < weights->memory_stages && !covered; i++)
            covered = covers(sums, weights->stage[i], stage);
        for (int other = stage + 1; other < sums->stages && !covered; other++)
            covered = covers(sums, other, stage);
        if (!covered)
            weights->stage[weights->memory_stages++] = stage;
    }
}

/* Where weight gradients wait, a stage parks the more the less it keeps, so that hardly one covers
 * another. Of stages with the same operators those between the first and the last lie on a line,
 * and fall out. */
static void drop_means(const struct stage_sums *sums, struct sbp_path_weights *weights)
{
    int count = 0;
    for (int i = 0; i < weights->memory_stages; i++) {
        const int stage = weights->stage[i];
        const int before = count > 0 ? weights->stage[count - 1] : -1;
        const int after = i + 1 < weights->memory_stages ? weights->stage[i + 1] : -1;
        const bool between = before >= 0 && after >= 0;
        const double share = between ? (double)(after - stage) / (after - before) : 0;
        if (!between || !mean_covers(sums, before, after, share, stage))
            weights->stage[count++] = stage;
    }
    weights->memory_stages = count;
}

static enum sbp_status set_memory(const struct sbp_cut *cut, struct sbp_arena *arena,
                                  struct sbp_path_weights *weights, struct sbp_diag *diag)
{
    const struct sbp_graph *graph = &cut->graph;
    const int stages = (int)sbp_parallel_parts(&cut->parallel), chunks = (int)cut->parallel.chunks;
    struct sbp_timeline timeline = {0};
    const size_t cells = (size_t)stages * (size_t)graph->op_count;
    const struct stage_sums sums = {.stages = stages,
                                    .ops = graph->op_count,
                                    .held = SBP_NEW(arena, double, cells),
                                    .kept = SBP_NEW(arena, double, cells),
                                    .parked = SBP_NEW(arena, double, cells)};
    double *const kept = SBP_NEW(arena, double, weights->pieces);
    double *const parked = SBP_NEW(arena, double, weights->pieces);
    if (sums.held == NULL || sums.kept == NULL || sums.parked == NULL || kept == NULL ||
        parked == NULL)
        return SBP_E_MEMORY;
    SBP_TRY(count_kept(cut, arena, &timeline, kept, parked, diag));
    for (int piece = 0; piece < weights->pieces; piece++)
        for (int op = weights->first[piece]; op < weights->first[piece + 1]; op++) {
            const size_t at =
                (size_t)(piece % stages) * (size_t)graph->op_count + (size_t)graph->op[op].site;
            weights->kept[op] = kept[piece];
            weights->parked[op] = parked[piece];
            sums.held[at] += sbp_parallel_versions(&cut->parallel, weights->pieces, piece);
            sums.kept[at] += kept[piece];
            sums.parked[at] += parked[piece];
        }
    find_memory_stages(&sums, weights);
    if (sbp_timeline_weights_wait(cut->parallel.schedule))
        drop_means(&sums, weights);
    const bool replicates = sbp_parallel_replicates(&cut->parallel);
    weights->moment =
        SBP_NEW(arena, struct sbp_moment, replicates ? chunks : timeline.interval_count);
    if (weights->moment == NULL)
        return SBP_E_MEMORY;
    for (int piece = 0; piece < chunks && replicates; piece++) /* frames of all, at any time */
        SBP_TRY(add_moment(arena, weights, 0, piece, chunks, kept));
    for (int i = 0; i < weights->memory_stages && chunks > 1 && !replicates; i++)
        SBP_TRY(find_moments(&timeline, weights->stage[i], stages, chunks, arena, weights));
    for (int op = 0; op < graph->op_count; op++)
        weights->point[op] = -1;
    for (int i = 0; i < weights->memory_stages; i++)
        for (int piece = weights->stage[i]; piece < weights->pieces; piece += stages)
            for (int op = weights->first[piece]; op < weights->first[piece + 1]; op++)
                weights->point[op] = i;
    return SBP_OK;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static enum sbp_status begin(const struct sbp_cut *cut, struct sbp_arena *arena,
                             struct sbp_path_weights *weights, struct sbp_diag *diag)
{
    const struct sbp_parallel *parallel = &cut->parallel;
    const size_t ops = (size_t)cut->graph.op_count, stages = (size_t)sbp_parallel_parts(parallel);
    const size_t pieces = stages * (size_t)parallel->chunks;
    *weights = (struct sbp_path_weights){.forward = SBP_NEW(arena, double, ops),
                                         .backward = SBP_NEW(arena, double, ops),
                                         .weight = SBP_NEW(arena, double, ops),
                                         .end = SBP_NEW(arena, double, ops),
                                         .sync = SBP_NEW(arena, double, ops),
                                         .forward_links = SBP_NEW(arena, double, ops),
                                         .backward_links = SBP_NEW(arena, double, ops),
                                         .weight_links = SBP_NEW(arena, double, ops),
                                         .pieces = (int)pieces,
                                         .first = SBP_NEW(arena, int, pieces + 1),
                                         .crossed = SBP_NEW(arena, double, pieces),
                                         .stage = SBP_NEW(arena, int, stages),
                                         .point = SBP_NEW(arena, int, ops),
                                         .kept = SBP_NEW(arena, double, ops),
                                         .parked = SBP_NEW(arena, double, ops)};
    if (weights->forward == NULL || weights->backward == NULL || weights->weight == NULL ||
        weights->end == NULL || weights->sync == NULL || weights->forward_links == NULL ||
        weights->backward_links == NULL || weights->weight_links == NULL ||
        weights->first == NULL || weights->crossed == NULL || weights->stage == NULL ||
        weights->point == NULL || weights->kept == NULL || weights->parked == NULL)
        return SBP_E_MEMORY;
    SBP_TRY(sbp_stages_cut_as(&cut->graph, weights->pieces, parallel, weights->first, diag));
    return set_memory(cut, arena, weights, diag);
}

enum sbp_status sbp_path_weights_make(const struct sbp_cut *cut, const struct sbp_path *path,
                                      struct sbp_arena *arena, struct sbp_path_weights *weights,
                                      struct sbp_diag *diag)
{
    SBP_TRY(begin(cut, arena, weights, diag));
    count_messages(cut, path, weights);
    for (int piece = 0; piece < weights->pieces; piece++)
        weigh_piece(path, piece, weights);
    return count_launches(cut, path, arena, weights);
}

/* Groups of devices that update a piece. */
static double holders_of(const struct sbp_parallel *parallel, int piece)
{
    const int stages = (int)parallel->pipeline;
    return parallel->pyramid                   ? sbp_pyramid_size(stages, piece)
           : sbp_parallel_replicates(parallel) ? stages
                                               : 1;
}

enum sbp_status sbp_path_weights_mean(const struct sbp_cut *cut, struct sbp_arena *arena,
                                      struct sbp_path_weights *weights, struct sbp_diag *diag)
{
    const double groups = (double)sbp_parallel_groups(&cut->parallel);
    const double each = (double)sbp_parallel_micro_batches(&cut->parallel, &cut->graph) / groups;
    struct sbp_path path;
    SBP_TRY(begin(cut, arena, weights, diag));
    SBP_TRY(sbp_path_longest(cut, arena, &path));
    for (int op = 0; op < cut->graph.op_count; op++)
        weights->forward[op] = weights->backward[op] = weights->weight[op] = each;
    for (int piece = 0; piece < weights->pieces; piece++)
        for (int op = weights->first[piece]; op < weights->first[piece + 1]; op++)
            weights->end[op] = holders_of(&cut->parallel, piece) / groups;
    for (int piece = 0; piece < path.pieces; piece++) {
        path.sent[piece] = piece + 1 < path.pieces ? each : 0;
        path.returned[piece] = piece > 0 ? each : 0;
    }
    count_messages(cut, &path, weights);
    return SBP_OK;
}
