/* The frame of every solver's search: it reads the clock, decides when to stop, and keeps the best
 * choice so far. Also declares the solvers behind the table. For solvers alone
 * (planner/solvers/solver.h).
 */
#ifndef SBP_PLANNER_SOLVERS_SOLVER_RUN_H
#define SBP_PLANNER_SOLVERS_SOLVER_RUN_H

#include "planner/solvers/solver.h"

struct sbp_solver_run {
    const struct sbp_problem *problem;
    const struct sbp_solver_options *options;
    struct sbp_solution *solution; /* the solver counts evaluations here */
    int64_t most_evaluations;      /* 0: none */
    double upper_bound;            /* choices must cost less; INFINITY: any */
    int64_t check_at,
        check_every; /* evaluations at the next look at the clock, and between looks */
    double start_s, check_s, shown_s;
};

/* Starts the clock, empties *solution and allocates its choice. E_MEMORY. */
enum sbp_status sbp_solver_run_begin(struct sbp_solver_run *search,
                                     const struct sbp_problem *problem,
                                     const struct sbp_solver_options *options,
                                     struct sbp_solution *solution) SBP_MUST_USE;

/* Reads flag, clock and budget, and reports progress: the slow half of sbp_solver_run_over. */
bool sbp_solver_run_check(struct sbp_solver_run *search);

/* Whether to stop now; then sets solution->stopped. Cheap enough for every evaluation, because the
 * clock is read only about every 5 ms. */
static inline bool sbp_solver_run_over(struct sbp_solver_run *search)
{
    return search->solution->evaluations >= search->check_at && sbp_solver_run_check(search);
}

/* Takes a feasible choice when it costs less than the best so far and than the upper bound. */
void sbp_solver_run_offer(struct sbp_solver_run *search, const int *choice, double cost);

/* Prices the best choice anew and fills in wall_s and status. With a choice: optimal when `proved`
 * or when its cost meets the lower bound, else feasible. Without one: when `proved` infeasible, or
 * none cheaper under an upper bound; else time limit. */
void sbp_solver_run_end(struct sbp_solver_run *search, bool proved);

/* Passes a status on; on failure frees the solution and says of whom memory is out. */
enum sbp_status sbp_solver_run_result(enum sbp_status status, const char *solver,
                                      struct sbp_solution *solution,
                                      struct sbp_diag *diag) SBP_MUST_USE;

/* Sum of the least entries of all tables: a lower bound. */
double sbp_solver_run_trivial_bound(const struct sbp_problem *problem);

#define SBP_DECLARE_SOLVER(name)                                                                   \
    enum sbp_status name(const struct sbp_problem *problem,                                        \
                         const struct sbp_solver_options *options, struct sbp_solution *solution,  \
                         struct sbp_diag *diag) SBP_MUST_USE
SBP_DECLARE_SOLVER(sbp_exact_solve);
SBP_DECLARE_SOLVER(sbp_exhaustive_solve);
SBP_DECLARE_SOLVER(sbp_coordinate_descent_random);
SBP_DECLARE_SOLVER(sbp_coordinate_descent_solve);
SBP_DECLARE_SOLVER(sbp_metropolis_solve);
SBP_DECLARE_SOLVER(sbp_dual_solve);
SBP_DECLARE_SOLVER(sbp_ilp_solve);
#undef SBP_DECLARE_SOLVER

#endif
