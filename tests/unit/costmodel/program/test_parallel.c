/* How a step is cut in time: its settings, what fits a cluster, where a model can be cut, and what
 * of it runs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "costmodel/model/op_cost.h"
#include "costmodel/program/runnable.h"
#include "costmodel/program/stages.h"
#include "tests/support/strategy_oracle.h"
#include "tests/support/unit.h"

#define MLP                                                                                        \
    "{\"name\": \"mlp\", \"global_batch\": 48, \"precision\": \"fp32\", \"layers\": ["             \
    "{\"op\": \"linear\", \"name\": \"a\", \"in\": 8, \"out\": 16}, {\"op\": \"relu\"},"           \
    "{\"op\": \"linear\", \"name\": \"b\", \"out\": 32}, {\"op\": \"relu\"},"                      \
    "{\"op\": \"linear\", \"name\": \"c\", \"out\": 4}]}"
#define GPT(layers)                                                                                \
    "{\"name\": \"gpt\", \"architecture\": \"gpt\", \"layers\": " #layers ", \"hidden\": 48,"      \
    "\"heads\": 12, \"sequence\": 24, \"vocab\": 48, \"global_batch\": 24}"

static void has_words(const char *text, const char *const *words)
{
    for (int i = 0; words[i] != NULL; i++)
        if (strstr(text, words[i]) == NULL)
            fail_msg("no word of %s in: %s", words[i], text);
}

/* --- reading --- */

static enum sbp_status read_text(const char *text, struct sbp_parallel *parallel,
                                 struct sbp_diag *diag)
{
    struct cJSON *tree = NULL;
    struct sbp_json root;
    enum sbp_status status = sbp_json_parse(text, "p.json", &tree, &root, diag);
    if (status == SBP_OK)
        status = sbp_parallel_read(&root, parallel);
    cJSON_Delete(tree);
    return status;
}

static void test_read(void **state)
{
    (void)state;
    const struct sbp_graph graph = {.global_batch = 64};
    struct sbp_parallel parallel = sbp_parallel_default(&graph);
    struct sbp_diag diag = {{0}};
    assert_true(sbp_parallel_is_plain(&parallel, &graph));
    assert_int_equal(read_text("{}", &parallel, &diag), SBP_OK);
    assert_true(sbp_parallel_is_plain(&parallel, &graph));
    assert_int_equal(
        read_text("{\"pipeline\": 8, \"micro_batch\": 2, \"schedule\": \"interleaved\","
                  "\"chunks\": 3, \"pipeline_limit\": 5, \"zero\": 2, \"recompute\": \"full\","
                  "\"recompute_every\": 4, \"stage_cut\": \"flops\", \"gather_blocks\": true, "
                  "\"regather\": true, "
                  "\"keep_sent\": true,"
                  "\"offload\": true, \"bucket_parameters\": 1024,"
                  "\"chunk_factor\": 7, \"gradient_overlap\": 0.25,"
                  "\"allow_delayed_gradients\": true, \"pyramid\": true, "
                  "\"owner\": \"hand-over\"}",
                  &parallel, &diag),
        SBP_OK);
    const struct sbp_parallel expected = {.pipeline = 8,
                                          .stage_cut = SBP_CUT_FLOPS,
                                          .chunks = 3,
                                          .micro_batch = 2,
                                          .schedule = SBP_INTERLEAVED,
                                          .pipeline_limit = 5,
                                          .zero = 2,
                                          .recompute = SBP_RECOMPUTE_FULL,
                                          .recompute_every = 4,
                                          .offload = true,
                                          .bucket_parameters = 1024,
                                          .chunk_factor = 7,
                                          .gradient_overlap = 0.25,
                                          .allow_delayed_gradients = true,
                                          .pyramid = true,
                                          .owner = SBP_OWNER_HAND_OVER,
                                          .gather_blocks = true,
                                          .regather = true,
                                          .keep_sent = true};
    assert_false(sbp_parallel_is_plain(&parallel, &graph));
    struct cJSON *written = cJSON_CreateObject();
    bool failed = false;
    sbp_parallel_write(written, &expected, &failed);
    assert_false(failed);
    for (int i = 0; sbp_parallel_keys()[i] != NULL; i++)
        assert_non_null(cJSON_GetObjectItemCaseSensitive(written, sbp_parallel_keys()[i]));
    char *text = cJSON_PrintUnformatted(written);
    struct sbp_parallel again = sbp_parallel_default(&graph);
    assert_int_equal(read_text(text, &again, &diag), SBP_OK);
    const struct sbp_parallel *both[] = {&parallel, &again};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(both[i]->pipeline, expected.pipeline);
        assert_int_equal(both[i]->chunks, expected.chunks);
        assert_int_equal(both[i]->micro_batch, expected.micro_batch);
        assert_int_equal(both[i]->schedule, expected.schedule);
        assert_int_equal(both[i]->pipeline_limit, expected.pipeline_limit);
        assert_int_equal(both[i]->zero, expected.zero);
        assert_int_equal(both[i]->recompute, expected.recompute);
        assert_int_equal(both[i]->recompute_every, expected.recompute_every);
        assert_int_equal(both[i]->stage_cut, SBP_CUT_FLOPS);
        assert_true(both[i]->offload && both[i]->allow_delayed_gradients && both[i]->pyramid);
        assert_int_equal(both[i]->bucket_parameters, expected.bucket_parameters);
        assert_int_equal(both[i]->chunk_factor, expected.chunk_factor);
        assert_true(both[i]->gradient_overlap == 0.25);
        assert_int_equal(both[i]->owner, expected.owner);
        assert_true(both[i]->gather_blocks && both[i]->regather && both[i]->keep_sent);
    }
    free(text);
    cJSON_Delete(written);
}

/* A key at a time: all fields tell settings apart. */
static void test_equal(void **state)
{
    static const char *const texts[] = {
        "{\"pipeline\": 2}",
        "{\"stage_cut\": \"flops\"}",
        "{\"micro_batch\": 2}",
        "{\"schedule\": \"gpipe\"}",
        "{\"chunks\": 2}",
        "{\"pipeline_limit\": 2}",
        "{\"zero\": 2}",
        "{\"gather_blocks\": true}",
        "{\"recompute\": \"full\"}",
        "{\"recompute_every\": 2}",
        "{\"regather\": true}",
        "{\"keep_sent\": true}",
        "{\"offload\": true}",
        "{\"bucket_parameters\": 2}",
        "{\"chunk_factor\": 2}",
        "{\"gradient_overlap\": 0.5}",
        "{\"allow_delayed_gradients\": true}",
        "{\"pyramid\": true}",
        "{\"owner\": \"broadcast\"}",
    };
    (void)state;
    const struct sbp_graph graph = {.global_batch = 64};
    const struct sbp_parallel plain = sbp_parallel_default(&graph);
    int keys = 0;
    while (sbp_parallel_keys()[keys] != NULL)
        keys++;
    assert_int_equal(keys, sizeof texts / sizeof *texts);
    assert_true(sbp_parallel_equal(&plain, &plain));
    for (int i = 0; i < keys; i++) {
        struct sbp_parallel other = plain;
        struct sbp_diag diag = {{0}};
        assert_int_equal(read_text(texts[i], &other, &diag), SBP_OK);
        if (sbp_parallel_equal(&plain, &other))
            fail_msg("%s is as the default", texts[i]);
    }
}

static void test_refused_texts(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words[4];
    } rows[] = {
        {"{\"pipelin\": 2}", {"pipelin", "did you mean \"pipeline\""}},
        {"{\"schedule\": \"1f2b\"}", {"p.json: schedule", "1f2b", "1f1b"}},
        {"{\"recompute\": \"ful\"}", {"recompute", "full"}},
        {"{\"owner\": 3}", {"owner"}},
        {"{\"zero\": 4}", {"zero", "0", "3"}},
        {"{\"zero\": 1.5}", {"zero"}},
        {"{\"pipeline\": 0}", {"pipeline", "1"}},
        {"{\"offload\": \"yes\"}", {"offload"}},
        {"{\"gradient_overlap\": 1.5}", {"gradient_overlap", "1"}},
        {"[]", {"p.json"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct sbp_graph graph = {.global_batch = 64};
        struct sbp_parallel parallel = sbp_parallel_default(&graph);
        struct sbp_diag diag = {{0}};
        assert_int_equal(read_text(rows[i].text, &parallel, &diag), SBP_E_INPUT);
        has_words(diag.text, rows[i].words);
        assert_true(sbp_parallel_is_plain(&parallel, &graph)); /* untouched */
    }
}

/* --- what fits --- */

static void test_stage_clusters(void **state)
{
    (void)state;
    static const struct {
        int64_t pipeline, outer, inner;
        int level;
    } rows[] = {{1, 6, 8, -1}, {2, 3, 8, 0}, {3, 2, 8, 0}, {6, 1, 8, 0},  {12, 1, 4, 0},
                {48, 1, 1, 0}, {4, 0, 0, 0}, {5, 0, 0, 0}, {18, 0, 0, 0}, {96, 0, 0, 0}};
    const struct sbp_cluster cluster = oracle_cluster(2, (int64_t[]){6, 8});
    const struct sbp_graph graph = {.global_batch = 64, .op_count = 100};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct sbp_parallel parallel = sbp_parallel_default(&graph);
        struct sbp_cluster stage;
        struct sbp_diag diag = {{0}};
        int level = 77;
        parallel.pipeline = rows[i].pipeline;
        const enum sbp_status status =
            sbp_parallel_stage_cluster(&parallel, &cluster, &stage, &level, &diag);
        if (rows[i].outer == 0) {
            assert_int_equal(status, SBP_E_INPUT);
            has_words(diag.text,
                      (const char *[]){"pipeline", "legal are 1, 2, 3, 6, 12, 24, 48", NULL});
            continue;
        }
        assert_int_equal(status, SBP_OK);
        assert_int_equal(stage.level[0].size, rows[i].outer);
        assert_int_equal(stage.level[1].size, rows[i].inner);
        assert_int_equal(level, rows[i].level);
        assert_int_equal(sbp_cluster_devices(&stage) * rows[i].pipeline, 48);
    }
    /* A level of one member is nobody's neighbour. */
    const struct sbp_cluster flat = oracle_cluster(2, (int64_t[]){1, 8});
    struct sbp_parallel parallel = sbp_parallel_default(&graph);
    struct sbp_cluster stage;
    struct sbp_diag diag = {{0}};
    int level;
    parallel.pipeline = 4;
    assert_int_equal(sbp_parallel_stage_cluster(&parallel, &flat, &stage, &level, &diag), SBP_OK);
    assert_int_equal(level, 1);
}

static void test_checks(void **state)
{
    (void)state;
    const struct sbp_graph graph = {.global_batch = 24, .op_count = 20};
    struct sbp_cluster cluster = oracle_cluster(2, (int64_t[]){4, 8});
    const struct sbp_parallel base = sbp_parallel_default(&graph);
    struct sbp_parallel p[13];
    static const char *const words[13][4] = {
        {"micro_batch", "5", "1, 2, 3, 4, 6, 8, 12, 24"},
        {"chunks", "interleaved", "2"},
        {"chunks", "1f1b"},
        {"micro_batch", "interleaved", "multiples of the 4"},
        {"pipeline_limit", "1f1b"},
        {"pipeline", "32", "20 operators"},
        {"zero", "7", "0 to 3"},
        {"owner", "broadcast", "zero 0"},
        {"offload", "host_link_bytes_per_s"},
        {"chunk_factor", "offload"},
        {"pipeline", "legal are"},
        {"gradient_overlap", "chunk_factor"},
        {"pipeline", "interleaved", "2 stages"},
    };
    for (int i = 0; i < 13; i++)
        p[i] = base;
    p[0].micro_batch = 5;
    p[1].schedule = SBP_INTERLEAVED, p[1].pipeline = 2;
    p[2].chunks = 2;
    p[3].schedule = SBP_INTERLEAVED, p[3].chunks = 2, p[3].pipeline = 4, p[3].micro_batch = 4;
    p[4].pipeline_limit = 3;
    p[5].pipeline = 32;
    p[6].zero = 7;
    p[7].owner = SBP_OWNER_BROADCAST, p[7].zero = 1;
    p[8].offload = true;
    p[9].chunk_factor = 2;
    p[10].pipeline = 5;
    p[11].chunk_factor = 2, p[11].offload = true, p[11].gradient_overlap = 0.5;
    p[12].schedule = SBP_INTERLEAVED, p[12].chunks = 2;
    for (int i = 0; i < 13; i++) {
        struct sbp_diag diag = {{0}};
        cluster.host_link_bytes_per_s = i == 11 ? 1e10 : 0;
        assert_int_equal(sbp_parallel_check(&p[i], &graph, &cluster, &diag), SBP_E_INPUT);
        has_words(diag.text, words[i]);
    }
    struct sbp_diag diag = {{0}};
    assert_int_equal(sbp_parallel_check(&base, &graph, &cluster, &diag), SBP_OK);
    struct sbp_parallel cyclic = base;
    cyclic.schedule = SBP_CDP_V2, cyclic.pipeline = 4, cyclic.micro_batch = 6;
    assert_int_equal(sbp_parallel_check(&cyclic, &graph, &cluster, &diag), SBP_E_INPUT);
    has_words(diag.text, (const char *[]){"cdp-v2", "allow_delayed_gradients", NULL});
    cyclic.allow_delayed_gradients = true;
    assert_int_equal(sbp_parallel_check(&cyclic, &graph, &cluster, &diag), SBP_OK);
    cyclic.micro_batch = 8;
    diag.text[0] = '\0';
    assert_int_equal(sbp_parallel_check(&cyclic, &graph, &cluster, &diag), SBP_E_INPUT);
    has_words(diag.text, (const char *[]){"micro_batch", "4 stages", NULL});
    p[3].micro_batch = 3;
    assert_int_equal(sbp_parallel_check(&p[3], &graph, &cluster, &diag), SBP_OK);
    assert_int_equal(sbp_parallel_micro_batches(&p[3], &graph), 8);
}

/* --- micro-batches --- */

static void test_micro_batch(void **state)
{
    (void)state;
    struct oracle_model model;
    struct sbp_diag diag = {{0}};
    oracle_model_read(&model, GPT(2));
    struct sbp_graph *graph = &model.graph;
    const double flops = sbp_op_model_flops(graph), one = sbp_op_forward_flops(graph, 2);
    assert_int_equal(graph->micro_batch, 24);
    assert_int_equal(sbp_graph_set_micro_batch(graph, 6, &diag), SBP_OK);
    assert_int_equal(graph->micro_batch, 6);
    for (int t = 0; t < graph->tensor_count; t++)
        if (graph->tensor[t].kind == SBP_ACTIVATION)
            assert_int_equal(graph->tensor[t].shape.size[SBP_DIM_BATCH], 6);
    for (int c = 0; c < graph->class_count; c++)
        if (strcmp(graph->dim_class[c].name, "batch") == 0)
            assert_int_equal(graph->dim_class[c].size, 6);
    assert_true(fabs(sbp_op_model_flops(graph) - flops) <= 1e-12 * flops); /* of a step */
    assert_true(sbp_op_forward_flops(graph, 2) * 4 == one);
    assert_int_equal(sbp_graph_set_micro_batch(graph, 7, &diag), SBP_E_INPUT);
    has_words(diag.text, (const char *[]){"7", "24", NULL});
    assert_int_equal(sbp_graph_set_micro_batch(graph, 24, &diag), SBP_OK);
    oracle_model_drop(&model);
}

/* --- cuts --- */

/* Blocks that a piece holds, by the operators' names. */
static int blocks_in(const struct sbp_graph *graph, int begin, int end)
{
    int blocks = 0;
    for (int op = begin; op < end; op++)
        blocks += strstr(graph->op[op].name, ".attention") != NULL;
    return blocks;
}

static void test_block_cuts(void **state)
{
    (void)state;
    struct oracle_model model;
    struct sbp_diag diag = {{0}};
    static const struct {
        int pieces, blocks[6];
    } rows[] = {{1, {7}}, {2, {4, 3}}, {3, {2, 3, 2}}, {4, {2, 2, 2, 1}}, {5, {1, 2, 2, 1, 1}}};
    oracle_model_read(&model, GPT(7));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int first[8];
        if (sbp_stages_cut(&model.graph, rows[i].pieces, SBP_CUT_BLOCKS, first, &diag) != SBP_OK)
            fail_msg("%s", diag.text);
        for (int piece = 0; piece < rows[i].pieces; piece++)
            assert_int_equal(blocks_in(&model.graph, first[piece], first[piece + 1]),
                             rows[i].blocks[piece]);
        assert_int_equal(sbp_stages_check(&model.graph, rows[i].pieces, first, &diag), SBP_OK);
    }
    int first[4] = {0, 3, 5, model.graph.op_count}; /* within a block: the stream passes by */
    assert_int_equal(sbp_stages_check(&model.graph, 3, first, &diag), SBP_E_INPUT);
    has_words(diag.text, (const char *[]){"several activations", NULL});
    first[1] = 5;
    assert_int_equal(sbp_stages_check(&model.graph, 3, first, &diag), SBP_E_INPUT);
    int *block = calloc((size_t)model.graph.op_count, sizeof *block);
    assert_non_null(block);
    assert_int_equal(sbp_stages_blocks(&model.graph, block), 7);
    assert_int_equal(block[0], -1);
    assert_int_equal(block[model.graph.op_count - 1], -1);
    free(block);
    oracle_model_drop(&model);
}

/* Blocks of each piece as a user gives them: in JSON, as a word of --set, and back. */
static void test_given_cuts(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        const char *says; /* NULL: legal */
    } rows[] = {
        {"{\"pipeline\": 3, \"stage_cut\": [3, 2, 2]}", NULL},
        {"{\"pipeline\": 3, \"stage_cut\": \"3,2,2\"}", NULL},
        {"{\"pipeline\": 3, \"stage_cut\": [0, 7, 0]}", NULL},
        {"{\"pipeline\": 3, \"stage_cut\": [3, 2, 3]}", "8 blocks, the model has 7"},
        {"{\"pipeline\": 3, \"stage_cut\": [7, 0, 0]}", "piece 1 has no operator"},
        {"{\"pipeline\": 2, \"stage_cut\": [3, 2, 2]}", "3 pieces are given, legal are 2"},
        {"{\"pipeline\": 2, \"stage_cut\": \"4,x\"}", "17,15"},
        {"{\"pipeline\": 2, \"stage_cut\": \"4,3,\"}", "17,15"},
        {"{\"pipeline\": 2, \"stage_cut\": \"4,70000\"}", "17,15"},
        {"{\"pipeline\": 2, \"stage_cut\": [4, -3]}", "stage_cut[1]"},
        {"{\"pipeline\": 2, \"stage_cut\": [7]}", "17,15"},
        {"{\"pipeline\": 2, \"stage_cut\": 7}", "17,15"},
    };
    struct oracle_model model;
    const struct sbp_cluster cluster = {
        .name = "flat", .level_count = 1, .level = {{.name = "rank", .size = 6}}};
    oracle_model_read(&model, GPT(7));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct sbp_parallel parallel = sbp_parallel_default(&model.graph), again = parallel;
        struct sbp_diag diag = {{0}};
        struct sbp_json at;
        struct cJSON *json = cJSON_Parse(rows[i].json);
        sbp_json_at(json, "given", &diag, &at);
        enum sbp_status status = sbp_parallel_read(&at, &parallel);
        if (status == SBP_OK)
            status = sbp_parallel_check(&parallel, &model.graph, &cluster, &diag);
        cJSON_Delete(json);
        assert_int_equal(status, rows[i].says == NULL ? SBP_OK : SBP_E_INPUT);
        if (rows[i].says != NULL) {
            has_words(diag.text, (const char *[]){rows[i].says, NULL});
            continue;
        }
        int first[4];
        assert_int_equal(sbp_stages_cut_as(&model.graph, 3, &parallel, first, &diag), SBP_OK);
        for (int piece = 0; piece < 3; piece++)
            assert_int_equal(blocks_in(&model.graph, first[piece], first[piece + 1]),
                             parallel.stage_blocks[piece]);
        bool failed = false;
        json = cJSON_CreateObject();
        sbp_parallel_write(json, &parallel, &failed);
        sbp_json_at(json, "written", &diag, &at);
        assert_false(failed);
        assert_int_equal(sbp_parallel_read(&at, &again), SBP_OK);
        assert_true(sbp_parallel_equal(&parallel, &again));
        again.stage_blocks[1]++;
        assert_false(sbp_parallel_equal(&parallel, &again));
        cJSON_Delete(json);
    }
    oracle_model_drop(&model);
}

/* Whether exactly one activation that is made before an operator is read by it or later. */
static bool is_cut(const struct sbp_graph *graph, int op)
{
    int crossing = 0;
    for (int t = 0; t < graph->tensor_count; t++) {
        bool later = false;
        for (int reader = op; reader < graph->op_count; reader++)
            for (int i = 0; i < graph->op[reader].input_count; i++)
                later |= graph->op[reader].input[i] == t;
        crossing += later && graph->tensor[t].producer >= 0 && graph->tensor[t].producer < op;
    }
    return crossing == 1;
}

/* The least possible maximum, over every choice of boundaries. */
static double best_maximum(const struct sbp_graph *graph, int from, int pieces)
{
    double best = INFINITY, flops = 0;
    for (int end = from + 1; end <= graph->op_count; end++) {
        flops += sbp_op_forward_flops(graph, end - 1);
        if (pieces == 1 ? end < graph->op_count : end == graph->op_count || !is_cut(graph, end))
            continue;
        const double rest = pieces == 1 ? 0 : best_maximum(graph, end, pieces - 1);
        best = fmin(best, fmax(flops, rest));
    }
    return best;
}

static void test_balanced_cuts(void **state)
{
    (void)state;
    static const char *const texts[] = {
        MLP, GPT(2),
        /* as many blocks as pieces, and a head that weighs more than any */
        "{\"name\": \"head\", \"architecture\": \"gpt\", \"layers\": 6, \"hidden\": 16, \"heads\": "
        "4, "
        "\"sequence\": 8, \"vocab\": 512, \"global_batch\": 8, \"precision\": \"fp32\"}",
        "{\"name\": \"skip\", \"global_batch\": 8, \"precision\": \"fp32\", \"layers\": ["
        "{\"op\": \"linear\", \"name\": \"a\", \"in\": 8, \"out\": 8},"
        "{\"op\": \"relu\", \"name\": \"r\"}, {\"op\": \"linear\", \"name\": \"b\", \"out\": 8},"
        "{\"op\": \"add\", \"name\": \"s\", \"inputs\": [\"a\", \"b\"]},"
        "{\"op\": \"linear\", \"name\": \"c\", \"out\": 32}, {\"op\": \"relu\"},"
        "{\"op\": \"linear\", \"name\": \"d\", \"out\": 4}]}"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct oracle_model model;
        oracle_model_read(&model, texts[i]);
        for (int pieces = 1; pieces <= 6; pieces++) {
            int first[8];
            struct sbp_diag diag = {{0}};
            const double best = best_maximum(&model.graph, 0, pieces);
            const enum sbp_status status =
                sbp_stages_cut(&model.graph, pieces, SBP_CUT_FLOPS, first, &diag);
            double most = 0;
            assert_int_equal(status, isinf(best) ? SBP_E_INPUT : SBP_OK);
            for (int piece = 0; status == SBP_OK && piece < pieces; piece++) {
                double flops = 0;
                for (int op = first[piece]; op < first[piece + 1]; op++)
                    flops += sbp_op_forward_flops(&model.graph, op);
                most = fmax(most, flops);
                assert_true(piece == 0 || is_cut(&model.graph, first[piece]));
            }
            if (status == SBP_OK && fabs(most - best) > 1e-12 * best)
                fail_msg("%d pieces: %.17g flops, %.17g is possible", pieces, most, best);
        }
        oracle_model_drop(&model);
    }
}

static void test_holders(void **state)
{
    (void)state;
    struct oracle_model model;
    struct sbp_diag diag = {{0}};
    int first[8], holders[256];
    oracle_model_read(&model, GPT(4));
    assert_true(model.graph.tensor_count <= 256);
    assert_int_equal(sbp_stages_cut(&model.graph, 4, SBP_CUT_BLOCKS, first, &diag), SBP_OK);
    assert_int_equal(sbp_stages_holders(&model.graph, 4, 4, first, holders), SBP_OK);
    for (int t = 0; t < model.graph.tensor_count; t++)
        assert_int_equal(holders[t], model.graph.tensor[t].kind != SBP_WEIGHT ? 0
                                     : t == model.graph.op[0].weight[0]       ? 2
                                                                              : 1);
    oracle_model_drop(&model);
}

static void test_segments(void **state)
{
    (void)state;
    struct oracle_model model;
    oracle_model_read(&model, GPT(5));
    const struct sbp_graph *graph = &model.graph;
    int *segment = calloc((size_t)graph->op_count, sizeof *segment);
    assert_non_null(segment);
    assert_int_equal(sbp_stages_segments(graph, 0, graph->op_count, 2, segment), SBP_OK);
    int starts = 0;
    for (int op = 0; op < graph->op_count; op++) {
        if (strncmp(graph->op[op].name, "block", 5) != 0) {
            assert_int_equal(segment[op], -1);
            continue;
        }
        const int block = atoi(graph->op[op].name + 5);
        if (segment[op] == op) {
            starts++;
            assert_int_equal(block % 2, 0);
        }
        assert_true(segment[op] >= 0 && segment[op] <= op);
        assert_int_equal(atoi(graph->op[segment[op]].name + 5), block / 2 * 2);
    }
    assert_int_equal(starts, 3);
    free(segment);
    oracle_model_drop(&model);
}

/* Without blocks: an operator with weights, and what follows it without any. */
static void test_segments_without_blocks(void **state)
{
    (void)state;
    struct oracle_model model;
    oracle_model_read(
        &model, "{\"name\": \"c\", \"global_batch\": 8, \"precision\": \"fp32\", \"layers\": ["
                "{\"op\": \"linear\", \"in\": 8, \"out\": 8}, {\"op\": \"relu\"},"
                "{\"op\": \"linear\", \"out\": 8}, {\"op\": \"relu\"},"
                "{\"op\": \"dropout\", \"p\": 0.5}, {\"op\": \"linear\", \"out\": 8}]}");
    const struct sbp_graph *graph = &model.graph;
    static const int first[][6] = {{0, 0, 2, 2, 2, 5}, {0, 0, 0, 0, 0, 5}};
    int segment[6];
    assert_int_equal(graph->op_count, 6);
    for (int every = 1; every <= 2; every++) {
        assert_int_equal(sbp_stages_segments(graph, 0, 6, every, segment), SBP_OK);
        assert_memory_equal(segment, first[every - 1], sizeof segment);
    }
    oracle_model_drop(&model);
}

/* --- what runs --- */

static void refused(const struct oracle_model *model, const struct sbp_parallel *parallel,
                    const char *const *words)
{
    struct sbp_diag diag = {{0}};
    assert_int_equal(sbp_runnable_check(&model->graph, parallel, &diag), SBP_E_UNSUPPORTED);
    assert_int_equal(strncmp(diag.text, "plan: ", 6), 0);
    has_words(diag.text, words);
}

static void test_what_runs(void **state)
{
    (void)state;
    struct oracle_model model;
    struct sbp_diag diag = {{0}};
    oracle_model_read(&model, MLP);
    struct sbp_parallel plain = sbp_parallel_default(&model.graph), p = plain;
    assert_int_equal(sbp_runnable_check(&model.graph, NULL, &diag), SBP_OK);
    assert_int_equal(sbp_runnable_check(&model.graph, &plain, &diag), SBP_OK);
    p.pipeline = 2;
    assert_int_equal(sbp_runnable_check(&model.graph, &p, &diag), SBP_OK);
    p.schedule = SBP_MESSAGE_DRIVEN, p.pipeline_limit = 3;
    assert_int_equal(sbp_runnable_check(&model.graph, &p, &diag), SBP_OK);
    p.schedule = SBP_ZERO_BUBBLE;
    assert_int_equal(sbp_runnable_check(&model.graph, &p, &diag), SBP_OK);
    p.schedule = SBP_INTERLEAVED, p.chunks = 2;
    assert_int_equal(sbp_runnable_check(&model.graph, &p, &diag), SBP_OK);
    p = plain, p.micro_batch = 8, p.schedule = SBP_GPIPE;
    assert_int_equal(sbp_runnable_check(&model.graph, &p, &diag), SBP_OK);
    p = plain, p.micro_batch = 8, p.zero = 3, p.recompute = SBP_RECOMPUTE_FULL, p.regather = true;
    assert_int_equal(sbp_runnable_check(&model.graph, &p, &diag), SBP_OK);
    p = plain, p.schedule = SBP_CDP_V1;
    assert_false(sbp_parallel_is_plain(&p, &model.graph));
    assert_int_equal(sbp_runnable_check(&model.graph, &p, &diag), SBP_OK);
    p = plain, p.offload = true;
    for (int owner = 0; owner < SBP_OWNERS; owner++) {
        p.owner = (enum sbp_owner)owner;
        assert_int_equal(sbp_runnable_check(&model.graph, &p, &diag), SBP_OK);
    }
    p.chunk_factor = 2;
    refused(&model, &p, (const char *[]){"chunk_factor", "owner", NULL});
    p.owner = SBP_OWNER_NONE;
    assert_int_equal(sbp_runnable_check(&model.graph, &p, &diag), SBP_OK);
    p.zero = 1;
    refused(&model, &p, (const char *[]){"chunk_factor", NULL});
    model.graph.op[1].entry = sbp_op(SBP_OP_CUSTOM);
    refused(&model, NULL, (const char *[]){"custom", "linear, relu", NULL});
    oracle_model_drop(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal),         cmocka_unit_test(test_read),
        cmocka_unit_test(test_refused_texts), cmocka_unit_test(test_stage_clusters),
        cmocka_unit_test(test_checks),        cmocka_unit_test(test_micro_batch),
        cmocka_unit_test(test_block_cuts),    cmocka_unit_test(test_given_cuts),
        cmocka_unit_test(test_balanced_cuts), cmocka_unit_test(test_holders),
        cmocka_unit_test(test_segments),      cmocka_unit_test(test_segments_without_blocks),
        cmocka_unit_test(test_what_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
