/* Sums of gradients beside the backward pass, or beside the optimizer (Myelin, section V.C), on the
 * lane of collectives.
 *
 * Those of a step follow each other on a thread of their own, in the order of the stage's tasks,
 * which its ranks share. The rank gives it a gradient when it has formed it, or all of them at once
 * where buckets are summed, and waits where its tasks say. Nothing else communicates meanwhile but
 * messages, since tasks that do wait for the sums that stand before them.
 */
#ifndef SBP_EXECUTOR_RUN_SUM_LANE_H
#define SBP_EXECUTOR_RUN_SUM_LANE_H

#include "executor/actor/actor_run.h"
#include "executor/rank/rank.h"
#include "executor/run/run.h"

/* All sums of a step, of all ranks: actors that give a gradient, and those that wait for its sum.
 */
struct sbp_sum_plan {
    struct sbp_actor_graph graph;
    int *give, *wait; /* (ranks); -1: the rank has none */
    bool is_late;     /* for tests: sums begin some time after their turn */
};

/* tasks: (stages). Arrays are the arena's. Fails as the check of actors; E_MEMORY. */
enum sbp_status sbp_sum_plan_make(const struct sbp_step *step, const struct sbp_tasks *tasks,
                                  struct sbp_arena *arena, struct sbp_sum_plan *plan,
                                  struct sbp_diag *diag) SBP_MUST_USE;

/* A rank's sums of the step under way; zeros: none. */
struct sbp_sum_lane {
    struct sbp_actor_job job;
    struct sbp_actor_running *running; /* NULL: sums are done in their place */
    int give, wait;                    /* actors */
    bool is_late;                      /* as of the plan */
    int64_t given, waited;             /* tasks as far as their sums were given, waited for */
    double waited_s;                   /* seconds for which the rank waited */
    struct sbp_rank rank;              /* the same memory, with a channel of its own */
    struct sbp_channel channel;        /* of the same log */
    const struct sbp_tasks *tasks;
    int64_t next;                       /* task from which on the lane looks for a sum */
    struct sbp_run_interval *intervals; /* of tasks; of sums they are the lane's to write */
    double step_start_s;
};

/* At the first sum of a step: starts the lane, which stays where it is. */
enum sbp_status sbp_sum_lane_begin(struct sbp_sum_lane *lane, const struct sbp_sum_plan *plan,
                                   const struct sbp_rank *rank, const struct sbp_tasks *tasks,
                                   struct sbp_run_interval *intervals, double step_start_s,
                                   struct sbp_diag *diag) SBP_MUST_USE;
/* Leaves the sum of a task to the lane; of buckets, all that follow it as well. */
enum sbp_status sbp_sum_lane_give(struct sbp_sum_lane *lane, int64_t index,
                                  struct sbp_diag *diag) SBP_MUST_USE;
/* Waits until the sums of so many tasks from the first are over, and notes on the rank's post which
 * one it waits for. Fails as a sum does, which the end has the reason of. */
enum sbp_status sbp_sum_lane_wait(struct sbp_sum_lane *lane, int64_t after, struct sbp_post *post,
                                  struct sbp_diag *diag) SBP_MUST_USE;
/* Ends with the status of what came between; returns it, or the lane's own failure, or E_INTERNAL
 * where a sum was not given or not waited for. Counts the lane's calls to the rank's channel, and
 * what it reached of the arena to the rank's. */
enum sbp_status sbp_sum_lane_end(struct sbp_sum_lane *lane, struct sbp_rank *rank,
                                 enum sbp_status status, struct sbp_diag *diag) SBP_MUST_USE;

#endif
