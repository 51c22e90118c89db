/* Attention against the definition in long double, by central differences, and materialised
 * against flash; sequences reach over several tiles. */
#include <math.h>

#include "tests/kernels/check.h"

struct problem {
    struct sbp_attention_shape shape;
    int64_t outputs; /* elements of y; qkv has three times as many */
    double *qkv, *dy, *y;
    struct check_chance chance;
};

static void resize(struct check *check, struct problem *p, struct sbp_attention_shape shape)
{
    p->shape = shape;
    p->outputs = shape.batch * shape.sequence * shape.heads * shape.head_size;
    p->qkv = check_uniform(check, 3 * p->outputs);
    p->dy = check_uniform(check, p->outputs);
    p->y = check_zeros(check, p->outputs);
    p->chance = check_chance(check);
}

static struct problem draw(struct check *check, int64_t longest)
{
    struct problem p = {.shape = {.batch = check_size(check, 3),
                                  .sequence = check_size(check, longest),
                                  .heads = check_size(check, 3),
                                  .head_size = check_size(check, 9),
                                  .causal = check_integer(check, 0, 1) == 1}};
    resize(check, &p, p.shape);
    return p;
}

/* qkv(B,S,H,3,D): where q (part 0), k (1) or v (2) of one token and head begins. */
static const double *part(const struct problem *p, int64_t b, int64_t s, int64_t h, int64_t which)
{
    const struct sbp_attention_shape *shape = &p->shape;
    return p->qkv + (((b * shape->sequence + s) * shape->heads + h) * 3 + which) * shape->head_size;
}

static void naive_row(const struct problem *p, int64_t b, int64_t s, int64_t h, double *y)
{
    const struct sbp_attention_shape *shape = &p->shape;
    const int64_t keys = shape->causal ? s + 1 : shape->sequence;
    long double total = 0, sum[512] = {0};
    for (int64_t j = 0; j < keys; j++) {
        const double score = check_dot(part(p, b, s, h, 0), part(p, b, j, h, 1), shape->head_size);
        const long double weight = expl((long double)score / sqrtl((long double)shape->head_size));
        const double left = check_left(&p->chance, b, shape->heads, h, shape->sequence, s, j);
        total += weight;
        for (int64_t d = 0; d < shape->head_size; d++)
            sum[d] += weight * (long double)left * (long double)part(p, b, j, h, 2)[d];
    }
    for (int64_t d = 0; d < shape->head_size; d++)
        y[d] = (double)(sum[d] / total);
}

static double *naive_forward(const struct problem *p)
{
    const struct sbp_attention_shape *shape = &p->shape;
    for (int64_t i = 0; i < p->outputs / shape->head_size; i++)
        naive_row(p, i / shape->heads / shape->sequence, i / shape->heads % shape->sequence,
                  i % shape->heads, p->y + i * shape->head_size);
    return p->y;
}

static double evaluate(void *context)
{
    const struct problem *p = context;
    return check_dot(naive_forward(p), p->dy, p->outputs);
}

/* Probabilities, and as many behind them that dropout leaves, or a log-sum-exp a row, which is
 * wide. */
static int64_t saved_elements(const struct sbp_attention_shape *shape, int64_t keys)
{
    const int64_t rows = shape->batch * shape->heads * shape->sequence;
    return shape->kind == SBP_ATTENTION_FLASH ? rows : 2 * rows * keys;
}

/* Sets the shape's dropout, of some rows of the sequence. */
static void set_dropout(struct check *check, const struct problem *p, const struct sbp_digits *rows,
                        struct sbp_attention_shape *shape, struct check_dropping *at)
{
    const bool keeps = shape->kind == SBP_ATTENTION_MATERIALISED;
    at->region = (struct sbp_region){
        .dim = {{.rest = shape->batch}, *rows, {.rest = shape->heads}, {.rest = shape->head_size}}};
    shape->dropout = check_dropping(check, &p->chance,
                                    keeps ? saved_elements(shape, p->shape.sequence) / 2 : 0, at);
}

struct result {
    void *y, *dqkv;
};

static struct result run(struct check *check, const struct problem *p, enum sbp_attention_kind kind)
{
    struct sbp_attention_shape shape = p->shape;
    struct check_dropping dropping;
    shape.kind = kind;
    set_dropout(check, p, &(struct sbp_digits){.rest = shape.sequence}, &shape, &dropping);
    void *saved = kind == SBP_ATTENTION_FLASH
                      ? check_wide_blank(check, saved_elements(&shape, shape.sequence))
                      : check_blank(check, saved_elements(&shape, shape.sequence));
    void *scratch = check_blank(check, sbp_attention_scratch_elements(&shape));
    const void *qkv = check_reals(check, p->qkv, 3 * p->outputs);
    struct result result = {check_blank(check, p->outputs), check_blank(check, 3 * p->outputs)};
    check->kernels->attention_forward(result.y, saved, scratch, qkv, NULL, &shape);
    scratch = check_blank(check, sbp_attention_scratch_elements(&shape));
    check->kernels->attention_backward(result.dqkv, scratch, check_reals(check, p->dy, p->outputs),
                                       qkv, result.y, saved, NULL, &shape);
    return result;
}

static void definition(struct check *check)
{
    struct problem p = draw(check, 9);
    const double *gradient = check_gradient(check, evaluate, &p, p.qkv, 3 * p.outputs);
    const double *y = naive_forward(&p);
    for (int kind = 0; kind < 2; kind++) {
        const struct result got =
            run(check, &p, kind ? SBP_ATTENTION_FLASH : SBP_ATTENTION_MATERIALISED);
        check_near(check, "y", got.y, y, p.outputs, check_tolerance(check, 2e-6, 1e-14));
        check_near(check, "dqkv", got.dqkv, gradient, 3 * p.outputs,
                   check_roundings(check, 1e-5, 1e-8, 8));
    }
}

/* Several tiles, of which the last is cut. */
static void long_sequences(struct check *check)
{
    struct problem p = draw(check, 200);
    if (check->round == 0) /* more features than kernels of 16 bits take at a time */
        resize(check, &p, (struct sbp_attention_shape){1, 70, 2, 300, true, p.shape.kind, NULL});
    const double *y = naive_forward(&p);
    const struct result flash = run(check, &p, SBP_ATTENTION_FLASH);
    const struct result kept = run(check, &p, SBP_ATTENTION_MATERIALISED);
    check_near(check, "flash y", flash.y, y, p.outputs, check_tolerance(check, 5e-6, 1e-13));
    check_near(check, "materialised y", kept.y, y, p.outputs, check_tolerance(check, 5e-6, 1e-13));
    check_near(check, "flash dqkv", flash.dqkv, check_doubles(check, kept.dqkv, 3 * p.outputs),
               3 * p.outputs, check_roundings(check, 3e-5, 1e-13, 8));
}

/* Scores far beyond exp's range, whose maximum moves from tile to tile. */
static void large_scores(struct check *check)
{
    struct problem p = {.shape = {.batch = 1, .sequence = 150, .heads = 1, .head_size = 1},
                        .outputs = 150};
    p.qkv = check_zeros(check, 450);
    p.dy = check_zeros(check, 150);
    double *want = check_zeros(check, 150);
    for (int64_t s = 0; s < 150; s++) {
        p.qkv[3 * s] = 1; /* the last key wins by far */
        p.qkv[3 * s + 1] = (double)(200 * s);
        p.qkv[3 * s + 2] = (double)s;
        want[s] = 149;
    }
    check_equal(check, "flash", run(check, &p, SBP_ATTENTION_FLASH).y, want, 150);
    check_equal(check, "materialised", run(check, &p, SBP_ATTENTION_MATERIALISED).y, want, 150);
}

/* Materialised attention saves the probabilities: rows sum to 1 and no query looks ahead. */
static void saved_probabilities(struct check *check)
{
    struct problem p = draw(check, 150);
    struct sbp_attention_shape shape = p.shape;
    shape.kind = SBP_ATTENTION_MATERIALISED;
    const int64_t n = saved_elements(&shape, shape.sequence) / 2, sequence = shape.sequence;
    void *saved = check_blank(check, n), *y = check_blank(check, p.outputs);
    check->kernels->attention_forward(y, saved,
                                      check_blank(check, sbp_attention_scratch_elements(&shape)),
                                      check_reals(check, p.qkv, 3 * p.outputs), NULL, &shape);
    double *sums = check_zeros(check, n / sequence), *ones = check_zeros(check, n / sequence);
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = i / sequence;
        const double value = check_at(check, saved, i);
        assert_true(value >= 0 && (!shape.causal || i % sequence <= row % sequence || value == 0));
        sums[row] += value;
        ones[row] = 1;
    }
    check_near(check, "sums", check_reals(check, sums, n / sequence), ones, n / sequence,
               check_roundings(check, 1e-6, 1e-14, 2));
}

/* ---- queries split by sequence ------------------------------------------------------------- */

/* A rank's rows of a tensor (batch, sequence, width). */
static double *rows_of(struct check *check, const double *whole, int64_t batch, int64_t width,
                       const struct sbp_digits *rows)
{
    const int64_t local = sbp_digits_local_size(rows), global = sbp_digits_global_size(rows);
    double *part = check_zeros(check, batch * local * width);
    for (int64_t row = 0; row < batch * local; row++)
        for (int64_t i = 0; i < width; i++)
            part[row * width + i] =
                whole[(row / local * global + sbp_digits_global(rows, row % local)) * width + i];
    return part;
}

/* Parts `first` .. `first` + parts - 1 of the {q, k, v} of every token and head. */
static double *parts_of(struct check *check, const double *qkv, int64_t heads, int64_t size,
                        int64_t first, int64_t parts)
{
    double *of = check_zeros(check, heads * parts * size);
    for (int64_t i = 0; i < heads * parts * size; i++)
        of[i] = qkv[(i / (parts * size) * 3 + first) * size + i % (parts * size)];
    return of;
}

/* Runs one rank's queries; its own keys are no numbers, since those of all are given. Adds its
 * gradients of keys and values to those of the other ranks. */
static void attend_rows(struct check *check, const struct problem *p, const struct result *want,
                        const struct sbp_digits *rows, double *key_gradients)
{
    const int64_t width = p->shape.heads * p->shape.head_size, size = p->shape.head_size;
    struct sbp_attention_shape shape = p->shape;
    shape.sequence = sbp_digits_local_size(rows);
    const int64_t outputs = shape.batch * shape.sequence * width;
    const int64_t saved_count = saved_elements(&shape, p->shape.sequence);
    struct check_dropping dropping;
    set_dropout(check, p, rows, &shape, &dropping);
    double *qkv = rows_of(check, p->qkv, shape.batch, 3 * width, rows);
    for (int64_t i = 0; i < 3 * outputs; i++)
        qkv[i] = i / size % 3 == 0 ? qkv[i] : (double)NAN;
    const struct sbp_attention_context context = {
        .rows = rows,
        .keys = check_reals(check, parts_of(check, p->qkv, p->outputs / size, size, 1, 2),
                            2 * p->outputs),
        .key_gradients = check_blank(check, 2 * p->outputs)};
    void *saved = shape.kind == SBP_ATTENTION_FLASH ? check_wide_blank(check, saved_count)
                                                    : check_blank(check, saved_count);
    void *scratch = check_blank(check, sbp_attention_scratch_elements(&p->shape));
    void *y = check_blank(check, outputs), *dqkv = check_blank(check, 3 * outputs);
    const void *q = check_reals(check, qkv, 3 * outputs);
    check->kernels->attention_forward(y, saved, scratch, q, &context, &shape);
    check->kernels->attention_backward(
        dqkv, scratch, check_reals(check, rows_of(check, p->dy, shape.batch, width, rows), outputs),
        q, y, saved, &context, &shape);
    const double *all = check_doubles(check, want->dqkv, 3 * p->outputs);
    double *gradient = rows_of(check, all, shape.batch, 3 * width, rows);
    for (int64_t i = 0; i < 3 * outputs; i++)
        gradient[i] = i / size % 3 == 0 ? gradient[i] : 0;
    check_near(check, "y", y,
               rows_of(check, check_doubles(check, want->y, p->outputs), shape.batch, width, rows),
               outputs, check_roundings(check, 5e-6, 1e-13, 2));
    check_near(check, "dqkv", dqkv, gradient, 3 * outputs, check_roundings(check, 3e-5, 1e-13, 8));
    const double *own = check_doubles(check, context.key_gradients, 2 * p->outputs);
    for (int64_t i = 0; i < 2 * p->outputs; i++)
        key_gradients[i] += own[i];
}

/* Ranks that have some rows of the queries, in runs of any length, and all keys and values, compute
 * what one that has all rows does. */
static void split_by_sequence(struct check *check)
{
    const struct check_split split = check_split(check, 30);
    struct problem p = draw(check, 1);
    p.shape.sequence = split.global;
    p.shape.kind = check_integer(check, 0, 1) ? SBP_ATTENTION_FLASH : SBP_ATTENTION_MATERIALISED;
    resize(check, &p, p.shape);
    const struct result want = run(check, &p, p.shape.kind);
    double *sum = check_zeros(check, 2 * p.outputs);
    for (int64_t rank = 0; rank < split.ranks; rank++) {
        const struct sbp_digits rows = check_rank_digits(&split, rank);
        attend_rows(check, &p, &want, &rows, sum);
    }
    const int64_t size = p.shape.head_size;
    const double *all = check_doubles(check, want.dqkv, 3 * p.outputs);
    check_near(check, "dk, dv", check_reals(check, sum, 2 * p.outputs),
               parts_of(check, all, p.outputs / size, size, 1, 2), 2 * p.outputs,
               check_roundings(check, 5e-5, 1e-13, 8 + (double)split.ranks));
}

/* ---- keys and values block by block ---------------------------------------------------------- */

/* The keys and values of a rank's rows. */
static void *block_keys(struct check *check, const struct problem *p, const struct sbp_digits *rows)
{
    const int64_t size = p->shape.head_size, width = p->shape.heads * size;
    const double *keys = parts_of(check, p->qkv, p->outputs / size, size, 1, 2);
    return check_reals(check, rows_of(check, keys, p->shape.batch, 2 * width, rows),
                       2 * p->shape.batch * sbp_digits_local_size(rows) * width);
}

/* Adds a block's gradients to those of the whole. */
static void add_block(struct check *check, const struct problem *p, const struct sbp_digits *rows,
                      const void *gradients, double *all)
{
    const int64_t local = sbp_digits_local_size(rows),
                  width = 2 * p->shape.heads * p->shape.head_size;
    const double *own = check_doubles(check, gradients, p->shape.batch * local * width);
    for (int64_t row = 0; row < p->shape.batch * local; row++)
        for (int64_t i = 0; i < width; i++)
            all[(row / local * p->shape.sequence + sbp_digits_global(rows, row % local)) * width +
                i] += own[row * width + i];
}

/* What a rank's queries give, of all blocks one after the other from its own on. */
struct attended {
    struct sbp_attention_shape shape;
    struct sbp_digits rows;
    void *y, *saved, *dqkv;
};

static void attend_blocks(struct check *check, const struct problem *p,
                          const struct check_split *split, int64_t rank, struct attended *at,
                          double *key_gradients)
{
    const int64_t width = p->shape.heads * p->shape.head_size;
    const int64_t outputs = at->shape.batch * at->shape.sequence * width;
    const void *q = check_reals(
        check, rows_of(check, p->qkv, at->shape.batch, 3 * width, &at->rows), 3 * outputs);
    const void *dy =
        check_reals(check, rows_of(check, p->dy, at->shape.batch, width, &at->rows), outputs);
    void *scratch = check_blank(check, sbp_attention_scratch_elements(&p->shape) +
                                           sbp_attention_sums_elements(&at->shape));
    for (int back = 0; back < 2; back++)
        for (int64_t i = 0; i < split->ranks; i++) {
            const struct sbp_digits keys =
                check_rank_digits(split, (rank + split->ranks - i) % split->ranks);
            const struct sbp_attention_block block = {.keys = &keys, .first = i == 0};
            const struct sbp_attention_context context = {.rows = &at->rows,
                                                          .keys = block_keys(check, p, &keys),
                                                          .key_gradients =
                                                              check_blank(check, 2 * outputs),
                                                          .block = &block};
            if (back == 0) {
                check->kernels->attention_forward(at->y, at->saved, scratch, q, &context,
                                                  &at->shape);
                continue;
            }
            check->kernels->attention_backward(at->dqkv, scratch, dy, q, at->y, at->saved, &context,
                                               &at->shape);
            add_block(check, p, &keys, context.key_gradients, key_gradients);
        }
}

static struct check_split split_in_few(struct check *check, int64_t longest)
{
    struct check_split split = check_split(check, longest);
    while (split.ranks < 2 || split.ranks > 4)
        split = check_split(check, longest);
    return split;
}

/* A problem whose sequence is split so. */
static struct problem draw_split(struct check *check, const struct check_split *split,
                                 enum sbp_attention_kind kind)
{
    struct problem p = draw(check, 1);
    p.shape.sequence = split->global;
    p.shape.kind = kind;
    resize(check, &p, p.shape);
    return p;
}

static struct attended attended_of(struct check *check, const struct problem *p,
                                   const struct check_split *split, int64_t rank,
                                   struct check_dropping *dropping)
{
    struct attended at = {.shape = p->shape, .rows = check_rank_digits(split, rank)};
    at.shape.sequence = sbp_digits_local_size(&at.rows);
    const int64_t outputs =
        at.shape.batch * at.shape.sequence * p->shape.heads * p->shape.head_size;
    const int64_t saved = saved_elements(&at.shape, p->shape.sequence);
    set_dropout(check, p, &at.rows, &at.shape, dropping);
    at.y = check_blank(check, outputs);
    at.dqkv = check_blank(check, 3 * outputs);
    at.saved = p->shape.kind == SBP_ATTENTION_FLASH ? check_wide_blank(check, saved)
                                                    : check_blank(check, saved);
    return at;
}

/* Two to four ranks that have some rows of the queries, and get keys and values in blocks, compute
 * what one does that has all rows; digits lie in between, so that blocks are runs of any length. */
static void blocks_of(struct check *check, int64_t longest, enum sbp_attention_kind kind)
{
    const struct check_split split = split_in_few(check, longest);
    const double roundings = 4 * (double)split.ranks;
    const struct problem p = draw_split(check, &split, kind);
    const int64_t width = p.shape.heads * p.shape.head_size, size = p.shape.head_size;
    const struct result want = run(check, &p, kind);
    double *sum = check_zeros(check, 2 * p.outputs);
    const double *all = check_doubles(check, want.dqkv, 3 * p.outputs);
    for (int64_t rank = 0; rank < split.ranks; rank++) {
        struct check_dropping dropping;
        struct attended at = attended_of(check, &p, &split, rank, &dropping);
        const int64_t outputs = at.shape.batch * at.shape.sequence * width;
        attend_blocks(check, &p, &split, rank, &at, sum);
        double *gradient = rows_of(check, all, at.shape.batch, 3 * width, &at.rows);
        for (int64_t i = 0; i < 3 * outputs; i++)
            gradient[i] = i / size % 3 == 0 ? gradient[i] : 0;
        check_near(check, "y", at.y,
                   rows_of(check, check_doubles(check, want.y, p.outputs), at.shape.batch, width,
                           &at.rows),
                   outputs, check_roundings(check, 5e-6, 1e-12, 2 + roundings));
        check_near(check, "dqkv", at.dqkv, gradient, 3 * outputs,
                   check_roundings(check, 3e-5, 1e-12, 8 + roundings));
    }
    check_near(check, "dk, dv", check_reals(check, sum, 2 * p.outputs),
               parts_of(check, all, p.outputs / size, size, 1, 2), 2 * p.outputs,
               check_roundings(check, 5e-5, 1e-12, 8 + roundings));
}

static void blocks_equal_the_whole(struct check *check)
{
    for (int kind = 0; kind < 2; kind++)
        blocks_of(check, 30, kind ? SBP_ATTENTION_FLASH : SBP_ATTENTION_MATERIALISED);
}

/* Blocks of several tiles. */
static void long_blocks_equal_the_whole(struct check *check)
{
    for (int kind = 0; kind < 2; kind++)
        blocks_of(check, 400, kind ? SBP_ATTENTION_FLASH : SBP_ATTENTION_MATERIALISED);
}

/* One query that is not-a-number, or one whose score by the key of its place overflows. */
static int64_t poison(struct check *check, struct problem *p, bool overflows)
{
    const int64_t size = p->shape.head_size, row = check_integer(check, 0, p->outputs / size - 1);
    double *const q = p->qkv + row * 3 * size + check_integer(check, 0, size - 1);
    p->chance.p = 0;
    q[0] = overflows ? check_tolerance(check, 1e30, 1e200) : (double)NAN;
    if (overflows)
        q[size] = q[0];
    return row;
}

/* What it makes of the output of all keys at once, it makes of that of blocks. */
static void poison_reaches_the_output(struct check *check)
{
    const enum sbp_attention_kind kind =
        check->round % 2 ? SBP_ATTENTION_FLASH : SBP_ATTENTION_MATERIALISED;
    const struct check_split split = split_in_few(check, 30);
    struct problem p = draw_split(check, &split, kind);
    const int64_t width = p.shape.heads * p.shape.head_size;
    const int64_t row = poison(check, &p, check->round / 2 % 2);
    const double *all = check_doubles(check, run(check, &p, kind).y, p.outputs);
    double *gradients = check_zeros(check, 2 * p.outputs);
    assert_true(isnan(all[row * p.shape.head_size]));
    for (int64_t rank = 0; rank < split.ranks; rank++) {
        struct check_dropping dropping;
        struct attended at = attended_of(check, &p, &split, rank, &dropping);
        const int64_t outputs = at.shape.batch * at.shape.sequence * width;
        const double *want = rows_of(check, all, at.shape.batch, width, &at.rows);
        attend_blocks(check, &p, &split, rank, &at, gradients);
        for (int64_t i = 0; i < outputs; i++)
            if (isnan(want[i]) && !isnan(check_at(check, at.y, i)))
                fail_msg("seed %llu: y[%lld] of rank %lld is a number",
                         (unsigned long long)check->seed, (long long)i, (long long)rank);
    }
}

/* The only scores of the first block are beyond what sums hold, and count for nothing beside those
 * of the next one. */
static void scores_of_a_block_overflow(struct check *check)
{
    const enum sbp_real real = check->kernels->real;
    const double large = real == SBP_F64 ? 0x1p600 : 0x1p100;
    const double qkv[] = {large, NAN, NAN}, keys[][2] = {{-large, 3}, {0, 5}}, want = 5;
    const struct sbp_digits half = {.count = 1, .size = {2}, .fixed = {0}, .rest = 1};
    struct sbp_digits rows = half;
    rows.fixed[0] = 1;
    if (real == SBP_REAL_FP16) /* whose products never are */
        return;
    for (int flash = 0; flash < 2; flash++) {
        const struct sbp_attention_shape shape = {.batch = 1,
                                                  .sequence = 1,
                                                  .heads = 1,
                                                  .head_size = 1,
                                                  .causal = true,
                                                  .kind = flash ? SBP_ATTENTION_FLASH
                                                                : SBP_ATTENTION_MATERIALISED};
        void *const scratch = check_blank(check, sbp_attention_scratch_elements(&shape) + 64);
        void *const y = check_blank(check, 1), *const saved = check_wide_blank(check, 2);
        for (int i = 0; i < 2; i++) {
            const struct sbp_attention_block block = {.keys = i == 0 ? &half : &rows,
                                                      .first = i == 0};
            const struct sbp_attention_context context = {
                .rows = &rows, .keys = check_reals(check, keys[i], 2), .block = &block};
            check->kernels->attention_forward(y, saved, scratch, check_reals(check, qkv, 3),
                                              &context, &shape);
        }
        check_equal(check, "y", y, &want, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECK_TABLES(definition, 30),
        CHECK_TABLES(long_sequences, 12),
        CHECK_TABLES(large_scores, 1),
        CHECK_TABLES(saved_probabilities, 10),
        CHECK_TABLES(split_by_sequence, 20),
        CHECK_TABLES(blocks_equal_the_whole, 30),
        CHECK_TABLES(long_blocks_equal_the_whole, 8),
        CHECK_TABLES(poison_reaches_the_output, 16),
        CHECK_TABLES(scores_of_a_block_overflow, 1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
