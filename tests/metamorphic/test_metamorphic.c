/* Relations between searches: how an answer changes, or does not, with its question. Nobody knows
 * the right answer of a search that is too large for brute force, but two answers can disagree.
 *
 * Usage: test_metamorphic [SEED [ROUNDS [RELATION]]]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "tests/metamorphic/relations.h"

enum { ROUNDS = 6, MOST_DRAWS = 20 }; /* of a relation; draws for a round that says something */

/* Rounds of one relation; false: it is broken, or no world gives it anything to say. */
static bool try_relation(const struct relation *relation, uint64_t seed, int rounds)
{
    int held = 0, broken = 0, compared = 0, strict = 0;
    for (int draw = 0; draw < MOST_DRAWS * rounds && held + broken < rounds; draw++) {
        struct world world;
        world_draw(&world, relation->name, seed + (uint64_t)draw * 1000003);
        const bool says = relation->holds(&world) && world.compared > 0;
        broken += world.is_broken;
        held += says && !world.is_broken;
        compared += world.compared;
        strict += world.strict;
        world_free(&world);
    }
    printf("%-52s %3d rounds, %3d of %3d comparisons of optima%s\n", relation->name, held + broken,
           strict, compared, broken > 0 ? ", BROKEN" : "");
    return broken == 0 && held == rounds && 2 * strict >= compared;
}

int main(int argc, char **argv)
{
    static const struct relation *const tables[] = {relations_of_clusters, relations_of_models,
                                                    relations_of_requests, relations_of_plans};
    int64_t seed = 1, rounds = ROUNDS;
    int count = 0, bad = 0;
    if ((argc > 1 && !sbp_parse_int64(argv[1], &seed)) ||
        (argc > 2 && !sbp_parse_int64(argv[2], &rounds)))
        return EXIT_FAILURE;
    printf("seed %lld\n", (long long)seed);
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const struct relation *relation = tables[t]; relation->name != NULL; relation++) {
            if (argc > 3 && strcmp(argv[3], relation->name) != 0)
                continue;
            count++;
            bad += !try_relation(relation, (uint64_t)seed, (int)rounds);
        }
    printf("%d relations, %d broken\n", count, bad);
    return count == 0 || bad > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
