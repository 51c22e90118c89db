/* Chooses the path, or mixture of paths, along which the plans of a cut are searched next.
 *
 * The plan that is cheapest along one path may be dear along another. The search begins with the
 * critical path that flops suggest and goes on with the critical paths of the plans that it finds.
 * The lengths of all known plans along all known paths form a matrix game; the paths' best answer
 * to it is the mixture that comes next (double oracle: McMahan, Gordon and Blum, ICML 2003). Every
 * mixture gives a lower bound of the step, and the bounds rise to the value of the game.
 */
#ifndef SBP_PLANNER_PATHS_PATH_MIXTURE_H
#define SBP_PLANNER_PATHS_PATH_MIXTURE_H

#include "planner/limits.h"
#include "planner/paths/path.h"

struct sbp_mixture {
    const struct sbp_cut *cut;
    struct sbp_arena *arena;
    struct sbp_path path; /* to search along now */
    bool is_played;       /* path is a mixture; else one known path */
    bool is_even;         /* the even mixture of these paths was tried */
    struct sbp_path best; /* the path with the highest bound so far */
    double best_s;        /* that bound, as the caller noted it */
    int path_count, plan_count;
    struct sbp_path known[SBP_PATHS_MOST + 1], times[SBP_PATHS_MOST + 1];
};

/* Starts with the expected critical path. Borrows the cut, which must not change, and the arena,
 * which holds all arrays. Fails as sbp_path_expected. */
enum sbp_status sbp_mixture_begin(const struct sbp_cut *cut, struct sbp_arena *arena,
                                  struct sbp_mixture *mixture, struct sbp_diag *diag) SBP_MUST_USE;
/* Notes that no plan costs less than bound_s along mixture->path. */
void sbp_mixture_note(struct sbp_mixture *mixture, double bound_s);
/* Called when the search along mixture->path found no plan. Sets the best mixture of the known
 * paths next, then their even mixture, along which plans are found where those of the best one
 * cannot be labelled; and *more, unless there is only one path or both were tried. E_MEMORY. */
enum sbp_status sbp_mixture_skip(struct sbp_mixture *mixture, bool *more) SBP_MUST_USE;
/* Adds the plan that was found along mixture->path and sets the next path; *more is false when the
 * next one would bring nothing new. Both counts must be at most SBP_PATHS_MOST before the call.
 * Fails as sbp_path_of_step. */
enum sbp_status sbp_mixture_add(struct sbp_mixture *mixture, const struct sbp_strategy *strategy,
                                bool *more, struct sbp_diag *diag) SBP_MUST_USE;

#endif
