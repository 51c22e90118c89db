/* Games with known values: the cheapest plan along the mixture costs nearly as much as can be. */
#include <math.h>

#include "planner/solvers/matrix_game.h"
#include "tests/support/unit.h"

enum { MOST_PATHS = 4 };

struct game {
    int plans, paths;
    double cost[16], value;
};

static const struct game games[] = {
    {1, 1, {5}, 5},
    {1, 3, {1, 7, 3}, 7},                   /* one plan: along its longest path */
    {3, 1, {4, 2, 6}, 2},                   /* one path: the cheapest plan */
    {2, 2, {2, 0, 0, 2}, 1},                /* pennies */
    {3, 3, {1, 0, 2, 2, 1, 0, 0, 2, 1}, 1}, /* scissors, paper, stone */
    {2, 2, {4, 1, 2, 3}, 2.5},              /* shares 1/4 and 3/4 */
    {2, 3, {3, 5, 4, 5, 3, 4}, 4},          /* a path between the others */
    {2, 2, {3e-6, 1e-6, 2e-6, 2e-6}, 2e-6}, /* seconds */
    {3, 2, {1, 9, 9, 1, 6, 6}, 5},          /* a plan that is even, and no use */
    {4, 4, {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}, 0.25},
};

static double cheapest(const struct game *game, const double *share)
{
    double least = INFINITY;
    for (int x = 0; x < game->plans; x++) {
        double cost = 0;
        for (int p = 0; p < game->paths; p++)
            cost += share[p] * game->cost[x * game->paths + p];
        least = fmin(least, cost);
    }
    return least;
}

static void test_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof games / sizeof games[0]; i++) {
        const struct game *game = &games[i];
        struct sbp_arena arena;
        double share[MOST_PATHS] = {NAN, NAN, NAN, NAN}, sum = 0;
        sbp_arena_init(&arena);
        assert_int_equal(sbp_game_play(game->cost, game->plans, game->paths, &arena, share),
                         SBP_OK);
        assert_int_equal(arena.used_bytes, 0);
        for (int p = 0; p < game->paths; p++) {
            assert_true(share[p] >= 0);
            sum += share[p];
        }
        assert_true(fabs(sum - 1) < 1e-12);
        const double found = cheapest(game, share);
        if (!(found <= game->value * (1 + 1e-12) && found >= 0.98 * game->value))
            fail_msg("game %zu: %g, the value is %g", i, found, game->value);
        sbp_arena_free(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
