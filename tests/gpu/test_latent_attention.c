/* Latent attention on the GPU beside its CPU twin in double: parts of any size, queries split by
 * sequence, keys and values beside each other or gathered, and scratch for few heads at a time. */
#include "tests/gpu/device.h"

struct problem {
    struct sbp_attention_shape shape;
    struct sbp_latent_parts parts;
    struct sbp_digits rows; /* count 0: all of the sequence */
    int64_t keys;           /* of the sequence */
    bool gathered;          /* the shared part lies behind the others, in rows with them */
    struct check_chance chance;
};

static void set_parts(struct problem *p, int64_t rope, int64_t nope, int64_t value)
{
    p->parts = (struct sbp_latent_parts){rope, nope, value};
    p->shape.head_size = rope + nope;
}

/* In 16 bits, one of the sizes that rows have is not whole chunks: in turn all of a head, the part
 * that is turned, and values. */
static void set_one_odd(struct problem *p, int64_t turn)
{
    static const int64_t parts[][3] = {{16, 4, 8}, {4, 4, 8}, {16, 8, 12}};
    p->shape.heads = 2;
    p->gathered = false;
    set_parts(p, parts[turn % 3][0], parts[turn % 3][1], parts[turn % 3][2]);
}

static struct problem draw(struct check *check, int64_t longest)
{
    const struct check_split split = check_split(check, longest);
    struct problem p = {.shape = {.batch = check_integer(check, 1, 2),
                                  .heads = check_integer(check, 1, 3),
                                  .causal = check_integer(check, 0, 3) > 0,
                                  .kind = check_integer(check, 0, 2) == 0
                                              ? SBP_ATTENTION_MATERIALISED
                                              : SBP_ATTENTION_FLASH},
                        .rows = check_rank_digits(&split, check_integer(check, 0, split.ranks - 1)),
                        .keys = split.global,
                        .gathered = check_integer(check, 0, 1) == 1,
                        .chance = check_chance(check)};
    const int64_t wide = check_integer(check, 0, 1) == 1 ? 8 : 1;
    p.shape.sequence = split.local;
    set_parts(&p, 2 * wide * check_integer(check, 1, 2), wide * check_integer(check, 1, 3),
              wide * check_integer(check, 1, 4));
    if (check->round % 3 == 2)
        set_one_odd(&p, check->round / 3);
    return p;
}

/* Elements of q and dq; of y; of what forward saves; of keys, values and their shared part. */
struct sizes {
    int64_t q, y, saved, keys, shared, row;
};

static struct sizes sizes_of(const struct problem *p)
{
    const int64_t rows = p->shape.batch * p->shape.heads * p->shape.sequence;
    const int64_t tokens = p->shape.batch * p->keys;
    const int64_t row = p->shape.heads * (p->parts.nope + p->parts.value);
    return (struct sizes){.q = rows * p->shape.head_size,
                          .y = rows * p->parts.value,
                          .saved = p->shape.kind == SBP_ATTENTION_FLASH ? rows : rows * p->keys,
                          .keys = tokens * (row + (p->gathered ? p->parts.rope : 0)),
                          .shared = tokens * p->parts.rope,
                          .row = row};
}

/* Elements are of so many bytes. `shared` and its gradients are not read where all is gathered. */
static struct sbp_latent_keys keys_of(const struct problem *p, int64_t bytes, const void *kv,
                                      const void *shared, void *kv_gradients,
                                      void *shared_gradients)
{
    const int64_t row = sizes_of(p).row, apart = row + (p->gathered ? p->parts.rope : 0);
    return (struct sbp_latent_keys){
        .kv = kv,
        .shared = p->gathered ? (const char *)kv + row * bytes : shared,
        .kv_gradients = kv_gradients,
        .shared_gradients = p->gathered ? (char *)kv_gradients + row * bytes : shared_gradients,
        .kv_row = apart,
        .shared_row = p->gathered ? apart : p->parts.rope,
        .parts = p->parts,
        .rows = p->rows.count > 0 ? &p->rows : NULL};
}

/* The shape with the dropout that is drawn, and a mask of its own. */
static struct sbp_attention_shape dropping(struct check *check, const struct problem *p,
                                           const struct sizes *n, struct check_dropping *at)
{
    struct sbp_attention_shape shape = p->shape;
    at->region = (struct sbp_region){
        .dim = {{.rest = shape.batch}, p->rows, {.rest = shape.heads}, {.rest = p->parts.value}}};
    shape.dropout = check_dropping(check, &p->chance,
                                   shape.kind == SBP_ATTENTION_MATERIALISED ? n->saved : 0, at);
    return shape;
}

/* Inputs, and what the twin makes of them. */
struct twin {
    double *q, *kv, *shared, *dy, *y, *saved, *dq, *dkv, *dshared;
};

static int64_t scratch_elements(const struct problem *p)
{
    struct sbp_attention_shape longest = p->shape;
    longest.sequence = p->keys;
    return sbp_latent_scratch_elements(&longest, &p->parts, true);
}

static struct twin run_twin(struct device *d, const struct problem *p, const struct sizes *n,
                            const struct sbp_attention_shape *shape)
{
    struct check *check = d->check;
    double *scratch = check_zeros(check, scratch_elements(p));
    const struct twin t = {
        check_uniform(check, n->q), check_uniform(check, n->keys), check_uniform(check, n->shared),
        check_uniform(check, n->y), check_zeros(check, n->y),      check_zeros(check, 2 * n->saved),
        check_zeros(check, n->q),   check_zeros(check, n->keys),   check_zeros(check, n->shared)};
    const struct sbp_latent_keys keys =
        keys_of(p, sizeof(double), t.kv, t.shared, t.dkv, t.dshared);
    d->twin->latent_attention_forward(t.y, t.saved, scratch, t.q, &keys, shape);
    d->twin->latent_attention_backward(t.dq, scratch, t.dy, t.q, t.y, t.saved, &keys, shape);
    return t;
}

/* Factors of products are rounded to 16 bits: turned keys, probabilities, gradients of scores. */
static void compare(struct device *d, const struct problem *p)
{
    struct check *check = d->check;
    const struct sizes n = sizes_of(p);
    struct check_dropping twins, own;
    const struct sbp_attention_shape twin_shape = dropping(check, p, &n, &twins);
    const struct sbp_attention_shape shape = dropping(check, p, &n, &own);
    const struct twin t = run_twin(d, p, &n, &twin_shape);
    const bool is_flash = p->shape.kind == SBP_ATTENTION_FLASH;
    const void *q = device_reals(d, t.q, n.q), *dy = device_reals(d, t.dy, n.y);
    void *y = device_reals(d, NULL, n.y), *dq = device_reals(d, NULL, n.q);
    void *dkv = device_reals(d, NULL, n.keys), *dshared = device_reals(d, NULL, n.shared);
    void *saved = is_flash ? device_wide(d, NULL, n.saved) : device_reals(d, NULL, n.saved);
    void *scratch = check_blank(check, scratch_elements(p));
    const struct sbp_latent_keys keys =
        keys_of(p, check->kernels->real_bytes, device_reals(d, t.kv, n.keys),
                device_reals(d, t.shared, n.shared), dkv, dshared);
    d->kernels.latent_attention_forward(&d->cuda, y, saved, scratch, q, &keys, &shape);
    d->kernels.latent_attention_backward(&d->cuda, dq, scratch, dy, q, y, saved, &keys, &shape);
    check_near(check, "y", y, t.y, n.y, check_roundings(check, 1e-5, 0, 6));
    if (is_flash)
        check_wide_near(check, "log-sum-exps", saved, t.saved, n.saved,
                        check_roundings(check, 1e-5, 0, 4));
    else
        check_near(check, "probabilities", saved, t.saved, n.saved,
                   check_roundings(check, 1e-5, 0, 6));
    if (shape.dropout != NULL && shape.dropout->mask != NULL)
        device_same(d, "mask", own.dropout.mask, twins.dropout.mask, n.saved);
    check_near(check, "dq", dq, t.dq, n.q, check_roundings(check, 5e-5, 0, 24));
    check_near(check, "dkv", dkv, t.dkv, n.keys,
               check_roundings(check, 5e-5, 0, 24 * (double)p->shape.heads));
    if (!p->gathered)
        check_near(check, "dshared", dshared, t.dshared, n.shared,
                   check_roundings(check, 5e-5, 0, 24 * (double)p->shape.heads));
}

static void any_shape(struct check *check)
{
    DEVICE_BEGIN(d, check)
    struct problem p = draw(check, 15);
    if (check->round % 2 == 0)
        p.chance.p = 0.3;
    compare(&d, &p);
}

/* Keys without a shared part: no kernel is launched for it. */
static void no_shared_part(struct check *check)
{
    DEVICE_BEGIN(d, check)
    struct problem p = draw(check, 12);
    set_parts(&p, 0, p.parts.nope, p.parts.value);
    compare(&d, &p);
    assert_int_equal(d.cuda.error, 0);
}

/* Several tiles of keys and of queries, of which the last is cut. */
static void long_sequences(struct check *check)
{
    DEVICE_BEGIN(d, check)
    struct problem p = draw(check, 1);
    p.shape.batch = p.shape.heads = 1;
    p.keys = p.shape.sequence = check_integer(check, 65, 100);
    p.rows = (struct sbp_digits){.rest = p.keys};
    compare(&d, &p);
}

/* More features than the first tiling takes, of keys or of values. */
static void large_heads(struct check *check)
{
    DEVICE_BEGIN(d, check)
    static const int64_t parts[][3] = {{64, 128, 128}, {6, 20, 100}, {16, 8, 256}};
    struct problem p = draw(check, 1);
    const int64_t *const of = parts[check->round % 3];
    p.shape.batch = p.shape.heads = 1;
    set_parts(&p, of[0], of[1], of[2]);
    if (of[0] + of[1] > d.kernels.largest_head(&d.cuda) || of[2] > d.kernels.largest_head(&d.cuda))
        return;
    compare(&d, &p);
}

/* Room for sums of two heads, of which one adds a third's, or of none. */
static void little_scratch(struct check *check)
{
    DEVICE_BEGIN(d, check)
    struct problem p = draw(check, 12);
    p.shape.heads = 3;
    const int64_t inner = p.shape.sequence, sums = p.keys * p.parts.rope;
    d.cuda.scratch_bytes = 4 * (check->round % 2 == 0 ? 2 * (inner + sums) : inner) + 3;
    compare(&d, &p);
}

/* Less room than one head needs. */
static void too_little_scratch(struct check *check)
{
    DEVICE_BEGIN(d, check)
    const struct problem p = draw(check, 12);
    const struct sizes n = sizes_of(&p);
    void *const at = device_reals(&d, NULL, n.q + n.keys + n.shared + n.y);
    const struct sbp_latent_keys keys = keys_of(&p, check->kernels->real_bytes, at, at, at, at);
    d.cuda.scratch_bytes = 4 * p.shape.sequence - 1;
    d.kernels.latent_attention_backward(&d.cuda, at, check_blank(check, scratch_elements(&p)), at,
                                        at, at, device_wide(&d, NULL, n.saved), &keys, &p.shape);
    assert_int_not_equal(d.cuda.error, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECK_TABLES(any_shape, 9),          CHECK_TABLES(long_sequences, 1),
        CHECK_TABLES(large_heads, 3),        CHECK_TABLES(little_scratch, 2),
        CHECK_TABLES(too_little_scratch, 1), CHECK_TABLES(no_shared_part, 4),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
