/* Running kernels on the host, as tests do it (host.hpp says how): orders from a seed, faults as
 * text. Of one thread of the program. */
#ifndef SBP_KERNELS_CUDA_HOST_HOST_H
#define SBP_KERNELS_CUDA_HOST_HOST_H

#include <stdint.h>

/* Draws the orders of the launches that follow. */
void sbp_gpu_host_seed(uint64_t seed);
/* Runs body(argument) and returns what the first fault says, until the next call, or NULL. Without
 * it a fault ends the program. */
const char *sbp_gpu_host_try(void (*body)(void *argument), void *argument);
/* Counts over all launches. */
struct sbp_gpu_host_counts {
    int64_t launches, threads, switches, barriers;
};
struct sbp_gpu_host_counts sbp_gpu_host_counts(void);

#endif
