/* Attention on the GPU, packed and grouped: packed attention is grouped attention whose heads have
 * keys each (flash.cuh). Keys at hand are those of the sequence, or of a block (blocks.cuh). */
#include <assert.h>
#include <limits.h>

#include "kernels/cuda/flash.cuh"

enum { SINK_THREADS = 256 };

/* Which keys there are: rows and block as in a context, NULL: of all of the sequence. */
struct keys_at_hand {
    const struct sbp_digits *rows;
    const struct sbp_attention_block *block;
    int all; /* keys of the sequence */
};

static keys_at_hand keys_of(const struct sbp_attention_shape *shape, const struct sbp_digits *rows,
                            const struct sbp_attention_block *block)
{
    return keys_at_hand{rows, block,
                        (int)(rows != NULL ? sbp_digits_global_size(rows) : shape->sequence)};
}

/* Whether other keys came before. */
static bool has_begun(const keys_at_hand &of)
{
    return of.block != NULL && !of.block->first;
}

/* Packed and grouped attention have this alike. */
template <class T>
static attention<T> attention_of(const struct sbp_attention_shape *shape, const void *saved,
                                 const keys_at_hand &of)
{
    const bool is_flash = shape->kind == SBP_ATTENTION_FLASH;
    attention<T> a = {};
    assert(shape->head_size <= SBP_CUDA_LARGEST_HEAD);
    a.y_stride = shape->heads * shape->head_size;
    a.heads = (int)shape->heads;
    a.rows = (int)shape->sequence;
    a.keys = of.block != NULL ? (int)sbp_digits_local_size(of.block->keys) : of.all;
    a.size = a.value = (int)shape->head_size;
    a.causal = shape->causal;
    a.window = INT_MAX;
    a.scale = (float)(1 / sqrt((double)shape->head_size));
    a.probabilities = is_flash ? NULL : (T *)saved;
    a.log_sums = is_flash ? (float *)saved : NULL;
    if (of.rows != NULL)
        a.digits = gpu_digits_of(of.rows);
    return a;
}

static keys_at_hand packed_keys(const struct sbp_attention_shape *shape,
                                const struct sbp_attention_context *context)
{
    return context == NULL ? keys_of(shape, NULL, NULL)
                           : keys_of(shape, context->rows, context->block);
}

static keys_at_hand grouped_keys(const struct sbp_attention_shape *shape,
                                 const struct sbp_attention_groups *groups)
{
    return keys_of(shape, groups->rows, groups->block);
}

template <class T>
static attention<T> packed_of(const struct sbp_attention_shape *shape, const void *qkv,
                              const void *saved, const struct sbp_attention_context *context)
{
    attention<T> a = attention_of<T>(shape, saved, packed_keys(shape, context));
    a.q = (const T *)qkv;
    a.k = (const T *)(context != NULL ? context->keys : qkv);
    a.q_head = 3 * shape->head_size;
    a.k_head = (context != NULL ? 2 : 3) * shape->head_size;
    a.q_stride = a.heads * a.q_head;
    a.k_stride = a.heads * a.k_head;
    a.first_key = context != NULL ? 0 : shape->head_size;
    a.first_value = a.first_key + shape->head_size;
    a.kv_heads = a.heads;
    a.share = 1;
    return a;
}

template <class T>
static attention<T> grouped_of(const struct sbp_attention_shape *shape, const void *q,
                               const void *kv, const void *saved,
                               const struct sbp_attention_groups *groups)
{
    attention<T> a = attention_of<T>(shape, saved, grouped_keys(shape, groups));
    a.q = (const T *)q;
    a.k = (const T *)kv;
    a.q_head = shape->head_size;
    a.k_head = 2 * shape->head_size;
    a.kv_heads = (int)sbp_digits_local_size(groups->kv_heads);
    a.q_stride = a.heads * a.q_head;
    a.k_stride = a.kv_heads * a.k_head;
    a.first_value = shape->head_size;
    a.share = groups->share;
    a.head_digits = gpu_digits_of(groups->heads);
    a.kv_digits = gpu_digits_of(groups->kv_heads);
    a.sinks = (const T *)groups->sinks;
    if (a.causal && groups->window > 0)
        a.window = (int)sbp_least_i64(groups->window, INT_MAX);
    return a;
}

template <class T> static bool is_aligned(const attention<T> &a)
{
    constexpr int N = gpu_width<T>;
    return gpu_aligned<N>(a.q, a.size) && gpu_aligned<N>(a.k) && gpu_aligned<N>(a.dy) &&
           gpu_aligned<N>(a.to) && gpu_aligned<N>(a.dq) && gpu_aligned<N>(a.dk);
}

template <class T, class A>
static void launch_forward_of(struct sbp_cuda *cuda, const A &a, int64_t heads)
{
    if (a.size <= 64)
        launches<T, 64, A>::forward(cuda, a, heads);
    else if (a.size <= 128)
        launches<T, 128, A>::forward(cuda, a, heads);
    else
        launches<T, 256, A>::forward(cuda, a, heads);
}

/* Without dropout what decides of it is not looked at. */
template <class T>
static blocked<attention<T>> block_of(const attention<T> &a, const keys_at_hand &of,
                                      const struct sbp_attention_shape *shape)
{
    dropping<attention<T>> d = {};
    (attention<T> &)d = a;
    if (shape->dropout != NULL)
        d = dropping_of(a, shape->dropout);
    return blocked_of(d, of.block, of.all, shape->dropout != NULL);
}

/* The first block of a pass finds no probabilities; scratch has the log-sum-exps of those that are
 * kept. */
template <class T>
static void launch_block(struct sbp_cuda *cuda, attention<T> &a, void *scratch,
                         const keys_at_hand &of, const struct sbp_attention_shape *shape)
{
    const int64_t heads = shape->batch * shape->heads;
    if (a.probabilities != NULL)
        a.log_sums = (float *)scratch;
    if (a.probabilities != NULL && of.block->first)
        gpu_zero(cuda, a.probabilities, heads * a.rows * of.all * (int64_t)sizeof(T));
    launch_forward_of<T>(cuda, block_of(a, of, shape), heads);
}

template <class T>
static void launch_forward(struct sbp_cuda *cuda, void *y, void *scratch, attention<T> &a,
                           const keys_at_hand &of, const struct sbp_attention_shape *shape)
{
    const int64_t heads = shape->batch * shape->heads;
    a.to = (T *)y;
    a.is_aligned = is_aligned(a);
    if (heads == 0 || a.rows == 0)
        return;
    if (of.block != NULL)
        launch_block(cuda, a, scratch, of, shape);
    else if (shape->dropout != NULL)
        launch_forward_of<T>(cuda, dropping_of(a, shape->dropout), heads);
    else
        launch_forward_of<T>(cuda, a, heads);
}

template <class T>
static void forward(struct sbp_cuda *cuda, void *y, void *saved, void *scratch, const void *qkv,
                    const struct sbp_attention_context *context,
                    const struct sbp_attention_shape *shape)
{
    attention<T> a = packed_of<T>(shape, qkv, saved, context);
    launch_forward(cuda, y, scratch, a, packed_keys(shape, context), shape);
}

template <class T>
static void grouped_forward(struct sbp_cuda *cuda, void *y, void *saved, void *scratch,
                            const void *q, const void *kv,
                            const struct sbp_attention_groups *groups,
                            const struct sbp_attention_shape *shape)
{
    attention<T> a = grouped_of<T>(shape, q, kv, saved, groups);
    launch_forward(cuda, y, scratch, a, grouped_keys(shape, groups), shape);
}

/* The first head of queries, batch by batch, that reads a head of keys or one behind it. */
template <class T>
static int64_t first_reader(const attention<T> &a, const struct sbp_attention_groups *groups,
                            int64_t kv_head)
{
    const int64_t own = kv_head % a.kv_heads;
    return kv_head / a.kv_heads * a.heads +
           (groups == NULL ? own
                           : gpu_digits_below(groups->heads,
                                              sbp_digits_global(groups->kv_heads, own) * a.share));
}

/* As many heads of keys at a time as scratch has room for a number a query of those that read
 * them. */
template <class T, class A>
static void launch_backward_of(struct sbp_cuda *cuda, A &a,
                               const struct sbp_attention_groups *groups, int64_t batch)
{
    const int64_t all = batch * a.kv_heads;
    if (all == 0 || a.rows == 0)
        return;
    const int64_t room = cuda->scratch_bytes / (int64_t)sizeof(float) / a.rows;
    a.inner = (float *)cuda->scratch;
    a.is_aligned = is_aligned(a);
    for (int64_t end = 0; a.first_key_head < all; a.first_key_head = end) {
        a.first_head = first_reader(a, groups, a.first_key_head);
        end = a.first_key_head + 1;
        while (end < all && first_reader(a, groups, end + 1) - a.first_head <= room)
            end++;
        const int64_t heads = first_reader(a, groups, end) - a.first_head;
        const int64_t kv_heads = end - a.first_key_head;
        if (heads > room) { /* the readers of one head of keys have too many queries */
            gpu_note(cuda, cudaErrorInvalidValue);
            return;
        }
        if (a.size <= 64)
            launches<T, 64, A>::backward(cuda, a, heads, kv_heads);
        else if (a.size <= 128)
            launches<T, 128, A>::backward(cuda, a, heads, kv_heads);
        else
            launches<T, 256, A>::backward(cuda, a, heads, kv_heads);
    }
}

template <class T>
static void launch_backward(struct sbp_cuda *cuda, attention<T> &a, const keys_at_hand &of,
                            const struct sbp_attention_groups *groups,
                            const struct sbp_attention_shape *shape)
{
    if (of.block != NULL) {
        blocked<attention<T>> b = block_of(a, of, shape);
        launch_backward_of<T>(cuda, b, groups, shape->batch);
    } else if (shape->dropout != NULL) {
        dropping<attention<T>> d = dropping_of(a, shape->dropout);
        launch_backward_of<T>(cuda, d, groups, shape->batch);
    } else {
        launch_backward_of<T>(cuda, a, groups, shape->batch);
    }
}

template <class T>
static void backward(struct sbp_cuda *cuda, void *dqkv, const void *dy, const void *qkv,
                     const void *y, const void *saved, const struct sbp_attention_context *context,
                     const struct sbp_attention_shape *shape)
{
    const keys_at_hand of = packed_keys(shape, context);
    attention<T> a = packed_of<T>(shape, qkv, saved, context);
    a.dy = (const T *)dy;
    a.y = (const T *)y;
    a.dq = (T *)dqkv;
    a.dk = (T *)(context != NULL ? context->key_gradients : dqkv);
    if (context != NULL && !has_begun(of)) /* in the place of keys and values */
        gpu_zero(cuda, dqkv, shape->batch * a.rows * a.q_stride * (int64_t)sizeof(T));
    launch_backward(cuda, a, of, NULL, shape);
}

/* The gradient of a head's sink: of each query of each sequence, minus the sink's share of the
 * softmax times sum_d dy y. A block takes a head, its warps some queries each. */
template <class T>
static __global__ void __launch_bounds__(SINK_THREADS)
    sink_kernel(T *gradients, GPU_GRID_CONSTANT attention<T> a, int64_t batch, bool adds)
{
    GPU_SHARED(float, sums, SINK_THREADS / GPU_WARP);
    const int64_t head = blockIdx.x, queries = batch * a.rows;
    const float sink = gpu_load(a.sinks[head]);
    const int warp = (int)threadIdx.x / GPU_WARP;
    float sum = 0;
    for (int64_t query = warp; query < queries; query += SINK_THREADS / GPU_WARP) {
        const int64_t b = query / a.rows, row = query % a.rows;
        const int64_t at = (b * a.rows + row) * a.y_stride + head * a.value;
        float inner = 0;
        for (int i = gpu_lane(); i < a.value; i += GPU_WARP)
            inner = fmaf(gpu_load(a.dy[at + i]), gpu_load(a.y[at + i]), inner);
        inner = gpu_warp_reduce(inner, gpu_plus());
        sum = fmaf(-exp2f((sink - a.log_sums[(b * a.heads + head) * a.rows + row]) * LOG2_E), inner,
                   sum);
    }
    if (gpu_lane() == 0)
        sums[warp] = sum;
    __syncthreads();
    if (threadIdx.x > 0)
        return;
    float all = adds ? gpu_load(gradients[head]) : 0;
    for (int i = 0; i < SINK_THREADS / GPU_WARP; i++)
        all += sums[i];
    gradients[head] = gpu_store<T>(all);
}

template <class T>
static void grouped_backward(struct sbp_cuda *cuda, void *dq, void *dkv, const void *dy,
                             const void *q, const void *kv, const void *y, const void *saved,
                             const struct sbp_attention_groups *groups,
                             const struct sbp_attention_shape *shape)
{
    attention<T> a = grouped_of<T>(shape, q, kv, saved, groups);
    a.dy = (const T *)dy;
    a.y = (const T *)y;
    a.dq = (T *)dq;
    a.dk = (T *)dkv;
    const keys_at_hand of = grouped_keys(shape, groups);
    if (a.sinks != NULL && groups->sink_gradients != NULL && a.heads > 0 && !has_begun(of))
        GPU_LAUNCH(cuda, sink_kernel<T>, (unsigned)a.heads, SINK_THREADS, 0,
                   (T *)groups->sink_gradients, a, shape->batch, groups->adds);
    launch_backward(cuda, a, of, groups, shape);
}

/* 0: not even the smallest fits. */
template <class T> static int largest_head(const struct sbp_cuda *cuda)
{
    typedef blocked<attention<T>> most;
    const int bytes = cuda->shared_bytes;
    return launches<T, 256, most>::fits(bytes)   ? SBP_CUDA_LARGEST_HEAD
           : launches<T, 128, most>::fits(bytes) ? 128
           : launches<T, 64, most>::fits(bytes)  ? 64
                                                 : 0;
}

template <class T> static void fill(struct sbp_cuda_kernels *kernels)
{
    kernels->largest_head = largest_head<T>;
    kernels->attention_forward = forward<T>;
    kernels->attention_backward = backward<T>;
    kernels->grouped_attention_forward = grouped_forward<T>;
    kernels->grouped_attention_backward = grouped_backward<T>;
}
GPU_FILL(attention, inner_kernel<float>)
