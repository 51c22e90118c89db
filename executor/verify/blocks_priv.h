/* Collects the blocks of a tensor of a piece from all ranks of its stage, on rank 0.
 *
 * Input is where the tensor's block lies on this rank and how it is split; rank 0 is given the
 * reals of every rank, with their indices in the whole tensor. A rank sends when it is told to, a
 * piece at a time, so that no more than one piece is under way.
 */
#ifndef SBP_EXECUTOR_VERIFY_BLOCKS_PRIV_H
#define SBP_EXECUTOR_VERIFY_BLOCKS_PRIV_H

#include "executor/rank/rank.h"

enum { SBP_BLOCKS_PIECE = 1 << 16 }; /* elements of a message */

/* Some reals of a block, whose global indices run on. */
struct sbp_block_values {
    int64_t place;         /* of the rank whose block it is, in its stage */
    int rank;              /* the same among all ranks */
    int64_t global, count; /* the first one's index; elements */
    const void *at;
};

struct sbp_rank_blocks {
    struct sbp_rank *rank;    /* this one; it has a channel */
    void *message;            /* (SBP_BLOCKS_PIECE) reals of the run, scratch */
    int piece, stage, tensor; /* stage: that has the piece, one of several replicas */
    const struct sbp_dist *dist;
    const void *memory; /* this rank's block, the device's or the host's; NULL: of another stage */
    bool on_host;
    int64_t elements;  /* the same on all ranks */
    bool is_shard;     /* of a weight: each rank has its own stretch of the block */
    int64_t first_row; /* of the batch, of an activation */
    /* Whether rank 0 asks the rank of a place, the same on both; NULL: it asks all. */
    bool (*asks)(const void *context, const struct sbp_rank_blocks *blocks, int64_t place);
    /* Rank 0 gets the values of all ranks, one after the other. */
    void (*take)(void *context, const struct sbp_rank_blocks *blocks,
                 const struct sbp_block_values *values);
    void *context;
};

/* Called by all ranks, for one piece after the other; those of other stages return at once. Fails
 * as the channel and the device do. */
enum sbp_status sbp_blocks_collect(const struct sbp_rank_blocks *blocks,
                                   struct sbp_diag *diag) SBP_MUST_USE;

#endif
