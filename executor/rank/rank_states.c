#include "executor/rank/rank_states.h"

enum { MASTER, FIRST_MOMENT, SECOND_MOMENT };

/* ---- host memory --------------------------------------------------------------------------- */

char *sbp_rank_hosted(struct sbp_rank *rank, int kind, int64_t parameter)
{
    const struct sbp_buckets buckets = sbp_buckets_of(rank->program);
    const int64_t at = kind * buckets.updated + parameter;
    return (char *)rank->host + rank->arena->host_at[rank->chunk] + at * rank->kernels->wide_bytes;
}

/* ---- on the device --------------------------------------------------------------------------- */

void sbp_rank_find_places(struct sbp_rank *rank, int64_t end)
{
    rank->places = 0;
    rank->place_bytes = 0;
    for (int chunk = 0; chunk < rank->arena->chunks; chunk++)
        if (rank->arena->program[chunk]->bucket_bytes > rank->place_bytes)
            rank->place_bytes = rank->arena->program[chunk]->bucket_bytes;
    while (rank->place_bytes > 0 && rank->places < SBP_RANK_MOST_PLACES &&
           rank->arena->bucket_at + (rank->places + 1) * rank->place_bytes <= end)
        rank->places++;
}

int sbp_rank_bucket_place(const struct sbp_rank *rank)
{
    return rank->places == 0 ? 0 : (int)((rank->bucket - 1) % rank->places);
}

static int find_bucket_buffer(const struct sbp_program *program)
{
    int buffer = 0;
    while (program->buffer[buffer].use != SBP_USE_BUCKET)
        buffer++;
    return buffer;
}

/* The bucket at hand. */
static char *bucket_memory(struct sbp_rank *rank)
{
    char *const first = sbp_rank_buffer(rank, find_bucket_buffer(rank->program));
    return first + sbp_rank_bucket_place(rank) * rank->place_bytes;
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* States of a kind stand together on either side. */
static enum sbp_status copy_kind(struct sbp_rank *rank, bool in, int kind,
                                 const struct sbp_buckets *buckets, char *on_device)
{
    const struct sbp_device_ops *device = rank->device;
    const int64_t bucket = rank->bucket - 1;
    const int64_t bytes = sbp_buckets_size(buckets, bucket) * rank->kernels->wide_bytes;
    char *const on_host = sbp_rank_hosted(rank, kind, bucket * buckets->parameters);
    const int64_t end = on_host + bytes - (char *)rank->host;
    if (end > rank->host_high_water_bytes)
        rank->host_high_water_bytes = end;
    if (device->lanes != NULL)
        return in ? device->lanes->copy(on_device, on_host, bytes, false)
                  : device->lanes->copy(on_host, on_device, bytes, true);
    return in ? device->memory->from_host(on_device, on_host, bytes)
              : device->memory->to_host(on_host, on_device, bytes);
}

enum sbp_status sbp_rank_copy_states(struct sbp_rank *rank, const struct sbp_instr *instr,
                                     struct sbp_diag *diag)
{
    const struct sbp_buckets buckets = sbp_buckets_of(rank->program);
    const bool in = instr->kind == SBP_INSTR_COPY_IN;
    char *const bucket = bucket_memory(rank);
    const int64_t kind_bytes = buckets.buffer * rank->kernels->wide_bytes;
    if (rank->skips_copy)
        return SBP_OK;
    for (int kind = 0; kind < buckets.kinds; kind++) {
        const enum sbp_status status =
            copy_kind(rank, in, kind, &buckets, bucket + kind * kind_bytes);
        if (status != SBP_OK)
            return sbp_fail(diag, status, "copying states of device %s", rank->device->name);
    }
    return SBP_OK;
}

/* ---- what an update works on ------------------------------------------------------------------
 */

/* States of a part, of which the first kind begins at `at`, each next one so many bytes behind. */
static void place_states(const struct sbp_rank *rank, const struct sbp_buckets *buckets, char *at,
                         int64_t kind_bytes, struct sbp_rank_states *states)
{
    const bool has_master = rank->program->bytes.master > 0;
    for (int kind = 0; kind < buckets->kinds; kind++)
        states->state[has_master ? kind : kind + FIRST_MOMENT] = at + kind * kind_bytes;
}

/* The part of the bucket at hand that is an update's. */
static void take_from_bucket(struct sbp_rank *rank, int tensor, struct sbp_rank_states *states)
{
    const struct sbp_program *program = rank->program;
    const struct sbp_buckets buckets = sbp_buckets_of(program);
    const struct sbp_bucket_part part =
        sbp_buckets_part(program, &buckets, tensor, rank->bucket - 1);
    const int64_t kind_bytes = buckets.buffer * rank->kernels->wide_bytes;
    char *const at = bucket_memory(rank) + part.at * rank->kernels->wide_bytes;
    place_states(rank, &buckets, at, kind_bytes, states);
    states->gradient_master =
        program->bytes.gradient_master > 0 ? at + buckets.kinds * kind_bytes : NULL;
    states->first = part.first;
    states->count = states->count == 0 ? 0 : part.count;
    states->weight += part.first * rank->kernels->real_bytes;
    states->gradient += part.first * rank->kernels->real_bytes;
}

struct sbp_rank_states sbp_rank_hosted_states(struct sbp_rank *rank, int tensor, int64_t bucket)
{
    const struct sbp_buckets buckets = sbp_buckets_of(rank->program);
    const struct sbp_bucket_part part =
        sbp_buckets_part(rank->program, &buckets, tensor, bucket - 1);
    struct sbp_rank_states states = {.first = part.first,
                                     .count = sbp_rank_updates(rank, tensor) == 0 ? 0 : part.count};
    place_states(rank, &buckets,
                 sbp_rank_hosted(rank, 0, rank->program->shard[tensor].begin + part.first),
                 buckets.updated * rank->kernels->wide_bytes, &states);
    return states;
}

struct sbp_rank_states sbp_rank_states(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    struct sbp_rank_states states = {
        .count = sbp_rank_updates(rank, instr->tensor),
        .weight = sbp_rank_shard(rank, instr->tensor, instr->buffer[SBP_AT_W]),
        .gradient = sbp_rank_shard(rank, instr->tensor, instr->buffer[SBP_AT_DW])};
    if (rank->bucket > 0) {
        take_from_bucket(rank, instr->tensor, &states);
        return states;
    }
    states.state[MASTER] = sbp_rank_buffer(rank, instr->buffer[SBP_AT_W2]);
    states.state[FIRST_MOMENT] = sbp_rank_buffer(rank, instr->buffer[SBP_AT_SAVED]);
    states.state[SECOND_MOMENT] = sbp_rank_buffer(rank, instr->buffer[SBP_AT_SAVED2]);
    states.gradient_master = sbp_rank_buffer(rank, instr->buffer[SBP_AT_DW2]);
    return states;
}

/* ---- sums beside the optimizer -----------------------------------------------------------------
 */

enum sbp_status sbp_rank_sum_bucket(struct sbp_rank *rank, const struct sbp_instr *instr,
                                    struct sbp_diag *diag)
{
    const struct sbp_program *program = rank->program;
    const struct sbp_buckets buckets = sbp_buckets_of(program);
    const struct sbp_bucket_sum sum =
        sbp_buckets_sum(program, &buckets, rank->bucket - 1, instr->tensor);
    char *const gradient = sbp_rank_buffer(rank, program->gradient_buffer[sum.first]);
    const struct sbp_exchange exchange = {.kind = SBP_ALL_REDUCE,
                                          .members.axes = instr->box.axes,
                                          .reduction = SBP_SUM,
                                          .receive =
                                              gradient + sum.begin * rank->kernels->real_bytes,
                                          .count = sum.elements};
    return sbp_channel_exchange(rank->channel, &exchange, diag);
}
