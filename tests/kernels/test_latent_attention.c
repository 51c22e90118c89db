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
    bool gathered; /* keys and values lie in rows with the shared part behind them */
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

static void run_rank(struct check *check, struct problem *p, enum sbp_attention_kind kind,
                     const struct rank *rank, struct result *result)
{
    struct sbp_attention_shape shape = p->shape;
    const struct sbp_digits all = {.rest = shape.sequence}, one = {.rest = 1};
    const int64_t rope = p->parts.rope, value = p->parts.value, own = p->parts.nope + value;
    const int64_t tokens = shape.batch * shape.sequence;
    shape.kind = kind;
    shape.sequence = sbp_digits_local_size(&rank->rows);
    shape.heads = sbp_digits_local_size(&rank->heads);
    const int64_t rows = shape.batch * shape.sequence * shape.heads, row = shape.heads * own;
    const int64_t apart = rank->gathered ? row + rope : row, kv = tokens * row;
    const int64_t n = rows * shape.head_size, count = rank->gathered ? tokens * apart : kv;
    double *q = check_zeros(check, n), *dy = check_zeros(check, rows * value);
    double *own_kv = check_zeros(check, kv), *packed = check_zeros(check, count);
    move(p, &rank->rows, &rank->heads, shape.head_size, p->q, q, false);
    move(p, &rank->rows, &rank->heads, value, p->dy, dy, false);
    move(p, &all, &rank->heads, own, p->kv, own_kv, false);
    interleave(packed, apart, own_kv, row, tokens, false);
    if (rank->gathered)
        interleave(packed + row, apart, p->rope, rope, tokens, false);
    const void *keys = check_reals(check, packed, count);
    void *gradients = check_blank(check, count), *shared = check_blank(check, p->shared);
    const int64_t bytes = check->kernels->real_bytes;
    const struct sbp_latent_keys latent = {
        .kv = keys,
        .shared = rank->gathered ? (const unsigned char *)keys + row * bytes
                                 : check_reals(check, p->rope, p->shared),
        .kv_gradients = gradients,
        .shared_gradients = rank->gathered ? (unsigned char *)gradients + row * bytes : shared,
        .kv_row = apart,
        .shared_row = rank->gathered ? apart : rope,
        .parts = p->parts,
        .rows = rank->rows.count > 0 ? &rank->rows : NULL};
    struct sbp_attention_shape tiles = shape; /* a tile of rows of all keys */
    tiles.sequence = p->shape.sequence;
    void *scratch = check_blank(check, sbp_latent_scratch_elements(&tiles, &p->parts, true));
    const int64_t scores = kind == SBP_ATTENTION_FLASH ? 0 : rows * p->shape.sequence;
    void *saved = kind == SBP_ATTENTION_FLASH ? check_wide_blank(check, rows)
                                              : check_blank(check, 2 * scores);
    struct check_dropping at = {
        .region = {.dim = {{.rest = shape.batch}, rank->rows, rank->heads, {.rest = value}}}};
    shape.dropout = check_dropping(check, &p->chance, scores, &at);
    void *y = check_blank(check, rows * value), *dq = check_blank(check, n);
    const void *queries = check_reals(check, q, n);
    check->kernels->latent_attention_forward(y, saved, scratch, queries, &latent, &shape);
    check->kernels->latent_attention_backward(dq, scratch, check_reals(check, dy, rows * value),
                                              queries, y, saved, &latent, &shape);
    double *both = check_doubles(check, gradients, count);
    double *drope = check_doubles(check, shared, p->shared);
    interleave(both, apart, own_kv, row, tokens, true);
    if (rank->gathered)
        interleave(both + row, apart, drope, rope, tokens, true);
    move(p, &rank->rows, &rank->heads, value, result->y, check_doubles(check, y, rows * value),
         true);
    move(p, &rank->rows, &rank->heads, shape.head_size, result->dq, check_doubles(check, dq, n),
         true);
    move(p, &all, &rank->heads, own, result->dkv, own_kv, true);
    move(p, &all, &one, rope, result->drope, drope, true);
}

static struct result run(struct check *check, struct problem *p, enum sbp_attention_kind kind)
{
    struct result result = make_result(check, p);
    const struct rank rank = {{.rest = p->shape.sequence}, {.rest = p->shape.heads}, false};
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
                                  true};
        run_rank(check, &p, kind, &rank, &got);
    }
    const struct result want = run(check, &p, kind);
    expect_same(check, &p, &got, &want,
                check_roundings(check, 5e-5, 1e-12, 16 + (double)(outer * parts)));
}

int main(void)
{
    sbp_kernels_cpu_setup();
    const struct CMUnitTest tests[] = {
        CHECK_TABLES(definition, 30),
        CHECK_TABLES(long_sequences, 8),
        CHECK_TABLES(split_heads_and_rows, 20),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
