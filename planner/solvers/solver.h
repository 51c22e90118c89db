/* Solvers of the pairwise problem, an entry of a table each (DESIGN.md, section 6).
 *
 * exact: variable elimination (bucket elimination in min-fill order), under a capacity with Pareto
 *        labels over cost and usage, cut by a Lagrangian bound. Optimal. Takes chains and graphs of
 *        small width; refuses, with the size, where tables or labels would need more than 1 GiB.
 * exhaustive: every assignment, depth first, the innermost variable vectorised. It prunes nothing,
 * so that its count of evaluations is the size of the space. Refuses above 10^12 assignments, or
 * 10^18 under a limit of time or evaluations. random: independent draws; by default up to 10^6,
 * fewer on large problems. coordinate-descent: sets one variable after the other to its best value
 * until nothing improves, restarted; by default 100 times without a limit of evaluations.
 * metropolis-hastings: changes one variable and accepts with min(1, exp(-beta * (new - current)))
 *        (AutoDDL, section 4.6); by default 2000 moves per value of the problem, 10^6 to 10^8,
 *        shared by 100 restarts. beta is 1 over a low quantile of the uphill changes after a first
 *        descent; restarts take 1, 4, 16 and 1/4 times it in turn.
 * dual: prices of usage over time and messages along edges bound the cost; choices are repaired and
 *        improved in neighbourhoods, small problems divided by branch and bound. Takes any size. It
 *        ends after a number of turns, or with uses_time at the limit of time or evaluations.
 *        Optimal where bound and cost meet within 1e-9 of the cost, or 1 where all costs are whole.
 *        Under an upper_bound near the optimum it may end with neither a choice nor a proof.
 * ilp: branch and bound over linear programs by GLPK, a column per value, products linearised per
 *        edge. Bounds are summed from dual values, less the round-off, so that GLPK's tolerances
 *        prove nothing; what is optimal is so within 1e-9 of the cost. Its evaluations are nodes.
 *        Refuses above 50,000 columns (values and pairs of values).
 *
 * Under a capacity the two local searches pay a price for excess, but keep only choices that fit.
 * Every solver is deterministic for a seed, and stops on time, evaluations or a flag with the best
 * choice so far.
 */
#ifndef SBP_PLANNER_SOLVERS_SOLVER_H
#define SBP_PLANNER_SOLVERS_SOLVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "planner/problem/problem.h"

enum sbp_plan_status {
    SBP_PLAN_OPTIMAL,    /* a choice that is proved to be best */
    SBP_PLAN_FEASIBLE,   /* a choice without a proof; lower_bound says how far it may be off */
    SBP_PLAN_INFEASIBLE, /* proved; shortfall says by how much the capacity is missed */
    SBP_PLAN_TIME_LIMIT, /* ended with neither a choice nor a proof that there is none */
    /* Proved: no choice that fits costs less than options->upper_bound, which is then lower_bound.
     */
    SBP_PLAN_NONE_CHEAPER,
};
const char *sbp_solver_status_name(enum sbp_plan_status status); /* "optimal", ... */

struct sbp_solver_options {
    uint64_t seed;           /* default 0 */
    double time_limit_s;     /* 0: none */
    int64_t max_evaluations; /* 0: none, but heuristics have the defaults above */
    int restarts;            /* of the local searches; 0: 100 */
    double mh_beta;          /* 0: chosen as stated above */
    bool uses_time;          /* dual: goes on until a limit ends it, not a number of turns */
    double upper_bound;      /* search only what costs less; 0 or INFINITY: all */
    const atomic_int *stop;  /* may be NULL; non-zero ends the search */
    /* Called now and then with the best so far; may be NULL. */
    void (*progress)(void *context, int64_t evaluations, double best, double elapsed_s);
    void *progress_context;
};

struct sbp_curve_point {
    int64_t evaluations;
    double elapsed_s, best;
};
#define SBP_CURVE_POINTS 256

struct sbp_solution {
    enum sbp_plan_status status;
    int *choice;         /* (variable_count), owned; NULL when there is none */
    double cost;         /* of choice; INFINITY when there is none */
    double lower_bound;  /* -INFINITY when the solver has none */
    double shortfall;    /* infeasible: least possible peak usage minus capacity, else 0 */
    int64_t evaluations; /* assignments priced or bounded one by one; of exact: table entries,
                            each the cost of a partial assignment */
    double wall_s;
    int curve_count; /* best so far over time, newest last; thinned when full */
    struct sbp_curve_point curve[SBP_CURVE_POINTS];
    bool stopped; /* ended by time, evaluations or the flag */
};
/* Accepts NULL and an empty solution. */
void sbp_solver_solution_free(struct sbp_solution *solution);

struct sbp_solver {
    const char *name, *summary;
    /* On success the caller frees the solution; infeasible and stopped are answers, not errors (see
     * solution->status). E_UNSUPPORTED: the solver does not take a problem of this size, which the
     * text says; E_MEMORY; ilp: E_BACKEND. */
    enum sbp_status (*solve)(const struct sbp_problem *problem,
                             const struct sbp_solver_options *options,
                             struct sbp_solution *solution, struct sbp_diag *diag);
};
/* The table, ended by a NULL name. */
extern const struct sbp_solver sbp_solvers[];
/* The solver of that name; NULL when there is none. */
const struct sbp_solver *sbp_solver_find(const char *name);

/* Solves by `solver`; NULL: by exact, or by coordinate descent where exact refuses. *used: the
 * solver that answered. Fails as it does. */
enum sbp_status sbp_solver_solve(const struct sbp_solver *solver, const struct sbp_problem *problem,
                                 const struct sbp_solver_options *options,
                                 struct sbp_solution *solution, const struct sbp_solver **used,
                                 struct sbp_diag *diag) SBP_MUST_USE;

/* The same of the reduced problem (planner/reduction/reduction.h), completed to a choice of the
 * whole; where exact refuses, dual solves. Bounds are those of the reduced problem, less round-off.
 */
enum sbp_status
sbp_solver_solve_reduced(const struct sbp_solver *solver, const struct sbp_problem *problem,
                         const struct sbp_solver_options *options, struct sbp_solution *solution,
                         const struct sbp_solver **used, struct sbp_diag *diag) SBP_MUST_USE;

/* Options for the rest of a search that took so much time and so many evaluations. Limits stay
 * above 0, which would mean no limit. */
static inline struct sbp_solver_options
sbp_solver_options_left(struct sbp_solver_options options, double elapsed_s, int64_t evaluations)
{
    if (options.time_limit_s > 0)
        options.time_limit_s =
            options.time_limit_s - elapsed_s > 1e-9 ? options.time_limit_s - elapsed_s : 1e-9;
    if (options.max_evaluations > 0)
        options.max_evaluations =
            options.max_evaluations > evaluations ? options.max_evaluations - evaluations : 1;
    return options;
}

#endif
