/* cuBLAS makes the products of convolutions (executor/gpu/images_cuda.c), these kernels do the
 * rest: they write the terms of windows (Chetlur et al., cuDNN, 2014, section 3.2) and what outputs
 * give to places of the input, both as matrices of some places, and turn such matrices into rows of
 * images and back.
 *
 * A place is (image, row, column); the terms of a window are (input channel, kernel row, kernel
 * column), as the rows of a weight are. A thread has N neighbouring places, all of one row of an
 * image: matrices are written 16 bytes at a time, and read where images lie alike. */
#include "kernels/cuda/channels.cuh"
#include "kernels/cuda/windows.cuh"

enum { THREADS = 256, MOST_LINES = 65535 /* blocks of a grid's second dimension */ };

/* A place of images that are so large. */
struct spot {
    int64_t image;
    int row, column;
};

static __device__ __forceinline__ spot spot_at(int64_t index, int height, int width)
{
    const int64_t row = index / width;
    return spot{row / height, (int)(row % height), (int)(index % width)};
}

/* Where a row of an image begins in a channel: in the block, or around it; nullptr: it is one of
 * zeros. */
template <class T>
static __device__ __forceinline__ const T *row_at(const T *x, const gpu_windows &w, int64_t image,
                                                  int row, int64_t channel)
{
    if (row >= 0 && row < w.height)
        return x + ((image * w.height + row) * w.channels + channel) * w.width;
    if (row < -w.above || row >= w.height + w.below)
        return nullptr;
    const int64_t place = row < 0 ? row + w.above : row - w.height + w.above;
    return (const T *)w.around + ((place * w.batch + image) * w.channels + channel) * w.width;
}

/* Elements of a row, of so many, at (first + j up) / down, where that is whole and within it; else
 * zeros. One of up and down is 1. */
template <int N, class T>
static __device__ __forceinline__ gpu_chunk<T, N> get_spread(const T *row, int size, int first,
                                                             int up, int down)
{
    gpu_chunk<T, N> to;
    if (N > 1 && row != nullptr && up == down && first >= 0 && first + N <= size &&
        (uintptr_t)(row + first) % sizeof to == 0)
        return gpu_get<N>(row + first);
    GPU_UNROLL
    for (int j = 0; j < N; j++) {
        const int at = first + j * up, column = at / down;
        const bool is_within = row != nullptr && at >= 0 && at % down == 0 && column < size;
        to.at[j] = is_within ? row[column] : gpu_store<T>(0);
    }
    return to;
}

/* to(lines, places): a line is a term. */
template <class T, int N>
static __global__ void __launch_bounds__(THREADS)
    windows_kernel(T *to, const T *x, gpu_windows w, int64_t first_term, int64_t lines,
                   int64_t first_place, int64_t places)
{
    const int64_t place = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    const int area = w.kernel[0] * w.kernel[1];
    if (place >= places)
        return;
    const spot at = spot_at(first_place + place, w.out_height, w.out_width);
    for (int64_t line = blockIdx.y; line < lines; line += gridDim.y) {
        const int64_t channel = (first_term + line) / area;
        const int tap = (int)((first_term + line) % area);
        const T *row = row_at(x, w, at.image,
                              at.row * w.stride[0] - w.padding[0] + tap / w.kernel[1], channel);
        const int column = at.column * w.stride[1] - w.padding[1] + tap % w.kernel[1];
        gpu_put(to + line * places + place, get_spread<N>(row, w.width, column, w.stride[1], 1));
    }
}

/* to(lines, places): a line is (tap, output channel), a place one of the input. */
template <class T, int N>
static __global__ void __launch_bounds__(THREADS)
    sources_kernel(T *to, const T *dy, gpu_windows w, int64_t out, int64_t lines,
                   int64_t first_place, int64_t places)
{
    const int64_t place = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    if (place >= places)
        return;
    const spot at = spot_at(first_place + place, w.height, w.width);
    for (int64_t line = blockIdx.y; line < lines; line += gridDim.y) {
        const int tap = (int)(line / out);
        const int down = at.row + w.padding[0] - tap / w.kernel[1], row = down / w.stride[0];
        const int right = at.column + w.padding[1] - tap % w.kernel[1];
        const bool is_within = down >= 0 && down % w.stride[0] == 0 && row < w.out_height;
        const int64_t image_row = (at.image * w.out_height + row) * out + line % out;
        const T *const from = is_within ? dy + image_row * w.out_width : nullptr;
        gpu_put(to + line * places + place,
                get_spread<N>(from, w.out_width, right, 1, w.stride[1]));
    }
}

/* Rows of images x(rows, channels, width) as to(channels, places). */
template <class T, int N>
static __global__ void __launch_bounds__(THREADS)
    take_kernel(T *to, const T *x, int64_t channels, int64_t width, int64_t first_place,
                int64_t places)
{
    const int64_t place = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    const int64_t row = (first_place + place) / width, column = (first_place + place) % width;
    if (place < places)
        for (int64_t c = blockIdx.y; c < channels; c += gridDim.y)
            gpu_put(to + c * places + place, gpu_get<N>(x + (row * channels + c) * width + column));
}

/* The other way, [+ bias(channels)]. */
template <class T, int N>
static __global__ void __launch_bounds__(THREADS)
    put_kernel(T *x, const float *from, const T *bias, int64_t channels, int64_t width,
               int64_t first_place, int64_t places)
{
    const int64_t place = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    const int64_t row = (first_place + place) / width, column = (first_place + place) % width;
    if (place >= places)
        return;
    for (int64_t c = blockIdx.y; c < channels; c += gridDim.y) {
        const gpu_chunk<float, N> at = gpu_get<N>(from + c * places + place);
        const float added = bias == nullptr ? 0 : gpu_load(bias[c]);
        gpu_chunk<T, N> to;
        GPU_UNROLL
        for (int j = 0; j < N; j++)
            to.at[j] = gpu_store<T>(at.at[j] + added);
        gpu_put(x + (row * channels + c) * width + column, to);
    }
}

template <class T, int N> struct channel_source {
    const T *x;
    int64_t channels, width;
    __device__ __forceinline__ void add(float (&sum)[1], int64_t row, int64_t channel,
                                        int64_t column) const
    {
        const gpu_chunk<T, N> at = gpu_get<N>(x + (row * channels + channel) * width + column);
        GPU_UNROLL
        for (int j = 0; j < N; j++)
            sum[0] += gpu_load(at.at[j]);
    }
};

template <class T> struct sum_result {
    T *to;
    bool adds;
    __device__ __forceinline__ void put(int64_t channel, const float (&sum)[1]) const
    {
        to[channel] = gpu_store<T>((adds ? gpu_load(to[channel]) : 0) + sum[0]);
    }
};

/* ---- launches -------------------------------------------------------------------------------- */

static dim3 grid_of(int64_t chunks, int64_t lines)
{
    return dim3((unsigned)gpu_ceil(chunks, THREADS), (unsigned)sbp_least_i64(lines, MOST_LINES));
}

/* Whether chunks of a matrix's places lie in one row of an image each. */
template <int N, class T>
static bool is_whole(const T *matrix, int64_t width, int64_t first_place, int64_t places)
{
    return gpu_aligned<N>(matrix, places) && width % N == 0 && first_place % N == 0;
}

template <class T>
static void windows(struct sbp_cuda *cuda, void *to, const void *x, const struct sbp_windows *of,
                    int64_t first_term, int64_t terms, int64_t first_place, int64_t places)
{
    constexpr int N = gpu_width<T>;
    const bool is_wide = is_whole<N>((const T *)to, of->out_width, first_place, places);
    const auto kernel = is_wide ? windows_kernel<T, N> : windows_kernel<T, 1>;
    if (terms > 0 && places > 0)
        GPU_LAUNCH(cuda, kernel, grid_of(places / (is_wide ? N : 1), terms), THREADS, 0, (T *)to,
                   (const T *)x, gpu_windows_of(of), first_term, terms, first_place, places);
}

template <class T>
static void sources(struct sbp_cuda *cuda, void *to, const void *dy, const struct sbp_windows *of,
                    int64_t out, int64_t first_place, int64_t places)
{
    constexpr int N = gpu_width<T>;
    const int64_t lines = of->kernel[0] * of->kernel[1] * out;
    const bool is_wide = is_whole<N>((const T *)to, of->width, first_place, places);
    const auto kernel = is_wide ? sources_kernel<T, N> : sources_kernel<T, 1>;
    if (lines > 0 && places > 0)
        GPU_LAUNCH(cuda, kernel, grid_of(places / (is_wide ? N : 1), lines), THREADS, 0, (T *)to,
                   (const T *)dy, gpu_windows_of(of), out, lines, first_place, places);
}

template <class T>
static void take(struct sbp_cuda *cuda, void *to, const void *x, int64_t channels, int64_t width,
                 int64_t first_place, int64_t places)
{
    constexpr int N = gpu_width<T>;
    const bool is_wide =
        is_whole<N>((const T *)to, width, first_place, places) && gpu_aligned<N>((const T *)x);
    const auto kernel = is_wide ? take_kernel<T, N> : take_kernel<T, 1>;
    if (channels > 0 && places > 0)
        GPU_LAUNCH(cuda, kernel, grid_of(places / (is_wide ? N : 1), channels), THREADS, 0, (T *)to,
                   (const T *)x, channels, width, first_place, places);
}

template <class T>
static void put(struct sbp_cuda *cuda, void *x, const void *from, const void *bias,
                int64_t channels, int64_t width, int64_t first_place, int64_t places)
{
    constexpr int N = gpu_width<T>;
    const bool is_wide =
        is_whole<N>((const float *)from, width, first_place, places) && gpu_aligned<N>((T *)x);
    const auto kernel = is_wide ? put_kernel<T, N> : put_kernel<T, 1>;
    if (channels > 0 && places > 0)
        GPU_LAUNCH(cuda, kernel, grid_of(places / (is_wide ? N : 1), channels), THREADS, 0, (T *)x,
                   (const float *)from, (const T *)bias, channels, width, first_place, places);
}

template <class T>
static void sums(struct sbp_cuda *cuda, void *to, const void *x, int64_t rows, int64_t channels,
                 int64_t width, bool adds)
{
    constexpr int N = gpu_width<T>;
    const channel_source<T, N> wide = {(const T *)x, channels, width};
    const channel_source<T, 1> narrow = {(const T *)x, channels, width};
    const sum_result<T> result = {(T *)to, adds};
    if (gpu_aligned<N>(wide.x, width))
        channel_sums<1, N>(cuda, rows, channels, width, 0, wide, result);
    else
        channel_sums<1, 1>(cuda, rows, channels, width, 0, narrow, result);
}

template <class T> static void fill(struct sbp_cuda_kernels *kernels)
{
    kernels->conv2d_windows = windows<T>;
    kernels->conv2d_sources = sources<T>;
    kernels->images_take = take<T>;
    kernels->images_put = put<T>;
    kernels->images_sums = sums<T>;
}
GPU_FILL(conv2d, windows_kernel<float, 1>)
