/* One call of sbp_inner_solve, in parts: from a space to a choice (space_solve.c), from a choice to
 * a labelled and priced cut, again and again until one fits (capacity_rounds.c), and which spaces
 * are searched one after the other (cut_solve.c). Internal.
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
    struct sbp_arena *arena; /* of the plan that is found */
    const struct sbp_solve_request *request;
    struct sbp_outcome *outcome;
    struct sbp_diag *diag;
    const struct sbp_megatron_mesh *megatron; /* NULL outside those spaces */
    struct sbp_arena scratch;
    struct sbp_candidate trial, best; /* best.objective_s is INFINITY before the first */
    int64_t limit_bytes;
    struct sbp_class_limit *class_limit;
    double start_s;
    double least_bytes;             /* least memory that a compiled strategy was seen to need */
    double bound_s;                 /* over the spaces searched so far: the least of their bounds */
    int64_t most_table_evaluations; /* of one solve after messages; it may prove nothing more */
    bool is_misled;                 /* labels of the cheapest choice broke, in the last space, */
    double cells;                   /* which has so many of tables over pairs */
    bool sketches;                  /* any plan that fits will do */
    bool is_for_bytes;              /* the plan that needs least memory is looked for */
    bool bounds;                    /* what a space costs is never above what its plans cost */
};

/* Only plans that cost less are worth looking for. */
static inline double sbp_inner_goal_s(const struct sbp_inner_job *job)
{
    const double upper_s = job->request->upper_bound_s;
    const double best_s = job->best.objective_s;
    return upper_s > 0 && upper_s < best_s ? upper_s : best_s;
}

/* Whether a bound leaves nothing to look for. */
static inline bool sbp_inner_is_hopeless(const struct sbp_inner_job *job, double bound_s)
{
    return job->bounds && bound_s >= sbp_inner_goal_s(job) * (1 - SBP_INNER_ROUND_OFF);
}

/* Whether the plan is so near to a bound that it is not worth another way to look for one. */
static inline bool sbp_inner_is_near(const struct sbp_inner_job *job, double bound_s)
{
    return job->best.objective_s <= SBP_INNER_GOOD_RATIO * bound_s;
}

/* Of the memory model: what a device has beside the reserve. */
static inline double sbp_inner_room_bytes(const struct sbp_inner_job *job)
{
    return job->request->puts_memory_off
               ? INFINITY
               : (double)(job->limit_bytes - job->cut->cluster->reserve_bytes);
}

/* An interrupt while a space is built is an answer like one while it is searched. */
static inline enum sbp_status sbp_inner_note_interrupt(struct sbp_inner_job *job,
                                                       enum sbp_status status)
{
    job->outcome->stopped |= status == SBP_STOPPED;
    return status == SBP_STOPPED ? SBP_OK : status;
}

/* Of the number of a space's strategies. */
double sbp_inner_space_size_log10(const struct sbp_space *space);

/* Instead of a capacity: the choice that needs the least memory by the space's model. */
#define SBP_FOR_BYTES (-1.0)

/* Solves a space under a capacity (INFINITY: none), or for SBP_FOR_BYTES. *choice (job->scratch)
 * stays NULL without one; *bound_s: what no choice that fits can beat, or the goal where that is
 * less, INFINITY when none fits, -INFINITY when nothing is proved. */
enum sbp_status sbp_inner_solve_space(struct sbp_inner_job *job, const struct sbp_space *space,
                                      double capacity_bytes, int **choice,
                                      double *bound_s) SBP_MUST_USE;

/* Closes, compiles and prices job->trial.strategy. E_INPUT, with no text: it is not legal (a way
 * between two rests splits a class further than the space knows). */
enum sbp_status sbp_inner_price_trial(struct sbp_inner_job *job) SBP_MUST_USE;
/* Keeps the priced trial where it is the best so far and fits. */
void sbp_inner_keep_better(struct sbp_inner_job *job);

/* The unlabelled search of the request's space: raises *bound_s to what is proved of the space, and
 * keeps the best plan. *too_large: memory binds. E_INPUT: no legal strategy. */
enum sbp_status sbp_inner_search_space(struct sbp_inner_job *job, double *bound_s,
                                       bool *too_large) SBP_MUST_USE;

#endif
