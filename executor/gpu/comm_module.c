/* The communication that the module gives to the program that loads it. */
#include "executor/gpu/gpu.h"

extern const struct sbp_comm_module sbp_comm_module;
__attribute__((visibility("default")))
const struct sbp_comm_module sbp_comm_module = {.version = SBP_VERSION, .run = sbp_nccl_run};
