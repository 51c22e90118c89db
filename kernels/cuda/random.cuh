/* Random numbers by global index, with the bits of base/math/lanes.h: no sum is joined with a
 * product, which the host's compiler does not do either. */
#ifndef SBP_KERNELS_CUDA_RANDOM_CUH
#define SBP_KERNELS_CUDA_RANDOM_CUH

extern "C" {
#include "base/math/random.h"
}
#include "kernels/cuda/gpu.cuh"

static __device__ __forceinline__ uint64_t gpu_random_mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

/* key: sbp_random_key of seed and stream. */
static __device__ __forceinline__ uint64_t gpu_random_bits(uint64_t key, uint64_t index)
{
    return gpu_random_mix(gpu_random_mix(key + index * 0x9e3779b97f4a7c15ULL) ^ key);
}

/* a b + c, rounded twice. */
static __device__ __forceinline__ float gpu_random_step(float a, float b, float c)
{
    return __fadd_rn(__fmul_rn(a, b), c);
}

/* The logarithm of sbp_lanes_log_f32. */
static __device__ __forceinline__ float gpu_random_log(float x)
{
    const uint32_t root_of_half = 0x3f3504f3, above = __float_as_uint(x) - root_of_half;
    const float n = (float)((int32_t)above >> 23);
    const float m = __uint_as_float((above & 0x7fffff) + root_of_half);
    const float s = __fsub_rn(m, 1) / __fadd_rn(m, 1), z = __fmul_rn(s, s);
    const float r =
        gpu_random_step(gpu_random_step(0.2958098593F, z, 0.3998875772F), z, 0.666666851F);
    const float tail = __fadd_rn(__fmul_rn(__fmul_rn(s, z), r), __fmul_rn(n, 0x1.7f7d1cp-20F));
    return __fadd_rn(__fmul_rn(n, 0x1.62e4p-1F), __fadd_rn(__fmul_rn(2, s), tail));
}

/* A standard normal number (Box and Muller, 1958), as sbp_lanes_normal makes it. */
static __device__ __forceinline__ float gpu_random_normal(uint64_t bits)
{
    const float uniform = __fmul_rn(__fadd_rn((float)(int32_t)(bits >> 33), 0.5F), 0x1p-31F);
    const float turn = __fmul_rn((float)(int32_t)(uint32_t)bits, 0x1p-31F);
    const float z = __fmul_rn(turn, turn);
    float sine = gpu_random_step(0.0001516717037F, z, -0.004674143838F);
    sine = gpu_random_step(sine, z, 0.07968991833F);
    sine = gpu_random_step(sine, z, -0.6459637596F);
    sine = gpu_random_step(sine, z, 1.57079632F);
    return __fmul_rn(sqrtf(__fmul_rn(-2, gpu_random_log(uniform))), __fmul_rn(sine, turn));
}

#endif
