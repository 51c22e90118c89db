#include "executor/device/device.h"

#include <string.h>

const struct sbp_device_ops *sbp_device(const char *name, struct sbp_diag *diag)
{
    if (strcmp(name, "cpu") == 0)
        return &sbp_device_cpu;
    if (strcmp(name, "cuda") == 0)
        return sbp_device_load_cuda(diag);
    (void)sbp_fail(diag, SBP_E_USAGE, "device %s: unknown, legal are cpu and cuda", name);
    return NULL;
}
