/* Sums of gradients beside the optimizer (Myelin, section V.C), on the lane of collectives.
 *
 * All sums of a step follow each other on a thread of their own from the first one on, in the order
 * of the stage's tasks, which its ranks share; the rank goes on with a bucket when the sum of its
 * chunk is over. Nothing else communicates meanwhile but messages.
 */
#ifndef SBP_EXECUTOR_RUN_SUM_LANE_H
#define SBP_EXECUTOR_RUN_SUM_LANE_H

#include "executor/actor/actor_run.h"
#include "executor/rank/rank.h"
#include "executor/run/run.h"

/* All sums of a step, of all ranks: actors that sum, and those that wait. */
struct sbp_sum_plan {
    struct sbp_actor_graph graph;
    int *sum, *wait; /* (ranks); -1: the rank has none */
};

/* tasks: (stages). Arrays are the arena's. Fails as the check of actors; E_MEMORY. */
enum sbp_status sbp_sum_plan_make(const struct sbp_step *step, const struct sbp_tasks *tasks,
                                  struct sbp_arena *arena, struct sbp_sum_plan *plan,
                                  struct sbp_diag *diag) SBP_MUST_USE;

/* A rank's sums of the step under way; zeros: none. */
struct sbp_sum_lane {
    struct sbp_actor_job job;
    struct sbp_actor_running *running; /* NULL: sums are done in their place */
    int wait;
    struct sbp_rank rank;       /* the same memory, with a channel of its own */
    struct sbp_channel channel; /* of the same log */
    const struct sbp_tasks *tasks;
    int64_t next;                       /* task that the lane looks at */
    struct sbp_run_interval *intervals; /* of tasks; of sums they are the lane's to write */
    double step_start_s;
};

/* At the first sum of a step, whose task is `first`: starts the lane. The rank leaves its channel
 * alone until the end. The lane stays where it is. */
enum sbp_status sbp_sum_lane_begin(struct sbp_sum_lane *lane, const struct sbp_sum_plan *plan,
                                   const struct sbp_rank *rank, const struct sbp_tasks *tasks,
                                   int64_t first, struct sbp_run_interval *intervals,
                                   double step_start_s, struct sbp_diag *diag) SBP_MUST_USE;
/* Waits until the next sum is over. Fails as a sum does, which the end has the reason of. */
enum sbp_status sbp_sum_lane_wait(struct sbp_sum_lane *lane, struct sbp_diag *diag) SBP_MUST_USE;
/* Ends with the status of what came between; returns it, or the lane's own failure. The channel,
 * the rank's, goes on behind the lane's calls. */
enum sbp_status sbp_sum_lane_end(struct sbp_sum_lane *lane, struct sbp_channel *channel,
                                 enum sbp_status status, struct sbp_diag *diag) SBP_MUST_USE;

#endif
