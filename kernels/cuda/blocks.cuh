/* Attention to keys and values that come block by block (Liu et al., 2023): each launch begins with
 * what the queries have so far, and leaves it for the next one. A row's log-sum-exp is its running
 * maximum then, with a sum of 1.
 *
 * The keys of a block lie anywhere in the sequence, those of smaller places first: what a query
 * sees of them are neighbours. Kernels call these functions for every attention; of all keys at
 * once they say what those of the sequence say, in order. Whether there is dropout is asked while
 * the kernel runs: kernels with and without it would double the time of compilation.
 */
#ifndef SBP_KERNELS_CUDA_BLOCKS_CUH
#define SBP_KERNELS_CUDA_BLOCKS_CUH

#include "kernels/cuda/dropping.cuh"

#define LOG2_E 1.4426950408889634F
#define LN_2   0.6931471805599453F

/* Forward log_sums are those of the keys so far, of materialised attention as well. */
template <class A> struct blocked : dropping<A> {
    gpu_digits key_digits; /* which rows of the sequence the keys at hand are */
    int all;               /* keys of the sequence */
    bool is_first, drops;  /* is_first: there are none so far */
};

template <class A> constexpr bool is_blocked = false;
template <class A> constexpr bool is_blocked<blocked<A>> = true;

/* Makes a block's attention out of one whose keys at hand are the block's. */
template <class A>
static blocked<A> blocked_of(const dropping<A> &a, const struct sbp_attention_block *block, int all,
                             bool drops)
{
    blocked<A> b = {};
    (dropping<A> &)b = a;
    b.key_digits = gpu_digits_of(block->keys);
    b.all = all;
    b.is_first = block->first;
    b.drops = drops;
    return b;
}

/* ---- places --------------------------------------------------------------------------------- */

/* The place in the sequence of a key at hand. */
template <class T> static __device__ __forceinline__ int place_of_key(const attention<T> &, int key)
{
    return key;
}

template <class A> static __device__ __forceinline__ int place_of_key(const blocked<A> &a, int key)
{
    return (int)gpu_digits_global(a.key_digits, key);
}

/* The same of the columns of a tile. A block lists them in shared memory, where somebody asks for
 * them (lists_places). */
template <class A> struct tile_places {
    int first;
    __device__ __forceinline__ int operator()(int column) const
    {
        return first + column;
    }
};

template <class A> struct tile_places<blocked<A>> {
    const int *list;
    __device__ __forceinline__ int operator()(int column) const
    {
        return list[column];
    }
};

template <class T>
static __device__ __forceinline__ tile_places<attention<T>> places_of(const attention<T> &,
                                                                      const int *, int column)
{
    return {column};
}

template <class A>
static __device__ __forceinline__ tile_places<blocked<A>> places_of(const blocked<A> &,
                                                                    const int *list, int)
{
    return {list};
}

/* Whether somebody asks for the places of a tile's keys; all threads say the same. */
template <class T> static __device__ __forceinline__ bool lists_places(const attention<T> &)
{
    return false;
}

template <class A> static __device__ __forceinline__ bool lists_places(const blocked<A> &a)
{
    return a.drops || a.probabilities != NULL;
}

template <class T>
static __device__ __forceinline__ void list_places(const attention<T> &, int *, int, int)
{
}

template <class A>
static __device__ __forceinline__ void list_places(const blocked<A> &a, int *list, int column,
                                                   int columns)
{
    for (int i = (int)threadIdx.x; lists_places(a) && i < columns; i += (int)blockDim.x)
        list[i] = place_of_key(a, column + i);
}

/* How many keys each query of a tile sees, beside its last one. */
template <class T>
static __device__ __forceinline__ void list_count(const attention<T> &, int *, int, int, int)
{
}

template <class A>
static __device__ __forceinline__ void list_count(const blocked<A> &a, int *list, int query,
                                                  int row, int last)
{
    list[query] = count_seen(a, row, last);
}

template <class T>
static __device__ __forceinline__ int count_listed(const attention<T> &a, const int *, int)
{
    return a.window;
}

template <class A>
static __device__ __forceinline__ int count_listed(const blocked<A> &, const int *list, int query)
{
    return list[query];
}

/* ---- dropout -------------------------------------------------------------------------------- */

template <class A> static __device__ __forceinline__ bool drops(const blocked<A> &a)
{
    return a.drops;
}

template <class A>
static __device__ __forceinline__ uint64_t first_of_head(const blocked<A> &a, int64_t index)
{
    return a.drops ? first_by_chance(a, index) : 0;
}

/* ---- what queries have so far --------------------------------------------------------------- */

/* The queries of a lane, and what it knows of them so far; scores are in units of ln 2. */
struct softmax_rows {
    int last[2], count[2]; /* the last key at hand that it sees, and how many with it */
    float maximum[2], sum[2];
};

/* Whether there are results of blocks before, which stay where a tile sees nothing. */
template <class T> static __device__ __forceinline__ bool has_begun(const attention<T> &)
{
    return false;
}

template <class A> static __device__ __forceinline__ bool has_begun(const blocked<A> &a)
{
    return !a.is_first;
}

/* head: the local one, of which lanes of a row that adds its columns up count the sink once. */
template <class T>
static __device__ __forceinline__ void begin_sums(softmax_rows &rows, const attention<T> &a,
                                                  int64_t head, int)
{
    const bool sinks = a.sinks != NULL;
    const float sink = sinks ? gpu_load(a.sinks[head % a.heads]) * LOG2_E : -INFINITY;
    GPU_UNROLL
    for (int half = 0; half < 2; half++) {
        rows.maximum[half] = sink;
        rows.sum[half] = sinks && gpu_lane() % 4 == 0 ? 1 : 0;
    }
}

/* first: the tile's first query. */
template <class A>
static __device__ __forceinline__ void begin_sums(softmax_rows &rows, const blocked<A> &a,
                                                  int64_t head, int first)
{
    if (!has_begun(a)) {
        begin_sums(rows, (const A &)a, head, first);
        return;
    }
    GPU_UNROLL
    for (int half = 0; half < 2; half++) {
        const int row = first + lane_row(half);
        const float before = row < a.rows ? a.log_sums[head * a.rows + row] : -INFINITY;
        rows.maximum[half] = before * LOG2_E;
        rows.sum[half] = before != -INFINITY && gpu_lane() % 4 == 0 ? 1 : 0;
    }
}

/* The output so far, of rows from `first` on, goes into the accumulators; y: the head's. */
template <class T, int WIDE>
static __device__ __forceinline__ void begin_output(float (&)[WIDE][4], const attention<T> &,
                                                    int64_t, int)
{
}

template <class A, int WIDE>
static __device__ __forceinline__ void begin_output(float (&output)[WIDE][4], const blocked<A> &a,
                                                    int64_t y, int first)
{
    if (has_begun(a))
        add_tile(output, 0, a.to + y, a.y_stride, first, a.rows, a.value);
}

/* 1 / sum. A row that has seen nothing of the blocks so far is 0. */
template <class T> static __device__ __forceinline__ float invert(const attention<T> &, float sum)
{
    return 1 / sum;
}

template <class A> static __device__ __forceinline__ float invert(const blocked<A> &, float sum)
{
    return sum == 0 ? 0 : 1 / sum;
}

/* The probability of a score in a row. */
template <class T>
static __device__ __forceinline__ float weigh(const attention<T> &, float score,
                                              const softmax_rows &rows, int half)
{
    return exp2f(score - rows.maximum[half]) / rows.sum[half];
}

template <class A>
static __device__ __forceinline__ float weigh(const blocked<A> &a, float score,
                                              const softmax_rows &rows, int half)
{
    return rows.sum[half] == 0 ? 0 : weigh((const A &)a, score, rows, half);
}

template <class T> static __device__ __forceinline__ void put_float(T &to, float value)
{
    to = gpu_store<T>(value);
}

/* Leaves a share of the probabilities that are kept of a tile of queries so far, before the
 * log-sum-exps so far are overwritten. */
template <class T>
static __device__ __forceinline__ void weaken_kept(const attention<T> &, int64_t, int,
                                                   const softmax_rows &)
{
}

template <class A>
static __device__ __forceinline__ void weaken_kept(const blocked<A> &a, int64_t first_row,
                                                   int first, const softmax_rows &rows)
{
    if (!has_begun(a) || a.probabilities == NULL)
        return;
    GPU_UNROLL
    for (int half = 0; half < 2; half++) {
        const int row = first + lane_row(half);
        const float before = row < a.rows ? a.log_sums[first_row + row] : -INFINITY;
        const float share =
            before == -INFINITY ? 1 : weigh((const A &)a, before * LOG2_E, rows, half);
        for (int key = gpu_lane() % 4; row < a.rows && share != 1 && key < a.all; key += 4) {
            const int64_t at = (first_row + row) * a.all + key;
            put_float(a.probabilities[at], gpu_load(a.probabilities[at]) * share);
        }
    }
    __syncwarp(); /* lanes of a row share it */
}

/* ---- gradients of queries ------------------------------------------------------------------- */

/* Multiplied by the scale; q: where the head's queries lie. */
template <class T, int WIDE>
static __device__ __forceinline__ void store_queries(const attention<T> &a, int64_t q, int first,
                                                     float (&sum)[WIDE][4])
{
    const float scale[2] = {a.scale, a.scale};
    store_tile(a.dq + q, a.q_stride, first, a.rows, 0, a.size, sum, scale, a.is_aligned);
}

/* Added to those of blocks before. */
template <class A, int WIDE>
static __device__ __forceinline__ void store_queries(const blocked<A> &a, int64_t q, int first,
                                                     float (&sum)[WIDE][4])
{
    const float one[2] = {1, 1};
    if (!has_begun(a)) {
        store_queries((const A &)a, q, first, sum);
        return;
    }
    add_tile(sum, a.scale, a.dq + q, a.q_stride, first, a.rows, a.size);
    store_tile(a.dq + q, a.q_stride, first, a.rows, 0, a.size, sum, one, a.is_aligned);
}

#endif
