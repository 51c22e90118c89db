#include "planner/paths/path.h"

#include <string.h>

#include "costmodel/program/price.h"

enum sbp_status sbp_path_init(const struct sbp_cut *cut, struct sbp_arena *arena,
                              struct sbp_path *path)
{
    const int stages = (int)sbp_parallel_parts(&cut->parallel);
    const int pieces = (int)sbp_parallel_pieces(&cut->parallel);
    *path = (struct sbp_path){.pieces = pieces, .stages = stages};
    path->all = SBP_NEW(arena, double, sbp_path_entries(path));
    if (path->all == NULL)
        return SBP_E_MEMORY;
    double **const part[] = {&path->forward,        &path->backward,     &path->weight,
                             &path->sent,           &path->returned,     &path->forward_host,
                             &path->backward_host,  &path->weight_host,  &path->forward_links,
                             &path->backward_links, &path->weight_links, &path->end};
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        *part[i] = path->all + i * (size_t)pieces;
    path->sync = path->end + stages;
    return SBP_OK;
}

bool sbp_path_equal(const struct sbp_path *a, const struct sbp_path *b)
{
    return a->pieces == b->pieces && a->stages == b->stages &&
           memcmp(a->all, b->all, sbp_path_entries(a) * sizeof *a->all) == 0;
}

double sbp_path_length_s(const struct sbp_path *path, const struct sbp_path *times)
{
    double seconds = 0;
    for (size_t i = 0; i < sbp_path_entries(path); i++)
        seconds += path->all[i] * times->all[i];
    return seconds;
}

void sbp_path_mix(const struct sbp_path *path, const double *share, int count,
                  struct sbp_path *mixed)
{
    for (size_t i = 0; i < sbp_path_entries(mixed); i++) {
        mixed->all[i] = 0;
        for (int k = 0; k < count; k++)
            mixed->all[i] += share[k] * path[k].all[i];
    }
}

void sbp_path_block(const struct sbp_cut *cut, struct sbp_path *path)
{
    for (int piece = 0; piece < path->pieces && cut->cluster->runtime.sends_block &&
                        !sbp_parallel_shares_device(&cut->parallel);
         piece++) {
        path->sent[piece] = piece + 1 < path->pieces ? path->forward[piece] : 0;
        path->returned[piece] = piece > 0 ? path->backward[piece] : 0;
    }
}

/* On the way to the last stage and back the path passes the first chunks of the other stages. A
 * replica has all chunks, and one micro-batch; so has a group of a pyramid's first stage, for which
 * it waits meanwhile. */
enum sbp_status sbp_path_longest(const struct sbp_cut *cut, struct sbp_arena *arena,
                                 struct sbp_path *path)
{
    const struct sbp_parallel *parallel = &cut->parallel;
    const int stages = (int)sbp_parallel_parts(parallel);
    const double all = sbp_parallel_hands_on(parallel)
                           ? 1
                           : (double)sbp_parallel_micro_batches(parallel, &cut->graph);
    const bool late = sbp_timeline_weights_wait(parallel->schedule);
    SBP_TRY(sbp_path_init(cut, arena, path));
    path->end[late ? stages - 1 : 0] = 1;
    for (int piece = 0; piece < path->pieces; piece++) {
        const bool turns = piece % stages == stages - 1, passed = piece < stages && !turns;
        path->forward[piece] = turns ? all : passed ? 1 : 0;
        path->backward[piece] = turns ? all : passed && !late ? 1 : 0;
        path->weight[piece] = path->backward[piece];
        path->sent[piece] = passed ? 1 : 0;
        path->returned[piece] = piece > 0 && piece < stages && !late ? 1 : 0;
    }
    sbp_path_block(cut, path);
    return SBP_OK;
}

double sbp_path_message_s(const struct sbp_cut *cut, int tensor, double parts)
{
    const struct sbp_element_bytes bytes = sbp_program_element_bytes(&cut->graph.precision);
    struct sbp_group group = sbp_collective_group_one();
    if (tensor < 0 || cut->stage_level < 0)
        return 0;
    group.members[cut->stage_level] = 2;
    double elements = 1;
    for (int dim = 0; dim < SBP_MAX_DIMS; dim++)
        elements *= (double)cut->graph.tensor[tensor].shape.size[dim];
    return sbp_collective_group_s(cut->cluster, SBP_SEND_RECV, &group,
                                  elements / parts * (double)bytes.activation);
}

double sbp_path_least_message_s(const struct sbp_cut *cut, int op)
{
    return sbp_path_message_s(cut, sbp_stages_crossing(&cut->graph, op), (double)cut->mesh.devices);
}

double sbp_path_messages_s(const struct sbp_cut *cut, const struct sbp_path *path, const int *first)
{
    double seconds = 0;
    for (int piece = 0; piece < path->pieces; piece++) {
        if (path->sent[piece] > 0)
            seconds += path->sent[piece] * sbp_path_least_message_s(cut, first[piece + 1]);
        if (path->returned[piece] > 0)
            seconds += path->returned[piece] * sbp_path_least_message_s(cut, first[piece]);
    }
    return seconds;
}

struct sbp_timeline_request sbp_path_timeline(const struct sbp_cut *cut, int64_t micro_batches,
                                              const struct sbp_stage_cost *cost)
{
    const struct sbp_parallel *parallel = &cut->parallel;
    return (struct sbp_timeline_request){
        .schedule = parallel->schedule,
        .stages = (int)parallel->pipeline,
        .micro_batches = (int)micro_batches,
        .chunks = sbp_parallel_replicates(parallel) ? 1 : (int)parallel->chunks,
        .placement = parallel->pyramid                   ? SBP_PLACE_GROUPS
                     : sbp_parallel_replicates(parallel) ? SBP_PLACE_REPLICAS
                                                         : SBP_PLACE_PIPELINE,
        .pipeline_limit = (int)parallel->pipeline_limit,
        .stage = cost};
}
