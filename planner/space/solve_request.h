/* How one solve goes: the user's request, and how the search around the solve narrows it to one
 * cut, one path or one part of a space. The search's own fields are 0 where it wants nothing.
 */
#ifndef SBP_PLANNER_SPACE_SOLVE_REQUEST_H
#define SBP_PLANNER_SPACE_SOLVE_REQUEST_H

#include "planner/plan/request.h"

struct sbp_path_weights; /* planner/paths/path_weights.h */
struct sbp_subspace;     /* planner/space/subspace.h */
struct sbp_price_cache;  /* planner/pricing/price_cache.h */

struct sbp_solve_request {
    struct sbp_request asked;
    bool puts_memory_off; /* a plan that does not fit is an answer (outcome->is_too_large) */
    double upper_bound_s; /* only plans that cost less are looked for; 0: any */
    double refuted_s; /* a space whose variables' least costs add up to this is refuted before its
                         memory is counted; 0: none is */
    const struct sbp_path_weights *weights; /* of the cut; NULL: of its longest path */
    const struct sbp_subspace *part;        /* strategies that are looked for; NULL: all */
    bool every_level;      /* ZeRO levels stay in domains even if others dominate them */
    bool labelled;         /* each axis is a family of its own
                              (planner/inner/label_branching_priv.h) */
    bool is_first_pass;    /* of space full, roles and rests that mostly are the best alone: no work
                              is repeated, and tensors rest as resting_layouts.c finds */
    bool draws_few;        /* some plan is looked for: meshes of many tuples keep to plain ones */
    bool batch_alone;      /* the batch takes all axes that divide it, the others repeat work */
    bool zero_is_free;     /* every layer's ZeRO level is chosen; else the cut's */
    bool nothing_hides;    /* gradients' synchronisation is taken to show in full */
    const int *batch_axes; /* (family) axes that split the batch in every layer; NULL: any may */
    struct sbp_price_cache *store; /* shared by the spaces of several cuts; NULL: none */
    double deadline_s;             /* by sbp_clock_s; 0: never, or not yet set */
};

/* Whether the user's flag asks to stop, or the deadline has passed. */
static inline bool sbp_solve_is_interrupted(const struct sbp_solve_request *request)
{
    const atomic_int *stop = request->asked.solver_options.stop;
    return (stop != NULL && *stop != 0) ||
           (request->deadline_s > 0 && sbp_clock_s() >= request->deadline_s);
}

#endif
