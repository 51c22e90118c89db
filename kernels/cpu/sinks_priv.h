/* Sinks of grouped attention: a score of each head that no key has. It joins the sum of the
 * softmax, so that probabilities add up to less than 1, and has no value. */
#ifndef SBP_KERNELS_CPU_SINKS_PRIV_H
#define SBP_KERNELS_CPU_SINKS_PRIV_H

#include "kernels/cpu/attention_priv.h"
#include "kernels/cpu/real_priv.h"

/* Returns the sink of head `index` (batch-major), -infinity where there is none. */
real CPU(sink_of)(const struct cpu_attention *attention, int64_t index);
/* The gradients of all heads' sinks, where there are some, by y, its gradient, and the log-sum-exps
 * that forward left: a sink has a share p of each query's softmax and gets -p sum_d dy y. */
void CPU(sink_gradients)(const struct cpu_attention *attention, const void *dy, const void *y,
                         const void *log_sums);

#endif
