/* Random numbers: published vectors, moments, uniformity, and shards that need no whole. */
#include <math.h>
#include <string.h>

#include "base/math/random.h"
#include "tests/support/unit.h"

#define SEED UINT64_C(4711)

static void assert_near(const char *what, double actual, double expected, double tolerance)
{
    if (!(fabs(actual - expected) <= tolerance))
        fail_msg("%s is %.17g, expected %.17g within %g (seed %llu)", what, actual, expected,
                 tolerance, (unsigned long long)SEED);
}

/* The first outputs of the reference splitmix64 at seed 1234567. */
static void test_seeding_vector(void **state)
{
    (void)state;
    static const uint64_t expected[] = {
        UINT64_C(6457827717110365317), UINT64_C(3203168211198807973), UINT64_C(9817491932198370423),
        UINT64_C(4593380528125082431)};
    struct sbp_random random;
    sbp_random_seed(&random, 1234567);
    for (int i = 0; i < 4; i++)
        assert_true(random.state[i] == expected[i]);
}

/* The first outputs of the reference xoshiro256** from state 1, 2, 3, 4. */
static void test_generator_vector(void **state)
{
    (void)state;
    static const uint64_t expected[] = {11520, 0, 1509978240, UINT64_C(1215971899390074240)};
    struct sbp_random random = {.state = {1, 2, 3, 4}};
    for (int i = 0; i < 4; i++)
        assert_true(sbp_random_next(&random) == expected[i]);
}

static void test_below_is_even(void **state)
{
    (void)state;
    enum { BOUND = 7, DRAWS = 70000 };
    int hits[BOUND] = {0};
    struct sbp_random random;
    sbp_random_seed(&random, SEED);
    for (int i = 0; i < DRAWS; i++) {
        const uint64_t draw = sbp_random_below(&random, BOUND);
        assert_true(draw < BOUND);
        hits[draw]++;
    }
    for (int i = 0; i < BOUND; i++) /* 5 standard deviations of a binomial */
        assert_near("hits", hits[i], DRAWS / BOUND, 5 * sqrt(DRAWS * (1.0 / 7) * (6.0 / 7)));
    assert_true(sbp_random_below(&random, 1) == 0);
    for (int i = 0; i < 100; i++) /* nearly half of all raw values are rejected here */
        assert_true(sbp_random_below(&random, (UINT64_C(1) << 63) + 1) <= UINT64_C(1) << 63);
}

static void test_unit_range(void **state)
{
    (void)state;
    struct sbp_random random;
    double sum = 0;
    sbp_random_seed(&random, SEED);
    for (int i = 0; i < 100000; i++) {
        const double unit = sbp_random_unit(&random);
        assert_true(unit >= 0 && unit < 1);
        sum += unit;
    }
    assert_near("mean", sum / 100000, 0.5, 5 / sqrt(12.0 * 100000));
}

/* Every input bit flips about half of the output bits. */
static void test_counter_avalanche(void **state)
{
    (void)state;
    for (int part = 0; part < 3; part++) {
        for (int bit = 0; bit < 64; bit++) {
            double flipped = 0;
            for (uint64_t i = 0; i < 256; i++) {
                uint64_t key[3] = {SEED, i % 5, i};
                const uint64_t before = sbp_random_bits_at(key[0], key[1], key[2]);
                key[part] ^= UINT64_C(1) << bit;
                const uint64_t after = sbp_random_bits_at(key[0], key[1], key[2]);
                flipped += __builtin_popcountll(before ^ after);
            }
            /* 256 x 64 fair bits: 5 standard deviations are 320 of 8192 */
            assert_near("flipped bits", flipped, 8192, 320);
        }
    }
}

static void test_counter_streams_differ(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 1000; i++) {
        assert_true(sbp_random_bits_at(1, 2, i) == sbp_random_bits_at(1, 2, i));
        assert_true(sbp_random_bits_at(1, 2, i) != sbp_random_bits_at(2, 1, i));
        assert_true(sbp_random_bits_at(1, 2, i) != sbp_random_bits_at(1, i, 2) || i == 2);
        assert_true(sbp_random_bits_at(1, 2, i) != sbp_random_bits_at(1, 2, i + 1));
    }
}

static void test_normal_moments(void **state)
{
    (void)state;
    enum { DRAWS = 200000 };
    double power[5] = {0};
    int beyond_two = 0;
    for (uint64_t i = 0; i < DRAWS; i++) {
        const double x = sbp_random_normal_at(SEED, 3, i);
        assert_true(x == (double)(float)x && isfinite(x));
        beyond_two += fabs(x) > 2;
        for (int k = 1; k < 5; k++)
            power[k] += pow(x, k) / DRAWS;
    }
    const double deviation = 1 / sqrt((double)DRAWS); /* of the mean; higher moments scale it */
    assert_near("mean", power[1], 0, 5 * deviation);
    assert_near("variance", power[2], 1, 5 * sqrt(2) * deviation);
    assert_near("third moment", power[3], 0, 5 * sqrt(15) * deviation);
    assert_near("fourth moment", power[4], 3, 5 * sqrt(96) * deviation);
    assert_near("tail", (double)beyond_two / DRAWS, 0.0455002639, 5 * 0.21 * deviation);
}

/* Published FNV-1a 64 test values. */
static void test_hash_vectors(void **state)
{
    (void)state;
    assert_true(sbp_hash_bytes("", 0) == UINT64_C(0xcbf29ce484222325));
    assert_true(sbp_hash_bytes("a", 1) == UINT64_C(0xaf63dc4c8601ec8c));
    assert_true(sbp_hash_bytes("foobar", 6) == UINT64_C(0x85944171f73967e8));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seeding_vector),    cmocka_unit_test(test_generator_vector),
        cmocka_unit_test(test_below_is_even),     cmocka_unit_test(test_unit_range),
        cmocka_unit_test(test_counter_avalanche), cmocka_unit_test(test_counter_streams_differ),
        cmocka_unit_test(test_normal_moments),    cmocka_unit_test(test_hash_vectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
