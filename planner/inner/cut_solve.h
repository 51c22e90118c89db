/* The search: a model and a cluster in, the cheapest labelled strategy out.
 *
 * space (which strategies) -> pairwise problem -> solver -> labels -> exact price of the compiled
 * program. A plan is `optimal` only if its labelled price equals the bound of the unlabelled
 * search.
 */
#ifndef SBP_PLANNER_INNER_CUT_SOLVE_H
#define SBP_PLANNER_INNER_CUT_SOLVE_H

#include "costmodel/program/cut.h"
#include "planner/space/solve_request.h"

struct sbp_pool_plan; /* planner/inner/solution_pool.h */

struct sbp_outcome {
    enum sbp_plan_status status;
    double objective_s; /* of the plan found, INFINITY without one */
    double strategy_s;  /* of the strategy, which may cost more than was asked for; INFINITY: there
                           is none */
    struct sbp_strategy strategy; /* the best that was found; its arrays are the caller's arena's */
    double lower_bound_s;         /* of the objective over the space; -INFINITY: none */
    const char *unbounded;        /* why there is none, where the request is why; NULL */
    int64_t evaluations;
    double wall_s;
    bool stopped;
    bool memory_binds;    /* what is cheapest without a limit of memory did not fit */
    bool is_too_large;    /* the strategy does not fit, where the request puts that off: it is no
                             plan, and lower_bound_s holds without the limit */
    int64_t needed_bytes; /* no plan: least memory per device that a strategy was seen to need */
    double least_bytes;   /* no plan, of a whole search: no candidate that was seen needs less */
    const struct sbp_pool_plan
        *least_memory;       /* no cut, of a whole search: that needs needed_bytes, in
                        the plan's arena; NULL: no strategy's labels go together */
    const char *algorithm;   /* the solver that answered */
    double space_size_log10; /* of the number of unlabelled strategies */
    int curve_count;
    struct sbp_curve_point curve[SBP_CURVE_POINTS];
};

/* Searches the strategies of a cut. Infeasible and stopped are answers: SBP_OK with
 * outcome->status; then outcome->strategy is unusable, unless outcome->strategy_s is finite.
 * E_INPUT: the space holds no legal strategy because sizes do not divide (named), or a fix is
 * wrong; E_UNSUPPORTED: the solver refuses the problem. */
enum sbp_status sbp_inner_solve(const struct sbp_cut *cut, const struct sbp_solve_request *request,
                                struct sbp_arena *arena, struct sbp_outcome *outcome,
                                struct sbp_diag *diag) SBP_MUST_USE;

/* As sbp_inner_solve, but only plans whose layers all split the batch by as many axes as divide it,
 * the outermost first: quick, mostly legal and rarely the best. Bounds nothing. A space without
 * such plans is an answer, too. */
enum sbp_status sbp_inner_solve_aligned(const struct sbp_cut *cut,
                                        const struct sbp_solve_request *request,
                                        struct sbp_arena *arena, struct sbp_outcome *outcome,
                                        struct sbp_diag *diag) SBP_MUST_USE;

/* As sbp_inner_solve, but for the plan that needs the least memory by the memory model, whatever it
 * costs; as compiled it may need more than another one. Bounds nothing. */
enum sbp_status sbp_inner_solve_for_bytes(const struct sbp_cut *cut,
                                          const struct sbp_solve_request *request,
                                          struct sbp_arena *arena, struct sbp_outcome *outcome,
                                          struct sbp_diag *diag) SBP_MUST_USE;

/* What no plan of the request's space can beat, without a search: bound_s under the memory limit
 * (INFINITY: memory alone rules all of it out), time_s without one, least_bytes that a device needs
 * by the model, reserve included. A few milliseconds. -INFINITY where prices bound nothing
 * (boxing=path, cyclic schedules, weights with owners). E_INPUT: no legal strategy; SBP_STOPPED.
 * From the request's refuted_s on, which is of what is bounded alone, time_s is all that is found
 * out: bound_s is that, least_bytes 0. */
struct sbp_inner_bound {
    double bound_s, time_s, least_bytes;
    double space_size_log10; /* as in sbp_outcome */
};
enum sbp_status sbp_inner_bound(const struct sbp_cut *cut, const struct sbp_solve_request *request,
                                struct sbp_inner_bound *bound, struct sbp_diag *diag) SBP_MUST_USE;

/* What no plan of the request's space needs less memory than on a device, reserve included, by a
 * closer look than sbp_inner_bound takes (planner/pricing/working_set.h). The request's
 * refuted_s is 0. E_INPUT: no legal strategy; SBP_STOPPED. */
enum sbp_status sbp_inner_least_bytes(const struct sbp_cut *cut,
                                      const struct sbp_solve_request *request, double *bytes,
                                      struct sbp_diag *diag) SBP_MUST_USE;

/* Whether prices of the request's space are never above those of its plans. */
bool sbp_inner_is_bounded(const struct sbp_cut *cut, const struct sbp_solve_request *request);

/* The pairwise problem of a request alone, memory as the search models it: for other solvers.
 * E_USAGE: the space is not one problem; SBP_STOPPED. */
enum sbp_status sbp_inner_problem(const struct sbp_cut *cut,
                                  const struct sbp_solve_request *request,
                                  struct sbp_problem *problem, struct sbp_diag *diag) SBP_MUST_USE;

#endif
