/* Dropout of attention's probabilities: which are kept is decided by their index in the whole, or,
 * where probabilities are kept, read of the mask that forward wrote. Kernels call these functions
 * for every attention; of those without dropout they do nothing.
 */
#ifndef SBP_KERNELS_CUDA_DROPPING_CUH
#define SBP_KERNELS_CUDA_DROPPING_CUH

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/random.cuh"

/* Attention A with dropout of its probabilities. */
template <class A> struct dropping : A {
    gpu_digits samples, own_heads; /* which of the whole are here */
    int64_t first_sample, all_heads;
    uint64_t key;  /* of seed and stream */
    int64_t least; /* of the upper 53 bits of an element that is kept */
    float factor;
    uint8_t *mask; /* (B,H,S,K), of materialised attention */
};

template <class A>
static dropping<A> dropping_of(const A &a, const struct sbp_attention_dropout *dropout)
{
    const struct sbp_region *region = dropout->region;
    dropping<A> d = {};
    (A &)d = a;
    d.samples = gpu_digits_of(&region->dim[0]);
    d.own_heads = gpu_digits_of(&region->dim[2]);
    d.first_sample = region->first;
    d.all_heads = sbp_digits_global_size(&region->dim[2]);
    d.key = sbp_random_key(dropout->seed, dropout->stream);
    d.least = (int64_t)ceil(dropout->p * 0x1p53);
    d.factor = (float)(1 / (1 - dropout->p));
    d.mask = dropout->mask;
    return d;
}

/* Whether there is dropout: of attention in blocks, only its launch tells (blocks.cuh). */
template <class T> static __device__ __forceinline__ bool drops(const attention<T> &)
{
    return false;
}

template <class A> static __device__ __forceinline__ bool drops(const dropping<A> &)
{
    return true;
}

/* The index in the whole of head `index`'s first query and key. */
template <class T>
static __device__ __forceinline__ uint64_t first_of_head(const attention<T> &, int64_t)
{
    return 0;
}

template <class A>
static __device__ __forceinline__ uint64_t first_by_chance(const A &a, int64_t index)
{
    const int64_t sample = a.first_sample + gpu_digits_global(a.samples, index / a.heads);
    const int64_t head = sample * a.all_heads + gpu_digits_global(a.own_heads, index % a.heads);
    return (uint64_t)(head * all_keys(a) * all_keys(a));
}

template <class A>
static __device__ __forceinline__ uint64_t first_of_head(const dropping<A> &a, int64_t index)
{
    return first_by_chance(a, index);
}

/* The same of a query of that head and the first key. */
template <class A>
static __device__ __forceinline__ uint64_t first_of_row(const A &a, uint64_t of_head, int row)
{
    return drops(a) ? of_head + (uint64_t)place_of(a, row) * (uint64_t)all_keys(a) : 0;
}

template <class A>
static __device__ __forceinline__ uint64_t first_of(const A &a, int64_t index, int row)
{
    return first_of_row(a, first_of_head(a, index), row);
}

/* Dropout multiplies probabilities that it keeps by this. */
template <class T> static __device__ __forceinline__ float factor_of(const attention<T> &)
{
    return 1;
}

template <class A> static __device__ __forceinline__ float factor_of(const dropping<A> &a)
{
    return a.factor;
}

/* Whether chance keeps a probability; first: the index of its query and the first key. Keys are
 * named by their places in the sequence from here on. */
template <class T>
static __device__ __forceinline__ bool is_kept_by_chance(const attention<T> &, uint64_t, int)
{
    return true;
}

template <class A>
static __device__ __forceinline__ bool is_kept_by_chance(const dropping<A> &a, uint64_t first,
                                                         int key)
{
    return (int64_t)(gpu_random_bits(a.key, first + (uint64_t)key) >> 11) >= a.least;
}

/* ---- the mask of materialised attention ----------------------------------------------------- */

template <class T> static __device__ __forceinline__ bool has_mask(const attention<T> &)
{
    return false;
}

template <class A> static __device__ __forceinline__ bool has_mask(const dropping<A> &a)
{
    return a.mask != NULL;
}

/* Where the mask has a probability; first_row: the head's, among all heads'. */
template <class A>
static __device__ __forceinline__ int64_t mask_at(const A &a, int64_t first_row, int query, int key)
{
    return (first_row + query) * all_keys(a) + key;
}

template <class T>
static __device__ __forceinline__ bool is_kept_by_mask(const attention<T> &, int64_t)
{
    return true;
}

template <class A>
static __device__ __forceinline__ bool is_kept_by_mask(const dropping<A> &a, int64_t at)
{
    return a.mask[at] != 0;
}

template <class T>
static __device__ __forceinline__ void store_mask(const attention<T> &, bool, int64_t)
{
}

template <class A>
static __device__ __forceinline__ void store_mask(const dropping<A> &a, bool is_kept, int64_t at)
{
    a.mask[at] = is_kept;
}

/* ---- a lane's elements of tiles, a bit each ------------------------------------------------- */

/* Bit 4 tile + i tells whether dropout keeps element i of a tile, which is_kept(tile, i) says.
 * Without dropout all bits are set. The loop over tiles is not unrolled: the bits of chance were
 * four fifths of a kernel's code. */
template <int TILES, class A, class F>
static __device__ __forceinline__ uint32_t dropout_bits(const A &a, const F &is_kept)
{
    static_assert(TILES * 4 <= 32, "a bit an element");
    if (!drops(a))
        return ~0U;
    uint32_t kept = 0;
    GPU_NO_UNROLL
    for (int tile = 0; tile < TILES; tile++)
        GPU_UNROLL
    for (int i = 0; i < 4; i++)
        kept |= (uint32_t)is_kept(tile, i) << (4 * tile + i);
    return kept;
}

/* Decides by chance where rows are queries; first: of the lane's two. places(column) are keys'. */
template <int TILES, class A, class P>
static __device__ __forceinline__ uint32_t chance_bits(const A &a, const uint64_t (&first)[2],
                                                       const P &places)
{
    return dropout_bits<TILES>(a, [&](int tile, int i) {
        return is_kept_by_chance(a, first[i / 2], places(lane_column(tile, i)));
    });
}

static __device__ __forceinline__ bool is_kept(uint32_t kept, int tile, int i)
{
    return kept >> (4 * tile + i) & 1;
}

/* Dropout multiplies an element by this: 0 where it is taken, 1 without dropout. */
template <class A>
static __device__ __forceinline__ float dropout_factor(const A &a, uint32_t kept, int tile, int i)
{
    return !drops(a) ? 1 : is_kept(kept, tile, i) ? factor_of(a) : 0;
}

#endif
