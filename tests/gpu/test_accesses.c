/* Kernels take 16 bytes at a time where sizes and addresses allow it, and never elsewhere, as the
 * host counts it: no kernel loses its wide instance unseen, and each looks at every operand. A GPU
 * does not count, so that this program runs on the host alone. */
#include "tests/gpu/device.h"

enum { ROWS = 3, FEATURES = 64, ODD_FEATURES = 61 };
enum { OPERANDS = 10 /* of the calls of a test, at most */ };

/* Rows of whole chunks at aligned addresses; rows of odd lengths; all operands an element behind;
 * one operand alone an element behind, each in a round of its own. */
enum kind { ALIGNED, ODD, SHIFTED, ALONE, ROUNDS = ALONE + OPERANDS };

/* Calls of some kernels on ROWS rows of n features. */
struct calls {
    struct device d;
    enum kind kind;
    int64_t n, all;
    int operands, alone; /* made so far; the one that is shifted alone */
};

static bool begin(struct calls *c, struct check *check)
{
    if (!device_begin(&c->d, check))
        return false;
    c->kind = check->round < ALONE ? (enum kind)check->round : ALONE;
    c->alone = check->round - ALONE;
    c->operands = 0;
    c->n = c->kind == ODD ? ODD_FEATURES : FEATURES;
    c->all = ROWS * c->n;
    return true;
}

static void *zeros(struct calls *c, int64_t n, int64_t bytes)
{
    const int64_t skipped = c->kind == SHIFTED || c->operands == c->alone ? 1 : 0;
    assert_true(c->operands++ < OPERANDS);
    return check_bytes(c->d.check, (n + skipped) * bytes) + skipped * bytes;
}

/* Reals of the table's type, and of the wide one. */
static void *some(struct calls *c, int64_t n)
{
    return zeros(c, n, c->d.check->kernels->real_bytes);
}

static void *wide(struct calls *c, int64_t n)
{
    return zeros(c, n, sizeof(float));
}

/* Masks and indices. */
static void *bytes(struct calls *c, int64_t n)
{
    return zeros(c, n, 1);
}

static int32_t *numbers(struct calls *c, int64_t n)
{
    return check_ids(c->d.check, n, 1);
}

/* `tensors`: how many of c->all elements a call reads and writes, at least. Kernels with tails take
 * what is over of odd lengths by itself. Where one operand alone is shifted, which a call may have
 * or not, no count is expected: an unaligned access is an error of the context. */
static void expect(const struct calls *c, const char *kernel, int64_t tensors, bool has_tail,
                   int64_t accesses)
{
    const int64_t chunks = c->all * c->d.check->kernels->real_bytes / 16;
    const bool is_wide = c->kind == ALIGNED || (c->kind == ODD && has_tail);
    const int64_t least = is_wide ? tensors * chunks : 0;
    if (c->kind == ALONE && c->d.cuda.error != 0)
        fail_msg("%s: error %d with operand %d alone an element behind", kernel, c->d.cuda.error,
                 c->alone);
    if (c->kind == ALONE)
        return;
    if (c->d.cuda.error != 0 || accesses < least || (!is_wide && accesses > 0))
        fail_msg("%s: %lld accesses of 16 bytes, expected %s %lld (case %d)", kernel,
                 (long long)accesses, is_wide ? "at least" : "exactly", (long long)least,
                 (int)c->kind);
}

#define EXPECT(c, tensors, has_tail, kernel, ...)                                                  \
    do {                                                                                           \
        const int64_t before = device_wide_accesses();                                             \
        (c)->d.kernels.kernel(&(c)->d.cuda, __VA_ARGS__);                                          \
        expect((c), #kernel, (tensors), (has_tail), device_wide_accesses() - before);              \
    } while (0)
#define WIDE(c, tensors, ...)   EXPECT(c, tensors, false, __VA_ARGS__)
#define TAILED(c, tensors, ...) EXPECT(c, tensors, true, __VA_ARGS__)
#define CALLS_BEGIN(name, check)                                                                   \
    struct calls name;                                                                             \
    if (!begin(&name, check))                                                                      \
        return;

/* ---- elements -------------------------------------------------------------------------------- */

static void elements(struct check *check)
{
    CALLS_BEGIN(c, check)
    const int64_t n = c.all;
    void *y = some(&c, n), *x = some(&c, n), *dy = some(&c, n), *single = wide(&c, n);
    TAILED(&c, 2, relu_forward, y, x, n);
    TAILED(&c, 3, relu_backward, y, x, dy, n);
    TAILED(&c, 2, gelu_forward, y, x, n);
    TAILED(&c, 3, gelu_backward, y, x, dy, n);
    TAILED(&c, 2, tanh_forward, y, x, n);
    TAILED(&c, 3, tanh_backward, y, x, dy, n);
    TAILED(&c, 3, add, y, x, dy, n);
    TAILED(&c, 2, scale, x, 2, n);
    TAILED(&c, 2, absolute, x, n);
    TAILED(&c, 2, to_wide, single, x, n);
    TAILED(&c, 2, from_wide, x, single, n);
    WIDE(&c, 2, put_sums, x, single, n, false);
    WIDE(&c, 3, put_sums, x, single, n, true);
}

static void dropout(struct check *check)
{
    CALLS_BEGIN(c, check)
    const struct sbp_region region = {
        .dim = {{.rest = c.all}, {.rest = 1}, {.rest = 1}, {.rest = 1}}};
    void *y = some(&c, c.all), *x = some(&c, c.all);
    uint8_t *mask = bytes(&c, c.all);
    WIDE(&c, 2, dropout_forward, y, mask, x, &region, 0.5, 1, 1);
    WIDE(&c, 2, dropout_backward, y, mask, x, c.all, 0.5);
}

static void gates(struct check *check)
{
    CALLS_BEGIN(c, check)
    const struct sbp_digits one = {.rest = 1};
    void *x = some(&c, 2 * c.all), *dx = some(&c, 2 * c.all), *y = some(&c, c.all);
    WIDE(&c, 3, swiglu_forward, y, x, c.all);
    WIDE(&c, 5, swiglu_backward, dx, x, y, c.all);
    WIDE(&c, 4, rotary, x, &one, 1, ROWS, 2 * c.n, 2 * c.n, false);
}

static void biases(struct check *check)
{
    CALLS_BEGIN(c, check)
    void *y = some(&c, c.all), *x = some(&c, c.all), *bias = some(&c, c.n);
    WIDE(&c, 2, add_bias, y, bias, ROWS, c.n);
    WIDE(&c, 1, column_sums, bias, x, ROWS, c.n, false);
    WIDE(&c, 3, bias_gelu_forward, y, x, bias, ROWS, c.n);
    WIDE(&c, 3, bias_gelu_backward, y, bias, x, some(&c, c.all), ROWS, c.n, false);
}

static void optimizer(struct check *check)
{
    CALLS_BEGIN(c, check)
    const struct sbp_update adam = {
        .optimizer = SBP_ADAM, .epsilon = 1, .gradient_scale = 1, .loss_scale = 1, .step = 1};
    void *w = some(&c, c.all), *g = some(&c, c.all), *master = wide(&c, c.all);
    TAILED(&c, 1, sum_squares, wide(&c, 1), g, c.all, 1);
    void *unscaled = wide(&c, c.all), *first = wide(&c, c.all), *second = wide(&c, c.all);
    TAILED(&c, 7, update, w, master, g, NULL, first, second, c.all, &adam, NULL);
    TAILED(&c, 7, update, w, master, g, unscaled, first, second, c.all, &adam, NULL);
}

static void layout(struct check *check)
{
    CALLS_BEGIN(c, check)
    const int64_t shape[] = {2, ROWS, c.n};
    const int order[] = {1, 0, 2};
    void *y = some(&c, 2 * c.all), *x = some(&c, 2 * c.all);
    WIDE(&c, 4, permute, y, x, 3, shape, order);
    WIDE(&c, 2, copy_rows, y, 2 * c.n, x, c.n, c.n, ROWS);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void layer_norm(struct check *check)
{
    CALLS_BEGIN(c, check)
    const int64_t n = c.n;
    void *y = some(&c, c.all), *x = some(&c, c.all), *dy = some(&c, c.all);
    void *gain = some(&c, n), *shift = some(&c, n), *sums = wide(&c, 2 * ROWS);
    void *back = wide(&c, 2 * ROWS);
    WIDE(&c, 1, layernorm_sums, sums, x, ROWS, n);
    WIDE(&c, 2, layernorm_forward, y, x, sums, gain, shift, ROWS, n, n, 1);
    WIDE(&c, 2, layernorm_backward_sums, back, dy, x, sums, gain, ROWS, n, n, 1);
    WIDE(&c, 5, layernorm_backward, y, gain, shift, dy, x, sums, back, gain, ROWS, n, n, 1, false);
    WIDE(&c, 2, layernorm_whole_forward, y, sums, x, gain, shift, ROWS, n, 1);
    WIDE(&c, 5, layernorm_whole_backward, y, gain, shift, dy, x, sums, gain, ROWS, n, 1, false);
}

static void rms_norm(struct check *check)
{
    CALLS_BEGIN(c, check)
    const int64_t n = c.n;
    void *y = some(&c, c.all), *x = some(&c, c.all), *dy = some(&c, c.all);
    void *gain = some(&c, n), *sums = wide(&c, ROWS), *back = wide(&c, ROWS);
    WIDE(&c, 1, rmsnorm_sums, sums, x, ROWS, n);
    WIDE(&c, 2, rmsnorm_forward, y, x, sums, gain, ROWS, n, n, 1);
    WIDE(&c, 2, rmsnorm_backward_sums, back, dy, x, gain, ROWS, n);
    WIDE(&c, 5, rmsnorm_backward, y, gain, dy, x, sums, back, gain, ROWS, n, n, 1, false);
    WIDE(&c, 2, head_norm_forward, y, sums, x, gain, ROWS, n, n, 1);
    WIDE(&c, 5, head_norm_backward, y, gain, dy, x, sums, gain, ROWS, n, n, 1, false);
}

static void vocabulary(struct check *check)
{
    CALLS_BEGIN(c, check)
    const int64_t n = c.n;
    const struct sbp_digits rows = {.rest = n};
    const int32_t *ids = numbers(&c, ROWS);
    void *logits = some(&c, c.all), *maxima = wide(&c, ROWS), *sums = wide(&c, 2 * ROWS);
    void *table = some(&c, n * n), *places = some(&c, c.all), *y = some(&c, c.all);
    WIDE(&c, 1, cross_entropy_maxima, maxima, logits, ROWS, n, &rows, n);
    WIDE(&c, 1, cross_entropy_sums, sums, logits, ids, maxima, ROWS, n, &rows, n);
    WIDE(&c, 1, cross_entropy_whole_sums, maxima, sums, logits, ids, ROWS, n, n);
    WIDE(&c, 2, cross_entropy_backward, y, logits, ids, maxima, sums, ROWS, n, &rows, n, 1, NULL);
    WIDE(&c, 3, embedding_forward, y, ids, ids, table, places, ROWS, n, &rows);
    WIDE(&c, 2, embedding_backward, table, places, ids, ids, y, ROWS, n, ROWS, &rows, 0);
}

static void tokens(struct check *check)
{
    CALLS_BEGIN(c, check)
    const int64_t n = c.n;
    const int32_t *places = numbers(&c, ROWS);
    void *y = some(&c, c.all), *x = some(&c, c.all);
    WIDE(&c, 3, token_types_forward, y, places, x, ROWS, n, ROWS, ROWS);
    WIDE(&c, 1, token_types_backward, x, places, y, ROWS, n, ROWS, ROWS, false);
    WIDE(&c, 2, first_token_forward, y, x, ROWS, 1, n);
    WIDE(&c, 2, first_token_backward, x, y, ROWS, 1, n);
}

static void patches(struct check *check)
{
    CALLS_BEGIN(c, check)
    const struct sbp_digits rows = {.rest = ROWS}, one = {.rest = 1};
    const struct sbp_patches of = {.rows = &rows, .batch = 1, .pixels = 1, .features = c.n};
    const struct sbp_patches classes = {
        .rows = &one, .batch = ROWS, .pixels = 1, .features = c.n, .class_token = true};
    void *y = some(&c, c.all), *places = some(&c, c.all), *bias = some(&c, c.n);
    WIDE(&c, 4, patches_put, y, wide(&c, c.all), bias, places, &of, 0, ROWS);
    WIDE(&c, 3, patches_put_class, y, bias, places, &classes);
    WIDE(&c, 2, patches_take, y, places, &of, 0, ROWS);
    WIDE(&c, 4, patches_sums, bias, NULL, places, y, &of, false);
}

static void mixture(struct check *check)
{
    CALLS_BEGIN(c, check)
    const struct sbp_routing of = {
        .tokens = ROWS, .experts = 1, .top_k = 1, .capacity = ROWS, .in = c.n};
    int32_t *table = numbers(&c, 2 * ROWS); /* expert and slot of each token */
    void *slots = some(&c, c.all), *x = some(&c, c.all), *scores = some(&c, ROWS);
    for (int32_t i = 0; i < ROWS; i++)
        table[2 * i + 1] = i;
    WIDE(&c, 2, moe_dispatch, slots, x, table, &of);
    WIDE(&c, 3, moe_dispatch_backward, x, slots, table, &of);
    WIDE(&c, 2, moe_combine, x, slots, scores, table, &of);
    WIDE(&c, 3, moe_combine_backward, some(&c, c.all), scores, x, slots, table, &of);
}

/* ---- images ---------------------------------------------------------------------------------- */

/* A row of images in ROWS channels; of three columns of a kernel the middle one reads them as they
 * lie. */
static void images(struct check *check)
{
    CALLS_BEGIN(c, check)
    const int64_t n = c.n;
    const struct sbp_windows of = {.batch = 1,
                                   .channels = ROWS,
                                   .height = 1,
                                   .width = n,
                                   .out_height = 1,
                                   .out_width = n,
                                   .kernel = {1, 3},
                                   .stride = {1, 1},
                                   .padding = {0, 1}};
    void *matrix = some(&c, 3 * c.all), *x = some(&c, c.all), *y = some(&c, c.all);
    WIDE(&c, 4, conv2d_windows, matrix, x, &of, 0, 3 * ROWS, 0, n);
    WIDE(&c, 4, conv2d_sources, matrix, x, &of, ROWS, 0, n);
    WIDE(&c, 2, images_take, matrix, x, ROWS, n, 0, n);
    WIDE(&c, 2, images_put, x, wide(&c, c.all), NULL, ROWS, n, 0, n);
    WIDE(&c, 1, images_sums, some(&c, ROWS), x, 1, ROWS, n, false);
    uint8_t *index = bytes(&c, c.all);
    WIDE(&c, 1, maxpool_forward, y, index, x, &of);
    WIDE(&c, 1, maxpool_backward, x, index, y, &of);
    WIDE(&c, 1, avgpool_forward, y, x, &of);
    WIDE(&c, 1, avgpool_backward, x, y, &of);
}

static void batch_norm(struct check *check)
{
    CALLS_BEGIN(c, check)
    const struct sbp_norm_rows of = {.count = 1, .channels = ROWS, .width = c.n};
    void *y = some(&c, c.all), *x = some(&c, c.all), *dy = some(&c, c.all);
    void *gain = some(&c, ROWS), *shift = some(&c, ROWS), *statistics = wide(&c, 2 * ROWS);
    WIDE(&c, 2, batchnorm_statistics, statistics, x, &of, 1);
    WIDE(&c, 2, batchnorm_forward, y, x, statistics, gain, shift, &of);
    WIDE(&c, 5, batchnorm_backward, y, gain, shift, dy, x, statistics, gain, &of, false);
}

/* ---- attention ------------------------------------------------------------------------------- */

static void attention(struct check *check)
{
    CALLS_BEGIN(c, check)
    const struct sbp_attention_shape shape = {
        .batch = 1, .sequence = ROWS, .heads = 1, .head_size = c.n, .kind = SBP_ATTENTION_FLASH};
    const struct sbp_digits one = {.rest = 1};
    const struct sbp_attention_groups groups = {.heads = &one, .kv_heads = &one, .share = 1};
    void *qkv = some(&c, 3 * c.all), *dqkv = some(&c, 3 * c.all), *dkv = some(&c, 2 * c.all);
    void *q = some(&c, c.all), *kv = some(&c, 2 * c.all), *dq = some(&c, c.all);
    void *y = some(&c, c.all), *dy = some(&c, c.all), *saved = wide(&c, ROWS);
    WIDE(&c, 3, attention_forward, y, saved, NULL, qkv, NULL, &shape);
    WIDE(&c, 4, attention_backward, dqkv, dy, qkv, y, saved, NULL, &shape);
    WIDE(&c, 3, grouped_attention_forward, y, saved, NULL, q, kv, &groups, &shape);
    WIDE(&c, 4, grouped_attention_backward, dq, dkv, dy, q, kv, y, saved, &groups, &shape);
}

static void latent_attention(struct check *check)
{
    CALLS_BEGIN(c, check)
    const struct sbp_attention_shape shape = {
        .batch = 1, .sequence = ROWS, .heads = 1, .head_size = c.n, .kind = SBP_ATTENTION_FLASH};
    const int64_t rope = c.n / 4 * 2, row = 2 * c.n - rope;
    const struct sbp_latent_keys keys = {.kv = some(&c, ROWS * row),
                                         .shared = some(&c, ROWS * rope),
                                         .kv_gradients = some(&c, ROWS * row),
                                         .shared_gradients = some(&c, ROWS * rope),
                                         .kv_row = row,
                                         .shared_row = rope,
                                         .parts = {rope, c.n - rope, c.n}};
    void *y = some(&c, c.all), *saved = wide(&c, ROWS), *q = some(&c, c.all);
    void *dq = some(&c, c.all), *dy = some(&c, c.all);
    void *scratch = some(&c, sbp_latent_scratch_elements(&shape, &keys.parts, true));
    WIDE(&c, 3, latent_attention_forward, y, saved, scratch, q, &keys, &shape);
    WIDE(&c, 4, latent_attention_backward, dq, scratch, dy, q, y, saved, &keys, &shape);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECK_TABLES(elements, ROUNDS),   CHECK_TABLES(dropout, ROUNDS),
        CHECK_TABLES(gates, ROUNDS),      CHECK_TABLES(biases, ROUNDS),
        CHECK_TABLES(optimizer, ROUNDS),  CHECK_TABLES(layout, ROUNDS),
        CHECK_TABLES(layer_norm, ROUNDS), CHECK_TABLES(rms_norm, ROUNDS),
        CHECK_TABLES(vocabulary, ROUNDS), CHECK_TABLES(tokens, ROUNDS),
        CHECK_TABLES(patches, ROUNDS),    CHECK_TABLES(mixture, ROUNDS),
        CHECK_TABLES(images, ROUNDS),     CHECK_TABLES(batch_norm, ROUNDS),
        CHECK_TABLES(attention, ROUNDS),  CHECK_TABLES(latent_attention, ROUNDS),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
