/* Mixtures of experts: a warp chooses a token's experts, a block gives an expert's slots away, and
 * blocks copy, weigh and add up the rows of tokens. What the weights are: kernels/cpu/mixture.c.
 *
 * A token's copies are gathered in their order, so that nothing is added to what others wrote. */
#include "kernels/cuda/place.cuh"
#include "kernels/cuda/reduce.cuh"

enum { THREADS = 256, CHOOSERS = 4 /* warps of a block, a token each */ };

/* ---- the choice ------------------------------------------------------------------------------ */

template <class T> struct router {
    const T *scores, *bias; /* bias NULL: none */
    int32_t *table;
    int64_t tokens;
    int experts, top_k, groups, most_groups, in_group;
    bool sigmoid;
};

/* What experts are ranked by, in double as on the CPU: sums of a few decide between equals. */
template <class T>
static __device__ __forceinline__ double rank_of(const router<T> &r, int64_t token, int expert)
{
    const double score = (double)gpu_load(r.scores[token * r.experts + expert]);
    const double bias = r.bias == nullptr ? 0 : (double)gpu_load(r.bias[expert]);
    const double rank = r.sigmoid ? 1 / (1 + exp(-score)) + bias : score;
    return rank == rank ? rank : -INFINITY;
}

/* The best expert of `first` to `end` behind the one that was chosen last, of equal ones the first;
 * `last` < 0: there is none yet. Not-a-numbers are closed. */
static __device__ __forceinline__ int next_best(const double *ranks, int first, int end, int last)
{
    const double before = last < 0 ? 0 : ranks[last];
    double most = 0;
    int best = -1;
    for (int e = first + gpu_lane(); e < end; e += GPU_WARP) {
        const double rank = ranks[e];
        const bool is_left =
            last < 0 ? rank == rank : rank < before || (rank == before && e > last);
        if (is_left && (best < 0 || rank > most)) {
            best = e;
            most = rank;
        }
    }
    for (int offset = GPU_WARP / 2; offset > 0; offset /= 2) {
        const double other = __shfl_xor_sync(GPU_ALL_LANES, most, offset);
        const int where = __shfl_xor_sync(GPU_ALL_LANES, best, offset);
        if (where >= 0 && (best < 0 || other > most || (other == most && where < best))) {
            best = where;
            most = other;
        }
    }
    return best;
}

/* The sums of all groups' best experts. */
static __device__ __forceinline__ void rank_groups(double *sums, const double *ranks, int groups,
                                                   int in_group, int share)
{
    for (int g = 0; g < groups; g++) {
        const int first = g * in_group;
        double sum = 0;
        for (int k = 0, last = -1; k < share && k < in_group; k++) {
            last = next_best(ranks, first, first + in_group, last);
            sum += ranks[last];
        }
        if (gpu_lane() == 0)
            sums[g] = sum;
    }
    __syncwarp();
}

/* Closes all but the best groups, of equal ones the first; is_open(groups) is scratch. */
static __device__ __forceinline__ void close_groups(double *ranks, const double *sums, int *is_open,
                                                    int groups, int most_groups, int in_group)
{
    for (int g = gpu_lane(); g < groups; g += GPU_WARP)
        is_open[g] = 0;
    __syncwarp();
    for (int k = 0; k < most_groups; k++) {
        int best = -1;
        for (int g = 0; g < groups; g++)
            if (is_open[g] == 0 && (best < 0 || sums[g] > sums[best]))
                best = g;
        __syncwarp(); /* all have looked */
        if (gpu_lane() == 0)
            is_open[best] = 1;
        __syncwarp();
    }
    for (int e = gpu_lane(); e < groups * in_group; e += GPU_WARP)
        if (is_open[e / in_group] == 0)
            ranks[e] = NAN;
    __syncwarp();
}

/* Shared memory of a warp: ranks of experts, sums of groups, and which of these are open. */
static constexpr __host__ __device__ __forceinline__ int chooser_doubles(int experts, int groups)
{
    return experts + groups + (groups + 1) / 2;
}

/* What a block has on every device. */
constexpr int SHARED_BYTES = 48 << 10;
static_assert(SHARED_BYTES >= (int)sizeof(double) *
                                  chooser_doubles(SBP_CUDA_MOST_EXPERTS, SBP_CUDA_MOST_EXPERTS),
              "a warp chooses from the most experts, each a group of its own");

template <class T>
static __global__ void __launch_bounds__(CHOOSERS *GPU_WARP)
    choose_kernel(GPU_GRID_CONSTANT router<T> r)
{
    GPU_DYNAMIC_SHARED(double, shared);
    const int warp = (int)threadIdx.x / GPU_WARP, warps = (int)blockDim.x / GPU_WARP;
    const int64_t token = (int64_t)blockIdx.x * warps + warp;
    double *const ranks = shared + warp * chooser_doubles(r.experts, r.groups);
    double *const sums = ranks + r.experts;
    if (token >= r.tokens)
        return;
    for (int e = gpu_lane(); e < r.experts; e += GPU_WARP)
        ranks[e] = rank_of(r, token, e);
    __syncwarp();
    if (r.groups > 0) {
        const int share = (r.top_k + r.most_groups - 1) / r.most_groups;
        rank_groups(sums, ranks, r.groups, r.in_group, share);
        close_groups(ranks, sums, (int *)(sums + r.groups), r.groups, r.most_groups, r.in_group);
    }
    for (int k = 0, last = -1; k < r.top_k; k++) {
        last = next_best(ranks, 0, r.experts, last);
        if (gpu_lane() == 0)
            r.table[2 * (token * r.top_k + k)] = last;
    }
}

/* ---- slots ----------------------------------------------------------------------------------- */

/* Which slots of all an expert has: of a member's experts behind those of the member before. */
struct slot_order {
    gpu_digits held;
    int64_t experts; /* of a member; 0: each expert's begin at 0 */
    int64_t capacity;
};

static __device__ __forceinline__ int64_t first_slot(const slot_order &order, int64_t expert)
{
    int64_t local = 0;
    if (order.experts == 0)
        return 0;
    const int64_t member = gpu_digits_owner(order.held, expert, &local);
    return (member * order.experts + local) * order.capacity;
}

/* A block counts the copies of an expert: first choices in the order of tokens, then second ones.
 */
static __global__ void __launch_bounds__(THREADS)
    slots_kernel(int32_t *table, GPU_GRID_CONSTANT slot_order order, int64_t tokens, int64_t top_k)
{
    GPU_SHARED(int, counts, THREADS / GPU_WARP);
    const int warp = (int)threadIdx.x / GPU_WARP, expert = (int)blockIdx.x;
    const int64_t first = first_slot(order, expert);
    int64_t given = 0;
    for (int64_t k = 0; k < top_k; k++)
        for (int64_t from = 0; from < tokens; from += THREADS) {
            const int64_t token = from + threadIdx.x;
            int32_t *const copy = table + 2 * (token * top_k + k);
            const bool is_own = token < tokens && copy[0] == expert;
            const unsigned own = __ballot_sync(GPU_ALL_LANES, is_own);
            int64_t slot = given + __popc(own & ((1U << gpu_lane()) - 1));
            if (gpu_lane() == 0)
                counts[warp] = __popc(own);
            __syncthreads();
            for (int w = 0; w < THREADS / GPU_WARP; w++) {
                slot += w < warp ? counts[w] : 0;
                given += counts[w];
            }
            if (is_own)
                copy[1] = slot < order.capacity ? (int32_t)(first + slot) : -1;
            __syncthreads(); /* all have read the counts */
        }
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Copies into their slots, a block each. */
template <class T, int N>
static __global__ void __launch_bounds__(THREADS)
    dispatch_kernel(T *slots, const T *x, const int32_t *table, int64_t top_k, int64_t in)
{
    const int64_t slot = table[2 * (int64_t)blockIdx.x + 1];
    const T *const from = x + blockIdx.x / top_k * in;
    if (slot < 0)
        return;
    for (int64_t i = (int64_t)threadIdx.x * N; i < in; i += (int64_t)blockDim.x * N)
        gpu_put(slots + slot * in + i, gpu_get<N>(from + i));
}

/* A token's sum over its copies, each multiplied by its weight (NULL: 1). */
template <class T, int N>
static __device__ __forceinline__ void add_copies(float (&sum)[N], const T *slots,
                                                  const int32_t *copies, const float *weights,
                                                  int top_k, int64_t in, int64_t i)
{
    for (int k = 0; k < top_k; k++) {
        const int64_t slot = copies[2 * k + 1];
        if (slot < 0)
            continue;
        const gpu_chunk<T, N> at = gpu_get<N>(slots + slot * in + i);
        GPU_UNROLL
        for (int j = 0; j < N; j++)
            sum[j] = fmaf(weights == nullptr ? 1 : weights[k], gpu_load(at.at[j]), sum[j]);
    }
}

template <class T, int N>
static __global__ void __launch_bounds__(THREADS)
    dispatch_gradient_kernel(T *dx, const T *dslots, const int32_t *table, int top_k, int64_t in)
{
    const int32_t *const copies = table + 2 * (int64_t)blockIdx.x * top_k;
    T *const row = dx + blockIdx.x * in;
    for (int64_t i = (int64_t)threadIdx.x * N; i < in; i += (int64_t)blockDim.x * N) {
        gpu_chunk<T, N> at = gpu_get<N>(row + i);
        float sum[N];
        GPU_UNROLL
        for (int j = 0; j < N; j++)
            sum[j] = gpu_load(at.at[j]);
        add_copies<T, N>(sum, dslots, copies, nullptr, top_k, in, i);
        GPU_UNROLL
        for (int j = 0; j < N; j++)
            at.at[j] = gpu_store<T>(sum[j]);
        gpu_put(row + i, at);
    }
}

/* ---- weights --------------------------------------------------------------------------------- */

template <class T> struct mixture {
    const T *scores, *slots;
    const int32_t *table;
    int64_t in;
    int experts, top_k;
    bool sigmoid;
};

/* A block's token: what its copies' weights are shares of. */
template <class T> struct token_scores {
    const T *scores;
    const int32_t *copies;
    float largest, sum;
};

/* An expert's part of the sum; what is no number weighs nothing. */
template <class T>
static __device__ __forceinline__ float part_of(const mixture<T> &m, const token_scores<T> &t,
                                                int64_t expert)
{
    const float value = gpu_load(t.scores[expert]), score = value == value ? value : -INFINITY;
    return m.sigmoid ? 1 / (1 + expf(-score)) : expf(score - t.largest);
}

template <class T>
static __device__ __forceinline__ int64_t member(const mixture<T> &m, const token_scores<T> &t,
                                                 int i)
{
    return m.top_k > 1 ? t.copies[2 * i] : i;
}

/* weights(K) of a block's token, in shared memory, for all of its threads. */
template <class T>
static __device__ __forceinline__ token_scores<T> find_weights(const mixture<T> &m, float *weights)
{
    token_scores<T> t = {m.scores + (int64_t)blockIdx.x * m.experts,
                         m.table + 2 * (int64_t)blockIdx.x * m.top_k, 0, 1};
    const int members = m.top_k > 1 ? m.top_k : m.sigmoid ? 0 : m.experts;
    if (members > 0) {
        float largest[1] = {-INFINITY}, sum[1] = {0};
        for (int i = (int)threadIdx.x; i < members; i += (int)blockDim.x)
            largest[0] = fmaxf(largest[0], gpu_load(t.scores[member(m, t, i)]));
        gpu_block_reduce(largest, gpu_max());
        t.largest = largest[0];
        for (int i = (int)threadIdx.x; i < members; i += (int)blockDim.x)
            sum[0] += part_of(m, t, member(m, t, i));
        gpu_block_reduce(sum, gpu_plus());
        t.sum = sum[0];
    }
    for (int k = (int)threadIdx.x; k < m.top_k; k += (int)blockDim.x)
        weights[k] = part_of(m, t, t.copies[2 * k]) / t.sum;
    __syncthreads();
    return t;
}

template <class T, int N>
static __global__ void __launch_bounds__(THREADS) combine_kernel(T *y, mixture<T> m)
{
    GPU_DYNAMIC_SHARED(float, weights);
    const token_scores<T> t = find_weights(m, weights);
    for (int64_t i = (int64_t)threadIdx.x * N; i < m.in; i += (int64_t)blockDim.x * N) {
        float sum[N] = {};
        gpu_chunk<T, N> to;
        add_copies<T, N>(sum, m.slots, t.copies, weights, m.top_k, m.in, i);
        GPU_UNROLL
        for (int j = 0; j < N; j++)
            to.at[j] = gpu_store<T>(sum[j]);
        gpu_put(y + blockIdx.x * m.in + i, to);
    }
}

/* Writes a copy's gradient, weight times dy, and returns that of its weight to all threads. */
template <class T, int N>
static __device__ __forceinline__ float pass_back(T *dslot, const T *dy, const T *slot,
                                                  float weight, int64_t in)
{
    float dot[1] = {0};
    for (int64_t i = (int64_t)threadIdx.x * N; i < in; i += (int64_t)blockDim.x * N) {
        const gpu_chunk<T, N> d = gpu_get<N>(dy + i), at = gpu_get<N>(slot + i);
        gpu_chunk<T, N> to;
        GPU_UNROLL
        for (int j = 0; j < N; j++) {
            to.at[j] = gpu_store<T>(weight * gpu_load(d.at[j]));
            dot[0] = fmaf(gpu_load(d.at[j]), gpu_load(at.at[j]), dot[0]);
        }
        gpu_put(dslot + i, to);
    }
    gpu_block_reduce(dot, gpu_plus());
    return dot[0];
}

/* Gradients of scores s out of those of the copies' weights w; `mean` is sum w dw. A softmax has
 * w (dw - mean), a sigmoid that times 1 minus itself, and without the mean where it is no share. */
template <class T>
static __device__ __forceinline__ float
score_gradient(const mixture<T> &m, const token_scores<T> &t, const float *gradients, float mean,
               int expert)
{
    const float part = part_of(m, t, expert), share = part / t.sum;
    const float slope = m.sigmoid ? share * (1 - part) : share;
    float gradient = m.top_k > 1 || m.sigmoid ? 0 : -share * mean;
    for (int k = 0; k < m.top_k; k++)
        if (t.copies[2 * k] == expert)
            gradient += slope * (gradients[k] - (m.top_k > 1 ? mean : 0));
    return gradient;
}

/* Gradients of scores take their place. */
template <class T, int N>
static __global__ void __launch_bounds__(THREADS)
    combine_gradient_kernel(T *dslots, T *dscores, const T *dy, mixture<T> m)
{
    GPU_DYNAMIC_SHARED(float, weights);
    float *const gradients = weights + m.top_k;
    const token_scores<T> t = find_weights(m, weights);
    float mean = 0;
    for (int k = 0; k < m.top_k; k++) {
        const int64_t slot = t.copies[2 * k + 1];
        const float gradient = slot < 0
                                   ? 0
                                   : pass_back<T, N>(dslots + slot * m.in, dy + blockIdx.x * m.in,
                                                     m.slots + slot * m.in, weights[k], m.in);
        mean = fmaf(weights[k], gradient, mean);
        if (threadIdx.x == 0)
            gradients[k] = gradient;
    }
    __syncthreads();
    for (int e = (int)threadIdx.x; e < m.experts; e += (int)blockDim.x)
        dscores[(int64_t)blockIdx.x * m.experts + e] =
            gpu_store<T>(score_gradient(m, t, gradients, mean, e));
}

/* ---- launches -------------------------------------------------------------------------------- */

/* As many warps a block as shared memory has room for. */
template <class T> static void choose(struct sbp_cuda *cuda, const router<T> &r)
{
    const int64_t bytes = (int64_t)sizeof(double) * chooser_doubles(r.experts, r.groups);
    const int64_t warps = sbp_least_i64(CHOOSERS, SHARED_BYTES / bytes);
    const auto kernel = choose_kernel<T>;
    GPU_LAUNCH(cuda, kernel, (unsigned)gpu_ceil(r.tokens, warps), (unsigned)(warps * GPU_WARP),
               (size_t)(warps * bytes), r);
}

template <class T>
static void route(struct sbp_cuda *cuda, int32_t *table, const void *scores, const void *bias,
                  const struct sbp_digits *held, const struct sbp_routing *of)
{
    const int groups = (int)of->groups;
    const router<T> r = {(const T *)scores,
                         (const T *)bias,
                         table,
                         of->tokens,
                         (int)of->experts,
                         (int)of->top_k,
                         groups,
                         (int)of->most_groups,
                         groups > 0 ? (int)of->experts / groups : 0,
                         of->sigmoid};
    slot_order order = {};
    if (of->experts > SBP_CUDA_MOST_EXPERTS) {
        gpu_note(cuda, cudaErrorInvalidValue);
        return;
    }
    if (of->tokens == 0)
        return;
    order.capacity = of->capacity;
    if (held != NULL) {
        order.held = gpu_digits_of(held);
        order.experts = sbp_digits_local_size(held);
    }
    choose(cuda, r);
    GPU_LAUNCH(cuda, slots_kernel, (unsigned)of->experts, THREADS, 0, table, order, of->tokens,
               of->top_k);
}

/* Whether rows of both are taken 16 bytes at a time. */
template <class T>
static bool is_wide(const struct sbp_routing *of, const void *one, const void *other)
{
    constexpr int N = gpu_width<T>;
    return gpu_aligned<N>((const T *)one, of->in) && gpu_aligned<N>((const T *)other);
}

template <class T> static unsigned threads(const struct sbp_routing *of, bool wide)
{
    return gpu_row_threads(gpu_ceil(of->in, wide ? gpu_width<T> : 1), THREADS);
}

template <class T>
static void clear_slots(struct sbp_cuda *cuda, void *slots, const struct sbp_routing *of)
{
    gpu_zero(cuda, slots, of->experts * of->capacity * of->in * (int64_t)sizeof(T));
}

template <class T>
static void dispatch(struct sbp_cuda *cuda, void *slots, const void *x, const int32_t *table,
                     const struct sbp_routing *of)
{
    const bool wide = is_wide<T>(of, slots, x);
    const auto kernel = wide ? dispatch_kernel<T, gpu_width<T>> : dispatch_kernel<T, 1>;
    clear_slots<T>(cuda, slots, of);
    if (of->tokens > 0)
        GPU_LAUNCH(cuda, kernel, (unsigned)(of->tokens * of->top_k), threads<T>(of, wide), 0,
                   (T *)slots, (const T *)x, table, of->top_k, of->in);
}

template <class T>
static void dispatch_gradient(struct sbp_cuda *cuda, void *dx, const void *dslots,
                              const int32_t *table, const struct sbp_routing *of)
{
    const bool wide = is_wide<T>(of, dx, dslots);
    const auto kernel =
        wide ? dispatch_gradient_kernel<T, gpu_width<T>> : dispatch_gradient_kernel<T, 1>;
    if (of->tokens > 0)
        GPU_LAUNCH(cuda, kernel, (unsigned)of->tokens, threads<T>(of, wide), 0, (T *)dx,
                   (const T *)dslots, table, (int)of->top_k, of->in);
}

template <class T>
static mixture<T> mixture_of(const void *slots, const void *scores, const int32_t *table,
                             const struct sbp_routing *of)
{
    return mixture<T>{(const T *)scores, (const T *)slots, table,      of->in,
                      (int)of->experts,  (int)of->top_k,   of->sigmoid};
}

template <class T>
static void combine(struct sbp_cuda *cuda, void *y, const void *slots, const void *scores,
                    const int32_t *table, const struct sbp_routing *of)
{
    const bool wide = is_wide<T>(of, y, slots);
    const auto kernel = wide ? combine_kernel<T, gpu_width<T>> : combine_kernel<T, 1>;
    if (of->tokens > 0)
        GPU_LAUNCH(cuda, kernel, (unsigned)of->tokens, threads<T>(of, wide),
                   (size_t)of->top_k * sizeof(float), (T *)y,
                   mixture_of<T>(slots, scores, table, of));
}

template <class T>
static void combine_gradient(struct sbp_cuda *cuda, void *dslots, void *scores, const void *dy,
                             const void *slots, const int32_t *table, const struct sbp_routing *of)
{
    const bool wide = is_wide<T>(of, dslots, slots) && is_wide<T>(of, dy, dy);
    const auto kernel =
        wide ? combine_gradient_kernel<T, gpu_width<T>> : combine_gradient_kernel<T, 1>;
    clear_slots<T>(cuda, dslots, of);
    if (of->tokens > 0)
        GPU_LAUNCH(cuda, kernel, (unsigned)of->tokens, threads<T>(of, wide),
                   (size_t)of->top_k * 2 * sizeof(float), (T *)dslots, (T *)scores, (const T *)dy,
                   mixture_of<T>(slots, scores, table, of));
}

template <class T> static void fill(struct sbp_cuda_kernels *kernels)
{
    kernels->moe_route = route<T>;
    kernels->moe_dispatch = dispatch<T>;
    kernels->moe_dispatch_backward = dispatch_gradient<T>;
    kernels->moe_combine = combine<T>;
    kernels->moe_combine_backward = combine_gradient<T>;
}
GPU_FILL(mixture, slots_kernel)
