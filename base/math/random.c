#include "base/math/random.h"

#include "base/math/lanes.h"

#define STREAM_GAMMA UINT64_C(0xd1b54a32d192ed03) /* a second odd constant, for the stream */

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
        seed += SBP_LANES_GOLDEN;
        random->state[i] = sbp_lanes_mix(seed);
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

uint64_t sbp_random_key(uint64_t seed, uint64_t stream)
{
    return sbp_lanes_mix(sbp_lanes_mix(seed + SBP_LANES_GOLDEN) + stream * STREAM_GAMMA);
}

uint64_t sbp_random_bits_at(uint64_t seed, uint64_t stream, uint64_t index)
{
    return sbp_lanes_bits(sbp_random_key(seed, stream), index);
}

double sbp_random_unit_at(uint64_t seed, uint64_t stream, uint64_t index)
{
    return unit_of_bits(sbp_random_bits_at(seed, stream, index));
}

double sbp_random_normal_at(uint64_t seed, uint64_t stream, uint64_t index)
{
    return (double)sbp_lanes_normal(sbp_random_bits_at(seed, stream, index));
}

uint64_t sbp_hash_bytes(const void *bytes, uint64_t length)
{
    const unsigned char *byte = bytes;
    uint64_t hash = UINT64_C(14695981039346656037);
    for (uint64_t i = 0; i < length; i++)
        hash = (hash ^ byte[i]) * UINT64_C(1099511628211);
    return hash;
}
