/* cuBLAS makes the products of convolutions (executor/gpu/images_cuda.c), these kernels do the
 * rest: they write the terms of windows (Chetlur et al., cuDNN, 2014, section 3.2) and what outputs
 * give to places of the input, both as matrices of some places, and turn such matrices into rows of
 * images and back.
 *
 * A place is (image, row, column); the terms of a window are (input channel, kernel row, kernel
 * column), as the rows of a weight are. Neighbouring threads have neighbouring places. */
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

/* to(lines, places): a line is a term. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
    windows_kernel(T *to, const T *x, gpu_windows w, int64_t first_term, int64_t lines,
                   int64_t first_place, int64_t places)
{
    const int64_t place = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
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
        const bool is_within = row != nullptr && column >= 0 && column < w.width;
        to[line * places + place] = is_within ? row[column] : gpu_store<T>(0);
    }
}

/* The output along one side of which a place of the input is a kernel's tap; -1: there is none. */
static __device__ __forceinline__ int output_at(int place, int tap, int stride, int padding,
                                                int size)
{
    const int from = place + padding - tap;
    return from >= 0 && from % stride == 0 && from / stride < size ? from / stride : -1;
}

/* to(lines, places): a line is (tap, output channel), a place one of the input. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
    sources_kernel(T *to, const T *dy, gpu_windows w, int64_t out, int64_t lines,
                   int64_t first_place, int64_t places)
{
    const int64_t place = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= places)
        return;
    const spot at = spot_at(first_place + place, w.height, w.width);
    for (int64_t line = blockIdx.y; line < lines; line += gridDim.y) {
        const int tap = (int)(line / out);
        const int row =
            output_at(at.row, tap / w.kernel[1], w.stride[0], w.padding[0], w.out_height);
        const int column =
            output_at(at.column, tap % w.kernel[1], w.stride[1], w.padding[1], w.out_width);
        const int64_t from =
            ((at.image * w.out_height + row) * out + line % out) * w.out_width + column;
        to[line * places + place] = row >= 0 && column >= 0 ? dy[from] : gpu_store<T>(0);
    }
}

/* Rows of images x(rows, channels, width) as to(channels, places). */
template <class T>
static __global__ void __launch_bounds__(THREADS)
    take_kernel(T *to, const T *x, int64_t channels, int64_t width, int64_t first_place,
                int64_t places)
{
    const int64_t place = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int64_t row = (first_place + place) / width, column = (first_place + place) % width;
    if (place < places)
        for (int64_t c = blockIdx.y; c < channels; c += gridDim.y)
            to[c * places + place] = x[(row * channels + c) * width + column];
}

/* The other way, [+ bias(channels)]. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
    put_kernel(T *x, const float *from, const T *bias, int64_t channels, int64_t width,
               int64_t first_place, int64_t places)
{
    const int64_t place = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int64_t row = (first_place + place) / width, column = (first_place + place) % width;
    if (place < places)
        for (int64_t c = blockIdx.y; c < channels; c += gridDim.y)
            x[(row * channels + c) * width + column] =
                gpu_store<T>(from[c * places + place] + (bias == nullptr ? 0 : gpu_load(bias[c])));
}

template <class T> struct channel_source {
    const T *x;
    int64_t channels, width;
    __device__ __forceinline__ void add(float (&sum)[1], int64_t row, int64_t channel,
                                        int64_t column) const
    {
        sum[0] += gpu_load(x[(row * channels + channel) * width + column]);
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

static dim3 grid_of(int64_t places, int64_t lines)
{
    return dim3((unsigned)gpu_ceil(places, THREADS), (unsigned)sbp_least_i64(lines, MOST_LINES));
}

template <class T>
static void windows(struct sbp_cuda *cuda, void *to, const void *x, const struct sbp_windows *of,
                    int64_t first_term, int64_t terms, int64_t first_place, int64_t places)
{
    if (terms > 0 && places > 0)
        GPU_LAUNCH(cuda, windows_kernel<T>, grid_of(places, terms), THREADS, 0, (T *)to,
                   (const T *)x, gpu_windows_of(of), first_term, terms, first_place, places);
}

template <class T>
static void sources(struct sbp_cuda *cuda, void *to, const void *dy, const struct sbp_windows *of,
                    int64_t out, int64_t first_place, int64_t places)
{
    const int64_t lines = of->kernel[0] * of->kernel[1] * out;
    if (lines > 0 && places > 0)
        GPU_LAUNCH(cuda, sources_kernel<T>, grid_of(places, lines), THREADS, 0, (T *)to,
                   (const T *)dy, gpu_windows_of(of), out, lines, first_place, places);
}

template <class T>
static void take(struct sbp_cuda *cuda, void *to, const void *x, int64_t channels, int64_t width,
                 int64_t first_place, int64_t places)
{
    if (channels > 0 && places > 0)
        GPU_LAUNCH(cuda, take_kernel<T>, grid_of(places, channels), THREADS, 0, (T *)to,
                   (const T *)x, channels, width, first_place, places);
}

template <class T>
static void put(struct sbp_cuda *cuda, void *x, const void *from, const void *bias,
                int64_t channels, int64_t width, int64_t first_place, int64_t places)
{
    if (channels > 0 && places > 0)
        GPU_LAUNCH(cuda, put_kernel<T>, grid_of(places, channels), THREADS, 0, (T *)x,
                   (const float *)from, (const T *)bias, channels, width, first_place, places);
}

template <class T>
static void sums(struct sbp_cuda *cuda, void *to, const void *x, int64_t rows, int64_t channels,
                 int64_t width, bool adds)
{
    const channel_source<T> source = {(const T *)x, channels, width};
    const sum_result<T> result = {(T *)to, adds};
    channel_sums<1>(cuda, rows, channels, width, 0, source, result);
}

template <class T> static void fill(struct sbp_cuda_kernels *kernels)
{
    kernels->conv2d_windows = windows<T>;
    kernels->conv2d_sources = sources<T>;
    kernels->images_take = take<T>;
    kernels->images_put = put<T>;
    kernels->images_sums = sums<T>;
}
GPU_FILL(conv2d, windows_kernel<float>)
