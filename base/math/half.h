/* Numbers of 16 bits: bfloat16 (8 exponent bits, 7 of the fraction) and IEEE half precision (5 and
 * 10), stored as uint16_t and computed with as float.
 *
 * To float every pattern is exact; from float values round to nearest, ties to even, as one
 * instruction of a GPU does: what is too large becomes infinity, what is too small a subnormal
 * number or 0, and NaN stays NaN. All functions are integer arithmetic, selections and at most one
 * addition, so that compilers turn loops of them into vector instructions; bits are the same on
 * every machine.
 */
#ifndef SBP_BASE_MATH_HALF_H
#define SBP_BASE_MATH_HALF_H

#include <stdbool.h>

#include "base/math/lanes.h"
#include "base/math/numeric.h"

static inline float sbp_half_from_bf16(uint16_t bits)
{
    return sbp_lanes_f32_of((uint32_t)bits << 16);
}

static inline uint16_t sbp_half_to_bf16(float x)
{
    const uint32_t bits = sbp_lanes_f32_bits(x), upper = bits >> 16;
    const uint32_t rounded = (bits + 0x7fff + (upper & 1)) >> 16;
    const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
    return (uint16_t)(is_nan ? upper | 0x40 : rounded);
}

static inline float sbp_half_from_fp16(uint16_t bits)
{
    const uint32_t exponent = bits & 0x7c00, magnitude = (uint32_t)(bits & 0x7fff) << 13;
    const float subnormal = sbp_lanes_f32_of(magnitude + (113U << 23)) - 0x1p-14F;
    const uint32_t other = magnitude + (exponent == 0x7c00 ? 224U << 23 : 112U << 23);
    const uint32_t absolute = exponent == 0 ? sbp_lanes_f32_bits(subnormal) : other;
    return sbp_lanes_f32_of(absolute | (uint32_t)(bits & 0x8000) << 16);
}

/* Below the least normal number, adding 1/2 moves the fraction to the last bits and rounds it. */
static inline uint16_t sbp_half_to_fp16(float x)
{
    const uint32_t bits = sbp_lanes_f32_bits(x), absolute = bits & 0x7fffffff;
    const uint32_t small =
        sbp_lanes_f32_bits(sbp_lanes_f32_of(absolute) + 0.5F) - sbp_lanes_f32_bits(0.5F);
    const uint32_t normal = (absolute - (112U << 23) + 0xfff + (absolute >> 13 & 1)) >> 13;
    const uint32_t large = absolute > 0x7f800000 ? 0x7e00 : 0x7c00;
    const uint32_t finite = absolute < (113U << 23) ? small : normal;
    return (uint16_t)((absolute < (143U << 23) ? finite : large) | (bits >> 16 & 0x8000));
}

/* Element i of an array in any type; and sets it, rounded. */
static inline double sbp_half_get(enum sbp_real real, const void *values, int64_t i)
{
    switch (real) {
    case SBP_F64:
        return ((const double *)values)[i];
    case SBP_REAL_BF16:
        return (double)sbp_half_from_bf16(((const uint16_t *)values)[i]);
    case SBP_REAL_FP16:
        return (double)sbp_half_from_fp16(((const uint16_t *)values)[i]);
    default:
        return (double)((const float *)values)[i];
    }
}

static inline void sbp_half_put(enum sbp_real real, void *values, int64_t i, double value)
{
    if (real == SBP_F64)
        ((double *)values)[i] = value;
    else if (real == SBP_F32)
        ((float *)values)[i] = (float)value;
    else
        ((uint16_t *)values)[i] =
            real == SBP_REAL_BF16 ? sbp_half_to_bf16((float)value) : sbp_half_to_fp16((float)value);
}

#endif
