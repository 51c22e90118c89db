/* Timelines: what is written, to the byte, and how times are rounded. */
#include "base/file.h"
#include "base/json/trace.h"
#include "tests/support/text_file.h"

/* Writes the trace and reads the file back; the caller frees the text. */
static char *written(struct sbp_trace *trace)
{
    const struct text_file file = text_file_make("");
    struct sbp_diag diag = {{0}};
    char *text;
    size_t length;
    assert_int_equal(sbp_trace_write(trace, file.path, &diag), SBP_OK);
    assert_null(trace->text.bytes);
    assert_int_equal(sbp_file_read(file.path, &text, &length, &diag), SBP_OK);
    text_file_remove(&file);
    return text;
}

static void test_events(void **state)
{
    (void)state;
    struct sbp_trace trace = {0};
    const struct sbp_trace_detail details[] = {{"compute_s", 0.25}, {"bytes", 1e12}};
    sbp_trace_process(&trace, 3, "stage \"0\"\\\n");
    sbp_trace_lane(&trace, 3, 2, "send");
    sbp_trace_interval(&trace, 3, 2, "forward [1]", 0.5, 1.25, details, 2);
    sbp_trace_interval(&trace, 3, 2, "nothing", 2, 2, NULL, 0);
    sbp_trace_counter(&trace, 3, "memory", "bytes", 1e-6, (int64_t)1 << 53);
    char *text = written(&trace);
    assert_string_equal(
        text, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
              "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":3,\"tid\":0,\"args\":"
              "{\"name\":\"stage \\\"0\\\"\\\\\\u000a\"}},\n"
              "{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":3,\"tid\":0,\"args\":"
              "{\"sort_index\":3}},\n"
              "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":3,\"tid\":2,\"args\":{\"name\":"
              "\"send\"}},\n"
              "{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":3,\"tid\":2,\"args\":"
              "{\"sort_index\":2}},\n"
              "{\"name\":\"forward [1]\",\"ph\":\"X\",\"pid\":3,\"tid\":2,\"ts\":500000.000,"
              "\"dur\":750000.000,\"args\":{\"compute_s\":0.25,\"bytes\":1e+12}},\n"
              "{\"name\":\"nothing\",\"ph\":\"X\",\"pid\":3,\"tid\":2,\"ts\":2000000.000,"
              "\"dur\":0.000},\n"
              "{\"name\":\"memory\",\"ph\":\"C\",\"pid\":3,\"tid\":0,\"ts\":1.000,\"args\":"
              "{\"bytes\":9007199254740992}}\n]}\n");
    free(text);
}

static void test_empty(void **state)
{
    (void)state;
    struct sbp_trace trace = {0};
    char *text = written(&trace);
    assert_string_equal(text, "{\"traceEvents\":[]}\n");
    free(text);
}

/* Intervals that meet still do in nanoseconds, whatever is rounded: the end of one is the begin of
 * the next, not the sum of two rounded numbers. */
static void test_rounding(void **state)
{
    (void)state;
    enum { INTERVALS = 1000 };
    struct sbp_trace trace = {0};
    const double length_s = 1.0 / 3e7; /* 33.3 ns */
    for (int i = 0; i < INTERVALS; i++)
        sbp_trace_interval(&trace, 1, 1, "x", i * length_s, (i + 1) * length_s, NULL, 0);
    char *text = written(&trace);
    double end_us = 0;
    int found = 0;
    for (const char *at = text; (at = strstr(at, "\"ts\":")) != NULL; at++, found++) {
        const double begin_us = strtod(at + strlen("\"ts\":"), NULL);
        assert_true(begin_us - end_us < 1e-4 && end_us - begin_us < 1e-4);
        end_us = begin_us + strtod(strstr(at, "\"dur\":") + strlen("\"dur\":"), NULL);
    }
    assert_int_equal(found, INTERVALS);
    free(text);
}

static void test_refused(void **state)
{
    (void)state;
    struct sbp_trace trace = {0};
    struct sbp_diag diag = {{0}};
    sbp_trace_process(&trace, 1, "p");
    assert_int_equal(sbp_trace_write(&trace, "/none/trace.json", &diag), SBP_E_IO);
    assert_non_null(strstr(diag.text, "/none/trace.json"));
    trace = (struct sbp_trace){.text = {.failed = true}};
    assert_int_equal(sbp_trace_write(&trace, "/dev/null", &diag), SBP_E_MEMORY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
