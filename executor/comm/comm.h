/* Communication backends: one rank's endpoint behind one table (threads, mpi, nccl).
 *
 * All calls of a table but `try_receive` are blocking. They come from one thread of the rank at a
 * time, not always the same; another one may send and try_receive meanwhile. Groups are created
 * once, in the same order on all ranks, and collectives are issued in one order that all members
 * share. Two buffers of one call do not overlap unless said; a buffer of no elements may be NULL. A
 * call that fails, or whose peer failed, returns E_PEER, E_BACKEND or E_MEMORY with the reason in
 * the endpoint's diag; `abort` releases all others, so that one failing rank ends all. `threads`
 * also reports (E_BACKEND) what would hang or corrupt: members whose calls differ, a message of
 * another length, ranks that all wait.
 */
#ifndef SBP_EXECUTOR_COMM_COMM_H
#define SBP_EXECUTOR_COMM_COMM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "executor/device/device.h"
#include "kernels/kernels.h"

enum sbp_comm_reduction { SBP_SUM, SBP_MAX };

struct sbp_comm; /* an endpoint's own; opaque to callers */
struct sbp_comm_ops;

/* A rank's access to the others. */
struct sbp_endpoint {
    const struct sbp_comm_ops *ops;
    struct sbp_comm *comm; /* borrowed: lives as long as the rank's main */
};

struct sbp_comm_ops {
    const char *name;
    /* Where the buffers of collectives and messages lie. */
    const struct sbp_memory_ops *memory;
    /* An endpoint of the same ranks whose buffers lie in host memory, for the few values that steer
     * a run; its groups are its own. Where memory is the host's already: this endpoint. */
    struct sbp_endpoint (*host)(struct sbp_comm *comm);
    int (*rank)(const struct sbp_comm *comm);
    int (*size)(const struct sbp_comm *comm);

    /* NULL: there is nothing to name. Else: collective over all ranks, before their first groups:
     * each names the groups that it is going to make, so that they are made at once. ranks: (sum of
     * counts), group by group, this rank in each; counts: (groups). Groups that nobody names are
     * legal. */
    enum sbp_status (*name_groups)(struct sbp_comm *comm, const int *ranks, const int *counts,
                                   int groups);
    /* Registers a group that this rank is a member of: `ranks` in group order, this rank among
     * them. Collective over the members (mpi: MPI_Comm_create_group with `key` as tag, so that
     * disjoint groups may be made at the same time). *group is a handle of this endpoint. */
    enum sbp_status (*group)(struct sbp_comm *comm, const int *ranks, int count, int key,
                             int *group);

    /* In place, count elements. Elements of 16 bits are added in single precision: threads rounds
     * the sum over all members once, mpi that of every two members whose sums it joins. */
    enum sbp_status (*all_reduce)(struct sbp_comm *comm, int group, void *buffer, int64_t count,
                                  enum sbp_real real, enum sbp_comm_reduction reduction);
    /* receive(group size, count): block i is member i's send(count), which may be its own block of
     * `receive`. */
    enum sbp_status (*all_gather)(struct sbp_comm *comm, int group, void *receive, const void *send,
                                  int64_t count, enum sbp_real real);
    /* send(group size, count); receive(count) = sum over members of their block for this rank; it
     * may be this rank's block of `send`. Reductions do not depend on timing: threads folds in
     * group order, so that an all-reduce has the bits of a reduce-scatter and an all-gather; mpi
     * leaves the order to the library. */
    enum sbp_status (*reduce_scatter)(struct sbp_comm *comm, int group, void *receive,
                                      const void *send, int64_t count, enum sbp_real real);
    /* send(group size, count), receive(group size, count): block j of member i becomes block i of
     * member j. */
    enum sbp_status (*all_to_all)(struct sbp_comm *comm, int group, void *receive, const void *send,
                                  int64_t count, enum sbp_real real);
    /* The sum over members to member `root` (group order), in its buffer; the others' stay as they
     * are. Added as by all_reduce, to the same bits over threads. */
    enum sbp_status (*reduce)(struct sbp_comm *comm, int group, int root, void *buffer,
                              int64_t count, enum sbp_real real);
    /* From member `root` to all; in place. */
    enum sbp_status (*broadcast)(struct sbp_comm *comm, int group, int root, void *buffer,
                                 int64_t count, enum sbp_real real);
    /* Point to point between world ranks, matched by (peer, tag), tag >= 0, in the order sent. send
     * copies the message and does not wait for the receiver; receive wants exactly these bytes. */
    enum sbp_status (*send)(struct sbp_comm *comm, int peer, int tag, const void *buffer,
                            int64_t bytes);
    enum sbp_status (*receive)(struct sbp_comm *comm, int peer, int tag, void *buffer,
                               int64_t bytes);
    /* NULL: no. Else: whether `lend` and `receive` take buffers of a GPU's memory, as the library
     * says. */
    bool (*takes_devices)(const struct sbp_comm *comm);
    /* NULL where takes_devices is. As send, but of the buffer itself, which must stay as it is
     * until a call of this table has set *left, which is false before. */
    enum sbp_status (*lend)(struct sbp_comm *comm, int peer, int tag, const void *buffer,
                            int64_t bytes, atomic_bool *left);
    /* NULL: messages have one way. Else: has them go by the endpoint of host(), out of the
     * device's memory where that takes_devices, else through copies in host memory; or, as at
     * first, without. All ranks call it alike, where none is under way;
     * before calls are put into streams, since room for a message of largest_bytes may be made. */
    enum sbp_status (*by_host)(struct sbp_comm *comm, bool by_host, int64_t largest_bytes);
    /* Whether another thread may send and try_receive. False: nccl, and mpi where the library lets
     * one thread alone call it. */
    bool (*is_shared)(const struct sbp_comm *comm);
    /* Receives if the message is there; else *arrived is false and the buffer as it was.
     * E_UNSUPPORTED: nccl. */
    enum sbp_status (*try_receive)(struct sbp_comm *comm, int peer, int tag, void *buffer,
                                   int64_t bytes, bool *arrived);
    /* NULL: what was sent goes on its way by itself. Else: whether all of it has left; large
     * messages leave only while somebody asks, or calls anything else of the table. The thread that
     * sends and calls try_receive may. */
    enum sbp_status (*have_left)(struct sbp_comm *comm, bool *all);
    /* Has `heard` called, by any thread, whenever a message comes or the run ends; it may take
     * locks, but not call this table. NULL: no longer. False: the backend cannot tell, and must be
     * asked again and again. */
    bool (*listen)(struct sbp_comm *comm, void (*heard)(void *context), void *context);
    enum sbp_status (*barrier)(struct sbp_comm *comm);
    /* NULL: a call is over when it returns. Else: has collectives and messages put into a stream
     * (cudaStream_t) from now on, whose other work orders them, and return; NULL as a stream, at
     * first: each is waited for. */
    void (*work_on)(struct sbp_comm *comm, void *stream);
    /* Beside work_on: whether work that was put into streams has failed, which never ends then; it
     * is called off. */
    enum sbp_status (*look)(struct sbp_comm *comm);
    /* Ends what is under way in streams, done or not; no call is good any more. For a rank that
     * fails: others may not come to what it waits for. */
    void (*call_off)(struct sbp_comm *comm);
    /* Ends the run for all ranks with a reason: peers blocked in a call return E_PEER and find the
     * reason with `reason` (mpi: prints it and calls MPI_Abort). */
    void (*abort)(struct sbp_comm *comm, const char *reason);
    const char *(*reason)(const struct sbp_comm *comm);
    /* Name and version of the library behind the calls; "" where there is none. */
    void (*library)(const struct sbp_comm *comm, char *text, int size);
};

/* A rank's main function. Any status but OK aborts the other ranks with diag's text. */
typedef enum sbp_status (*sbp_rank_main)(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                         void *argument, struct sbp_diag *diag);

/* Runs `ranks` ranks as threads of this process and joins them. The first failure's status and text
 * come back. 1 <= ranks <= 1024. */
enum sbp_status sbp_threads_run(int ranks, sbp_rank_main main, void *argument,
                                struct sbp_diag *diag) SBP_MUST_USE;

/* Runs this process as one rank of MPI_COMM_WORLD (initialises MPI if need be, finalises it at the
 * end, failure ends all ranks: reason on stderr, then MPI_Abort). E_USAGE: a launcher started
 * several processes that MPI does not connect. A build without MPI returns E_UNSUPPORTED and says
 * so. */
enum sbp_status sbp_mpi_run(sbp_rank_main main, void *argument, struct sbp_diag *diag) SBP_MUST_USE;

/* A module's communication: its symbol sbp_comm_module. */
struct sbp_comm_module {
    const char *version; /* it was built with */
    enum sbp_status (*run)(sbp_rank_main main, void *argument, struct sbp_diag *diag);
};
/* The same with NCCL between the ranks' GPUs (executor/gpu/gpu.h, sbp_nccl_run), by a module.
 * E_UNSUPPORTED: not in this build, or the module or a library that it needs is not there. */
enum sbp_status sbp_comm_nccl_run(sbp_rank_main main, void *argument,
                                  struct sbp_diag *diag) SBP_MUST_USE;

#endif
