/* Tables: alignment, UTF-8, lines of a narrow terminal, a table without rows, failures of output.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/table.h"
#include "tests/support/unit.h"

static void assert_prints(const struct sbp_table *table, int indent, const char *expected)
{
    char *bytes = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&bytes, &length);
    assert_non_null(out);
    assert_int_equal(sbp_table_print(table, out, indent), SBP_OK);
    assert_int_equal(fclose(out), 0);
    assert_string_equal(bytes, expected);
    free(bytes);
}

static void test_table(void **state)
{
    (void)state;
    static const char *const titles[] = {"layer", "time", "share", "roles"};
    struct sbp_table table;
    sbp_table_init(&table, 4, titles);
    sbp_table_cell(&table, "%s", "qkv");
    sbp_table_cell(&table, "%.1f ms", 12.25);
    sbp_table_cell(&table, "%d%%", 7);
    sbp_table_cell(&table, "4 x 8");
    sbp_table_cell(&table, "%s", "caf\xc3\xa9");
    sbp_table_cell(&table, "%s", "-");
    sbp_table_cell(&table, "%s", "100%");
    sbp_table_cell(&table, "%s", "batch");
    assert_prints(&table, 2,
                  "  layer     time  share  roles\n"
                  "  -----  -------  -----  -----\n"
                  "  qkv    12.2 ms     7%  4 x 8\n"
                  "  caf\xc3\xa9         -   100%  batch\n");
    sbp_table_free(&table);
    sbp_table_free(NULL);
}

static void test_cells_are_one_line(void **state)
{
    (void)state;
    static const char *const titles[] = {"name", "n"};
    struct sbp_table table;
    sbp_table_init(&table, 2, titles);
    sbp_table_cell(&table, "%s", "a\033[1m\nb");
    sbp_table_cell(&table, "%d", 7);
    assert_prints(&table, 0, "name           n\n-------------  -\na\\x1b[1m\\x0ab  7\n");
    sbp_table_free(&table);
}

/* A head widens no column and leaves numbers right-aligned. */
static void test_heads(void **state)
{
    (void)state;
    static const char *const titles[] = {"#", "ms"};
    struct sbp_table table;
    sbp_table_init(&table, 2, titles);
    for (int i = 0; i < 4; i++) {
        if (i % 2 == 0)
            sbp_table_head(&table, i == 0 ? "the first layout" : "another\n");
        sbp_table_cell(&table, "%d", 7 + i);
        sbp_table_cell(&table, "%d", 1000 >> 3 * i);
    }
    assert_prints(&table, 1,
                  "  #    ms\n --  ----\n the first layout\n  7  1000\n  8   125\n"
                  "\n another\\x0a\n  9    15\n 10     1\n");
    sbp_table_free(&table);
}

/* Words go on below, the widest column gives way first; numbers and words stay whole. */
static void test_narrow(void **state)
{
    (void)state;
    static const char *const titles[] = {"layer", "memory", "plan (layers)",
                                         "differs from the best"};
    struct sbp_table table;
    sbp_table_init(&table, 4, titles);
    sbp_table_head(&table,
                   "TP 4 (4 to 16) sequence-parallel, PP 2 x 12 interleaved, DP 4, CP 2, EP 1, "
                   "ZeRO 1: 26.76 ms");
    sbp_table_cell(&table, "caf\xc3\xa9");
    sbp_table_cell(&table, "3.99 GiB");
    sbp_table_cell(&table, "pipeline 2 x 12 interleaved, micro-batch 4, ZeRO 0-1");
    sbp_table_cell(&table, "recompute none -> attention, block0.up column 8 -> column 8 x row 2");
    static const char expected[] =
        "layer    memory  plan (layers)                   differs from the best\n"
        "-----  --------  ------------------------------  -------------------------------\n"
        "TP 4 (4 to 16) sequence-parallel, PP 2 x 12 interleaved, DP 4, CP 2, EP 1, ZeRO\n"
        "  1: 26.76 ms\n"
        "caf\xc3\xa9   3.99 GiB  pipeline 2 x 12 interleaved,    recompute none -> attention,\n"
        "                 micro-batch 4, ZeRO 0-1         block0.up column 8 -> column 8\n"
        "                                                 x row 2\n";
    assert_int_equal(setenv("COLUMNS", "80", 1), 0);
    assert_prints(&table, 0, expected);
    assert_int_equal(setenv("COLUMNS", "12", 1), 0);
    assert_prints(&table, 0, expected);
    assert_int_equal(unsetenv("COLUMNS"), 0);
    sbp_table_free(&table);
}

/* Words that have no room go beyond the line. */
static void test_too_narrow(void **state)
{
    (void)state;
    enum { COLUMNS = 4, LONG = 30 };
    static const char *const titles[COLUMNS] = {"a", "b", "c", "d"};
    struct sbp_table table;
    sbp_table_init(&table, COLUMNS, titles);
    for (int i = 0; i < COLUMNS; i++)
        sbp_table_cell(&table, "%0*d_ x", LONG, i);
    assert_int_equal(setenv("COLUMNS", "80", 1), 0);
    char *bytes = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&bytes, &length);
    assert_non_null(out);
    assert_int_equal(sbp_table_print(&table, out, 0), SBP_OK);
    assert_int_equal(fclose(out), 0);
    char word[LONG + 2];
    for (int i = 0; i < COLUMNS; i++) {
        (void)snprintf(word, sizeof word, "%0*d_", LONG, i);
        assert_non_null(strstr(bytes, word));
    }
    free(bytes);
    assert_int_equal(unsetenv("COLUMNS"), 0);
    sbp_table_free(&table);
}

static void test_table_without_rows(void **state)
{
    (void)state;
    static const char *const titles[] = {"a", "name"};
    struct sbp_table table;
    sbp_table_init(&table, 2, titles);
    assert_prints(&table, 0, "a  name\n-  ----\n");
    sbp_table_free(&table);
}

static void test_table_failures(void **state)
{
    (void)state;
    static const char *const titles[] = {"a"};
    struct sbp_table table;
    sbp_table_init(&table, 1, titles);
    FILE *full = fopen("/dev/full", "w");
    if (full != NULL) {
        assert_int_equal(setvbuf(full, NULL, _IONBF, 0), 0);
        assert_int_equal(sbp_table_print(&table, full, 0), SBP_E_IO);
        (void)fclose(full);
    }
    table.cells.failed = true;
    assert_int_equal(sbp_table_print(&table, stderr, 0), SBP_E_MEMORY);
    sbp_table_free(&table);
}

/* Rows that come one by one, in columns that were chosen before. */
static void test_flow(void **state)
{
    (void)state;
    static const char *const titles[] = {"step", "time", "wide title"};
    static const int widths[] = {6, 5, 0};
    char *bytes = NULL;
    size_t length = 0;
    struct sbp_table table;
    FILE *out = open_memstream(&bytes, &length);
    assert_non_null(out);
    sbp_table_init(&table, 3, titles);
    assert_int_equal(sbp_table_flow(&table, widths, out), SBP_OK);
    assert_string_equal(bytes, "step     time  wide title\n------  -----  ----------\n");
    const char *const cells[] = {"1", "2 ms", "-", "2", "1234.5 ms", "x"};
    size_t before = length;
    for (int i = 0; i < 6; i++) {
        sbp_table_cell(&table, "%s", cells[i]);
        if (i % 3 == 2) { /* each row is there as soon as it is printed */
            assert_int_equal(sbp_table_flow(&table, widths, out), SBP_OK);
            assert_string_equal(bytes + before, i == 2 ? "1        2 ms           -\n"
                                                       : "2       1234.5 ms           x\n");
            before = length;
        }
    }
    assert_int_equal(sbp_table_flow(&table, widths, out), SBP_OK);
    assert_int_equal(length, before);
    sbp_table_free(&table);
    assert_int_equal(fclose(out), 0);
    free(bytes);
    FILE *full = fopen("/dev/full", "w");
    sbp_table_init(&table, 3, titles);
    assert_non_null(full);
    assert_int_equal(sbp_table_flow(&table, widths, full), SBP_E_IO);
    (void)fclose(full); /* it is full */
    sbp_table_free(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),          cmocka_unit_test(test_cells_are_one_line),
        cmocka_unit_test(test_heads),          cmocka_unit_test(test_table_without_rows),
        cmocka_unit_test(test_table_failures), cmocka_unit_test(test_flow),
        cmocka_unit_test(test_narrow),         cmocka_unit_test(test_too_narrow),
    };
    (void)unsetenv("COLUMNS");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
