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
    struct attention {
        float *qkv, *dqkv, *y, *dy, *saved, *scratch; /* as kernels.h shapes them, of any cell */
        struct sbp_attention_shape saved_shape;       /* whose forward pass y and saved are of */
    } attention;
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

static void free_attention(struct attention *attention)
{
    free(attention->scratch);
    free(attention->saved);
    free(attention->dy);
    free(attention->y);
    free(attention->dqkv);
    free(attention->qkv);
}

static void cpu_close(struct sbp_compute *compute)
{
    if (compute == NULL)
        return;
    free_attention(&compute->attention);
    free(compute->b);
    free(compute->a);
    free(compute->y);
    free(compute);
}

static float *filled(int64_t elements, uint64_t seed)
{
    const int64_t bytes = elements * (int64_t)sizeof(float);
    float *at = malloc((size_t)bytes);
    if (at != NULL)
        fill(at, bytes, seed);
    return at;
}

/* Makes room for the largest cell. False: no memory. */
static bool fill_attention(struct attention *attention)
{
    const struct sbp_attention_list *list = sbp_sweep_products(SBP_PRODUCTS_CPU)->attention;
    const struct sbp_attention_shape most = {.batch = 1,
                                             .heads = list->heads,
                                             .sequence = list->sequence[list->sequences - 1],
                                             .head_size = list->head_size[list->head_sizes - 1],
                                             .causal = true,
                                             .kind = SBP_ATTENTION_FLASH};
    const int64_t elements = list->rows * most.head_size;
    attention->qkv = filled(3 * elements, 3);
    attention->dqkv = filled(3 * elements, 4);
    attention->y = filled(elements, 5);
    attention->dy = filled(elements, 6);
    attention->saved = filled(list->rows, 7);
    attention->scratch = filled(sbp_attention_scratch_elements(&most), 8);
    return attention->qkv != NULL && attention->dqkv != NULL && attention->y != NULL &&
           attention->dy != NULL && attention->saved != NULL && attention->scratch != NULL;
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
    return fill_attention(&compute->attention);
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

static void multiply(struct sbp_compute *compute, const struct sbp_cell *cell)
{
    const struct sbp_gemm_factor a = {compute->a, cell->pass == SBP_PASS_WEIGHT_GRADIENT};
    const struct sbp_gemm_factor b = {compute->b, cell->pass == SBP_PASS_INPUT_GRADIENT};
    sbp_kernels_cpu_gemm(cell->type == SBP_FP64 ? SBP_F64 : SBP_F32, compute->y, a, b, cell->m,
                         cell->n, cell->k);
}

static void launch(struct sbp_compute *compute, const struct sbp_cell *cell)
{
    for (int i = 0; i < LAUNCHES; i++)
        multiply(compute, cell);
}

static void copy(struct sbp_compute *compute, const struct sbp_cell *cell)
{
    (void)cell;
    memcpy(compute->b, compute->a, (size_t)compute->copy_bytes);
}

/* The second half of b = a + the first half of b: two operands are read and one is written, and
 * none grows from one repetition to the next. */
static void stream(struct sbp_compute *compute, const struct sbp_cell *cell)
{
    const int64_t count = cell->bytes / (int64_t)sizeof(float);
    sbp_kernels_cpu(SBP_F32)->add(compute->b + count, compute->a, compute->b, count);
}

static struct sbp_attention_shape shape_of(const struct sbp_attention_point *point)
{
    return (struct sbp_attention_shape){.batch = point->batch,
                                        .sequence = point->sequence,
                                        .heads = point->heads,
                                        .head_size = point->head_size,
                                        .causal = true,
                                        .kind = SBP_ATTENTION_FLASH};
}

static void attend_forward(struct attention *at, const struct sbp_attention_shape *shape)
{
    at->saved_shape = *shape;
    sbp_kernels_cpu(SBP_F32)->attention_forward(at->y, at->saved, at->scratch, at->qkv, shape);
}

static void attend(struct sbp_compute *compute, const struct sbp_cell *cell)
{
    struct attention *at = &compute->attention;
    const struct sbp_attention_shape shape = shape_of(&cell->attention);
    if (cell->attention.pass == SBP_PASS_FORWARD)
        attend_forward(at, &shape);
    else
        sbp_kernels_cpu(SBP_F32)->attention_backward(at->dqkv, at->scratch, at->dy, at->qkv, at->y,
                                                     at->saved, &shape);
}

/* A backward pass needs what a forward pass of its shape saved, which is not timed with it. */
static void prepare(struct sbp_compute *compute, const struct sbp_cell *cell)
{
    const struct sbp_attention_shape shape = shape_of(&cell->attention),
                                     *saved = &compute->attention.saved_shape;
    if (cell->work == SBP_CELL_ATTENTION && cell->attention.pass != SBP_PASS_FORWARD &&
        (saved->batch != shape.batch || saved->sequence != shape.sequence ||
         saved->heads != shape.heads || saved->head_size != shape.head_size))
        attend_forward(&compute->attention, &shape);
}

static enum sbp_status cpu_repeat(struct sbp_compute *compute, const struct sbp_cell *cell,
                                  double *time_s, struct sbp_diag *diag)
{
    static void (*const works[SBP_CELL_WORKS])(struct sbp_compute *, const struct sbp_cell *) = {
        [SBP_CELL_GEMM] = multiply, [SBP_CELL_COPY] = copy,        [SBP_CELL_LAUNCH] = launch,
        [SBP_CELL_STREAM] = stream, [SBP_CELL_ATTENTION] = attend,
    };
    (void)diag;
    prepare(compute, cell);
    const double start_s = sbp_thread_cpu_s();
    works[cell->work](compute, cell);
    *time_s = (sbp_thread_cpu_s() - start_s) / (cell->work == SBP_CELL_LAUNCH ? LAUNCHES : 1);
    return SBP_OK;
}

const struct sbp_compute_ops sbp_compute_cpu = {
    .products = SBP_PRODUCTS_CPU,
    .find = cpu_find,
    .open = cpu_open,
    .close = cpu_close,
    .repeat = cpu_repeat,
};
