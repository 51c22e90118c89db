/* What operators do on a device, against counting in nested loops on small sizes, published
 * formulas for whole models, what autograd keeps, and the volumes that the literature gives for
 * collectives inside operators.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>
#include <cmocka.h>

#include "base/json.h"
#include "base/random.h"
#include "costmodel/graph.h"
#include "costmodel/op_work.h"

#define SEED UINT64_C(60417)

/* One operator by itself, tensors laid out by hand: inputs, weights, output. */
#define MOST_TENSORS (SBP_MAX_INPUTS + SBP_MAX_WEIGHTS + 1)
struct bench {
    struct sbp_graph graph;
    struct sbp_op_node node;
    struct sbp_tensor tensor[MOST_TENSORS];
};

static void bench_open(struct bench *bench, enum sbp_op_kind kind)
{
    memset(bench, 0, sizeof *bench);
    bench->graph = (struct sbp_graph){.global_batch = 1,
                                      .micro_batch = 1,
                                      .op = &bench->node,
                                      .tensor = bench->tensor,
                                      .op_count = 1,
                                      .input = -1,
                                      .loss = -1};
    bench->node = (struct sbp_op_node){.kind = kind, .entry = sbp_op(kind), .repeats = 1};
}

static int bench_tensor(struct bench *bench, int64_t a, int64_t b, int64_t c, int64_t d)
{
    struct sbp_tensor *tensor = &bench->tensor[bench->graph.tensor_count];
    const int64_t size[SBP_MAX_DIMS] = {a, b, c, d};
    assert_true(bench->graph.tensor_count < MOST_TENSORS);
    *tensor = (struct sbp_tensor){.producer = -1, .valid_dim = -1};
    memcpy(tensor->shape.size, size, sizeof size);
    return bench->graph.tensor_count++;
}

static void bench_input(struct bench *bench, int64_t a, int64_t b, int64_t c, int64_t d)
{
    bench->node.input[bench->node.input_count++] = bench_tensor(bench, a, b, c, d);
}

static void bench_weight(struct bench *bench, int64_t a, int64_t b, int64_t c, int64_t d)
{
    bench->node.weight[bench->node.weight_count++] = bench_tensor(bench, a, b, c, d);
}

static void bench_output(struct bench *bench, int64_t a, int64_t b, int64_t c, int64_t d)
{
    bench->node.output = bench_tensor(bench, a, b, c, d);
}

/* Roles that split, by name; ends with NULL. */
struct ways {
    const char *role;
    double ways;
};

static struct sbp_factor factor_of(const struct bench *bench, const struct ways *ways)
{
    struct sbp_factor factor = sbp_factor_one();
    for (; ways != NULL && ways->role != NULL; ways++) {
        const int role = sbp_op_role(bench->node.entry, ways->role);
        assert_true(role >= 0);
        factor.of[role] = ways->ways;
    }
    return factor;
}

#define WAYS(...) ((const struct ways[]){__VA_ARGS__, {NULL, 0}})
#define WHOLE     ((const struct ways[]){{NULL, 0}})

static struct sbp_work work_of(const struct bench *bench, enum sbp_pass pass,
                               const struct ways *ways)
{
    const struct sbp_factor factor = factor_of(bench, ways);
    return sbp_op_work(&bench->graph, 0, &factor, pass);
}

static struct sbp_op_kept kept_of(const struct bench *bench, const struct ways *ways)
{
    const struct sbp_factor factor = factor_of(bench, ways);
    return sbp_op_kept(&bench->graph, 0, &factor);
}

static double products_flops(const struct sbp_work *work)
{
    double flops = 0;
    for (int i = 0; i < work->product_count; i++)
        flops += 2 * work->product[i].count * work->product[i].m * work->product[i].n *
                 work->product[i].k;
    return flops;
}

static void must_equal(const char *what, double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-12 * fabs(expected)))
        fail_msg("%s: %.17g, expected %.17g", what, value, expected);
}

static void must_be_product(const char *what, const struct sbp_work *work, int index, double count,
                            double m, double n, double k)
{
    const struct sbp_product *p = &work->product[index];
    if (index >= work->product_count || p->count != count || p->m != m || p->n != n || p->k != k)
        fail_msg("%s, product %d of %d: %g x (%g, %g, %g), expected %g x (%g, %g, %g)", what, index,
                 work->product_count, p->count, p->m, p->n, p->k, count, m, n, k);
}

/* --- products: the whole is shared out, or repeated, exactly --- */

struct share {
    const char *what;
    struct ways ways[4];
    double repeated; /* members that do the same work */
};

/* Devices together do the whole's products, times what is repeated, in every pass. */
static void must_share(const struct bench *bench, const struct share *share)
{
    double devices = 1;
    for (const struct ways *w = share->ways; w->role != NULL; w++)
        devices *= w->ways;
    for (int pass = 0; pass < SBP_PASSES; pass++) {
        const struct sbp_work whole = work_of(bench, (enum sbp_pass)pass, WHOLE);
        const struct sbp_work part = work_of(bench, (enum sbp_pass)pass, share->ways);
        must_equal(share->what, products_flops(&part) * devices,
                   products_flops(&whole) * share->repeated);
        must_equal(share->what, part.flops * devices, whole.flops * share->repeated);
        must_equal(share->what, part.model_flops * devices, whole.model_flops * share->repeated);
    }
}

static void make_linear(struct bench *bench)
{
    bench_open(bench, SBP_OP_LINEAR);
    bench_input(bench, 8, 12, 24, 2);
    bench_weight(bench, 24, 2, 36, 1);
    bench_output(bench, 8, 12, 36, 1);
}

static void test_linear(void **state)
{
    (void)state;
    struct bench bench;
    double flops = 0;
    make_linear(&bench);
    for (int token = 0; token < 8 * 12; token++)
        for (int in = 0; in < 48; in++)
            for (int out = 0; out < 36; out++)
                flops += 2;
    for (int pass = 0; pass < SBP_PASSES; pass++) {
        const struct sbp_work work = work_of(&bench, (enum sbp_pass)pass, WHOLE);
        must_equal("linear", products_flops(&work), flops);
    }
    const struct share rows[] = {
        {"batch x row", {{"batch", 4}, {"row", 3}}, 1},
        {"sequence x column", {{"sequence", 6}, {"column", 4}}, 1},
        {"partial", {{"partial", 2}, {"column", 2}}, 2},
        {"replicate", {{"replicate", 5}, {"row", 2}}, 5},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        must_share(&bench, &rows[i]);
    /* One call of a library a pass: (tokens, in) x (in, out) and its two derivatives. */
    const struct ways *ways = WAYS({"batch", 4}, {"row", 3});
    struct sbp_work work = work_of(&bench, SBP_PASS_FORWARD, ways);
    must_be_product("Y = XW", &work, 0, 1, 24, 36, 16);
    work = work_of(&bench, SBP_PASS_INPUT_GRADIENT, ways);
    must_be_product("dX = dY W'", &work, 0, 1, 24, 16, 36);
    work = work_of(&bench, SBP_PASS_WEIGHT_GRADIENT, ways);
    must_be_product("dW = X' dY", &work, 0, 1, 16, 36, 24);
    must_equal("kept", kept_of(&bench, ways).elements + kept_of(&bench, ways).bytes, 0);
}

/* --- convolutions --- */

struct conv {
    int64_t batch, height, width, in, out, kernel, stride, padding;
};

static int64_t windows(int64_t size, const struct conv *c)
{
    return (size + 2 * c->padding - c->kernel) / c->stride + 1;
}

static void make_conv(struct bench *bench, const struct conv *c)
{
    bench_open(bench, SBP_OP_CONV2D);
    bench_input(bench, c->batch, c->height, c->in, c->width);
    bench_weight(bench, c->in, c->kernel * c->kernel, c->out, 1);
    bench_weight(bench, 1, 1, c->out, 1);
    bench_output(bench, c->batch, windows(c->height, c), c->out, windows(c->width, c));
    for (int side = 0; side < 2; side++) {
        bench->node.window.kernel[side] = c->kernel;
        bench->node.window.stride[side] = c->stride;
        bench->node.window.padding[side] = c->padding;
    }
}

/* Every window of the padded image, as published counts of multiply-adds take them. */
static double conv_flops(const struct conv *c)
{
    double flops = 0;
    for (int64_t h = -c->padding; h + c->kernel <= c->height + c->padding; h += c->stride)
        for (int64_t w = -c->padding; w + c->kernel <= c->width + c->padding; w += c->stride)
            for (int64_t k = 0; k < c->kernel * c->kernel; k++)
                flops += 2 * (double)(c->batch * c->in * c->out);
    return flops;
}

static void test_conv2d(void **state)
{
    (void)state;
    const struct conv rows[] = {
        {6, 8, 8, 4, 6, 3, 1, 1}, {2, 16, 8, 4, 6, 3, 2, 1}, {2, 16, 16, 4, 6, 7, 2, 3},
        {2, 8, 8, 4, 6, 1, 2, 0}, {2, 10, 9, 4, 6, 3, 1, 0}, {1, 1, 1, 1, 1, 1, 1, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct bench bench;
        make_conv(&bench, &rows[i]);
        for (int pass = 0; pass < SBP_PASSES; pass++) {
            const struct sbp_work work = work_of(&bench, (enum sbp_pass)pass, WHOLE);
            must_equal("conv2d", products_flops(&work), conv_flops(&rows[i]));
            must_equal("conv2d", work.model_flops,
                       pass == SBP_PASS_FORWARD ? conv_flops(&rows[i]) : work.model_flops);
            /* Each operand moves once, the input as it lies and not window by window. */
            const struct conv *c = &rows[i];
            must_equal("elements", work.product[0].elements,
                       (double)(c->batch * c->in * c->height * c->width +
                                c->in * c->kernel * c->kernel * c->out +
                                c->batch * c->out * windows(c->height, c) * windows(c->width, c)));
        }
    }
    struct bench bench;
    make_conv(&bench, &rows[0]);
    const struct share shares[] = {{"conv batch x height", {{"batch", 3}, {"height", 4}}, 1},
                                   {"conv row x column", {{"row", 2}, {"column", 3}}, 1},
                                   {"conv replicate", {{"replicate", 2}, {"row", 2}}, 2}};
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++)
        must_share(&bench, &shares[i]);
    const struct sbp_work work =
        work_of(&bench, SBP_PASS_WEIGHT_GRADIENT, WAYS({"height", 2}, {"column", 3}));
    must_be_product("dK", &work, 0, 1, 4 * 9, 2, 6 * 4 * 8);
}

/* Input rows that each rank's windows read and that others hold, one by one; the rank that misses
 * most, and in how many messages they come: one from each rank that has some. */
struct missing {
    int64_t rows, messages;
};

static struct missing missing_rows(const struct conv *c, int64_t ways)
{
    const int64_t own = c->height / ways, out = windows(c->height, c) / ways;
    struct missing worst = {0, 0};
    for (int64_t rank = 0; rank < ways; rank++) {
        struct missing here = {0, 0};
        for (int64_t other = 0; other < ways; other++) {
            int64_t rows = 0;
            for (int64_t row = other * own; row < (other + 1) * own && other != rank; row++) {
                bool read = false;
                for (int64_t o = rank * out; o < (rank + 1) * out; o++)
                    read |= row >= o * c->stride - c->padding &&
                            row < o * c->stride - c->padding + c->kernel;
                rows += read;
            }
            here.rows += rows;
            here.messages += rows > 0;
        }
        if (here.rows > worst.rows)
            worst = here;
    }
    return worst;
}

static void must_have_halo(const struct conv *c, int64_t ways)
{
    struct bench bench;
    struct sbp_op_inner inner[SBP_MAX_INNER];
    const struct missing missing = missing_rows(c, ways);
    const double row = (double)(c->batch * c->in * c->width);
    make_conv(&bench, c);
    const struct ways *height = WAYS({"height", (double)ways});
    const struct sbp_factor factor = factor_of(&bench, height);
    const int count = sbp_op_inner(&bench.graph, 0, &factor, inner);
    double elements[SBP_PASSES] = {0}, messages[SBP_PASSES] = {0};
    for (int i = 0; i < count; i++) {
        assert_int_equal(inner[i].kind, SBP_SEND_RECV);
        assert_int_equal(inner[i].roles, 1u << sbp_op_role(bench.node.entry, "height"));
        elements[inner[i].pass] += inner[i].count * inner[i].elements;
        messages[inner[i].pass] += inner[i].count;
    }
    /* dX's rows go back the way that X's came; dW reads X's, which are kept. */
    for (int pass = 0; pass < SBP_PASSES; pass++) {
        const bool moves = pass != SBP_PASS_WEIGHT_GRADIENT;
        must_equal("halo", elements[pass], moves ? (double)missing.rows * row : 0);
        must_equal("messages", messages[pass], moves ? (double)missing.messages : 0);
    }
    must_equal("kept halo", kept_of(&bench, height).elements, (double)missing.rows * row);
    assert_int_equal(kept_of(&bench, height).inputs, 1);
    must_equal("halo's gradients",
               sbp_op_scratch_elements(&bench.graph, 0, &factor, SBP_PASS_INPUT_GRADIENT),
               (double)missing.rows * row);
}

static void test_halo(void **state)
{
    (void)state;
    struct sbp_random random;
    int cases = 0;
    sbp_random_seed(&random, SEED);
    print_message("seed %llu\n", (unsigned long long)SEED);
    while (cases < 2000) {
        const int64_t kernel = 1 + (int64_t)sbp_random_below(&random, 9);
        struct conv c = {1 + (int64_t)sbp_random_below(&random, 3),
                         1 + (int64_t)sbp_random_below(&random, 48),
                         9,
                         3,
                         2,
                         kernel,
                         1 + (int64_t)sbp_random_below(&random, (uint64_t)kernel),
                         (int64_t)sbp_random_below(&random, (uint64_t)kernel)};
        const int64_t ways = 1 + (int64_t)sbp_random_below(&random, 8);
        if (c.height + 2 * c.padding < kernel || c.height % ways != 0 ||
            windows(c.height, &c) % ways != 0)
            continue;
        must_have_halo(&c, ways);
        cases++;
    }
    /* VGG's: a row from each neighbour; of two ranks, each has one neighbour. */
    const struct conv vgg = {1, 224, 9, 3, 2, 3, 1, 1};
    assert_int_equal(missing_rows(&vgg, 4).rows, 2);
    assert_int_equal(missing_rows(&vgg, 2).rows, 1);
    must_have_halo(&vgg, 4);
    must_have_halo(&vgg, 2);
    /* The stride leaves the row below to the next window. */
    const struct conv strided = {1, 56, 9, 3, 2, 3, 2, 1};
    assert_int_equal(missing_rows(&strided, 4).rows, 1);
    must_have_halo(&strided, 4);
    /* A kernel that reaches past the neighbours: 3 rows, a row from each of three, on both sides.
     */
    const struct conv wide = {1, 8, 9, 3, 2, 7, 1, 3};
    assert_int_equal(missing_rows(&wide, 8).rows, 6);
    assert_int_equal(missing_rows(&wide, 8).messages, 6);
    must_have_halo(&wide, 8);
}

/* The first layer of a model whose images lie anywhere forms no gradient of them. */
static void test_free_input(void **state)
{
    (void)state;
    const struct conv c = {1, 8, 9, 3, 2, 3, 1, 1};
    struct bench bench;
    struct sbp_op_inner inner[SBP_MAX_INNER];
    make_conv(&bench, &c);
    const struct sbp_factor factor = factor_of(&bench, WAYS({"height", 4}));
    bench.graph.input = 0;
    int count = sbp_op_inner(&bench.graph, 0, &factor, inner);
    for (int i = 0; i < count; i++)
        assert_int_equal(inner[i].pass, SBP_PASS_FORWARD);
    bench.graph.input_split = true;
    count = sbp_op_inner(&bench.graph, 0, &factor, inner);
    assert_int_equal(count, 4);
}

/* --- patches --- */

/* ViT-B/16's: 14 x 14 patches of 16 x 16 x 3 pixels, and a class token that is no patch. */
static void test_patch_embedding(void **state)
{
    (void)state;
    struct bench bench;
    double flops = 0;
    bench_open(&bench, SBP_OP_PATCH_EMBEDDING);
    bench_weight(&bench, 768, 1, 24, 1);
    bench_weight(&bench, 1, 1, 24, 1);
    bench_weight(&bench, 1, 1, 24, 1);
    bench_weight(&bench, 197, 1, 24, 1);
    bench_output(&bench, 4, 197, 24, 1);
    bench.node.patches = 196;
    for (int patch = 0; patch < 4 * 14 * 14; patch++)
        for (int pixel = 0; pixel < 16 * 16 * 3; pixel++)
            flops += 2 * 24;
    const struct sbp_work forward = work_of(&bench, SBP_PASS_FORWARD, WHOLE);
    const struct sbp_work weights = work_of(&bench, SBP_PASS_WEIGHT_GRADIENT, WHOLE);
    const struct sbp_work input = work_of(&bench, SBP_PASS_INPUT_GRADIENT, WHOLE);
    must_equal("patches", products_flops(&forward), flops);
    must_equal("patches", products_flops(&weights), flops);
    must_equal("patches", forward.model_flops, flops);
    must_equal("images have no gradient", sbp_work_flops(&input), 0);
    must_equal("images kept", kept_of(&bench, WHOLE).elements, 4 * 224 * 224 * 3);
    const struct share shares[] = {
        {"patches", {{"batch", 2}, {"column", 3}}, 1},
        {"patches replicated", {{"batch", 2}, {"replicate", 3}}, 3},
    };
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++)
        must_share(&bench, &shares[i]);
    /* Split by sequence, all but the first member have patches alone. */
    bench.tensor[bench.node.output].shape.size[SBP_DIM_SEQUENCE] = 200;
    bench.node.patches = 199;
    const struct sbp_work split = work_of(&bench, SBP_PASS_FORWARD, WAYS({"sequence", 4}));
    must_be_product("slowest member", &split, 0, 1, 4 * 50, 24, 768);
}

/* --- attention --- */

struct attention {
    enum sbp_op_kind kind;
    int64_t batch, sequence, heads, kv_heads, qk, value, rope;
    bool causal, flash;
};

static void make_attention(struct bench *bench, const struct attention *a)
{
    bench_open(bench, a->kind);
    if (a->kind == SBP_OP_ATTENTION) {
        bench_input(bench, a->batch, a->sequence, a->heads, 3 * a->qk);
    } else if (a->kind == SBP_OP_GROUPED_ATTENTION) {
        bench_input(bench, a->batch, a->sequence, a->heads, a->qk);
        bench_input(bench, a->batch, a->sequence, a->kv_heads, a->qk + a->value);
    } else {
        bench_input(bench, a->batch, a->sequence, a->heads, a->qk);
        bench_input(bench, a->batch, a->sequence, a->heads, a->qk - a->rope + a->value);
        bench_input(bench, a->batch, a->sequence, a->rope, 1);
    }
    bench_output(bench, a->batch, a->sequence, a->heads, a->value);
    bench->node.attention.causal = a->causal;
    bench->node.attention.kind = a->flash ? SBP_ATTENTION_FLASH : SBP_ATTENTION_MATERIALISED;
    bench->node.attention.qk_size = a->qk;
    bench->node.attention.value_size = a->value;
}

/* Scores that the slowest of `ways` ranks forms, a rank's queries one behind the other. */
static double scores_formed(const struct attention *a, int64_t ways)
{
    const int64_t own = a->sequence / ways;
    double most = 0;
    for (int64_t rank = 0; rank < ways; rank++) {
        double formed = 0;
        for (int64_t query = rank * own; query < (rank + 1) * own; query++)
            for (int64_t key = 0; key < a->sequence; key++)
                formed += !a->causal || key <= query;
        most = formed > most ? formed : most;
    }
    return most * (double)(a->batch * a->heads);
}

static const struct attention ATTENTIONS[] = {
    {SBP_OP_ATTENTION, 4, 24, 6, 6, 8, 8, 0, true, true},
    {SBP_OP_ATTENTION, 4, 24, 6, 6, 8, 8, 0, false, false},
    {SBP_OP_ATTENTION, 1, 1, 1, 1, 1, 1, 0, true, false},
    {SBP_OP_GROUPED_ATTENTION, 4, 24, 12, 3, 8, 8, 0, true, true},
    {SBP_OP_GROUPED_ATTENTION, 4, 24, 12, 1, 8, 8, 0, true, false}, /* multi-query */
    {SBP_OP_LATENT_ATTENTION, 4, 24, 6, 6, 12, 8, 4, true, true},   /* sizes differ */
    {SBP_OP_LATENT_ATTENTION, 4, 24, 6, 6, 12, 8, 4, false, false},
};
#define ATTENTION_COUNT ((int)(sizeof ATTENTIONS / sizeof ATTENTIONS[0]))

/* Forward q . k and p v; backward dp = dy v', dv = p' dy, dq = ds k, dk = ds' q and, with flash,
 * the scores again; about 6 operations a score for the softmax. */
static void test_attention(void **state)
{
    (void)state;
    for (int i = 0; i < ATTENTION_COUNT; i++) {
        const struct attention *a = &ATTENTIONS[i];
        struct bench bench;
        make_attention(&bench, a);
        for (int64_t ways = 1; ways <= (a->sequence > 1 ? 4 : 1); ways++) {
            const struct ways *context = WAYS({"context", (double)ways});
            const double scores = scores_formed(a, ways);
            const double qk = 2 * (double)a->qk, value = 2 * (double)a->value;
            const struct sbp_work forward = work_of(&bench, SBP_PASS_FORWARD, context);
            const struct sbp_work backward = work_of(&bench, SBP_PASS_INPUT_GRADIENT, context);
            const struct sbp_work weights = work_of(&bench, SBP_PASS_WEIGHT_GRADIENT, context);
            must_equal("forward", forward.flops, scores * (qk + value + 6));
            must_equal("backward", backward.flops,
                       scores * (2 * (qk + value) + (a->flash ? qk : 0) + 6));
            must_equal("no weights", sbp_work_flops(&weights), 0);
            /* PaLM's appendix B counts all scores, causal or not. */
            must_equal("model", forward.model_flops,
                       (qk + value) * (double)(a->batch * a->heads * a->sequence * a->sequence) /
                           (double)ways);
        }
    }
    struct bench bench;
    make_attention(&bench, &ATTENTIONS[3]);
    const struct share rows[] = {{"heads", {{"batch", 2}, {"head", 3}, {"query", 2}}, 1},
                                 {"replicate", {{"replicate", 2}, {"head", 3}}, 2}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        must_share(&bench, &rows[i]);
}

/* Elements moved: queries and output of the member, keys and values of all of them. */
static void test_attention_traffic(void **state)
{
    (void)state;
    struct bench bench;
    for (double ways = 1; ways <= 4; ways *= 2) {
        const struct ways *context = WAYS({"context", ways});
        make_attention(&bench, &ATTENTIONS[3]);
        const double queries = 2 * 4 * 24 * 12 * 8 / ways, keys = 4 * 24 * 3 * 16;
        must_equal("forward", work_of(&bench, SBP_PASS_FORWARD, context).elements, queries + keys);
        must_equal("backward", work_of(&bench, SBP_PASS_INPUT_GRADIENT, context).elements,
                   2 * (queries + keys));
        make_attention(&bench, &ATTENTIONS[1]);
        const double scores = 4 * 6 * 24 * 24 / ways;
        must_equal("materialised", work_of(&bench, SBP_PASS_FORWARD, context).elements,
                   2 * 4 * 24 * 6 * 8 / ways + 4 * 24 * 6 * 16 + scores);
    }
}

/* --- collectives of attention --- */

struct moved {
    double elements; /* n x times */
    int calls;
};

static struct moved moved_by(const struct bench *bench, const struct ways *ways, const char *role,
                             enum sbp_pass pass, enum sbp_collective kind)
{
    const struct sbp_factor factor = factor_of(bench, ways);
    struct sbp_op_inner inner[SBP_MAX_INNER];
    struct moved moved = {0, 0};
    const int count = sbp_op_inner(&bench->graph, 0, &factor, inner);
    assert_in_range(count, 0, SBP_MAX_INNER);
    for (int i = 0; i < count; i++)
        if (inner[i].pass == pass && inner[i].kind == kind &&
            inner[i].roles == 1u << sbp_op_role(bench->node.entry, role)) {
            moved.elements += inner[i].count * inner[i].elements;
            moved.calls += inner[i].count;
        }
    return moved;
}

static void must_move(const char *what, struct moved moved, double elements, int calls)
{
    must_equal(what, moved.elements, elements);
    assert_int_equal(moved.calls, calls);
}

/* Keys and values as a device holds them: 2 b s h_kv d / ways. Gathered (Llama 3, section 3.3.2):
 * once forward; once backward, and their gradients reduce-scattered. Ring (Liu et al., 2023,
 * section 3): each of the others' blocks passes by once, ways - 1 hops; backward the gradients
 * travel with the blocks and one hop further, to whom they belong. */
static void test_context_collectives(void **state)
{
    (void)state;
    for (int i = 0; i < ATTENTION_COUNT; i++) {
        const struct attention *a = &ATTENTIONS[i];
        struct bench bench;
        make_attention(&bench, a);
        const double tokens = (double)(a->batch * a->sequence);
        const double width = a->kind == SBP_OP_LATENT_ATTENTION
                                 ? (double)(a->heads * (a->qk - a->rope + a->value) + a->rope)
                                 : (double)((a->kind == SBP_OP_ATTENTION ? a->heads : a->kv_heads) *
                                            (a->qk + a->value));
        const struct ways *context = WAYS({"context", 4}, {"batch", 2});
        const double all = tokens / 2 * width;
        must_move("gather", moved_by(&bench, context, "context", SBP_PASS_FORWARD, SBP_ALL_GATHER),
                  all, 1);
        must_move("again",
                  moved_by(&bench, context, "context", SBP_PASS_INPUT_GRADIENT, SBP_ALL_GATHER),
                  all, 1);
        must_move("gradients",
                  moved_by(&bench, context, "context", SBP_PASS_INPUT_GRADIENT, SBP_REDUCE_SCATTER),
                  all, 1);
        bench.node.attention.ring = true;
        must_move("ring", moved_by(&bench, context, "context", SBP_PASS_FORWARD, SBP_SEND_RECV),
                  3 * all / 4, 3);
        must_move("ring back",
                  moved_by(&bench, context, "context", SBP_PASS_INPUT_GRADIENT, SBP_SEND_RECV),
                  (3 + 4) * all / 4, 3 + 4);
        must_move("no gather",
                  moved_by(&bench, context, "context", SBP_PASS_FORWARD, SBP_ALL_GATHER), 0, 0);
    }
    /* Heads split: keys and values of the member's heads travel; on query axes all of them. */
    struct bench bench;
    make_attention(&bench, &ATTENTIONS[3]);
    const struct ways *heads = WAYS({"context", 2}, {"head", 3}, {"query", 2});
    must_move("heads", moved_by(&bench, heads, "context", SBP_PASS_FORWARD, SBP_ALL_GATHER),
              4 * 24 * 1 * 16, 1);
}

/* --- mixtures of experts --- */

struct moe {
    int64_t batch, sequence, hidden, ffn, gates, experts, top_k;
    double capacity;
};

static void make_moe(struct bench *bench, const struct moe *m)
{
    bench_open(bench, SBP_OP_MOE);
    bench_input(bench, m->batch, m->sequence, m->hidden, 1);
    bench_weight(bench, m->hidden, 1, m->experts, 1);
    bench_weight(bench, m->experts, m->hidden, m->ffn, m->gates);
    bench_weight(bench, m->experts, m->ffn, m->hidden, 1);
    bench_output(bench, m->batch, m->sequence, m->hidden, 1);
    bench->node.moe.top_k = m->top_k;
    bench->node.moe.capacity = m->capacity;
}

/* Slots that a member with `tokens` has for each expert: the least whole number that holds its
 * share, found by trying. `capacity` is in hundredths, so that all is whole. */
static int64_t slots_of(int64_t tokens, const struct moe *m)
{
    const int64_t hundredths = llround(m->capacity * 100);
    int64_t slots = 0;
    while (slots * m->experts * 100 < tokens * m->top_k * hundredths)
        slots++;
    return slots;
}

static void test_moe(void **state)
{
    (void)state;
    const struct moe rows[] = {
        {4, 6, 8, 12, 2, 8, 2, 1},    /* 24 x 2 / 8: whole */
        {4, 6, 8, 12, 1, 8, 2, 1.25}, /* 7.5 slots: 8 */
        {4, 6, 8, 12, 2, 8, 3, 1.1},  /* 9.9 */
        {4, 5, 8, 12, 2, 8, 2, 1.1},  /* 5.5 */
        {4, 10, 8, 12, 2, 4, 1, 1.1}, /* 11, and 10 x 1.1 is more in binary */
        {4, 1, 1, 1, 1, 64, 1, 1},    /* fewer tokens than experts: a slot each */
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int64_t ep = 1; ep <= 4; ep *= 2) {
            const struct moe *m = &rows[i];
            struct bench bench;
            make_moe(&bench, m);
            const int64_t tokens = m->batch * m->sequence / ep;
            const double own = (double)(m->experts / ep);
            const double slots = (double)slots_of(tokens, m), sent = slots * (double)m->experts;
            const double received = slots * (double)ep; /* for each expert here */
            const double t = (double)tokens, h = (double)m->hidden, f = (double)m->ffn;
            const double e = (double)m->experts, g = (double)m->gates;
            const struct ways *expert = WAYS({"expert", (double)ep});
            struct sbp_work work = work_of(&bench, SBP_PASS_FORWARD, expert);
            must_be_product("router", &work, 0, 1, t, e, h);
            must_be_product("first", &work, 1, own, received, f * g, h);
            must_be_product("second", &work, 2, own, received, h, f);
            must_equal("model", work.model_flops,
                       2 * t * (h * e + (double)m->top_k * h * f * (g + 1)));
            /* Tokens in and slots out, slots in and tokens out; between, g f in and f out. */
            must_equal("forward", work.elements, 2 * (t * h + sent * h) + sent * f * (g + 1));
            work = work_of(&bench, SBP_PASS_INPUT_GRADIENT, expert);
            must_be_product("d first", &work, 1, own, received, h, f * g);
            /* The same and the experts' outputs for the router; f and g f in, g f out. */
            must_equal("backward", work.elements,
                       2 * (t * h + sent * h) + sent * h + sent * f * (2 * g + 1));
            work = work_of(&bench, SBP_PASS_WEIGHT_GRADIENT, expert);
            must_be_product("dW second", &work, 2, own, f, h, received);
            /* Dispatch and combine, forward and backward: as many copies leave as arrive. */
            must_move("out and back",
                      moved_by(&bench, expert, "expert", SBP_PASS_FORWARD, SBP_ALL_TO_ALL),
                      ep > 1 ? 2 * sent * h : 0, ep > 1 ? 2 : 0);
            must_move("gradients",
                      moved_by(&bench, expert, "expert", SBP_PASS_INPUT_GRADIENT, SBP_ALL_TO_ALL),
                      ep > 1 ? 2 * sent * h : 0, ep > 1 ? 2 : 0);
            /* Kept: copies sent, first product, activation, second product; probabilities. */
            must_equal("kept", kept_of(&bench, expert).elements,
                       sent * (h + f * g + f + h) + t * e);
            must_equal("indices", kept_of(&bench, expert).bytes, 8 * t * (double)m->top_k);
        }
    struct bench bench;
    const struct moe even = {4, 8, 8, 12, 2, 8, 2, 1}; /* whole numbers of slots on 4 devices */
    make_moe(&bench, &even);
    const struct share shares[] = {{"sequence", {{"sequence", 4}}, 1},
                                   {"batch x expert", {{"batch", 2}, {"expert", 2}}, 1},
                                   {"replicate", {{"replicate", 3}, {"expert", 2}}, 3}};
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++)
        must_share(&bench, &shares[i]);
    /* Column: the experts' products are shared out, the router's is repeated. */
    make_moe(&bench, &rows[0]);
    const struct sbp_work column = work_of(&bench, SBP_PASS_FORWARD, WAYS({"column", 3}));
    must_be_product("router", &column, 0, 1, 24, 8, 8);
    must_be_product("first", &column, 1, 8, 6, 8, 8);
    must_be_product("second", &column, 2, 8, 6, 8, 4);
    /* A free input: the output's gradient goes to the experts, nothing comes back. */
    bench.graph.input = 0;
    must_move(
        "free",
        moved_by(&bench, WAYS({"expert", 2}), "expert", SBP_PASS_WEIGHT_GRADIENT, SBP_ALL_TO_ALL),
        (double)slots_of(12, &rows[0]) * 8 * 8, 1);
    must_move(
        "free",
        moved_by(&bench, WAYS({"expert", 2}), "expert", SBP_PASS_INPUT_GRADIENT, SBP_ALL_TO_ALL), 0,
        0);
}

/* --- SUMMA --- */

/* Each pass by steps: for every panel of inner features, as many as the longer side of the grid has
 * members, a member's rank-k update. */
static void test_summa(void **state)
{
    (void)state;
    const int64_t tokens = 24, in = 48, out = 36;
    struct bench bench;
    bench_open(&bench, SBP_OP_SUMMA_LINEAR);
    bench_input(&bench, tokens, 1, in, 1);
    bench_weight(&bench, in, 1, out, 1);
    bench_output(&bench, tokens, 1, out, 1);
    for (int64_t r = 1; r <= 4; r++)
        for (int64_t c = 1; c <= 4; c++) {
            if (c == 4 && r == 3) /* as uneven as the rest */
                continue;
            const struct ways *grid =
                WAYS({"grid_row", (double)r}, {"grid_column", (double)c}, {"batch", 2});
            const int64_t steps = r > c ? r : c;
            const double panels = (double)steps, width = (double)in / panels;
            const double m = (double)tokens / 2 / (double)r, n = (double)out / (double)c;
            double x_bytes = 0, w_bytes = 0;
            struct sbp_work work = work_of(&bench, SBP_PASS_FORWARD, grid);
            must_be_product("Y", &work, 0, panels, m, n, width);
            must_equal("model", work.model_flops * (double)(r * c) * 2,
                       2 * (double)(tokens * in * out));
            work = work_of(&bench, SBP_PASS_INPUT_GRADIENT, grid);
            must_be_product("dX", &work, 0, panels, m, width, n);
            work = work_of(&bench, SBP_PASS_WEIGHT_GRADIENT, grid);
            must_be_product("dW", &work, 0, panels, width, n, m);
            for (int64_t panel = 0; panel < steps; panel++) {
                x_bytes += m * width;
                w_bytes += width * n;
            }
            /* Optimus, section 3.1: all of X's row of blocks and all of W's column of them. */
            must_equal("X's row", x_bytes, m * (double)in);
            for (int pass = 0; pass < SBP_PASSES; pass++) {
                must_move(
                    "X",
                    moved_by(&bench, grid, "grid_column", (enum sbp_pass)pass, SBP_BROADCAST_COLL),
                    c > 1 ? x_bytes : 0, c > 1 ? (int)steps : 0);
                must_move(
                    "W",
                    moved_by(&bench, grid, "grid_row", (enum sbp_pass)pass, SBP_BROADCAST_COLL),
                    r > 1 ? w_bytes : 0, r > 1 ? (int)steps : 0);
            }
            const struct sbp_factor factor = factor_of(&bench, grid);
            must_equal("panels",
                       sbp_op_scratch_elements(&bench.graph, 0, &factor, SBP_PASS_FORWARD),
                       m * width + width * n);
        }
    /* Its price on one level, by the formula there: panels (r - 1 + c - 1) alpha and the blocks'
     * bytes times beta. */
    const double alpha = 1e-5, beta = 1e-9;
    double seconds = 0;
    struct sbp_op_inner inner[SBP_MAX_INNER];
    const struct sbp_factor factor = factor_of(&bench, WAYS({"grid_row", 2}, {"grid_column", 3}));
    const int count = sbp_op_inner(&bench.graph, 0, &factor, inner);
    for (int i = 0; i < count; i++) {
        const double members =
            inner[i].roles == 1u << sbp_op_role(bench.node.entry, "grid_row") ? 2 : 3;
        if (inner[i].pass == SBP_PASS_FORWARD)
            seconds += inner[i].count * (sbp_collective_steps(inner[i].kind, members) * alpha +
                                         sbp_collective_share(inner[i].kind, members) * 4 *
                                             inner[i].elements * beta);
    }
    must_equal("seconds", seconds,
               3 * (1 + 2) * alpha + 4 * (24.0 / 2 * 48 + 48 * 36.0 / 3) * beta);
}

/* --- norms, losses, what streams --- */

static void make_single(struct bench *bench, enum sbp_op_kind kind, int64_t inner)
{
    bench_open(bench, kind);
    bench_input(bench, 4, 6, 12, inner);
    if (kind == SBP_OP_CROSS_ENTROPY) {
        bench->node.output = -1;
        return;
    }
    for (int w = 0; w < sbp_op(kind)->weights; w++)
        bench_weight(bench, 1, 1, 12, 1);
    bench_output(bench, 4, 6, 12, 1);
}

/* Scalars a token: layer norm (sum, sum of squares), rms norm the squares; backward as many.
 * Cross-entropy: a maximum, then the sum of exponentials and the target's logit. */
static void test_statistics(void **state)
{
    (void)state;
    const struct {
        enum sbp_op_kind kind;
        const char *role;
        double forward, backward;
        int calls;
    } rows[] = {{SBP_OP_LAYERNORM, "hidden", 2, 2, 1},
                {SBP_OP_RMSNORM, "hidden", 1, 1, 1},
                {SBP_OP_CROSS_ENTROPY, "vocab", 3, 0, 2}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct bench bench;
        make_single(&bench, rows[i].kind, 1);
        const struct ways *ways = WAYS({"batch", 2}, {rows[i].role, 3});
        must_move("forward", moved_by(&bench, ways, rows[i].role, SBP_PASS_FORWARD, SBP_ALL_REDUCE),
                  rows[i].forward * 12, rows[i].calls);
        must_move("backward",
                  moved_by(&bench, ways, rows[i].role, SBP_PASS_INPUT_GRADIENT, SBP_ALL_REDUCE),
                  rows[i].backward * 12, rows[i].backward > 0 ? 1 : 0);
        must_move(
            "tokens alone",
            moved_by(&bench, WAYS({"batch", 4}), rows[i].role, SBP_PASS_FORWARD, SBP_ALL_REDUCE), 0,
            0);
    }
    /* Statistics of batch norm are the device's own: nothing is said. */
    struct bench bench;
    struct sbp_op_inner inner[SBP_MAX_INNER];
    make_single(&bench, SBP_OP_BATCHNORM, 5);
    const struct sbp_factor factor = factor_of(&bench, WAYS({"batch", 2}, {"channel", 3}));
    assert_int_equal(sbp_op_inner(&bench.graph, 0, &factor, inner), 0);
}

/* Elements in and out of memory: what a kernel of its own reads and writes. */
static void test_streams(void **state)
{
    (void)state;
    const double n = 4 * 6 * 12;
    const struct {
        enum sbp_op_kind kind;
        int64_t inner;
        double forward, backward, mask;
    } rows[] = {
        {SBP_OP_RELU, 1, n + n, 2 * n + n, 0},           /* x, y; x, dy, dx */
        {SBP_OP_SWIGLU, 2, 2 * n + n, 3 * n + 2 * n, 0}, /* {gate, up}, y; those, dy, their d */
        {SBP_OP_RMSNORM, 1, 2 * n + n, 4 * n + n, 0},    /* x twice, y; x, dy twice, dx */
        {SBP_OP_BATCHNORM, 1, 2 * n + n, 4 * n + n, 0},
        {SBP_OP_DROPOUT, 1, n + n, n + n, n}, /* and a byte an element */
        {SBP_OP_FLATTEN, 1, n + n, n + n, 0},
        {SBP_OP_TANH, 1, n + n, 2 * n + n, 0}, /* backward: y, dy, dx */
        {SBP_OP_ROTARY, 1, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct bench bench;
        make_single(&bench, rows[i].kind, rows[i].inner);
        const struct sbp_work forward = work_of(&bench, SBP_PASS_FORWARD, WAYS({"batch", 2}));
        const struct sbp_work backward = work_of(&bench, SBP_PASS_INPUT_GRADIENT, WHOLE);
        must_equal("forward", forward.elements * 2, rows[i].forward);
        must_equal("backward", backward.elements, rows[i].backward);
        must_equal("mask", forward.bytes * 2, rows[i].mask);
        must_equal("mask", backward.bytes, rows[i].mask);
        must_equal("with the input's", work_of(&bench, SBP_PASS_WEIGHT_GRADIENT, WHOLE).elements,
                   0);
    }
}

static void make_pool(struct bench *bench, enum sbp_op_kind kind, int64_t kernel)
{
    bench_open(bench, kind);
    bench_input(bench, 4, 18, 6, 18);
    bench_output(bench, 4, 18 / kernel, 6, 18 / kernel);
    for (int side = 0; side < 2; side++)
        bench->node.window.kernel[side] = bench->node.window.stride[side] = kernel;
}

static void test_pools(void **state)
{
    (void)state;
    const double in = 4 * 18 * 6 * 18;
    struct bench bench;
    make_pool(&bench, SBP_OP_MAXPOOL, 3);
    struct sbp_work work = work_of(&bench, SBP_PASS_FORWARD, WAYS({"batch", 2}, {"channel", 3}));
    must_equal("comparisons", work.vector_flops * 6, in); /* windows side by side */
    must_equal("elements", work.elements * 6, in + in / 9);
    must_equal("indices", work.bytes * 6, in / 9);
    must_equal("kept", kept_of(&bench, WHOLE).bytes, in / 9);
    work = work_of(&bench, SBP_PASS_INPUT_GRADIENT, WHOLE);
    must_equal("one element a window", work.vector_flops, in / 9);
    make_pool(&bench, SBP_OP_MAXPOOL, 18); /* 324 places do not fit a byte */
    must_equal("kept", kept_of(&bench, WHOLE).bytes, 4 * in / 324);
    make_pool(&bench, SBP_OP_AVGPOOL, 3);
    must_equal("additions", work_of(&bench, SBP_PASS_INPUT_GRADIENT, WHOLE).vector_flops, in);
    must_equal("kept", kept_of(&bench, WHOLE).bytes, 0);
}

/* --- what is kept --- */

/* Against PyTorch's autograd (tools/autograd/derivatives.yaml), per element n of the input, row t
 * of it (batch x sequence) and channel c; inputs as in `inputs`.
 *
 *   operator        PyTorch keeps                     here
 *   relu            result                            input: as large, not shared with its reader
 *   gelu            self                              the same
 *   dropout         mask (bool)                       the same
 *   layernorm       input, mean, rstd                 the same
 *   rmsnorm         input, rstd (fused)               the same
 *   batchnorm       input, save_mean, save_invstd     the same
 *   swiglu          gate, up, silu(gate) (two ops)    gate, up: one kernel (Megatron-LM's)
 *   maxpool         self, indices (8 bytes)           a byte an output: its place in the window
 *   avgpool         self (for its shape)              nothing
 *   flatten, add    nothing                           the same
 *   rotary          cosines and sines (a table)       nothing
 *   cross_entropy   log_softmax result                logits, as large; three numbers a row
 *   linear, conv2d  input, weight                     the same (conv2d: halo rows besides)
 *   attention       q, k, v, probabilities; mask and  the same, and the output, which the next
 *                   their product with dropout        linear keeps anyway
 *   flash           q, k, v, output, log-sum-exp      the same
 */
static void test_kept(void **state)
{
    (void)state;
    const double n = 4 * 6 * 12, t = 4 * 6, c = 12;
    const struct {
        enum sbp_op_kind kind;
        int64_t inner;
        unsigned inputs;
        double elements, bytes;
    } rows[] = {
        {SBP_OP_RELU, 1, 1, 0, 0},    {SBP_OP_GELU, 1, 1, 0, 0},
        {SBP_OP_DROPOUT, 1, 0, 0, n}, {SBP_OP_LAYERNORM, 1, 1, 2 * t, 0},
        {SBP_OP_RMSNORM, 1, 1, t, 0}, {SBP_OP_BATCHNORM, 5, 1, 2 * c, 0},
        {SBP_OP_SWIGLU, 2, 1, 0, 0},  {SBP_OP_AVGPOOL, 1, 0, 0, 0},
        {SBP_OP_FLATTEN, 1, 0, 0, 0}, {SBP_OP_ROTARY, 1, 0, 0, 0},
        {SBP_OP_ADD, 1, 0, 0, 0},     {SBP_OP_CROSS_ENTROPY, 1, 1, 3 * t, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct bench bench;
        make_single(&bench, rows[i].kind, rows[i].inner);
        const struct sbp_op_kept whole = kept_of(&bench, WHOLE);
        const struct sbp_op_kept half = kept_of(&bench, WAYS({"batch", 2}));
        assert_int_equal(whole.inputs, rows[i].inputs);
        assert_false(whole.output);
        must_equal(sbp_op(rows[i].kind)->name, whole.elements, rows[i].elements);
        must_equal(sbp_op(rows[i].kind)->name, whole.bytes, rows[i].bytes);
        if (rows[i].kind != SBP_OP_BATCHNORM) /* numbers a channel do not share out */
            must_equal(sbp_op(rows[i].kind)->name, half.elements * 2, rows[i].elements);
    }
}

/* A root a head and token; tanh's derivative is 1 - y^2. */
static void test_kept_others(void **state)
{
    (void)state;
    struct bench bench;
    make_single(&bench, SBP_OP_HEAD_NORM, 5);
    struct sbp_op_kept kept = kept_of(&bench, WAYS({"head", 3}));
    assert_int_equal(kept.inputs, 1);
    must_equal("head norm", kept.elements, 4 * 6 * 12 / 3.0);
    make_single(&bench, SBP_OP_TANH, 1);
    kept = kept_of(&bench, WHOLE);
    assert_true(kept.output && kept.inputs == 0);
    make_single(&bench, SBP_OP_FIRST_TOKEN, 1);
    bench.tensor[bench.node.output].shape.size[SBP_DIM_SEQUENCE] = 1;
    kept = kept_of(&bench, WHOLE);
    assert_true(!kept.output && kept.inputs == 0);
    must_equal("copy a token", work_of(&bench, SBP_PASS_FORWARD, WHOLE).elements, 2 * 4 * 12);
    must_equal("among zeros", work_of(&bench, SBP_PASS_INPUT_GRADIENT, WHOLE).elements,
               4 * 12 + 4 * 6 * 12);
}

/* Korthikanti et al., 2022, section 4.1, bytes at two an element: attention keeps 2 x 3 s b h of
 * queries, keys and values and 5 a s^2 b of scores: 2 probabilities, 1 mask, 2 what it left. */
static void test_kept_attention(void **state)
{
    (void)state;
    const struct attention a = {SBP_OP_ATTENTION, 4, 24, 6, 6, 8, 8, 0, true, false};
    struct bench bench;
    make_attention(&bench, &a);
    const double square = 6.0 * 24 * 24 * 4;
    bench.node.attention.dropout = 0.1;
    struct sbp_op_kept kept = kept_of(&bench, WHOLE);
    assert_int_equal(kept.inputs, 1);
    must_equal("5 a s^2 b", 2 * kept.elements + kept.bytes, 5 * square);
    kept = kept_of(&bench, WAYS({"context", 2}, {"head", 3}));
    must_equal("shared out", 2 * kept.elements + kept.bytes, 5 * square / 6);
    bench.node.attention.dropout = 0;
    must_equal("without dropout", 2 * kept_of(&bench, WHOLE).elements, 2 * square);
    bench.node.attention.kind = SBP_ATTENTION_FLASH;
    kept = kept_of(&bench, WHOLE);
    must_equal("flash", kept.elements, 6 * 24 * 4);
    assert_true(kept.output);
    /* Keys and values of others are gathered again, not kept. */
    make_attention(&bench, &ATTENTIONS[5]);
    kept = kept_of(&bench, WAYS({"context", 4}));
    assert_int_equal(kept.inputs, 7);
    must_equal("context", kept.elements, 4 * 24 * 6 / 4.0);
}

/* Scratch of attention: tiles of scores; what context axes gather, or a block here and one on its
 * way; gradients of as many backward. */
static void test_attention_scratch(void **state)
{
    (void)state;
    struct bench bench;
    make_attention(&bench, &ATTENTIONS[4]);
    const struct sbp_factor whole = sbp_factor_one();
    const double tile = sbp_op_scratch_elements(&bench.graph, 0, &whole, SBP_PASS_FORWARD);
    must_equal("a tile of rows of all keys", tile, 24 * 24 + 24);
    const struct sbp_factor split = factor_of(&bench, WAYS({"context", 4}));
    const double keys = 4 * 24 * 1 * 16;
    must_equal("gathered", sbp_op_scratch_elements(&bench.graph, 0, &split, SBP_PASS_FORWARD),
               tile + keys);
    must_equal("gathered",
               sbp_op_scratch_elements(&bench.graph, 0, &split, SBP_PASS_INPUT_GRADIENT),
               tile + 2 * keys);
    bench.node.attention.ring = true;
    must_equal("ring", sbp_op_scratch_elements(&bench.graph, 0, &split, SBP_PASS_FORWARD),
               tile + 2 * keys / 4);
}

/* --- a user's own operator --- */

/* Split by `rows` and by `columns`; `copies` splits nothing. A collective's bytes are divided by
 * the parts that the other roles make. */
static void test_custom(void **state)
{
    (void)state;
    struct sbp_custom custom = {.flops = {1200, 2400, 600},
                                .bytes = {120, 240, 60},
                                .saved_bytes = 480,
                                .collective_count = 3};
    const char *names[] = {"rows", "columns", "copies"};
    custom.entry = (struct sbp_op_entry){.name = "own", .inputs = 1, .role_count = 3};
    for (int r = 0; r < 3; r++) {
        struct sbp_role *role = &custom.entry.role[r];
        const struct sbp_state splits[] = {SBP_STATE_S(0), SBP_STATE_S(2), SBP_STATE_B};
        role->name = names[r];
        role->input[0] = role->output = splits[r];
        custom.collective[r].role = r;
        custom.collective[r].kind = SBP_ALL_REDUCE;
        custom.collective[r].bytes = 240;
        custom.collective[r].divided = true;
    }
    struct bench bench;
    bench_open(&bench, SBP_OP_CUSTOM);
    bench_input(&bench, 4, 6, 12, 1);
    bench_weight(&bench, 1, 1, 12, 1);
    bench_output(&bench, 4, 6, 12, 1);
    bench.node.entry = &custom.entry;
    bench.node.custom = &custom;
    bench.graph.precision.activation = SBP_FP32;
    const struct ways *ways = WAYS({"rows", 2}, {"columns", 3}, {"copies", 5});
    for (int pass = 0; pass < SBP_PASSES; pass++) {
        const struct sbp_work work = work_of(&bench, (enum sbp_pass)pass, ways);
        must_equal("flops", work.flops, custom.flops[pass] / 6);
        must_equal("bytes", work.bytes, custom.bytes[pass] / 6);
    }
    must_equal("kept", kept_of(&bench, ways).bytes, 480.0 / 6);
    must_move("rows", moved_by(&bench, ways, "rows", SBP_PASS_FORWARD, SBP_ALL_REDUCE),
              240.0 / 3 / 4, 1);
    must_move("columns", moved_by(&bench, ways, "columns", SBP_PASS_FORWARD, SBP_ALL_REDUCE),
              240.0 / 2 / 4, 1);
    must_move("copies", moved_by(&bench, ways, "copies", SBP_PASS_FORWARD, SBP_ALL_REDUCE),
              240.0 / 6 / 4, 1);
}

/* --- whole models --- */

static double model_flops(const char *text)
{
    struct cJSON *tree = NULL;
    struct sbp_json root;
    struct sbp_diag diag = {{0}};
    struct sbp_graph graph;
    if (sbp_json_parse(text, "m.json", &tree, &root, &diag) != SBP_OK ||
        sbp_graph_read(&root, &graph) != SBP_OK)
        fail_msg("%s", diag.text);
    const double flops = sbp_graph_model_flops(&graph);
    sbp_graph_free(&graph);
    cJSON_Delete(tree);
    return flops;
}

/* Narayanan et al., 2021, section 5.1: a step with recomputation does 96 B s l h^2 (1 + s / 6h +
 * V / 16lh): four forward passes of the layers, three of the head, whose term is 6 B s h V. The
 * model's own flops are three of both. */
static void test_narayanan(void **state)
{
    (void)state;
    const struct {
        int layers, hidden, heads, sequence, vocab, batch;
    } rows[] = {{24, 2304, 24, 2048, 51200, 512},   /* 1.7 B */
                {96, 12288, 96, 2048, 51200, 1536}, /* 175 B */
                {128, 25600, 160, 2048, 51200, 3072}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[512];
        (void)snprintf(
            text, sizeof text,
            "{\"name\": \"m\", \"architecture\": \"gpt\", \"layers\": %d, \"hidden\": %d, "
            "\"heads\": %d, \"sequence\": %d, \"vocab\": %d, \"global_batch\": %d}",
            rows[i].layers, rows[i].hidden, rows[i].heads, rows[i].sequence, rows[i].vocab,
            rows[i].batch);
        const double l = rows[i].layers, h = rows[i].hidden, s = rows[i].sequence;
        const double published =
            96.0 * rows[i].batch * s * l * h * h * (1 + s / (6 * h) + rows[i].vocab / (16 * l * h));
        const double again = 24.0 * rows[i].batch * s * l * h * h * (1 + s / (6 * h));
        must_equal("Narayanan et al.", model_flops(text) + again, published);
    }
}

/* --- published counts of whole models --- */

/* A model file that grows. */
struct text {
    char at[1 << 16];
    size_t length;
};

static void SBP_PRINTF(2, 3) say(struct text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int length =
        vsnprintf(text->at + text->length, sizeof text->at - text->length, format, arguments);
    va_end(arguments);
    assert_true(length > 0 && text->length + (size_t)length < sizeof text->at);
    text->length += (size_t)length;
}

/* Multiply-adds of one forward pass. */
static double forward_macs(const struct text *text)
{
    struct cJSON *tree = NULL;
    struct sbp_json root;
    struct sbp_diag diag = {{0}};
    struct sbp_graph graph;
    const struct sbp_factor whole = sbp_factor_one();
    double flops = 0;
    if (sbp_json_parse(text->at, "m.json", &tree, &root, &diag) != SBP_OK ||
        sbp_graph_read(&root, &graph) != SBP_OK)
        fail_msg("%s", diag.text);
    for (int op = 0; op < graph.op_count; op++)
        flops += sbp_op_work(&graph, op, &whole, SBP_PASS_FORWARD).model_flops;
    sbp_graph_free(&graph);
    cJSON_Delete(tree);
    return flops / 2;
}

static void open_images(struct text *text, int sequence)
{
    text->length = 0;
    say(text,
        "{\"name\": \"m\", \"global_batch\": 1, \"sequence\": %d, \"input\": {\"height\": 224, "
        "\"width\": 224, \"channels\": 3}, \"layers\": [",
        sequence);
}

/* Simonyan and Zisserman, 2015, table 1, column B: 11.3 G multiply-adds (torchvision: 11.31). */
static void test_vgg13(void **state)
{
    (void)state;
    struct text text;
    open_images(&text, 1);
    const int channels[] = {64, 128, 256, 512, 512};
    for (int stage = 0; stage < 5; stage++) {
        for (int i = 0; i < 2; i++)
            say(&text,
                "{\"op\": \"conv2d\", \"out\": %d, \"kernel\": 3, \"padding\": 1, \"bias\": true},"
                "{\"op\": \"relu\"},",
                channels[stage]);
        say(&text, "{\"op\": \"maxpool\", \"kernel\": 2},");
    }
    say(&text, "{\"op\": \"flatten\"}, {\"op\": \"linear\", \"out\": 4096}, {\"op\": \"relu\"},"
               "{\"op\": \"linear\", \"out\": 4096}, {\"op\": \"relu\"},"
               "{\"op\": \"linear\", \"out\": 1000}]}");
    assert_true(fabs(forward_macs(&text) - 11.31e9) < 0.01e9);
}

static void say_conv(struct text *text, const char *name, const char *input, int out, int kernel,
                     int stride)
{
    say(text,
        "{\"op\": \"conv2d\", \"name\": \"%s\", \"inputs\": [\"%s\"], \"out\": %d, \"kernel\": %d, "
        "\"stride\": %d, \"padding\": %d},",
        name, input, out, kernel, stride, kernel / 2);
}

/* He et al., 2016, table 1, stride in the 3 x 3 convolution (torchvision): 4.09 G multiply-adds. */
static void test_resnet50(void **state)
{
    (void)state;
    const int blocks[] = {3, 4, 6, 3};
    struct text text;
    char in[16] = "pool", name[5][16];
    open_images(&text, 1);
    say_conv(&text, "stem", "input", 64, 7, 2);
    say(&text, "{\"op\": \"maxpool\", \"name\": \"pool\", \"kernel\": 3, \"stride\": 2, "
               "\"padding\": 1},");
    for (int stage = 0; stage < 4; stage++)
        for (int i = 0; i < blocks[stage]; i++) {
            const int width = 64 << stage, stride = stage > 0 && i == 0 ? 2 : 1;
            for (int j = 0; j < 5; j++)
                (void)snprintf(name[j], sizeof name[j], "b%d_%d_%d", stage, i, j);
            say_conv(&text, name[0], in, width, 1, 1);
            say_conv(&text, name[1], name[0], width, 3, stride);
            say_conv(&text, name[2], name[1], 4 * width, 1, 1);
            if (i == 0)
                say_conv(&text, name[3], in, 4 * width, 1, stride);
            say(&text, "{\"op\": \"add\", \"name\": \"%s\", \"inputs\": [\"%s\", \"%s\"]},",
                name[4], name[2], i == 0 ? name[3] : in);
            (void)snprintf(in, sizeof in, "%s", name[4]);
        }
    say(&text, "{\"op\": \"avgpool\", \"global\": true}, {\"op\": \"flatten\"},"
               "{\"op\": \"linear\", \"out\": 1000}]}");
    assert_true(fabs(forward_macs(&text) - 4.09e9) < 0.01e9);
}

/* Dosovitskiy et al., 2021: ViT-B/16 at 224 x 224; 17.58 G with attention's products (timm). */
static void test_vit(void **state)
{
    (void)state;
    struct text text;
    open_images(&text, 197);
    say(&text, "{\"op\": \"patch_embedding\", \"patch\": 16, \"hidden\": 768},");
    for (int block = 0; block < 12; block++)
        say(&text, "{\"op\": \"linear\", \"out\": 2304, \"out_heads\": 12},"
                   "{\"op\": \"attention\", \"heads\": 12, \"causal\": false},"
                   "{\"op\": \"linear\", \"out\": 768}, {\"op\": \"linear\", \"out\": 3072},"
                   "{\"op\": \"gelu\"}, {\"op\": \"linear\", \"out\": 768},");
    say(&text, "{\"op\": \"first_token\"}, {\"op\": \"linear\", \"out\": 1000}]}");
    assert_true(fabs(forward_macs(&text) - 17.58e9) < 0.02e9);
}

/* Chowdhery et al., PaLM, 2022, appendix B: 6 N + 12 L H Q T flops a token, N the parameters of
 * products; with multi-query attention N is less and the second term is not. */
static void test_palm(void **state)
{
    (void)state;
    const double layers = 3, hidden = 256, heads = 8, size = 64, tokens = 4 * 128, vocab = 1000;
    struct text text = {.length = 0};
    say(&text, "{\"name\": \"m\", \"global_batch\": 4, \"sequence\": 128, \"layers\": ["
               "{\"op\": \"embedding\", \"name\": \"x0\", \"vocab\": 1000, \"hidden\": 256},");
    for (int i = 0; i < 3; i++)
        say(&text,
            "{\"op\": \"linear\", \"name\": \"q%d\", \"inputs\": [\"x%d\"], \"out\": 512, "
            "\"out_heads\": 8},"
            "{\"op\": \"linear\", \"name\": \"kv%d\", \"inputs\": [\"x%d\"], \"out\": 128, "
            "\"out_heads\": 1},"
            "{\"op\": \"grouped_attention\", \"inputs\": [\"q%d\", \"kv%d\"], \"heads\": 8, "
            "\"kv_heads\": 1, \"head_dim\": 64}, {\"op\": \"linear\", \"out\": 256},"
            "{\"op\": \"linear\", \"out\": 2048, \"out_heads\": 1024}, {\"op\": \"swiglu\"},"
            "{\"op\": \"linear\", \"name\": \"x%d\", \"out\": 256},",
            i, i, i, i, i, i, i + 1);
    say(&text, "{\"op\": \"linear\", \"tied\": \"x0\"}, {\"op\": \"cross_entropy\"}]}");
    const double weights =
        layers * (hidden * heads * size * 2 + hidden * 2 * size + hidden * 1024 * 3) +
        vocab * hidden;
    must_equal("PaLM", model_flops(text.at),
               tokens * (6 * weights + 12 * layers * heads * size * 128));
}

/* A grid computes what a plain linear does; rows of a padded vocabulary are no model flops. */
#define PADDED(linears)                                                                            \
    "{\"name\": \"padded\", \"architecture\": \"llama\", \"layers\": 1, \"hidden\": 8, "           \
    "\"heads\": 2, "                                                                               \
    "\"ffn\": 16, \"sequence\": 4, \"vocab\": 100, \"vocab_multiple\": 128, \"tied\": false, "     \
    "\"global_batch\": 2, \"linears\": \"" linears "\"}"

static void test_padded_grid(void **state)
{
    (void)state;
    must_equal("padded", model_flops(PADDED("summa")), model_flops(PADDED("plain")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_conv2d),
        cmocka_unit_test(test_halo),
        cmocka_unit_test(test_free_input),
        cmocka_unit_test(test_patch_embedding),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_attention_traffic),
        cmocka_unit_test(test_context_collectives),
        cmocka_unit_test(test_moe),
        cmocka_unit_test(test_summa),
        cmocka_unit_test(test_padded_grid),
        cmocka_unit_test(test_statistics),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_pools),
        cmocka_unit_test(test_kept),
        cmocka_unit_test(test_kept_others),
        cmocka_unit_test(test_kept_attention),
        cmocka_unit_test(test_attention_scratch),
        cmocka_unit_test(test_custom),
        cmocka_unit_test(test_narayanan),
        cmocka_unit_test(test_vgg13),
        cmocka_unit_test(test_resnet50),
        cmocka_unit_test(test_vit),
        cmocka_unit_test(test_palm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
