/* Sums over the rows and places of images x(rows, channels, width), of K values a channel.
 *
 * Blocks sum parts of a channel, whose number the sizes alone fix, into scratch, and a thread for
 * each channel adds the parts up. Source::add(sum, row, channel, column) adds the values of N
 * neighbours in a row; Result::put(channel, sum) takes what comes of them. The order of a sum
 * depends on whether the addresses are aligned to 16 bytes, which decides N. */
#ifndef SBP_KERNELS_CUDA_CHANNELS_CUH
#define SBP_KERNELS_CUDA_CHANNELS_CUH

#include "kernels/cuda/reduce.cuh"

enum { CHANNELS_THREADS = 256, CHANNELS_PART = 4096 /* elements of a part, at least */ };

/* Elements, a part and the width are counted in chunks. */
template <int K, int N, class Source>
static __global__ void __launch_bounds__(CHANNELS_THREADS)
    channel_parts(float *parts, int64_t elements, int64_t part, int64_t width, Source source)
{
    const int64_t first = blockIdx.y * part, channel = blockIdx.x;
    const int64_t end = first + part < elements ? first + part : elements;
    float sum[K] = {};
    for (int64_t i = first + threadIdx.x; i < end; i += blockDim.x)
        source.add(sum, i / width, channel, i % width * N);
    gpu_block_reduce(sum, gpu_plus());
    if (threadIdx.x == 0)
        GPU_UNROLL
    for (int k = 0; k < K; k++)
        parts[((int64_t)k * gridDim.x + channel) * gridDim.y + blockIdx.y] = sum[k];
}

template <int K, class Result>
static __global__ void __launch_bounds__(CHANNELS_THREADS)
    channel_totals(const float *parts, int count, int64_t channels, Result result)
{
    const int64_t channel = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    float total[K] = {};
    if (channel >= channels)
        return;
    for (int k = 0; k < K; k++)
        for (int i = 0; i < count; i++)
            total[k] += parts[(k * channels + channel) * count + i];
    result.put(channel, total);
}

/* Parts take the scratch behind `kept` floats of it. */
template <int K, int N, class Source, class Result>
static void channel_sums(struct sbp_cuda *cuda, int64_t rows, int64_t channels, int64_t width,
                         int64_t kept, Source source, Result result)
{
    const int64_t elements = rows * width / N, some = elements > 0 ? elements : 1;
    const auto parts = channel_parts<K, N, Source>;
    const auto totals = channel_totals<K, Result>;
    if (channels == 0)
        return;
    const int64_t most = (cuda->scratch_bytes / (int64_t)sizeof(float) - kept) / (K * channels);
    if (most <= 0) { /* more than a million channels */
        gpu_note(cuda, cudaErrorInvalidValue);
        return;
    }
    const int64_t part =
        gpu_ceil(some, sbp_least_i64(sbp_least_i64(gpu_ceil(some * N, CHANNELS_PART), most), 64));
    const int64_t count = gpu_ceil(some, part);
    float *const scratch = (float *)cuda->scratch + kept;
    GPU_LAUNCH(cuda, parts, dim3((unsigned)channels, (unsigned)count), dim3(CHANNELS_THREADS), 0,
               scratch, elements, part, width / N, source);
    GPU_LAUNCH(cuda, totals, dim3((unsigned)gpu_ceil(channels, CHANNELS_THREADS)),
               dim3(CHANNELS_THREADS), 0, (const float *)scratch, (int)count, channels, result);
}

#endif
