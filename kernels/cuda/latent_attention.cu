/* Latent attention (DeepSeek-V2, 2024, section 2.1): attention (flash.cuh) whose keys lie in two
 * parts, the one that all heads share, turned by the places of the sequence, and a head's own.
 *
 * A sequence at a time: its shared part is turned into the caller's scratch, where all heads read
 * it. Gradients of the shared part are kept by head, of as many heads as scratch has room for, each
 * of which adds those of later heads to its own; then they are added up in the order of heads, and
 * turned back. */
#include <assert.h>
#include <limits.h>

#include "kernels/cuda/flash.cuh"
#include "kernels/cuda/rotary.cuh"

enum { THREADS = 256 };

template <class T> struct latent : attention<T> {
    const T *shared; /* (keys, rope), turned */
    float *sums;     /* (heads of a launch, keys, rope): gradients of the shared part */
    int rope;
    bool adds; /* to sums */
};

template <class T, int HEAD, int ROWS>
static __device__ __forceinline__ void load_keys(T *to, const latent<T> &a, int64_t k, int first)
{
    constexpr int N = gpu_width<T>, CHUNKS = HEAD / N;
    for (int i = (int)threadIdx.x; i < ROWS * CHUNKS; i += (int)blockDim.x) {
        const int row = first + i / CHUNKS, column = i % CHUNKS * N;
        const T *const shared = a.shared + (int64_t)row * a.rope;
        const T *const own = a.k + k + row * a.k_stride;
        gpu_chunk<T, N> chunk = {};
        if (row < a.keys && a.is_aligned && column < a.size)
            chunk = gpu_get<N>(column < a.rope ? shared + column : own + (column - a.rope));
        else if (row < a.keys)
            GPU_UNROLL
        for (int j = 0; j < N; j++) {
            const int at = column + j;
            if (at < a.size)
                chunk.at[j] = at < a.rope ? shared[at] : own[at - a.rope];
        }
        gpu_put(to + i / CHUNKS * (HEAD + PADDING) + column, chunk);
    }
}

/* Pairs of columns are of one part, since a rotated part has pairs. */
template <class T, int WIDE>
static __device__ __forceinline__ void store_keys(const latent<T> &a, int64_t k, int64_t head,
                                                  int first, int feature,
                                                  const float (&sum)[WIDE][4])
{
    GPU_UNROLL
    for (int i = 0; i < WIDE * 4; i++) {
        const int row = first + lane_row(i % 4 / 2), column = feature + lane_column(i / 4, i);
        const float value = sum[i / 4][i % 4] * a.scale;
        if (row < a.keys && column < a.rope) {
            float *const to = a.sums + (head * a.keys + row) * a.rope + column;
            *to = (a.adds ? *to : 0) + value;
        } else if (row < a.keys && column < a.size) {
            a.dk[k + row * a.k_stride + (column - a.rope)] = gpu_store<T>(value);
        }
    }
}

/* ---- the shared part ------------------------------------------------------------------------- */

/* A sequence's, turned, of keys in these places of it; a thread takes some pairs. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
    turn_kernel(T *to, const T *from, int64_t row, int64_t keys, int64_t half,
                GPU_GRID_CONSTANT gpu_digits places)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < keys * half;
         at += step) {
        const int64_t key = at / half, i = at % half;
        const gpu_turn turn = gpu_turn_of((double)gpu_digits_global(places, key), i, half);
        const float a = gpu_load(from[key * row + i]), b = gpu_load(from[key * row + half + i]);
        to[key * 2 * half + i] = gpu_store<T>(gpu_turn_first(turn, a, b));
        to[key * 2 * half + half + i] = gpu_store<T>(gpu_turn_second(turn, a, b));
    }
}

/* Its gradient, out of sums(parts, keys, 2 half). */
template <class T>
static __global__ void __launch_bounds__(THREADS)
    turn_back_kernel(T *to, int64_t row, const float *sums, int64_t parts, int64_t keys,
                     int64_t half, GPU_GRID_CONSTANT gpu_digits places)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < keys * half;
         at += step) {
        const int64_t key = at / half, i = at % half;
        const gpu_turn turn = gpu_turn_of(-(double)gpu_digits_global(places, key), i, half);
        float a = 0, b = 0;
        for (int64_t part = 0; part < parts; part++) {
            const float *const from = sums + (part * keys + key) * 2 * half + i;
            a += from[0];
            b += from[half];
        }
        to[key * row + i] = gpu_store<T>(gpu_turn_first(turn, a, b));
        to[key * row + half + i] = gpu_store<T>(gpu_turn_second(turn, a, b));
    }
}

/* ---- launches -------------------------------------------------------------------------------- */

/* Operands of a direction; those that it has not are NULL. turned(keys, rope) is scratch. */
template <class T> struct operands {
    const struct sbp_latent_keys *keys;
    const struct sbp_attention_shape *shape;
    const T *q, *dy;
    T *y, *dq, *turned; /* y is read backward */
    void *saved;        /* likewise */
    float *log_sums;    /* (B,H,S) forward, of probabilities that are kept block by block */
    float *apart;       /* (keys, rope): where scratch has no room for sums of one head */
};

/* Keys of the sequence. */
template <class T> static int all_keys(const operands<T> &o)
{
    return (int)(o.keys->rows != NULL ? sbp_digits_global_size(o.keys->rows) : o.shape->sequence);
}

/* Which rows of it those at hand are. */
template <class T> static gpu_digits places_of(const operands<T> &o)
{
    return o.keys->block != NULL ? gpu_digits_of(o.keys->block->keys) : gpu_digits{};
}

template <class T> static bool is_aligned(const latent<T> &a)
{
    constexpr int N = gpu_width<T>;
    return gpu_aligned<N>(a.q, a.size) && gpu_aligned<N>(a.k, a.k_stride) &&
           gpu_aligned<N>(a.shared, a.rope) && gpu_aligned<N>(a.dy, a.value) &&
           gpu_aligned<N>(a.to) && gpu_aligned<N>(a.dq) && gpu_aligned<N>(a.dk);
}

/* A sequence. */
template <class T> static latent<T> latent_of(const operands<T> &o, int64_t batch)
{
    const struct sbp_attention_shape *shape = o.shape;
    const struct sbp_latent_parts *parts = &o.keys->parts;
    const bool is_flash = shape->kind == SBP_ATTENTION_FLASH;
    latent<T> a = {};
    a.heads = a.kv_heads = (int)shape->heads;
    a.rows = (int)shape->sequence;
    a.keys = o.keys->block != NULL ? (int)sbp_digits_local_size(o.keys->block->keys) : all_keys(o);
    a.size = (int)shape->head_size;
    a.value = (int)parts->value;
    a.rope = (int)parts->rope;
    assert(a.size <= SBP_CUDA_LARGEST_HEAD && a.value <= SBP_CUDA_LARGEST_HEAD);
    a.share = 1;
    a.window = INT_MAX;
    a.causal = shape->causal;
    a.scale = (float)(1 / sqrt((double)a.size));
    a.q_head = a.size;
    a.k_head = parts->nope + parts->value;
    a.q_stride = a.heads * a.q_head;
    a.k_stride = o.keys->kv_row;
    a.y_stride = (int64_t)a.heads * a.value;
    a.first_value = parts->nope;
    a.q = o.q + batch * a.rows * a.q_stride;
    a.k = (const T *)o.keys->kv + batch * a.keys * a.k_stride;
    a.shared = o.turned;
    const int64_t rows = batch * a.heads * a.rows;
    a.probabilities = is_flash ? NULL : (T *)o.saved + rows * all_keys(o);
    a.log_sums = is_flash ? (float *)o.saved + rows : o.log_sums != NULL ? o.log_sums + rows : NULL;
    if (o.keys->rows != NULL)
        a.digits = gpu_digits_of(o.keys->rows);
    return a;
}

/* A sequence of either direction begins with this. */
template <class T>
static void turn(struct sbp_cuda *cuda, const operands<T> &o, const latent<T> &a, int64_t batch)
{
    const T *const from = (const T *)o.keys->shared + batch * a.keys * o.keys->shared_row;
    const int64_t half = a.rope / 2, pairs = a.keys * half;
    if (pairs > 0)
        GPU_LAUNCH(cuda, turn_kernel<T>, gpu_loop_blocks(cuda, pairs, THREADS), THREADS, 0,
                   o.turned, from, o.keys->shared_row, (int64_t)a.keys, half, places_of(o));
}

/* A sequence, with dropout. */
template <class T>
static dropping<latent<T>>
dropping_of(const latent<T> &a, const struct sbp_attention_dropout *dropout, int64_t batch, int all)
{
    dropping<latent<T>> d = dropping_of(a, dropout);
    d.first_sample += sbp_digits_global(&dropout->region->dim[0], batch);
    d.samples = gpu_digits{};
    if (d.mask != NULL)
        d.mask += batch * a.heads * (int64_t)a.rows * all;
    return d;
}

/* A sequence's keys of a block. */
template <class T>
static blocked<latent<T>> block_of(const operands<T> &o, const latent<T> &a, int64_t batch)
{
    const struct sbp_attention_dropout *const dropout = o.shape->dropout;
    dropping<latent<T>> d = {};
    (latent<T> &)d = a;
    if (dropout != NULL)
        d = dropping_of(a, dropout, batch, all_keys(o));
    return blocked_of(d, o.keys->block, all_keys(o), dropout != NULL);
}

template <class T> static bool is_empty(const operands<T> &o)
{
    return o.shape->batch == 0 || o.shape->heads == 0 || o.shape->sequence == 0;
}

template <class T, int HEAD> static void launch_forward(struct sbp_cuda *cuda, operands<T> &o)
{
    for (int64_t b = 0; b < o.shape->batch; b++) {
        latent<T> a = latent_of(o, b);
        a.to = o.y + b * a.rows * a.y_stride;
        a.is_aligned = is_aligned(a);
        turn(cuda, o, a, b);
        if (o.keys->block != NULL)
            launches<T, HEAD, blocked<latent<T>>>::forward(cuda, block_of(o, a, b), a.heads);
        else if (o.shape->dropout != NULL)
            launches<T, HEAD, dropping<latent<T>>>::forward(
                cuda, dropping_of(a, o.shape->dropout, b, a.keys), a.heads);
        else
            launches<T, HEAD, latent<T>>::forward(cuda, a, a.heads);
    }
}

/* All heads of a sequence, some at a time. */
template <class T, int HEAD, class A>
static void launch_heads(struct sbp_cuda *cuda, const operands<T> &o, A &a, int64_t batch)
{
    const int64_t room = cuda->scratch_bytes / (int64_t)sizeof(float);
    const int64_t shared = (int64_t)a.keys * a.rope, both = room / (a.rows + shared);
    const int64_t most = both > 0 ? sbp_least_i64(both, a.heads) : room / a.rows > 0;
    a.inner = (float *)cuda->scratch;
    a.sums = both > 0 ? a.inner + most * a.rows : o.apart;
    if (most == 0) { /* a head has too many queries */
        gpu_note(cuda, cudaErrorInvalidValue);
        return;
    }
    for (a.first_head = 0; a.first_head < a.heads; a.first_head += most) {
        const int64_t heads = sbp_least_i64(most, a.heads - a.first_head);
        a.first_key_head = a.first_head;
        a.adds = a.first_head > 0;
        launches<T, HEAD, A>::backward(cuda, a, heads, heads);
    }
    T *const to = (T *)o.keys->shared_gradients + batch * a.keys * o.keys->shared_row;
    if (shared > 0)
        GPU_LAUNCH(cuda, turn_back_kernel<T>, gpu_loop_blocks(cuda, shared / 2, THREADS), THREADS,
                   0, to, o.keys->shared_row, (const float *)a.sums, most, (int64_t)a.keys,
                   (int64_t)a.rope / 2, places_of(o));
}

template <class T, int HEAD> static void launch_backward(struct sbp_cuda *cuda, operands<T> &o)
{
    for (int64_t b = 0; b < o.shape->batch; b++) {
        latent<T> a = latent_of(o, b);
        a.dy = o.dy + b * a.rows * a.y_stride;
        a.y = o.y + b * a.rows * a.y_stride;
        a.dq = o.dq + b * a.rows * a.q_stride;
        a.dk = (T *)o.keys->kv_gradients + b * a.keys * a.k_stride;
        a.is_aligned = is_aligned(a);
        turn(cuda, o, a, b);
        if (o.keys->block != NULL) {
            blocked<latent<T>> block = block_of(o, a, b);
            launch_heads<T, HEAD>(cuda, o, block, b);
        } else if (o.shape->dropout != NULL) {
            dropping<latent<T>> d = dropping_of(a, o.shape->dropout, b, a.keys);
            launch_heads<T, HEAD>(cuda, o, d, b);
        } else {
            launch_heads<T, HEAD>(cuda, o, a, b);
        }
    }
}

/* The larger of both sizes of heads. */
static int64_t widest(const struct sbp_latent_keys *keys, const struct sbp_attention_shape *shape)
{
    return keys->parts.value > shape->head_size ? keys->parts.value : shape->head_size;
}

/* Log-sum-exps of probabilities that are kept come first in scratch; the first block of a pass
 * finds no probabilities. */
template <class T> static void begin_block(struct sbp_cuda *cuda, operands<T> &o, void *scratch)
{
    const struct sbp_attention_shape *const shape = o.shape;
    if (shape->kind == SBP_ATTENTION_FLASH)
        return;
    o.log_sums = (float *)scratch;
    o.turned += sbp_attention_sums_elements(shape);
    if (o.keys->block->first)
        gpu_zero(cuda, o.saved,
                 shape->batch * shape->heads * shape->sequence * all_keys(o) * (int64_t)sizeof(T));
}

template <class T>
static void forward(struct sbp_cuda *cuda, void *y, void *saved, void *scratch, const void *q,
                    const struct sbp_latent_keys *keys, const struct sbp_attention_shape *shape)
{
    operands<T> o = {};
    o.keys = keys;
    o.shape = shape;
    o.q = (const T *)q;
    o.y = (T *)y;
    o.saved = saved;
    o.turned = (T *)scratch;
    if (is_empty(o))
        return;
    if (keys->block != NULL)
        begin_block(cuda, o, scratch);
    if (widest(keys, shape) <= 64)
        launch_forward<T, 64>(cuda, o);
    else if (widest(keys, shape) <= 128)
        launch_forward<T, 128>(cuda, o);
    else
        launch_forward<T, 256>(cuda, o);
}

/* Scratch has floats for the shared part first, as on the CPU, then the turned one. */
template <class T>
static void backward(struct sbp_cuda *cuda, void *dq, void *scratch, const void *dy, const void *q,
                     const void *y, const void *saved, const struct sbp_latent_keys *keys,
                     const struct sbp_attention_shape *shape)
{
    operands<T> o = {};
    o.keys = keys;
    o.shape = shape;
    o.q = (const T *)q;
    o.dy = (const T *)dy;
    o.y = (T *)(uintptr_t)y;
    o.saved = (void *)(uintptr_t)saved;
    o.dq = (T *)dq;
    o.apart = (float *)scratch;
    o.turned = (T *)scratch + 2 * (int64_t)all_keys(o) * keys->parts.rope;
    if (is_empty(o))
        return;
    if (widest(keys, shape) <= 64)
        launch_backward<T, 64>(cuda, o);
    else if (widest(keys, shape) <= 128)
        launch_backward<T, 128>(cuda, o);
    else
        launch_backward<T, 256>(cuda, o);
}

template <class T> static void fill(struct sbp_cuda_kernels *kernels)
{
    kernels->latent_attention_forward = forward<T>;
    kernels->latent_attention_backward = backward<T>;
}
GPU_FILL(latent_attention, turn_kernel<float>)
