/* NCCL between processes of one machine, and threads of these: members of a communicator
 * (nccl_team_double.c) move pieces through a segment of shared memory. */
#include <nccl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/math/half.h"
#include "tests/support/gpu_double/nccl_double.h"

/* The header has these without a prototype. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

enum { MOST_GROUPED = 64 };

enum kind { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, REDUCE, BROADCAST };

static _Thread_local char last_error[256];

ncclResult_t double_refuse(ncclResult_t code, const char *what)
{
    (void)snprintf(last_error, sizeof last_error, "stand-in: %s", what);
    return code;
}

void double_nap(void)
{
    const struct timespec pause = {.tv_nsec = 20000};
    (void)nanosleep(&pause, NULL);
}

/* --- communicators --- */

ncclResult_t ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t code)
{
    switch (code) {
    case ncclSuccess:
        return "no error";
    case ncclInvalidArgument:
        return "invalid argument";
    case ncclInvalidUsage:
        return "invalid usage";
    case ncclInProgress:
        return "in progress";
    case ncclRemoteError:
        return "remote process exited or there was a network error";
    default:
        return "unhandled error of the stand-in";
    }
}

const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return last_error;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    const int state = atomic_load(&comm->state), failed = atomic_load(&comm->error);
    *error = (ncclResult_t)(state != (int)ncclSuccess ? state : failed);
    return ncclSuccess;
}

static void end_work(struct ncclComm *comm)
{
    (void)atomic_fetch_sub(&comm->pending, 1);
    double_drop(comm);
}

/* Puts work into a stream. A communicator that does not block is refused, which NCCL would take: it
 * would start a thread for each call. */
static ncclResult_t put_work(struct ncclComm *comm, cudaStream_t stream,
                             void (*run)(void *argument), const void *argument, size_t size,
                             bool is_collective)
{
    if (!comm->blocks)
        return double_refuse(ncclInvalidUsage, "work of a communicator that does not block");
    if (atomic_load(&comm->state) != (int)ncclSuccess)
        return double_refuse(ncclInvalidUsage, "called before the communicator was made");
    const int current = double_device();
    double_make_current(comm->device); /* as NCCL does, whichever the caller's is */
    (void)atomic_fetch_add(&comm->pending, 1);
    double_hold(comm);
    const double takes_s = is_collective ? double_collective_s() : 0; /* of the device at hand */
    const cudaError_t code = double_launch(stream, run, argument, size, takes_s);
    double_make_current(current);
    if (code == cudaSuccess)
        return ncclSuccess;
    end_work(comm);
    return double_refuse(ncclUnhandledCudaError, "no such stream of the communicator's device");
}

/* --- work --- */

/* Members of a communicator, in the threads that do its work; until it is aborted. */
static void together(struct ncclComm *comm)
{
    double_meet(comm, &comm->segment->work);
}

static void stall(struct ncclComm *comm, ncclResult_t error)
{
    atomic_store(&comm->error, (int)error);
    while (!double_is_aborted(comm))
        double_nap();
}

static size_t type_bytes(ncclDataType_t type)
{
    return type == ncclFloat32                           ? sizeof(float)
           : type == ncclFloat64                         ? sizeof(double)
           : type == ncclBfloat16 || type == ncclFloat16 ? sizeof(uint16_t)
                                                         : 1;
}

struct work {
    ncclComm_t comm;
    struct call call;
    const unsigned char *send;
    unsigned char *receive;
    ncclResult_t stalls;
};

static bool is_agreed(const struct work *work)
{
    struct ncclComm *comm = work->comm;
    comm->segment->call[comm->rank] = work->call;
    together(comm);
    bool same = true;
    for (int r = 0; r < comm->size && !double_is_aborted(comm); r++)
        same = same && memcmp(&comm->segment->call[r], &work->call, sizeof work->call) == 0;
    if (!double_is_aborted(comm))
        together(comm);
    return same;
}

static enum sbp_real real_of(int type)
{
    return type == (int)ncclFloat32    ? SBP_F32
           : type == (int)ncclBfloat16 ? SBP_REAL_BF16
           : type == (int)ncclFloat16  ? SBP_REAL_FP16
                                       : SBP_F64;
}

/* Element i of every member's piece, in order; each sum of two is rounded, as on a ring. */
static void reduce(const struct work *work, size_t i, unsigned char *into)
{
    const struct ncclComm *comm = work->comm;
    const enum sbp_real real = real_of(work->call.type);
    for (int r = 0; r < comm->size; r++) {
        const double x = sbp_half_get(real, comm->segment->piece[r], (int64_t)i);
        const double before = r == 0 ? 0 : sbp_half_get(real, into, 0);
        const double sum = real == SBP_F64 ? before + x : (double)((float)before + (float)x);
        const double most = x > before ? x : before;
        sbp_half_put(real, into, 0, r == 0 ? x : work->call.reduction == (int)ncclMax ? most : sum);
    }
}

/* Gives a member its share of the pieces [first, first + count) of everybody's send buffers. */
static void take(const struct work *work, uint64_t first, uint64_t count)
{
    const struct ncclComm *comm = work->comm;
    const size_t bytes = type_bytes((ncclDataType_t)work->call.type);
    const uint64_t block = work->call.count;
    switch (work->call.kind) {
    case ALL_REDUCE:
        for (uint64_t i = 0; i < count; i++)
            reduce(work, i, work->receive + (first + i) * bytes);
        break;
    case REDUCE:
        for (uint64_t i = 0; i < count && work->call.root == comm->rank; i++)
            reduce(work, i, work->receive + (first + i) * bytes);
        break;
    case REDUCE_SCATTER:
        for (uint64_t i = 0; i < count; i++)
            if ((first + i) / block == (uint64_t)comm->rank)
                reduce(work, i, work->receive + (first + i) % block * bytes);
        break;
    case ALL_GATHER:
        for (int r = 0; r < comm->size; r++)
            memcpy(work->receive + ((uint64_t)r * block + first) * bytes, comm->segment->piece[r],
                   count * bytes);
        break;
    default:
        memcpy(work->receive + first * bytes, comm->segment->piece[work->call.root], count * bytes);
    }
}

static void exchange(const struct work *work, uint64_t total)
{
    struct ncclComm *comm = work->comm;
    const size_t bytes = type_bytes((ncclDataType_t)work->call.type);
    const uint64_t step = PIECE_BYTES / bytes;
    for (uint64_t first = 0; first < total && !double_is_aborted(comm); first += step) {
        const uint64_t count = total - first < step ? total - first : step;
        memcpy(comm->segment->piece[comm->rank], work->send + first * bytes, count * bytes);
        together(comm);
        if (double_is_aborted(comm))
            return;
        take(work, first, count);
        together(comm);
    }
}

static void run_collective(void *argument)
{
    const struct work *work = argument;
    struct ncclComm *comm = work->comm;
    const size_t bytes = type_bytes((ncclDataType_t)work->call.type);
    const uint64_t count = work->call.count, all = count * (uint64_t)comm->size;
    const uint64_t total = work->call.kind == REDUCE_SCATTER ? all : count;
    double_touch(work->send, total * bytes, false, "a collective");
    double_touch(work->receive, (work->call.kind == ALL_GATHER ? all : count) * bytes, true,
                 "a collective");
    if (work->stalls != ncclSuccess)
        stall(comm, work->stalls);
    else if (!double_is_aborted(comm) && !is_agreed(work))
        stall(comm, ncclInvalidUsage); /* as calls that differ do */
    else
        exchange(work, total);
    end_work(comm);
}

static ncclResult_t enqueue(const char *name, ncclComm_t comm, struct call call, const void *send,
                            uint64_t sends, void *receive, uint64_t receives, cudaStream_t stream)
{
    const size_t bytes = type_bytes((ncclDataType_t)call.type);
    if (double_fails(name))
        return double_refuse(ncclInternalError, name);
    if (bytes == 1) /* no type of numbers */
        return double_refuse(ncclInvalidArgument, "element type");
    if (call.count > 0 && (double_device_of(send, sends * bytes) != comm->device ||
                           double_device_of(receive, receives * bytes) != comm->device))
        return double_refuse(ncclInvalidArgument, "a buffer is not the device's, or too short");
    const struct work work = {comm, call, send, receive, double_stall_of(name)};
    return put_work(comm, stream, run_collective, &work, sizeof work, true);
}

ncclResult_t ncclAllReduce(const void *send, void *receive, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    const struct call call = {ALL_REDUCE, (int)type, (int)op, 0, count};
    return enqueue("ncclAllReduce", comm, call, send, count, receive, count, stream);
}

ncclResult_t ncclAllGather(const void *send, void *receive, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
    const struct call call = {ALL_GATHER, (int)type, 0, 0, count};
    return enqueue("ncclAllGather", comm, call, send, count, receive, count * (size_t)comm->size,
                   stream);
}

ncclResult_t ncclReduceScatter(const void *send, void *receive, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    const struct call call = {REDUCE_SCATTER, (int)type, (int)op, 0, count};
    return enqueue("ncclReduceScatter", comm, call, send, count * (size_t)comm->size, receive,
                   count, stream);
}

ncclResult_t ncclReduce(const void *send, void *receive, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
    const struct call call = {REDUCE, (int)type, (int)op, root, count};
    if (root < 0 || root >= comm->size)
        return double_refuse(ncclInvalidArgument, "root");
    return enqueue("ncclReduce", comm, call, send, count, receive, count, stream);
}

ncclResult_t ncclBroadcast(const void *send, void *receive, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream)
{
    const struct call call = {BROADCAST, (int)type, 0, root, count};
    if (root < 0 || root >= comm->size)
        return double_refuse(ncclInvalidArgument, "root");
    return enqueue("ncclBroadcast", comm, call, send, count, receive, count, stream);
}

/* --- messages --- */

struct message {
    bool sends;
    int peer;
    unsigned char *data;
    uint64_t total, moved;
};

/* Messages of one communicator that go at the same time. */
struct bundle {
    ncclComm_t comm;
    cudaStream_t stream;
    ncclResult_t stalls;
    int count;
    struct message message[MOST_GROUPED];
};

static _Thread_local int group_depth;
static _Thread_local struct bundle grouped;

/* Moves a piece if it can; false: it cannot. */
static bool advance(struct ncclComm *comm, struct message *message)
{
    struct box *box = message->sends ? &comm->segment->box[comm->rank][message->peer]
                                     : &comm->segment->box[message->peer][comm->rank];
    if (atomic_load(&box->full) == message->sends)
        return false;
    if (message->sends) {
        const uint64_t left = message->total - message->moved;
        box->total = message->total;
        box->bytes = left < BOX_BYTES ? left : BOX_BYTES;
        memcpy(box->data, message->data + message->moved, box->bytes);
    } else if (box->total != message->total) {
        stall(comm, ncclInvalidUsage);
        return false;
    } else {
        memcpy(message->data + message->moved, box->data, box->bytes);
    }
    message->moved += box->bytes;
    atomic_store(&box->full, message->sends);
    return true;
}

static void run_bundle(void *argument)
{
    struct bundle *bundle = argument;
    for (int i = 0; i < bundle->count; i++)
        double_touch(bundle->message[i].data, bundle->message[i].total, !bundle->message[i].sends,
                     "a message");
    if (bundle->stalls != ncclSuccess)
        stall(bundle->comm, bundle->stalls);
    for (bool done = false; !done && !double_is_aborted(bundle->comm);) {
        bool moved = false;
        done = true;
        for (int i = 0; i < bundle->count; i++) {
            struct message *message = &bundle->message[i];
            if (message->moved < message->total)
                moved = advance(bundle->comm, message) || moved;
            done = done && message->moved == message->total;
        }
        if (!moved && !done)
            double_nap();
    }
    end_work(bundle->comm);
}

static ncclResult_t issue(struct bundle *bundle)
{
    if (bundle->count == 0)
        return ncclSuccess;
    const ncclResult_t result =
        put_work(bundle->comm, bundle->stream, run_bundle, bundle, sizeof *bundle, false);
    bundle->count = 0;
    bundle->stalls = ncclSuccess;
    return result;
}

static ncclResult_t add(const char *name, bool sends, void *data, size_t count, ncclDataType_t type,
                        int peer, ncclComm_t comm, cudaStream_t stream)
{
    const uint64_t bytes = count * type_bytes(type);
    if (double_fails(name))
        return double_refuse(ncclInternalError, name);
    if (peer < 0 || peer >= comm->size || count == 0)
        return double_refuse(ncclInvalidArgument, "peer or count");
    if (peer == comm->rank && group_depth == 0)
        return double_refuse(ncclInvalidUsage, "a message to oneself outside of a group");
    if (double_device_of(data, bytes) != comm->device)
        return double_refuse(ncclInvalidArgument, "a buffer is not the device's, or too short");
    if (grouped.count == MOST_GROUPED ||
        (grouped.count > 0 && (grouped.comm != comm || grouped.stream != stream)))
        return double_refuse(ncclInvalidUsage, "more than the stand-in groups");
    grouped.comm = comm;
    grouped.stream = stream;
    const ncclResult_t stalls = double_stall_of(name);
    grouped.stalls = stalls != ncclSuccess ? stalls : grouped.stalls;
    grouped.message[grouped.count++] = (struct message){sends, peer, data, bytes, 0};
    return group_depth > 0 ? ncclSuccess : issue(&grouped);
}

/* Whether CUDA, as a GPU has it, would let a kernel wait for a message under way: one that it loads
 * at its first use, or has no queue of its own for. */
static bool may_wait(void)
{
    const char *loading = getenv("CUDA_MODULE_LOADING");
    const char *queues = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    return loading == NULL || strcmp(loading, "EAGER") != 0 || queues == NULL || atoi(queues) < 32;
}

ncclResult_t ncclSend(const void *data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    if (double_fails("waiting") && may_wait())
        return double_refuse(ncclInvalidUsage, "ncclSend: a kernel may wait for it");
    return add("ncclSend", true, (void *)(uintptr_t)data, count, type, peer, comm, stream);
}

ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    return add("ncclRecv", false, data, count, type, peer, comm, stream);
}

ncclResult_t ncclGroupStart(void)
{
    group_depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    if (double_fails("ncclGroupEnd"))
        return double_refuse(ncclInternalError, "ncclGroupEnd");
    return --group_depth > 0 ? ncclSuccess : issue(&grouped);
}
