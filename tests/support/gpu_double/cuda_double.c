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

#define LARGE   ((size_t)1 << 20) /* beyond, copies move their first and last bytes alone */
#define EDGE    ((size_t)64 << 10)
#define POISON  0xa5
#define WORK_NS 50000 /* what any work takes: long enough to be seen by who does not wait */

/* --- what fails --- */

struct trap {
    const char *variable;
    int seen;
};

static pthread_mutex_t trap_lock = PTHREAD_MUTEX_INITIALIZER;

/* "CALL:N" or "CALL:N@RANK" */
static bool springs(struct trap *trap, const char *call)
{
    const char *text = getenv(trap->variable), *own_rank = getenv("OMPI_COMM_WORLD_RANK");
    const size_t length = strlen(call);
    if (text == NULL || strncmp(text, call, length) != 0 || text[length] != ':')
        return false;
    char *end;
    const long wanted = strtol(text + length + 1, &end, 10);
    if (*end == '@' && own_rank != NULL && strcmp(end + 1, own_rank) != 0)
        return false;
    (void)pthread_mutex_lock(&trap_lock);
    const bool now = ++trap->seen == wanted;
    (void)pthread_mutex_unlock(&trap_lock);
    return now;
}

bool double_fails(const char *call)
{
    static struct trap trap = {"SBP_DOUBLE_FAIL", 0};
    return springs(&trap, call);
}

bool double_stalls(const char *call)
{
    static struct trap trap = {"SBP_DOUBLE_STALL", 0};
    return springs(&trap, call);
}

static atomic_bool has_fault;

void double_fault(void)
{
    atomic_store(&has_fault, true);
}

/* Only calls that tell how far a stream is leave an error here. */
static _Thread_local cudaError_t last_error;

cudaError_t cudaGetLastError(void)
{
    const cudaError_t last = last_error;
    last_error = cudaSuccess;
    return last;
}

static cudaError_t look_back(void)
{
    return atomic_load(&has_fault) ? cudaErrorLaunchFailure : cudaSuccess;
}

/* --- memory --- */

/* The device's memory is a range of addresses. With DOUBLE_GUARDS, which takes time in proportion
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
};

static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned char *range;
static int openings;
static struct block *blocks;
static size_t used_bytes;

static void on_access(int number, siginfo_t *info, void *context)
{
    static const char said[] = "the host reads or writes memory of the stand-in GPU\n";
    (void)context;
    const uintptr_t at = (uintptr_t)info->si_addr, first = (uintptr_t)range;
    if (at >= first && at - first < RANGE_BYTES && write(2, said, sizeof said - 1) < 0)
        _exit(99);
    (void)signal(number, SIG_DFL); /* the access is tried again */
}

__attribute__((constructor)) static void make_range(void)
{
    const struct sigaction action = {.sa_sigaction = on_access, .sa_flags = SA_SIGINFO};
    void *made = mmap(NULL, RANGE_BYTES, DOUBLE_GUARDS ? PROT_NONE : PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED || madvise(made, RANGE_BYTES, MADV_NOHUGEPAGE) != 0 ||
        sigaction(SIGSEGV, &action, NULL) != 0)
        abort();
    range = made;
}

const void *double_range(size_t *bytes)
{
    *bytes = RANGE_BYTES;
    return range;
}

size_t double_used_bytes(void)
{
    (void)pthread_mutex_lock(&memory_lock);
    const size_t bytes = used_bytes;
    (void)pthread_mutex_unlock(&memory_lock);
    return bytes;
}

static void protect(int protection)
{
    if (DOUBLE_GUARDS && mprotect(range, RANGE_BYTES, protection) != 0)
        abort();
}

void double_open(void)
{
    (void)pthread_mutex_lock(&memory_lock);
    if (openings++ == 0)
        protect(PROT_READ | PROT_WRITE);
    (void)pthread_mutex_unlock(&memory_lock);
}

void double_close(void)
{
    (void)pthread_mutex_lock(&memory_lock);
    if (--openings == 0)
        protect(PROT_NONE);
    (void)pthread_mutex_unlock(&memory_lock);
}

bool double_is_device(const void *memory, size_t bytes)
{
    const uintptr_t at = (uintptr_t)memory;
    bool found = false;
    (void)pthread_mutex_lock(&memory_lock);
    for (const struct block *block = blocks; block != NULL && !found; block = block->next) {
        const uintptr_t first = (uintptr_t)block->at;
        found = at >= first && at - first <= block->bytes && bytes <= block->bytes - (at - first);
    }
    (void)pthread_mutex_unlock(&memory_lock);
    return found;
}

/* Pages of a block. */
static size_t taken_bytes(size_t bytes)
{
    return (bytes / PAGE_BYTES + 1) * PAGE_BYTES;
}

/* Enters a block in the first gap that has room. Under the lock. */
static bool enter(struct block *block)
{
    struct block **at = &blocks;
    size_t first = 0;
    while (*at != NULL && (size_t)((*at)->at - range) - first < taken_bytes(block->bytes)) {
        first = (size_t)((*at)->at - range) + taken_bytes((*at)->bytes);
        at = &(*at)->next;
    }
    if (block->bytes > DOUBLE_MEMORY_BYTES - used_bytes ||
        taken_bytes(block->bytes) > RANGE_BYTES - first)
        return false;
    block->at = range + first;
    block->next = *at;
    *at = block;
    used_bytes += block->bytes;
    return true;
}

static cudaError_t allocate(void **memory, size_t bytes)
{
    if (bytes > DOUBLE_MEMORY_BYTES)
        return cudaErrorMemoryAllocation;
    struct block *block = malloc(sizeof *block);
    if (block != NULL)
        block->bytes = bytes;
    (void)pthread_mutex_lock(&memory_lock);
    const bool fits = block != NULL && enter(block);
    (void)pthread_mutex_unlock(&memory_lock);
    if (!fits) {
        free(block);
        return cudaErrorMemoryAllocation;
    }
    *memory = block->at;
    if (bytes <= LARGE) {
        double_open();
        memset(block->at, POISON, bytes);
        double_close();
    }
    return cudaSuccess;
}

static cudaError_t release(void *memory)
{
    struct block *found = NULL;
    (void)pthread_mutex_lock(&memory_lock);
    for (struct block **at = &blocks; *at != NULL && found == NULL; at = &(*at)->next)
        if ((*at)->at == memory) {
            found = *at;
            *at = found->next;
            used_bytes -= found->bytes;
            break;
        }
    /* Whoever gets it next finds zeros, or what is left of them. */
    if (found != NULL && madvise(found->at, taken_bytes(found->bytes), MADV_DONTNEED) != 0)
        abort();
    (void)pthread_mutex_unlock(&memory_lock);
    if (found == NULL)
        return cudaErrorInvalidValue;
    free(found);
    return cudaSuccess;
}

/* --- streams --- */

struct work {
    struct work *next;
    void (*run)(void *argument);
    _Alignas(16) unsigned char argument[];
};

struct CUstream_st {
    struct CUstream_st *next; /* of all */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t worker;
    struct work *first, **end;
    uint64_t issued, finished;
    double clock_s;
    bool closing;
};

static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;
static struct CUstream_st *streams;
static struct CUstream_st *default_stream;

void double_run_nothing(void *argument)
{
    (void)argument;
}

static void move_edges(void *argument);

static void *work_off(void *argument)
{
    struct CUstream_st *stream = argument;
    const struct timespec pause = {.tv_nsec = WORK_NS};
    (void)pthread_mutex_lock(&stream->lock);
    for (;;) {
        while (stream->first == NULL && !stream->closing)
            (void)pthread_cond_wait(&stream->changed, &stream->lock);
        struct work *work = stream->first;
        if (work == NULL)
            break;
        const bool hurries =
            (work->run == double_run_nothing || work->run == move_edges) && work->next != NULL;
        (void)pthread_mutex_unlock(&stream->lock);
        if (!hurries)
            (void)nanosleep(&pause, NULL);
        double_open();
        work->run(work->argument);
        double_close();
        (void)pthread_mutex_lock(&stream->lock);
        stream->first = work->next;
        if (stream->first == NULL)
            stream->end = &stream->first;
        stream->finished++;
        free(work);
        (void)pthread_cond_broadcast(&stream->changed);
    }
    (void)pthread_mutex_unlock(&stream->lock);
    return NULL;
}

static struct CUstream_st *make_stream(void)
{
    struct CUstream_st *stream = calloc(1, sizeof *stream);
    if (stream == NULL)
        return NULL;
    stream->end = &stream->first;
    if (pthread_mutex_init(&stream->lock, NULL) != 0 ||
        pthread_cond_init(&stream->changed, NULL) != 0 ||
        pthread_create(&stream->worker, NULL, work_off, stream) != 0) {
        free(stream);
        return NULL;
    }
    return stream;
}

static void add_stream(struct CUstream_st *stream)
{
    stream->next = streams;
    streams = stream;
}

/* The stream of a handle; NULL: it is none, or was destroyed. */
static struct CUstream_st *find_stream(cudaStream_t handle)
{
    struct CUstream_st *found;
    (void)pthread_mutex_lock(&streams_lock);
    if (handle == NULL && default_stream == NULL) {
        default_stream = make_stream();
        if (default_stream != NULL)
            add_stream(default_stream);
    }
    found = streams;
    while (found != NULL && found != (handle == NULL ? default_stream : handle))
        found = found->next;
    (void)pthread_mutex_unlock(&streams_lock);
    return found;
}

cudaError_t double_enqueue(cudaStream_t handle, void (*run)(void *argument), const void *argument,
                           size_t size, double time_s)
{
    struct CUstream_st *stream = find_stream(handle);
    struct work *work = malloc(sizeof *work + size);
    if (stream == NULL || work == NULL) {
        free(work);
        return cudaErrorInvalidResourceHandle;
    }
    work->next = NULL;
    work->run = run;
    memcpy(work->argument, argument, size);
    (void)pthread_mutex_lock(&stream->lock);
    *stream->end = work;
    stream->end = &work->next;
    stream->issued++;
    stream->clock_s += time_s;
    (void)pthread_cond_broadcast(&stream->changed);
    (void)pthread_mutex_unlock(&stream->lock);
    return cudaSuccess;
}

static void wait_until(struct CUstream_st *stream, uint64_t finished)
{
    (void)pthread_mutex_lock(&stream->lock);
    while (stream->finished < finished)
        (void)pthread_cond_wait(&stream->changed, &stream->lock);
    (void)pthread_mutex_unlock(&stream->lock);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
    MAY_FAIL("cudaStreamCreateWithFlags", cudaErrorMemoryAllocation);
    if (flags != cudaStreamNonBlocking) /* others wait for the default one, which these do not */
        return cudaErrorInvalidValue;
    *stream = make_stream();
    if (*stream == NULL)
        return cudaErrorMemoryAllocation;
    (void)pthread_mutex_lock(&streams_lock);
    add_stream(*stream);
    (void)pthread_mutex_unlock(&streams_lock);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    if (stream == NULL || find_stream(stream) == NULL)
        return cudaErrorInvalidResourceHandle;
    (void)pthread_mutex_lock(&streams_lock);
    struct CUstream_st **at = &streams;
    while (*at != stream)
        at = &(*at)->next;
    *at = stream->next;
    (void)pthread_mutex_unlock(&streams_lock);
    (void)pthread_mutex_lock(&stream->lock);
    stream->closing = true;
    (void)pthread_cond_broadcast(&stream->changed);
    (void)pthread_mutex_unlock(&stream->lock);
    (void)pthread_join(stream->worker, NULL);
    (void)pthread_cond_destroy(&stream->changed);
    (void)pthread_mutex_destroy(&stream->lock);
    free(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t handle)
{
    MAY_FAIL("cudaStreamQuery", cudaErrorIllegalAddress);
    struct CUstream_st *stream = find_stream(handle);
    if (stream == NULL)
        return cudaErrorInvalidResourceHandle;
    (void)pthread_mutex_lock(&stream->lock);
    const bool done = stream->finished == stream->issued;
    (void)pthread_mutex_unlock(&stream->lock);
    if (!done)
        last_error = cudaErrorNotReady;
    return done ? look_back() : cudaErrorNotReady;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle)
{
    MAY_FAIL("cudaStreamSynchronize", cudaErrorIllegalAddress);
    struct CUstream_st *stream = find_stream(handle);
    if (stream == NULL)
        return cudaErrorInvalidResourceHandle;
    wait_until(stream, stream->issued);
    return look_back();
}

/* --- events --- */

struct CUevent_st {
    struct CUstream_st *stream; /* NULL: not recorded */
    uint64_t ticket;
    double at_s;
};

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    MAY_FAIL("cudaEventCreate", cudaErrorMemoryAllocation);
    *event = calloc(1, sizeof **event);
    return *event != NULL ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle)
{
    MAY_FAIL("cudaEventRecord", cudaErrorIllegalAddress);
    struct CUstream_st *stream = find_stream(handle);
    if (stream == NULL)
        return cudaErrorInvalidResourceHandle;
    *event = (struct CUevent_st){stream, stream->issued, stream->clock_s};
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    MAY_FAIL("cudaEventSynchronize", cudaErrorIllegalAddress);
    if (event->stream != NULL)
        wait_until(event->stream, event->ticket);
    return look_back();
}

cudaError_t cudaEventElapsedTime(float *time_ms, cudaEvent_t start, cudaEvent_t end)
{
    MAY_FAIL("cudaEventElapsedTime", cudaErrorIllegalAddress);
    if (start->stream == NULL || end->stream != start->stream)
        return cudaErrorInvalidResourceHandle;
    (void)pthread_mutex_lock(&end->stream->lock);
    const bool done = end->stream->finished >= end->ticket;
    (void)pthread_mutex_unlock(&end->stream->lock);
    if (!done)
        return cudaErrorNotReady;
    *time_ms = (float)((end->at_s - start->at_s) * 1e3);
    return cudaSuccess;
}

/* --- copies --- */

struct move {
    unsigned char *to;
    const unsigned char *from; /* NULL: `value` instead */
    int value;
    size_t bytes;
};

static void move_piece(const struct move *move, size_t first, size_t bytes)
{
    if (move->from != NULL)
        memmove(move->to + first, move->from + first, bytes);
    else
        memset(move->to + first, move->value, bytes);
}

static void move_all(void *argument)
{
    const struct move *move = argument;
    move_piece(move, 0, move->bytes);
}

static void move_edges(void *argument)
{
    const struct move *move = argument;
    move_piece(move, 0, EDGE);
    move_piece(move, move->bytes - EDGE, EDGE);
}

static cudaError_t enqueue_move(cudaStream_t stream, const struct move *move, double time_s)
{
    return double_enqueue(stream, move->bytes <= LARGE ? move_all : move_edges, move, sizeof *move,
                          time_s);
}

static bool fits_kind(const void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    const bool to_device = double_is_device(to, bytes), from_device = double_is_device(from, bytes);
    return (kind == cudaMemcpyHostToDevice && to_device && !from_device) ||
           (kind == cudaMemcpyDeviceToHost && !to_device && from_device) ||
           (kind == cudaMemcpyDeviceToDevice && to_device && from_device);
}

/* Waits for the default stream alone, as streams that do not block want it. */
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    MAY_FAIL("cudaMemcpy", cudaErrorIllegalAddress);
    struct CUstream_st *stream = find_stream(NULL);
    if (stream == NULL || !fits_kind(to, from, bytes, kind))
        return cudaErrorInvalidValue;
    wait_until(stream, stream->issued);
    double_open();
    memmove(to, from, bytes);
    double_close();
    return look_back();
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    MAY_FAIL("cudaMemcpyAsync", cudaErrorIllegalAddress);
    const struct move move = {to, from, 0, bytes};
    if (kind != cudaMemcpyDeviceToDevice || !fits_kind(to, from, bytes, kind))
        return cudaErrorInvalidValue;
    return enqueue_move(stream, &move, 2 * (double)bytes / DOUBLE_COPY_BYTES_PER_S);
}

cudaError_t cudaMemset(void *memory, int value, size_t bytes)
{
    MAY_FAIL("cudaMemset", cudaErrorIllegalAddress);
    const struct move move = {memory, NULL, value, bytes};
    if (!double_is_device(memory, bytes))
        return cudaErrorInvalidValue;
    return enqueue_move(NULL, &move, 0);
}

/* --- allocation --- */

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    MAY_FAIL("cudaMalloc", cudaErrorMemoryAllocation);
    return allocate(memory, bytes);
}

/* Waits for all streams, as it does on a device. */
cudaError_t cudaFree(void *memory)
{
    if (memory == NULL)
        return cudaSuccess;
    (void)pthread_mutex_lock(&streams_lock);
    for (struct CUstream_st *stream = streams; stream != NULL; stream = stream->next)
        wait_until(stream, stream->issued);
    (void)pthread_mutex_unlock(&streams_lock);
    return release(memory);
}

cudaError_t cudaMallocAsync(void **memory, size_t bytes, cudaStream_t stream)
{
    MAY_FAIL("cudaMallocAsync", cudaErrorMemoryAllocation);
    return find_stream(stream) == NULL ? cudaErrorInvalidResourceHandle : allocate(memory, bytes);
}

static void run_release(void *argument)
{
    void **memory = argument;
    if (release(*memory) != cudaSuccess)
        abort(); /* it was the device's when it was handed over */
}

cudaError_t cudaFreeAsync(void *memory, cudaStream_t stream)
{
    MAY_FAIL("cudaFreeAsync", cudaErrorInvalidValue);
    if (!double_is_device(memory, 0))
        return cudaErrorInvalidValue;
    return double_enqueue(stream, run_release, &memory, sizeof memory, 0);
}
