/* Products with weights, and gelus, which are one call with the product beside them on devices that
 * have such products.
 *
 * Forward the product makes both its own output, which the backward pass reads, and the gelu's: the
 * gelu's instruction has nothing left to do. Backward the product whose result the gelu takes waits
 * for it, since what they form together may lie where instructions between still read: the
 * product's instruction does nothing, and the gelu's both.
 */
#ifndef SBP_EXECUTOR_RANK_LINEAR_RUN_PRIV_H
#define SBP_EXECUTOR_RANK_LINEAR_RUN_PRIV_H

#include "executor/rank/rank_memory.h"

/* FORWARD and BACKWARD instructions of the two operators. */
void sbp_rank_linear(struct sbp_rank *rank, const struct sbp_instr *instr);
void sbp_rank_linear_backward(struct sbp_rank *rank, const struct sbp_instr *instr);
void sbp_rank_gelu(struct sbp_rank *rank, const struct sbp_instr *instr);
void sbp_rank_gelu_backward(struct sbp_rank *rank, const struct sbp_instr *instr);

#endif
