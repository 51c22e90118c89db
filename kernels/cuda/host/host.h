/* Running kernels on the host, as tests do it (host.hpp says how): orders from a seed, faults as
 * text. Of one thread of the program, unless launches are left to streams. */
#ifndef SBP_KERNELS_CUDA_HOST_HOST_H
#define SBP_KERNELS_CUDA_HOST_HOST_H

#include <stddef.h>
#include <stdint.h>

/* Leaves launches to streams: enqueue has work(argument), which frees argument, called later, in
 * the stream's order, by any thread but by one at a time, and returns 0 or a code that becomes the
 * context's error. NULL, at first: a launch is over when its caller goes on. */
typedef int (*sbp_gpu_host_enqueue)(void *stream, void (*work)(void *argument), void *argument);
void sbp_gpu_host_streams(sbp_gpu_host_enqueue enqueue);
/* Other memory than this is out of kernels' reach, beside their own; NULL, at first: none is. */
void sbp_gpu_host_reach(const void *first, size_t bytes);
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
