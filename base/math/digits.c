#include "base/math/digits.h"

#include <assert.h>

#include "base/math/numeric.h"

/* The product of `factor` into `size`; a dimension is an int64_t, so more saturates. */
static int64_t times(int64_t size, int64_t factor)
{
    int64_t product;
    return sbp_mul_i64(size, factor, &product) ? product : INT64_MAX;
}

int64_t sbp_digits_global_size(const struct sbp_digits *digits)
{
    int64_t size = digits->rest;
    for (int i = 0; i < digits->count; i++)
        size = times(size, digits->size[i]);
    return size;
}

int64_t sbp_digits_local_size(const struct sbp_digits *digits)
{
    int64_t size = digits->rest;
    for (int i = 0; i < digits->count; i++)
        if (digits->fixed[i] < 0)
            size = times(size, digits->size[i]);
    return size;
}

int64_t sbp_digits_global(const struct sbp_digits *digits, int64_t local)
{
    assert(local >= 0);
    int64_t global = local % digits->rest;
    int64_t place = digits->rest; /* the value of a 1 in the digit at hand */
    local /= digits->rest;
    for (int i = digits->count - 1; i >= 0; i--) {
        int64_t digit = digits->fixed[i];
        if (digit < 0) {
            digit = local % digits->size[i];
            local /= digits->size[i];
        }
        global += digit * place;
        place *= digits->size[i];
    }
    assert(local == 0);
    return global;
}

int64_t sbp_digits_local(const struct sbp_digits *digits, int64_t global)
{
    assert(global >= 0);
    int64_t local = global % digits->rest;
    int64_t place = digits->rest;
    global /= digits->rest;
    for (int i = digits->count - 1; i >= 0; i--) {
        const int64_t digit = global % digits->size[i];
        global /= digits->size[i];
        if (digits->fixed[i] < 0) {
            local += digit * place;
            place *= digits->size[i];
        } else if (digits->fixed[i] != digit) {
            return -1;
        }
    }
    assert(global == 0);
    return local;
}

int64_t sbp_digits_owner(const struct sbp_digits *digits, int64_t global, int64_t *local)
{
    int64_t owner = 0, step = 1, place = digits->rest;
    *local = global % digits->rest;
    global /= digits->rest;
    for (int i = digits->count - 1; i >= 0; i--) {
        const int64_t digit = global % digits->size[i];
        global /= digits->size[i];
        if (digits->fixed[i] < 0) {
            *local += digit * place;
            place *= digits->size[i];
        } else {
            owner += digit * step;
            step *= digits->size[i];
        }
    }
    assert(global == 0);
    return owner;
}

int64_t sbp_region_elements(const struct sbp_region *region)
{
    int64_t elements = 1;
    for (int i = 0; i < SBP_MAX_DIMS; i++)
        elements = times(elements, sbp_digits_local_size(&region->dim[i]));
    return elements;
}

int64_t sbp_region_global(const struct sbp_region *region, int64_t local)
{
    int64_t global = 0;
    int64_t stride = 1; /* of the dimension at hand in the whole tensor */
    for (int i = SBP_MAX_DIMS - 1; i >= 0; i--) {
        const int64_t local_size = sbp_digits_local_size(&region->dim[i]);
        global += stride * (sbp_digits_global(&region->dim[i], local % local_size) +
                            (i == 0 ? region->first : 0));
        stride *= sbp_digits_global_size(&region->dim[i]);
        local /= local_size;
    }
    return global;
}
