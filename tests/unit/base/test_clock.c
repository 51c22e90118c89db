/* Clocks move; the progress line shows itself to a terminal alone, and not too often. */
#include "base/clock.h"
#include "tests/support/unit.h"

static void test_clocks_and_progress(void **state)
{
    (void)state;
    const double wall_s = sbp_clock_s(), cpu_s = sbp_thread_cpu_s();
    while (sbp_clock_s() <= wall_s || sbp_thread_cpu_s() <= cpu_s) /* both move while it works */
        ;
    struct sbp_progress progress;
    sbp_progress_start(&progress);
    progress.terminal = true;
    progress.start_s += 1000; /* too early to show anything */
    sbp_progress_show(&progress, "%d %%", 50);
    assert_false(progress.shown);
    sbp_progress_end(&progress);
}

/* The line itself, with the waiting time set back. */
static void test_progress_line(void **state)
{
    (void)state;
    struct sbp_progress progress;
    sbp_progress_start(&progress);
    progress.terminal = false;
    progress.start_s -= 2;
    progress.last_s -= 2;
    sbp_progress_show(&progress, "not on a pipe");
    assert_false(progress.shown);
    progress.terminal = true;
    sbp_progress_show(&progress, "%0200d", 1); /* longer than a line */
    assert_true(progress.shown);
    const double last_s = progress.last_s;
    sbp_progress_show(&progress, "too soon");
    assert_true(progress.last_s == last_s || progress.last_s - last_s >= 0.1);
    sbp_progress_end(&progress);
    assert_false(progress.shown);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clocks_and_progress),
        cmocka_unit_test(test_progress_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
