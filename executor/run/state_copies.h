/* Copies of offloaded optimizer states on a device's lanes: while one bucket is updated, the next
 * one comes to the device and the one before goes back.
 *
 * The arena has memory for one bucket (costmodel/program/buckets.h). At a step's end activations
 * are over, and what they leave is room for another bucket or two: buckets take turns in these
 * places. A copy to the device is given as soon as its place is free, that is, as the copy back
 * from there has been given, and waits for it; updates wait for the copy of their bucket alone.
 * With one place a copy to the device still waits for the one back, not for the rank.
 */
#ifndef SBP_EXECUTOR_RUN_STATE_COPIES_H
#define SBP_EXECUTOR_RUN_STATE_COPIES_H

#include "executor/rank/rank_states.h"
#include "executor/run/device_lanes.h"

struct sbp_state_copies {
    struct sbp_run_lanes *lanes; /* borrowed, as all else is */
    struct sbp_rank *rank;
    const struct sbp_tasks *tasks;
    struct sbp_run_interval *intervals; /* (tasks) */
    int64_t next;                       /* the first task not looked at for copies to the device */
    int64_t due;                        /* the copy that updates are still to wait for; -1: none */
    int64_t back[SBP_RANK_MOST_PLACES]; /* the last copy back from a place; -1: none in this step */
    bool is_taken[SBP_RANK_MOST_PLACES];
};

/* Before a step: all that is borrowed is set. */
void sbp_state_copies_begin_step(struct sbp_state_copies *copies);
/* In place of a COPY_IN or COPY_OUT task, to which the rank has turned, on a device with lanes.
 * Fails as the device does. */
enum sbp_status sbp_state_copies_do(struct sbp_state_copies *copies, int64_t index,
                                    struct sbp_diag *diag) SBP_MUST_USE;
/* Before an UPDATE task: has it wait for its bucket's states. */
void sbp_state_copies_await(struct sbp_state_copies *copies);

#endif
