/* The element types of one compilation of the CPU kernels.
 *
 * Every file with operators is compiled once for each type that tensors are stored in: float,
 * double, and the 16 bits of bfloat16 and half precision (SBP_STORED says which). CPU(name) is the
 * operator's symbol in this compilation, `stored` the element type of tensors. `real` is the type
 * that kernels compute in, in which statistics and optimizer states are stored as well: float where
 * `stored` has 16 bits, else `stored` itself. load() and store() are the way from one to the other;
 * store() rounds to nearest. A kernel loads, accumulates in `real` or in double, and stores each
 * result once. What it converts in between lies in tiles of fixed sizes on the stack, as a GPU's
 * kernels have them in registers and shared memory: a plan's bytes hold for both.
 * Sums over long runs are kept in double in all of them, in LANES parts: one chain of additions
 * would wait on itself, and a compiler may not split it.
 */
#ifndef SBP_KERNELS_CPU_REAL_PRIV_H
#define SBP_KERNELS_CPU_REAL_PRIV_H

#include <math.h>

#include "base/math/half.h"
#include "base/math/lanes.h"
#include "base/math/simd.h"
#include "kernels/kernels.h"

#define STORED_F32  0
#define STORED_F64  1
#define STORED_BF16 2
#define STORED_FP16 3
#ifndef SBP_STORED
#define SBP_STORED STORED_F32
#endif
#define STORES_HALF (SBP_STORED == STORED_BF16 || SBP_STORED == STORED_FP16)

#if SBP_STORED == STORED_F64
typedef double real;
#define BLAS_GEMM cblas_dgemm
#define real_exp  sbp_lanes_exp_f64
#define real_log  log
#define real_sqrt sqrt
#define real_fabs fabs
#define real_tanh tanh
#else
typedef float real;
#define BLAS_GEMM cblas_sgemm
#define real_exp  sbp_lanes_exp_f32
#define real_log  logf
#define real_sqrt sqrtf
#define real_fabs fabsf
#define real_tanh tanhf
#endif

#if SBP_STORED == STORED_F32
typedef real stored;
#define CPU(name) sbp_cpu_f32_##name
#define CPU_NAME  "cpu-f32"
#define CPU_REAL  SBP_F32
#elif SBP_STORED == STORED_F64
typedef real stored;
#define CPU(name) sbp_cpu_f64_##name
#define CPU_NAME  "cpu-f64"
#define CPU_REAL  SBP_F64
#elif SBP_STORED == STORED_BF16
typedef uint16_t stored;
#define CPU(name) sbp_cpu_bf16_##name
#define CPU_NAME  "cpu-bf16"
#define CPU_REAL  SBP_REAL_BF16
#else
typedef uint16_t stored;
#define CPU(name) sbp_cpu_fp16_##name
#define CPU_NAME  "cpu-f16"
#define CPU_REAL  SBP_REAL_FP16
#endif

static inline real load(stored x)
{
#if SBP_STORED == STORED_BF16
    return sbp_half_from_bf16(x);
#elif SBP_STORED == STORED_FP16
    return sbp_half_from_fp16(x);
#else
    return x;
#endif
}

static inline stored store(real x)
{
#if SBP_STORED == STORED_BF16
    return sbp_half_to_bf16(x);
#elif SBP_STORED == STORED_FP16
    return sbp_half_to_fp16(x);
#else
    return x;
#endif
}

/* Every function pointer of struct sbp_kernels. */
#define CPU_OPERATORS(X)                                                                           \
    X(linear_forward)                                                                              \
    X(linear_add)                                                                                  \
    X(linear_backward_input)                                                                       \
    X(linear_backward_weight)                                                                      \
    X(linear_transposed_forward)                                                                   \
    X(linear_transposed_backward_input)                                                            \
    X(linear_transposed_backward_weight)                                                           \
    X(relu_forward)                                                                                \
    X(relu_backward)                                                                               \
    X(gelu_forward)                                                                                \
    X(gelu_backward)                                                                               \
    X(tanh_forward)                                                                                \
    X(tanh_backward)                                                                               \
    X(swiglu_forward)                                                                              \
    X(swiglu_backward)                                                                             \
    X(add)                                                                                         \
    X(scale)                                                                                       \
    X(absolute)                                                                                    \
    X(zero)                                                                                        \
    X(to_wide)                                                                                     \
    X(from_wide)                                                                                   \
    X(dropout_forward)                                                                             \
    X(dropout_backward)                                                                            \
    X(layernorm_sums)                                                                              \
    X(layernorm_forward)                                                                           \
    X(layernorm_backward_sums)                                                                     \
    X(layernorm_backward)                                                                          \
    X(rmsnorm_sums)                                                                                \
    X(rmsnorm_forward)                                                                             \
    X(rmsnorm_backward_sums)                                                                       \
    X(rmsnorm_backward)                                                                            \
    X(head_norm_forward)                                                                           \
    X(head_norm_backward)                                                                          \
    X(embedding_forward)                                                                           \
    X(embedding_backward)                                                                          \
    X(token_types_forward)                                                                         \
    X(token_types_backward)                                                                        \
    X(first_token_forward)                                                                         \
    X(first_token_backward)                                                                        \
    X(patches_forward)                                                                             \
    X(patches_backward)                                                                            \
    X(conv2d_forward)                                                                              \
    X(conv2d_backward_input)                                                                       \
    X(conv2d_backward_weight)                                                                      \
    X(maxpool_forward)                                                                             \
    X(maxpool_backward)                                                                            \
    X(avgpool_forward)                                                                             \
    X(avgpool_backward)                                                                            \
    X(batchnorm_statistics)                                                                        \
    X(batchnorm_forward)                                                                           \
    X(batchnorm_backward)                                                                          \
    X(attention_forward)                                                                           \
    X(attention_backward)                                                                          \
    X(grouped_attention_forward)                                                                   \
    X(grouped_attention_backward)                                                                  \
    X(latent_attention_forward)                                                                    \
    X(latent_attention_backward)                                                                   \
    X(rotary)                                                                                      \
    X(moe_route)                                                                                   \
    X(moe_dispatch)                                                                                \
    X(moe_dispatch_backward)                                                                       \
    X(moe_combine)                                                                                 \
    X(moe_combine_backward)                                                                        \
    X(cross_entropy_maxima)                                                                        \
    X(cross_entropy_sums)                                                                          \
    X(cross_entropy_loss)                                                                          \
    X(cross_entropy_backward)                                                                      \
    X(sum_squares)                                                                                 \
    X(step_begin)                                                                                  \
    X(step_add)                                                                                    \
    X(step_take)                                                                                   \
    X(step_decide)                                                                                 \
    X(step_watch)                                                                                  \
    X(update)                                                                                      \
    X(permute)                                                                                     \
    X(copy_rows)                                                                                   \
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
