/* Solvers over the pairwise problem, one table entry each (design, section 6).
 *
 * exact: variable elimination (bucket elimination in min-fill order) with Pareto labels over cost
 * and usage under a capacity, cut by a Lagrangean bound; optimal on chains and on graphs of small
 *        width; refuses, with the size, where tables or labels would need more than 1 GiB.
 * exhaustive: every assignment, depth first, the innermost variable vectorised; prunes nothing, so
 *        that its count of evaluations is the size of the space; refuses above 10^12 assignments
 *        (10^18 under a limit).
 * random: independent draws; by default up to 10^6, fewer on large problems.
 * coordinate-descent: the best value of one variable at a time, to a fixed point, restarted; by
 *        default 100 times without a limit of evaluations.
 * metropolis-hastings: one variable changes, accepted with min(1, exp(-beta * (new - current)))
 *        (AutoDDL, section 4.6); by default 2000 moves a value of the problem, 10^6 to 10^8, shared
 *        by 100 restarts. beta is 1 over a low quantile of the uphill changes seen after a first
 *        descent; restarts take 1, 4, 16 and 1/4 times it in turn.
 * ilp: GLPK, one 0/1 variable per choice, products linearised per edge; refuses above 50,000
 * columns (choices and pairs of choices). Its evaluations are nodes of branch and bound. Under a
 * capacity the two local searches pay for excess and keep feasible choices only.
 *
 * All are deterministic for a seed, and stop on time, evaluations or a flag with the best so far.
 */
#ifndef SBP_PLANNER_PROBLEM_SOLVER_H
#define SBP_PLANNER_PROBLEM_SOLVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "planner/problem/problem.h"

enum sbp_plan_status {
    SBP_PLAN_OPTIMAL,    /* proved */
    SBP_PLAN_FEASIBLE,   /* a choice without a proof; lower_bound says how far it may be off */
    SBP_PLAN_INFEASIBLE, /* proved; shortfall says by how much the capacity is missed */
    SBP_PLAN_TIME_LIMIT, /* ended with neither a choice nor a proof that there is none */
    /* Proved: nothing costs less than options->upper_bound, feasible or not; lower_bound says so.
     */
    SBP_PLAN_NONE_CHEAPER,
};
const char *sbp_solver_status_name(enum sbp_plan_status status); /* "optimal", ... */

struct sbp_solver_options {
    uint64_t seed;           /* default 0 */
    double time_limit_s;     /* 0: none */
    int64_t max_evaluations; /* 0: none (heuristics then use their own default, stated there) */
    int restarts;            /* coordinate-descent, metropolis-hastings: 0 = default 100 */
    double mh_beta;          /* 0: chosen from the spread of costs */
    double upper_bound;      /* only choices that cost less are wanted; 0 or INFINITY: any */
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
    int64_t evaluations; /* assignments whose cost was formed, or bounded away one by one; of exact:
                            cells of its tables, each the cost of a partial assignment */
    double wall_s;
    int curve_count; /* best so far over time, newest last, thinned to fit */
    struct sbp_curve_point curve[SBP_CURVE_POINTS];
    bool stopped; /* by time, evaluations or the flag */
};
/* Accepts NULL and an empty solution. */
void sbp_solver_solution_free(struct sbp_solution *solution);

struct sbp_solver {
    const char *name, *summary;
    /* E_UNSUPPORTED (with a clear text) when the problem is beyond what the solver takes. The
     * answers infeasible and stopped are not errors: see solution->status. */
    enum sbp_status (*solve)(const struct sbp_problem *problem,
                             const struct sbp_solver_options *options,
                             struct sbp_solution *solution, struct sbp_diag *diag);
};
/* The table, ended by a NULL name; and a look-up by name (NULL when unknown). */
extern const struct sbp_solver sbp_solvers[];
const struct sbp_solver *sbp_solver_find(const char *name);

/* Solves by `solver`; NULL: exact, or coordinate descent where exact refuses. *used is who
 * answered. */
enum sbp_status sbp_solver_solve(const struct sbp_solver *solver, const struct sbp_problem *problem,
                                 const struct sbp_solver_options *options,
                                 struct sbp_solution *solution, const struct sbp_solver **used,
                                 struct sbp_diag *diag) SBP_MUST_USE;

/* What is left of them after so much time and so many evaluations: never nothing, which would mean
 * no limit. */
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
