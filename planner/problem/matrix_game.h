/* Solves a matrix game: one side chooses a plan to lower the cost, the other one a path to raise
 * it. The paths' best mixture makes the cheapest plan as dear as possible.
 */
#ifndef SBP_PLANNER_PROBLEM_MATRIX_GAME_H
#define SBP_PLANNER_PROBLEM_MATRIX_GAME_H

#include "base/arena.h"
#include "base/status.h"

/* share (paths): the paths' best mixture, approximately; sums to 1. cost: (plans, paths) row-major.
 * The arena gets its scratch back, except on E_MEMORY. */
enum sbp_status sbp_game_play(const double *cost, int plans, int paths, struct sbp_arena *scratch,
                              double *share) SBP_MUST_USE;

#endif
