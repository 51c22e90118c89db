/* The relations: how an answer changes, or does not, with its question. A relation draws what it
 * needs from the world's random numbers, and returns false where the world gives it nothing to say.
 */
#ifndef SBP_TESTS_METAMORPHIC_RELATIONS_H
#define SBP_TESTS_METAMORPHIC_RELATIONS_H

#include "tests/metamorphic/world.h"

struct relation {
    const char *name;
    bool (*holds)(struct world *world);
};
#define RELATION(function)                                                                         \
    {                                                                                              \
        .name = #function, .holds = (function)                                                     \
    }

/* Ended by a NULL name. */
extern const struct relation relations_of_clusters[]; /* times, rates, memory, levels */
extern const struct relation relations_of_models[];   /* names, sizes, spellings */
extern const struct relation relations_of_requests[]; /* spaces, keys, fixes, limits, solvers */
extern const struct relation relations_of_plans[]; /* what is found: price, file, second opinion */

#endif
