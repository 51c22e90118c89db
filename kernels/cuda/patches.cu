/* cuBLAS makes the products of patches of images, these kernels do the rest: they turn rows of a
 * product into tokens and back, place the class token, and sum gradients over tokens.
 *
 * A token is row t of an image's `rows`, of which `first`, 0 or 1, are no patches. */
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/place.cuh"

enum { THREADS = 256 };

struct tokens {
    gpu_digits digits; /* which rows of all are here */
    int64_t batch, rows, first, features;
};

/* Where patch i of all lies among the tokens. */
static __device__ __forceinline__ int64_t token_of(const tokens &of, int64_t patch)
{
    const int64_t patches = of.rows - of.first;
    return patch / patches * of.rows + of.first + patch % patches;
}

/* Elements i and on; nullptr: zeros. */
template <int N, class T>
static __device__ __forceinline__ gpu_chunk<T, N> get_some(const T *from, int64_t i)
{
    return from == nullptr ? gpu_chunk<T, N>() : gpu_get<N>(from + i);
}

/* y = from + bias + positions, of patches `patch` and on, a block each; without `from`: of class
 * tokens, an image's each, with the class token in the place of the bias. */
template <class T, int N>
static __global__ void __launch_bounds__(THREADS)
    put_kernel(T *y, const float *from, const T *bias, const T *positions,
               GPU_GRID_CONSTANT tokens of, int64_t patch)
{
    const int64_t block = blockIdx.x;
    const int64_t token = from == nullptr ? block * of.rows : token_of(of, patch + block);
    const int64_t row = gpu_digits_global(of.digits, token % of.rows);
    for (int64_t i = (int64_t)threadIdx.x * N; i < of.features; i += (int64_t)blockDim.x * N) {
        const gpu_chunk<float, N> product = get_some<N>(from, block * of.features + i);
        const gpu_chunk<T, N> added = get_some<N>(bias, i);
        const gpu_chunk<T, N> place = get_some<N>(positions, row * of.features + i);
        gpu_chunk<T, N> to;
        GPU_UNROLL
        for (int j = 0; j < N; j++)
            to.at[j] = gpu_store<T>(product.at[j] + gpu_load(added.at[j]) + gpu_load(place.at[j]));
        gpu_put(y + token * of.features + i, to);
    }
}

template <class T, int N>
static __global__ void __launch_bounds__(THREADS)
    take_kernel(T *to, const T *dy, GPU_GRID_CONSTANT tokens of, int64_t patch)
{
    const T *const from = dy + token_of(of, patch + (int64_t)blockIdx.x) * of.features;
    for (int64_t i = (int64_t)threadIdx.x * N; i < of.features; i += (int64_t)blockDim.x * N)
        gpu_put(to + blockIdx.x * of.features + i, gpu_get<N>(from + i));
}

/* Rows `first` to first + count - 1 of every image. */
template <class T, int N> struct row_source {
    const T *dy;
    int64_t rows, first, count, features;
    __device__ __forceinline__ void add(float (&sum)[1][N], int64_t row, int64_t column) const
    {
        const int64_t token = row / count * rows + first + row % count;
        const gpu_chunk<T, N> at = gpu_get<N>(dy + token * features + column);
        GPU_UNROLL
        for (int j = 0; j < N; j++)
            sum[0][j] += gpu_load(at.at[j]);
    }
};

/* dpositions of a row here, a block each: sums over images. */
template <class T, int N>
static __global__ void __launch_bounds__(THREADS)
    positions_kernel(T *dpositions, const T *dy, GPU_GRID_CONSTANT tokens of, bool adds)
{
    T *const row = dpositions + gpu_digits_global(of.digits, (int64_t)blockIdx.x) * of.features;
    for (int64_t i = (int64_t)threadIdx.x * N; i < of.features; i += (int64_t)blockDim.x * N) {
        gpu_chunk<T, N> to = gpu_get<N>(row + i);
        float sum[N];
        GPU_UNROLL
        for (int j = 0; j < N; j++)
            sum[j] = adds ? gpu_load(to.at[j]) : 0;
        for (int64_t b = 0; b < of.batch; b++) {
            const gpu_chunk<T, N> at =
                gpu_get<N>(dy + (b * of.rows + blockIdx.x) * of.features + i);
            GPU_UNROLL
            for (int j = 0; j < N; j++)
                sum[j] += gpu_load(at.at[j]);
        }
        GPU_UNROLL
        for (int j = 0; j < N; j++)
            to.at[j] = gpu_store<T>(sum[j]);
        gpu_put(row + i, to);
    }
}

/* ---- launches -------------------------------------------------------------------------------- */

static tokens tokens_of(const struct sbp_patches *p)
{
    tokens of = {};
    of.digits = gpu_digits_of(p->rows);
    of.batch = p->batch;
    of.rows = sbp_digits_local_size(p->rows);
    of.first = p->class_token && sbp_digits_local(p->rows, 0) == 0 ? 1 : 0;
    of.features = p->features;
    return of;
}

template <class T>
static void launch_put(struct sbp_cuda *cuda, T *y, const float *from, const T *bias,
                       const T *positions, const tokens &of, int64_t patch, int64_t count)
{
    constexpr int N = gpu_width<T>;
    const bool is_wide = gpu_aligned<N>(y, of.features) && gpu_aligned<N>(from) &&
                         gpu_aligned<N>(bias) && gpu_aligned<N>(positions);
    const auto kernel = is_wide ? put_kernel<T, N> : put_kernel<T, 1>;
    const unsigned threads = gpu_row_threads(gpu_ceil(of.features, is_wide ? N : 1), THREADS);
    if (count > 0)
        GPU_LAUNCH(cuda, kernel, (unsigned)count, threads, 0, y, from, bias, positions, of, patch);
}

template <class T>
static void put(struct sbp_cuda *cuda, void *y, const void *from, const void *bias,
                const void *positions, const struct sbp_patches *patches, int64_t patch,
                int64_t count)
{
    launch_put(cuda, (T *)y, (const float *)from, (const T *)bias, (const T *)positions,
               tokens_of(patches), patch, count);
}

template <class T>
static void put_class(struct sbp_cuda *cuda, void *y, const void *class_token,
                      const void *positions, const struct sbp_patches *patches)
{
    const tokens of = tokens_of(patches);
    launch_put(cuda, (T *)y, (const float *)NULL, (const T *)class_token, (const T *)positions, of,
               0, of.first > 0 ? of.batch : 0);
}

template <class T>
static void take(struct sbp_cuda *cuda, void *to, const void *dy, const struct sbp_patches *patches,
                 int64_t patch, int64_t count)
{
    constexpr int N = gpu_width<T>;
    const tokens of = tokens_of(patches);
    const bool is_wide =
        gpu_aligned<N>((const T *)to, of.features) && gpu_aligned<N>((const T *)dy);
    const auto kernel = is_wide ? take_kernel<T, N> : take_kernel<T, 1>;
    const unsigned threads = gpu_row_threads(gpu_ceil(of.features, is_wide ? N : 1), THREADS);
    if (count > 0)
        GPU_LAUNCH(cuda, kernel, (unsigned)count, threads, 0, (T *)to, (const T *)dy, of, patch);
}

/* A vector's gradient: sums over `count` rows of every image from `first` on; NULL: not wanted. */
template <class T>
static void sum_rows(struct sbp_cuda *cuda, void *to, const T *dy, const tokens &of, int64_t first,
                     int64_t count, bool adds)
{
    constexpr int N = gpu_width<T>;
    const row_source<T, N> wide = {dy, of.rows, first, count, of.features};
    const row_source<T, 1> narrow = {dy, of.rows, first, count, of.features};
    if (to != NULL && gpu_aligned<N>(dy, of.features))
        column_sums<1, N>(cuda, (T *)to, (T *)NULL, of.batch * count, of.features, adds, wide);
    else if (to != NULL)
        column_sums<1, 1>(cuda, (T *)to, (T *)NULL, of.batch * count, of.features, adds, narrow);
}

template <class T>
static void sum_positions(struct sbp_cuda *cuda, T *to, const T *dy, const tokens &of, int64_t all,
                          bool adds)
{
    constexpr int N = gpu_width<T>;
    const bool is_wide = gpu_aligned<N>(to, of.features) && gpu_aligned<N>(dy);
    const auto kernel = is_wide ? positions_kernel<T, N> : positions_kernel<T, 1>;
    const unsigned threads = gpu_row_threads(gpu_ceil(of.features, is_wide ? N : 1), THREADS);
    if (!adds)
        gpu_zero(cuda, to, all * of.features * (int64_t)sizeof(T));
    if (of.rows > 0)
        GPU_LAUNCH(cuda, kernel, (unsigned)of.rows, threads, 0, to, dy, of, adds);
}

template <class T>
static void sums(struct sbp_cuda *cuda, void *dbias, void *dclass, void *dpositions, const void *dy,
                 const struct sbp_patches *patches, bool adds)
{
    const tokens of = tokens_of(patches);
    const T *const from = (const T *)dy;
    sum_rows(cuda, dbias, from, of, of.first, of.rows - of.first, adds);
    sum_rows(cuda, dclass, from, of, 0, of.first, adds);
    if (dpositions != NULL)
        sum_positions(cuda, (T *)dpositions, from, of, sbp_digits_global_size(patches->rows), adds);
}

template <class T> static void fill(struct sbp_cuda_kernels *kernels)
{
    kernels->patches_put = put<T>;
    kernels->patches_put_class = put_class<T>;
    kernels->patches_take = take<T>;
    kernels->patches_sums = sums<T>;
}
GPU_FILL(patches, take_kernel<float, 1>)
