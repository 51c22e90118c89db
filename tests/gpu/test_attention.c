/* Attention on the GPU, flash and materialised, forward and backward, beside its CPU twin in
 * double: sequences over several tiles, heads of any size, queries split by sequence. */
#include <math.h>

#include "tests/gpu/device.h"

struct problem {
    struct sbp_attention_shape shape;
    int64_t outputs; /* elements of y; qkv has three times as many */
    int64_t keys, saved_count;
    double *qkv, *dy, *y, *dqkv; /* y, dqkv: the twin's */
    struct check_chance chance;
};

static struct problem draw(struct check *check, int64_t longest, int64_t head_size)
{
    struct problem p = {.shape = {.batch = check_integer(check, 1, 2),
                                  .sequence = check_size(check, longest),
                                  .heads = check_integer(check, 1, 2),
                                  .head_size = head_size,
                                  .causal = check_integer(check, 0, 1) == 1,
                                  .kind = check_integer(check, 0, 2) == 0
                                              ? SBP_ATTENTION_MATERIALISED
                                              : SBP_ATTENTION_FLASH}};
    p.keys = p.shape.sequence;
    return p;
}

static void fill(struct check *check, struct problem *p)
{
    const struct sbp_attention_shape *shape = &p->shape;
    const int64_t rows = shape->batch * shape->heads * shape->sequence;
    p->outputs = rows * shape->head_size;
    p->saved_count = shape->kind == SBP_ATTENTION_FLASH ? rows : rows * p->keys;
    p->qkv = check_uniform(check, 3 * p->outputs);
    p->dy = check_uniform(check, p->outputs);
    p->y = check_zeros(check, p->outputs);
    p->dqkv = check_zeros(check, 3 * p->outputs);
    p->chance = check_chance(check);
}

/* Probabilities or log-sum-exps, in the type that the kind keeps them in. */
static void *blank_saved(struct device *d, const struct problem *p)
{
    return p->shape.kind == SBP_ATTENTION_FLASH ? device_wide(d, NULL, p->saved_count)
                                                : device_reals(d, NULL, p->saved_count);
}

static void expect_saved(const struct check *check, const struct problem *p, const void *got,
                         const double *want)
{
    if (p->shape.kind == SBP_ATTENTION_FLASH)
        check_wide_near(check, "log-sum-exps", got, want, p->saved_count, 2e-6);
    else
        check_near(check, "probabilities", got, want, p->saved_count,
                   check_tolerance(check, 2e-6, 0));
}

/* The shape with the dropout that is drawn, and a mask of its own. */
static struct sbp_attention_shape dropping(struct check *check, const struct problem *p,
                                           const struct sbp_attention_context *context,
                                           struct check_dropping *at)
{
    struct sbp_attention_shape shape = p->shape;
    at->region = (struct sbp_region){.dim = {{.rest = shape.batch},
                                             {.rest = shape.sequence},
                                             {.rest = shape.heads},
                                             {.rest = shape.head_size}}};
    if (context != NULL)
        at->region.dim[1] = *context->rows;
    shape.dropout = check_dropping(
        check, &p->chance, shape.kind == SBP_ATTENTION_MATERIALISED ? p->saved_count : 0, at);
    return shape;
}

/* key_gradients: NULL without a context. Factors of products are rounded to 16 bits: probabilities,
 * and gradients of scores. */
static void compare(struct device *d, struct problem *p,
                    const struct sbp_attention_context *twin_context,
                    const struct sbp_attention_context *context)
{
    struct check *check = d->check;
    struct sbp_attention_shape longest = p->shape;
    longest.sequence = p->keys;
    double *scratch = check_zeros(check, sbp_attention_scratch_elements(&longest));
    double *saved = check_zeros(check, 2 * p->saved_count);
    struct check_dropping twins, own;
    const struct sbp_attention_shape twin_shape = dropping(check, p, context, &twins);
    const struct sbp_attention_shape shape = dropping(check, p, context, &own);
    void *got_saved = blank_saved(d, p), *y = device_reals(d, NULL, p->outputs);
    void *dqkv = device_reals(d, NULL, 3 * p->outputs);
    const void *qkv = device_reals(d, p->qkv, 3 * p->outputs);
    d->twin->attention_forward(p->y, saved, scratch, p->qkv, twin_context, &twin_shape);
    d->twin->attention_backward(p->dqkv, scratch, p->dy, p->qkv, p->y, saved, twin_context,
                                &twin_shape);
    d->kernels.attention_forward(&d->cuda, y, got_saved, NULL, qkv, context, &shape);
    check_near(check, "y", y, p->y, p->outputs, check_roundings(check, 5e-6, 0, 2));
    expect_saved(check, p, got_saved, saved);
    if (shape.dropout != NULL && shape.dropout->mask != NULL)
        device_same(d, "mask", own.dropout.mask, twins.dropout.mask, p->saved_count);
    d->kernels.attention_backward(&d->cuda, dqkv, device_reals(d, p->dy, p->outputs), qkv, y,
                                  got_saved, context, &shape);
    check_near(check, "dqkv", dqkv, p->dqkv, 3 * p->outputs, check_roundings(check, 3e-5, 0, 16));
    if (context != NULL)
        check_near(check, "dk, dv", context->key_gradients, twin_context->key_gradients,
                   2 * p->outputs / p->shape.sequence * p->keys,
                   check_roundings(check, 3e-5, 0, 16));
}

static void any_shape(struct check *check)
{
    DEVICE_BEGIN(d, check)
    static const int64_t sizes[] = {1, 7, 24, 40, 64};
    struct problem p = draw(check, 150, sizes[check_integer(check, 0, 4)]);
    fill(check, &p);
    compare(&d, &p, NULL, NULL);
}

/* More features than the first tiling takes. */
static void large_heads(struct check *check)
{
    DEVICE_BEGIN(d, check)
    static const int64_t sizes[] = {96, 128, 160, 256, 65, 201};
    struct problem p = draw(check, 80, sizes[check->round % 6]);
    if (p.shape.head_size > d.kernels.largest_head(&d.cuda))
        return;
    p.shape.batch = 1;
    fill(check, &p);
    compare(&d, &p, NULL, NULL);
}

/* Scores far beyond exp's range, whose maximum moves from tile to tile. */
static void large_scores(struct check *check)
{
    DEVICE_BEGIN(d, check)
    struct problem p = {.shape = {.batch = 1,
                                  .sequence = 150,
                                  .heads = 1,
                                  .head_size = 1,
                                  .kind = SBP_ATTENTION_FLASH},
                        .keys = 150};
    fill(check, &p);
    for (int64_t s = 0; s < 150; s++) {
        p.qkv[3 * s] = 1; /* the last key wins by far */
        p.qkv[3 * s + 1] = (double)(256 * s);
        p.qkv[3 * s + 2] = (double)s;
        p.y[s] = 149;
    }
    void *y = device_reals(&d, NULL, 150), *saved = blank_saved(&d, &p);
    d.kernels.attention_forward(&d.cuda, y, saved, NULL, device_reals(&d, p.qkv, 450), NULL,
                                &p.shape);
    check_equal(check, "y", y, p.y, 150);
}

/* Local queries are some rows of the sequence; keys and values are all of it. */
static void split_by_sequence(struct check *check)
{
    DEVICE_BEGIN(d, check)
    const struct check_split split = check_split(check, 20);
    const struct sbp_digits rows =
        check_rank_digits(&split, check_integer(check, 0, split.ranks - 1));
    struct problem p = draw(check, 1, check_integer(check, 1, 3) * 8);
    p.shape.sequence = split.local;
    p.keys = split.global;
    fill(check, &p);
    const int64_t n = 2 * p.outputs / p.shape.sequence * p.keys;
    const double *keys = check_uniform(check, n);
    const struct sbp_attention_context twin = {
        .rows = &rows, .keys = keys, .key_gradients = check_zeros(check, n)};
    const struct sbp_attention_context context = {.rows = &rows,
                                                  .keys = device_reals(&d, keys, n),
                                                  .key_gradients = device_reals(&d, NULL, n)};
    if (check->round % 2 == 0)
        p.chance.p = 0.3;
    compare(&d, &p, &twin, &context);
}

/* Few queries and many keys, whose values have one sign: sums that are cut off towards zero again
 * and again are too small, as those of tensor cores are. */
static void long_sums(struct check *check)
{
    DEVICE_BEGIN(d, check)
    if (check->kernels->real != SBP_F32) /* where all of it is below what is stored */
        return;
    const struct sbp_digits rows = {.count = 1, .size = {256}, .fixed = {0}, .rest = 8};
    struct problem p = {.shape = {.batch = 1,
                                  .sequence = 8,
                                  .heads = 1,
                                  .head_size = 8,
                                  .kind = SBP_ATTENTION_FLASH},
                        .keys = 2048};
    fill(check, &p);
    double *keys = check_uniform(check, 2 * p.keys * p.shape.head_size);
    for (int64_t i = 0; i < p.keys * 16; i++)
        keys[i] = i % 16 < 8 ? keys[i] / 16 : 1 + fabs(keys[i]) / 2.1;
    const int64_t n = p.keys * 16;
    const struct sbp_attention_context twin = {
        .rows = &rows, .keys = keys, .key_gradients = check_zeros(check, n)};
    const struct sbp_attention_context context = {.rows = &rows,
                                                  .keys = device_reals(&d, keys, n),
                                                  .key_gradients = device_reals(&d, NULL, n)};
    compare(&d, &p, &twin, &context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECK_TABLES(long_sums, 1),          CHECK_TABLES(any_shape, 12),
        CHECK_TABLES(large_heads, 6),        CHECK_TABLES(large_scores, 1),
        CHECK_TABLES(split_by_sequence, 10),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
