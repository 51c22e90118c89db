/* Every labelled strategy of a small model on a small mesh, by plain recursion, without the
 * planner.
 *
 * Follows the catalogue's roles and the design's rules alone: every choosing operator gives every
 * axis a role, every output rests split, a partial output in any split that the space allows,
 * repeats keep their site's counts, users of one weight split it alike, and the axes that split a
 * class anywhere divide it. Of meshes that differ only in the order of interchangeable axes one is
 * visited.
 */
#ifndef SBP_TESTS_LABELLED_H
#define SBP_TESTS_LABELLED_H

#include "planner/plan/plan.h"
#include "planner/inner/cut_solve.h"

struct labelled_best {
    double objective_s;         /* least within the memory limit; INFINITY when none fits */
    double unlimited_s;         /* least whatever the memory */
    int64_t device_bytes;       /* of the cheapest that fits */
    int64_t least_device_bytes; /* of any strategy */
    int64_t visited;            /* legal strategies */
    bool gave_up;               /* there are more than `most` */
};

/* Legal strategies of the request's space, counted up to most + 1. */
int64_t labelled_count(const struct sbp_plan *plan, const struct sbp_request *request,
                       int64_t most);

/* Closes, compiles and prices them all. E_INTERNAL: the strategy module refuses one of them. */
enum sbp_status labelled_search(const struct sbp_plan *plan, const struct sbp_request *request,
                                int64_t most, struct labelled_best *best,
                                struct sbp_diag *diag) SBP_MUST_USE;

/* The same, and shows each of them with what its step takes. */
typedef void labelled_visit(void *context, const struct sbp_strategy *strategy,
                            const struct sbp_step_totals *totals);
enum sbp_status labelled_each(const struct sbp_plan *plan, const struct sbp_request *request,
                              int64_t most, labelled_visit *visit, void *context,
                              struct labelled_best *best, struct sbp_diag *diag) SBP_MUST_USE;

/* As labelled_search, in space full, over more: sums also go on, and outputs rest whole or partial,
 * where the space takes it that this cannot pay (planner/space/resting_layouts.c). */
enum sbp_status labelled_search_wide(const struct sbp_plan *plan, const struct sbp_request *request,
                                     int64_t most, struct labelled_best *best,
                                     struct sbp_diag *diag) SBP_MUST_USE;

/* Whether a strategy is one of them (in any order of axes): E_INPUT says what it breaks. */
enum sbp_status labelled_check(const struct sbp_plan *plan, const struct sbp_request *request,
                               const struct sbp_strategy *strategy,
                               struct sbp_diag *diag) SBP_MUST_USE;

#endif
