/* Operations on one row of n >= 0 elements, which softmax, norms and sums share. */
#ifndef SBP_KERNELS_CPU_ROWS_PRIV_H
#define SBP_KERNELS_CPU_ROWS_PRIV_H

#include "kernels/cpu/real_priv.h"

/* The greatest of the row and of `largest`. */
real CPU(row_maximum)(const stored *row, int64_t n, real largest);
double CPU(row_sum)(const stored *row, int64_t n);
double CPU(real_sum)(const real *row, int64_t n);
/* sum a b */
double CPU(row_dot)(const stored *a, const stored *b, int64_t n);
/* y = exp(x - shift) factor; y may be x. */
void CPU(row_exp)(stored *y, const stored *x, int64_t n, real shift, real factor);
/* sum exp(x - shift), of exponentials rounded to a real. */
double CPU(row_exp_sum)(const stored *x, int64_t n, real shift);

#endif
