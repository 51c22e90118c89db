/* The module of calib/measure/gpu.h, linked in: a calibration on the stand-in loads nothing, but
 * may be told that it cannot. */
#include "calib/measure/gpu.h"
#include "tests/support/gpu_double/gpu_double.h"

enum sbp_status sbp_gpu_load(const struct sbp_gpu **gpu, struct sbp_diag *diag)
{
    *gpu = NULL;
    if (double_fails("dlopen"))
        return sbp_fail(diag, SBP_E_UNSUPPORTED, "backend nccl: cannot be loaded: no libnccl.so.2");
    *gpu = &sbp_gpu;
    return SBP_OK;
}
