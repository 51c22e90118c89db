/* The nccl backend over the stand-in of tests/support/gpu_double, under mpirun; or with `threads N`
 * as the first arguments in so many threads of this process. Without further ones: all checks;
 * `unnamed`: of groups that nobody named before. `fail` and `abort`: one rank fails while the
 * others wait; the run must end with its reason. `work`: a little of everything, for failures that
 * the stand-in injects. `mesh`: groups of four ranks, whose splits the stand-in counts. `called
 * off`: work of groups and of open channels that never ends is called off.
 */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/status.h"
#include "executor/gpu/gpu.h"
#include "tests/ranks/comm_checks.h"
#include "tests/ranks/nccl_host.h"

/* An endpoint over host memory for the checks, which every call copies to the device and back. */
enum { SIZES = 128 };
struct sbp_comm {
    struct sbp_endpoint real;
    struct sbp_diag diag;
    int group_sizes[SIZES]; /* by handle, which the real endpoint counts from 0 */
};

static enum sbp_status check(struct sbp_comm *comm, enum sbp_status status)
{
    if (status == SBP_OK)
        return SBP_OK;
    return sbp_fail(&comm->diag, status, "%s", comm->real.ops->reason(comm->real.comm));
}

/* A device's copy of bytes; exactly as long, so that whoever goes beyond is caught. */
static enum sbp_status put(struct sbp_comm *comm, const void *host, int64_t bytes, void **device)
{
    const struct sbp_memory_ops *memory = comm->real.ops->memory;
    *device = bytes > 0 ? memory->allocate(bytes) : NULL;
    if (bytes == 0)
        return SBP_OK;
    if (*device == NULL)
        return sbp_fail(&comm->diag, SBP_E_MEMORY, "no %lld bytes", (long long)bytes);
    return memory->from_host(*device, host, bytes);
}

/* Copies back where status is good, and gives the device's memory back. */
static enum sbp_status get(struct sbp_comm *comm, enum sbp_status status, void *host, void *device,
                           int64_t bytes)
{
    const struct sbp_memory_ops *memory = comm->real.ops->memory;
    if (status == SBP_OK && bytes > 0)
        status = memory->to_host(host, device, bytes);
    memory->release(device);
    return status;
}

static int64_t bytes_of(int64_t count, enum sbp_real real)
{
    return count * (real == SBP_F32 ? 4 : 8);
}

static int staged_rank(const struct sbp_comm *comm)
{
    return comm->real.ops->rank(comm->real.comm);
}

static int staged_size(const struct sbp_comm *comm)
{
    return comm->real.ops->size(comm->real.comm);
}

static enum sbp_status staged_group(struct sbp_comm *comm, const int *ranks, int count, int key,
                                    int *group)
{
    SBP_TRY(check(comm, comm->real.ops->group(comm->real.comm, ranks, count, key, group)));
    if (*group >= SIZES)
        return sbp_fail(&comm->diag, SBP_E_RANGE, "more than %d groups", SIZES);
    comm->group_sizes[*group] = count;
    return SBP_OK;
}

static enum sbp_status staged_name_groups(struct sbp_comm *comm, const int *ranks,
                                          const int *counts, int groups)
{
    return check(comm, comm->real.ops->name_groups(comm->real.comm, ranks, counts, groups));
}

static enum sbp_status staged_all_reduce(struct sbp_comm *comm, int group, void *buffer,
                                         int64_t count, enum sbp_real real,
                                         enum sbp_comm_reduction reduction)
{
    void *device;
    SBP_TRY(put(comm, buffer, bytes_of(count, real), &device));
    const enum sbp_status status = check(
        comm, comm->real.ops->all_reduce(comm->real.comm, group, device, count, real, reduction));
    return get(comm, status, buffer, device, bytes_of(count, real));
}

typedef enum sbp_status (*moving)(struct sbp_comm *comm, int group, void *receive, const void *send,
                                  int64_t count, enum sbp_real real);

static enum sbp_status move(struct sbp_comm *comm, moving call, int group, void *receive,
                            int64_t receives, const void *send, int64_t sends, int64_t count,
                            enum sbp_real real)
{
    void *to, *from;
    SBP_TRY(put(comm, send, bytes_of(sends, real), &from));
    SBP_TRY(put(comm, receive, bytes_of(receives, real), &to));
    enum sbp_status status = check(comm, call(comm->real.comm, group, to, from, count, real));
    status = get(comm, status, receive, to, bytes_of(receives, real));
    comm->real.ops->memory->release(from);
    return status;
}

static enum sbp_status staged_all_gather(struct sbp_comm *comm, int group, void *receive,
                                         const void *send, int64_t count, enum sbp_real real)
{
    return move(comm, comm->real.ops->all_gather, group, receive, count * comm->group_sizes[group],
                send, count, count, real);
}

static enum sbp_status staged_reduce_scatter(struct sbp_comm *comm, int group, void *receive,
                                             const void *send, int64_t count, enum sbp_real real)
{
    return move(comm, comm->real.ops->reduce_scatter, group, receive, count, send,
                count * comm->group_sizes[group], count, real);
}

static enum sbp_status staged_all_to_all(struct sbp_comm *comm, int group, void *receive,
                                         const void *send, int64_t count, enum sbp_real real)
{
    return move(comm, comm->real.ops->all_to_all, group, receive, count * comm->group_sizes[group],
                send, count * comm->group_sizes[group], count, real);
}

static enum sbp_status staged_reduce(struct sbp_comm *comm, int group, int root, void *buffer,
                                     int64_t count, enum sbp_real real)
{
    void *device;
    SBP_TRY(put(comm, buffer, bytes_of(count, real), &device));
    const enum sbp_status status =
        check(comm, comm->real.ops->reduce(comm->real.comm, group, root, device, count, real));
    return get(comm, status, buffer, device, bytes_of(count, real));
}

static enum sbp_status staged_broadcast(struct sbp_comm *comm, int group, int root, void *buffer,
                                        int64_t count, enum sbp_real real)
{
    void *device;
    SBP_TRY(put(comm, buffer, bytes_of(count, real), &device));
    const enum sbp_status status =
        check(comm, comm->real.ops->broadcast(comm->real.comm, group, root, device, count, real));
    return get(comm, status, buffer, device, bytes_of(count, real));
}

/* The buffer is written over behind the send, which has its own copy. */
static enum sbp_status staged_send(struct sbp_comm *comm, int peer, int tag, const void *buffer,
                                   int64_t bytes)
{
    static unsigned char nothing[4096];
    void *device;
    SBP_TRY(put(comm, buffer, bytes, &device));
    enum sbp_status status =
        check(comm, comm->real.ops->send(comm->real.comm, peer, tag, device, bytes));
    if (status == SBP_OK && bytes > 0)
        status = comm->real.ops->memory->from_host(device, nothing, bytes < 4096 ? bytes : 4096);
    /* Released later: giving memory back waits for the device, and so for the receiver. */
    return status;
}

static enum sbp_status staged_receive(struct sbp_comm *comm, int peer, int tag, void *buffer,
                                      int64_t bytes)
{
    void *device;
    SBP_TRY(put(comm, buffer, bytes, &device));
    const enum sbp_status status =
        check(comm, comm->real.ops->receive(comm->real.comm, peer, tag, device, bytes));
    if (status == SBP_OK && bytes > 0)
        return comm->real.ops->memory->to_host(buffer, device, bytes);
    return status;
}

static enum sbp_status staged_barrier(struct sbp_comm *comm)
{
    return check(comm, comm->real.ops->barrier(comm->real.comm));
}

static const char *staged_reason(const struct sbp_comm *comm)
{
    return comm->diag.text;
}

/* name_groups: to be set where groups are named. */
static struct sbp_comm_ops staged_ops = {
    .name = "nccl, staged",
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
    .barrier = staged_barrier,
    .reason = staged_reason,
};

/* Checks -------------------------------------------------------------------------------------- */

/* Every rank sends to every other one once, each waiting for its receiver: after this, sends wait
 * for nobody. */
static enum sbp_status open_channels(struct sbp_comm *staged)
{
    const int size = staged_size(staged), rank = staged_rank(staged);
    char byte = 1;
    for (int from = 0; from < size; from++)
        for (int to = 0; to < size; to++) {
            if (from != to && rank == from)
                SBP_TRY(staged_send(staged, to, 9, &byte, 1));
            if (from != to && rank == to)
                SBP_TRY(staged_receive(staged, from, 9, &byte, 1));
        }
    return SBP_OK;
}

static enum sbp_status wrong_lengths(struct sbp_comm *staged, struct sbp_diag *diag)
{
    char bytes[16] = {0};
    if (staged_size(staged) < 2)
        return SBP_OK;
    if (staged_rank(staged) == 1) {
        SBP_TRY(staged_send(staged, 0, 5, bytes, 6));
        SBP_TRY(staged_send(staged, 0, 6, bytes, 4));
        SBP_TRY(staged_send(staged, 0, 7, bytes, 0));
    }
    if (staged_rank(staged) == 0) {
        const enum sbp_status empty = staged_receive(staged, 1, 7, bytes, 2);
        const enum sbp_status longer = staged_receive(staged, 1, 5, bytes, 5);
        const enum sbp_status shorter = staged_receive(staged, 1, 6, bytes, 5);
        if (longer != SBP_E_BACKEND || shorter != SBP_E_BACKEND || empty != SBP_E_BACKEND ||
            strstr(staged->diag.text, "expects 2 bytes from rank 1, tag 7; it sent 0") == NULL)
            return sbp_fail(diag, SBP_E_INTERNAL, "lengths: %s, %s and %s, expected E_BACKEND: %s",
                            sbp_status_name(longer), sbp_status_name(shorter),
                            sbp_status_name(empty), staged->diag.text);
    }
    return staged_barrier(staged);
}

/* Messages by the host's endpoint, larger than the room that was made first, and back again. */
static enum sbp_status by_host(struct sbp_comm *staged, struct comm_checks *checks,
                               struct sbp_diag *diag)
{
    const struct sbp_endpoint *real = &staged->real;
    SBP_TRY(check(staged, real->ops->by_host(real->comm, true, 16)));
    SBP_TRY(comm_checks_messages(&staged_ops, staged, checks, diag));
    SBP_TRY(wrong_lengths(staged, diag));
    return check(staged, real->ops->by_host(real->comm, false, 0));
}

/* Memory is zeroed when it is handed out, for streams that wait for no other one, too. */
static enum sbp_status zeroed_memory(const struct sbp_memory_ops *memory, struct sbp_diag *diag)
{
    double values[3] = {1, 1, 1};
    void *device = memory->allocate(sizeof values);
    if (device == NULL || cudaStreamQuery(NULL) != cudaSuccess)
        return sbp_fail(diag, SBP_E_INTERNAL, "memory that is still being zeroed");
    SBP_TRY(memory->to_host(values, device, sizeof values));
    memory->release(device);
    if (values[0] != 0 || values[1] != 0 || values[2] != 0)
        return sbp_fail(diag, SBP_E_INTERNAL, "memory is not zeroed");
    return SBP_OK;
}

/* The last thing of a run: its sender is through with main before the receiver is there. */
static enum sbp_status late_receiver(struct sbp_comm *staged)
{
    static _Thread_local unsigned char bytes[100000];
    const struct timespec pause = {.tv_nsec = 200000000};
    if (staged_rank(staged) == 1)
        SBP_TRY(staged_send(staged, 0, 8, bytes, sizeof bytes));
    if (staged_rank(staged) != 0 || staged_size(staged) < 2)
        return SBP_OK;
    (void)nanosleep(&pause, NULL);
    return staged_receive(staged, 1, 8, bytes, sizeof bytes);
}

/* Host memory, a group and a member that are not there, a message of one's own that was not sent.
 */
static enum sbp_status bad_arguments(const struct sbp_endpoint *real, struct sbp_diag *diag)
{
    float host[4] = {0};
    const struct sbp_comm_ops *ops = real->ops;
    const int rank = ops->rank(real->comm), size = ops->size(real->comm);
    int alone;
    SBP_TRY(ops->group(real->comm, &rank, 1, 90, &alone));
    void *device = ops->memory->allocate(sizeof host);
    if (device == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "no device memory");
    const enum sbp_status refused[] = {
        ops->all_reduce(real->comm, alone, host, 4, SBP_F32, SBP_SUM),
        ops->all_reduce(real->comm, alone, device, 5, SBP_F32, SBP_SUM),
        ops->all_reduce(real->comm, alone, device, -1, SBP_F32, SBP_SUM),
        ops->all_reduce(real->comm, alone, NULL, 4, SBP_F32, SBP_SUM),
        ops->all_reduce(real->comm, alone + 1, device, 4, SBP_F32, SBP_SUM),
        ops->broadcast(real->comm, alone, 1, device, 4, SBP_F32),
        ops->all_gather(real->comm, alone, device, device, INT64_MAX / 4, SBP_F32),
        ops->send(real->comm, size, 0, device, 4),
        ops->send(real->comm, rank, -1, device, 4),
        ops->receive(real->comm, rank, 3, device, 4),
        ops->group(real->comm, &size, 1, 91, &alone),
        ops->memory->to_host(host, device, -1) == SBP_E_RANGE ? SBP_E_BACKEND : SBP_OK,
    };
    ops->memory->release(device);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (refused[i] != SBP_E_BACKEND)
            return sbp_fail(diag, SBP_E_INTERNAL, "bad argument %zu: %s, expected E_BACKEND", i,
                            sbp_status_name(refused[i]));
    if (ops->memory->allocate(-1) != NULL || ops->memory->allocate(INT64_MAX) != NULL)
        return sbp_fail(diag, SBP_E_INTERNAL, "memory that no device has was allocated");
    return SBP_OK;
}

static enum sbp_status check_names(const struct sbp_endpoint *real, struct sbp_diag *diag)
{
    char library[160];
    real->ops->library(real->comm, library, sizeof library);
    if (strncmp(library, "NCCL 2.", 7) != 0 || strstr(library, ", CUDA ") == NULL ||
        strstr(library, ", driver 13.0") == NULL)
        return sbp_fail(diag, SBP_E_INTERNAL, "library is \"%s\"", library);
    if (strcmp(real->ops->host(real->comm).ops->memory->name, "host") != 0 ||
        strcmp(real->ops->memory->name, "cuda") != 0)
        return sbp_fail(diag, SBP_E_INTERNAL, "memory of the endpoints");
    return SBP_OK;
}

static enum sbp_status run_checks(struct sbp_comm *staged, struct comm_checks *checks,
                                  struct sbp_diag *diag)
{
    SBP_TRY(check_names(&staged->real, diag));
    SBP_TRY(comm_checks_collectives(&staged_ops, staged, checks, diag));
    checks->rounds /= 10;
    SBP_TRY(by_host(staged, checks, diag));
    SBP_TRY(open_channels(staged));
    SBP_TRY(comm_checks_messages(&staged_ops, staged, checks, diag));
    SBP_TRY(wrong_lengths(staged, diag));
    SBP_TRY(comm_checks_fingerprints(staged->real.ops, staged->real.comm, NULL, diag));
    SBP_TRY(zeroed_memory(staged->real.ops->memory, diag));
    SBP_TRY(bad_arguments(&staged->real, diag));
    return late_receiver(staged);
}

static enum sbp_status all_checks(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                  void *argument, struct sbp_diag *diag)
{
    struct sbp_comm staged = {.real = {ops, comm}};
    const enum sbp_status status = run_checks(&staged, argument, diag);
    if (status != SBP_OK)
        (void)sbp_fail(diag, status, "%s", staged.diag.text); /* where nothing is said yet */
    return status;
}

/* A little of everything that the backend calls; a failure in it must end all ranks. */
static enum sbp_status work(const struct sbp_comm_ops *ops, struct sbp_comm *comm, void *argument,
                            struct sbp_diag *diag)
{
    struct sbp_comm staged = {.real = {ops, comm}};
    struct comm_checks checks = {.seed = 1, .rounds = 40};
    (void)argument;
    enum sbp_status status = comm_checks_collectives(&staged_ops, &staged, &checks, diag);
    if (status == SBP_OK)
        status = open_channels(&staged);
    if (status != SBP_OK)
        (void)sbp_fail(diag, status, "%s", staged.diag.text);
    return status;
}

static enum sbp_status one_fails(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                 void *argument, struct sbp_diag *diag)
{
    const int size = ops->size(comm);
    int ranks[16], group;
    for (int r = 0; r < size && r < 16; r++)
        ranks[r] = r;
    SBP_TRY(ops->group(comm, ranks, size, 0, &group));
    void *device = ops->memory->allocate(64);
    if (device == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "no device memory");
    if (ops->rank(comm) != size - 1) /* waits on the device for one that never comes */
        return ops->all_reduce(comm, group, device, 16, SBP_F32, SBP_SUM);
    if (strcmp(argument, "abort") == 0)
        ops->abort(comm, "planted failure");
    return sbp_fail(diag, SBP_E_INPUT, "planted failure");
}

/* A mesh of 2 x 2 ranks, whose first axis is named twice, and the world: three splits make it. */
static enum sbp_status mesh(const struct sbp_comm_ops *ops, struct sbp_comm *comm, void *argument,
                            struct sbp_diag *diag)
{
    const int own = ops->rank(comm), counts[] = {2, 4, 2, 2}, keys[] = {1, 2, 3, 4};
    const int ranks[] = {own / 2 * 2, own / 2 * 2 + 1, 0,           1,           2,
                         3,           own % 2,         own % 2 + 2, own / 2 * 2, own / 2 * 2 + 1};
    double *number = ops->memory->allocate(sizeof *number), value = own + 1.0, sums[4];
    (void)argument;
    if (number == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "no device memory");
    SBP_TRY(ops->name_groups(comm, ranks, counts, 4));
    for (int g = 0, at = 0; g < 4; at += counts[g], g++) {
        int group;
        SBP_TRY(ops->group(comm, &ranks[at], counts[g], keys[g], &group));
        SBP_TRY(ops->memory->from_host(number, &value, sizeof value));
        SBP_TRY(ops->all_reduce(comm, group, number, 1, SBP_F64, SBP_SUM));
        SBP_TRY(ops->memory->to_host(&sums[g], number, sizeof value));
    }
    ops->memory->release(number);
    const double expected[] = {own < 2 ? 3 : 7, 10, own % 2 == 0 ? 4 : 6, own < 2 ? 3 : 7};
    for (int g = 0; g < 4; g++)
        if (sums[g] != expected[g])
            return sbp_fail(diag, SBP_E_INTERNAL, "group %d: sum %g, expected %g", g, sums[g],
                            expected[g]);
    return ops->name_groups(comm, ranks, counts, 1) == SBP_E_BACKEND
               ? SBP_OK
               : sbp_fail(diag, SBP_E_INTERNAL, "groups are named behind the first one");
}

enum { STAYS_BYTES = 100000 };

/* Rank 0 leaves under way a message, on a channel that is open, and a sum; rank 1 comes to neither.
 */
static enum sbp_status begin_what_stays(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                        int everybody, void *memory, cudaStream_t stream)
{
    if (ops->rank(comm) == 0) {
        SBP_TRY(ops->send(comm, 1, 1, memory, 64)); /* which opens the channel, and comes */
        SBP_TRY(ops->barrier(comm));
        SBP_TRY(ops->send(comm, 1, 2, memory, STAYS_BYTES));
        return ops->all_reduce(comm, everybody, memory, 16, SBP_F32, SBP_SUM);
    }
    SBP_TRY(ops->receive(comm, 0, 1, memory, 64));
    return cudaStreamSynchronize(stream) == cudaSuccess ? ops->barrier(comm) : SBP_E_BACKEND;
}

/* Memory is given back when nothing is under way any more. */
static enum sbp_status called_off(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                  void *argument, struct sbp_diag *diag)
{
    const int ranks[] = {0, 1};
    cudaStream_t stream;
    int everybody;
    (void)argument;
    void *memory = ops->memory->allocate(STAYS_BYTES);
    SBP_TRY(ops->group(comm, ranks, 2, 0, &everybody));
    if (memory == NULL || cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess)
        return sbp_fail(diag, SBP_E_MEMORY, "no device memory, or no stream");
    ops->work_on(comm, stream);
    SBP_TRY(begin_what_stays(ops, comm, everybody, memory, stream));
    if (ops->look(comm) != SBP_OK)
        return sbp_fail(diag, SBP_E_INTERNAL, "what waits looks like a failure: %s",
                        ops->reason(comm));
    if (ops->rank(comm) == 0 && cudaStreamQuery(stream) != cudaErrorNotReady)
        return sbp_fail(diag, SBP_E_INTERNAL, "the sum is over without rank 1");
    ops->call_off(comm);
    ops->call_off(comm); /* once more does nothing */
    if (cudaStreamSynchronize(stream) != cudaSuccess || ops->look(comm) != SBP_E_BACKEND)
        return sbp_fail(diag, SBP_E_INTERNAL, "what was called off looks sound");
    ops->memory->release(memory);
    SBP_TRY(ops->barrier(comm));
    return sbp_fail(diag, SBP_E_INPUT, "called off");
}

struct words {
    const char *what;
    struct comm_checks checks;
};

static enum sbp_status run(const struct words *words, struct sbp_diag *diag)
{
    struct comm_checks checks = words->checks;
    if (strcmp(words->what, "work") == 0)
        return sbp_nccl_run(work, NULL, diag);
    if (strcmp(words->what, "mesh") == 0)
        return sbp_nccl_run(mesh, NULL, diag);
    if (strcmp(words->what, "called off") == 0)
        return sbp_nccl_run(called_off, NULL, diag);
    if (strcmp(words->what, "fail") == 0 || strcmp(words->what, "abort") == 0)
        return sbp_nccl_run(one_fails, (void *)(uintptr_t)words->what, diag);
    return sbp_nccl_run(all_checks, &checks, diag);
}

/* A rank that is a thread. */
static enum sbp_status run_thread(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                  void *argument, struct sbp_diag *diag)
{
    nccl_host_is((struct sbp_endpoint){ops, comm});
    return run(argument, diag);
}

int main(int argc, char **argv)
{
    struct sbp_diag diag = {0};
    const bool is_threads = argc > 2 && strcmp(argv[1], "threads") == 0;
    const int first = is_threads ? 3 : 1;
    const struct words words = {.what = argc > first ? argv[first] : "",
                                .checks = {.seed = comm_checks_seed(), .rounds = 200}};
    staged_ops.name_groups = strcmp(words.what, "unnamed") == 0 ? NULL : staged_name_groups;
    const enum sbp_status status =
        is_threads ? sbp_threads_run(atoi(argv[2]), run_thread, (void *)(uintptr_t)&words, &diag)
                   : run(&words, &diag);
    if (status != SBP_OK)
        (void)fprintf(stderr, "test_comm_nccl: %s\n", diag.text);
    return sbp_status_exit_code(status);
}
