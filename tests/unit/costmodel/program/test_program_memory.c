/* Other ways to keep or gather tensors in a step: types of computing, inputs boxed again,
 * blocks recomputed except for outputs of products, weights gathered by the block. */
#include <stdio.h>
#include <string.h>

#include "costmodel/program/parallel.h"
#include "tests/support/program_oracle.h"
#include "tests/support/unit.h"

#define GPT                                                                                        \
    "{\"name\": \"gpt\", \"architecture\": \"gpt\", \"layers\": 3, \"hidden\": 64, \"heads\": 4,"  \
    "\"sequence\": 32, \"vocab\": 128, \"global_batch\": 8, \"bias\": false, \"attention\": "      \
    "\"flash\", \"precision\": %s}"
enum { BLOCKS = 3, HIDDEN = 64, HEADS = 4, TOKENS = 32 * 8, DEVICES = 4 };

static struct sbp_cluster flat(int64_t devices)
{
    struct sbp_cluster cluster = {.level_count = 1, .memory_bytes = INT64_C(1) << 40};
    cluster.level[0] = (struct sbp_level){
        .name = "device", .size = devices, .alpha_s = 1e-5, .beta_s_per_byte = 1e-10};
    cluster.flops[SBP_FP32] = 1e13;
    cluster.memory_bytes_per_s = 1e12;
    return cluster;
}

/* A setting of the model, data-parallel: every operator's first role, every output split by it. */
static void open_data_parallel(struct oracle_setting *s, const char *format, const char *precision)
{
    char text[512];
    const struct sbp_cluster cluster = flat(DEVICES);
    (void)snprintf(text, sizeof text, format, precision);
    *s = (struct oracle_setting){0};
    oracle_model_read(&s->model, text);
    oracle_set_cluster(s, &cluster);
    for (int t = 0; t < s->model.graph.tensor_count; t++)
        if (s->model.graph.tensor[t].kind == SBP_ACTIVATION)
            s->strategy.rest[t] = sbp_dist_all(SBP_STATE_S(SBP_DIM_BATCH));
}

/* Operators before `end_op`; 0: all. */
static void compile_to(struct oracle_setting *s, const struct sbp_parallel *parallel, int end_op)
{
    struct sbp_diag diag = {{0}};
    const struct sbp_graph *graph = &s->model.graph;
    const struct sbp_element_bytes bytes = sbp_program_element_bytes(&graph->precision);
    struct sbp_scope scope = sbp_program_scope_whole(graph);
    scope.parallel = parallel;
    scope.end_op = end_op > 0 ? end_op : scope.end_op;
    sbp_program_free(&s->program);
    if (sbp_strategy_close(graph, &s->mesh, &s->strategy, &diag) != SBP_OK ||
        sbp_program_make_scope(graph, &s->cluster, &s->mesh, &s->strategy, &bytes, &scope,
                               &s->program, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
}

static void compile(struct oracle_setting *s, const struct sbp_parallel *parallel)
{
    compile_to(s, parallel, 0);
}

static int count_instrs(const struct sbp_program *program, enum sbp_instr_kind kind,
                        enum sbp_section section)
{
    int count = 0;
    for (int i = 0; i < program->instr_count; i++)
        count += program->instr[i].kind == kind && program->instr[i].section == section;
    return count;
}

static int64_t bytes_of_use(const struct sbp_program *program, enum sbp_buffer_use use)
{
    int64_t bytes = 0;
    for (int i = 0; i < program->buffer_count; i++)
        if (program->buffer[i].use == use)
            bytes += sbp_program_buffer_bytes(program, i);
    return bytes;
}

/* FSDP's mixed precision: states of 16 bytes a parameter in shards, whole copies and gradients of
 * 2, gathered in those 2; each weight of a block once forward and once backward. */
static void test_compute_type(void **state)
{
    (void)state;
    static const char *const TYPES[] = {
        "\"fp32\"", "{\"param\": \"fp32\", \"compute\": \"bf16\", \"activation\": \"bf16\"}"};
    const int64_t wide[] = {4, 2};
    for (int i = 0; i < 2; i++) {
        struct oracle_setting s;
        open_data_parallel(&s, GPT, TYPES[i]);
        struct sbp_parallel parallel = sbp_parallel_default(&s.model.graph);
        parallel.zero = 3;
        compile(&s, &parallel);
        const struct sbp_totals totals = sbp_program_totals(&s.program, &s.cluster);
        assert_int_equal(totals.weight_bytes + totals.gradient_bytes + totals.moment_bytes,
                         16 * s.model.graph.parameters / DEVICES);
        assert_int_equal(bytes_of_use(&s.program, SBP_USE_UNREDUCED),
                         wide[i] * s.model.graph.parameters);
        double gathered = 0;
        for (int at = 0; at < s.program.instr_count; at++)
            if (s.program.instr[at].kind == SBP_INSTR_GATHER)
                gathered += sbp_price_call_bytes(&s.program, &s.program.instr[at]);
        oracle_near("gathered", gathered, (double)bytes_of_use(&s.program, SBP_USE_GATHERED));
        assert_int_equal(count_instrs(&s.program, SBP_INSTR_CONVERT, SBP_SECTION_FORWARD), 0);
        /* Whole weights are converted where they are read. */
        parallel.zero = 0;
        compile(&s, &parallel);
        assert_int_equal(count_instrs(&s.program, SBP_INSTR_GATHER, SBP_SECTION_FORWARD), 0);
        const int converted = count_instrs(&s.program, SBP_INSTR_CONVERT, SBP_SECTION_FORWARD);
        assert_int_equal(converted > 0, i == 1);
        oracle_drop(&s);
    }
}

/* Megatron's sequence parallelism: a column's input is gathered out of its split by sequence.
 * Kept gathered, or kept split and gathered once more. */
static void test_regather(void **state)
{
    (void)state;
    struct oracle_setting s = {0};
    const struct sbp_cluster cluster = flat(DEVICES);
    oracle_model_read(&s.model,
                      "{\"name\": \"mlp\", \"global_batch\": 8, \"sequence\": 32, \"precision\": "
                      "\"fp32\", \"input\": \"split\", \"features\": 64, \"layers\": [{\"op\": "
                      "\"layernorm\"}, {\"op\": \"linear\", \"out\": 256}, {\"op\": \"gelu\"}, "
                      "{\"op\": \"linear\", \"out\": 64}]}");
    oracle_set_cluster(&s, &cluster);
    struct sbp_graph *graph = &s.model.graph;
    const struct sbp_dist sequence = sbp_dist_all(SBP_STATE_S(SBP_DIM_SEQUENCE));
    const struct sbp_dist features = sbp_dist_all(SBP_STATE_S(SBP_DIM_FEATURE));
    s.strategy.rest[graph->input] = s.strategy.rest[graph->op[0].output] = sequence;
    s.strategy.rest[graph->op[1].output] = s.strategy.rest[graph->op[2].output] = features;
    s.strategy.rest[graph->op[3].output] = sequence;
    for (int axis = 0; axis < s.mesh.axis_count; axis++) {
        s.strategy.op[1].role[axis] = (uint8_t)sbp_op_role(graph->op[1].entry, "column");
        s.strategy.op[3].role[axis] = (uint8_t)sbp_op_role(graph->op[3].entry, "row");
    }
    struct sbp_parallel parallel = sbp_parallel_default(graph);
    compile(&s, &parallel);
    const int64_t kept = s.program.kept_bytes;
    const double moved = sbp_program_totals(&s.program, &s.cluster).communication_bytes;
    assert_int_equal(count_instrs(&s.program, SBP_INSTR_BOX, SBP_SECTION_RECOMPUTE), 0);
    parallel.regather = true;
    compile(&s, &parallel);
    const int64_t whole = 8 * 32 * 64 * 4;
    assert_int_equal(kept - s.program.kept_bytes, whole - whole / DEVICES);
    assert_int_equal(count_instrs(&s.program, SBP_INSTR_BOX, SBP_SECTION_RECOMPUTE), 1);
    oracle_near("gathered again",
                sbp_program_totals(&s.program, &s.cluster).communication_bytes - moved,
                (double)whole * (DEVICES - 1) / DEVICES);
    oracle_drop(&s);
}

/* Bytes kept of a block of hidden size h: its input under full recompute; besides, under selective,
 * what attention left (h and a log-sum-exp a head) and half of its products' 3 h + h + 4 h + h. */
static void test_selective(void **state)
{
    (void)state;
    struct oracle_setting s;
    open_data_parallel(&s, GPT, "\"fp32\"");
    struct sbp_parallel parallel = sbp_parallel_default(&s.model.graph);
    parallel.recompute = SBP_RECOMPUTE_FULL;
    compile(&s, &parallel);
    const int64_t full = s.program.kept_bytes;
    const int again = count_instrs(&s.program, SBP_INSTR_FORWARD, SBP_SECTION_RECOMPUTE);
    parallel.recompute = SBP_RECOMPUTE_SELECTIVE;
    compile(&s, &parallel);
    const double a_token = HIDDEN + HEADS + 9 * HIDDEN / 2.0;
    oracle_near("kept", (double)(s.program.kept_bytes - full),
                BLOCKS * a_token * 4 * TOKENS / DEVICES);
    assert_int_equal(count_instrs(&s.program, SBP_INSTR_FORWARD, SBP_SECTION_RECOMPUTE),
                     again - BLOCKS); /* attention */
    oracle_drop(&s);
}

/* Half of a product's output is there already. */
static void test_selective_price(void **state)
{
    (void)state;
    struct oracle_setting s;
    open_data_parallel(&s, GPT, "\"fp32\"");
    struct sbp_parallel parallel = sbp_parallel_default(&s.model.graph);
    parallel.recompute = SBP_RECOMPUTE_SELECTIVE;
    compile(&s, &parallel);
    int products = 0;
    for (int at = 0; at < s.program.instr_count; at++) {
        const struct sbp_instr *again = &s.program.instr[at];
        if (again->kind != SBP_INSTR_FORWARD || again->section != SBP_SECTION_RECOMPUTE)
            continue;
        const bool product = s.model.graph.op[again->op].kind == SBP_OP_LINEAR;
        for (int i = 0; i < at; i++) {
            const struct sbp_instr *first = &s.program.instr[i];
            if (first->kind == SBP_INSTR_FORWARD && first->section == SBP_SECTION_FORWARD &&
                first->op == again->op && first->phase == again->phase)
                oracle_near("price", again->compute_s, first->compute_s / (product ? 2 : 1));
        }
        products += product;
    }
    assert_int_equal(products, BLOCKS * 3); /* the last one's output is the next block's input */
    oracle_drop(&s);
}

/* The whole copies of a block come and go together; gradients stay until the last one is summed. */
static void test_gather_blocks(void **state)
{
    (void)state;
    struct oracle_setting s;
    open_data_parallel(&s, GPT, "\"fp32\"");
    struct sbp_parallel parallel = sbp_parallel_default(&s.model.graph);
    parallel.zero = 3;
    compile(&s, &parallel);
    const int by_operator = count_instrs(&s.program, SBP_INSTR_GATHER, SBP_SECTION_FORWARD);
    parallel.gather_blocks = true;
    compile(&s, &parallel);
    const struct sbp_program *program = &s.program;
    assert_int_equal(count_instrs(program, SBP_INSTR_GATHER, SBP_SECTION_FORWARD), by_operator);
    assert_int_equal(program->groups, 2 * BLOCKS);
    for (int group = 1; group <= program->groups; group++) {
        int64_t copies = 0, gradients = 0;
        int last = -1, first = program->instr_count;
        for (int i = 0; i < program->buffer_count; i++) {
            const struct sbp_buffer *buffer = &program->buffer[i];
            if (buffer->group != group)
                continue;
            assert_true(last < 0 || buffer->last == last);
            last = buffer->last;
            first = buffer->first < first ? buffer->first : first;
            if (buffer->use == SBP_USE_GATHERED)
                copies += buffer->elements;
            else
                gradients += buffer->elements;
        }
        /* 12 h^2 and two norms of 2 h */
        assert_int_equal(copies, 12 * HIDDEN * HIDDEN + 4 * HIDDEN);
        assert_true(gradients == 0 || gradients == copies);
        assert_int_equal(program->instr[first].kind, SBP_INSTR_GATHER);
        if (gradients > 0)
            assert_int_equal(program->instr[last].kind, SBP_INSTR_SCATTER);
    }
    oracle_drop(&s);
}

/* The activation that leaves a stage stays until its gradient comes. */
static void test_keep_sent(void **state)
{
    (void)state;
    struct oracle_setting s;
    open_data_parallel(&s, GPT, "\"fp32\"");
    struct sbp_parallel parallel = sbp_parallel_default(&s.model.graph);
    int end_op = 0; /* of the first block */
    for (int op = 1; op < s.model.graph.op_count && end_op == 0; op++)
        if (strncmp(s.model.graph.op[op].name, "block1.", 7) == 0)
            end_op = op;
    assert_true(end_op > 1);
    parallel.recompute = SBP_RECOMPUTE_FULL;
    compile_to(&s, &parallel, end_op);
    const int64_t kept = s.program.kept_bytes;
    parallel.keep_sent = true;
    compile_to(&s, &parallel, end_op);
    assert_int_equal(s.program.kept_bytes - kept, HIDDEN * TOKENS * 4 / DEVICES);
    oracle_drop(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compute_type),  cmocka_unit_test(test_regather),
        cmocka_unit_test(test_selective),     cmocka_unit_test(test_selective_price),
        cmocka_unit_test(test_gather_blocks), cmocka_unit_test(test_keep_sent)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
