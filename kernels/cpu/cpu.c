/* The parts of the CPU kernels that are the same for all element types: the choice of a table, the
 * number of BLAS threads, the lengths of runs, and masks of dropout. */
#include <cblas.h>
#include <math.h>

#include "base/math/lanes.h"
#include "base/math/simd.h"
#include "kernels/cpu/cpu_priv.h"

/* A rank has one core: a product that BLAS spread over more would take those of other ranks. */
static void keep_to_one_thread(void)
{
    if (openblas_get_num_threads() != 1)
        openblas_set_num_threads(1);
}

const struct sbp_kernels *sbp_kernels_cpu(enum sbp_real real)
{
    static const struct sbp_kernels *const tables[SBP_REALS] = {
        [SBP_F32] = &sbp_cpu_f32_table,
        [SBP_F64] = &sbp_cpu_f64_table,
        [SBP_REAL_BF16] = &sbp_cpu_bf16_table,
        [SBP_REAL_FP16] = &sbp_cpu_fp16_table,
    };
    keep_to_one_thread();
    return tables[real];
}

void sbp_kernels_cpu_gemm(enum sbp_real real, void *y, struct sbp_gemm_factor a,
                          struct sbp_gemm_factor b, int64_t m, int64_t n, int64_t k)
{
    keep_to_one_thread();
    (real == SBP_F64 ? sbp_cpu_f64_gemm : sbp_cpu_f32_gemm)(y, a, b, m, n, k);
}

int64_t sbp_cpu_digits_run(const struct sbp_digits *digits)
{
    int64_t run = digits->rest;
    for (int i = digits->count - 1; i >= 0; i--) {
        if (digits->size[i] == 1)
            continue;
        if (digits->fixed[i] >= 0)
            break;
        run *= digits->size[i];
    }
    return run;
}

int64_t sbp_cpu_region_run(const struct sbp_region *region)
{
    int64_t run = 1;
    for (int i = SBP_MAX_DIMS - 1; i >= 0; i--) {
        const int64_t dim_run = sbp_cpu_digits_run(&region->dim[i]);
        run *= dim_run;
        if (dim_run != sbp_digits_global_size(&region->dim[i]))
            break;
    }
    return run;
}

/* The uniform number of an element's upper 53 bits is at or over p where the bits are at or over
 * p 2^53. */
SBP_SIMD_WIDE
void sbp_cpu_decide_dropout(uint8_t *restrict mask, int64_t n, double p, uint64_t key,
                            uint64_t first)
{
    const int64_t least = (int64_t)ceil(p * 0x1p53);
    for (int64_t i = 0; i < n; i++)
        mask[i] = (int64_t)(sbp_lanes_bits(key, first + (uint64_t)i) >> 11) >= least;
}
