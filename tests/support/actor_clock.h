/* Plays the actors of all ranks by a clock of its own, over the state machine of the runtime: the
 * same play every time.
 *
 * At each time whatever ends then ends first, and its messages arrive; then every lane that is free
 * begins what the runtime would. Members of a meeting begin together. A pull brings one content
 * after the other; its time is the link's.
 */
#ifndef SBP_TESTS_SUPPORT_ACTOR_CLOCK_H
#define SBP_TESTS_SUPPORT_ACTOR_CLOCK_H

#include "executor/actor/actor_state.h"

struct actor_event {
    int actor;
    int64_t act;
    double begin_s, end_s;
};

struct actor_play {
    struct actor_event *event; /* (events) in the order in which they began */
    int64_t events;
    bool stuck; /* nothing can go on, and not all have ended */
};

/* length_s: (actors) of an act, > 0. Arrays are the arena's. The graph need not be free of circles,
 * but well formed. Memory that is out fails the test. */
struct actor_play actor_clock_play(const struct sbp_actor_graph *graph, const double *length_s,
                                   struct sbp_arena *arena);

#endif
