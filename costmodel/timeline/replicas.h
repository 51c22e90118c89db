/* How sums of gradients travel among the replicas of cyclic data parallelism (Fournier and Oyallon,
 * section 4.2).
 *
 * N stages have all N chunks of the model each, and each does one micro-batch of a step: the first
 * stage the last one, so that whoever hears of all others is the last to be through. A chunk's sum
 * begins with the first micro-batch and goes from each to the next, which adds its own gradient.
 * The last one has it finished, and it goes to all others, from each to the next as well.
 *
 * Whether a stage reads the newest weights of a chunk says when it updates: before its forward pass
 * (fresh), or behind its backward pass of the next step. Stages that are fresh are the last ones in
 * the order of micro-batches, and need the sum first. So the finished sum takes two ways: from the
 * last stage to the first one that is fresh and on from there, and to the first of those that are
 * stale. On each way every message is there when its receiver updates, two time steps after its
 * sender. Stages and chunks count from 0.
 */
#ifndef SBP_COSTMODEL_TIMELINE_REPLICAS_H
#define SBP_COSTMODEL_TIMELINE_REPLICAS_H

#include "costmodel/timeline/timeline.h"

/* A message with a chunk's sum. */
struct sbp_sum_route {
    int peer;      /* stage that it comes from or goes to; -1: there is no such message */
    bool finished; /* all micro-batches are in it */
};

/* The micro-batch of a step that a stage does, and the other way round. */
static inline int sbp_replicas_micro_batch(int stages, int stage)
{
    return stages - 1 - stage;
}

/* Whether a stage updates a chunk before its forward pass, which reads the newest weights; else it
 * does so behind the backward pass of the next step. */
bool sbp_replicas_update_first(enum sbp_schedule schedule, int stages, int chunk, int stage);

/* The message that a stage takes before its backward pass (late: false), the sum so far, or before
 * its update (late), the finished one. */
struct sbp_sum_route sbp_replicas_take(enum sbp_schedule schedule, int stages, int chunk, int stage,
                                       bool late);
/* The message that it passes behind its backward pass (late: false), the sum so far, or once it has
 * taken the finished one (late), that. The stage that finishes the sum passes it twice, both behind
 * its backward pass. In all, stages pass a sum `stages` times not late and stages - 2 times late.
 */
struct sbp_sum_route sbp_replicas_pass(enum sbp_schedule schedule, int stages, int chunk, int stage,
                                       bool late);

#endif
