/* What the kernels of attention share: where heads lie, tiles in shared memory, and the two
 * products of tiles that all of attention is made of.
 *
 * A head of D features is worked on as one of 64, 128 or 256, filled up with zeros. A warp has 16
 * rows: of queries, or of keys for the gradients of keys and values. Heads of queries that read one
 * head of keys follow each other, since global indices rise with local ones.
 */
#ifndef SBP_KERNELS_CUDA_ATTENTION_CUH
#define SBP_KERNELS_CUDA_ATTENTION_CUH

#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/place.cuh"
#include "kernels/cuda/reduce.cuh"

enum { PADDING = 8 /* elements between rows in shared memory, lest they share banks */ };

/* The sizes of tiles. */
template <class T, int HEAD> struct tiling {
    static const int WARPS = sizeof(T) == 4 && HEAD > 128 ? 2 : 4;
    static const int THREADS = WARPS * GPU_WARP;
    static const int ROWS = WARPS * 16;              /* of a block */
    static const int COLUMNS = HEAD > 128 ? 32 : 64; /* that it works on at a time */
    static const int QUERIES = HEAD > 64 ? 32 : 64;  /* where a block's rows are keys */
    static const int STRIDE = HEAD + PADDING;
    static const int WIDTH = HEAD > 128 ? 128 : HEAD; /* features of a block's key gradients */
};

/* Heads are counted batch by batch, rows of the sequence in tokens. What a direction has not is
 * NULL. */
template <class T> struct attention {
    const T *q, *k, *dy, *y;
    T *to, *dq, *dk;                      /* to: y, of forward */
    T *probabilities;                     /* (B,H,S,K), of materialised attention */
    float *log_sums;                      /* (B,H,S), of flash attention */
    float *inner;                         /* (heads of a launch, S): sum_d dy y */
    const T *sinks;                       /* (H) scores that join the sums; NULL: none */
    int64_t q_stride, k_stride, y_stride; /* elements from row to row, */
    int64_t q_head, k_head;               /* and from head to head */
    int64_t first_key, first_value;       /* of a head in its part of a row of k */
    int64_t first_head, first_key_head;   /* of the launch: of queries, of keys and values */
    int64_t share;                        /* heads of queries that read one of keys */
    int heads, kv_heads, rows, keys;      /* keys: those at hand */
    int size, value;                      /* features of queries and keys, of values */
    int window;                           /* a query sees its last so many keys; INT_MAX: all */
    bool causal, is_aligned;
    float scale;                       /* of the scores */
    gpu_digits digits;                 /* which rows of the sequence the queries are, */
    gpu_digits head_digits, kv_digits; /* and which of all heads the local ones */
};

/* Attention A to keys that come block by block (blocks.cuh). */
template <class A> struct blocked;

/* Offsets of a head's operands. */
struct head_place {
    int64_t q, k, v, y, row; /* row: its first one among all heads' */
};

template <class T>
static __device__ __forceinline__ head_place place_head(const attention<T> &a, int64_t index)
{
    const int64_t batch = index / a.heads, head = index % a.heads;
    const int64_t read =
        gpu_digits_local(a.kv_digits, gpu_digits_global(a.head_digits, head) / a.share);
    const int64_t k = batch * a.keys * a.k_stride + read * a.k_head;
    return head_place{batch * a.rows * a.q_stride + head * a.q_head, k + a.first_key,
                      k + a.first_value, batch * a.rows * a.y_stride + head * a.value,
                      index * a.rows};
}

/* How many local heads of queries come before those that read head `global` of all keys. */
template <class T>
static __device__ __forceinline__ int readers_before(const attention<T> &a, int64_t global)
{
    int low = 0, high = a.heads;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (gpu_digits_global(a.head_digits, middle) < global * a.share)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* A query's place in the sequence. */
template <class T> static __device__ __forceinline__ int place_of(const attention<T> &a, int row)
{
    return (int)gpu_digits_global(a.digits, row);
}

/* How many keys the sequence has. */
template <class T> static __device__ __forceinline__ int all_keys(const attention<T> &a)
{
    return a.keys;
}

template <class A> static __device__ __forceinline__ int all_keys(const blocked<A> &a)
{
    return a.all;
}

/* How many of the keys at hand lie before a place: the first ones. */
template <class T>
static __device__ __forceinline__ int keys_before(const attention<T> &, int place)
{
    return place;
}

template <class A> static __device__ __forceinline__ int keys_before(const blocked<A> &a, int place)
{
    return (int)gpu_digits_before(a.key_digits, place);
}

/* How many of the keys any of the queries before `end` sees: the first ones, */
template <class A> static __device__ __forceinline__ int seen_keys(const A &a, int end)
{
    return a.causal ? keys_before(a, place_of(a, end - 1) + 1) : a.keys;
}

/* but for these, which lie before the windows of the queries from `row` on. */
template <class A> static __device__ __forceinline__ int hidden_keys(const A &a, int row)
{
    const int hidden = a.causal ? place_of(a, row) + 1 - a.window : 0;
    return hidden > 0 ? keys_before(a, hidden) : 0;
}

/* How many keys a query sees, of which `last` is the last. Of all keys of the sequence the answer
 * may be more than there are: `sees` looks at no key before the first. */
template <class T> static __device__ __forceinline__ int count_seen(const attention<T> &a, int, int)
{
    return a.window;
}

template <class A>
static __device__ __forceinline__ int count_seen(const blocked<A> &a, int row, int last)
{
    return last + 1 - hidden_keys(a, row);
}

/* Whether a query that sees so many keys, up to its last one, sees this one. */
static __device__ __forceinline__ bool sees(int last, int count, int key)
{
    return (unsigned)last - (unsigned)key < (unsigned)count; /* huge behind the last */
}

/* ---- tiles ---------------------------------------------------------------------------------- */

/* Rows first .. first + ROWS - 1, of which those from `rows` on are zeros. */
template <class T, int HEAD, int ROWS>
static __device__ __forceinline__ void load_tile(T *to, const T *from, int64_t stride, int first,
                                                 int rows, int size, bool is_aligned)
{
    constexpr int N = gpu_width<T>, CHUNKS = HEAD / N;
    for (int i = (int)threadIdx.x; i < ROWS * CHUNKS; i += (int)blockDim.x) {
        const int row = i / CHUNKS, column = i % CHUNKS * N;
        const T *const at = from + (first + row) * stride + column;
        gpu_chunk<T, N> chunk = {};
        if (first + row < rows && is_aligned && column + N <= size)
            chunk = gpu_get<N>(at);
        else if (first + row < rows)
            GPU_UNROLL
        for (int j = 0; j < N; j++)
            if (column + j < size)
                chunk.at[j] = at[j];
        gpu_put(to + row * (HEAD + PADDING) + column, chunk);
    }
}

/* of(16, 8 TILES) = a b^T over HEAD features: a's rows from `row` on, b's from 0 on. */
template <class T, int HEAD, int TILES>
static __device__ __forceinline__ void multiply_rows(float (&of)[TILES][4], const T *a, int row,
                                                     const T *b)
{
    GPU_UNROLL
    for (int i = 0; i < TILES * 4; i++)
        of[i / 4][i % 4] = 0;
    for (int k = 0; k < HEAD; k += gpu_mma<T>::K) {
        gpu_a<T> left;
        gpu_load_a(left, a, HEAD + PADDING, row, k);
        GPU_UNROLL
        for (int i = 0; i < TILES; i += 2) {
            gpu_b<T> right[2];
            gpu_load_b_rows(right, b, HEAD + PADDING, 8 * i, k);
            gpu_multiply(of[i], left, right[0]);
            gpu_multiply(of[i + 1], left, right[1]);
        }
    }
}

/* sum(16, 8 WIDE) += weights(16, 8 TILES) b, of b's features from `first` on. */
template <class T, int HEAD, int TILES, int WIDE>
static __device__ __forceinline__ void
add_weighted(float (&sum)[WIDE][4], const float (&weights)[TILES][4], const T *b, int first)
{
    GPU_UNROLL
    for (int k = 0; k < TILES * 8; k += gpu_mma<T>::K) {
        gpu_a<T> left;
        gpu_take_a(left, weights + k / 8);
        GPU_UNROLL
        for (int i = 0; i < WIDE; i += 2) {
            gpu_b<T> right[2];
            gpu_load_b_columns(right, b, HEAD + PADDING, k, first + 8 * i);
            gpu_multiply(sum[i], left, right[0]);
            gpu_multiply(sum[i + 1], left, right[1]);
        }
    }
}

/* A lane's rows of a tile are g and g + 8 of its warp's, its columns 2t and 2t + 1 of each 8. */
static __device__ __forceinline__ int lane_row(int half)
{
    return (int)threadIdx.x / GPU_WARP * 16 + gpu_lane() / 4 + 8 * half;
}

static __device__ __forceinline__ int lane_column(int tile, int i)
{
    return 8 * tile + gpu_lane() % 4 * 2 + i % 2;
}

/* The accumulators, multiplied, and such rows of a matrix are added up. */
template <class T, int WIDE>
static __device__ __forceinline__ void add_tile(float (&to)[WIDE][4], float factor, const T *from,
                                                int64_t stride, int first_row, int rows, int size)
{
    GPU_UNROLL
    for (int i = 0; i < WIDE * 4; i++) {
        const int row = first_row + lane_row(i % 4 / 2), column = lane_column(i / 4, i % 4);
        const float before =
            row < rows && column < size ? gpu_load(from[row * stride + column]) : 0;
        to[i / 4][i % 4] = to[i / 4][i % 4] * factor + before;
    }
}

/* Rows of a matrix out of accumulators, multiplied; from `rows` and `size` on there is none. */
template <class T, int WIDE>
static __device__ __forceinline__ void store_tile(T *to, int64_t stride, int first_row, int rows,
                                                  int first, int size, const float (&from)[WIDE][4],
                                                  const float (&factor)[2], bool is_aligned)
{
    GPU_UNROLL
    for (int pair = 0; pair < WIDE * 2; pair++) {
        const float *const values = &from[pair / 2][pair % 2 * 2];
        const int row = first_row + lane_row(pair % 2), column = first + lane_column(pair / 2, 0);
        T *const at = to + row * stride + column;
        const gpu_chunk<T, 2> both = {gpu_store<T>(values[0] * factor[pair % 2]),
                                      gpu_store<T>(values[1] * factor[pair % 2])};
        if (row < rows && column < size && is_aligned)
            gpu_put(at, both);
        else if (row < rows && column < size)
            for (int j = 0; j < 2 && column + j < size; j++)
                at[j] = both.at[j];
    }
}

#endif
