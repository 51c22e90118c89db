/* The `cpu` device: host memory, kernels on OpenBLAS that are done when they return. */
#include <string.h>

#include "base/clock.h"
#include "executor/device/device.h"

static enum sbp_status cpu_finish(void)
{
    return SBP_OK;
}

static const struct sbp_device_ops cpu_ops = {
    .name = "cpu",
    .memory = &sbp_device_host_memory,
    .finish = cpu_finish,
    .compute_s = sbp_thread_cpu_s,
    .kernels = sbp_kernels_cpu,
};

const struct sbp_device_ops *sbp_device(const char *name, struct sbp_diag *diag)
{
    if (strcmp(name, "cpu") == 0)
        return &cpu_ops;
    if (strcmp(name, "cuda") == 0)
        (void)sbp_fail(diag, SBP_E_UNSUPPORTED, "device cuda: not in this build, which has cpu");
    else
        (void)sbp_fail(diag, SBP_E_USAGE, "device %s: unknown, legal are cpu and cuda", name);
    return NULL;
}
