/* A product as the stand-in's cuBLAS and cuBLASLt make it: all is stored by columns. */
#ifndef SBP_TESTS_DOUBLES_PRODUCT_DOUBLE_H
#define SBP_TESTS_DOUBLES_PRODUCT_DOUBLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/math/numeric.h"

/* A factor by columns, (rows, columns) after the operation. */
struct double_factor {
    const void *at;
    bool turned;
    int64_t stride;
};

struct double_product {
    enum sbp_real real; /* of the factors, and of */
    enum sbp_real of_c; /* the result */
    bool is_tf32;       /* what is behind 11 bits of a factor is cut off */
    int64_t m, n, k;
    struct double_factor a, b;
    void *c;
    int64_t stride;
    bool adds;
    const void *bias; /* (m); NULL: none */
    /* A gelu of the sum and the bias, of the tanh form, with what it is of (m,n) written here; the
     * product times its slope at what is here; sums of a's rows (m). NULL: nothing of that. */
    void *before_gelu;
    const void *gelu_of;
    void *row_sums;
};

/* Sums in single precision (of doubles in double), and rounds the result once. */
void double_multiply(void *product);

#endif
