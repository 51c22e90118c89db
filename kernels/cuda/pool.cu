/* Pools: the largest element or the mean of each window, a thread an element. Gradients are
 * gathered by the input's places, from all windows that have them. */
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

/* The taps of a window along one side that lie within the image, or the windows that have a place:
 * first .. end - 1. */
struct span {
    int first, end;
};

static __device__ __forceinline__ span taps(const gpu_windows &w, int side, int out, int size)
{
    const int start = out * w.stride[side] - w.padding[side], left = size - start;
    return span{start < 0 ? -start : 0, w.kernel[side] < left ? w.kernel[side] : left};
}

static __device__ __forceinline__ span outputs(const gpu_windows &w, int side, int place, int size)
{
    const int reached = place + w.padding[side], before = reached - w.kernel[side] + 1;
    const int end = reached / w.stride[side] + 1;
    return span{before > 0 ? (before + w.stride[side] - 1) / w.stride[side] : 0,
                size < end ? size : end};
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

template <class T, class Index>
static __global__ void __launch_bounds__(THREADS)
    largest_kernel(T *y, Index *index, const T *x, gpu_windows w, int64_t n)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t to = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; to < n; to += step) {
        const element at = element_at(to, w.channels, w.out_height, w.out_width);
        const span down = taps(w, 0, at.row, w.height), right = taps(w, 1, at.column, w.width);
        const int top = at.row * w.stride[0] - w.padding[0];
        const int left = at.column * w.stride[1] - w.padding[1];
        float largest = -INFINITY;
        T kept = x[in_row(w, at, top + down.first) + left + right.first];
        int tap = down.first * w.kernel[1] + right.first;
        for (int i = down.first; i < down.end; i++)
            for (int j = right.first; j < right.end; j++) {
                const T from = x[in_row(w, at, top + i) + left + j];
                const float value = gpu_load(from);
                if (value > largest || value != value) {
                    largest = value;
                    kept = from;
                    tap = i * w.kernel[1] + j;
                }
            }
        y[to] = kept;
        index[to] = (Index)tap;
    }
}

template <class T>
static __global__ void __launch_bounds__(THREADS)
    mean_kernel(T *y, const T *x, gpu_windows w, float share, int64_t n)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t to = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; to < n; to += step) {
        const element at = element_at(to, w.channels, w.out_height, w.out_width);
        const span down = taps(w, 0, at.row, w.height), right = taps(w, 1, at.column, w.width);
        const int top = at.row * w.stride[0] - w.padding[0];
        const int left = at.column * w.stride[1] - w.padding[1];
        float sum = 0;
        for (int i = down.first; i < down.end; i++)
            for (int j = right.first; j < right.end; j++)
                sum += gpu_load(x[in_row(w, at, top + i) + left + j]);
        y[to] = gpu_store<T>(sum * share);
    }
}

/* What windows give to a place: those that chose it, or, without an index, all alike. */
template <class T, class Index>
static __global__ void __launch_bounds__(THREADS)
    gather_kernel(T *dx, const Index *index, const T *dy, gpu_windows w, float share, int64_t n)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t to = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; to < n; to += step) {
        const element at = element_at(to, w.channels, w.height, w.width);
        const span down = outputs(w, 0, at.row, w.out_height);
        const span right = outputs(w, 1, at.column, w.out_width);
        float sum = 0;
        for (int i = down.first; i < down.end; i++)
            for (int j = right.first; j < right.end; j++) {
                const int64_t from = out_row(w, at, i) + j;
                const int tap = (at.row + w.padding[0] - i * w.stride[0]) * w.kernel[1] +
                                at.column + w.padding[1] - j * w.stride[1];
                if (index == nullptr || (int)index[from] == tap)
                    sum += gpu_load(dy[from]);
            }
        dx[to] = gpu_store<T>(sum * share);
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

template <class T, class Index>
static void launch_largest(struct sbp_cuda *cuda, T *y, Index *index, const T *x,
                           const struct sbp_windows *of)
{
    const int64_t n = outputs_of(of);
    const auto kernel = largest_kernel<T, Index>;
    if (n > 0)
        GPU_LAUNCH(cuda, kernel, gpu_loop_blocks(cuda, n, THREADS), THREADS, 0, y, index, x,
                   gpu_windows_of(of), n);
}

template <class T, class Index>
static void launch_gather(struct sbp_cuda *cuda, void *dx, const Index *index, const void *dy,
                          const struct sbp_windows *of, float share)
{
    const int64_t n = inputs_of(of);
    const auto kernel = gather_kernel<T, Index>;
    if (n > 0)
        GPU_LAUNCH(cuda, kernel, gpu_loop_blocks(cuda, n, THREADS), THREADS, 0, (T *)dx, index,
                   (const T *)dy, gpu_windows_of(of), share, n);
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
    const int64_t n = outputs_of(windows);
    if (n > 0)
        GPU_LAUNCH(cuda, mean_kernel<T>, gpu_loop_blocks(cuda, n, THREADS), THREADS, 0, (T *)y,
                   (const T *)x, gpu_windows_of(windows), share_of(windows), n);
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
GPU_FILL(pool, mean_kernel<float>)
