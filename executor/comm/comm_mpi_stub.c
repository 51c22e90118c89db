/* A build without MPI: the backend's entry says so. */
#include "executor/comm/comm.h"

enum sbp_status sbp_mpi_run(sbp_rank_main main, void *argument, struct sbp_diag *diag)
{
    (void)main;
    (void)argument;
    return sbp_fail(diag, SBP_E_UNSUPPORTED,
                    "backend mpi: not in this build, which has threads; configure with "
                    "-Dmpi=enabled");
}
