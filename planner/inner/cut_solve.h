/* The inner search: of one cut of a step, the cheapest strategy, that is, how every layer is split.
 *
 * Inputs: a cut (model and cluster, cut in time) and a request. A space of strategies is built
 * (planner/space), priced as a pairwise problem (planner/pricing) and solved; the choice gets
 * labels (planner/labels), is compiled and priced exactly. The result holds the strategy and a
 * lower bound of the space. A plan is `optimal` only if its exact price equals that bound, which is
 * of the unlabelled space (DESIGN.md, section 6).
 */
#ifndef SBP_PLANNER_INNER_CUT_SOLVE_H
#define SBP_PLANNER_INNER_CUT_SOLVE_H

#include "costmodel/program/cut.h"
#include "planner/space/solve_request.h"

struct sbp_pool_plan; /* planner/inner/solution_pool.h */

struct sbp_outcome {
    enum sbp_plan_status status;
    double objective_s; /* of the plan found; INFINITY: none was found */
    double strategy_s; /* of the strategy, which may cost more than was asked for; INFINITY: none */
    struct sbp_strategy strategy; /* the best that was found; its arrays are the caller's arena's */
    double attained_s; /* of the strategy that attains the bound without a limit of memory by
                          modelled prices; INFINITY: none, or it is `strategy` */
    struct sbp_strategy attained; /* that strategy, whether or not it fits; its arrays likewise */
    double lower_bound_s;         /* of the objective over the space; -INFINITY: none */
    const char *unbounded;        /* why the request allows no bound; NULL: it allows one */
    int64_t evaluations;
    double wall_s;
    bool stopped;
    bool left_out;        /* whole search: some strategies needed more memory than the search has;
                             the lower bound holds over them, too */
    bool is_plain;        /* on large meshes plain splits alone were looked at
                             (planner/space/space.h); the lower bound holds over all */
    bool is_narrow;       /* of space full, larger meshes were searched without repeated work
                             (sbp_space_opens): bound and proof hold for the rest alone */
    bool memory_binds;    /* the cheapest strategy without a memory limit did not fit */
    bool is_too_large;    /* with puts_memory_off: the strategy does not fit, so that it is no plan;
                             lower_bound_s then holds without the limit */
    int64_t needed_bytes; /* no plan: memory per device of least_memory; where that is NULL, the
                             least that a strategy needs by the memory model */
    double least_bytes;   /* no plan, whole search: no candidate that was seen needs less */
    const struct sbp_pool_plan *least_memory; /* no plan, whole search: the plan that needs
                                                 needed_bytes, in the plan's arena; NULL: no
                                                 strategy can be labelled */
    const char *algorithm;                    /* the solver that answered */
    double space_size_log10;                  /* decimal logarithm of the number of strategies */
    int curve_count;
    struct sbp_curve_point curve[SBP_CURVE_POINTS]; /* best cost over time */
};

/* Searches the strategies of a cut. Infeasible and stopped are answers: SBP_OK with
 * outcome->status. outcome->strategy is usable only if outcome->strategy_s is finite. E_INPUT: the
 * space holds no legal strategy because sizes do not divide (named), or a fix is wrong;
 * E_UNSUPPORTED: the solver refuses the problem. */
enum sbp_status sbp_inner_solve(const struct sbp_cut *cut, const struct sbp_solve_request *request,
                                struct sbp_arena *arena, struct sbp_outcome *outcome,
                                struct sbp_diag *diag) SBP_MUST_USE;

/* As sbp_inner_solve, but only over plans whose layers all split the batch by as many axes as
 * divide it, the outermost first: quick, mostly legal and rarely the best. The outcome has no
 * bound. A space without such plans is an answer, too. */
enum sbp_status sbp_inner_solve_aligned(const struct sbp_cut *cut,
                                        const struct sbp_solve_request *request,
                                        struct sbp_arena *arena, struct sbp_outcome *outcome,
                                        struct sbp_diag *diag) SBP_MUST_USE;

/* As sbp_inner_solve, but for the plan of least memory by the memory model, whatever it costs; once
 * compiled it may need more than another plan. The outcome has no bound. */
enum sbp_status sbp_inner_solve_for_bytes(const struct sbp_cut *cut,
                                          const struct sbp_solve_request *request,
                                          struct sbp_arena *arena, struct sbp_outcome *outcome,
                                          struct sbp_diag *diag) SBP_MUST_USE;

/* Lower bounds over the request's space, without a search (some milliseconds). Where prices are no
 * bounds (sbp_inner_is_bounded), both times are -INFINITY. From the request's refuted_s on, only
 * time_s is worked out: bound_s is the same and least_bytes is 0. E_INPUT: no legal strategy;
 * SBP_STOPPED. */
struct sbp_inner_bound {
    double bound_s;          /* under the memory limit; INFINITY: nothing fits */
    double time_s;           /* without a memory limit */
    double least_bytes;      /* of a device, by the memory model, with the reserve */
    bool is_plain;           /* as in sbp_outcome: least_bytes is then no bound */
    double space_size_log10; /* as in sbp_outcome */
};
enum sbp_status sbp_inner_bound(const struct sbp_cut *cut, const struct sbp_solve_request *request,
                                struct sbp_inner_bound *bound, struct sbp_diag *diag) SBP_MUST_USE;

/* *bytes: least memory of a device, with the reserve, that any plan of the request's space needs.
 * Takes working sets into account (planner/pricing/working_set.h), which sbp_inner_bound does not.
 * The request's refuted_s is 0. E_INPUT: no legal strategy; SBP_STOPPED. */
enum sbp_status sbp_inner_least_bytes(const struct sbp_cut *cut,
                                      const struct sbp_solve_request *request, double *bytes,
                                      struct sbp_diag *diag) SBP_MUST_USE;

/* Whether no price of the request's space is above the price of its plan: only then do bounds hold.
 * They do not with boxing=path, cyclic schedules and weights with owners. */
bool sbp_inner_is_bounded(const struct sbp_cut *cut, const struct sbp_solve_request *request);

/* Makes the pairwise problem of a request, with memory as the search models it, for other solvers.
 * The caller frees it by sbp_problem_free. E_USAGE: the space is not one problem; SBP_STOPPED. */
enum sbp_status sbp_inner_problem(const struct sbp_cut *cut,
                                  const struct sbp_solve_request *request,
                                  struct sbp_problem *problem, struct sbp_diag *diag) SBP_MUST_USE;

#endif
