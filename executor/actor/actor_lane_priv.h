/* Lanes of a running rank: threads with mailboxes. */
#ifndef SBP_EXECUTOR_ACTOR_ACTOR_LANE_PRIV_H
#define SBP_EXECUTOR_ACTOR_ACTOR_LANE_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "executor/actor/actor_run.h"

/* Messages for a lane, and its sleep. As large as all messages that can be under way. */
struct sbp_actor_mailbox {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct sbp_actor_message *message; /* (room) */
    int count, room;
    atomic_bool poked; /* there is something to look at: messages, a message of another rank, the
                          end; read without the lock by who is awake */
    bool asleep;
};

struct sbp_actor_lane_run {
    struct sbp_actor_running *running;
    enum sbp_actor_lane id;
    struct sbp_actor_mailbox mailbox;
    struct sbp_actor_message *taken; /* (room of the mailbox) out of it */
    int64_t at;                      /* in the lane's order */
    bool used;                       /* the rank has something to do on it */
};

struct sbp_actor_running {
    const struct sbp_actor_job *job;
    struct sbp_arena arena;
    struct sbp_actor_state state;
    struct sbp_actor_lane_run lane[SBP_LANES];
    pthread_t thread[SBP_LANES];
    bool started[SBP_LANES];
    atomic_bool stopped;  /* an act failed, or a thread could not start */
    pthread_mutex_t lock; /* of what follows: the first failure */
    enum sbp_status status;
    struct sbp_diag diag;
};

/* Room for the messages that can be under way to a lane. E_MEMORY. */
enum sbp_status sbp_actor_lane_open(struct sbp_actor_running *running,
                                    enum sbp_actor_lane id) SBP_MUST_USE;
void sbp_actor_lane_close(struct sbp_actor_lane_run *lane);

/* Delivers what is in the mailbox. False: the run has stopped. */
bool sbp_actor_lane_take(struct sbp_actor_lane_run *lane);
/* Waits until the mailbox is poked; at most so long, 0: for ever. */
void sbp_actor_lane_wait(struct sbp_actor_lane_run *lane, int64_t most_ns);
/* Wakes a lane that waits; by any thread. */
void sbp_actor_lane_poke(struct sbp_actor_lane_run *lane);
/* sbp_actor_post of a lane; context is the lane that posts. */
void sbp_actor_lane_post(void *context, enum sbp_actor_lane to, struct sbp_actor_message message);

/* Ends all lanes of the rank; the first failure counts. */
void sbp_actor_lane_fail(struct sbp_actor_running *running, enum sbp_status status,
                         const struct sbp_diag *diag);

/* Plays the network lane to its end (actor_network.c). */
enum sbp_status sbp_actor_network_play(struct sbp_actor_lane_run *lane,
                                       struct sbp_diag *diag) SBP_MUST_USE;

#endif
