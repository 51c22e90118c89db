/* Attention's arithmetic, traffic and kept bytes on a device: against scores counted one by one,
 * formulas of the literature and what autograd keeps.
 */
#include "tests/support/op_bench.h"
#include "tests/support/unit.h"

/* --- attention --- */

struct attention {
    enum sbp_op_kind kind;
    int64_t batch, sequence, heads, kv_heads, qk, value, rope;
    bool causal, flash;
    int64_t window; /* in a quarter of the layers; 0: in none */
};

#define WINDOWED 0.25

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
    bench->node.attention.window = a->window;
    bench->node.attention.windowed = a->window > 0 ? WINDOWED : 0;
    bench->node.attention.kind = a->flash ? SBP_ATTENTION_FLASH : SBP_ATTENTION_MATERIALISED;
    bench->node.attention.qk_size = a->qk;
    bench->node.attention.value_size = a->value;
}

/* Scores that each of `ways` ranks forms, which have a piece from the front and one from the back,
 * where a query sees so many keys at most. */
static double scores_within(const struct attention *a, int64_t ways, int64_t window)
{
    double formed = 0;
    for (int64_t query = 0; query < a->sequence; query++)
        for (int64_t key = 0; key < a->sequence; key++)
            formed += !a->causal || (key <= query && key > query - window);
    return formed * (double)(a->batch * a->heads) / (double)ways;
}

static double scores_formed(const struct attention *a, int64_t ways)
{
    const double all = scores_within(a, ways, a->sequence);
    if (a->window == 0)
        return all;
    return WINDOWED * scores_within(a, ways, a->window) + (1 - WINDOWED) * all;
}

static const struct attention ATTENTIONS[] = {
    {SBP_OP_ATTENTION, 4, 24, 6, 6, 8, 8, 0, true, true, 0},
    {SBP_OP_ATTENTION, 4, 24, 6, 6, 8, 8, 0, false, false, 0},
    {SBP_OP_ATTENTION, 1, 1, 1, 1, 1, 1, 0, true, false, 0},
    {SBP_OP_GROUPED_ATTENTION, 4, 24, 12, 3, 8, 8, 0, true, true, 0},
    {SBP_OP_GROUPED_ATTENTION, 4, 24, 12, 1, 8, 8, 0, true, false, 0}, /* multi-query */
    {SBP_OP_LATENT_ATTENTION, 4, 24, 6, 6, 12, 8, 4, true, true, 0},   /* sizes differ */
    {SBP_OP_LATENT_ATTENTION, 4, 24, 6, 6, 12, 8, 4, false, false, 0},
    {SBP_OP_GROUPED_ATTENTION, 4, 24, 12, 3, 8, 8, 0, true, true, 1},   /* windows: itself alone, */
    {SBP_OP_GROUPED_ATTENTION, 4, 24, 12, 3, 8, 8, 0, true, true, 7},   /* some of a rank's keys, */
    {SBP_OP_GROUPED_ATTENTION, 4, 24, 12, 3, 8, 8, 0, true, true, 21},  /* a last rank's start, */
    {SBP_OP_GROUPED_ATTENTION, 4, 24, 12, 3, 8, 8, 0, true, false, 99}, /* everything */
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
            must_equal("no weights", sbp_op_work_flops(&weights), 0);
            must_equal("model", forward.model_flops, (qk + value) * scores);
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

/* --- what is kept --- */

/* Korthikanti et al., 2022, section 4.1, bytes at two an element: attention keeps 2 x 3 s b h of
 * queries, keys and values and 5 a s^2 b of scores: 2 probabilities, 1 mask, 2 what it left. */
static void test_kept_attention(void **state)
{
    (void)state;
    const struct attention a = {SBP_OP_ATTENTION, 4, 24, 6, 6, 8, 8, 0, true, false, 0};
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
    must_equal("flash", kept.statistics, 6 * 24 * 4);
    assert_true(kept.output);
    /* Keys and values of others are gathered again, not kept. */
    make_attention(&bench, &ATTENTIONS[5]);
    kept = kept_of(&bench, WAYS({"context", 4}));
    assert_int_equal(kept.inputs, 7);
    must_equal("context", kept.statistics, 4 * 24 * 6 / 4.0);
}

/* Scratch of attention: tiles of scores; what context axes gather, and the same in order, backward
 * as gradients; or a block here and one on its way, and gradients of as many backward.
 * Probabilities that are kept have a log-sum-exp a row, of up to 8 bytes for 4, while blocks go
 * round. */
static void test_attention_scratch(void **state)
{
    (void)state;
    struct bench bench;
    make_attention(&bench, &ATTENTIONS[4]);
    const struct sbp_factor whole = sbp_op_factor_one();
    const double tile = sbp_op_scratch_elements(&bench.graph, 0, &whole, SBP_PASS_FORWARD);
    must_equal("a tile of rows of all keys", tile, 24 * 24 + 24);
    const struct sbp_factor split = factor_of(&bench, WAYS({"context", 4}));
    const double keys = 4 * 24 * 1 * 16;
    must_equal("gathered", sbp_op_scratch_elements(&bench.graph, 0, &split, SBP_PASS_FORWARD),
               tile + 2 * keys);
    must_equal("gathered",
               sbp_op_scratch_elements(&bench.graph, 0, &split, SBP_PASS_INPUT_GRADIENT),
               tile + 2 * keys);
    bench.node.attention.ring = true;
    const double sums = 2 * 4 * 24 * 12 / 4.0;
    must_equal("ring", sbp_op_scratch_elements(&bench.graph, 0, &split, SBP_PASS_FORWARD),
               tile + 2 * keys / 4 + sums);
    must_equal("ring", sbp_op_scratch_elements(&bench.graph, 0, &split, SBP_PASS_INPUT_GRADIENT),
               tile + 4 * keys / 4);
    must_equal("no ring", sbp_op_scratch_elements(&bench.graph, 0, &whole, SBP_PASS_FORWARD), tile);
    bench.node.attention.kind = SBP_ATTENTION_FLASH;
    must_equal("ring, flash", sbp_op_scratch_elements(&bench.graph, 0, &split, SBP_PASS_FORWARD),
               2 * 24 * 24 + 2 * 24 + 2 * keys / 4);
    /* Latent: a head's keys; backward their gradient and sums of 8 bytes for 4 of the shared part.
     */
    make_attention(&bench, &ATTENTIONS[6]);
    must_equal("keys", sbp_op_scratch_elements(&bench.graph, 0, &whole, SBP_PASS_FORWARD),
               tile + 24 * 12);
    must_equal("gradients",
               sbp_op_scratch_elements(&bench.graph, 0, &whole, SBP_PASS_INPUT_GRADIENT),
               tile + 2 * 24 * 12 + 2 * 24 * 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention),           cmocka_unit_test(test_attention_traffic),
        cmocka_unit_test(test_context_collectives), cmocka_unit_test(test_kept_attention),
        cmocka_unit_test(test_attention_scratch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
