#include "costmodel/program/buckets.h"

struct sbp_buckets sbp_buckets_of(const struct sbp_program *program)
{
    struct sbp_buckets buckets = {0};
    if (program->host_bytes == 0)
        return buckets;
    const int64_t most = program->parallel.bucket_parameters;
    for (int t = 0; t < program->graph->tensor_count; t++)
        buckets.updated += program->shard[t].elements;
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

struct sbp_bucket_part sbp_buckets_part(const struct sbp_program *program,
                                        const struct sbp_buckets *buckets, int tensor,
                                        int64_t bucket)
{
    const struct sbp_weight_shard *shard = &program->shard[tensor];
    const int64_t begin = bucket * buckets->parameters;
    const int64_t end = begin + sbp_buckets_size(buckets, bucket);
    const int64_t first = begin > shard->begin ? begin : shard->begin;
    const int64_t shard_end = shard->begin + shard->elements;
    const int64_t last = end < shard_end ? end : shard_end;
    return last > first
               ? (struct sbp_bucket_part){first - shard->begin, last - first, first - begin}
               : (struct sbp_bucket_part){0};
}
