/* Communicators of the stand-in for NCCL: their members meet in a segment of shared memory that a
 * unique id names, or the communicator that they are split off. */
#include <fcntl.h>
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/support/gpu_double/nccl_double.h"

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    static atomic_int made;
    if (double_fails("ncclGetUniqueId"))
        return double_refuse(ncclSystemError, "no id");
    const char *run = getenv("SBP_DOUBLE_RUN");
    memset(id, 0, sizeof *id);
    (void)snprintf(id->internal, sizeof id->internal, "/nccl-double-%s-%ld-%d",
                   run != NULL ? run : "0", (long)getpid(), atomic_fetch_add(&made, 1));
    return ncclSuccess;
}

static struct segment *open_segment(const char *name)
{
    const int file = shm_open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0)
        return NULL;
    void *at = MAP_FAILED;
    if (ftruncate(file, sizeof(struct segment)) == 0)
        at = mmap(NULL, sizeof(struct segment), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    (void)close(file);
    return at == MAP_FAILED ? NULL : at;
}

bool double_is_aborted(struct ncclComm *comm)
{
    return atomic_load(&comm->aborted);
}

/* All members are there, on devices of their own. */
static ncclResult_t meet(struct ncclComm *comm)
{
    struct segment *segment = comm->segment;
    int nobody = 0;
    if (!atomic_compare_exchange_strong(&segment->device[comm->rank], &nobody, comm->device + 1))
        return double_refuse(ncclInvalidUsage, "two members have the same rank");
    (void)atomic_fetch_add(&segment->joined, 1);
    while (atomic_load(&segment->joined) < comm->size && !double_is_aborted(comm))
        double_nap();
    for (int a = 0; a < comm->size; a++)
        for (int b = 0; b < a; b++)
            if (atomic_load(&segment->device[a]) == atomic_load(&segment->device[b]))
                return double_refuse(ncclInvalidUsage, "two members have the same device");
    return ncclSuccess;
}

/* The segment of its name is opened by all members, and nobody else finds it then. */
static ncclResult_t join(struct ncclComm *comm)
{
    comm->segment = open_segment(comm->name);
    if (comm->segment == NULL)
        return double_refuse(ncclSystemError, "no shared memory");
    const ncclResult_t result = meet(comm);
    if (atomic_fetch_add(&comm->segment->ready, 1) + 1 == comm->size)
        (void)shm_unlink(comm->name);
    return result;
}

static ncclResult_t find_bus(int *device)
{
    char bus[32];
    if (cudaGetDevice(device) != cudaSuccess ||
        cudaDeviceGetPCIBusId(bus, sizeof bus, *device) != cudaSuccess)
        return ncclUnhandledCudaError;
    *device = (int)strtol(bus + 5, NULL, 16);
    return ncclSuccess;
}

/* What NCCL tells of a stall: an error, or that nothing has happened. */
ncclResult_t double_stall_of(const char *name)
{
    return double_hangs(name)    ? ncclInProgress
           : double_stalls(name) ? ncclRemoteError
                                 : ncclSuccess;
}

/* A communicator that is made, on a thread of its own where its caller does not wait. */
struct making {
    struct ncclComm *comm, *parent; /* NULL: none; comm: of the split, no color */
    ncclComm_t *made;
    int color, key;
    ncclResult_t stalls;
};

void double_meet(struct ncclComm *comm, struct meeting *meeting)
{
    const int generation = atomic_load(&meeting->generation);
    if (atomic_fetch_add(&meeting->arrived, 1) + 1 == comm->size) {
        atomic_store(&meeting->arrived, 0);
        (void)atomic_fetch_add(&meeting->generation, 1);
        return;
    }
    while (atomic_load(&meeting->generation) == generation && !double_is_aborted(comm))
        double_nap();
}

/* Finds the members of a new communicator among the parent's: by key, then by rank. */
static void find_siblings(const struct making *making)
{
    const struct ncclComm *parent = making->parent;
    const struct segment *segment = parent->segment;
    struct ncclComm *comm = making->comm;
    for (int r = 0; r < parent->size; r++) {
        if (segment->color[r] != making->color)
            continue;
        comm->size++;
        comm->rank +=
            segment->key[r] < making->key || (segment->key[r] == making->key && r < parent->rank);
    }
    (void)snprintf(comm->name, sizeof comm->name, "%.80s-%d-%d", parent->name, parent->splits,
                   making->color);
}

static ncclResult_t make(const struct making *making)
{
    struct ncclComm *parent = making->parent;
    if (parent == NULL)
        return join(making->comm);
    parent->segment->color[parent->rank] = making->color;
    parent->segment->key[parent->rank] = making->key;
    double_meet(parent, &parent->segment->split);
    if (making->comm != NULL)
        find_siblings(making);
    double_meet(parent, &parent->segment->split);
    parent->splits++;
    return making->comm != NULL && !double_is_aborted(parent) ? join(making->comm) : ncclSuccess;
}

/* Says how it went where callers ask: of a split the parent, at the end, since its caller goes on
 * then, and may split again. */
static void *make_later(void *argument)
{
    struct making *making = argument;
    struct ncclComm *asked = making->parent != NULL ? making->parent : making->comm;
    if (making->stalls != ncclSuccess)
        atomic_store(&asked->state, (int)making->stalls);
    while (making->stalls != ncclSuccess && !double_is_aborted(asked))
        double_nap();
    if (making->stalls == ncclSuccess) {
        const ncclResult_t result = make(making);
        if (making->comm != NULL && making->comm != asked)
            atomic_store(&making->comm->state, (int)result);
        *making->made = making->comm;
        atomic_store(&asked->state, (int)result);
    }
    free(making);
    return NULL;
}

/* Who waits has the result; else it is asked for. */
static ncclResult_t begin(const struct making *plan)
{
    pthread_t thread;
    struct ncclComm *asked = plan->parent != NULL ? plan->parent : plan->comm;
    struct making *making = malloc(sizeof *making);
    if (making == NULL)
        return double_refuse(ncclSystemError, "no memory");
    *making = *plan;
    atomic_store(&asked->state, (int)ncclInProgress);
    if (asked->blocks) {
        (void)make_later(making);
        return (ncclResult_t)atomic_load(&asked->state);
    }
    if (pthread_create(&thread, NULL, make_later, making) != 0)
        return double_refuse(ncclSystemError, "no thread");
    (void)pthread_detach(thread);
    return ncclInProgress;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *made, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    if (double_fails("ncclCommInitRankConfig"))
        return double_refuse(ncclSystemError, "no communicator");
    if (size < 1 || size > MOST_MEMBERS || rank < 0 || rank >= size || id.internal[0] != '/')
        return double_refuse(ncclInvalidArgument, "no such member");
    struct ncclComm *comm = *made = calloc(1, sizeof **made);
    if (comm == NULL)
        return double_refuse(ncclSystemError, "no memory");
    (void)snprintf(comm->name, sizeof comm->name, "%.127s", id.internal);
    comm->rank = rank;
    comm->size = size;
    comm->blocks = config->blocking != 0;
    const ncclResult_t result = find_bus(&comm->device);
    const struct making making = {
        .comm = comm, .made = made, .stalls = double_stall_of("ncclCommInitRankConfig")};
    return result == ncclSuccess ? begin(&making) : result;
}

/* The new communicator is there when the parent says that it is through. */
ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t *made,
                           ncclConfig_t *config)
{
    struct ncclComm *comm = NULL;
    *made = NULL;
    if (double_fails("ncclCommSplit"))
        return double_refuse(ncclSystemError, "not split");
    if (color < 0 && color != NCCL_SPLIT_NOCOLOR)
        return double_refuse(ncclInvalidArgument, "color");
    if (atomic_load(&parent->pending) > 0 || atomic_load(&parent->state) != (int)ncclSuccess)
        return double_refuse(ncclInvalidUsage, "split while work is under way");
    if (color != NCCL_SPLIT_NOCOLOR) {
        comm = calloc(1, sizeof *comm);
        if (comm == NULL)
            return double_refuse(ncclSystemError, "no memory");
        comm->device = parent->device;
        comm->blocks = config != NULL ? config->blocking != 0 : parent->blocks;
    }
    const struct making making = {comm, parent, made, color, key, double_stall_of("ncclCommSplit")};
    return begin(&making);
}

/* It has no work under way that it would have to wait for. */
ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    if (double_fails("ncclCommFinalize"))
        return double_refuse(ncclInternalError, "not finalized");
    return atomic_load(&comm->pending) > 0 ? double_refuse(ncclInvalidUsage, "work is under way")
                                           : ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    if (double_fails("ncclCommDestroy"))
        return double_refuse(ncclInternalError, "not destroyed");
    if (atomic_load(&comm->pending) > 0)
        return double_refuse(ncclInvalidUsage, "destroyed while work is under way");
    (void)munmap(comm->segment, sizeof *comm->segment);
    free(comm);
    return ncclSuccess;
}

/* Work comes to its end, done or not. It may wait in a stream behind that of another communicator,
 * so that memory stays. */
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    atomic_store(&comm->aborted, true);
    return ncclSuccess;
}
