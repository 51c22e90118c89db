/* Running kernels on the host, as tests do it (host.hpp says how): orders from a seed, faults as
 * text. Of one thread of the program, unless launches are left to streams. */
#ifndef SBP_KERNELS_CUDA_HOST_HOST_H
#define SBP_KERNELS_CUDA_HOST_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Leaves launches to streams: enqueue has work(argument), which frees argument, called later, in
 * the stream's order, by any thread but by one at a time, and returns 0 or a code that becomes the
 * context's error. NULL, at first: a launch is over when its caller goes on. */
typedef int (*sbp_gpu_host_enqueue)(void *stream, void (*work)(void *argument), void *argument);
void sbp_gpu_host_streams(sbp_gpu_host_enqueue enqueue);
/* Other memory than this is out of kernels' reach, beside their own; NULL, at first: none is. */
void sbp_gpu_host_reach(const void *first, size_t bytes);
/* Numbers the next launch, its stream in the upper half; is_behind says whether the one that runs
 * comes behind another for certain (NULL, at first: launches follow each other), so that an access
 * of two of which neither waits for the other is a fault. */
void sbp_gpu_host_number(uint64_t launch);
void sbp_gpu_host_orders(bool (*is_behind)(uint64_t before));
/* The same for what no kernel does, as a copy does (`what` stays); NULL: no fault, or a text as of
 * sbp_gpu_host_try. Memory that is given back is forgotten, or who gets it next would be blamed. */
const char *sbp_gpu_host_touch(uint64_t launch, const void *first, size_t bytes, bool writes,
                               const char *what);
void sbp_gpu_host_forget(const void *first, size_t bytes);
/* Draws the orders of the launches that follow. */
void sbp_gpu_host_seed(uint64_t seed);
/* Runs body(argument) and returns what the first fault says, until the next call, or NULL. Without
 * it a fault ends the program. */
const char *sbp_gpu_host_try(void (*body)(void *argument), void *argument);
/* Counts over all launches; wide: accesses of 16 bytes to memory that is not shared. */
struct sbp_gpu_host_counts {
    int64_t launches, threads, switches, barriers, wide;
};
struct sbp_gpu_host_counts sbp_gpu_host_counts(void);

#endif
