/* Operators on images, and those between images and tokens, on a rank's blocks. */
#ifndef SBP_EXECUTOR_RANK_IMAGE_RUN_PRIV_H
#define SBP_EXECUTOR_RANK_IMAGE_RUN_PRIV_H

#include "executor/rank/rank_memory.h"

void sbp_rank_first_token(struct sbp_rank *rank, const struct sbp_instr *instr);
void sbp_rank_first_token_backward(struct sbp_rank *rank, const struct sbp_instr *instr);
/* Either way. */
void sbp_rank_flatten(struct sbp_rank *rank, const struct sbp_instr *instr);

/* Loads its images, which stay in SAVED, cut into patches. */
void sbp_rank_patches(struct sbp_rank *rank, const struct sbp_instr *instr);
void sbp_rank_patches_backward(struct sbp_rank *rank, const struct sbp_instr *instr);

void sbp_rank_conv2d(struct sbp_rank *rank, const struct sbp_instr *instr);
void sbp_rank_conv2d_backward(struct sbp_rank *rank, const struct sbp_instr *instr);
void sbp_rank_pool(struct sbp_rank *rank, const struct sbp_instr *instr);
void sbp_rank_pool_backward(struct sbp_rank *rank, const struct sbp_instr *instr);
void sbp_rank_batchnorm(struct sbp_rank *rank, const struct sbp_instr *instr);
void sbp_rank_batchnorm_backward(struct sbp_rank *rank, const struct sbp_instr *instr);

#endif
