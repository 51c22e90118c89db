/* The module of executor/device/device.h, linked in: a run on the stand-in loads nothing, but may
 * be told that it cannot. */
#include <stddef.h>

#include "executor/comm/comm.h"
#include "tests/support/gpu_double/gpu_double.h"

extern const struct sbp_device_module sbp_device_module;
extern const struct sbp_comm_module sbp_comm_module __attribute__((weak)); /* where NCCL is */

const struct sbp_device_ops *sbp_device_load_cuda(struct sbp_diag *diag)
{
    if (!double_fails("dlopen"))
        return sbp_device_module.ops;
    (void)sbp_fail(diag, SBP_E_UNSUPPORTED, "device cuda: cannot be loaded: no libcublas.so.13");
    return NULL;
}

enum sbp_status sbp_comm_nccl_run(sbp_rank_main main, void *argument, struct sbp_diag *diag)
{
    return &sbp_comm_module != NULL
               ? sbp_comm_module.run(main, argument, diag)
               : sbp_fail(diag, SBP_E_UNSUPPORTED, "backend nccl: no headers of NCCL");
}
