/* Attention a head at a time, in tiles of queries.
 *
 * Materialised keeps the probabilities of every row; a tile has all keys that its queries see.
 * Flash cuts the keys into tiles as well, keeps the running maximum and sum of each row, and saves
 * their log-sum-exp, out of which backward recomputes the probabilities (Dao et al., 2022,
 * algorithms 1 and 4). Tiles that the causal mask hides as a whole are never formed. Where keys
 * come block by block, a row's log-sum-exp is its running maximum, with a sum of 1.
 */
#include "kernels/cpu/gemm_priv.h"
#include "kernels/cpu/latent_priv.h"
#include "kernels/cpu/rows_priv.h"
#include "kernels/cpu/sinks_priv.h"

#if !STORES_HALF /* attention_half.c */

/* One head of one sequence: q and dq have rows `q_stride` apart, k and v and their gradients
 * `k_stride` and `v_stride`, y (forward writes it, backward reads it as `output`) and dy
 * `y_stride`. A row of q or k has `size` features, one of v or y `value`. What a direction does not
 * need is NULL. */
struct head {
    const real *q, *k, *v, *dy, *output;
    real *y, *dq, *dk, *dv;
    int64_t q_stride, k_stride, v_stride, y_stride, size, value;
    struct cpu_queries queries;
    struct cpu_dropout dropout;
    real scale;
    real sink; /* a score that joins the sums of flash attention; -infinity: none */
};

/* scores = scale q k^T, masked entries included. */
static void tile_scores(real *scores, const struct head *head, const struct cpu_tile *tile)
{
    cpu_gemm(scores, tile->stride, cpu_plain(head->q + tile->row * head->q_stride, head->q_stride),
             cpu_transposed(head->k + tile->column * head->k_stride, head->k_stride), tile->rows,
             tile->columns, head->size, head->scale, 0);
}

/* y += weights v over the tile, or y = weights v. */
static void tile_output(const struct head *head, const real *weights, const struct cpu_tile *tile,
                        bool accumulate)
{
    cpu_gemm(head->y + tile->row * head->y_stride, head->y_stride, cpu_plain(weights, tile->stride),
             cpu_plain(head->v + tile->column * head->v_stride, head->v_stride), tile->rows,
             head->value, tile->columns, 1, accumulate ? 1 : 0);
}

/* row = exp(row - shift) from `first` up to n, 0 before and up to `end`. */
static void exponentiate(real *row, int64_t first, int64_t n, int64_t end, real shift)
{
    CPU(zero)(row, sbp_least_i64(first, end));
    if (first < n)
        CPU(row_exp)(row + first, row + first, n - first, shift, 1);
    else
        n = first;
    CPU(zero)(row + n, end - n);
}

static void scale_row(real *row, int64_t n, real factor)
{
    CPU(scale)(row, (double)factor, n);
}

/* to = what dropout leaves of x; to may be x. */
SBP_SIMD_WIDE
static void keep_row(real *to, const uint8_t *mask, const real *x, int64_t n, real factor)
{
    SBP_INDEPENDENT
    for (int64_t j = 0; j < n; j++)
        to[j] = mask[j] ? x[j] * factor : 0;
}

/* The same of a tile, whose rows in both are `tile->stride` apart. */
static void keep_tile(real *to, const struct head *head, const struct cpu_tile *tile, const real *x)
{
    uint8_t own[SBP_ATTENTION_TILE];
    const real factor = (real)(1 / (1 - head->dropout.p));
    for (int64_t i = 0; i < tile->rows; i++)
        keep_row(to + i * tile->stride, cpu_row_mask(&head->dropout, tile, i, own),
                 x + i * tile->stride, tile->columns, factor);
}

static void forward_materialised(const struct head *head, real *probabilities)
{
    const int64_t keys = head->queries.keys;
    struct cpu_tile tile;
    for (int64_t row = 0; row < head->queries.rows; row += tile.rows) {
        real *scores = probabilities + row * keys;
        tile = cpu_query_tile(&head->queries, row);
        tile_scores(scores, head, &tile);
        for (int64_t i = 0; i < tile.rows; i++) {
            real *at = scores + i * tile.stride;
            const int64_t seen = cpu_visible(&head->queries, &tile, i);
            const int64_t hidden = cpu_hidden(&head->queries, &tile, i);
            const real largest = CPU(row_maximum)(at + hidden, seen - hidden, -(real)INFINITY);
            exponentiate(at, hidden, seen, keys, largest);
            scale_row(at, seen, (real)(1 / CPU(row_sum)(at, seen)));
        }
        if (head->dropout.p > 0) {
            cpu_keep_mask(&head->dropout, &tile);
            keep_tile(scores + head->dropout.apart, head, &tile, scores);
        }
        tile_output(head, scores + head->dropout.apart, &tile, false);
    }
}

/* ---- materialised attention, block by block -------------------------------------------------- */

/* A tile of queries with the keys of a block: scores have a column for each of these. */
struct block_tile {
    const struct head *head;
    struct cpu_tile queries;
    real *scores;        /* (tile's rows, keys of the block) */
    real *probabilities; /* (tile's rows, K), as they are kept */
    real *log_sums;      /* (tile's rows) of the keys so far */
};

/* The run of keys behind a column that some query sees; columns 0: there is none. */
static struct cpu_tile next_run(const struct block_tile *at, int64_t column)
{
    return cpu_next_seen(&at->head->queries, &at->queries, column, false);
}

static int64_t next_column(const struct cpu_tile *run)
{
    return run->column + run->columns;
}

static void block_scores(const struct block_tile *at)
{
    struct cpu_tile run;
    for (int64_t column = 0; (run = next_run(at, column)).columns > 0; column = next_column(&run)) {
        run.stride = at->head->queries.keys;
        tile_scores(at->scores + run.column, at->head, &run);
    }
}

/* The greatest score of query i, and of its keys so far. */
static real block_maximum(const struct block_tile *at, int64_t i)
{
    const struct cpu_queries *queries = &at->head->queries;
    const real *row = at->scores + i * queries->keys;
    real largest = at->log_sums[i];
    struct cpu_tile run;
    for (int64_t column = 0; (run = next_run(at, column)).columns > 0; column = next_column(&run)) {
        const int64_t hidden = cpu_hidden(queries, &run, i), seen = cpu_visible(queries, &run, i);
        if (hidden < seen)
            largest = CPU(row_maximum)(row + run.column + hidden, seen - hidden, largest);
    }
    return largest;
}

/* Scores of query i become exponentials, 0 where it sees nothing; returns their sum. */
static double block_exponentials(const struct block_tile *at, int64_t i, real largest)
{
    const struct cpu_queries *queries = &at->head->queries;
    real *row = at->scores + i * queries->keys;
    struct cpu_tile run;
    double sum = 0;
    for (int64_t column = 0; (run = next_run(at, column)).columns > 0; column = next_column(&run)) {
        const int64_t hidden = cpu_hidden(queries, &run, i), seen = cpu_visible(queries, &run, i);
        real *const to = row + run.column;
        if (hidden < seen)
            exponentiate(to, hidden, seen, run.columns, largest);
        else
            CPU(zero)(to, run.columns);
        sum += CPU(row_sum)(to, run.columns);
    }
    return sum;
}

/* Leaves a share of what is kept of query i, and of y; the first block finds them 0. */
static void weaken_row(const struct block_tile *at, int64_t i, real share)
{
    const struct head *head = at->head;
    real *const kept = at->probabilities + i * head->queries.all;
    if (head->queries.block->first || share == 1)
        return;
    scale_row(kept, head->queries.all, share);
    if (head->dropout.apart > 0)
        scale_row(kept + head->dropout.apart, head->queries.all, share);
    scale_row(head->y + (at->queries.row + i) * head->y_stride, head->value, share);
}

/* Adds the block's exponentials to the sum of query i, and keeps the block's probabilities. */
static void keep_block_row(const struct block_tile *at, int64_t i)
{
    const struct head *head = at->head;
    real *const kept = at->probabilities + i * head->queries.all;
    const real largest = cpu_shift_of(&head->queries, block_maximum(at, i));
    const double before = isinf(at->log_sums[i]) ? 0 : (double)real_exp(at->log_sums[i] - largest);
    const double sum = before + block_exponentials(at, i, largest);
    struct cpu_tile run;
    if (sum == 0) /* not-a-number goes on to y */
        return;
    weaken_row(at, i, (real)(before / sum));
    for (int64_t column = 0; (run = next_run(at, column)).columns > 0; column = next_column(&run))
        for (int64_t j = 0; j < run.columns; j++)
            kept[run.key + j] =
                (real)((double)at->scores[i * head->queries.keys + run.column + j] / sum);
    at->log_sums[i] = largest + (real)log(sum);
}

static void begin_block_rows(const struct block_tile *at)
{
    const struct head *head = at->head;
    for (int64_t i = 0; i < at->queries.rows; i++) {
        real *const kept = at->probabilities + i * head->queries.all;
        CPU(zero)(kept, head->queries.all);
        if (head->dropout.apart > 0)
            CPU(zero)(kept + head->dropout.apart, head->queries.all);
        CPU(zero)(head->y + (at->queries.row + i) * head->y_stride, head->value);
        at->log_sums[i] = -(real)INFINITY;
    }
    if (head->dropout.p > 0)
        cpu_keep_mask(&head->dropout, &at->queries);
}

static void block_output(const struct block_tile *at)
{
    const struct head *head = at->head;
    struct cpu_tile run;
    for (int64_t column = 0; (run = next_run(at, column)).columns > 0; column = next_column(&run)) {
        real *const p = at->probabilities + run.key;
        if (head->dropout.p > 0)
            keep_tile(p + head->dropout.apart, head, &run, p);
        tile_output(head, p + head->dropout.apart, &run, true);
    }
}

/* scratch: as many rows of scores as a tile has. */
static void forward_block(const struct head *head, real *probabilities, real *log_sums,
                          real *scratch)
{
    struct block_tile at = {.head = head, .scores = scratch};
    for (int64_t row = 0; row < head->queries.rows; row += at.queries.rows) {
        at.queries = cpu_query_tile(&head->queries, row);
        at.probabilities = probabilities + row * head->queries.all;
        at.log_sums = log_sums + row;
        if (head->queries.block->first)
            begin_block_rows(&at);
        if (next_run(&at, 0).columns == 0)
            continue;
        block_scores(&at);
        for (int64_t i = 0; i < at.queries.rows; i++)
            keep_block_row(&at, i);
        block_output(&at);
    }
}

/* ---- flash attention ------------------------------------------------------------------------- */

/* Brings a tile's rows to a new running maximum: scores become exponentials, what y and the sums
 * hold so far, if there is any, is scaled down to match. */
static void rescale_rows(const struct head *head, const struct cpu_tile *tile, bool has_begun,
                         real *scores, real *maximum, real *sum)
{
    for (int64_t i = 0; i < tile->rows; i++) {
        real *at = scores + i * tile->stride;
        const int64_t seen = cpu_visible(&head->queries, tile, i);
        const int64_t hidden = cpu_hidden(&head->queries, tile, i);
        if (hidden >= seen) {
            CPU(zero)(at, tile->columns);
            continue;
        }
        const real largest = CPU(row_maximum)(at + hidden, seen - hidden, maximum[i]);
        const real shift = cpu_shift_of(&head->queries, largest),
                   factor = real_exp(maximum[i] - shift);
        exponentiate(at, hidden, seen, tile->columns, shift);
        sum[i] = (real)((double)sum[i] * (double)factor + CPU(row_sum)(at, seen));
        maximum[i] = largest;
        if (has_begun && factor != 1)
            scale_row(head->y + (tile->row + i) * head->y_stride, head->value, factor);
    }
}

/* Rows of a tile of queries begin with the sink, or with the keys so far. */
static void begin_rows(const struct head *head, const struct cpu_tile *queries,
                       const real *log_sums, real *maximum, real *sum)
{
    for (int64_t i = 0; i < queries->rows; i++) {
        maximum[i] = cpu_has_begun(&head->queries) ? log_sums[queries->row + i] : head->sink;
        sum[i] = isinf(maximum[i]) ? (real)0 : (real)1;
    }
}

/* A row that has seen nothing so far, of a block, is 0. */
static void end_rows(const struct head *head, const struct cpu_tile *queries, real *log_sums,
                     const real *maximum, const real *sum)
{
    for (int64_t i = 0; i < queries->rows; i++) {
        const real factor = sum[i] == 0 ? (real)0 : 1 / sum[i];
        if (factor != 1)
            scale_row(head->y + (queries->row + i) * head->y_stride, head->value, factor);
        log_sums[queries->row + i] = sum[i] == 0 ? -(real)INFINITY : maximum[i] + real_log(sum[i]);
    }
}

/* scratch: one score tile, then each row's maximum and sum. */
static void forward_flash(const struct head *head, real *log_sums, real *scratch)
{
    const int64_t side = sbp_least_i64(SBP_ATTENTION_TILE, head->queries.all);
    real *scores = scratch, *maximum = scores + side * side, *sum = maximum + side;
    struct cpu_tile queries, tile;
    for (int64_t row = 0; row < head->queries.rows; row += queries.rows) {
        bool has_begun = cpu_has_begun(&head->queries);
        queries = cpu_query_tile(&head->queries, row);
        begin_rows(head, &queries, log_sums, maximum, sum);
        for (int64_t column = cpu_first_column(&head->queries, &queries); column < queries.columns;
             column += tile.columns) {
            tile = cpu_key_tile(&head->queries, &queries, column);
            if (!cpu_sees(&head->queries, &tile))
                continue;
            tile_scores(scores, head, &tile);
            rescale_rows(head, &tile, has_begun, scores, maximum, sum);
            if (head->dropout.p > 0)
                keep_tile(scores, head, &tile, scores);
            tile_output(head, scores, &tile, has_begun);
            has_begun = true;
        }
        for (int64_t i = 0; i < queries.rows && !has_begun; i++)
            CPU(zero)(head->y + (row + i) * head->y_stride, head->value);
        end_rows(head, &queries, log_sums, maximum, sum);
    }
}

/* The probabilities of a tile again, out of the saved log-sum-exps. */
static void recompute_tile(real *scores, const struct head *head, const struct cpu_tile *tile,
                           const real *log_sums)
{
    tile_scores(scores, head, tile);
    for (int64_t i = 0; i < tile->rows; i++)
        exponentiate(scores + i * tile->stride, cpu_hidden(&head->queries, tile, i),
                     cpu_visible(&head->queries, tile, i), tile->columns, log_sums[tile->row + i]);
}

/* inner[i] = sum_d dy y = sum_j p dp: the softmax gradient's row term, without the masked half. */
static void row_terms(real *inner, const struct head *head, const struct cpu_tile *queries)
{
    for (int64_t i = 0; i < queries->rows; i++) {
        const int64_t at = (queries->row + i) * head->y_stride;
        inner[i] = (real)CPU(row_dot)(head->dy + at, head->output + at, head->value);
    }
}

/* ds becomes p (ds - inner), row by row. */
SBP_SIMD_WIDE
static void score_gradients(real *restrict ds, const real *restrict p, const real *inner,
                            const struct cpu_tile *tile)
{
    for (int64_t i = 0; i < tile->rows; i++)
        for (int64_t j = 0; j < tile->columns; j++)
            ds[i * tile->columns + j] =
                p[i * tile->stride + j] * (ds[i * tile->columns + j] - inner[i]);
}

/* Adds one tile's share to dq, dk and dv: with dp = dy v^T and ds = p (dp - inner),
 * dv += left^T dy, dq += scale ds k, dk += scale ds^T q. `left` is p without dropout. With dropout
 * it is p after its mask, and the same mask is applied to dy v^T before that becomes dp. ds is
 * scratch of the tile's size. */
static void backward_tile(const struct head *head, const struct cpu_tile *tile, const real *p,
                          const real *left, real *ds, const real *inner)
{
    const int64_t columns = tile->columns, keys = tile->column * head->k_stride;
    const int64_t values = tile->column * head->v_stride;
    const int64_t queries = tile->row * head->q_stride;
    const real *dy = head->dy + tile->row * head->y_stride;
    cpu_gemm(head->dv + values, head->v_stride, cpu_transposed(left, tile->stride),
             cpu_plain(dy, head->y_stride), columns, head->value, tile->rows, 1, 1);
    cpu_gemm(ds, columns, cpu_plain(dy, head->y_stride),
             cpu_transposed(head->v + values, head->v_stride), tile->rows, columns, head->value, 1,
             0);
    if (head->dropout.p > 0) {
        struct cpu_tile close = *tile; /* as ds lies */
        close.stride = columns;
        keep_tile(ds, head, &close, ds);
    }
    score_gradients(ds, p, inner, tile);
    cpu_gemm(head->dq + queries, head->q_stride, cpu_plain(ds, columns),
             cpu_plain(head->k + keys, head->k_stride), tile->rows, head->size, columns,
             head->scale, 1);
    cpu_gemm(head->dk + keys, head->k_stride, cpu_transposed(ds, columns),
             cpu_plain(head->q + queries, head->q_stride), columns, head->size, tile->rows,
             head->scale, 1);
}

/* scratch: a number a row, then the score gradients of a tile. */
static void backward_materialised(const struct head *head, const real *probabilities, real *scratch)
{
    const int64_t all = head->queries.all;
    real *inner = scratch, *ds = inner + sbp_least_i64(SBP_ATTENTION_TILE, all);
    struct cpu_tile queries, run;
    for (int64_t row = 0; row < head->queries.rows; row += queries.rows) {
        queries = cpu_query_tile(&head->queries, row);
        row_terms(inner, head, &queries);
        for (int64_t column = 0; column < queries.columns; column += run.columns) {
            run = cpu_key_run(&head->queries, &queries, column);
            const real *const p = probabilities + row * all + run.key;
            if (cpu_sees(&head->queries, &run))
                backward_tile(head, &run, p, p + head->dropout.apart, ds, inner);
        }
    }
}

/* scratch: a number a row, then a tile of probabilities and one of score gradients. */
static void backward_flash(const struct head *head, const real *log_sums, real *scratch)
{
    const int64_t side = sbp_least_i64(SBP_ATTENTION_TILE, head->queries.all);
    real *inner = scratch, *p = inner + side, *ds = p + side * side;
    real left[SBP_ATTENTION_TILE * SBP_ATTENTION_TILE];
    struct cpu_tile queries, tile;
    for (int64_t row = 0; row < head->queries.rows; row += queries.rows) {
        queries = cpu_query_tile(&head->queries, row);
        row_terms(inner, head, &queries);
        for (int64_t column = cpu_first_column(&head->queries, &queries); column < queries.columns;
             column += tile.columns) {
            tile = cpu_key_tile(&head->queries, &queries, column);
            if (!cpu_sees(&head->queries, &tile))
                continue;
            recompute_tile(p, head, &tile, log_sums);
            if (head->dropout.p > 0)
                keep_tile(left, head, &tile, p);
            backward_tile(head, &tile, p, head->dropout.p > 0 ? left : p, ds, inner);
        }
    }
}

/* Head `index` (batch-major) and where it lies: the same offsets hold for gradients. */
static struct head head_of(const struct cpu_attention *attention, int64_t index,
                           struct cpu_head_at *at)
{
    *at = cpu_head_at(attention, index);
    return (struct head){.q = (const real *)attention->q + at->q,
                         .k = (const real *)attention->k + at->k,
                         .v = (const real *)attention->k + at->v,
                         .q_stride = attention->q_stride,
                         .k_stride = attention->k_stride,
                         .v_stride = attention->k_stride,
                         .y_stride = attention->y_stride,
                         .size = attention->shape->head_size,
                         .value = attention->shape->head_size,
                         .queries = attention->queries,
                         .dropout = cpu_dropout_of(attention->shape, index, &attention->queries),
                         .scale = (real)(1 / sqrt((double)attention->shape->head_size)),
                         .sink = CPU(sink_of)(attention, index)};
}

/* A head of materialised attention; log_sums: of a block's. */
static void forward_kept(const struct head *head, real *probabilities, real *log_sums,
                         real *scratch)
{
    if (head->queries.block == NULL)
        forward_materialised(head, probabilities);
    else
        forward_block(head, probabilities, log_sums, scratch);
}

/* scratch begins with a block's log-sum-exps. */
static void forward(const struct cpu_attention *attention, real *y, real *saved, real *scratch)
{
    const struct sbp_attention_shape *shape = attention->shape;
    const bool has_sums = attention->queries.block != NULL;
    real *const tiles = scratch + (has_sums ? sbp_attention_sums_elements(shape) : 0);
    for (int64_t i = 0; i < shape->batch * shape->heads; i++) {
        struct cpu_head_at at;
        struct head head = head_of(attention, i, &at);
        head.y = y + at.y;
        if (shape->kind == SBP_ATTENTION_FLASH)
            forward_flash(&head, saved + at.saved, tiles);
        else
            forward_kept(&head, saved + at.saved, scratch + i * shape->sequence, tiles);
    }
}

/* Backward reads and writes these beside the queries and keys. */
struct back {
    const real *dy, *y, *saved;
    real *dq, *dk; /* dk: of keys and values; both are added to */
};

static void backward(const struct cpu_attention *attention, const struct back *back, real *scratch)
{
    const struct sbp_attention_shape *shape = attention->shape;
    for (int64_t i = 0; i < shape->batch * shape->heads; i++) {
        struct cpu_head_at at;
        struct head head = head_of(attention, i, &at);
        head.dy = back->dy + at.y;
        head.output = back->y + at.y;
        head.dq = back->dq + at.q;
        head.dk = back->dk + at.k;
        head.dv = back->dk + at.v;
        if (shape->kind == SBP_ATTENTION_FLASH)
            backward_flash(&head, back->saved + at.saved, scratch);
        else
            backward_materialised(&head, back->saved + at.saved, scratch);
    }
}

void CPU(attention_forward)(void *y, void *saved, void *scratch, const void *qkv,
                            const struct sbp_attention_context *context,
                            const struct sbp_attention_shape *shape)
{
    const struct cpu_attention attention = cpu_attention_of(shape, qkv, context);
    forward(&attention, y, saved, scratch);
}

void CPU(attention_backward)(void *dqkv, void *scratch, const void *dy, const void *qkv,
                             const void *y, const void *saved,
                             const struct sbp_attention_context *context,
                             const struct sbp_attention_shape *shape)
{
    const struct cpu_attention attention = cpu_attention_of(shape, qkv, context);
    const int64_t heads = shape->batch * shape->heads;
    const struct back back = {.dy = dy,
                              .y = y,
                              .saved = saved,
                              .dq = dqkv,
                              .dk = context == NULL ? dqkv : context->key_gradients};
    if (!cpu_has_begun(&attention.queries))
        CPU(zero)(dqkv, 3 * heads * shape->sequence * shape->head_size);
    if (context != NULL)
        CPU(zero)(back.dk, 2 * heads * attention.queries.keys * shape->head_size);
    backward(&attention, &back, scratch);
}

void CPU(grouped_attention_forward)(void *y, void *saved, void *scratch, const void *q,
                                    const void *kv, const struct sbp_attention_groups *groups,
                                    const struct sbp_attention_shape *shape)
{
    const struct cpu_attention attention = cpu_grouped_of(shape, q, kv, groups);
    forward(&attention, y, saved, scratch);
}

void CPU(grouped_attention_backward)(void *dq, void *dkv, void *scratch, const void *dy,
                                     const void *q, const void *kv, const void *y,
                                     const void *saved, const struct sbp_attention_groups *groups,
                                     const struct sbp_attention_shape *shape)
{
    const struct cpu_attention attention = cpu_grouped_of(shape, q, kv, groups);
    const struct back back = {.dy = dy, .y = y, .saved = saved, .dq = dq, .dk = dkv};
    if (!cpu_has_begun(&attention.queries))
        CPU(zero)(dq, shape->batch * shape->sequence * attention.q_stride);
    CPU(zero)(dkv, shape->batch * attention.queries.keys * attention.k_stride);
    backward(&attention, &back, scratch);
    CPU(sink_gradients)(&attention, dy, y, saved);
}

static struct head latent_head(const struct cpu_latent_head *latent)
{
    return (struct head){.q = latent->q,
                         .k = latent->k,
                         .v = latent->v,
                         .dy = latent->dy,
                         .output = latent->y,
                         .y = latent->y,
                         .dq = latent->dq,
                         .dk = latent->dk,
                         .dv = latent->dv,
                         .q_stride = latent->q_row,
                         .k_stride = latent->size,
                         .v_stride = latent->v_row,
                         .y_stride = latent->y_row,
                         .size = latent->size,
                         .value = latent->value,
                         .queries = latent->queries,
                         .dropout = latent->dropout,
                         .scale = (real)(1 / sqrt((double)latent->size)),
                         .sink = -(real)INFINITY};
}

void CPU(latent_head_forward)(const struct cpu_latent_head *latent, void *scratch)
{
    const struct head head = latent_head(latent);
    if (latent->kind == SBP_ATTENTION_FLASH)
        forward_flash(&head, latent->saved, scratch);
    else
        forward_kept(&head, latent->saved, latent->log_sums, scratch);
}

void CPU(latent_head_backward)(const struct cpu_latent_head *latent, void *scratch)
{
    const struct head head = latent_head(latent);
    if (latent->kind == SBP_ATTENTION_FLASH)
        backward_flash(&head, latent->saved, scratch);
    else
        backward_materialised(&head, latent->saved, scratch);
}

#endif
