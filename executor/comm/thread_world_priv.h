/* The ranks of one process as threads: how they meet, hand over messages, fail together and end.
 *
 * A collective is a rendezvous in two barriers: every member posts its call, the last to arrive
 * compares the calls, everybody moves its share of the data, and nobody leaves before all have
 * moved. All waiting is on condition variables, since ranks usually outnumber cores. One lock, in
 * thread_world.c, guards all bookkeeping (data moves outside it), which makes "every rank waits" an
 * exact state: a run that cannot go on ends with a reason instead of hanging.
 *
 * Calls of one rank's endpoint come from the threads that comm.h allows. What fails returns E_PEER
 * or E_BACKEND where the run has stopped, else as said, with the reason in comm->diag.
 */
#ifndef SBP_EXECUTOR_COMM_THREAD_WORLD_PRIV_H
#define SBP_EXECUTOR_COMM_THREAD_WORLD_PRIV_H

#include "executor/comm/thread_call_priv.h"

enum { SBP_THREAD_MOST_RANKS = 1024 };

struct sbp_thread_world;
struct sbp_thread_group;

struct sbp_thread_member {
    struct sbp_thread_group *group; /* the world's */
    int size, index;                /* members; this rank's place among them */
};

/* One rank's own side: the handles are its thread's, a reason is written under the world's lock
 * once a second thread may call. */
struct sbp_comm {
    struct sbp_thread_world *world;
    int rank, ranks;
    struct sbp_diag diag;
    struct sbp_thread_member *members; /* (members_count), by handle */
    int members_count, members_capacity;
};

/* The group of these ranks and key, made by whoever comes first; its handle goes to *handle. ranks:
 * different ones, this one at `index` among them. Does not wait for the other members: the first
 * collective does. E_MEMORY. */
enum sbp_status sbp_thread_join(struct sbp_comm *comm, const int *ranks, int size, int index,
                                int key, int *handle) SBP_MUST_USE;
/* One collective with the other members; E_BACKEND: their calls differ. */
enum sbp_status sbp_thread_meet(struct sbp_comm *comm, const struct sbp_thread_member *member,
                                const struct sbp_thread_call *call) SBP_MUST_USE;
/* Waits until every rank of the world is here. */
enum sbp_status sbp_thread_meet_all(struct sbp_comm *comm) SBP_MUST_USE;

/* Copies a message for a rank; it need not wait for it yet. E_MEMORY. */
enum sbp_status sbp_thread_post(struct sbp_comm *comm, int peer, int tag, const void *buffer,
                                int64_t bytes) SBP_MUST_USE;
/* The oldest message of that rank and tag; waits for one. E_BACKEND: it has not these bytes. */
enum sbp_status sbp_thread_fetch(struct sbp_comm *comm, int peer, int tag, void *buffer,
                                 int64_t bytes) SBP_MUST_USE;

/* The same if it is there; else *arrived is false. */
enum sbp_status sbp_thread_try_fetch(struct sbp_comm *comm, int peer, int tag, void *buffer,
                                     int64_t bytes, bool *arrived) SBP_MUST_USE;
/* Calls `heard` after each message for this rank and at the run's end; NULL: no longer. */
void sbp_thread_listen(struct sbp_comm *comm, void (*heard)(void *context), void *context);

/* Ends the run, with this rank to blame unless it has ended already. */
void sbp_thread_stop(struct sbp_comm *comm, const char *reason);

/* Runs ranks (1 .. SBP_THREAD_MOST_RANKS) and joins them; what sbp_threads_run returns. */
enum sbp_status sbp_thread_world_run(int ranks, const struct sbp_comm_ops *ops, sbp_rank_main main,
                                     void *argument, struct sbp_diag *diag) SBP_MUST_USE;

#endif
