#include "executor/comm/comm_staged.h"

#include <stdlib.h>

#include "executor/comm/comm_backend.h"

struct block {
    void *at;
    int64_t bytes;
};

struct group {
    int inner, size;
};

struct sbp_comm {
    struct sbp_comm_ops ops; /* the table with this endpoint's memory */
    struct sbp_endpoint inner;
    const struct sbp_memory_ops *memory;
    struct group *groups;
    int groups_count, groups_capacity;
    struct block sent, received; /* on the host */
    struct sbp_diag diag;        /* of this layer; empty: the inner endpoint has the reason */
};

/* ---- copies ---------------------------------------------------------------------------------- */

static enum sbp_status reserve(struct sbp_comm *comm, struct block *block, int64_t bytes)
{
    if (bytes <= block->bytes)
        return SBP_OK;
    sbp_device_host_memory.release(block->at);
    block->at = sbp_device_host_memory.allocate(bytes);
    block->bytes = block->at == NULL ? 0 : bytes;
    return block->at != NULL
               ? SBP_OK
               : sbp_fail(&comm->diag, SBP_E_MEMORY, "no %lld bytes of host memory for a copy",
                          (long long)bytes);
}

static enum sbp_status check(struct sbp_comm *comm, enum sbp_status status)
{
    return status == SBP_OK ? SBP_OK
                            : sbp_fail(&comm->diag, status, "copying between host and %s memory",
                                       comm->memory->name);
}

/* A block of the device comes to the host. */
static enum sbp_status bring(struct sbp_comm *comm, struct block *block, const void *from,
                             int64_t bytes)
{
    SBP_TRY(reserve(comm, block, bytes));
    return check(comm, comm->memory->to_host(block->at, from, bytes));
}

static enum sbp_status take_back(struct sbp_comm *comm, void *to, const struct block *block,
                                 int64_t bytes)
{
    return check(comm, comm->memory->from_host(to, block->at, bytes));
}

/* ---- collectives ----------------------------------------------------------------------------- */

/* One collective of a group: its two blocks in elements, and those that go and come. */
struct call {
    struct group group;
    int64_t sent_bytes, received_bytes;
};

static enum sbp_status begin(struct sbp_comm *comm, int group, int64_t sent, int64_t received,
                             enum sbp_real real, struct call *call)
{
    comm->diag.text[0] = '\0';
    if (group < 0 || group >= comm->groups_count)
        return sbp_fail(&comm->diag, SBP_E_BACKEND, "no group %d", group);
    call->group = comm->groups[group];
    if (!sbp_mul_i64(sent, sbp_comm_real_bytes(real), &call->sent_bytes) ||
        !sbp_mul_i64(received, sbp_comm_real_bytes(real), &call->received_bytes))
        return sbp_fail(&comm->diag, SBP_E_BACKEND, "a count is out of range");
    return SBP_OK;
}

static enum sbp_status staged_all_reduce(struct sbp_comm *comm, int group, void *buffer,
                                         int64_t count, enum sbp_real real,
                                         enum sbp_comm_reduction reduction)
{
    struct call call;
    SBP_TRY(begin(comm, group, 0, count, real, &call));
    SBP_TRY(bring(comm, &comm->received, buffer, call.received_bytes));
    SBP_TRY(comm->inner.ops->all_reduce(comm->inner.comm, call.group.inner, comm->received.at,
                                        count, real, reduction));
    return take_back(comm, buffer, &comm->received, call.received_bytes);
}

typedef enum sbp_status (*exchange)(struct sbp_comm *comm, int group, void *receive,
                                    const void *send, int64_t count, enum sbp_real real);

/* sent, received: blocks of count elements that go and come. */
static enum sbp_status move(struct sbp_comm *comm, exchange inner, int group, void *receive,
                            const void *send, int64_t count, int64_t sent, int64_t received,
                            enum sbp_real real)
{
    struct call call;
    SBP_TRY(begin(comm, group, sent * count, received * count, real, &call));
    SBP_TRY(bring(comm, &comm->sent, send, call.sent_bytes));
    SBP_TRY(reserve(comm, &comm->received, call.received_bytes));
    SBP_TRY(
        inner(comm->inner.comm, call.group.inner, comm->received.at, comm->sent.at, count, real));
    return take_back(comm, receive, &comm->received, call.received_bytes);
}

static int64_t size_of(const struct sbp_comm *comm, int group)
{
    return group >= 0 && group < comm->groups_count ? comm->groups[group].size : 0;
}

static enum sbp_status staged_all_gather(struct sbp_comm *comm, int group, void *receive,
                                         const void *send, int64_t count, enum sbp_real real)
{
    return move(comm, comm->inner.ops->all_gather, group, receive, send, count, 1,
                size_of(comm, group), real);
}

static enum sbp_status staged_reduce_scatter(struct sbp_comm *comm, int group, void *receive,
                                             const void *send, int64_t count, enum sbp_real real)
{
    return move(comm, comm->inner.ops->reduce_scatter, group, receive, send, count,
                size_of(comm, group), 1, real);
}

static enum sbp_status staged_all_to_all(struct sbp_comm *comm, int group, void *receive,
                                         const void *send, int64_t count, enum sbp_real real)
{
    const int64_t members = size_of(comm, group);
    return move(comm, comm->inner.ops->all_to_all, group, receive, send, count, members, members,
                real);
}

/* Does a collective to or from one member in place: the buffers of those who get nothing come back
 * as they went. */
static enum sbp_status by_root(struct sbp_comm *comm,
                               enum sbp_status (*inner)(struct sbp_comm *comm, int group, int root,
                                                        void *buffer, int64_t count,
                                                        enum sbp_real real),
                               int group, int root, void *buffer, int64_t count, enum sbp_real real)
{
    struct call call;
    SBP_TRY(begin(comm, group, 0, count, real, &call));
    SBP_TRY(bring(comm, &comm->received, buffer, call.received_bytes));
    SBP_TRY(inner(comm->inner.comm, call.group.inner, root, comm->received.at, count, real));
    return take_back(comm, buffer, &comm->received, call.received_bytes);
}

static enum sbp_status staged_reduce(struct sbp_comm *comm, int group, int root, void *buffer,
                                     int64_t count, enum sbp_real real)
{
    return by_root(comm, comm->inner.ops->reduce, group, root, buffer, count, real);
}

static enum sbp_status staged_broadcast(struct sbp_comm *comm, int group, int root, void *buffer,
                                        int64_t count, enum sbp_real real)
{
    return by_root(comm, comm->inner.ops->broadcast, group, root, buffer, count, real);
}

/* ---- messages -------------------------------------------------------------------------------- */

static enum sbp_status staged_send(struct sbp_comm *comm, int peer, int tag, const void *buffer,
                                   int64_t bytes)
{
    comm->diag.text[0] = '\0';
    SBP_TRY(bring(comm, &comm->sent, buffer, bytes));
    return comm->inner.ops->send(comm->inner.comm, peer, tag, comm->sent.at, bytes);
}

static enum sbp_status staged_receive(struct sbp_comm *comm, int peer, int tag, void *buffer,
                                      int64_t bytes)
{
    comm->diag.text[0] = '\0';
    SBP_TRY(reserve(comm, &comm->received, bytes));
    SBP_TRY(comm->inner.ops->receive(comm->inner.comm, peer, tag, comm->received.at, bytes));
    return take_back(comm, buffer, &comm->received, bytes);
}

static bool staged_is_shared(const struct sbp_comm *comm)
{
    (void)comm;
    return false;
}

static enum sbp_status staged_try_receive(struct sbp_comm *comm, int peer, int tag, void *buffer,
                                          int64_t bytes, bool *arrived)
{
    (void)peer, (void)tag, (void)buffer, (void)bytes;
    *arrived = false;
    return sbp_fail(&comm->diag, SBP_E_UNSUPPORTED, "messages through copies are waited for");
}

static bool staged_listen(struct sbp_comm *comm, void (*heard)(void *context), void *context)
{
    (void)comm, (void)heard, (void)context;
    return false;
}

/* ---- what the inner endpoint does ------------------------------------------------------------ */

static struct sbp_endpoint staged_host(struct sbp_comm *comm)
{
    return comm->inner;
}

static int staged_rank(const struct sbp_comm *comm)
{
    return comm->inner.ops->rank(comm->inner.comm);
}

static int staged_size(const struct sbp_comm *comm)
{
    return comm->inner.ops->size(comm->inner.comm);
}

static enum sbp_status staged_group(struct sbp_comm *comm, const int *ranks, int count, int key,
                                    int *group)
{
    comm->diag.text[0] = '\0';
    struct group *groups = sbp_comm_reserve_group(comm->groups, sizeof *groups, comm->groups_count,
                                                  &comm->groups_capacity, &comm->diag);
    if (groups == NULL)
        return SBP_E_MEMORY;
    comm->groups = groups;
    struct group made = {.size = count};
    SBP_TRY(comm->inner.ops->group(comm->inner.comm, ranks, count, key, &made.inner));
    *group = comm->groups_count++;
    comm->groups[*group] = made;
    return SBP_OK;
}

static enum sbp_status staged_barrier(struct sbp_comm *comm)
{
    comm->diag.text[0] = '\0';
    return comm->inner.ops->barrier(comm->inner.comm);
}

static void staged_abort(struct sbp_comm *comm, const char *reason)
{
    comm->inner.ops->abort(comm->inner.comm, reason);
}

static const char *staged_reason(const struct sbp_comm *comm)
{
    return comm->diag.text[0] != '\0' ? comm->diag.text : comm->inner.ops->reason(comm->inner.comm);
}

static void staged_library(const struct sbp_comm *comm, char *text, int size)
{
    comm->inner.ops->library(comm->inner.comm, text, size);
}

static const struct sbp_comm_ops staged_ops = {
    .host = staged_host,
    .rank = staged_rank,
    .size = staged_size,
    .group = staged_group,
    .all_reduce = staged_all_reduce,
    .all_gather = staged_all_gather,
    .reduce_scatter = staged_reduce_scatter,
    .all_to_all = staged_all_to_all,
    .reduce = staged_reduce,
    .broadcast = staged_broadcast,
    .send = staged_send,
    .receive = staged_receive,
    .is_shared = staged_is_shared,
    .try_receive = staged_try_receive,
    .listen = staged_listen,
    .barrier = staged_barrier,
    .abort = staged_abort,
    .reason = staged_reason,
    .library = staged_library,
};

enum sbp_status sbp_staged_open(const struct sbp_endpoint *inner,
                                const struct sbp_memory_ops *memory, struct sbp_endpoint *staged,
                                struct sbp_diag *diag)
{
    struct sbp_comm *comm = calloc(1, sizeof *comm);
    if (comm == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for communication through copies");
    comm->ops = staged_ops;
    comm->ops.name = inner->ops->name;
    comm->ops.memory = memory;
    comm->inner = *inner;
    comm->memory = memory;
    *staged = (struct sbp_endpoint){&comm->ops, comm};
    return SBP_OK;
}

void sbp_staged_close(struct sbp_endpoint *staged)
{
    struct sbp_comm *comm = staged->comm;
    if (comm == NULL)
        return;
    sbp_device_host_memory.release(comm->sent.at);
    sbp_device_host_memory.release(comm->received.at);
    free(comm->groups);
    free(comm);
    *staged = (struct sbp_endpoint){NULL, NULL};
}
