/* The table that the module gives to the program that loads it. */
#include "calib/measure/gpu.h"

#include "executor/gpu/gpu.h"

__attribute__((visibility("default"))) const struct sbp_gpu sbp_gpu = {
    .version = SBP_VERSION,
    .run = sbp_nccl_run,
    .compute = &sbp_compute_cuda,
};
