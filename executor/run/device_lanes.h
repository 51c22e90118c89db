/* A rank's tasks on the lanes of its device (executor/device/device.h): which lane takes a task,
 * what it waits for there, what the rank is at while it waits for the device, and the times
 * afterwards.
 *
 * All of it does nothing on a device without lanes, where a task is over when its call returns.
 */
#ifndef SBP_EXECUTOR_RUN_DEVICE_LANES_H
#define SBP_EXECUTOR_RUN_DEVICE_LANES_H

#include "executor/comm/channel.h"
#include "executor/device/device.h"
#include "executor/run/run.h"

struct sbp_run_lanes {
    const struct sbp_device_lanes *ops; /* NULL: the device has none */
    struct sbp_channel *channel;        /* borrowed */
    const struct sbp_tasks *tasks;      /* of the stage; borrowed */
    int64_t at;                         /* the task at hand */
    int64_t given;                      /* tasks as far as their sums beside were given, */
    int64_t waited;                     /* and waited for */
    int64_t noted;                      /* that the post shows instead of it; -1: none */
};

/* channel: its post is read while the rank waits; it stays where it is. Fails as the device. Close
 * before the device, after success or failure. */
enum sbp_status sbp_run_lanes_open(struct sbp_run_lanes *lanes, const struct sbp_device_ops *device,
                                   struct sbp_channel *channel, const struct sbp_tasks *tasks,
                                   struct sbp_diag *diag) SBP_MUST_USE;
void sbp_run_lanes_close(struct sbp_run_lanes *lanes);
/* For a rank that fails: has nothing wait for the others any more, before memory is given back. */
void sbp_run_lanes_call_off(struct sbp_run_lanes *lanes);

void sbp_run_lanes_begin_step(struct sbp_run_lanes *lanes);
/* Around a task; a sum of gradients may be left beside. spent_s: of the rank's time between, which
 * is not the task's. behind: a task that was left beside, behind which it comes, too; -1: none. */
void sbp_run_lanes_begin(struct sbp_run_lanes *lanes, int64_t task, int64_t behind);
void sbp_run_lanes_end(struct sbp_run_lanes *lanes, bool beside, double spent_s,
                       struct sbp_run_interval *interval);
/* Has what follows wait for the sums beside of so many tasks from the first. */
void sbp_run_lanes_await(struct sbp_run_lanes *lanes, int64_t after);
/* Once the device has finished: fills the round's intervals, and adds them up. Of a sum beside and
 * of copies of states only the time counts for which the rank's own line stood still. */
void sbp_run_lanes_times(const struct sbp_run_lanes *lanes, enum sbp_round round,
                         struct sbp_run_interval *intervals, struct sbp_run_step *step);

#endif
