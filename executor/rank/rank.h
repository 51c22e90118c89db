/* One rank of a run: an interpreter for the instructions of a compiled program.
 *
 * A compiled program is one list of instructions that all ranks share (DESIGN.md, section 7):
 * forward, backward, boxing, reductions, updates. The interpreter calls a kernel or a collective
 * for each. A rank without a channel runs a program of one device: the reference of the
 * verification is this same interpreter in double.
 */
#ifndef SBP_EXECUTOR_RANK_RANK_H
#define SBP_EXECUTOR_RANK_RANK_H

#include "executor/rank/rank_memory.h"

/* Allocates the arena, zeroed. E_MEMORY, E_UNSUPPORTED for matrices that are too large; on failure
 * nothing is left allocated. */
enum sbp_status sbp_rank_open(struct sbp_rank *rank, const struct sbp_program *program,
                              const struct sbp_device_ops *device, enum sbp_real real,
                              uint64_t seed, int64_t place, struct sbp_channel *channel,
                              struct sbp_diag *diag) SBP_MUST_USE;
void sbp_rank_close(struct sbp_rank *rank);

enum sbp_status sbp_rank_execute(struct sbp_rank *rank, const struct sbp_instr *instr,
                                 struct sbp_diag *diag) SBP_MUST_USE;

/* Goes on with the next micro-batch of the step. */
enum sbp_status sbp_rank_next_micro_batch(struct sbp_rank *rank,
                                          struct sbp_diag *diag) SBP_MUST_USE;

/* The mean loss over the global tokens, the same on all ranks after the step; NaN without one. */
enum sbp_status sbp_rank_loss(struct sbp_rank *rank, double *loss,
                              struct sbp_diag *diag) SBP_MUST_USE;

/* The optimizer's constants for an UPDATE of the step under way; the step's first one reads the
 * norm that clipping needs. */
enum sbp_status sbp_rank_prepare_update(struct sbp_rank *rank, const struct sbp_instr *instr,
                                        struct sbp_update *update,
                                        struct sbp_diag *diag) SBP_MUST_USE;

#endif
