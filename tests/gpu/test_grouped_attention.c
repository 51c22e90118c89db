/* Attention on the GPU whose heads share keys and values, beside its CPU twin in double: windows,
 * heads of any size, heads and queries split over ranks, and scratch for few heads at a time. */
#include <string.h>

#include "tests/gpu/device.h"

struct problem {
    struct sbp_attention_shape shape;
    struct sbp_digits heads, kv_heads, rows; /* rows: count 0, all of the sequence */
    int64_t share, window;
    int64_t keys; /* of the sequence */
    struct check_chance chance;
    bool sinks, adds; /* adds: to what the sinks' gradients have */
};

static struct sbp_digits whole(int64_t size)
{
    return (struct sbp_digits){.rest = size};
}

/* A window only where queries see no key behind them. */
static struct problem draw(struct check *check, int64_t longest, int64_t head_size)
{
    struct problem p = {.shape = {.batch = check_integer(check, 1, 2),
                                  .sequence = check_size(check, longest),
                                  .head_size = head_size,
                                  .causal = check_integer(check, 0, 3) > 0,
                                  .kind = check_integer(check, 0, 2) == 0
                                              ? SBP_ATTENTION_MATERIALISED
                                              : SBP_ATTENTION_FLASH},
                        .kv_heads = whole(check_integer(check, 1, 2)),
                        .share = check_integer(check, 1, 3),
                        .chance = check_chance(check),
                        .sinks = check_integer(check, 0, 1) == 1,
                        .adds = check_integer(check, 0, 1) == 1};
    p.heads = whole(p.kv_heads.rest * p.share);
    p.shape.heads = p.heads.rest;
    p.rows = whole(p.shape.sequence);
    p.keys = p.shape.sequence;
    if (p.shape.causal && check_integer(check, 0, 1) == 1)
        p.window = check_integer(check, 1, p.keys + 2);
    return p;
}

static struct sbp_attention_groups groups_of(const struct problem *p)
{
    return (struct sbp_attention_groups){.heads = &p->heads,
                                         .kv_heads = &p->kv_heads,
                                         .share = p->share,
                                         .window = p->window,
                                         .rows = p->rows.count > 0 ? &p->rows : NULL};
}

/* Elements of q, y and their gradients; of kv; of what forward saves. */
struct sizes {
    int64_t q, kv, saved;
};

static struct sizes sizes_of(const struct problem *p)
{
    const struct sbp_attention_shape *shape = &p->shape;
    const int64_t rows = shape->batch * shape->heads * shape->sequence;
    return (struct sizes){.q = rows * shape->head_size,
                          .kv = 2 * shape->batch * p->keys * sbp_digits_local_size(&p->kv_heads) *
                                shape->head_size,
                          .saved = shape->kind == SBP_ATTENTION_FLASH ? rows : rows * p->keys};
}

/* The shape with the dropout that is drawn, and a mask of its own. */
static struct sbp_attention_shape dropping(struct check *check, const struct problem *p,
                                           const struct sizes *n, struct check_dropping *at)
{
    struct sbp_attention_shape shape = p->shape;
    at->region =
        (struct sbp_region){.dim = {whole(shape.batch), p->rows, p->heads, whole(shape.head_size)}};
    shape.dropout = check_dropping(check, &p->chance,
                                   shape.kind == SBP_ATTENTION_MATERIALISED ? n->saved : 0, at);
    return shape;
}

/* Masks of materialised attention. */
static void expect_masks(const struct device *d, const struct check_dropping *got,
                         const struct check_dropping *want, const struct sbp_attention_shape *shape,
                         int64_t n)
{
    if (shape->dropout != NULL && shape->dropout->mask != NULL)
        device_same(d, "mask", got->dropout.mask, want->dropout.mask, n);
}

static bool has_sinks(const struct problem *p)
{
    return p->sinks && p->shape.kind == SBP_ATTENTION_FLASH;
}

/* Inputs, and what the twin makes of them. */
struct twin {
    double *q, *kv, *dy, *y, *saved, *dq, *dkv, *sinks, *dsinks, *before;
};

static struct twin run_twin(struct device *d, const struct problem *p, const struct sizes *n,
                            const struct sbp_attention_shape *shape)
{
    struct check *check = d->check;
    struct sbp_attention_groups groups = groups_of(p);
    struct sbp_attention_shape longest = p->shape;
    longest.sequence = p->keys;
    double *scratch = check_zeros(check, sbp_attention_scratch_elements(&longest));
    struct twin twin = {.q = check_uniform(check, n->q),
                        .kv = check_uniform(check, n->kv),
                        .dy = check_uniform(check, n->q),
                        .y = check_zeros(check, n->q),
                        .saved = check_zeros(check, 2 * n->saved),
                        .dq = check_zeros(check, n->q),
                        .dkv = check_zeros(check, n->kv)};
    if (has_sinks(p)) {
        twin.sinks = check_uniform(check, shape->heads);
        twin.before = check_uniform(check, shape->heads);
        twin.dsinks = check_zeros(check, shape->heads);
        memcpy(twin.dsinks, twin.before, (size_t)shape->heads * sizeof(double));
        groups.sinks = twin.sinks;
        groups.sink_gradients = twin.dsinks;
        groups.adds = p->adds;
    }
    d->twin->grouped_attention_forward(twin.y, twin.saved, scratch, twin.q, twin.kv, &groups,
                                       shape);
    d->twin->grouped_attention_backward(twin.dq, twin.dkv, scratch, twin.dy, twin.q, twin.kv,
                                        twin.y, twin.saved, &groups, shape);
    return twin;
}

static void expect_saved(const struct check *check, const struct problem *p, const void *got,
                         const double *want, int64_t n)
{
    if (p->shape.kind == SBP_ATTENTION_FLASH)
        check_wide_near(check, "log-sum-exps", got, want, n, 2e-6);
    else
        check_near(check, "probabilities", got, want, n, check_tolerance(check, 2e-6, 0));
}

/* Factors of products are rounded to 16 bits: probabilities, and gradients of scores. */
static void compare(struct device *d, const struct problem *p)
{
    struct check *check = d->check;
    const struct sizes n = sizes_of(p);
    struct sbp_attention_groups groups = groups_of(p);
    struct check_dropping twins, own;
    const struct sbp_attention_shape twin_shape = dropping(check, p, &n, &twins);
    const struct sbp_attention_shape shape = dropping(check, p, &n, &own);
    const struct twin twin = run_twin(d, p, &n, &twin_shape);
    const void *q = device_reals(d, twin.q, n.q), *kv = device_reals(d, twin.kv, n.kv);
    const void *dy = device_reals(d, twin.dy, n.q);
    void *saved = p->shape.kind == SBP_ATTENTION_FLASH ? device_wide(d, NULL, n.saved)
                                                       : device_reals(d, NULL, n.saved);
    void *y = device_reals(d, NULL, n.q), *dq = device_reals(d, NULL, n.q);
    void *dkv = device_reals(d, NULL, n.kv), *dsinks = NULL;
    if (has_sinks(p)) {
        groups.sinks = device_reals(d, twin.sinks, shape.heads);
        groups.sink_gradients = dsinks = device_reals(d, p->adds ? twin.before : NULL, shape.heads);
        groups.adds = p->adds;
    }
    d->kernels.grouped_attention_forward(&d->cuda, y, saved, NULL, q, kv, &groups, &shape);
    check_near(check, "y", y, twin.y, n.q, check_roundings(check, 5e-6, 0, 2));
    expect_saved(check, p, saved, twin.saved, n.saved);
    expect_masks(d, &own, &twins, &shape, n.saved);
    d->kernels.grouped_attention_backward(&d->cuda, dq, dkv, dy, q, kv, y, saved, &groups, &shape);
    check_near(check, "dq", dq, twin.dq, n.q, check_roundings(check, 3e-5, 0, 16));
    check_near(check, "dkv", dkv, twin.dkv, n.kv,
               check_roundings(check, 3e-5, 0, 16 * (double)p->share));
    if (dsinks != NULL)
        check_near(check, "dsinks", dsinks, twin.dsinks, shape.heads,
                   check_roundings(check, 3e-5, 0, 16));
}

static void any_shape(struct check *check)
{
    DEVICE_BEGIN(d, check)
    static const int64_t sizes[] = {1, 7, 24, 40, 64};
    struct problem p = draw(check, 150, sizes[check_integer(check, 0, 4)]);
    p.shape.batch = 1;
    compare(&d, &p);
}

/* More features than the first tiling takes. */
static void large_heads(struct check *check)
{
    DEVICE_BEGIN(d, check)
    static const int64_t sizes[] = {201, 96, 256, 128, 65, 160};
    struct problem p = draw(check, 40, sizes[check->round % 6]);
    if (p.shape.head_size > d.kernels.largest_head(&d.cuda))
        return;
    p.shape.batch = p.kv_heads.rest = 1;
    p.shape.heads = p.heads.rest = p.share;
    compare(&d, &p);
}

/* Windows that hide whole tiles of keys, and tiles of queries from keys. */
static void windows(struct check *check)
{
    DEVICE_BEGIN(d, check)
    struct problem p = draw(check, 1, 8);
    p.shape.batch = p.share = p.shape.heads = p.heads.rest = p.kv_heads.rest = 1;
    p.shape.sequence = p.keys = check_integer(check, 140, 200);
    p.rows = whole(p.keys);
    p.shape.causal = true;
    p.window = check_integer(check, 1, 70);
    compare(&d, &p);
}

/* Room for the heads of one head of keys, or of a few. */
static void little_scratch(struct check *check)
{
    DEVICE_BEGIN(d, check)
    struct problem p = draw(check, 40, 8);
    d.cuda.scratch_bytes =
        4 * p.shape.sequence * p.share * check_integer(check, 1, 3) + check_integer(check, 0, 3);
    compare(&d, &p);
}

/* Dropout, of heads of every tiling and of both kinds. */
static void dropped(struct check *check)
{
    DEVICE_BEGIN(d, check)
    static const int64_t sizes[] = {40, 96, 201};
    struct problem p = draw(check, 70, sizes[check->round % 3]);
    if (p.shape.head_size > d.kernels.largest_head(&d.cuda))
        return;
    p.chance.p = 0.3;
    p.shape.kind = check->round < 3 ? SBP_ATTENTION_FLASH : SBP_ATTENTION_MATERIALISED;
    p.kv_heads.rest = 1;
    p.shape.heads = p.heads.rest = p.share;
    compare(&d, &p);
}

/* Less room than the readers of one head of keys need. */
static void too_little_scratch(struct check *check)
{
    DEVICE_BEGIN(d, check)
    const struct problem p = draw(check, 40, 8);
    const struct sizes n = sizes_of(&p);
    const struct sbp_attention_groups groups = groups_of(&p);
    void *q = device_reals(&d, NULL, n.q), *kv = device_reals(&d, NULL, n.kv);
    const void *saved = device_wide(&d, NULL, n.saved);
    d.cuda.scratch_bytes = 4 * p.shape.sequence * p.share - 1;
    d.kernels.grouped_attention_backward(&d.cuda, q, kv, q, q, kv, q, saved, &groups, &p.shape);
    assert_int_not_equal(d.cuda.error, 0);
}

/* A dimension of which the outer digit is one axis's, the next one another's. */
static struct sbp_digits split(int64_t outer, int64_t at, int64_t inner, int64_t place,
                               int64_t rest)
{
    return (struct sbp_digits){
        .count = 2, .size = {outer, inner}, .fixed = {at, place}, .rest = rest};
}

/* One axis splits the heads of queries and of keys, another one those of queries alone, a third the
 * queries by sequence: of some heads of keys no query is here, of others not all. */
static void split_heads(struct check *check)
{
    DEVICE_BEGIN(d, check)
    const int64_t outer = check_integer(check, 1, 3), inner = check_integer(check, 1, 3);
    const int64_t kv_rest = check_integer(check, 1, 2), at = check_integer(check, 0, outer - 1);
    const struct check_split rows = check_split(check, 20);
    int64_t rest = check_integer(check, 1, 3);
    while (inner * rest % kv_rest != 0)
        rest++;
    struct problem p = draw(check, 1, check_integer(check, 1, 3) * 8);
    p.heads = split(outer, at, inner, check_integer(check, 0, inner - 1), rest);
    p.kv_heads = split(outer, at, 1, 0, kv_rest);
    p.share = inner * rest / kv_rest;
    p.rows = check_rank_digits(&rows, check_integer(check, 0, rows.ranks - 1));
    p.shape.heads = rest;
    p.shape.sequence = rows.local;
    p.keys = rows.global;
    if (p.window > 0)
        p.window = check_integer(check, 1, p.keys + 2);
    if (check->round % 2 == 0)
        p.chance.p = 0.3;
    p.sinks = check->round % 3 > 0;
    compare(&d, &p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECK_TABLES(any_shape, 1),   CHECK_TABLES(large_heads, 2),
        CHECK_TABLES(windows, 1),     CHECK_TABLES(little_scratch, 4),
        CHECK_TABLES(dropped, 6),     CHECK_TABLES(too_little_scratch, 1),
        CHECK_TABLES(split_heads, 6),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
