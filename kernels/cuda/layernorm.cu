/* Layer normalisation (Ba et al., 2016): a block a token. Where a kernel sums over a row and then
 * goes over it again, the row comes out of the cache. */
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/reduce.cuh"

enum { THREADS = 512 };

/* What a token is normalised by, out of its (sum x, sum x^2). */
struct moments {
    float mean, rstd;
};

static __device__ __forceinline__ moments token_moments(float sum, float squares, float hidden,
                                                        float epsilon)
{
    const float mean = sum / hidden;
    /* Rounded sums of an almost constant row can give a variance just below 0. */
    const float variance = fmaxf(fmaf(-mean, mean, squares / hidden), 0.0F);
    return moments{mean, 1 / sqrtf(variance + epsilon)};
}

/* (sum x, sum x^2) of a row. */
template <class T, int N>
static __device__ __forceinline__ void row_sums(float (&sum)[2], const T *row, int64_t in)
{
    sum[0] = sum[1] = 0;
    for (int64_t i = (int64_t)threadIdx.x * N; i < in; i += (int64_t)blockDim.x * N) {
        const gpu_chunk<T, N> x = gpu_get<N>(row + i);
        GPU_UNROLL
        for (int j = 0; j < N; j++) {
            const float value = gpu_load(x.at[j]);
            sum[0] += value;
            sum[1] = fmaf(value, value, sum[1]);
        }
    }
    gpu_block_reduce(sum, gpu_plus());
}

/* The block's token's. */
static __device__ __forceinline__ void put_sums(float *sums, const float (&sum)[2])
{
    if (threadIdx.x != 0)
        return;
    sums[2 * (int64_t)blockIdx.x] = sum[0];
    sums[2 * (int64_t)blockIdx.x + 1] = sum[1];
}

template <class T, int N>
static __global__ void __launch_bounds__(THREADS) sums_kernel(float *sums, const T *x, int64_t in)
{
    float sum[2];
    row_sums<T, N>(sum, x + blockIdx.x * in, in);
    put_sums(sums, sum);
}

/* WHOLE: sums are written, else read. */
template <class T, int N, bool WHOLE>
static __global__ void __launch_bounds__(THREADS)
    forward_kernel(T *y, float *sums, const T *x, const T *gain, const T *shift, int64_t in,
                   float hidden, float epsilon)
{
    const int64_t row = blockIdx.x * in;
    float sum[2];
    if (WHOLE) {
        row_sums<T, N>(sum, x + row, in);
        put_sums(sums, sum);
    } else {
        sum[0] = sums[2 * (int64_t)blockIdx.x];
        sum[1] = sums[2 * (int64_t)blockIdx.x + 1];
    }
    const moments m = token_moments(sum[0], sum[1], hidden, epsilon);
    for (int64_t i = (int64_t)threadIdx.x * N; i < in; i += (int64_t)blockDim.x * N) {
        const gpu_chunk<T, N> from = gpu_get<N>(x + row + i);
        const gpu_chunk<T, N> gains = gpu_get<N>(gain + i), shifts = gpu_get<N>(shift + i);
        gpu_chunk<T, N> to;
        GPU_UNROLL
        for (int j = 0; j < N; j++)
            to.at[j] = gpu_store<T>(fmaf((gpu_load(from.at[j]) - m.mean) * m.rstd,
                                         gpu_load(gains.at[j]), gpu_load(shifts.at[j])));
        gpu_put(y + row + i, to);
    }
}

/* (sum dy gain, sum dy gain xhat) of a row. */
template <class T, int N>
static __device__ __forceinline__ void row_backward_sums(float (&sum)[2], const T *dy, const T *x,
                                                         const T *gain, moments m, int64_t in)
{
    sum[0] = sum[1] = 0;
    for (int64_t i = (int64_t)threadIdx.x * N; i < in; i += (int64_t)blockDim.x * N) {
        const gpu_chunk<T, N> d = gpu_get<N>(dy + i), at = gpu_get<N>(x + i);
        const gpu_chunk<T, N> gains = gpu_get<N>(gain + i);
        GPU_UNROLL
        for (int j = 0; j < N; j++) {
            const float weighted = gpu_load(d.at[j]) * gpu_load(gains.at[j]);
            sum[0] += weighted;
            sum[1] = fmaf(weighted, (gpu_load(at.at[j]) - m.mean) * m.rstd, sum[1]);
        }
    }
    gpu_block_reduce(sum, gpu_plus());
}

template <class T, int N>
static __global__ void __launch_bounds__(THREADS)
    backward_sums_kernel(float *backward_sums, const T *dy, const T *x, const float *sums,
                         const T *gain, int64_t in, float hidden, float epsilon)
{
    const int64_t token = blockIdx.x;
    const moments m = token_moments(sums[2 * token], sums[2 * token + 1], hidden, epsilon);
    float sum[2];
    row_backward_sums<T, N>(sum, dy + token * in, x + token * in, gain, m, in);
    put_sums(backward_sums, sum);
}

/* dx = rstd (dxhat - mean(dxhat) - xhat mean(dxhat xhat)) with dxhat = dy gain. */
template <class T, int N, bool WHOLE>
static __global__ void __launch_bounds__(THREADS)
    backward_kernel(T *dx, const T *dy, const T *x, const float *sums, const float *backward_sums,
                    const T *gain, int64_t in, float hidden, float epsilon)
{
    const int64_t token = blockIdx.x, row = token * in;
    const moments m = token_moments(sums[2 * token], sums[2 * token + 1], hidden, epsilon);
    float sum[2];
    if (WHOLE) {
        row_backward_sums<T, N>(sum, dy + row, x + row, gain, m, in);
    } else {
        sum[0] = backward_sums[2 * token];
        sum[1] = backward_sums[2 * token + 1];
    }
    const float plain = sum[0] / hidden, weighted = sum[1] / hidden;
    for (int64_t i = (int64_t)threadIdx.x * N; i < in; i += (int64_t)blockDim.x * N) {
        const gpu_chunk<T, N> d = gpu_get<N>(dy + row + i), at = gpu_get<N>(x + row + i);
        const gpu_chunk<T, N> gains = gpu_get<N>(gain + i);
        gpu_chunk<T, N> to;
        GPU_UNROLL
        for (int j = 0; j < N; j++) {
            const float xhat = (gpu_load(at.at[j]) - m.mean) * m.rstd;
            const float dxhat = gpu_load(d.at[j]) * gpu_load(gains.at[j]);
            to.at[j] = gpu_store<T>(m.rstd * (dxhat - plain - xhat * weighted));
        }
        gpu_put(dx + row + i, to);
    }
}

/* dgain sums dy xhat, dshift dy. */
template <class T, int N> struct parameter_source {
    const T *dy, *x;
    const float *sums;
    int64_t in;
    float hidden, epsilon;
    __device__ __forceinline__ void add(float (&sum)[2][N], int64_t row, int64_t column) const
    {
        const moments m = token_moments(sums[2 * row], sums[2 * row + 1], hidden, epsilon);
        const gpu_chunk<T, N> d = gpu_get<N>(dy + row * in + column);
        const gpu_chunk<T, N> at = gpu_get<N>(x + row * in + column);
        GPU_UNROLL
        for (int j = 0; j < N; j++) {
            const float value = gpu_load(d.at[j]);
            sum[0][j] = fmaf(value, (gpu_load(at.at[j]) - m.mean) * m.rstd, sum[0][j]);
            sum[1][j] += value;
        }
    }
};

/* ---- launches ------------------------------------------------------------------------------- */

/* All launches take these. Pointers that an operator has not are NULL. */
template <class T> struct operands {
    struct sbp_cuda *cuda;
    T *y, *dx, *dgain, *dshift;
    const T *x, *dy, *gain, *shift;
    float *sums, *backward_sums;
    int64_t tokens, in, hidden;
    float epsilon;
    bool adds;
};

enum operation { SUMS, FORWARD, BACKWARD_SUMS, BACKWARD };

template <class T, int N, bool WHOLE> static void launch_rows(const operands<T> &o, operation what)
{
    const dim3 grid((unsigned)o.tokens), block(gpu_row_threads(gpu_ceil(o.in, N), THREADS));
    const auto forward = forward_kernel<T, N, WHOLE>;
    const auto backward = backward_kernel<T, N, WHOLE>;
    const auto sums = sums_kernel<T, N>;
    const auto backward_sums = backward_sums_kernel<T, N>;
    if (o.tokens == 0)
        return;
    if (what == SUMS)
        GPU_LAUNCH(o.cuda, sums, grid, block, 0, o.sums, o.x, o.in);
    else if (what == FORWARD)
        GPU_LAUNCH(o.cuda, forward, grid, block, 0, o.y, o.sums, o.x, o.gain, o.shift, o.in,
                   (float)o.hidden, o.epsilon);
    else if (what == BACKWARD_SUMS)
        GPU_LAUNCH(o.cuda, backward_sums, grid, block, 0, o.backward_sums, o.dy, o.x, o.sums,
                   o.gain, o.in, (float)o.hidden, o.epsilon);
    else
        GPU_LAUNCH(o.cuda, backward, grid, block, 0, o.dx, o.dy, o.x, o.sums, o.backward_sums,
                   o.gain, o.in, (float)o.hidden, o.epsilon);
}

template <class T, int N> static void launch_parameters(const operands<T> &o)
{
    if (o.dgain == nullptr) /* not wanted, and so is dshift */
        return;
    const parameter_source<T, N> source = {o.dy, o.x, o.sums, o.in, (float)o.hidden, o.epsilon};
    column_sums<2, N>(o.cuda, o.dgain, o.dshift, o.tokens, o.in, o.adds, source);
}

template <class T> static bool is_aligned(const operands<T> &o)
{
    constexpr int N = gpu_width<T>;
    return gpu_aligned<N>(o.y, o.in) && gpu_aligned<N>(o.dx) && gpu_aligned<N>(o.x) &&
           gpu_aligned<N>(o.dy) && gpu_aligned<N>(o.gain) && gpu_aligned<N>(o.shift);
}

template <class T> static void run(const operands<T> &o, operation what, bool is_whole)
{
    constexpr int N = gpu_width<T>;
    const bool is_wide = is_aligned(o);
    if (is_wide && is_whole)
        launch_rows<T, N, true>(o, what);
    else if (is_wide)
        launch_rows<T, N, false>(o, what);
    else if (is_whole)
        launch_rows<T, 1, true>(o, what);
    else
        launch_rows<T, 1, false>(o, what);
    if (what == BACKWARD && is_wide)
        launch_parameters<T, N>(o);
    else if (what == BACKWARD)
        launch_parameters<T, 1>(o);
}

template <class T>
static void sums(struct sbp_cuda *cuda, void *to, const void *x, int64_t tokens, int64_t in)
{
    operands<T> o = {};
    o.cuda = cuda;
    o.sums = (float *)to;
    o.x = (const T *)x;
    o.tokens = tokens;
    o.in = in;
    run(o, SUMS, false);
}

template <class T>
static operands<T> operands_of(struct sbp_cuda *cuda, const void *x, const void *sums,
                               const void *gain, int64_t tokens, int64_t in, int64_t hidden,
                               double epsilon)
{
    operands<T> o = {};
    o.cuda = cuda;
    o.x = (const T *)x;
    o.sums = (float *)sums; /* written by layernorm_whole_forward alone */
    o.gain = (const T *)gain;
    o.tokens = tokens;
    o.in = in;
    o.hidden = hidden;
    o.epsilon = (float)epsilon;
    return o;
}

template <class T>
static void forward(struct sbp_cuda *cuda, void *y, const void *x, const void *sums,
                    const void *gain, const void *shift, int64_t tokens, int64_t in, int64_t hidden,
                    double epsilon)
{
    operands<T> o = operands_of<T>(cuda, x, sums, gain, tokens, in, hidden, epsilon);
    o.y = (T *)y;
    o.shift = (const T *)shift;
    run(o, FORWARD, false);
}

template <class T>
static void whole_forward(struct sbp_cuda *cuda, void *y, void *sums, const void *x,
                          const void *gain, const void *shift, int64_t tokens, int64_t hidden,
                          double epsilon)
{
    operands<T> o = operands_of<T>(cuda, x, sums, gain, tokens, hidden, hidden, epsilon);
    o.y = (T *)y;
    o.shift = (const T *)shift;
    run(o, FORWARD, true);
}

template <class T>
static void backward_sums(struct sbp_cuda *cuda, void *to, const void *dy, const void *x,
                          const void *sums, const void *gain, int64_t tokens, int64_t in,
                          int64_t hidden, double epsilon)
{
    operands<T> o = operands_of<T>(cuda, x, sums, gain, tokens, in, hidden, epsilon);
    o.backward_sums = (float *)to;
    o.dy = (const T *)dy;
    run(o, BACKWARD_SUMS, false);
}

template <class T>
static void backward(struct sbp_cuda *cuda, void *dx, void *dgain, void *dshift, const void *dy,
                     const void *x, const void *sums, const void *backward_sums, const void *gain,
                     int64_t tokens, int64_t in, int64_t hidden, double epsilon, bool adds)
{
    operands<T> o = operands_of<T>(cuda, x, sums, gain, tokens, in, hidden, epsilon);
    o.dx = (T *)dx;
    o.dgain = (T *)dgain;
    o.dshift = (T *)dshift;
    o.dy = (const T *)dy;
    o.backward_sums = (float *)backward_sums;
    o.adds = adds;
    run(o, BACKWARD, backward_sums == NULL);
}

template <class T>
static void whole_backward(struct sbp_cuda *cuda, void *dx, void *dgain, void *dshift,
                           const void *dy, const void *x, const void *sums, const void *gain,
                           int64_t tokens, int64_t hidden, double epsilon, bool adds)
{
    backward<T>(cuda, dx, dgain, dshift, dy, x, sums, NULL, gain, tokens, hidden, hidden, epsilon,
                adds);
}

template <class T> static void fill(struct sbp_cuda_kernels *kernels)
{
    kernels->layernorm_sums = sums<T>;
    kernels->layernorm_forward = forward<T>;
    kernels->layernorm_backward_sums = backward_sums<T>;
    kernels->layernorm_backward = backward<T>;
    kernels->layernorm_whole_forward = whole_forward<T>;
    kernels->layernorm_whole_backward = whole_backward<T>;
}
GPU_FILL(layernorm, sums_kernel<float, 1>)
