/* Boxing between disjoint device sets against transport of real values: every element is summed,
 * sent and copied by messages that are counted one by one, and must arrive.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/papers/boxing_disjoint.h"
#include "tests/support/sbp_oracle.h"
#include "tests/support/seeded.h"
#include "tests/support/unit.h"

#define SEED         UINT64_C(4216)
#define ROUNDS       300
#define MOST_RANKS   16
#define DIMS         2
#define SIDE         72 /* of a dimension: both sides' splits divide it */
#define ELEMENTS     ((int64_t)SIDE * SIDE)
#define NEAR(a, b)   (fabs((a) - (b)) <= 1e-12 * fabs(b))
#define MESHES       6
#define SIMPLE_BYTES 4096.0

struct set {
    struct sbp_cluster cluster;
    struct sbp_mesh mesh;
    sbp_axes split[SBP_MAX_DIMS];
    struct sbp_layout layout;
    struct sbp_dist dist;
};

static const struct sbp_shape square = {{SIDE, SIDE, 1, 1}, {0, 1, SBP_NO_CLASS, SBP_NO_CLASS}};

static void set_make(struct set *set, int levels, const int64_t *size)
{
    struct sbp_diag diag = {{0}};
    set->cluster = oracle_cluster(levels, size);
    if (sbp_mesh_make(&set->cluster, &set->mesh, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
}

static void set_dist(struct set *set, struct sbp_dist dist)
{
    set->dist = dist;
    for (int d = 0; d < SBP_MAX_DIMS; d++)
        set->split[d] = sbp_dist_split(&set->mesh, &set->dist, d);
    set->layout = (struct sbp_layout){&set->mesh, DIMS, set->split};
}

static struct sbp_disjoint box(const struct set *from, const struct set *to, double bytes)
{
    const struct sbp_disjoint_side source = {&from->cluster, &from->mesh, &from->dist};
    const struct sbp_disjoint_side target = {&to->cluster, &to->mesh, &to->dist};
    return sbp_boxing_disjoint(&source, &target, (struct sbp_disjoint_link){1e-5, 1e-9}, bytes);
}

/* --- transport --- */

static bool owns(const struct set *set, int64_t rank, int64_t element)
{
    return oracle_owns_index(&set->layout, &square, &set->dist, rank, 0, element / SIDE) &&
           oracle_owns_index(&set->layout, &square, &set->dist, rank, 1, element % SIDE);
}

/* This rank's coordinates on the axes in a state, as one number. */
static int64_t place(const struct set *set, enum sbp_kind kind, int64_t rank)
{
    int64_t place = 0;
    for (int i = 0; i < set->mesh.axis_count; i++)
        if (set->dist.axis[i].kind == kind)
            place = place * set->mesh.axis[i].size + oracle_coordinate(&set->mesh, rank, i);
    return place;
}

static int64_t ways(const struct set *set, enum sbp_kind kind)
{
    int64_t most = 0;
    for (int64_t r = 0; r < set->mesh.devices; r++)
        if (place(set, kind, r) > most)
            most = place(set, kind, r);
    return most + 1;
}

struct counts {
    int64_t reduce, send, gather; /* elements */
};

/* The part that producer rank r holds of an element whose value is e + 1: all of it, or, of a sum,
 * the first has the difference to the others' shares. */
static int64_t share(const struct set *set, int64_t rank, int64_t element)
{
    const int64_t holders = ways(set, SBP_PARTIAL), own = place(set, SBP_PARTIAL, rank);
    int64_t rest = 0;
    for (int64_t h = 1; h < holders; h++)
        rest += h * 7 + element % 5;
    return own == 0 ? element + 1 - rest : own * 7 + element % 5;
}

/* One element: its sum is formed where the chosen copy's chosen member is, crosses, is copied. */
static void carry(const struct set *from, const struct set *to, int64_t element,
                  struct counts *counts, int64_t value[MOST_RANKS])
{
    const int64_t copy = element % ways(from, SBP_BROADCAST);
    const int64_t member = element / 3 % ways(from, SBP_PARTIAL);
    const int64_t zeroed = element / 5 % ways(to, SBP_PARTIAL);
    const int64_t first = element / 7 % ways(to, SBP_BROADCAST);
    int64_t sum = 0;
    bool sender = false;
    for (int64_t r = 0; r < from->mesh.devices; r++) {
        if (!owns(from, r, element) || place(from, SBP_BROADCAST, r) != copy)
            continue;
        sum += share(from, r, element);
        if (place(from, SBP_PARTIAL, r) == member)
            sender = true;
        else
            counts->reduce++;
    }
    assert_true(sender);
    for (int64_t r = 0; r < to->mesh.devices; r++) {
        value[r] = 0;
        if (!owns(to, r, element) || place(to, SBP_PARTIAL, r) != zeroed)
            continue;
        value[r] = sum;
        if (place(to, SBP_BROADCAST, r) == first)
            counts->send++;
        else
            counts->gather++;
    }
}

/* Every copy of the consumers holds, over its partial members, the value. */
static void must_arrive(const struct set *to, int64_t element, const int64_t value[MOST_RANKS])
{
    for (int64_t copy = 0; copy < ways(to, SBP_BROADCAST); copy++) {
        int64_t sum = 0;
        for (int64_t r = 0; r < to->mesh.devices; r++)
            if (owns(to, r, element) && place(to, SBP_BROADCAST, r) == copy)
                sum += value[r];
        assert_int_equal(sum, element + 1);
    }
}

static void check_volumes(int round, const struct set *from, const struct set *to)
{
    struct counts counts = {0};
    int64_t value[MOST_RANKS];
    for (int64_t e = 0; e < ELEMENTS; e++) {
        carry(from, to, e, &counts, value);
        must_arrive(to, e, value);
    }
    const struct sbp_disjoint boxing = box(from, to, 4.0 * (double)ELEMENTS);
    if (!NEAR(boxing.reduce_bytes, 4.0 * (double)counts.reduce) ||
        !NEAR(boxing.send_bytes, 4.0 * (double)counts.send) ||
        !NEAR(boxing.gather_bytes, 4.0 * (double)counts.gather))
        fail_msg("round %d: %g + %g + %g bytes, counted %lld + %lld + %lld elements of 4", round,
                 boxing.reduce_bytes, boxing.send_bytes, boxing.gather_bytes,
                 (long long)counts.reduce, (long long)counts.send, (long long)counts.gather);
}

static void test_volumes(void **state)
{
    (void)state;
    static const int64_t meshes[MESHES][2] = {{2, 1}, {3, 1}, {2, 2}, {2, 3}, {4, 2}, {3, 3}};
    struct sbp_random random = seeded(SEED);
    for (int round = 0; round < ROUNDS; round++) {
        struct set from, to;
        set_make(&from, 2, meshes[oracle_below(&random, MESHES)]);
        set_make(&to, 2, meshes[oracle_below(&random, MESHES)]);
        set_dist(&from, oracle_random_dist(&random, &from.mesh, DIMS, false));
        set_dist(&to, oracle_random_dist(&random, &to.mesh, DIMS, false));
        check_volumes(round, &from, &to);
    }
}

/* --- messages and time --- */

/* Pairs of blocks that share an element, when a line is cut into contiguous ones. */
static int64_t most_met_by_counting(int64_t a, int64_t c, int64_t length)
{
    int64_t most = 0;
    for (int64_t block = 0; block < a; block++) {
        int64_t met = 0, last = -1;
        for (int64_t i = block * length / a; i < (block + 1) * length / a; i++) {
            met += i * c / length != last;
            last = i * c / length;
        }
        most = met > most ? met : most;
    }
    return most;
}

/* Splits of one dimension by a and by c devices. */
static void test_messages_of_a_line(void **state)
{
    (void)state;
    for (int64_t a = 1; a <= 12; a++)
        for (int64_t c = 1; c <= 12; c++) {
            struct set from, to;
            set_make(&from, 1, &a);
            set_make(&to, 1, &c);
            set_dist(&from, sbp_dist_all(SBP_STATE_S(0)));
            set_dist(&to, sbp_dist_all(SBP_STATE_S(0)));
            const int64_t sends = most_met_by_counting(a, c, 27720);
            const int64_t receives = most_met_by_counting(c, a, 27720);
            assert_int_equal(box(&from, &to, 1e6).messages, sends > receives ? sends : receives);
        }
}

static struct sbp_disjoint simple(struct set *from, int64_t p1, struct sbp_state source,
                                  struct set *to, int64_t p2, struct sbp_state target)
{
    set_make(from, 1, &p1);
    set_make(to, 1, &p2);
    set_dist(from, sbp_dist_all(source));
    set_dist(to, sbp_dist_all(target));
    return box(from, to, SIMPLE_BYTES);
}

/* A sum on 4 devices, wanted whole by 2: worked out by hand. */
static void test_times(void **state)
{
    (void)state;
    struct set from, to;
    const double alpha = 1e-5, beta = 1e-9; /* of the clusters' one level, and of the link */
    const struct sbp_disjoint sum = simple(&from, 4, SBP_STATE_P, &to, 2, SBP_STATE_B);
    assert_true(NEAR(sum.reduce_s, 3 * alpha + 0.75 * SIMPLE_BYTES * beta));
    assert_true(NEAR(sum.send_s, 2 * alpha + 0.5 * SIMPLE_BYTES * beta));
    assert_true(NEAR(sum.gather_s, 1 * alpha + 0.5 * SIMPLE_BYTES * beta));
    assert_int_equal(sum.messages, 2);

    /* Rows to columns: everybody has something for everybody. */
    const struct sbp_disjoint turn = simple(&from, 4, SBP_STATE_S(0), &to, 8, SBP_STATE_S(1));
    assert_true(turn.reduce_s == 0 && turn.gather_s == 0);
    assert_int_equal(turn.messages, 8);
    assert_true(NEAR(turn.send_s, 8 * alpha + 0.25 * SIMPLE_BYTES * beta));

    /* Copies send slices that line up with what is wanted. */
    const struct sbp_disjoint slices = simple(&from, 4, SBP_STATE_B, &to, 4, SBP_STATE_S(1));
    assert_int_equal(slices.messages, 1);
    assert_true(NEAR(slices.send_s, alpha + 0.25 * SIMPLE_BYTES * beta));

    /* Thirds and quarters of one dimension, not of two. */
    const struct sbp_disjoint uneven = simple(&from, 4, SBP_STATE_S(1), &to, 3, SBP_STATE_B);
    assert_int_equal(uneven.messages, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_volumes),
        cmocka_unit_test(test_messages_of_a_line),
        cmocka_unit_test(test_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
