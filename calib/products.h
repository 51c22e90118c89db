/* The matrix products that are timed: a grid of shapes, and those of layers. */
#ifndef SBP_CALIB_PRODUCTS_H
#define SBP_CALIB_PRODUCTS_H

#include "costmodel/cluster.h"

/* (m,k) x (k,n) in one element type. */
struct sbp_gemm_point {
    enum sbp_type type; /* FP32 or FP64 */
    int64_t m, n, k;
};

/* The first SBP_REQUIRED_GEMMS are timed whatever the time. */
#define SBP_REQUIRED_GEMMS 2
const struct sbp_gemm_point *sbp_gemm_shapes(int *count);

/* Of the copy, where memory is not scarce: beyond the caches that a rank can call its own. */
#define SBP_COPY_BYTES ((int64_t)64 << 20)

#endif
