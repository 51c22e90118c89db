/* Cyclic data parallelism in time steps: the paper's formulas and its table 1 against counts of a
 * played schedule (cdp_count.h). */
#include "tests/support/cdp_counts.h"

enum { MOST_N = 9 };

/* --- schedule and rules --- */

/* Every stage and every worker does one pass at each steady time step, and passes depend on earlier
 * ones. */
static void test_slots(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST_N; n++) {
        int of_stage[MOST_N + 1][6 * MOST_N] = {{0}}, of_worker[MOST_N + 1][6 * MOST_N] = {{0}};
        for (int t = 0; t < 2; t++)
            for (int i = 1; i <= n; i++)
                for (int j = 1; j <= n; j++) {
                    const int64_t f = sbp_cdp_forward_slot(n, i, j, t);
                    const int64_t b = sbp_cdp_backward_slot(n, i, j, t);
                    of_stage[j][f]++, of_stage[j][b]++;
                    of_worker[i][f]++, of_worker[i][b]++;
                    assert_true(b > f);
                    if (j > 1) {
                        assert_int_equal(f, sbp_cdp_forward_slot(n, i, j - 1, t) + 1);
                        assert_int_equal(b, sbp_cdp_backward_slot(n, i, j - 1, t) - 1);
                    }
                    if (i > 1)
                        assert_int_equal(f, sbp_cdp_forward_slot(n, i - 1, j, t) + 2);
                }
        for (int slot = 2 * (n - 1); slot < 4 * n; slot++)
            for (int k = 1; k <= n; k++) {
                assert_int_equal(of_stage[k][slot], 1);
                assert_int_equal(of_worker[k][slot], 1);
            }
    }
}

/* A pass may read theta_t exactly where all backward passes of step t - 1 on its stage are over. */
static void test_fresh(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST_N; n++) {
        int stale = 0;
        for (int i = 1; i <= n; i++)
            for (int j = 1; j <= n; j++) {
                const bool made =
                    sbp_cdp_backward_slot(n, n, j, 4) < sbp_cdp_forward_slot(n, i, j, 5);
                assert_int_equal(sbp_cdp_fresh(SBP_CDP_RULE_V2, n, i, j), made);
                assert_false(sbp_cdp_fresh(SBP_CDP_RULE_V1, n, i, j));
                stale += !made;
                /* Stale parameters are one step old: theta_{t-1} is always there. */
                assert_true(sbp_cdp_backward_slot(n, n, j, 3) < sbp_cdp_forward_slot(n, i, j, 5));
            }
        assert_int_equal(2 * stale, n * (n - 1));
        assert_true(sbp_cdp_stale_share(SBP_CDP_RULE_V2, n, n) == (n - 1) / (2.0 * n));
        assert_true(sbp_cdp_stale_share(SBP_CDP_RULE_V1, n, n) == 1);
    }
}

/* --- table 1 --- */

/* One row: the paper's columns in units of B Psi_A / N, Psi_P / N and messages; twice, where a half
 * occurs. */
struct row {
    enum sbp_placement placement;
    bool cyclic;
    int64_t twice_activations, twice_parameters; /* of a device */
    int64_t parameter_messages, boundary_messages;
    int collective; /* rounds are log2 of so many; 0: point to point or none */
    int devices;
};

static int log2_up(int g)
{
    int rounds = 0;
    while ((1 << rounds) < g)
        rounds++;
    return rounds;
}

static void check_row(int n, const struct row *row)
{
    for (int rule = 0; rule <= 1; rule++) {
        const struct sbp_cdp_count count =
            cdp_count_of(n, row->placement, row->cyclic, (enum sbp_cdp_rule)rule);
        const int64_t messages = row->parameter_messages + row->boundary_messages;
        assert_int_equal(2 * count.activation_bytes, row->twice_activations * 1000);
        assert_int_equal(2 * count.parameter_bytes, row->twice_parameters * 70);
        assert_int_equal(count.parameter_sent_bytes, row->parameter_messages * 70);
        assert_int_equal(count.boundary_sent_bytes, row->boundary_messages * 3);
        assert_int_equal(count.devices, row->devices);
        assert_int_equal(count.rounds,
                         row->collective > 0 ? log2_up(row->collective) : messages > 0);
    }
}

static void test_table(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST_N; n++) {
        const int64_t pyramid = n * (n + 1) / 2, rings = 2 * (n - 1) * n; /* 2 (N - 1) Psi_P */
        const int64_t boundaries = 2 * n * (n - 1);
        const struct row rows[] = {
            {SBP_PLACE_SINGLE, false, 2 * n * n, 2 * n * n, 0, 0, 1, 1},
            {SBP_PLACE_SINGLE, true, n * (n + 1), n * (n + 1), 0, 0, 0, 1},
            {SBP_PLACE_DATA, false, 2 * n, 2 * n, rings, 0, n, n},
            {SBP_PLACE_DATA, true, 2 * n, 2 * n, rings, 0, 0, n},
            {SBP_PLACE_PYRAMID, false, 2, 2, rings, boundaries, n, n * n},
            {SBP_PLACE_PYRAMID, true, 2, 2, rings / 2, boundaries, 0, (int)pyramid},
            {SBP_PLACE_PIPELINE, true, 2 * n, 2, 0, boundaries, 0, n},
            {SBP_PLACE_ZERO, false, 2 * n, 2, 3 * (n - 1) * n, 0, n, n},
            {SBP_PLACE_ZERO, true, 2 * n, 2, rings, 0, 0, n},
        };
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
            check_row(n, &rows[r]);
    }
}

/* All devices together hold N (N + 1)/2 stages' activations at every time, without cycle up to N^2
 * and as few as N. */
static void test_constant(void **state)
{
    (void)state;
    static const enum sbp_placement placements[] = {
        SBP_PLACE_SINGLE, SBP_PLACE_DATA, SBP_PLACE_PYRAMID, SBP_PLACE_PIPELINE, SBP_PLACE_ZERO};
    for (int n = 1; n <= MOST_N; n++)
        for (int p = 0; p < 5; p++) {
            const struct sbp_cdp_count c = cdp_count_of(n, placements[p], true, SBP_CDP_RULE_V2);
            assert_int_equal(c.all_activation_bytes, 500 * n * (n + 1));
            assert_int_equal(c.least_all_activation_bytes, 500 * n * (n + 1));
            if (placements[p] == SBP_PLACE_PIPELINE)
                continue;
            const struct sbp_cdp_count d = cdp_count_of(n, placements[p], false, SBP_CDP_RULE_V2);
            assert_int_equal(d.all_activation_bytes, 1000 * n * n);
            assert_int_equal(d.least_all_activation_bytes, 1000 * n);
        }
}

/* Where parameters are shared, v1 needs two versions, v2 as well unless there is one stage. */
static void test_versions(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST_N; n++) {
        assert_int_equal(cdp_count_of(n, SBP_PLACE_PIPELINE, true, SBP_CDP_RULE_V1).versions, 2);
        assert_int_equal(cdp_count_of(n, SBP_PLACE_PIPELINE, true, SBP_CDP_RULE_V2).versions,
                         n == 1 ? 1 : 2);
        assert_int_equal(cdp_count_of(n, SBP_PLACE_ZERO, true, SBP_CDP_RULE_V2).versions,
                         n == 1 ? 1 : 2);
        assert_int_equal(cdp_count_of(n, SBP_PLACE_DATA, true, SBP_CDP_RULE_V2).versions, 1);
        assert_int_equal(cdp_count_of(n, SBP_PLACE_ZERO, false, SBP_CDP_RULE_V1).versions, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slots),    cmocka_unit_test(test_fresh),
        cmocka_unit_test(test_table),    cmocka_unit_test(test_constant),
        cmocka_unit_test(test_versions),
    };
    return cmocka_run_group_tests_name("cdp_count", tests, NULL, NULL);
}
