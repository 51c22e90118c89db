#include "calib/gemm.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/random.h"
#include "base/text.h"
#include "kernels/kernels.h"

#define LEAST_COPY_BYTES ((int64_t)1 << 20)
/* The smallest product is about as short as a look at the clock. */
#define LAUNCHES 64
#define DRAWN    ((int64_t)100003) /* no multiple of a row */

int64_t sbp_copy_bytes(int ranks)
{
    const int64_t pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    int64_t bytes = SBP_COPY_BYTES;
    while (pages > 0 && bytes > LEAST_COPY_BYTES &&
           bytes > pages / (8 * (int64_t)ranks) * page_bytes)
        bytes /= 2;
    return bytes;
}

/* --- matrices --- */

static int64_t real_bytes(enum sbp_type type)
{
    return type == SBP_FP64 ? (int64_t)sizeof(double) : (int64_t)sizeof(float);
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Floats in [0.5, 1). Read in pairs as doubles they are ordinary numbers too (2^-15 to 2^-7), so
 * that one buffer serves both types and no unit meets denormal numbers. A piece over and over:
 * drawing all of them takes longer than the products. */
static void fill(float *at, int64_t bytes, uint64_t seed)
{
    struct sbp_random random;
    const int64_t count = bytes / (int64_t)sizeof *at;
    const int64_t drawn = count < DRAWN ? count : DRAWN;
    sbp_random_seed(&random, seed);
    for (int64_t i = 0; i < drawn; i++)
        at[i] = (float)(0.5 + 0.499 * sbp_random_unit(&random));
    for (int64_t i = drawn; i < count; i += drawn) {
        const int64_t piece = count - i < drawn ? count - i : drawn;
        memcpy(at + i, at, (size_t)piece * sizeof *at);
    }
}

enum sbp_status sbp_compute_open(struct sbp_compute *compute, int64_t copy_bytes,
                                 struct sbp_diag *diag)
{
    int64_t y_bytes = 1, a_bytes = copy_bytes, b_bytes = copy_bytes;
    int count;
    const struct sbp_gemm_point *shapes = sbp_gemm_shapes(&count);
    for (int i = 0; i < count; i++) {
        const struct sbp_gemm_point *gemm = &shapes[i];
        y_bytes = larger(y_bytes, gemm->m * gemm->n * real_bytes(gemm->type));
        a_bytes = larger(a_bytes, gemm->m * gemm->k * real_bytes(gemm->type));
        b_bytes = larger(b_bytes, gemm->k * gemm->n * real_bytes(gemm->type));
    }
    *compute = (struct sbp_compute){.copy_bytes = copy_bytes,
                                    .y = malloc((size_t)y_bytes),
                                    .a = malloc((size_t)a_bytes),
                                    .b = malloc((size_t)b_bytes)};
    if (compute->y == NULL || compute->a == NULL || compute->b == NULL) {
        sbp_compute_close(compute);
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for matrices and a copy of %lld bytes",
                        (long long)copy_bytes);
    }
    memset(compute->y, 0, (size_t)y_bytes);
    fill(compute->a, a_bytes, 1);
    fill(compute->b, b_bytes, 2);
    return SBP_OK;
}

void sbp_compute_close(struct sbp_compute *compute)
{
    if (compute == NULL)
        return;
    free(compute->b);
    free(compute->a);
    free(compute->y);
    *compute = (struct sbp_compute){0};
}

/* --- one repetition --- */

static void multiply(const struct sbp_compute *compute, const struct sbp_cell *cell)
{
    sbp_kernels_cpu_gemm(cell->type == SBP_FP64 ? SBP_F64 : SBP_F32, compute->y, compute->a,
                         compute->b, cell->m, cell->n, cell->k);
}

double sbp_compute_repeat(const struct sbp_compute *compute, const struct sbp_cell *cell)
{
    const double start_s = sbp_thread_cpu_s();
    switch (cell->work) {
    case SBP_WORK_COPY:
        memcpy(compute->b, compute->a, (size_t)compute->copy_bytes);
        break;
    case SBP_WORK_LAUNCH:
        for (int i = 0; i < LAUNCHES; i++)
            multiply(compute, cell);
        return (sbp_thread_cpu_s() - start_s) / LAUNCHES;
    default:
        multiply(compute, cell);
    }
    return sbp_thread_cpu_s() - start_s;
}
