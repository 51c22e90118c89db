/* Attention on the GPU to keys and values that come block by block, beside its CPU twin in double
 * that has all of them at once: packed, grouped and latent, blocks of any number, sizes and order,
 * of rows that lie anywhere in the sequence. */
#include <math.h>
#include <string.h>

#include "tests/gpu/device.h"

enum family { PACKED, GROUPED, LATENT, FAMILIES };
enum { MOST_BLOCKS = 24 };

struct problem {
    enum family family;
    struct sbp_attention_shape shape;
    struct sbp_digits rows, heads, kv_heads; /* which the local ones are */
    int64_t share, window;
    struct sbp_latent_parts parts;
    int64_t all; /* rows of the sequence */
    struct check_chance chance;
    bool sinks, adds;                     /* adds: to what the sinks' gradients have */
    struct sbp_digits block[MOST_BLOCKS]; /* in the order in which they come */
    int blocks;
};

static struct sbp_digits whole(int64_t size)
{
    return (struct sbp_digits){.rest = size};
}

/* ---- problems -------------------------------------------------------------------------------- */

/* In the place of a block come those that have each a value of one of its digits. */
static void cut_block(struct problem *p, int at, int digit)
{
    const struct sbp_digits of = p->block[at];
    if (of.fixed[digit] >= 0 || p->blocks + of.size[digit] - 1 > MOST_BLOCKS)
        return;
    for (int64_t value = 0; value < of.size[digit]; value++) {
        struct sbp_digits *const to = &p->block[value == 0 ? at : p->blocks++];
        *to = of;
        to->fixed[digit] = value;
    }
}

/* All rows are in one of the blocks, some of which are cut again. */
static void draw_blocks(struct check *check, struct problem *p, const struct check_split *split)
{
    p->blocks = 1;
    p->block[0] = split->whole;
    for (int cut = 0; cut < 4 && split->whole.count > 0; cut++)
        cut_block(p, (int)check_integer(check, 0, p->blocks - 1),
                  (int)check_integer(check, 0, split->whole.count - 1));
    for (int i = p->blocks - 1; i > 0; i--) {
        const int other = (int)check_integer(check, 0, i);
        const struct sbp_digits moved = p->block[i];
        p->block[i] = p->block[other];
        p->block[other] = moved;
    }
}

static void draw_family(struct check *check, struct problem *p)
{
    const int64_t wide = check_integer(check, 0, 1) == 1 ? 8 : 1;
    p->shape.head_size = wide * check_integer(check, 1, 3);
    p->shape.heads = check_integer(check, 1, 3);
    p->share = 1;
    if (p->family == LATENT) {
        p->parts = (struct sbp_latent_parts){2 * wide * check_integer(check, 0, 2),
                                             wide * check_integer(check, 1, 3),
                                             wide * check_integer(check, 1, 4)};
        p->shape.head_size = p->parts.rope + p->parts.nope;
    }
    if (p->family == GROUPED) {
        p->share = check_integer(check, 1, 2);
        p->kv_heads = whole(p->shape.heads);
        p->shape.heads *= p->share;
        if (p->shape.causal && check_integer(check, 0, 1) == 1)
            p->window = check_integer(check, 1, p->all + 2);
        p->sinks = p->shape.kind == SBP_ATTENTION_FLASH && check_integer(check, 0, 1) == 1;
        p->adds = check_integer(check, 0, 1) == 1;
    }
    p->heads = whole(p->shape.heads);
}

static struct problem draw(struct check *check, enum family family, int64_t longest)
{
    struct check_split split = check_split(check, longest);
    while (split.whole.count == 0)
        split = check_split(check, longest);
    struct problem p = {.family = family,
                        .rows = check_rank_digits(&split, check_integer(check, 0, split.ranks - 1)),
                        .all = split.global,
                        .chance = check_chance(check)};
    p.shape = (struct sbp_attention_shape){
        .batch = check_integer(check, 1, 2),
        .sequence = split.local,
        .causal = check_integer(check, 0, 3) > 0,
        .kind = check_integer(check, 0, 1) ? SBP_ATTENTION_FLASH : SBP_ATTENTION_MATERIALISED};
    draw_family(check, &p);
    draw_blocks(check, &p, &split);
    return p;
}

/* Elements of q and its gradient; of y; of a row of keys and values; of what forward saves. */
struct sizes {
    int64_t q, y, row, saved;
};

static struct sizes sizes_of(const struct problem *p)
{
    const int64_t rows = p->shape.batch * p->shape.heads * p->shape.sequence;
    const int64_t value = p->family == LATENT ? p->parts.value : p->shape.head_size;
    const int64_t kv_heads = p->family == GROUPED ? p->kv_heads.rest : p->shape.heads;
    return (struct sizes){.q = rows * p->shape.head_size * (p->family == PACKED ? 3 : 1),
                          .y = rows * value,
                          .row = p->family == LATENT
                                     ? p->shape.heads * (p->parts.nope + value) + p->parts.rope
                                     : 2 * kv_heads * p->shape.head_size,
                          .saved = p->shape.kind == SBP_ATTENTION_FLASH ? rows : rows * p->all};
}

static int64_t scratch_elements(const struct problem *p)
{
    struct sbp_attention_shape longest = p->shape;
    longest.sequence = p->all;
    return sbp_attention_sums_elements(&p->shape) +
           (p->family == LATENT ? sbp_latent_scratch_elements(&longest, &p->parts, true)
                                : sbp_attention_scratch_elements(&longest));
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* A pass reads and writes these; keys and their gradients are those of the block, NULL: of all. */
struct operands {
    struct sbp_attention_shape shape;
    const struct sbp_attention_block *block;
    const void *q, *dy, *keys, *sinks;
    void *y, *saved, *scratch, *dq, *key_gradients, *sink_gradients;
};

/* device NULL: its twin. */
static void call_packed(struct device *d, const struct sbp_kernels *twin, const struct problem *p,
                        const struct operands *o, bool back)
{
    const struct sbp_attention_context context = {
        .rows = &p->rows, .keys = o->keys, .key_gradients = o->key_gradients, .block = o->block};
    if (twin != NULL && back)
        twin->attention_backward(o->dq, o->scratch, o->dy, o->q, o->y, o->saved, &context,
                                 &o->shape);
    else if (twin != NULL)
        twin->attention_forward(o->y, o->saved, o->scratch, o->q, &context, &o->shape);
    else if (back)
        d->kernels.attention_backward(&d->cuda, o->dq, o->dy, o->q, o->y, o->saved, &context,
                                      &o->shape);
    else
        d->kernels.attention_forward(&d->cuda, o->y, o->saved, o->scratch, o->q, &context,
                                     &o->shape);
}

static void call_grouped(struct device *d, const struct sbp_kernels *twin, const struct problem *p,
                         const struct operands *o, bool back)
{
    const struct sbp_attention_groups groups = {.heads = &p->heads,
                                                .kv_heads = &p->kv_heads,
                                                .share = p->share,
                                                .window = p->window,
                                                .rows = &p->rows,
                                                .block = o->block,
                                                .sinks = o->sinks,
                                                .sink_gradients = o->sink_gradients,
                                                .adds = p->adds};
    if (twin != NULL && back)
        twin->grouped_attention_backward(o->dq, o->key_gradients, o->scratch, o->dy, o->q, o->keys,
                                         o->y, o->saved, &groups, &o->shape);
    else if (twin != NULL)
        twin->grouped_attention_forward(o->y, o->saved, o->scratch, o->q, o->keys, &groups,
                                        &o->shape);
    else if (back)
        d->kernels.grouped_attention_backward(&d->cuda, o->dq, o->key_gradients, o->dy, o->q,
                                              o->keys, o->y, o->saved, &groups, &o->shape);
    else
        d->kernels.grouped_attention_forward(&d->cuda, o->y, o->saved, o->scratch, o->q, o->keys,
                                             &groups, &o->shape);
}

/* The shared part lies behind the others, in rows with them. */
static void call_latent(struct device *d, const struct sbp_kernels *twin, const struct problem *p,
                        const struct operands *o, bool back)
{
    const int64_t row = sizes_of(p).row,
                  bytes = twin != NULL ? (int64_t)sizeof(double) : d->check->kernels->real_bytes;
    const int64_t apart = (row - p->parts.rope) * bytes;
    const struct sbp_latent_keys keys = {.kv = o->keys,
                                         .shared = (const char *)o->keys + apart,
                                         .kv_gradients = o->key_gradients,
                                         .shared_gradients = (char *)o->key_gradients + apart,
                                         .kv_row = row,
                                         .shared_row = row,
                                         .parts = p->parts,
                                         .rows = &p->rows,
                                         .block = o->block};
    if (twin != NULL && back)
        twin->latent_attention_backward(o->dq, o->scratch, o->dy, o->q, o->y, o->saved, &keys,
                                        &o->shape);
    else if (twin != NULL)
        twin->latent_attention_forward(o->y, o->saved, o->scratch, o->q, &keys, &o->shape);
    else if (back)
        d->kernels.latent_attention_backward(&d->cuda, o->dq, o->scratch, o->dy, o->q, o->y,
                                             o->saved, &keys, &o->shape);
    else
        d->kernels.latent_attention_forward(&d->cuda, o->y, o->saved, o->scratch, o->q, &keys,
                                            &o->shape);
}

static void call(struct device *d, const struct sbp_kernels *twin, const struct problem *p,
                 const struct operands *o, bool back)
{
    static void (*const families[])(struct device *, const struct sbp_kernels *,
                                    const struct problem *, const struct operands *,
                                    bool) = {call_packed, call_grouped, call_latent};
    families[p->family](d, twin, p, o, back);
}

/* ---- both sides ------------------------------------------------------------------------------ */

/* A mask of its own for each side, and the places where it is drawn for. */
static void set_dropout(struct check *check, const struct problem *p, struct operands *o,
                        struct check_dropping *at)
{
    at->region = (struct sbp_region){.dim = {whole(p->shape.batch), p->rows, p->heads, whole(1)}};
    o->shape = p->shape;
    o->shape.dropout = check_dropping(
        check, &p->chance, p->shape.kind == SBP_ATTENTION_MATERIALISED ? sizes_of(p).saved : 0, at);
}

/* All in double, with all keys at once. */
static struct operands run_twin(struct device *d, const struct problem *p, const double *q,
                                struct check_dropping *at)
{
    struct check *check = d->check;
    const struct sizes n = sizes_of(p);
    const int64_t keys = p->shape.batch * p->all * n.row;
    struct operands o = {.q = q,
                         .dy = check_uniform(check, n.y),
                         .keys = check_uniform(check, keys),
                         .y = check_zeros(check, n.y),
                         .saved = check_zeros(check, 2 * n.saved),
                         .scratch = check_zeros(check, scratch_elements(p)),
                         .dq = check_zeros(check, n.q),
                         .key_gradients = check_zeros(check, keys)};
    if (p->sinks) {
        o.sinks = check_uniform(check, p->shape.heads);
        o.sink_gradients = check_zeros(check, p->shape.heads);
    }
    set_dropout(check, p, &o, at);
    call(d, d->twin, p, &o, false);
    call(d, d->twin, p, &o, true);
    return o;
}

/* Copies the rows of a block out of all keys, or into their place. */
static void move_rows(const struct problem *p, const struct sbp_digits *digits, double *all,
                      double *own, bool back)
{
    const int64_t local = sbp_digits_local_size(digits), row = sizes_of(p).row;
    for (int64_t i = 0; i < p->shape.batch * local; i++) {
        double *const at = all + (i / local * p->all + sbp_digits_global(digits, i % local)) * row;
        memcpy(back ? at : own + i * row, back ? own + i * row : at, (size_t)row * sizeof *own);
    }
}

static double *doubles(struct check *check, const void *reals, int64_t n)
{
    if (check_memory.wait != NULL)
        check_memory.wait();
    return check_doubles(check, reals, n);
}

/* A pass over all blocks: gradients of keys go into their places among all. */
static void pass(struct device *d, const struct problem *p, struct operands *o, double *all_keys,
                 bool back, double *all_gradients)
{
    struct check *check = d->check;
    for (int i = 0; i < p->blocks; i++) {
        const struct sbp_attention_block block = {.keys = &p->block[i], .first = i == 0};
        const int64_t n = p->shape.batch * sbp_digits_local_size(&p->block[i]) * sizes_of(p).row;
        double *const own = check_zeros(check, n);
        move_rows(p, &p->block[i], all_keys, own, false);
        o->block = &block;
        o->keys = device_reals(d, own, n);
        o->key_gradients = device_reals(d, NULL, n);
        call(d, NULL, p, o, back);
        if (back)
            move_rows(p, &p->block[i], all_gradients, doubles(check, o->key_gradients, n), true);
    }
}

/* Numbers of both sides that came by the same rounding, those of 16 bits once a block. */
static void expect(struct check *check, const struct problem *p, const struct operands *got,
                   const struct operands *want, const double *key_gradients)
{
    const struct sizes n = sizes_of(p);
    const int64_t keys = p->shape.batch * p->all * n.row;
    const double times = p->blocks, latent = p->family == LATENT ? 3 : 1;
    check_near(check, "y", got->y, want->y, n.y,
               check_roundings(check, 1e-5, 0, (2 + times) * latent));
    if (p->shape.kind == SBP_ATTENTION_FLASH)
        check_wide_near(check, "log-sum-exps", got->saved, want->saved, n.saved,
                        check_roundings(check, 1e-5, 0, latent > 1 ? 4 : 0));
    else
        check_near(check, "probabilities", got->saved, want->saved, n.saved,
                   check_roundings(check, 1e-5, 0, (2 + times) * latent));
    check_near(check, "dq", got->dq, want->dq, n.q,
               check_roundings(check, 5e-5, 0, 16 + 2 * times + 8 * latent));
    check_near(check, "dk, dv", check_reals(check, key_gradients, keys), want->key_gradients, keys,
               check_roundings(check, 5e-5, 0, (16 + times) * latent * (double)p->shape.heads));
}

static void compare(struct device *d, const struct problem *p)
{
    struct check *check = d->check;
    const struct sizes n = sizes_of(p);
    struct check_dropping twins, own;
    const double *const q = check_uniform(check, n.q);
    const struct operands want = run_twin(d, p, q, &twins);
    struct operands o = {.q = device_reals(d, q, n.q),
                         .dy = device_reals(d, want.dy, n.y),
                         .y = device_reals(d, NULL, n.y),
                         .saved = p->shape.kind == SBP_ATTENTION_FLASH
                                      ? device_wide(d, NULL, n.saved)
                                      : device_reals(d, NULL, n.saved),
                         .scratch = check_blank(check, scratch_elements(p)),
                         .dq = device_reals(d, NULL, n.q)};
    const int64_t keys = p->shape.batch * p->all * n.row;
    double *const gradients = check_zeros(check, keys), *const all = check_zeros(check, keys);
    memcpy(all, want.keys, (size_t)keys * sizeof *all);
    if (p->sinks) {
        o.sinks = device_reals(d, want.sinks, p->shape.heads);
        o.sink_gradients =
            device_reals(d, p->adds ? check_zeros(check, p->shape.heads) : NULL, p->shape.heads);
    }
    set_dropout(check, p, &o, &own);
    pass(d, p, &o, all, false, NULL);
    if (o.shape.dropout != NULL && o.shape.dropout->mask != NULL)
        device_same(d, "mask", own.dropout.mask, twins.dropout.mask, n.saved);
    pass(d, p, &o, all, true, gradients);
    assert_int_equal(d->cuda.error, 0);
    expect(check, p, &o, &want, gradients);
    if (p->sinks)
        check_near(check, "dsinks", o.sink_gradients, want.sink_gradients, p->shape.heads,
                   check_roundings(check, 5e-5, 0, 16 + p->blocks));
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void any_shape(struct check *check)
{
    DEVICE_BEGIN(d, check)
    struct problem p = draw(check, (enum family)(check->round % FAMILIES), 15);
    if (check->round % 2 == 0)
        p.chance.p = 0.3;
    compare(&d, &p);
}

/* Blocks and queries of several tiles, which lie in each other's gaps. */
static void long_sequences(struct check *check)
{
    DEVICE_BEGIN(d, check)
    const int64_t rest = check_integer(check, 20, 40);
    const struct check_split split = {
        .whole = {.count = 2, .size = {2, 2}, .fixed = {-1, -1}, .rest = rest},
        .split = {false, true},
        .ranks = 2,
        .global = 4 * rest,
        .local = 2 * rest};
    struct problem p = draw(check, (enum family)(check->round % FAMILIES), 1);
    p.shape.batch = 1;
    p.shape.sequence = split.local;
    p.all = split.global;
    p.rows = check_rank_digits(&split, check_integer(check, 0, 1));
    p.window = p.window > 0 ? check_integer(check, 1, p.all) : 0;
    draw_blocks(check, &p, &split);
    compare(&d, &p);
}

/* Two blocks, in each other's gaps, of more keys than a tile has, whole tiles of which lie before a
 * window of five keys, or are seen but by queries behind them. */
static void tiles_of_a_block(struct check *check)
{
    DEVICE_BEGIN(d, check)
    struct problem p = draw(check, GROUPED, 1);
    const int64_t rest = check_integer(check, 66, 72);
    const struct sbp_digits of = {
        .count = 2, .size = {2, 2}, .fixed = {-1, check_integer(check, 0, 1) == 1}, .rest = rest};
    p.shape.causal = true;
    p.shape.batch = 1;
    p.shape.kind = check->round / 2 % 2 ? SBP_ATTENTION_MATERIALISED : SBP_ATTENTION_FLASH;
    p.sinks = p.sinks && p.shape.kind == SBP_ATTENTION_FLASH;
    p.window = check->round % 2 ? 0 : 5;
    p.all = 4 * rest;
    p.shape.sequence = 2 * rest;
    p.blocks = 2;
    p.rows = p.block[0] = p.block[1] = of;
    p.block[1].fixed[1] = 1 - of.fixed[1];
    compare(&d, &p);
}

/* Queries come first in the sequence and the keys that they see last, so that the blocks before say
 * nothing. */
static void nothing_is_seen_at_first(struct check *check)
{
    DEVICE_BEGIN(d, check)
    struct problem p = draw(check, (enum family)(check->round % FAMILIES), 1);
    const int64_t rest = check_integer(check, 1, 70);
    const struct sbp_digits of = {.count = 1, .size = {3}, .fixed = {-1}, .rest = rest};
    p.shape.causal = true;
    p.shape.batch = 1;
    p.shape.kind = check->round / FAMILIES % 2 ? SBP_ATTENTION_FLASH : SBP_ATTENTION_MATERIALISED;
    p.sinks = p.sinks && p.shape.kind == SBP_ATTENTION_FLASH;
    p.window = 0;
    p.all = 3 * rest;
    p.rows = p.block[0] = p.block[1] = p.block[2] = of;
    p.rows.fixed[0] = p.block[2].fixed[0] = 0;
    p.block[0].fixed[0] = 2;
    p.block[1].fixed[0] = 1;
    p.blocks = 3;
    p.shape.sequence = rest;
    compare(&d, &p);
}

/* More features than the first tiling takes. */
static void large_heads(struct check *check)
{
    DEVICE_BEGIN(d, check)
    struct problem p = draw(check, (enum family)(check->round % FAMILIES), 8);
    const int64_t size = check->round / FAMILIES == 0 ? 96 : 201;
    if (size > d.kernels.largest_head(&d.cuda))
        return;
    p.shape.batch = 1;
    p.shape.head_size = size;
    if (p.family == LATENT)
        p.parts = (struct sbp_latent_parts){8, size - 8, 72};
    compare(&d, &p);
}

/* The only scores of the first block are beyond what single precision holds, and count for
 * nothing beside those of the next one. */
static void scores_overflow(struct check *check)
{
    DEVICE_BEGIN(d, check)
    if (check->kernels->real != SBP_F32)
        return;
    const struct sbp_digits rows = {.count = 1, .size = {2}, .fixed = {1}, .rest = 1};
    const struct sbp_digits first = {.count = 1, .size = {2}, .fixed = {0}, .rest = 1};
    double qkv[] = {0x1p100, NAN, NAN}, keys[][2] = {{-0x1p100, 3}, {0, 5}}, want = 5;
    void *const scratch = check_blank(check, 4), *const y = device_reals(&d, NULL, 1);
    for (int flash = 0; flash < 2; flash++) {
        const struct sbp_attention_shape shape = {.batch = 1,
                                                  .sequence = 1,
                                                  .heads = 1,
                                                  .head_size = 1,
                                                  .causal = true,
                                                  .kind = flash ? SBP_ATTENTION_FLASH
                                                                : SBP_ATTENTION_MATERIALISED};
        void *const saved = device_wide(&d, NULL, 2);
        for (int i = 0; i < 2; i++) {
            const struct sbp_attention_block block = {.keys = i == 0 ? &first : &rows,
                                                      .first = i == 0};
            const struct sbp_attention_context context = {
                .rows = &rows, .keys = device_reals(&d, keys[i], 2), .block = &block};
            d.kernels.attention_forward(&d.cuda, y, saved, scratch, device_reals(&d, qkv, 3),
                                        &context, &shape);
        }
        check_equal(check, "y", y, &want, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECK_TABLES(any_shape, 12),       CHECK_TABLES(long_sequences, 3),
        CHECK_TABLES(tiles_of_a_block, 4), CHECK_TABLES(nothing_is_seen_at_first, 6),
        CHECK_TABLES(large_heads, 6),      CHECK_TABLES(scores_overflow, 1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
