/* Random numbers: a sequential generator for searches and a counter-based one for data.
 *
 * Both are fixed by their seed alone, on every machine. The counter-based one is a function of
 * (seed, stream, index), so that a shard of a tensor is generated without the whole.
 */
#ifndef SBP_BASE_MATH_RANDOM_H
#define SBP_BASE_MATH_RANDOM_H

#include <stdint.h>

/* xoshiro256** seeded through splitmix64. */
struct sbp_random {
    uint64_t state[4];
};
void sbp_random_seed(struct sbp_random *random, uint64_t seed);
uint64_t sbp_random_next(struct sbp_random *random);
/* Uniform in [0, bound), without modulo bias; bound > 0. */
uint64_t sbp_random_below(struct sbp_random *random, uint64_t bound);
/* Uniform in [0, 1), 53 bits. */
double sbp_random_unit(struct sbp_random *random);

/* 64 well-mixed bits of (seed, stream, index). Loops over indices make the key of seed and stream
 * once, and the bits by sbp_lanes_bits (base/math/lanes.h). */
uint64_t sbp_random_key(uint64_t seed, uint64_t stream);
uint64_t sbp_random_bits_at(uint64_t seed, uint64_t stream, uint64_t index);
/* Uniform in [0, 1). */
double sbp_random_unit_at(uint64_t seed, uint64_t stream, uint64_t index);
/* Standard normal, a float's value, the same on every machine (base/math/lanes.h). */
double sbp_random_normal_at(uint64_t seed, uint64_t stream, uint64_t index);

/* FNV-1a of bytes, for naming inputs in outputs ("fnv1a64:..."), not for security. */
uint64_t sbp_hash_bytes(const void *bytes, uint64_t length);

#endif
