#include "executor/run/pace.h"

#include <time.h>

#include "base/clock.h"

/* Shorter rests wait for the next task: a sleep takes tens of microseconds itself. */
#define SHORTEST_S 1e-4

double sbp_pace_rest(struct sbp_pace *pace, double compute_s, double spent_s)
{
    if (!(pace->slowdown > 1))
        return 0;
    pace->ahead_s += pace->slowdown * compute_s - spent_s;
    if (pace->ahead_s < SHORTEST_S)
        return 0;
    const double start_s = sbp_clock_s();
    const struct timespec rest = {
        .tv_sec = (time_t)pace->ahead_s,
        .tv_nsec = (long)((pace->ahead_s - (double)(time_t)pace->ahead_s) * 1e9)};
    (void)nanosleep(&rest, NULL); /* a signal that ends it early leaves the rank ahead */
    const double rested_s = sbp_clock_s() - start_s;
    pace->ahead_s -= rested_s;
    return rested_s;
}
