/* Device backends: where a rank's memory lives and which kernels run on it (cpu; cuda slots in). */
#ifndef SBP_EXECUTOR_DEVICE_DEVICE_H
#define SBP_EXECUTOR_DEVICE_DEVICE_H

#include <stdint.h>

#include "base/status.h"
#include "executor/device/memory.h"
#include "kernels/kernels.h"

struct sbp_device_ops {
    const char *name;
    const struct sbp_memory_ops *memory;
    /* Waits for all kernels that were issued. */
    enum sbp_status (*finish)(void);
    /* Seconds this rank has spent computing: thread CPU time on cpu (wall time means little when
     * ranks share cores), event time on a GPU. */
    double (*compute_s)(void);
    const struct sbp_kernels *(*kernels)(enum sbp_real real);
};

/* "cpu", "cuda"; NULL with a text that says what this build has. */
const struct sbp_device_ops *sbp_device(const char *name, struct sbp_diag *diag);

#endif
