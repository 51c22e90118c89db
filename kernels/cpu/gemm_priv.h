/* Row-major matrix products on BLAS, for one compilation's `real`.
 *
 * BLAS counts in int: an assertion stops the program at a dimension or stride above INT_MAX.
 */
#ifndef SBP_KERNELS_CPU_GEMM_PRIV_H
#define SBP_KERNELS_CPU_GEMM_PRIV_H

#include <assert.h>
#include <limits.h>

#include <cblas.h>

#include "kernels/cpu/real_priv.h"

/* A matrix as BLAS reads it: where it starts, elements between rows, whether it is transposed. */
struct cpu_matrix {
    const real *at;
    int64_t stride;
    bool transposed;
};

static inline int cpu_blas_int(int64_t value)
{
    assert(value >= 0 && value <= INT_MAX && "matrix dimension does not fit BLAS");
    return (int)value;
}

/* BLAS refuses a stride of 0, which an empty matrix may have. */
static inline int cpu_blas_stride(int64_t stride)
{
    return cpu_blas_int(stride > 0 ? stride : 1);
}

static inline struct cpu_matrix cpu_plain(const real *at, int64_t stride)
{
    return (struct cpu_matrix){at, stride, false};
}

static inline struct cpu_matrix cpu_transposed(const real *at, int64_t stride)
{
    return (struct cpu_matrix){at, stride, true};
}

/* c(m,n) = alpha a(m,k) b(k,n) + beta c; with k = 0 the product is zero. c is not read when beta
 * is 0. */
static inline void cpu_gemm(real *c, int64_t c_stride, struct cpu_matrix a, struct cpu_matrix b,
                            int64_t m, int64_t n, int64_t k, real alpha, real beta)
{
    if (m == 0 || n == 0)
        return;
    BLAS_GEMM(CblasRowMajor, a.transposed ? CblasTrans : CblasNoTrans,
              b.transposed ? CblasTrans : CblasNoTrans, cpu_blas_int(m), cpu_blas_int(n),
              cpu_blas_int(k), alpha, a.at, cpu_blas_stride(a.stride), b.at,
              cpu_blas_stride(b.stride), beta, c, cpu_blas_stride(c_stride));
}

#endif
