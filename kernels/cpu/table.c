/* One element type's operator table, and its plain matrix product for calibration. */
#include "kernels/cpu/cpu_priv.h"
#include "kernels/cpu/gemm_priv.h"

#define CPU_ENTRY(name) .name = CPU(name),
const struct sbp_kernels CPU(table) = {.name = CPU_NAME,
                                       .real = CPU_REAL,
                                       .real_bytes = sizeof(stored),
                                       .wide_bytes = sizeof(real),
                                       CPU_OPERATORS(CPU_ENTRY)};

#if !STORES_HALF
void CPU(gemm)(void *y, struct sbp_gemm_factor a, struct sbp_gemm_factor b, int64_t m, int64_t n,
               int64_t k)
{
    cpu_gemm(y, n, a.transposed ? cpu_transposed(a.at, m) : cpu_plain(a.at, k),
             b.transposed ? cpu_transposed(b.at, k) : cpu_plain(b.at, n), m, n, k, 1, 0);
}
#endif
