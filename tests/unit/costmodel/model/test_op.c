/* The operator catalogue, by arithmetic: every role of a linear layer and of an embedding is played
 * with real numbers on real shards. If each member multiplies what the role says it holds, do the
 * members together hold what the role says of the output, of the input's gradient (by duality) and
 * of the parameters' gradients? Also against OneFlow's signatures (matmul_op.cpp, gather).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "costmodel/model/op.h"
#include "tests/support/searched_roles.h"
#include "tests/support/shard_oracle.h"
#include "tests/support/unit.h"

enum { BATCH, SEQUENCE, IN, OUT, VOCABULARY };

/* --- arithmetic over global indices --- */

/* One term list of a bilinear operator: out[o] += a[x] * b[y]. A member can form a term when it
 * holds both factors; an output is there when a member has met it in some term. */
struct term {
    int64_t out, a, b;
};
struct terms {
    struct term *term;
    int64_t count;
};

static void whole_product(const struct terms *terms, const struct whole *a, const struct whole *b,
                          struct whole *out)
{
    for (int64_t i = 0; i < terms->count; i++) {
        const struct term t = terms->term[i];
        out->value[t.out] += a->value[t.a] * b->value[t.b];
    }
}

static void shard_products(const struct stage *stage, const struct terms *terms,
                           const struct shards *a, const struct shards *b, struct shards *out)
{
    for (int64_t r = 0; r < stage->mesh.devices; r++)
        for (int64_t i = 0; i < terms->count; i++) {
            const struct term t = terms->term[i];
            if (!a->there[r][t.a] || !b->there[r][t.b])
                continue;
            out->value[r][t.out] += a->value[r][t.a] * b->value[r][t.b];
            out->there[r][t.out] = true;
        }
}

/* --- roles on the axes of a mesh --- */

static void dists_of(const struct stage *stage, enum sbp_op_kind kind, const int *role,
                     struct sbp_dist *input, struct sbp_dist *weight, struct sbp_dist *gradient,
                     struct sbp_dist *output)
{
    *input = *output = (struct sbp_dist){0}; /* axes that the mesh lacks */
    for (int i = 0; i < stage->mesh.axis_count; i++) {
        const struct sbp_role *r = &sbp_op(kind)->role[role[i]];
        input->axis[i] = r->input[0];
        output->axis[i] = r->output;
        for (int w = 0; w < SBP_MAX_WEIGHTS; w++) {
            weight[w].axis[i] = r->weight[w];
            gradient[w].axis[i] = r->gradient[w];
        }
    }
}

#define NONE SBP_NO_CLASS

static struct terms terms_new(int64_t count)
{
    return (struct terms){zeroed(count, sizeof(struct term)), 0};
}

static void terms_add(struct terms *terms, int64_t out, int64_t a, int64_t b)
{
    terms->term[terms->count++] = (struct term){out, a, b};
}

/* Swapped places of a product's factors: the terms of its derivatives. */
static struct terms derivative(const struct terms *terms, bool of_a)
{
    struct terms swapped = terms_new(terms->count);
    for (int64_t i = 0; i < terms->count; i++) {
        const struct term t = terms->term[i];
        if (of_a)
            terms_add(&swapped, t.a, t.out, t.b); /* da += dout b */
        else
            terms_add(&swapped, t.b, t.out, t.a); /* db += dout a */
    }
    return swapped;
}

/* An operator's operands, made for so many devices and played in the roles of two axes. */
struct played {
    enum sbp_op_kind kind;
    void (*make)(void *operands, int64_t devices);
    void (*play)(const struct stage *stage, void *operands, const int *role);
    void (*drop)(void *operands);
};

/* All pairs of roles on meshes of two axes: roles of different axes do not disturb each other. */
static void play_role_pairs(const struct played *op, void *operands)
{
    const int64_t sizes[][2] = {{2, 3}, {3, 2}, {2, 2}, {1, 2}, {1, 3}};
    const int roles = sbp_op(op->kind)->role_count;
    for (size_t m = 0; m < sizeof sizes / sizeof sizes[0]; m++) {
        struct stage stage;
        stage_make(&stage, 2, sizes[m]);
        op->make(operands, stage.mesh.devices);
        const int second = stage.mesh.axis_count > 1 ? roles : 1;
        for (int a = 0; a < roles; a++)
            for (int b = 0; b < second; b++)
                op->play(&stage, operands, (int[]){a, b});
        op->drop(operands);
    }
}

/* --- linear --- */

struct linear {
    struct whole x, w, bias, y, dy, dx, dw, dbias;
    struct terms product;
};

static void linear_make(void *operands, int64_t n)
{
    struct linear *l = operands;
    const int64_t x[] = {n, n, n, 2}, w[] = {n, 2, 2 * n, 1}, b[] = {1, 1, 2 * n, 1},
                  y[] = {n, n, 2 * n, 1};
    const int xc[] = {BATCH, SEQUENCE, IN, NONE}, wc[] = {IN, NONE, OUT, NONE},
              bc[] = {NONE, NONE, OUT, NONE}, yc[] = {BATCH, SEQUENCE, OUT, NONE};
    l->x = whole_of(x, xc, 1);
    l->w = whole_of(w, wc, 2);
    l->bias = whole_of(b, bc, 3);
    l->y = whole_of(y, yc, 4);
    l->dy = whole_of(y, yc, 5);
    l->dx = whole_of(x, xc, 6);
    l->dw = whole_of(w, wc, 7);
    l->dbias = whole_of(b, bc, 8);
    l->product = terms_new(n * n * n * 2 * 2 * n);
    for (int64_t row = 0; row < n * n; row++)
        for (int64_t i = 0; i < 2 * n; i++)
            for (int64_t o = 0; o < 2 * n; o++)
                terms_add(&l->product, row * 2 * n + o, row * 2 * n + i, i * 2 * n + o);
}

static void linear_drop(void *operands)
{
    struct linear *l = operands;
    struct whole *all[] = {&l->x, &l->w, &l->bias, &l->y, &l->dy, &l->dx, &l->dw, &l->dbias};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]->value);
    free(l->product.term);
}

/* y += bias; where y is partial, one member adds (coordinate 0). */
static void add_bias(const struct stage *stage, struct linear *l, const struct sbp_dist *out,
                     const struct shards *bias, struct shards *y)
{
    const int64_t features = l->y.shape.size[2];
    const sbp_axes partial = axes_in(stage, out, SBP_PARTIAL);
    for (int64_t r = 0; r < stage->mesh.devices; r++)
        for (int64_t i = 0; i < oracle_size(&l->y.shape); i++) {
            if (!y->there[r][i])
                continue;
            assert_true(bias->there[r][i % features]); /* whoever has an output has its bias */
            if (place_in(stage, partial, r) == 0)
                y->value[r][i] += bias->value[r][i % features];
        }
    for (int64_t i = 0; i < oracle_size(&l->y.shape); i++)
        l->y.value[i] += l->bias.value[i % features];
}

static void bias_gradient(const struct stage *stage, struct linear *l, const struct shards *dy,
                          struct shards *dbias)
{
    const int64_t features = l->y.shape.size[2];
    zero_whole(&l->dbias);
    for (int64_t i = 0; i < oracle_size(&l->y.shape); i++) {
        l->dbias.value[i % features] += l->dy.value[i];
        for (int64_t r = 0; r < stage->mesh.devices; r++)
            if (dy->there[r][i]) {
                dbias->value[r][i % features] += dy->value[r][i];
                dbias->there[r][i % features] = true;
            }
    }
}

static void play_linear(const struct stage *stage, void *operands, const int *role)
{
    struct linear *l = operands;
    struct sbp_dist input, weight[SBP_MAX_WEIGHTS], gradient[SBP_MAX_WEIGHTS], output;
    dists_of(stage, SBP_OP_LINEAR, role, &input, weight, gradient, &output);
    const struct sbp_dist dual_in = sbp_dist_dual(&stage->mesh, &input);
    const struct sbp_dist dual_out = sbp_dist_dual(&stage->mesh, &output);
    struct shards x = deal(stage, &l->x, &input), w = deal(stage, &l->w, &weight[0]),
                  bias = deal(stage, &l->bias, &weight[1]), dy = deal(stage, &l->dy, &dual_out),
                  y = shards_empty(stage, &l->y.shape), dx = shards_empty(stage, &l->x.shape),
                  dw = shards_empty(stage, &l->w.shape), db = shards_empty(stage, &l->bias.shape);
    const struct terms of_x = derivative(&l->product, true), of_w = derivative(&l->product, false);
    zero_whole(&l->y);
    zero_whole(&l->dx);
    zero_whole(&l->dw);
    whole_product(&l->product, &l->x, &l->w, &l->y);
    whole_product(&of_x, &l->dy, &l->w, &l->dx);
    whole_product(&of_w, &l->dy, &l->x, &l->dw);
    shard_products(stage, &l->product, &x, &w, &y);
    shard_products(stage, &of_x, &dy, &w, &dx);
    shard_products(stage, &of_w, &dy, &x, &dw);
    must_be("X W", stage, &l->y, &output, &y);
    must_be("dX", stage, &l->dx, &dual_in, &dx);
    must_be("dW", stage, &l->dw, &gradient[0], &dw);
    add_bias(stage, l, &output, &bias, &y);
    must_be("X W + b", stage, &l->y, &output, &y);
    bias_gradient(stage, l, &dy, &db);
    must_be("db", stage, &l->dbias, &gradient[1], &db);
    struct shards *all[] = {&x, &w, &bias, &dy, &y, &dx, &dw, &db};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        shards_drop(stage, all[i]);
    free(of_x.term);
    free(of_w.term);
}

static void test_linear_roles(void **state)
{
    (void)state;
    const struct played linear = {SBP_OP_LINEAR, linear_make, play_linear, linear_drop};
    struct linear operands;
    play_role_pairs(&linear, &operands);
}

/* --- embedding --- */

struct embedding {
    struct whole table, positions, y, dy, dtable, dpositions, one; /* one: a token's indicator */
    struct terms rows, places; /* y += 1 * table row, y += 1 * position row */
};

static void embedding_make(void *operands, int64_t n)
{
    struct embedding *e = operands;
    const int64_t vocabulary = 2 * n, hidden = n, tokens = n * n;
    const int64_t table[] = {vocabulary, 1, hidden, 1}, positions[] = {n, 1, hidden, 1},
                  y[] = {n, n, hidden, 1}, one[] = {n, n, 1, 1};
    const int tc[] = {VOCABULARY, NONE, IN, NONE}, pc[] = {SEQUENCE, NONE, IN, NONE},
              yc[] = {BATCH, SEQUENCE, IN, NONE}, oc[] = {BATCH, SEQUENCE, NONE, NONE};
    e->table = whole_of(table, tc, 11);
    e->positions = whole_of(positions, pc, 12);
    e->y = whole_of(y, yc, 13);
    e->dy = whole_of(y, yc, 14);
    e->dtable = whole_of(table, tc, 15);
    e->dpositions = whole_of(positions, pc, 16);
    e->one = whole_of(one, oc, 17);
    e->rows = terms_new(tokens * hidden);
    e->places = terms_new(tokens * hidden);
    for (int64_t t = 0; t < tokens; t++) {
        const int64_t id =
            (int64_t)(sbp_random_bits_at(SEED, 18, (uint64_t)t) % (uint64_t)vocabulary);
        e->one.value[t] = 1;
        for (int64_t h = 0; h < hidden; h++) {
            terms_add(&e->rows, t * hidden + h, t, id * hidden + h);
            terms_add(&e->places, t * hidden + h, t, (t % n) * hidden + h);
        }
    }
}

static void embedding_drop(void *operands)
{
    struct embedding *e = operands;
    struct whole *all[] = {&e->table,  &e->positions,  &e->y,  &e->dy,
                           &e->dtable, &e->dpositions, &e->one};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]->value);
    free(e->rows.term);
    free(e->places.term);
}

/* Tokens lie where the output's rows lie. A member without a token's table row adds 0, and writes
 * zeros to gradients of rows that it holds and nobody asked for. */
static struct sbp_dist tokens_of(const struct stage *stage, const struct sbp_dist *output)
{
    struct sbp_dist ids = *output;
    for (int i = 0; i < stage->mesh.axis_count; i++)
        if (ids.axis[i].kind != SBP_SPLIT || ids.axis[i].dim > SBP_DIM_SEQUENCE)
            ids.axis[i] = SBP_STATE_B;
    return ids;
}

/* Gradients: a member adds into the rows that it holds of what it holds of dy. */
static void table_gradient(const struct stage *stage, const struct terms *terms,
                           const struct whole *dy, const struct shards *dys,
                           const struct shards *held, struct whole *whole, struct shards *shards)
{
    zero_whole(whole);
    for (int64_t i = 0; i < terms->count; i++) {
        const struct term t = terms->term[i];
        whole->value[t.b] += dy->value[t.out];
        for (int64_t r = 0; r < stage->mesh.devices; r++)
            if (dys->there[r][t.out] && held->there[r][t.b])
                shards->value[r][t.b] += dys->value[r][t.out];
    }
}

static void play_embedding(const struct stage *stage, void *operands, const int *role)
{
    struct embedding *e = operands;
    struct sbp_dist input, weight[SBP_MAX_WEIGHTS], gradient[SBP_MAX_WEIGHTS], output;
    dists_of(stage, SBP_OP_EMBEDDING, role, &input, weight, gradient, &output);
    const struct sbp_dist ids = tokens_of(stage, &output);
    const struct sbp_dist dual_out = sbp_dist_dual(&stage->mesh, &output);
    const sbp_axes partial = axes_in(stage, &output, SBP_PARTIAL);
    struct shards one = deal(stage, &e->one, &ids), table = deal(stage, &e->table, &weight[0]),
                  positions = deal(stage, &e->positions, &weight[1]),
                  dy = deal(stage, &e->dy, &dual_out), y = shards_empty(stage, &e->y.shape),
                  dt = shards_empty(stage, &e->table.shape),
                  dp = shards_empty(stage, &e->positions.shape);
    zero_whole(&e->y);
    whole_product(&e->rows, &e->one, &e->table, &e->y);
    shard_products(stage, &e->rows, &one, &table, &y);
    allow_zeros(stage, &e->y.shape, &output, &y);
    must_be("rows of the table", stage, &e->y, &output, &y);
    for (int64_t r = 0; r < stage->mesh.devices; r++)
        for (int64_t i = 0; i < e->places.count && place_in(stage, partial, r) == 0; i++) {
            const struct term t = e->places.term[i];
            if (y.there[r][t.out]) {
                assert_true(positions.there[r][t.b]);
                y.value[r][t.out] += positions.value[r][t.b];
            }
        }
    whole_product(&e->places, &e->one, &e->positions, &e->y);
    must_be("table and positions", stage, &e->y, &output, &y);
    table_gradient(stage, &e->rows, &e->dy, &dy, &table, &e->dtable, &dt);
    allow_zeros(stage, &e->table.shape, &gradient[0], &dt);
    must_be("gradient of the table", stage, &e->dtable, &gradient[0], &dt);
    table_gradient(stage, &e->places, &e->dy, &dy, &positions, &e->dpositions, &dp);
    allow_zeros(stage, &e->positions.shape, &gradient[1], &dp);
    must_be("gradient of positions", stage, &e->dpositions, &gradient[1], &dp);
    struct shards *all[] = {&one, &table, &positions, &dy, &y, &dt, &dp};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        shards_drop(stage, all[i]);
}

static void test_embedding_roles(void **state)
{
    (void)state;
    const struct played embedding = {SBP_OP_EMBEDDING, embedding_make, play_embedding,
                                     embedding_drop};
    struct embedding operands;
    play_role_pairs(&embedding, &operands);
}

/* --- signatures --- */

/* 'm', 'k', 'n': splits of that extent of (m, k) x (k, n); 'B', 'P'. */
static char letter(struct sbp_state state, const char *dims)
{
    return state.kind == SBP_SPLIT ? dims[state.dim] : state.kind == SBP_BROADCAST ? 'B' : 'P';
}

static void test_linear_is_in_oneflow(void **state)
{
    (void)state;
    const char *signatures[] = {"mBm", "Bnn", "kkP", "PBP", "BPP", "BBB"};
    const struct sbp_op_entry *linear = sbp_op(SBP_OP_LINEAR);
    for (int i = 0; i < linear->role_count; i++) {
        const struct sbp_role *role = &linear->role[i];
        const char have[] = {letter(role->input[0], "mmkk"), letter(role->weight[0], "kknn"),
                             letter(role->output, "mmnn"), '\0'};
        bool found = false;
        for (size_t j = 0; j < sizeof signatures / sizeof signatures[0]; j++)
            found |= strcmp(have, signatures[j]) == 0;
        if (!found)
            fail_msg("role %s: %s is no signature of a product", role->name, have);
    }
}

static const struct sbp_role *role_named(enum sbp_op_kind kind, const char *name)
{
    const struct sbp_op_entry *entry = sbp_op(kind);
    for (int i = 0; i < entry->role_count; i++)
        if (strcmp(entry->role[i].name, name) == 0)
            return &entry->role[i];
    fail_msg("%s has no role %s", entry->name, name);
    return NULL;
}

/* AutoDDL, section 4.2.2: I (S0, B, S1), W (B, S1, S0), O (S0, S1, P). */
static void test_paper_roles(void **state)
{
    (void)state;
    const char *names[] = {"batch", "column", "row"}, *have[] = {"mBm", "Bnn", "kkP"};
    for (int i = 0; i < 3; i++) {
        const struct sbp_role *role = role_named(SBP_OP_LINEAR, names[i]);
        assert_true(role->paper);
        assert_int_equal(letter(role->input[0], "mmkk"), have[i][0]);
        assert_int_equal(letter(role->weight[0], "kknn"), have[i][1]);
        assert_int_equal(letter(role->output, "mmnn"), have[i][2]);
    }
    assert_false(role_named(SBP_OP_LINEAR, "sequence")->paper);
    /* The two gradients that an operator declares, not duality: whole on every member. */
    assert_int_equal(role_named(SBP_OP_LINEAR, "row")->gradient[1].kind, SBP_BROADCAST);
    assert_int_equal(role_named(SBP_OP_EMBEDDING, "vocab")->gradient[1].kind, SBP_BROADCAST);
}

/* Splits that change nothing for an element-wise operator; the others have no cross terms along
 * what they may split: rows of a norm, batches and heads of attention. */
static void test_other_roles(void **state)
{
    (void)state;
    for (int kind = 0; kind <= SBP_OP_CROSS_ENTROPY; kind++) {
        const struct sbp_op_entry *entry = sbp_op((enum sbp_op_kind)kind);
        assert_in_range(entry->role_count, 1, SBP_MAX_ROLES);
        for (int i = 0; i < searched_roles(entry); i++) {
            const struct sbp_role *role = &entry->role[i];
            if (kind == SBP_OP_LINEAR || kind == SBP_OP_EMBEDDING)
                continue;
            for (int j = 0; j < entry->inputs; j++) {
                assert_int_equal(role->input[j].kind, SBP_SPLIT);
                assert_true(sbp_state_equal(role->input[j], role->input[0]));
            }
            if (kind != SBP_OP_CROSS_ENTROPY)
                assert_true(sbp_state_equal(role->output, role->input[0]));
            if (kind == SBP_OP_ATTENTION)
                assert_true(role->input[0].dim != SBP_DIM_SEQUENCE);
            for (int j = 0; j < entry->weights; j++) {
                /* gains and shifts: a row's gradient is a term of their sum */
                const bool rows = role->input[0].dim != SBP_DIM_FEATURE;
                assert_int_equal(role->weight[j].kind, rows ? SBP_BROADCAST : SBP_SPLIT);
                assert_int_equal(role->gradient[j].kind, rows ? SBP_PARTIAL : SBP_SPLIT);
                if (!rows)
                    assert_int_equal(role->weight[j].dim, SBP_DIM_OUT);
            }
        }
    }
    /* Means over tokens add up over members; a loss over a split vocabulary is whole on each. */
    assert_int_equal(role_named(SBP_OP_CROSS_ENTROPY, "batch")->output.kind, SBP_PARTIAL);
    assert_int_equal(role_named(SBP_OP_CROSS_ENTROPY, "sequence")->output.kind, SBP_PARTIAL);
    assert_int_equal(role_named(SBP_OP_CROSS_ENTROPY, "vocab")->output.kind, SBP_BROADCAST);
}

/* The space of the paper has every role but the split of sequences. Element-wise operators of one
 * operand, norms and losses run where their input rests. */
static void test_entries(void **state)
{
    (void)state;
    const struct {
        int inputs, weights;
        bool follows;
    } rows[SBP_OP_KINDS] = {
        [SBP_OP_LINEAR] = {1, 2, false},       [SBP_OP_RELU] = {1, 0, true},
        [SBP_OP_GELU] = {1, 0, true},          [SBP_OP_EMBEDDING] = {0, 3, false},
        [SBP_OP_LAYERNORM] = {1, 2, true},     [SBP_OP_ATTENTION] = {1, 0, false},
        [SBP_OP_ADD] = {2, 0, false},          [SBP_OP_DROPOUT] = {1, 0, true},
        [SBP_OP_CROSS_ENTROPY] = {1, 0, true},
    };
    for (int kind = 0; kind <= SBP_OP_CROSS_ENTROPY; kind++) {
        const struct sbp_op_entry *entry = sbp_op((enum sbp_op_kind)kind);
        assert_int_equal(entry->inputs, rows[kind].inputs);
        assert_int_equal(entry->weights, rows[kind].weights);
        assert_int_equal(entry->follows, rows[kind].follows);
        for (int i = 0; i < searched_roles(entry); i++) {
            assert_int_equal(entry->role[i].paper, strcmp(entry->role[i].name, "sequence") != 0);
            if (entry->role[i].output.kind != SBP_SPLIT)
                assert_int_equal(entry->role[i].output.dim, 0);
        }
    }
}

/* A role's name says what it splits, in every operator that has it. */
static void test_role_names(void **state)
{
    (void)state;
    const struct {
        const char *name;
        int dim;
    } rows[] = {{"batch", SBP_DIM_BATCH},
                {"sequence", SBP_DIM_SEQUENCE},
                {"context", SBP_DIM_SEQUENCE},
                {"height", SBP_DIM_SEQUENCE},
                {"head", SBP_DIM_FEATURE},
                {"query", SBP_DIM_FEATURE},
                {"channel", SBP_DIM_FEATURE},
                {"feature", SBP_DIM_FEATURE},
                {"hidden", SBP_DIM_FEATURE},
                {"expert", SBP_DIM_BATCH},
                {"grid_row", SBP_DIM_BATCH},
                {"grid_column", SBP_DIM_FEATURE},
                {"expert_sequence", SBP_DIM_SEQUENCE}};
    for (int kind = 0; kind < SBP_OP_KINDS; kind++) {
        const struct sbp_op_entry *entry = sbp_op((enum sbp_op_kind)kind);
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            const int r = sbp_op_role(entry, rows[i].name);
            if (r < 0)
                continue;
            const struct sbp_state split = SBP_STATE_S((uint8_t)rows[i].dim);
            if (entry->inputs > 0 && !sbp_state_equal(entry->role[r].input[0], split))
                fail_msg("%s: input of role %s", entry->name, rows[i].name);
            if (kind != SBP_OP_CROSS_ENTROPY && !sbp_state_equal(entry->role[r].output, split))
                fail_msg("%s: output of role %s", entry->name, rows[i].name);
        }
    }
    assert_int_equal(sbp_op_role(sbp_op(SBP_OP_LINEAR), "expert"), -1);
}

/* An update touches what a member holds: a split weight's gradient is split alike, a whole weight's
 * is whole or partial. */
static void test_gradient_states(void **state)
{
    (void)state;
    for (int kind = 0; kind < SBP_OP_KINDS; kind++)
        for (int r = 0; r < sbp_op((enum sbp_op_kind)kind)->role_count; r++)
            for (int w = 0; w < sbp_op((enum sbp_op_kind)kind)->weights; w++) {
                const struct sbp_role *role = &sbp_op((enum sbp_op_kind)kind)->role[r];
                assert_int_not_equal(role->weight[w].kind, SBP_PARTIAL);
                if (role->weight[w].kind == SBP_SPLIT)
                    assert_true(sbp_state_equal(role->gradient[w], role->weight[w]));
                else
                    assert_int_not_equal(role->gradient[w].kind, SBP_SPLIT);
            }
}

static void test_names(void **state)
{
    (void)state;
    const char *const *names = sbp_op_names();
    int count = 0;
    while (names[count] != NULL)
        count++;
    assert_int_equal(count, SBP_OP_KINDS);
    for (int i = 0; i < count; i++)
        assert_string_equal(sbp_op((enum sbp_op_kind)i)->name, names[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear_roles),
        cmocka_unit_test(test_embedding_roles),
        cmocka_unit_test(test_linear_is_in_oneflow),
        cmocka_unit_test(test_paper_roles),
        cmocka_unit_test(test_other_roles),
        cmocka_unit_test(test_entries),
        cmocka_unit_test(test_role_names),
        cmocka_unit_test(test_gradient_states),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
