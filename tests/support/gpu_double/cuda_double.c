/* Streams, events, host functions and copies of the stand-in. */
#include "tests/support/gpu_double/gpu_double.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef DOUBLE_MULTIPLIES
#define DOUBLE_MULTIPLIES 0
#endif
#define EDGE    ((size_t)64 << 10)
#define WORK_NS 50000 /* what any work takes: long enough to be seen by who does not wait */
#define LATE_NS 1000000

/* --- what has failed --- */

static atomic_bool has_fault[DOUBLE_DEVICES];

void double_fault(void)
{
    atomic_store(&has_fault[double_device()], true);
}

/* Only calls that tell how far a stream is leave an error here. */
static _Thread_local cudaError_t last_error;

cudaError_t cudaGetLastError(void)
{
    FORBID("cudaGetLastError");
    const cudaError_t last = last_error;
    last_error = cudaSuccess;
    return last;
}

static cudaError_t look_back(int device)
{
    return atomic_load(&has_fault[device]) ? cudaErrorLaunchFailure : cudaSuccess;
}

static _Thread_local bool is_host_function;

bool double_is_forbidden(const char *call)
{
    if (is_host_function)
        (void)fprintf(stderr, "stand-in: a host function calls %s\n", call);
    return is_host_function;
}

static const struct double_finder *finder;

bool double_find(const struct double_finder *by)
{
    finder = DOUBLE_MULTIPLIES ? by : NULL;
    return DOUBLE_MULTIPLIES;
}

/* --- what is slower than by itself --- */

static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    double load_s;  /* of products since the last copy */
    double taken_s; /* by collectives from the next product */
} loads[DOUBLE_DEVICES];

double double_product_s(double time_s)
{
    const int device = double_device();
    (void)pthread_mutex_lock(&load_lock);
    const double longer_s =
        (loads[device].load_s >= DOUBLE_HOT_S ? time_s / DOUBLE_HOT_SHARE : time_s) +
        loads[device].taken_s;
    loads[device].load_s += longer_s;
    loads[device].taken_s = 0;
    (void)pthread_mutex_unlock(&load_lock);
    return longer_s;
}

double double_collective_s(void)
{
    const char *share = getenv("SBP_DOUBLE_BESIDE");
    if (share == NULL)
        return 0;
    (void)pthread_mutex_lock(&load_lock);
    loads[double_device()].taken_s += strtod(share, NULL) * DOUBLE_COLLECTIVE_S;
    (void)pthread_mutex_unlock(&load_lock);
    return DOUBLE_COLLECTIVE_S;
}

static void cool(void)
{
    (void)pthread_mutex_lock(&load_lock);
    loads[double_device()].load_s = 0;
    (void)pthread_mutex_unlock(&load_lock);
}

/* --- streams --- */

/* How far the work of every stream is that comes before something for certain: so many of it. */
enum { MOST_STREAMS = 256 };
struct past {
    uint32_t work[MOST_STREAMS];
};

struct work {
    struct work *next;
    void (*run)(void *argument);
    struct past past; /* with itself */
    uint64_t number;  /* its stream's, and its place there */
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
    int number, device;
    struct past past; /* of what it is given next */
    uint64_t random;
    bool closing;
};

static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;
static struct CUstream_st *streams;
static struct CUstream_st *default_streams[DOUBLE_DEVICES];
static struct CUstream_st *ended_streams; /* events and waits of others may still name them */
/* By number: how much work was given so far, also to those before it; and those that are there. */
static uint32_t given[MOST_STREAMS];
static bool is_taken[MOST_STREAMS];
static atomic_int numbers;                  /* of streams, so far */
static _Thread_local struct past host_past; /* what this thread has waited for */
static _Thread_local const struct work *under_way;

static void join_past(struct past *past, const struct past *other)
{
    for (int i = 0; i < atomic_load(&numbers); i++)
        if (other->work[i] > past->work[i])
            past->work[i] = other->work[i];
}

bool double_is_behind(uint64_t before)
{
    return under_way == NULL || under_way->past.work[before >> 32] >= (uint32_t)before;
}

uint64_t double_number(void)
{
    return under_way->number;
}

void double_touch(const void *memory, size_t bytes, bool writes, const char *what)
{
    if (finder != NULL && under_way != NULL && double_is_device(memory, 0))
        finder->touch(memory, bytes, writes, what);
}

void double_forget(const void *memory, size_t bytes)
{
    if (finder != NULL)
        finder->forget(memory, bytes);
}

/* A stream comes to this, then to what is behind it. */
struct wait {
    struct CUstream_st *stream;
    uint64_t ticket;
};

static void wait_until(struct CUstream_st *stream, uint64_t finished)
{
    (void)pthread_mutex_lock(&stream->lock);
    while (stream->finished < finished)
        (void)pthread_cond_wait(&stream->changed, &stream->lock);
    (void)pthread_mutex_unlock(&stream->lock);
}

static void run_wait(void *argument)
{
    const struct wait *wait = argument;
    wait_until(wait->stream, wait->ticket);
}

void double_run_nothing(void *argument)
{
    (void)argument;
}

struct host_call {
    cudaHostFn_t function;
    void *data;
};

/* Where a device has failed host functions are left out. */
static void run_host_call(void *argument)
{
    const struct host_call *call = argument;
    if (look_back(double_device()) != cudaSuccess)
        return;
    is_host_function = true;
    call->function(call->data);
    is_host_function = false;
}

static void move_edges(void *argument);

/* With SBP_DOUBLE_DELAY, a seed, some work begins so late that whoever does not wait for it goes
 * first. */
static long draw_ns(struct CUstream_st *stream)
{
    const char *seed = getenv("SBP_DOUBLE_DELAY");
    if (seed == NULL)
        return WORK_NS;
    stream->random = (stream->random + strtoull(seed, NULL, 10)) * 6364136223846793005U + 1;
    return (stream->random >> 60) == 0 ? LATE_NS : (long)(stream->random >> 44) % WORK_NS;
}

/* Nobody but the device may reach its memory: no stream that waits for another, no host function.
 */
static void run_work(const struct work *work, const struct timespec *pause)
{
    if (work->run == run_wait) {
        work->run((void *)(uintptr_t)work->argument);
        return;
    }
    if (pause != NULL)
        (void)nanosleep(pause, NULL);
    const bool is_device = work->run != run_host_call;
    under_way = work;
    if (is_device)
        double_open();
    work->run((void *)(uintptr_t)work->argument);
    if (is_device)
        double_close();
    under_way = NULL;
}

static void *work_off(void *argument)
{
    struct CUstream_st *stream = argument;
    double_make_current(stream->device);
    (void)pthread_mutex_lock(&stream->lock);
    for (;;) {
        while (stream->first == NULL && !stream->closing)
            (void)pthread_cond_wait(&stream->changed, &stream->lock);
        struct work *work = stream->first;
        if (work == NULL)
            break;
        const bool hurries =
            (work->run == double_run_nothing || work->run == move_edges) && work->next != NULL;
        const struct timespec pause = {.tv_nsec = draw_ns(stream)};
        (void)pthread_mutex_unlock(&stream->lock);
        run_work(work, hurries ? NULL : &pause);
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
    stream->device = double_device();
    if (pthread_mutex_init(&stream->lock, NULL) != 0 ||
        pthread_cond_init(&stream->changed, NULL) != 0 ||
        pthread_create(&stream->worker, NULL, work_off, stream) != 0) {
        free(stream);
        return NULL;
    }
    return stream;
}

/* Under the lock of streams. What a stream before it with this number did is over. */
static void add_stream(struct CUstream_st *stream)
{
    while (is_taken[stream->number])
        if (++stream->number == MOST_STREAMS)
            abort();
    is_taken[stream->number] = true;
    if (stream->number >= atomic_load(&numbers))
        atomic_store(&numbers, stream->number + 1);
    stream->past.work[stream->number] = given[stream->number];
    stream->random = (uint64_t)stream->number << 32;
    stream->next = streams;
    streams = stream;
}

/* The stream of a handle; NULL: it is none, or was destroyed. */
static struct CUstream_st *find_stream(cudaStream_t handle)
{
    struct CUstream_st *found, **own = &default_streams[double_device()];
    (void)pthread_mutex_lock(&streams_lock);
    if (handle == NULL && *own == NULL) {
        *own = make_stream();
        if (*own != NULL)
            add_stream(*own);
    }
    found = streams;
    while (found != NULL && found != (handle == NULL ? *own : handle))
        found = found->next;
    (void)pthread_mutex_unlock(&streams_lock);
    return found;
}

cudaError_t double_enqueue(cudaStream_t handle, void (*run)(void *argument), const void *argument,
                           size_t size, double time_s)
{
    FORBID("what a stream takes");
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
    join_past(&stream->past, &host_past);
    stream->past.work[stream->number] = ++given[stream->number];
    work->past = stream->past;
    work->number = (uint64_t)stream->number << 32 | given[stream->number];
    *stream->end = work;
    stream->end = &work->next;
    stream->issued++;
    stream->clock_s += time_s;
    (void)pthread_cond_broadcast(&stream->changed);
    (void)pthread_mutex_unlock(&stream->lock);
    return cudaSuccess;
}

cudaError_t double_launch(cudaStream_t handle, void (*run)(void *argument), const void *argument,
                          size_t size, double time_s)
{
    const struct CUstream_st *stream = find_stream(handle);
    return stream == NULL || stream->device != double_device()
               ? cudaErrorInvalidResourceHandle
               : double_enqueue(handle, run, argument, size, time_s);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void *data)
{
    MAY_FAIL("cudaLaunchHostFunc", cudaErrorIllegalAddress);
    const struct host_call call = {function, data};
    return function == NULL ? cudaErrorInvalidValue
                            : double_enqueue(handle, run_host_call, &call, sizeof call, 0);
}

static uint64_t issued_to(struct CUstream_st *stream)
{
    (void)pthread_mutex_lock(&stream->lock);
    const uint64_t issued = stream->issued;
    (void)pthread_mutex_unlock(&stream->lock);
    return issued;
}

/* The host waits for all that a stream was given. */
static void wait_for(struct CUstream_st *stream)
{
    (void)pthread_mutex_lock(&stream->lock);
    const uint64_t issued = stream->issued;
    join_past(&host_past, &stream->past);
    (void)pthread_mutex_unlock(&stream->lock);
    wait_until(stream, issued);
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
    FORBID("cudaStreamDestroy");
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
    (void)pthread_mutex_lock(&streams_lock);
    is_taken[stream->number] = false;
    stream->next = ended_streams;
    ended_streams = stream;
    (void)pthread_mutex_unlock(&streams_lock);
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
    if (done)
        join_past(&host_past, &stream->past);
    (void)pthread_mutex_unlock(&stream->lock);
    if (!done)
        last_error = cudaErrorNotReady;
    return done ? look_back(stream->device) : cudaErrorNotReady;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle)
{
    MAY_FAIL("cudaStreamSynchronize", cudaErrorIllegalAddress);
    struct CUstream_st *stream = find_stream(handle);
    if (stream == NULL)
        return cudaErrorInvalidResourceHandle;
    wait_for(stream);
    return look_back(stream->device);
}

/* --- events --- */

struct CUevent_st {
    int device;
    struct CUstream_st *stream; /* NULL: not recorded */
    uint64_t ticket;
    double at_s;
    struct past past;
};

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    MAY_FAIL("cudaEventCreate", cudaErrorMemoryAllocation);
    *event = calloc(1, sizeof **event);
    if (*event == NULL)
        return cudaErrorMemoryAllocation;
    (*event)->device = double_device();
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    FORBID("cudaEventDestroy");
    free(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle)
{
    MAY_FAIL("cudaEventRecord", cudaErrorIllegalAddress);
    struct CUstream_st *stream = find_stream(handle);
    if (stream == NULL || stream->device != event->device)
        return cudaErrorInvalidResourceHandle;
    (void)pthread_mutex_lock(&stream->lock);
    *event =
        (struct CUevent_st){event->device, stream, stream->issued, stream->clock_s, stream->past};
    (void)pthread_mutex_unlock(&stream->lock);
    return cudaSuccess;
}

/* That it was over when somebody happened to look orders nothing. */
cudaError_t cudaEventQuery(cudaEvent_t event)
{
    MAY_FAIL("cudaEventQuery", cudaErrorIllegalAddress);
    bool done = true;
    if (event->stream != NULL) {
        (void)pthread_mutex_lock(&event->stream->lock);
        done = event->stream->finished >= event->ticket;
        (void)pthread_mutex_unlock(&event->stream->lock);
    }
    if (!done)
        last_error = cudaErrorNotReady;
    return done ? look_back(event->device) : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    MAY_FAIL("cudaEventSynchronize", cudaErrorIllegalAddress);
    if (event->stream != NULL)
        wait_until(event->stream, event->ticket);
    join_past(&host_past, &event->past);
    return look_back(event->device);
}

/* SBP_DOUBLE_FAIL=wait:N: the N-th wait is left out. */
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned int flags)
{
    MAY_FAIL("cudaStreamWaitEvent", cudaErrorIllegalAddress);
    struct CUstream_st *stream = find_stream(handle);
    if (stream == NULL || flags != 0)
        return cudaErrorInvalidValue;
    if (event->stream == NULL || event->stream == stream || double_fails("wait"))
        return cudaSuccess;
    const struct wait wait = {event->stream, event->ticket};
    (void)pthread_mutex_lock(&stream->lock);
    join_past(&stream->past, &event->past);
    if (event->at_s > stream->clock_s)
        stream->clock_s = event->at_s;
    (void)pthread_mutex_unlock(&stream->lock);
    return double_enqueue(handle, run_wait, &wait, sizeof wait, 0);
}

cudaError_t cudaEventElapsedTime(float *time_ms, cudaEvent_t start, cudaEvent_t end)
{
    MAY_FAIL("cudaEventElapsedTime", cudaErrorIllegalAddress);
    if (start->stream == NULL || end->stream == NULL)
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

/* Only new memory is filled, whose words need not all be remembered. */
static void move_piece(const struct move *move, size_t first, size_t bytes)
{
    if (move->from != NULL) {
        double_touch(move->from + first, bytes, false, "a copy");
        double_touch(move->to + first, bytes, true, "a copy");
    }
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
    const bool is_whole = move->bytes <= DOUBLE_LARGE || (DOUBLE_MULTIPLIES && move->from != NULL);
    return double_enqueue(stream, is_whole ? move_all : move_edges, move, sizeof *move, time_s);
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
    wait_for(stream);
    double_open();
    memmove(to, from, bytes);
    double_close();
    return look_back(stream->device);
}

/* Where memory of the host is not pinned it is over when this returns. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t handle)
{
    MAY_FAIL("cudaMemcpyAsync", cudaErrorIllegalAddress);
    const struct move move = {to, from, 0, bytes};
    struct CUstream_st *stream = find_stream(handle);
    if (stream == NULL || !fits_kind(to, from, bytes, kind))
        return cudaErrorInvalidValue;
    const bool is_late = kind == cudaMemcpyDeviceToDevice ||
                         double_is_pinned(kind == cudaMemcpyHostToDevice ? from : to, bytes);
    const int sides = kind == cudaMemcpyDeviceToDevice ? 2 : 1;
    cool();
    const char *link_s = is_late && sides == 1 ? getenv("SBP_DOUBLE_LINK_S") : NULL;
    const cudaError_t code = enqueue_move(
        handle, &move,
        link_s != NULL ? atof(link_s) : sides * (double)bytes / DOUBLE_COPY_BYTES_PER_S);
    if (code == cudaSuccess && !is_late)
        wait_until(stream, issued_to(stream));
    return code;
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
    return double_allocate(double_device(), memory, bytes, false);
}

/* Waits for what the streams of a device were given so far, without their lock: what they wait for
 * may be what other threads are about to give others. A stream that ends meanwhile stays. */
static void wait_for_device(int device)
{
    struct CUstream_st *found[MOST_STREAMS];
    int count = 0;
    (void)pthread_mutex_lock(&streams_lock);
    for (struct CUstream_st *stream = streams; stream != NULL; stream = stream->next)
        if (stream->device == device)
            found[count++] = stream;
    (void)pthread_mutex_unlock(&streams_lock);
    for (int i = 0; i < count; i++)
        wait_for(found[i]);
}

/* Waits for all streams of its device, as CUDA does. */
cudaError_t cudaFree(void *memory)
{
    FORBID("cudaFree");
    if (memory == NULL)
        return cudaSuccess;
    const int device = double_device_of(memory, 0);
    if (device >= 0)
        wait_for_device(device);
    return double_release(memory);
}

cudaError_t cudaMallocAsync(void **memory, size_t bytes, cudaStream_t stream)
{
    MAY_FAIL("cudaMallocAsync", cudaErrorMemoryAllocation);
    const struct CUstream_st *found = find_stream(stream);
    return found == NULL ? cudaErrorInvalidResourceHandle
                         : double_allocate(found->device, memory, bytes, true);
}

static void run_release(void *argument)
{
    void **memory = argument;
    double_touch(*memory, 1, true, "the end of memory");
    if (double_release(*memory) != cudaSuccess)
        abort(); /* it was the device's when it was handed over */
}

cudaError_t cudaFreeAsync(void *memory, cudaStream_t stream)
{
    MAY_FAIL("cudaFreeAsync", cudaErrorInvalidValue);
    if (!double_is_device(memory, 0))
        return cudaErrorInvalidValue;
    return double_enqueue(stream, run_release, &memory, sizeof memory, 0);
}
