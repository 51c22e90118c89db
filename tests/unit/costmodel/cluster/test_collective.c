/* Collectives: AutoDDL's table 2 at exact values, groups that span levels, names. */
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "costmodel/cluster/collective.h"
#include "tests/support/sbp_oracle.h"
#include "tests/support/seeded.h"
#include "tests/support/unit.h"

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
        {SBP_BROADCAST_COLL, 7, 7 * 0.25 + 64 * 0.5, 64},
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

/* --- sharing, counted device by device --- */

/* The devices of the first member of a level: ranks that differ from 0 further in at most. */
static bool in_first_member(const struct sbp_mesh *mesh, int level, int64_t rank)
{
    for (int i = 0; i < mesh->axis_count; i++)
        if (mesh->axis[i].level <= level && oracle_coordinate(mesh, rank, i) != 0)
            return false;
    return true;
}

/* Groups over `axes` with a device in there: each is counted at its lowest rank in there. */
static int64_t groups_in_member(const struct sbp_mesh *mesh, int level, sbp_axes axes)
{
    int64_t groups = 0;
    for (int64_t r = 0; r < mesh->devices; r++) {
        bool first = in_first_member(mesh, level, r);
        for (int64_t o = 0; o < r && first; o++)
            first = !(in_first_member(mesh, level, o) && oracle_same_group(mesh, axes, o, r));
        groups += first;
    }
    return groups;
}

static double shared_beta(const struct setting *s, int level, sbp_axes axes)
{
    const struct sbp_level *at = &s->cluster.level[level];
    if (at->ports == 0)
        return at->beta_s_per_byte;
    const double groups = (double)groups_in_member(&s->mesh, level, axes);
    return at->beta_s_per_byte * (groups > at->ports ? groups / at->ports : 1);
}

/* --- rings, message by message --- */

/* A ring moves one block of n/g a step; a broadcast passes n along, the first byte waits g-1 hops
 */
static double ring_s(enum sbp_collective kind, int64_t members, double alpha, double beta, double n)
{
    const int rounds = kind == SBP_ALL_REDUCE ? 2 : 1;
    double seconds = kind == SBP_BROADCAST_COLL ? n * beta : 0;
    if (members < 2 || kind == SBP_LOCAL)
        return 0;
    if (kind == SBP_SEND_RECV)
        return alpha + n * beta;
    for (int round = 0; round < rounds; round++)
        for (int64_t step = 1; step < members; step++)
            seconds += alpha + (kind == SBP_BROADCAST_COLL ? 0 : n / (double)members * beta);
    return seconds;
}

static sbp_axes axes_at(const struct setting *s, sbp_axes axes, int level)
{
    sbp_axes at = 0;
    for (int i = 0; i < s->mesh.axis_count; i++)
        if (s->mesh.axis[i].level == level)
            at |= axes & (sbp_axes)1 << i;
    return at;
}

/* The largest alpha and the largest beta of the levels, for the whole ring. */
static double expected_ring_s(const struct setting *s, enum sbp_collective kind, sbp_axes axes,
                              double n)
{
    double alpha = 0, beta = 0;
    for (int level = 0; level < s->cluster.level_count; level++) {
        if (axes_at(s, axes, level) == 0)
            continue;
        /* in an all-to-all every device sends its own: count those of one group as groups */
        const double own_beta =
            shared_beta(s, level, kind == SBP_ALL_TO_ALL ? axes_at(s, axes, level) : axes);
        alpha = fmax(alpha, s->cluster.level[level].alpha_s);
        beta = fmax(beta, own_beta);
    }
    return ring_s(kind, oracle_product(&s->mesh, axes), alpha, beta, n);
}

/* Phase by phase: what a device holds shrinks as it is scattered. */
static double expected_phases_s(const struct setting *s, enum sbp_collective kind, sbp_axes axes,
                                double n)
{
    const bool shrinks = kind != SBP_ALL_TO_ALL && kind != SBP_BROADCAST_COLL;
    const enum sbp_collective phase = kind == SBP_ALL_REDUCE ? SBP_REDUCE_SCATTER : kind;
    double seconds = 0, held = n;
    for (int level = s->cluster.level_count - 1; level >= 0; level--) {
        const sbp_axes here = axes_at(s, axes, level);
        const int64_t members = oracle_product(&s->mesh, here);
        const double beta = shared_beta(s, level, kind == SBP_BROADCAST_COLL ? axes : here);
        seconds += ring_s(phase, members, s->cluster.level[level].alpha_s, beta, held);
        if (shrinks)
            held /= (double)members;
    }
    return kind == SBP_ALL_REDUCE ? 2 * seconds : seconds;
}

static struct setting random_setting(struct sbp_random *random, int levels, bool ports)
{
    static const int64_t most[] = {4, 4, 6, 3};
    int64_t size[SBP_MAX_LEVELS];
    for (int i = 0; i < levels; i++)
        size[i] = 1 + oracle_below(random, most[i]);
    struct setting s = setting_of(levels, size);
    for (int i = 0; i < levels; i++) {
        s.cluster.level[i].alpha_s = 1e-6 * (double)oracle_below(random, 9);
        s.cluster.level[i].beta_s_per_byte = 1e-10 * (1 + (double)oracle_below(random, 9));
        s.cluster.level[i].ports = ports ? (int)oracle_below(random, 5) : 0;
    }
    return s;
}

static void close_to(const struct setting *s, enum sbp_collective kind, sbp_axes axes,
                     double seconds, double expected)
{
    if (fabs(seconds - expected) <= 1e-12 * expected)
        return;
    for (int i = 0; i < s->cluster.level_count; i++)
        print_message("level of %lld: alpha %g, beta %g, %d ports\n",
                      (long long)s->cluster.level[i].size, s->cluster.level[i].alpha_s,
                      s->cluster.level[i].beta_s_per_byte, s->cluster.level[i].ports);
    fail_msg("%s over %#x of %lld devices: %.17g s, expected %.17g s", sbp_collective_name(kind),
             (unsigned)axes, (long long)s->mesh.devices, seconds, expected);
}

static void test_groups_over_levels(void **state)
{
    (void)state;
    struct sbp_random random = seeded(SEED);
    for (int round = 0; round < 4000; round++) {
        struct setting s = random_setting(&random, 1 + round % SBP_MAX_LEVELS, round % 3 > 0);
        const sbp_axes axes = (sbp_axes)oracle_below(&random, INT64_C(1) << s.mesh.axis_count);
        const enum sbp_collective kind =
            (enum sbp_collective)oracle_below(&random, SBP_COLLECTIVES);
        const double bytes = 1000.0 * (double)oracle_below(&random, 1000000);
        const double ring = expected_ring_s(&s, kind, axes, bytes);
        close_to(&s, kind, axes, sbp_collective_s(&s.cluster, &s.mesh, kind, axes, bytes), ring);
        s.cluster.collectives = SBP_MODEL_HIERARCHICAL;
        close_to(&s, kind, axes, sbp_collective_s(&s.cluster, &s.mesh, kind, axes, bytes),
                 kind == SBP_SEND_RECV ? ring : expected_phases_s(&s, kind, axes, bytes));
    }
}

/* Two nodes of four: the textbook's two levels, in exact numbers. */
static void test_two_levels_by_hand(void **state)
{
    (void)state;
    struct setting s = setting_of(2, (int64_t[]){2, 4});
    const double a = 0.5, b = 0.25, a_in = 0.125, b_in = 0.0625, n = 64;
    s.cluster.level[0].alpha_s = a;
    s.cluster.level[0].beta_s_per_byte = b;
    s.cluster.level[1].alpha_s = a_in;
    s.cluster.level[1].beta_s_per_byte = b_in;
    s.cluster.collectives = SBP_MODEL_HIERARCHICAL;
    const double scatter = 3 * a_in + 0.75 * n * b_in + a + 0.5 * (n / 4) * b;
    const struct {
        int ports;
        enum sbp_collective kind;
        sbp_axes axes;
        double seconds;
    } rows[] = {
        {0, SBP_REDUCE_SCATTER, 7, scatter},
        {0, SBP_ALL_GATHER, 7, scatter},
        {0, SBP_ALL_REDUCE, 7, 2 * scatter},
        {0, SBP_ALL_TO_ALL, 7, 3 * a_in + 0.75 * n * b_in + a + 0.5 * n * b},
        {0, SBP_BROADCAST_COLL, 7, 3 * a_in + n * b_in + a + n * b},
        {0, SBP_SEND_RECV, 7, a + n * b},
        /* one port: the four shards of a node leave one after the other */
        {1, SBP_REDUCE_SCATTER, 7, 3 * a_in + 0.75 * n * b_in + a + 0.5 * n * b},
        {1, SBP_ALL_TO_ALL, 7, 3 * a_in + 0.75 * n * b_in + a + 4 * 0.5 * n * b},
        {1, SBP_BROADCAST_COLL, 7, 3 * a_in + n * b_in + a + n * b},
        {1, SBP_ALL_REDUCE, 1, 2 * a + 4 * n * b}, /* four groups of two nodes */
        {2, SBP_ALL_REDUCE, 1, 2 * a + 2 * n * b},
        {4, SBP_ALL_REDUCE, 1, 2 * a + n * b},
        {8, SBP_ALL_REDUCE, 1, 2 * a + n * b},
        {1, SBP_ALL_REDUCE, 5, 2 * (a_in + 0.5 * n * b_in) + 2 * a + 4 * (n / 2) * b},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        s.cluster.level[0].ports = rows[i].ports;
        near(sbp_collective_name(rows[i].kind),
             sbp_collective_s(&s.cluster, &s.mesh, rows[i].kind, rows[i].axes, n), rows[i].seconds);
    }
    s.cluster.collectives = SBP_MODEL_RING;
    s.cluster.level[0].ports = 1;
    near("four rings of two", sbp_collective_s(&s.cluster, &s.mesh, SBP_ALL_REDUCE, 1, n),
         2 * a + 4 * n * b);
    near("two rings of four", sbp_collective_s(&s.cluster, &s.mesh, SBP_ALL_REDUCE, 3, n),
         6 * a + 2 * 1.5 * n * b);
    near("one ring of eight", sbp_collective_s(&s.cluster, &s.mesh, SBP_ALL_REDUCE, 7, n),
         14 * a + 1.75 * n * b);
    near("all to all eight", sbp_collective_s(&s.cluster, &s.mesh, SBP_ALL_TO_ALL, 7, n),
         7 * a + 4 * 0.875 * n * b);
    near("inside", sbp_collective_s(&s.cluster, &s.mesh, SBP_ALL_REDUCE, 6, n),
         6 * a_in + 1.5 * n * b_in);
}

static void test_all_reduce_is_both_halves(void **state)
{
    (void)state;
    struct sbp_random random = seeded(SEED + 1);
    for (int round = 0; round < 1000; round++) {
        struct setting s = random_setting(&random, 1 + round % SBP_MAX_LEVELS, true);
        const sbp_axes axes = (sbp_axes)oracle_below(&random, INT64_C(1) << s.mesh.axis_count);
        s.cluster.collectives = (enum sbp_collective_model)(round % 2);
        const double whole = sbp_collective_s(&s.cluster, &s.mesh, SBP_ALL_REDUCE, axes, 12345);
        const double scatter =
            sbp_collective_s(&s.cluster, &s.mesh, SBP_REDUCE_SCATTER, axes, 12345);
        const double gather = sbp_collective_s(&s.cluster, &s.mesh, SBP_ALL_GATHER, axes, 12345);
        close_to(&s, SBP_ALL_GATHER, axes, gather, scatter);
        close_to(&s, SBP_ALL_REDUCE, axes, whole, scatter + gather);
    }
}

/* The search relies on it: all pairs of sets, one within the other. */
static void test_growing(void **state)
{
    (void)state;
    struct sbp_random random = seeded(SEED + 2);
    static const enum sbp_collective kinds[] = {SBP_ALL_TO_ALL, SBP_ALL_GATHER, SBP_REDUCE_SCATTER,
                                                SBP_ALL_REDUCE};
    int grows[4] = {0}, shrinks[4] = {0};
    for (int round = 0; round < 2400; round++) {
        const int k = round / 600;
        struct setting s = random_setting(&random, 1 + round % SBP_MAX_LEVELS, true);
        s.cluster.collectives = (enum sbp_collective_model)(round % 5 == 0);
        if (!sbp_collective_grows(&s.cluster, kinds[k])) {
            shrinks[k]++;
            continue;
        }
        grows[k]++;
        for (int trial = 0; trial < 50; trial++) {
            const sbp_axes all = ((sbp_axes)1 << s.mesh.axis_count) - 1;
            const sbp_axes some = (sbp_axes)oracle_below(&random, (int64_t)all + 1);
            const sbp_axes more = some | (sbp_axes)oracle_below(&random, (int64_t)all + 1);
            const double n = (double)oracle_below(&random, 100000);
            const double less = sbp_collective_s(&s.cluster, &s.mesh, kinds[k], some, n);
            assert_true(less <=
                        sbp_collective_s(&s.cluster, &s.mesh, kinds[k], more, n) * (1 + 1e-12));
        }
    }
    assert_int_equal(shrinks[0], 0);
    for (int k = 1; k < 4; k++)
        assert_true(grows[k] > 100 && shrinks[k] > 100);
}

/* A level that is faster at anything makes no collective slower. */
static void test_faster_is_no_slower(void **state)
{
    (void)state;
    struct sbp_random random = seeded(SEED + 3);
    int faster = 0;
    for (int round = 0; round < 8000; round++) {
        struct setting s = random_setting(&random, 1 + round % SBP_MAX_LEVELS, round % 3 > 0);
        const sbp_axes axes = (sbp_axes)oracle_below(&random, INT64_C(1) << s.mesh.axis_count);
        const enum sbp_collective kind =
            (enum sbp_collective)oracle_below(&random, SBP_COLLECTIVES);
        const double n = (double)oracle_below(&random, 100000);
        s.cluster.collectives = (enum sbp_collective_model)(round / 12 % 2);
        const double before = sbp_collective_s(&s.cluster, &s.mesh, kind, axes, n);
        struct sbp_level *level =
            &s.cluster.level[oracle_below(&random, (int64_t)s.cluster.level_count)];
        double *number = round % 2 == 0 ? &level->alpha_s : &level->beta_s_per_byte;
        *number *= 0.1 * (double)oracle_below(&random, 10);
        const double after = sbp_collective_s(&s.cluster, &s.mesh, kind, axes, n);
        if (after > before * (1 + 1e-12))
            fail_msg("seed %" PRIu64 ", round %d: %s takes %.17g s, on a faster level %.17g s",
                     SEED + 3, round, sbp_collective_name(kind), before, after);
        faster += after < before;
    }
    assert_true(faster > 1000);
}

static void test_groups(void **state)
{
    (void)state;
    const struct setting s = setting_of(2, (int64_t[]){6, 4}); /* axes 3, 2 | 2, 2 */
    const struct sbp_group one = sbp_collective_group_one(),
                           some = sbp_collective_group_of(&s.mesh, 0xb);
    for (int i = 0; i < SBP_MAX_LEVELS; i++)
        assert_true(one.members[i] == 1);
    assert_true(some.members[0] == 6 && some.members[1] == 2 && some.members[2] == 1);
    assert_true(sbp_collective_group_size(&some) == 12);
    for (int kind = 0; kind < SBP_COLLECTIVES; kind++)
        near("one member", sbp_collective_group_s(&s.cluster, (enum sbp_collective)kind, &one, 1e6),
             0);
}

/* Members that a token visits, in the mean over all ways to give its copies to `members`. */
static double visits(int members, int copies)
{
    int ways = 1, sum = 0;
    for (int copy = 0; copy < copies; copy++)
        ways *= members;
    for (int way = 0; way < ways; way++) {
        unsigned visited = 0;
        for (int copy = 0, rest = way; copy < copies; copy++, rest /= members)
            visited |= 1u << rest % members;
        for (int member = 0; member < members; member++)
            sum += (int)(visited >> member & 1);
    }
    return (double)sum / ways;
}

/* A token is sent once to each node, and there once to each device, that holds an expert of it; of
 * 4 x 2 devices, and where its experts lie on at most 2 nodes. */
static void test_dispatch(void **state)
{
    (void)state;
    const struct setting s = setting_of(2, (int64_t[]){4, 2});
    const struct sbp_level *node = &s.cluster.level[0], *gpu = &s.cluster.level[1];
    const struct sbp_group group = sbp_collective_group_of(&s.mesh, 7);
    const double n = 1e6, k = 3;
    const struct {
        double most_nodes;
        int nodes, devices; /* that a token may visit */
    } rows[] = {{0, 4, 8}, {2, 2, 4}, {9, 4, 8}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct sbp_dispatch once = {k, rows[i].most_nodes, true};
        const double over = 0.75 * n * visits(rows[i].nodes, 3) / k;
        const double within = 0.5 * n * visits(rows[i].devices, 3) / k;
        near("seconds", sbp_collective_dispatch_s(&s.cluster, &group, &once, n),
             3 * node->alpha_s + over * shared_beta(&s, 0, axes_at(&s, 7, 0)) + gpu->alpha_s +
                 within * gpu->beta_s_per_byte);
        near("bytes", sbp_collective_dispatch_bytes(&s.cluster, &group, &once, n), over + within);
    }
    const struct sbp_dispatch each = {k, 0, false};
    near("every copy", sbp_collective_dispatch_s(&s.cluster, &group, &each, n),
         sbp_collective_group_s(&s.cluster, SBP_ALL_TO_ALL, &group, n));
    near("its bytes", sbp_collective_dispatch_bytes(&s.cluster, &group, &each, n), 0.875 * n);
}

static void test_names(void **state)
{
    (void)state;
    const char *names[] = {"all-reduce", "all-gather", "reduce-scatter", "all-to-all",
                           "send-recv",  "local",      "broadcast"};
    for (int i = 0; i < SBP_COLLECTIVES; i++)
        assert_string_equal(sbp_collective_name((enum sbp_collective)i), names[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_2),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_groups_over_levels),
        cmocka_unit_test(test_two_levels_by_hand),
        cmocka_unit_test(test_all_reduce_is_both_halves),
        cmocka_unit_test(test_growing),
        cmocka_unit_test(test_faster_is_no_slower),
        cmocka_unit_test(test_dispatch),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
