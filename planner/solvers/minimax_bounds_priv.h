/* Mixtures of several problems that bound what a choice costs along the worst of them.
 *
 * The cheapest choices of mixtures and what they cost along each path are a game, whose shares make
 * the next mixture (double oracle: McMahan, Gordon and Blum, ICML 2003). Internal to minimax.
 */
#ifndef SBP_PLANNER_SOLVERS_MINIMAX_BOUNDS_PRIV_H
#define SBP_PLANNER_SOLVERS_MINIMAX_BOUNDS_PRIV_H

#include "planner/solvers/bucket_elimination_priv.h"

/* The problem of which each path has a share; of the paths' variables and edges. E_MEMORY; the
 * problem may be freed either way. */
enum sbp_status sbp_minimax_mix(const struct sbp_problem *path, int paths, const double *share,
                                struct sbp_problem *mixed) SBP_MUST_USE;

struct sbp_minimax_mixtures {
    int most, count;
    double *share; /* (most, paths) of those that are kept: the last to raise the bound */
    double least;  /* of the best: no choice costs less along all paths */
};

/* Finds up to `most` mixtures, until one costs `enough` or they get no better. Arrays come out of
 * the arena. *more is cleared where the search is over. E_MEMORY, E_UNSUPPORTED as
 * sbp_elimination_build. */
enum sbp_status sbp_minimax_find_mixtures(const struct sbp_problem *path, int paths, double enough,
                                          double most_bytes, struct sbp_solver_run *search,
                                          struct sbp_arena *arena,
                                          struct sbp_minimax_mixtures *mixtures, bool *more,
                                          struct sbp_diag *diag) SBP_MUST_USE;

#endif
