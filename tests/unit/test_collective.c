/* Collectives: AutoDDL's table 2 at exact values, groups that span levels, names. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "costmodel/collective.h"
#include "tests/unit/sbp_oracle.h"

#define SEED UINT64_C(4202)

static void near(const char *what, double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-14 * fabs(expected)))
        fail_msg("%s: %.17g, expected %.17g", what, value, expected);
}

struct setting {
    struct sbp_cluster cluster;
    struct sbp_mesh mesh;
};

static struct setting setting_of(int levels, const int64_t *size)
{
    struct setting setting = {.cluster = oracle_cluster(levels, size)};
    struct sbp_diag diag = {{0}};
    if (sbp_mesh_make(&setting.cluster, &setting.mesh, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    return setting;
}

/* alpha and beta are powers of two here, so that every value is exact. */
static void test_table_2(void **state)
{
    (void)state;
    struct setting flat = setting_of(1, (int64_t[]){8});
    flat.cluster.level[0].alpha_s = 0.25;
    flat.cluster.level[0].beta_s_per_byte = 0.5;
    const struct {
        enum sbp_collective kind;
        sbp_axes axes;
        double seconds, traffic_bytes;
    } rows[] = {
        /* 8 members, 64 bytes: 7 alpha and 7/8 of the bytes, twice for an all-reduce */
        {SBP_ALL_REDUCE, 7, 14 * 0.25 + 112 * 0.5, 112},
        {SBP_ALL_GATHER, 7, 7 * 0.25 + 56 * 0.5, 56},
        {SBP_REDUCE_SCATTER, 7, 7 * 0.25 + 56 * 0.5, 56},
        {SBP_ALL_TO_ALL, 7, 7 * 0.25 + 56 * 0.5, 56},
        /* 4 members, over neighbouring and distant axes alike */
        {SBP_ALL_REDUCE, 6, 6 * 0.25 + 96 * 0.5, 96},
        {SBP_ALL_GATHER, 5, 3 * 0.25 + 48 * 0.5, 48},
        {SBP_REDUCE_SCATTER, 3, 3 * 0.25 + 48 * 0.5, 48},
        {SBP_ALL_TO_ALL, 5, 3 * 0.25 + 48 * 0.5, 48},
        /* 2 members */
        {SBP_ALL_REDUCE, 2, 2 * 0.25 + 64 * 0.5, 64},
        {SBP_ALL_GATHER, 4, 1 * 0.25 + 32 * 0.5, 32},
        {SBP_SEND_RECV, 1, 0.25 + 64 * 0.5, 64},
        /* nobody to talk to */
        {SBP_ALL_REDUCE, 0, 0, 0},
        {SBP_ALL_GATHER, 0, 0, 0},
        {SBP_REDUCE_SCATTER, 0, 0, 0},
        {SBP_ALL_TO_ALL, 0, 0, 0},
        {SBP_SEND_RECV, 0, 0, 0},
        {SBP_LOCAL, 7, 0, 0},
        {SBP_LOCAL, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *name = sbp_collective_name(rows[i].kind);
        near(name, sbp_collective_s(&flat.cluster, &flat.mesh, rows[i].kind, rows[i].axes, 64),
             rows[i].seconds);
        near(name, sbp_collective_traffic_bytes(&flat.mesh, rows[i].kind, rows[i].axes, 64),
             rows[i].traffic_bytes);
    }
}

/* Steps and volume counted message by message: a ring moves one block of n/g a step. */
static double ring_s(enum sbp_collective kind, int64_t members, double alpha, double beta, double n)
{
    const int rounds = kind == SBP_ALL_REDUCE ? 2 : 1;
    double seconds = 0;
    for (int round = 0; round < rounds; round++)
        for (int64_t step = 1; step < members; step++)
            seconds += alpha + n / (double)members * beta;
    return seconds;
}

static void test_rings_over_levels(void **state)
{
    (void)state;
    struct sbp_random random;
    sbp_random_seed(&random, SEED);
    print_message("seed %llu\n", (unsigned long long)SEED);
    for (int round = 0; round < 2000; round++) {
        const int64_t size[] = {1 + oracle_below(&random, 4), 1 + oracle_below(&random, 6),
                                1 + oracle_below(&random, 8)};
        struct setting s = setting_of(3, size);
        for (int i = 0; i < 3; i++) {
            s.cluster.level[i].alpha_s = 1e-6 * (1 + (double)oracle_below(&random, 9));
            s.cluster.level[i].beta_s_per_byte = 1e-10 * (1 + (double)oracle_below(&random, 9));
        }
        const sbp_axes axes = (sbp_axes)oracle_below(&random, INT64_C(1) << s.mesh.axis_count);
        const enum sbp_collective kind = (enum sbp_collective)oracle_below(&random, 4);
        const double bytes = 1000.0 * (double)oracle_below(&random, 1000000);
        int slowest = -1;
        unsigned levels = 0;
        for (int i = 0; i < s.mesh.axis_count; i++) {
            if ((axes >> i & 1) == 0)
                continue;
            const int level = s.mesh.axis[i].level;
            const struct sbp_level *a = &s.cluster.level[level];
            const struct sbp_level *b = slowest < 0 ? NULL : &s.cluster.level[slowest];
            levels |= 1U << level;
            if (b == NULL || a->beta_s_per_byte > b->beta_s_per_byte ||
                (a->beta_s_per_byte == b->beta_s_per_byte && a->alpha_s > b->alpha_s))
                slowest = level;
        }
        const int found = sbp_collective_slowest(&s.cluster, levels);
        const int64_t members = oracle_product(&s.mesh, axes);
        double expected = 0;
        if (slowest >= 0) {
            const struct sbp_level *level = &s.cluster.level[slowest];
            expected = ring_s(kind, members, level->alpha_s, level->beta_s_per_byte, bytes);
            assert_true(found >= 0);
            near("alpha of the slowest level", s.cluster.level[found].alpha_s, level->alpha_s);
            near("beta of the slowest level", s.cluster.level[found].beta_s_per_byte,
                 level->beta_s_per_byte);
            const double grouped =
                sbp_collective_group_s(&s.cluster, kind, (double)members, slowest, bytes);
            assert_true(fabs(grouped - expected) <= 1e-12 * expected);
        } else {
            assert_int_equal(found, -1);
        }
        const double seconds = sbp_collective_s(&s.cluster, &s.mesh, kind, axes, bytes);
        if (!(fabs(seconds - expected) <= 1e-12 * expected))
            fail_msg("%s over %lld, round %d: %.17g s, expected %.17g s", sbp_collective_name(kind),
                     (long long)members, round, seconds, expected);
    }
}

static void test_all_reduce_is_both_halves(void **state)
{
    (void)state;
    const struct setting s = setting_of(2, (int64_t[]){6, 4});
    for (sbp_axes axes = 0; axes < 16; axes++) {
        const double whole = sbp_collective_s(&s.cluster, &s.mesh, SBP_ALL_REDUCE, axes, 12345);
        const double halves =
            sbp_collective_s(&s.cluster, &s.mesh, SBP_REDUCE_SCATTER, axes, 12345) +
            sbp_collective_s(&s.cluster, &s.mesh, SBP_ALL_GATHER, axes, 12345);
        near("all-reduce", whole, halves);
    }
}

static void test_group_of_one(void **state)
{
    (void)state;
    const struct setting s = setting_of(1, (int64_t[]){4});
    for (int kind = SBP_ALL_REDUCE; kind <= SBP_SEND_RECV; kind++)
        near("one member", sbp_collective_group_s(&s.cluster, (enum sbp_collective)kind, 1, 0, 1e6),
             0);
    assert_int_equal(sbp_collective_slowest(&s.cluster, 0), -1);
}

static void test_names(void **state)
{
    (void)state;
    const char *names[] = {"all-reduce", "all-gather", "reduce-scatter",
                           "all-to-all", "send-recv",  "local"};
    for (int i = 0; i < 6; i++)
        assert_string_equal(sbp_collective_name((enum sbp_collective)i), names[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_2),
        cmocka_unit_test(test_rings_over_levels),
        cmocka_unit_test(test_all_reduce_is_both_halves),
        cmocka_unit_test(test_group_of_one),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
