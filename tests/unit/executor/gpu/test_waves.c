/* Waves of groups that are made at the same time: random meshes want one an axis, and random groups
 * none of whose waves has a rank twice, nor a group that an earlier one had room for. */
#include <stdio.h>
#include <stdlib.h>

#include "base/math/random.h"
#include "executor/gpu/waves.h"
#include "tests/support/unit.h"

enum { SEED = 77, ROUNDS = 400, MOST_RANKS = 64, MOST_GROUPS = 200 };

static int below(struct sbp_random *random, int bound)
{
    return (int)sbp_random_below(random, (uint64_t)bound);
}

static bool share_rank(const struct sbp_wave_group *a, const struct sbp_wave_group *b)
{
    for (int i = 0; i < a->count; i++)
        if (sbp_wave_group_place(b, a->ranks[i]) >= 0)
            return true;
    return false;
}

static bool has_room(const struct sbp_wave_group *groups, const int *wave, int before, int at)
{
    for (int other = 0; other < before; other++)
        if (wave[other] == at && share_rank(&groups[other], &groups[before]))
            return false;
    return true;
}

static int check(const struct sbp_wave_group *groups, int count, int ranks)
{
    int wave[MOST_GROUPS], waves, most = 0;
    assert_int_equal(sbp_waves_make(groups, count, ranks, wave, &waves), SBP_OK);
    for (int g = 0; g < count; g++) {
        assert_true(has_room(groups, wave, g, wave[g]));
        for (int earlier = 0; earlier < wave[g]; earlier++)
            assert_false(has_room(groups, wave, g, earlier));
        most = wave[g] + 1 > most ? wave[g] + 1 : most;
    }
    assert_int_equal(waves, most);
    return waves;
}

/* Groups of a mesh, listed rank by rank by their leaders, each rank's axis by axis. */
static void test_mesh(void **state)
{
    (void)state;
    struct sbp_random random;
    sbp_random_seed(&random, SEED);
    printf("seed %d\n", (int)SEED);
    for (int round = 0; round < ROUNDS; round++) {
        int size[3], ranks[MOST_GROUPS][4];
        struct sbp_wave_group groups[MOST_GROUPS];
        int count = 0;
        for (int a = 0; a < 3; a++)
            size[a] = 2 + below(&random, 3);
        const int all = size[0] * size[1] * size[2];
        for (int r = 0; r < all; r++)
            for (int a = 0, stride = 1; a < 3; stride *= size[a++]) {
                if (r / stride % size[a] != 0)
                    continue;
                for (int i = 0; i < size[a]; i++)
                    ranks[count][i] = r + i * stride;
                groups[count] = (struct sbp_wave_group){ranks[count], size[a]};
                count++;
            }
        assert_int_equal(check(groups, count, all), 3);
    }
}

static void test_random(void **state)
{
    (void)state;
    struct sbp_random random;
    sbp_random_seed(&random, SEED + 1);
    printf("seed %d\n", (int)SEED + 1);
    for (int round = 0; round < ROUNDS; round++) {
        static int ranks[MOST_GROUPS][MOST_RANKS];
        struct sbp_wave_group groups[MOST_GROUPS];
        const int all = 1 + below(&random, MOST_RANKS), count = below(&random, 40);
        for (int g = 0; g < count; g++) {
            int members = 0;
            for (int r = below(&random, all); r < all; r += 1 + below(&random, 8))
                ranks[g][members++] = r;
            groups[g] = (struct sbp_wave_group){ranks[g], members};
        }
        (void)check(groups, count, all);
    }
}

static void test_order_counts(void **state)
{
    (void)state;
    const int up[] = {1, 2}, down[] = {2, 1};
    const struct sbp_wave_group a = {up, 2}, b = {down, 2}, c = {up, 1};
    assert_true(sbp_wave_group_equal(&a, &a));
    assert_false(sbp_wave_group_equal(&a, &b));
    assert_false(sbp_wave_group_equal(&a, &c));
    assert_int_equal(sbp_wave_group_place(&b, 1), 1);
    assert_int_equal(sbp_wave_group_place(&b, 3), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mesh), cmocka_unit_test(test_random),
                                       cmocka_unit_test(test_order_counts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
