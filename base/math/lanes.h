/* Functions of one element that compilers turn into vector instructions: exponentials, logarithms
 * and random numbers for loops over many.
 *
 * A call of a mathematics library keeps a loop scalar, and branches do as well; these are inline
 * and have neither. They are additions, multiplications, divisions and roots alone, so an element
 * has the same bits in a vector, in a loop's rest, and on every machine (base/math/simd.h).
 * Coefficients interpolate the function at Chebyshev nodes of the reduced range; the ulp bounds are
 * held by tests/unit/base/math/test_lanes.c.
 */
#ifndef SBP_BASE_MATH_LANES_H
#define SBP_BASE_MATH_LANES_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* ---- bits of numbers ------------------------------------------------------------------------ */

static inline uint32_t sbp_lanes_f32_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float sbp_lanes_f32_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint64_t sbp_lanes_f64_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline double sbp_lanes_f64_of(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* ---- exponentials --------------------------------------------------------------------------- */

/* x = n ln 2 + r with |r| <= ln 2 / 2: exp x = 2^n (1 + r + r^2 q(r)). Added to `whole`, x / ln 2
 * loses its fraction, and n stands in the last bits. 2^n comes in two factors, so that results
 * below and above the normal numbers round and overflow as they should. ln 2 has a first part with
 * so few bits that n times it is exact. */

/* Within 1.1 ulp of e^x; 0 and INFINITY beyond the range, NAN of NAN. */
static inline float sbp_lanes_exp_f32(float x)
{
    const float whole = 0x1.8p23F;
    const float low = x < -104 ? -104 : x, in = low > 89 ? 89 : low;
    const float shifted = in * 0x1.715476p0F + whole, n = shifted - whole;
    const float r = (in - n * 0x1.62e4p-1F) - n * 0x1.7f7d1cp-20F;
    float q = 0x1.6d117cp-10F;
    q = q * r + 0x1.120be2p-7F;
    q = q * r + 0x1.555518p-5F;
    q = q * r + 0x1.5554dcp-3F;
    q = q * r + 0.5F;
    const float value = 1 + (r + r * r * q);
    const uint32_t power = sbp_lanes_f32_bits(shifted) - sbp_lanes_f32_bits(whole);
    const uint32_t half = (uint32_t)((int32_t)power >> 1);
    return value * sbp_lanes_f32_of((half + 127) << 23) *
           sbp_lanes_f32_of((power - half + 127) << 23);
}

/* Within 1.1 ulp, as above. */
static inline double sbp_lanes_exp_f64(double x)
{
    const double whole = 0x1.8p52;
    const double low = x < -746 ? -746 : x, in = low > 710 ? 710 : low;
    const double shifted = in * 0x1.71547652b82fep0 + whole, n = shifted - whole;
    const double r = (in - n * 0x1.62e42fefa2p-1) - n * 0x1.9ef35793c7673p-41;
    double q = 2.5100472505694996e-8;
    q = q * r + 2.76202015910315488e-7;
    q = q * r + 2.75572682769056962e-6;
    q = q * r + 2.48015210578682052e-5;
    q = q * r + 0.00019841269863171556;
    q = q * r + 0.00138888889173670806;
    q = q * r + 0.0083333333333300382;
    q = q * r + 0.0416666666666238205;
    q = q * r + 0.166666666666666675;
    q = q * r + 0.5;
    const double value = 1 + (r + r * r * q);
    const uint64_t power = sbp_lanes_f64_bits(shifted) - sbp_lanes_f64_bits(whole);
    /* Half of it, rounded down, without the shift of a signed number that AVX2 lacks. */
    const uint64_t half = ((power + 2048) >> 1) - 1024;
    return value * sbp_lanes_f64_of((half + 1023) << 52) *
           sbp_lanes_f64_of((power - half + 1023) << 52);
}

/* ---- logarithms ----------------------------------------------------------------------------- */

/* Natural, of a positive normal number, within 2 ulp: x = 2^n m with m between the roots of 1/2 and
 * 2, and log m = 2 atanh s with s = (m - 1)/(m + 1). */
static inline float sbp_lanes_log_f32(float x)
{
    const uint32_t root_of_half = 0x3f3504f3;
    const uint32_t above = sbp_lanes_f32_bits(x) - root_of_half;
    const float n = (float)((int32_t)above >> 23);
    const float m = sbp_lanes_f32_of((above & 0x7fffff) + root_of_half);
    const float s = (m - 1) / (m + 1), z = s * s;
    const float r = (0.2958098593F * z + 0.3998875772F) * z + 0.666666851F;
    return n * 0x1.62e4p-1F + (2 * s + (s * z * r + n * 0x1.7f7d1cp-20F));
}

/* ---- random numbers ------------------------------------------------------------------------- */

#define SBP_LANES_GOLDEN UINT64_C(0x9e3779b97f4a7c15) /* 2^64 / golden ratio, odd */

/* The finaliser of splitmix64 (Steele, Lea, Flood, OOPSLA 2014; constants: Stafford's mix 13). */
static inline uint64_t sbp_lanes_mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* The bits of sbp_random_bits_at; sbp_random_key makes the key of seed and stream. */
static inline uint64_t sbp_lanes_bits(uint64_t key, uint64_t index)
{
    return sbp_lanes_mix(sbp_lanes_mix(key + index * SBP_LANES_GOLDEN) ^ key);
}

/* A standard normal number of 64 random bits (Box and Muller, 1958): the upper half makes the
 * radius, the lower one the angle. The sine of an angle from -90 to 90 degrees is distributed as
 * the cosine of any, and needs no reduction. At most 6.7. */
static inline float sbp_lanes_normal(uint64_t bits)
{
    const float uniform = ((float)(int32_t)(bits >> 33) + 0.5F) * 0x1p-31F; /* in (0, 1] */
    const float turn = (float)(int32_t)(uint32_t)bits * 0x1p-31F; /* in [-1, 1]: of a right angle */
    const float z = turn * turn;
    float sine = 0.0001516717037F;
    sine = sine * z - 0.004674143838F;
    sine = sine * z + 0.07968991833F;
    sine = sine * z - 0.6459637596F;
    sine = sine * z + 1.57079632F;
    return sqrtf(-2 * sbp_lanes_log_f32(uniform)) * (sine * turn);
}

#endif
