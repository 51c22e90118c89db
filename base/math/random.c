#include "base/math/random.h"

#include <math.h>

#define GOLDEN_GAMMA UINT64_C(0x9e3779b97f4a7c15) /* 2^64 / golden ratio, odd */
#define STREAM_GAMMA UINT64_C(0xd1b54a32d192ed03) /* a second odd constant, for the stream */
#define TWO_PI       6.283185307179586476925286766559

/* The finaliser of splitmix64 (Steele, Lea, Flood, OOPSLA 2014; constants: Stafford's mix 13). */
static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t rotate_left(uint64_t bits, int by)
{
    return (bits << by) | (bits >> (64 - by));
}

static double unit_of_bits(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1p-53;
}

void sbp_random_seed(struct sbp_random *random, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        seed += GOLDEN_GAMMA;
        random->state[i] = mix(seed);
    }
}

/* xoshiro256**: Blackman and Vigna, ACM TOMS 47(4), 2021. */
uint64_t sbp_random_next(struct sbp_random *random)
{
    uint64_t *s = random->state;
    const uint64_t result = rotate_left(s[1] * 5, 7) * 9;
    const uint64_t shifted = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= shifted;
    s[3] = rotate_left(s[3], 45);
    return result;
}

uint64_t sbp_random_below(struct sbp_random *random, uint64_t bound)
{
    /* The lowest 2^64 mod bound values are dropped: what is left holds each residue equally often.
     */
    const uint64_t dropped = (UINT64_C(0) - bound) % bound;
    uint64_t bits;
    do
        bits = sbp_random_next(random);
    while (bits < dropped);
    return bits % bound;
}

double sbp_random_unit(struct sbp_random *random)
{
    return unit_of_bits(sbp_random_next(random));
}

uint64_t sbp_random_bits_at(uint64_t seed, uint64_t stream, uint64_t index)
{
    const uint64_t key = mix(mix(seed + GOLDEN_GAMMA) + stream * STREAM_GAMMA);
    return mix(mix(key + index * GOLDEN_GAMMA) ^ key);
}

double sbp_random_unit_at(uint64_t seed, uint64_t stream, uint64_t index)
{
    return unit_of_bits(sbp_random_bits_at(seed, stream, index));
}

double sbp_random_normal_at(uint64_t seed, uint64_t stream, uint64_t index)
{
    const double radius_uniform = 1.0 - sbp_random_unit_at(seed, stream, 2 * index); /* in (0, 1] */
    const double angle_uniform = sbp_random_unit_at(seed, stream, 2 * index + 1);
    const double radius = sqrt(-2.0 * log(radius_uniform));
    return (double)(float)(radius * cos(TWO_PI * angle_uniform));
}

uint64_t sbp_hash_bytes(const void *bytes, uint64_t length)
{
    const unsigned char *byte = bytes;
    uint64_t hash = UINT64_C(14695981039346656037);
    for (uint64_t i = 0; i < length; i++)
        hash = (hash ^ byte[i]) * UINT64_C(1099511628211);
    return hash;
}
