/* The stand-in for NCCL (tests/support/gpu_double) between threads of a process, and of several: a
 * thread is a member with a device of its own. What comes out is held to sums in double that each
 * member makes of everybody's data. Each team runs in processes of its own. */
#include <cuda_runtime_api.h>
#include <math.h>
#include <nccl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/math/half.h"
#include "tests/support/unit.h"

/* The header has these without a prototype. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

enum { MOST = 4, LONG = 20000 }; /* LONG: more than one piece of a collective, or message */

struct member {
    int rank, size;
    ncclUniqueId id;
    ncclComm_t comm; /* NULL: of teams whose members make none */
    cudaStream_t stream;
};

/* Each member runs this. */
typedef void member_body(struct member *member);

struct team {
    int processes, threads; /* of each */
    member_body *body;
    bool joins;                 /* makes a communicator first, and gives it back */
    const char *variable, *set; /* in the environment; NULL: none */
    ncclUniqueId id;
    int process;
};

/* Ends the process, so that nobody waits for this member. */
static void end_at(const struct member *member, const char *what, int line)
{
    (void)fprintf(stderr, "member %d of %d, line %d: %s; %s\n", member->rank, member->size, line,
                  what, ncclGetLastError(NULL));
    _exit(1);
}

#define NEED(member, what)                                                                         \
    do {                                                                                           \
        if (!(what))                                                                               \
            end_at((member), #what, __LINE__);                                                     \
    } while (0)
#define NEED_CUDA(member, call) NEED(member, (call) == cudaSuccess)
#define NEED_NCCL(member, call) NEED(member, (call) == ncclSuccess)

static void nap(long time_ms)
{
    const struct timespec pause = {.tv_nsec = time_ms * 1000000};
    (void)nanosleep(&pause, NULL);
}

/* ---- teams ----------------------------------------------------------------------------------- */

struct seat {
    struct team team;
    int thread;
};

static void join(struct member *member, bool blocks)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocks;
    const ncclResult_t begun =
        ncclCommInitRankConfig(&member->comm, member->size, member->id, member->rank, &config);
    NEED(member, begun == (blocks ? ncclSuccess : ncclInProgress));
}

static void *run_member(void *argument)
{
    const struct seat *seat = argument;
    const struct team *team = &seat->team;
    struct member member = {.rank = team->process * team->threads + seat->thread,
                            .size = team->processes * team->threads,
                            .id = team->id};
    NEED_CUDA(&member, cudaSetDevice(member.rank));
    NEED_CUDA(&member, cudaStreamCreateWithFlags(&member.stream, cudaStreamNonBlocking));
    if (team->joins)
        join(&member, true);
    team->body(&member);
    NEED_CUDA(&member, cudaStreamDestroy(member.stream));
    if (team->joins)
        NEED_NCCL(&member, ncclCommDestroy(member.comm));
    return NULL;
}

/* Ends the process, whose threads are members. */
static void run_process(const struct team *team)
{
    pthread_t thread[MOST];
    struct seat seats[MOST];
    if (team->variable != NULL && setenv(team->variable, team->set, 1) != 0)
        _exit(1);
    for (int t = 0; t < team->threads; t++) {
        seats[t] = (struct seat){*team, t};
        if (pthread_create(&thread[t], NULL, run_member, &seats[t]) != 0)
            _exit(1);
    }
    for (int t = 0; t < team->threads; t++)
        (void)pthread_join(thread[t], NULL);
    exit(0);
}

static void start_processes(struct team *team, pid_t *children)
{
    (void)fflush(NULL);
    for (int p = 0; p < team->processes; p++) {
        team->process = p;
        children[p] = fork();
        assert_true(children[p] >= 0);
        if (children[p] == 0)
            run_process(team);
    }
}

/* Waits for all processes, and ends the others where one has failed. */
static bool end_processes(pid_t *children, int count)
{
    bool is_well = true;
    for (int ended = 0; ended < count; ended++) {
        int status = 0;
        const pid_t child = wait(&status);
        for (int p = 0; p < count; p++) {
            if (children[p] == child)
                children[p] = 0;
            else if (is_well && status != 0 && children[p] != 0)
                (void)kill(children[p], SIGKILL);
        }
        is_well = is_well && status == 0;
    }
    return is_well;
}

/* The communicator's memory is given back, too. */
static void run_team(struct team team)
{
    pid_t children[MOST];
    assert_int_equal(ncclGetUniqueId(&team.id), ncclSuccess);
    start_processes(&team, children);
    const bool is_well = end_processes(children, team.processes);
    assert_int_equal(shm_unlink(team.id.internal), -1);
    assert_true(is_well);
}

/* Threads of one process, two processes of two, and processes of one. */
static void run_teams(member_body *body, bool joins)
{
    static const int shapes[][2] = {{1, 2}, {1, 3}, {1, 4}, {2, 2}, {3, 1}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        run_team((struct team){shapes[s][0], shapes[s][1], body, .joins = joins});
}

/* ---- data ------------------------------------------------------------------------------------ */

static const struct type {
    ncclDataType_t nccl;
    enum sbp_real real;
    size_t bytes;
    double rounding;
} types[] = {
    {ncclFloat32, SBP_F32, 4, 0x1p-24},
    {ncclFloat64, SBP_F64, 8, 0x1p-53},
    {ncclBfloat16, SBP_REAL_BF16, 2, 0x1p-8},
    {ncclFloat16, SBP_REAL_FP16, 2, 0x1p-11},
};

/* Element i of a member's data, as its type has it. */
static double datum(const struct type *type, int rank, int64_t i)
{
    unsigned char element[8];
    sbp_half_put(type->real, element, 0, (double)((rank * 31 + i * 7) % 23 - 11) / 7);
    return sbp_half_get(type->real, element, 0);
}

/* Memory of the member's device, with its data from element `first` on. */
static void *put(const struct member *member, const struct type *type, int64_t first, int64_t count)
{
    void *memory = NULL, *host = malloc((size_t)count * type->bytes);
    NEED(member, host != NULL);
    for (int64_t i = 0; i < count; i++)
        sbp_half_put(type->real, host, i, datum(type, member->rank, first + i));
    NEED_CUDA(member, cudaMalloc(&memory, (size_t)count * type->bytes));
    NEED_CUDA(member,
              cudaMemcpy(memory, host, (size_t)count * type->bytes, cudaMemcpyHostToDevice));
    free(host);
    return memory;
}

/* Waits for the member's stream and takes the memory back. The caller frees what it held. */
static unsigned char *take(const struct member *member, const struct type *type, void *memory,
                           int64_t count)
{
    unsigned char *host = malloc((size_t)count * type->bytes);
    NEED(member, host != NULL);
    NEED_CUDA(member, cudaStreamSynchronize(member->stream));
    NEED_CUDA(member,
              cudaMemcpy(host, memory, (size_t)count * type->bytes, cudaMemcpyDeviceToHost));
    NEED_CUDA(member, cudaFree(memory));
    return host;
}

/* Holds elements to the sums of everybody's data from element `first` on, or to the largest. */
static void hold_sums(const struct member *member, const struct type *type, void *memory,
                      int64_t first, int64_t count, ncclRedOp_t op)
{
    unsigned char *const host = take(member, type, memory, count);
    for (int64_t i = 0; i < count; i++) {
        double sum = 0, whole = 0, most = -INFINITY;
        for (int r = 0; r < member->size; r++) {
            const double x = datum(type, r, first + i);
            sum += x;
            whole += fabs(x);
            most = fmax(most, x);
        }
        const double off = sbp_half_get(type->real, host, i) - (op == ncclMax ? most : sum);
        const double bound = op == ncclMax ? 0 : member->size * type->rounding * whole;
        NEED(member, fabs(off) <= bound);
    }
    free(host);
}

/* Holds elements to a member's data from element `first` on. */
static void hold_copy(const struct member *member, const struct type *type,
                      const unsigned char *host, int of, int64_t first, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        NEED(member, sbp_half_get(type->real, host, i) == datum(type, of, first + i));
}

/* ---- collectives ----------------------------------------------------------------------------- */

static void all_reduce(struct member *member, const struct type *type, int64_t count)
{
    static const ncclRedOp_t ops[] = {ncclSum, ncclMax};
    for (int o = 0; o < 2; o++) {
        void *memory = put(member, type, 0, count);
        NEED_NCCL(member, ncclAllReduce(memory, memory, (size_t)count, type->nccl, ops[o],
                                        member->comm, member->stream));
        hold_sums(member, type, memory, 0, count, ops[o]);
    }
}

static void reduce_scatter(struct member *member, const struct type *type, int64_t count)
{
    void *send = put(member, type, 0, count * member->size), *own = put(member, type, 0, count);
    NEED_NCCL(member, ncclReduceScatter(send, own, (size_t)count, type->nccl, ncclSum, member->comm,
                                        member->stream));
    hold_sums(member, type, own, count * member->rank, count, ncclSum);
    NEED_CUDA(member, cudaFree(send));
}

static void reduce(struct member *member, const struct type *type, int64_t count)
{
    const int root = member->size - 1;
    void *memory = put(member, type, 0, count);
    NEED_NCCL(member, ncclReduce(memory, memory, (size_t)count, type->nccl, ncclSum, root,
                                 member->comm, member->stream));
    if (member->rank == root)
        hold_sums(member, type, memory, 0, count, ncclSum);
    else
        free(take(member, type, memory, count));
}

static void all_gather(struct member *member, const struct type *type, int64_t count)
{
    void *own = put(member, type, 0, count), *all = put(member, type, 0, count * member->size);
    NEED_NCCL(member,
              ncclAllGather(own, all, (size_t)count, type->nccl, member->comm, member->stream));
    unsigned char *const host = take(member, type, all, count * member->size);
    for (int r = 0; r < member->size; r++)
        hold_copy(member, type, host + (size_t)(r * count) * type->bytes, r, 0, count);
    free(host);
    NEED_CUDA(member, cudaFree(own));
}

static void broadcast(struct member *member, const struct type *type, int64_t count)
{
    for (int root = 0; root < member->size; root++) {
        void *memory = put(member, type, 0, count);
        NEED_NCCL(member, ncclBroadcast(memory, memory, (size_t)count, type->nccl, root,
                                        member->comm, member->stream));
        unsigned char *const host = take(member, type, memory, count);
        hold_copy(member, type, host, root, 0, count);
        free(host);
    }
}

static void do_collectives(struct member *member)
{
    static void (*const kinds[])(struct member *, const struct type *, int64_t) = {
        all_reduce, reduce_scatter, reduce, all_gather, broadcast};
    static const int64_t counts[] = {1, 5, LONG};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t t = 0; t < sizeof types / sizeof *types; t++)
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
                kinds[k](member, &types[t], counts[c]);
}

static void test_collectives(void **state)
{
    (void)state;
    run_teams(do_collectives, true);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* All send before they receive, to themselves, too: in a group nobody waits for that. What a member
 * sends to another one begins with that one's element. */
static void do_messages(struct member *member)
{
    const struct type *type = &types[2];
    void *to[MOST], *from[MOST];
    NEED_NCCL(member, ncclGroupStart());
    for (int r = 0; r < member->size; r++) {
        to[r] = put(member, type, r, LONG);
        from[r] = put(member, type, 0, LONG);
        NEED_NCCL(member, ncclSend(to[r], LONG, type->nccl, r, member->comm, member->stream));
    }
    for (int r = 0; r < member->size; r++)
        NEED_NCCL(member, ncclRecv(from[r], LONG, type->nccl, r, member->comm, member->stream));
    NEED_CUDA(member, cudaStreamQuery(member->stream)); /* nothing is under way yet */
    NEED_NCCL(member, ncclGroupEnd());
    for (int r = 0; r < member->size; r++) {
        unsigned char *const host = take(member, type, from[r], LONG);
        hold_copy(member, type, host, r, member->rank, LONG);
        free(host);
        NEED_CUDA(member, cudaFree(to[r]));
    }
}

static void test_messages(void **state)
{
    (void)state;
    run_teams(do_messages, true);
}

static atomic_bool has_sent;

/* A group of one thread is none of another: member 0 stays in one until member 1 has begun to send,
 * outside of any, what waits for it. */
static void do_one_group(struct member *member)
{
    const struct type *type = &types[0];
    void *memory = put(member, type, 0, LONG);
    if (member->rank == 0) {
        NEED_NCCL(member, ncclGroupStart());
        NEED_NCCL(member, ncclRecv(memory, LONG, type->nccl, 1, member->comm, member->stream));
        while (!atomic_load(&has_sent))
            nap(1);
        NEED_NCCL(member, ncclGroupEnd());
    } else {
        NEED_NCCL(member, ncclSend(memory, LONG, type->nccl, 0, member->comm, member->stream));
        NEED(member, cudaStreamQuery(member->stream) == cudaErrorNotReady);
        atomic_store(&has_sent, true);
    }
    unsigned char *const host = take(member, type, memory, LONG);
    hold_copy(member, type, host, 1, 0, LONG);
    free(host);
}

static void test_groups_are_a_threads_own(void **state)
{
    (void)state;
    run_team((struct team){1, 2, do_one_group, .joins = true});
}

/* ---- splits ---------------------------------------------------------------------------------- */

/* Members in the opposite order, by parity; then all but member 0. */
static void do_splits(struct member *member)
{
    struct member half = *member;
    half.size = member->size / 2 + (member->size % 2 > member->rank % 2);
    half.rank = half.size - 1 - member->rank / 2;
    NEED_NCCL(member,
              ncclCommSplit(member->comm, member->rank % 2, -member->rank, &half.comm, NULL));
    void *own = put(member, &types[3], 0, 2), *all = put(member, &types[3], 0, 2L * half.size);
    NEED_NCCL(member, ncclAllGather(own, all, 2, ncclFloat16, half.comm, member->stream));
    unsigned char *const host = take(member, &types[3], all, 2L * half.size);
    for (int r = 0; r < half.size; r++)
        hold_copy(member, &types[3], host + 4L * r, 2 * (half.size - 1 - r) + member->rank % 2, 0,
                  2);
    free(host);
    NEED_CUDA(member, cudaFree(own));
    NEED_NCCL(member, ncclCommDestroy(half.comm));
    ncclComm_t rest = NULL;
    NEED_NCCL(member, ncclCommSplit(member->comm, member->rank > 0 ? 7 : NCCL_SPLIT_NOCOLOR, 0,
                                    &rest, NULL));
    NEED(member, (rest != NULL) == (member->rank > 0));
    if (rest != NULL)
        NEED_NCCL(member, ncclCommDestroy(rest));
}

static void test_splits(void **state)
{
    (void)state;
    run_teams(do_splits, true);
}

/* ---- making communicators -------------------------------------------------------------------- */

static ncclResult_t ask(const struct member *member)
{
    ncclResult_t told = ncclSuccess;
    NEED_NCCL(member, ncclCommGetAsyncError(member->comm, &told));
    return told;
}

/* Made behind the caller's back, and split so; all work is of the split, which blocks. */
static void do_without_blocking(struct member *member)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    struct member all = *member;
    config.blocking = 1;
    join(member, false);
    while (ask(member) == ncclInProgress)
        nap(1);
    NEED_NCCL(member, ask(member));
    NEED(member,
         ncclCommSplit(member->comm, 0, member->rank, &all.comm, &config) == ncclInProgress);
    while (ask(member) == ncclInProgress)
        nap(1);
    NEED(member, all.comm != NULL);
    all_reduce(&all, &types[0], 5);
    NEED_NCCL(member, ncclCommFinalize(all.comm));
    NEED_NCCL(member, ncclCommDestroy(all.comm));
    NEED_NCCL(member, ncclCommDestroy(member->comm));
}

static void test_without_blocking(void **state)
{
    (void)state;
    run_teams(do_without_blocking, false);
}

/* A member that the others wait for never comes. */
static void do_abort_of_making(struct member *member)
{
    if (member->rank == member->size - 1)
        return;
    join(member, false);
    nap(20);
    NEED(member, ask(member) == ncclInProgress);
    NEED_NCCL(member, ncclCommAbort(member->comm));
}

static void test_abort_of_making(void **state)
{
    (void)state;
    run_teams(do_abort_of_making, false);
}

/* All members have the first device. */
static void do_same_device(struct member *member)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    NEED_CUDA(member, cudaSetDevice(0));
    NEED(member, ncclCommInitRankConfig(&member->comm, member->size, member->id, member->rank,
                                        &config) == ncclInvalidUsage);
    NEED(member, strstr(ncclGetLastError(NULL), "the same device") != NULL);
    NEED_NCCL(member, ncclCommAbort(member->comm));
}

static void test_same_device(void **state)
{
    (void)state;
    run_teams(do_same_device, false);
}

/* ---- what fails ------------------------------------------------------------------------------ */

/* Memory, and a stream, of another device are refused to the thread alone that has them. */
static void do_other_device(struct member *member)
{
    const int other = (member->rank + 1) % member->size;
    void *own = put(member, &types[0], 0, 4), *there = NULL;
    cudaStream_t stream = NULL;
    NEED_CUDA(member, cudaSetDevice(other));
    NEED_CUDA(member, cudaMalloc(&there, 16));
    NEED_CUDA(member, cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int sends = 0; sends < 2; sends++)
        NEED(member, ncclAllReduce(sends ? there : own, sends ? own : there, 4, ncclFloat32,
                                   ncclSum, member->comm, member->stream) == ncclInvalidArgument);
    NEED(member, ncclAllReduce(own, own, 4, ncclFloat32, ncclSum, member->comm, stream) ==
                     ncclUnhandledCudaError);
    NEED_NCCL(member, ncclAllReduce(own, own, 4, ncclFloat32, ncclSum, member->comm,
                                    member->stream)); /* whichever device is current */
    hold_sums(member, &types[0], own, 0, 4, ncclSum);
    NEED_CUDA(member, cudaFree(there));
    NEED_CUDA(member, cudaStreamDestroy(stream));
}

static void test_other_device(void **state)
{
    (void)state;
    run_teams(do_other_device, true);
}

static void *abort_soon(void *comm)
{
    nap(20);
    return ncclCommAbort(comm) == ncclSuccess ? NULL : comm;
}

/* Waits for a sum that never comes until another thread aborts the communicator. */
static void wait_for_abort(struct member *member)
{
    pthread_t thread;
    void *memory = put(member, &types[0], 0, 4), *failed = NULL;
    NEED_NCCL(member,
              ncclAllReduce(memory, memory, 4, ncclFloat32, ncclSum, member->comm, member->stream));
    nap(20);
    NEED(member, cudaStreamQuery(member->stream) == cudaErrorNotReady);
    NEED_NCCL(member, ask(member)); /* nobody tells it */
    NEED(member, pthread_create(&thread, NULL, abort_soon, member->comm) == 0);
    NEED_CUDA(member, cudaStreamSynchronize(member->stream));
    NEED(member, pthread_join(thread, &failed) == 0 && failed == NULL);
    NEED_CUDA(member, cudaFree(memory));
}

static void do_abort(struct member *member)
{
    join(member, true);
    if (member->rank == member->size - 1)
        NEED_NCCL(member, ncclCommAbort(member->comm));
    else
        wait_for_abort(member);
}

static void test_abort(void **state)
{
    (void)state;
    run_teams(do_abort, false);
}

/* The call of one device fails, of which the others hear nothing. */
static void do_planted_failure(struct member *member)
{
    join(member, true);
    if (member->rank != 1) {
        wait_for_abort(member);
        return;
    }
    void *memory = put(member, &types[0], 0, 4);
    NEED(member, ncclAllReduce(memory, memory, 4, ncclFloat32, ncclSum, member->comm,
                               member->stream) == ncclInternalError);
    NEED_NCCL(member, ncclCommAbort(member->comm));
    NEED_CUDA(member, cudaFree(memory));
}

/* The work of one device stalls: NCCL tells its thread alone. */
static void do_planted_stall(struct member *member)
{
    join(member, true);
    if (member->rank != 1) {
        wait_for_abort(member);
        return;
    }
    void *memory = put(member, &types[0], 0, 4);
    NEED_NCCL(member,
              ncclAllReduce(memory, memory, 4, ncclFloat32, ncclSum, member->comm, member->stream));
    while (ask(member) == ncclSuccess)
        nap(1);
    NEED(member, ask(member) == ncclRemoteError);
    NEED(member, cudaStreamQuery(member->stream) == cudaErrorNotReady);
    NEED_NCCL(member, ncclCommAbort(member->comm));
    NEED_CUDA(member, cudaStreamSynchronize(member->stream));
    NEED_CUDA(member, cudaFree(memory));
}

static void test_planted(void **state)
{
    (void)state;
    for (int processes = 1; processes <= 2; processes++) {
        run_team((struct team){processes, 4 / processes, do_planted_failure,
                               .variable = "SBP_DOUBLE_FAIL", .set = "ncclAllReduce:1#1"});
        run_team((struct team){processes, 4 / processes, do_planted_stall,
                               .variable = "SBP_DOUBLE_STALL", .set = "ncclAllReduce:1#1"});
        run_team((struct team){processes, 4 / processes, do_collectives, .joins = true,
                               .variable = "SBP_DOUBLE_DELAY", .set = "3"});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_collectives),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_groups_are_a_threads_own),
        cmocka_unit_test(test_splits),
        cmocka_unit_test(test_without_blocking),
        cmocka_unit_test(test_abort_of_making),
        cmocka_unit_test(test_same_device),
        cmocka_unit_test(test_other_device),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_planted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
