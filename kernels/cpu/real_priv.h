/* The element type of one compilation of the CPU kernels.
 *
 * Every file with operators is compiled twice, with SBP_REAL_F64 = 0 (float) and 1
 * (double). CPU(name) is the operator's symbol in this compilation, `real` its element type. Sums
 * over long runs are kept in double in both, in LANES parts: one chain of additions would wait on
 * itself, and a compiler may not split it.
 */
#ifndef SBP_KERNELS_CPU_REAL_PRIV_H
#define SBP_KERNELS_CPU_REAL_PRIV_H

#include <math.h>

#include "base/math/lanes.h"
#include "base/math/simd.h"
#include "kernels/kernels.h"

#ifndef SBP_REAL_F64
#define SBP_REAL_F64 0
#endif

#if SBP_REAL_F64
typedef double real;
#define CPU(name) sbp_cpu_f64_##name
#define BLAS_GEMM cblas_dgemm
#define real_exp  sbp_lanes_exp_f64
#define real_log  log
#define real_sqrt sqrt
#define real_fabs fabs
#define CPU_NAME  "cpu-f64"
#define CPU_REAL  SBP_F64
#else
typedef float real;
#define CPU(name) sbp_cpu_f32_##name
#define BLAS_GEMM cblas_sgemm
#define real_exp  sbp_lanes_exp_f32
#define real_log  logf
#define real_sqrt sqrtf
#define real_fabs fabsf
#define CPU_NAME  "cpu-f32"
#define CPU_REAL  SBP_F32
#endif

/* Every function pointer of struct sbp_kernels. */
#define CPU_OPERATORS(X)                                                                           \
    X(linear_forward)                                                                              \
    X(linear_backward_input)                                                                       \
    X(linear_backward_weight)                                                                      \
    X(linear_transposed_forward)                                                                   \
    X(linear_transposed_backward_input)                                                            \
    X(linear_transposed_backward_weight)                                                           \
    X(relu_forward)                                                                                \
    X(relu_backward)                                                                               \
    X(gelu_forward)                                                                                \
    X(gelu_backward)                                                                               \
    X(add)                                                                                         \
    X(scale)                                                                                       \
    X(absolute)                                                                                    \
    X(zero)                                                                                        \
    X(dropout_forward)                                                                             \
    X(dropout_backward)                                                                            \
    X(layernorm_sums)                                                                              \
    X(layernorm_forward)                                                                           \
    X(layernorm_backward_sums)                                                                     \
    X(layernorm_backward)                                                                          \
    X(embedding_forward)                                                                           \
    X(embedding_backward)                                                                          \
    X(attention_forward)                                                                           \
    X(attention_backward)                                                                          \
    X(cross_entropy_maxima)                                                                        \
    X(cross_entropy_sums)                                                                          \
    X(cross_entropy_loss)                                                                          \
    X(cross_entropy_backward)                                                                      \
    X(sum_squares)                                                                                 \
    X(update)                                                                                      \
    X(permute)                                                                                     \
    X(fill_normal)

enum { LANES = 16 };

/* The sum of LANES parts and of what they left out. */
static inline double lane_sum(const double *lane, double rest)
{
    for (int j = 0; j < LANES; j++)
        rest += lane[j];
    return rest;
}

/* Each operator is declared with the type that the table gives it. */
#define CPU_DECLARE(name) __typeof__(*((const struct sbp_kernels *)0)->name) CPU(name);
CPU_OPERATORS(CPU_DECLARE)
#undef CPU_DECLARE

#endif
