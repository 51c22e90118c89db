#include "calib/measure/compute.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/math/random.h"
#include "kernels/kernels.h"

#define LEAST_COPY_BYTES ((int64_t)1 << 20)
/* The smallest product takes about as long as reading the clock, so it is timed in batches. */
#define LAUNCHES 64
#define DRAWN    ((int64_t)100003) /* no multiple of a row */

struct sbp_compute {
    int64_t copy_bytes;
    float *y, *a, *b; /* the largest of each over the shapes; a and b serve the copy as well */
};

/* Keeps the buffers of all ranks together below a quarter of the memory. */
static enum sbp_status cpu_find(int ranks, struct sbp_processor *processor, struct sbp_diag *diag)
{
    const int64_t pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    int64_t bytes = sbp_sweep_products(SBP_PRODUCTS_CPU)->copy_bytes;
    (void)diag;
    while (pages > 0 && bytes > LEAST_COPY_BYTES &&
           bytes > pages / (8 * (int64_t)ranks) * page_bytes)
        bytes /= 2;
    *processor = (struct sbp_processor){.copy_bytes = bytes};
    return SBP_OK;
}

/* --- matrices --- */

/* Fills with floats in [0.5, 1). Read in pairs as doubles they are ordinary numbers, too (2^-15 to
 * 2^-7), so that one buffer serves both types and no unit meets denormal numbers. One drawn piece
 * is repeated, since drawing all numbers takes longer than the products. */
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

static void cpu_close(struct sbp_compute *compute)
{
    if (compute == NULL)
        return;
    free(compute->b);
    free(compute->a);
    free(compute->y);
    free(compute);
}

static bool fill_all(struct sbp_compute *compute, int64_t copy_bytes)
{
    int64_t y_bytes = 1, a_bytes = copy_bytes, b_bytes = copy_bytes;
    sbp_sweep_product_bytes(sbp_sweep_products(SBP_PRODUCTS_CPU), &y_bytes, &a_bytes, &b_bytes);
    compute->copy_bytes = copy_bytes;
    compute->y = malloc((size_t)y_bytes);
    compute->a = malloc((size_t)a_bytes);
    compute->b = malloc((size_t)b_bytes);
    if (compute->y == NULL || compute->a == NULL || compute->b == NULL)
        return false;
    memset(compute->y, 0, (size_t)y_bytes);
    fill(compute->a, a_bytes, 1);
    fill(compute->b, b_bytes, 2);
    return true;
}

static enum sbp_status cpu_open(struct sbp_compute **compute, int64_t copy_bytes,
                                struct sbp_diag *diag)
{
    *compute = calloc(1, sizeof **compute);
    if (*compute != NULL && fill_all(*compute, copy_bytes))
        return SBP_OK;
    cpu_close(*compute);
    *compute = NULL;
    return sbp_fail(diag, SBP_E_MEMORY, "out of memory for matrices and a copy of %lld bytes",
                    (long long)copy_bytes);
}

/* --- one repetition --- */

static void multiply(const struct sbp_compute *compute, const struct sbp_cell *cell)
{
    const struct sbp_gemm_factor a = {compute->a, cell->pass == SBP_PASS_WEIGHT_GRADIENT};
    const struct sbp_gemm_factor b = {compute->b, cell->pass == SBP_PASS_INPUT_GRADIENT};
    sbp_kernels_cpu_gemm(cell->type == SBP_FP64 ? SBP_F64 : SBP_F32, compute->y, a, b, cell->m,
                         cell->n, cell->k);
}

static enum sbp_status cpu_repeat(struct sbp_compute *compute, const struct sbp_cell *cell,
                                  double *time_s, struct sbp_diag *diag)
{
    const int launches = cell->work == SBP_CELL_LAUNCH ? LAUNCHES : 1;
    (void)diag;
    const double start_s = sbp_thread_cpu_s();
    if (cell->work == SBP_CELL_COPY)
        memcpy(compute->b, compute->a, (size_t)compute->copy_bytes);
    else
        for (int i = 0; i < launches; i++)
            multiply(compute, cell);
    *time_s = (sbp_thread_cpu_s() - start_s) / launches;
    return SBP_OK;
}

const struct sbp_compute_ops sbp_compute_cpu = {
    .products = SBP_PRODUCTS_CPU,
    .find = cpu_find,
    .open = cpu_open,
    .close = cpu_close,
    .repeat = cpu_repeat,
};
