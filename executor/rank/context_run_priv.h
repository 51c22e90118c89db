/* Attention whose queries are split by sequence: keys and values of all of it come to every member.
 *
 * The members' keys and values are all-gathered before a pass, and the gradients of all of them,
 * which each member has from its own queries, are reduce-scattered after backward: a boxing of two
 * thirds of the packed projection, of the keys and values of grouped attention, or of rows of those
 * of latent attention with the keys' shared part behind them, by the digit rule like any other. A
 * pass's scratch has room for the sequence twice behind what the kernel takes of it: as gathered
 * and in order; in backward also for the gradients, once the keys are in order, and for what is
 * packed of them.
 *
 * Round a ring (Liu et al., 2023) each member works on its own block first, then on those of the
 * members before it, one after the other, each of which it sends on to the next one before it works
 * on it. Backward the gradients of a block follow it: a member forms those by its own queries while
 * the sum so far comes, adds them, and sends the sum on, from the last member home. A pass's
 * scratch has room for two blocks, the one at hand and the one that comes, and backward for the
 * gradients of both; forward, materialised attention has log-sum-exps of its rows in front of what
 * the kernel takes.
 */
#ifndef SBP_EXECUTOR_RANK_CONTEXT_RUN_PRIV_H
#define SBP_EXECUTOR_RANK_CONTEXT_RUN_PRIV_H

#include "executor/rank/rank_memory.h"

/* The local queries and the gathered keys, as a kernel of attention takes them. */
struct sbp_rank_context {
    struct sbp_digits rows;               /* of the sequence, that the rank's queries are */
    struct sbp_attention_context context; /* points to `rows`: not to be copied */
    int64_t row;                          /* elements of a row of all that is gathered */
};

/* The block at hand of those that go round. */
struct sbp_rank_block {
    struct sbp_attention_block of;
    unsigned char *keys, *gradients; /* gradients: backward */
};

/* Dropout of the probabilities of an attention's pass, of the step and micro-batch at hand. */
struct sbp_rank_attention_dropout {
    struct sbp_region region;
    struct sbp_attention_dropout dropout; /* points to `region`: not to be copied */
};

/* NULL: there is none. */
const struct sbp_attention_dropout *
sbp_rank_find_attention_dropout(struct sbp_rank *rank, const struct sbp_instr *instr,
                                struct sbp_rank_attention_dropout *at);

/* Sets *at from an attention's pass, whose keys are gathered, or at hand in a block: IN is the
 * packed projection, or IN2 has the keys and values, and IN3 more of the keys. False: nothing
 * splits its queries by sequence.
 */
bool sbp_rank_find_context(struct sbp_rank *rank, const struct sbp_instr *instr,
                           struct sbp_rank_context *at);

/* An INNER instruction of attention: the keys and values that IN (and IN2) have are gathered, or
 * their gradients summed into OUT (and OUT2). Fails as the backend does. */
enum sbp_status sbp_rank_share_context(struct sbp_rank *rank, const struct sbp_instr *instr,
                                       struct sbp_diag *diag) SBP_MUST_USE;

/* Whether the keys of a pass go round a ring; sends them round, each block to `op`, which runs the
 * kernel. Fails as the backend does. */
bool sbp_rank_has_ring(const struct sbp_rank *rank, const struct sbp_instr *instr);
enum sbp_status sbp_rank_go_round(struct sbp_rank *rank, const struct sbp_instr *instr,
                                  void (*op)(struct sbp_rank *rank, const struct sbp_instr *instr),
                                  struct sbp_diag *diag) SBP_MUST_USE;

#endif
