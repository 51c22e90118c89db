/* Root mean square norms (Zhang and Sennrich, 2019): a block a row, which is a token, or a head of
 * whose features the first are normalised. */
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/reduce.cuh"

enum { THREADS = 512 };

/* Rows `stride` apart, of which `in` features are here and `size` are normalised together. */
struct norm_rows {
    int64_t stride, in;
    float size, epsilon;
};

static __device__ __forceinline__ float inverse_root(float squares, const norm_rows &rows)
{
    return 1 / sqrtf(squares / rows.size + rows.epsilon);
}

/* sum x^2 of a row. */
template <class T, int N>
static __device__ __forceinline__ float row_squares(const T *row, int64_t in)
{
    float sum[1] = {0};
    for (int64_t i = (int64_t)threadIdx.x * N; i < in; i += (int64_t)blockDim.x * N) {
        const gpu_chunk<T, N> x = gpu_get<N>(row + i);
        GPU_UNROLL
        for (int j = 0; j < N; j++)
            sum[0] = fmaf(gpu_load(x.at[j]), gpu_load(x.at[j]), sum[0]);
    }
    gpu_block_reduce(sum, gpu_plus());
    return sum[0];
}

/* sum dy gain x of a row. */
template <class T, int N>
static __device__ __forceinline__ float row_weighted(const T *dy, const T *x, const T *gain,
                                                     int64_t in)
{
    float sum[1] = {0};
    for (int64_t i = (int64_t)threadIdx.x * N; i < in; i += (int64_t)blockDim.x * N) {
        const gpu_chunk<T, N> d = gpu_get<N>(dy + i), at = gpu_get<N>(x + i);
        const gpu_chunk<T, N> gains = gpu_get<N>(gain + i);
        GPU_UNROLL
        for (int j = 0; j < N; j++)
            sum[0] = fmaf(gpu_load(d.at[j]) * gpu_load(gains.at[j]), gpu_load(at.at[j]), sum[0]);
    }
    gpu_block_reduce(sum, gpu_plus());
    return sum[0];
}

/* BACK: of dy gain x. */
template <class T, int N, bool BACK>
static __global__ void __launch_bounds__(THREADS)
    sums_kernel(float *sums, const T *dy, const T *x, const T *gain, norm_rows rows)
{
    const int64_t row = blockIdx.x * rows.stride;
    const float sum = BACK ? row_weighted<T, N>(dy + row, x + row, gain, rows.in)
                           : row_squares<T, N>(x + row, rows.in);
    if (threadIdx.x == 0)
        sums[blockIdx.x] = sum;
}

/* WHOLE: sums are written, else read. Features behind those that are normalised pass. */
template <class T, int N, bool WHOLE>
static __global__ void __launch_bounds__(THREADS)
    forward_kernel(T *y, float *sums, const T *x, const T *gain, norm_rows rows)
{
    const int64_t row = blockIdx.x * rows.stride;
    const float squares = WHOLE ? row_squares<T, N>(x + row, rows.in) : sums[blockIdx.x];
    if (WHOLE && threadIdx.x == 0)
        sums[blockIdx.x] = squares;
    const float factor = inverse_root(squares, rows);
    for (int64_t i = (int64_t)threadIdx.x * N; i < rows.stride; i += (int64_t)blockDim.x * N) {
        const gpu_chunk<T, N> from = gpu_get<N>(x + row + i);
        gpu_chunk<T, N> to = from, gains = from;
        if (i < rows.in)
            gains = gpu_get<N>(gain + i);
        GPU_UNROLL
        for (int j = 0; j < N; j++)
            if (i < rows.in)
                to.at[j] = gpu_store<T>(gpu_load(from.at[j]) * factor * gpu_load(gains.at[j]));
        gpu_put(y + row + i, to);
    }
}

/* dx = rstd (dy gain - x rstd^2 mean(dy gain x)). */
template <class T, int N, bool WHOLE>
static __global__ void __launch_bounds__(THREADS)
    backward_kernel(T *dx, const T *dy, const T *x, const float *sums, const float *backward_sums,
                    const T *gain, norm_rows rows)
{
    const int64_t row = blockIdx.x * rows.stride;
    const float sum =
        WHOLE ? row_weighted<T, N>(dy + row, x + row, gain, rows.in) : backward_sums[blockIdx.x];
    const float factor = inverse_root(sums[blockIdx.x], rows);
    const float back = factor * factor * factor * (sum / rows.size);
    for (int64_t i = (int64_t)threadIdx.x * N; i < rows.stride; i += (int64_t)blockDim.x * N) {
        const gpu_chunk<T, N> d = gpu_get<N>(dy + row + i), at = gpu_get<N>(x + row + i);
        gpu_chunk<T, N> to = d, gains = d;
        if (i < rows.in)
            gains = gpu_get<N>(gain + i);
        GPU_UNROLL
        for (int j = 0; j < N; j++)
            if (i < rows.in)
                to.at[j] = gpu_store<T>(factor * gpu_load(d.at[j]) * gpu_load(gains.at[j]) -
                                        gpu_load(at.at[j]) * back);
        gpu_put(dx + row + i, to);
    }
}

/* dgain sums dy x rstd. */
template <class T, int N> struct gain_source {
    const T *dy, *x;
    const float *sums;
    norm_rows rows;
    __device__ __forceinline__ void add(float (&sum)[1][N], int64_t row, int64_t column) const
    {
        const float factor = inverse_root(sums[row], rows);
        const gpu_chunk<T, N> d = gpu_get<N>(dy + row * rows.stride + column);
        const gpu_chunk<T, N> at = gpu_get<N>(x + row * rows.stride + column);
        GPU_UNROLL
        for (int j = 0; j < N; j++)
            sum[0][j] = fmaf(gpu_load(d.at[j]), gpu_load(at.at[j]) * factor, sum[0][j]);
    }
};

/* ---- launches ------------------------------------------------------------------------------- */

/* All launches take these. Pointers that an operator has not are NULL. */
template <class T> struct operands {
    struct sbp_cuda *cuda;
    T *y, *dx, *dgain;
    const T *x, *dy, *gain;
    float *sums, *backward_sums;
    int64_t count;
    norm_rows rows;
    bool adds, whole;
};

enum operation { SUMS, FORWARD, BACKWARD_SUMS, BACKWARD };

template <class T, int N, bool WHOLE> static void launch_rows(const operands<T> &o, operation what)
{
    const dim3 grid((unsigned)o.count);
    const dim3 block(gpu_row_threads(gpu_ceil(o.rows.stride, N), THREADS));
    const auto forward = forward_kernel<T, N, WHOLE>;
    const auto backward = backward_kernel<T, N, WHOLE>;
    const auto sums = sums_kernel<T, N, false>, backward_sums = sums_kernel<T, N, true>;
    if (o.count == 0)
        return;
    if (what == SUMS)
        GPU_LAUNCH(o.cuda, sums, grid, block, 0, o.sums, o.dy, o.x, o.gain, o.rows);
    else if (what == FORWARD)
        GPU_LAUNCH(o.cuda, forward, grid, block, 0, o.y, o.sums, o.x, o.gain, o.rows);
    else if (what == BACKWARD_SUMS)
        GPU_LAUNCH(o.cuda, backward_sums, grid, block, 0, o.backward_sums, o.dy, o.x, o.gain,
                   o.rows);
    else
        GPU_LAUNCH(o.cuda, backward, grid, block, 0, o.dx, o.dy, o.x, o.sums, o.backward_sums,
                   o.gain, o.rows);
}

template <class T, int N> static void launch(const operands<T> &o, operation what)
{
    if (o.whole)
        launch_rows<T, N, true>(o, what);
    else
        launch_rows<T, N, false>(o, what);
    if (what != BACKWARD || o.dgain == nullptr) /* not wanted */
        return;
    const gain_source<T, N> source = {o.dy, o.x, o.sums, o.rows};
    column_sums<1, N>(o.cuda, o.dgain, (T *)nullptr, o.count, o.rows.in, o.adds, source);
}

template <class T> static void run(const operands<T> &o, operation what)
{
    constexpr int N = gpu_width<T>;
    if (gpu_aligned<N>(o.y, o.rows.stride) && gpu_aligned<N>(o.dx) && gpu_aligned<N>(o.x) &&
        gpu_aligned<N>(o.dy) && gpu_aligned<N>(o.gain, o.rows.in))
        launch<T, N>(o, what);
    else
        launch<T, 1>(o, what);
}

template <class T>
static operands<T> operands_of(struct sbp_cuda *cuda, const void *x, const void *sums,
                               const void *gain, int64_t count, const norm_rows &rows)
{
    operands<T> o = {};
    o.cuda = cuda;
    o.x = (const T *)x;
    o.sums = (float *)sums; /* written by sums and head_norm_forward alone */
    o.gain = (const T *)gain;
    o.count = count;
    o.rows = rows;
    return o;
}

static norm_rows tokens_of(int64_t in, int64_t hidden, double epsilon)
{
    return norm_rows{in, in, (float)hidden, (float)epsilon};
}

static norm_rows heads_of(int64_t width, int64_t size, double epsilon)
{
    return norm_rows{width, size, (float)size, (float)epsilon};
}

template <class T>
static void sums(struct sbp_cuda *cuda, void *to, const void *x, int64_t tokens, int64_t in)
{
    run(operands_of<T>(cuda, x, to, NULL, tokens, tokens_of(in, in, 0)), SUMS);
}

template <class T>
static void forward(struct sbp_cuda *cuda, void *y, const void *x, const void *sums,
                    const void *gain, int64_t tokens, int64_t in, int64_t hidden, double epsilon)
{
    operands<T> o = operands_of<T>(cuda, x, sums, gain, tokens, tokens_of(in, hidden, epsilon));
    o.y = (T *)y;
    run(o, FORWARD);
}

template <class T>
static void backward_sums(struct sbp_cuda *cuda, void *to, const void *dy, const void *x,
                          const void *gain, int64_t tokens, int64_t in)
{
    operands<T> o = operands_of<T>(cuda, x, NULL, gain, tokens, tokens_of(in, in, 0));
    o.backward_sums = (float *)to;
    o.dy = (const T *)dy;
    run(o, BACKWARD_SUMS);
}

template <class T>
static void back(operands<T> o, void *dx, void *dgain, const void *dy, const void *backward_sums,
                 bool adds)
{
    o.dx = (T *)dx;
    o.dgain = (T *)dgain;
    o.dy = (const T *)dy;
    o.backward_sums = (float *)backward_sums;
    o.whole = backward_sums == NULL;
    o.adds = adds;
    run(o, BACKWARD);
}

template <class T>
static void backward(struct sbp_cuda *cuda, void *dx, void *dgain, const void *dy, const void *x,
                     const void *sums, const void *backward_sums, const void *gain, int64_t tokens,
                     int64_t in, int64_t hidden, double epsilon, bool adds)
{
    back(operands_of<T>(cuda, x, sums, gain, tokens, tokens_of(in, hidden, epsilon)), dx, dgain, dy,
         backward_sums, adds);
}

template <class T>
static void head_forward(struct sbp_cuda *cuda, void *y, void *sums, const void *x,
                         const void *gain, int64_t heads, int64_t width, int64_t size,
                         double epsilon)
{
    operands<T> o = operands_of<T>(cuda, x, sums, gain, heads, heads_of(width, size, epsilon));
    o.y = (T *)y;
    o.whole = true;
    run(o, FORWARD);
}

template <class T>
static void head_backward(struct sbp_cuda *cuda, void *dx, void *dgain, const void *dy,
                          const void *x, const void *sums, const void *gain, int64_t heads,
                          int64_t width, int64_t size, double epsilon, bool adds)
{
    back(operands_of<T>(cuda, x, sums, gain, heads, heads_of(width, size, epsilon)), dx, dgain, dy,
         NULL, adds);
}

template <class T> static void fill(struct sbp_cuda_kernels *kernels)
{
    kernels->rmsnorm_sums = sums<T>;
    kernels->rmsnorm_forward = forward<T>;
    kernels->rmsnorm_backward_sums = backward_sums<T>;
    kernels->rmsnorm_backward = backward<T>;
    kernels->head_norm_forward = head_forward<T>;
    kernels->head_norm_backward = head_backward<T>;
}
GPU_FILL(rmsnorm, sums_kernel<float, 1, false>)
