#include "base/options.h"
#include "planner/launch.h"

#define DEFAULT_RANKS 4

enum { BACKEND_AUTO, BACKEND_THREADS, BACKEND_MPI, BACKEND_NCCL };

enum sbp_status sbp_command_calibrate(const struct sbp_arguments *arguments, struct sbp_diag *diag)
{
    const bool available = sbp_launch_has_mpirun(), rank = sbp_launcher_rank() >= 0;
    const bool mpi = arguments->backend == BACKEND_MPI ||
                     (arguments->backend == BACKEND_AUTO && (available || rank));
    const char *backend = arguments->backend == BACKEND_NCCL ? "nccl" : mpi ? "mpi" : "threads";
    struct sbp_launch launch = {.program = "sbplan-calibrate",
                                .build_folder = "calib",
                                .arguments = arguments,
                                .extra = {"--backend", backend, NULL}};
    if (mpi && !available && !rank)
        return sbp_fail(diag, SBP_E_UNSUPPORTED,
                        "sbplan calibrate: --backend mpi needs mpirun, which is not in $PATH");
    if (mpi && !rank)
        launch.ranks = arguments->ranks > 0 ? arguments->ranks : DEFAULT_RANKS;
    return sbp_launch(&launch, diag);
}
