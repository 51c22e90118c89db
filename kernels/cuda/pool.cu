/* Pools: the largest element or the mean of each window. Gradients are gathered by the input's
 * places, from all windows that have them.
 *
 * A thread makes N neighbours in a row and writes them at once. It reads elements one by one: those
 * of neighbouring windows begin anywhere and lie a stride apart. */
#include "kernels/cuda/windows.cuh"

enum { THREADS = 256, BYTE_PLACES = 256 /* of a window whose indices are bytes */ };

/* An element's place in images of so many rows of channels. */
struct element {
    int64_t image;
    int row, channel, column;
};

static __device__ __forceinline__ element element_at(int64_t index, int channels, int height,
                                                     int width)
{
    element at;
    at.column = (int)(index % width);
    index /= width;
    at.channel = (int)(index % channels);
    index /= channels;
    at.row = (int)(index % height);
    at.image = index / height;
    return at;
}

/* The rows of a window that lie within the image, or the rows of windows that have a place: first
 * .. end - 1. */
struct span {
    int first, end;
};

static __device__ __forceinline__ span taps(const gpu_windows &w, int out)
{
    const int start = out * w.stride[0] - w.padding[0], left = w.height - start;
    return span{start < 0 ? -start : 0, w.kernel[0] < left ? w.kernel[0] : left};
}

static __device__ __forceinline__ span outputs(const gpu_windows &w, int place)
{
    const int reached = place + w.padding[0], before = reached - w.kernel[0] + 1;
    const int end = reached / w.stride[0] + 1;
    return span{before > 0 ? (before + w.stride[0] - 1) / w.stride[0] : 0,
                w.out_height < end ? w.out_height : end};
}

/* The first element of a channel in a row of an image, or of the outputs. */
static __device__ __forceinline__ int64_t in_row(const gpu_windows &w, const element &at, int row)
{
    return ((at.image * w.height + row) * w.channels + at.channel) * w.width;
}

static __device__ __forceinline__ int64_t out_row(const gpu_windows &w, const element &at, int row)
{
    return ((at.image * w.out_height + row) * w.channels + at.channel) * w.out_width;
}

template <class T, int N>
static __device__ __forceinline__ void put_shares(T *to, const float (&sum)[N], float share)
{
    gpu_chunk<T, N> chunk;
    GPU_UNROLL
    for (int n = 0; n < N; n++)
        chunk.at[n] = gpu_store<T>(sum[n] * share);
    gpu_put(to, chunk);
}

/* Takes an element, a tap's, for each of N neighbouring windows where it is larger than what they
 * have; `column` is the first window's. */
template <class T, int N>
static __device__ __forceinline__ void keep_larger(gpu_chunk<T, N> &kept, int (&taps)[N],
                                                   const T *row, const gpu_windows &w, int column,
                                                   int tap)
{
    GPU_UNROLL
    for (int n = 0; n < N; n++) {
        const int at = column + n * w.stride[1];
        if (at < 0 || at >= w.width)
            continue;
        const T from = row[at];
        const float value = gpu_load(from);
        if (value > gpu_load(kept.at[n]) || value != value) {
            kept.at[n] = from;
            taps[n] = tap;
        }
    }
}

/* The largest of each window, and the first tap that has it. */
template <class T, class Index, int N>
static __global__ void __launch_bounds__(THREADS)
    largest_kernel(T *y, Index *index, const T *x, gpu_windows w, int64_t chunks)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t to = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; to < chunks; to += step) {
        const element at = element_at(to * N, w.channels, w.out_height, w.out_width);
        const span down = taps(w, at.row);
        const int top = at.row * w.stride[0] - w.padding[0];
        const int left = at.column * w.stride[1] - w.padding[1];
        gpu_chunk<T, N> kept;
        int tap[N];
        GPU_UNROLL
        for (int n = 0; n < N; n++) { /* nothing is larger where all are -infinity */
            const int before = -left - n * w.stride[1];
            kept.at[n] = gpu_store<T>(-INFINITY);
            tap[n] = down.first * w.kernel[1] + (before > 0 ? before : 0);
        }
        for (int i = down.first; i < down.end; i++) {
            const T *const row = x + in_row(w, at, top + i);
            for (int j = 0; j < w.kernel[1]; j++)
                keep_larger(kept, tap, row, w, left + j, i * w.kernel[1] + j);
        }
        gpu_chunk<Index, N> place;
        GPU_UNROLL
        for (int n = 0; n < N; n++)
            place.at[n] = (Index)tap[n];
        gpu_put(y + to * N, kept);
        gpu_put(index + to * N, place);
    }
}

template <class T, int N>
static __global__ void __launch_bounds__(THREADS)
    mean_kernel(T *y, const T *x, gpu_windows w, float share, int64_t chunks)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t to = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; to < chunks; to += step) {
        const element at = element_at(to * N, w.channels, w.out_height, w.out_width);
        const span down = taps(w, at.row);
        const int top = at.row * w.stride[0] - w.padding[0];
        const int left = at.column * w.stride[1] - w.padding[1];
        float sum[N] = {};
        for (int i = down.first; i < down.end; i++) {
            const T *const row = x + in_row(w, at, top + i);
            for (int j = 0; j < w.kernel[1]; j++) {
                GPU_UNROLL
                for (int n = 0; n < N; n++) {
                    const int column = left + j + n * w.stride[1];
                    sum[n] += column >= 0 && column < w.width ? gpu_load(row[column]) : 0;
                }
            }
        }
        put_shares(y + to * N, sum, share);
    }
}

/* Gradients of N neighbouring places of the input. A place gets the gradients of the windows whose
 * index names it; without an index it gets a share of those of all windows that contain it. */
template <class T, class Index, int N>
static __global__ void __launch_bounds__(THREADS)
    gather_kernel(T *dx, const Index *index, const T *dy, gpu_windows w, float share,
                  int64_t chunks)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    const int most = (w.kernel[1] - 1) / w.stride[1]; /* windows of a place before its last one */
    for (int64_t to = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; to < chunks; to += step) {
        const element at = element_at(to * N, w.channels, w.height, w.width);
        const span down = outputs(w, at.row);
        float sum[N] = {};
        for (int i = down.first; i < down.end; i++) {
            const int64_t row = out_row(w, at, i);
            const int tap_row = (at.row + w.padding[0] - i * w.stride[0]) * w.kernel[1];
            for (int before = most; before >= 0; before--) {
                GPU_UNROLL
                for (int n = 0; n < N; n++) {
                    const int reached = at.column + n + w.padding[1];
                    const int column = reached / w.stride[1] - before;
                    const int tap = reached - column * w.stride[1];
                    if (column >= 0 && column < w.out_width && tap < w.kernel[1] &&
                        (index == nullptr || (int)index[row + column] == tap_row + tap))
                        sum[n] += gpu_load(dy[row + column]);
                }
            }
        }
        put_shares(dx + to * N, sum, share);
    }
}

/* ---- launches -------------------------------------------------------------------------------- */

static int64_t inputs_of(const struct sbp_windows *of)
{
    return of->batch * of->height * of->channels * of->width;
}

static int64_t outputs_of(const struct sbp_windows *of)
{
    return of->batch * of->out_height * of->channels * of->out_width;
}

static bool has_bytes(const struct sbp_windows *of)
{
    return of->kernel[0] * of->kernel[1] <= BYTE_PLACES;
}

static float share_of(const struct sbp_windows *of)
{
    return (float)(1 / ((double)of->kernel[0] * (double)of->kernel[1]));
}

/* Windows whose indices are no bytes are rare: their elements are written one by one. */
template <class T, class Index> constexpr int width_of = sizeof(Index) == 1 ? gpu_width<T> : 1;

template <class T, class Index>
static void launch_largest(struct sbp_cuda *cuda, T *y, Index *index, const T *x,
                           const struct sbp_windows *of)
{
    constexpr int N = width_of<T, Index>;
    const bool is_wide = gpu_aligned<N>(y, of->out_width) && gpu_aligned<N>(index);
    const int64_t chunks = outputs_of(of) / (is_wide ? N : 1);
    const auto kernel = is_wide ? largest_kernel<T, Index, N> : largest_kernel<T, Index, 1>;
    if (chunks > 0)
        GPU_LAUNCH(cuda, kernel, gpu_loop_blocks(cuda, chunks, THREADS), THREADS, 0, y, index, x,
                   gpu_windows_of(of), chunks);
}

template <class T, class Index>
static void launch_gather(struct sbp_cuda *cuda, void *dx, const Index *index, const void *dy,
                          const struct sbp_windows *of, float share)
{
    constexpr int N = width_of<T, Index>;
    const bool is_wide = gpu_aligned<N>((const T *)dx, of->width);
    const int64_t chunks = inputs_of(of) / (is_wide ? N : 1);
    const auto kernel = is_wide ? gather_kernel<T, Index, N> : gather_kernel<T, Index, 1>;
    if (chunks > 0)
        GPU_LAUNCH(cuda, kernel, gpu_loop_blocks(cuda, chunks, THREADS), THREADS, 0, (T *)dx, index,
                   (const T *)dy, gpu_windows_of(of), share, chunks);
}

template <class T>
static void largest(struct sbp_cuda *cuda, void *y, void *index, const void *x,
                    const struct sbp_windows *windows)
{
    if (has_bytes(windows))
        launch_largest(cuda, (T *)y, (uint8_t *)index, (const T *)x, windows);
    else
        launch_largest(cuda, (T *)y, (int32_t *)index, (const T *)x, windows);
}

template <class T>
static void largest_gradient(struct sbp_cuda *cuda, void *dx, const void *index, const void *dy,
                             const struct sbp_windows *windows)
{
    if (has_bytes(windows))
        launch_gather<T>(cuda, dx, (const uint8_t *)index, dy, windows, 1);
    else
        launch_gather<T>(cuda, dx, (const int32_t *)index, dy, windows, 1);
}

template <class T>
static void mean(struct sbp_cuda *cuda, void *y, const void *x, const struct sbp_windows *windows)
{
    constexpr int N = gpu_width<T>;
    const bool is_wide = gpu_aligned<N>((const T *)y, windows->out_width);
    const int64_t chunks = outputs_of(windows) / (is_wide ? N : 1);
    const auto kernel = is_wide ? mean_kernel<T, N> : mean_kernel<T, 1>;
    if (chunks > 0)
        GPU_LAUNCH(cuda, kernel, gpu_loop_blocks(cuda, chunks, THREADS), THREADS, 0, (T *)y,
                   (const T *)x, gpu_windows_of(windows), share_of(windows), chunks);
}

template <class T>
static void mean_gradient(struct sbp_cuda *cuda, void *dx, const void *dy,
                          const struct sbp_windows *windows)
{
    launch_gather<T>(cuda, dx, (const uint8_t *)NULL, dy, windows, share_of(windows));
}

template <class T> static void fill(struct sbp_cuda_kernels *kernels)
{
    kernels->maxpool_forward = largest<T>;
    kernels->maxpool_backward = largest_gradient<T>;
    kernels->avgpool_forward = mean<T>;
    kernels->avgpool_backward = mean_gradient<T>;
}
GPU_FILL(pool, mean_kernel<float, 1>)
