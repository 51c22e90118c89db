/* Activations with a gate beside what it lets through, and rotary embedding: a thread takes some
 * elements, or some pairs of them. */
#include "kernels/cuda/place.cuh"
#include "kernels/cuda/rotary.cuh"

enum { THREADS = 256 };

/* ---- gates ---------------------------------------------------------------------------------- */

static __device__ __forceinline__ float opened(float gate)
{
    return 1 / (1 + expf(-gate));
}

/* N pairs of a gate and what it lets through, in two chunks of N elements: a single chunk of 2 N
 * would need an address aligned to two elements, and where N is 1 any element's address must do. */
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

/* ---- rotary --------------------------------------------------------------------------------- */

/* A thread turns N neighbouring pairs in every head of a token. */
template <class T, int N>
static __global__ void __launch_bounds__(THREADS)
    rotary_kernel(T *x, GPU_GRID_CONSTANT gpu_digits rows, int64_t sequence, int64_t chunks,
                  int64_t heads, int64_t width, int64_t half, double sign)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < chunks; at += step) {
        const int64_t token = at * N / half, i = at * N % half;
        const double place = (double)gpu_digits_global(rows, token % sequence);
        gpu_turn turn[N];
        GPU_UNROLL
        for (int j = 0; j < N; j++)
            turn[j] = gpu_turn_of(sign * place, i + j, half);
        for (int64_t h = 0; h < heads; h++) {
            T *const to = x + (token * heads + h) * width + i;
            gpu_chunk<T, N> first = gpu_get<N>(to), second = gpu_get<N>(to + half);
            GPU_UNROLL
            for (int j = 0; j < N; j++) {
                const float a = gpu_load(first.at[j]), b = gpu_load(second.at[j]);
                first.at[j] = gpu_store<T>(gpu_turn_first(turn[j], a, b));
                second.at[j] = gpu_store<T>(gpu_turn_second(turn[j], a, b));
            }
            gpu_put(to, first);
            gpu_put(to + half, second);
        }
    }
}

template <class T>
static void rotary(struct sbp_cuda *cuda, void *x, const struct sbp_digits *rows, int64_t batch,
                   int64_t heads, int64_t width, int64_t size, bool back)
{
    constexpr int N = gpu_width<T>;
    const int64_t sequence = sbp_digits_local_size(rows), half = size / 2;
    const bool is_wide = gpu_aligned<N>((const T *)x, half) && width % N == 0;
    const int64_t chunks = batch * sequence * half / (is_wide ? N : 1);
    const auto kernel = is_wide ? rotary_kernel<T, N> : rotary_kernel<T, 1>;
    if (chunks > 0)
        GPU_LAUNCH(cuda, kernel, gpu_loop_blocks(cuda, chunks, THREADS), THREADS, 0, (T *)x,
                   gpu_digits_of(rows), sequence, chunks, heads, width, half, back ? -1.0 : 1.0);
}

template <class T> static void fill(struct sbp_cuda_kernels *kernels)
{
    kernels->swiglu_forward = swiglu<T>;
    kernels->swiglu_backward = swiglu_gradient<T>;
    kernels->rotary = rotary<T>;
}
GPU_FILL(gates, swiglu_kernel<float, 1>)
