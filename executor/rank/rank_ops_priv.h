/* Operators of the model on a rank: each instruction becomes kernel calls on local blocks. */
#ifndef SBP_EXECUTOR_RANK_RANK_OPS_PRIV_H
#define SBP_EXECUTOR_RANK_RANK_OPS_PRIV_H

#include "executor/rank/rank_memory.h"

/* E_UNSUPPORTED names the operator with a local matrix that the kernels cannot count. */
enum sbp_status sbp_rank_check_matrices(const struct sbp_rank *rank,
                                        struct sbp_diag *diag) SBP_MUST_USE;

/* A FORWARD or BACKWARD instruction, in its phase. */
enum sbp_status sbp_rank_forward(struct sbp_rank *rank, const struct sbp_instr *instr,
                                 struct sbp_diag *diag) SBP_MUST_USE;
enum sbp_status sbp_rank_backward(struct sbp_rank *rank, const struct sbp_instr *instr,
                                  struct sbp_diag *diag) SBP_MUST_USE;

#endif
