/* Calibrates GPUs: ranks over NCCL and compute on CUDA, in a module of its own.
 *
 * The program loads the module only when it is asked for, since starting with NCCL and cuBLAS costs
 * 90 ms and 220 MiB a process, on machines without a GPU, too. executor/gpu/gpu.h holds its parts.
 */
#ifndef SBP_CALIB_MEASURE_GPU_H
#define SBP_CALIB_MEASURE_GPU_H

#include "calib/measure/compute.h"
#include "executor/comm/comm.h"

struct sbp_gpu {
    const char *version; /* it was built with; must be the program's own */
    enum sbp_status (*run)(sbp_rank_main main, void *argument, struct sbp_diag *diag); /* nccl */
    const struct sbp_compute_ops *compute;
};

/* The only symbol of the module. */
extern const struct sbp_gpu sbp_gpu;
extern const struct sbp_compute_ops sbp_compute_cuda;

/* *gpu lives as long as the process. E_UNSUPPORTED: not in this build, or a library that it needs
 * is not on this machine. */
enum sbp_status sbp_gpu_load(const struct sbp_gpu **gpu, struct sbp_diag *diag) SBP_MUST_USE;

#endif
