/* Arithmetic of operators on a device, against counting in nested loops on small sizes and the
 * volumes that the literature gives for collectives inside operators.
 */
#include <math.h>

#include "base/math/random.h"
#include "costmodel/model/halo.h"
#include "tests/support/op_bench.h"
#include "tests/support/seeded.h"
#include "tests/support/unit.h"

#define SEED UINT64_C(60417)

/* --- products: the whole is shared out, or repeated, exactly --- */

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

enum { MOST_WAYS = 8 };

/* Input rows that each rank's windows read and that others hold, one by one: of each other rank,
 * and before the first of these; the most that a rank misses, or sends; the most that a rank misses
 * of the one so many places before it, all ranks in a circle. */
struct missing {
    int64_t of[MOST_WAYS][MOST_WAYS], before[MOST_WAYS][MOST_WAYS];
    int64_t rows, sent, step[MOST_WAYS];
};

static bool is_read(const struct conv *c, int64_t rank, int64_t ways, int64_t row)
{
    const int64_t out = windows(c->height, c) / ways;
    bool read = false;
    for (int64_t o = rank * out; o < (rank + 1) * out; o++)
        read |= row >= o * c->stride - c->padding && row < o * c->stride - c->padding + c->kernel;
    return read;
}

static struct missing missing_rows(const struct conv *c, int64_t ways)
{
    const int64_t own = c->height / ways;
    struct missing m = {0};
    for (int64_t rank = 0; rank < ways; rank++)
        for (int64_t row = 0, found = 0; row < c->height; row++) {
            const int64_t other = row / own;
            if (other == rank || !is_read(c, rank, ways, row))
                continue;
            if (m.of[rank][other]++ == 0)
                m.before[rank][other] = found;
            found++;
        }
    for (int64_t rank = 0; rank < ways; rank++) {
        int64_t misses = 0, sends = 0;
        for (int64_t shift = 1; shift < ways; shift++) {
            const int64_t rows = m.of[rank][(rank + ways - shift) % ways];
            misses += rows;
            sends += m.of[(rank + shift) % ways][rank];
            m.step[shift] = rows > m.step[shift] ? rows : m.step[shift];
        }
        m.rows = misses > m.rows ? misses : m.rows;
        m.sent = sends > m.sent ? sends : m.sent;
    }
    return m;
}

/* What each rank fetches of which other, and where that lies among all. */
static void must_fetch(const struct bench *bench, const struct missing *m, int64_t ways)
{
    const struct sbp_halo halo = sbp_halo_of(&bench->graph, &bench->node, (double)ways);
    must_equal("halo's rows", halo.total, (double)m->rows);
    for (int64_t shift = 1; shift < ways; shift++) {
        must_equal("a step", sbp_halo_message(&halo, (double)shift), (double)m->step[shift]);
        for (int64_t rank = 0; rank < ways; rank++) {
            const int64_t other = (rank + ways - shift) % ways;
            must_equal("fetched", sbp_halo_fetched(&halo, (double)rank, (double)shift),
                       (double)m->of[rank][other]);
            if (m->of[rank][other] > 0)
                must_equal("their place", sbp_halo_place(&halo, (double)rank, (double)shift),
                           (double)m->before[rank][other]);
        }
    }
}

/* Rows of all steps and of the largest one, and how many steps have any. */
struct steps {
    double rows, most, count;
};

static struct steps steps_of(const struct missing *missing, int64_t ways)
{
    struct steps steps = {0};
    for (int64_t shift = 1; shift < ways; shift++) {
        steps.rows += (double)missing->step[shift];
        steps.count += missing->step[shift] > 0;
        steps.most = fmax(steps.most, (double)missing->step[shift]);
    }
    return steps;
}

/* dX's rows go back the way that X's came; dW reads X's, which are kept. */
static void must_exchange(const struct bench *bench, const struct sbp_factor *factor,
                          const struct steps *steps, double row)
{
    struct sbp_op_inner inner[SBP_MAX_INNER];
    const int count = sbp_op_inner(&bench->graph, 0, factor, inner);
    double elements[SBP_PASSES] = {0}, messages[SBP_PASSES] = {0};
    for (int i = 0; i < count; i++) {
        assert_int_equal(inner[i].kind, SBP_SEND_RECV);
        assert_int_equal(inner[i].roles, 1u << sbp_op_role(bench->node.entry, "height"));
        elements[inner[i].pass] += inner[i].count * inner[i].elements;
        messages[inner[i].pass] += inner[i].count;
    }
    for (int pass = 0; pass < SBP_PASSES; pass++) {
        const bool moves = pass != SBP_PASS_WEIGHT_GRADIENT;
        must_equal("halo", elements[pass], moves ? steps->rows * row : 0);
        must_equal("messages", messages[pass], moves ? steps->count : 0);
    }
}

/* Steps take as long as the rank that sends or misses most would by itself, where each has as large
 * a share of the windows as of the rows. */
static void must_have_halo(const struct conv *c, int64_t ways)
{
    struct bench bench;
    const struct missing missing = missing_rows(c, ways);
    const struct steps steps = steps_of(&missing, ways);
    const double row = (double)(c->batch * c->in * c->width), kept = (double)missing.rows;
    make_conv(&bench, c);
    must_fetch(&bench, &missing, ways);
    const struct ways *height = WAYS({"height", (double)ways});
    const struct sbp_factor factor = factor_of(&bench, height);
    assert_true(steps.rows >= kept && steps.rows >= (double)missing.sent);
    if (windows(c->height, c) * c->stride == c->height)
        must_equal("rows of the busiest", steps.rows, kept);
    must_exchange(&bench, &factor, &steps, row);
    must_equal("kept halo", kept_of(&bench, height).elements, kept * row);
    assert_int_equal(kept_of(&bench, height).inputs, 1);
    /* A message is packed, or comes to be added, and gradients are formed before they go. */
    const double scratch[SBP_PASSES] = {steps.most, kept + steps.most, 0};
    for (int pass = 0; pass < SBP_PASSES; pass++)
        must_equal("halo's scratch",
                   sbp_op_scratch_elements(&bench.graph, 0, &factor, (enum sbp_pass)pass),
                   scratch[pass] * row);
}

/* The search asks for shares of rows that are not whole, of which no message is roundoff: an edge
 * moves by parts of a row as large as one over the members. */
static void test_halo_of_parts_of_rows(void **state)
{
    int found = 0;
    (void)state;
    for (int64_t height = 1; height <= 24; height++)
        for (int64_t padding = 0; padding <= 12; padding++)
            for (double ways = 2; ways <= 12; ways++) {
                const struct conv c = {1, height, 3, 2, 2, 2 * padding + 1, 1, padding};
                struct bench bench;
                struct sbp_op_inner inner[SBP_MAX_INNER];
                if (height <= padding)
                    continue;
                make_conv(&bench, &c);
                const struct sbp_factor factor = factor_of(&bench, WAYS({"height", ways}));
                const int count = sbp_op_inner(&bench.graph, 0, &factor, inner);
                assert_true(count <= 6);
                for (int i = 0; i < count; i++)
                    assert_true(inner[i].elements > 0.5 / ways);
                found += count;
            }
    assert_true(found > 1000);
}

static double messages_of(const struct conv *c, int64_t ways)
{
    struct bench bench;
    struct sbp_op_inner inner[SBP_MAX_INNER];
    double messages = 0;
    make_conv(&bench, c);
    const struct sbp_factor factor = factor_of(&bench, WAYS({"height", (double)ways}));
    const int count = sbp_op_inner(&bench.graph, 0, &factor, inner);
    for (int i = 0; i < count; i++)
        messages += inner[i].pass == SBP_PASS_FORWARD ? inner[i].count : 0;
    return messages;
}

static void test_halo(void **state)
{
    (void)state;
    int cases = 0;
    struct sbp_random random = seeded(SEED);
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
    /* VGG's: a row from each neighbour; of two ranks, each has one neighbour, and both messages go
     * at the same time. */
    const struct conv vgg = {1, 224, 9, 3, 2, 3, 1, 1};
    assert_int_equal(missing_rows(&vgg, 4).rows, 2);
    assert_int_equal(missing_rows(&vgg, 2).rows, 1);
    assert_true(messages_of(&vgg, 4) == 2 && messages_of(&vgg, 2) == 1);
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
    assert_true(messages_of(&wide, 8) == 6);
    must_have_halo(&wide, 8);
    /* Windows that drift away from their rank's rows: the middle one sends 4 rows each way. */
    const struct conv drifting = {1, 36, 9, 3, 2, 7, 1, 0};
    assert_int_equal(missing_rows(&drifting, 3).rows, 4);
    assert_int_equal(missing_rows(&drifting, 3).sent, 8);
    must_have_halo(&drifting, 3);
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
    assert_int_equal(count, 2); /* of two messages each */
    assert_true(inner[0].count == 2 && inner[1].count == 2);
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
    must_equal("images have no gradient", sbp_op_work_flops(&input), 0);
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
            const double sorted = ep > 1 ? 4 * sent * h : 0; /* by expert, and by sender again */
            must_equal("forward", work.elements,
                       2 * (t * h + sent * h) + sent * f * (g + 1) + sorted);
            must_equal("rows", work.row_elements, 2 * (t * h + sent * h) + sorted);
            must_equal("a row", work.row, h);
            work = work_of(&bench, SBP_PASS_INPUT_GRADIENT, expert);
            must_be_product("d first", &work, 1, own, received, h, f * g);
            /* The same and the experts' outputs for the router; f and g f in, g f out. */
            must_equal("backward", work.elements,
                       2 * (t * h + sent * h) + sent * h + sent * f * (2 * g + 1) + sorted);
            must_equal("rows back", work.row_elements, 2 * (t * h + sent * h) + sent * h + sorted);
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
                                   {"apart", {{"expert", 2}, {"expert_sequence", 2}}, 1},
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear),     cmocka_unit_test(test_conv2d),
        cmocka_unit_test(test_halo),       cmocka_unit_test(test_halo_of_parts_of_rows),
        cmocka_unit_test(test_free_input), cmocka_unit_test(test_patch_embedding),
        cmocka_unit_test(test_moe),        cmocka_unit_test(test_summa),
        cmocka_unit_test(test_custom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
