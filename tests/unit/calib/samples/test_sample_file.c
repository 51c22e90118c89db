/* Files of samples: what is written reads back, what is torn is dropped, what is wrong is refused
 * by line; points, bad runs, slow ranks and links out of them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "calib/samples/findings.h"
#include "calib/logs/log.h"
#include "calib/samples/points.h"
#include "calib/samples/sample_file.h"
#include "calib/samples/sweep.h"
#include "tests/support/unit.h"

static const struct sbp_cell reduce = {.work = SBP_CELL_COLLECTIVE,
                                       .kind = SBP_ALL_REDUCE,
                                       .nodes = 2,
                                       .ranks_per_node = 4,
                                       .groups = 1,
                                       .bytes = 1 << 20};

static struct sbp_calibration_origin make_origin(void)
{
    return (struct sbp_calibration_origin){.name = "a-8",
                                           .host = "a",
                                           .library = "Open MPI v4",
                                           .backend = "mpi",
                                           .settings = "NCCL_ALGO=Ring\nUCX_TLS=rc,\"x\"",
                                           .version = "1",
                                           .command = "c \\ \"d\"",
                                           .ranks = 8,
                                           .hosts = 2,
                                           .ranks_per_host = 4,
                                           .least_ranks_per_host = 4,
                                           .cores = 8,
                                           .max_bytes = 1 << 20,
                                           .runs = 3,
                                           .seed = 5};
}

/* The line of a session whose rank r lies on host n(first + r / ranks_per_host). */
static void add_session_of(struct sbp_text *text, const struct sbp_calibration_origin *origin,
                           bool resumes, int first)
{
    char host[8][SBP_HOST_NAME];
    struct sbp_rank_placement placement;
    for (int r = 0; r < origin->ranks; r++)
        (void)snprintf(host[r], SBP_HOST_NAME, "n%d", first + r / origin->ranks_per_host);
    assert_int_equal(sbp_placement_of(host, origin->ranks, &placement, NULL), SBP_OK);
    sbp_sample_file_session_line(origin, &placement, resumes, text);
    sbp_placement_free(&placement);
}

static void add_session(struct sbp_text *text, bool resumes)
{
    const struct sbp_calibration_origin origin = make_origin();
    add_session_of(text, &origin, resumes, 0);
}

static void add_result(struct sbp_text *text, int run, const struct sbp_cell *cell, double time_s)
{
    const double times[] = {time_s, 1.01 * time_s, 0.99 * time_s};
    const struct sbp_result result = {.cell = *cell,
                                      .run = run,
                                      .count = 3,
                                      .time_s = times,
                                      .settled = true,
                                      .slowest_rank = -1};
    sbp_sample_file_result_line(&result, text);
}

static struct sbp_record parse(struct sbp_text *text)
{
    struct sbp_record record;
    struct sbp_diag diag = {0};
    assert_false(text->failed);
    if (sbp_sample_file_parse("s.jsonl", text->bytes, text->length, &record, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    sbp_text_free(text);
    return record;
}

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
        {.work = SBP_CELL_SUSTAINED, .type = SBP_BF16, .m = 3, .n = 4, .k = 5},
        {.work = SBP_CELL_STREAM, .bytes = 32 << 20},
        {.work = SBP_CELL_GELU, .bytes = 32 << 20},
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
    add_session(&text, false);
    enum { CELLS = sizeof cells / sizeof *cells };
    for (int i = 0; i < CELLS; i++)
        add_result(&text, i, &cells[i], 1e-5 * (i + 1));
    const struct sbp_sample_pair pairs[] = {{0, 3, 1.5e-5}, {1, 2, 2.5e-5}};
    const struct sbp_result round = {.cell = {.work = SBP_CELL_PAIRS, .round = 6, .bytes = 4096},
                                     .pair_count = 2,
                                     .pair = pairs};
    sbp_sample_file_result_line(&round, &text);
    sbp_sample_file_end_line(true, 12.5, &text);
    struct sbp_record record = parse(&text);
    assert_int_equal(record.session_count, 1);
    assert_int_equal(record.result_count, CELLS + 1);
    const struct sbp_session *session = &record.session[0];
    const struct sbp_calibration_origin origin = make_origin();
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
    add_session(&text, false);
    const size_t head = text.length;
    add_result(&text, 0, &reduce, 1e-4);
    const size_t one = text.length;
    add_result(&text, 1, &reduce, 2e-4);
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
    struct sbp_cell cell = reduce;
    cell.bytes = (int64_t)8 << size;
    return cell;
}

static void test_points_are_medians_of_good_runs(void **state)
{
    (void)state;
    static const double factor[] = {1.0, 1.6, 1.02, 0.98}; /* of each run */
    struct sbp_text text = {0};
    add_session(&text, false);
    for (int run = 0; run < 4; run++)
        for (int size = 0; size < 9; size++) {
            const struct sbp_cell cell = cell_of(size);
            add_result(&text, run, &cell, factor[run] * 1e-5 * (1 << size));
        }
    struct sbp_record record = parse(&text);
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
    add_session(&text, false);
    for (int run = 0; run < 4; run++)
        add_result(&text, run, &reduce, factor[run] * 1e-5);
    sbp_sample_file_end_line(true, 1, &text);
    add_session(&text, false);
    add_result(&text, 0, &reduce, 2e-5);
    struct sbp_cell larger = reduce, crowded = reduce; /* cells of their own */
    larger.bytes *= 2;
    crowded.groups = 2;
    add_result(&text, 0, &larger, 3e-5);
    add_result(&text, 0, &crowded, 4e-5);
    struct sbp_record record = parse(&text);
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
    const struct sbp_result result = {.cell = reduce, .count = 5, .time_s = times};
    add_session(&text, false);
    sbp_sample_file_result_line(&result, &text);
    struct sbp_record record = parse(&text);
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
        {{.work = SBP_CELL_GROUPED, .m = 1 << 20, .n = 1 << 10, .k = 1 << 10, .experts = 1 << 20},
         2 * 1152921504606846976.0 / 1e18},
        {{.work = SBP_CELL_STREAM, .bytes = (int64_t)1 << 40}, 3 * 1099511627776.0 / 1e15},
        {{.work = SBP_CELL_GELU, .bytes = (int64_t)1 << 40}, 2 * 1099511627776.0 / 1e15},
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
            add_session(&text, false);
            sbp_sample_file_result_line(&result, &text);
            struct sbp_record record = parse(&text);
            assert_int_equal(sbp_points(&record, SBP_OF_MEDIANS, &measured, &runs, NULL), SBP_OK);
            sbp_points_compute(&record, &runs, &times);
            const int counted = measured.count + times.gemm_count + times.samples[0].count +
                                times.attention_count + (times.stream_s > 0 ? 1 : 0) +
                                times.grouped_count + (times.launch_s > 0 ? 1 : 0) +
                                (times.gelu_s > 0 ? 1 : 0);
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
        add_session(&text, false);
        for (int run = 0; run < cases[i].runs; run++)
            add_result(&text, run, &reduce, run == 1 ? cases[i].slowdown * 1e-5 : 1e-5);
        struct sbp_record record = parse(&text);
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
    add_session(&text, false);
    add_result(&text, 0, &reduce, 9e-4);
    sbp_sample_file_end_line(true, 1, &text);
    add_session(&text, false);
    add_result(&text, 0, &reduce, 1e-4);
    add_session(&text, true);
    add_result(&text, 1, &reduce, 3e-4);
    struct sbp_record record = parse(&text);
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

/* --- slow ranks, hosts and links --- */

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
    const struct sbp_sweep_options options = {4, 2, 1 << 20, 1, SBP_PRODUCTS_CPU, 0};
    struct sbp_calibration_origin origin = make_origin();
    struct sbp_sample_findings findings = {0};
    struct sbp_text text = {0};
    origin.hosts = 4;
    origin.ranks_per_host = origin.least_ranks_per_host = 2;
    add_session_of(&text, &origin, false, 0);
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
    struct sbp_record record = parse(&text);
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
        struct sbp_calibration_origin origin = make_origin();
        origin.hosts = 1;
        origin.ranks = 4;
        (void)snprintf(origin.settings, sizeof origin.settings, "NCCL_ALGO=Ring");
        add_session_of(&text, &origin, false, 0);
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
        add_session_of(&text, &origin, true, cases[i].host);
        add_result(&text, 0, &reduce, 1e-4);
        if (i < 3)
            sbp_sample_file_end_line(true, 1, &text);
        struct sbp_record record = parse(&text);
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
        struct sbp_calibration_origin origin = make_origin();
        origin.nominal_bytes_per_s = i == 0 ? 0 : 2.0 * (1 << 30);
        (void)snprintf(origin.nominal_from, sizeof origin.nominal_from, "eth0");
        /* Longer ones of another calibration, within a host, and of another collective. */
        struct sbp_cell other = reduce;
        other.kind = SBP_SEND_RECV;
        other.bytes = 64 << 20;
        add_session_of(&text, &origin, false, 0);
        add_result(&text, 0, &other, 1e-3);
        add_session_of(&text, &origin, false, 0);
        other.nodes = 1;
        add_result(&text, 0, &other, 1e-3);
        other = reduce;
        other.bytes = 64 << 20;
        add_result(&text, 0, &other, 1e-3);
        const int64_t largest = i == 2 ? 32 << 10 : 16 << 20; /* latency decides short ones */
        for (int64_t bytes = 1 << 10; bytes <= largest; bytes *= 2) {
            struct sbp_cell cell = reduce;
            cell.kind = SBP_SEND_RECV;
            cell.bytes = bytes;
            add_result(&text, 0, &cell, 1e-4 + (double)bytes / (1 << 30));
            cell.groups = 4; /* of several at a time each has less */
            add_result(&text, 0, &cell, 1e-4 + 4 * (double)bytes / (1 << 30));
        }
        struct sbp_record record = parse(&text);
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
        add_session(&text, false);
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
        struct sbp_record record = parse(&text);
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
        cmocka_unit_test(test_what_is_slow_is_named),
        cmocka_unit_test(test_slow_compute_is_named),
        cmocka_unit_test(test_sessions_that_differ_are_told),
        cmocka_unit_test(test_network_over_nominal),
        cmocka_unit_test(test_more_findings_than_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
