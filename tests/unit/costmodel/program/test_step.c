/* Whole steps: one stage is the program itself; ZeRO, recompute and offload against the formulas of
 * the papers.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/step_bench.h"
#include "tests/support/seeded.h"
#include "tests/support/unit.h"

#define SEED UINT64_C(4233)

/* --- one stage, one micro-batch --- */

static void test_plain_step(void **state)
{
    (void)state;
    struct sbp_random random = seeded(SEED);
    int checked = 0;
    for (int round = 0; round < 200; round++) {
        struct bench b = {0};
        struct sbp_diag diag = {{0}};
        struct sbp_cluster cluster =
            oracle_cluster(3, oracle_meshes[oracle_below(&random, ORACLE_MESHES)]);
        const int model = (int)oracle_below(&random, ORACLE_MODELS + ORACLE_WIDE_MODELS);
        cluster.reserve_bytes = 1000;
        bench_open(&b,
                   model < ORACLE_MODELS ? oracle_models[model]
                                         : oracle_wide_models[model - ORACLE_MODELS],
                   &cluster, NULL);
        (round % 2 == 0 ? oracle_draw : oracle_draw_wide)(&random, &b.model.graph, &b.mesh,
                                                          &b.strategy);
        if (sbp_strategy_close(&b.model.graph, &b.mesh, &b.strategy, &diag) == SBP_OK) {
            struct sbp_program program;
            bench_run(&b);
            assert_int_equal(sbp_program_make(&b.model.graph, &cluster, &b.mesh, &b.strategy,
                                              &b.bytes, &program, &diag),
                             SBP_OK);
            const struct sbp_totals plain = sbp_program_totals(&program, &cluster);
            const struct sbp_step_totals *totals = &b.step.totals;
            oracle_near("step", totals->step_s, plain.step_s);
            oracle_near("compute", totals->compute_s + totals->optimizer_s, plain.compute_s);
            oracle_near("communication", totals->communication_s, plain.communication_s);
            if (fabs(totals->exposed_s - plain.communication_s) > 1e-11 * plain.step_s)
                fail_msg("exposed %.17g of %.17g", totals->exposed_s, plain.communication_s);
            oracle_near("bytes", totals->communication_bytes, plain.communication_bytes);
            assert_int_equal(totals->device_bytes, plain.device_bytes);
            assert_true(totals->bubble_s == 0);
            assert_int_equal(b.step.program_count, 1);
            assert_int_equal(b.step.memory[0].in_flight, 1);
            sbp_program_free(&program);
            checked++;
        }
        bench_close(&b);
    }
    assert_true(checked > 80);
}

/* Gradient accumulation: the passes as often as there are micro-batches, the end once. */
static void test_accumulation(void **state)
{
    (void)state;
    const char *text = oracle_models[4];
    const struct sbp_cluster cluster = flat(4);
    struct bench b = {0}, one = {0};
    struct sbp_parallel parallel = {0};
    bench_open(&one, text, &cluster, NULL);
    parallel = one.parallel;
    parallel.micro_batch = 4;
    bench_open(&b, text, &cluster, &parallel);
    bench_run(&b);
    bench_run(&one);
    const struct sbp_stage_cost *cost = &b.step.cost[0];
    const struct sbp_stage_end *end = &b.step.end[0];
    oracle_near("step", b.step.totals.step_s,
                6 * (cost->forward_s + cost->backward_input_s + cost->backward_weight_s) +
                    end->sync_s + end->optimizer_s);
    oracle_near("synchronised once", end->sync_s, one.step.end[0].sync_s);
    oracle_near("updated once", end->optimizer_s, one.step.end[0].optimizer_s);
    assert_true(b.step.totals.device_bytes < one.step.totals.device_bytes);
    bench_close(&b);
    bench_close(&one);
}

/* A share f of gradient communication hides behind the backward pass, as long as that is. */
static void test_overlap(void **state)
{
    (void)state;
    static const double shares[] = {0, 0.25, 0.75, 1};
    static const double betas[] = {1e-12, 1e-10, 1e-7};
    for (int i = 0; i < 12; i++) {
        struct bench b = {0};
        struct sbp_cluster cluster = flat(4);
        cluster.level[0].beta_s_per_byte = betas[i % 3];
        bench_open(&b, oracle_models[4], &cluster, NULL);
        b.parallel.gradient_overlap = shares[i / 3];
        bench_run(&b);
        const struct sbp_stage_cost *cost = &b.step.cost[0];
        const double sync_s = b.step.end[0].sync_s;
        const double backward_s = cost->backward_input_s + cost->backward_weight_s;
        const double exposed_s = fmax((1 - shares[i / 3]) * sync_s, sync_s - backward_s);
        assert_true(sync_s > 0);
        oracle_near("step", b.step.totals.step_s,
                    cost->forward_s + backward_s + exposed_s + b.step.end[0].optimizer_s);
        if (fabs(b.step.totals.hidden_s - (sync_s - exposed_s)) > 1e-9 * sync_s)
            fail_msg("hidden %.17g, expected %.17g", b.step.totals.hidden_s, sync_s - exposed_s);
        const double *by_cause_s = b.step.totals.hidden_by_cause_s; /* one stage sends nothing */
        if (fabs(by_cause_s[SBP_CAUSE_WEIGHT_GRADIENT] - (sync_s - exposed_s)) > 1e-9 * sync_s ||
            by_cause_s[SBP_CAUSE_STAGE] != 0)
            fail_msg("hidden sums of gradients %.17g, messages %.17g, expected %.17g and 0",
                     by_cause_s[SBP_CAUSE_WEIGHT_GRADIENT], by_cause_s[SBP_CAUSE_STAGE],
                     sync_s - exposed_s);
        bench_close(&b);
    }
}

/* --- ZeRO (Rajbhandari et al., 2020, sections 5 and 7) --- */

#define LAYER(extent)                                                                              \
    "{\"name\": \"m\", \"global_batch\": 16, \"precision\": {\"param\": \"bf16\", \"master\": "    \
    "\"fp32\"}, \"input\": \"split\", \"layers\": [{\"op\": \"linear\", \"in\": " extent           \
    ", \"out\": " extent "}]}"

/* 16 bytes a parameter become 4 + 12/N, 2 + 14/N, 16/N; what does not divide is rounded up. */
static void test_zero_memory(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t extent;
    } sizes[] = {{LAYER("64"), 64}, {LAYER("30"), 30}};
    for (int i = 0; i < 2; i++)
        for (int level = 0; level <= 3; level++) {
            struct bench b = {0};
            const struct sbp_cluster cluster = flat(8);
            bench_open(&b, sizes[i].text, &cluster, NULL);
            b.bytes.gradient_master = 0; /* the paper's 12: master and two moments */
            b.parallel.zero = level;
            bench_run(&b);
            const int64_t whole = sizes[i].extent * sizes[i].extent, shard = (whole + 7) / 8;
            const struct sbp_stage_memory *memory = &b.step.memory[0];
            assert_int_equal(memory->weight_bytes, slot(2 * (level < 3 ? whole : shard)));
            assert_int_equal(memory->gradient_bytes, slot(2 * (level < 2 ? whole : shard)));
            assert_int_equal(memory->master_bytes, slot(4 * (level < 1 ? whole : shard)));
            assert_int_equal(memory->moment_bytes, 2 * slot(4 * (level < 1 ? whole : shard)));
            assert_int_equal(memory->parameters, whole);
            if (i == 0) {
                const double n = 8, formula[] = {16, 4 + 12 / n, 2 + 14 / n, 16 / n};
                oracle_near("bytes a parameter",
                            (double)(memory->weight_bytes + memory->gradient_bytes +
                                     memory->master_bytes + memory->moment_bytes) /
                                (double)whole,
                            formula[level]);
            }
            bench_close(&b);
        }
}

/* Levels 1 and 2 send what data parallelism sends, level 3 half as much again; with m micro-batches
 * level 2 reduces every one, and level 3 gathers twice for every one. */
static void test_zero_traffic(void **state)
{
    (void)state;
    for (int m = 1; m <= 4; m *= 2)
        for (int level = 0; level <= 3; level++) {
            struct bench b = {0};
            const struct sbp_cluster cluster = flat(4);
            struct sbp_parallel parallel = in_stages(1, 16 / m, SBP_ONE_F_ONE_B);
            parallel.zero = level;
            bench_open(&b, LAYER("64"), &cluster, &parallel);
            bench_run(&b);
            const double share = 0.75 * 64 * 64 * 2;
            const double parts[] = {2, 2, m + 1.0, 3.0 * m};
            oracle_near("bytes", b.step.totals.communication_bytes, parts[level] * share);
            const double alphas[] = {6, 6, 3.0 * (m + 1), 9.0 * m};
            oracle_near("seconds", b.step.totals.communication_s,
                        alphas[level] * 1e-5 + parts[level] * share * 1e-10);
            bench_close(&b);
        }
}

/* A layer may have a level of its own. */
static void test_zero_by_layer(void **state)
{
    (void)state;
    struct bench b = {0};
    const struct sbp_cluster cluster = flat(4);
    bench_open(&b,
               "{\"name\": \"m\", \"global_batch\": 16, \"precision\": \"fp32\", \"layers\": ["
               "{\"op\": \"linear\", \"in\": 64, \"out\": 64}, {\"op\": \"linear\", \"out\": 64}]}",
               &cluster, NULL);
    b.parallel.zero = 1;
    b.strategy.zero[1] = 3;
    bench_run(&b);
    assert_int_equal(b.step.memory[0].weight_bytes, 4 * 64 * 64 + 4 * 64 * 16);
    assert_int_equal(b.step.memory[0].gradient_bytes, 4 * 64 * 64 + 4 * 64 * 16);
    assert_int_equal(b.step.memory[0].moment_bytes, 2 * 2 * 4 * 64 * 16);
    bench_close(&b);
}

#define OWNED(more)                                                                                \
    "{\"name\": \"m\", \"global_batch\": 16, \"precision\": {\"param\": \"bf16\", \"master\": "    \
    "\"fp32\"}, \"input\": \"split\", \"layers\": [{\"op\": \"linear\", \"in\": 64, "              \
    "\"out\": 64}" more "]}"
#define MORE(out) ", {\"op\": \"linear\", \"out\": " out "}"

/* One owner for every weight (CDP, section 4.4): four devices hold up to four weights in the place
 * of the largest, and a fifth in another; weights come twice, gradients go once, as broadcasts or
 * from hand to hand. */
static void test_owner(void **state)
{
    static const struct {
        const char *model;
        int64_t places; /* elements */
    } cases[] = {{OWNED(""), 64 * 64},
                 {OWNED(MORE("64")), 64 * 64},
                 {OWNED(MORE("64") MORE("64") MORE("64")), 64 * 64},
                 {OWNED(MORE("32") MORE("128") MORE("64")), 64 * 128},
                 {OWNED(MORE("64") MORE("64") MORE("64") MORE("16")), 64 * 64 + 64 * 16}};
    (void)state;
    for (int i = 0; i < 10; i++) {
        struct bench b = {0};
        const struct sbp_cluster cluster = flat(4);
        const bool hand = i % 2 != 0;
        bench_open(&b, cases[i / 2].model, &cluster, NULL);
        const struct sbp_graph *graph = &b.model.graph;
        double seconds = 0;
        b.parallel.owner = hand ? SBP_OWNER_HAND_OVER : SBP_OWNER_BROADCAST;
        bench_run(&b);
        for (int op = 0; op < graph->op_count; op++) {
            const int64_t *size = graph->tensor[graph->op[op].weight[0]].shape.size;
            seconds += 3 * ((hand ? 1 : 3) * 1e-5 +
                            (double)(size[0] * size[1] * size[2] * size[3]) * 2 * 1e-10);
        }
        assert_int_equal(b.step.memory[0].weight_bytes, 2 * cases[i / 2].places);
        assert_int_equal(b.step.memory[0].moment_bytes, 2 * 4 * cases[i / 2].places);
        oracle_near("seconds", b.step.totals.communication_s, seconds);
        bench_close(&b);
    }
}

/* --- activations (Korthikanti et al., 2022, sections 4 and 5) --- */

enum { S = 64, B = 4, H = 96, A = 12 };

static const char *transformer(int layers, char *text, size_t size)
{
    (void)snprintf(text, size,
                   "{\"name\": \"t\", \"architecture\": \"gpt\", \"layers\": %d, \"hidden\": %d,"
                   "\"heads\": %d, \"sequence\": %d, \"vocab\": 96, \"global_batch\": %d,"
                   "\"dropout\": 0.1, \"attention_dropout\": 0.1, \"precision\": \"mixed\"}",
                   layers, H, A, S, B);
    return text;
}

enum stream { STREAM_BATCH, STREAM_WHOLE, STREAM_SEQUENCE };

/* Tensor parallelism over all axes: heads and columns, then rows; the stream whole or split by
 * sequence. Without axes it does not matter. */
static void label_megatron(struct bench *b, enum stream stream)
{
    const struct sbp_graph *graph = &b->model.graph;
    const struct sbp_state rest =
        stream == STREAM_WHOLE ? SBP_STATE_B : SBP_STATE_S(SBP_DIM_SEQUENCE);
    for (int axis = 0; axis < b->mesh.axis_count; axis++)
        for (int op = 0; op < graph->op_count; op++) {
            const struct sbp_op_node *node = &graph->op[op];
            const bool narrows =
                strstr(node->name, "projection") != NULL || strstr(node->name, "down") != NULL;
            const char *role = stream == STREAM_WHOLE ? "replicate" : "sequence";
            if (node->kind == SBP_OP_LINEAR)
                role = narrows ? "row" : "column";
            else if (node->kind == SBP_OP_ATTENTION)
                role = "head";
            else if (node->kind == SBP_OP_EMBEDDING)
                role = "vocab";
            if (!node->entry->follows)
                b->strategy.op[op].role[axis] = (uint8_t)oracle_role_named(node->kind, role);
            if (node->output < 0)
                continue;
            const struct sbp_role *plays = oracle_role(graph, &b->strategy, op, axis);
            b->strategy.rest[node->output].axis[axis] =
                plays->output.kind == SBP_PARTIAL ? rest : plays->output;
        }
}

/* Bytes that a micro-batch keeps for one more layer. */
static double kept_a_layer(int64_t t, enum stream stream, enum sbp_recompute recompute,
                           bool regather)
{
    double kept[2];
    for (int layers = 2; layers <= 3; layers++) {
        struct bench b = {0};
        char text[512];
        const struct sbp_cluster cluster = flat(t);
        bench_open(&b, transformer(layers, text, sizeof text), &cluster, NULL);
        b.parallel.recompute = recompute;
        b.parallel.regather = regather;
        label_megatron(&b, stream);
        bench_run(&b);
        kept[layers - 2] = (double)b.step.memory[0].kept_bytes;
        bench_close(&b);
    }
    return kept[1] - kept[0];
}

/* 34 s b h + 5 a s^2 b, and what the paper leaves out: two sums a token of each norm. */
static void test_activations(void **state)
{
    (void)state;
    const double sbh = S * B * H, scores = 5.0 * A * S * S * B, sums = 2 * 2 * 4.0 * S * B;
    oracle_near("whole", kept_a_layer(1, STREAM_BATCH, SBP_RECOMPUTE_NONE, false),
                34 * sbh + scores + sums);
    oracle_near("without scores", kept_a_layer(1, STREAM_BATCH, SBP_RECOMPUTE_ATTENTION, false),
                34 * sbh + sums);
    oracle_near("recomputed", kept_a_layer(1, STREAM_BATCH, SBP_RECOMPUTE_FULL, false), 2 * sbh);
    for (int t = 2; t <= 4; t *= 2) {
        oracle_near("tensor parallel", kept_a_layer(t, STREAM_WHOLE, SBP_RECOMPUTE_NONE, false),
                    sbh * (10 + 24.0 / t) + scores / t + sums);
        oracle_near("recomputed, tensor parallel",
                    kept_a_layer(t, STREAM_WHOLE, SBP_RECOMPUTE_FULL, false), 2 * sbh);
        oracle_near("sequence parallel", kept_a_layer(t, STREAM_SEQUENCE, SBP_RECOMPUTE_NONE, true),
                    (34 * sbh + scores + sums) / t);
        /* Unless they are gathered again, the inputs of two products are kept as they were read. */
        oracle_near("sequence parallel, gathered once",
                    kept_a_layer(t, STREAM_SEQUENCE, SBP_RECOMPUTE_NONE, false),
                    sbh * (4 + 30.0 / t) + (scores + sums) / t);
        oracle_near("without scores, sequence parallel",
                    kept_a_layer(t, STREAM_SEQUENCE, SBP_RECOMPUTE_ATTENTION, true),
                    (34 * sbh + sums) / t);
        oracle_near("recomputed, sequence parallel",
                    kept_a_layer(t, STREAM_SEQUENCE, SBP_RECOMPUTE_FULL, false), 2 * sbh / t);
    }
}

/* A chain of convolutions keeps their inputs, not what lies between them; the model's own is loaded
 * once more. */
static void test_recompute_chain(void **state)
{
    (void)state;
    static const char *const text =
        "{\"name\": \"c\", \"global_batch\": 4, \"precision\": \"fp32\", \"input\": {\"height\": "
        "16,"
        "\"width\": 16, \"channels\": 4}, \"layers\": [{\"op\": \"conv2d\", \"out\": 8, "
        "\"kernel\": 3,"
        "\"padding\": 1}, {\"op\": \"relu\"}, {\"op\": \"maxpool\", \"kernel\": 2, \"stride\": 2},"
        "{\"op\": \"conv2d\", \"out\": 8, \"kernel\": 3, \"padding\": 1}, {\"op\": \"relu\"}]}";
    const struct sbp_cluster cluster = flat(4);
    struct bench b = {0}, plain = {0};
    bench_open(&b, text, &cluster, NULL);
    bench_open(&plain, text, &cluster, NULL);
    b.parallel.recompute = SBP_RECOMPUTE_FULL;
    bench_run(&b);
    bench_run(&plain);
    assert_int_equal(b.step.memory[0].kept_bytes, 4 * 8 * 8 * 8); /* of an image */
    assert_true(plain.step.memory[0].kept_bytes > 4 * 8 * 8 * 8);
    bench_close(&b);
    bench_close(&plain);
}

/* Recompute costs the forward pass of the blocks once more, without the last sum of each
 * segment, which the next one holds. */
static void test_recompute_time(void **state)
{
    (void)state;
    for (int every = 1; every <= 2; every++) {
        struct bench b = {0}, plain = {0};
        char text[512];
        const struct sbp_cluster cluster = flat(1);
        bench_open(&b, transformer(4, text, sizeof text), &cluster, NULL);
        bench_open(&plain, text, &cluster, NULL);
        b.parallel.recompute = SBP_RECOMPUTE_FULL;
        b.parallel.recompute_every = every;
        bench_run(&b);
        bench_run(&plain);
        double blocks_s = 0;
        const struct sbp_graph *graph = &b.model.graph;
        for (int i = 0; i < plain.step.program[0].instr_count; i++) {
            const struct sbp_instr *instr = &plain.step.program[0].instr[i];
            if (instr->kind != SBP_INSTR_FORWARD || strncmp(graph->op[instr->op].name, "block", 5))
                continue;
            const int block = atoi(graph->op[instr->op].name + 5);
            const bool last = strstr(graph->op[instr->op].name, "add2") != NULL;
            if (!last || block % every != every - 1)
                blocks_s += instr->compute_s;
        }
        oracle_near("again", b.step.totals.recompute_s, blocks_s);
        oracle_near("step", b.step.totals.step_s, plain.step.totals.step_s + blocks_s);
        assert_true(b.step.totals.device_bytes < plain.step.totals.device_bytes);
        bench_close(&b);
        bench_close(&plain);
    }
}

/* --- offload (Myelin, section V.B) --- */

/* 20 bytes a parameter become 4 + 16 bucket / parameters; 12 go to the host. */
static void test_offload(void **state)
{
    (void)state;
    static const char *const text =
        "{\"name\": \"m\", \"global_batch\": 16, \"precision\": \"mixed\", \"layers\": ["
        "{\"op\": \"linear\", \"in\": 64, \"out\": 64}, {\"op\": \"linear\", \"out\": 64}]}";
    for (int chunk = 0; chunk <= 3; chunk++) {
        struct bench b = {0};
        struct sbp_cluster cluster = flat(4);
        cluster.host_link_bytes_per_s = 1e9;
        cluster.host_memory_bytes = 8192 * 12 - (chunk == 3);
        bench_open(&b, text, &cluster, NULL);
        b.parallel.offload = true;
        b.parallel.bucket_parameters = 1024;
        b.parallel.chunk_factor = chunk;
        bench_run(&b);
        const struct sbp_stage_memory *memory = &b.step.memory[0];
        assert_int_equal(memory->weight_bytes + memory->gradient_bytes, 4 * 8192);
        assert_int_equal(memory->bucket_bytes, 16 * 1024);
        assert_int_equal(memory->master_bytes + memory->moment_bytes, 0);
        assert_int_equal(memory->host_bytes, 12 * 8192);
        assert_int_equal(b.step.totals.fits_host, chunk != 3);
        const struct sbp_offload *offload = &b.step.end[0].offload;
        assert_int_equal(offload->buckets, 8);
        oracle_near("in", offload->in_s, 12 * 1024 / 1e9);
        oracle_near("out", offload->out_s, 12 * 1024 / 1e9);
        assert_int_equal(offload->chunk_buckets, chunk);
        if (chunk > 0)
            oracle_near("chunk", offload->chunk_sync_s, 6e-5 + 1.5 * chunk * 1024 * 2 * 1e-10);
        if (chunk == 3)
            oracle_near("rest", offload->last_chunk_sync_s, 6e-5 + 1.5 * 2 * 1024 * 2 * 1e-10);
        bench_close(&b);
    }
}

/* Two chunks on a device: their buckets pass one after the other through one buffer. */
static void test_offload_chunks(void **state)
{
    (void)state;
    struct bench b = {0};
    struct sbp_cluster cluster = flat(2);
    cluster.host_link_bytes_per_s = 1e9;
    struct sbp_parallel parallel = in_stages(2, 8, SBP_INTERLEAVED);
    parallel.chunks = 2;
    parallel.offload = true;
    parallel.bucket_parameters = 1000;
    bench_open(&b,
               "{\"name\": \"m\", \"global_batch\": 16, \"precision\": \"mixed\", \"layers\": ["
               "{\"op\": \"linear\", \"in\": 64, \"out\": 64}, {\"op\": \"linear\", \"out\": 8},"
               "{\"op\": \"linear\", \"out\": 64}, {\"op\": \"linear\", \"out\": 64}]}",
               &cluster, &parallel);
    b.first = (const int[]){0, 1, 2, 3, 4};
    bench_run(&b);
    for (int stage = 0; stage < 2; stage++) {
        const int64_t parameters = 64 * 64 + 64 * 8; /* one chunk of each size */
        const struct sbp_stage_memory *memory = &b.step.memory[stage];
        const struct sbp_stage_cost *cost = &b.step.cost[2 * stage];
        const struct sbp_offload *offload = &b.step.end[stage].offload;
        assert_int_equal(offload->buckets, 5 + 1);
        oracle_near("in", offload->buckets * offload->in_s, 12.0 * (double)parameters / 1e9);
        oracle_near("out", offload->buckets * offload->out_s, 12.0 * (double)parameters / 1e9);
        assert_int_equal(memory->host_bytes, 12 * parameters);
        assert_int_equal(memory->bucket_bytes, slot(16 * 1000));
        assert_int_equal(cost[0].static_bytes + cost[1].static_bytes,
                         4 * parameters + slot(16 * 1000));
    }
    bench_close(&b);
}

/* All-reduces of chunks of buckets are sums as they stand: over shards under ZeRO 1 they are
 * reduce-scatters, and where each micro-batch has summed its own there are none left. */
static void test_offload_sharded(void **state)
{
    (void)state;
    for (int level = 0; level <= 2; level++)
        for (int m = 1; m <= 2; m++) {
            struct bench b = {0};
            struct sbp_cluster cluster = flat(4);
            cluster.host_link_bytes_per_s = 1e9;
            struct sbp_parallel parallel = in_stages(1, 16 / m, SBP_ONE_F_ONE_B);
            parallel.zero = level;
            parallel.offload = true;
            parallel.bucket_parameters = 256;
            parallel.chunk_factor = 2;
            bench_open(&b, LAYER("64"), &cluster, &parallel);
            bench_run(&b);
            const double updated = level == 0 ? 4096 : 1024, buckets = updated / 256;
            const double sums = level == 0 ? 2 : level == 1 || m == 1 ? 1 : 0;
            const struct sbp_offload *offload = &b.step.end[0].offload;
            assert_int_equal(offload->buckets, (int)buckets);
            oracle_near("chunk of buckets", offload->chunk_sync_s,
                        sums * (3e-5 + 0.75 * 4096 * 2 * (2 / buckets) * 1e-10));
            bench_close(&b);
        }
}

static void test_refused(void **state)
{
    (void)state;
    struct bench b = {0};
    struct sbp_diag diag = {{0}};
    const struct sbp_cluster cluster = flat(2);
    bench_open(&b, oracle_models[0], &cluster, NULL);
    const struct sbp_step_request request = {.graph = &b.model.graph,
                                             .cluster = &b.cluster,
                                             .parallel = &b.parallel,
                                             .strategy = &b.strategy,
                                             .bytes = &b.bytes};
    b.parallel.micro_batch = 12;
    assert_int_equal(sbp_step_make(&request, &b.step, &diag), SBP_E_INPUT);
    assert_non_null(strstr(diag.text, "micro_batch"));
    diag.text[0] = '\0';
    b.parallel.micro_batch = 24;
    b.parallel.pipeline = 3;
    assert_int_equal(sbp_step_make(&request, &b.step, &diag), SBP_E_INPUT);
    assert_non_null(strstr(diag.text, "pipeline"));
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_step),      cmocka_unit_test(test_accumulation),
        cmocka_unit_test(test_overlap),         cmocka_unit_test(test_zero_memory),
        cmocka_unit_test(test_zero_traffic),    cmocka_unit_test(test_zero_by_layer),
        cmocka_unit_test(test_owner),           cmocka_unit_test(test_activations),
        cmocka_unit_test(test_recompute_time),  cmocka_unit_test(test_recompute_chain),
        cmocka_unit_test(test_offload),         cmocka_unit_test(test_offload_chunks),
        cmocka_unit_test(test_offload_sharded), cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
