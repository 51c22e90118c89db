/* Messages between stages, on a lane of their own beside what a rank computes.
 *
 * A stage that sends copies its message into a free slot and goes on; one that receives copies it
 * out of the slot that a pull has filled meanwhile, and waits only where none is. Slots are what is
 * sent ahead: as few as the order of the tasks of all stages allows, at least two a direction,
 * which is found out, with proof that nobody waits for ever, before anything runs.
 */
#ifndef SBP_EXECUTOR_RUN_MESSAGE_LANE_H
#define SBP_EXECUTOR_RUN_MESSAGE_LANE_H

#include "costmodel/program/task.h"
#include "executor/actor/actor_run.h"
#include "executor/comm/channel.h"

/* Of a rank: forward, back. -1: it has none of them. */
struct sbp_message_actors {
    int pass[2], take[2];
};

/* All messages of a step, of all ranks. */
struct sbp_message_plan {
    struct sbp_actor_graph graph;
    struct sbp_message_actors *rank; /* (ranks) */
    int slots;                       /* of each side of a direction */
};

/* tasks: (stages). real_bytes: of an element of a message. Arrays are the arena's. E_INPUT: stages
 * wait for each other whatever the slots, and the text says how; E_RANGE, E_MEMORY. */
enum sbp_status sbp_message_plan_make(const struct sbp_step *step, const struct sbp_tasks *tasks,
                                      int64_t real_bytes, struct sbp_arena *arena,
                                      struct sbp_message_plan *messages,
                                      struct sbp_diag *diag) SBP_MUST_USE;

/* A rank's messages of the step under way. */
struct sbp_message_lane {
    const struct sbp_message_actors *actors;
    struct sbp_actor_job job;
    struct sbp_actor_running *running; /* NULL: the backend's own calls take the messages */
    struct sbp_carrier carrier;
};

/* Has a channel's messages taken by the lane, where its backend lets a second thread communicate
 * and the rank has any; all ranks begin and end a step together. End with the status of what came
 * between; it returns that status or the lane's own failure. */
enum sbp_status sbp_message_lane_begin(struct sbp_message_lane *lane,
                                       const struct sbp_message_plan *messages,
                                       struct sbp_channel *channel,
                                       struct sbp_diag *diag) SBP_MUST_USE;
enum sbp_status sbp_message_lane_end(struct sbp_message_lane *lane, struct sbp_channel *channel,
                                     enum sbp_status status, struct sbp_diag *diag) SBP_MUST_USE;

#endif
