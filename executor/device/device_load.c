/* Loads the module of GPUs. */
#include "executor/device/device.h"

#include <stddef.h>

#include "base/module.h"

const struct sbp_device_ops *sbp_device_load_cuda(struct sbp_diag *diag)
{
    static const struct sbp_module module = {.what = "device cuda",
                                             .file = "sbplan-cuda.so",
                                             .folder = SBP_MODULE_FOLDER,
                                             .symbol = "sbp_device_module"};
    const void *found;
    return sbp_module_load(&module, &found, diag) == SBP_OK
               ? ((const struct sbp_device_module *)found)->ops
               : NULL;
}
