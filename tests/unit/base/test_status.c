/* Status codes: the table, exit codes, and the rule that the first cause stays. */
#include <string.h>

#include "base/status.h"
#include "tests/support/unit.h"

static void test_names_and_texts(void **state)
{
    (void)state;
    assert_string_equal(sbp_status_name(SBP_OK), "OK");
    assert_string_equal(sbp_status_name(SBP_E_INPUT), "E_INPUT");
    assert_string_equal(sbp_status_text(SBP_E_MEMORY), "out of memory");
    assert_string_equal(sbp_status_name((enum sbp_status)99), "UNKNOWN");
    assert_string_equal(sbp_status_text((enum sbp_status) - 99), "unknown status");
}

static void test_codes_and_exit_codes(void **state)
{
    (void)state;
    static const struct {
        enum sbp_status status;
        int code, exit_code;
    } rows[] = {
        {SBP_OK, 0, 0},
        {SBP_NO, 1, 1},
        {SBP_STOPPED, 2, 0},
        {SBP_E_USAGE, -1, 2},
        {SBP_E_INPUT, -2, 2},
        {SBP_E_RANGE, -3, 2},
        {SBP_E_MEMORY, -4, 2},
        {SBP_E_IO, -5, 2},
        {SBP_E_UNSUPPORTED, -6, 2},
        {SBP_E_BACKEND, -7, 2},
        {SBP_E_PEER, -8, 2},
        {SBP_E_INTERNAL, -9, 2},
        {SBP_E_SIGNAL, -128, 128},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal((int)rows[i].status, rows[i].code);
        assert_int_equal(sbp_status_exit_code(rows[i].status), rows[i].exit_code);
    }
}

static void test_fail_keeps_the_first_cause(void **state)
{
    (void)state;
    struct sbp_diag diag = {0};
    assert_int_equal(sbp_fail(&diag, SBP_E_IO, "%s: %d", "first", 1), SBP_E_IO);
    assert_int_equal(sbp_fail(&diag, SBP_E_PEER, "second"), SBP_E_PEER);
    assert_string_equal(diag.text, "first: 1");
    assert_int_equal(sbp_fail(NULL, SBP_E_USAGE, "nobody reads this"), SBP_E_USAGE);
}

static void test_fail_cuts_long_messages(void **state)
{
    (void)state;
    struct sbp_diag diag = {0};
    assert_int_equal(sbp_fail(&diag, SBP_E_INPUT, "%5000d", 7), SBP_E_INPUT);
    assert_int_equal(strlen(diag.text), sizeof diag.text - 1);
}

static void test_fail_shows_control_characters(void **state)
{
    (void)state;
    struct sbp_diag diag = {0};
    assert_int_equal(sbp_fail(&diag, SBP_E_IO, "%s: gone", "a\033[2J\nb"), SBP_E_IO);
    assert_string_equal(diag.text, "a\\x1b[2J\\x0ab: gone");
    struct sbp_diag again = {0}, full = {0};
    assert_int_equal(sbp_fail(&again, SBP_E_IO, "%s", diag.text), SBP_E_IO);
    assert_string_equal(again.text, diag.text);
    char controls[2 * sizeof diag.text] = "";
    memset(controls, '\a', sizeof controls - 1);
    assert_int_equal(sbp_fail(&full, SBP_E_IO, "%s", controls), SBP_E_IO);
    assert_int_equal(strlen(full.text), sizeof full.text - 1);
}

static enum sbp_status try_twice(enum sbp_status first, int *reached)
{
    SBP_TRY(first);
    *reached = 1;
    return SBP_OK;
}

static void test_try_forwards_all_but_success(void **state)
{
    (void)state;
    int reached = 0;
    assert_int_equal(try_twice(SBP_NO, &reached), SBP_NO);
    assert_int_equal(try_twice(SBP_E_PEER, &reached), SBP_E_PEER);
    assert_int_equal(reached, 0);
    assert_int_equal(try_twice(SBP_OK, &reached), SBP_OK);
    assert_int_equal(reached, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_and_texts),
        cmocka_unit_test(test_codes_and_exit_codes),
        cmocka_unit_test(test_fail_keeps_the_first_cause),
        cmocka_unit_test(test_fail_cuts_long_messages),
        cmocka_unit_test(test_fail_shows_control_characters),
        cmocka_unit_test(test_try_forwards_all_but_success),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
