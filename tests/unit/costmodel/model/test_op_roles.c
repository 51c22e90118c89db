/* Roles of the operators that are not one product, by arithmetic on real shards: what every member
 * makes of what its roles say it holds must add up to what one device makes, forward and backward,
 * for all pairs of roles on meshes of two axes. Linear layers and embeddings: test_op.c.
 *
 * An operator is a sum of products of its operands' elements ("terms"). Where it has a nonlinear
 * part, an integer product stands in for it. That suffices, because roles say only where operands
 * lie: a nonlinear function of what a member holds whole stays on the member whatever it is. So
 * attention's scores are not normalised (a row of scores is whole where its query lies: the keys
 * are gathered), silu and the router's softmax are the identity (they see inputs that are never
 * partial), and gradients are linear in the output's gradient with or without them, which is all
 * that partial ones need. Where a nonlinear part does need other members' numbers, it is played:
 * sums of squares of a norm.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/op_form.h"
#include "tests/support/unit.h"

enum { BATCH, ROWS, IN, OUT, KV, EXPERTS, TALL }; /* classes */
#define NONE SBP_NO_CLASS

/* --- attention --- */

/* Scores q . k, causal, times v: packed (heads, {q, k, v} of 2). */
static void make_attention(struct form *form, int64_t n)
{
    form->kind = SBP_OP_ATTENTION;
    add_operand(form, INPUT, 0, "context", SHAPE(n, n, n, 6), CLASS(BATCH, ROWS, OUT, NONE));
    set_output(form, SHAPE(n, n, n, 2), CLASS(BATCH, ROWS, OUT, NONE));
    const struct whole *x = &form->operand[0].value;
    for (int64_t b = 0; b < n; b++)
        for (int64_t s = 0; s < n; s++)
            for (int64_t t = 0; t <= s; t++)
                for (int64_t h = 0; h < n; h++)
                    for (int64_t d = 0; d < 4; d++) {
                        struct term *term = add_term(form, at(&form->y, b, s, h, d / 2));
                        times(term, 0, at(x, b, s, h, d % 2));
                        times(term, 0, at(x, b, t, h, 2 + d % 2));
                        times(term, 0, at(x, b, t, h, 4 + d / 2));
                    }
}

static void test_attention(void **state)
{
    (void)state;
    play_pairs(make_attention, play_any);
}

/* Query heads (of 2) in groups of `heads / kv` to a head of keys and values. */
static void make_grouped(struct form *form, int64_t n, int64_t heads, int64_t kv)
{
    form->kind = SBP_OP_GROUPED_ATTENTION;
    add_operand(form, INPUT, 0, NULL, SHAPE(n, n, heads, 2), CLASS(BATCH, ROWS, OUT, NONE));
    add_operand(form, INPUT, 1, "context", SHAPE(n, n, kv, 4), CLASS(BATCH, ROWS, KV, NONE));
    set_output(form, SHAPE(n, n, heads, 2), CLASS(BATCH, ROWS, OUT, NONE));
    const struct whole *q = &form->operand[0].value, *k = &form->operand[1].value;
    for (int64_t b = 0; b < n; b++)
        for (int64_t s = 0; s < n; s++)
            for (int64_t t = 0; t <= s; t++)
                for (int64_t h = 0; h < heads; h++)
                    for (int64_t d = 0; d < 4; d++) {
                        const int64_t g = h / (heads / kv);
                        struct term *term = add_term(form, at(&form->y, b, s, h, d / 2));
                        times(term, 0, at(q, b, s, h, d % 2));
                        times(term, 1, at(k, b, t, g, d % 2));
                        times(term, 1, at(k, b, t, g, 2 + d / 2));
                    }
}

static void make_grouped_even(struct form *form, int64_t n)
{
    make_grouped(form, n, 2 * n, n);
    form->operand[1].sparse = true; /* query axes could split the keys here */
}

/* As many key heads as devices: every axis may split both classes of heads. */
static void test_grouped_attention(void **state)
{
    (void)state;
    play_pairs(make_grouped_even, play_any);
}

/* Fewer key heads than parts of the queries: `head` axes alone split them, and must come first, so
 * that the leading digits of a query head are those of its key head (sbp_strategy_close asks it).
 */
static void play_few_keys(const struct stage *whole, void *unused, const int *role)
{
    (void)unused;
    const struct sbp_op_entry *entry = sbp_op(SBP_OP_GROUPED_ATTENTION);
    const int head = sbp_op_role(entry, "head"), query = sbp_op_role(entry, "query");
    const int axes = whole->mesh.axis_count;
    struct stage stage = *whole;
    struct form form = {0};
    int64_t kv = 1;
    stage.layout = (struct sbp_layout){&stage.mesh, 8, stage.split};
    stage.split[OUT] = stage.split[KV] = 0;
    for (int i = 0; i < axes; i++) {
        if (role[i] == head || role[i] == query)
            stage.split[OUT] |= (sbp_axes)1 << i;
        if (role[i] != head)
            continue;
        stage.split[KV] |= (sbp_axes)1 << i;
        kv *= stage.mesh.axis[i].size;
    }
    if (axes > 1 && role[0] == query && role[1] == head)
        return;
    make_grouped(&form, stage.mesh.devices, 12, kv);
    play(&stage, &form, role);
    drop_form(&form);
}

static void test_few_key_heads(void **state)
{
    (void)state;
    for (int m = 0; m < MESH_COUNT; m++) {
        struct stage stage;
        stage_make(&stage, 2, MESHES[m]);
        all_pairs(&stage, SBP_OP_GROUPED_ATTENTION, play_few_keys, NULL);
    }
}

/* (nope 2 + rope 1) . (nope 2 of the head, rope 1 of all), times a value of 3: sizes differ. */
static void make_latent(struct form *form, int64_t n)
{
    form->kind = SBP_OP_LATENT_ATTENTION;
    add_operand(form, INPUT, 0, NULL, SHAPE(n, n, n, 3), CLASS(BATCH, ROWS, OUT, NONE));
    add_operand(form, INPUT, 1, "context", SHAPE(n, n, n, 5), CLASS(BATCH, ROWS, OUT, NONE));
    add_operand(form, INPUT, 2, "context", SHAPE(n, n, 1, 1), CLASS(BATCH, ROWS, NONE, NONE));
    set_output(form, SHAPE(n, n, n, 3), CLASS(BATCH, ROWS, OUT, NONE));
    const struct whole *q = &form->operand[0].value, *k = &form->operand[1].value;
    for (int64_t b = 0; b < n; b++)
        for (int64_t s = 0; s < n; s++)
            for (int64_t t = 0; t < n; t++)
                for (int64_t h = 0; h < n; h++)
                    for (int64_t d = 0; d < 9; d++) {
                        struct term *term = add_term(form, at(&form->y, b, s, h, d / 3));
                        times(term, 0, at(q, b, s, h, d % 3));
                        if (d % 3 < 2)
                            times(term, 1, at(k, b, t, h, d % 3));
                        else
                            times(term, 2, at(&form->operand[2].value, b, t, 0, 0));
                        times(term, 1, at(k, b, t, h, 2 + d / 3));
                    }
}

static void test_latent_attention(void **state)
{
    (void)state;
    play_pairs(make_latent, play_any);
}

/* --- images --- */

/* Kernel 3 x 3, padding 1, bias; two output rows a member, so that each uses all of the kernel.
 * Rows are gathered whole; how few of them suffice is not checked here. */
static void make_conv(struct form *form, int64_t n, int64_t stride)
{
    const int64_t width = 2;
    form->kind = SBP_OP_CONV2D;
    add_operand(form, INPUT, 0, "height", SHAPE(n, 2 * stride * n, n, width),
                CLASS(BATCH, TALL, IN, NONE));
    add_operand(form, WEIGHT, 0, NULL, SHAPE(n, 9, n, 1), CLASS(IN, NONE, OUT, NONE));
    form->operand[1].sparse = stride > 1; /* its columns: one window, beside the image's edge */
    add_operand(form, WEIGHT, 1, NULL, SHAPE(1, 1, n, 1), CLASS(NONE, NONE, OUT, NONE));
    set_output(form, SHAPE(n, 2 * n, n, width / stride), CLASS(BATCH, ROWS, OUT, NONE));
    const struct whole *x = &form->operand[0].value;
    for (int64_t o = 0; o < oracle_size(&form->y.shape); o++) {
        const int64_t column = o % (width / stride), channel = o / (width / stride) % n;
        const int64_t row = o / (width / stride) / n % (2 * n);
        const int64_t b = o / (width / stride) / n / (2 * n);
        for (int64_t i = 0; i < 9 * n; i++) {
            const int64_t k = i % 9, h = row * stride - 1 + k / 3, w = column * stride - 1 + k % 3;
            if (h < 0 || h >= x->shape.size[1] || w < 0 || w >= width)
                continue;
            struct term *term = add_term(form, o);
            times(term, 0, at(x, b, h, i / 9, w));
            times(term, 1, at(&form->operand[1].value, i / 9, k, channel, 0));
        }
        times(add_term(form, o), 2, channel);
    }
}

static void make_conv_in_place(struct form *form, int64_t n)
{
    make_conv(form, n, 1);
}

static void make_conv_strided(struct form *form, int64_t n)
{
    make_conv(form, n, 2);
}

static void test_conv2d(void **state)
{
    (void)state;
    play_pairs(make_conv_in_place, play_any);
    play_pairs(make_conv_strided, play_any);
}

/* Windows of 2 x 2, side by side. Which element is a window's largest is known where the window is:
 * any fixed choice stands for it. */
static void make_pool(struct form *form, int64_t n, enum sbp_op_kind kind)
{
    form->kind = kind;
    add_operand(form, INPUT, 0, NULL, SHAPE(n, 4, n, 4), CLASS(BATCH, NONE, OUT, NONE));
    form->operand[0].sparse = kind == SBP_OP_MAXPOOL;
    set_output(form, SHAPE(n, 2, n, 2), CLASS(BATCH, NONE, OUT, NONE));
    const struct whole *x = &form->operand[0].value;
    for (int64_t o = 0; o < oracle_size(&form->y.shape); o++)
        for (int64_t k = 0; k < 4; k++)
            if (kind == SBP_OP_AVGPOOL || k == o % 3)
                times(add_term(form, o), 0,
                      at(x, o / (4 * n), 2 * (o / (2 * n) % 2) + k / 2, o / 2 % n,
                         2 * (o % 2) + k % 2));
}

static void make_maxpool(struct form *form, int64_t n)
{
    make_pool(form, n, SBP_OP_MAXPOOL);
}

static void make_avgpool(struct form *form, int64_t n)
{
    make_pool(form, n, SBP_OP_AVGPOOL);
}

static void make_flatten(struct form *form, int64_t n)
{
    form->kind = SBP_OP_FLATTEN;
    add_operand(form, INPUT, 0, NULL, SHAPE(n, 3, n, 2), CLASS(BATCH, NONE, OUT, NONE));
    set_output(form, SHAPE(n, 1, n, 6), CLASS(BATCH, NONE, OUT, NONE));
    for (int64_t b = 0; b < n; b++)
        for (int64_t c = 0; c < n; c++)
            for (int64_t p = 0; p < 6; p++)
                times(add_term(form, at(&form->y, b, 0, c, p)), 0,
                      at(&form->operand[0].value, b, p / 2, c, p % 2));
}

static void test_pools_and_flatten(void **state)
{
    (void)state;
    play_pairs(make_maxpool, play_any);
    play_pairs(make_avgpool, play_any);
    play_pairs(make_flatten, play_any);
}

/* gain x (value) + shift, with statistics taken for constants: all roles. With `statistics` the
 * value is centred, N x - sum x over the batch and the image: members that split those have
 * statistics of their own by definition, and make something else than one device. */
static void make_batchnorm(struct form *form, int64_t n, bool statistics)
{
    form->kind = SBP_OP_BATCHNORM;
    add_operand(form, INPUT, 0, NULL, SHAPE(n, n, n, 1), CLASS(BATCH, ROWS, OUT, NONE));
    add_operand(form, WEIGHT, 0, NULL, SHAPE(1, 1, n, 1), CLASS(NONE, NONE, OUT, NONE));
    add_operand(form, WEIGHT, 1, NULL, SHAPE(1, 1, n, 1), CLASS(NONE, NONE, OUT, NONE));
    set_output(form, SHAPE(n, n, n, 1), CLASS(BATCH, ROWS, OUT, NONE));
    for (int64_t o = 0; o < n * n * n; o++) {
        for (int64_t i = o % n; i < n * n * n && statistics; i += n)
            for (int64_t sign = 0; sign < (i == o ? n * n - 1 : 1); sign++) {
                struct term *term = add_term(form, o);
                times(term, 0, i);
                times(term, 1, o % n);
            }
        if (!statistics) {
            struct term *term = add_term(form, o);
            times(term, 0, o);
            times(term, 1, o % n);
        }
        times(add_term(form, o), 2, o % n);
    }
}

static void make_batchnorm_affine(struct form *form, int64_t n)
{
    make_batchnorm(form, n, false);
}

static void make_batchnorm_centred(struct form *form, int64_t n)
{
    make_batchnorm(form, n, true);
}

static void play_whole_statistics(const struct stage *stage, void *form, const int *role)
{
    for (int i = 0; i < stage->mesh.axis_count; i++) {
        const char *name = sbp_op(SBP_OP_BATCHNORM)->role[role[i]].name;
        if (strcmp(name, "batch") == 0 || strcmp(name, "height") == 0)
            return;
    }
    play(stage, form, role);
}

static void test_batchnorm(void **state)
{
    (void)state;
    play_pairs(make_batchnorm_affine, play_any);
    play_pairs(make_batchnorm_centred, play_whole_statistics);
}

/* --- tokens --- */

static void make_swiglu(struct form *form, int64_t n)
{
    form->kind = SBP_OP_SWIGLU;
    add_operand(form, INPUT, 0, NULL, SHAPE(n, n, n, 2), CLASS(BATCH, ROWS, OUT, NONE));
    set_output(form, SHAPE(n, n, n, 1), CLASS(BATCH, ROWS, OUT, NONE));
    for (int64_t o = 0; o < n * n * n; o++) {
        struct term *term = add_term(form, o);
        times(term, 0, 2 * o);
        times(term, 0, 2 * o + 1);
    }
}

static void test_swiglu(void **state)
{
    (void)state;
    play_pairs(make_swiglu, play_any);
}

/* gain x times the head's sum of squares: a head is whole where it lies, one gain serves all. */
static void make_head_norm(struct form *form, int64_t n)
{
    form->kind = SBP_OP_HEAD_NORM;
    add_operand(form, INPUT, 0, NULL, SHAPE(n, n, n, 2), CLASS(BATCH, ROWS, OUT, NONE));
    add_operand(form, WEIGHT, 0, NULL, SHAPE(1, 1, 1, 2), CLASS(NONE, NONE, NONE, NONE));
    set_output(form, SHAPE(n, n, n, 2), CLASS(BATCH, ROWS, OUT, NONE));
    for (int64_t o = 0; o < 2 * n * n * n; o++)
        for (int64_t d = 0; d < 2; d++) {
            struct term *term = add_term(form, o);
            times(term, 0, o);
            times(term, 0, o - o % 2 + d);
            times(term, 0, o - o % 2 + d);
            times(term, 1, o % 2);
        }
}

static void make_first_token(struct form *form, int64_t n)
{
    form->kind = SBP_OP_FIRST_TOKEN;
    add_operand(form, INPUT, 0, NULL, SHAPE(n, 3, n, 1), CLASS(BATCH, NONE, OUT, NONE));
    form->operand[0].sparse = true;
    set_output(form, SHAPE(n, 1, n, 1), CLASS(BATCH, NONE, OUT, NONE));
    for (int64_t o = 0; o < n * n; o++)
        times(add_term(form, o), 0, o / n * 3 * n + o % n);
}

static void test_head_norm_and_first_token(void **state)
{
    (void)state;
    play_pairs(make_head_norm, play_any);
    play_pairs(make_first_token, play_any);
}

/* Patches of 3 pixels; token 0 is the class token. */
static void make_patches(struct form *form, int64_t n)
{
    form->kind = SBP_OP_PATCH_EMBEDDING;
    add_operand(form, IMAGES, 0, NULL, SHAPE(n, 2 * n, 1, 3), CLASS(BATCH, ROWS, NONE, NONE));
    add_operand(form, WEIGHT, 0, NULL, SHAPE(3, 1, n, 1), CLASS(NONE, NONE, OUT, NONE));
    add_operand(form, WEIGHT, 1, NULL, SHAPE(1, 1, n, 1), CLASS(NONE, NONE, OUT, NONE));
    add_operand(form, WEIGHT, 2, NULL, SHAPE(1, 1, n, 1), CLASS(NONE, NONE, OUT, NONE));
    add_operand(form, WEIGHT, 3, NULL, SHAPE(2 * n, 1, n, 1), CLASS(NONE, NONE, OUT, NONE));
    form->operand[0].sparse = true; /* the class token's place has no pixels */
    form->operand[3].sparse = form->operand[4].sparse = true; /* tokens of other members */
    set_output(form, SHAPE(n, 2 * n, n, 1), CLASS(BATCH, ROWS, OUT, NONE));
    for (int64_t b = 0; b < n; b++)
        for (int64_t s = 0; s < 2 * n; s++)
            for (int64_t h = 0; h < n; h++) {
                const int64_t o = at(&form->y, b, s, h, 0);
                for (int64_t p = 0; p < 3 && s > 0; p++) {
                    struct term *term = add_term(form, o);
                    times(term, 0, at(&form->operand[0].value, b, s, 0, p));
                    times(term, 1, at(&form->operand[1].value, p, 0, h, 0));
                }
                times(add_term(form, o), s > 0 ? 2 : 3, h);
                times(add_term(form, o), 4, s * n + h);
            }
}

static void test_patch_embedding(void **state)
{
    (void)state;
    play_pairs(make_patches, play_any);
}

/* y += (x router) (x gate) (x up) second over all experts: gates of 0 leave the others out. Tokens
 * travel: what is gathered here is more than what is dispatched, and used for the same. */
static void make_moe(struct form *form, int64_t n)
{
    const int64_t hidden = 2;
    form->kind = SBP_OP_MOE;
    form->summed = "expert expert_sequence";
    add_operand(form, INPUT, 0, form->summed, SHAPE(n, n, hidden, 1),
                CLASS(BATCH, ROWS, NONE, NONE));
    add_operand(form, WEIGHT, 0, NULL, SHAPE(hidden, 1, n, 1), CLASS(NONE, NONE, EXPERTS, NONE));
    form->operand[1].sparse = true; /* routes where tokens live; here, where experts do */
    add_operand(form, WEIGHT, 1, NULL, SHAPE(n, hidden, n, 2), CLASS(EXPERTS, NONE, OUT, NONE));
    add_operand(form, WEIGHT, 2, NULL, SHAPE(n, n, hidden, 1), CLASS(EXPERTS, OUT, NONE, NONE));
    set_output(form, SHAPE(n, n, hidden, 1), CLASS(BATCH, ROWS, NONE, NONE));
    for (int64_t t = 0; t < n * n; t++)
        for (int64_t e = 0; e < n; e++)
            for (int64_t i = 0; i < 16 * n; i++) {
                const int64_t f = i / 16, out = i % 2, r = i / 2 % 2, g = i / 4 % 2, u = i / 8 % 2;
                struct term *term = add_term(form, t * hidden + out);
                times(term, 0, t * hidden + r);
                times(term, 1, r * n + e);
                times(term, 0, t * hidden + g);
                times(term, 2, at(&form->operand[2].value, e, g, f, 0));
                times(term, 0, t * hidden + u);
                times(term, 2, at(&form->operand[2].value, e, u, f, 1));
                times(term, 3, at(&form->operand[3].value, e, f, out, 0));
            }
}

static void test_moe(void **state)
{
    (void)state;
    play_pairs(make_moe, play_any);
}

/* --- SUMMA --- */

static void make_summa(struct form *form, int64_t n)
{
    form->kind = SBP_OP_SUMMA_LINEAR;
    add_operand(form, INPUT, 0, "grid_column", SHAPE(n, 2, 2 * n, 1), CLASS(BATCH, NONE, IN, NONE));
    add_operand(form, WEIGHT, 0, "grid_row", SHAPE(2 * n, 1, n, 1), CLASS(IN, NONE, OUT, NONE));
    add_operand(form, WEIGHT, 1, NULL, SHAPE(1, 1, n, 1), CLASS(NONE, NONE, OUT, NONE));
    set_output(form, SHAPE(n, 2, n, 1), CLASS(BATCH, NONE, OUT, NONE));
    for (int64_t row = 0; row < 2 * n; row++)
        for (int64_t o = 0; o < n; o++) {
            times(add_term(form, row * n + o), 2, o);
            for (int64_t i = 0; i < 2 * n; i++) {
                struct term *term = add_term(form, row * n + o);
                times(term, 0, row * 2 * n + i);
                times(term, 1, i * n + o);
            }
        }
}

/* A panel is the inner features that lie with one member of the longer side; all members of the
 * shorter one have equal shares of it: every pair of a row (of X) and a column (of W) has as many
 * features in common. */
static void count_shares(const struct stage *stage, const struct form *form, const int *role)
{
    const struct sbp_dist x = operand_dist(stage, form, 0, role);
    const struct sbp_dist w = operand_dist(stage, form, 1, role);
    const sbp_axes grid = axes_of_role(stage, form, role, "grid_row") |
                          axes_of_role(stage, form, role, "grid_column");
    const int64_t features = form->operand[0].value.shape.size[2];
    int64_t size[MOST_RANKS] = {0}, panels = 0;
    for (int64_t i = 0; i < features; i++) {
        int64_t owner[2] = {0, 0};
        for (int64_t r = stage->mesh.devices - 1; r >= 0; r--) { /* the first of each */
            if (oracle_owns_index(&stage->layout, &form->operand[0].value.shape, &x, r, 2, i))
                owner[0] = place_in(stage, axes_of_role(stage, form, role, "grid_column"), r);
            if (oracle_owns_index(&stage->layout, &form->operand[1].value.shape, &w, r, 0, i))
                owner[1] = place_in(stage, axes_of_role(stage, form, role, "grid_row"), r);
        }
        const int64_t rows =
            oracle_product(&stage->mesh, axes_of_role(stage, form, role, "grid_row"));
        panels += size[owner[0] * rows + owner[1]]++ == 0;
    }
    assert_int_equal(panels, oracle_product(&stage->mesh, grid));
    for (int64_t p = 0; p < panels; p++)
        assert_int_equal(size[p], features / panels);
}

static void play_summa(const struct stage *stage, void *form, const int *role)
{
    play(stage, form, role);
    count_shares(stage, form, role);
}

static void test_summa(void **state)
{
    (void)state;
    play_pairs(make_summa, play_summa);
}

/* --- root mean square --- */

/* y = gain x s with s the sum of the token's squares in place of its root: one number a token is
 * all-reduced forward (s), one backward (gain x dy): dx = gain dy s + 2 x (sum gain x dy). */
struct norm {
    struct whole x, gain, y, dy, dx, dgain;
};

struct norm_sums {
    int64_t of[MOST_RANKS][MOST_RANKS * MOST_RANKS]; /* (rank, token) */
};

static void all_reduce(const struct stage *stage, sbp_axes axes, struct norm_sums *sums)
{
    const struct norm_sums own = *sums;
    memset(sums, 0, sizeof *sums);
    for (int64_t r = 0; r < stage->mesh.devices; r++)
        for (int64_t o = 0; o < stage->mesh.devices; o++)
            for (int t = 0; t < MOST_RANKS * MOST_RANKS; t++)
                if (oracle_same_group(&stage->mesh, axes, r, o))
                    sums->of[r][t] += own.of[o][t];
}

static void whole_norm(struct norm *norm, int64_t n)
{
    zero_whole(&norm->dgain);
    for (int64_t t = 0; t < n * n; t++) {
        int64_t squares = 0, dot = 0;
        for (int64_t i = t * n; i < (t + 1) * n; i++) {
            squares += norm->x.value[i] * norm->x.value[i];
            dot += norm->gain.value[i % n] * norm->x.value[i] * norm->dy.value[i];
        }
        for (int64_t i = t * n; i < (t + 1) * n; i++) {
            const int64_t g = norm->gain.value[i % n], x = norm->x.value[i], dy = norm->dy.value[i];
            norm->y.value[i] = g * x * squares;
            norm->dx.value[i] = g * dy * squares + 2 * x * dot;
            norm->dgain.value[i % n] += x * dy * squares;
        }
    }
}

static void play_norm(const struct stage *stage, void *operands, const int *role)
{
    struct norm *norm = operands;
    const int64_t n = stage->mesh.devices, size = n * n * n;
    struct sbp_dist in = {0}, weight = {0}, gradient = {0};
    sbp_axes hidden = 0;
    for (int i = 0; i < stage->mesh.axis_count; i++) {
        const struct sbp_role *r = &sbp_op(SBP_OP_RMSNORM)->role[role[i]];
        in.axis[i] = r->input[0];
        weight.axis[i] = r->weight[0];
        gradient.axis[i] = r->gradient[0];
        assert_true(sbp_state_equal(r->output, r->input[0]));
        if (strcmp(r->name, "hidden") == 0)
            hidden |= (sbp_axes)1 << i;
    }
    const struct sbp_dist dual = sbp_dist_dual(&stage->mesh, &in);
    struct shards x = deal(stage, &norm->x, &in), gain = deal(stage, &norm->gain, &weight),
                  dy = deal(stage, &norm->dy, &dual), y = shards_empty(stage, &norm->y.shape),
                  dx = shards_empty(stage, &norm->x.shape),
                  dgain = shards_empty(stage, &norm->gain.shape);
    struct norm_sums squares = {{{0}}}, dots = {{{0}}};
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < size; i++)
            if (x.there[r][i]) {
                squares.of[r][i / n] += x.value[r][i] * x.value[r][i];
                dots.of[r][i / n] += gain.value[r][i % n] * x.value[r][i] * dy.value[r][i];
            }
    all_reduce(stage, hidden, &squares);
    all_reduce(stage, hidden, &dots);
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < size; i++) {
            const int64_t g = gain.value[r][i % n], s = squares.of[r][i / n];
            if (!x.there[r][i])
                continue;
            assert_true(gain.there[r][i % n] && dy.there[r][i]);
            y.value[r][i] = g * x.value[r][i] * s;
            dx.value[r][i] = g * dy.value[r][i] * s + 2 * x.value[r][i] * dots.of[r][i / n];
            dgain.value[r][i % n] += x.value[r][i] * dy.value[r][i] * s;
            y.there[r][i] = dx.there[r][i] = dgain.there[r][i % n] = true;
        }
    whole_norm(norm, n);
    must_be("rmsnorm", stage, &norm->y, &in, &y);
    must_be("dx of rmsnorm", stage, &norm->dx, &dual, &dx);
    must_be("dgain of rmsnorm", stage, &norm->dgain, &gradient, &dgain);
    struct shards *all[] = {&x, &gain, &dy, &y, &dx, &dgain};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        shards_drop(stage, all[i]);
}

static void test_rmsnorm(void **state)
{
    (void)state;
    for (int m = 0; m < MESH_COUNT; m++) {
        struct stage stage;
        stage_make(&stage, 2, MESHES[m]);
        const int64_t n = stage.mesh.devices;
        const int block[] = {BATCH, ROWS, IN, NONE}, vector[] = {NONE, NONE, IN, NONE};
        struct norm norm = {.x = whole_of(SHAPE(n, n, n, 1), block, 31),
                            .gain = whole_of(SHAPE(1, 1, n, 1), vector, 32),
                            .y = whole_of(SHAPE(n, n, n, 1), block, 33),
                            .dy = whole_of(SHAPE(n, n, n, 1), block, 34),
                            .dx = whole_of(SHAPE(n, n, n, 1), block, 35),
                            .dgain = whole_of(SHAPE(1, 1, n, 1), vector, 36)};
        all_pairs(&stage, SBP_OP_RMSNORM, play_norm, &norm);
        struct whole *all[] = {&norm.x, &norm.gain, &norm.y, &norm.dy, &norm.dx, &norm.dgain};
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
            free(all[i]->value);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_grouped_attention),
        cmocka_unit_test(test_few_key_heads),
        cmocka_unit_test(test_latent_attention),
        cmocka_unit_test(test_conv2d),
        cmocka_unit_test(test_pools_and_flatten),
        cmocka_unit_test(test_batchnorm),
        cmocka_unit_test(test_swiglu),
        cmocka_unit_test(test_head_norm_and_first_token),
        cmocka_unit_test(test_patch_embedding),
        cmocka_unit_test(test_moe),
        cmocka_unit_test(test_summa),
        cmocka_unit_test(test_rmsnorm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
