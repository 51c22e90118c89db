/* Which way messages between stages go, over a backend that knows two: its own, between the
 * devices' memories, or MPI's, which is GPU-aware or goes through copies in host memory.
 *
 * Asked to choose, all ranks time both before the first step, each pair of stages that exchanges
 * messages with the plan's largest one, and take the one that takes less time in all.
 */
#ifndef SBP_EXECUTOR_COMM_MESSAGE_WAY_H
#define SBP_EXECUTOR_COMM_MESSAGE_WAY_H

#include "base/arena.h"
#include "costmodel/program/task.h"
#include "executor/comm/channel.h"

enum sbp_message_way { SBP_MESSAGE_AUTO, SBP_MESSAGE_NCCL, SBP_MESSAGE_MPI };

/* By enum sbp_message_way; NULL at the end. */
extern const char *const sbp_message_way_names[];

struct sbp_message_times {
    enum sbp_message_way way;
    bool direct;          /* MPI's is out of the devices' memories, on all ranks */
    int64_t bytes;        /* of the largest message */
    double nccl_s, mpi_s; /* of one with its answer, mean over pairs of ranks; 0: not timed */
};

/* Sets the way of all messages from now on. Where a backend knows one way, or the plan has no
 * messages, nothing happens. Collective over all ranks, before there are lanes; tasks: (stages).
 * *found: of rank 0, which alone writes there. E_MEMORY, or as the backend does. */
enum sbp_status sbp_message_way_choose(struct sbp_channel *channel, const struct sbp_tasks *tasks,
                                       enum sbp_message_way wanted, struct sbp_arena *arena,
                                       struct sbp_message_times *found,
                                       struct sbp_diag *diag) SBP_MUST_USE;

#endif
