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

/* Threads share the mapping of a segment, in which a sanitizer then sees their accesses. */
struct mapping {
    struct mapping *next;
    char name[128];
    struct segment *segment;
    int users;
};

static pthread_mutex_t mappings_lock = PTHREAD_MUTEX_INITIALIZER;
static struct mapping *mappings;

static struct segment *map_segment(const char *name)
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

/* The mapping of a name, which this makes where there is none; NULL: it cannot. Under the lock. */
static struct mapping *find_mapping(const char *name)
{
    struct mapping *mapping = mappings;
    while (mapping != NULL && strcmp(mapping->name, name) != 0)
        mapping = mapping->next;
    if (mapping != NULL || (mapping = calloc(1, sizeof *mapping)) == NULL)
        return mapping;
    (void)snprintf(mapping->name, sizeof mapping->name, "%s", name);
    mapping->segment = map_segment(name);
    if (mapping->segment == NULL) {
        free(mapping);
        return NULL;
    }
    mapping->next = mappings;
    mappings = mapping;
    return mapping;
}

static struct segment *open_segment(const char *name)
{
    (void)pthread_mutex_lock(&mappings_lock);
    struct mapping *mapping = find_mapping(name);
    if (mapping != NULL)
        mapping->users++;
    (void)pthread_mutex_unlock(&mappings_lock);
    return mapping != NULL ? mapping->segment : NULL;
}

static void close_segment(const struct segment *segment)
{
    (void)pthread_mutex_lock(&mappings_lock);
    struct mapping **link = &mappings;
    while ((*link)->segment != segment)
        link = &(*link)->next;
    struct mapping *const mapping = *link;
    if (--mapping->users == 0) {
        *link = mapping->next;
        (void)munmap(mapping->segment, sizeof *mapping->segment);
        free(mapping);
    }
    (void)pthread_mutex_unlock(&mappings_lock);
}

void double_hold(struct ncclComm *comm)
{
    (void)atomic_fetch_add(&comm->holders, 1);
}

void double_drop(struct ncclComm *comm)
{
    if (atomic_fetch_sub(&comm->holders, 1) > 1)
        return;
    if (comm->segment != NULL)
        close_segment(comm->segment);
    free(comm);
}

bool double_is_aborted(struct ncclComm *comm)
{
    return atomic_load(&comm->aborted) ||
           (comm->parent != NULL && atomic_load(&comm->parent->aborted));
}

/* All members are there, on devices of their own. */
static ncclResult_t meet(struct ncclComm *comm)
{
    struct segment *segment = comm->segment;
    int nobody = 0;
    if (!atomic_compare_exchange_strong(&segment->device[comm->rank], &nobody, comm->bus + 1))
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

/* The segment of its name is opened by all members, or given up, and nobody else finds it then. */
static ncclResult_t join(struct ncclComm *comm)
{
    comm->segment = open_segment(comm->name);
    if (comm->segment == NULL)
        return double_refuse(ncclSystemError, "no shared memory");
    const ncclResult_t result = meet(comm);
    if (atomic_fetch_add(&comm->segment->ready, 1) + 1 == comm->size || double_is_aborted(comm))
        (void)shm_unlink(comm->name);
    return result;
}

static ncclResult_t find_device(struct ncclComm *comm)
{
    char bus[32];
    if (cudaGetDevice(&comm->device) != cudaSuccess ||
        cudaDeviceGetPCIBusId(bus, sizeof bus, comm->device) != cudaSuccess)
        return double_refuse(ncclUnhandledCudaError, "no device");
    comm->bus = (int)strtol(bus + 5, NULL, 16);
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
    /* Where the last one is of another process, which a sanitizer does not see, this orders the
     * threads of this one. */
    (void)atomic_load(&meeting->arrived);
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
    if (making->comm != NULL && !double_is_aborted(parent))
        find_siblings(making);
    double_meet(parent, &parent->segment->split);
    parent->splits++;
    if (making->comm != NULL && !double_is_aborted(parent))
        return join(making->comm);
    if (making->comm != NULL)
        atomic_store(&making->comm->aborted, true); /* it has no segment */
    return ncclSuccess;
}

/* Says how it went where callers ask: of a split the parent, at the end, since its caller goes on
 * then, and may split again. */
static void finish(struct making *making, struct ncclComm *asked)
{
    const ncclResult_t result = make(making);
    if (making->comm != NULL && making->comm != asked) {
        making->comm->parent = NULL;
        atomic_store(&making->comm->state, (int)result);
        *making->made = making->comm;
    }
    atomic_store(&asked->state, (int)result);
}

static void wait_for_abort(struct making *making, struct ncclComm *asked)
{
    atomic_store(&asked->state, (int)making->stalls);
    while (!double_is_aborted(asked))
        double_nap();
    if (making->comm != NULL && making->comm != asked)
        double_drop(making->comm); /* nobody has it */
}

static void *make_later(void *argument)
{
    struct making *making = argument;
    struct ncclComm *asked = making->parent != NULL ? making->parent : making->comm;
    if (making->stalls == ncclSuccess)
        finish(making, asked);
    else
        wait_for_abort(making, asked);
    (void)atomic_fetch_sub(&asked->making, 1);
    double_drop(asked);
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
    (void)atomic_fetch_add(&asked->making, 1);
    double_hold(asked);
    if (asked->blocks) {
        double_hold(asked); /* another thread may abort it */
        (void)make_later(making);
        const ncclResult_t result = (ncclResult_t)atomic_load(&asked->state);
        double_drop(asked);
        return result;
    }
    if (pthread_create(&thread, NULL, make_later, making) != 0) {
        (void)atomic_fetch_sub(&asked->making, 1);
        double_drop(asked);
        free(making);
        return double_refuse(ncclSystemError, "no thread");
    }
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
    comm->blocks = config == NULL || config->blocking != 0;
    comm->holders = 1;
    const ncclResult_t result = find_device(comm);
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
        comm->bus = parent->bus;
        comm->holders = 1;
        comm->parent = parent;
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
    double_drop(comm);
    return ncclSuccess;
}

/* Work comes to its end, done or not. It may wait in a stream behind that of another communicator,
 * so that memory stays until then; what is made is waited for, whose caller's variable it writes.
 * A member that only waits hears nothing of it, and waits until it aborts, too. */
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    atomic_store(&comm->aborted, true);
    while (atomic_load(&comm->making) > 0)
        double_nap();
    double_drop(comm);
    return ncclSuccess;
}
