/* The stand-in for GPUs keeps its memory from the host, and does work later than it is asked to. */
#include <cuda_runtime_api.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
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

static void test_faults_come_back(void **state)
{
    (void)state;
    assert_int_equal(cudaStreamSynchronize(NULL), cudaSuccess);
    double_fault();
    assert_int_equal(cudaStreamSynchronize(NULL), cudaErrorLaunchFailure);
    assert_int_equal(cudaStreamQuery(NULL), cudaErrorLaunchFailure);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_host_is_kept_out),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_faults_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
