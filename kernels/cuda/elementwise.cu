/* Operators that take elements one by one: relu, gelu, tanh, sums, scaling, dropout. */
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/place.cuh"
#include "kernels/cuda/random.cuh"

enum { THREADS = 256 };

/* gelu(x) = x/2 (1 + tanh u), u = sqrt(2/pi) (x + c x^3) (Hendrycks and Gimpel, 2016); since
 * (1 + tanh u)/2 is the logistic function of 2u, one exponential does. */
#define GELU_TWICE_ROOT 1.5957691216057307118F /* 2 sqrt(2/pi) */
#define GELU_CUBIC      0.044715F

static __device__ __forceinline__ float gelu_gate(float x)
{
    return 1 / (1 + expf(-GELU_TWICE_ROOT * (x + GELU_CUBIC * x * x * x)));
}

static __device__ __forceinline__ float gelu(float x)
{
    return x * gelu_gate(x);
}

static __device__ __forceinline__ float gelu_slope(float x)
{
    const float gate = gelu_gate(x);
    return gate + x * gate * (1 - gate) * GELU_TWICE_ROOT * (1 + 3 * GELU_CUBIC * x * x);
}

/* ---- what becomes of an element, and of a pair ---------------------------------------------- */

struct relu {
    __device__ __forceinline__ float operator()(float x, float) const
    {
        return x > 0 ? x : 0;
    }
};

struct relu_gradient {
    __device__ __forceinline__ float operator()(float x, float dy) const
    {
        return x > 0 ? dy : 0;
    }
};

struct gelu_value {
    __device__ __forceinline__ float operator()(float x, float) const
    {
        return gelu(x);
    }
};

struct gelu_gradient {
    __device__ __forceinline__ float operator()(float x, float dy) const
    {
        return dy * gelu_slope(x);
    }
};

struct tanh_value {
    __device__ __forceinline__ float operator()(float x, float) const
    {
        return tanhf(x);
    }
};

/* dx = dy (1 - y^2), where y = tanh(x) */
struct tanh_gradient {
    __device__ __forceinline__ float operator()(float y, float dy) const
    {
        return dy * (1 - y * y);
    }
};

struct sum {
    __device__ __forceinline__ float operator()(float a, float b) const
    {
        return a + b;
    }
};

struct multiple {
    float factor;
    __device__ __forceinline__ float operator()(float x, float) const
    {
        return x * factor;
    }
};

struct magnitude {
    __device__ __forceinline__ float operator()(float x, float) const
    {
        return fabsf(x);
    }
};

struct same {
    __device__ __forceinline__ float operator()(float x, float) const
    {
        return x;
    }
};

/* ---- loops ---------------------------------------------------------------------------------- */

/* y = op(a, b), or op(a, 0). An operand may be y. */
template <bool PAIR, int N, class To, class A, class B, class Op>
static __global__ void __launch_bounds__(THREADS)
    map_kernel(To *y, const A *a, const B *b, int64_t n, Op op)
{
    const int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int64_t step = (int64_t)gridDim.x * blockDim.x, chunks = n / N;
    for (int64_t i = first; i < chunks; i += step) {
        const gpu_chunk<A, N> left = gpu_get<N>(a + i * N);
        gpu_chunk<B, N> right = {};
        gpu_chunk<To, N> to;
        if (PAIR)
            right = gpu_get<N>(b + i * N);
        GPU_UNROLL
        for (int j = 0; j < N; j++)
            to.at[j] = gpu_store<To>(op(gpu_load(left.at[j]), gpu_load(right.at[j])));
        gpu_put(y + i * N, to);
    }
    for (int64_t i = chunks * N + first; i < n; i += step)
        y[i] = gpu_store<To>(op(gpu_load(a[i]), PAIR ? gpu_load(b[i]) : 0));
}

template <bool PAIR, class To, class A, class B, class Op>
static void launch_map(struct sbp_cuda *cuda, To *y, const A *a, const B *b, int64_t n, Op op)
{
    constexpr int N = (int)(16 / (sizeof(To) < sizeof(A) ? sizeof(To) : sizeof(A)));
    const auto wide = map_kernel<PAIR, N, To, A, B, Op>, narrow = map_kernel<PAIR, 1, To, A, B, Op>;
    if (n == 0)
        return;
    if (gpu_aligned<N>(y) && gpu_aligned<N>(a) && gpu_aligned<N>(b))
        GPU_LAUNCH(cuda, wide, gpu_loop_blocks(cuda, gpu_ceil(n, N), THREADS), THREADS, 0, y, a, b,
                   n, op);
    else
        GPU_LAUNCH(cuda, narrow, gpu_loop_blocks(cuda, n, THREADS), THREADS, 0, y, a, b, n, op);
}

template <class To, class A, class Op>
static void map(struct sbp_cuda *cuda, To *y, const A *a, int64_t n, Op op)
{
    launch_map<false>(cuda, y, a, a, n, op);
}

template <class T, class Op>
static void map_pair(struct sbp_cuda *cuda, T *y, const T *a, const T *b, int64_t n, Op op)
{
    launch_map<true>(cuda, y, a, b, n, op);
}

template <class T>
static void relu_forward(struct sbp_cuda *cuda, void *y, const void *x, int64_t n)
{
    map(cuda, (T *)y, (const T *)x, n, relu());
}

template <class T>
static void relu_backward(struct sbp_cuda *cuda, void *dx, const void *x, const void *dy, int64_t n)
{
    map_pair(cuda, (T *)dx, (const T *)x, (const T *)dy, n, relu_gradient());
}

template <class T>
static void gelu_forward(struct sbp_cuda *cuda, void *y, const void *x, int64_t n)
{
    map(cuda, (T *)y, (const T *)x, n, gelu_value());
}

template <class T>
static void gelu_backward(struct sbp_cuda *cuda, void *dx, const void *x, const void *dy, int64_t n)
{
    map_pair(cuda, (T *)dx, (const T *)x, (const T *)dy, n, gelu_gradient());
}

template <class T>
static void tanh_forward(struct sbp_cuda *cuda, void *y, const void *x, int64_t n)
{
    map(cuda, (T *)y, (const T *)x, n, tanh_value());
}

template <class T>
static void tanh_backward(struct sbp_cuda *cuda, void *dx, const void *y, const void *dy, int64_t n)
{
    map_pair(cuda, (T *)dx, (const T *)y, (const T *)dy, n, tanh_gradient());
}

template <class T>
static void add(struct sbp_cuda *cuda, void *y, const void *a, const void *b, int64_t n)
{
    map_pair(cuda, (T *)y, (const T *)a, (const T *)b, n, sum());
}

template <class T> static void scale(struct sbp_cuda *cuda, void *x, double factor, int64_t n)
{
    map(cuda, (T *)x, (const T *)x, n, multiple{(float)factor});
}

template <class T> static void absolute(struct sbp_cuda *cuda, void *x, int64_t n)
{
    map(cuda, (T *)x, (const T *)x, n, magnitude());
}

template <class T> static void zero(struct sbp_cuda *cuda, void *x, int64_t n)
{
    gpu_zero(cuda, x, n * (int64_t)sizeof(T));
}

template <class T> static void to_wide(struct sbp_cuda *cuda, void *wide, const void *x, int64_t n)
{
    map(cuda, (float *)wide, (const T *)x, n, same());
}

template <class T>
static void from_wide(struct sbp_cuda *cuda, void *x, const void *wide, int64_t n)
{
    map(cuda, (T *)x, (const float *)wide, n, same());
}

/* ---- gelu with a bias ----------------------------------------------------------------------- */

/* x += bias, y = gelu(x), of the x that was stored; a row of blocks takes some columns. */
template <class T, int N>
static __global__ void __launch_bounds__(THREADS)
    bias_gelu_kernel(T *y, T *x, const T *bias, int64_t tokens, int64_t out)
{
    const int64_t column = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    if (column >= out)
        return;
    const gpu_chunk<T, N> added = gpu_get<N>(bias + column);
    for (int64_t t = blockIdx.y; t < tokens; t += gridDim.y) {
        gpu_chunk<T, N> at = gpu_get<N>(x + t * out + column), to;
        GPU_UNROLL
        for (int j = 0; j < N; j++) {
            at.at[j] = gpu_store<T>(gpu_load(at.at[j]) + gpu_load(added.at[j]));
            to.at[j] = gpu_store<T>(gelu(gpu_load(at.at[j])));
        }
        gpu_put(x + t * out + column, at);
        gpu_put(y + t * out + column, to);
    }
}

template <class T, int N>
static void launch_bias_gelu(struct sbp_cuda *cuda, T *y, T *x, const T *bias, int64_t tokens,
                             int64_t out)
{
    const int64_t chunks = gpu_ceil(out, N);
    const unsigned threads = gpu_row_threads(chunks, THREADS);
    const dim3 grid((unsigned)gpu_ceil(chunks, threads),
                    (unsigned)sbp_least_i64(tokens, (int64_t)16 * cuda->multiprocessors));
    const auto kernel = bias_gelu_kernel<T, N>;
    if (tokens > 0 && out > 0)
        GPU_LAUNCH(cuda, kernel, grid, threads, 0, y, x, bias, tokens, out);
}

template <class T>
static void bias_gelu_forward(struct sbp_cuda *cuda, void *y, void *x, const void *bias,
                              int64_t tokens, int64_t out)
{
    constexpr int N = gpu_width<T>;
    if (gpu_aligned<N>((T *)y, out) && gpu_aligned<N>((T *)x) && gpu_aligned<N>((const T *)bias))
        launch_bias_gelu<T, N>(cuda, (T *)y, (T *)x, (const T *)bias, tokens, out);
    else
        launch_bias_gelu<T, 1>(cuda, (T *)y, (T *)x, (const T *)bias, tokens, out);
}

/* Writes dx on the way, and sums what was stored. */
template <class T, int N> struct gelu_source {
    T *dx;
    const T *x, *dy;
    int64_t out;
    __device__ __forceinline__ void add(float (&sum)[1][N], int64_t row, int64_t column) const
    {
        const int64_t i = row * out + column;
        const gpu_chunk<T, N> at = gpu_get<N>(x + i), d = gpu_get<N>(dy + i);
        gpu_chunk<T, N> to;
        GPU_UNROLL
        for (int j = 0; j < N; j++) {
            to.at[j] = gpu_store<T>(gpu_load(d.at[j]) * gelu_slope(gpu_load(at.at[j])));
            sum[0][j] += gpu_load(to.at[j]);
        }
        gpu_put(dx + i, to);
    }
};

template <class T>
static void bias_gelu_backward(struct sbp_cuda *cuda, void *dx, void *dbias, const void *x,
                               const void *dy, int64_t tokens, int64_t out, bool adds)
{
    constexpr int N = gpu_width<T>;
    const gelu_source<T, N> wide = {(T *)dx, (const T *)x, (const T *)dy, out};
    const gelu_source<T, 1> narrow = {(T *)dx, (const T *)x, (const T *)dy, out};
    if (gpu_aligned<N>(wide.dx, out) && gpu_aligned<N>(wide.x) && gpu_aligned<N>(wide.dy))
        column_sums<1, N>(cuda, (T *)dbias, (T *)NULL, tokens, out, adds, wide);
    else
        column_sums<1, 1>(cuda, (T *)dbias, (T *)NULL, tokens, out, adds, narrow);
}

/* ---- dropout -------------------------------------------------------------------------------- */

/* x factor where the mask keeps it. Forward decides the mask by elements' places in the whole: the
 * uniform number of the upper 53 bits is at or over p where the bits are at or over p 2^53. */
template <class T, int N>
static __device__ __forceinline__ gpu_chunk<T, N>
keep(const gpu_chunk<T, N> &x, const gpu_chunk<uint8_t, N> &mask, float factor)
{
    gpu_chunk<T, N> y;
    GPU_UNROLL
    for (int j = 0; j < N; j++)
        y.at[j] = gpu_store<T>(mask.at[j] ? gpu_load(x.at[j]) * factor : 0);
    return y;
}

template <class T, int N>
static __global__ void __launch_bounds__(THREADS)
    dropout_kernel(T *y, uint8_t *mask, const T *x, int64_t n, GPU_GRID_CONSTANT gpu_region region,
                   int64_t least, uint64_t key, float factor)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x * N;
    for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N; i < n; i += step) {
        const uint64_t global = (uint64_t)gpu_region_global(region, i);
        gpu_chunk<uint8_t, N> kept;
        GPU_UNROLL
        for (int j = 0; j < N; j++)
            kept.at[j] = (int64_t)(gpu_random_bits(key, global + (uint64_t)j) >> 11) >= least;
        gpu_put(mask + i, kept);
        gpu_put(y + i, keep<T, N>(gpu_get<N>(x + i), kept, factor));
    }
}

template <class T, int N>
static __global__ void __launch_bounds__(THREADS)
    undrop_kernel(T *dx, const uint8_t *mask, const T *dy, int64_t n, float factor)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x * N;
    for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N; i < n; i += step)
        gpu_put(dx + i, keep<T, N>(gpu_get<N>(dy + i), gpu_get<N>(mask + i), factor));
}

/* Chunks must lie in one run of the region, in which places rise by one. */
template <class T>
static void dropout_forward(struct sbp_cuda *cuda, void *y, uint8_t *mask, const void *x,
                            const struct sbp_region *region, double p, uint64_t seed,
                            uint64_t stream)
{
    constexpr int N = gpu_width<T>;
    const int64_t n = sbp_region_elements(region), least = (int64_t)ceil(p * 0x1p53);
    const gpu_region places = gpu_region_of(region);
    const uint64_t key = sbp_random_key(seed, stream);
    const float factor = (float)(1 / (1 - p));
    const auto wide = dropout_kernel<T, N>, narrow = dropout_kernel<T, 1>;
    if (n == 0)
        return;
    if (gpu_aligned<N>((T *)y, gpu_region_run(places)) && gpu_aligned<N>((const T *)x, n) &&
        gpu_aligned<N>(mask))
        GPU_LAUNCH(cuda, wide, gpu_loop_blocks(cuda, n / N, THREADS), THREADS, 0, (T *)y, mask,
                   (const T *)x, n, places, least, key, factor);
    else
        GPU_LAUNCH(cuda, narrow, gpu_loop_blocks(cuda, n, THREADS), THREADS, 0, (T *)y, mask,
                   (const T *)x, n, places, least, key, factor);
}

template <class T>
static void dropout_backward(struct sbp_cuda *cuda, void *dx, const uint8_t *mask, const void *dy,
                             int64_t n, double p)
{
    constexpr int N = gpu_width<T>;
    const float factor = (float)(1 / (1 - p));
    const auto wide = undrop_kernel<T, N>, narrow = undrop_kernel<T, 1>;
    if (n == 0)
        return;
    if (gpu_aligned<N>((T *)dx, n) && gpu_aligned<N>((const T *)dy) && gpu_aligned<N>(mask))
        GPU_LAUNCH(cuda, wide, gpu_loop_blocks(cuda, n / N, THREADS), THREADS, 0, (T *)dx, mask,
                   (const T *)dy, n, factor);
    else
        GPU_LAUNCH(cuda, narrow, gpu_loop_blocks(cuda, n, THREADS), THREADS, 0, (T *)dx, mask,
                   (const T *)dy, n, factor);
}

template <class T> static void fill(struct sbp_cuda_kernels *kernels)
{
    kernels->relu_forward = relu_forward<T>;
    kernels->relu_backward = relu_backward<T>;
    kernels->gelu_forward = gelu_forward<T>;
    kernels->gelu_backward = gelu_backward<T>;
    kernels->tanh_forward = tanh_forward<T>;
    kernels->tanh_backward = tanh_backward<T>;
    kernels->bias_gelu_forward = bias_gelu_forward<T>;
    kernels->bias_gelu_backward = bias_gelu_backward<T>;
    kernels->add = add<T>;
    kernels->scale = scale<T>;
    kernels->absolute = absolute<T>;
    kernels->zero = zero<T>;
    kernels->to_wide = to_wide<T>;
    kernels->from_wide = from_wide<T>;
    kernels->dropout_forward = dropout_forward<T>;
    kernels->dropout_backward = dropout_backward<T>;
}
GPU_FILL(elementwise, bias_gelu_kernel<float, 1>)
