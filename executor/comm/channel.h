/* A rank's side of all communication of a program: its groups and the log of its backend calls.
 *
 * Every collective of a run goes through a channel, so the log holds all calls that the run made,
 * each as the plan prices it: a broadcast of what is owned in parts is one in the log, while the
 * backend is asked for an all-gather or a reduce-scatter (struct sbp_exchange). The check of the
 * log against the program's own list, entry by entry, proves that the run called exactly the
 * collectives that the plan priced.
 */
#ifndef SBP_EXECUTOR_COMM_CHANNEL_H
#define SBP_EXECUTOR_COMM_CHANNEL_H

#include "base/arena.h"
#include "costmodel/program/task.h"
#include "executor/comm/comm.h"
#include "executor/comm/fingerprint.h"
#include "executor/comm/post.h"

struct sbp_logged_call {
    enum sbp_collective kind;
    sbp_axes axes;
    int64_t count, element_bytes;
};

/* Takes messages between stages for a channel: `forward` as below; bytes may be fewer than it has
 * room for. */
struct sbp_carrier {
    enum sbp_status (*pass)(void *context, bool forward, const void *buffer, int64_t bytes,
                            struct sbp_diag *diag);
    enum sbp_status (*take)(void *context, bool forward, void *buffer, int64_t bytes,
                            struct sbp_diag *diag);
    void *context;
};

struct sbp_channel {
    const struct sbp_comm_ops *ops;
    struct sbp_comm *comm;
    const struct sbp_step *step; /* borrowed */
    int stage;                   /* the own one */
    int64_t place; /* in its mesh: rank `place` of the stage's ranks, which follow those
                      of the stage before */
    const struct sbp_kernels *kernels; /* of the run's real type */
    int group_count;
    struct sbp_members *members;   /* (group_count) */
    int *group;                    /* (group_count) handles of the backend */
    struct sbp_circle *circle;     /* (group_count) */
    bool *reached, *heard;         /* (ranks) whom a shift or a ring has sent to, and heard from */
    bool compares;                 /* fingerprints before each collective, with its members */
    const struct sbp_tasks *tasks; /* of the stage; borrowed */
    const struct sbp_call *calls;  /* the program's list of a step, (call_count) */
    int call_count;
    int64_t element_bytes[2];          /* that the program is compiled for: [1] of statistics */
    int64_t number;                    /* of the step under way, from 0, */
    enum sbp_round round;              /* and its round: which of the calls it makes */
    struct sbp_logged_call *log;       /* of the step under way, (call_count) */
    int at, logged;                    /* the next entry; entries so far */
    double wall_s, cpu_s;              /* spent in the backend since the channel was opened */
    bool by_host;                      /* messages go through the host's memory and endpoint */
    const struct sbp_carrier *carrier; /* of messages; NULL: the backend's own calls */
    struct sbp_post *post; /* borrowed; where calls are noted that may wait. NULL: nobody watches */
    bool shortens;         /* tests only: the next collectives are of one element less */
    bool skip; /* tests only: log the next calls, but exchange nothing; messages, and what owners
                  hand out, are not sent, and come as zeros */
};

/* The axes over which the ranks of a stage communicate within works, and so do these in one order;
 * 0: none. */
sbp_axes sbp_channel_work_axes(const struct sbp_channel *channel, const struct sbp_tasks *tasks);

/* The rank at a place of a stage, among those of all stages. */
static inline int sbp_channel_rank(const struct sbp_channel *channel, int stage, int64_t place)
{
    return (int)(stage * channel->step->mesh.devices + place);
}

/* The ranks of a group that the rank at `place` of a stage is in, in group order, among those of
 * all stages; returns how many. ranks: room for those of all stages. */
int sbp_channel_members(const struct sbp_step *step, int stage, int64_t place,
                        const struct sbp_members *members, int *ranks);

enum { SBP_OWNED_IN_PARTS = -1 };

/* One communication: all pointers as the backend's function of that kind takes them; `receive` is
 * the buffer of an all-reduce, and of those with an owner. These are a broadcast, or the reduce
 * that is its converse, or, of kind send-recv, go from hand to hand: a weight from its owner to the
 * others in group order, each of which sends it on; a sum of gradients through all members in that
 * order, which add theirs, and from the last one to the owner. A broadcast of what is owned in
 * parts is one of each member's, by its place in the group, which the backend does at once: as an
 * all-gather in place, and its converse as a reduce-scatter. A shift is a send-recv around the
 * circle of members: to the one so many places behind and from the one as many before, or, of less
 * than 0, the other way; a member may have less than `count` to send or to receive, or nothing. */
struct sbp_exchange {
    enum sbp_collective kind;
    struct sbp_members members;
    enum sbp_comm_reduction reduction; /* all-reduce */
    void *receive;
    const void *send;
    int64_t count;
    bool statistic;         /* elements are wide, else the run's reals */
    int64_t owner;          /* in group order, or SBP_OWNED_IN_PARTS */
    bool to_owner;          /* a sum, else from it */
    void *incoming;         /* (count) room for what comes from hand to hand, to be added */
    int64_t shift;          /* 0: it is none */
    int64_t sent, received; /* of a shift: elements of `send` and `receive` */
    bool idle; /* the rank has nothing to add: the call is noted, the backend is not called */
};

/* Creates the groups that the calls of the tasks of this rank's stage use; collective over all
 * ranks, of which there are as many as the mesh has devices in each stage. The step was made for a
 * run. Everything is allocated in the arena. E_MEMORY, E_RANGE, or as the backend fails. */
enum sbp_status sbp_channel_open(struct sbp_channel *channel, const struct sbp_comm_ops *ops,
                                 struct sbp_comm *comm, const struct sbp_step *step,
                                 const struct sbp_tasks *tasks, const struct sbp_kernels *kernels,
                                 struct sbp_arena *arena, struct sbp_diag *diag) SBP_MUST_USE;

/* An activation, or a gradient, to the same place of another stage, and from there; in the order
 * sent, which is that in which the other stage wants them. `forward`: activations. They fail as the
 * backend does. */
enum sbp_status sbp_channel_pass(struct sbp_channel *channel, int stage, bool forward,
                                 const void *buffer, int64_t count,
                                 struct sbp_diag *diag) SBP_MUST_USE;
enum sbp_status sbp_channel_take(struct sbp_channel *channel, int stage, bool forward, void *buffer,
                                 int64_t count, struct sbp_diag *diag) SBP_MUST_USE;

/* Marks the stages that a stage sends messages to, maybe itself. tasks: of that stage; sends:
 * (stages). */
void sbp_channel_receivers(const struct sbp_step *step, int stage, const struct sbp_tasks *tasks,
                           bool *sends);

/* Has this rank send its first message to each stage that it sends to, all ranks in one order: nccl
 * connects two ranks when both are there, which stages without a flush would wait for in a circle.
 * Collective over the stages; tasks: (stages). E_MEMORY, or as the backend does. */
enum sbp_status sbp_channel_greet(struct sbp_channel *channel, const struct sbp_tasks *tasks,
                                  struct sbp_arena *arena, struct sbp_diag *diag) SBP_MUST_USE;

/* A sum of gradients to the same place of another stage that has the same piece, and from there;
 * sums so far, and finished ones, come in the order sent. They fail as the backend does. */
enum sbp_status sbp_channel_pass_sum(struct sbp_channel *channel, const struct sbp_sum_route *route,
                                     const void *sum, int64_t count,
                                     struct sbp_diag *diag) SBP_MUST_USE;
enum sbp_status sbp_channel_take_sum(struct sbp_channel *channel, const struct sbp_sum_route *route,
                                     void *sum, int64_t count, struct sbp_diag *diag) SBP_MUST_USE;

/* Before the blocks of a ring: the first message between two ranks (nccl) waits until it is taken,
 * and all members would send theirs at once. So each member whose neighbour does not know it greets
 * it, the first one at once, the others once they are greeted. Fails as the backend does. */
enum sbp_status sbp_channel_meet_ring(struct sbp_channel *channel, sbp_axes axes,
                                      struct sbp_diag *diag) SBP_MUST_USE;
/* A block of a ring over some axes to the next member, and from the one before, in the order sent;
 * `gradients` go beside the blocks that they are of. They fail as the backend does. */
enum sbp_status sbp_channel_pass_block(struct sbp_channel *channel, sbp_axes axes, bool gradients,
                                       const void *block, int64_t count,
                                       struct sbp_diag *diag) SBP_MUST_USE;
enum sbp_status sbp_channel_take_block(struct sbp_channel *channel, sbp_axes axes, bool gradients,
                                       void *block, int64_t count,
                                       struct sbp_diag *diag) SBP_MUST_USE;

enum sbp_status sbp_channel_exchange(struct sbp_channel *channel,
                                     const struct sbp_exchange *exchange,
                                     struct sbp_diag *diag) SBP_MUST_USE;

/* Empties the log; turns to the entries of the task that comes next, where that is not the list's
 * next one; and compares the log with the program's list, as far as the round's tasks make its
 * calls: E_INTERNAL names the first entry that differs. */
void sbp_channel_begin_step(struct sbp_channel *channel, int64_t number, enum sbp_round round);
void sbp_channel_turn(struct sbp_channel *channel, int64_t task);
enum sbp_status sbp_channel_check(const struct sbp_channel *channel,
                                  struct sbp_diag *diag) SBP_MUST_USE;
/* Calls of a step like the one under way that is gone through whole. */
int sbp_channel_calls(const struct sbp_channel *channel);

/* Waits until every rank of all stages is here; outside the log. Fails as the backend does. */
enum sbp_status sbp_channel_barrier(struct sbp_channel *channel,
                                    struct sbp_diag *diag) SBP_MUST_USE;
/* With whom a task of the list communicates, so that it may wait for them: false where it has no
 * collective. */
bool sbp_channel_waits(const struct sbp_channel *channel, int64_t task,
                       struct sbp_members *members);
/* Point to point, between buffers in host memory, outside the log: reports and verification. */
enum sbp_status sbp_channel_send(struct sbp_channel *channel, int peer, int tag, const void *buffer,
                                 int64_t bytes, struct sbp_diag *diag) SBP_MUST_USE;
enum sbp_status sbp_channel_receive(struct sbp_channel *channel, int peer, int tag, void *buffer,
                                    int64_t bytes, struct sbp_diag *diag) SBP_MUST_USE;

#endif
