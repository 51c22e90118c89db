/* SUMMA: products whose operands are split in blocks over a grid of ranks (van de Geijn and Watts,
 * 1997).
 *
 * Rows of the grid split tokens of X, columns split outputs of W, and the inner features are split
 * by both: those of X by columns, those of W by rows. A product takes them by panels, as many as
 * the longer side of the grid has members. In the order of features that a panel has,
 *   Y  = the sum over panels of X's panel times W's: both are broadcast,
 *   dX's panel = dY times W's transposed: W's is broadcast, dX's summed to who holds it,
 *   dW's panel = X's transposed times dY: X's is broadcast, dW's summed to who holds it.
 * A panel of the operand that the longer side splits lies with one member of that side. Of the
 * other operand each member of the shorter side has an equal part of every panel, since an axis
 * fixes its own digit of the features alone (base/math/digits.h); these parts are broadcast at once
 * (SBP_OWNED_IN_PARTS). A rank has room for one panel of each operand at a time, in the scratch of
 * the pass.
 *
 * A grid of one rank has one panel, which is the operands: it is multiplied as a linear.
 */
#ifndef SBP_EXECUTOR_RANK_PANELS_RUN_PRIV_H
#define SBP_EXECUTOR_RANK_PANELS_RUN_PRIV_H

#include "executor/rank/rank_memory.h"

/* FORWARD and BACKWARD instructions of a SUMMA linear, with the calls that the instructions INNER
 * before them stand for. Fails as the backend does. */
enum sbp_status sbp_rank_panels(struct sbp_rank *rank, const struct sbp_instr *instr,
                                struct sbp_diag *diag) SBP_MUST_USE;

#endif
