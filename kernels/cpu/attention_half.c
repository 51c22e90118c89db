/* Attention on tensors of 16 bits, a head at a time, in tiles of queries and keys.
 *
 * Scores and results are formed in single precision and stored once, so no sum may wait in y, dq,
 * dk or dv while other tiles are worked on: forward first finds each row's log-sum-exp, then forms
 * probabilities that need no rescaling (Dao et al., 2022, without its running maximum); backward
 * sweeps over the queries for dq and over the keys for dk and dv, and forms probabilities in both
 * (Dao, 2023, section 3.1, has the second sweep alone and adds to a wide dq). Materialised
 * attention keeps the probabilities, rounded, and flash attention the log-sum-exps. Features are
 * worked on FEATURES at a time, so that tiles on the stack have one size. Where keys come block by
 * block, y and dq do wait, rounded once a block, and so do probabilities.
 */
#include "kernels/cpu/gemm_priv.h"
#include "kernels/cpu/latent_priv.h"
#include "kernels/cpu/rows_priv.h"
#include "kernels/cpu/sinks_priv.h"

#if STORES_HALF

enum { TILE = SBP_ATTENTION_TILE, FEATURES = 256 };

/* One head of one sequence: q and dq have rows `q_stride` apart, k and v and their gradients
 * `k_stride` and `v_stride`, y and dy `y_stride`. A row of q or k has `size` features, one of v or
 * y `value`. What a direction does not need is NULL. */
struct head {
    const stored *q, *k, *v, *dy, *output;
    stored *y, *dq, *dk, *dv;
    int64_t q_stride, k_stride, v_stride, y_stride, size, value;
    struct cpu_queries queries;
    struct cpu_dropout dropout;
    real scale;
    real sink;             /* a score that joins the sums of flash attention; -infinity: none */
    stored *probabilities; /* (S,K), or NULL: */
    real *log_sums;        /* (S), of flash attention, or of what comes block by block */
};

static void load_rows(real *to, const stored *from, int64_t stride, int64_t rows, int64_t width)
{
    for (int64_t i = 0; i < rows; i++)
        CPU(to_wide)(to + i * width, from + i * stride, width);
}

static void store_rows(stored *to, int64_t stride, const real *from, int64_t rows, int64_t width)
{
    for (int64_t i = 0; i < rows; i++)
        CPU(from_wide)(to + i * stride, from + i * width, width);
}

/* ---- tiles ---------------------------------------------------------------------------------- */

/* of(rows, columns) = scale a b^T, with rows of a and b as many apart as given, those of all values
 * of a tile TILE. */
static void multiply_rows(real *of, const struct cpu_tile *tile, const stored *a, int64_t a_stride,
                          const stored *b, int64_t b_stride, int64_t size, real scale)
{
    real left[TILE * FEATURES], right[TILE * FEATURES];
    for (int64_t first = 0; first < size; first += FEATURES) {
        const int64_t width = sbp_least_i64(FEATURES, size - first);
        load_rows(left, a + first, a_stride, tile->rows, width);
        load_rows(right, b + first, b_stride, tile->columns, width);
        cpu_gemm(of, TILE, cpu_plain(left, width), cpu_transposed(right, width), tile->rows,
                 tile->columns, width, scale, first > 0);
    }
}

/* sum += scale weights b, or weights^T b: b has `inner` rows of which `width` features count. */
static void add_weighted(real *sum, int64_t rows, struct cpu_matrix weights, const stored *b,
                         int64_t b_stride, int64_t inner, int64_t width, real scale)
{
    real right[TILE * FEATURES];
    load_rows(right, b, b_stride, inner, width);
    cpu_gemm(sum, width, weights, cpu_plain(right, width), rows, width, inner, scale, 1);
}

static void form_scores(real *scores, const struct head *head, const struct cpu_tile *tile)
{
    multiply_rows(scores, tile, head->q + tile->row * head->q_stride, head->q_stride,
                  head->k + tile->column * head->k_stride, head->k_stride, head->size, head->scale);
}

/* row = exp(row - shift) from `first` up to n, 0 before and up to `end`. */
SBP_SIMD_WIDE
static void exponentiate(real *row, int64_t first, int64_t n, int64_t end, real shift)
{
    for (int64_t i = 0; i < sbp_least_i64(first, end); i++)
        row[i] = 0;
    for (int64_t i = first; i < n; i++)
        row[i] = real_exp(row[i] - shift);
    for (int64_t i = n > first ? n : first; i < end; i++)
        row[i] = 0;
}

/* log_sums: of the tile's rows. */
static void form_probabilities(real *p, const struct head *head, const struct cpu_tile *tile,
                               const real *log_sums)
{
    form_scores(p, head, tile);
    for (int64_t i = 0; i < tile->rows; i++)
        exponentiate(p + i * TILE, cpu_hidden(&head->queries, tile, i),
                     cpu_visible(&head->queries, tile, i), tile->columns,
                     cpu_shift_of(&head->queries, log_sums[i]));
}

/* A tile's share of a row of probabilities that forward keeps. */
static stored *kept_row(const struct head *head, const struct cpu_tile *tile, int64_t i)
{
    return head->probabilities + (tile->row + i) * head->queries.all + tile->key;
}

/* As forward left them. */
static void recall_probabilities(real *p, const struct head *head, const struct cpu_tile *tile)
{
    if (head->probabilities == NULL) {
        form_probabilities(p, head, tile, head->log_sums + tile->row);
        return;
    }
    for (int64_t i = 0; i < tile->rows; i++) {
        const stored *kept = kept_row(head, tile, i);
        CPU(to_wide)(p + i * TILE, kept, tile->columns);
    }
}

/* Applies dropout to a tile, whose rows are TILE apart. */
SBP_SIMD_WIDE
static void keep_tile(real *x, const struct head *head, const struct cpu_tile *tile)
{
    uint8_t own[TILE];
    const real factor = (real)(1 / (1 - head->dropout.p));
    for (int64_t i = 0; i < tile->rows; i++) {
        const uint8_t *mask = cpu_row_mask(&head->dropout, tile, i, own);
        for (int64_t j = 0; j < tile->columns; j++)
            x[i * TILE + j] = mask[j] ? x[i * TILE + j] * factor : 0;
    }
}

/* ---- forward -------------------------------------------------------------------------------- */

/* Adds a tile's scores to a row's running maximum and sum of exponentials. */
static void add_row(const struct head *head, const real *row, int64_t n, real *maximum, double *sum)
{
    real largest = *maximum;
    for (int64_t i = 0; i < n; i++)
        largest = row[i] > largest ? row[i] : largest;
    if (n <= 0)
        return;
    const real shift = cpu_shift_of(&head->queries, largest);
    double total = 0;
    for (int64_t i = 0; i < n; i++)
        total += (double)real_exp(row[i] - shift);
    *sum = *sum * (double)real_exp(*maximum - shift) + total;
    *maximum = largest;
}

static struct cpu_tile first_tile(const struct head *head, const struct cpu_tile *queries)
{
    return cpu_next_seen(&head->queries, queries, cpu_first_column(&head->queries, queries), true);
}

static struct cpu_tile tile_behind(const struct head *head, const struct cpu_tile *queries,
                                   const struct cpu_tile *tile)
{
    return cpu_next_seen(&head->queries, queries, tile->column + tile->columns, true);
}

/* The log-sum-exps of the rows of a tile of queries. */
static void find_log_sums(const struct head *head, const struct cpu_tile *queries, real *log_sums)
{
    real scores[TILE * TILE], maximum[TILE];
    double sum[TILE];
    for (int64_t i = 0; i < queries->rows; i++) {
        maximum[i] = cpu_has_begun(&head->queries) ? head->log_sums[queries->row + i] : head->sink;
        sum[i] = isinf(maximum[i]) ? 0 : 1;
    }
    struct cpu_tile tile;
    for (tile = first_tile(head, queries); tile.columns > 0;
         tile = tile_behind(head, queries, &tile)) {
        form_scores(scores, head, &tile);
        for (int64_t i = 0; i < tile.rows; i++) {
            const int64_t hidden = cpu_hidden(&head->queries, &tile, i);
            add_row(head, scores + i * TILE + hidden,
                    cpu_visible(&head->queries, &tile, i) - hidden, &maximum[i], &sum[i]);
        }
    }
    for (int64_t i = 0; i < queries->rows; i++)
        log_sums[i] = (real)((double)maximum[i] + log(sum[i]));
}

static void keep_probabilities(const struct head *head, const struct cpu_tile *tile, const real *p)
{
    for (int64_t i = 0; i < tile->rows; i++)
        CPU(from_wide)(kept_row(head, tile, i), p + i * TILE, tile->columns);
}

/* The share that the keys so far keep of their weight; 0 in a row that had none. */
static real share_so_far(const struct head *head, const struct cpu_tile *queries,
                         const real *log_sums, int64_t i)
{
    const real before = head->log_sums[queries->row + i];
    return isinf(before) ? (real)0 : real_exp(before - log_sums[i]);
}

/* Loads y as the keys so far left it, by what is left of their weight. */
static void load_so_far(const struct head *head, const struct cpu_tile *queries,
                        const real *log_sums, int64_t first, int64_t width, real *sum)
{
    load_rows(sum, head->y + queries->row * head->y_stride + first, head->y_stride, queries->rows,
              width);
    for (int64_t i = 0; i < queries->rows; i++) {
        const real share = share_so_far(head, queries, log_sums, i);
        for (int64_t j = 0; j < width; j++)
            sum[i * width + j] *= share;
    }
}

static void weaken_probabilities(const struct head *head, const struct cpu_tile *queries,
                                 const real *log_sums)
{
    for (int64_t i = 0; i < queries->rows; i++) {
        stored *const row = head->probabilities + (queries->row + i) * head->queries.all;
        const real share = share_so_far(head, queries, log_sums, i);
        for (int64_t j = 0; j < head->queries.all && share != 1; j++)
            row[j] = store(load(row[j]) * share);
    }
}

static void form_outputs(const struct head *head, const struct cpu_tile *queries,
                         const real *log_sums, int64_t first)
{
    real p[TILE * TILE], sum[TILE * FEATURES] = {0};
    const int64_t width = sbp_least_i64(FEATURES, head->value - first);
    if (cpu_has_begun(&head->queries))
        load_so_far(head, queries, log_sums, first, width, sum);
    struct cpu_tile tile;
    for (tile = first_tile(head, queries); tile.columns > 0;
         tile = tile_behind(head, queries, &tile)) {
        form_probabilities(p, head, &tile, log_sums);
        if (head->probabilities != NULL)
            keep_probabilities(head, &tile, p);
        if (head->dropout.p > 0)
            keep_tile(p, head, &tile);
        add_weighted(sum, tile.rows, cpu_plain(p, TILE),
                     head->v + tile.column * head->v_stride + first, head->v_stride, tile.columns,
                     width, 1);
    }
    store_rows(head->y + queries->row * head->y_stride + first, head->y_stride, sum, queries->rows,
               width);
}

static void forward_head(const struct head *head)
{
    const bool has_begun = cpu_has_begun(&head->queries), keeps = head->probabilities != NULL;
    real log_sums[TILE];
    struct cpu_tile queries;
    if (keeps && !has_begun)
        CPU(zero)(head->probabilities, head->queries.rows * head->queries.all);
    for (int64_t row = 0; row < head->queries.rows; row += queries.rows) {
        queries = cpu_query_tile(&head->queries, row);
        if (has_begun && first_tile(head, &queries).columns == 0)
            continue;
        if (!has_begun)
            cpu_keep_mask(&head->dropout, &queries);
        find_log_sums(head, &queries, log_sums);
        if (keeps && has_begun)
            weaken_probabilities(head, &queries, log_sums);
        for (int64_t first = 0; first < head->value; first += FEATURES)
            form_outputs(head, &queries, log_sums, first);
        for (int64_t i = 0; head->log_sums != NULL && i < queries.rows; i++)
            head->log_sums[row + i] = log_sums[i];
    }
}

/* ---- backward ------------------------------------------------------------------------------- */

SBP_SIMD_WIDE
static void weigh_row(real *restrict ds, const real *restrict p, int64_t n, real inner)
{
    for (int64_t j = 0; j < n; j++)
        ds[j] = p[j] * (ds[j] - inner);
}

/* ds = p (dp - sum_d dy y) of a tile, the softmax gradient, with dp = dy v^T; and p. With dropout
 * its mask is applied to dp before ds is formed, and to p afterwards. */
static void form_gradients(real *p, real *ds, const struct head *head, const struct cpu_tile *tile)
{
    const int64_t at = tile->row * head->y_stride;
    recall_probabilities(p, head, tile);
    multiply_rows(ds, tile, head->dy + at, head->y_stride, head->v + tile->column * head->v_stride,
                  head->v_stride, head->value, 1);
    if (head->dropout.p > 0)
        keep_tile(ds, head, tile);
    for (int64_t i = 0; i < tile->rows; i++) {
        const int64_t row = at + i * head->y_stride;
        const double inner = CPU(row_dot)(head->dy + row, head->output + row, head->value);
        weigh_row(ds + i * TILE, p + i * TILE, tile->columns, (real)inner);
    }
    if (head->dropout.p > 0)
        keep_tile(p, head, tile);
}

/* dq = scale ds k, for a tile of queries; added to that of blocks before. */
static void query_gradients(const struct head *head, const struct cpu_tile *queries, int64_t first)
{
    real p[TILE * TILE], ds[TILE * TILE], sum[TILE * FEATURES] = {0};
    const int64_t width = sbp_least_i64(FEATURES, head->size - first);
    stored *const dq = head->dq + queries->row * head->q_stride + first;
    if (cpu_has_begun(&head->queries))
        load_rows(sum, dq, head->q_stride, queries->rows, width);
    struct cpu_tile tile;
    for (tile = first_tile(head, queries); tile.columns > 0;
         tile = tile_behind(head, queries, &tile)) {
        form_gradients(p, ds, head, &tile);
        add_weighted(sum, tile.rows, cpu_plain(ds, TILE),
                     head->k + tile.column * head->k_stride + first, head->k_stride, tile.columns,
                     width, head->scale);
    }
    store_rows(dq, head->q_stride, sum, queries->rows, width);
}

/* A tile of keys, features from `first` on of which are worked on, `width` of keys and `value` of
 * values, and their gradients so far. */
struct key_tile {
    int64_t column, first, width, value;
    real keys[TILE * FEATURES], values[TILE * FEATURES];
};

/* How many of a row's features are worked on from `first` on. */
static int64_t width_from(int64_t first, int64_t size)
{
    return size > first ? sbp_least_i64(FEATURES, size - first) : 0;
}

static struct key_tile key_tile_of(const struct head *head, int64_t column, int64_t first)
{
    return (struct key_tile){.column = column,
                             .first = first,
                             .width = width_from(first, head->size),
                             .value = width_from(first, head->value)};
}

/* Adds what a head of queries gives: dk += scale ds^T q and dv += p^T dy. */
static void add_key_gradients(const struct head *head, struct key_tile *at)
{
    real p[TILE * TILE], ds[TILE * TILE];
    struct cpu_tile queries;
    for (int64_t row = 0; row < head->queries.rows; row += queries.rows) {
        queries = cpu_query_tile(&head->queries, row);
        if (queries.columns <= at->column)
            continue;
        const struct cpu_tile tile = cpu_key_tile(&head->queries, &queries, at->column);
        if (!cpu_sees(&head->queries, &tile))
            continue;
        form_gradients(p, ds, head, &tile);
        add_weighted(at->values, tile.columns, cpu_transposed(p, TILE),
                     head->dy + row * head->y_stride + at->first, head->y_stride, tile.rows,
                     at->value, 1);
        add_weighted(at->keys, tile.columns, cpu_transposed(ds, TILE),
                     head->q + row * head->q_stride + at->first, head->q_stride, tile.rows,
                     at->width, head->scale);
    }
}

/* How many keys a tile has from a column on, whoever sees them. */
static int64_t tile_keys(const struct head *head, int64_t column)
{
    return sbp_least_i64(TILE, head->queries.key_run - column % head->queries.key_run);
}

static void store_key_gradients(const struct head *head, const struct key_tile *at)
{
    const int64_t rows = tile_keys(head, at->column);
    store_rows(head->dk + at->column * head->k_stride + at->first, head->k_stride, at->keys, rows,
               at->width);
    store_rows(head->dv + at->column * head->v_stride + at->first, head->v_stride, at->values, rows,
               at->value);
}

/* ---- all heads ------------------------------------------------------------------------------ */

/* A pass over all heads: forward writes y and `saved`, backward reads them. */
struct pass {
    struct cpu_attention attention;
    void *saved;
    stored *y;
    const stored *dy;
    stored *dq, *dk; /* dk: of keys and values */
    real *log_sums;  /* (B,H,S): forward, of materialised attention to blocks; NULL */
};

/* Head `index` (batch-major) and where it lies: the same offsets hold for gradients. */
static struct head head_of(const struct pass *pass, int64_t index)
{
    const struct cpu_attention *attention = &pass->attention;
    const bool flash = attention->shape->kind == SBP_ATTENTION_FLASH, back = pass->dy != NULL;
    const struct cpu_head_at at = cpu_head_at(attention, index);
    return (struct head){.q = (const stored *)attention->q + at.q,
                         .k = (const stored *)attention->k + at.k,
                         .v = (const stored *)attention->k + at.v,
                         .dy = back ? pass->dy + at.y : NULL,
                         .output = pass->y + at.y,
                         .y = pass->y + at.y,
                         .dq = back ? pass->dq + at.q : NULL,
                         .dk = back ? pass->dk + at.k : NULL,
                         .dv = back ? pass->dk + at.v : NULL,
                         .q_stride = attention->q_stride,
                         .k_stride = attention->k_stride,
                         .v_stride = attention->k_stride,
                         .y_stride = attention->y_stride,
                         .size = attention->shape->head_size,
                         .value = attention->shape->head_size,
                         .queries = attention->queries,
                         .dropout = cpu_dropout_of(attention->shape, index, &attention->queries),
                         .scale = (real)(1 / sqrt((double)attention->shape->head_size)),
                         .sink = CPU(sink_of)(attention, index),
                         .probabilities = flash ? NULL : (stored *)pass->saved + at.saved,
                         .log_sums = flash ? (real *)pass->saved + at.saved
                                     : pass->log_sums == NULL
                                         ? NULL
                                         : pass->log_sums + index * attention->shape->sequence};
}

static void forward(const struct pass *pass)
{
    const struct sbp_attention_shape *shape = pass->attention.shape;
    for (int64_t i = 0; i < shape->batch * shape->heads; i++) {
        const struct head head = head_of(pass, i);
        forward_head(&head);
    }
}

static void backward_queries(const struct head *head)
{
    struct cpu_tile queries;
    for (int64_t row = 0; row < head->queries.rows; row += queries.rows) {
        queries = cpu_query_tile(&head->queries, row);
        for (int64_t first = 0; first < head->size; first += FEATURES)
            query_gradients(head, &queries, first);
    }
}

/* One head of keys in one sequence: `index` is the first head of queries of that, and those after
 * it that read the same keys add to the gradients before they are stored. */
static void backward_keys(const struct pass *pass, int64_t index, int64_t column, int64_t first)
{
    const struct cpu_attention *attention = &pass->attention;
    const int64_t heads = attention->shape->heads, own = index % heads;
    const struct head head = head_of(pass, index);
    struct key_tile at = key_tile_of(&head, column, first);
    for (int64_t h = own; h < heads; h++) {
        const struct head other = head_of(pass, index - own + h);
        if (other.k == head.k)
            add_key_gradients(&other, &at);
    }
    store_key_gradients(&head, &at);
}

/* Whether a head of queries is the first of those that read its keys. */
static bool leads(const struct cpu_attention *attention, int64_t head)
{
    for (int64_t h = 0; h < head; h++)
        if (cpu_key_head(attention, h) == cpu_key_head(attention, head))
            return false;
    return true;
}

/* All sequences of a head of queries. */
static void backward_head(const struct pass *pass, int64_t own)
{
    const struct cpu_attention *attention = &pass->attention;
    const struct sbp_attention_shape *shape = attention->shape;
    const bool first_of_keys = leads(attention, own);
    for (int64_t i = own; i < shape->batch * shape->heads; i += shape->heads) {
        const struct head head = head_of(pass, i);
        backward_queries(&head);
        for (int64_t column = 0; column < head.queries.keys && first_of_keys;
             column += tile_keys(&head, column))
            for (int64_t first = 0; first < head.size; first += FEATURES)
                backward_keys(pass, i, column, first);
    }
}

static void backward(const struct pass *pass)
{
    for (int64_t own = 0; own < pass->attention.shape->heads; own++)
        backward_head(pass, own);
}

void CPU(attention_forward)(void *y, void *saved, void *scratch, const void *qkv,
                            const struct sbp_attention_context *context,
                            const struct sbp_attention_shape *shape)
{
    const struct cpu_attention attention = cpu_attention_of(shape, qkv, context);
    forward(&(struct pass){.attention = attention,
                           .saved = saved,
                           .y = y,
                           .log_sums = attention.queries.block == NULL ? NULL : scratch});
}

void CPU(attention_backward)(void *dqkv, void *scratch, const void *dy, const void *qkv,
                             const void *y, const void *saved,
                             const struct sbp_attention_context *context,
                             const struct sbp_attention_shape *shape)
{
    (void)scratch;
    if (context != NULL && (context->block == NULL || context->block->first))
        /* in the place of keys and values */
        CPU(zero)(dqkv, 3 * shape->batch * shape->sequence * shape->heads * shape->head_size);
    backward(&(struct pass){.attention = cpu_attention_of(shape, qkv, context),
                            .saved = cpu_unchanged(saved),
                            .y = cpu_unchanged(y),
                            .dy = dy,
                            .dq = dqkv,
                            .dk = context == NULL ? dqkv : context->key_gradients});
}

void CPU(grouped_attention_forward)(void *y, void *saved, void *scratch, const void *q,
                                    const void *kv, const struct sbp_attention_groups *groups,
                                    const struct sbp_attention_shape *shape)
{
    forward(&(struct pass){.attention = cpu_grouped_of(shape, q, kv, groups),
                           .saved = saved,
                           .y = y,
                           .log_sums = groups->block == NULL ? NULL : scratch});
}

/* No local head of queries may read a head of keys: its gradient is 0. */
void CPU(grouped_attention_backward)(void *dq, void *dkv, void *scratch, const void *dy,
                                     const void *q, const void *kv, const void *y,
                                     const void *saved, const struct sbp_attention_groups *groups,
                                     const struct sbp_attention_shape *shape)
{
    const struct pass pass = {.attention = cpu_grouped_of(shape, q, kv, groups),
                              .saved = cpu_unchanged(saved),
                              .y = cpu_unchanged(y),
                              .dy = dy,
                              .dq = dq,
                              .dk = dkv};
    (void)scratch;
    CPU(zero)(dkv, shape->batch * pass.attention.queries.keys * pass.attention.k_stride);
    backward(&pass);
    CPU(sink_gradients)(&pass.attention, dy, y, saved);
}

static struct head latent_head(const struct cpu_latent_head *latent)
{
    const bool flash = latent->kind == SBP_ATTENTION_FLASH;
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
                         .sink = -(real)INFINITY,
                         .probabilities = flash ? NULL : latent->saved,
                         .log_sums = flash ? latent->saved : latent->log_sums};
}

void CPU(latent_head_forward)(const struct cpu_latent_head *latent, void *scratch)
{
    const struct head head = latent_head(latent);
    (void)scratch;
    forward_head(&head);
}

void CPU(latent_head_backward)(const struct cpu_latent_head *latent, void *scratch)
{
    const struct head head = latent_head(latent);
    const int64_t most = head.size > head.value ? head.size : head.value;
    (void)scratch;
    backward_queries(&head);
    for (int64_t column = 0; column < head.queries.keys; column += tile_keys(&head, column))
        for (int64_t first = 0; first < most; first += FEATURES) {
            struct key_tile at = key_tile_of(&head, column, first);
            add_key_gradients(&head, &at);
            store_key_gradients(&head, &at);
        }
}

#endif
