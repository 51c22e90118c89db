/* Operators that move or make elements by place: permutations, initial values. */
#include <assert.h>
#include <string.h>

#include "base/math/random.h"
#include "kernels/cpu/cpu_priv.h"
#include "kernels/cpu/real_priv.h"

/* Loops over the destination in its order, outermost first, with the source's step of each. */
struct loops {
    int count;
    int64_t size[SBP_MOST_PERMUTED], stride[SBP_MOST_PERMUTED];
    int64_t elements;
};

/* Appends a loop, or widens the last one when the new one continues it. */
static void add_loop(struct loops *loops, int64_t size, int64_t stride)
{
    loops->elements *= size;
    if (size == 1)
        return;
    const int last = loops->count - 1;
    if (last >= 0 && loops->stride[last] == size * stride) {
        loops->size[last] *= size;
        loops->stride[last] = stride;
        return;
    }
    loops->size[loops->count] = size;
    loops->stride[loops->count++] = stride;
}

static void permute_loops(int dims, const int64_t *shape, const int *order, struct loops *loops)
{
    assert(dims >= 0 && dims <= SBP_MOST_PERMUTED);
    int64_t stride[SBP_MOST_PERMUTED];
    int64_t step = 1;
    for (int i = dims - 1; i >= 0; i--) {
        stride[i] = step;
        step *= shape[i];
    }
    loops->count = 0;
    loops->elements = 1;
    for (int i = 0; i < dims; i++)
        add_loop(loops, shape[order[i]], stride[order[i]]);
}

/* Advances the odometer of the outer loops by one; `at` is the source offset. */
static void advance(const struct loops *loops, int outer, int64_t *digit, int64_t *at)
{
    for (int i = outer - 1; i >= 0; i--) {
        *at += loops->stride[i];
        if (++digit[i] < loops->size[i])
            return;
        *at -= loops->size[i] * loops->stride[i];
        digit[i] = 0;
    }
}

void CPU(permute)(void *dst, const void *src, int dims, const int64_t *shape, const int *order)
{
    struct loops loops;
    permute_loops(dims, shape, order, &loops);
    const int outer = loops.count > 0 ? loops.count - 1 : 0;
    const int64_t run = loops.count > 0 ? loops.size[outer] : 1;
    const int64_t step = loops.count > 0 ? loops.stride[outer] : 1;
    int64_t digit[SBP_MOST_PERMUTED], at = 0;
    memset(digit, 0, (size_t)outer * sizeof *digit);
    stored *to = dst;
    for (int64_t done = 0; done < loops.elements; done += run, to += run) {
        const stored *from = (const stored *)src + at;
        if (step == 1)
            memcpy(to, from, (size_t)run * sizeof *to);
        else
            for (int64_t i = 0; i < run; i++)
                to[i] = from[i * step];
        advance(&loops, outer, digit, &at);
    }
}

void CPU(copy_rows)(void *to, int64_t to_row, const void *from, int64_t from_row, int64_t n,
                    int64_t rows)
{
    for (int64_t row = 0; row < rows; row++)
        memcpy((stored *)to + row * to_row, (const stored *)from + row * from_row,
               (size_t)n * sizeof(stored));
}

/* The first global index that is padding: dimension 0 is the outermost, so that the padded rows
 * are a tail of the tensor. */
static int64_t padding_start(const struct sbp_region *region, int64_t valid_rows)
{
    const int64_t rows = region->first + sbp_digits_global_size(&region->dim[0]);
    int64_t start = valid_rows < 0 ? 0 : valid_rows < rows ? valid_rows : rows;
    for (int i = 1; i < SBP_MAX_DIMS; i++)
        start *= sbp_digits_global_size(&region->dim[i]);
    return start;
}

SBP_SIMD_WIDE
static void fill_run(stored *restrict x, int64_t n, double mean, double spread, uint64_t key,
                     uint64_t first)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = store((real)(mean + spread * (double)sbp_lanes_normal(
                                                sbp_lanes_bits(key, first + (uint64_t)i))));
}

void CPU(fill_normal)(void *x, const struct sbp_region *region, double mean, double spread,
                      uint64_t seed, uint64_t stream, int64_t valid_rows,
                      const struct sbp_step_state *step)
{
    const double factor = step != NULL ? step->loss_scale : 1;
    const int64_t n = sbp_region_elements(region), run = sbp_cpu_region_run(region);
    const int64_t padding = padding_start(region, valid_rows);
    const uint64_t key = sbp_random_key(seed, stream);
    for (int64_t start = 0; start < n; start += run) {
        const int64_t global = sbp_region_global(region, start), left = padding - global;
        const int64_t filled = left < 0 ? 0 : left < run ? left : run;
        stored *to = (stored *)x + start;
        for (int64_t i = 0; i < filled && spread == 0; i++)
            to[i] = store((real)(mean * factor));
        if (spread != 0)
            fill_run(to, filled, mean * factor, spread * factor, key, (uint64_t)global);
        CPU(zero)(to + filled, run - filled);
    }
}
