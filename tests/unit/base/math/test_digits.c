/* The digit rule by brute force: digits by division of the whole index, ownership by comparing
 * them, local order by counting the owned elements in global order. */
#include <string.h>

#include "base/math/digits.h"
#include "base/math/random.h"
#include "tests/support/seeded.h"
#include "tests/support/unit.h"

#define SEED UINT64_C(77001)

/* Coordinates of rank `shard` on the axes that split; -1 where none does. */
static void place_shard(struct sbp_digits *digits, const _Bool *split, int64_t shard)
{
    for (int i = digits->count - 1; i >= 0; i--) {
        digits->fixed[i] = split[i] ? shard % digits->size[i] : -1;
        if (split[i])
            shard /= digits->size[i];
    }
}

/* Digit i of a global index: what its less significant neighbours span is divided away. */
static int64_t digit_of(const struct sbp_digits *digits, int64_t global, int i)
{
    int64_t span = digits->rest;
    for (int j = i + 1; j < digits->count; j++)
        span *= digits->size[j];
    return global / span % digits->size[i];
}

static _Bool owns(const struct sbp_digits *digits, int64_t global)
{
    for (int i = 0; i < digits->count; i++)
        if (digits->fixed[i] >= 0 && digits->fixed[i] != digit_of(digits, global, i))
            return 0;
    return 1;
}

static struct sbp_digits random_digits(struct sbp_random *random, int most, _Bool *split)
{
    struct sbp_digits digits = {.count = (int)sbp_random_below(random, (uint64_t)most + 1),
                                .rest = 1 + (int64_t)sbp_random_below(random, 5)};
    for (int i = 0; i < digits.count; i++) {
        digits.size[i] = 1 + (int64_t)sbp_random_below(random, 4);
        split[i] = sbp_random_below(random, 2) == 1;
        digits.fixed[i] = -1;
    }
    return digits;
}

static void test_shards_partition_the_dimension(void **state)
{
    (void)state;
    struct sbp_random random = seeded(SEED);
    for (int round = 0; round < 500; round++) {
        _Bool split[SBP_MAX_AXES];
        unsigned char owners[5 * 4 * 4 * 4 * 4 * 4] = {0};
        struct sbp_digits digits = random_digits(&random, 5, split);
        int64_t shards = 1, size = digits.rest;
        for (int i = 0; i < digits.count; i++) {
            size *= digits.size[i];
            shards *= split[i] ? digits.size[i] : 1;
        }
        for (int64_t shard = 0; shard < shards; shard++) {
            place_shard(&digits, split, shard);
            assert_int_equal(sbp_digits_global_size(&digits), size);
            assert_int_equal(sbp_digits_local_size(&digits), size / shards);
            int64_t local = 0;
            for (int64_t global = 0; global < size; global++) {
                if (!owns(&digits, global)) {
                    assert_int_equal(sbp_digits_local(&digits, global), -1);
                    continue;
                }
                assert_int_equal(sbp_digits_local(&digits, global), local);
                assert_int_equal(sbp_digits_global(&digits, local), global);
                owners[global]++;
                local++;
            }
            assert_int_equal(local, size / shards);
        }
        for (int64_t global = 0; global < size; global++)
            if (owners[global] != 1)
                fail_msg("round %d: element %lld has %d owners, expected 1", round,
                         (long long)global, owners[global]);
    }
}

/* An axis owns the same elements whichever other axes split along: that is the point of the rule.
 */
static void test_axes_are_independent(void **state)
{
    (void)state;
    struct sbp_digits both = {.count = 2, .size = {3, 4}, .fixed = {2, 1}, .rest = 5};
    struct sbp_digits first = both, second = both;
    first.fixed[1] = -1;
    second.fixed[0] = -1;
    for (int64_t global = 0; global < 60; global++) {
        const _Bool owned = sbp_digits_local(&both, global) >= 0;
        const _Bool owned_by_axes =
            sbp_digits_local(&first, global) >= 0 && sbp_digits_local(&second, global) >= 0;
        assert_int_equal(owned, owned_by_axes);
    }
}

static void test_by_hand(void **state)
{
    (void)state;
    /* 12 = 2 x 3 x rest 2; the second axis holds coordinate 1: elements 2, 3 and 8, 9. */
    const struct sbp_digits digits = {.count = 2, .size = {2, 3}, .fixed = {-1, 1}, .rest = 2};
    static const int64_t expected[] = {2, 3, 8, 9};
    for (int i = 0; i < 4; i++)
        assert_int_equal(sbp_digits_global(&digits, i), expected[i]);
}

static void test_sizes_saturate(void **state)
{
    (void)state;
    struct sbp_digits digits = {.count = 3, .rest = INT64_C(1) << 40};
    for (int i = 0; i < 3; i++) {
        digits.size[i] = INT64_C(1) << 20;
        digits.fixed[i] = -1;
    }
    assert_int_equal(sbp_digits_global_size(&digits), INT64_MAX);
    assert_int_equal(sbp_digits_local_size(&digits), INT64_MAX);
}

static void test_regions(void **state)
{
    (void)state;
    struct sbp_random random;
    print_message("seed %llu\n", (unsigned long long)SEED);
    sbp_random_seed(&random, SEED + 1);
    for (int round = 0; round < 200; round++) {
        struct sbp_region region = {.first = (int64_t)sbp_random_below(&random, 5)};
        int64_t sizes[SBP_MAX_DIMS];
        for (int i = 0; i < SBP_MAX_DIMS; i++) {
            _Bool split[SBP_MAX_AXES];
            region.dim[i] = random_digits(&random, 2, split);
            sizes[i] = sbp_digits_global_size(&region.dim[i]);
            place_shard(&region.dim[i], split, (int64_t)sbp_random_below(&random, 16));
        }
        int64_t local = 0, global = region.first * sizes[1] * sizes[2] * sizes[3];
        for (int64_t a = 0; a < sizes[0]; a++)
            for (int64_t b = 0; b < sizes[1]; b++)
                for (int64_t c = 0; c < sizes[2]; c++)
                    for (int64_t d = 0; d < sizes[3]; d++, global++)
                        if (owns(&region.dim[0], a) && owns(&region.dim[1], b) &&
                            owns(&region.dim[2], c) && owns(&region.dim[3], d))
                            assert_int_equal(sbp_region_global(&region, local++), global);
        assert_int_equal(sbp_region_elements(&region), local);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shards_partition_the_dimension),
        cmocka_unit_test(test_axes_are_independent),
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_sizes_saturate),
        cmocka_unit_test(test_regions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
