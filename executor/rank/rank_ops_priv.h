/* Operators of the model on a rank: each instruction becomes kernel calls on local blocks. */
#ifndef SBP_EXECUTOR_RANK_RANK_OPS_PRIV_H
#define SBP_EXECUTOR_RANK_RANK_OPS_PRIV_H

#include "executor/rank/rank_memory.h"

/* Whether a weight's gradient is added to what its buffer has: gradients that stay where they are
 * formed are sums over micro-batches; those on their way to shards begin anew. */
bool sbp_rank_adds_to(const struct sbp_rank *rank, int buffer);
/* Whether those of an instruction's first weight and of those beside it are (enum sbp_adds), which
 * need not lie alike; a tied weight's second use adds to the first one, too. */
unsigned sbp_rank_adds_of(const struct sbp_rank *rank, const struct sbp_instr *instr);

/* An operand that is added to a partial sum, such as a bias: one member adds it, the others get
 * NULL. */
void *sbp_rank_added_once(struct sbp_rank *rank, const struct sbp_instr *instr, int place);

/* A FORWARD or BACKWARD instruction, in its phase. */
enum sbp_status sbp_rank_forward(struct sbp_rank *rank, const struct sbp_instr *instr,
                                 struct sbp_diag *diag) SBP_MUST_USE;
enum sbp_status sbp_rank_backward(struct sbp_rank *rank, const struct sbp_instr *instr,
                                  struct sbp_diag *diag) SBP_MUST_USE;

#endif
