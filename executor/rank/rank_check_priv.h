/* Whether a rank's device has kernels of the operators of a program, and of their local sizes. */
#ifndef SBP_EXECUTOR_RANK_RANK_CHECK_PRIV_H
#define SBP_EXECUTOR_RANK_RANK_CHECK_PRIV_H

#include "executor/rank/rank_memory.h"

/* E_UNSUPPORTED names the operator that the device has no kernel of. */
enum sbp_status sbp_rank_check_kernels(const struct sbp_rank *rank,
                                       struct sbp_diag *diag) SBP_MUST_USE;

/* E_UNSUPPORTED names the operator with a local size that the kernels cannot count, or that the
 * device's kernels have no room for (struct sbp_kernels), and the most that is legal. */
enum sbp_status sbp_rank_check_sizes(const struct sbp_rank *rank,
                                     struct sbp_diag *diag) SBP_MUST_USE;

#endif
