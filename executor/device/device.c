#include "executor/device/device.h"

#include <string.h>

enum sbp_status sbp_device_find(const char *name, const struct sbp_device_ops **device,
                                struct sbp_diag *diag)
{
    *device = NULL;
    if (strcmp(name, "cpu") == 0)
        *device = &sbp_device_cpu;
    else if (strcmp(name, "cuda") == 0)
        *device = sbp_device_load_cuda(diag);
    else
        return sbp_fail(diag, SBP_E_USAGE, "device %s: unknown, legal are cpu and cuda", name);
    return *device != NULL ? SBP_OK : SBP_E_UNSUPPORTED;
}

const struct sbp_device_ops *sbp_device(const char *name, struct sbp_diag *diag)
{
    const struct sbp_device_ops *device;
    return sbp_device_find(name, &device, diag) == SBP_OK ? device : NULL;
}
