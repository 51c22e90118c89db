#include "calib/gemm.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/random.h"
#include "base/text.h"
#include "kernels/kernels.h"

#define COPY_BYTES       ((int64_t)64 << 20) /* beyond the caches that a rank can call its own */
#define LEAST_COPY_BYTES ((int64_t)1 << 20)

/* First what every run times, whatever its budget; then cubes for the curve over sizes and what
 * layers of hidden size 768 and 1024 look like whole, split by column, split by row and with few
 * tokens. */
static const struct sbp_gemm_point shapes[] = {
    {SBP_FP32, 256, 256, 256},  {SBP_FP64, 256, 256, 256},    {SBP_FP32, 32, 32, 32},
    {SBP_FP32, 64, 64, 64},     {SBP_FP32, 128, 128, 128},    {SBP_FP32, 512, 512, 512},
    {SBP_FP32, 16, 1024, 1024}, {SBP_FP32, 1024, 16, 1024},   {SBP_FP32, 1024, 1024, 16},
    {SBP_FP32, 256, 768, 192},  {SBP_FP32, 64, 768, 768},     {SBP_FP32, 256, 576, 768},
    {SBP_FP32, 64, 3072, 768},  {SBP_FP32, 64, 768, 3072},    {SBP_FP64, 512, 512, 512},
    {SBP_FP32, 256, 768, 768},  {SBP_FP32, 256, 2304, 768},   {SBP_FP32, 256, 3072, 768},
    {SBP_FP32, 256, 768, 3072}, {SBP_FP32, 768, 3072, 256},   {SBP_FP64, 256, 3072, 768},
    {SBP_FP32, 128, 8192, 768}, {SBP_FP32, 1024, 1024, 1024},
};
enum { SHAPES = sizeof shapes / sizeof *shapes, REQUIRED = 3, COPY = 0 };
_Static_assert(SHAPES <= SBP_MAX_GEMMS && SHAPES <= SBP_MAX_EFFICIENCIES, "shapes fit the tables");

struct bench {
    const struct sbp_comm_ops *ops;
    struct sbp_comm *comm;
    int64_t copy_bytes;
    float *y, *a, *b; /* the largest of each over the shapes; a and b serve the copy as well */
};

static int64_t real_bytes(enum sbp_type type)
{
    return type == SBP_FP64 ? (int64_t)sizeof(double) : (int64_t)sizeof(float);
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Floats in [0.5, 1). Read in pairs as doubles they are ordinary numbers too (2^-15 to 2^-7), so
 * that one buffer serves both types and no unit meets denormal numbers. */
static void fill(float *at, int64_t bytes, uint64_t seed)
{
    struct sbp_random random;
    sbp_random_seed(&random, seed);
    for (int64_t i = 0; i < bytes / (int64_t)sizeof *at; i++)
        at[i] = (float)(0.5 + 0.499 * sbp_random_unit(&random));
}

static enum sbp_status repeat_compute(void *context, int point, double *time_s)
{
    const struct bench *bench = context;
    SBP_TRY(bench->ops->barrier(bench->comm));
    const double start_s = sbp_thread_cpu_s();
    if (point == COPY) {
        memcpy(bench->b, bench->a, (size_t)bench->copy_bytes);
    } else {
        const struct sbp_gemm_point *gemm = &shapes[point - 1];
        sbp_kernels_cpu_gemm(gemm->type == SBP_FP64 ? SBP_F64 : SBP_F32, bench->y, bench->a,
                             bench->b, gemm->m, gemm->n, gemm->k);
    }
    *time_s = sbp_thread_cpu_s() - start_s;
    return SBP_OK;
}

/* The copy is meant to miss the caches, but all ranks' buffers take a quarter of memory at most. */
static int64_t copy_size(int ranks)
{
    const int64_t pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    int64_t bytes = COPY_BYTES;
    while (pages > 0 && bytes > LEAST_COPY_BYTES &&
           bytes > pages / (8 * (int64_t)ranks) * page_bytes)
        bytes /= 2;
    return bytes;
}

static bool make_buffers(struct bench *bench)
{
    int64_t y_bytes = 1, a_bytes = bench->copy_bytes, b_bytes = bench->copy_bytes;
    for (int i = 0; i < SHAPES; i++) {
        const struct sbp_gemm_point *gemm = &shapes[i];
        y_bytes = larger(y_bytes, gemm->m * gemm->n * real_bytes(gemm->type));
        a_bytes = larger(a_bytes, gemm->m * gemm->k * real_bytes(gemm->type));
        b_bytes = larger(b_bytes, gemm->k * gemm->n * real_bytes(gemm->type));
    }
    bench->y = malloc((size_t)y_bytes);
    bench->a = malloc((size_t)a_bytes);
    bench->b = malloc((size_t)b_bytes);
    if (bench->y == NULL || bench->a == NULL || bench->b == NULL)
        return false;
    memset(bench->y, 0, (size_t)y_bytes);
    fill(bench->a, a_bytes, 1);
    fill(bench->b, b_bytes, 2);
    return true;
}

enum sbp_status sbp_measure_compute(const struct sbp_sampler *sampler,
                                    struct sbp_compute_times *times, struct sbp_diag *diag)
{
    *times = (struct sbp_compute_times){.gemm_count = SHAPES};
    memcpy(times->gemm, shapes, sizeof shapes);
    struct bench bench = {.ops = sampler->ops, .comm = sampler->comm};
    times->copy_bytes = bench.copy_bytes = copy_size(bench.ops->size(bench.comm));
    struct sbp_sampler own = *sampler;
    own.required = REQUIRED;
    enum sbp_status status;
    if (make_buffers(&bench))
        status = sbp_sample(&own, SHAPES + 1, times->samples, repeat_compute, &bench, diag);
    else
        status = sbp_fail(diag, SBP_E_MEMORY, "out of memory for matrices and a copy of %lld bytes",
                          (long long)bench.copy_bytes);
    free(bench.b);
    free(bench.a);
    free(bench.y);
    return status;
}
