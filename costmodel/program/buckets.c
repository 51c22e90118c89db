#include "costmodel/program/buckets.h"

struct sbp_buckets sbp_buckets_of(const struct sbp_program *program)
{
    struct sbp_buckets buckets = {0};
    if (program->host_bytes == 0)
        return buckets;
    const int64_t most = program->parallel.bucket_parameters;
    for (int t = 0; t < program->graph->tensor_count; t++)
        buckets.updated += sbp_weight_updated(&program->shard[t], t);
    buckets.count = (buckets.updated - 1) / most + 1;
    buckets.parameters = (buckets.updated - 1) / buckets.count + 1;
    buckets.kinds =
        (program->bytes.master > 0 ? 1 : 0) + sbp_graph_training_moments(&program->graph->training);
    buckets.buffer = buckets.updated < most ? buckets.updated : most;
    return buckets;
}

int64_t sbp_buckets_size(const struct sbp_buckets *buckets, int64_t bucket)
{
    const int64_t left = buckets->updated - bucket * buckets->parameters;
    return left < buckets->parameters ? left : buckets->parameters;
}

/* The part of a tensor that lies in a stretch of all parameters; `at` counts from its begin. */
static struct sbp_bucket_part part_between(const struct sbp_weight_shard *shard, int64_t begin,
                                           int64_t end)
{
    const int64_t first = begin > shard->begin ? begin : shard->begin;
    const int64_t shard_end = shard->begin + shard->elements;
    const int64_t last = end < shard_end ? end : shard_end;
    return last > first
               ? (struct sbp_bucket_part){first - shard->begin, last - first, first - begin}
               : (struct sbp_bucket_part){0};
}

struct sbp_bucket_part sbp_buckets_part(const struct sbp_program *program,
                                        const struct sbp_buckets *buckets, int tensor,
                                        int64_t bucket)
{
    const int64_t begin = bucket * buckets->parameters;
    return part_between(&program->shard[tensor], begin, begin + sbp_buckets_size(buckets, bucket));
}

/* ---- sums ---------------------------------------------------------------------------------- */

bool sbp_buckets_sums(const struct sbp_program *program, int tensor)
{
    const struct sbp_scope *scope = &program->scope;
    const bool tied = (scope->holders != NULL && scope->holders[tensor] > 1) ||
                      (scope->copies != NULL && scope->copies[tensor] > 1);
    const struct sbp_weight_shard *shard = &program->shard[tensor];
    return program->parallel.chunk_factor > 0 && shard->elements > 0 && shard->level == 0 &&
           shard->axes != 0 && !tied;
}

/* Where an element of a gradient lies, counted in elements of gradients. */
static int64_t place_of(const struct sbp_program *program, int tensor, int64_t element)
{
    return program->buffer[program->gradient_buffer[tensor]].offset_bytes /
               program->bytes.gradient +
           element;
}

struct sbp_bucket_sum sbp_buckets_sum(const struct sbp_program *program,
                                      const struct sbp_buckets *buckets, int64_t bucket, int tensor)
{
    const int64_t begin = bucket * buckets->parameters;
    const int64_t end = sbp_buckets_chunk_end(buckets, bucket, program->parallel.chunk_factor) *
                        buckets->parameters;
    struct sbp_bucket_sum sum = {.first = tensor};
    for (int t = tensor; t < program->graph->tensor_count; t++) {
        const struct sbp_bucket_part part = part_between(&program->shard[t], begin, end);
        if (program->shard[t].elements == 0)
            continue;
        if (part.count == 0 || !sbp_buckets_sums(program, t) ||
            program->shard[t].axes != program->shard[tensor].axes)
            break;
        if (t == tensor)
            sum.begin = part.first;
        sum.parameters += part.count;
        sum.elements =
            place_of(program, t, part.first + part.count) - place_of(program, tensor, sum.begin);
    }
    return sum;
}
