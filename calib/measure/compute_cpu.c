#include "calib/measure/compute.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/math/random.h"
#include "calib/measure/row_order.h"
#include "kernels/kernels.h"

#define LEAST_COPY_BYTES ((int64_t)1 << 20)
/* The smallest product takes about as long as reading the clock, so it is timed in batches. */
#define LAUNCHES   64
#define DRAWN      ((int64_t)100003) /* no multiple of a row */
#define LINE_BYTES ((int64_t)64)
#define SPANS      3 /* of a rank, as large as a copy */

/* Memory in which a matrix lies elsewhere in every repetition, so that a product finds it in
 * memory, not in the caches, as the layers of a step do: each comes to its weights after all others
 * (measured on an AMD EPYC: products of 64 rows take up to 1.4 times as long as from the caches).
 */
struct span {
    float *at;
    int64_t elements, next;
};

struct sbp_compute {
    int64_t copy_bytes;
    struct span y, a, b; /* a and b serve the copies as well */
    int32_t *row;        /* the order of the rows of any cell */
    int64_t rows;        /* that it holds now */
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
           bytes > pages / (4 * SPANS * (int64_t)ranks) * page_bytes)
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
    free(compute->row);
    free(compute->b.at);
    free(compute->a.at);
    free(compute->y.at);
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

static bool fill_span(struct span *span, int64_t bytes, uint64_t seed)
{
    span->elements = bytes / (int64_t)sizeof *span->at;
    span->at = filled(span->elements, seed);
    return span->at != NULL;
}

static bool fill_all(struct sbp_compute *compute, int64_t copy_bytes)
{
    int64_t y_bytes = copy_bytes, a_bytes = copy_bytes, b_bytes = copy_bytes;
    sbp_sweep_product_bytes(sbp_sweep_products(SBP_PRODUCTS_CPU), &y_bytes, &a_bytes, &b_bytes);
    compute->copy_bytes = copy_bytes;
    const int64_t rows = copy_bytes / sbp_sweep_products(SBP_PRODUCTS_CPU)->row_bytes[0];
    compute->row = malloc((size_t)(rows + 1) * sizeof *compute->row);
    return compute->row != NULL && fill_span(&compute->a, a_bytes, 1) &&
           fill_span(&compute->b, b_bytes, 2) && fill_span(&compute->y, y_bytes, 9) &&
           fill_attention(&compute->attention);
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

/* Moves on by a matrix, at a cache line's start. */
static void move(struct span *span, int64_t bytes)
{
    const int64_t lines = (bytes + LINE_BYTES - 1) / LINE_BYTES;
    const int64_t elements = lines * LINE_BYTES / (int64_t)sizeof *span->at;
    span->next += elements;
    if (span->next + elements > span->elements)
        span->next = 0;
}

static void move_all(struct sbp_compute *compute, const struct sbp_cell *cell)
{
    const int64_t bytes = sbp_cluster_type_bytes(cell->type);
    move(&compute->y, cell->m * cell->n * bytes);
    move(&compute->a, cell->m * cell->k * bytes);
    move(&compute->b, cell->k * cell->n * bytes);
}

static void multiply(struct sbp_compute *compute, const struct sbp_cell *cell)
{
    const struct sbp_gemm_factor a = {compute->a.at + compute->a.next,
                                      cell->pass == SBP_PASS_WEIGHT_GRADIENT};
    const struct sbp_gemm_factor b = {compute->b.at + compute->b.next,
                                      cell->pass == SBP_PASS_INPUT_GRADIENT};
    sbp_kernels_cpu_gemm(cell->type == SBP_FP64 ? SBP_F64 : SBP_F32,
                         compute->y.at + compute->y.next, a, b, cell->m, cell->n, cell->k);
}

/* Each expert's matrices lie behind those of the one before it. */
static void multiply_grouped(struct sbp_compute *compute, const struct sbp_cell *cell)
{
    for (int64_t expert = 0; expert < cell->experts; expert++) {
        move_all(compute, cell);
        multiply(compute, cell);
    }
}

static void launch(struct sbp_compute *compute, const struct sbp_cell *cell)
{
    for (int i = 0; i < LAUNCHES; i++)
        multiply(compute, cell);
}

static void copy(struct sbp_compute *compute, const struct sbp_cell *cell)
{
    (void)cell;
    memcpy(compute->b.at, compute->a.at, (size_t)compute->copy_bytes);
}

/* The second half of b = a + the first half of b: two operands are read and one is written, and
 * none grows from one repetition to the next. */
static void stream(struct sbp_compute *compute, const struct sbp_cell *cell)
{
    const int64_t count = cell->bytes / (int64_t)sizeof(float);
    sbp_kernels_cpu(SBP_F32)->add(compute->b.at + count, compute->a.at, compute->b.at, count);
}

static void gelu(struct sbp_compute *compute, const struct sbp_cell *cell)
{
    sbp_kernels_cpu(SBP_F32)->gelu_forward(compute->y.at, compute->a.at,
                                           cell->bytes / (int64_t)sizeof(float));
}

/* The library's copy, as no operator of kernels/ moves tokens to experts. */
static void copy_rows(struct sbp_compute *compute, const struct sbp_cell *cell)
{
    const size_t bytes = (size_t)cell->row_bytes;
    char *to = (char *)compute->b.at;
    const char *from = (const char *)compute->a.at;
    for (int64_t i = 0; i < compute->rows; i++)
        memcpy(to + (size_t)i * bytes, from + (size_t)compute->row[i] * bytes, bytes);
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
    sbp_kernels_cpu(SBP_F32)->attention_forward(at->y, at->saved, at->scratch, at->qkv, NULL,
                                                shape);
}

static void attend(struct sbp_compute *compute, const struct sbp_cell *cell)
{
    struct attention *at = &compute->attention;
    const struct sbp_attention_shape shape = shape_of(&cell->attention);
    if (cell->attention.pass == SBP_PASS_FORWARD)
        attend_forward(at, &shape);
    else
        sbp_kernels_cpu(SBP_F32)->attention_backward(at->dqkv, at->scratch, at->dy, at->qkv, at->y,
                                                     at->saved, NULL, &shape);
}

static void order_rows(struct sbp_compute *compute, const struct sbp_cell *cell)
{
    const int64_t rows = cell->bytes / cell->row_bytes;
    if (compute->rows != rows)
        sbp_row_order(compute->row, (int32_t)rows, 10);
    compute->rows = rows;
}

/* Products go on to other matrices. A backward pass of attention needs what a forward pass of its
 * shape saved, which is not timed with it. */
static void prepare(struct sbp_compute *compute, const struct sbp_cell *cell)
{
    const struct sbp_attention_shape shape = shape_of(&cell->attention),
                                     *saved = &compute->attention.saved_shape;
    if (cell->work == SBP_CELL_GEMM || cell->work == SBP_CELL_LAUNCH)
        move_all(compute, cell);
    if (cell->work == SBP_CELL_ROWS)
        order_rows(compute, cell);
    if (cell->work == SBP_CELL_ATTENTION && cell->attention.pass != SBP_PASS_FORWARD &&
        (saved->batch != shape.batch || saved->sequence != shape.sequence ||
         saved->heads != shape.heads || saved->head_size != shape.head_size))
        attend_forward(&compute->attention, &shape);
}

/* --- beside a collective --- */

struct lane {
    const struct sbp_beside *beside;
    enum sbp_status status;
    struct sbp_diag *diag; /* products need none meanwhile */
};

static void *call(void *argument)
{
    struct lane *lane = argument;
    lane->status = lane->beside->call(lane->beside->context, NULL, lane->diag);
    return NULL;
}

static void multiply_all(struct sbp_compute *compute, const struct sbp_cell *product, int products)
{
    for (int i = 0; i < products; i++) {
        prepare(compute, product);
        multiply(compute, product);
    }
}

/* The call has a thread of its own, as sums beside a backward pass have in a step. */
static enum sbp_status cpu_beside(struct sbp_compute *compute, const struct sbp_cell *cell,
                                  int products, const struct sbp_beside *beside, double *time_s,
                                  struct sbp_diag *diag)
{
    struct sbp_cell product = *cell;
    struct lane lane = {beside, SBP_OK, diag};
    pthread_t thread;
    product.work = SBP_CELL_GEMM;
    const double start_s = sbp_clock_s();
    if (beside != NULL && pthread_create(&thread, NULL, call, &lane) != 0)
        return sbp_fail(diag, SBP_E_BACKEND, "no thread for collectives beside products");
    multiply_all(compute, &product, products);
    if (beside != NULL)
        (void)pthread_join(thread, NULL);
    *time_s = sbp_clock_s() - start_s;
    return lane.status;
}

static enum sbp_status cpu_repeat(struct sbp_compute *compute, const struct sbp_cell *cell,
                                  double *time_s, struct sbp_diag *diag)
{
    static void (*const works[SBP_CELL_WORKS])(struct sbp_compute *, const struct sbp_cell *) = {
        [SBP_CELL_GEMM] = multiply, [SBP_CELL_GROUPED] = multiply_grouped,
        [SBP_CELL_COPY] = copy,     [SBP_CELL_LAUNCH] = launch,
        [SBP_CELL_STREAM] = stream, [SBP_CELL_ATTENTION] = attend,
        [SBP_CELL_GELU] = gelu,     [SBP_CELL_ROWS] = copy_rows,
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
    .beside = cpu_beside,
};
