#include "calib/measure/kernels_cuda.h"

#include <stdlib.h>

#include "calib/measure/row_order.h"
#include "calib/samples/sweep.h"
#include "executor/gpu/gpu.h"

#define ELEMENT_BYTES   ((int64_t)2) /* of bf16 */
#define STATISTIC_BYTES ((int64_t)4)
#define ROW_SEED        10

struct sbp_kernels_gpu {
    struct sbp_cuda cuda;
    struct sbp_cuda_kernels kernel;
    int64_t elements, rows; /* of queries, of any cell */
    unsigned char *qkv, *dqkv, *y, *dy, *saved;
    struct sbp_attention_shape saved_shape; /* whose forward pass y and saved are of */
    int32_t *order;                         /* of rows, on the device */
    int32_t *order_host;                    /* (most_rows) */
    int64_t most_rows, ordered;             /* ordered: that it holds now */
};

bool sbp_kernels_gpu_is_built(void)
{
    struct sbp_cuda_kernels kernels;
    sbp_cuda_kernels_make(&kernels, SBP_REAL_BF16);
    return kernels.attention_forward != NULL;
}

/* --- memory --- */

void sbp_kernels_gpu_close(struct sbp_kernels_gpu *work)
{
    if (work == NULL)
        return;
    free(work->order_host);
    sbp_memory_cuda.release(work->order);
    sbp_memory_cuda.release(work->saved);
    sbp_memory_cuda.release(work->dy);
    sbp_memory_cuda.release(work->y);
    sbp_memory_cuda.release(work->dqkv);
    sbp_memory_cuda.release(work->qkv);
    sbp_gpu_context_close(&work->cuda);
    free(work);
}

static enum sbp_status allocate(struct sbp_kernels_gpu *work, struct sbp_diag *diag)
{
    const int64_t bytes = work->elements * ELEMENT_BYTES;
    work->qkv = sbp_memory_cuda.allocate(3 * bytes);
    work->dqkv = sbp_memory_cuda.allocate(3 * bytes);
    work->y = sbp_memory_cuda.allocate(bytes);
    work->dy = sbp_memory_cuda.allocate(bytes);
    work->saved = sbp_memory_cuda.allocate(work->rows * STATISTIC_BYTES);
    work->order = sbp_memory_cuda.allocate(work->most_rows * (int64_t)sizeof *work->order);
    work->order_host = malloc((size_t)work->most_rows * sizeof *work->order_host);
    if (work->qkv == NULL || work->dqkv == NULL || work->y == NULL || work->dy == NULL ||
        work->saved == NULL || work->order == NULL || work->order_host == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "the GPU has no memory for attention and rows");
    return SBP_OK;
}

enum sbp_status sbp_kernels_gpu_open(struct sbp_kernels_gpu **work, int64_t copy_bytes,
                                     void *stream, struct sbp_diag *diag)
{
    const struct sbp_product_list *list = sbp_sweep_products(SBP_PRODUCTS_GPU);
    const struct sbp_attention_list *attention = list->attention;
    *work = calloc(1, sizeof **work);
    if (*work == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    (*work)->rows = attention->rows;
    (*work)->elements = attention->rows * attention->head_size[attention->head_sizes - 1];
    (*work)->most_rows = copy_bytes / list->row_bytes[0] + 1;
    enum sbp_status status = sbp_gpu_context_open(&(*work)->cuda, stream, diag);
    if (status == SBP_OK) {
        sbp_cuda_kernels_make(&(*work)->kernel, SBP_REAL_BF16);
        status = allocate(*work, diag);
    }
    if (status != SBP_OK) {
        sbp_kernels_gpu_close(*work);
        *work = NULL;
    }
    return status;
}

struct sbp_gpu_operands sbp_kernels_gpu_operands(const struct sbp_kernels_gpu *work)
{
    const int64_t bytes = work->elements * ELEMENT_BYTES;
    return (struct sbp_gpu_operands){work->qkv, work->dy, 3 * bytes, bytes};
}

/* --- work --- */

static enum sbp_status look(struct sbp_kernels_gpu *work, const char *kernel, struct sbp_diag *diag)
{
    const int error = work->cuda.error;
    work->cuda.error = 0;
    return sbp_cuda_check(diag, kernel, error);
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

static enum sbp_status attend(struct sbp_kernels_gpu *work, const struct sbp_attention_shape *shape,
                              enum sbp_pass pass, struct sbp_diag *diag)
{
    if (pass != SBP_PASS_FORWARD) {
        work->kernel.attention_backward(&work->cuda, work->dqkv, work->dy, work->qkv, work->y,
                                        work->saved, NULL, shape);
        return look(work, "the backward pass of attention", diag);
    }
    work->saved_shape = *shape;
    work->kernel.attention_forward(&work->cuda, work->y, work->saved, NULL, work->qkv, NULL, shape);
    return look(work, "attention", diag);
}

/* The gather of an embedding, whose table are the rows. */
static enum sbp_status copy_rows(struct sbp_kernels_gpu *work, const struct sbp_cell *cell,
                                 void *to, const void *from, struct sbp_diag *diag)
{
    const int64_t rows = cell->bytes / cell->row_bytes;
    const struct sbp_digits all = {.rest = rows};
    work->kernel.embedding_forward(&work->cuda, to, work->order, NULL, from, NULL, rows,
                                   cell->row_bytes / ELEMENT_BYTES, &all);
    return look(work, "a gather of rows", diag);
}

static enum sbp_status order_rows(struct sbp_kernels_gpu *work, int64_t rows, struct sbp_diag *diag)
{
    if (work->ordered == rows)
        return SBP_OK;
    if (rows > work->most_rows)
        return sbp_fail(diag, SBP_E_MEMORY, "no room for the order of %lld rows", (long long)rows);
    sbp_row_order(work->order_host, (int32_t)rows, ROW_SEED);
    if (sbp_memory_cuda.from_host(work->order, work->order_host,
                                  rows * (int64_t)sizeof *work->order) != SBP_OK)
        return sbp_fail(diag, SBP_E_BACKEND, "an order of rows cannot be copied to the GPU");
    work->ordered = rows;
    return SBP_OK;
}

enum sbp_status sbp_kernels_gpu_prepare(struct sbp_kernels_gpu *work, const struct sbp_cell *cell,
                                        struct sbp_diag *diag)
{
    const struct sbp_attention_shape shape = shape_of(&cell->attention),
                                     *saved = &work->saved_shape;
    if (cell->work == SBP_CELL_ROWS)
        return order_rows(work, cell->bytes / cell->row_bytes, diag);
    if (cell->attention.pass == SBP_PASS_FORWARD ||
        (saved->batch == shape.batch && saved->sequence == shape.sequence &&
         saved->heads == shape.heads && saved->head_size == shape.head_size))
        return SBP_OK;
    return attend(work, &shape, SBP_PASS_FORWARD, diag);
}

enum sbp_status sbp_kernels_gpu_launch(struct sbp_kernels_gpu *work, const struct sbp_cell *cell,
                                       void *to, const void *from, struct sbp_diag *diag)
{
    const struct sbp_attention_shape shape = shape_of(&cell->attention);
    if (cell->work == SBP_CELL_ROWS)
        return copy_rows(work, cell, to, from, diag);
    return attend(work, &shape, cell->attention.pass, diag);
}
