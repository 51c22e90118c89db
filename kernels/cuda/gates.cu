/* Activations with a gate beside what it lets through, tanh, and rotary embedding: a thread takes
 * some elements, or some pairs of them. */
#include "kernels/cuda/place.cuh"
#include "kernels/cuda/rotary.cuh"

enum { THREADS = 256 };

/* ---- gates ---------------------------------------------------------------------------------- */

static __device__ __forceinline__ float opened(float gate)
{
    return 1 / (1 + expf(-gate));
}

/* N pairs of a gate and what it lets through, as two chunks: one of 2 N would have to be aligned
 * where N is 1, too. */
template <class T, int N> struct gate_pairs {
    gpu_chunk<T, N> half[2];
    __device__ __forceinline__ T &gate(int j)
    {
        return half[2 * j / N].at[2 * j % N];
    }
    __device__ __forceinline__ T &up(int j)
    {
        return half[(2 * j + 1) / N].at[(2 * j + 1) % N];
    }
};

template <class T, int N>
static __global__ void __launch_bounds__(THREADS) swiglu_kernel(T *y, const T *x, int64_t chunks)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < chunks; i += step) {
        gate_pairs<T, N> from = {{gpu_get<N>(x + 2 * i * N), gpu_get<N>(x + 2 * i * N + N)}};
        gpu_chunk<T, N> to;
        GPU_UNROLL
        for (int j = 0; j < N; j++) {
            const float gate = gpu_load(from.gate(j)), up = gpu_load(from.up(j));
            to.at[j] = gpu_store<T>(gate * opened(gate) * up);
        }
        gpu_put(y + i * N, to);
    }
}

template <class T, int N>
static __global__ void __launch_bounds__(THREADS)
    swiglu_gradient_kernel(T *dx, const T *x, const T *dy, int64_t chunks)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < chunks; i += step) {
        gate_pairs<T, N> from = {{gpu_get<N>(x + 2 * i * N), gpu_get<N>(x + 2 * i * N + N)}};
        const gpu_chunk<T, N> d = gpu_get<N>(dy + i * N);
        gate_pairs<T, N> to;
        GPU_UNROLL
        for (int j = 0; j < N; j++) {
            const float gate = gpu_load(from.gate(j)), up = gpu_load(from.up(j));
            const float open = opened(gate), value = gpu_load(d.at[j]);
            to.gate(j) = gpu_store<T>(value * up * open * (1 + gate * (1 - open)));
            to.up(j) = gpu_store<T>(value * gate * open);
        }
        gpu_put(dx + 2 * i * N, to.half[0]);
        gpu_put(dx + 2 * i * N + N, to.half[1]);
    }
}

/* `n` in chunks where all begin at them, else one by one. */
template <class T> static void swiglu(struct sbp_cuda *cuda, void *y, const void *x, int64_t n)
{
    constexpr int N = gpu_width<T>;
    const bool is_wide = gpu_aligned<N>((const T *)y, n) && gpu_aligned<N>((const T *)x);
    const int64_t chunks = is_wide ? n / N : n;
    const auto kernel = is_wide ? swiglu_kernel<T, N> : swiglu_kernel<T, 1>;
    if (n > 0)
        GPU_LAUNCH(cuda, kernel, gpu_loop_blocks(cuda, chunks, THREADS), THREADS, 0, (T *)y,
                   (const T *)x, chunks);
}

template <class T>
static void swiglu_gradient(struct sbp_cuda *cuda, void *dx, const void *x, const void *dy,
                            int64_t n)
{
    constexpr int N = gpu_width<T>;
    const bool is_wide = gpu_aligned<N>((const T *)dx, n) && gpu_aligned<N>((const T *)x) &&
                         gpu_aligned<N>((const T *)dy);
    const int64_t chunks = is_wide ? n / N : n;
    const auto kernel = is_wide ? swiglu_gradient_kernel<T, N> : swiglu_gradient_kernel<T, 1>;
    if (n > 0)
        GPU_LAUNCH(cuda, kernel, gpu_loop_blocks(cuda, chunks, THREADS), THREADS, 0, (T *)dx,
                   (const T *)x, (const T *)dy, chunks);
}

/* dy NULL: y = tanh x; else dx = dy (1 - y^2), of the output. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
    tanh_kernel(T *to, const T *from, const T *dy, int64_t n)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        const float at = gpu_load(from[i]);
        to[i] = gpu_store<T>(dy == nullptr ? tanhf(at) : gpu_load(dy[i]) * (1 - at * at));
    }
}

template <class T>
static void tanh_gradient(struct sbp_cuda *cuda, void *dx, const void *y, const void *dy, int64_t n)
{
    if (n > 0)
        GPU_LAUNCH(cuda, tanh_kernel<T>, gpu_loop_blocks(cuda, n, THREADS), THREADS, 0, (T *)dx,
                   (const T *)y, (const T *)dy, n);
}

template <class T> static void tanh_value(struct sbp_cuda *cuda, void *y, const void *x, int64_t n)
{
    tanh_gradient<T>(cuda, y, x, NULL, n);
}

/* ---- rotary --------------------------------------------------------------------------------- */

/* A thread turns one pair of every head of a token. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
    rotary_kernel(T *x, GPU_GRID_CONSTANT gpu_digits rows, int64_t sequence, int64_t pairs,
                  int64_t heads, int64_t width, int64_t half, double sign)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < pairs; at += step) {
        const int64_t token = at / half, i = at % half;
        const double place = (double)gpu_digits_global(rows, token % sequence);
        const gpu_turn turn = gpu_turn_of(sign * place, i, half);
        for (int64_t h = 0; h < heads; h++) {
            T *const first = x + (token * heads + h) * width + i, *const second = first + half;
            const float a = gpu_load(*first), b = gpu_load(*second);
            *first = gpu_store<T>(gpu_turn_first(turn, a, b));
            *second = gpu_store<T>(gpu_turn_second(turn, a, b));
        }
    }
}

template <class T>
static void rotary(struct sbp_cuda *cuda, void *x, const struct sbp_digits *rows, int64_t batch,
                   int64_t heads, int64_t width, int64_t size, bool back)
{
    const int64_t sequence = sbp_digits_local_size(rows), half = size / 2;
    const int64_t pairs = batch * sequence * half;
    if (pairs > 0)
        GPU_LAUNCH(cuda, rotary_kernel<T>, gpu_loop_blocks(cuda, pairs, THREADS), THREADS, 0,
                   (T *)x, gpu_digits_of(rows), sequence, pairs, heads, width, half,
                   back ? -1.0 : 1.0);
}

template <class T> static void fill(struct sbp_cuda_kernels *kernels)
{
    kernels->tanh_forward = tanh_value<T>;
    kernels->tanh_backward = tanh_gradient<T>;
    kernels->swiglu_forward = swiglu<T>;
    kernels->swiglu_backward = swiglu_gradient<T>;
    kernels->rotary = rotary<T>;
}
GPU_FILL(gates, swiglu_kernel<float, 1>)
