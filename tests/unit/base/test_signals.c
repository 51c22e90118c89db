/* Signals that stop a program: all are caught alike, the next one ends it, and a file that is being
 * replaced is whole before one does. */
#include <sys/wait.h>
#include <unistd.h>

#include "base/signals.h"
#include "tests/support/unit.h"

static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
static atomic_int got;

static void on_signal(int number)
{
    got = number;
    sbp_signals_restore();
}

/* How a child ends that runs `body`; what the body returns is its exit status. */
static int ended(int (*body)(int), int argument)
{
    const pid_t child = fork();
    int status = -1;
    assert_true(child >= 0);
    for (int i = 0; child == 0 && i < 3; i++)
        (void)signal(numbers[i], SIG_DFL);
    if (child == 0)
        _exit(body(argument));
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int catch_one(int number)
{
    if (sbp_signals_catch(on_signal, NULL) != SBP_OK || raise(number) != 0)
        return 1;
    return got == number ? 0 : 2;
}

static int catch_then_interrupt(int number)
{
    const int status = catch_one(number);
    (void)raise(SIGTERM); /* of whatever kind the first was */
    return status == 0 ? 3 : status;
}

static int ignore_hangup(int number)
{
    if (signal(SIGHUP, SIG_IGN) == SIG_ERR || sbp_signals_catch(on_signal, NULL) != SBP_OK)
        return 1;
    (void)raise(number);
    sbp_signals_restore();
    (void)raise(number);
    return got == 0 ? 0 : 2;
}

static int hold(int number)
{
    sigset_t before;
    sbp_signals_hold(&before);
    (void)raise(number);
    got = number;
    sbp_signals_release(&before);
    return got == number ? 3 : 4;
}

static void test_all_signals_stop_alike(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ended(catch_one, numbers[i]), 0);
        assert_int_equal(ended(catch_then_interrupt, numbers[i]), 128 + SIGTERM);
        assert_int_equal(ended(hold, numbers[i]), 128 + numbers[i]);
        assert_int_equal(sbp_status_exit_code(sbp_signals_status(numbers[i])), 128 + numbers[i]);
    }
    assert_string_equal(sbp_signals_name(SIGTERM), "SIGTERM");
    assert_string_equal(sbp_signals_name(SIGUSR2), "signal");
}

static void test_nohup_stays(void **state)
{
    (void)state;
    assert_int_equal(ended(ignore_hangup, SIGHUP), 0);
}

/* What sbp_signals_report writes. */
static void assert_report(struct sbp_done progress, const char *expected)
{
    char text[256] = "";
    int ends[2];
    const int before = dup(STDERR_FILENO);
    assert_int_equal(pipe(ends), 0);
    assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
    sbp_signals_report("program", &progress, "steps are finished");
    assert_true(dup2(before, STDERR_FILENO) >= 0);
    assert_true(read(ends[0], text, sizeof text - 1) > 0);
    assert_string_equal(text, expected);
    (void)close(before);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

static void test_report(void **state)
{
    (void)state;
    assert_report((struct sbp_done){.done = 0, .total = 0}, "program: interrupted: nothing is finished\n");
    assert_report((struct sbp_done){.done = 0, .total = 7}, "program: interrupted: 0 of 7 steps are finished\n");
    assert_report((struct sbp_done){.done = 2147483647, .total = 2147483647},
                  "program: interrupted: 2147483647 of 2147483647 steps are finished\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_signals_stop_alike),
        cmocka_unit_test(test_nohup_stays),
        cmocka_unit_test(test_report),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
