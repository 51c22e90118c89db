/* Stands for the module in a build without CUDA, NCCL or MPI. */
#include "executor/comm/comm.h"

enum sbp_status sbp_comm_nccl_run(sbp_rank_main main, void *argument, struct sbp_diag *diag)
{
    (void)main, (void)argument;
    return sbp_fail(diag, SBP_E_UNSUPPORTED,
                    "backend nccl: not in this build, legal are threads and mpi: configure with "
                    "-Dcuda=enabled -Dnccl=enabled, which need nvcc, CUDA, cuBLAS, NCCL and MPI");
}
