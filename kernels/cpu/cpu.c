/* Picks the CPU table of an element type. */
#include <cblas.h>

#include "kernels/cpu/table_priv.h"

const struct sbp_kernels *sbp_kernels_cpu(enum sbp_real real)
{
    return real == SBP_F64 ? &sbp_cpu_f64_table : &sbp_cpu_f32_table;
}

void sbp_kernels_cpu_gemm(enum sbp_real real, void *y, const void *a, const void *b, int64_t m,
                          int64_t n, int64_t k)
{
    (real == SBP_F64 ? sbp_cpu_f64_gemm : sbp_cpu_f32_gemm)(y, a, b, m, n, k);
}

void sbp_kernels_cpu_setup(void)
{
    openblas_set_num_threads(1);
}
