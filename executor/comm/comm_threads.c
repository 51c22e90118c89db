/* The `threads` backend: ranks are threads of this process and read each other's buffers. This file
 * checks arguments; thread_world lets ranks meet and wait. */
#include <limits.h>

#include "executor/comm/comm_backend.h"
#include "executor/comm/thread_world_priv.h"

/* Collectives ------------------------------------------------------------------------------- */

static enum sbp_status check_call(struct sbp_comm *comm, int group,
                                  const struct sbp_thread_call *call)
{
    const char *name = sbp_thread_call_name(call->kind);
    if (group < 0 || group >= comm->members_count)
        return sbp_fail(&comm->diag, SBP_E_BACKEND, "%s: no group %d", name, group);
    const int size = comm->members[group].size;
    if (call->root < 0 || call->root >= size)
        return sbp_fail(&comm->diag, SBP_E_BACKEND, "%s: no member %d", name, call->root);
    return sbp_comm_check_call(name, size, call->count, call->send, call->receive, &comm->diag);
}

static enum sbp_status collective(struct sbp_comm *comm, int group,
                                  const struct sbp_thread_call *call)
{
    SBP_TRY(check_call(comm, group, call));
    return sbp_thread_meet(comm, &comm->members[group], call);
}

static enum sbp_status threads_all_reduce(struct sbp_comm *comm, int group, void *buffer,
                                          int64_t count, enum sbp_real real,
                                          enum sbp_comm_reduction reduction)
{
    return collective(comm, group,
                      &(struct sbp_thread_call){.kind = SBP_THREAD_ALL_REDUCE,
                                                .real = real,
                                                .reduction = reduction,
                                                .count = count,
                                                .send = buffer,
                                                .receive = buffer});
}

static enum sbp_status threads_all_gather(struct sbp_comm *comm, int group, void *receive,
                                          const void *send, int64_t count, enum sbp_real real)
{
    return collective(comm, group,
                      &(struct sbp_thread_call){.kind = SBP_THREAD_ALL_GATHER,
                                                .real = real,
                                                .count = count,
                                                .send = send,
                                                .receive = receive});
}

static enum sbp_status threads_reduce_scatter(struct sbp_comm *comm, int group, void *receive,
                                              const void *send, int64_t count, enum sbp_real real)
{
    return collective(comm, group,
                      &(struct sbp_thread_call){.kind = SBP_THREAD_REDUCE_SCATTER,
                                                .real = real,
                                                .reduction = SBP_SUM,
                                                .count = count,
                                                .send = send,
                                                .receive = receive});
}

static enum sbp_status threads_all_to_all(struct sbp_comm *comm, int group, void *receive,
                                          const void *send, int64_t count, enum sbp_real real)
{
    return collective(comm, group,
                      &(struct sbp_thread_call){.kind = SBP_THREAD_ALL_TO_ALL,
                                                .real = real,
                                                .count = count,
                                                .send = send,
                                                .receive = receive});
}

static enum sbp_status threads_reduce(struct sbp_comm *comm, int group, int root, void *buffer,
                                      int64_t count, enum sbp_real real)
{
    return collective(comm, group,
                      &(struct sbp_thread_call){.kind = SBP_THREAD_REDUCE,
                                                .real = real,
                                                .root = root,
                                                .count = count,
                                                .send = buffer,
                                                .receive = buffer});
}

static enum sbp_status threads_broadcast(struct sbp_comm *comm, int group, int root, void *buffer,
                                         int64_t count, enum sbp_real real)
{
    return collective(comm, group,
                      &(struct sbp_thread_call){.kind = SBP_THREAD_BROADCAST,
                                                .real = real,
                                                .root = root,
                                                .count = count,
                                                .send = buffer,
                                                .receive = buffer});
}

/* Point to point ---------------------------------------------------------------------------- */

static enum sbp_status threads_send(struct sbp_comm *comm, int peer, int tag, const void *buffer,
                                    int64_t bytes)
{
    SBP_TRY(sbp_comm_check_message(comm->ranks, peer, tag, INT_MAX, buffer, bytes, &comm->diag));
    return sbp_thread_post(comm, peer, tag, buffer, bytes);
}

static enum sbp_status threads_receive(struct sbp_comm *comm, int peer, int tag, void *buffer,
                                       int64_t bytes)
{
    SBP_TRY(sbp_comm_check_message(comm->ranks, peer, tag, INT_MAX, buffer, bytes, &comm->diag));
    return sbp_thread_fetch(comm, peer, tag, buffer, bytes);
}

static bool threads_is_shared(const struct sbp_comm *comm)
{
    (void)comm;
    return true;
}

static enum sbp_status threads_try_receive(struct sbp_comm *comm, int peer, int tag, void *buffer,
                                           int64_t bytes, bool *arrived)
{
    *arrived = false;
    SBP_TRY(sbp_comm_check_message(comm->ranks, peer, tag, INT_MAX, buffer, bytes, &comm->diag));
    return sbp_thread_try_fetch(comm, peer, tag, buffer, bytes, arrived);
}

static bool threads_listen(struct sbp_comm *comm, void (*heard)(void *context), void *context)
{
    sbp_thread_listen(comm, heard, context);
    return true;
}

/* Groups ------------------------------------------------------------------------------------ */

/* This rank's place among `ranks`, each of which must be a rank and occur once; -1 otherwise. */
static int own_index(const struct sbp_comm *comm, const int *ranks, int count)
{
    bool seen[SBP_THREAD_MOST_RANKS] = {false};
    int index = -1;
    for (int i = 0; i < count; i++) {
        if (ranks[i] < 0 || ranks[i] >= comm->ranks || seen[ranks[i]])
            return -1;
        seen[ranks[i]] = true;
        if (ranks[i] == comm->rank)
            index = i;
    }
    return index;
}

static enum sbp_status threads_group(struct sbp_comm *comm, const int *ranks, int count, int key,
                                     int *group)
{
    if (count < 1 || count > comm->ranks)
        return sbp_fail(&comm->diag, SBP_E_BACKEND, "group of %d of %d ranks", count, comm->ranks);
    const int index = own_index(comm, ranks, count);
    if (index < 0)
        return sbp_fail(&comm->diag, SBP_E_BACKEND,
                        "group: ranks must be different, under %d, and include rank %d",
                        comm->ranks, comm->rank);
    return sbp_thread_join(comm, ranks, count, index, key, group);
}

/* Endpoint and run -------------------------------------------------------------------------- */

static int threads_rank(const struct sbp_comm *comm)
{
    return comm->rank;
}

static int threads_size(const struct sbp_comm *comm)
{
    return comm->ranks;
}

static void threads_abort(struct sbp_comm *comm, const char *reason)
{
    (void)sbp_fail(&comm->diag, SBP_E_BACKEND, "%s", reason);
    sbp_thread_stop(comm, reason);
}

static const char *threads_reason(const struct sbp_comm *comm)
{
    return comm->diag.text;
}

static void threads_library(const struct sbp_comm *comm, char *text, int size)
{
    (void)comm;
    (void)size;
    text[0] = '\0';
}

static const struct sbp_comm_ops threads_ops;

static struct sbp_endpoint threads_host(struct sbp_comm *comm)
{
    return (struct sbp_endpoint){&threads_ops, comm};
}

static const struct sbp_comm_ops threads_ops = {
    .name = "threads",
    .memory = &sbp_device_host_memory,
    .host = threads_host,
    .rank = threads_rank,
    .size = threads_size,
    .group = threads_group,
    .all_reduce = threads_all_reduce,
    .all_gather = threads_all_gather,
    .reduce_scatter = threads_reduce_scatter,
    .all_to_all = threads_all_to_all,
    .reduce = threads_reduce,
    .broadcast = threads_broadcast,
    .send = threads_send,
    .receive = threads_receive,
    .is_shared = threads_is_shared,
    .try_receive = threads_try_receive,
    .listen = threads_listen,
    .barrier = sbp_thread_meet_all,
    .abort = threads_abort,
    .reason = threads_reason,
    .library = threads_library,
};

enum sbp_status sbp_threads_run(int ranks, sbp_rank_main main, void *argument,
                                struct sbp_diag *diag)
{
    if (ranks < 1 || ranks > SBP_THREAD_MOST_RANKS)
        return sbp_fail(diag, SBP_E_RANGE, "threads: %d ranks, legal are 1 to %d", ranks,
                        (int)SBP_THREAD_MOST_RANKS);
    return sbp_thread_world_run(ranks, &threads_ops, main, argument, diag);
}
