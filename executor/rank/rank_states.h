/* Optimizer states of a rank: beside the weights on its device, or in host memory, from where they
 * come to the device bucket by bucket (costmodel/program/buckets.h).
 */
#ifndef SBP_EXECUTOR_RANK_RANK_STATES_H
#define SBP_EXECUTOR_RANK_RANK_STATES_H

#include "costmodel/program/buckets.h"
#include "executor/rank/rank_memory.h"

/* Places of buckets on a device at most: one comes, one is updated, one goes back. */
enum { SBP_RANK_MOST_PLACES = 3 };
/* Finds room for more buckets than one, behind that of the arena and before its byte `end`, where
 * activations lie until updates begin. */
void sbp_rank_find_places(struct sbp_rank *rank, int64_t end);
/* The place of the bucket at hand, from 0. */
int sbp_rank_bucket_place(const struct sbp_rank *rank);

/* What an UPDATE reads and writes: a weight's shard, or the part of it that is of the bucket at
 * hand. Pointers are to its first element. */
struct sbp_rank_states {
    int64_t first, count;    /* elements of the shard; none where another member owns it */
    char *weight, *gradient; /* the run's reals */
    char *state[3];          /* wide: master copy, moments; NULL: there is none */
    char *gradient_master;   /* wide; NULL: there is none */
};
struct sbp_rank_states sbp_rank_states(struct sbp_rank *rank, const struct sbp_instr *instr);
/* The states alone of a tensor's part of a bucket, from 1, where they wait in host memory. */
struct sbp_rank_states sbp_rank_hosted_states(struct sbp_rank *rank, int tensor, int64_t bucket);

/* A kind of state, from 0, of a parameter of the chunk at hand, in host memory. */
char *sbp_rank_hosted(struct sbp_rank *rank, int kind, int64_t parameter);

/* COPY_IN or COPY_OUT of the bucket at hand. Fails as the device does. */
enum sbp_status sbp_rank_copy_states(struct sbp_rank *rank, const struct sbp_instr *instr,
                                     struct sbp_diag *diag) SBP_MUST_USE;

/* Sums, over replicas, what is summed with a gradient in the chunk that the bucket at hand begins.
 * Fails as the backend does. */
enum sbp_status sbp_rank_sum_bucket(struct sbp_rank *rank, const struct sbp_instr *instr,
                                    struct sbp_diag *diag) SBP_MUST_USE;

#endif
