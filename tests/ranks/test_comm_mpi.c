/* The mpi backend, under mpirun. Without arguments: all checks, and MPI's own calls as the oracle.
 * `fail` and `abort`: one rank fails while the others wait; the run must end with its reason.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math/random.h"
#include "executor/comm/comm.h"
#include "tests/ranks/comm_checks.h"

/* Pieces of a few bytes never wait. */
#ifdef SBP_MPI_PIECE
#define LONG_WAITS false
#else
#define LONG_WAITS true
#endif

enum { COUNT = 1001, MAX_RANKS = 8, ALL = COUNT * MAX_RANKS };

/* Our result and MPI's, of the same small integers (sums are exact in any order). */
struct pair {
    float input[ALL], ours[ALL], theirs[ALL];
};

static enum sbp_status same(const struct pair *pair, const char *what, int count, int mpi_code,
                            struct sbp_diag *diag)
{
    if (mpi_code != MPI_SUCCESS)
        return sbp_fail(diag, SBP_E_BACKEND, "oracle of %s: code %d", what, mpi_code);
    for (int i = 0; i < count; i++)
        if (pair->ours[i] != pair->theirs[i])
            return sbp_fail(diag, SBP_E_INTERNAL, "%s: element %d is %g, MPI's is %g", what, i,
                            (double)pair->ours[i], (double)pair->theirs[i]);
    return SBP_OK;
}

static enum sbp_status compare_reductions(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                          int group, struct pair *pair, struct sbp_diag *diag)
{
    const MPI_Comm world = MPI_COMM_WORLD;
    memcpy(pair->ours, pair->input, sizeof pair->ours);
    SBP_TRY(ops->all_reduce(comm, group, pair->ours, COUNT, SBP_F32, SBP_SUM));
    int code = MPI_Allreduce(pair->input, pair->theirs, COUNT, MPI_FLOAT, MPI_SUM, world);
    SBP_TRY(same(pair, "all-reduce", COUNT, code, diag));
    memcpy(pair->ours, pair->input, sizeof pair->ours);
    SBP_TRY(ops->all_reduce(comm, group, pair->ours, COUNT, SBP_F32, SBP_MAX));
    code = MPI_Allreduce(pair->input, pair->theirs, COUNT, MPI_FLOAT, MPI_MAX, world);
    SBP_TRY(same(pair, "all-reduce (max)", COUNT, code, diag));
    SBP_TRY(ops->reduce_scatter(comm, group, pair->ours, pair->input, COUNT, SBP_F32));
    code = MPI_Reduce_scatter_block(pair->input, pair->theirs, COUNT, MPI_FLOAT, MPI_SUM, world);
    return same(pair, "reduce-scatter", COUNT, code, diag);
}

static enum sbp_status compare_moves(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                     int group, struct pair *pair, struct sbp_diag *diag)
{
    const MPI_Comm world = MPI_COMM_WORLD;
    const int all = COUNT * ops->size(comm);
    const int root = ops->size(comm) - 1;
    SBP_TRY(ops->all_gather(comm, group, pair->ours, pair->input, COUNT, SBP_F32));
    int code = MPI_Allgather(pair->input, COUNT, MPI_FLOAT, pair->theirs, COUNT, MPI_FLOAT, world);
    SBP_TRY(same(pair, "all-gather", all, code, diag));
    SBP_TRY(ops->all_to_all(comm, group, pair->ours, pair->input, COUNT, SBP_F32));
    code = MPI_Alltoall(pair->input, COUNT, MPI_FLOAT, pair->theirs, COUNT, MPI_FLOAT, world);
    SBP_TRY(same(pair, "all-to-all", all, code, diag));
    memcpy(pair->ours, pair->input, sizeof pair->ours);
    memcpy(pair->theirs, pair->input, sizeof pair->theirs);
    SBP_TRY(ops->broadcast(comm, group, root, pair->ours, COUNT, SBP_F32));
    code = MPI_Bcast(pair->theirs, COUNT, MPI_FLOAT, root, world);
    return same(pair, "broadcast", COUNT, code, diag);
}

static enum sbp_status against_mpi(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                   void *argument, struct sbp_diag *diag)
{
    const struct comm_checks *checks = argument;
    const int size = ops->size(comm);
    int ranks[MAX_RANKS];
    int group;
    if (size > MAX_RANKS)
        return sbp_fail(diag, SBP_E_RANGE, "%d ranks, at most %d", size, (int)MAX_RANKS);
    for (int r = 0; r < size; r++)
        ranks[r] = r;
    SBP_TRY(ops->group(comm, ranks, size, 0, &group));
    struct pair *pair = malloc(sizeof *pair);
    if (pair == NULL)
        return SBP_E_MEMORY;
    for (int i = 0; i < ALL; i++)
        pair->input[i] =
            (float)(sbp_random_bits_at(checks->seed, (uint64_t)ops->rank(comm), (uint64_t)i) %
                    1000);
    enum sbp_status status = compare_reductions(ops, comm, group, pair, diag);
    if (status == SBP_OK)
        status = compare_moves(ops, comm, group, pair, diag);
    free(pair);
    return status;
}

/* A message of another length is an error of the receiver, with MPI's or our own text. */
static enum sbp_status wrong_lengths(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                     void *argument, struct sbp_diag *diag)
{
    char bytes[16] = {0};
    (void)argument;
    if (ops->size(comm) < 2)
        return SBP_OK;
    if (ops->rank(comm) == 1) {
        SBP_TRY(ops->send(comm, 0, 5, bytes, 6));
        SBP_TRY(ops->send(comm, 0, 6, bytes, 4));
    }
    if (ops->rank(comm) == 0) {
        const enum sbp_status longer = ops->receive(comm, 1, 5, bytes, 5);
        const enum sbp_status shorter = ops->receive(comm, 1, 6, bytes, 5);
        if (longer != SBP_E_BACKEND || shorter != SBP_E_BACKEND || ops->reason(comm)[0] == '\0')
            return sbp_fail(diag, SBP_E_INTERNAL, "lengths: %s and %s, expected E_BACKEND",
                            sbp_status_name(longer), sbp_status_name(shorter));
    }
    return ops->barrier(comm);
}

static enum sbp_status one_fails(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                 void *argument, struct sbp_diag *diag)
{
    SBP_TRY(ops->barrier(comm));
    if (ops->rank(comm) != ops->size(comm) - 1)
        return ops->barrier(comm);
    if (strcmp(argument, "abort") == 0)
        ops->abort(comm, "planted failure");
    return sbp_fail(diag, SBP_E_INPUT, "planted failure");
}

static enum sbp_status all_checks(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                  void *argument, struct sbp_diag *diag)
{
    struct comm_checks *checks = argument;
    SBP_TRY(comm_checks_collectives(ops, comm, checks, diag));
    SBP_TRY(against_mpi(ops, comm, checks, diag));
    SBP_TRY(wrong_lengths(ops, comm, checks, diag));
    SBP_TRY(comm_checks_fingerprints(ops, comm, NULL, diag));
    checks->rounds /= 10;
    return comm_checks_messages(ops, comm, checks, diag);
}

/* Twice in one MPI run: the backend leaves alone what it did not start. */
static enum sbp_status run_twice(void)
{
    struct sbp_diag diag = {0};
    int provided;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS)
        return SBP_E_BACKEND;
    for (int run = 0; run < 2; run++) {
        struct comm_checks checks = {.seed = comm_checks_seed() + (uint64_t)run,
                                     .rounds = 150,
                                     .half = true,
                                     .waits = LONG_WAITS};
        SBP_TRY(sbp_mpi_run(all_checks, &checks, &diag));
    }
    return MPI_Finalize() == MPI_SUCCESS ? SBP_OK : SBP_E_BACKEND;
}

int main(int argc, char **argv)
{
    struct sbp_diag diag = {0};
    struct comm_checks checks = {.rounds = 100, .polled = true, .half = true, .waits = LONG_WAITS};
    if (argc > 1 && strcmp(argv[1], "twice") == 0)
        return sbp_status_exit_code(run_twice());
    if (argc > 1)
        return sbp_status_exit_code(sbp_mpi_run(one_fails, argv[1], &diag));
    checks.seed = comm_checks_seed();
    return sbp_status_exit_code(sbp_mpi_run(all_checks, &checks, &diag));
}
