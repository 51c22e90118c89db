/* Ranks of the `nccl` backend that are threads: sbp_nccl_run, compiled with nccl_host_run for its
 * sbp_mpi_run, makes the calling thread a rank of the endpoint that it was given.
 */
#ifndef SBP_TESTS_RANKS_NCCL_HOST_H
#define SBP_TESTS_RANKS_NCCL_HOST_H

#include "executor/comm/comm.h"

/* The calling thread's endpoint of the host, from now on; until then its process is a rank of MPI.
 */
void nccl_host_is(struct sbp_endpoint host);

/* As sbp_mpi_run. */
enum sbp_status nccl_host_run(sbp_rank_main main, void *argument, struct sbp_diag *diag);

#endif
