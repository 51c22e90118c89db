/* Messages of the `nccl` backend, on a channel for each direction of each pair of ranks.
 *
 * The host endpoint carries an envelope before a message, so that the receiver knows its tag and
 * size, and then NCCL carries its bytes. A channel delivers in the order sent: what comes before it
 * is asked for waits as a parcel. A rank's messages to itself are parcels, too.
 *
 * By the host, the bytes follow their envelope there, and no channel opens: from and to the
 * device's memory where the library takes that, else through pinned memory.
 */
#include <cuda_runtime_api.h>
#include <limits.h>
#include <nccl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/status.h"
#include "executor/comm/comm_backend.h"
#include "executor/gpu/comm_nccl_priv.h"
#include "executor/gpu/gpu.h"

/* Tags of this backend's own messages through the host endpoint. */
enum { CHANNEL_TAG = 0x4e43, ENVELOPE_TAG = 0x4e44, BYTES_TAG = 0x4e45 };

/* One direction of a pair of ranks, by a communicator of two: the sender is 0. Its stream may wait
 * for the other rank without anything else waiting. */
struct channel {
    ncclComm_t nccl; /* NULL: not opened */
    cudaStream_t stream;
    cudaEvent_t event; /* what it, or a lane, has come to */
};

struct envelope {
    int64_t tag, bytes;
};

/* A message that came before it was asked for. */
struct parcel {
    struct parcel *next;
    int peer, tag;
    int64_t bytes;
    void *data; /* (bytes), of the device's pool; NULL: empty */
};

/* A copy of a message on the device that MPI reads; the next message may take it once it has left.
 * It is no memory of the pool, which libraries cannot share with other processes. */
struct loan {
    void *data; /* (bytes); NULL: none */
    int64_t bytes;
    atomic_bool left;
};

/* A stage sends ahead and back; what comes while both are on their way goes through pinned memory.
 */
enum { LOANS = 2 };

struct sbp_nccl_messages {
    struct channel *to, *from;             /* (ranks) each */
    struct parcel *parcels, **parcels_end; /* oldest first */
    unsigned char *greeting;               /* one byte of the device: what opens a channel */
    bool by_host;
    bool direct; /* by the host, out of the device's memory */
    struct loan loan[LOANS];
    void *room; /* (room_bytes) of pinned memory: a message on its way by the host */
    int64_t room_bytes;
};

/* Channels ---------------------------------------------------------------------------------- */

/* NCCL connects two ranks at their first transfer: a byte, here, so that no later one waits. */
static enum sbp_status greet(struct sbp_comm *comm, const struct channel *channel, bool sends)
{
    if (sends)
        SBP_NCCL_TRY(&comm->diag, channel->nccl, ncclSend, comm->messages->greeting, 1, ncclUint8,
                     1, channel->nccl, channel->stream);
    else
        SBP_NCCL_TRY(&comm->diag, channel->nccl, ncclRecv, comm->messages->greeting, 1, ncclUint8,
                     0, channel->nccl, channel->stream);
    return sbp_nccl_wait(comm, channel->nccl, channel->stream);
}

/* Setting up a communicator may wait for the whole device, and work that is still there for ranks
 * that come to it only after they have joined: so all that was given is waited for first. */
static enum sbp_status join_channel(struct sbp_comm *comm, struct channel *channel, bool sends,
                                    ncclUniqueId id)
{
    SBP_TRY(sbp_nccl_settle(comm));
    SBP_CUDA_TRY(&comm->diag, cudaStreamCreateWithFlags, &channel->stream, cudaStreamNonBlocking);
    SBP_CUDA_TRY(&comm->diag, cudaEventCreate, &channel->event);
    SBP_TRY(sbp_nccl_join(comm, &id, 2, sends ? 0 : 1, true, &channel->nccl));
    return greet(comm, channel, sends);
}

/* Waits until `peer` receives from this rank. */
static enum sbp_status open_to(struct sbp_comm *comm, int peer)
{
    ncclUniqueId id;
    if (comm->messages->to[peer].nccl != NULL)
        return SBP_OK;
    SBP_NCCL_TRY(&comm->diag, NULL, ncclGetUniqueId, &id);
    SBP_TRY(sbp_nccl_check_host(
        comm, comm->host.ops->send(comm->host.comm, peer, CHANNEL_TAG, &id, (int64_t)sizeof id)));
    return join_channel(comm, &comm->messages->to[peer], true, id);
}

static enum sbp_status open_from(struct sbp_comm *comm, int peer)
{
    ncclUniqueId id;
    if (comm->messages->from[peer].nccl != NULL)
        return SBP_OK;
    SBP_TRY(sbp_nccl_check_host(comm, comm->host.ops->receive(comm->host.comm, peer, CHANNEL_TAG,
                                                              &id, (int64_t)sizeof id)));
    return join_channel(comm, &comm->messages->from[peer], false, id);
}

/* The stream `behind` waits, before all that it is given from now on, for what `before` was given
 * so far. */
static enum sbp_status order(struct sbp_comm *comm, cudaStream_t before, cudaEvent_t event,
                             cudaStream_t behind)
{
    SBP_CUDA_TRY(&comm->diag, cudaEventRecord, event, before);
    SBP_CUDA_TRY(&comm->diag, cudaStreamWaitEvent, behind, event, 0);
    return SBP_OK;
}

/* By the host, through pinned memory -------------------------------------------------------- */

static enum sbp_status release_room(struct sbp_comm *comm)
{
    void *const room = comm->messages->room;
    comm->messages->room = NULL;
    comm->messages->room_bytes = 0;
    if (room != NULL)
        SBP_CUDA_TRY(&comm->diag, cudaFreeHost, room);
    return SBP_OK;
}

static enum sbp_status reserve_room(struct sbp_comm *comm, int64_t bytes)
{
    void *room = NULL;
    if (bytes <= comm->messages->room_bytes)
        return SBP_OK;
    SBP_TRY(release_room(comm));
    SBP_CUDA_TRY(&comm->diag, cudaMallocHost, &room, (size_t)bytes);
    comm->messages->room = room;
    comm->messages->room_bytes = bytes;
    return SBP_OK;
}

/* The host endpoint takes a copy of its own, so that the room is free again. */
static enum sbp_status send_staged(struct sbp_comm *comm, int peer, const void *buffer,
                                   int64_t bytes)
{
    SBP_TRY(reserve_room(comm, bytes));
    SBP_CUDA_TRY(&comm->diag, cudaMemcpyAsync, comm->messages->room, buffer, (size_t)bytes,
                 cudaMemcpyDeviceToHost, comm->stream);
    SBP_TRY(sbp_nccl_settle(comm));
    return sbp_nccl_check_host(
        comm, comm->host.ops->send(comm->host.comm, peer, BYTES_TAG, comm->messages->room, bytes));
}

static enum sbp_status fetch_staged(struct sbp_comm *comm, int peer, void *buffer, int64_t bytes)
{
    SBP_TRY(reserve_room(comm, bytes));
    SBP_TRY(sbp_nccl_check_host(comm, comm->host.ops->receive(comm->host.comm, peer, BYTES_TAG,
                                                              comm->messages->room, bytes)));
    SBP_CUDA_TRY(&comm->diag, cudaMemcpyAsync, buffer, comm->messages->room, (size_t)bytes,
                 cudaMemcpyHostToDevice, comm->stream);
    return sbp_nccl_settle(comm); /* the room is the next message's */
}

/* By the host, out of the device's memory --------------------------------------------------- */

/* To allocate may wait for the device, on which a sum may wait for another rank that waits for this
 * one: so no loan is made while a step runs. */
static enum sbp_status make_loans(struct sbp_comm *comm, int64_t bytes)
{
    for (int i = 0; i < LOANS; i++) {
        struct loan *loan = &comm->messages->loan[i];
        if (loan->data != NULL)
            continue;
        SBP_CUDA_TRY(&comm->diag, cudaMalloc, &loan->data, (size_t)bytes);
        loan->bytes = bytes;
        atomic_store(&loan->left, true);
    }
    return SBP_OK;
}

/* Waits until their messages have left. */
static enum sbp_status release_loans(struct sbp_comm *comm)
{
    for (int i = 0; i < LOANS; i++) {
        struct loan *loan = &comm->messages->loan[i];
        bool all;
        while (loan->data != NULL && !atomic_load(&loan->left)) {
            SBP_TRY(sbp_nccl_check_host(comm, comm->host.ops->have_left(comm->host.comm, &all)));
            (void)sched_yield();
        }
        sbp_memory_cuda.release(loan->data);
        loan->data = NULL;
    }
    return SBP_OK;
}

/* One that no message is in; NULL. */
static struct loan *free_loan(struct sbp_comm *comm, int64_t bytes)
{
    for (int i = 0; i < LOANS; i++) {
        struct loan *loan = &comm->messages->loan[i];
        if (loan->data != NULL && loan->bytes >= bytes && atomic_load(&loan->left))
            return loan;
    }
    return NULL;
}

/* MPI knows no streams, so the stream is waited for. */
static enum sbp_status send_loan(struct sbp_comm *comm, int peer, struct loan *loan,
                                 const void *buffer, int64_t bytes)
{
    SBP_CUDA_TRY(&comm->diag, cudaMemcpyAsync, loan->data, buffer, (size_t)bytes,
                 cudaMemcpyDeviceToDevice, comm->stream);
    SBP_TRY(sbp_nccl_settle(comm));
    atomic_store(&loan->left, false);
    return sbp_nccl_check_host(comm, comm->host.ops->lend(comm->host.comm, peer, BYTES_TAG,
                                                          loan->data, bytes, &loan->left));
}

/* The receiver cannot tell the two ways apart. */
static enum sbp_status send_by_host(struct sbp_comm *comm, int peer, const void *buffer,
                                    int64_t bytes)
{
    struct loan *loan = free_loan(comm, bytes);
    return loan != NULL ? send_loan(comm, peer, loan, buffer, bytes)
                        : send_staged(comm, peer, buffer, bytes);
}

/* Work that the stream was given before may still read the buffer. */
static enum sbp_status fetch_direct(struct sbp_comm *comm, int peer, void *buffer, int64_t bytes)
{
    SBP_TRY(sbp_nccl_settle(comm));
    return sbp_nccl_check_host(
        comm, comm->host.ops->receive(comm->host.comm, peer, BYTES_TAG, buffer, bytes));
}

enum sbp_status sbp_nccl_messages_look(struct sbp_comm *comm)
{
    bool all;
    return comm->messages->by_host
               ? sbp_nccl_check_host(comm, comm->host.ops->have_left(comm->host.comm, &all))
               : SBP_OK;
}

enum sbp_status sbp_nccl_by_host(struct sbp_comm *comm, bool by_host, int64_t largest_bytes)
{
    struct sbp_nccl_messages *messages = comm->messages;
    if (!by_host)
        SBP_TRY(release_loans(comm));
    messages->by_host = by_host;
    messages->direct = by_host && comm->host.ops->takes_devices != NULL &&
                       comm->host.ops->takes_devices(comm->host.comm);
    if (messages->direct)
        SBP_TRY(make_loans(comm, largest_bytes));
    return by_host ? reserve_room(comm, largest_bytes) : SBP_OK;
}

/* Point to point ---------------------------------------------------------------------------- */

/* A copy that the sender's buffer may change behind; NULL for no bytes. */
static enum sbp_status copy_message(struct sbp_comm *comm, const void *buffer, int64_t bytes,
                                    void **copy)
{
    *copy = NULL;
    if (bytes == 0)
        return SBP_OK;
    SBP_CUDA_TRY(&comm->diag, cudaMallocAsync, copy, (size_t)bytes, comm->stream);
    SBP_CUDA_TRY(&comm->diag, cudaMemcpyAsync, *copy, buffer, (size_t)bytes,
                 cudaMemcpyDeviceToDevice, comm->stream);
    return sbp_nccl_end_call(comm, NULL, comm->stream);
}

/* Takes the data over. */
static enum sbp_status keep_parcel(struct sbp_comm *comm, int peer, int tag, void *data,
                                   int64_t bytes)
{
    struct parcel *parcel = malloc(sizeof *parcel);
    if (parcel == NULL)
        return sbp_fail(&comm->diag, SBP_E_MEMORY, "a message of tag %d: out of memory", tag);
    *parcel = (struct parcel){.peer = peer, .tag = tag, .bytes = bytes, .data = data};
    *comm->messages->parcels_end = parcel;
    comm->messages->parcels_end = &parcel->next;
    return SBP_OK;
}

static enum sbp_status free_parcel(struct sbp_comm *comm, struct parcel *parcel)
{
    enum sbp_status status = SBP_OK;
    if (parcel->data != NULL)
        status = sbp_cuda_check(&comm->diag, "cudaFreeAsync",
                                (int)cudaFreeAsync(parcel->data, comm->stream));
    free(parcel);
    return status;
}

/* The oldest of a peer and tag, taken out of the list; NULL. */
static struct parcel *take_parcel(struct sbp_comm *comm, int peer, int tag)
{
    for (struct parcel **at = &comm->messages->parcels; *at != NULL; at = &(*at)->next) {
        struct parcel *parcel = *at;
        if (parcel->peer != peer || parcel->tag != tag)
            continue;
        *at = parcel->next;
        if (comm->messages->parcels_end == &parcel->next)
            comm->messages->parcels_end = at;
        return parcel;
    }
    return NULL;
}

enum sbp_status sbp_nccl_send(struct sbp_comm *comm, int peer, int tag, const void *buffer,
                              int64_t bytes)
{
    const struct envelope envelope = {tag, bytes};
    const bool by_host = comm->messages->by_host && peer != comm->rank;
    void *copy = NULL;
    SBP_TRY(sbp_comm_check_message(comm->size, peer, tag, INT_MAX, buffer, bytes, &comm->diag));
    if (!by_host && peer != comm->rank)
        SBP_TRY(open_to(comm, peer));
    if (!by_host)
        SBP_TRY(copy_message(comm, buffer, bytes, &copy));
    if (peer == comm->rank)
        return keep_parcel(comm, peer, tag, copy, bytes);
    SBP_TRY(sbp_nccl_check_host(comm, comm->host.ops->send(comm->host.comm, peer, ENVELOPE_TAG,
                                                           &envelope, (int64_t)sizeof envelope)));
    if (bytes == 0)
        return SBP_OK;
    if (by_host)
        return send_by_host(comm, peer, buffer, bytes);
    const struct channel *channel = &comm->messages->to[peer];
    SBP_TRY(order(comm, comm->stream, channel->event, channel->stream));
    SBP_NCCL_TRY(&comm->diag, channel->nccl, ncclSend, copy, (size_t)bytes, ncclUint8, 1,
                 channel->nccl, channel->stream);
    SBP_CUDA_TRY(&comm->diag, cudaFreeAsync, copy, channel->stream);
    return SBP_OK;
}

static enum sbp_status fetch(struct sbp_comm *comm, int peer, void *buffer, int64_t bytes)
{
    const struct channel *channel = &comm->messages->from[peer];
    if (bytes == 0)
        return SBP_OK;
    if (comm->messages->by_host)
        return comm->messages->direct ? fetch_direct(comm, peer, buffer, bytes)
                                      : fetch_staged(comm, peer, buffer, bytes);
    SBP_TRY(order(comm, comm->stream, channel->event, channel->stream));
    SBP_NCCL_TRY(&comm->diag, channel->nccl, ncclRecv, buffer, (size_t)bytes, ncclUint8, 0,
                 channel->nccl, channel->stream);
    SBP_TRY(order(comm, channel->stream, channel->event, comm->stream));
    return sbp_nccl_end_call(comm, channel->nccl, channel->stream);
}

static enum sbp_status fetch_parcel(struct sbp_comm *comm, int peer,
                                    const struct envelope *envelope)
{
    void *data = NULL;
    if (envelope->bytes > 0)
        SBP_CUDA_TRY(&comm->diag, cudaMallocAsync, &data, (size_t)envelope->bytes, comm->stream);
    /* MPI takes no memory of the pool. */
    SBP_TRY(comm->messages->direct && data != NULL ? fetch_staged(comm, peer, data, envelope->bytes)
                                                   : fetch(comm, peer, data, envelope->bytes));
    return keep_parcel(comm, peer, (int)envelope->tag, data, envelope->bytes);
}

/* Takes the parcel. */
static enum sbp_status deliver(struct sbp_comm *comm, struct parcel *parcel, void *buffer,
                               int64_t bytes)
{
    enum sbp_status status = SBP_OK;
    if (parcel->bytes != bytes)
        status =
            sbp_fail(&comm->diag, SBP_E_BACKEND,
                     "rank %d expects %lld bytes from rank %d, tag %d; it sent %lld", comm->rank,
                     (long long)bytes, parcel->peer, parcel->tag, (long long)parcel->bytes);
    else if (bytes > 0)
        status = sbp_cuda_check(&comm->diag, "cudaMemcpyAsync",
                                (int)cudaMemcpyAsync(buffer, parcel->data, (size_t)bytes,
                                                     cudaMemcpyDeviceToDevice, comm->stream));
    const enum sbp_status freed = free_parcel(comm, parcel);
    SBP_TRY(status);
    SBP_TRY(freed);
    return sbp_nccl_end_call(comm, NULL, comm->stream);
}

/* Messages of a channel come in the order sent: those of other tags are put by. */
enum sbp_status sbp_nccl_receive(struct sbp_comm *comm, int peer, int tag, void *buffer,
                                 int64_t bytes)
{
    SBP_TRY(sbp_comm_check_message(comm->size, peer, tag, INT_MAX, buffer, bytes, &comm->diag));
    struct parcel *parcel = take_parcel(comm, peer, tag);
    if (parcel == NULL && peer == comm->rank)
        return sbp_fail(&comm->diag, SBP_E_BACKEND,
                        "rank %d waits for a message of its own, tag %d, that it has not sent",
                        peer, tag);
    if (parcel == NULL && !comm->messages->by_host)
        SBP_TRY(open_from(comm, peer));
    while (parcel == NULL) {
        struct envelope envelope;
        SBP_TRY(sbp_nccl_check_host(comm,
                                    comm->host.ops->receive(comm->host.comm, peer, ENVELOPE_TAG,
                                                            &envelope, (int64_t)sizeof envelope)));
        if (envelope.tag == tag && envelope.bytes == bytes)
            return fetch(comm, peer, buffer, bytes);
        SBP_TRY(fetch_parcel(comm, peer, &envelope));
        parcel = take_parcel(comm, peer, tag);
    }
    return deliver(comm, parcel, buffer, bytes);
}

/* Open and close ---------------------------------------------------------------------------- */

enum sbp_status sbp_nccl_messages_open(struct sbp_comm *comm)
{
    const size_t ranks = (size_t)comm->size;
    struct sbp_nccl_messages *messages = calloc(1, sizeof *messages);
    comm->messages = messages;
    if (messages == NULL)
        return sbp_fail(&comm->diag, SBP_E_MEMORY, "%d ranks: out of memory", comm->size);
    messages->parcels_end = &messages->parcels;
    messages->greeting = sbp_memory_cuda.allocate(1);
    messages->to = calloc(ranks, sizeof *messages->to);
    messages->from = calloc(ranks, sizeof *messages->from);
    if (messages->greeting == NULL || messages->to == NULL || messages->from == NULL)
        return sbp_fail(&comm->diag, SBP_E_MEMORY, "%d ranks: out of memory", comm->size);
    return SBP_OK;
}

enum sbp_status sbp_nccl_messages_visit(struct sbp_comm *comm, sbp_nccl_visit *visit)
{
    for (int r = 0; r < comm->size; r++) {
        const ncclComm_t to = comm->messages->to[r].nccl, from = comm->messages->from[r].nccl;
        if (to != NULL)
            SBP_TRY(visit(comm, to));
        if (from != NULL)
            SBP_TRY(visit(comm, from));
    }
    return SBP_OK;
}

static enum sbp_status close_channel(struct sbp_comm *comm, struct channel *channel)
{
    if (channel->nccl == NULL)
        return SBP_OK;
    SBP_TRY(sbp_nccl_wait(comm, channel->nccl, channel->stream));
    SBP_TRY(sbp_nccl_leave(comm, channel->nccl));
    SBP_CUDA_TRY(&comm->diag, cudaEventDestroy, channel->event);
    SBP_CUDA_TRY(&comm->diag, cudaStreamDestroy, channel->stream);
    return SBP_OK;
}

/* By sender and receiver: NCCL may wait for the other rank of a channel, so that all ranks go in
 * one order. */
static enum sbp_status close_channels(struct sbp_comm *comm)
{
    for (int sender = 0; sender < comm->size; sender++)
        for (int receiver = 0; receiver < comm->size; receiver++) {
            if (sender == comm->rank)
                SBP_TRY(close_channel(comm, &comm->messages->to[receiver]));
            else if (receiver == comm->rank)
                SBP_TRY(close_channel(comm, &comm->messages->from[sender]));
        }
    return SBP_OK;
}

enum sbp_status sbp_nccl_messages_close(struct sbp_comm *comm)
{
    struct sbp_nccl_messages *messages = comm->messages;
    SBP_TRY(close_channels(comm));
    while (messages->parcels != NULL) {
        struct parcel *parcel = messages->parcels;
        messages->parcels = parcel->next;
        SBP_TRY(free_parcel(comm, parcel));
    }
    SBP_TRY(sbp_nccl_wait(comm, NULL, comm->stream));
    sbp_memory_cuda.release(messages->greeting);
    return release_room(comm);
}

/* After a failure loans stay, since MPI may still read them. */
void sbp_nccl_messages_free(struct sbp_comm *comm)
{
    if (comm->messages == NULL)
        return;
    free(comm->messages->from);
    free(comm->messages->to);
    free(comm->messages);
    comm->messages = NULL;
}
