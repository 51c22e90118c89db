/* Mistakes that the host names; comments say which, and in which order the lines go wrong. */
#include "kernels/cuda/reduce.cuh"

extern "C" {
#include "tests/gpu/planted.h"
}

enum { THREADS = 128 };

static __global__ void sum_kernel(float *to, const float *from)
{
    float sum[1] = {from[threadIdx.x]};
    gpu_block_reduce(sum, gpu_plus());
    float largest[1] = {from[threadIdx.x]};
    gpu_block_reduce(largest, gpu_max());
    to[threadIdx.x] = sum[0] + largest[0];
}

/* Every thread hands a number to the next one. */
static __global__ void shift_kernel(float *to, const float *from, bool waits)
{
    GPU_SHARED(float, all, THREADS);
    const unsigned i = threadIdx.x;
    all[i] = from[i]; /* PLANTED_NO_BARRIER first */
    if (waits)
        __syncthreads();
    to[i] = all[(i + 1) % THREADS]; /* PLANTED_NO_BARRIER second */
}

static __global__ void writes_kernel(float *to, const float *from)
{
    GPU_SHARED(float, one, 1);
    if (threadIdx.x % 64 == 0)
        one[0] = from[threadIdx.x]; /* PLANTED_WRITES first */
    __syncthreads();
    to[threadIdx.x] = one[0];
}

static __global__ void write_after_read_kernel(float *to, const float *from)
{
    GPU_SHARED(float, all, THREADS);
    const unsigned i = threadIdx.x;
    all[i] = from[i];
    __syncthreads();
    const float next = all[(i + 32) % THREADS]; /* PLANTED_WRITE_AFTER_READ first */
    all[i] = next;                              /* PLANTED_WRITE_AFTER_READ second */
    to[i] = next;
}

static __global__ void warp_kernel(float *to, const float *from, bool waits)
{
    GPU_SHARED(float, all, THREADS);
    const unsigned i = threadIdx.x;
    all[i] = from[i]; /* PLANTED_NO_SYNCWARP first */
    if (waits)
        __syncwarp();
    to[i] = all[i ^ 1]; /* PLANTED_NO_SYNCWARP second */
}

static __global__ void blocks_kernel(float *to)
{
    if (threadIdx.x == 0)
        to[0] = (float)blockIdx.x; /* PLANTED_BLOCKS first */
}

static __global__ void divergent_barrier_kernel(float *to)
{
    if (threadIdx.x < 64)
        __syncthreads(); /* PLANTED_DIVERGENT_BARRIER first */
    to[threadIdx.x] = 1;
}

static __global__ void divergent_shuffle_kernel(float *to)
{
    float value = (float)threadIdx.x;
    if (threadIdx.x % 2 == 0)
        value += __shfl_xor_sync(GPU_ALL_LANES, value, 2); /* PLANTED_DIVERGENT_SHUFFLE first */
    else
        value -= __shfl_xor_sync(GPU_ALL_LANES, value, 2); /* PLANTED_DIVERGENT_SHUFFLE second */
    to[threadIdx.x] = value;
}

static __global__ void two_barriers_kernel(float *to)
{
    if (threadIdx.x < 64)
        __syncthreads(); /* PLANTED_TWO_BARRIERS first */
    else
        __syncthreads(); /* PLANTED_TWO_BARRIERS second */
    to[threadIdx.x] = 1;
}

static __global__ void early_end_kernel(float *to)
{
    if (threadIdx.x == 5)
        return;
    to[threadIdx.x] = gpu_warp_reduce(1.0F, gpu_plus());
}

static __global__ void some_lanes_kernel(float *to)
{
    to[threadIdx.x] = __shfl_sync(0xffffU, 1.0F, 0); /* PLANTED_SOME_LANES first */
}

static __global__ void beyond_shared_kernel(float *to, const float *from)
{
    GPU_SHARED(float, all, THREADS);
    all[threadIdx.x + 1] = from[threadIdx.x]; /* PLANTED_BEYOND_SHARED first */
    __syncthreads();
    to[threadIdx.x] = all[threadIdx.x];
}

static __global__ void beyond_buffer_kernel(float *to, const float *from)
{
    to[threadIdx.x] = from[threadIdx.x + 1]; /* PLANTED_BEYOND_BUFFER first */
}

static __global__ void unaligned_kernel(float *to, const float *from)
{
    const gpu_chunk<float, 4> at = gpu_get<4>(from + threadIdx.x % 4); /* PLANTED_UNALIGNED first */
    to[threadIdx.x] = at.at[threadIdx.x % 4];
}

static __global__ void unset_kernel(float *to)
{
    GPU_SHARED(float, all, THREADS);
    to[threadIdx.x] = all[threadIdx.x];
}

static __global__ void order_kernel(float *to)
{
    if (threadIdx.x == 0)
        sbp_planted_note((int)blockIdx.x), (void)to;
}

void sbp_planted_run(enum planted what, float *to, const float *from)
{
    struct sbp_cuda cuda = {};
    const dim3 block(THREADS);
    switch (what) {
    case PLANTED_NOTHING:
        GPU_LAUNCH(&cuda, sum_kernel, 1, block, 0, to, from);
        GPU_LAUNCH(&cuda, shift_kernel, 1, block, 0, to, to, true);
        break;
    case PLANTED_NO_BARRIER:
        GPU_LAUNCH(&cuda, shift_kernel, 1, block, 0, to, from, false);
        break;
    case PLANTED_WRITES:
        GPU_LAUNCH(&cuda, writes_kernel, 1, block, 0, to, from);
        break;
    case PLANTED_WRITE_AFTER_READ:
        GPU_LAUNCH(&cuda, write_after_read_kernel, 1, block, 0, to, from);
        break;
    case PLANTED_NO_SYNCWARP:
    case PLANTED_SYNCWARP:
        GPU_LAUNCH(&cuda, warp_kernel, 1, block, 0, to, from, what == PLANTED_SYNCWARP);
        break;
    case PLANTED_BLOCKS:
        GPU_LAUNCH(&cuda, blocks_kernel, 2, block, 0, to);
        break;
    case PLANTED_DIVERGENT_BARRIER:
        GPU_LAUNCH(&cuda, divergent_barrier_kernel, 1, block, 0, to);
        break;
    case PLANTED_DIVERGENT_SHUFFLE:
        GPU_LAUNCH(&cuda, divergent_shuffle_kernel, 1, block, 0, to);
        break;
    case PLANTED_TWO_BARRIERS:
        GPU_LAUNCH(&cuda, two_barriers_kernel, 1, block, 0, to);
        break;
    case PLANTED_EARLY_END:
        GPU_LAUNCH(&cuda, early_end_kernel, 1, block, 0, to);
        break;
    case PLANTED_SOME_LANES:
        GPU_LAUNCH(&cuda, some_lanes_kernel, 1, block, 0, to);
        break;
    case PLANTED_BEYOND_SHARED:
        GPU_LAUNCH(&cuda, beyond_shared_kernel, 1, block, 0, to, from);
        break;
    case PLANTED_BEYOND_BUFFER:
        GPU_LAUNCH(&cuda, beyond_buffer_kernel, 1, block, 0, to, from);
        break;
    case PLANTED_UNALIGNED:
        GPU_LAUNCH(&cuda, unaligned_kernel, 1, block, 0, to, from);
        break;
    case PLANTED_UNSET:
        GPU_LAUNCH(&cuda, unset_kernel, 1, block, 0, to);
        break;
    case PLANTED_NO_BLOCKS_X:
    case PLANTED_NO_BLOCKS_Y:
    case PLANTED_NO_BLOCKS_Z:
        GPU_LAUNCH(&cuda, sum_kernel,
                   dim3(what != PLANTED_NO_BLOCKS_X, what != PLANTED_NO_BLOCKS_Y,
                        what != PLANTED_NO_BLOCKS_Z),
                   block, 0, to, from);
        break;
    default:
        GPU_LAUNCH(&cuda, order_kernel, 6, block, 0, to);
    }
}
