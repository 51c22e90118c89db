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
static __device__ __forceinline__ uint64_t row_by_chance(const A &a, uint64_t of_head, int row)
{
    return of_head + (uint64_t)place_of(a, row) * (uint64_t)all_keys(a);
}

template <class A>
static __device__ __forceinline__ uint64_t first_of_row(const A &a, uint64_t of_head, int row)
{
    return row_by_chance(a, of_head, row);
}

template <class A>
static __device__ __forceinline__ uint64_t first_of(const A &a, int64_t index, int row)
{
    return first_of_row(a, first_of_head(a, index), row);
}

/* Whether there is dropout: a block asks while it runs (blocks.cuh). */
template <class T> static __device__ __forceinline__ bool drops(const attention<T> &)
{
    return false;
}

template <class A> static __device__ __forceinline__ bool drops(const dropping<A> &)
{
    return true;
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

/* Whether chance keeps a probability. Keys are named by their places in the sequence from here on.
 */
template <class T>
static __device__ __forceinline__ bool decides(const attention<T> &, uint64_t, int)
{
    return true;
}

template <class A>
static __device__ __forceinline__ bool decides(const dropping<A> &a, uint64_t first, int key)
{
    return (int64_t)(gpu_random_bits(a.key, first + (uint64_t)key) >> 11) >= a.least;
}

/* Where the mask that is kept has a probability; first_row: the head's, among all heads'. */
template <class A>
static __device__ __forceinline__ int64_t mask_at(const A &a, int64_t first_row, int query, int key)
{
    return (first_row + query) * all_keys(a) + key;
}

/* The same backward, where the mask knows what is kept; at: its place there. */
template <class T>
static __device__ __forceinline__ bool recalls(const attention<T> &, uint64_t, int, int64_t)
{
    return true;
}

template <class A>
static __device__ __forceinline__ bool recalls(const dropping<A> &a, uint64_t first, int key,
                                               int64_t at)
{
    return a.mask != NULL ? a.mask[at] != 0 : decides(a, first, key);
}

/* Which of a lane's elements of tiles is_kept(tile, i) names, a bit each; without dropout all. The
 * loop over tiles stays a loop: unrolled, the bits of chance were four fifths of a kernel. */
template <int TILES, class A, class F>
static __device__ __forceinline__ uint32_t keep_tiles(const A &a, const F &is_kept)
{
    static_assert(TILES * 4 <= 32, "a bit an element");
    uint32_t kept = 0;
    if (!drops(a))
        return ~0U;
    GPU_LOOP
    for (int tile = 0; tile < TILES; tile++)
        GPU_UNROLL
    for (int i = 0; i < 4; i++)
        kept |= (uint32_t)is_kept(tile, i) << (4 * tile + i);
    return kept;
}

/* The factor of an element: 0 where dropout takes it, 1 without dropout. */
template <class A>
static __device__ __forceinline__ float kept_of(const A &a, uint32_t kept, int tile, int i)
{
    return !drops(a) ? 1 : kept >> (4 * tile + i) & 1 ? factor_of(a) : 0;
}

template <class T>
static __device__ __forceinline__ void keep_mask(const attention<T> &, bool, int64_t)
{
}

template <class A>
static __device__ __forceinline__ void keep_mask(const dropping<A> &a, bool is_kept, int64_t at)
{
    a.mask[at] = is_kept;
}

#endif
