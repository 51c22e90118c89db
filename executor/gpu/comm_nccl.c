/* The `nccl` backend: a rank is a process of MPI_COMM_WORLD with a GPU of its own, a group is a
 * communicator of NCCL.
 *
 * MPI starts the ranks and carries what NCCL needs beside its own wires: unique ids, by which
 * teams_nccl.c makes communicators, and the envelopes of messages, which messages_nccl.c moves. A
 * call enqueues on the rank's stream and comes back when the work is done, looking for errors that
 * NCCL finds meanwhile. A rank that has lanes gives the stream of the one at hand instead: then a
 * call comes back at once, and who waits for the lane looks.
 *
 * Work that fails on a GPU may never end there, and whatever gives memory back would wait for it.
 * So the call that finds such a failure aborts all communicators, which ends what they have on the
 * rank's GPU, and then the rank fails as for any other reason, which ends the others.
 */
#include <cuda_runtime_api.h>
#include <limits.h>
#include <nccl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/status.h"
#include "executor/comm/comm_backend.h"
#include "executor/gpu/comm_nccl_priv.h"
#include "executor/gpu/gpu.h"

struct member {
    ncclComm_t nccl;
    int size;
};

/* Yields at first: NCCL's own threads may need the core. */
static void pass_time(int looks)
{
    enum { YIELDS = 64 };
    const struct timespec pause = {.tv_nsec = 20000};
    if (looks < YIELDS)
        (void)sched_yield();
    else
        (void)nanosleep(&pause, NULL);
}

/* The code of a call that is through. */
static ncclResult_t last_code(ncclComm_t nccl, ncclResult_t code)
{
    for (int looks = 0; code == ncclInProgress && nccl != NULL; looks += looks < INT_MAX) {
        const ncclResult_t asked = ncclCommGetAsyncError(nccl, &code);
        if (asked != ncclSuccess)
            return asked;
        if (code == ncclInProgress)
            pass_time(looks);
    }
    return code;
}

enum sbp_status sbp_nccl_check(struct sbp_diag *diag, ncclComm_t nccl, const char *call,
                               ncclResult_t code)
{
    code = last_code(nccl, code);
    if (code == ncclSuccess)
        return SBP_OK;
    const char *last = ncclGetLastError(nccl);
    const bool says_more = last != NULL && last[0] != '\0';
    return sbp_fail(diag, SBP_E_BACKEND, "%s: %s%s%s", call, ncclGetErrorString(code),
                    says_more ? ": " : "", says_more ? last : "");
}

enum sbp_status sbp_nccl_check_host(struct sbp_comm *comm, enum sbp_status status)
{
    if (status == SBP_OK)
        return SBP_OK;
    return sbp_fail(&comm->diag, status, "%s", comm->host.ops->reason(comm->host.comm));
}

/* Whether work of a communicator never ends. */
static enum sbp_status look_at(struct sbp_comm *comm, ncclComm_t nccl)
{
    ncclResult_t found = ncclSuccess;
    SBP_NCCL_TRY(&comm->diag, nccl, ncclCommGetAsyncError, nccl, &found);
    return found == ncclInProgress ? SBP_OK
                                   : sbp_nccl_check(&comm->diag, nccl, "NCCL, meanwhile", found);
}

static enum sbp_status abort_one(struct sbp_comm *comm, ncclComm_t nccl)
{
    (void)comm;
    (void)ncclCommAbort(nccl); /* a failure before is what is told */
    return SBP_OK;
}

/* Calls `visit` for the communicator of each team and channel, until it fails. */
static enum sbp_status visit_all(struct sbp_comm *comm, sbp_nccl_visit *visit)
{
    SBP_TRY(sbp_nccl_teams_visit(comm, visit));
    return sbp_nccl_messages_visit(comm, visit);
}

/* Ends what NCCL has under way here, whatever others do. As a group: to abort one communicator
 * waits for its work, which may lie in a stream behind that of another one. */
static void nccl_call_off(struct sbp_comm *comm)
{
    if (comm->is_aborted)
        return;
    comm->is_aborted = true;
    (void)ncclGroupStart();
    (void)visit_all(comm, abort_one);
    (void)ncclGroupEnd();
}

static enum sbp_status nccl_look(struct sbp_comm *comm)
{
    if (comm->is_aborted)
        return SBP_E_BACKEND; /* the reason stands */
    enum sbp_status status = visit_all(comm, look_at);
    if (status == SBP_OK)
        status = sbp_nccl_messages_look(comm);
    if (status != SBP_OK)
        nccl_call_off(comm);
    return status;
}

static enum sbp_status is_through(struct sbp_comm *comm, cudaStream_t stream, bool *done)
{
    const cudaError_t code = cudaStreamQuery(stream);
    *done = code == cudaSuccess;
    if (code != cudaErrorNotReady)
        return sbp_cuda_check(&comm->diag, "cudaStreamQuery", (int)code);
    (void)cudaGetLastError(); /* or the next launch is blamed for it */
    return SBP_OK;
}

/* Yields: NCCL's own threads may need the core. */
enum sbp_status sbp_nccl_wait(struct sbp_comm *comm, ncclComm_t nccl, cudaStream_t stream)
{
    for (bool done = false;;) {
        enum sbp_status status = is_through(comm, stream, &done);
        if (status == SBP_OK && nccl != NULL)
            status = look_at(comm, nccl);
        if (status == SBP_OK && !done)
            status = sbp_nccl_messages_look(comm);
        if (status != SBP_OK)
            nccl_call_off(comm);
        if (status != SBP_OK || done)
            return status;
        (void)sched_yield();
    }
}

enum sbp_status sbp_nccl_settle(struct sbp_comm *comm)
{
    for (bool done = false;;) {
        SBP_TRY(is_through(comm, comm->stream, &done));
        if (done)
            return SBP_OK;
        SBP_TRY(nccl_look(comm));
        (void)sched_yield();
    }
}

enum sbp_status sbp_nccl_end_call(struct sbp_comm *comm, ncclComm_t nccl, cudaStream_t stream)
{
    const bool has_lanes = comm->stream != comm->own;
    return has_lanes ? SBP_OK : sbp_nccl_wait(comm, nccl, stream);
}

static void nccl_work_on(struct sbp_comm *comm, void *stream)
{
    comm->stream = stream != NULL ? stream : comm->own;
}

/* Collectives ------------------------------------------------------------------------------- */

static ncclDataType_t type_of(enum sbp_real real)
{
    static const ncclDataType_t types[SBP_REALS] = {[SBP_F32] = ncclFloat32,
                                                    [SBP_F64] = ncclFloat64,
                                                    [SBP_REAL_BF16] = ncclBfloat16,
                                                    [SBP_REAL_FP16] = ncclFloat16};
    return types[real];
}

static enum sbp_status find_member(struct sbp_comm *comm, const char *call, int group,
                                   int64_t count, const void *buffer, const void *other,
                                   const struct member **member)
{
    *member = NULL;
    if (group < 0 || group >= comm->members_count)
        return sbp_fail(&comm->diag, SBP_E_BACKEND, "%s: no group %d", call, group);
    *member = &comm->members[group];
    return sbp_comm_check_call(call, (*member)->size, count, buffer, other, &comm->diag);
}

static enum sbp_status nccl_all_reduce(struct sbp_comm *comm, int group, void *buffer,
                                       int64_t count, enum sbp_real real,
                                       enum sbp_comm_reduction reduction)
{
    const struct member *member;
    SBP_TRY(find_member(comm, "all-reduce", group, count, buffer, buffer, &member));
    SBP_NCCL_TRY(&comm->diag, member->nccl, ncclAllReduce, buffer, buffer, (size_t)count,
                 type_of(real), reduction == SBP_SUM ? ncclSum : ncclMax, member->nccl,
                 comm->stream);
    return sbp_nccl_end_call(comm, member->nccl, comm->stream);
}

static enum sbp_status nccl_all_gather(struct sbp_comm *comm, int group, void *receive,
                                       const void *send, int64_t count, enum sbp_real real)
{
    const struct member *member;
    SBP_TRY(find_member(comm, "all-gather", group, count, receive, send, &member));
    SBP_NCCL_TRY(&comm->diag, member->nccl, ncclAllGather, send, receive, (size_t)count,
                 type_of(real), member->nccl, comm->stream);
    return sbp_nccl_end_call(comm, member->nccl, comm->stream);
}

static enum sbp_status nccl_reduce_scatter(struct sbp_comm *comm, int group, void *receive,
                                           const void *send, int64_t count, enum sbp_real real)
{
    const struct member *member;
    SBP_TRY(find_member(comm, "reduce-scatter", group, count, receive, send, &member));
    SBP_NCCL_TRY(&comm->diag, member->nccl, ncclReduceScatter, send, receive, (size_t)count,
                 type_of(real), ncclSum, member->nccl, comm->stream);
    return sbp_nccl_end_call(comm, member->nccl, comm->stream);
}

/* A block to and from every member, its own among them, as one operation. */
static enum sbp_status exchange(struct sbp_comm *comm, const struct member *member,
                                unsigned char *receive, const unsigned char *send, size_t count,
                                enum sbp_real real)
{
    const size_t block = count * (size_t)sbp_comm_real_bytes(real);
    for (int m = 0; m < member->size; m++) {
        SBP_NCCL_TRY(&comm->diag, member->nccl, ncclSend, send + (size_t)m * block, count,
                     type_of(real), m, member->nccl, comm->stream);
        SBP_NCCL_TRY(&comm->diag, member->nccl, ncclRecv, receive + (size_t)m * block, count,
                     type_of(real), m, member->nccl, comm->stream);
    }
    return SBP_OK;
}

static enum sbp_status nccl_all_to_all(struct sbp_comm *comm, int group, void *receive,
                                       const void *send, int64_t count, enum sbp_real real)
{
    const struct member *member;
    SBP_TRY(find_member(comm, "all-to-all", group, count, receive, send, &member));
    if (count == 0)
        return SBP_OK;
    SBP_NCCL_TRY(&comm->diag, member->nccl, ncclGroupStart);
    const enum sbp_status status = exchange(comm, member, receive, send, (size_t)count, real);
    const enum sbp_status ended =
        sbp_nccl_check(&comm->diag, member->nccl, "ncclGroupEnd", ncclGroupEnd());
    SBP_TRY(status);
    SBP_TRY(ended);
    return sbp_nccl_end_call(comm, member->nccl, comm->stream);
}

static enum sbp_status nccl_reduce(struct sbp_comm *comm, int group, int root, void *buffer,
                                   int64_t count, enum sbp_real real)
{
    const struct member *member;
    SBP_TRY(find_member(comm, "reduce", group, count, buffer, buffer, &member));
    if (root < 0 || root >= member->size)
        return sbp_fail(&comm->diag, SBP_E_BACKEND, "reduce: no member %d", root);
    SBP_NCCL_TRY(&comm->diag, member->nccl, ncclReduce, buffer, buffer, (size_t)count,
                 type_of(real), ncclSum, root, member->nccl, comm->stream);
    return sbp_nccl_end_call(comm, member->nccl, comm->stream);
}

static enum sbp_status nccl_broadcast(struct sbp_comm *comm, int group, int root, void *buffer,
                                      int64_t count, enum sbp_real real)
{
    const struct member *member;
    SBP_TRY(find_member(comm, "broadcast", group, count, buffer, buffer, &member));
    if (root < 0 || root >= member->size)
        return sbp_fail(&comm->diag, SBP_E_BACKEND, "broadcast: no member %d", root);
    SBP_NCCL_TRY(&comm->diag, member->nccl, ncclBroadcast, buffer, buffer, (size_t)count,
                 type_of(real), root, member->nccl, comm->stream);
    return sbp_nccl_end_call(comm, member->nccl, comm->stream);
}

static enum sbp_status nccl_barrier(struct sbp_comm *comm)
{
    return sbp_nccl_check_host(comm, comm->host.ops->barrier(comm->host.comm));
}

/* Groups ------------------------------------------------------------------------------------ */

static enum sbp_status nccl_group(struct sbp_comm *comm, const int *ranks, int count, int key,
                                  int *group)
{
    const struct sbp_wave_group who = {ranks, count};
    const struct sbp_nccl_team *team;
    struct member *members = sbp_comm_reserve_group(
        comm->members, sizeof *members, comm->members_count, &comm->members_capacity, &comm->diag);
    if (members == NULL)
        return SBP_E_MEMORY;
    comm->members = members;
    SBP_TRY(sbp_nccl_team(comm, &who, key, &team));
    *group = comm->members_count++;
    comm->members[*group] = (struct member){team->nccl, count};
    return SBP_OK;
}

static enum sbp_status nccl_name_groups(struct sbp_comm *comm, const int *ranks, const int *counts,
                                        int groups)
{
    struct sbp_wave_group *named = calloc((size_t)groups + 1, sizeof *named);
    if (named == NULL)
        return sbp_fail(&comm->diag, SBP_E_MEMORY, "%d groups: out of memory", groups);
    for (int g = 0; g < groups; g++) {
        named[g] = (struct sbp_wave_group){ranks, counts[g]};
        ranks += counts[g];
    }
    const enum sbp_status status = sbp_nccl_name_groups(comm, named, groups);
    free(named);
    return status;
}

/* Endpoint ---------------------------------------------------------------------------------- */

/* NCCL knows no message before it is received, and its streams have one caller. */
static bool nccl_is_shared(const struct sbp_comm *comm)
{
    (void)comm;
    return false;
}

static enum sbp_status nccl_try_receive(struct sbp_comm *comm, int peer, int tag, void *buffer,
                                        int64_t bytes, bool *arrived)
{
    (void)peer;
    (void)tag;
    (void)buffer;
    (void)bytes;
    *arrived = false;
    return sbp_fail(&comm->diag, SBP_E_UNSUPPORTED, "nccl: a message is received by waiting alone");
}

static bool nccl_listen(struct sbp_comm *comm, void (*heard)(void *context), void *context)
{
    (void)comm;
    (void)heard;
    (void)context;
    return false;
}

static int nccl_rank(const struct sbp_comm *comm)
{
    return comm->rank;
}

static int nccl_size(const struct sbp_comm *comm)
{
    return comm->size;
}

static struct sbp_endpoint nccl_host(struct sbp_comm *comm)
{
    return comm->host;
}

static void nccl_abort(struct sbp_comm *comm, const char *reason)
{
    (void)sbp_fail(&comm->diag, SBP_E_BACKEND, "%s", reason);
    comm->host.ops->abort(comm->host.comm, reason);
}

static const char *nccl_reason(const struct sbp_comm *comm)
{
    return comm->diag.text;
}

/* "NCCL 2.28.9, CUDA 13.0, driver 13.0": of the driver, the newest CUDA that it knows. */
static void nccl_library(const struct sbp_comm *comm, char *text, int size)
{
    int nccl = 0, runtime = 0, driver = 0;
    (void)comm;
    text[0] = '\0';
    if (ncclGetVersion(&nccl) != ncclSuccess || cudaRuntimeGetVersion(&runtime) != cudaSuccess ||
        cudaDriverGetVersion(&driver) != cudaSuccess)
        return;
    (void)snprintf(text, (size_t)size, "NCCL %d.%d.%d, CUDA %d.%d, driver %d.%d", nccl / 10000,
                   nccl / 100 % 100, nccl % 100, runtime / 1000, runtime / 10 % 100, driver / 1000,
                   driver / 10 % 100);
}

static const struct sbp_comm_ops nccl_ops = {
    .name = "nccl",
    .memory = &sbp_memory_cuda,
    .host = nccl_host,
    .rank = nccl_rank,
    .size = nccl_size,
    .name_groups = nccl_name_groups,
    .group = nccl_group,
    .all_reduce = nccl_all_reduce,
    .all_gather = nccl_all_gather,
    .reduce_scatter = nccl_reduce_scatter,
    .all_to_all = nccl_all_to_all,
    .reduce = nccl_reduce,
    .broadcast = nccl_broadcast,
    .send = sbp_nccl_send,
    .receive = sbp_nccl_receive,
    .by_host = sbp_nccl_by_host,
    .is_shared = nccl_is_shared,
    .try_receive = nccl_try_receive,
    .listen = nccl_listen,
    .barrier = nccl_barrier,
    .work_on = nccl_work_on,
    .look = nccl_look,
    .call_off = nccl_call_off,
    .abort = nccl_abort,
    .reason = nccl_reason,
    .library = nccl_library,
};

/* Run --------------------------------------------------------------------------------------- */

/* The pool keeps what messages' copies gave back: giving it to the system waits for the device. A
 * full device is out of memory: the pool must not let a copy wait for one that is still to be
 * received, whose receiver may be waiting for this rank. */
static enum sbp_status open_device(struct sbp_comm *comm)
{
    int device;
    cudaMemPool_t pool;
    uint64_t everything = UINT64_MAX;
    int never = 0;
    SBP_CUDA_TRY(&comm->diag, cudaGetDevice, &device);
    SBP_CUDA_TRY(&comm->diag, cudaDeviceGetDefaultMemPool, &pool, device);
    SBP_CUDA_TRY(&comm->diag, cudaMemPoolSetAttribute, pool, cudaMemPoolAttrReleaseThreshold,
                 &everything);
    SBP_CUDA_TRY(&comm->diag, cudaMemPoolSetAttribute, pool,
                 cudaMemPoolReuseAllowInternalDependencies, &never);
    SBP_CUDA_TRY(&comm->diag, cudaStreamCreateWithFlags, &comm->own, cudaStreamNonBlocking);
    comm->stream = comm->own;
    return sbp_nccl_messages_open(comm);
}

/* NCCL may wait for the other members here, so that all ranks go in one order: messages by the host
 * leave, teams as they were made, then channels by sender and receiver. None leaves before all are
 * through: a launcher may not end a job in which some have finished. */
static enum sbp_status close_all(struct sbp_comm *comm)
{
    SBP_TRY(sbp_nccl_by_host(comm, false, 0));
    SBP_TRY(sbp_nccl_teams_close(comm));
    SBP_TRY(sbp_nccl_messages_close(comm));
    SBP_CUDA_TRY(&comm->diag, cudaStreamDestroy, comm->own);
    return nccl_barrier(comm);
}

struct run {
    sbp_rank_main main;
    void *argument;
    enum sbp_status refused; /* by all ranks alike */
    struct sbp_diag why;
};

static enum sbp_status run_on_device(struct sbp_comm *comm, const struct run *run,
                                     struct sbp_diag *diag)
{
    SBP_TRY(open_device(comm));
    SBP_TRY(run->main(&nccl_ops, comm, run->argument, diag));
    return close_all(comm);
}

static enum sbp_status run_rank(const struct sbp_comm_ops *ops, struct sbp_comm *mpi,
                                void *argument, struct sbp_diag *diag)
{
    struct run *run = argument;
    struct sbp_comm comm = {.host = {ops, mpi}, .rank = ops->rank(mpi), .size = ops->size(mpi)};
    enum sbp_status status = sbp_gpu_choose(&comm.host, &run->refused, &run->why, &comm.diag);
    if (status == SBP_OK && run->refused == SBP_OK)
        status = run_on_device(&comm, run, diag);
    sbp_nccl_messages_free(&comm);
    sbp_nccl_teams_free(&comm);
    free(comm.members);
    if (status != SBP_OK && diag->text[0] == '\0')
        (void)sbp_fail(diag, status, "%s",
                       comm.diag.text[0] != '\0' ? comm.diag.text : sbp_status_text(status));
    return status;
}

enum sbp_status sbp_nccl_run(sbp_rank_main main, void *argument, struct sbp_diag *diag)
{
    struct run run = {.main = main, .argument = argument};
    SBP_TRY(sbp_mpi_run(run_rank, &run, diag));
    return run.refused == SBP_OK ? SBP_OK : sbp_fail(diag, run.refused, "%s", run.why.text);
}
