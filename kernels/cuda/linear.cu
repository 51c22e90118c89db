/* cuBLAS makes the products of linear operators, these kernels do the rest: they add biases, and
 * sum the biases' gradients. */
#include "kernels/cuda/columns.cuh"

enum { THREADS = 256 };

template <class T, int N>
static __global__ void __launch_bounds__(THREADS)
    bias_kernel(T *y, const T *bias, int64_t tokens, int64_t out)
{
    const int64_t column = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    if (column >= out)
        return;
    const gpu_chunk<T, N> added = gpu_get<N>(bias + column);
    for (int64_t t = blockIdx.y; t < tokens; t += gridDim.y) {
        gpu_chunk<T, N> at = gpu_get<N>(y + t * out + column);
        GPU_UNROLL
        for (int j = 0; j < N; j++)
            at.at[j] = gpu_store<T>(gpu_load(at.at[j]) + gpu_load(added.at[j]));
        gpu_put(y + t * out + column, at);
    }
}

template <class T, int N>
static void launch_bias(struct sbp_cuda *cuda, T *y, const T *bias, int64_t tokens, int64_t out)
{
    const int64_t chunks = gpu_ceil(out, N);
    const unsigned threads = gpu_row_threads(chunks, THREADS);
    const dim3 grid((unsigned)gpu_ceil(chunks, threads),
                    (unsigned)sbp_least_i64(tokens, (int64_t)16 * cuda->multiprocessors));
    const auto kernel = bias_kernel<T, N>;
    if (tokens > 0 && out > 0)
        GPU_LAUNCH(cuda, kernel, grid, threads, 0, y, bias, tokens, out);
}

template <class T>
static void add_bias(struct sbp_cuda *cuda, void *y, const void *bias, int64_t tokens, int64_t out)
{
    constexpr int N = gpu_width<T>;
    if (gpu_aligned<N>((T *)y, out) && gpu_aligned<N>((const T *)bias))
        launch_bias<T, N>(cuda, (T *)y, (const T *)bias, tokens, out);
    else
        launch_bias<T, 1>(cuda, (T *)y, (const T *)bias, tokens, out);
}

/* Rounds sums, which a product left in single precision, once: as they are stored. */
template <class T, int N>
static __global__ void __launch_bounds__(THREADS)
    put_kernel(T *to, const float *sums, int64_t chunks, bool adds)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < chunks; i += step) {
        const gpu_chunk<float, N> sum = gpu_get<N>(sums + i * N);
        gpu_chunk<T, N> at = {};
        if (adds)
            at = gpu_get<N>(to + i * N);
        GPU_UNROLL
        for (int j = 0; j < N; j++)
            at.at[j] = gpu_store<T>(gpu_load(at.at[j]) + sum.at[j]);
        gpu_put(to + i * N, at);
    }
}

template <class T>
static void put_sums(struct sbp_cuda *cuda, void *to, const void *sums, int64_t n, bool adds)
{
    constexpr int N = gpu_width<T>;
    const bool is_wide = gpu_aligned<N>((const T *)to, n) && gpu_aligned<N>((const float *)sums);
    const int64_t chunks = is_wide ? n / N : n;
    const auto kernel = is_wide ? put_kernel<T, N> : put_kernel<T, 1>;
    if (n > 0)
        GPU_LAUNCH(cuda, kernel, gpu_loop_blocks(cuda, chunks, THREADS), THREADS, 0, (T *)to,
                   (const float *)sums, chunks, adds);
}

template <class T, int N> struct plain_source {
    const T *x;
    int64_t out;
    __device__ __forceinline__ void add(float (&sum)[1][N], int64_t row, int64_t column) const
    {
        const gpu_chunk<T, N> at = gpu_get<N>(x + row * out + column);
        GPU_UNROLL
        for (int j = 0; j < N; j++)
            sum[0][j] += gpu_load(at.at[j]);
    }
};

template <class T>
static void sums(struct sbp_cuda *cuda, void *to, const void *x, int64_t tokens, int64_t out,
                 bool adds)
{
    constexpr int N = gpu_width<T>;
    const plain_source<T, N> wide = {(const T *)x, out};
    const plain_source<T, 1> narrow = {(const T *)x, out};
    if (gpu_aligned<N>(wide.x, out))
        column_sums<1, N>(cuda, (T *)to, (T *)NULL, tokens, out, adds, wide);
    else
        column_sums<1, 1>(cuda, (T *)to, (T *)NULL, tokens, out, adds, narrow);
}

template <class T> static void fill(struct sbp_cuda_kernels *kernels)
{
    kernels->add_bias = add_bias<T>;
    kernels->column_sums = sums<T>;
    kernels->put_sums = put_sums<T>;
}
GPU_FILL(linear, bias_kernel<float, 1>)
