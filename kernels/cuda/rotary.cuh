/* Rotary embedding (Su et al., 2021): how features i and i + half of 2 half ones turn at a place in
 * the sequence. Angles take double precision, since places are large; a negative place turns back.
 */
#ifndef SBP_KERNELS_CUDA_ROTARY_CUH
#define SBP_KERNELS_CUDA_ROTARY_CUH

#include "kernels/cuda/gpu.cuh"

struct gpu_turn {
    float cosine, sine;
};

static __device__ __forceinline__ gpu_turn gpu_turn_of(double place, int64_t i, int64_t half)
{
    const double angle = place * pow(10000.0, -(double)i / (double)half);
    return gpu_turn{(float)cos(angle), (float)sin(angle)};
}

static __device__ __forceinline__ float gpu_turn_first(const gpu_turn &turn, float a, float b)
{
    return a * turn.cosine - b * turn.sine;
}

static __device__ __forceinline__ float gpu_turn_second(const gpu_turn &turn, float a, float b)
{
    return b * turn.cosine + a * turn.sine;
}

#endif
