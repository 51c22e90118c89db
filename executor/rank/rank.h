/* One rank of a run: an interpreter for the instructions of a compiled program.
 *
 * A compiled program is one list of instructions that all ranks share (DESIGN.md, section 7):
 * forward, backward, boxing, reductions, updates. The interpreter calls a kernel or a collective
 * for each, micro-batch by micro-batch in the order of the schedule. A rank without a channel runs
 * a program of one device: the reference of the verification is this same interpreter in double.
 */
#ifndef SBP_EXECUTOR_RANK_RANK_H
#define SBP_EXECUTOR_RANK_RANK_H

#include "costmodel/program/task.h"
#include "executor/rank/rank_memory.h"

/* Allocates the arena and its host's part, zeroed, and turns to its first chunk. `arena` must
 * outlive the rank; `place`: in the mesh of the programs. E_MEMORY, E_UNSUPPORTED for matrices that
 * are too large; on failure nothing is left allocated. */
enum sbp_status sbp_rank_open(struct sbp_rank *rank, const struct sbp_stage_layout *arena,
                              const struct sbp_device_ops *device, enum sbp_real real,
                              uint64_t seed, int64_t place, struct sbp_channel *channel,
                              struct sbp_diag *diag) SBP_MUST_USE;
void sbp_rank_close(struct sbp_rank *rank);

/* Turns to the chunk, the bucket and the frame of a task of the step that was begun. */
void sbp_rank_turn_to(struct sbp_rank *rank, const struct sbp_task *task);
/* An instruction of the chunk at hand, or the part of it that is of the bucket at hand. */
enum sbp_status sbp_rank_execute(struct sbp_rank *rank, const struct sbp_instr *instr,
                                 struct sbp_diag *diag) SBP_MUST_USE;

/* Before the first task of a work, of the chunk at hand: turns to its micro-batch, of this step or
 * the next, and to the weights that it reads, or that an update writes, and fills its data before a
 * forward work (E_MEMORY). After the last one: adds up the loss of a forward work. */
enum sbp_status sbp_rank_begin_work(struct sbp_rank *rank, const struct sbp_task *task,
                                    struct sbp_diag *diag) SBP_MUST_USE;
void sbp_rank_end_work(struct sbp_rank *rank, const struct sbp_task *task);

/* Has the device decide the step's norm, its scales and whether its updates are left out, which is
 * before its first update and before the norm's memory is taken; again: nothing. The norm is a sum
 * over the chunks and ranks of all stages, so that all leave the step out or none. */
void sbp_rank_decide(struct sbp_rank *rank);
/* Waits for the device and fills rank->known. Fails as the device does. */
enum sbp_status sbp_rank_read_state(struct sbp_rank *rank, struct sbp_diag *diag) SBP_MUST_USE;
/* After the last task of a step: both. */
enum sbp_status sbp_rank_end_step(struct sbp_rank *rank, struct sbp_diag *diag) SBP_MUST_USE;
/* Whether loss scaling handles an overflow of the step, as it was read last: all updates leave out
 * what they would do. A scale of 1 cannot be halved. */
bool sbp_rank_mends_overflow(const struct sbp_rank *rank);

/* The windows of a convolution or pool over images: `in` and `out` are places of operands that are
 * as its input and its output. */
struct sbp_windows sbp_rank_windows(const struct sbp_rank *rank, const struct sbp_instr *instr,
                                    int in, int out);

/* The mean loss over the global tokens, as it was read last, the same on all ranks of the stage
 * that has it after the step; NaN on others, and in a model without one. */
double sbp_rank_loss(const struct sbp_rank *rank);

/* The optimizer's constants for an UPDATE of the step under way; its scales are those of the step's
 * state. */
struct sbp_update sbp_rank_update(const struct sbp_rank *rank);
/* Before an update: copies what this rank updates of a weight from its newest version to the other
 * one's place, which is at hand and where the update works. Nothing where there is one version. */
void sbp_rank_bring_newest(struct sbp_rank *rank, int tensor);

#endif
