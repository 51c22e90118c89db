/* A stand-in for a GPU: the calls of the CUDA runtime, cuBLAS, cuBLASLt and NCCL that the project
 * makes, on host memory, for machines without a GPU. Linked instead of the libraries, against their
 * headers.
 *
 * It checks its callers, as far as a wrong call can be told from a right one: memory that is not
 * the device's, or ends too early, is refused; the host may not reach the device's while that does
 * not work (where memory is guarded); work of a stream is done later, by a thread of its
 * own, so that who does not wait reads what was there before; members of a communicator must make
 * the same call, on devices of their own; a host function calls nothing of CUDA. Events tell a
 * made-up time (DOUBLE_*), so that rates are known.
 *
 * Each thread has a current device, as in CUDA, and each device has its own memory, default stream,
 * heat and faults: members of a communicator are processes, or threads of one, or both.
 *
 * Processes that are killed while they make a communicator leave its segment of shared memory
 * behind, /dev/shm/nccl-double-$SBP_DOUBLE_RUN-*.
 *
 * Environment: SBP_DOUBLE_DEVICES: so many devices (4), SBP_DOUBLE_FIRST: from this one on the bus
 * (0). SBP_DOUBLE_DELAY: a seed, by which some work is late.
 * SBP_DOUBLE_FAIL=CALL:N[@RANK][#DEVICE]: the N-th call of a function fails, on all ranks of Open
 * MPI or one; with a device, the N-th of the threads that have it as their current one.
 * SBP_DOUBLE_SHARED: bytes of shared memory that a block has. SBP_DOUBLE_KERNEL_S: what a kernel of
 * the project takes, instead of doing its work. SBP_DOUBLE_LINK_S: what a copy between a device and
 * pinned memory takes. SBP_DOUBLE_HOST_S: what the smallest product takes of the host's thread that
 * launches it. SBP_DOUBLE_BESIDE=SHARE: a collective takes DOUBLE_COLLECTIVE_S, and this share of
 * it from the next product. SBP_DOUBLE_STALL=CALL:N...: the work that an NCCL call enqueues never
 * ends, and NCCL tells of an error; SBP_DOUBLE_HANG: nor does NCCL tell. SBP_DOUBLE_SLOW=CALL: each
 * call of a function takes 20 ms longer. SBP_DOUBLE_AWARE=1: MPI takes the device's memory
 * (mpi_double.c).
 */
#ifndef SBP_TESTS_DOUBLES_GPU_DOUBLE_H
#define SBP_TESTS_DOUBLES_GPU_DOUBLE_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DOUBLE_NAME             "stand-in GPU"
#define DOUBLE_MEMORY_BYTES     ((size_t)2 << 30)
#define DOUBLE_MULTIPROCESSORS  2
#define DOUBLE_SHARED_BYTES     232448 /* of a block, as on sm_90 */
#define DOUBLE_COPY_BYTES_PER_S 5e11
#define DOUBLE_SUM_BYTES_PER_S  4e11 /* of element-wise sums */
#define DOUBLE_LAUNCH_S         2e-6
#define DOUBLE_FP32_FLOPS       1e12
#define DOUBLE_TF32_FLOPS       4e12
#define DOUBLE_FP64_FLOPS       5e11
#define DOUBLE_BF16_FLOPS       8e12
#define DOUBLE_FP16_FLOPS       4e12
#define DOUBLE_FP8_FLOPS        16e12
#define DOUBLE_FP8_EXACT_FLOPS  12e12 /* summed exactly, as of gradients */
#define DOUBLE_COLLECTIVE_S     1e-3  /* with SBP_DOUBLE_BESIDE, else nothing */
#define DOUBLE_HOT_S            40.0  /* of products without a copy between them, behind which */
#define DOUBLE_HOT_SHARE        0.9   /* of their rate is left */
#define DOUBLE_COLD_SHARE                                                                          \
    0.8 /* that a product reaches whose first factor is not the last one's                         \
         */

/* The current device of a thread; that of its stream where it does work. */
enum { DOUBLE_DEVICES = 16 };
int double_device(void);
void double_make_current(int device);

/* Whether a host function makes this call, which CUDA does not allow; it is told on stderr. */
bool double_is_forbidden(const char *call);

/* Whether the environment lets this call fail, stall, or hang; each asked once a call. */
bool double_fails(const char *call);
bool double_stalls(const char *call);
bool double_hangs(const char *call);

#define FORBID(call)                                                                               \
    do {                                                                                           \
        if (double_is_forbidden(call))                                                             \
            return cudaErrorNotPermitted;                                                          \
    } while (0)

#define MAY_FAIL(call, code)                                                                       \
    do {                                                                                           \
        FORBID(call);                                                                              \
        if (double_fails(call))                                                                    \
            return (code);                                                                         \
    } while (0)

/* A kernel of the thread's device has failed: calls that wait for its work tell of it from now on.
 */
void double_fault(void);

/* Any thread may reach devices' memory between these two; at other times that ends a program that
 * is compiled with DOUBLE_GUARDS. */
void double_open(void);
void double_close(void);

/* The range of the current device's memory: addresses of nothing else. */
const void *double_range(size_t *bytes);

/* Beyond, new memory is not poisoned, and first and last bytes alone are moved, unless products are
 * made, or filled. */
#define DOUBLE_LARGE ((size_t)1 << 20)
/* cudaMalloc on a device, and cudaFree once nothing is under way there. */
cudaError_t double_allocate(int device, void **memory, size_t bytes, bool pooled);
cudaError_t double_release(void *memory);

/* Whether bytes are memory of cudaMallocHost, which copies reach late. */
bool double_is_pinned(const void *memory, size_t bytes);

/* Bytes that are allocated on the current device. */
size_t double_used_bytes(void);

/* Whether bytes at `memory` are a device's and allocated. */
bool double_is_device(const void *memory, size_t bytes);
/* The device that they are on; -1: they are on none. */
int double_device_of(const void *memory, size_t bytes);
/* Whether they are of cudaMallocAsync, which other processes cannot open. */
bool double_is_pooled(const void *memory);

/* Work without a result, which nobody can be seen not to wait for. It is done without delay where
 * other work is behind it, as are copies of which the edges alone are moved. */
void double_run_nothing(void *argument);
/* Appends work to a stream (NULL: the default one): run gets a copy of argument(size). time_s: what
 * it adds to the stream's made-up clock. */
cudaError_t double_enqueue(cudaStream_t stream, void (*run)(void *argument), const void *argument,
                           size_t size, double time_s);
/* The same of kernels and products, which the current device alone takes: CUDA launches none into a
 * stream of another one. */
cudaError_t double_launch(cudaStream_t stream, void (*run)(void *argument), const void *argument,
                          size_t size, double time_s);

/* What a product takes that takes time_s by itself: longer on a hot device, or beside a collective.
 */
double double_product_s(double time_s);
/* What a collective takes, which the next product is told of; SBP_DOUBLE_BESIDE. */
double double_collective_s(void);

/* Finds two accesses of which neither stream waits for the other: touches come from threads that do
 * work of a stream, whose number the finder asks for. */
struct double_finder {
    void (*touch)(const void *memory, size_t bytes, bool writes, const char *what);
    void (*forget)(const void *memory, size_t bytes); /* it is given back */
};
/* False: where products are not made nobody reads, and calibrations would take minutes. */
bool double_find(const struct double_finder *by);
/* Of the work under way on this thread: its stream in the upper half, from 1 its place there below;
 * and whether it comes behind other work for certain, by its stream, events, or what the host has
 * waited for. */
uint64_t double_number(void);
bool double_is_behind(uint64_t before);
/* Work says what it reads or writes of the device's memory; `what` stays. */
void double_touch(const void *memory, size_t bytes, bool writes, const char *what);
void double_forget(const void *memory, size_t bytes);

#endif
