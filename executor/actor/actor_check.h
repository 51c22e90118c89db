/* Whether the actors of all ranks come to their end, found out before any of them acts.
 *
 * An act waits for acts that fill what it reads, for acts that free a slot of its registers, for
 * the act before it in its lane's order, and with a meeting for all that these wait for at its
 * members. What is in a slot is for given readers, and a free slot for one producer, so that no act
 * keeps another from beginning: the actors come to their end in every interleaving, or in none,
 * where some acts wait for each other in a circle.
 */
#ifndef SBP_EXECUTOR_ACTOR_ACTOR_CHECK_H
#define SBP_EXECUTOR_ACTOR_ACTOR_CHECK_H

#include "executor/actor/actor_graph.h"
#include "base/status.h"

/* Marks the graph as checked. E_INPUT: it is not well formed, or acts wait for each other: the text
 * names the circle, act by act. E_MEMORY. Scratch is the graph's arena's and given back. Time: as
 * many acts as there are, memory: as many actors. */
enum sbp_status sbp_actor_check(struct sbp_actor_graph *graph, struct sbp_diag *diag) SBP_MUST_USE;

#endif
