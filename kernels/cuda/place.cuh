/* Where local elements lie in the whole (base/math/digits.h), on the device: dimensions and blocks
 * as a launch carries them.
 *
 * Neighbouring digits of a kind are one digit here, so that a dimension that is not split has none
 * but its rest. Global indices rise with local ones.
 */
#ifndef SBP_KERNELS_CUDA_PLACE_CUH
#define SBP_KERNELS_CUDA_PLACE_CUH

#include "kernels/cuda/gpu.cuh"

struct gpu_digits {
    int count;
    int64_t size[SBP_MAX_AXES], fixed[SBP_MAX_AXES]; /* fixed: -1, runs locally */
    int64_t rest;
};

struct gpu_region {
    gpu_digits dim[SBP_MAX_DIMS];
    int64_t local[SBP_MAX_DIMS], global[SBP_MAX_DIMS]; /* sizes */
    int64_t first;
};

/* ---- on the host ---------------------------------------------------------------------------- */

/* From the least significant digit on: `of` is more significant than what is there. */
static inline void gpu_digits_add(gpu_digits *digits, int64_t size, int64_t fixed)
{
    const int last = digits->count - 1;
    if (size == 1)
        return;
    if (fixed < 0 && last < 0) {
        digits->rest *= size;
    } else if (last >= 0 && (digits->fixed[last] < 0) == (fixed < 0)) {
        digits->fixed[last] = fixed < 0 ? -1 : digits->fixed[last] + fixed * digits->size[last];
        digits->size[last] *= size;
    } else {
        digits->size[digits->count] = size;
        digits->fixed[digits->count++] = fixed;
    }
}

/* The least significant digit comes first. */
static inline gpu_digits gpu_digits_of(const struct sbp_digits *digits)
{
    gpu_digits of = {};
    of.rest = digits->rest;
    for (int i = digits->count - 1; i >= 0; i--)
        gpu_digits_add(&of, digits->size[i], digits->fixed[i]);
    return of;
}

static inline gpu_region gpu_region_of(const struct sbp_region *region)
{
    gpu_region of = {};
    of.first = region->first;
    for (int i = 0; i < SBP_MAX_DIMS; i++) {
        of.dim[i] = gpu_digits_of(&region->dim[i]);
        of.local[i] = sbp_digits_local_size(&region->dim[i]);
        of.global[i] = sbp_digits_global_size(&region->dim[i]);
    }
    return of;
}

/* Local indices k run .. k run + run - 1 have consecutive global ones, for every k. */
static inline int64_t gpu_region_run(const gpu_region &region)
{
    int64_t run = 1;
    for (int i = SBP_MAX_DIMS - 1; i >= 0; i--) {
        run *= region.dim[i].rest;
        if (region.dim[i].rest != region.global[i])
            break;
    }
    return run;
}

/* How many local indices have a global one below `end`: the first ones. */
static inline int64_t gpu_digits_below(const struct sbp_digits *digits, int64_t end)
{
    int64_t low = 0, high = sbp_digits_local_size(digits);
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (sbp_digits_global(digits, middle) < end)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* ---- on the device -------------------------------------------------------------------------- */

static __device__ __forceinline__ int64_t gpu_digits_global(const gpu_digits &digits, int64_t local)
{
    if (digits.count == 0)
        return local;
    int64_t global = local % digits.rest, place = digits.rest;
    local /= digits.rest;
    for (int i = 0; i < digits.count; i++) {
        const int64_t size = digits.size[i], fixed = digits.fixed[i];
        global += (fixed < 0 ? local % size : fixed) * place;
        local = fixed < 0 ? local / size : local;
        place *= size;
    }
    return global;
}

/* -1: another rank has it. */
static __device__ __forceinline__ int64_t gpu_digits_local(const gpu_digits &digits, int64_t global)
{
    if (digits.count == 0)
        return global;
    int64_t local = global % digits.rest, place = digits.rest;
    global /= digits.rest;
    for (int i = 0; i < digits.count; i++) {
        const int64_t size = digits.size[i], fixed = digits.fixed[i], digit = global % size;
        if (fixed >= 0 && fixed != digit)
            return -1;
        local += fixed < 0 ? digit * place : 0;
        place *= fixed < 0 ? size : 1;
        global /= size;
    }
    return local;
}

/* How many local indices have a global one below `end`: the first ones. */
static __device__ __forceinline__ int64_t gpu_digits_before(const gpu_digits &digits, int64_t end)
{
    int64_t count = end % digits.rest, place = digits.rest;
    end /= digits.rest;
    for (int i = 0; i < digits.count; i++) {
        const int64_t size = digits.size[i], fixed = digits.fixed[i], digit = end % size;
        if (fixed < 0)
            count += digit * place;
        else if (fixed != digit)
            count = fixed < digit ? place : 0;
        place *= fixed < 0 ? size : 1;
        end /= size;
    }
    return end > 0 ? place : count;
}

/* The owner among all that the fixed digits tell apart, and the local index there. */
static __device__ __forceinline__ int64_t gpu_digits_owner(const gpu_digits &digits, int64_t global,
                                                           int64_t *local)
{
    int64_t owner = 0, step = 1, place = digits.rest;
    *local = digits.count == 0 ? global : global % digits.rest;
    global /= digits.rest;
    for (int i = 0; i < digits.count; i++) {
        const int64_t size = digits.size[i], digit = global % size;
        const bool is_fixed = digits.fixed[i] >= 0;
        *local += is_fixed ? 0 : digit * place;
        place *= is_fixed ? 1 : size;
        owner += is_fixed ? digit * step : 0;
        step *= is_fixed ? size : 1;
        global /= size;
    }
    return owner;
}

static __device__ __forceinline__ int64_t gpu_region_global(const gpu_region &region, int64_t local)
{
    int64_t global = 0, stride = 1;
    for (int i = SBP_MAX_DIMS - 1; i >= 0; i--) {
        if (region.global[i] == 1 && i > 0)
            continue;
        const int64_t index = gpu_digits_global(region.dim[i], local % region.local[i]);
        global += stride * (index + (i == 0 ? region.first : 0));
        stride *= region.global[i];
        local /= region.local[i];
    }
    return global;
}

#endif
