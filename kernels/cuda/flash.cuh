/* The kernels of attention: a block works on tiles of keys for a tile of a head's queries, with
 * running maxima and sums (Dao et al., 2022). Materialised attention keeps the probabilities, which
 * a second way over the keys forms out of the log-sum-exps.
 *
 * A is attention<T>, or what is derived of it and has its own keys: load_keys, load_values and
 * store_keys are found by its type. */
#ifndef SBP_KERNELS_CUDA_FLASH_CUH
#define SBP_KERNELS_CUDA_FLASH_CUH

#include "kernels/cuda/blocks.cuh"

/* The last key at hand that a query sees; of one behind the last query, anything. */
template <class A> static __device__ __forceinline__ int last_seen(const A &a, int row)
{
    return a.causal && row < a.rows ? seen_keys(a, row + 1) - 1 : a.keys - 1;
}

template <class A>
static __device__ __forceinline__ void find_seen(softmax_rows &rows, const A &a, int first)
{
    GPU_UNROLL
    for (int half = 0; half < 2; half++) {
        const int row = first + lane_row(half);
        rows.last[half] = last_seen(a, row);
        rows.count[half] = count_seen(a, row, rows.last[half]);
    }
}

/* Multiplied by the scale, and hidden where a query does not see the key. */
template <class T, int TILES>
static __device__ __forceinline__ void
scale_scores(float (&scores)[TILES][4], const attention<T> &a, const softmax_rows &rows, int column)
{
    const float scale = a.scale * LOG2_E;
    GPU_UNROLL
    for (int tile = 0; tile < TILES; tile++)
        GPU_UNROLL
    for (int i = 0; i < 4; i++)
        scores[tile][i] = sees(rows.last[i / 2], rows.count[i / 2], column + lane_column(tile, i))
                              ? scores[tile][i] * scale
                              : -INFINITY;
}

/* Scores become exponentials relative to the new maxima; factor: what the sums so far shrink by. */
template <int TILES>
static __device__ __forceinline__ void exponentiate(float (&scores)[TILES][4], softmax_rows &rows,
                                                    float (&factor)[2])
{
    GPU_UNROLL
    for (int half = 0; half < 2; half++) {
        float largest = rows.maximum[half], sum = 0;
        GPU_UNROLL
        for (int tile = 0; tile < TILES; tile++)
            largest = fmaxf(largest, fmaxf(scores[tile][2 * half], scores[tile][2 * half + 1]));
        largest = gpu_warp_reduce(largest, gpu_max(), 4);
        const float shift = largest == -INFINITY ? 0 : largest;
        factor[half] = exp2f(rows.maximum[half] - shift);
        GPU_UNROLL
        for (int tile = 0; tile < TILES; tile++)
            GPU_UNROLL
        for (int i = 2 * half; i < 2 * half + 2; i++) {
            scores[tile][i] = exp2f(scores[tile][i] - shift);
            sum += scores[tile][i];
        }
        rows.sum[half] = rows.sum[half] * factor[half] + sum; /* of this lane's columns */
        rows.maximum[half] = largest;
    }
}

template <int TILES, class A>
static __device__ __forceinline__ void apply_dropout(float (&scores)[TILES][4], const A &a,
                                                     uint32_t kept)
{
    if (!drops(a))
        return;
    GPU_UNROLL
    for (int i = 0; i < TILES * 4; i++)
        scores[i / 4][i % 4] *= dropout_factor(a, kept, i / 4, i % 4);
}

/* Keys and values of a head, where they lie in one row: features of keys, then of values. */
template <class T, int HEAD, int ROWS>
static __device__ __forceinline__ void load_keys(T *to, const attention<T> &a, int64_t k, int first)
{
    load_tile<T, HEAD, ROWS>(to, a.k + k, a.k_stride, first, a.keys, a.size, a.is_aligned);
}

template <class T, int HEAD, int ROWS>
static __device__ __forceinline__ void load_values(T *to, const attention<T> &a, int64_t v,
                                                   int first)
{
    load_tile<T, HEAD, ROWS>(to, a.k + v, a.k_stride, first, a.keys, a.value, a.is_aligned);
}

/* Gradients of a tile of keys of the launch's head, features from `feature` on. */
template <class T, int WIDE>
static __device__ __forceinline__ void store_keys(const attention<T> &a, int64_t k, int64_t,
                                                  int first, int feature,
                                                  const float (&sum)[WIDE][4])
{
    const float scale[2] = {a.scale, a.scale};
    store_tile(a.dk + k, a.k_stride, first, a.keys, feature, a.size, sum, scale, a.is_aligned);
}

/* Probabilities of all keys at hand, 0 but for those that a query sees. list: of a block. */
template <class T, int HEAD, class A>
static __device__ __forceinline__ void
store_probabilities(const A &a, const T *queries, T *keys, int *list, const head_place &at,
                    int first, int hidden, int seen, const softmax_rows &rows,
                    const uint64_t (&whole)[2])
{
    constexpr int COLUMNS = tiling<T, HEAD>::COLUMNS, TILES = COLUMNS / 8;
    for (int column = 0; column < a.keys; column += COLUMNS) {
        const bool is_any_seen = hidden < column + COLUMNS && column < seen;
        const auto places = places_of(a, list, column);
        float scores[TILES][4] = {};
        if (is_any_seen || lists_places(a)) {
            __syncthreads(); /* all have done with the tile before */
            if (is_any_seen)
                load_keys<T, HEAD, COLUMNS>(keys, a, at.k, column);
            list_places(a, list, column, COLUMNS);
            __syncthreads();
        }
        const uint32_t kept = chance_bits<TILES>(a, whole, places);
        if (is_any_seen)
            multiply_rows<T, HEAD, TILES>(scores, queries, lane_row(0) / 16 * 16, keys);
        scale_scores(scores, a, rows, column);
        GPU_UNROLL
        for (int tile = 0; tile < TILES; tile++)
            GPU_UNROLL
        for (int i = 0; i < 4; i++) {
            const int row = first + lane_row(i / 2), key = places(lane_column(tile, i));
            if (row < a.rows && column + lane_column(tile, i) < a.keys) {
                a.probabilities[(at.row + row) * all_keys(a) + key] =
                    gpu_store<T>(weigh(a, scores[tile][i], rows, i / 2));
                if (drops(a))
                    store_mask(a, is_kept(kept, tile, i), mask_at(a, at.row, row, key));
            }
        }
    }
}

template <class T, int HEAD, class A>
static __global__ void __launch_bounds__(tiling<T, HEAD>::THREADS)
    forward_kernel(GPU_GRID_CONSTANT A a)
{
    typedef tiling<T, HEAD> sizes;
    constexpr int TILES = sizes::COLUMNS / 8, WIDE = HEAD / 8;
    GPU_DYNAMIC_SHARED(T, queries);
    T *const keys = queries + sizes::ROWS * sizes::STRIDE;
    T *const values = keys + sizes::COLUMNS * sizes::STRIDE;
    int *const list = (int *)(values + sizes::COLUMNS * sizes::STRIDE);
    const int tiles = (a.rows + sizes::ROWS - 1) / sizes::ROWS;
    /* Causal: the queries with most keys come first. */
    const int first = (tiles - 1 - (int)(blockIdx.x % tiles)) * sizes::ROWS;
    const int end = first + sizes::ROWS < a.rows ? first + sizes::ROWS : a.rows;
    const int hidden = hidden_keys(a, first), seen = seen_keys(a, end);
    const int row = lane_row(0) / 16 * 16;
    const int64_t head = a.first_head + blockIdx.x / tiles;
    const head_place at = place_head(a, head);
    if (has_begun(a) && seen <= hidden && a.probabilities == NULL)
        return;
    softmax_rows rows;
    find_seen(rows, a, first);
    begin_sums(rows, a, head, first);
    const uint64_t in_whole[2] = {first_of(a, head, first + lane_row(0)),
                                  first_of(a, head, first + lane_row(1))};
    float output[WIDE][4] = {};
    begin_output(output, a, at.y, first);
    load_tile<T, HEAD, sizes::ROWS>(queries, a.q + at.q, a.q_stride, first, a.rows, a.size,
                                    a.is_aligned);
    for (int column = hidden / sizes::COLUMNS * sizes::COLUMNS; column < seen;
         column += sizes::COLUMNS) {
        const auto places = places_of(a, list, column);
        float scores[TILES][4], factor[2];
        __syncthreads(); /* all have done with the tiles before */
        load_keys<T, HEAD, sizes::COLUMNS>(keys, a, at.k, column);
        load_values<T, HEAD, sizes::COLUMNS>(values, a, at.v, column);
        list_places(a, list, column, sizes::COLUMNS);
        __syncthreads();
        const uint32_t kept = chance_bits<TILES>(a, in_whole, places);
        multiply_rows<T, HEAD, TILES>(scores, queries, row, keys);
        scale_scores(scores, a, rows, column);
        exponentiate(scores, rows, factor);
        GPU_UNROLL
        for (int i = 0; i < WIDE * 4; i++)
            output[i / 4][i % 4] *= factor[i % 4 / 2];
        apply_dropout(scores, a, kept);
        add_weighted<T, HEAD>(output, scores, values, 0);
    }
    float whole[2];
    GPU_UNROLL
    for (int half = 0; half < 2; half++) {
        rows.sum[half] = gpu_warp_reduce(rows.sum[half], gpu_plus(), 4);
        whole[half] = invert(a, rows.sum[half]);
    }
    weaken_kept(a, at.row, first, rows);
    GPU_UNROLL
    for (int half = 0; half < 2; half++) {
        const int query = first + lane_row(half);
        if (a.log_sums != NULL && query < a.rows && gpu_lane() % 4 == 0)
            a.log_sums[at.row + query] = (rows.maximum[half] + log2f(rows.sum[half])) * LN_2;
    }
    store_tile(a.to + at.y, a.y_stride, first, a.rows, 0, a.value, output, whole, a.is_aligned);
    if (a.probabilities != NULL)
        store_probabilities<T, HEAD>(a, queries, keys, list, at, first, hidden, seen, rows,
                                     in_whole);
}

/* ---- backward ------------------------------------------------------------------------------- */

/* inner = sum_d dy y of every query, a warp each: the softmax gradient's row term. */
template <class T>
static __global__ void __launch_bounds__(128) inner_kernel(GPU_GRID_CONSTANT attention<T> a)
{
    const int row = (int)(blockIdx.x % ((a.rows + 3) / 4)) * 4 + (int)threadIdx.x / GPU_WARP;
    const int64_t head = blockIdx.x / ((a.rows + 3) / 4);
    const head_place at = place_head(a, a.first_head + head);
    float sum = 0;
    if (row >= a.rows)
        return;
    for (int i = gpu_lane(); i < a.value; i += GPU_WARP)
        sum = fmaf(gpu_load(a.dy[at.y + row * a.y_stride + i]),
                   gpu_load(a.y[at.y + row * a.y_stride + i]), sum);
    sum = gpu_warp_reduce(sum, gpu_plus());
    if (gpu_lane() == 0)
        a.inner[head * a.rows + row] = sum;
}

/* The probability of a query and a key that it sees, by the key's place, again: out of its score,
 * or as it was kept. */
template <class A>
static __device__ __forceinline__ float recall(const A &a, int64_t first_row, float score,
                                               int query, int key, float log_sum)
{
    if (a.probabilities != NULL)
        return gpu_load(a.probabilities[(first_row + query) * all_keys(a) + key]);
    return exp2f((score * a.scale - log_sum) * LOG2_E);
}

/* dq = scale ds k with ds = p (left(dy v^T) - inner), for a tile of queries. left() is 0 where
 * dropout takes the probability, and scales up where it keeps it; without dropout it changes
 * nothing. */
template <class T, int HEAD, class A>
static __global__ void __launch_bounds__(tiling<T, HEAD>::THREADS)
    query_kernel(GPU_GRID_CONSTANT A a)
{
    typedef tiling<T, HEAD> sizes;
    constexpr int TILES = sizes::COLUMNS / 8, WIDE = HEAD / 8;
    GPU_DYNAMIC_SHARED(T, queries);
    T *const gradients = queries + sizes::ROWS * sizes::STRIDE;
    T *const keys = gradients + sizes::ROWS * sizes::STRIDE;
    T *const values = keys + sizes::COLUMNS * sizes::STRIDE;
    int *const list = (int *)(values + sizes::COLUMNS * sizes::STRIDE);
    const int tiles = (a.rows + sizes::ROWS - 1) / sizes::ROWS;
    const int first = (tiles - 1 - (int)(blockIdx.x % tiles)) * sizes::ROWS;
    const int end = first + sizes::ROWS < a.rows ? first + sizes::ROWS : a.rows;
    const int hidden = hidden_keys(a, first), seen = seen_keys(a, end);
    const int row = lane_row(0) / 16 * 16;
    const int64_t head = blockIdx.x / tiles;
    const head_place at = place_head(a, a.first_head + head);
    if (has_begun(a) && seen <= hidden)
        return;
    softmax_rows rows;
    find_seen(rows, a, first);
    const uint64_t in_whole[2] = {first_of(a, a.first_head + head, first + lane_row(0)),
                                  first_of(a, a.first_head + head, first + lane_row(1))};
    float inner[2], log_sum[2], sum[WIDE][4] = {};
    GPU_UNROLL
    for (int half = 0; half < 2; half++) {
        const int query = first + lane_row(half);
        inner[half] = query < a.rows ? a.inner[head * a.rows + query] : 0;
        log_sum[half] = a.log_sums != NULL && query < a.rows ? a.log_sums[at.row + query] : 0;
    }
    load_tile<T, HEAD, sizes::ROWS>(queries, a.q + at.q, a.q_stride, first, a.rows, a.size,
                                    a.is_aligned);
    load_tile<T, HEAD, sizes::ROWS>(gradients, a.dy + at.y, a.y_stride, first, a.rows, a.value,
                                    a.is_aligned);
    for (int column = hidden / sizes::COLUMNS * sizes::COLUMNS; column < seen;
         column += sizes::COLUMNS) {
        const auto places = places_of(a, list, column);
        float scores[TILES][4], ds[TILES][4];
        __syncthreads();
        load_keys<T, HEAD, sizes::COLUMNS>(keys, a, at.k, column);
        load_values<T, HEAD, sizes::COLUMNS>(values, a, at.v, column);
        list_places(a, list, column, sizes::COLUMNS);
        __syncthreads();
        const auto is_seen = [&](int tile, int i) {
            return first + lane_row(i / 2) < a.rows &&
                   sees(rows.last[i / 2], rows.count[i / 2], column + lane_column(tile, i));
        };
        const auto is_in_mask = [&](int tile, int i) {
            const int query = first + lane_row(i / 2), key = places(lane_column(tile, i));
            return is_seen(tile, i) && is_kept_by_mask(a, mask_at(a, at.row, query, key));
        };
        const uint32_t kept = has_mask(a) ? dropout_bits<TILES>(a, is_in_mask)
                                          : chance_bits<TILES>(a, in_whole, places);
        multiply_rows<T, HEAD, TILES>(scores, queries, row, keys);
        multiply_rows<T, HEAD, TILES>(ds, gradients, row, values);
        GPU_UNROLL
        for (int tile = 0; tile < TILES; tile++)
            GPU_UNROLL
        for (int i = 0; i < 4; i++)
            ds[tile][i] = is_seen(tile, i)
                              ? recall(a, at.row, scores[tile][i], first + lane_row(i / 2),
                                       places(lane_column(tile, i)), log_sum[i / 2]) *
                                    (dropout_factor(a, kept, tile, i) * ds[tile][i] - inner[i / 2])
                              : 0;
        add_weighted<T, HEAD>(sum, ds, keys, 0);
    }
    store_queries(a, at.q, first, sum);
}

/* The queries of a tile, of which key_kernel has the operands in shared memory. */
template <class T, int HEAD> struct query_tile {
    T *queries, *gradients;
    float *inner, *log_sum;
    int *last, *count; /* the last key at hand that each sees, and, of a block, how many */
};

/* Queries `column` and on of a head, and what is known of them; inner: its first one's. */
template <class T, int HEAD, class A>
static __device__ __forceinline__ void load_queries(const query_tile<T, HEAD> &to, const A &a,
                                                    const head_place &at, const float *inner,
                                                    int column)
{
    constexpr int COLUMNS = tiling<T, HEAD>::QUERIES;
    load_tile<T, HEAD, COLUMNS>(to.queries, a.q + at.q, a.q_stride, column, a.rows, a.size,
                                a.is_aligned);
    load_tile<T, HEAD, COLUMNS>(to.gradients, a.dy + at.y, a.y_stride, column, a.rows, a.value,
                                a.is_aligned);
    for (int i = (int)threadIdx.x; i < COLUMNS && column + i < a.rows; i += (int)blockDim.x) {
        to.inner[i] = inner[column + i];
        to.log_sum[i] = a.log_sums != NULL ? a.log_sums[at.row + column + i] : 0;
        to.last[i] = last_seen(a, column + i);
        list_count(a, to.count, i, column + i, to.last[i]);
    }
}

/* dk = scale ds^T q and dv = left(p)^T dy for a tile of keys, of the features from blockIdx.y WIDTH
 * on, with ds and left() as in query_kernel: sums over the heads that read these keys, one after
 * the other. Rows of accumulators are keys, columns queries. */
template <class T, int HEAD, class A>
static __global__ void __launch_bounds__(tiling<T, HEAD>::THREADS) key_kernel(GPU_GRID_CONSTANT A a)
{
    typedef tiling<T, HEAD> sizes;
    constexpr int COLUMNS = sizes::QUERIES, TILES = COLUMNS / 8, WIDE = sizes::WIDTH / 8;
    GPU_DYNAMIC_SHARED(T, keys);
    GPU_SHARED(float, inner, COLUMNS);
    GPU_SHARED(float, log_sum, COLUMNS);
    GPU_SHARED(int, last, COLUMNS);
    T *const values = keys + sizes::ROWS * sizes::STRIDE;
    T *const queries = values + sizes::ROWS * sizes::STRIDE;
    T *const gradients = queries + COLUMNS * sizes::STRIDE;
    int *const count = (int *)(gradients + COLUMNS * sizes::STRIDE);
    const query_tile<T, HEAD> tile_of = {queries, gradients, inner, log_sum, last, count};
    const int tiles = (a.keys + sizes::ROWS - 1) / sizes::ROWS;
    const int first = (int)(blockIdx.x % tiles) * sizes::ROWS, row = lane_row(0) / 16 * 16;
    const int feature = (int)blockIdx.y * sizes::WIDTH;
    const int64_t own = a.first_key_head + blockIdx.x / tiles, batch = own / a.kv_heads;
    const int64_t global = gpu_digits_global(a.kv_digits, own % a.kv_heads);
    const int64_t k = batch * a.keys * a.k_stride + own % a.kv_heads * a.k_head;
    const int64_t begin = batch * a.heads + readers_before(a, global);
    const int64_t end = batch * a.heads + readers_before(a, global + 1);
    const int places[2] = {place_of_key(a, first + lane_row(0)),
                           place_of_key(a, first + lane_row(1))};
    float key_sum[WIDE][4] = {}, value_sum[WIDE][4] = {};
    load_keys<T, HEAD, sizes::ROWS>(keys, a, k + a.first_key, first);
    load_values<T, HEAD, sizes::ROWS>(values, a, k + a.first_value, first);
    for (int64_t head = begin; head < end; head++) {
        const head_place at = place_head(a, head);
        const uint64_t in_whole = first_of_head(a, head);
        for (int column = 0; column < a.rows; column += COLUMNS) {
            float p[TILES][4], ds[TILES][4];
            if (seen_keys(a, column + COLUMNS < a.rows ? column + COLUMNS : a.rows) <= first ||
                hidden_keys(a, column) >= first + sizes::ROWS)
                continue; /* no query of these sees one of the keys */
            __syncthreads();
            load_queries(tile_of, a, at, a.inner + (head - a.first_head) * a.rows, column);
            __syncthreads();
            const auto is_seen = [&](int tile, int i) {
                const int key = first + lane_row(i / 2), query = lane_column(tile, i);
                return column + query < a.rows && key < a.keys &&
                       sees(last[query], count_listed(a, count, query), key);
            };
            const auto is_in_mask = [&](int tile, int i) {
                const int query = column + lane_column(tile, i);
                return is_seen(tile, i) &&
                       is_kept_by_mask(a, mask_at(a, at.row, query, places[i / 2]));
            };
            const auto is_decided = [&](int tile, int i) {
                const int query = column + lane_column(tile, i);
                return is_kept_by_chance(a, first_of_row(a, in_whole, query), places[i / 2]);
            };
            const uint32_t kept = has_mask(a) ? dropout_bits<TILES>(a, is_in_mask)
                                              : dropout_bits<TILES>(a, is_decided);
            multiply_rows<T, HEAD, TILES>(p, keys, row, queries);
            multiply_rows<T, HEAD, TILES>(ds, values, row, gradients);
            GPU_UNROLL
            for (int tile = 0; tile < TILES; tile++)
                GPU_UNROLL
            for (int i = 0; i < 4; i++) {
                const int query = lane_column(tile, i);
                const float factor = dropout_factor(a, kept, tile, i);
                const bool sees_key = is_seen(tile, i);
                p[tile][i] = sees_key ? recall(a, at.row, p[tile][i], column + query, places[i / 2],
                                               log_sum[query])
                                      : 0;
                ds[tile][i] = sees_key ? p[tile][i] * (factor * ds[tile][i] - inner[query]) : 0;
                p[tile][i] *= factor;
            }
            add_weighted<T, HEAD>(value_sum, p, gradients, feature);
            add_weighted<T, HEAD>(key_sum, ds, queries, feature);
        }
    }
    const float one[2] = {1, 1};
    store_keys(a, k + a.first_key, blockIdx.x / tiles, first, feature, key_sum);
    store_tile(a.dk + k + a.first_value, a.k_stride, first, a.keys, feature, a.value, value_sum,
               one, a.is_aligned);
}

/* ---- launches ------------------------------------------------------------------------------- */

/* Launches for heads of up to HEAD features. */
template <class T, int HEAD, class A> struct launches {
    typedef tiling<T, HEAD> sizes;
    static unsigned blocks(int rows, int64_t heads)
    {
        return (unsigned)(gpu_ceil(rows, sizes::ROWS) * heads);
    }
    /* Shared memory. */
    static const int ROW_BYTES = (int)sizeof(T) * sizes::STRIDE;
    static const int LISTED_BYTES = is_blocked<A> ? (int)sizeof(int) : 0;
    static const int FORWARD_BYTES =
        ROW_BYTES * (sizes::ROWS + 2 * sizes::COLUMNS) + LISTED_BYTES * sizes::COLUMNS;
    static const int QUERY_BYTES =
        ROW_BYTES * 2 * (sizes::ROWS + sizes::COLUMNS) + LISTED_BYTES * sizes::COLUMNS;
    static const int KEY_BYTES =
        ROW_BYTES * 2 * (sizes::ROWS + sizes::QUERIES) + LISTED_BYTES * sizes::QUERIES;
    static bool fits(int shared_bytes)
    {
        const int beside = 3 * (int)sizeof(float) * sizes::QUERIES; /* of key_kernel */
        return FORWARD_BYTES <= shared_bytes && QUERY_BYTES <= shared_bytes &&
               KEY_BYTES + beside <= shared_bytes;
    }
    static void forward(struct sbp_cuda *cuda, const A &a, int64_t heads)
    {
        const auto kernel = forward_kernel<T, HEAD, A>;
        gpu_allow_shared(cuda, kernel, FORWARD_BYTES);
        GPU_LAUNCH(cuda, kernel, blocks(a.rows, heads), sizes::THREADS, FORWARD_BYTES, a);
    }
    static void backward(struct sbp_cuda *cuda, const A &a, int64_t heads, int64_t kv_heads)
    {
        const auto queries = query_kernel<T, HEAD, A>, keys = key_kernel<T, HEAD, A>;
        gpu_allow_shared(cuda, queries, QUERY_BYTES);
        gpu_allow_shared(cuda, keys, KEY_BYTES);
        if (heads > 0) {
            GPU_LAUNCH(cuda, inner_kernel<T>, (unsigned)(gpu_ceil(a.rows, 4) * heads), 128, 0, a);
            GPU_LAUNCH(cuda, queries, blocks(a.rows, heads), sizes::THREADS, QUERY_BYTES, a);
        }
        GPU_LAUNCH(cuda, keys, dim3(blocks(a.keys, kv_heads), HEAD / sizes::WIDTH), sizes::THREADS,
                   KEY_BYTES, a);
    }
};

#endif
