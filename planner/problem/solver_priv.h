/* What every solver needs around its search: the clock, the reasons to stop, the best so far.
 *
 * Internal to the planner's solvers.
 */
#ifndef SBP_PLANNER_PROBLEM_SOLVER_PRIV_H
#define SBP_PLANNER_PROBLEM_SOLVER_PRIV_H

#include "planner/problem/solver.h"

struct sbp_solver_run {
    const struct sbp_problem *problem;
    const struct sbp_solver_options *options;
    struct sbp_solution *solution; /* evaluations are counted there by the solver */
    int64_t most_evaluations;      /* 0: none */
    double upper_bound;            /* choices must cost less; INFINITY: any */
    int64_t check_at, check_every; /* evaluations at which the clock is read next, and between */
    double start_s, check_s, shown_s;
};

/* Empties *solution and gives it room for a choice. E_MEMORY. */
enum sbp_status sbp_solver_run_begin(struct sbp_solver_run *search,
                                     const struct sbp_problem *problem,
                                     const struct sbp_solver_options *options,
                                     struct sbp_solution *solution) SBP_MUST_USE;

/* The slow half of sbp_solver_run_over: reads flag, clock and budget, and reports progress. */
bool sbp_solver_run_check(struct sbp_solver_run *search);

/* Whether to stop now; sets solution->stopped. Cheap enough for every evaluation: the clock is read
 * about every 5 ms. */
static inline bool sbp_solver_run_over(struct sbp_solver_run *search)
{
    return search->solution->evaluations >= search->check_at && sbp_solver_run_check(search);
}

/* Takes a feasible choice when it costs less than the best so far and than the upper bound. */
void sbp_solver_run_offer(struct sbp_solver_run *search, const int *choice, double cost);

/* Prices the best choice anew, fills in wall_s and status: optimal when `proved` or when the cost
 * meets the lower bound, else feasible; without a choice infeasible, or nothing cheaper than the
 * upper bound, when `proved`, else stopped. */
void sbp_solver_run_end(struct sbp_solver_run *search, bool proved);

/* Sum of each table's least entry: a lower bound that costs one look at the problem. */
double sbp_solver_run_trivial_bound(const struct sbp_problem *problem);

/* The solvers behind the table. */
#define SBP_DECLARE_SOLVER(name)                                                                   \
    enum sbp_status name(const struct sbp_problem *problem,                                        \
                         const struct sbp_solver_options *options, struct sbp_solution *solution,  \
                         struct sbp_diag *diag) SBP_MUST_USE
SBP_DECLARE_SOLVER(sbp_exact_solve);
SBP_DECLARE_SOLVER(sbp_exhaustive_solve);
SBP_DECLARE_SOLVER(sbp_coordinate_descent_random);
SBP_DECLARE_SOLVER(sbp_coordinate_descent_solve);
SBP_DECLARE_SOLVER(sbp_metropolis_solve);
SBP_DECLARE_SOLVER(sbp_ilp_solve);
#undef SBP_DECLARE_SOLVER

#endif
