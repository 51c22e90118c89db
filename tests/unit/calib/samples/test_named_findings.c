/* Findings name the fault of a machine: slow ranks, hosts, links and computers, sessions that
 * differ, the network beside its nominal rate. */
#include <string.h>

#include "calib/samples/findings.h"
#include "calib/samples/sweep.h"
#include "tests/support/sample_text.h"

/* 4 hosts x 2 ranks; a message takes 10 us within a host and 100 us between two, times what the
 * factors say of a rank, of a host over the network, and of one link. */
struct world {
    int slow_rank, slow_host, link_a, link_b;
};

static double pair_time(const struct world *world, int a, int b)
{
    double time_s = a / 2 == b / 2 ? 1e-5 : 1e-4;
    if (a == world->slow_rank || b == world->slow_rank)
        time_s *= 4;
    if (a / 2 != b / 2 && (a / 2 == world->slow_host || b / 2 == world->slow_host))
        time_s *= 4;
    if (a == world->link_a && b == world->link_b)
        time_s *= 4;
    return time_s;
}

static struct sbp_sample_findings look(const struct world *world)
{
    const struct sbp_sweep_options options = {4, 2, 1 << 20, 1, SBP_PRODUCTS_CPU, 0, 0, 0};
    struct sbp_calibration_origin origin = sample_text_origin();
    struct sbp_sample_findings findings = {0};
    struct sbp_text text = {0};
    origin.hosts = 4;
    origin.ranks_per_host = origin.least_ranks_per_host = 2;
    sample_text_session_of(&text, &origin, false, 0);
    for (int round = 0; round < 7; round++) {
        struct sbp_sample_pair pairs[4];
        struct sbp_result result = {
            .cell = {.work = SBP_CELL_PAIRS, .round = round, .bytes = 1 << 20}, .pair = pairs};
        for (int r = 0; r < 8; r++) {
            int other_node, other_local;
            if (!sbp_sweep_partner(&options, round, r / 2, r % 2, &other_node, &other_local))
                continue;
            const int other = 2 * other_node + other_local;
            if (r < other)
                pairs[result.pair_count++] =
                    (struct sbp_sample_pair){r, other, pair_time(world, r, other)};
        }
        sbp_sample_file_result_line(&result, &text);
    }
    struct sbp_record record = sample_text_parse(&text);
    assert_int_equal(sbp_findings_of_pairs(&record, false, &findings, NULL), SBP_OK);
    sbp_sample_file_free(&record);
    return findings;
}

static void expect_finding(const struct world *world, const char *text)
{
    const struct sbp_sample_findings findings = look(world);
    if (text == NULL && findings.count > 0)
        fail_msg("found, where nothing is: %s", findings.line[0]);
    if (text == NULL)
        return;
    if (findings.count != 1)
        fail_msg("%d findings, expected one with \"%s\": %s", findings.count, text,
                 findings.line[0]);
    if (strstr(findings.line[0], text) == NULL)
        fail_msg("\"%s\", expected \"%s\"", findings.line[0], text);
}

static void test_what_is_slow_is_named(void **state)
{
    (void)state;
    expect_finding(&(struct world){-1, -1, -1, -1}, NULL);
    for (int r = 0; r < 8; r++) {
        char text[64];
        (void)snprintf(text, sizeof text, "rank %d (host n%d) is slow", r, r / 2);
        expect_finding(&(struct world){r, -1, -1, -1}, text);
    }
    for (int n = 0; n < 4; n++) {
        char text[64];
        (void)snprintf(text, sizeof text, "host n%d is slow over the network", n);
        expect_finding(&(struct world){-1, n, -1, -1}, text);
    }
    for (int a = 0; a < 8; a++)
        for (int b = a + 2; b < 8; b += 2) {
            char text[64];
            (void)snprintf(text, sizeof text, "ranks %d (host n%d) and %d (host n%d)", a, a / 2, b,
                           b / 2);
            expect_finding(&(struct world){-1, -1, a, b}, text);
        }
}

/* Gone on with on the same hosts, on others, with other settings, and not to the end. */
static void test_sessions_that_differ_are_told(void **state)
{
    (void)state;
    static const struct {
        int host;
        const char *settings;
        int findings;
        const char *part;
    } cases[] = {{0, "NCCL_ALGO=Ring", 0, ""},
                 {1, "NCCL_ALGO=Ring", 1, "on other hosts"},
                 {0, "NCCL_ALGO=Tree", 1, "other settings"},
                 {0, "NCCL_ALGO=Ring", 1, "not measured to its end"}};
    for (int i = 0; i < 4; i++) {
        struct sbp_text text = {0};
        struct sbp_sample_findings findings = {0};
        struct sbp_calibration_origin origin = sample_text_origin();
        origin.hosts = 1;
        origin.ranks = 4;
        (void)snprintf(origin.settings, sizeof origin.settings, "NCCL_ALGO=Ring");
        sample_text_session_of(&text, &origin, false, 0);
        /* Rank 3 is slow in what the first session measured. */
        for (int a = 0; a < 4; a++)
            for (int b = a + 1; b < 4; b++) {
                const struct sbp_sample_pair pair = {a, b, b == 3 ? 9e-5 : 1e-5};
                const struct sbp_result result = {
                    .cell = {.work = SBP_CELL_PAIRS, .bytes = 1 << 20},
                    .pair_count = 1,
                    .pair = &pair};
                sbp_sample_file_result_line(&result, &text);
            }
        (void)snprintf(origin.settings, sizeof origin.settings, "%s", cases[i].settings);
        sample_text_session_of(&text, &origin, true, cases[i].host);
        sample_text_result(&text, 0, &sample_text_reduce, 1e-4);
        if (i < 3)
            sbp_sample_file_end_line(true, 1, &text);
        struct sbp_record record = sample_text_parse(&text);
        sbp_findings_of_sessions(&record, &findings);
        assert_int_equal(findings.count, cases[i].findings);
        assert_true(cases[i].findings == 0 || strstr(findings.line[0], cases[i].part) != NULL);
        findings.count = 0;
        assert_int_equal(sbp_findings_of_pairs(&record, false, &findings, NULL), SBP_OK);
        assert_int_equal(findings.count, cases[i].host == 0); /* else of nobody here */
        sbp_sample_file_free(&record);
    }
}

/* The longest message between hosts, over what a port is sold for. */
static void test_network_over_nominal(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct sbp_text text = {0};
        struct sbp_sample_findings findings = {0};
        struct sbp_calibration_origin origin = sample_text_origin();
        origin.nominal_bytes_per_s = i == 0 ? 0 : 2.0 * (1 << 30);
        (void)snprintf(origin.nominal_from, sizeof origin.nominal_from, "eth0");
        /* Longer ones of another calibration, within a host, and of another collective. */
        struct sbp_cell other = sample_text_reduce;
        other.kind = SBP_SEND_RECV;
        other.bytes = 64 << 20;
        sample_text_session_of(&text, &origin, false, 0);
        sample_text_result(&text, 0, &other, 1e-3);
        sample_text_session_of(&text, &origin, false, 0);
        other.nodes = 1;
        sample_text_result(&text, 0, &other, 1e-3);
        other = sample_text_reduce;
        other.bytes = 64 << 20;
        sample_text_result(&text, 0, &other, 1e-3);
        const int64_t largest = i == 2 ? 32 << 10 : 16 << 20; /* latency decides short ones */
        for (int64_t bytes = 1 << 10; bytes <= largest; bytes *= 2) {
            struct sbp_cell cell = sample_text_reduce;
            cell.kind = SBP_SEND_RECV;
            cell.bytes = bytes;
            sample_text_result(&text, 0, &cell, 1e-4 + (double)bytes / (1 << 30));
            cell.groups = 4; /* of several at a time each has less */
            sample_text_result(&text, 0, &cell, 1e-4 + 4 * (double)bytes / (1 << 30));
        }
        struct sbp_record record = sample_text_parse(&text);
        sbp_findings_of_network(&record, &findings);
        assert_int_equal(findings.count, i < 2);
        if (i == 0)
            assert_non_null(strstr(findings.line[0], "--nominal may"));
        if (i == 1)
            assert_non_null(strstr(findings.line[0], "50 % of the nominal 2.00 GiB/s of eth0"));
        sbp_sample_file_free(&record);
    }
}

/* Runs in plenty, all slow: more than there are lines. */
static void test_more_findings_than_lines(void **state)
{
    (void)state;
    struct sbp_sample_run run[SBP_MAX_FINDINGS + 1];
    struct sbp_sample_findings findings = {0};
    for (int i = 0; i <= SBP_MAX_FINDINGS; i++)
        run[i] = (struct sbp_sample_run){.run = i, .compared = 9, .slowdown = 2, .bad = true};
    const struct sbp_sample_runs runs = {SBP_MAX_FINDINGS, run}, more = {SBP_MAX_FINDINGS + 1, run};
    sbp_findings_of_runs(&runs, &findings);
    assert_non_null(strstr(findings.line[SBP_MAX_FINDINGS - 1], "was slow as a whole"));
    findings.count = 0;
    sbp_findings_of_runs(&more, &findings);
    assert_int_equal(findings.count, SBP_MAX_FINDINGS);
    assert_non_null(strstr(findings.line[SBP_MAX_FINDINGS - 1], "more to note"));
}

static void test_slow_compute_is_named(void **state)
{
    (void)state;
    for (int often = 0; often <= 10; often += 5) { /* of ten products */
        struct sbp_text text = {0};
        struct sbp_sample_findings findings = {0};
        sample_text_session(&text, false);
        for (int i = 0; i < 10; i++) {
            const double times[] = {1e-3};
            const struct sbp_result result = {
                .cell = {.work = SBP_CELL_GEMM, .m = 8 + i, .n = 8, .k = 8},
                .count = 1,
                .time_s = times,
                .slowest_rank = i < often ? 5 : i % 5,
                .slowest_ratio = i < often ? 1.5 : 1.1};
            sbp_sample_file_result_line(&result, &text);
        }
        struct sbp_record record = sample_text_parse(&text);
        sbp_findings_of_compute(&record, &findings);
        assert_int_equal(findings.count, often == 10);
        if (often == 10)
            assert_non_null(strstr(findings.line[0], "rank 5 (host n1) computes slowly"));
        sbp_sample_file_free(&record);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_slow_is_named),
        cmocka_unit_test(test_slow_compute_is_named),
        cmocka_unit_test(test_sessions_that_differ_are_told),
        cmocka_unit_test(test_network_over_nominal),
        cmocka_unit_test(test_more_findings_than_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
