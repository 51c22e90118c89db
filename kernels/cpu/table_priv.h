/* What the two compilations of the CPU kernels give to the dispatcher. */
#ifndef SBP_KERNELS_CPU_TABLE_PRIV_H
#define SBP_KERNELS_CPU_TABLE_PRIV_H

#include "kernels/kernels.h"

extern const struct sbp_kernels sbp_cpu_f32_table, sbp_cpu_f64_table;

void sbp_cpu_f32_gemm(void *y, const void *a, const void *b, int64_t m, int64_t n, int64_t k);
void sbp_cpu_f64_gemm(void *y, const void *a, const void *b, int64_t m, int64_t n, int64_t k);

#endif
