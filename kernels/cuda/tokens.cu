/* Rows of tokens: those that their type adds, and the one that stands for a sequence. */
#include "kernels/cuda/columns.cuh"

enum { THREADS = 256 };

static __device__ __forceinline__ int64_t type_of(int32_t position, int64_t rows, int64_t sequence)
{
    return position * rows / sequence;
}

/* A block a token. */
template <class T, int N>
static __global__ void __launch_bounds__(THREADS)
    types_kernel(T *y, const int32_t *position_of, const T *types, int64_t in, int64_t rows,
                 int64_t sequence)
{
    T *const to = y + blockIdx.x * in;
    const T *const from = types + type_of(position_of[blockIdx.x], rows, sequence) * in;
    for (int64_t i = (int64_t)threadIdx.x * N; i < in; i += (int64_t)blockDim.x * N) {
        gpu_chunk<T, N> at = gpu_get<N>(to + i);
        const gpu_chunk<T, N> added = gpu_get<N>(from + i);
        GPU_UNROLL
        for (int j = 0; j < N; j++)
            at.at[j] = gpu_store<T>(gpu_load(at.at[j]) + gpu_load(added.at[j]));
        gpu_put(to + i, at);
    }
}

template <class T>
static void types(struct sbp_cuda *cuda, void *y, const int32_t *position_of, const void *rows_of,
                  int64_t tokens, int64_t in, int64_t rows, int64_t sequence)
{
    constexpr int N = gpu_width<T>;
    const bool is_wide = gpu_aligned<N>((const T *)y, in) && gpu_aligned<N>((const T *)rows_of);
    const unsigned threads = gpu_row_threads(gpu_ceil(in, is_wide ? N : 1), THREADS);
    const auto kernel = is_wide ? types_kernel<T, N> : types_kernel<T, 1>;
    if (tokens > 0)
        GPU_LAUNCH(cuda, kernel, (unsigned)tokens, threads, 0, (T *)y, position_of,
                   (const T *)rows_of, in, rows, sequence);
}

/* Tokens of one type. */
template <class T, int N> struct type_source {
    const T *dy;
    const int32_t *position_of;
    int64_t in, rows, sequence, type;
    __device__ __forceinline__ void add(float (&sum)[1][N], int64_t row, int64_t column) const
    {
        if (type_of(position_of[row], rows, sequence) != type)
            return;
        const gpu_chunk<T, N> at = gpu_get<N>(dy + row * in + column);
        GPU_UNROLL
        for (int j = 0; j < N; j++)
            sum[0][j] += gpu_load(at.at[j]);
    }
};

template <class T>
static void types_gradient(struct sbp_cuda *cuda, void *dtypes, const int32_t *position_of,
                           const void *dy, int64_t tokens, int64_t in, int64_t rows,
                           int64_t sequence, bool adds)
{
    constexpr int N = gpu_width<T>;
    const T *const from = (const T *)dy;
    for (int64_t type = 0; type < rows; type++) {
        const type_source<T, N> wide = {from, position_of, in, rows, sequence, type};
        const type_source<T, 1> narrow = {from, position_of, in, rows, sequence, type};
        T *const to = (T *)dtypes + type * in;
        if (gpu_aligned<N>(from, in))
            column_sums<1, N>(cuda, to, (T *)NULL, tokens, in, adds, wide);
        else
            column_sums<1, 1>(cuda, to, (T *)NULL, tokens, in, adds, narrow);
    }
}

/* A block a row: rows so many elements apart. */
template <class T, int N>
static __global__ void __launch_bounds__(THREADS)
    copy_rows_kernel(T *to, int64_t to_row, const T *from, int64_t from_row, int64_t in)
{
    for (int64_t i = (int64_t)threadIdx.x * N; i < in; i += (int64_t)blockDim.x * N)
        gpu_put(to + blockIdx.x * to_row + i, gpu_get<N>(from + blockIdx.x * from_row + i));
}

template <class T>
static void copy_rows(struct sbp_cuda *cuda, void *to, int64_t to_row, const void *from,
                      int64_t from_row, int64_t rows, int64_t in)
{
    constexpr int N = gpu_width<T>;
    const bool is_wide = gpu_aligned<N>((const T *)to, in) && gpu_aligned<N>((const T *)from);
    const unsigned threads = gpu_row_threads(gpu_ceil(in, is_wide ? N : 1), THREADS);
    const auto kernel = is_wide ? copy_rows_kernel<T, N> : copy_rows_kernel<T, 1>;
    if (rows > 0)
        GPU_LAUNCH(cuda, kernel, (unsigned)rows, threads, 0, (T *)to, to_row, (const T *)from,
                   from_row, in);
}

template <class T>
static void first(struct sbp_cuda *cuda, void *y, const void *x, int64_t batch, int64_t sequence,
                  int64_t in)
{
    copy_rows<T>(cuda, y, in, x, sequence * in, batch, in);
}

template <class T>
static void first_gradient(struct sbp_cuda *cuda, void *dx, const void *dy, int64_t batch,
                           int64_t sequence, int64_t in)
{
    gpu_zero(cuda, dx, batch * sequence * in * (int64_t)sizeof(T));
    copy_rows<T>(cuda, dx, sequence * in, dy, in, batch, in);
}

template <class T> static void fill(struct sbp_cuda_kernels *kernels)
{
    kernels->token_types_forward = types<T>;
    kernels->token_types_backward = types_gradient<T>;
    kernels->first_token_forward = first<T>;
    kernels->first_token_backward = first_gradient<T>;
}
GPU_FILL(tokens, types_kernel<float, 1>)
