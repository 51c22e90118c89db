/* Which path, or mixture of paths, to measure a candidate's plans along next.
 *
 * The cheapest plan along a path costs more on another one. First comes the path that is expected
 * to be the longest, then those of the plans that it and the next ones lead to. What these cost
 * along each other's paths is the matrix of a game, whose best answer of the paths' side is the
 * mixture that comes next (double oracle: McMahan, Gordon and Blum, ICML 2003). Any mixture bounds
 * the step; their bounds rise to the value of the game.
 */
#ifndef SBP_PLANNER_PATHS_PATH_MIXTURE_H
#define SBP_PLANNER_PATHS_PATH_MIXTURE_H

#include "planner/limits.h"
#include "planner/paths/path.h"

struct sbp_mixture {
    const struct sbp_cut *cut;
    struct sbp_arena *arena;
    struct sbp_path path; /* to measure plans along now */
    bool is_played;       /* a mixture; else one of those that are known */
    struct sbp_path best; /* the one that bounded most so far, */
    double best_s;        /* as the caller says */
    int path_count, plan_count;
    struct sbp_path known[SBP_PATHS_MOST + 1], times[SBP_PATHS_MOST + 1];
};

/* Arrays come out of the arena, and the plan's parallel must stay. Fails as sbp_path_expected. */
enum sbp_status sbp_mixture_begin(const struct sbp_cut *cut, struct sbp_arena *arena,
                                  struct sbp_mixture *mixture, struct sbp_diag *diag) SBP_MUST_USE;
/* No plan costs less than bound_s along mixture->path. */
void sbp_mixture_note(struct sbp_mixture *mixture, double bound_s);
/* Where no plan was found along mixture->path, which is one of several that are known: sets a
 * mixture of them, and *more. E_MEMORY. */
enum sbp_status sbp_mixture_skip(struct sbp_mixture *mixture, bool *more) SBP_MUST_USE;
/* Takes in the plan that was found along mixture->path and sets the next one; *more: there is one
 * that says something new. Neither paths nor plans are more than SBP_PATHS_MOST before. Fails as
 * sbp_path_of_step. */
enum sbp_status sbp_mixture_add(struct sbp_mixture *mixture, const struct sbp_strategy *strategy,
                                bool *more, struct sbp_diag *diag) SBP_MUST_USE;

#endif
