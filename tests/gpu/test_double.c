/* The stand-in for GPUs keeps its memory from the host, and does work later than it is asked to. */
#include <cuda_runtime_api.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/gpu_double/gpu_double.h"
#include "tests/support/unit.h"

enum { BYTES = 4096 };

static unsigned char *device_block(void)
{
    void *memory = NULL;
    assert_int_equal(cudaMalloc(&memory, BYTES), cudaSuccess);
    return memory;
}

/* Signal that a process ends by which reads, or writes, a byte there; 0: it lives. */
static int signal_of(volatile unsigned char *at, bool writes)
{
    int status = 0;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)close(2);
        (void)signal(SIGSEGV, SIG_DFL); /* cmocka has a handler of its own */
        if (writes)
            *at = 1;
        _exit(*at == 1 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void test_host_is_kept_out(void **state)
{
    unsigned char *const memory = device_block();
    (void)state;
    assert_int_equal(signal_of(memory, false), SIGSEGV);
    assert_int_equal(signal_of(memory, true), SIGSEGV);
    double_open();
    assert_int_equal(signal_of(memory, true), 0);
    double_close();
    assert_int_equal(signal_of(memory, false), SIGSEGV);
    assert_int_equal(cudaFree(memory), cudaSuccess);
}

static void test_blocks(void **state)
{
    unsigned char *const first = device_block(), *const second = device_block();
    (void)state;
    assert_true(double_is_device(first, BYTES) && double_is_device(second, BYTES));
    assert_false(double_is_device(first, BYTES + 1));
    assert_int_equal(cudaFree(first), cudaSuccess);
    assert_false(double_is_device(first, 1));
    assert_ptr_equal(device_block(), first);
    assert_int_equal(cudaFree(first), cudaSuccess);
    assert_int_equal(cudaFree(second), cudaSuccess);
    assert_int_equal(cudaFree(second), cudaErrorInvalidValue);
}

/* ---- waits between streams ------------------------------------------------------------------- */

/* Two copies touch a block, one after the other or not. */
static uint64_t first_touch;
static bool is_ordered;

static void touch(const void *memory, size_t bytes, bool writes, const char *what)
{
    (void)memory, (void)bytes, (void)what;
    if (writes && first_touch == 0)
        first_touch = double_number();
    else if (writes)
        is_ordered = double_is_behind(first_touch);
}

static void forget(const void *memory, size_t bytes)
{
    (void)memory, (void)bytes;
}

enum how { ON_ONE_STREAM, BY_EVENT, BY_EARLY_EVENT, BY_HOST, BY_CHANCE };

/* Has both streams write to a block, one ordered behind the other or not. */
static bool writes_in_order(enum how how)
{
    unsigned char *const to = device_block(), *const from = device_block();
    cudaStream_t stream[2];
    cudaEvent_t event;
    first_touch = 0;
    for (int i = 0; i < 2; i++)
        assert_int_equal(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking), cudaSuccess);
    assert_int_equal(cudaEventCreate(&event), cudaSuccess);
    const cudaStream_t behind = how == ON_ONE_STREAM ? stream[0] : stream[1];
    if (how == BY_EARLY_EVENT)
        assert_int_equal(cudaEventRecord(event, stream[0]), cudaSuccess);
    assert_int_equal(cudaMemcpyAsync(to, from, BYTES, cudaMemcpyDeviceToDevice, stream[0]),
                     cudaSuccess);
    if (how != BY_EARLY_EVENT)
        assert_int_equal(cudaEventRecord(event, stream[0]), cudaSuccess);
    if (how == BY_EVENT || how == BY_EARLY_EVENT)
        assert_int_equal(cudaStreamWaitEvent(behind, event, 0), cudaSuccess);
    if (how == BY_HOST)
        assert_int_equal(cudaEventSynchronize(event), cudaSuccess);
    while (how == BY_CHANCE && cudaEventQuery(event) != cudaSuccess)
        (void)cudaGetLastError();
    assert_int_equal(cudaMemcpyAsync(to, from, BYTES, cudaMemcpyDeviceToDevice, behind),
                     cudaSuccess);
    for (int i = 0; i < 2; i++)
        assert_int_equal(cudaStreamDestroy(stream[i]), cudaSuccess);
    assert_int_equal(cudaEventDestroy(event), cudaSuccess);
    assert_int_equal(cudaFree(to), cudaSuccess);
    assert_int_equal(cudaFree(from), cudaSuccess);
    return is_ordered;
}

static void test_waits_order_streams(void **state)
{
    static const struct double_finder finder = {touch, forget};
    (void)state;
    assert_true(double_find(&finder));
    assert_true(writes_in_order(ON_ONE_STREAM));
    assert_true(writes_in_order(BY_EVENT));
    assert_false(writes_in_order(BY_EARLY_EVENT));
    assert_true(writes_in_order(BY_HOST));
    assert_false(writes_in_order(BY_CHANCE));
    (void)double_find(NULL);
}

/* ---- memory of the host ---------------------------------------------------------------------- */

/* A copy from pinned memory reads it late, from other memory at once. */
static void test_pinned_memory_is_read_late(void **state)
{
    unsigned char *const memory = device_block(), other[1] = {1}, back[1] = {0};
    unsigned char *pinned = NULL;
    cudaStream_t stream;
    (void)state;
    assert_int_equal(cudaMallocHost((void **)&pinned, 1), cudaSuccess);
    assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    *pinned = 1;
    for (int is_pinned = 0; is_pinned < 2; is_pinned++) {
        unsigned char *const from = is_pinned ? pinned : other;
        assert_int_equal(cudaMemcpyAsync(memory, from, 1, cudaMemcpyHostToDevice, stream),
                         cudaSuccess);
        *from = 2;
        assert_int_equal(cudaMemcpyAsync(back, memory, 1, cudaMemcpyDeviceToHost, stream),
                         cudaSuccess);
        assert_int_equal(back[0], 1 + is_pinned);
    }
    assert_int_equal(cudaStreamDestroy(stream), cudaSuccess);
    assert_int_equal(cudaFreeHost(pinned), cudaSuccess);
    assert_int_equal(cudaFree(memory), cudaSuccess);
}

/* ---- host functions -------------------------------------------------------------------------- */

static void make_streams(cudaStream_t *stream, int count)
{
    for (int i = 0; i < count; i++)
        assert_int_equal(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking), cudaSuccess);
}

static void destroy_streams(const cudaStream_t *stream, int count)
{
    for (int i = 0; i < count; i++)
        assert_int_equal(cudaStreamDestroy(stream[i]), cudaSuccess);
}

/* Host functions note here, in order, with which data they were called. */
static int calls_seen[8], calls_count;

static void note(void *data)
{
    const struct timespec pause = {.tv_nsec = 2000000};
    (void)nanosleep(&pause, NULL); /* so that others would be first */
    calls_seen[calls_count++] = *(const int *)data;
}

/* It comes behind the copy before it, and the copy behind it waits. */
static void test_host_function_in_order(void **state)
{
    unsigned char *const memory = device_block();
    int *pinned = NULL;
    cudaStream_t stream;
    (void)state;
    make_streams(&stream, 1);
    assert_int_equal(cudaMallocHost((void **)&pinned, 2 * sizeof *pinned), cudaSuccess);
    pinned[0] = 7;
    calls_count = 0;
    assert_int_equal(
        cudaMemcpyAsync(memory, &pinned[0], sizeof *pinned, cudaMemcpyHostToDevice, stream),
        cudaSuccess);
    assert_int_equal(
        cudaMemcpyAsync(&pinned[1], memory, sizeof *pinned, cudaMemcpyDeviceToHost, stream),
        cudaSuccess);
    assert_int_equal(cudaLaunchHostFunc(stream, note, &pinned[1]), cudaSuccess);
    assert_int_equal(
        cudaMemcpyAsync(&pinned[0], memory + 8, sizeof *pinned, cudaMemcpyDeviceToHost, stream),
        cudaSuccess);
    assert_int_equal(cudaLaunchHostFunc(stream, note, &pinned[0]), cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
    assert_int_equal(calls_count, 2);
    assert_int_equal(calls_seen[0], 7);
    assert_int_not_equal(calls_seen[1], 7);
    destroy_streams(&stream, 1);
    assert_int_equal(cudaFreeHost(pinned), cudaSuccess);
    assert_int_equal(cudaFree(memory), cudaSuccess);
}

/* Another stream waits for a host function by the event behind it. */
static void test_host_function_is_waited_for(void **state)
{
    static int first = 1, second = 2;
    cudaStream_t stream[2];
    cudaEvent_t event;
    (void)state;
    make_streams(stream, 2);
    assert_int_equal(cudaEventCreate(&event), cudaSuccess);
    calls_count = 0;
    assert_int_equal(cudaLaunchHostFunc(stream[0], note, &first), cudaSuccess);
    assert_int_equal(cudaEventRecord(event, stream[0]), cudaSuccess);
    assert_int_equal(cudaStreamWaitEvent(stream[1], event, 0), cudaSuccess);
    assert_int_equal(cudaLaunchHostFunc(stream[1], note, &second), cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(stream[1]), cudaSuccess);
    assert_int_equal(calls_count, 2);
    assert_int_equal(calls_seen[0], 1);
    assert_int_equal(calls_seen[1], 2);
    assert_int_equal(cudaEventDestroy(event), cudaSuccess);
    destroy_streams(stream, 2);
}

/* Codes of calls that a host function makes. */
struct forbidden {
    cudaStream_t stream;
    cudaEvent_t event;
    cudaError_t code[8];
    int count;
};

static void call_cuda(void *data)
{
    struct forbidden *forbidden = data;
    void *memory = NULL;
    int device = 0;
    forbidden->code[forbidden->count++] = cudaMalloc(&memory, 1);
    forbidden->code[forbidden->count++] = cudaGetDevice(&device);
    forbidden->code[forbidden->count++] = cudaStreamSynchronize(forbidden->stream);
    forbidden->code[forbidden->count++] = cudaEventQuery(forbidden->event);
    forbidden->code[forbidden->count++] = cudaMemset(memory, 0, 1);
    forbidden->code[forbidden->count++] = cudaLaunchHostFunc(forbidden->stream, note, data);
    forbidden->code[forbidden->count++] = cudaStreamDestroy(forbidden->stream);
    forbidden->code[forbidden->count++] =
        double_enqueue(forbidden->stream, double_run_nothing, &device, sizeof device, 0);
}

static void test_host_function_calls_no_cuda(void **state)
{
    struct forbidden forbidden = {.count = 0};
    (void)state;
    make_streams(&forbidden.stream, 1);
    assert_int_equal(cudaEventCreate(&forbidden.event), cudaSuccess);
    assert_int_equal(cudaLaunchHostFunc(forbidden.stream, call_cuda, &forbidden), cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(forbidden.stream), cudaSuccess);
    assert_int_equal(forbidden.count, 8);
    for (int i = 0; i < forbidden.count; i++)
        assert_int_equal(forbidden.code[i], cudaErrorNotPermitted);
    assert_string_equal(cudaGetErrorString(cudaErrorNotPermitted), "operation not permitted");
    assert_int_equal(cudaEventDestroy(forbidden.event), cudaSuccess);
    destroy_streams(&forbidden.stream, 1);
}

/* It may not reach the device's memory, either. */
static void read_device(void *data)
{
    calls_count = signal_of(data, false);
}

static void test_host_function_is_kept_out(void **state)
{
    unsigned char *const memory = device_block();
    cudaStream_t stream;
    (void)state;
    make_streams(&stream, 1);
    assert_int_equal(cudaLaunchHostFunc(stream, read_device, memory), cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
    assert_int_equal(calls_count, SIGSEGV);
    destroy_streams(&stream, 1);
    assert_int_equal(cudaFree(memory), cudaSuccess);
}

/* The second call fails, and its function is never called. */
static void test_host_function_fails(void **state)
{
    static int number = 1;
    (void)state;
    assert_int_equal(setenv("SBP_DOUBLE_FAIL", "cudaLaunchHostFunc:2", 1), 0);
    calls_count = 0;
    assert_int_equal(cudaLaunchHostFunc(NULL, note, &number), cudaSuccess);
    assert_int_equal(cudaLaunchHostFunc(NULL, note, &number), cudaErrorIllegalAddress);
    assert_int_equal(cudaLaunchHostFunc(NULL, NULL, &number), cudaErrorInvalidValue);
    assert_int_equal(cudaStreamSynchronize(NULL), cudaSuccess);
    assert_int_equal(calls_count, 1);
    assert_int_equal(unsetenv("SBP_DOUBLE_FAIL"), 0);
}

/* ---- devices --------------------------------------------------------------------------------- */

/* Each has its own memory, streams and events; copies go from one to the other. */
static void test_devices_are_apart(void **state)
{
    unsigned char *const memory = device_block(), *other, value = 5, back = 0;
    size_t free_bytes, all_bytes;
    cudaStream_t stream;
    cudaEvent_t event;
    (void)state;
    make_streams(&stream, 1);
    assert_int_equal(cudaSetDevice(1), cudaSuccess);
    assert_int_equal(cudaMemGetInfo(&free_bytes, &all_bytes), cudaSuccess);
    assert_int_equal(free_bytes, all_bytes);
    other = device_block();
    assert_int_equal(double_device_of(memory, BYTES), 0);
    assert_int_equal(double_device_of(other, BYTES), 1);
    assert_int_equal(cudaEventCreate(&event), cudaSuccess);
    assert_int_equal(cudaEventRecord(event, stream), cudaErrorInvalidResourceHandle);
    assert_int_equal(double_launch(stream, double_run_nothing, &value, sizeof value, 0),
                     cudaErrorInvalidResourceHandle);
    assert_int_equal(cudaMemcpy(memory, &value, 1, cudaMemcpyHostToDevice), cudaSuccess);
    assert_int_equal(cudaMemcpyAsync(other, memory, 1, cudaMemcpyDeviceToDevice, stream),
                     cudaSuccess);
    assert_int_equal(cudaMemcpyAsync(&back, other, 1, cudaMemcpyDeviceToHost, stream), cudaSuccess);
    assert_int_equal(back, value);
    assert_int_equal(cudaEventDestroy(event), cudaSuccess);
    assert_int_equal(cudaFree(other), cudaSuccess);
    assert_int_equal(cudaSetDevice(0), cudaSuccess);
    destroy_streams(&stream, 1);
    assert_int_equal(cudaFree(memory), cudaSuccess);
}

static atomic_bool may_go;

static void wait_to_go(void *data)
{
    (void)data;
    while (!atomic_load(&may_go))
        (void)sched_yield();
}

static void *free_there(void *memory)
{
    return (void *)(uintptr_t)cudaFree(memory);
}

/* Memory of one device is given back while another one's stream waits; and while one waits to give
 * its own back, others go on with their streams. */
static void test_giving_back_holds_up_no_other_device(void **state)
{
    const struct timespec pause = {.tv_nsec = 10000000}; /* until it waits */
    unsigned char *const memory = device_block();
    cudaStream_t stream;
    pthread_t thread;
    void *code;
    (void)state;
    make_streams(&stream, 1);
    atomic_store(&may_go, false);
    assert_int_equal(cudaLaunchHostFunc(stream, wait_to_go, NULL), cudaSuccess);
    assert_int_equal(cudaSetDevice(1), cudaSuccess);
    assert_int_equal(cudaFree(device_block()), cudaSuccess);
    assert_int_equal(pthread_create(&thread, NULL, free_there, memory), 0);
    (void)nanosleep(&pause, NULL);
    assert_int_equal(cudaStreamSynchronize(NULL), cudaSuccess);
    assert_true(double_is_device(memory, BYTES));
    atomic_store(&may_go, true);
    assert_int_equal(pthread_join(thread, &code), 0);
    assert_int_equal((uintptr_t)code, cudaSuccess);
    assert_int_equal(cudaSetDevice(0), cudaSuccess);
    destroy_streams(&stream, 1);
}

/* ---- what fails ------------------------------------------------------------------------------ */

/* The N-th call fails, of all threads or of those with a device. */
static void test_planted_failures(void **state)
{
    void *memory;
    (void)state;
    assert_int_equal(setenv("SBP_DOUBLE_FAIL", "cudaMallocHost:1#1", 1), 0);
    assert_int_equal(cudaMallocHost(&memory, 1), cudaSuccess);
    assert_int_equal(cudaFreeHost(memory), cudaSuccess);
    assert_int_equal(cudaSetDevice(1), cudaSuccess);
    assert_int_equal(cudaMallocHost(&memory, 1), cudaErrorMemoryAllocation);
    assert_int_equal(cudaMallocHost(&memory, 1), cudaSuccess);
    assert_int_equal(cudaFreeHost(memory), cudaSuccess);
    assert_int_equal(cudaFreeHost(memory), cudaErrorInvalidValue);
    assert_int_equal(cudaSetDevice(0), cudaSuccess);
    assert_int_equal(unsetenv("SBP_DOUBLE_FAIL"), 0);
}

static double now_s(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A call that is told to is slower; with a seed some work is late. */
static void test_delays(void **state)
{
    enum { CALLS = 64 };
    void *memory;
    (void)state;
    assert_int_equal(setenv("SBP_DOUBLE_SLOW", "cudaMallocHost", 1), 0);
    const double start_s = now_s();
    assert_int_equal(cudaMallocHost(&memory, 1), cudaSuccess);
    assert_true(now_s() - start_s >= 0.02);
    assert_int_equal(unsetenv("SBP_DOUBLE_SLOW"), 0);
    assert_int_equal(cudaFreeHost(memory), cudaSuccess);
    assert_int_equal(setenv("SBP_DOUBLE_DELAY", "1", 1), 0);
    double longest_s = 0;
    for (int i = 0; i < CALLS; i++) {
        const double before_s = now_s();
        assert_int_equal(double_enqueue(NULL, double_run_nothing, &i, sizeof i, 0), cudaSuccess);
        assert_int_equal(cudaStreamSynchronize(NULL), cudaSuccess);
        longest_s = fmax(longest_s, now_s() - before_s);
    }
    assert_true(longest_s >= 0.001); /* by itself it takes a twentieth of that */
    assert_int_equal(unsetenv("SBP_DOUBLE_DELAY"), 0);
}

/* A device's error comes late, stays, and is no other device's; its host functions are left out. */
static void test_faults_come_back(void **state)
{
    static int number = 1;
    (void)state;
    assert_int_equal(cudaStreamSynchronize(NULL), cudaSuccess);
    double_fault();
    calls_count = 0;
    assert_int_equal(cudaLaunchHostFunc(NULL, note, &number), cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(NULL), cudaErrorLaunchFailure);
    assert_int_equal(calls_count, 0);
    assert_int_equal(cudaStreamQuery(NULL), cudaErrorLaunchFailure);
    assert_int_equal(cudaSetDevice(1), cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(NULL), cudaSuccess);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_host_is_kept_out),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_waits_order_streams),
        cmocka_unit_test(test_pinned_memory_is_read_late),
        cmocka_unit_test(test_host_function_in_order),
        cmocka_unit_test(test_host_function_is_waited_for),
        cmocka_unit_test(test_host_function_calls_no_cuda),
        cmocka_unit_test(test_host_function_is_kept_out),
        cmocka_unit_test(test_host_function_fails),
        cmocka_unit_test(test_devices_are_apart),
        cmocka_unit_test(test_giving_back_holds_up_no_other_device),
        cmocka_unit_test(test_planted_failures),
        cmocka_unit_test(test_delays),
        cmocka_unit_test(test_faults_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
