/* Loads the module of calib/measure/gpu.h. */
#include "calib/measure/gpu.h"

#include "base/module.h"

enum sbp_status sbp_gpu_load(const struct sbp_gpu **gpu, struct sbp_diag *diag)
{
    static const struct sbp_module module = {.what = "backend nccl",
                                             .file = "sbplan-nccl.so",
                                             .folder = SBP_MODULE_FOLDER,
                                             .symbol = "sbp_gpu"};
    const void *found;
    *gpu = NULL;
    SBP_TRY(sbp_module_load(&module, &found, diag));
    *gpu = found;
    return SBP_OK;
}
