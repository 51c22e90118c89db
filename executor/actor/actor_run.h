/* Runs the actors of one rank, each lane on a thread of its own.
 *
 * A lane takes messages from its mailbox, begins what is ready, and tells the lanes of those who
 * wait. Between ranks a pull asks the producer's rank for the next content, whose network lane
 * sends it when it is filled and then frees the slot; so a message is in flight only where a slot
 * waits for it. Nothing is copied within a rank.
 */
#ifndef SBP_EXECUTOR_ACTOR_ACTOR_RUN_H
#define SBP_EXECUTOR_ACTOR_ACTOR_RUN_H

#include "executor/actor/actor_state.h"
#include "executor/comm/comm.h"

/* Does an act. It is called by the thread of the actor's lane, for lanes beside each other; acts of
 * a meeting communicate. Any status but OK ends the run of this rank. */
typedef enum sbp_status (*sbp_actor_action)(void *context, const struct sbp_act *act,
                                            struct sbp_diag *diag);

struct sbp_actor_job {
    const struct sbp_actor_graph *graph; /* of all ranks, checked (actor_check.h) */
    /* This rank and the others. Needed where pulls cross ranks; ops NULL: rank 0, alone. */
    struct sbp_endpoint endpoint;
    int first_tag;                       /* pulls use (2 reads) tags from here on */
    const struct sbp_memory_ops *memory; /* of registers; with pulls: a host's */
    void *room;                          /* for them; NULL: they are allocated (actor_state.h) */
    sbp_actor_action action;
    void *context;
};

/* Comes back when all actors of this rank have done all their acts and all slots are free. The
 * calling thread plays the compute lane, or the first lane there is. Acts that communicate are on
 * one lane. As an act fails, or the backend (E_PEER: another rank failed); E_BACKEND: no thread;
 * E_MEMORY. */
enum sbp_status sbp_actor_run(const struct sbp_actor_job *job, struct sbp_diag *diag) SBP_MUST_USE;

/* The same where the caller goes through its acts by itself: its thread stands for the compute
 * lane, and no action is called for its actors. Starts the other lanes; on failure nothing is left
 * behind. The job is borrowed. */
struct sbp_actor_running;
enum sbp_status sbp_actor_start(const struct sbp_actor_job *job, struct sbp_actor_running **running,
                                struct sbp_diag *diag) SBP_MUST_USE;
/* Waits until an actor of the compute lane can act, the next one of its order or, without an
 * order, the last that was added of those that can. As another lane fails. */
enum sbp_status sbp_actor_await(struct sbp_actor_running *running, int *actor,
                                struct sbp_diag *diag) SBP_MUST_USE;
/* Waits until `actor` can act, and begins. It comes next in the compute lane's order, if that has
 * one, else E_INTERNAL; as another lane fails. After the act it is left. */
enum sbp_status sbp_actor_enter(struct sbp_actor_running *running, int actor, struct sbp_act *act,
                                struct sbp_diag *diag) SBP_MUST_USE;
void sbp_actor_leave(struct sbp_actor_running *running, int actor);
/* Waits until all slots are free and ends the lanes; at once if the caller's status is not OK, or
 * where it has left out an act (E_INTERNAL). Returns that status, or another lane's failure. NULL
 * is legal, and OK. */
enum sbp_status sbp_actor_finish(struct sbp_actor_running *running, enum sbp_status status,
                                 struct sbp_diag *diag) SBP_MUST_USE;

#endif
