/* The parts of one sbp_inner_solve. cut_solve.c decides which spaces are searched and what is
 * proved, capacity_rounds.c goes from a space to a labelled plan that fits in memory, by solving it
 * under one capacity after the other, and space_solve.c solves a space under one capacity.
 * Internal.
 */
#ifndef SBP_PLANNER_INNER_CUT_SOLVE_PRIV_H
#define SBP_PLANNER_INNER_CUT_SOLVE_PRIV_H

#include <math.h>

#include "planner/inner/cut_solve.h"
#include "planner/limits.h"
#include "planner/space/space.h"

/* A labelled strategy and what it costs. */
struct sbp_candidate {
    struct sbp_strategy strategy;
    double objective_s;
    int64_t device_bytes;
};

struct sbp_inner_job {
    const struct sbp_cut *cut;
    struct sbp_arena *arena; /* holds the plan that is found */
    const struct sbp_solve_request *request;
    struct sbp_outcome *outcome;
    struct sbp_diag *diag;
    const struct sbp_megatron_mesh *megatron; /* NULL outside those spaces */
    struct sbp_arena scratch;
    struct sbp_candidate trial, best; /* best.objective_s is INFINITY before the first */
    struct sbp_candidate attained;    /* the first that was priced without a capacity; likewise */
    int64_t limit_bytes;
    struct sbp_class_limit *class_limit;
    double start_s;
    double least_bytes;             /* least memory that a compiled strategy was seen to need */
    double bound_s;                 /* the least bound of the spaces searched so far */
    int64_t most_table_evaluations; /* budget of one solve of reduced tables */
    bool is_misled;    /* the cheapest choice of the last space could not be labelled */
    double cells;      /* cells of tables over pairs of the last space */
    bool sketches;     /* the first plan that fits ends the search */
    bool is_for_bytes; /* the plan of least memory is looked for */
    bool bounds;       /* sbp_inner_is_bounded */
};

/* Cost of the best known plan, or what the request asks to beat: only cheaper plans are looked for.
 */
static inline double sbp_inner_goal_s(const struct sbp_inner_job *job)
{
    const double upper_s = job->request->upper_bound_s;
    const double best_s = job->best.objective_s;
    return upper_s > 0 && upper_s < best_s ? upper_s : best_s;
}

/* Whether a bound reaches the goal, so that nothing is left to look for. */
static inline bool sbp_inner_is_hopeless(const struct sbp_inner_job *job, double bound_s)
{
    return job->bounds && bound_s >= sbp_inner_goal_s(job) * (1 - SBP_INNER_ROUND_OFF);
}

/* Whether the plan costs at most 1 % more than a bound: other ways to look for one are not tried.
 */
static inline bool sbp_inner_is_good(const struct sbp_inner_job *job, double bound_s)
{
    return job->best.objective_s <= SBP_INNER_GOOD_RATIO * bound_s;
}

/* Capacity of the memory model: the limit less the reserve. */
static inline double sbp_inner_room_bytes(const struct sbp_inner_job *job)
{
    return job->request->puts_memory_off
               ? INFINITY
               : (double)(job->limit_bytes - job->cut->cluster->reserve_bytes);
}

/* Turns an interrupt while a space is built into an answer, as one during the search is. */
static inline enum sbp_status sbp_inner_note_interrupt(struct sbp_inner_job *job,
                                                       enum sbp_status status)
{
    job->outcome->stopped |= status == SBP_STOPPED;
    return status == SBP_STOPPED ? SBP_OK : status;
}

/* Decimal logarithm of the number of a space's strategies. */
double sbp_inner_space_size_log10(const struct sbp_space *space);

/* In the place of a capacity: asks for the choice of least memory by the space's model. */
#define SBP_FOR_BYTES (-1.0)

/* Solves a space under a capacity in bytes (INFINITY: none), or for SBP_FOR_BYTES. *choice:
 * (variables) from job->scratch, NULL where none was found. *bound_s: lower bound of the choices
 * that fit, or the goal where that is less; INFINITY: none fits, -INFINITY: nothing is proved. */
enum sbp_status sbp_inner_solve_space(struct sbp_inner_job *job, const struct sbp_space *space,
                                      double capacity_bytes, int **choice,
                                      double *bound_s) SBP_MUST_USE;

/* Closes, compiles and prices job->trial.strategy. E_INPUT without a text: the strategy is not
 * legal, for a transfer passes through a state that splits a class further than the space knows. */
enum sbp_status sbp_inner_price_trial(struct sbp_inner_job *job) SBP_MUST_USE;
/* Makes the priced trial the best where it is better and fits. */
void sbp_inner_keep_better(struct sbp_inner_job *job);

/* Searches the request's unlabelled space: raises *bound_s to its lower bound and keeps the best
 * plan in job->best. Sets *too_large where memory binds. E_INPUT: no legal strategy. */
enum sbp_status sbp_inner_search_space(struct sbp_inner_job *job, double *bound_s,
                                       bool *too_large) SBP_MUST_USE;

#endif
