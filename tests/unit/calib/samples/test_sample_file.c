/* Files of samples: what is written reads back, what is torn is dropped, what is wrong is refused
 * by line; points and bad runs out of them. */
#include <math.h>
#include <string.h>

#include "calib/samples/findings.h"
#include "calib/samples/points.h"
#include "tests/support/sample_text.h"

static void test_lines_read_back(void **state)
{
    (void)state;
    static const struct sbp_cell cells[] = {
        {.work = SBP_CELL_COPY, .bytes = 64 << 20},
        {.work = SBP_CELL_GEMM, .type = SBP_FP64, .m = 3, .n = 4, .k = 5},
        {.work = SBP_CELL_LAUNCH, .m = 1, .n = 1, .k = 1},
        {.work = SBP_CELL_GEMM,
         .type = SBP_BF16,
         .pass = SBP_PASS_WEIGHT_GRADIENT,
         .m = 3,
         .n = 4,
         .k = 5},
        {.work = SBP_CELL_SUSTAINED, .type = SBP_BF16, .m = 3, .n = 4, .k = 5, .load_s = 60},
        {.work = SBP_CELL_SUSTAINED, .type = SBP_BF16, .m = 3, .n = 4, .k = 5, .load_s = 3},
        {.work = SBP_CELL_HOST, .m = 1, .n = 1, .k = 1},
        {.work = SBP_CELL_LINK, .bytes = 4096},
        {.work = SBP_CELL_BESIDE,
         .kind = SBP_ALL_GATHER,
         .nodes = 3,
         .ranks_per_node = 2,
         .groups = 4,
         .bytes = 24},
        {.work = SBP_CELL_BESIDE,
         .kind = SBP_ALL_GATHER,
         .nodes = 3,
         .ranks_per_node = 2,
         .groups = 4,
         .bytes = 24,
         .type = SBP_BF16,
         .m = 7,
         .n = 8,
         .k = 9},
        {.work = SBP_CELL_STREAM, .bytes = 32 << 20},
        {.work = SBP_CELL_GELU, .bytes = 32 << 20},
        {.work = SBP_CELL_ROWS, .bytes = 32 << 20, .row_bytes = 2048},
        {.work = SBP_CELL_ROWS, .bytes = 32 << 20, .row_bytes = 8192},
        {.work = SBP_CELL_GEMM, .type = SBP_FP8, .m = 3, .n = 4, .k = 5},
        {.work = SBP_CELL_GROUPED, .type = SBP_FP32, .m = 3, .n = 4, .k = 5, .experts = 6},
        {.work = SBP_CELL_GROUPED,
         .type = SBP_BF16,
         .pass = SBP_PASS_INPUT_GRADIENT,
         .m = 3,
         .n = 4,
         .k = 5,
         .experts = 7},
        {.work = SBP_CELL_ATTENTION, .attention = {SBP_FP32, SBP_PASS_FORWARD, 64, 256, 2, 4}},
        {.work = SBP_CELL_ATTENTION,
         .attention = {SBP_BF16, SBP_PASS_INPUT_GRADIENT, 80, 384, 12, 1}},
        {.work = SBP_CELL_COLLECTIVE,
         .kind = SBP_BROADCAST_COLL,
         .nodes = 3,
         .ranks_per_node = 2,
         .groups = 4,
         .bytes = 8},
    };
    struct sbp_text text = {0};
    sample_text_session(&text, false);
    enum { CELLS = sizeof cells / sizeof *cells };
    for (int i = 0; i < CELLS; i++)
        sample_text_result(&text, i, &cells[i], 1e-5 * (i + 1));
    const struct sbp_sample_pair pairs[] = {{0, 3, 1.5e-5}, {1, 2, 2.5e-5}};
    const struct sbp_result round = {.cell = {.work = SBP_CELL_PAIRS, .round = 6, .bytes = 4096},
                                     .pair_count = 2,
                                     .pair = pairs};
    sbp_sample_file_result_line(&round, &text);
    sbp_sample_file_end_line(true, 12.5, &text);
    struct sbp_record record = sample_text_parse(&text);
    assert_int_equal(record.session_count, 1);
    assert_int_equal(record.result_count, CELLS + 1);
    const struct sbp_session *session = &record.session[0];
    const struct sbp_calibration_origin origin = sample_text_origin();
    assert_string_equal(session->origin.settings, origin.settings);
    assert_string_equal(session->origin.command, origin.command);
    assert_int_equal(session->origin.seed, 5);
    assert_int_equal(session->origin.least_ranks_per_host, 4);
    assert_int_equal(session->placement.ranks, 8);
    assert_int_equal(session->placement.nodes, 2);
    assert_string_equal(session->placement.host[session->placement.node[4]], "n1");
    assert_true(session->ended && session->wall_s == 12.5);
    for (int i = 0; i < CELLS; i++) {
        assert_true(sbp_cell_same(&record.result[i].cell, &cells[i]));
        assert_int_equal(record.result[i].run, i);
        assert_true(fabs(record.result[i].median_s / (1e-5 * (i + 1)) - 1) < 1e-5);
    }
    assert_int_equal(record.result[CELLS].pair_count, 2);
    assert_int_equal(record.result[CELLS].pair[1].b, 2);
    assert_true(record.result[CELLS].pair[1].time_s == 2.5e-5);
    sbp_sample_file_free(&record);
}

/* Cut anywhere, a file keeps the lines before the cut. */
static void test_torn_lines_are_dropped(void **state)
{
    (void)state;
    struct sbp_text text = {0};
    sample_text_session(&text, false);
    const size_t head = text.length;
    sample_text_result(&text, 0, &sample_text_reduce, 1e-4);
    const size_t one = text.length;
    sample_text_result(&text, 1, &sample_text_reduce, 2e-4);
    for (size_t cut = head; cut <= text.length; cut++) {
        struct sbp_record record;
        assert_int_equal(sbp_sample_file_parse("s", text.bytes, cut, &record, NULL), SBP_OK);
        assert_int_equal(record.result_count, (cut >= one) + (cut == text.length));
        assert_int_equal(record.whole_bytes, cut == text.length ? text.length
                                             : cut >= one       ? one
                                                                : head);
        assert_false(record.session[0].ended);
        sbp_sample_file_free(&record);
    }
    struct sbp_record record;
    assert_int_equal(sbp_sample_file_parse("s", text.bytes, head - 1, &record, NULL), SBP_E_INPUT);
    sbp_text_free(&text);
}

static void test_wrong_lines_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *line, *text;
    } cases[] = {
        {"{\"run\":0,\"copy\":8,\"s\":[1]}", "line 1: a measurement before the line"},
        {"{\"sbplan_samples\":1}\n{\"run\":0,\"copy\":8,\"s\":[]}", "line 2: s: 0 times"},
        {"{\"sbplan_samples\":1}\n{\"run\":0}", "line 2: no \"collective\""},
        {"{\"sbplan_samples\":1}\n{\"run\":0,\"copy\":8,\"s\":[-1]}", "line 2: s[0]"},
        {"{\"sbplan_samples\":1}\n{\"run\":0,\"collective\":\"reduce\",\"s\":[1]}",
         "line 2: collective"},
        {"{\"sbplan_samples\":1,\"ranks\":4,\"nodes\":3,\"ranks_per_node\":2}",
         "3 nodes of at least 2"},
        {"{\"sbplan_samples\":1,\"ranks\":3,\"host_of_rank\":[\"a\",\"a\"]}",
         "line 1: host_of_rank: 2 hosts, but 3 ranks"},
        {"{\"sbplan_samples\":1}\n{\"pairs\":0,\"bytes\":8,\"between\":[[0,9,1]]}",
         "between[0][1]"},
        {"{\"sbplan_samples\":1}\n{\"run\":0,\"attention\":\"fp32\",\"head_size\":64,\"sequence\":"
         "64,"
         "\"heads\":2,\"batch\":1,\"pass\":\"weight_gradient\",\"s\":[1]}",
         "line 2: pass"},
        {"{\"sbplan_samples\":1}\n{\"run\":0,\"attention\":\"fp32\",\"head_size\":64,\"sequence\":"
         "64,"
         "\"heads\":2,\"s\":[1]}",
         "line 2: key \"batch\" is missing"},
        {"{\"sbplan_samples\":1}\n{\"run\":0,\"attention\":\"fp32\",\"head_size\":1,"
         "\"sequence\":1073741824,\"heads\":1073741824,\"batch\":1073741824,\"s\":[1]}",
         "line 2: batch, heads and sequence make more than"},
        {"{\"sbplan_samples\":1}\n{\"run\":0,\"grouped\":\"fp32\",\"m\":8,\"n\":8,\"k\":8,\"s\":[1]"
         "}",
         "line 2: key \"experts\" is missing"},
        {"{\"sbplan_samples\":1}\n{\"run\":0,\"grouped\":\"fp32\",\"m\":8,\"n\":8,\"k\":8,"
         "\"experts\":0,\"s\":[1]}",
         "line 2: experts"},
        {"{\"sbplan_samples\":1}\n{\"run\":100,\"copy\":8,\"s\":[1]}",
         "line 2: run 100, legal are 0 to 99"},
        {"name,size\n1,2", "line 1"},
        {"", "no file of samples"},
    };
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        struct sbp_text text = {0};
        struct sbp_record record;
        struct sbp_diag diag = {0};
        sbp_text_add(&text, "%s\n", cases[i].line);
        assert_int_equal(sbp_sample_file_parse("s.jsonl", text.bytes,
                                               text.length - (cases[i].line[0] == '\0'), &record,
                                               &diag),
                         SBP_E_INPUT);
        if (strstr(diag.text, cases[i].text) == NULL || strncmp(diag.text, "s.jsonl: ", 9) != 0)
            fail_msg("%s: \"%s\", expected \"%s\"", cases[i].line, diag.text, cases[i].text);
        sbp_text_free(&text);
    }
}

/* A hole that a crash of the machine left. */
static void test_holes_are_refused(void **state)
{
    (void)state;
    static const char lines[] = "{\"sbplan_samples\":1}\n{\"end\":\"done\"}\0\0\n";
    struct sbp_record record;
    struct sbp_diag diag = {0};
    assert_int_equal(sbp_sample_file_parse("s.jsonl", lines, sizeof lines - 1, &record, &diag),
                     SBP_E_INPUT);
    assert_string_equal(diag.text, "s.jsonl: line 2: a NUL byte");
}

static void test_paths(void **state)
{
    (void)state;
    static const struct {
        const char *path, *record;
    } cases[] = {{"cluster.json", "cluster.samples.jsonl"},
                 {"a.json/b", "a.json/b.samples.jsonl"},
                 {"x.samples.jsonl", "x.samples.jsonl"},
                 {".json", ".samples.jsonl"}};
    char found[64];
    for (int i = 0; i < 4; i++) {
        assert_int_equal(sbp_sample_file_path(cases[i].path, found, sizeof found, NULL), SBP_OK);
        assert_string_equal(found, cases[i].record);
    }
    assert_int_equal(sbp_sample_file_path("0123456789.json", found, 20, NULL), SBP_E_RANGE);
}

/* --- points --- */

static struct sbp_cell cell_of(int size)
{
    struct sbp_cell cell = sample_text_reduce;
    cell.bytes = (int64_t)8 << size;
    return cell;
}

static void test_points_are_medians_of_good_runs(void **state)
{
    (void)state;
    static const double factor[] = {1.0, 1.6, 1.02, 0.98}; /* of each run */
    struct sbp_text text = {0};
    sample_text_session(&text, false);
    for (int run = 0; run < 4; run++)
        for (int size = 0; size < 9; size++) {
            const struct sbp_cell cell = cell_of(size);
            sample_text_result(&text, run, &cell, factor[run] * 1e-5 * (1 << size));
        }
    struct sbp_record record = sample_text_parse(&text);
    struct sbp_measured measured;
    struct sbp_sample_runs runs;
    assert_int_equal(sbp_points(&record, SBP_OF_MEDIANS, &measured, &runs, NULL), SBP_OK);
    assert_int_equal(runs.count, 4);
    for (int run = 0; run < 4; run++) {
        assert_int_equal(runs.run[run].compared, 9);
        assert_int_equal(runs.run[run].bad, run == 1);
        assert_true(fabs(runs.run[run].slowdown - factor[run] / 1.01) < 1e-6);
    }
    assert_int_equal(measured.count, 9);
    for (int size = 0; size < 9; size++) {
        const struct sbp_measured_point *point = &measured.point[size];
        assert_true(point->bytes == (double)(8 << size) && point->groups == 1);
        assert_true(fabs(point->time_s / (1e-5 * (1 << size)) - 1) < 1e-9);
        assert_true(fabs(point->spread - 0.02) < 1e-9);
    }
    assert_string_equal(measured.source[0].library, "Open MPI v4");
    struct sbp_sample_findings findings = {0};
    sbp_findings_of_runs(&runs, &findings);
    assert_int_equal(findings.count, 1);
    assert_non_null(strstr(findings.line[0], "run 2 was slow as a whole"));
    sbp_points_free(&measured);
    sbp_sample_file_free(&record);
}

/* The least repeat of all runs, slow ones and those of other chains included. */
static void test_points_are_least_repeats(void **state)
{
    (void)state;
    static const double factor[] = {1.0, 1.6, 1.02, 0.98}; /* of each run */
    struct sbp_text text = {0};
    sample_text_session(&text, false);
    for (int run = 0; run < 4; run++)
        sample_text_result(&text, run, &sample_text_reduce, factor[run] * 1e-5);
    sbp_sample_file_end_line(true, 1, &text);
    sample_text_session(&text, false);
    sample_text_result(&text, 0, &sample_text_reduce, 2e-5);
    struct sbp_cell larger = sample_text_reduce,
                    crowded = sample_text_reduce; /* cells of their own */
    larger.bytes *= 2;
    crowded.groups = 2;
    sample_text_result(&text, 0, &larger, 3e-5);
    sample_text_result(&text, 0, &crowded, 4e-5);
    struct sbp_record record = sample_text_parse(&text);
    struct sbp_measured measured;
    struct sbp_sample_runs runs;
    double least_s = INFINITY;
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < record.result[i].count; k++)
            least_s = fmin(least_s, record.result[i].time_s[k]);
    assert_true(least_s < 0.98e-5);
    assert_int_equal(sbp_points(&record, SBP_OF_LEAST, &measured, &runs, NULL), SBP_OK);
    assert_int_equal(measured.count, 4);
    assert_true(measured.point[0].time_s == least_s && measured.point[1].time_s == least_s);
    assert_true(measured.point[2].bytes > measured.point[1].bytes);
    assert_true(fabs(measured.point[2].time_s / (0.99 * 3e-5) - 1) < 1e-9);
    assert_true(measured.point[3].groups == 2);
    assert_true(fabs(measured.point[3].time_s / (0.99 * 4e-5) - 1) < 1e-9);
    sbp_points_free(&measured);
    sbp_sample_file_free(&record);
}

/* Coarse clocks give 0 s now and then: the least is the least that a machine can take. */
static void test_coarse_clocks(void **state)
{
    (void)state;
    struct sbp_text text = {0};
    struct sbp_measured measured;
    struct sbp_sample_runs runs;
    struct sbp_sample_findings findings = {0};
    static const double times[] = {0, 3e-6, 2e-6, 0, 2e-6};
    const struct sbp_result result = {.cell = sample_text_reduce, .count = 5, .time_s = times};
    sample_text_session(&text, false);
    sbp_sample_file_result_line(&result, &text);
    struct sbp_record record = sample_text_parse(&text);
    for (int statistic = 0; statistic < 2; statistic++) {
        assert_int_equal(sbp_points(&record, (enum sbp_statistic)statistic, &measured, &runs, NULL),
                         SBP_OK);
        assert_int_equal(measured.count, 1);
        assert_true(measured.point[0].time_s == 2e-6);
        assert_true(isfinite(measured.point[0].spread));
        sbp_points_free(&measured);
    }
    sbp_findings_of_times(&record, &findings);
    assert_int_equal(findings.count, 0);
    sbp_sample_file_free(&record);
}

/* Times at the bound of each work count, those below are left out and told by their line. */
static void test_impossible_times_are_left_out(void **state)
{
    (void)state;
    static const struct {
        struct sbp_cell cell;
        double least_s;
    } cases[] = {
        {{.work = SBP_CELL_COLLECTIVE,
          .kind = SBP_ALL_REDUCE,
          .nodes = 2,
          .ranks_per_node = 4,
          .groups = 1,
          .bytes = (int64_t)1 << 32},
         1.75 * 4294967296 / 1e13},
        {{.work = SBP_CELL_COLLECTIVE,
          .kind = SBP_SEND_RECV,
          .nodes = 2,
          .ranks_per_node = 1,
          .groups = 1,
          .bytes = 8},
         1e-9},
        {{.work = SBP_CELL_GEMM, .type = SBP_FP32, .m = 1 << 20, .n = 1 << 20, .k = 1 << 20},
         2 * 1048576.0 * 1048576 * 1048576 / 1e18},
        {{.work = SBP_CELL_COPY, .bytes = (int64_t)1 << 40}, 2 * 1099511627776.0 / 1e15},
        {{.work = SBP_CELL_LAUNCH, .m = 1, .n = 1, .k = 1}, 1e-9},
        {{.work = SBP_CELL_HOST, .m = 1, .n = 1, .k = 1}, 1e-9},
        {{.work = SBP_CELL_LINK, .bytes = (int64_t)1 << 40}, 2 * 1099511627776.0 / 1e15},
        {{.work = SBP_CELL_BESIDE,
          .kind = SBP_ALL_REDUCE,
          .nodes = 2,
          .ranks_per_node = 4,
          .groups = 1,
          .bytes = (int64_t)1 << 32},
         1.75 * 4294967296 / 1e13},
        {{.work = SBP_CELL_BESIDE,
          .kind = SBP_ALL_REDUCE,
          .nodes = 2,
          .ranks_per_node = 4,
          .groups = 1,
          .bytes = (int64_t)1 << 32,
          .m = 1 << 20,
          .n = 1 << 20,
          .k = 1 << 20},
         1e-9},
        {{.work = SBP_CELL_GROUPED, .m = 1 << 20, .n = 1 << 10, .k = 1 << 10, .experts = 1 << 20},
         2 * 1152921504606846976.0 / 1e18},
        {{.work = SBP_CELL_STREAM, .bytes = (int64_t)1 << 40}, 3 * 1099511627776.0 / 1e15},
        {{.work = SBP_CELL_GELU, .bytes = (int64_t)1 << 40}, 2 * 1099511627776.0 / 1e15},
        {{.work = SBP_CELL_ROWS, .bytes = (int64_t)1 << 40, .row_bytes = 1 << 20},
         2 * 1099511627776.0 / 1e15},
        {{.work = SBP_CELL_ATTENTION,
          .attention = {SBP_FP32, SBP_PASS_FORWARD, 1 << 20, 1 << 20, 1 << 10, 1 << 10}},
         1099511627776.0 * 1048577 / 2 * (4 * 1048576.0 + 6) / 1e18},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int is_short = 0; is_short < 2; is_short++) {
            struct sbp_text text = {0};
            struct sbp_measured measured;
            struct sbp_sample_runs runs;
            struct sbp_compute_times times;
            struct sbp_sample_findings findings = {0};
            const double time_s = (is_short ? 0.99 : 1.01) * cases[i].least_s;
            const struct sbp_result result = {
                .cell = cases[i].cell, .count = 1, .time_s = &time_s, .slowest_rank = -1};
            sample_text_session(&text, false);
            sbp_sample_file_result_line(&result, &text);
            struct sbp_record record = sample_text_parse(&text);
            assert_int_equal(sbp_points(&record, SBP_OF_MEDIANS, &measured, &runs, NULL), SBP_OK);
            sbp_points_compute(&record, &runs, &times);
            const int counted =
                measured.count + times.gemm_count + times.samples[0].count + times.attention_count +
                (times.stream_s > 0 ? 1 : 0) + times.grouped_count + (times.launch_s > 0 ? 1 : 0) +
                (times.gelu_s > 0 ? 1 : 0) + times.rows_count + (times.host_s > 0 ? 1 : 0) +
                (times.link_s > 0 ? 1 : 0) + times.beside_count;
            if (counted != !is_short)
                fail_msg("case %zu: %d points of %.9g s", i, counted, time_s);
            sbp_findings_of_times(&record, &findings);
            assert_int_equal(findings.count, is_short);
            if (is_short && strstr(findings.line[0], "s.jsonl: line 2: ") == NULL)
                fail_msg("%s", findings.line[0]);
            sbp_points_free(&measured);
            sbp_sample_file_free(&record);
        }
}

/* Two runs that differ are told, and both kept; the third tells which is bad. */
static void test_two_runs_cannot_tell(void **state)
{
    (void)state;
    static const struct {
        int runs;
        double slowdown, time_s;
        const char *part; /* of the only finding; NULL: there is none */
    } cases[] = {{2, 1, 1e-5, NULL},
                 {2, 1.6, 1.3e-5, "run 2 took 1.60 times as long as another"},
                 {3, 1.6, 1e-5, "run 2 was slow as a whole"}};
    for (int i = 0; i < 3; i++) {
        struct sbp_text text = {0};
        struct sbp_measured measured;
        struct sbp_sample_runs runs;
        struct sbp_sample_findings findings = {0};
        sample_text_session(&text, false);
        for (int run = 0; run < cases[i].runs; run++)
            sample_text_result(&text, run, &sample_text_reduce,
                               run == 1 ? cases[i].slowdown * 1e-5 : 1e-5);
        struct sbp_record record = sample_text_parse(&text);
        assert_int_equal(sbp_points(&record, SBP_OF_MEDIANS, &measured, &runs, NULL), SBP_OK);
        sbp_findings_of_runs(&runs, &findings);
        assert_int_equal(findings.count, cases[i].part != NULL);
        if (cases[i].part != NULL)
            assert_non_null(strstr(findings.line[0], cases[i].part));
        assert_true(fabs(measured.point[0].time_s / cases[i].time_s - 1) < 1e-9);
        sbp_points_free(&measured);
        sbp_sample_file_free(&record);
    }
}

/* A resumed session goes on with its runs, a merged one counts by itself. */
static void test_sessions_of_a_chain_count_together(void **state)
{
    (void)state;
    struct sbp_text text = {0};
    sample_text_session(&text, false);
    sample_text_result(&text, 0, &sample_text_reduce, 9e-4);
    sbp_sample_file_end_line(true, 1, &text);
    sample_text_session(&text, false);
    sample_text_result(&text, 0, &sample_text_reduce, 1e-4);
    sample_text_session(&text, true);
    sample_text_result(&text, 1, &sample_text_reduce, 3e-4);
    struct sbp_record record = sample_text_parse(&text);
    assert_int_equal(record.session[1].chain, 1);
    assert_int_equal(record.session[2].chain, 1);
    struct sbp_measured measured;
    struct sbp_sample_runs runs;
    assert_int_equal(sbp_points(&record, SBP_OF_MEDIANS, &measured, &runs, NULL), SBP_OK);
    assert_int_equal(measured.count, 2);
    assert_int_equal(measured.source_count, 2);
    assert_true(fabs(measured.point[0].time_s - 9e-4) < 1e-12);
    assert_true(fabs(measured.point[1].time_s - 2e-4) < 1e-12);
    assert_int_equal(measured.point[1].source, 1);
    assert_false(runs.run[1].bad || runs.run[2].bad); /* two cannot tell */
    sbp_points_free(&measured);
    sbp_sample_file_free(&record);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_read_back),
        cmocka_unit_test(test_torn_lines_are_dropped),
        cmocka_unit_test(test_wrong_lines_are_refused),
        cmocka_unit_test(test_holes_are_refused),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_points_are_medians_of_good_runs),
        cmocka_unit_test(test_points_are_least_repeats),
        cmocka_unit_test(test_coarse_clocks),
        cmocka_unit_test(test_impossible_times_are_left_out),
        cmocka_unit_test(test_two_runs_cannot_tell),
        cmocka_unit_test(test_sessions_of_a_chain_count_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
