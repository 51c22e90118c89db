/* For ranks of a virtual cluster, loaded before their libraries (LD_PRELOAD): a rank that waits in
 * MPI sleeps for a moment instead of yielding its core.
 *
 * Hosts of a virtual cluster share the cores of one machine. A rank that waits asks again and again
 * (mpi_yield_when_idle), and what it takes of the cores by that is missing where other ranks
 * compute, or move data; on hosts of their own it would be missing nowhere. With eight ranks on two
 * cores steps took four times as long without.
 */
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <time.h>

#define MOMENT_NS 50000 /* eight ranks that all wait leave a core free */
#define SLACK_NS  1000  /* the system's own is 50 us */

__attribute__((constructor)) static void sleep_on_time(void)
{
    (void)prctl(PR_SET_TIMERSLACK, (unsigned long)SLACK_NS, 0UL, 0UL, 0UL);
}

int sched_yield(void)
{
    const struct timespec moment = {.tv_nsec = MOMENT_NS};
    (void)nanosleep(&moment, NULL);
    return 0;
}
