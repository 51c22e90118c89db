/* CUDA kernels beside the CPU's, on the buffers and comparisons of tests/kernels/check.h: a round
 * of a test has a type's table, a context, and the CPU's table in double, the twin. Kernels run on
 * the host (place_host.c) or, of programs that nvcc makes, on a GPU (place_gpu.c). */
#ifndef SBP_TESTS_GPU_DEVICE_H
#define SBP_TESTS_GPU_DEVICE_H

#include "kernels/cuda/cuda.h"
#include "tests/kernels/check.h"

struct device {
    struct check *check;
    struct sbp_cuda cuda;
    struct sbp_cuda_kernels kernels;
    const struct sbp_kernels *twin; /* in double */
};

/* False where there are no CUDA kernels of the check's type. */
bool device_begin(struct device *device, struct check *check);

/* n reals of the table's type (or the wide one), which sometimes begin between two places for
 * accesses of 16 bytes, and end where their memory does; NULL for `values`: not-a-numbers. */
void *device_reals(struct device *device, const double *values, int64_t n);
void *device_wide(struct device *device, const double *values, int64_t n);

/* The same bytes, or the test fails with the seed. */
void device_same(const struct device *device, const char *what, const void *got, const void *want,
                 int64_t bytes);

/* Gives the turns of threads and blocks another order, where that can be chosen: on the host. */
void device_order(uint64_t seed);

/* Accesses of 16 bytes so far, but for those to shared memory; on the host alone, a GPU does not
 * count them. */
int64_t device_wide_accesses(void);

/* Shared memory that a block may have. */
int device_shared_bytes(void);

/* A number of columns: small or large, odd or a multiple of 8. */
int64_t device_columns(struct check *check, int64_t most);

/* Tests that begin alike. */
#define DEVICE_BEGIN(name, check)                                                                  \
    struct device name;                                                                            \
    if (!device_begin(&name, check))                                                               \
        return;

#endif
