/* The optimizers' steps, the squares that clipping sums, and a step's scales. */
#include <assert.h>

#include "kernels/cuda/reduce.cuh"

enum { THREADS = 256, PARTS = 1024, PART_ELEMENTS = THREADS * 16 /* at least, of a part */ };

/* ---- squares -------------------------------------------------------------------------------- */

/* Products of a chunk are added up in float, chunks in double. */
template <class T, int N>
static __global__ void __launch_bounds__(THREADS)
    squares_kernel(double *parts, const T *x, int64_t n, int64_t part)
{
    const int64_t first = blockIdx.x * part, end = first + part < n ? first + part : n;
    double total[1] = {0};
    for (int64_t i = first + (int64_t)threadIdx.x * N; i < end; i += THREADS * N) {
        float sum = 0;
        if (i + N <= end) {
            const gpu_chunk<T, N> at = gpu_get<N>(x + i);
            GPU_UNROLL
            for (int j = 0; j < N; j++)
                sum = fmaf(gpu_load(at.at[j]), gpu_load(at.at[j]), sum);
        } else {
            for (int64_t k = i; k < end; k++)
                sum = fmaf(gpu_load(x[k]), gpu_load(x[k]), sum);
        }
        total[0] += (double)sum;
    }
    gpu_block_reduce(total, gpu_plus());
    if (threadIdx.x == 0)
        parts[blockIdx.x] = total[0];
}

static __global__ void __launch_bounds__(THREADS)
    total_kernel(float *sum, const double *parts, int count, double factor)
{
    double total[1] = {0};
    for (int i = (int)threadIdx.x; i < count; i += THREADS)
        total[0] += parts[i];
    gpu_block_reduce(total, gpu_plus());
    if (threadIdx.x == 0)
        *sum = (float)(total[0] * factor);
}

template <class T>
static void sum_squares(struct sbp_cuda *cuda, void *sum, const void *x, int64_t n, double factor)
{
    constexpr int N = gpu_width<T>;
    const int64_t wanted = sbp_least_i64(gpu_ceil(n, PART_ELEMENTS), PARTS);
    const int64_t part = n > 0 ? gpu_ceil(gpu_ceil(n, wanted), N) * N : N;
    const int count = (int)gpu_ceil(n, part);
    double *const parts = (double *)cuda->scratch;
    const auto wide = squares_kernel<T, N>, narrow = squares_kernel<T, 1>;
    if (n > 0 && gpu_aligned<N>((const T *)x))
        GPU_LAUNCH(cuda, wide, (unsigned)count, THREADS, 0, parts, (const T *)x, n, part);
    else if (n > 0)
        GPU_LAUNCH(cuda, narrow, (unsigned)count, THREADS, 0, parts, (const T *)x, n, part);
    GPU_LAUNCH(cuda, total_kernel, 1, THREADS, 0, (float *)sum, (const double *)parts, count,
               factor);
}

/* ---- a step's scales ------------------------------------------------------------------------ */

/* The defaults of PyTorch's torch.amp.GradScaler; the least scale is Megatron-LM's. */
#define FIRST_SCALE     0x1p16
#define GROWTH          2.0
#define BACKOFF         0.5
#define LEAST_SCALE     1.0
#define GROWTH_INTERVAL 2000

/* The first thread does all of a step's kernels. */
static __device__ __forceinline__ void change_scale(struct sbp_step_state *step)
{
    const bool overflowed = step->overflowed != 0;
    step->left_out += overflowed;
    step->good_steps = overflowed ? 0 : step->good_steps + 1;
    if (overflowed && step->loss_scale > LEAST_SCALE)
        step->loss_scale *= BACKOFF;
    if (step->good_steps == GROWTH_INTERVAL) {
        step->loss_scale *= GROWTH;
        step->good_steps = 0;
    }
}

static __global__ void begin_kernel(struct sbp_step_state *step, bool scales)
{
    if (threadIdx.x != 0)
        return;
    if (step->has_begun == 0)
        step->loss_scale = scales ? FIRST_SCALE : 1;
    else if (scales && step->grad_norm != -1) /* a round ahead of all steps has no norm */
        change_scale(step);
    step->has_begun = 1;
    step->loss = step->loss_ahead;
    step->loss_ahead = step->squares = 0;
    step->grad_norm = -1;
    step->gradient_scale = 1;
    step->overflowed = step->leaves_out = step->has_odd_gradient = 0;
}

static __global__ void add_kernel(double *sum, const float *value)
{
    if (threadIdx.x == 0)
        *sum += (double)*value;
}

static __global__ void take_kernel(float *value, const double *sum)
{
    if (threadIdx.x == 0)
        *value = (float)*sum;
}

/* A gradient that overflows in half precision, or is no number, makes the sum infinite or none. */
static __global__ void decide_kernel(struct sbp_step_state *step, const float *squares, double clip,
                                     int64_t number, double beta1, double beta2, bool scales)
{
    if (threadIdx.x != 0)
        return;
    const double time = (double)(number - step->left_out);
    if (time > 0) { /* no update follows a round ahead of all steps */
        step->first_unbias = 1 / (1 - pow(beta1, time));
        step->second_unbias = 1 / sqrt(1 - pow(beta2, time));
    }
    if (squares == NULL)
        return;
    const double norm = sqrt((double)*squares) / step->loss_scale;
    step->grad_norm = norm;
    step->gradient_scale = clip > 0 && norm > clip ? clip / norm : 1;
    step->leaves_out = !(*squares < INFINITY);
    step->overflowed = scales && step->leaves_out;
}

static __global__ void watch_kernel(struct sbp_step_state *step, const float *squares)
{
    if (threadIdx.x != 0)
        return;
    step->leaves_out = !(*squares < INFINITY);
    step->has_odd_gradient |= step->leaves_out;
}

static void step_begin(struct sbp_cuda *cuda, struct sbp_step_state *step, bool scales)
{
    GPU_LAUNCH(cuda, begin_kernel, 1, GPU_WARP, 0, step, scales);
}

static void step_add(struct sbp_cuda *cuda, double *sum, const void *value)
{
    GPU_LAUNCH(cuda, add_kernel, 1, GPU_WARP, 0, sum, (const float *)value);
}

static void step_take(struct sbp_cuda *cuda, void *value, const double *sum)
{
    GPU_LAUNCH(cuda, take_kernel, 1, GPU_WARP, 0, (float *)value, sum);
}

static void step_decide(struct sbp_cuda *cuda, struct sbp_step_state *step, const void *squares,
                        double clip_norm, const struct sbp_update *update, bool scales)
{
    GPU_LAUNCH(cuda, decide_kernel, 1, GPU_WARP, 0, step, (const float *)squares, clip_norm,
               update->step, update->beta1, update->beta2, scales);
}

static void step_watch(struct sbp_cuda *cuda, struct sbp_step_state *step, const void *squares)
{
    GPU_LAUNCH(cuda, watch_kernel, 1, GPU_WARP, 0, step, (const float *)squares);
}

/* ---- updates -------------------------------------------------------------------------------- */

/* An optimizer's constants, as a kernel takes them. */
struct constants {
    float rate, momentum, beta1, rest1, beta2, rest2, epsilon;
    float coupled, keep; /* decay that is added to the gradient; what the weight is multiplied by */
    float unscale, gradient_scale, first_unbias, second_unbias;
};

/* Kingma and Ba, 2015, algorithm 1; AdamW shrinks the weight instead of adding the decay to the
 * gradient (Loshchilov and Hutter, 2019, algorithm 2, with the decay scaled by the rate). */
static __device__ __forceinline__ float adam(const constants &c, float w, float gradient,
                                             float &first, float &second)
{
    first = fmaf(c.beta1, first, c.rest1 * gradient);
    second = fmaf(c.beta2, second, c.rest2 * gradient * gradient);
    return w * c.keep -
           c.rate * c.first_unbias * first / (sqrtf(second) * c.second_unbias + c.epsilon);
}

/* Momentum without damping or Nesterov: b = momentum b + g, w -= rate b (Sutskever et al., 2013,
 * with the rate outside the buffer). */
static __device__ __forceinline__ float sgd(const constants &c, float w, float gradient,
                                            float &buffer)
{
    buffer = fmaf(c.momentum, buffer, gradient);
    return w - c.rate * buffer;
}

/* What an update reads and writes; NULL where there is none. weight: in the wide type, the master
 * copy of tensors of 16 bits, of which `rounded` becomes the rounded one. */
template <class T> struct states {
    float *weight, *unscaled, *first, *second;
    T *rounded;
    const T *gradient;
};

template <class T, int N, bool ADAM>
static __device__ __forceinline__ void update_chunk(const states<T> &s, int64_t i,
                                                    const constants &c)
{
    const gpu_chunk<T, N> given = gpu_get<N>(s.gradient + i);
    gpu_chunk<float, N> weight = gpu_get<N>(s.weight + i), unscaled, first = {}, second = {};
    gpu_chunk<T, N> rounded;
    if (s.first != NULL)
        first = gpu_get<N>(s.first + i);
    if (ADAM)
        second = gpu_get<N>(s.second + i);
    GPU_UNROLL
    for (int j = 0; j < N; j++) {
        unscaled.at[j] = gpu_load(given.at[j]) * c.unscale;
        const float w = weight.at[j];
        const float gradient = fmaf(unscaled.at[j], c.gradient_scale, c.coupled * w);
        weight.at[j] = ADAM ? adam(c, w, gradient, first.at[j], second.at[j])
                            : sgd(c, w, gradient, first.at[j]);
        rounded.at[j] = gpu_store<T>(weight.at[j]);
    }
    gpu_put(s.weight + i, weight);
    if (s.rounded != NULL)
        gpu_put(s.rounded + i, rounded);
    if (s.unscaled != NULL)
        gpu_put(s.unscaled + i, unscaled);
    if (s.first != NULL)
        gpu_put(s.first + i, first);
    if (ADAM)
        gpu_put(s.second + i, second);
}

template <class T, int N, bool ADAM>
static __global__ void __launch_bounds__(THREADS)
    update_kernel(states<T> s, int64_t n, constants c, const struct sbp_step_state *step)
{
    const int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int64_t turn = (int64_t)gridDim.x * blockDim.x, chunks = n / N;
    if (step != NULL) {
        if (step->leaves_out != 0)
            return;
        c.unscale = 1 / (float)step->loss_scale;
        c.gradient_scale = (float)step->gradient_scale;
        c.first_unbias = (float)step->first_unbias;
        c.second_unbias = (float)step->second_unbias;
    }
    for (int64_t i = first; i < chunks; i += turn)
        update_chunk<T, N, ADAM>(s, i * N, c);
    for (int64_t i = chunks * N + first; i < n; i += turn)
        update_chunk<T, 1, ADAM>(s, i, c);
}

static constants constants_of(const struct sbp_update *update, bool has_step)
{
    const bool is_adam = update->optimizer != SBP_SGD, decouples = update->optimizer == SBP_ADAMW;
    const bool corrects = is_adam && !has_step;
    const double time = (double)update->step;
    constants c = {};
    assert(!corrects || update->step >= 1);
    c.rate = (float)update->learning_rate;
    c.momentum = (float)update->momentum;
    c.beta1 = (float)update->beta1;
    c.rest1 = (float)(1 - update->beta1);
    c.beta2 = (float)update->beta2;
    c.rest2 = (float)(1 - update->beta2);
    c.epsilon = (float)update->epsilon;
    c.coupled = decouples ? 0 : (float)update->weight_decay;
    c.keep = decouples ? (float)(1 - update->learning_rate * update->weight_decay) : 1;
    c.unscale = (float)(1 / update->loss_scale);
    c.gradient_scale = (float)update->gradient_scale;
    c.first_unbias = corrects ? (float)(1 / (1 - pow(update->beta1, time))) : 1;
    c.second_unbias = corrects ? (float)(1 / sqrt(1 - pow(update->beta2, time))) : 1;
    return c;
}

template <class T, bool ADAM>
static void launch_update(struct sbp_cuda *cuda, const states<T> &s, int64_t n, const constants &c,
                          const struct sbp_step_state *step)
{
    constexpr int N = gpu_width<T>;
    const auto wide = update_kernel<T, N, ADAM>, narrow = update_kernel<T, 1, ADAM>;
    if (n == 0)
        return;
    if (gpu_aligned<N>(s.weight) && gpu_aligned<N>(s.unscaled) && gpu_aligned<N>(s.first) &&
        gpu_aligned<N>(s.second) && gpu_aligned<N>(s.rounded) && gpu_aligned<N>(s.gradient))
        GPU_LAUNCH(cuda, wide, gpu_loop_blocks(cuda, gpu_ceil(n, N), THREADS), THREADS, 0, s, n, c,
                   step);
    else
        GPU_LAUNCH(cuda, narrow, gpu_loop_blocks(cuda, n, THREADS), THREADS, 0, s, n, c, step);
}

template <class T>
static void update(struct sbp_cuda *cuda, void *w, void *master, const void *g,
                   void *gradient_master, void *first, void *second, int64_t n,
                   const struct sbp_update *update, const struct sbp_step_state *step)
{
    const bool is_half = sizeof(T) == 2;
    states<T> s = {};
    s.weight = (float *)(is_half ? master : w);
    s.rounded = is_half ? (T *)w : NULL;
    s.unscaled = is_half ? (float *)gradient_master : NULL;
    s.first = (float *)first;
    s.second = (float *)second;
    s.gradient = (const T *)g;
    constants c = constants_of(update, step != NULL);
    if (!is_half)
        c.unscale = 1;
    if (update->optimizer == SBP_SGD)
        launch_update<T, false>(cuda, s, n, c, step);
    else
        launch_update<T, true>(cuda, s, n, c, step);
}

template <class T> static void fill(struct sbp_cuda_kernels *kernels)
{
    kernels->sum_squares = sum_squares<T>;
    kernels->step_begin = step_begin;
    kernels->step_add = step_add;
    kernels->step_take = step_take;
    kernels->step_decide = step_decide;
    kernels->step_watch = step_watch;
    kernels->update = update<T>;
}
GPU_FILL(optimizer, total_kernel)
