/* Messages between stages, on a lane of their own beside what a rank computes.
 *
 * A stage that sends copies its message into a free slot and goes on; one that receives copies it
 * out of the slot that a pull has filled meanwhile, and waits only where none is. Slots are those
 * of the cost model (costmodel/program/stage_layout.h): that nobody waits for ever with them is
 * proved before anything runs. Without a flush messages pass from one step to the next, for which
 * actors have no acts: the backend's own calls take them, which do not wait for who receives.
 *
 * Where arrivals decide what a stage does next (message-driven), its works are the actors: a
 * forward, or a backward, work can begin when its message is in a slot and a slot is free for what
 * it sends, and of both the backward one begins. They have no order, so that the proof holds for
 * all orders. Slots are then for all micro-batches in flight: nobody waits to send. Ranks of a
 * stage that communicate within works do them in one order, that of the first of them. Beside a
 * device, slots are in the host's memory then, where what has come is seen.
 */
#ifndef SBP_EXECUTOR_RUN_MESSAGE_LANE_H
#define SBP_EXECUTOR_RUN_MESSAGE_LANE_H

#include "costmodel/program/stage_layout.h"
#include "costmodel/program/task.h"
#include "executor/actor/actor_run.h"
#include "executor/comm/channel.h"
#include "executor/device/device.h"

/* Of a rank: forward, back. -1: it has none of them. Where arrivals decide, one actor takes a
 * message and passes the next one: the work between. */
struct sbp_message_actors {
    int pass[2], take[2];
};

/* All messages of a step, of all ranks. */
struct sbp_message_plan {
    struct sbp_actor_graph graph;
    struct sbp_message_actors *rank; /* (ranks) */
    int slots;                       /* of each side of a direction */
};

/* tasks: (stages). Arrays are the arena's. E_INPUT: stages wait for each other, and the text says
 * how; E_RANGE, E_MEMORY. */
enum sbp_status sbp_message_plan_make(const struct sbp_step *step, const struct sbp_tasks *tasks,
                                      struct sbp_arena *arena, struct sbp_message_plan *messages,
                                      struct sbp_diag *diag) SBP_MUST_USE;

/* Who takes a rank's messages while it computes, and slots for them. */
struct sbp_messenger {
    struct sbp_endpoint endpoint;        /* ops NULL: nobody, the backend's own calls take them */
    const struct sbp_device_ops *device; /* of the rank's buffers */
    int64_t slot_bytes;                  /* of slots, */
    int64_t behind_bytes;                /* and those of them behind the arena: as many, or none */
    void *slots;
};

/* The backend takes them if it lets a second thread communicate; where arrivals decide, the host of
 * one whose messages go by it. The same on all ranks. All is borrowed. */
void sbp_message_lane_find(struct sbp_messenger *messenger, const struct sbp_channel *channel,
                           const struct sbp_device_ops *device);
/* Makes room for slots; behind: the arena's end. E_MEMORY. Release after success or failure, before
 * the device. */
enum sbp_status sbp_message_lane_reserve(struct sbp_messenger *messenger, void *behind,
                                         struct sbp_diag *diag) SBP_MUST_USE;
void sbp_message_lane_release(struct sbp_messenger *messenger); /* zeroed is legal */

/* A rank's messages of the step under way, and how far it is. */
struct sbp_message_lane {
    const struct sbp_message_actors *actors;
    const struct sbp_tasks *tasks; /* of the rank's stage */
    struct sbp_channel *channel;
    const struct sbp_messenger *messenger;
    struct sbp_actor_job job;
    struct sbp_actor_running *running; /* NULL: the backend's own calls take the messages */
    struct sbp_carrier carrier;
    int64_t at;               /* the task that comes next in the list */
    int64_t done[2];          /* forward, backward works, where arrivals decide */
    int64_t high_water_bytes; /* the end of the highest slot that it touched */
    sbp_axes together;        /* axes whose ranks do these in one order */
    struct sbp_act act;       /* the work under way, */
    bool is_acting;           /* as long as it has not sent, */
    bool has_taken;           /* and whether it has its message */
};

/* Has a channel's messages taken by the lane, if there is a messenger and the rank has any; all
 * ranks begin and end a step together. All is borrowed. End with the status of what came between;
 * it returns that status or the lane's own failure. */
enum sbp_status sbp_message_lane_begin(struct sbp_message_lane *lane,
                                       const struct sbp_message_plan *messages,
                                       const struct sbp_tasks *tasks, struct sbp_channel *channel,
                                       const struct sbp_messenger *messenger,
                                       struct sbp_diag *diag) SBP_MUST_USE;
/* The rank's next work, or the step's end: tasks from *first to before *end. *first == *end: the
 * step is over. Waits for a message where arrivals decide; without a messenger the list is the
 * order. Fails as another rank or the lane does. */
enum sbp_status sbp_message_lane_next(struct sbp_message_lane *lane, int64_t *first, int64_t *end,
                                      struct sbp_diag *diag) SBP_MUST_USE;
enum sbp_status sbp_message_lane_end(struct sbp_message_lane *lane, enum sbp_status status,
                                     struct sbp_diag *diag) SBP_MUST_USE;

#endif
