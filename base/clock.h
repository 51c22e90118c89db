/* Time that passes: two clocks, and a progress line for people who wait. */
#ifndef SBP_BASE_CLOCK_H
#define SBP_BASE_CLOCK_H

#include <stdbool.h>

#include "base/status.h"

/* Monotonic wall clock and this thread's CPU time, seconds. */
double sbp_clock_s(void);
double sbp_thread_cpu_s(void);

/* One line on stderr, rewritten in place, only on a terminal and only after a second. Elsewhere
 * nothing, or whole lines now and then: ranks of a launcher and jobs of a batch system have no
 * terminal. */
struct sbp_progress {
    double start_s, last_s; /* monotonic clock */
    bool shown, terminal;
    double line_interval_s; /* without a terminal: of whole lines; 0 (after start): none */
};
void sbp_progress_start(struct sbp_progress *progress);
/* Whether the next show shows: for what is dear to find out. */
bool sbp_progress_is_due(const struct sbp_progress *progress);
/* Cheap to call often: formats only when 0.1 s passed since the last time. */
void sbp_progress_show(struct sbp_progress *progress, const char *format, ...) SBP_PRINTF(2, 3);
void sbp_progress_end(struct sbp_progress *progress);

#endif
