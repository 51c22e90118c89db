/* A build without NCCL: the backend's entry says so. */
#include "executor/comm.h"

enum sbp_status sbp_nccl_run(sbp_rank_main main, void *argument, struct sbp_diag *diag)
{
    (void)main;
    (void)argument;
    return sbp_fail(diag, SBP_E_UNSUPPORTED,
                    "backend nccl: not in this build; there are threads and mpi");
}
