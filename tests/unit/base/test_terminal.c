/* Widths of lines: by $COLUMNS, by a terminal, by neither. */
#include <fcntl.h>
#include <pty.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/terminal.h"
#include "tests/support/unit.h"

static void test_columns_given(void **state)
{
    (void)state;
    static const struct {
        const char *given;
        int columns;
    } cases[] = {{"120", 120},
                 {"80", 80},
                 {"7", 80},
                 {"0", 0},
                 {"-5", 0},
                 {"", 0},
                 {"wide", 0},
                 {"99x", 0},
                 {"9999999999", 2147483647},
                 {"99999999999999999999", 0}};
    FILE *file = tmpfile();
    assert_non_null(file);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(setenv("COLUMNS", cases[i].given, 1), 0);
        assert_int_equal(sbp_terminal_columns(file), cases[i].columns);
    }
    assert_int_equal(unsetenv("COLUMNS"), 0);
    assert_int_equal(sbp_terminal_columns(file), 0);
    assert_int_equal(fclose(file), 0);
}

static void test_terminal(void **state)
{
    (void)state;
    static const int widths[][2] = {{0, 0}, {40, 80}, {132, 132}};
    assert_int_equal(unsetenv("COLUMNS"), 0);
    for (int i = 0; i < 3; i++) {
        const struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)widths[i][0]};
        int host, terminal;
        if (openpty(&host, &terminal, NULL, NULL, &size) != 0)
            skip(); /* no terminals here */
        FILE *out = fdopen(terminal, "w");
        assert_non_null(out);
        assert_int_equal(sbp_terminal_columns(out), widths[i][1]);
        assert_int_equal(fclose(out), 0);
        assert_int_equal(close(host), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_columns_given),
        cmocka_unit_test(test_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
