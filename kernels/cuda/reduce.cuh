/* Sums and maxima over a warp and over a block, in one order. */
#ifndef SBP_KERNELS_CUDA_REDUCE_CUH
#define SBP_KERNELS_CUDA_REDUCE_CUH

#include "kernels/cuda/gpu.cuh"

struct gpu_plus {
    template <class V> __device__ __forceinline__ V operator()(V a, V b) const
    {
        return a + b;
    }
};

struct gpu_max {
    __device__ __forceinline__ float operator()(float a, float b) const
    {
        return fmaxf(a, b);
    }
};

/* Of `lanes` neighbouring lanes, a power of 2; all get it. */
template <class V, class Op>
static __device__ __forceinline__ V gpu_warp_reduce(V value, Op op, int lanes = GPU_WARP)
{
    for (int offset = lanes / 2; offset > 0; offset /= 2)
        value = op(value, __shfl_xor_sync(GPU_ALL_LANES, value, offset));
    return value;
}

/* N values at once, of a block of one dimension; all threads get them. */
template <int N, class V, class Op>
static __device__ __forceinline__ void gpu_block_reduce(V (&value)[N], Op op)
{
    GPU_SHARED(V, partial, N * GPU_WARP);
    const int warp = (int)threadIdx.x / GPU_WARP, warps = (int)blockDim.x / GPU_WARP;
    GPU_UNROLL
    for (int i = 0; i < N; i++)
        value[i] = gpu_warp_reduce(value[i], op);
    __syncthreads(); /* all have read what an earlier reduction left */
    if (threadIdx.x % GPU_WARP == 0)
        GPU_UNROLL
    for (int i = 0; i < N; i++)
        partial[warp * N + i] = value[i];
    __syncthreads();
    GPU_UNROLL
    for (int i = 0; i < N; i++) {
        value[i] = partial[i];
        for (int w = 1; w < warps; w++)
            value[i] = op(value[i], partial[w * N + i]);
    }
}

#endif
