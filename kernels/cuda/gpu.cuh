/* The language of the kernels: CUDA where nvcc compiles, fibers on the host elsewhere (host/), with
 * one spelling of what the two say differently.
 *
 * GPU_LAUNCH(cuda, kernel, grid, block, shared bytes, arguments...); GPU_SHARED(type, name, count),
 * memory of the block of a size that is known at compile time, GPU_DYNAMIC_SHARED(type, name) of
 * the launch's. All blocks have whole warps, and all lanes of a warp take part in what it does
 * together.
 */
#ifndef SBP_KERNELS_CUDA_GPU_CUH
#define SBP_KERNELS_CUDA_GPU_CUH

#include "kernels/cuda/cuda.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define GPU_LAUNCH(cuda, kernel, grid, block, shared, ...)                                         \
    do {                                                                                           \
        (void)cudaGetLastError(); /* of a call before, which was told of it */                     \
        (kernel)<<<(grid), (block), (shared), (cudaStream_t)(cuda)->stream>>>(__VA_ARGS__);        \
        gpu_note((cuda), cudaGetLastError());                                                      \
    } while (0)
#define GPU_SHARED(type, name, count) __shared__ type name[count]
#define GPU_DYNAMIC_SHARED(type, name)                                                             \
    extern __shared__ __align__(16) unsigned char gpu_dynamic_shared[];                            \
    type *const name = (type *)gpu_dynamic_shared
#define GPU_GRID_CONSTANT const __grid_constant__
/* Lets the host check and count an access to a chunk. A GPU stops at an unaligned one by itself,
 * and counts none. */
#define GPU_NOTE_CHUNK(at) ((void)0)
/* Before loops over arrays that are to stay in registers. */
#define GPU_UNROLL _Pragma("unroll")
/* Before loops that would be long programs when unrolled. */
#define GPU_NO_UNROLL _Pragma("unroll 1")

static inline void gpu_note(struct sbp_cuda *cuda, cudaError_t error)
{
    if (cuda->error == 0)
        cuda->error = error;
}

static inline void gpu_zero(struct sbp_cuda *cuda, void *at, int64_t bytes)
{
    if (bytes > 0)
        gpu_note(cuda, cudaMemsetAsync(at, 0, (size_t)bytes, (cudaStream_t)cuda->stream));
}

/* More shared memory than every kernel has by itself. */
template <class Kernel>
static inline void gpu_allow_shared(struct sbp_cuda *cuda, Kernel *kernel, int bytes)
{
    gpu_note(cuda, cudaFuncSetAttribute((const void *)kernel,
                                        cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
}

template <class Kernel> static inline int gpu_load_source(Kernel *kernel)
{
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, (const void *)kernel);
}
#else
#include "kernels/cuda/host/host.hpp"
#endif

#define GPU_ALL_LANES 0xffffffffU
enum { GPU_WARP = 32 };

static __device__ __forceinline__ int gpu_lane()
{
    return (int)threadIdx.x % GPU_WARP;
}

/* ---- element types -------------------------------------------------------------------------- */

struct gpu_bf16 {
    uint16_t bits;
};
struct gpu_fp16 {
    uint16_t bits;
};

static __device__ __forceinline__ float gpu_load(float x)
{
    return x;
}

static __device__ __forceinline__ float gpu_load(gpu_bf16 x)
{
    return __uint_as_float((uint32_t)x.bits << 16);
}

static __device__ __forceinline__ float gpu_load(gpu_fp16 x)
{
    return __half2float(__ushort_as_half(x.bits));
}

template <class T> static __device__ __forceinline__ T gpu_store(float x);

template <> __device__ __forceinline__ float gpu_store<float>(float x)
{
    return x;
}

template <> __device__ __forceinline__ gpu_bf16 gpu_store<gpu_bf16>(float x)
{
    return gpu_bf16{__bfloat16_as_ushort(__float2bfloat16_rn(x))};
}

template <> __device__ __forceinline__ gpu_fp16 gpu_store<gpu_fp16>(float x)
{
    return gpu_fp16{__half_as_ushort(__float2half_rn(x))};
}

/* ---- 16 bytes at a time --------------------------------------------------------------------- */

/* Elements that one access moves, or a few where other operands have smaller elements. */
template <class T, int N> struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) gpu_chunk {
    T at[N];
};

template <int N, class T> static __device__ __forceinline__ gpu_chunk<T, N> gpu_get(const T *from)
{
    const gpu_chunk<T, N> *const at = (const gpu_chunk<T, N> *)from;
    GPU_NOTE_CHUNK(at);
    return *at;
}

template <int N, class T>
static __device__ __forceinline__ void gpu_put(T *to, const gpu_chunk<T, N> &chunk)
{
    gpu_chunk<T, N> *const at = (gpu_chunk<T, N> *)to;
    GPU_NOTE_CHUNK(at);
    *at = chunk;
}

/* How many elements of T make 16 bytes. */
template <class T> constexpr int gpu_width = (int)(16 / sizeof(T));

/* Whether chunks of N elements may begin at `at`, and at all rows of so many elements. */
template <int N, class T> static inline bool gpu_aligned(const T *at, int64_t row = 0)
{
    return (uintptr_t)at % alignof(gpu_chunk<T, N>) == 0 && row % N == 0;
}

/* ---- launches ------------------------------------------------------------------------------- */

static inline int64_t gpu_ceil(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Blocks for a loop whose threads take one turn after another. */
static inline unsigned gpu_loop_blocks(const struct sbp_cuda *cuda, int64_t turns, int threads)
{
    return (unsigned)sbp_least_i64(gpu_ceil(turns, threads), (int64_t)16 * cuda->multiprocessors);
}

/* Threads of a block that shares a row of so many chunks. */
static inline unsigned gpu_row_threads(int64_t chunks, int most)
{
    const int64_t warps = gpu_ceil(chunks > 0 ? chunks : 1, GPU_WARP);
    return (unsigned)(GPU_WARP * sbp_least_i64(warps, most / GPU_WARP));
}

/* A family's part of the table of a type. The driver compiles a source's kernels all at once, when
 * one of them is asked for. */
#define GPU_FILL(family, ...)                                                                      \
    extern "C" int sbp_cuda_load_##family(void)                                                    \
    {                                                                                              \
        return gpu_load_source(__VA_ARGS__);                                                       \
    }                                                                                              \
    extern "C" void sbp_cuda_fill_##family(struct sbp_cuda_kernels *kernels)                       \
    {                                                                                              \
        if (kernels->real == SBP_F32)                                                              \
            fill<float>(kernels);                                                                  \
        else if (kernels->real == SBP_REAL_BF16)                                                   \
            fill<gpu_bf16>(kernels);                                                               \
        else                                                                                       \
            fill<gpu_fp16>(kernels);                                                               \
    }

#endif
