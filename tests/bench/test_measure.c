/* The measuring of programs, on programs whose end, output, time and memory are known. */
#include <signal.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "tests/bench/measure.h"
#include "tests/support/unit.h"

static struct measured run(const char *script, double limit_s)
{
    const char *const words[] = {"/bin/sh", "-c", script, NULL};
    struct measured measured;
    struct sbp_diag diag = {{0}};
    assert_int_equal(measure_run(words, limit_s, &measured, &diag), SBP_OK);
    return measured;
}

static void test_ends(void **state)
{
    char text[MEASURE_END_BYTES];
    (void)state;
    struct measured done = run("echo '{\"a\": 5}'; echo warning >&2; exit 3", 10);
    assert_int_equal(done.exit_code, 3);
    assert_int_equal(done.signal, 0);
    assert_string_equal(done.err.bytes, "warning\n");
    assert_int_equal(cJSON_GetObjectItem(done.answer, "a")->valueint, 5);
    assert_string_equal(measure_end_text(&done, text), "exit 3: warning");
    measure_free(&done);
    struct measured crashed = run("echo '{\"a\": 5} or not'; kill -SEGV $$", 10);
    assert_int_equal(crashed.signal, SIGSEGV);
    assert_int_equal(crashed.exit_code, -1);
    assert_null(crashed.answer);
    measure_free(&crashed);
}

static void test_hangs(void **state)
{
    (void)state;
    /* Also one that no longer prints, and one whose child lives on: a program that is not ended
     * holds up this test until its time limit. */
    static const char *const scripts[] = {"sleep 9999", "exec >&- 2>&-; sleep 9999",
                                          "sleep 9999 & wait"};
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        struct measured hung = run(scripts[i], 0.2);
        assert_true(hung.timed_out);
        assert_int_equal(hung.signal, SIGKILL);
        assert_true(hung.wall_s >= 0.2);
        measure_free(&hung);
    }
}

static void test_uses(void **state)
{
    (void)state;
    struct measured slept = run("sleep 0.3", 10);
    assert_true(slept.wall_s >= 0.3 && slept.cpu_s < slept.wall_s);
    measure_free(&slept);
    /* dd reads into one block of this size. */
    struct measured large = run("exec dd if=/dev/zero of=/dev/null bs=64M count=1 2>&1", 20);
    assert_int_equal(large.exit_code, 0);
    assert_true(large.peak_bytes >= 64 << 20 && large.peak_bytes < 96 << 20);
    measure_free(&large);
}

static void test_missing(void **state)
{
    const char *const words[] = {"/nowhere/program", NULL};
    struct measured measured;
    struct sbp_diag diag = {{0}};
    (void)state;
    assert_int_equal(measure_run(words, 10, &measured, &diag), SBP_OK);
    assert_int_equal(measured.exit_code, 127);
    assert_non_null(strstr(measured.err.bytes, "No such file"));
    measure_free(&measured);
}

/* A program that computes is asked to end by its processor time, not by the clock. */
static void test_share(void **state)
{
    const char *const words[] = {
        "/bin/sh", "-c", "trap 'echo {}; exit 3' TERM; sleep 0.5; while :; do :; done", NULL};
    struct measured measured;
    struct sbp_diag diag = {{0}};
    (void)state;
    assert_int_equal(measure_run_share(words, 0.2, 60, &measured, &diag), SBP_OK);
    assert_int_equal(measured.exit_code, 3);
    assert_false(measured.timed_out);
    assert_true(measured.cpu_s >= 0.2 && measured.cpu_s < 5 && measured.wall_s >= 0.7);
    measure_free(&measured);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ends),  cmocka_unit_test(test_hangs),   cmocka_unit_test(test_uses),
        cmocka_unit_test(test_share), cmocka_unit_test(test_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
