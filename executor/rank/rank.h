/* One rank of a run: its memory, and an interpreter for the instructions of a compiled program.
 *
 * All tensors live in one arena at the program's offsets. Weights, data and dropout masks are
 * functions of (seed, tensor or operator, global index), so that a rank makes its own blocks and
 * every split of a model computes the same thing. A rank without a channel runs a program of one
 * device: the reference of the verification is this same interpreter in double.
 */
#ifndef SBP_EXECUTOR_RANK_RANK_H
#define SBP_EXECUTOR_RANK_RANK_H

#include "costmodel/program/program.h"
#include "executor/comm/channel.h"
#include "executor/device/device.h"

struct sbp_rank {
    const struct sbp_program *program; /* borrowed */
    const struct sbp_device_ops *device;
    const struct sbp_kernels *kernels;
    struct sbp_channel *channel; /* borrowed; NULL: one device, nothing to communicate */
    struct sbp_layout layout;
    int64_t rank;
    uint64_t seed;
    unsigned char *memory;    /* (program->arena_bytes), the device's */
    int64_t high_water_bytes; /* end of the highest buffer touched */
    int64_t step;             /* from 1 */
    uint64_t step_seed;       /* the data differ from step to step */
    double grad_norm;         /* after the program's NORM; -1 without clipping */
    double gradient_scale;    /* what clipping multiplies gradients by */
};

/* Allocates the arena, zeroed. E_MEMORY, E_UNSUPPORTED for matrices that are too large; on failure
 * nothing is left allocated. */
enum sbp_status sbp_rank_open(struct sbp_rank *rank, const struct sbp_program *program,
                              const struct sbp_device_ops *device, enum sbp_real real,
                              uint64_t seed, int64_t place, struct sbp_channel *channel,
                              struct sbp_diag *diag) SBP_MUST_USE;
void sbp_rank_close(struct sbp_rank *rank);

/* Fills this rank's blocks of the weights with their initial values. */
void sbp_rank_fill_weights(struct sbp_rank *rank);

/* Fills token ids, labels and positions of a step. */
enum sbp_status sbp_rank_begin_step(struct sbp_rank *rank, int64_t step,
                                    struct sbp_diag *diag) SBP_MUST_USE;
enum sbp_status sbp_rank_execute(struct sbp_rank *rank, const struct sbp_instr *instr,
                                 struct sbp_diag *diag) SBP_MUST_USE;

/* The mean loss over the global tokens, the same on all ranks after the step; NaN without one. */
enum sbp_status sbp_rank_loss(struct sbp_rank *rank, double *loss,
                              struct sbp_diag *diag) SBP_MUST_USE;

/* A buffer's memory (NULL for -1), and the block it holds. */
void *sbp_rank_buffer(struct sbp_rank *rank, int buffer);
void sbp_rank_region(const struct sbp_rank *rank, int buffer, struct sbp_region *region);
/* Whether this rank's coordinate is 0 on every axis of a set: the one member that counts. */
bool sbp_rank_leads(const struct sbp_rank *rank, sbp_axes axes);
/* The optimizer's constants for an UPDATE of the step under way; the step's first one reads the
 * norm that clipping needs. */
enum sbp_status sbp_rank_prepare_update(struct sbp_rank *rank, const struct sbp_instr *instr,
                                        struct sbp_update *update,
                                        struct sbp_diag *diag) SBP_MUST_USE;

#endif
