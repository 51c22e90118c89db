#include "base/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define PROGRESS_DELAY_S    1.0
#define PROGRESS_INTERVAL_S 0.1
#define PROGRESS_BYTES      80 /* one line of a narrow terminal */

static double read_clock(clockid_t clock)
{
    struct timespec now;
    if (clock_gettime(clock, &now) != 0)
        return 0;
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double sbp_clock_s(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

double sbp_thread_cpu_s(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

void sbp_progress_start(struct sbp_progress *progress)
{
    const double now_s = sbp_clock_s();
    *progress = (struct sbp_progress){
        .start_s = now_s, .last_s = now_s, .terminal = isatty(STDERR_FILENO) == 1};
}

bool sbp_progress_is_due(const struct sbp_progress *progress)
{
    const double now_s = sbp_clock_s();
    if (!progress->terminal)
        return progress->line_interval_s > 0 &&
               now_s - progress->last_s >= progress->line_interval_s;
    return now_s - progress->start_s >= PROGRESS_DELAY_S &&
           now_s - progress->last_s >= PROGRESS_INTERVAL_S;
}

void sbp_progress_show(struct sbp_progress *progress, const char *format, ...)
{
    if (!sbp_progress_is_due(progress))
        return;
    char line[PROGRESS_BYTES];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (length < 0)
        return;
    /* Back to the first column, the line, and the rest of the older line erased (ECMA-48 EL). */
    (void)fprintf(stderr, progress->terminal ? "\r%s\033[K" : "%s\n", line);
    (void)fflush(stderr);
    progress->last_s = sbp_clock_s();
    progress->shown = progress->terminal;
}

void sbp_progress_end(struct sbp_progress *progress)
{
    if (progress->shown) {
        (void)fputs("\r\033[K", stderr);
        (void)fflush(stderr);
    }
    progress->shown = false;
}
