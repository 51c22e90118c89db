/* Kernels on the host: every thread of a block is a fiber, all of one OS thread's.
 *
 * A fiber runs until it meets others, all lanes of its warp or all threads of its block, or ends. A
 * warp runs as far as it can before the next one begins; the orders of blocks, warps and lanes are
 * drawn from a seed. So whoever relies on what others have read or written, without a barrier
 * between, is off. Shared memory begins as not-a-number.
 *
 * Faults are named with file and line: meetings to which not all come, or at different places;
 * accesses beyond shared memory; and two accesses of a place by two threads, of which one writes,
 * that nothing orders: a barrier of the block, or of the warp. Accesses are seen where kernels are
 * compiled with the calls of ThreadSanitizer (race.cpp answers them); AddressSanitizer sees those
 * out of bounds. So is a chunk (gpu.cuh) that is not aligned, and accesses of 16 bytes are counted.
 * A fault ends the launch: its fibers are left as they are.
 *
 * Not covered: orders of memory without barriers, asynchronous copies, and speed.
 */
#ifndef SBP_KERNELS_CUDA_HOST_HOST_HPP
#define SBP_KERNELS_CUDA_HOST_HOST_HPP

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

extern "C" {
#include "base/math/half.h"
#include "kernels/cuda/host/host.h"
}

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_of = 1, unsigned y_of = 1, unsigned z_of = 1) : x(x_of), y(y_of), z(z_of)
    {
    }
};

namespace gpu_host {
/* Of the running fiber and its block. */
struct indices {
    dim3 thread, block, block_size, grid_size;
};
extern indices at;

/* Where a fiber waits: what for, and where the source says so. */
struct place {
    const char *what, *file;
    int line;
};

/* Waits for all threads of the block. */
void barrier(place where);
/* How many of the block's threads said so. */
int barrier_count(bool said, place where);
/* Shows `bytes` to all lanes of the warp and waits for theirs; of_lane gives them until the next
 * meeting. orders: what lanes did before comes before what they do after. */
void meet(const void *mine, size_t bytes, place where, bool orders);
const void *of_lane(int lane);
int lane();
/* The block's memory of a place in the source. */
void *shared(size_t bytes, const char *file, int line);
void *dynamic_shared();
void require_all_lanes(unsigned mask, place where);
/* Before an access to a chunk of so many bytes, which must be aligned. */
void note_chunk(const void *at, size_t bytes, size_t alignment);

/* argument(argument_bytes): what the kernel was launched with. */
void launch(dim3 grid, dim3 block, size_t shared_bytes, void (*body)(void *), void *argument,
            size_t argument_bytes);

/* A kernel with its arguments as they are now. */
template <class Kernel, class... Arguments>
static inline auto bound(Kernel *kernel, Arguments... arguments)
{
    return [=] { kernel(arguments...); };
}

/* Hands work(argument) to a stream, or does it at once where none were set (host.h). Returns what
 * the stream's queue does. */
int hand_over(void *stream, void (*work)(void *argument), void *argument);

/* A launch as it waits in its stream, with its arguments as they were. */
template <class Body> struct waiting {
    dim3 grid, block;
    size_t shared_bytes;
    Body body;
};

template <class Body> static inline void start(void *argument)
{
    waiting<Body> *const of = (waiting<Body> *)argument;
    launch(
        of->grid, of->block, of->shared_bytes, [](void *body) { (*(const Body *)body)(); },
        &of->body, sizeof of->body);
    delete of;
}

template <class Body>
static inline int run(void *stream, dim3 grid, dim3 block, size_t shared_bytes, const Body &body)
{
    return hand_over(stream, start<Body>, new waiting<Body>{grid, block, shared_bytes, body});
}

template <class V> static inline V exchange(unsigned mask, V value, int from, place where)
{
    V other;
    require_all_lanes(mask, where);
    meet(&value, sizeof value, where, false);
    memcpy(&other, of_lane(from & 31), sizeof other);
    return other;
}

static inline unsigned ballot(unsigned mask, bool said, place where)
{
    unsigned all = 0;
    require_all_lanes(mask, where);
    meet(&said, sizeof said, where, false);
    for (int i = 0; i < 32; i++)
        all |= (unsigned)*(const bool *)of_lane(i) << i;
    return all;
}
} // namespace gpu_host

/* ---- words of CUDA -------------------------------------------------------------------------- */

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define threadIdx gpu_host::at.thread
#define blockIdx  gpu_host::at.block
#define blockDim  gpu_host::at.block_size
#define gridDim   gpu_host::at.grid_size

#define GPU_HOST_PLACE(what) (gpu_host::place{what, __FILE__, __LINE__})
#define __syncthreads()      gpu_host::barrier(GPU_HOST_PLACE("__syncthreads"))
#define __syncthreads_count(said)                                                                  \
    gpu_host::barrier_count((said), GPU_HOST_PLACE("__syncthreads_count"))
#define __syncwarp() gpu_host::meet(NULL, 0, GPU_HOST_PLACE("__syncwarp"), true)
#define __shfl_xor_sync(mask, value, of)                                                           \
    gpu_host::exchange((mask), (value), gpu_host::lane() ^ (of), GPU_HOST_PLACE("__shfl_xor_sync"))
#define __shfl_sync(mask, value, of)                                                               \
    gpu_host::exchange((mask), (value), (of), GPU_HOST_PLACE("__shfl_sync"))
#define __ballot_sync(mask, said) gpu_host::ballot((mask), (said), GPU_HOST_PLACE("__ballot_sync"))
#define __any_sync(mask, said)    (gpu_host::ballot((mask), (said), GPU_HOST_PLACE("__any_sync")) != 0)

#define GPU_LAUNCH(cuda, kernel, grid, block, shared, ...)                                         \
    gpu_note((cuda), gpu_host::run((cuda)->stream, (grid), (block), (shared),                      \
                                   gpu_host::bound((kernel), __VA_ARGS__)))
#define GPU_SHARED(type, name, count)                                                              \
    type *const name = (type *)gpu_host::shared(sizeof(type) * (count), __FILE__, __LINE__)
#define GPU_DYNAMIC_SHARED(type, name) type *const name = (type *)gpu_host::dynamic_shared()
#define GPU_GRID_CONSTANT              const
#define GPU_NOTE_CHUNK(at)             gpu_host::note_chunk((at), sizeof *(at), __alignof__(*(at)))
#define GPU_UNROLL
#define GPU_NO_UNROLL

enum { cudaErrorInvalidValue = 1 };

static inline void gpu_note(struct sbp_cuda *cuda, int error)
{
    if (cuda->error == 0)
        cuda->error = error;
}

namespace gpu_host {
struct zeros {
    void *at;
    int64_t bytes;
};

static inline void clear(void *argument)
{
    zeros *const of = (zeros *)argument;
    memset(of->at, 0, (size_t)of->bytes);
    delete of;
}
} // namespace gpu_host

static inline void gpu_zero(struct sbp_cuda *cuda, void *at, int64_t bytes)
{
    if (bytes > 0)
        gpu_note(cuda, gpu_host::hand_over(cuda->stream, gpu_host::clear,
                                           new gpu_host::zeros{at, bytes}));
}

template <class Kernel> static inline int gpu_load_source(Kernel *)
{
    return 0;
}

template <class Kernel> static inline void gpu_allow_shared(struct sbp_cuda *, Kernel *, int)
{
}

/* ---- arithmetic ----------------------------------------------------------------------------- */

struct __nv_bfloat16 {
    uint16_t bits;
};
struct __half {
    uint16_t bits;
};

static inline float __uint_as_float(uint32_t bits)
{
    return sbp_lanes_f32_of(bits);
}

static inline uint32_t __float_as_uint(float x)
{
    return sbp_lanes_f32_bits(x);
}

static inline __half __ushort_as_half(uint16_t bits)
{
    return __half{bits};
}

static inline uint16_t __half_as_ushort(__half x)
{
    return x.bits;
}

static inline uint16_t __bfloat16_as_ushort(__nv_bfloat16 x)
{
    return x.bits;
}

static inline float __half2float(__half x)
{
    return sbp_half_from_fp16(x.bits);
}

static inline __half __float2half_rn(float x)
{
    return __half{sbp_half_to_fp16(x)};
}

static inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
    return __nv_bfloat16{sbp_half_to_bf16(x)};
}

/* Rounded each by itself: compilers do not join them. */
static inline float __fadd_rn(float a, float b)
{
    return a + b;
}

static inline float __fsub_rn(float a, float b)
{
    return a - b;
}

static inline float __fmul_rn(float a, float b)
{
    return a * b;
}

static inline double __dadd_rn(double a, double b)
{
    return a + b;
}

static inline double __dmul_rn(double a, double b)
{
    return a * b;
}

static inline int __popc(unsigned bits)
{
    return __builtin_popcount(bits);
}

/* The place of the least bit that is set, counted from 1. */
static inline int __ffs(unsigned bits)
{
    return __builtin_ffs((int)bits);
}

#endif
