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
#include <time.h>

int sched_yield(void)
{
    const struct timespec moment = {.tv_nsec = 20000};
    (void)nanosleep(&moment, NULL);
    return 0;
}
