/* Buckets of optimizer states that wait in host memory (Myelin, section V.B).
 *
 * The parameters that a device updates of a chunk, tensor by tensor, are cut into buckets of one
 * size. One after the other a bucket's states come to the device, its parameters are updated, and
 * the states go back. States of a kind stand one after the other in host memory, in the order of
 * the parameters: master copies, where there are any, then each moment; and so they do in the
 * bucket, with gradients converted for the update behind them.
 *
 * With a chunk factor k gradients are summed over replicas in chunks of k buckets, beside the
 * optimizer (section V.C): one all-reduce of what lies together in memory and is summed over the
 * same devices. A tied weight is summed before, as the uses of it wait for each other.
 */
#ifndef SBP_COSTMODEL_PROGRAM_BUCKETS_H
#define SBP_COSTMODEL_PROGRAM_BUCKETS_H

#include "costmodel/program/program.h"

struct sbp_buckets {
    int64_t count;      /* 0: states stay on the device, or there are none */
    int64_t parameters; /* of a bucket; the last one may have fewer */
    int64_t updated;    /* of all */
    int kinds;          /* of states in host memory */
    int64_t buffer;     /* parameters that the device's buffer has room for */
};
struct sbp_buckets sbp_buckets_of(const struct sbp_program *program);

/* Parameters of a bucket, from 0. */
int64_t sbp_buckets_size(const struct sbp_buckets *buckets, int64_t bucket);

/* The part of a tensor whose states are in a bucket. */
struct sbp_bucket_part {
    int64_t first; /* of the device's shard */
    int64_t count; /* 0: there is none */
    int64_t at;    /* in the bucket */
};
struct sbp_bucket_part sbp_buckets_part(const struct sbp_program *program,
                                        const struct sbp_buckets *buckets, int tensor,
                                        int64_t bucket);

/* Whether a tensor's gradient is summed with its bucket's chunk. */
bool sbp_buckets_sums(const struct sbp_program *program, int tensor);

/* One all-reduce of the chunk that a bucket begins. */
struct sbp_bucket_sum {
    int first;          /* tensor, and the element of its gradient, */
    int64_t begin;      /* that it begins with */
    int64_t parameters; /* that it sums */
    int64_t elements;   /* of memory, with those that fill up buffers between tensors */
};
/* The sum that begins with a tensor of the chunk: it takes along the tensors that lie behind it. */
struct sbp_bucket_sum sbp_buckets_sum(const struct sbp_program *program,
                                      const struct sbp_buckets *buckets, int64_t bucket,
                                      int tensor);

/* The bucket behind a chunk of `factor` buckets, of which the last chunk may have fewer. */
static inline int64_t sbp_buckets_chunk_end(const struct sbp_buckets *buckets, int64_t bucket,
                                            int64_t factor)
{
    return factor < buckets->count - bucket ? bucket + factor : buckets->count;
}

#endif
