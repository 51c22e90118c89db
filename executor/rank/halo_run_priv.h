/* Rows of images that convolutions fetch of other ranks (costmodel/model/halo.h). */
#ifndef SBP_EXECUTOR_RANK_HALO_RUN_PRIV_H
#define SBP_EXECUTOR_RANK_HALO_RUN_PRIV_H

#include "executor/rank/rank_memory.h"

/* Says where a block's windows begin, and lets them read the rows around it that INNER fetched to
 * SAVED. images: the place of the operand with the images, or with their gradient. */
void sbp_rank_reach(struct sbp_rank *rank, const struct sbp_instr *instr, int images,
                    struct sbp_windows *windows);

/* Forms the gradients of the rows around a block, in WORK. windows: as they reach. */
void sbp_rank_form_around(struct sbp_rank *rank, const struct sbp_instr *instr,
                          const struct sbp_windows *windows);

/* An INNER of a convolution: fetches rows, or brings their gradients to the owners, who add them
 * one after the other in the order of the messages. Fails as the backend does. */
enum sbp_status sbp_rank_share_rows(struct sbp_rank *rank, const struct sbp_instr *instr,
                                    struct sbp_diag *diag) SBP_MUST_USE;

#endif
