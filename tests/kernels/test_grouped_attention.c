/* Attention whose heads share keys and values, against the definition in long double, by central
 * differences, and with heads and queries split over simulated ranks. */
#include <math.h>

#include "tests/kernels/check.h"

struct problem {
    struct sbp_attention_shape shape;
    int64_t kv_heads, share, window;
    int64_t outputs, keys; /* elements of q and y, of kv */
    double *q, *kv, *dy, *y;
    struct check_chance chance;
    double *sinks; /* (heads), which flash attention has; NULL: none */
};

static void fill(struct check *check, struct problem *p)
{
    const struct sbp_attention_shape *shape = &p->shape;
    const int64_t tokens = shape->batch * shape->sequence;
    p->share = shape->heads / p->kv_heads;
    p->outputs = tokens * shape->heads * shape->head_size;
    p->keys = 2 * tokens * p->kv_heads * shape->head_size;
    p->q = check_uniform(check, p->outputs);
    p->kv = check_uniform(check, p->keys);
    p->dy = check_uniform(check, p->outputs);
    p->y = check_zeros(check, p->outputs);
    p->chance = check_chance(check);
    p->sinks = check_integer(check, 0, 1) ? check_uniform(check, shape->heads) : NULL;
}

/* A window only where queries see no key behind them. */
static struct problem draw(struct check *check, int64_t longest)
{
    struct problem p = {.shape = {.batch = check_size(check, 2),
                                  .sequence = check_size(check, longest),
                                  .head_size = check_size(check, 9),
                                  .causal = check_integer(check, 0, 3) > 0},
                        .kv_heads = check_size(check, 3)};
    p.shape.heads = p.kv_heads * check_size(check, 3);
    if (p.shape.causal && check_integer(check, 0, 1))
        p.window = check_integer(check, 1, p.shape.sequence + 2);
    fill(check, &p);
    return p;
}

/* kv(B,S,KH,2,D): where the key (part 0) or value (1) of a token and head begins. */
static const double *part(const struct problem *p, int64_t b, int64_t s, int64_t h, int64_t which)
{
    const int64_t token = b * p->shape.sequence + s;
    return p->kv + ((token * p->kv_heads + h) * 2 + which) * p->shape.head_size;
}

static void naive_row(const struct problem *p, int64_t b, int64_t s, int64_t h, double *y)
{
    const int64_t size = p->shape.head_size, sequence = p->shape.sequence, kv = h / p->share;
    const double *q = p->q + ((b * sequence + s) * p->shape.heads + h) * size;
    const int64_t end = p->shape.causal ? s + 1 : sequence;
    const int64_t first = p->window > 0 && end > p->window ? end - p->window : 0;
    long double total = 0, sum[512] = {0};
    for (int64_t j = first; j < end; j++) {
        const double score = check_dot(q, part(p, b, j, kv, 0), size);
        const long double weight = expl((long double)score / sqrtl((long double)size));
        const double left = check_left(&p->chance, b, p->shape.heads, h, sequence, s, j);
        total += weight;
        for (int64_t d = 0; d < size; d++)
            sum[d] += weight * (long double)left * (long double)part(p, b, j, kv, 1)[d];
    }
    if (p->sinks != NULL)
        total += expl((long double)p->sinks[h]);
    for (int64_t d = 0; d < size; d++)
        y[d] = (double)(sum[d] / total);
}

static double *naive_forward(const struct problem *p)
{
    const int64_t heads = p->shape.heads, sequence = p->shape.sequence;
    for (int64_t i = 0; i < p->outputs / p->shape.head_size; i++)
        naive_row(p, i / heads / sequence, i / heads % sequence, i % heads,
                  p->y + i * p->shape.head_size);
    return p->y;
}

static double evaluate(void *context)
{
    const struct problem *p = context;
    return check_dot(naive_forward(p), p->dy, p->outputs);
}

/* ---- one rank's part ------------------------------------------------------------------------ */

struct rank {
    struct sbp_digits batch, rows, heads, kv_rows, kv_heads;
    bool adds;      /* to what the gradient of sinks has */
    int64_t blocks; /* in which keys come; 0: all at once */
};

static struct sbp_digits whole(int64_t size)
{
    return (struct sbp_digits){.rest = size};
}

/* The keys of a call: those of all rows, or the rows of block `i` of so many that follow each
 * other. */
static struct sbp_digits key_rows(const struct rank *rank, int64_t i)
{
    const int64_t rows = sbp_digits_global_size(&rank->kv_rows);
    return rank->blocks == 0
               ? rank->kv_rows
               : (struct sbp_digits){
                     .count = 1, .size = {rank->blocks}, .fixed = {i}, .rest = rows / rank->blocks};
}

static struct rank alone(const struct problem *p)
{
    return (struct rank){whole(p->shape.batch),
                         whole(p->shape.sequence),
                         whole(p->shape.heads),
                         whole(p->shape.sequence),
                         whole(p->kv_heads),
                         false,
                         0};
}

/* A rank's rows and heads of a tensor (batch, sequence, heads, width), copied out of the whole or
 * added into it. */
static void move(const struct sbp_digits *batch, const struct sbp_digits *rows,
                 const struct sbp_digits *heads, int64_t width, double *all, double *own, bool add)
{
    const int64_t local[] = {sbp_digits_local_size(batch), sbp_digits_local_size(rows),
                             sbp_digits_local_size(heads)};
    for (int64_t i = 0; i < local[0] * local[1] * local[2] * width; i++) {
        const int64_t h = i / width % local[2], s = i / width / local[2] % local[1];
        const int64_t b = i / width / local[2] / local[1];
        const int64_t token =
            sbp_digits_global(batch, b) * sbp_digits_global_size(rows) + sbp_digits_global(rows, s);
        const int64_t at =
            (token * sbp_digits_global_size(heads) + sbp_digits_global(heads, h)) * width +
            i % width;
        if (add)
            all[at] += own[i];
        else
            own[i] = all[at];
    }
}

static double *own_queries(struct check *check, const struct rank *rank, double *all, int64_t n,
                           int64_t size)
{
    double *own = check_zeros(check, n);
    move(&rank->batch, &rank->rows, &rank->heads, size, all, own, false);
    return own;
}

struct result {
    double *y, *dq, *dkv, *dsinks;
};

/* Adds the rank's blocks of a result, but those of keys. */
static void add_blocks(const struct rank *rank, int64_t size, const struct result *own,
                       struct result *result)
{
    move(&rank->batch, &rank->rows, &rank->heads, size, result->y, own->y, true);
    move(&rank->batch, &rank->rows, &rank->heads, size, result->dq, own->dq, true);
    for (int64_t h = 0; own->dsinks != NULL && h < sbp_digits_local_size(&rank->heads); h++)
        result->dsinks[sbp_digits_global(&rank->heads, h)] += own->dsinks[h];
}

/* A rank's operands of a call, and what it gives. */
struct operands {
    struct sbp_attention_shape shape;
    struct sbp_attention_groups groups;
    const void *q, *dy;
    void *y, *dq, *saved, *scratch;
};

/* Forward, or backward, whose gradients of keys are added to the result: of all keys at once, or
 * block by block. */
static void pass(struct check *check, struct problem *p, const struct rank *rank,
                 struct operands *of, bool back, struct result *result)
{
    const int64_t size = p->shape.head_size, blocks = rank->blocks == 0 ? 1 : rank->blocks;
    for (int64_t i = 0; i < blocks; i++) {
        const struct sbp_digits rows = key_rows(rank, i);
        const struct sbp_attention_block block = {.keys = &rows, .first = i == 0};
        const int64_t keys = 2 * of->shape.batch * sbp_digits_local_size(&rows) *
                             sbp_digits_local_size(&rank->kv_heads) * size;
        double *own = check_zeros(check, keys);
        of->groups.block = rank->blocks == 0 ? NULL : &block;
        move(&rank->batch, &rows, &rank->kv_heads, 2 * size, p->kv, own, false);
        const void *kv = check_reals(check, own, keys);
        if (!back) {
            check->kernels->grouped_attention_forward(of->y, of->saved, of->scratch, of->q, kv,
                                                      &of->groups, &of->shape);
            continue;
        }
        void *dkv = check_blank(check, keys);
        check->kernels->grouped_attention_backward(of->dq, dkv, of->scratch, of->dy, of->q, kv,
                                                   of->y, of->saved, &of->groups, &of->shape);
        move(&rank->batch, &rows, &rank->kv_heads, 2 * size, result->dkv,
             check_doubles(check, dkv, keys), true);
    }
}

/* Adds what a rank computes to the result. */
static void run_rank(struct check *check, struct problem *p, enum sbp_attention_kind kind,
                     const struct rank *rank, struct result *result)
{
    struct operands of = {.shape = p->shape};
    const int64_t size = of.shape.head_size, sequence = of.shape.sequence;
    of.shape.kind = kind;
    of.shape.sequence = sbp_digits_local_size(&rank->rows);
    const int64_t heads = of.shape.heads = sbp_digits_local_size(&rank->heads);
    const int64_t saved_rows = of.shape.batch * heads * of.shape.sequence, n = saved_rows * size;
    const bool flash = kind == SBP_ATTENTION_FLASH, sinks = p->sinks != NULL && flash;
    double *own_sinks = check_zeros(check, heads);
    for (int64_t h = 0; sinks && h < heads; h++)
        own_sinks[h] = p->sinks[sbp_digits_global(&rank->heads, h)];
    void *dsinks = rank->adds ? check_reals(check, own_sinks, heads) : check_blank(check, heads);
    of.groups =
        (struct sbp_attention_groups){.heads = &rank->heads,
                                      .kv_heads = &rank->kv_heads,
                                      .share = p->share,
                                      .window = p->window,
                                      .rows = rank->rows.count > 0 ? &rank->rows : NULL,
                                      .sinks = sinks ? check_reals(check, own_sinks, heads) : NULL,
                                      .sink_gradients = dsinks,
                                      .adds = rank->adds};
    of.q = check_reals(check, own_queries(check, rank, p->q, n, size), n);
    of.dy = check_reals(check, own_queries(check, rank, p->dy, n, size), n);
    of.saved =
        flash ? check_wide_blank(check, saved_rows) : check_blank(check, 2 * saved_rows * sequence);
    struct check_dropping at = {
        .region = {.dim = {rank->batch, rank->rows, rank->heads, {.rest = size}}}};
    of.shape.dropout = check_dropping(check, &p->chance, flash ? 0 : saved_rows * sequence, &at);
    of.y = check_blank(check, n);
    of.dq = check_blank(check, n);
    struct sbp_attention_shape tiles = of.shape; /* a tile of rows of all keys */
    tiles.sequence = sequence;
    of.scratch = check_blank(check, sbp_attention_scratch_elements(&tiles) +
                                        sbp_attention_sums_elements(&of.shape));
    pass(check, p, rank, &of, false, result);
    pass(check, p, rank, &of, true, result);
    const struct result own = {check_doubles(check, of.y, n), check_doubles(check, of.dq, n), NULL,
                               sinks ? check_doubles(check, dsinks, heads) : NULL};
    for (int64_t h = 0; sinks && rank->adds && h < heads; h++)
        own.dsinks[h] -= own_sinks[h];
    add_blocks(rank, size, &own, result);
}

static struct result make_result(struct check *check, const struct problem *p)
{
    return (struct result){check_zeros(check, p->outputs), check_zeros(check, p->outputs),
                           check_zeros(check, p->keys), check_zeros(check, p->shape.heads)};
}

static struct result run(struct check *check, struct problem *p, enum sbp_attention_kind kind)
{
    struct result result = make_result(check, p);
    const struct rank rank = alone(p);
    run_rank(check, p, kind, &rank, &result);
    return result;
}

static void expect(const struct check *check, const char *what, const double *got,
                   const double *want, int64_t n, double tolerance)
{
    struct check as_double = {.kernels = sbp_kernels_cpu(SBP_F64), .seed = check->seed};
    check_near(&as_double, what, got, want, n, tolerance);
}

static void expect_same(const struct check *check, const struct problem *p,
                        const struct result *got, const struct result *want, double tolerance)
{
    expect(check, "y", got->y, want->y, p->outputs, tolerance);
    expect(check, "dq", got->dq, want->dq, p->outputs, tolerance);
    expect(check, "dkv", got->dkv, want->dkv, p->keys, tolerance);
    expect(check, "dsinks", got->dsinks, want->dsinks, p->shape.heads,
           tolerance * (double)(p->shape.batch * p->shape.sequence));
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void definition(struct check *check)
{
    struct problem p = draw(check, 9);
    const double *dq = check_gradient(check, evaluate, &p, p.q, p.outputs);
    const double *dkv = check_gradient(check, evaluate, &p, p.kv, p.keys);
    const double *dsinks =
        p.sinks == NULL ? NULL : check_gradient(check, evaluate, &p, p.sinks, p.shape.heads);
    const double *y = naive_forward(&p);
    for (int kind = p.sinks != NULL; kind < 2; kind++) { /* of materialised attention none */
        const struct result got =
            run(check, &p, kind ? SBP_ATTENTION_FLASH : SBP_ATTENTION_MATERIALISED);
        if (dsinks != NULL)
            expect(check, "dsinks", got.dsinks, dsinks, p.shape.heads,
                   check_roundings(check, 2e-5, 1e-8, 8));
        expect(check, "y", got.y, y, p.outputs, check_tolerance(check, 2e-6, 1e-14));
        expect(check, "dq", got.dq, dq, p.outputs, check_roundings(check, 1e-5, 1e-8, 8));
        expect(check, "dkv", got.dkv, dkv, p.keys, check_roundings(check, 2e-5, 1e-8, 8));
    }
}

/* Elements from a drawn place on by central differences, which would take minutes for all. */
static void expect_few(struct check *check, struct problem *p, const char *what, const double *got,
                       double *of, int64_t n)
{
    const int64_t few = n < 3 ? n : 3, at = check_integer(check, 0, n - few);
    const double *want = check_gradient(check, evaluate, p, of + at, few);
    expect(check, what, got + at, want, few, check_roundings(check, 5e-5, 1e-7, 16));
}

/* Several tiles, of which the last is cut, and windows that hide whole tiles. */
static void long_sequences(struct check *check)
{
    struct problem p = draw(check, 200);
    if (check->round == 0) { /* more features than kernels of 16 bits take at a time */
        p.shape = (struct sbp_attention_shape){1, 150, 4, 300, true, p.shape.kind, NULL};
        p.kv_heads = 2;
        p.window = 40;
        fill(check, &p);
    }
    if (check->round % 2 == 0)
        p.sinks = NULL;
    const double *y = naive_forward(&p);
    const struct result flash = run(check, &p, SBP_ATTENTION_FLASH);
    expect(check, "flash y", flash.y, y, p.outputs, check_tolerance(check, 5e-6, 1e-13));
    if (p.sinks != NULL) { /* of materialised attention none */
        expect_few(check, &p, "dsinks", flash.dsinks, p.sinks, p.shape.heads);
        expect_few(check, &p, "dq", flash.dq, p.q, p.outputs);
        expect_few(check, &p, "dkv", flash.dkv, p.kv, p.keys);
        return;
    }
    const struct result materialised = run(check, &p, SBP_ATTENTION_MATERIALISED);
    expect(check, "y", materialised.y, y, p.outputs, check_tolerance(check, 5e-6, 1e-13));
    expect_same(check, &p, &flash, &materialised, check_roundings(check, 3e-5, 1e-12, 8));
}

/* A dimension of which the outer digit is one axis's, the next one another's. */
static struct sbp_digits split(int64_t outer, int64_t at, int64_t inner, int64_t place,
                               int64_t rest)
{
    return (struct sbp_digits){
        .count = 2, .size = {outer, inner}, .fixed = {at, place}, .rest = rest};
}

/* One axis splits the heads of queries and of keys, another one those of queries alone, a third the
 * queries by sequence: gradients of keys are sums over the last two. */
static void split_heads(struct check *check)
{
    const int64_t outer = check_integer(check, 1, 3), inner = check_integer(check, 1, 3);
    const int64_t kv_rest = check_integer(check, 1, 2), parts = check_integer(check, 1, 2);
    int64_t rest = check_integer(check, 1, 3);
    while (inner * rest % kv_rest != 0)
        rest++;
    struct problem p = draw(check, 20);
    p.kv_heads = outer * kv_rest;
    p.shape.heads = outer * inner * rest;
    p.shape.sequence *= parts;
    fill(check, &p);
    const enum sbp_attention_kind kind =
        check_integer(check, 0, 1) ? SBP_ATTENTION_FLASH : SBP_ATTENTION_MATERIALISED;
    struct result got = make_result(check, &p);
    for (int64_t i = 0; i < outer * inner * parts; i++) {
        struct rank rank = alone(&p);
        const int64_t at = i % outer, place = i / outer % inner, row = i / outer / inner;
        rank.heads = split(outer, at, inner, place, rest);
        rank.kv_heads = split(outer, at, 1, 0, kv_rest);
        rank.rows = split(1, 0, parts, row, p.shape.sequence / parts);
        rank.adds = check_integer(check, 0, 1) == 1;
        run_rank(check, &p, kind, &rank, &got);
    }
    const struct result want = run(check, &p, kind);
    expect_same(check, &p, &got, &want,
                check_roundings(check, 5e-5, 1e-12, 8 + (double)(inner * parts)));
}

/* Ranks that have some rows of the queries, and of the heads, and get keys and values in blocks; in
 * each of two layouts blocks are of several tiles, which windows hide some of. */
static void blocks_equal_the_whole(struct check *check)
{
    const int64_t parts = check_integer(check, 2, 4), outer = check_integer(check, 1, 2);
    struct problem p = draw(check, check->round % 4 == 0 ? 120 : 12);
    p.kv_heads *= outer;
    p.shape.heads *= outer;
    p.shape.sequence *= parts;
    fill(check, &p);
    for (int kind = p.sinks != NULL; kind < 2; kind++) { /* of materialised attention none */
        const enum sbp_attention_kind of = kind ? SBP_ATTENTION_FLASH : SBP_ATTENTION_MATERIALISED;
        struct result got = make_result(check, &p);
        for (int64_t i = 0; i < parts * outer; i++) {
            struct rank rank = alone(&p);
            rank.rows = split(1, 0, parts, i % parts, p.shape.sequence / parts);
            rank.heads = split(outer, i / parts, 1, 0, p.shape.heads / outer);
            rank.kv_heads = split(outer, i / parts, 1, 0, p.kv_heads / outer);
            rank.blocks = parts;
            rank.adds = check_integer(check, 0, 1) == 1;
            run_rank(check, &p, of, &rank, &got);
        }
        const struct result want = run(check, &p, of);
        expect_same(check, &p, &got, &want,
                    check_roundings(check, 5e-5, 1e-12, 8 + 5 * (double)parts));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECK_TABLES(definition, 30),
        CHECK_TABLES(long_sequences, 8),
        CHECK_TABLES(split_heads, 20),
        CHECK_TABLES(blocks_equal_the_whole, 24),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
