/* Latent attention on a rank's blocks. */
#ifndef SBP_EXECUTOR_RANK_LATENT_RUN_PRIV_H
#define SBP_EXECUTOR_RANK_LATENT_RUN_PRIV_H

#include "executor/rank/rank_memory.h"

/* The local queries. */
struct sbp_attention_shape sbp_rank_latent_shape(const struct sbp_rank *rank,
                                                 const struct sbp_instr *instr);
void sbp_rank_latent(struct sbp_rank *rank, const struct sbp_instr *instr);
void sbp_rank_latent_backward(struct sbp_rank *rank, const struct sbp_instr *instr);

#endif
