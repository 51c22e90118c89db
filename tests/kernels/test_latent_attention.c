/* Latent attention against its definition in long double, by central differences, and with heads
 * and queries split over simulated ranks. */
#include <math.h>

#include "tests/kernels/check.h"

struct problem {
    struct sbp_attention_shape shape;
    struct sbp_latent_parts parts;
    int64_t queries, keys, shared, outputs; /* elements of q, kv, the shared part, y */
    double *q, *kv, *rope, *dy, *y;
    struct check_chance chance;
    double *turned; /* of the definition: the shared part, turned */
};

static void fill(struct check *check, struct problem *p)
{
    const int64_t tokens = p->shape.batch * p->shape.sequence, heads = p->shape.heads;
    p->shape.head_size = p->parts.rope + p->parts.nope;
    p->queries = tokens * heads * p->shape.head_size;
    p->keys = tokens * heads * (p->parts.nope + p->parts.value);
    p->shared = tokens * p->parts.rope;
    p->outputs = tokens * heads * p->parts.value;
    p->q = check_uniform(check, p->queries);
    p->kv = check_uniform(check, p->keys);
    p->rope = check_uniform(check, p->shared);
    p->dy = check_uniform(check, p->outputs);
    p->y = check_zeros(check, p->outputs);
    p->turned = check_zeros(check, p->shared);
    p->chance = check_chance(check);
}

static struct problem draw(struct check *check, int64_t longest)
{
    struct problem p = {.shape = {.batch = check_size(check, 2),
                                  .sequence = check_size(check, longest),
                                  .heads = check_size(check, 3),
                                  .causal = check_integer(check, 0, 3) > 0},
                        .parts = {.rope = 2 * check_size(check, 3),
                                  .nope = check_size(check, 5),
                                  .value = check_size(check, 7)}};
    fill(check, &p);
    return p;
}

/* ---- the definition ------------------------------------------------------------------------- */

/* Feature `i` of the shared part of a token's keys, turned by its place. */
static long double turned(const struct problem *p, int64_t token, int64_t i)
{
    const int64_t rope = p->parts.rope, half = rope / 2, pair = i % half;
    const double *x = p->rope + token * rope;
    const long double angle = (long double)(token % p->shape.sequence) *
                              powl(10000, -2 * (long double)pair / (long double)rope);
    const long double first = (long double)x[pair], second = (long double)x[pair + half];
    return i < half ? first * cosl(angle) - second * sinl(angle)
                    : second * cosl(angle) + first * sinl(angle);
}

/* Where the own part of the key of a token and head begins; the value is behind it. */
static const double *own_of(const struct problem *p, int64_t b, int64_t s, int64_t h)
{
    const int64_t head = (b * p->shape.sequence + s) * p->shape.heads + h;
    return p->kv + head * (p->parts.nope + p->parts.value);
}

static void naive_row(const struct problem *p, int64_t b, int64_t s, int64_t h, double *y)
{
    const int64_t sequence = p->shape.sequence, end = p->shape.causal ? s + 1 : sequence;
    const int64_t row = (b * sequence + s) * p->shape.heads + h;
    const double *q = p->q + row * p->shape.head_size;
    long double total = 0, sum[512] = {0};
    for (int64_t j = 0; j < end; j++) {
        const double *own = own_of(p, b, j, h);
        const double *shared = p->turned + (b * sequence + j) * p->parts.rope;
        const long double score = (long double)check_dot(q + p->parts.rope, own, p->parts.nope) +
                                  (long double)check_dot(q, shared, p->parts.rope);
        const long double weight = expl(score / sqrtl((long double)p->shape.head_size));
        const double left = check_left(&p->chance, b, p->shape.heads, h, sequence, s, j);
        total += weight;
        for (int64_t d = 0; d < p->parts.value; d++)
            sum[d] += weight * (long double)left * (long double)own[p->parts.nope + d];
    }
    for (int64_t d = 0; d < p->parts.value; d++)
        y[d] = (double)(sum[d] / total);
}

static double *naive_forward(const struct problem *p)
{
    const int64_t heads = p->shape.heads, sequence = p->shape.sequence;
    for (int64_t i = 0; i < p->shared; i++)
        p->turned[i] = (double)turned(p, i / p->parts.rope, i % p->parts.rope);
    for (int64_t i = 0; i < p->outputs / p->parts.value; i++)
        naive_row(p, i / heads / sequence, i / heads % sequence, i % heads,
                  p->y + i * p->parts.value);
    return p->y;
}

static double evaluate(void *context)
{
    const struct problem *p = context;
    return check_dot(naive_forward(p), p->dy, p->outputs);
}

/* ---- one rank's part ------------------------------------------------------------------------ */

struct result {
    double *y, *dq, *dkv, *drope;
};

static struct result make_result(struct check *check, const struct problem *p)
{
    return (struct result){check_zeros(check, p->outputs), check_zeros(check, p->queries),
                           check_zeros(check, p->keys), check_zeros(check, p->shared)};
}

/* Rows of the sequence, and heads: whole ones, or a rank's. */
struct rank {
    struct sbp_digits rows, heads;
    bool gathered;  /* keys and values lie in rows with the shared part behind them, */
    int64_t blocks; /* and come in so many blocks; 0: all at once */
};

/* A block (batch, rows, heads, width) out of the whole, or added to it. */
static void move(const struct problem *p, const struct sbp_digits *rows,
                 const struct sbp_digits *heads, int64_t width, double *all, double *own, bool add)
{
    const int64_t local_rows = sbp_digits_local_size(rows), h = sbp_digits_local_size(heads);
    for (int64_t i = 0; i < p->shape.batch * local_rows * h * width; i++) {
        const int64_t head = sbp_digits_global(heads, i / width % h);
        const int64_t row = sbp_digits_global(rows, i / width / h % local_rows);
        const int64_t token = i / width / h / local_rows * p->shape.sequence + row;
        const int64_t at = (token * sbp_digits_global_size(heads) + head) * width + i % width;
        if (add)
            all[at] += own[i];
        else
            own[i] = all[at];
    }
}

/* Copies rows of `width` out of or into rows of `apart`. */
static void interleave(double *apart_rows, int64_t apart, double *rows, int64_t width, int64_t n,
                       bool out)
{
    for (int64_t i = 0; i < n * width; i++) {
        double *const in_apart = apart_rows + i / width * apart + i % width;
        if (out)
            rows[i] = *in_apart;
        else
            *in_apart = rows[i];
    }
}

/* A rank's operands of a call, and what it gives. */
struct operands {
    struct sbp_attention_shape shape;
    const void *q, *dy;
    void *y, *dq, *saved, *scratch;
};

/* Keys and values of some rows, their gradients in the same layout, and the call. */
struct call {
    struct sbp_digits rows;
    struct sbp_attention_block block;
    struct sbp_latent_keys keys;
    void *gradients, *shared;
    int64_t tokens, row, apart; /* elements of a row, and from one to the next */
};

/* Of all rows, or of block `i` of those that follow each other. */
static void open_call(struct check *check, struct problem *p, const struct rank *rank, int64_t i,
                      struct call *call)
{
    const struct sbp_digits one = {.rest = 1};
    const int64_t rope = p->parts.rope, bytes = check->kernels->real_bytes;
    const int64_t own = p->parts.nope + p->parts.value, all = p->shape.sequence;
    call->rows = (struct sbp_digits){.rest = all};
    if (rank->blocks > 0)
        call->rows = (struct sbp_digits){
            .count = 1, .size = {rank->blocks}, .fixed = {i}, .rest = all / rank->blocks};
    call->block = (struct sbp_attention_block){.keys = &call->rows, .first = i == 0};
    call->tokens = p->shape.batch * sbp_digits_local_size(&call->rows);
    call->row = sbp_digits_local_size(&rank->heads) * own;
    call->apart = rank->gathered ? call->row + rope : call->row;
    const int64_t count = call->tokens * call->apart, shared = call->tokens * rope;
    double *kv = check_zeros(check, call->tokens * call->row), *part = check_zeros(check, shared);
    double *packed = check_zeros(check, count);
    move(p, &call->rows, &rank->heads, own, p->kv, kv, false);
    move(p, &call->rows, &one, rope, p->rope, part, false);
    interleave(packed, call->apart, kv, call->row, call->tokens, false);
    if (rank->gathered)
        interleave(packed + call->row, call->apart, part, rope, call->tokens, false);
    const void *keys = check_reals(check, packed, count);
    call->gradients = check_blank(check, count);
    call->shared = check_blank(check, shared);
    call->keys = (struct sbp_latent_keys){
        .kv = keys,
        .shared = rank->gathered ? (const unsigned char *)keys + call->row * bytes
                                 : check_reals(check, part, shared),
        .kv_gradients = call->gradients,
        .shared_gradients =
            rank->gathered ? (unsigned char *)call->gradients + call->row * bytes : call->shared,
        .kv_row = call->apart,
        .shared_row = rank->gathered ? call->apart : rope,
        .parts = p->parts,
        .rows = rank->rows.count > 0 ? &rank->rows : NULL,
        .block = rank->blocks > 0 ? &call->block : NULL};
}

/* Adds the gradients of keys and values of a call. */
static void add_keys(struct check *check, const struct problem *p, const struct rank *rank,
                     const struct call *call, struct result *result)
{
    const struct sbp_digits one = {.rest = 1};
    const int64_t rope = p->parts.rope, shared = call->tokens * rope;
    double *both = check_doubles(check, call->gradients, call->tokens * call->apart);
    double *kv = check_zeros(check, call->tokens * call->row);
    double *part = check_doubles(check, call->shared, shared);
    interleave(both, call->apart, kv, call->row, call->tokens, true);
    if (rank->gathered)
        interleave(both + call->row, call->apart, part, rope, call->tokens, true);
    move(p, &call->rows, &rank->heads, p->parts.nope + p->parts.value, result->dkv, kv, true);
    move(p, &call->rows, &one, rope, result->drope, part, true);
}

static void pass(struct check *check, struct problem *p, const struct rank *rank,
                 const struct operands *of, bool back, struct result *result)
{
    for (int64_t i = 0; i < (rank->blocks == 0 ? 1 : rank->blocks); i++) {
        struct call call;
        open_call(check, p, rank, i, &call);
        if (!back) {
            check->kernels->latent_attention_forward(of->y, of->saved, of->scratch, of->q,
                                                     &call.keys, &of->shape);
            continue;
        }
        check->kernels->latent_attention_backward(of->dq, of->scratch, of->dy, of->q, of->y,
                                                  of->saved, &call.keys, &of->shape);
        add_keys(check, p, rank, &call, result);
    }
}

static void run_rank(struct check *check, struct problem *p, enum sbp_attention_kind kind,
                     const struct rank *rank, struct result *result)
{
    struct operands of = {.shape = p->shape};
    const int64_t value = p->parts.value, size = p->shape.head_size;
    of.shape.kind = kind;
    of.shape.sequence = sbp_digits_local_size(&rank->rows);
    of.shape.heads = sbp_digits_local_size(&rank->heads);
    const int64_t rows = of.shape.batch * of.shape.sequence * of.shape.heads, n = rows * size;
    double *q = check_zeros(check, n), *dy = check_zeros(check, rows * value);
    move(p, &rank->rows, &rank->heads, size, p->q, q, false);
    move(p, &rank->rows, &rank->heads, value, p->dy, dy, false);
    struct sbp_attention_shape tiles = of.shape; /* a tile of rows of all keys */
    tiles.sequence = p->shape.sequence;
    of.scratch = check_blank(check, sbp_latent_scratch_elements(&tiles, &p->parts, true) +
                                        sbp_attention_sums_elements(&of.shape));
    const int64_t scores = kind == SBP_ATTENTION_FLASH ? 0 : rows * p->shape.sequence;
    of.saved = kind == SBP_ATTENTION_FLASH ? check_wide_blank(check, rows)
                                           : check_blank(check, 2 * scores);
    struct check_dropping at = {
        .region = {.dim = {{.rest = of.shape.batch}, rank->rows, rank->heads, {.rest = value}}}};
    of.shape.dropout = check_dropping(check, &p->chance, scores, &at);
    of.y = check_blank(check, rows * value);
    of.dq = check_blank(check, n);
    of.q = check_reals(check, q, n);
    of.dy = check_reals(check, dy, rows * value);
    pass(check, p, rank, &of, false, result);
    pass(check, p, rank, &of, true, result);
    move(p, &rank->rows, &rank->heads, value, result->y, check_doubles(check, of.y, rows * value),
         true);
    move(p, &rank->rows, &rank->heads, size, result->dq, check_doubles(check, of.dq, n), true);
}

static struct result run(struct check *check, struct problem *p, enum sbp_attention_kind kind)
{
    struct result result = make_result(check, p);
    const struct rank rank = {{.rest = p->shape.sequence}, {.rest = p->shape.heads}, false, 0};
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
    expect(check, "dq", got->dq, want->dq, p->queries, tolerance);
    expect(check, "dkv", got->dkv, want->dkv, p->keys, tolerance);
    expect(check, "dshared", got->drope, want->drope, p->shared, tolerance);
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void definition(struct check *check)
{
    struct problem p = draw(check, 9);
    const double *dq = check_gradient(check, evaluate, &p, p.q, p.queries);
    const double *dkv = check_gradient(check, evaluate, &p, p.kv, p.keys);
    const double *drope = check_gradient(check, evaluate, &p, p.rope, p.shared);
    const double *y = naive_forward(&p);
    for (int kind = 0; kind < 2; kind++) {
        const struct result got =
            run(check, &p, kind ? SBP_ATTENTION_FLASH : SBP_ATTENTION_MATERIALISED);
        expect(check, "y", got.y, y, p.outputs, check_roundings(check, 2e-6, 1e-14, 4));
        expect(check, "dq", got.dq, dq, p.queries, check_roundings(check, 1e-5, 1e-8, 8));
        expect(check, "dkv", got.dkv, dkv, p.keys, check_roundings(check, 2e-5, 1e-8, 8));
        expect(check, "dshared", got.drope, drope, p.shared,
               check_roundings(check, 2e-5, 1e-8, 16));
    }
}

/* Several tiles, of which the last is cut; heads of more features than kernels of 16 bits take at a
 * time, of keys or of values. */
static void long_sequences(struct check *check)
{
    struct problem p = draw(check, 200);
    if (check->round < 2) {
        p.shape = (struct sbp_attention_shape){1, 150, 2, 0, true, p.shape.kind, NULL};
        p.parts = check->round == 0 ? (struct sbp_latent_parts){40, 260, 30}
                                    : (struct sbp_latent_parts){6, 20, 300};
        fill(check, &p);
    }
    const double *y = naive_forward(&p);
    const struct result flash = run(check, &p, SBP_ATTENTION_FLASH);
    const struct result materialised = run(check, &p, SBP_ATTENTION_MATERIALISED);
    expect(check, "flash y", flash.y, y, p.outputs, check_roundings(check, 5e-6, 1e-13, 4));
    expect(check, "y", materialised.y, y, p.outputs, check_roundings(check, 5e-6, 1e-13, 4));
    expect_same(check, &p, &flash, &materialised, check_roundings(check, 3e-5, 1e-12, 16));
}

/* A dimension of which one axis has the outer digit. */
static struct sbp_digits split(int64_t outer, int64_t at, int64_t rest)
{
    return (struct sbp_digits){.count = 1, .size = {outer}, .fixed = {at}, .rest = rest};
}

/* One axis splits the heads, another one the queries by sequence, whose keys are gathered:
 * gradients of keys are sums over the second, of their shared part over both. */
static void split_heads_and_rows(struct check *check)
{
    const int64_t outer = check_integer(check, 1, 3), parts = check_integer(check, 1, 3);
    struct problem p = draw(check, 20);
    const int64_t heads = p.shape.heads, rows = p.shape.sequence;
    p.shape.heads *= outer;
    p.shape.sequence *= parts;
    fill(check, &p);
    const enum sbp_attention_kind kind =
        check_integer(check, 0, 1) ? SBP_ATTENTION_FLASH : SBP_ATTENTION_MATERIALISED;
    struct result got = make_result(check, &p);
    for (int64_t i = 0; i < outer * parts; i++) {
        const struct rank rank = {split(parts, i / outer, rows), split(outer, i % outer, heads),
                                  true, 0};
        run_rank(check, &p, kind, &rank, &got);
    }
    const struct result want = run(check, &p, kind);
    expect_same(check, &p, &got, &want,
                check_roundings(check, 5e-5, 1e-12, 16 + (double)(outer * parts)));
}

/* The same, of ranks that get keys in blocks; in a quarter of the rounds of several tiles. */
static void blocks_equal_the_whole(struct check *check)
{
    const int64_t outer = check_integer(check, 1, 2), parts = check_integer(check, 2, 4);
    struct problem p = draw(check, check->round % 4 == 0 ? 120 : 12);
    const int64_t heads = p.shape.heads, rows = p.shape.sequence;
    p.shape.heads *= outer;
    p.shape.sequence *= parts;
    fill(check, &p);
    const enum sbp_attention_kind kind =
        check->round / 4 % 2 ? SBP_ATTENTION_FLASH : SBP_ATTENTION_MATERIALISED;
    struct result got = make_result(check, &p);
    for (int64_t i = 0; i < outer * parts; i++) {
        const struct rank rank = {split(parts, i / outer, rows), split(outer, i % outer, heads),
                                  true, parts};
        run_rank(check, &p, kind, &rank, &got);
    }
    const struct result want = run(check, &p, kind);
    expect_same(check, &p, &got, &want,
                check_roundings(check, 5e-5, 1e-12, 16 + 5 * (double)(outer * parts)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECK_TABLES(definition, 30),
        CHECK_TABLES(long_sequences, 8),
        CHECK_TABLES(split_heads_and_rows, 20),
        CHECK_TABLES(blocks_equal_the_whole, 24),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
