/* Kernels of the stand-in: those of kernels/cuda, run by kernels/cuda/host on the threads of
 * streams, one at a time. Linked beside cuda_double.c. A fault is told on stderr, and to the calls
 * that wait; so is a wait that is missing between streams. SBP_DOUBLE_FAIL=launch:N: the N-th
 * launch has one; kernel:N: it does nothing. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/host/host.h"
#include "tests/support/gpu_double/gpu_double.h"

struct launch {
    void (*work)(void *argument);
    void *argument;
};

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

static void say(const char *what, const char *fault)
{
    if (fault == NULL)
        return;
    (void)fprintf(stderr, "%s: %s\n", what, fault);
    double_fault();
}

/* What no kernel reads or writes. */
static void touch(const void *memory, size_t bytes, bool writes, const char *what)
{
    (void)pthread_mutex_lock(&one_at_a_time);
    say("fault", sbp_gpu_host_touch(double_number(), memory, bytes, writes, what));
    (void)pthread_mutex_unlock(&one_at_a_time);
}

static void forget(const void *memory, size_t bytes)
{
    (void)pthread_mutex_lock(&one_at_a_time);
    sbp_gpu_host_forget(memory, bytes);
    (void)pthread_mutex_unlock(&one_at_a_time);
}

static const struct double_finder finder = {touch, forget};

static void run(void *argument)
{
    static void *left_out; /* so that leaks are not found */
    const struct launch *launch = argument;
    if (double_fails("kernel")) {
        left_out = launch->argument;
        (void)left_out;
        return;
    }
    (void)pthread_mutex_lock(&one_at_a_time);
    size_t bytes;
    const void *const first = double_range(&bytes);
    sbp_gpu_host_reach(first, bytes);
    sbp_gpu_host_number(double_number());
    say("kernel fault",
        double_fails("launch") ? "planted" : sbp_gpu_host_try(launch->work, launch->argument));
    (void)pthread_mutex_unlock(&one_at_a_time);
}

/* Whole calibrations do without the results of kernels, which host fibers take minutes for; what a
 * kernel holds stays allocated then. */
static int enqueue(void *stream, void (*work)(void *argument), void *argument)
{
    const struct launch launch = {work, argument};
    const cudaError_t before = cudaGetLastError(); /* a launch is blamed for it */
    if (before != cudaSuccess)
        return (int)before;
    const char *made_up_s = getenv("SBP_DOUBLE_KERNEL_S");
    if (made_up_s != NULL)
        return (int)double_launch(stream, double_run_nothing, &launch, sizeof launch,
                                  atof(made_up_s));
    return (int)double_launch(stream, run, &launch, sizeof launch, DOUBLE_LAUNCH_S);
}

__attribute__((constructor)) static void begin(void)
{
    sbp_gpu_host_streams(enqueue);
    if (double_find(&finder))
        sbp_gpu_host_orders(double_is_behind);
}
