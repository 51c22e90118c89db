/* Operators of the model on a rank: instruction -> kernel calls on local blocks. */
#ifndef SBP_EXECUTOR_RANK_RANK_OPS_H
#define SBP_EXECUTOR_RANK_RANK_OPS_H

#include "executor/rank/rank.h"

/* E_UNSUPPORTED names the operator with a local matrix that the kernels cannot count. */
enum sbp_status sbp_rank_check_matrices(const struct sbp_rank *rank,
                                        struct sbp_diag *diag) SBP_MUST_USE;

/* A FORWARD or BACKWARD instruction, in its phase. */
enum sbp_status sbp_rank_forward(struct sbp_rank *rank, const struct sbp_instr *instr,
                                 struct sbp_diag *diag) SBP_MUST_USE;
enum sbp_status sbp_rank_backward(struct sbp_rank *rank, const struct sbp_instr *instr,
                                  struct sbp_diag *diag) SBP_MUST_USE;

/* Whether a BACKWARD instruction writes parameter gradients. */
bool sbp_rank_is_weight_gradient(const struct sbp_instr *instr);
/* Tokens and features x inner of an instruction's operand, local. */
int64_t sbp_rank_tokens(const struct sbp_rank *rank, const struct sbp_instr *instr, int place);
int64_t sbp_rank_features(const struct sbp_rank *rank, const struct sbp_instr *instr, int place);
/* Local rows of the vocabulary, for embedding and cross-entropy. */
void sbp_rank_vocabulary(const struct sbp_rank *rank, int buffer, int dim,
                         struct sbp_digits *vocabulary);

#endif
