/* Random numbers of a seed that is printed, so that a failure can be had again. */
#ifndef SBP_TESTS_SEEDED_H
#define SBP_TESTS_SEEDED_H

#include "base/math/random.h"
#include "tests/support/unit.h"

static inline struct sbp_random seeded(uint64_t seed)
{
    struct sbp_random random;
    sbp_random_seed(&random, seed);
    print_message("seed %llu\n", (unsigned long long)seed);
    return random;
}

#endif
