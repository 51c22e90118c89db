/* Batch normalisation of rows of images x(rows, channels, width) (Ioffe and Szegedy, 2015). */
#include "kernels/cuda/channels.cuh"

enum { THREADS = 256 };

/* Rows of images, all of a block. */
struct images {
    int64_t rows, channels, width;
};

static __device__ __forceinline__ int64_t place(const images &of, int64_t row, int64_t channel,
                                                int64_t column)
{
    return (row * of.channels + channel) * of.width + column;
}

/* ---- statistics ------------------------------------------------------------------------------ */

/* Elements, and the squares of what is left of the mean: twice over them, so that squares cancel
 * nothing. */
template <class T, int N> struct value_source {
    const T *x;
    images of;
    __device__ __forceinline__ void add(float (&sum)[1], int64_t row, int64_t channel,
                                        int64_t column) const
    {
        const gpu_chunk<T, N> at = gpu_get<N>(x + place(of, row, channel, column));
        GPU_UNROLL
        for (int j = 0; j < N; j++)
            sum[0] += gpu_load(at.at[j]);
    }
};

template <class T, int N> struct square_source {
    const T *x;
    const float *statistics;
    images of;
    __device__ __forceinline__ void add(float (&sum)[1], int64_t row, int64_t channel,
                                        int64_t column) const
    {
        const gpu_chunk<T, N> at = gpu_get<N>(x + place(of, row, channel, column));
        const float mean = statistics[2 * channel];
        GPU_UNROLL
        for (int j = 0; j < N; j++) {
            const float left = gpu_load(at.at[j]) - mean;
            sum[0] = fmaf(left, left, sum[0]);
        }
    }
};

struct mean_result {
    float *statistics, count;
    __device__ __forceinline__ void put(int64_t channel, const float (&sum)[1]) const
    {
        statistics[2 * channel] = sum[0] / count;
    }
};

struct spread_result {
    float *statistics, count, epsilon;
    __device__ __forceinline__ void put(int64_t channel, const float (&sum)[1]) const
    {
        statistics[2 * channel + 1] = 1 / sqrtf(sum[0] / count + epsilon);
    }
};

/* False, and an error is kept: rows are named one by one. */
static bool find_images(struct sbp_cuda *cuda, images &of, const struct sbp_norm_rows *rows)
{
    of = images{rows->count, rows->channels, rows->width};
    if (rows->row != NULL)
        gpu_note(cuda, cudaErrorInvalidValue);
    return rows->row == NULL;
}

template <int N, class T>
static void launch_statistics(struct sbp_cuda *cuda, float *to, const T *x, const images &of,
                              float epsilon)
{
    const float count = (float)(of.rows * of.width);
    const value_source<T, N> values = {x, of};
    const square_source<T, N> squares = {x, to, of};
    const mean_result mean = {to, count};
    const spread_result spread = {to, count, epsilon};
    channel_sums<1, N>(cuda, of.rows, of.channels, of.width, 0, values, mean);
    channel_sums<1, N>(cuda, of.rows, of.channels, of.width, 0, squares, spread);
}

template <class T>
static void statistics(struct sbp_cuda *cuda, void *to, const void *x,
                       const struct sbp_norm_rows *rows, double epsilon)
{
    constexpr int N = gpu_width<T>;
    images of;
    if (!find_images(cuda, of, rows))
        return;
    if (gpu_aligned<N>((const T *)x, of.width))
        launch_statistics<N>(cuda, (float *)to, (const T *)x, of, (float)epsilon);
    else
        launch_statistics<1>(cuda, (float *)to, (const T *)x, of, (float)epsilon);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* A thread takes N neighbours of one channel, again and again. */
template <class T, int N>
static __global__ void __launch_bounds__(THREADS)
    forward_kernel(T *y, const T *x, const float *statistics, const T *gain, const T *shift,
                   images of)
{
    const int64_t chunks = of.rows * of.channels * of.width / N;
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < chunks; i += step) {
        const int64_t channel = i * N / of.width % of.channels;
        const float mean = statistics[2 * channel];
        const float factor = statistics[2 * channel + 1] * gpu_load(gain[channel]);
        const float added = gpu_load(shift[channel]);
        gpu_chunk<T, N> at = gpu_get<N>(x + i * N);
        GPU_UNROLL
        for (int j = 0; j < N; j++)
            at.at[j] = gpu_store<T>((gpu_load(at.at[j]) - mean) * factor + added);
        gpu_put(y + i * N, at);
    }
}

template <class T>
static void forward(struct sbp_cuda *cuda, void *y, const void *x, const void *statistics,
                    const void *gain, const void *shift, const struct sbp_norm_rows *rows)
{
    constexpr int N = gpu_width<T>;
    images of;
    if (!find_images(cuda, of, rows))
        return;
    const bool is_wide = gpu_aligned<N>((const T *)y, of.width) && gpu_aligned<N>((const T *)x);
    const int64_t chunks = of.rows * of.channels * of.width / (is_wide ? N : 1);
    const auto kernel = is_wide ? forward_kernel<T, N> : forward_kernel<T, 1>;
    if (chunks > 0)
        GPU_LAUNCH(cuda, kernel, gpu_loop_blocks(cuda, chunks, THREADS), THREADS, 0, (T *)y,
                   (const T *)x, (const float *)statistics, (const T *)gain, (const T *)shift, of);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* dy, and dy xhat. */
template <class T, int N> struct gradient_source {
    const T *dy, *x;
    const float *statistics;
    images of;
    __device__ __forceinline__ void add(float (&sum)[2], int64_t row, int64_t channel,
                                        int64_t column) const
    {
        const int64_t i = place(of, row, channel, column);
        const float mean = statistics[2 * channel], rstd = statistics[2 * channel + 1];
        const gpu_chunk<T, N> at = gpu_get<N>(x + i), d = gpu_get<N>(dy + i);
        GPU_UNROLL
        for (int j = 0; j < N; j++) {
            sum[0] += gpu_load(d.at[j]);
            sum[1] = fmaf(gpu_load(d.at[j]), (gpu_load(at.at[j]) - mean) * rstd, sum[1]);
        }
    }
};

/* Keeps the means of both for dx. What is not wanted is NULL. */
template <class T> struct gradient_result {
    float *means;
    T *dgain, *dshift;
    float count;
    bool adds;
    __device__ __forceinline__ void put(int64_t channel, const float (&sum)[2]) const
    {
        means[2 * channel] = sum[0] / count;
        means[2 * channel + 1] = sum[1] / count;
        if (dgain != nullptr)
            dgain[channel] = gpu_store<T>((adds ? gpu_load(dgain[channel]) : 0) + sum[1]);
        if (dshift != nullptr)
            dshift[channel] = gpu_store<T>((adds ? gpu_load(dshift[channel]) : 0) + sum[0]);
    }
};

/* dx = rstd gain (dy - mean(dy) - xhat mean(dy xhat)) */
template <class T, int N>
static __global__ void __launch_bounds__(THREADS)
    backward_kernel(T *dx, const T *dy, const T *x, const float *statistics, const float *means,
                    const T *gain, images of)
{
    const int64_t chunks = of.rows * of.channels * of.width / N;
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < chunks; i += step) {
        const int64_t channel = i * N / of.width % of.channels;
        const float mean = statistics[2 * channel], rstd = statistics[2 * channel + 1];
        const float factor = rstd * gpu_load(gain[channel]);
        const float constant = means[2 * channel], slope = means[2 * channel + 1];
        const gpu_chunk<T, N> at = gpu_get<N>(x + i * N);
        gpu_chunk<T, N> to = gpu_get<N>(dy + i * N);
        GPU_UNROLL
        for (int j = 0; j < N; j++) {
            const float xhat = (gpu_load(at.at[j]) - mean) * rstd;
            to.at[j] = gpu_store<T>(factor * (gpu_load(to.at[j]) - constant - xhat * slope));
        }
        gpu_put(dx + i * N, to);
    }
}

template <class T>
static void backward(struct sbp_cuda *cuda, void *dx, void *dgain, void *dshift, const void *dy,
                     const void *x, const void *statistics, const void *gain,
                     const struct sbp_norm_rows *rows, bool adds)
{
    constexpr int N = gpu_width<T>;
    images of;
    if (!find_images(cuda, of, rows))
        return;
    const bool has_wide_sums =
        gpu_aligned<N>((const T *)x, of.width) && gpu_aligned<N>((const T *)dy);
    const bool is_wide = has_wide_sums && gpu_aligned<N>((const T *)dx);
    const int64_t chunks = of.rows * of.channels * of.width / (is_wide ? N : 1);
    const auto kernel = is_wide ? backward_kernel<T, N> : backward_kernel<T, 1>;
    const float *const mean_rstd = (const float *)statistics;
    const gradient_source<T, N> wide = {(const T *)dy, (const T *)x, mean_rstd, of};
    const gradient_source<T, 1> narrow = {(const T *)dy, (const T *)x, mean_rstd, of};
    const gradient_result<T> result = {(float *)cuda->scratch, (T *)dgain, (T *)dshift,
                                       (float)(of.rows * of.width), adds};
    if (has_wide_sums)
        channel_sums<2, N>(cuda, of.rows, of.channels, of.width, 2 * of.channels, wide, result);
    else
        channel_sums<2, 1>(cuda, of.rows, of.channels, of.width, 2 * of.channels, narrow, result);
    if (chunks > 0)
        GPU_LAUNCH(cuda, kernel, gpu_loop_blocks(cuda, chunks, THREADS), THREADS, 0, (T *)dx,
                   (const T *)dy, (const T *)x, mean_rstd, (const float *)cuda->scratch,
                   (const T *)gain, of);
}

template <class T> static void fill(struct sbp_cuda_kernels *kernels)
{
    kernels->batchnorm_statistics = statistics<T>;
    kernels->batchnorm_forward = forward<T>;
    kernels->batchnorm_backward = backward<T>;
}
GPU_FILL(batchnorm, channel_totals<1, mean_result>)
