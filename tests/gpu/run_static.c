/* The module of executor/device/device.h, linked in: a run on the stand-in loads nothing, but may
 * be told that it cannot. */
#include <stddef.h>

#include "executor/device/device.h"
#include "tests/support/gpu_double/gpu_double.h"

extern const struct sbp_device_module sbp_device_module;

const struct sbp_device_ops *sbp_device_load_cuda(struct sbp_diag *diag)
{
    if (!double_fails("dlopen"))
        return sbp_device_module.ops;
    (void)sbp_fail(diag, SBP_E_UNSUPPORTED, "device cuda: cannot be loaded: no libcublas.so.13");
    return NULL;
}
