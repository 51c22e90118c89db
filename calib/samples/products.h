/* What is timed of a kind of processor: matrix products over a grid of shapes and those of layers,
 * and a copy. */
#ifndef SBP_CALIB_SAMPLES_PRODUCTS_H
#define SBP_CALIB_SAMPLES_PRODUCTS_H

#include "costmodel/cluster/cluster.h"

enum sbp_products { SBP_PRODUCTS_CPU, SBP_PRODUCTS_GPU };

/* (m,k) x (k,n) in one element type. */
struct sbp_gemm_point {
    enum sbp_type type;
    int64_t m, n, k;
};

struct sbp_product_list {
    int count, required; /* so many at the front are timed whatever the time: one a type */
    const struct sbp_gemm_point *shape;
    double small;       /* multiplications of what counts as a small product */
    int64_t copy_bytes; /* where memory is not scarce: beyond the caches that a rank can call its
                           own */
    /* What an estimate of the time takes for granted. */
    double flops, copy_bytes_per_s;
};
const struct sbp_product_list *sbp_sweep_products(enum sbp_products products);

#endif
