/* Stands for the module in a build without CUDA, NCCL or MPI. */
#include "calib/measure/gpu.h"

enum sbp_status sbp_gpu_load(const struct sbp_gpu **gpu, struct sbp_diag *diag)
{
    *gpu = NULL;
    return sbp_fail(diag, SBP_E_UNSUPPORTED,
                    "backend nccl: not in this build, legal are threads and mpi: configure with "
                    "-Dnccl=enabled, which needs MPI, CUDA, cuBLAS and NCCL");
}
