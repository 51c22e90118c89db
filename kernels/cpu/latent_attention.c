/* Latent attention (DeepSeek-V2, 2024, section 2.1): each head's keys are put together out of the
 * part that all heads share, turned by the places of the sequence, and of their own; values are
 * read where they are. One head works at a time, so that scratch has the keys of one.
 */
#include "kernels/cpu/latent_priv.h"

/* What all heads of a pass share. Forward has no gradients (NULL). */
struct pass {
    const struct sbp_latent_keys *keys;
    const struct sbp_attention_shape *shape;
    struct cpu_queries queries;
    const stored *q, *dy;
    stored *y, *dq;
    void *saved;
    real *log_sums;       /* (B,H,S): forward, of materialised attention to blocks; NULL */
    real *sums;           /* (K, rope): gradients of the shared part, over heads */
    stored *whole, *back; /* (K, rope + nope): a head's keys, and their gradient */
    stored *tiles;        /* the rest of scratch */
};

static struct pass pass_of(const struct sbp_latent_keys *keys,
                           const struct sbp_attention_shape *shape, const void *q, void *scratch,
                           bool backward)
{
    struct pass pass = {.keys = keys,
                        .shape = shape,
                        .queries =
                            cpu_queries_of(shape->sequence, keys->rows, keys->block, shape->causal),
                        .q = q,
                        .sums = scratch,
                        .whole = scratch};
    const int64_t size = pass.queries.keys * shape->head_size;
    if (backward) { /* sums have room for reals twice as wide as what is stored */
        pass.whole += 2 * pass.queries.keys * keys->parts.rope;
        pass.back = pass.whole + size;
    } else if (keys->block != NULL && shape->kind != SBP_ATTENTION_FLASH) {
        pass.log_sums = scratch;
        pass.whole += sbp_attention_sums_elements(shape);
    }
    pass.tiles = pass.whole + (backward ? 2 : 1) * size;
    return pass;
}

static void copy(stored *to, const stored *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = from[i];
}

/* Elements of a head in a row of keys and values. */
static int64_t kv_width(const struct pass *pass)
{
    return pass->keys->parts.nope + pass->keys->parts.value;
}

/* Where a head's part of the first row of keys and values of a sequence begins, in elements. */
static int64_t kv_at(const struct pass *pass, int64_t batch, int64_t head)
{
    return batch * pass->queries.keys * pass->keys->kv_row + head * kv_width(pass);
}

/* Which rows of the sequence the keys are. */
static struct sbp_digits places_of(const struct pass *pass)
{
    return pass->keys->block == NULL ? (struct sbp_digits){.rest = pass->queries.keys}
                                     : *pass->keys->block->keys;
}

/* The shared part of all keys of a sequence, which stays there while heads take turns. */
static void put_shared(const struct pass *pass, int64_t batch)
{
    const int64_t keys = pass->queries.keys, rope = pass->keys->parts.rope;
    const struct sbp_digits places = places_of(pass);
    const stored *from = (const stored *)pass->keys->shared + batch * keys * pass->keys->shared_row;
    for (int64_t row = 0; row < keys; row++)
        copy(pass->whole + row * pass->shape->head_size, from + row * pass->keys->shared_row, rope);
    CPU(rotary)(pass->whole, &places, 1, 1, pass->shape->head_size, rope, false);
}

static void put_own(const struct pass *pass, const stored *kv)
{
    const struct sbp_latent_parts *parts = &pass->keys->parts;
    for (int64_t row = 0; row < pass->queries.keys; row++)
        copy(pass->whole + row * pass->shape->head_size + parts->rope,
             kv + row * pass->keys->kv_row, parts->nope);
}

static struct cpu_latent_head head_of(const struct pass *pass, int64_t batch, int64_t head)
{
    const struct sbp_attention_shape *shape = pass->shape;
    const struct sbp_latent_parts *parts = &pass->keys->parts;
    const int64_t rows = pass->queries.rows, index = batch * shape->heads + head;
    const int64_t row = batch * rows * shape->heads + head, values = kv_at(pass, batch, head);
    const bool flash = shape->kind == SBP_ATTENTION_FLASH, back = pass->back != NULL;
    const int64_t saved = index * rows * (flash ? 1 : pass->queries.all);
    return (struct cpu_latent_head){
        .q = pass->q + row * shape->head_size,
        .k = pass->whole,
        .v = (const stored *)pass->keys->kv + values + parts->nope,
        .dy = back ? pass->dy + row * parts->value : NULL,
        .y = pass->y + row * parts->value,
        .dq = back ? pass->dq + row * shape->head_size : NULL,
        .dk = pass->back,
        .dv = back ? (stored *)pass->keys->kv_gradients + values + parts->nope : NULL,
        .saved =
            flash ? (void *)((real *)pass->saved + saved) : (void *)((stored *)pass->saved + saved),
        .log_sums = pass->log_sums == NULL ? NULL : pass->log_sums + index * rows,
        .q_row = shape->heads * shape->head_size,
        .v_row = pass->keys->kv_row,
        .y_row = shape->heads * parts->value,
        .size = shape->head_size,
        .value = parts->value,
        .queries = pass->queries,
        .dropout = cpu_dropout_of(shape, index, &pass->queries),
        .kind = shape->kind};
}

void CPU(latent_attention_forward)(void *y, void *saved, void *scratch, const void *q,
                                   const struct sbp_latent_keys *keys,
                                   const struct sbp_attention_shape *shape)
{
    struct pass pass = pass_of(keys, shape, q, scratch, false);
    pass.y = y;
    pass.saved = saved;
    for (int64_t b = 0; b < shape->batch; b++) {
        put_shared(&pass, b);
        for (int64_t h = 0; h < shape->heads; h++) {
            const struct cpu_latent_head head = head_of(&pass, b, h);
            put_own(&pass, (const stored *)keys->kv + kv_at(&pass, b, h));
            CPU(latent_head_forward)(&head, pass.tiles);
        }
    }
}

/* ---- backward ------------------------------------------------------------------------------- */

/* Gives a head's gradient of its keys to its own part, and adds to the shared one. */
static void give_back(const struct pass *pass, stored *kv_gradient)
{
    const int64_t rope = pass->keys->parts.rope;
    for (int64_t row = 0; row < pass->queries.keys; row++) {
        const stored *gradient = pass->back + row * pass->shape->head_size;
        for (int64_t i = 0; i < rope; i++)
            pass->sums[row * rope + i] += load(gradient[i]);
        copy(kv_gradient + row * pass->keys->kv_row, gradient + rope, pass->keys->parts.nope);
    }
}

/* What the heads of a sequence gave to the shared part is turned back. */
static void give_shared(const struct pass *pass, int64_t batch)
{
    const int64_t keys = pass->queries.keys, rope = pass->keys->parts.rope;
    const int64_t apart = pass->keys->shared_row;
    const struct sbp_digits places = places_of(pass);
    stored *to = (stored *)pass->keys->shared_gradients + batch * keys * apart;
    sbp_kernels_cpu(sbp_real_wide(CPU_REAL))->rotary(pass->sums, &places, 1, 1, rope, rope, true);
    for (int64_t row = 0; row < keys; row++)
        CPU(from_wide)(to + row * apart, pass->sums + row * rope, rope);
}

/* The gradients of keys and values of a sequence, in rows that others may lie between. */
static void clear_values(const struct pass *pass, int64_t batch)
{
    stored *const first = (stored *)pass->keys->kv_gradients + kv_at(pass, batch, 0);
    const int64_t width = pass->shape->heads * kv_width(pass);
    for (int64_t row = 0; row < pass->queries.keys; row++) {
        CPU(zero)(first + row * pass->keys->kv_row, width);
    }
    for (int64_t i = 0; i < pass->queries.keys * pass->keys->parts.rope; i++)
        pass->sums[i] = 0;
}

void CPU(latent_attention_backward)(void *dq, void *scratch, const void *dy, const void *q,
                                    const void *y, const void *saved,
                                    const struct sbp_latent_keys *keys,
                                    const struct sbp_attention_shape *shape)
{
    struct pass pass = pass_of(keys, shape, q, scratch, true);
    const int64_t size = pass.queries.keys * shape->head_size;
    pass.y = cpu_unchanged(y);
    pass.saved = cpu_unchanged(saved);
    pass.dy = dy;
    pass.dq = dq;
    if (!cpu_has_begun(&pass.queries))
        CPU(zero)(dq, shape->batch * shape->sequence * shape->heads * shape->head_size);
    for (int64_t b = 0; b < shape->batch; b++) {
        put_shared(&pass, b);
        clear_values(&pass, b);
        for (int64_t h = 0; h < shape->heads; h++) {
            const struct cpu_latent_head head = head_of(&pass, b, h);
            put_own(&pass, (const stored *)keys->kv + kv_at(&pass, b, h));
            CPU(zero)(pass.back, size);
            CPU(latent_head_backward)(&head, pass.tiles);
            give_back(&pass, (stored *)keys->kv_gradients + kv_at(&pass, b, h));
        }
        give_shared(&pass, b);
    }
}
