/* The plan of measurements: what it holds, in which order, and who meets whom; when to stop. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/math/stats.h"
#include "calib/samples/samples.h"
#include "calib/samples/sweep.h"

static struct sbp_sweep make(int nodes, int ranks_per_node, int64_t max_bytes)
{
    const struct sbp_sweep_options options = {nodes,   ranks_per_node,   max_bytes,
                                              1 << 20, SBP_PRODUCTS_CPU, 0};
    struct sbp_sweep sweep;
    struct sbp_diag diag = {0};
    if (sbp_sweep_init(&sweep, &options, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    return sweep;
}

static int count_shape(const struct sbp_sweep *sweep, int nodes, int ranks_per_node, int groups)
{
    int count = 0;
    for (int i = 0; i < sweep->count; i++) {
        const struct sbp_cell *cell = &sweep->cell[i];
        count += cell->work == SBP_WORK_COLLECTIVE && cell->nodes == nodes &&
                 cell->ranks_per_node == ranks_per_node && cell->groups == groups;
    }
    return count;
}

static void test_shapes_are_all_pairs_of_divisors(void **state)
{
    (void)state;
    struct sbp_sweep sweep = make(4, 6, 4096);
    for (int n = 1; n <= 5; n++)
        for (int r = 1; r <= 7; r++)
            for (int groups = 1; groups <= 7; groups++) {
                const bool is_shape = 4 % n == 0 && 6 % r == 0 && n * r > 1;
                const int most = is_shape ? 6 / r : 0;
                const bool is_between = n > 1 && r == 1 && most > 0 && most % groups == 0;
                const bool expected = is_shape && (groups == 1 || groups == most || is_between);
                const int found = count_shape(&sweep, n, r, groups);
                if ((found > 0) != expected)
                    fail_msg("%d x %d, %d groups: %d cells, expected %s", n, r, groups, found,
                             expected ? "some" : "none");
            }
    /* 8 B .. 4 KiB are 10 sizes; those in blocks of 4 B for each of 24 members begin at 96 B, which
     * 128 B come to as well. */
    assert_int_equal(count_shape(&sweep, 2, 1, 1), 6 * 10);
    assert_int_equal(count_shape(&sweep, 4, 6, 1), 3 * 10 + 3 * 6);
    sbp_sweep_free(&sweep);
}

static void test_cells_are_whole_and_differ(void **state)
{
    (void)state;
    struct sbp_sweep sweep = make(3, 4, 1 << 30);
    for (int i = 0; i < sweep.count; i++) {
        const struct sbp_cell *cell = &sweep.cell[i];
        for (int j = 0; j < i; j++)
            assert_false(sbp_cell_same(cell, &sweep.cell[j]));
        if (cell->work != SBP_WORK_COLLECTIVE)
            continue;
        const bool in_blocks = cell->kind == SBP_ALL_GATHER || cell->kind == SBP_ALL_TO_ALL ||
                               cell->kind == SBP_REDUCE_SCATTER;
        assert_int_equal(cell->bytes % (in_blocks ? 4 * cell->nodes * cell->ranks_per_node : 4), 0);
        assert_true(cell->bytes >= 8 && cell->bytes <= 1 << 30);
    }
    sbp_sweep_free(&sweep);
}

/* What is required: every kind in the widest shape of each tier, at two sizes and more. */
static void test_what_is_required_can_be_fitted(void **state)
{
    (void)state;
    struct sbp_sweep sweep = make(4, 2, 1 << 24);
    static const enum sbp_collective kinds[] = {SBP_ALL_REDUCE, SBP_ALL_GATHER, SBP_REDUCE_SCATTER,
                                                SBP_ALL_TO_ALL, SBP_SEND_RECV,  SBP_BROADCAST_COLL};
    static const int shapes[][2] = {{4, 2}, {4, 1}, {1, 2}};
    for (int k = 0; k < 6; k++)
        for (int s = 0; s < 3; s++) {
            int sizes = 0;
            for (int i = 0; i < sweep.required; i++) {
                const struct sbp_cell *cell = &sweep.cell[i];
                sizes += cell->work == SBP_WORK_COLLECTIVE && cell->kind == kinds[k] &&
                         cell->nodes == shapes[s][0] && cell->ranks_per_node == shapes[s][1] &&
                         cell->groups == 1;
            }
            assert_in_range(sizes, 2, 5);
        }
    assert_true(sweep.required < sweep.count / 4);
    sbp_sweep_free(&sweep);
}

static void test_orders_are_permutations_by_stage(void **state)
{
    (void)state;
    struct sbp_sweep sweep = make(2, 4, 1 << 20);
    int *order = calloc((size_t)sweep.count, sizeof *order);
    int *again = calloc((size_t)sweep.count, sizeof *again);
    assert_true(order != NULL && again != NULL);
    int moved = 0;
    for (int run = 0; run < 3; run++) {
        sbp_sweep_order(&sweep, 7, run, order);
        sbp_sweep_order(&sweep, 7, run, again);
        assert_memory_equal(order, again, (size_t)sweep.count * sizeof *order);
        memset(again, 0, (size_t)sweep.count * sizeof *again);
        for (int stage = 0; stage < SBP_SWEEP_STAGES; stage++)
            for (int i = sweep.first[stage]; i < sweep.first[stage + 1]; i++) {
                assert_in_range(order[i], sweep.first[stage], sweep.first[stage + 1] - 1);
                assert_int_equal(again[order[i]]++, 0);
                moved += order[i] != i;
            }
    }
    assert_true(moved > sweep.count);
    sbp_sweep_order(&sweep, 7, 0, order);
    for (int i = 0; i < sweep.required; i++)
        assert_int_equal(order[i], i);
    free(again);
    free(order);
    sbp_sweep_free(&sweep);
}

/* Every two ranks of a node, and every two nodes by each local rank, meet in exactly one round; a
 * round's pairs are disjoint. */
static void expect_tournament(int nodes, int ranks_per_node)
{
    struct sbp_sweep sweep = make(nodes, ranks_per_node, 4096);
    enum { MOST = 12 };
    static int met[MOST][MOST];
    const int ranks = nodes * ranks_per_node;
    assert_true(ranks <= MOST);
    memset(met, 0, sizeof met);
    for (int i = 0; i < sweep.count; i++) {
        if (sweep.cell[i].work != SBP_WORK_PAIRS)
            continue;
        for (int r = 0; r < ranks; r++) {
            int node, local, back_node, back_local;
            if (!sbp_sweep_partner(&sweep.options, sweep.cell[i].round, r / ranks_per_node,
                                   r % ranks_per_node, &node, &local))
                continue;
            assert_true(sbp_sweep_partner(&sweep.options, sweep.cell[i].round, node, local,
                                          &back_node, &back_local));
            assert_int_equal(back_node * ranks_per_node + back_local, r);
            met[r][node * ranks_per_node + local]++;
        }
    }
    for (int a = 0; a < ranks; a++)
        for (int b = 0; b < ranks; b++) {
            const bool same_node = a / ranks_per_node == b / ranks_per_node;
            const bool same_place = a % ranks_per_node == b % ranks_per_node;
            const int expected = a != b && (same_node || same_place);
            if (met[a][b] != expected)
                fail_msg("%d x %d: ranks %d and %d meet %d times, expected %d", nodes,
                         ranks_per_node, a, b, met[a][b], expected);
        }
    sbp_sweep_free(&sweep);
}

static void test_pairs_meet_once(void **state)
{
    (void)state;
    for (int nodes = 1; nodes <= 6; nodes++)
        for (int ranks = 1; nodes * ranks <= 12; ranks++)
            if (nodes * ranks > 1)
                expect_tournament(nodes, ranks);
}

/* --- when to stop --- */

/* One rank's communication: what is reduced over it stays. */
static enum sbp_status alone_reduce(struct sbp_comm *comm, int group, void *buffer, int64_t count,
                                    enum sbp_real real, enum sbp_comm_reduction reduction)
{
    (void)comm, (void)group, (void)buffer, (void)count, (void)real, (void)reduction;
    return SBP_OK;
}

static enum sbp_status alone_barrier(struct sbp_comm *comm)
{
    (void)comm;
    return SBP_OK;
}

struct series {
    const double *time_s;
    int length, at; /* over and over */
};

static enum sbp_status next_time(void *context, double *time_s, struct sbp_diag *diag)
{
    (void)diag;
    struct series *series = context;
    *time_s = series->time_s[series->at++ % series->length];
    return SBP_OK;
}

static void sample(const double *time_s, int length, double cap_s, struct sbp_samples *samples)
{
    static const struct sbp_comm_ops ops = {.all_reduce = alone_reduce, .barrier = alone_barrier};
    const struct sbp_sampler sampler = {.ops = &ops};
    struct series series = {time_s, length, 0};
    double own[SBP_MAX_REPEATS], took_s;
    assert_int_equal(sbp_sample(&sampler, cap_s, next_time, &series, samples, own, &took_s, NULL),
                     SBP_OK);
    assert_memory_equal(own, samples->time_s, (size_t)samples->count * sizeof *own);
}

static void test_steady_times_settle_at_once(void **state)
{
    (void)state;
    static const double steady[] = {8e-6, 1e-5}; /* farther apart than 5 % of any median */
    static const double equal[] = {1e-5};
    struct sbp_samples samples;
    sample(equal, 1, 1, &samples);
    assert_int_equal(samples.count, 7);
    assert_true(samples.settled);
    sample(steady, 2, 1, &samples);
    assert_int_equal(samples.count, SBP_MAX_REPEATS);
}

/* The interval of the median holds it in 95 % of all cases, whatever the distribution: chances by
 * counting every pattern of which side of the median each value falls on. */
static void test_seven_are_the_first_that_can_settle(void **state)
{
    (void)state;
    for (int n = 3; n <= 12; n++) {
        double values[12], low, high;
        for (int i = 0; i < n; i++)
            values[i] = i;
        const bool known = sbp_median_interval(values, n, 0.95, &low, &high);
        int inside = 0;
        for (int pattern = 0; pattern < 1 << n; pattern++) {
            int below = 0;
            for (int i = 0; i < n; i++)
                below += pattern >> i & 1;
            inside += below > (int)low && below <= (int)high;
        }
        assert_int_equal(known, n >= 6);
        if (known)
            assert_true(inside >= 0.95 * (1 << n));
    }
}

static void test_time_ends_what_does_not_settle(void **state)
{
    (void)state;
    static const double wild[] = {1, 2, 1, 3, 1, 5};
    struct sbp_samples samples;
    sample(wild, 6, 0, &samples); /* each says that it took over a second */
    assert_int_equal(samples.count, 3);
    assert_false(samples.settled);
    sample(wild, 6, 8.5, &samples);
    assert_in_range(samples.count, 3, SBP_MAX_REPEATS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes_are_all_pairs_of_divisors),
        cmocka_unit_test(test_cells_are_whole_and_differ),
        cmocka_unit_test(test_what_is_required_can_be_fitted),
        cmocka_unit_test(test_orders_are_permutations_by_stage),
        cmocka_unit_test(test_pairs_meet_once),
        cmocka_unit_test(test_steady_times_settle_at_once),
        cmocka_unit_test(test_seven_are_the_first_that_can_settle),
        cmocka_unit_test(test_time_ends_what_does_not_settle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
