/* A game of two sides: one chooses a plan, the other the path that it is measured along.
 */
#ifndef SBP_PLANNER_PROBLEM_MATRIX_GAME_H
#define SBP_PLANNER_PROBLEM_MATRIX_GAME_H

#include "base/arena.h"
#include "base/status.h"

/* The shares of the paths for which the cheapest plan costs most, near enough. cost: (plans, paths)
 * row-major; share: (paths). Scratch comes out of the arena, to which it is given back. E_MEMORY.
 */
enum sbp_status sbp_game_play(const double *cost, int plans, int paths, struct sbp_arena *scratch,
                              double *share) SBP_MUST_USE;

#endif
