/* Who does which work in a pyramid: cyclic data parallelism with model parallelism on N (N + 1) / 2
 * groups of devices (Fournier and Oyallon, section 4.3).
 *
 * Stage j of N has N - j groups, from 0, each of which has the stage's weights and holds one
 * micro-batch at a time. A micro-batch is on a stage from its forward pass to its backward pass,
 * 2 (N - j) time steps, and the next one follows two time steps later: so a group that has taken
 * one back goes on with the (N - j)th one behind it, in the time step that follows, and no other
 * assignment does with as few groups. Counted over all steps, group k of a stage does the
 * micro-batches k, k + (N - j), ...; in which of them of a step, repeats after
 * sbp_pyramid_period steps.
 *
 * Every group updates once a step, between a micro-batch that reads the older weights and one that
 * reads the newer ones, so that it has one version of them. A stage's sum of gradients goes from
 * each micro-batch of a step to the next, which is the next group's. The group of the last one has
 * it finished, and passes it to the others, from each to the next in the order in which they
 * update. A group alone hands nothing on. Groups are numbered over all stages, those of stage 0
 * first.
 */
#ifndef SBP_COSTMODEL_TIMELINE_PYRAMID_H
#define SBP_COSTMODEL_TIMELINE_PYRAMID_H

#include "costmodel/timeline/replicas.h"

static inline int64_t sbp_pyramid_groups(int64_t stages)
{
    return stages * (stages + 1) / 2;
}
/* Groups of a stage, and the first of them. */
static inline int sbp_pyramid_size(int stages, int stage)
{
    return stages - stage;
}
static inline int sbp_pyramid_first(int stages, int stage)
{
    return stage * stages - stage * (stage - 1) / 2;
}
/* The stage of a group. */
int sbp_pyramid_stage(int stages, int group);
/* The group that does a micro-batch, counted over all steps, on a stage. */
static inline int sbp_pyramid_group(int stages, int stage, int64_t micro_batch)
{
    return sbp_pyramid_first(stages, stage) + (int)(micro_batch % sbp_pyramid_size(stages, stage));
}
/* Steps after which the groups of a stage do the same micro-batches again. */
int sbp_pyramid_period(int stages, int stage);

/* The update (its step) whose weights a micro-batch, counted over all steps, is the first of its
 * group to read on a stage; false: its group has read them before. Steps below 0 are of before the
 * first. */
bool sbp_pyramid_updates(enum sbp_schedule schedule, int stages, int stage, int64_t micro_batch,
                         int64_t *step);

/* The sum that a group takes and passes with a micro-batch of a step (late: false), both around its
 * backward pass, and with the step's update (late), as of replicas. That which finishes the sum
 * passes it once, behind its backward pass. */
struct sbp_sum_route sbp_pyramid_take(enum sbp_schedule schedule, int stages, int group,
                                      int64_t step, int micro_batch, bool late);
struct sbp_sum_route sbp_pyramid_pass(enum sbp_schedule schedule, int stages, int group,
                                      int64_t step, int micro_batch, bool late);

#endif
