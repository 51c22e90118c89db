#include "executor/device/device.h"

#include <string.h>

/* A GPU where this host has one, and the program what it needs for it. */
static const struct sbp_device_ops *choose(void)
{
    const struct sbp_device_ops *cuda = sbp_device_load_cuda(NULL);
    return cuda != NULL && cuda->count() > 0 ? cuda : &sbp_device_cpu;
}

enum sbp_status sbp_device_find(const char *name, const struct sbp_device_ops **device,
                                struct sbp_diag *diag)
{
    *device = NULL;
    if (strcmp(name, "cpu") == 0)
        *device = &sbp_device_cpu;
    else if (strcmp(name, "cuda") == 0)
        *device = sbp_device_load_cuda(diag);
    else if (strcmp(name, "auto") == 0)
        *device = choose();
    else
        return sbp_fail(diag, SBP_E_USAGE, "device %s: unknown, legal are auto, cpu and cuda",
                        name);
    return *device != NULL ? SBP_OK : SBP_E_UNSUPPORTED;
}

const struct sbp_device_ops *sbp_device(const char *name, struct sbp_diag *diag)
{
    const struct sbp_device_ops *device;
    return sbp_device_find(name, &device, diag) == SBP_OK ? device : NULL;
}
