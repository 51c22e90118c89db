/* Makes one rank slow, for the tests: loaded before the MPI library (LD_PRELOAD), it lets the rank
 * that SLOW_RANK names wait SLOW_US microseconds before each message that it sends. */
#include <mpi.h>
#include <stdlib.h>
#include <time.h>

static void wait_if_slow(void)
{
    const char *slow = getenv("SLOW_RANK"), *us = getenv("SLOW_US");
    int rank = -1;
    if (slow == NULL || us == NULL || PMPI_Comm_rank(MPI_COMM_WORLD, &rank) != MPI_SUCCESS ||
        rank != atoi(slow))
        return;
    const struct timespec pause = {.tv_nsec = atol(us) * 1000};
    (void)nanosleep(&pause, NULL);
}

int MPI_Isend(const void *buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    wait_if_slow();
    return PMPI_Isend(buffer, count, type, to, tag, comm, request);
}
