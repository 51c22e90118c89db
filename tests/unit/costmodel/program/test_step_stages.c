/* Whole steps of several stages: what they share, what they send each other, their bubble. */
#include "costmodel/program/price.h"
#include "tests/support/step_bench.h"

/* Every stage of one device: together they do what one device does, and the messages between them
 * carry the stream there and its gradient back. */
static void test_stages_share_the_work(void **state)
{
    (void)state;
    static const char *const text =
        "{\"name\": \"g\", \"architecture\": \"gpt\", \"layers\": 8, \"hidden\": 48, \"heads\": 12,"
        "\"sequence\": 24, \"vocab\": 48, \"global_batch\": 24, \"tied\": false}";
    const struct sbp_cluster alone = flat(1), cluster = flat(4);
    struct sbp_parallel parallel = {0};
    struct bench one = {0}, four = {0};
    bench_open(&one, text, &alone, NULL);
    parallel = one.parallel;
    parallel.micro_batch = 3;
    bench_close(&one);
    one = (struct bench){0};
    bench_open(&one, text, &alone, &parallel);
    parallel.pipeline = 4;
    bench_open(&four, text, &cluster, &parallel);
    bench_run(&one);
    bench_run(&four);
    oracle_near("compute", 4 * four.step.totals.compute_s, one.step.totals.compute_s);
    oracle_near("optimizer", 4 * four.step.totals.optimizer_s, one.step.totals.optimizer_s);
    oracle_near("messages", 4 * four.step.totals.by_cause_s[SBP_CAUSE_STAGE],
                8 * 3 * 2 * (1e-5 + 3 * 24 * 48 * 4 * 1e-10));
    int64_t parameters = 0;
    for (int stage = 0; stage < 4; stage++)
        parameters += four.step.memory[stage].parameters;
    assert_int_equal(parameters, four.model.graph.parameters);
    assert_int_equal(parameters, one.step.memory[0].parameters);
    assert_int_equal(four.step.program_count, 3); /* the inner two are alike */
    /* 1F1B: stage i holds as many micro-batches as there are stages from it on. */
    for (int stage = 0; stage < 4; stage++) {
        const struct sbp_stage_memory *memory = &four.step.memory[stage];
        const struct sbp_program *program = &four.step.program[four.step.program_of[stage]];
        assert_int_equal(memory->in_flight, 4 - stage);
        assert_int_equal(memory->device_bytes, program->arena_bytes +
                                                   (memory->in_flight - 1) * program->kept_bytes +
                                                   four.cluster.reserve_bytes);
    }
    bench_close(&one);
    bench_close(&four);
}

/* A tied table stands on the first and the last stage, which add up its gradients once a step. */
static void test_tied_stages(void **state)
{
    (void)state;
    const struct sbp_cluster cluster = flat(4);
    struct sbp_parallel parallel = {0};
    struct bench b = {0};
    bench_open(&b, oracle_models[3], &cluster, NULL);
    parallel = b.parallel;
    parallel.pipeline = 2;
    parallel.micro_batch = 8;
    bench_close(&b);
    b = (struct bench){0};
    bench_open(&b, oracle_models[3], &cluster, &parallel);
    bench_run(&b);
    const int table = b.model.graph.op[0].weight[0];
    assert_int_equal(b.step.holders[table], 2);
    const double n = 48 * 48 * 4; /* within a stage, among its two replicas, and between stages */
    double tied_s = 0;
    int calls = 0;
    for (int p = 0; p < b.step.program_count; p++)
        for (int i = 0; i < b.step.program[p].instr_count; i++) {
            const struct sbp_instr *instr = &b.step.program[p].instr[i];
            if (instr->kind == SBP_INSTR_INNER && instr->tensor == table) {
                assert_int_equal(instr->section, SBP_SECTION_STEP);
                tied_s += instr->communication_s;
                calls++;
            }
        }
    assert_int_equal(calls, 2);
    oracle_near("sum between stages", tied_s, 2 * (2 * 1e-5 + n * 1e-10));
    /* The norm of all gradients is a sum over all devices of all stages. */
    oracle_near("norm and loss", 2 * b.step.totals.by_cause_s[SBP_CAUSE_SCALAR],
                2 * (6 * 1e-5 + 1.5 * 4 * 1e-10) + 3 * (2 * 1e-5 + 4 * 1e-10));
    bench_close(&b);
}

/* p stages that are alike and m micro-batches: (p - 1) / m of the work is bubble. Messages that
 * nothing hides add to what shows before they add to the bubble, and all parts make the step. */
static void test_bubble(void **state)
{
    (void)state;
    static const double betas[] = {0, 1e-10, 1e-8};
    enum { P = 4, M = 6 };
    double bubble_s = 0;
    for (int i = 0; i < 3; i++) {
        struct bench b = {0};
        struct sbp_cluster cluster = flat(P);
        cluster.level[0].alpha_s = 0;
        cluster.level[0].beta_s_per_byte = betas[i];
        struct sbp_parallel parallel = in_stages(P, 8, SBP_GPIPE);
        bench_open(&b,
                   "{\"name\": \"m\", \"global_batch\": 48, \"precision\": \"fp32\","
                   "\"input\": \"split\", \"layers\": [{\"op\": \"linear\", \"in\": 64,"
                   "\"out\": 64}, {\"op\": \"linear\", \"out\": 64}, {\"op\": \"linear\","
                   "\"out\": 64}, {\"op\": \"linear\", \"out\": 64}]}",
                   &cluster, &parallel);
        bench_run(&b);
        const struct sbp_step_totals *totals = &b.step.totals;
        bubble_s = i == 0 ? totals->bubble_s : bubble_s;
        if (i == 0)
            oracle_near("bubble", totals->bubble_s, (P - 1) * totals->compute_s / M);
        if (i == 1)
            oracle_near("the same", totals->bubble_s, bubble_s);
        if (i == 2) { /* the way through all stages is longer than what one device sends */
            oracle_near("all of it", totals->exposed_s, totals->communication_s);
            assert_true(totals->bubble_s > bubble_s);
        }
        assert_true((totals->exposed_s > 0) == (i > 0));
        oracle_near("parts", totals->step_s,
                    totals->compute_s + totals->optimizer_s + totals->exposed_s + totals->bubble_s);
        bench_close(&b);
    }
}

/* A message that blocks its stage hides behind nothing: what of a gradient's sum hides beside it is
 * booked as the gradient's, not as the message's. */
static void test_blocked_messages_show(void **state)
{
    (void)state;
    for (int block = 0; block < 2; block++) {
        struct bench b = {0};
        struct sbp_cluster cluster = flat(4);
        struct sbp_parallel parallel = in_stages(2, 8, SBP_ONE_F_ONE_B);
        parallel.gradient_overlap = 1;
        cluster.level[0].alpha_s = 0;
        cluster.level[0].beta_s_per_byte = 1e-11;
        cluster.runtime.sends_block = block;
        bench_open(&b,
                   "{\"name\": \"m\", \"global_batch\": 48, \"precision\": \"fp32\","
                   "\"input\": \"split\", \"layers\": [{\"op\": \"linear\", \"in\": 64,"
                   "\"out\": 64}, {\"op\": \"linear\", \"out\": 64}]}",
                   &cluster, &parallel);
        bench_run(&b);
        const double *const hidden_s = b.step.totals.hidden_by_cause_s;
        double sum_s = 0;
        for (int cause = 0; cause < SBP_CAUSES; cause++)
            sum_s += hidden_s[cause];
        assert_true(b.step.totals.by_cause_s[SBP_CAUSE_STAGE] > 0);
        assert_true(hidden_s[SBP_CAUSE_WEIGHT_GRADIENT] > 0);
        assert_true((hidden_s[SBP_CAUSE_STAGE] == 0) == (block == 1));
        oracle_near("hidden", sum_s, b.step.totals.hidden_s);
        bench_close(&b);
    }
}

/* Messages cross the outermost level that stages take. */
static void test_message_level(void **state)
{
    (void)state;
    struct sbp_cluster cluster = oracle_cluster(2, (int64_t[]){4, 2});
    cluster.level[0].alpha_s = 1e-4;
    cluster.level[1].alpha_s = 1e-6;
    cluster.level[0].beta_s_per_byte = 1e-9;
    cluster.level[1].beta_s_per_byte = 1e-10;
    cluster.level[0].ports = cluster.level[1].ports = 0;
    struct bench b = {0};
    struct sbp_parallel parallel = in_stages(2, 24, SBP_GPIPE);
    bench_open(&b,
               "{\"name\": \"mlp\", \"global_batch\": 48, \"precision\": \"fp32\", \"layers\": ["
               "{\"op\": \"linear\", \"in\": 64, \"out\": 64}, {\"op\": \"linear\", \"out\": 64}]}",
               &cluster, &parallel);
    bench_run(&b);
    assert_int_equal(b.stage.level[0].size, 2);
    oracle_near("message", b.step.cost[0].send_forward_s,
                1e-4 + 24 / 4 * 64 * 4 * 1e-9); /* four devices of a stage share the block */
    oracle_near("and back", b.step.cost[1].send_backward_s, b.step.cost[0].send_forward_s);
    bench_close(&b);
}

/* Chunks: pieces i and i + stages on one device. */
static void test_interleaved(void **state)
{
    (void)state;
    struct bench b = {0};
    const struct sbp_cluster cluster = flat(2);
    struct sbp_parallel parallel = in_stages(2, 3, SBP_INTERLEAVED);
    parallel.chunks = 2;
    bench_open(&b,
               "{\"name\": \"g\", \"architecture\": \"gpt\", \"layers\": 8, \"hidden\": 48,"
               "\"heads\": 12, \"sequence\": 24, \"vocab\": 48, \"global_batch\": 24,"
               "\"tied\": false, \"clip_norm\": 1}",
               &cluster, &parallel);
    bench_run(&b);
    assert_int_equal(b.step.pieces, 4);
    /* One sum of the norm, whatever the chunks. */
    oracle_near("norm", 2 * b.step.totals.by_cause_s[SBP_CAUSE_SCALAR], 2 * (2 * 1e-5 + 4 * 1e-10));
    assert_int_equal(b.step.memory[0].parameters + b.step.memory[1].parameters,
                     b.model.graph.parameters);
    /* Narayanan et al., 2021: a device warms up with 2 (p - i - 1) + (v - 1) p forward passes. */
    assert_int_equal(b.step.memory[0].in_flight, 2 * 1 + 2 + 1);
    assert_int_equal(b.step.memory[1].in_flight, 2 + 1);
    bench_close(&b);
}

/* 96 layers on 64 stages: four different programs, whatever the number of stages. */
static void test_large_pipeline(void **state)
{
    (void)state;
    struct bench b = {0};
    const struct sbp_cluster cluster = oracle_cluster(2, (int64_t[]){64, 8});
    struct sbp_parallel parallel = in_stages(64, 8, SBP_ONE_F_ONE_B);
    bench_open(&b,
               "{\"name\": \"gpt3\", \"architecture\": \"gpt\", \"layers\": 96, \"hidden\": 12288,"
               "\"heads\": 96, \"sequence\": 2048, \"vocab\": 51200, \"global_batch\": 1536,"
               "\"precision\": \"mixed\"}",
               &cluster, &parallel);
    bench_run(&b);
    assert_int_equal(b.step.program_count, 4);
    assert_int_equal(b.step.timeline.devices, 64);
    assert_true(b.step.totals.step_s > 0 && b.step.totals.bubble_s > 0);
    bench_close(&b);
}

/* A group of three devices of a stage on 4 x 2 x 3 devices, where stages take whole outer levels
 * first: alone, with its likes in all stages, with those of a stage on the other outermost part. */
static void test_stage_groups(void **state)
{
    (void)state;
    static const struct {
        int64_t pipeline, stage[3];
        int stages; /* that are in the group */
        double members[3];
    } rows[] = {
        {2, {2, 2, 3}, 1, {1, 1, 3}}, {2, {2, 2, 3}, 2, {2, 1, 3}}, {4, {1, 2, 3}, 4, {4, 1, 3}},
        {4, {1, 2, 3}, 2, {2, 1, 3}}, {8, {1, 1, 3}, 8, {4, 2, 3}}, {8, {1, 1, 3}, 2, {2, 1, 3}},
    };
    const struct sbp_cluster whole = oracle_cluster(3, (int64_t[]){4, 2, 3});
    struct sbp_group own = sbp_collective_group_one();
    own.members[2] = 3;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct sbp_cluster stage = oracle_cluster(3, rows[i].stage);
        const struct sbp_group group =
            sbp_price_stage_group(&whole, &stage, rows[i].pipeline, rows[i].stages, own);
        for (int level = 0; level < 3; level++)
            oracle_near("members", group.members[level], rows[i].members[level]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stages_share_the_work),
        cmocka_unit_test(test_tied_stages),
        cmocka_unit_test(test_stage_groups),
        cmocka_unit_test(test_message_level),
        cmocka_unit_test(test_bubble),
        cmocka_unit_test(test_blocked_messages_show),
        cmocka_unit_test(test_interleaved),
        cmocka_unit_test(test_large_pipeline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
