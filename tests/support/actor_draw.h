/* Random graphs of actors, well formed; about half of them have a circle. */
#ifndef SBP_TESTS_SUPPORT_ACTOR_DRAW_H
#define SBP_TESTS_SUPPORT_ACTOR_DRAW_H

#include "base/math/random.h"
#include "executor/actor/actor_graph.h"

enum { ACTOR_DRAW_MOST = 64 }; /* actors */

/* Actors on the lanes compute and copy-in, with and without orders, that read each other's
 * registers, take up to 3 slots at a time, pull from other ranks, and meet in pairs; copies_meet:
 * also those of copy-in. All is the arena's; memory that is out fails the test. */
void actor_draw(struct sbp_random *random, int ranks, bool copies_meet, struct sbp_arena *arena,
                struct sbp_actor_graph *graph);

#endif
