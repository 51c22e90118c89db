/* Functions of cpu.c for the operators, and the tables of all element types for cpu.c.
 *
 * Kernels that need global indices ask for one index a run and count from there, so that the digit
 * rule (base/math/digits.h) is evaluated once a run instead of once an element.
 */
#ifndef SBP_KERNELS_CPU_CPU_PRIV_H
#define SBP_KERNELS_CPU_CPU_PRIV_H

#include "kernels/kernels.h"

extern const struct sbp_kernels sbp_cpu_f32_table, sbp_cpu_f64_table, sbp_cpu_bf16_table,
    sbp_cpu_fp16_table;

void sbp_cpu_f32_gemm(void *y, struct sbp_gemm_factor a, struct sbp_gemm_factor b, int64_t m,
                      int64_t n, int64_t k);
void sbp_cpu_f64_gemm(void *y, struct sbp_gemm_factor a, struct sbp_gemm_factor b, int64_t m,
                      int64_t n, int64_t k);

/* Local indices k * run .. k * run + run - 1 have consecutive global indices, for every k; the run
 * divides the local size. */
int64_t sbp_cpu_digits_run(const struct sbp_digits *digits);
int64_t sbp_cpu_region_run(const struct sbp_region *region);

/* mask(n) of dropout (1 = kept), of elements from the global index `first` on; key: sbp_random_key
 * of seed and stream. */
void sbp_cpu_decide_dropout(uint8_t *mask, int64_t n, double p, uint64_t key, uint64_t first);

#endif
