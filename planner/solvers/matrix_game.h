/* Finds the weights of the columns (paths) under which the cheapest row (plan) costs most. Input: a
 * matrix of costs in seconds. Output: weights that sum to 1, approximately the best ones.
 *
 * This is a matrix game: one side chooses a plan to lower the cost, the other side mixes paths to
 * raise it.
 */
#ifndef SBP_PLANNER_SOLVERS_MATRIX_GAME_H
#define SBP_PLANNER_SOLVERS_MATRIX_GAME_H

#include "base/arena.h"
#include "base/status.h"

/* share (paths): the paths' best mixture, approximately; sums to 1. cost: (plans, paths) row-major.
 * The arena gets its scratch back, except on E_MEMORY. */
enum sbp_status sbp_game_play(const double *cost, int plans, int paths, struct sbp_arena *scratch,
                              double *share) SBP_MUST_USE;

#endif
