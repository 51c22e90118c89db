/* Loads the module of NCCL. */
#include "base/module.h"
#include "executor/comm/comm.h"

enum sbp_status sbp_comm_nccl_run(sbp_rank_main main, void *argument, struct sbp_diag *diag)
{
    static const struct sbp_module module = {.what = "backend nccl",
                                             .file = "sbplan-cuda.so",
                                             .folder = SBP_MODULE_FOLDER,
                                             .symbol = "sbp_comm_module"};
    const void *found;
    SBP_TRY(sbp_module_load(&module, &found, diag));
    return ((const struct sbp_comm_module *)found)->run(main, argument, diag);
}
