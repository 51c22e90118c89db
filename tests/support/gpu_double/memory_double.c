/* Memory of the stand-in, the device's and the host's that is pinned, and what fails of its calls.
 */
#include "tests/support/gpu_double/gpu_double.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define POISON 0xa5

/* --- what fails --- */

struct trap {
    const char *variable;
    char text[64]; /* that it was set to, since when it has seen so many calls */
    int seen;
};

static pthread_mutex_t trap_lock = PTHREAD_MUTEX_INITIALIZER;

/* Counts a call; another text is another trap. */
static int count_call(struct trap *trap, const char *text)
{
    (void)pthread_mutex_lock(&trap_lock);
    if (strncmp(trap->text, text, sizeof trap->text - 1) != 0) {
        (void)snprintf(trap->text, sizeof trap->text, "%s", text);
        trap->seen = 0;
    }
    const int seen = ++trap->seen;
    (void)pthread_mutex_unlock(&trap_lock);
    return seen;
}

/* "CALL:N", "CALL:N@RANK", "CALL:N#DEVICE" or "CALL:N@RANK#DEVICE" */
static bool springs(struct trap *trap, const char *call)
{
    const char *text = getenv(trap->variable), *own_rank = getenv("OMPI_COMM_WORLD_RANK");
    const size_t length = strlen(call);
    if (text == NULL || strncmp(text, call, length) != 0 || text[length] != ':')
        return false;
    char *end;
    const long wanted = strtol(text + length + 1, &end, 10);
    if (*end == '@') {
        const long rank = strtol(end + 1, &end, 10);
        if (own_rank != NULL && strtol(own_rank, NULL, 10) != rank)
            return false;
    }
    if (*end == '#' && strtol(end + 1, NULL, 10) != double_device())
        return false;
    return count_call(trap, text) == wanted;
}

/* SBP_DOUBLE_SLOW=CALL: each such call takes longer. */
static void slow_down(const char *call)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    const char *slow = getenv("SBP_DOUBLE_SLOW");
    if (slow != NULL && strcmp(slow, call) == 0)
        (void)nanosleep(&pause, NULL);
}

bool double_fails(const char *call)
{
    static struct trap trap = {.variable = "SBP_DOUBLE_FAIL"};
    slow_down(call);
    return springs(&trap, call);
}

bool double_stalls(const char *call)
{
    static struct trap trap = {.variable = "SBP_DOUBLE_STALL"};
    return springs(&trap, call);
}

bool double_hangs(const char *call)
{
    static struct trap trap = {.variable = "SBP_DOUBLE_HANG"};
    return springs(&trap, call);
}

/* --- memory --- */

/* A device's memory is a range of addresses. With DOUBLE_GUARDS, which takes time in proportion
 * to what is used of it, nobody may read or write there but the device, while it works, and copies.
 */
#ifndef DOUBLE_GUARDS
#define DOUBLE_GUARDS 0
#endif
#define RANGE_BYTES (2 * DOUBLE_MEMORY_BYTES) /* blocks leave gaps */
#define PAGE_BYTES  ((size_t)4096)

struct block {
    struct block *next; /* by addresses */
    unsigned char *at;
    size_t bytes;
    bool pooled;
};

/* A device has one; it is made when something asks for it first. */
struct memory {
    unsigned char *_Atomic range; /* a signal's handler reads it */
    struct block *blocks;
    size_t used_bytes;
};

static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;
static struct memory memories[DOUBLE_DEVICES];
static int openings;

/* The device in whose range an address is; -1: in none. */
static int ranges_device(const void *memory)
{
    const uintptr_t at = (uintptr_t)memory;
    for (int device = 0; device < DOUBLE_DEVICES; device++) {
        const uintptr_t first = (uintptr_t)atomic_load(&memories[device].range);
        if (first != 0 && at >= first && at - first < RANGE_BYTES)
            return device;
    }
    return -1;
}

static void on_access(int number, siginfo_t *info, void *context)
{
    static const char said[] = "the host reads or writes memory of the stand-in GPU\n";
    (void)context;
    if (ranges_device(info->si_addr) >= 0 && write(2, said, sizeof said - 1) < 0)
        _exit(99);
    (void)signal(number, SIG_DFL); /* the access is tried again */
}

__attribute__((constructor)) static void watch_accesses(void)
{
    const struct sigaction action = {.sa_sigaction = on_access, .sa_flags = SA_SIGINFO};
    if (sigaction(SIGSEGV, &action, NULL) != 0)
        abort();
}

static void protect(const struct memory *memory)
{
    const int protection = openings > 0 || !DOUBLE_GUARDS ? PROT_READ | PROT_WRITE : PROT_NONE;
    if (mprotect(memory->range, RANGE_BYTES, protection) != 0)
        abort();
}

static void protect_all(void)
{
    for (int device = 0; DOUBLE_GUARDS && device < DOUBLE_DEVICES; device++)
        if (memories[device].range != NULL)
            protect(&memories[device]);
}

/* Under the lock. */
static struct memory *memory_of(int device)
{
    struct memory *memory = &memories[device];
    if (memory->range != NULL)
        return memory;
    void *made =
        mmap(NULL, RANGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED || madvise(made, RANGE_BYTES, MADV_NOHUGEPAGE) != 0)
        abort();
    atomic_store(&memory->range, made);
    protect(memory);
    return memory;
}

const void *double_range(size_t *bytes)
{
    (void)pthread_mutex_lock(&memory_lock);
    const void *range = memory_of(double_device())->range;
    (void)pthread_mutex_unlock(&memory_lock);
    *bytes = RANGE_BYTES;
    return range;
}

size_t double_used_bytes(void)
{
    (void)pthread_mutex_lock(&memory_lock);
    const size_t bytes = memories[double_device()].used_bytes;
    (void)pthread_mutex_unlock(&memory_lock);
    return bytes;
}

void double_open(void)
{
    (void)pthread_mutex_lock(&memory_lock);
    if (openings++ == 0)
        protect_all();
    (void)pthread_mutex_unlock(&memory_lock);
}

void double_close(void)
{
    (void)pthread_mutex_lock(&memory_lock);
    if (--openings == 0)
        protect_all();
    (void)pthread_mutex_unlock(&memory_lock);
}

/* The block that holds these bytes, or NULL. Under the lock. */
static const struct block *holder(const void *memory, size_t bytes)
{
    const uintptr_t at = (uintptr_t)memory;
    const int device = ranges_device(memory);
    if (device < 0)
        return NULL;
    for (const struct block *block = memories[device].blocks; block != NULL; block = block->next) {
        const uintptr_t first = (uintptr_t)block->at;
        if (at >= first && at - first <= block->bytes && bytes <= block->bytes - (at - first))
            return block;
    }
    return NULL;
}

int double_device_of(const void *memory, size_t bytes)
{
    (void)pthread_mutex_lock(&memory_lock);
    const int device = holder(memory, bytes) != NULL ? ranges_device(memory) : -1;
    (void)pthread_mutex_unlock(&memory_lock);
    return device;
}

bool double_is_device(const void *memory, size_t bytes)
{
    return double_device_of(memory, bytes) >= 0;
}

bool double_is_pooled(const void *memory)
{
    (void)pthread_mutex_lock(&memory_lock);
    const struct block *block = holder(memory, 0);
    const bool pooled = block != NULL && block->pooled;
    (void)pthread_mutex_unlock(&memory_lock);
    return pooled;
}

/* Pages of a block. */
static size_t taken_bytes(size_t bytes)
{
    return (bytes / PAGE_BYTES + 1) * PAGE_BYTES;
}

/* Enters a block in the first gap that has room. Under the lock. */
static bool enter(struct memory *memory, struct block *block)
{
    unsigned char *const range = memory->range;
    struct block **at = &memory->blocks;
    size_t first = 0;
    while (*at != NULL && (size_t)((*at)->at - range) - first < taken_bytes(block->bytes)) {
        first = (size_t)((*at)->at - range) + taken_bytes((*at)->bytes);
        at = &(*at)->next;
    }
    if (block->bytes > DOUBLE_MEMORY_BYTES - memory->used_bytes ||
        taken_bytes(block->bytes) > RANGE_BYTES - first)
        return false;
    block->at = range + first;
    block->next = *at;
    *at = block;
    memory->used_bytes += block->bytes;
    return true;
}

cudaError_t double_allocate(int device, void **memory, size_t bytes, bool pooled)
{
    if (bytes > DOUBLE_MEMORY_BYTES)
        return cudaErrorMemoryAllocation;
    struct block *block = malloc(sizeof *block);
    if (block != NULL)
        *block = (struct block){.bytes = bytes, .pooled = pooled};
    (void)pthread_mutex_lock(&memory_lock);
    const bool fits = block != NULL && enter(memory_of(device), block);
    (void)pthread_mutex_unlock(&memory_lock);
    if (!fits) {
        free(block);
        return cudaErrorMemoryAllocation;
    }
    *memory = block->at;
    if (bytes <= DOUBLE_LARGE) {
        double_open();
        memset(block->at, POISON, bytes);
        double_close();
    }
    return cudaSuccess;
}

/* Takes a block out; NULL: none begins there. Under the lock. */
static struct block *take_out(const void *at)
{
    const int device = ranges_device(at);
    if (device < 0)
        return NULL;
    struct memory *memory = &memories[device];
    struct block **link = &memory->blocks;
    while (*link != NULL && (*link)->at != at)
        link = &(*link)->next;
    struct block *const found = *link;
    if (found != NULL) {
        *link = found->next;
        memory->used_bytes -= found->bytes;
    }
    return found;
}

cudaError_t double_release(void *memory)
{
    (void)pthread_mutex_lock(&memory_lock);
    struct block *found = take_out(memory);
    /* Whoever gets it next finds zeros, or what is left of them. */
    if (found != NULL && madvise(found->at, taken_bytes(found->bytes), MADV_DONTNEED) != 0)
        abort();
    (void)pthread_mutex_unlock(&memory_lock);
    if (found == NULL)
        return cudaErrorInvalidValue;
    double_forget(found->at, found->bytes);
    free(found);
    return cudaSuccess;
}

/* --- memory of the host --- */

/* Pinned memory of the host, which copies reach late. */
struct pinned {
    struct pinned *next;
    unsigned char *at;
    size_t bytes;
};
static struct pinned *pinned;

cudaError_t cudaMallocHost(void **memory, size_t bytes)
{
    MAY_FAIL("cudaMallocHost", cudaErrorMemoryAllocation);
    struct pinned *made = malloc(sizeof *made);
    *memory = malloc(bytes);
    if (made == NULL || *memory == NULL) {
        free(made);
        free(*memory);
        return cudaErrorMemoryAllocation;
    }
    memset(*memory, POISON, bytes);
    (void)pthread_mutex_lock(&memory_lock);
    *made = (struct pinned){pinned, *memory, bytes};
    pinned = made;
    (void)pthread_mutex_unlock(&memory_lock);
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *memory)
{
    FORBID("cudaFreeHost");
    (void)pthread_mutex_lock(&memory_lock);
    struct pinned **at = &pinned;
    while (*at != NULL && (*at)->at != memory)
        at = &(*at)->next;
    struct pinned *const found = *at;
    if (found != NULL)
        *at = found->next;
    (void)pthread_mutex_unlock(&memory_lock);
    free(found);
    free(found != NULL ? memory : NULL);
    return found != NULL ? cudaSuccess : cudaErrorInvalidValue;
}

bool double_is_pinned(const void *memory, size_t bytes)
{
    const uintptr_t at = (uintptr_t)memory;
    bool found = false;
    (void)pthread_mutex_lock(&memory_lock);
    for (const struct pinned *one = pinned; one != NULL && !found; one = one->next)
        found = at >= (uintptr_t)one->at && at + bytes <= (uintptr_t)one->at + one->bytes;
    (void)pthread_mutex_unlock(&memory_lock);
    return found;
}
