/* Actors: who acts on which lane of which rank, through which registers, how often.
 *
 * An actor is a piece of work that is done again and again (OneFlow, Yuan et al. 2021, section 4).
 * Its results lie in out-registers, each of a quota of slots. An act takes filled slots of the
 * registers that the actor reads, and one free slot of each register of its own; so how far an
 * actor may run ahead, and how much memory that takes, is fixed by quotas alone. Registers are read
 * where they lie. A register of another rank is brought by a pull: an actor of the reader's rank
 * that asks for the next content as soon as it has a free slot.
 *
 * A graph describes all ranks. It is data without functions: the checker (actor_check.h), the state
 * machine (actor_state.h) and the runtime (actor_run.h) read the same one.
 */
#ifndef SBP_EXECUTOR_ACTOR_ACTOR_GRAPH_H
#define SBP_EXECUTOR_ACTOR_ACTOR_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"

/* A lane does one thing at a time, beside the other lanes of its rank. */
#define SBP_LANE_MAP(X)                                                                            \
    X(COMPUTE, "compute")                                                                          \
    X(COLLECTIVE, "collective") /* has an order: all members come to their meetings in it */       \
    X(NETWORK, "network")       /* pulls alone: asks, answers what others ask for, and receives */ \
    X(COPY_IN, "copy-in")       /* host to device */                                               \
    X(COPY_OUT, "copy-out")                                                                        \
    X(READ, "read") /* of files */                                                                 \
    X(PREPARE, "prepare")

#define SBP_LANE_ENUM(symbol, name) SBP_LANE_##symbol,
enum sbp_actor_lane { SBP_LANE_MAP(SBP_LANE_ENUM) SBP_LANES };
#undef SBP_LANE_ENUM
const char *sbp_actor_lane_name(enum sbp_actor_lane lane);

struct sbp_actor {
    const char *name; /* borrowed */
    int rank;
    enum sbp_actor_lane lane;
    int64_t acts;                      /* in all, >= 0 */
    int meeting;                       /* -1: none */
    int first_read, last_read;         /* what it reads, as added; -1: nothing */
    int first_register, last_register; /* its own; -1: none */
};

struct sbp_actor_register {
    int producer;              /* actor */
    int quota;                 /* slots, >= 1 */
    int64_t bytes;             /* of a slot; 0: nothing but the message is passed on */
    int first_read, last_read; /* its readers; -1: none, its slots are free after each act */
    int next;                  /* register of the producer; -1: none */
};

/* A consumer reads a register. */
struct sbp_actor_read {
    int from;                               /* register */
    int consumer;                           /* actor */
    int takes;                              /* slots of an act, >= 1 */
    int next_of_consumer, next_of_register; /* -1: none */
};

/* The actors of a lane, one an act. */
struct sbp_actor_order {
    const int *actor; /* (count), borrowed; NULL: the lane is free */
    int64_t count;
};

struct sbp_actor_graph {
    struct sbp_arena *arena;
    struct sbp_actor *actor;
    struct sbp_actor_register *reg;
    struct sbp_actor_read *read;
    struct sbp_actor_order *order; /* (ranks, SBP_LANES) */
    int ranks, actors, registers, reads;
    int actors_room, registers_room, reads_room;
    bool failed;  /* memory was out: all that was added later is missing */
    bool checked; /* by sbp_actor_check */
};

/* A graph without actors; what it holds is the arena's. */
void sbp_actor_graph_init(struct sbp_actor_graph *graph, struct sbp_arena *arena, int ranks);

/* These give the index of what they add. They check nothing: sbp_actor_check does, and says what is
 * wrong; indices must be there. When memory is out `failed` stays set. */
int sbp_actor_add(struct sbp_actor_graph *graph, const char *name, int rank,
                  enum sbp_actor_lane lane, int64_t acts);
int sbp_actor_add_register(struct sbp_actor_graph *graph, int producer, int quota, int64_t bytes);
int sbp_actor_add_read(struct sbp_actor_graph *graph, int consumer, int from, int takes);
/* An actor that brings the contents of a register to another rank; gives its register there. */
int sbp_actor_add_pull(struct sbp_actor_graph *graph, int from, int rank, int quota);

/* Bytes of all slots that a rank holds, each register's rounded up to 64. */
double sbp_actor_graph_bytes(const struct sbp_actor_graph *graph, int rank);

/* Actors of one meeting (0, 1, ...) act together, each on another rank, as the members of a
 * collective do; their lanes have orders. */
void sbp_actor_set_meeting(struct sbp_actor_graph *graph, int actor, int meeting);
/* The lane does these actors in this order and waits for the next of them. Without an order a lane
 * takes of the actors that can act the one that was added last: what is further down frees slots.
 */
void sbp_actor_set_order(struct sbp_actor_graph *graph, int rank, enum sbp_actor_lane lane,
                         const int *actor, int64_t count);

static inline const struct sbp_actor_order *sbp_actor_order(const struct sbp_actor_graph *graph,
                                                            int rank, enum sbp_actor_lane lane)
{
    return &graph->order[(int64_t)rank * SBP_LANES + lane];
}

/* Whether a read crosses ranks: a pull's. */
static inline bool sbp_actor_crosses(const struct sbp_actor_graph *graph, int read)
{
    const struct sbp_actor_read *r = &graph->read[read];
    return graph->actor[graph->reg[r->from].producer].rank != graph->actor[r->consumer].rank;
}

#endif
