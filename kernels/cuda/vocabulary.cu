/* Operators over a vocabulary whose rows may be split over ranks: embedding and cross-entropy. */
#include "kernels/cuda/place.cuh"
#include "kernels/cuda/reduce.cuh"

enum { THREADS = 256, GATHER_WARPS = 4 };

/* ---- embedding ------------------------------------------------------------------------------ */

template <class T, int N>
static __global__ void __launch_bounds__(THREADS)
    embedding_kernel(T *y, const int32_t *ids, const int32_t *position_of, const T *table,
                     const T *positions, int64_t in, GPU_GRID_CONSTANT gpu_digits vocabulary)
{
    const int64_t t = blockIdx.x, row = gpu_digits_local(vocabulary, ids[t]);
    const T *const position = positions != NULL ? positions + position_of[t] * in : NULL;
    for (int64_t i = (int64_t)threadIdx.x * N; i < in; i += (int64_t)blockDim.x * N) {
        gpu_chunk<T, N> of = {}, placed = {};
        if (row >= 0)
            of = gpu_get<N>(table + row * in + i);
        if (position != NULL)
            placed = gpu_get<N>(position + i);
        GPU_UNROLL
        for (int j = 0; j < N && position != NULL; j++)
            of.at[j] = gpu_store<T>(gpu_load(of.at[j]) + gpu_load(placed.at[j]));
        gpu_put(y + t * in + i, of);
    }
}

template <class T>
static void embedding_forward(struct sbp_cuda *cuda, void *y, const int32_t *ids,
                              const int32_t *position_of, const void *table, const void *positions,
                              int64_t tokens, int64_t in, const struct sbp_digits *vocabulary)
{
    constexpr int N = gpu_width<T>;
    const auto wide = embedding_kernel<T, N>, narrow = embedding_kernel<T, 1>;
    const gpu_digits rows = gpu_digits_of(vocabulary);
    if (tokens == 0 || in == 0)
        return;
    if (gpu_aligned<N>((T *)y, in) && gpu_aligned<N>((const T *)table) &&
        gpu_aligned<N>((const T *)positions))
        GPU_LAUNCH(cuda, wide, (unsigned)tokens, gpu_row_threads(in / N, THREADS), 0, (T *)y, ids,
                   position_of, (const T *)table, (const T *)positions, in, rows);
    else
        GPU_LAUNCH(cuda, narrow, (unsigned)tokens, gpu_row_threads(in, THREADS), 0, (T *)y, ids,
                   position_of, (const T *)table, (const T *)positions, in, rows);
}

/* Whether an earlier token has the name; all lanes look at 32 at a time. */
static __device__ __forceinline__ bool has_come(const int32_t *names, int64_t t, int32_t name)
{
    const int lane = (int)threadIdx.x;
    for (int64_t first = 0; first < t; first += GPU_WARP) {
        const int64_t i = first + lane;
        if (__any_sync(GPU_ALL_LANES, i < t && names[i] == name))
            return true;
    }
    return false;
}

/* The row of a name gets what all tokens of that name give it, in their order: a warp sums for the
 * first of them, each lane N features. No two warps write one row, and nothing is added twice. */
template <class T, int N>
static __global__ void __launch_bounds__(GPU_WARP *GATHER_WARPS)
    gather_kernel(T *table, const int32_t *names, const T *dy, int64_t tokens, int64_t in,
                  GPU_GRID_CONSTANT gpu_digits rows)
{
    const int64_t t = (int64_t)blockIdx.x * GATHER_WARPS + threadIdx.y;
    const int64_t column = ((int64_t)blockIdx.y * GPU_WARP + threadIdx.x) * N;
    if (t >= tokens)
        return;
    const int32_t name = names[t];
    const int64_t row = gpu_digits_local(rows, name);
    if (row < 0 || has_come(names, t, name))
        return;
    float sum[N] = {};
    for (int64_t first = t; first < tokens; first += GPU_WARP) {
        const int64_t mine = first + threadIdx.x;
        unsigned same = __ballot_sync(GPU_ALL_LANES, mine < tokens && names[mine] == name);
        while (same != 0) {
            const int64_t from = first + __ffs((int)same) - 1;
            same &= same - 1;
            if (column >= in)
                continue;
            const gpu_chunk<T, N> given = gpu_get<N>(dy + from * in + column);
            GPU_UNROLL
            for (int j = 0; j < N; j++)
                sum[j] += gpu_load(given.at[j]);
        }
    }
    if (column >= in)
        return;
    gpu_chunk<T, N> to = gpu_get<N>(table + row * in + column);
    GPU_UNROLL
    for (int j = 0; j < N; j++)
        to.at[j] = gpu_store<T>(gpu_load(to.at[j]) + sum[j]);
    gpu_put(table + row * in + column, to);
}

template <class T, int N>
static void launch_gather(struct sbp_cuda *cuda, T *table, const int32_t *names, const T *dy,
                          int64_t tokens, int64_t in, const gpu_digits &rows)
{
    const dim3 grid((unsigned)gpu_ceil(tokens, GATHER_WARPS),
                    (unsigned)gpu_ceil(in, (int64_t)GPU_WARP * N));
    const auto kernel = gather_kernel<T, N>;
    if (tokens > 0 && in > 0)
        GPU_LAUNCH(cuda, kernel, grid, dim3(GPU_WARP, GATHER_WARPS), 0, table, names, dy, tokens,
                   in, rows);
}

template <class T>
static void gather(struct sbp_cuda *cuda, T *table, const int32_t *names, const T *dy,
                   int64_t tokens, int64_t in, int64_t table_rows, const gpu_digits &rows,
                   bool adds)
{
    constexpr int N = gpu_width<T>;
    if (!adds)
        gpu_zero(cuda, table, table_rows * in * (int64_t)sizeof(T));
    if (gpu_aligned<N>(table, in) && gpu_aligned<N>(dy))
        launch_gather<T, N>(cuda, table, names, dy, tokens, in, rows);
    else
        launch_gather<T, 1>(cuda, table, names, dy, tokens, in, rows);
}

template <class T>
static void embedding_backward(struct sbp_cuda *cuda, void *dtable, void *dpositions,
                               const int32_t *ids, const int32_t *position_of, const void *dy,
                               int64_t tokens, int64_t in, int64_t position_rows,
                               const struct sbp_digits *vocabulary, unsigned adds)
{
    struct sbp_digits whole = {};
    whole.rest = position_rows;
    gather(cuda, (T *)dtable, ids, (const T *)dy, tokens, in, sbp_digits_local_size(vocabulary),
           gpu_digits_of(vocabulary), (adds & SBP_ADDS_FIRST) != 0);
    if (dpositions != NULL)
        gather(cuda, (T *)dpositions, position_of, (const T *)dy, tokens, in, position_rows,
               gpu_digits_of(&whole), (adds & SBP_ADDS_REST) != 0);
}

/* ---- cross-entropy: a block a token --------------------------------------------------------- */

/* The greatest so far and the sum of exponentials relative to it. */
struct running {
    float maximum, sum;
};

/* Of nothing and nothing it is nothing. */
static __device__ __forceinline__ running join(running a, running b)
{
    const float maximum = fmaxf(a.maximum, b.maximum);
    if (maximum == -INFINITY)
        return running{maximum, 0};
    return running{maximum, a.sum * expf(a.maximum - maximum) + b.sum * expf(b.maximum - maximum)};
}

static __device__ __forceinline__ running block_join(running mine)
{
    GPU_SHARED(running, partial, GPU_WARP);
    const int warps = (int)blockDim.x / GPU_WARP;
    for (int offset = GPU_WARP / 2; offset > 0; offset /= 2)
        mine = join(mine, running{__shfl_xor_sync(GPU_ALL_LANES, mine.maximum, offset),
                                  __shfl_xor_sync(GPU_ALL_LANES, mine.sum, offset)});
    if (threadIdx.x % GPU_WARP == 0)
        partial[threadIdx.x / GPU_WARP] = mine;
    __syncthreads();
    mine = partial[0];
    for (int w = 1; w < warps; w++)
        mine = join(mine, partial[w]);
    return mine;
}

/* The greatest of the first `valid` logits. */
template <class T, int N>
static __device__ __forceinline__ float thread_maximum(const T *row, int64_t valid)
{
    float largest = -INFINITY;
    for (int64_t i = (int64_t)threadIdx.x * N; i < valid; i += (int64_t)blockDim.x * N) {
        const gpu_chunk<T, N> z = gpu_get<N>(row + i);
        GPU_UNROLL
        for (int j = 0; j < N; j++)
            if (i + j < valid)
                largest = fmaxf(largest, gpu_load(z.at[j]));
    }
    return largest;
}

template <class T, int N>
static __global__ void __launch_bounds__(THREADS)
    maxima_kernel(float *maxima, const T *logits, int64_t local, int64_t valid)
{
    float largest[1] = {thread_maximum<T, N>(logits + blockIdx.x * local, valid)};
    gpu_block_reduce(largest, gpu_max());
    if (threadIdx.x == 0)
        maxima[blockIdx.x] = largest[0];
}

/* sums(T,2): the sum, and the label's logit if it is here, relative to the maximum. */
template <class T>
static __device__ __forceinline__ void put_sums(float *sums, const T *row, int64_t label,
                                                bool is_ignored, running of)
{
    float *const to = sums + 2 * (int64_t)blockIdx.x;
    to[0] = is_ignored ? 0 : of.sum;
    to[1] = !is_ignored && label >= 0 ? gpu_load(row[label]) - of.maximum : 0;
}

/* WHOLE: maxima are found on the way (Milakov and Gimelshein, 2018), else read. */
template <class T, int N, bool WHOLE>
static __global__ void __launch_bounds__(THREADS)
    sums_kernel(float *maxima, float *sums, const T *logits, const int32_t *labels, int64_t local,
                int64_t valid, GPU_GRID_CONSTANT gpu_digits vocabulary)
{
    const T *const row = logits + blockIdx.x * local;
    running mine = {WHOLE ? -INFINITY : maxima[blockIdx.x], 0};
    for (int64_t i = (int64_t)threadIdx.x * N; i < valid; i += (int64_t)blockDim.x * N) {
        const gpu_chunk<T, N> z = gpu_get<N>(row + i);
        float largest = mine.maximum, sum = 0;
        GPU_UNROLL
        for (int j = 0; j < N && WHOLE; j++)
            largest = i + j < valid ? fmaxf(largest, gpu_load(z.at[j])) : largest;
        const float shift = largest == -INFINITY ? 0 : largest; /* none but -inf so far */
        GPU_UNROLL
        for (int j = 0; j < N; j++)
            sum += i + j < valid ? expf(gpu_load(z.at[j]) - shift) : 0;
        mine.sum = (WHOLE ? mine.sum * expf(mine.maximum - shift) : mine.sum) + sum;
        mine.maximum = largest;
    }
    if (WHOLE) {
        mine = block_join(mine);
    } else {
        float sum[1] = {mine.sum};
        gpu_block_reduce(sum, gpu_plus());
        mine.sum = sum[0];
    }
    if (threadIdx.x != 0)
        return;
    if (WHOLE)
        maxima[blockIdx.x] = mine.maximum;
    const int32_t label = labels[blockIdx.x];
    put_sums(sums, row, gpu_digits_local(vocabulary, label < 0 ? 0 : label), label < 0, mine);
}

/* One block, in an order that the number of tokens fixes. */
static __global__ void __launch_bounds__(THREADS)
    loss_kernel(float *sum, const float *sums, int64_t tokens)
{
    double total[1] = {0};
    for (int64_t t = threadIdx.x; t < tokens; t += blockDim.x)
        total[0] += sums[2 * t] != 0 ? (double)(logf(sums[2 * t]) - sums[2 * t + 1]) : 0;
    gpu_block_reduce(total, gpu_plus());
    if (threadIdx.x == 0)
        *sum = (float)total[0];
}

template <class T, int N>
static __global__ void __launch_bounds__(THREADS)
    backward_kernel(T *dlogits, const T *logits, const int32_t *labels, const float *maxima,
                    const float *sums, int64_t local, int64_t valid, float factor,
                    const struct sbp_step_state *step, GPU_GRID_CONSTANT gpu_digits vocabulary)
{
    const int64_t t = blockIdx.x;
    const bool is_ignored = labels[t] < 0;
    const int64_t label = gpu_digits_local(vocabulary, is_ignored ? 0 : labels[t]);
    const float all = is_ignored ? 0 : step != NULL ? factor * (float)step->loss_scale : factor;
    const float largest = maxima[t], scale = is_ignored ? 0 : all / sums[2 * t];
    for (int64_t i = (int64_t)threadIdx.x * N; i < local; i += (int64_t)blockDim.x * N) {
        const gpu_chunk<T, N> z = gpu_get<N>(logits + t * local + i);
        gpu_chunk<T, N> to;
        GPU_UNROLL
        for (int j = 0; j < N; j++) {
            const float p = i + j < valid ? expf(gpu_load(z.at[j]) - largest) * scale : 0;
            to.at[j] = gpu_store<T>(i + j == label ? p - all : p);
        }
        gpu_put(dlogits + t * local + i, to);
    }
}

/* ---- launches ------------------------------------------------------------------------------- */

template <class T>
static void maxima(struct sbp_cuda *cuda, void *to, const void *logits, int64_t tokens,
                   int64_t local, const struct sbp_digits *vocabulary, int64_t valid)
{
    constexpr int N = gpu_width<T>;
    const int64_t below = gpu_digits_below(vocabulary, valid);
    const auto wide = maxima_kernel<T, N>, narrow = maxima_kernel<T, 1>;
    if (tokens == 0)
        return;
    if (gpu_aligned<N>((const T *)logits, local))
        GPU_LAUNCH(cuda, wide, (unsigned)tokens, gpu_row_threads(local / N, THREADS), 0,
                   (float *)to, (const T *)logits, local, below);
    else
        GPU_LAUNCH(cuda, narrow, (unsigned)tokens, gpu_row_threads(local, THREADS), 0, (float *)to,
                   (const T *)logits, local, below);
}

template <class T, bool WHOLE>
static void launch_sums(struct sbp_cuda *cuda, float *maxima, float *sums, const T *logits,
                        const int32_t *labels, int64_t tokens, int64_t local,
                        const struct sbp_digits *vocabulary, int64_t valid)
{
    constexpr int N = gpu_width<T>;
    const int64_t below = gpu_digits_below(vocabulary, valid);
    const gpu_digits rows = gpu_digits_of(vocabulary);
    const auto wide = sums_kernel<T, N, WHOLE>, narrow = sums_kernel<T, 1, WHOLE>;
    if (tokens == 0)
        return;
    if (gpu_aligned<N>(logits, local))
        GPU_LAUNCH(cuda, wide, (unsigned)tokens, gpu_row_threads(local / N, THREADS), 0, maxima,
                   sums, logits, labels, local, below, rows);
    else
        GPU_LAUNCH(cuda, narrow, (unsigned)tokens, gpu_row_threads(local, THREADS), 0, maxima, sums,
                   logits, labels, local, below, rows);
}

template <class T>
static void sums(struct sbp_cuda *cuda, void *to, const void *logits, const int32_t *labels,
                 const void *maxima, int64_t tokens, int64_t local,
                 const struct sbp_digits *vocabulary, int64_t valid)
{
    launch_sums<T, false>(cuda, (float *)maxima, (float *)to, (const T *)logits, labels, tokens,
                          local, vocabulary, valid);
}

template <class T>
static void whole_sums(struct sbp_cuda *cuda, void *maxima, void *to, const void *logits,
                       const int32_t *labels, int64_t tokens, int64_t local, int64_t valid)
{
    struct sbp_digits whole = {};
    whole.rest = local;
    launch_sums<T, true>(cuda, (float *)maxima, (float *)to, (const T *)logits, labels, tokens,
                         local, &whole, valid);
}

static void loss(struct sbp_cuda *cuda, void *sum, const void *sums, int64_t tokens)
{
    GPU_LAUNCH(cuda, loss_kernel, 1, THREADS, 0, (float *)sum, (const float *)sums, tokens);
}

template <class T>
static void backward(struct sbp_cuda *cuda, void *dlogits, const void *logits,
                     const int32_t *labels, const void *maxima, const void *sums, int64_t tokens,
                     int64_t local, const struct sbp_digits *vocabulary, int64_t valid,
                     double factor, const struct sbp_step_state *step)
{
    constexpr int N = gpu_width<T>;
    const int64_t below = gpu_digits_below(vocabulary, valid);
    const gpu_digits rows = gpu_digits_of(vocabulary);
    const auto wide = backward_kernel<T, N>, narrow = backward_kernel<T, 1>;
    if (tokens == 0)
        return;
    if (gpu_aligned<N>((const T *)logits, local) && gpu_aligned<N>((T *)dlogits))
        GPU_LAUNCH(cuda, wide, (unsigned)tokens, gpu_row_threads(local / N, THREADS), 0,
                   (T *)dlogits, (const T *)logits, labels, (const float *)maxima,
                   (const float *)sums, local, below, (float)factor, step, rows);
    else
        GPU_LAUNCH(cuda, narrow, (unsigned)tokens, gpu_row_threads(local, THREADS), 0, (T *)dlogits,
                   (const T *)logits, labels, (const float *)maxima, (const float *)sums, local,
                   below, (float)factor, step, rows);
}

template <class T> static void fill(struct sbp_cuda_kernels *kernels)
{
    kernels->embedding_forward = embedding_forward<T>;
    kernels->embedding_backward = embedding_backward<T>;
    kernels->cross_entropy_maxima = maxima<T>;
    kernels->cross_entropy_sums = sums<T>;
    kernels->cross_entropy_whole_sums = whole_sums<T>;
    kernels->cross_entropy_loss = loss;
    kernels->cross_entropy_backward = backward<T>;
}
GPU_FILL(vocabulary, embedding_kernel<float, 1>)
