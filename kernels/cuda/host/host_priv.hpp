/* What the scheduler (host.cpp) and the finder of races (race.cpp) know of each other. */
#ifndef SBP_KERNELS_CUDA_HOST_HOST_PRIV_HPP
#define SBP_KERNELS_CUDA_HOST_HOST_PRIV_HPP

#include "kernels/cuda/host/host.hpp"

namespace gpu_host {
/* When something happens: accesses at two of these are ordered, or not. Launches and blocks are
 * counted over the whole program. */
struct moment {
    uint64_t launch, block;
    uint32_t barriers, warp_barriers; /* that the thread has passed in its block */
    int thread;
};

/* The running fiber's; false: no kernel runs. */
bool now(moment *moment);

/* own: a fiber's stack, or what its kernel was launched with; elsewhere: out of kernels' reach. */
enum class memory { own, shared, beyond_shared, global, elsewhere };
memory memory_of(const void *address, size_t bytes);

/* Ends the launch, from within a fiber or from the scheduler. */
[[noreturn]] void fault_here(const char *text);

/* "FILE:LINE", and the lines into which it is inlined, of an instruction after a call. */
void describe(char *text, size_t size, const void *return_address);
} // namespace gpu_host

#endif
