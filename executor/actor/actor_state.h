/* The state machine of the actors of one rank: counters, and the messages that move them.
 *
 * A message `req` says that a slot was filled: the in-counter of the read goes up. A message `ack`
 * says that a reader is done with it; after the last one the slot is free and the out-counter of
 * the register, its credit, goes up (OneFlow, section 4.2). State of an actor, of its reads and of
 * its registers is touched by its lane alone; messages are all that lanes tell each other. The
 * state machine knows neither threads nor time: whoever drives it calls begin and end around an
 * act, and carries the messages.
 *
 * Builds with assertions hold the protocol: credits stay between 0 and the quota, no slot is
 * written while it is read, nobody acknowledges twice, and in the end all slots are free.
 */
#ifndef SBP_EXECUTOR_ACTOR_ACTOR_STATE_H
#define SBP_EXECUTOR_ACTOR_ACTOR_STATE_H

#include "executor/actor/actor_graph.h"
#include "executor/device/device.h"

enum sbp_actor_message_kind { SBP_ACTOR_REQ, SBP_ACTOR_ACK };

struct sbp_actor_message {
    enum sbp_actor_message_kind kind;
    int read, slot;
};

/* Slots in the order in which they came. */
struct sbp_actor_ring {
    int *slot; /* (room) */
    int first, count, room;
};

/* A slot as an act sees it. */
struct sbp_actor_slot {
    void *memory; /* NULL: it has no bytes */
    int64_t bytes;
    int index; /* in its register */
};

/* One act. */
struct sbp_act {
    int actor;
    int64_t number;                   /* of its acts */
    const struct sbp_actor_slot *in;  /* `takes` of each read in order, the oldest first */
    const struct sbp_actor_slot *out; /* one of each register in order */
};

/* Of one register at its producer. */
struct sbp_actor_output {
    struct sbp_actor_ring free;    /* its count is the credit */
    struct sbp_actor_ring written; /* by acts that have begun and not ended */
    int *readers;                  /* (quota) that have not acknowledged */
    bool *held;                    /* (readers of the register, quota), by whom */
    char *memory;                  /* (quota) slots */
};

struct sbp_actor_lane_state {
    int *actor; /* (actors) of this lane, ascending */
    int actors;
    uint64_t *ready; /* a bit for each: its next act could begin */
    int64_t left;    /* acts that have not ended */
    int64_t away;    /* slots that are not free; of the network also what others have to fetch */
};

struct sbp_actor_state {
    const struct sbp_actor_graph *graph; /* borrowed */
    const struct sbp_memory_ops *memory;
    char *room;      /* the caller's, for registers; NULL: each has an allocation */
    int64_t room_at; /* bytes that are taken of it */
    int rank;
    struct sbp_actor_lane_state lane[SBP_LANES];
    struct sbp_actor_output *output; /* (registers) */
    struct sbp_actor_ring *arrived;  /* (reads) filled slots; its count is the in-counter. Of a pull
                                        of another rank: what it has not fetched yet */
    int *ordinal;                    /* (reads) among the readers of its register */
    struct sbp_actor_counters *actor; /* (actors) */
};

/* Carries a message to a lane of this rank; the lane delivers it with sbp_actor_deliver. */
typedef void (*sbp_actor_post)(void *context, enum sbp_actor_lane lane,
                               struct sbp_actor_message message);

/* The actors of a rank before their first act: all slots are free. Registers of the rank lie in
 * `room`, as many bytes as sbp_actor_graph_bytes says, or, where that is NULL, are allocated,
 * zeroed; all else is the arena's. The graph is well formed. E_MEMORY; close either way. */
enum sbp_status sbp_actor_open(struct sbp_actor_state *state, const struct sbp_actor_graph *graph,
                               int rank, const struct sbp_memory_ops *memory, void *room,
                               struct sbp_arena *arena) SBP_MUST_USE;
void sbp_actor_close(struct sbp_actor_state *state);

/* Whether the next act of an actor of this rank can begin: it has all inputs and a credit of each
 * register. Pulls have no inputs here: they can begin with a credit, and several at a time. */
bool sbp_actor_is_ready(const struct sbp_actor_state *state, int actor);
/* Whether an actor of this rank has acts that have not begun. */
bool sbp_actor_has_acts(const struct sbp_actor_state *state, int actor);
/* Of the actors of a free lane that are ready the one that was added last; -1: none is. */
int sbp_actor_last_ready(const struct sbp_actor_state *state, enum sbp_actor_lane lane);

/* An act of a ready actor; its slots stay valid until its end. An actor other than a pull ends an
 * act before it begins the next. */
void sbp_actor_begin(struct sbp_actor_state *state, int actor, struct sbp_act *act);
/* Ends the oldest act that has begun: its slots are filled (reqs), its inputs done with (acks). */
void sbp_actor_end(struct sbp_actor_state *state, int actor, sbp_actor_post post, void *context);
/* At the lane that a message was posted to. */
void sbp_actor_deliver(struct sbp_actor_state *state, struct sbp_actor_message message);

/* The slot of a pull that its next end fills; index < 0: no act of it has begun. */
struct sbp_actor_slot sbp_actor_to_fill(const struct sbp_actor_state *state, int pull);
/* The oldest slot that a pull of another rank has not fetched; index < 0: there is none. And that
 * it has been fetched. Of the network lane. */
struct sbp_actor_slot sbp_actor_to_serve(const struct sbp_actor_state *state, int read);
void sbp_actor_serve(struct sbp_actor_state *state, int read, sbp_actor_post post, void *context);

/* Whether the lane is done: all acts have ended, and all slots are free again. */
bool sbp_actor_is_home(const struct sbp_actor_state *state, enum sbp_actor_lane lane);
/* Asserts it slot by slot, of all lanes. */
void sbp_actor_assert_home(const struct sbp_actor_state *state);

#endif
