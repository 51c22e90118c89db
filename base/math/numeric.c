#include "base/math/numeric.h"

bool sbp_mul_i64(int64_t a, int64_t b, int64_t *product)
{
    int64_t result;
    if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &result))
        return false;
    *product = result;
    return true;
}

bool sbp_add_i64(int64_t a, int64_t b, int64_t *sum)
{
    int64_t result;
    if (a < 0 || b < 0 || __builtin_add_overflow(a, b, &result))
        return false;
    *sum = result;
    return true;
}

static const struct {
    const char *name;
    int64_t bytes;
    double roundoff;
} reals[SBP_REALS] = {
    [SBP_F32] = {"f32", 4, 0x1p-24},
    [SBP_F64] = {"f64", 8, 0x1p-53},
    [SBP_REAL_BF16] = {"bf16", 2, 0x1p-8},
    [SBP_REAL_FP16] = {"f16", 2, 0x1p-11},
};

const char *sbp_real_name(enum sbp_real real)
{
    return reals[real].name;
}

int64_t sbp_real_bytes(enum sbp_real real)
{
    return reals[real].bytes;
}

double sbp_real_roundoff(enum sbp_real real)
{
    return reals[real].roundoff;
}

/* Products stop at the largest count instead of wrapping: no allocation of that size succeeds. */
static int64_t times(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

static int64_t plus(int64_t a, int64_t b)
{
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

int64_t sbp_attention_scratch_elements(const struct sbp_attention_shape *shape)
{
    const int64_t sequence = shape->sequence;
    const int64_t tile = sequence < SBP_ATTENTION_TILE ? sequence : SBP_ATTENTION_TILE;
    if (shape->kind == SBP_ATTENTION_FLASH)
        return 2 * tile * tile + 2 * tile;    /* two score tiles, two numbers a row */
    return plus(times(tile, sequence), tile); /* score gradients of some rows, a number a row */
}

int64_t sbp_attention_sums_elements(const struct sbp_attention_shape *shape)
{
    if (shape->kind == SBP_ATTENTION_FLASH)
        return 0;
    return times(2, times(shape->batch, times(shape->sequence, shape->heads)));
}

int64_t sbp_latent_scratch_elements(const struct sbp_attention_shape *shape,
                                    const struct sbp_latent_parts *parts, bool backward)
{
    const int64_t keys = times(shape->sequence, plus(parts->rope, parts->nope));
    const int64_t sums = times(2, times(shape->sequence, parts->rope)); /* wide: twice as wide */
    const int64_t tiles = sbp_attention_scratch_elements(shape);
    return backward ? plus(tiles, plus(sums, plus(keys, keys))) : plus(tiles, keys);
}
