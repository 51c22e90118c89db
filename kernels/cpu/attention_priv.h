/* Where the heads of attention lie, and which keys their queries see.
 *
 * Packed and without a context, keys and values lie beside the queries, in rows of {q, k, v}. With
 * one they are all of the sequence, in rows of {k, v}, and the local queries are some of its rows,
 * in runs that follow each other there: no tile of queries goes beyond its run. Grouped, they are
 * always in rows of {k, v}, and several heads of queries read one of these. Keys and values of a
 * block are some rows of the sequence, too, in runs of their own.
 */
#ifndef SBP_KERNELS_CPU_ATTENTION_PRIV_H
#define SBP_KERNELS_CPU_ATTENTION_PRIV_H

#include <stddef.h>

#include "base/math/random.h"
#include "kernels/cpu/cpu_priv.h"
#include "kernels/cpu/real_priv.h"

/* Backward changes neither what forward saved nor its output. */
static inline void *cpu_unchanged(const void *from)
{
    return (void *)(uintptr_t)from;
}

/* The queries of a head. */
struct cpu_queries {
    int64_t rows, keys;              /* keys: those at hand, */
    int64_t all;                     /* and in the sequence */
    int64_t run;                     /* rows that follow each other in the sequence; divides rows */
    int64_t key_run;                 /* likewise keys */
    const struct sbp_digits *digits; /* which rows they are; NULL: all, in order */
    const struct sbp_attention_block *block; /* which the keys are; NULL: all, in order */
    bool causal;                             /* a query sees no key behind its place, */
    int64_t window;                          /* and its last so many alone; 0: all */
};

/* Rows are queries, columns keys. */
struct cpu_tile {
    int64_t row, rows, place;     /* place: the first query's, in the sequence */
    int64_t column, columns, key; /* key: the place of the first column */
    int64_t stride; /* elements between rows of its scores, where these are kept closely */
};

/* Exponentials are formed of scores minus this, for their largest one or log-sum-exp. Where all of
 * a block's scores are -infinity they count for nothing: another block may have larger ones. */
static inline real cpu_shift_of(const struct cpu_queries *queries, real largest)
{
    return queries->block != NULL && largest == -(real)INFINITY ? 0 : largest;
}

/* Whether other keys came before those at hand. */
static inline bool cpu_has_begun(const struct cpu_queries *queries)
{
    return queries->block != NULL && !queries->block->first;
}

/* The tile of queries that begins with a row, and all keys up to the last that any of them sees;
 * or all of a block. */
static inline struct cpu_tile cpu_query_tile(const struct cpu_queries *queries, int64_t row)
{
    const int64_t rows = sbp_least_i64(SBP_ATTENTION_TILE, queries->run - row % queries->run);
    const int64_t place = queries->digits == NULL ? row : sbp_digits_global(queries->digits, row);
    return (struct cpu_tile){.row = row,
                             .rows = rows,
                             .place = place,
                             .columns = queries->causal && queries->block == NULL ? place + rows
                                                                                  : queries->keys,
                             .stride = queries->all};
}

/* The keys that follow each other in the sequence from a column on, no further than the tile's
 * queries see. */
static inline struct cpu_tile cpu_key_run(const struct cpu_queries *queries,
                                          const struct cpu_tile *of, int64_t column)
{
    const int64_t left = queries->key_run - column % queries->key_run;
    struct cpu_tile tile = *of;
    tile.column = column;
    tile.columns = sbp_least_i64(left, of->columns - column);
    tile.key = queries->block == NULL ? column : sbp_digits_global(queries->block->keys, column);
    return tile;
}

/* The same, of no more than a tile's side. */
static inline struct cpu_tile cpu_key_tile(const struct cpu_queries *queries,
                                           const struct cpu_tile *of, int64_t column)
{
    struct cpu_tile tile = cpu_key_run(queries, of, column);
    tile.columns = tile.stride = sbp_least_i64(SBP_ATTENTION_TILE, tile.columns);
    return tile;
}

/* How many of the tile's columns query `i` of the tile sees: its first ones. */
static inline int64_t cpu_visible(const struct cpu_queries *queries, const struct cpu_tile *tile,
                                  int64_t i)
{
    const int64_t seen = tile->place + i + 1 - tile->key;
    if (!queries->causal)
        return tile->columns;
    return seen < 0 ? 0 : sbp_least_i64(tile->columns, seen);
}

/* The first of the tile's columns that query `i` sees; no less than cpu_visible: it sees none. */
static inline int64_t cpu_hidden(const struct cpu_queries *queries, const struct cpu_tile *tile,
                                 int64_t i)
{
    const int64_t first = tile->place + i + 1 - queries->window - tile->key;
    return queries->window == 0 || first < 0 ? 0 : first;
}

/* Whether any query of the tile sees any key of it. */
static inline bool cpu_sees(const struct cpu_queries *queries, const struct cpu_tile *tile)
{
    return cpu_visible(queries, tile, tile->rows - 1) > 0 &&
           cpu_hidden(queries, tile, 0) < tile->columns;
}

/* The first run of keys behind a column, or the first tile of them, that some query sees; columns
 * 0: there is none. */
static inline struct cpu_tile cpu_next_seen(const struct cpu_queries *queries,
                                            const struct cpu_tile *of, int64_t column, bool by_tile)
{
    while (column < of->columns) {
        const struct cpu_tile tile =
            by_tile ? cpu_key_tile(queries, of, column) : cpu_key_run(queries, of, column);
        if (cpu_sees(queries, &tile))
            return tile;
        column += tile.columns;
    }
    return (struct cpu_tile){.columns = 0};
}

/* The first column, a multiple of a tile's side, that any query of a tile sees; those of a block
 * are looked at one by one. */
static inline int64_t cpu_first_column(const struct cpu_queries *queries,
                                       const struct cpu_tile *tile)
{
    const int64_t first = tile->place + 1 - queries->window;
    return queries->window == 0 || queries->block != NULL || first < 0
               ? 0
               : first / SBP_ATTENTION_TILE * SBP_ATTENTION_TILE;
}

/* Dropout of a head's probabilities. */
struct cpu_dropout {
    double p;       /* 0: none */
    uint64_t key;   /* of seed and stream */
    uint64_t first; /* the index in the whole of the sequence's first query and key */
    int64_t keys;
    int64_t apart; /* elements from a probability that is kept to what is left of it */
    uint8_t *mask; /* (S,K), or NULL */
};

/* Head `index` (batch-major). */
static inline struct cpu_dropout cpu_dropout_of(const struct sbp_attention_shape *shape,
                                                int64_t index, const struct cpu_queries *queries)
{
    const struct sbp_attention_dropout *of = shape->dropout;
    const int64_t rows = shape->sequence, keys = queries->all;
    if (of == NULL || of->p <= 0)
        return (struct cpu_dropout){0};
    const struct sbp_digits *samples = &of->region->dim[0], *heads = &of->region->dim[2];
    const int64_t sample = of->region->first + sbp_digits_global(samples, index / shape->heads);
    const int64_t head =
        sample * sbp_digits_global_size(heads) + sbp_digits_global(heads, index % shape->heads);
    return (struct cpu_dropout){.p = of->p,
                                .key = sbp_random_key(of->seed, of->stream),
                                .first = (uint64_t)head * (uint64_t)(keys * keys),
                                .keys = keys,
                                .apart = shape->batch * shape->heads * rows * keys,
                                .mask = of->mask == NULL ? NULL : of->mask + index * rows * keys};
}

/* The mask of a tile's row `i`, where it is kept or, decided anew, in `own` (the tile's columns).
 */
static inline const uint8_t *cpu_row_mask(const struct cpu_dropout *dropout,
                                          const struct cpu_tile *tile, int64_t i, uint8_t *own)
{
    const int64_t query = tile->place + i;
    if (dropout->mask != NULL)
        return dropout->mask + (tile->row + i) * dropout->keys + tile->key;
    sbp_cpu_decide_dropout(own, tile->columns, dropout->p, dropout->key,
                           dropout->first + (uint64_t)(query * dropout->keys + tile->key));
    return own;
}

/* Decides the rows of `tile->rows` queries for all keys, where the mask is kept. */
static inline void cpu_keep_mask(const struct cpu_dropout *dropout, const struct cpu_tile *tile)
{
    for (int64_t i = 0; i < tile->rows && dropout->mask != NULL; i++)
        sbp_cpu_decide_dropout(dropout->mask + (tile->row + i) * dropout->keys, dropout->keys,
                               dropout->p, dropout->key,
                               dropout->first + (uint64_t)((tile->place + i) * dropout->keys));
}

struct cpu_attention {
    const struct sbp_attention_shape *shape;
    const struct sbp_attention_groups *groups; /* NULL: each head has keys of its own */
    const void *q, *k;                         /* (B,S,H,.,D), (B,K,H or KH,.,D) */
    int64_t q_stride, k_stride, y_stride;      /* elements from row to row, */
    int64_t q_head, k_head;                    /* and from head to head */
    int64_t first_key, first_value;            /* of a head, in its part of a row of k */
    struct cpu_queries queries;
};

/* The head of keys and values that a head of queries reads, which is among the local ones. */
static inline int64_t cpu_key_head(const struct cpu_attention *attention, int64_t head)
{
    const struct sbp_attention_groups *groups = attention->groups;
    return groups == NULL
               ? head
               : sbp_digits_local(groups->kv_heads,
                                  sbp_digits_global(groups->heads, head) / groups->share);
}

/* Queries of some rows of the sequence, and keys of all or of a block. */
static inline struct cpu_queries cpu_queries_of(int64_t rows, const struct sbp_digits *digits,
                                                const struct sbp_attention_block *block,
                                                bool causal)
{
    const int64_t all = digits == NULL ? rows : sbp_digits_global_size(digits);
    return (struct cpu_queries){.rows = rows,
                                .keys = block == NULL ? all : sbp_digits_local_size(block->keys),
                                .all = all,
                                .run = digits == NULL ? rows : sbp_cpu_digits_run(digits),
                                .key_run = block == NULL ? all : sbp_cpu_digits_run(block->keys),
                                .digits = digits,
                                .block = block,
                                .causal = causal};
}

static inline struct cpu_attention cpu_attention_of(const struct sbp_attention_shape *shape,
                                                    const void *qkv,
                                                    const struct sbp_attention_context *context)
{
    const int64_t y_stride = shape->heads * shape->head_size, head = shape->head_size;
    struct cpu_attention attention = {
        .shape = shape,
        .q = qkv,
        .k = qkv,
        .q_stride = 3 * y_stride,
        .k_stride = 3 * y_stride,
        .y_stride = y_stride,
        .q_head = 3 * head,
        .k_head = 3 * head,
        .first_key = head,
        .first_value = 2 * head,
        .queries = cpu_queries_of(shape->sequence, NULL, NULL, shape->causal)};
    if (context == NULL)
        return attention;
    attention.k = context->keys;
    attention.k_stride = 2 * y_stride;
    attention.k_head = 2 * head;
    attention.first_key = 0;
    attention.first_value = head;
    attention.queries =
        cpu_queries_of(shape->sequence, context->rows, context->block, shape->causal);
    return attention;
}

static inline struct cpu_attention cpu_grouped_of(const struct sbp_attention_shape *shape,
                                                  const void *q, const void *kv,
                                                  const struct sbp_attention_groups *groups)
{
    const int64_t y_stride = shape->heads * shape->head_size;
    struct cpu_attention attention = {
        .shape = shape,
        .groups = groups,
        .q = q,
        .k = kv,
        .q_stride = y_stride,
        .k_stride = 2 * sbp_digits_local_size(groups->kv_heads) * shape->head_size,
        .y_stride = y_stride,
        .q_head = shape->head_size,
        .k_head = 2 * shape->head_size,
        .first_value = shape->head_size,
        .queries = cpu_queries_of(shape->sequence, groups->rows, groups->block, shape->causal)};
    attention.queries.window = groups->window;
    return attention;
}

/* Offsets of a head's operands, and of what it saves, in elements. */
struct cpu_head_at {
    int64_t q, k, v, y, saved;
};

/* Heads are counted batch by batch. */
static inline struct cpu_head_at cpu_head_at(const struct cpu_attention *attention, int64_t index)
{
    const struct sbp_attention_shape *shape = attention->shape;
    const struct cpu_queries *queries = &attention->queries;
    const int64_t batch = index / shape->heads, head = index % shape->heads;
    const int64_t a_row = shape->kind == SBP_ATTENTION_FLASH ? 1 : queries->all;
    const int64_t k = batch * queries->keys * attention->k_stride +
                      cpu_key_head(attention, head) * attention->k_head;
    return (struct cpu_head_at){
        .q = batch * queries->rows * attention->q_stride + head * attention->q_head,
        .k = k + attention->first_key,
        .v = k + attention->first_value,
        .y = batch * queries->rows * attention->y_stride + head * shape->head_size,
        .saved = index * queries->rows * a_row};
}

#endif
