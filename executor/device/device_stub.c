/* Stands for the module in a build without CUDA. */
#include "executor/device/device.h"

#include <stddef.h>

const struct sbp_device_ops *sbp_device_load_cuda(struct sbp_diag *diag)
{
    (void)sbp_fail(diag, SBP_E_UNSUPPORTED,
                   "device cuda: not in this build, legal is cpu: configure with -Dcuda=enabled, "
                   "which needs nvcc, CUDA and cuBLAS");
    return NULL;
}
