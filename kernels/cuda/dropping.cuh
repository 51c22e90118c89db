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

/* Keys are named by their places in the sequence from here on. */
template <class A>
static __device__ __forceinline__ bool decides(const A &a, uint64_t first, int key)
{
    return (int64_t)(gpu_random_bits(a.key, first + (uint64_t)key) >> 11) >= a.least;
}

/* Where the mask that is kept has a probability; first_row: the head's, among all heads'. */
template <class A>
static __device__ __forceinline__ int64_t mask_at(const A &a, int64_t first_row, int query, int key)
{
    return (first_row + query) * all_keys(a) + key;
}

/* Dropout multiplies a probability that is seen by this. */
template <class T>
static __device__ __forceinline__ float kept_of(const attention<T> &, bool, uint64_t, int64_t, int,
                                                int)
{
    return 1;
}

template <class A>
static __device__ __forceinline__ float kept_by_chance(const A &a, bool is_seen, uint64_t first,
                                                       int64_t first_row, int query, int key)
{
    if (!is_seen)
        return 0;
    const bool is_kept =
        a.mask != NULL ? a.mask[mask_at(a, first_row, query, key)] != 0 : decides(a, first, key);
    return is_kept ? a.factor : 0;
}

template <class A>
static __device__ __forceinline__ float kept_of(const dropping<A> &a, bool is_seen, uint64_t first,
                                                int64_t first_row, int query, int key)
{
    return kept_by_chance(a, is_seen, first, first_row, query, key);
}

template <class T>
static __device__ __forceinline__ void keep_mask(const attention<T> &, uint64_t, int64_t, int, int)
{
}

template <class A>
static __device__ __forceinline__ void keep_mask(const dropping<A> &a, uint64_t first,
                                                 int64_t first_row, int query, int key)
{
    a.mask[mask_at(a, first_row, query, key)] = decides(a, first, key);
}

/* Exponentials of a tile are multiplied before they meet the values; first: of both rows, places:
 * of its columns. */
template <class T, int TILES, class P>
static __device__ __forceinline__ void drop(float (&)[TILES][4], const attention<T> &,
                                            const uint64_t (&)[2], const P &)
{
}

template <class A, int TILES, class P>
static __device__ __forceinline__ void drop_by_chance(float (&of)[TILES][4], const A &a,
                                                      const uint64_t (&first)[2], const P &places)
{
    GPU_UNROLL
    for (int i = 0; i < TILES * 4; i++)
        of[i / 4][i % 4] *=
            decides(a, first[i % 4 / 2], places(lane_column(i / 4, i % 4))) ? a.factor : 0;
}

template <class A, int TILES, class P>
static __device__ __forceinline__ void drop(float (&of)[TILES][4], const dropping<A> &a,
                                            const uint64_t (&first)[2], const P &places)
{
    drop_by_chance(of, a, first, places);
}

#endif
