/* Degrees become strategies: every legal combination of them has one strategy, which the verifier
 * accepts; a layer communicates as Megatron's does; devices go where Megatron puts them; published
 * configurations can be priced; and what does not fit is refused by name.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "planner/degrees/degrees.h"
#include "planner/report/layout_line.h"
#include "planner/verify/verify.h"
#include "tests/support/solve_plan.h"
#include "tests/support/unit.h"

#define SIZES                                                                                      \
    "\"layers\": 8, \"hidden\": 64, \"heads\": 8, \"sequence\": 64, \"vocab\": 128,"               \
    "\"global_batch\": 128"
#define LAYERS 8

static const char GPT[] = "{\"name\": \"gpt\", \"architecture\": \"gpt\", " SIZES "}";
static const char LLAMA[] =
    "{\"name\": \"llama\", \"architecture\": \"llama\", \"kv_heads\": 4, \"ffn\": 128, " SIZES "}";
static const char BERT[] = "{\"name\": \"bert\", \"architecture\": \"bert\", \"positions\": 64, "
                           "\"head\": \"mlm\", " SIZES "}";
static const char MIXTRAL[] =
    "{\"name\": \"mixtral\", \"architecture\": \"mixtral\", \"kv_heads\": 4, \"ffn\": 128,"
    "\"experts\": 8, \"top_k\": 2, " SIZES "}";
static const char DEEPSEEK[] =
    "{\"name\": \"deepseek\", \"architecture\": \"deepseek\", \"q_rank\": 16, \"kv_rank\": 8,"
    "\"nope\": 4, \"rope\": 2, \"value\": 4, \"ffn\": 128, \"experts\": 8, \"top_k\": 2,"
    "\"expert_ffn\": 32, \"shared_experts\": 1, " SIZES "}";
static const char MLP[] = "{\"name\": \"mlp\", \"architecture\": \"mlp\", \"layers\": 4,"
                          "\"hidden\": 64, \"features\": 64, \"global_batch\": 64}";

/* A cluster of nodes of eight devices. */
static void open_plan(const char *model, int nodes, struct sbp_plan *plan)
{
    char cluster[512];
    struct sbp_diag diag = {{0}};
    (void)snprintf(cluster, sizeof cluster,
                   "{\"name\": \"nodes\", \"levels\": [{\"name\": \"node\", \"size\": %d,"
                   "\"alpha_s\": 1e-5, \"beta_s_per_byte\": 1e-10}, {\"name\": \"gpu\", \"size\": "
                   "8, \"alpha_s\": 1e-6, \"beta_s_per_byte\": 1e-11}], \"device\": "
                   "{\"memory_bytes\": 9e15, \"flops\": {\"fp32\": 1e12, \"bf16\": 1e13},"
                   "\"memory_bytes_per_s\": 1e12}}",
                   nodes);
    struct cJSON *model_json = cJSON_Parse(model), *cluster_json = cJSON_Parse(cluster);
    if (model_json == NULL || cluster_json == NULL)
        fail_msg("no JSON: %s", model_json == NULL ? model : cluster);
    if (sbp_plan_begin(model_json, "model", cluster_json, "cluster", plan, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
}

/* Prices degrees as the command does, and asks for the second opinion. Returns the step, which the
 * caller frees. */
static void price(struct sbp_plan *plan, const struct sbp_degrees *degrees, struct sbp_step *step)
{
    struct sbp_degrees_plan made;
    struct sbp_outcome outcome;
    struct sbp_diag diag = {{0}};
    if (sbp_degrees_apply(degrees, plan, &plan->arena, &made, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    struct sbp_request request = {.given = ~0u,
                                  .memory_limit_bytes = INT64_C(1) << 60,
                                  .fix = made.fix,
                                  .fix_count = made.fix_count};
    if (explore_plan(plan, &request, &outcome, &diag) != SBP_OK ||
        outcome.status != SBP_PLAN_OPTIMAL)
        fail_msg("%s: tp %lld pp %lld cp %lld ep %lld etp %lld: %s", plan->cut.graph.name,
                 (long long)made.degrees.tensor, (long long)made.degrees.pipeline,
                 (long long)made.degrees.context, (long long)made.degrees.expert,
                 (long long)made.degrees.expert_tensor, diag.text);
    if (sbp_cut_step(&plan->cut, &plan->strategy, false, step, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    const struct sbp_claim claim = {
        .plan = plan, .step = step, .request = &request, .outcome = &outcome};
    if (sbp_verify_plan(&claim, &diag) != SBP_OK)
        fail_msg("%s: tp %lld pp %lld cp %lld: %s", plan->cut.graph.name,
                 (long long)made.degrees.tensor, (long long)made.degrees.pipeline,
                 (long long)made.degrees.context, diag.text);
}

/* ---- every combination ---------------------------------------------------------------------- */

/* The line that tells the plan reads the degrees off its roles. */
static void check_layout(const struct sbp_plan *plan, const struct sbp_step *step,
                         const struct sbp_degrees *degrees)
{
    struct sbp_arena arena = {0};
    struct sbp_layout_line layout;
    const int64_t devices = plan->cut.mesh.devices;
    assert_int_equal(sbp_layout_line_make(plan, step->first, &arena, &layout), SBP_OK);
    assert_int_equal(layout.tensor.most, degrees->tensor);
    assert_int_equal(layout.data.common, devices / degrees->tensor / degrees->context);
    assert_int_equal(layout.data.least, layout.data.most);
    assert_int_equal(layout.context.common, degrees->context);
    assert_int_equal(layout.zero.common, degrees->zero == SBP_ANY ? 0 : degrees->zero);
    assert_int_equal(layout.micro_batch, degrees->micro_batch > 0 ? degrees->micro_batch : 1);
    assert_int_equal(layout.sequence_parallel, degrees->sequence_parallel && degrees->tensor > 1);
    sbp_arena_free(&arena);
}

/* Devices that are no multiple of the degrees' product, or of the experts' ways, are refused; all
 * else has a strategy. */
static bool check(const char *model, int nodes, const struct sbp_degrees *degrees)
{
    struct sbp_plan plan;
    struct sbp_step step;
    const int64_t product = degrees->tensor * degrees->pipeline * degrees->context;
    open_plan(model, nodes, &plan);
    const int64_t experts = degrees->expert > 0 ? degrees->expert * degrees->expert_tensor : 1;
    const bool fits = (int64_t)nodes * 8 % product == 0 && (int64_t)nodes * 8 % experts == 0;
    if (fits) {
        price(&plan, degrees, &step);
        assert_int_equal(plan.cut.parallel.pipeline, degrees->pipeline);
        check_layout(&plan, &step, degrees);
        sbp_step_free(&step);
    } else {
        struct sbp_degrees_plan made;
        struct sbp_diag diag = {{0}};
        assert_int_equal(sbp_degrees_apply(degrees, &plan, &plan.arena, &made, &diag), SBP_E_INPUT);
    }
    sbp_plan_free(&plan);
    return fits;
}

static void test_every_combination(void **state)
{
    (void)state;
    static const char *const models[] = {GPT, LLAMA, BERT, MIXTRAL, DEEPSEEK};
    int priced = 0;
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (int nodes = 1; nodes <= 8; nodes *= nodes == 2 ? 4 : 2)
            for (int bits = 0; bits < 4 * 4 * 2 * 2; bits++) {
                struct sbp_degrees degrees = sbp_degrees_none();
                degrees.tensor = 1 << (bits & 3);
                degrees.pipeline = 1 << (bits >> 2 & 3);
                degrees.context = 1 << (bits >> 4 & 1);
                degrees.sequence_parallel = (bits >> 5 & 1) != 0;
                degrees.chunks = degrees.pipeline == 2 && degrees.tensor == 2 ? 2 : 1;
                degrees.zero = degrees.tensor == 4 ? 1 : SBP_ANY;
                priced += check(models[m], nodes, &degrees);
            }
    assert_true(priced > 600);
}

/* Experts on data and on tensor axes; a micro-batch of 8 can be shared out among tensor ranks. */
static void test_experts(void **state)
{
    (void)state;
    static const char *const models[] = {MIXTRAL, DEEPSEEK};
    for (int bits = 0; bits < 2 * 4 * 4 * 2; bits++) {
        struct sbp_degrees degrees = sbp_degrees_none();
        degrees.pipeline = degrees.context = 1;
        degrees.tensor = 1 << (bits >> 1 & 3);
        degrees.expert = 1 << (bits >> 3 & 3);
        degrees.expert_tensor = (bits >> 5 & 1) != 0 ? 1 : degrees.tensor;
        degrees.micro_batch = (bits & 1) != 0 ? 8 : 1;
        degrees.sequence_parallel = true;
        for (int m = 0; m < 2; m++)
            (void)check(models[m], 2, &degrees);
    }
}

static void test_zero_3(void **state)
{
    (void)state;
    struct sbp_degrees degrees = sbp_degrees_none();
    degrees.tensor = degrees.pipeline = degrees.context = 1;
    degrees.zero = 3;
    (void)check(LLAMA, 2, &degrees);
    (void)check(MLP, 2, &degrees);
}

/* ---- collectives ---------------------------------------------------------------------------- */

/* Collectives of a kind that move activations, or their gradients, in a section of all pieces. */
static int count_in(const struct sbp_step *step, enum sbp_section section, enum sbp_collective kind,
                    enum sbp_cause cause)
{
    int found = 0;
    for (int p = 0; p < step->pieces; p++) {
        const struct sbp_program *program = &step->program[step->program_of[p]];
        for (int i = 0; i < program->instr_count; i++)
            found += program->instr[i].kind == SBP_INSTR_BOX &&
                     program->instr[i].section == section && program->instr[i].box.kind == kind &&
                     program->instr[i].cause == cause;
    }
    return found;
}

static int count(const struct sbp_step *step, enum sbp_collective kind, enum sbp_cause cause)
{
    return count_in(step, SBP_SECTION_FORWARD, kind, cause) +
           count_in(step, SBP_SECTION_BACKWARD, kind, cause);
}

/* Two all-reduces forward and two backward a layer (Shoeybi et al., 2020, figure 4), and one of the
 * embedding's sum forward, one of the head's gradient backward. */
static void test_all_reduces(void **state)
{
    (void)state;
    static const char *const models[] = {GPT, LLAMA};
    for (int m = 0; m < 2; m++)
        for (int tensor = 2; tensor <= 8; tensor *= 2) {
            struct sbp_degrees degrees = sbp_degrees_none();
            struct sbp_plan plan;
            struct sbp_step step;
            degrees.tensor = tensor;
            open_plan(models[m], 1, &plan);
            price(&plan, &degrees, &step);
            assert_int_equal(count(&step, SBP_ALL_REDUCE, SBP_CAUSE_ACTIVATION), 2 * LAYERS + 1);
            assert_int_equal(count(&step, SBP_ALL_REDUCE, SBP_CAUSE_ACTIVATION_GRADIENT),
                             2 * LAYERS + 1);
            assert_int_equal(count(&step, SBP_ALL_GATHER, SBP_CAUSE_ACTIVATION), 0);
            sbp_step_free(&step);
            sbp_plan_free(&plan);
        }
}

/* With sequence parallelism an all-gather and a reduce-scatter take an all-reduce's place
 * (Korthikanti et al., 2022, figure 5), and what was gathered is gathered again in the backward
 * pass (section 4.2.2). */
static void test_sequence_parallel(void **state)
{
    (void)state;
    struct sbp_degrees degrees = sbp_degrees_none();
    struct sbp_plan plan;
    struct sbp_step step;
    degrees.tensor = 8;
    degrees.sequence_parallel = true;
    open_plan(GPT, 1, &plan);
    price(&plan, &degrees, &step);
    assert_int_equal(count(&step, SBP_ALL_REDUCE, SBP_CAUSE_ACTIVATION), 0);
    assert_int_equal(count_in(&step, SBP_SECTION_FORWARD, SBP_ALL_GATHER, SBP_CAUSE_ACTIVATION),
                     2 * LAYERS + 1);
    assert_int_equal(count_in(&step, SBP_SECTION_RECOMPUTE, SBP_ALL_GATHER, SBP_CAUSE_ACTIVATION),
                     2 * LAYERS + 1);
    assert_int_equal(count(&step, SBP_REDUCE_SCATTER, SBP_CAUSE_ACTIVATION), 2 * LAYERS + 1);
    assert_int_equal(count(&step, SBP_REDUCE_SCATTER, SBP_CAUSE_ACTIVATION_GRADIENT),
                     2 * LAYERS + 1);
    assert_true(plan.cut.parallel.regather);
    sbp_step_free(&step);
    sbp_plan_free(&plan);
}

/* ---- placement ------------------------------------------------------------------------------ */

static const struct sbp_fix *fix_of(const struct sbp_degrees_plan *made, const char *layer)
{
    for (int i = 0; i < made->fix_count; i++)
        if (strcmp(made->fix[i].layer, layer) == 0)
            return &made->fix[i];
    fail_msg("no fix of %s", layer);
    return NULL;
}

static void expect_ways(const struct sbp_plan *plan, const struct sbp_degrees_plan *made,
                        const char *layer, const char *role, int64_t outer, int64_t inner)
{
    const struct sbp_graph *graph = &plan->cut.graph;
    const struct sbp_fix *fix = fix_of(made, layer);
    for (int op = 0; op < graph->op_count; op++)
        if (strcmp(graph->op[op].name, layer) == 0) {
            const int at = sbp_op_role(graph->op[op].entry, role);
            assert_int_equal(fix->factor[at][0], outer);
            assert_int_equal(fix->factor[at][1], inner);
        }
}

/* Tensor parallel takes the innermost devices, then context, then data; stages the outermost. */
static void test_placement(void **state)
{
    (void)state;
    static const struct {
        int64_t tensor, context, pipeline;
        int64_t column[2], sequence[2], batch[2]; /* node, gpu */
    } rows[] = {{4, 1, 1, {1, 4}, {1, 1}, {8, 2}},
                {4, 2, 1, {1, 4}, {1, 2}, {8, 1}},
                {8, 2, 2, {1, 8}, {2, 1}, {2, 1}},
                {2, 2, 8, {1, 2}, {1, 2}, {1, 2}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sbp_degrees degrees = sbp_degrees_none();
        struct sbp_degrees_plan made;
        struct sbp_diag diag = {{0}};
        struct sbp_plan plan;
        degrees.tensor = rows[i].tensor;
        degrees.context = rows[i].context;
        degrees.pipeline = rows[i].pipeline;
        open_plan(GPT, 8, &plan);
        if (sbp_degrees_apply(&degrees, &plan, &plan.arena, &made, &diag) != SBP_OK)
            fail_msg("%s", diag.text);
        expect_ways(&plan, &made, "block0.qkv", "column", rows[i].column[0], rows[i].column[1]);
        expect_ways(&plan, &made, "block0.qkv", "sequence", rows[i].sequence[0],
                    rows[i].sequence[1]);
        expect_ways(&plan, &made, "block0.qkv", "batch", rows[i].batch[0], rows[i].batch[1]);
        expect_ways(&plan, &made, "block0.projection", "row", rows[i].column[0], rows[i].column[1]);
        assert_int_equal(made.degrees.data, rows[i].batch[0] * rows[i].batch[1]);
        sbp_plan_free(&plan);
    }
}

/* Four heads of keys on eight tensor ranks lie whole on pairs of them. */
static void test_shared_keys(void **state)
{
    (void)state;
    struct sbp_degrees degrees = sbp_degrees_none();
    struct sbp_degrees_plan made;
    struct sbp_diag diag = {{0}};
    struct sbp_plan plan;
    degrees.tensor = 8;
    open_plan(LLAMA, 1, &plan);
    assert_int_equal(sbp_degrees_apply(&degrees, &plan, &plan.arena, &made, &diag), SBP_OK);
    expect_ways(&plan, &made, "block0.attention", "head", 1, 4);
    expect_ways(&plan, &made, "block0.attention", "query", 1, 2);
    expect_ways(&plan, &made, "block0.kv", "column", 1, 4);
    expect_ways(&plan, &made, "block0.kv", "replicate", 1, 2);
    expect_ways(&plan, &made, "block0.q", "column", 1, 8);
    sbp_plan_free(&plan);
}

/* ---- published configurations --------------------------------------------------------------- */

/* Narayanan et al., 2021 (SC21), table 1, micro-batches and virtual stages as in the repository's
 * scripts of it; Korthikanti et al., 2022, table 3. */
static const struct published {
    int layers, hidden, heads, batch, gpus;
    int64_t tensor, pipeline, chunks, micro_batch;
} published[] = {
    {24, 2304, 24, 512, 32, 1, 1, 1, 16},       {30, 3072, 32, 512, 64, 2, 1, 1, 16},
    {36, 4096, 32, 512, 128, 4, 1, 1, 16},      {40, 6144, 48, 1024, 256, 8, 1, 1, 8},
    {48, 8192, 64, 1536, 512, 8, 2, 1, 4},      {60, 10240, 80, 1792, 1024, 8, 4, 3, 2},
    {80, 12288, 96, 2304, 1536, 8, 8, 2, 2},    {96, 16384, 128, 2160, 1920, 8, 16, 2, 1},
    {105, 20480, 128, 2520, 2520, 8, 35, 3, 1}, {128, 25600, 160, 3072, 3072, 8, 64, 1, 1},
    {48, 6144, 64, 4, 8, 8, 1, 1, 4},           {96, 12288, 96, 64, 64, 8, 8, 3, 1},
    {105, 20480, 128, 280, 280, 8, 35, 3, 1},   {128, 25600, 160, 512, 512, 8, 64, 1, 1},
};

static void test_published(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        const struct published *row = &published[i];
        struct sbp_degrees degrees = sbp_degrees_none();
        struct sbp_plan plan;
        struct sbp_step step;
        char model[256];
        (void)snprintf(model, sizeof model,
                       "{\"name\": \"gpt\", \"architecture\": \"gpt\", \"layers\": %d,"
                       "\"hidden\": %d, \"heads\": %d, \"sequence\": 2048, \"vocab\": 51200,"
                       "\"global_batch\": %d, \"precision\": \"mixed\"}",
                       row->layers, row->hidden, row->heads, row->batch);
        degrees.tensor = row->tensor;
        degrees.pipeline = row->pipeline;
        degrees.chunks = row->chunks;
        degrees.micro_batch = row->micro_batch;
        degrees.sequence_parallel = i % 2 == 0;
        degrees.recompute = i % 2 == 0 ? SBP_RECOMPUTE_ATTENTION : SBP_RECOMPUTE_FULL;
        open_plan(model, row->gpus / 8, &plan);
        price(&plan, &degrees, &step);
        sbp_step_free(&step);
        sbp_plan_free(&plan);
    }
}

/* ---- refusals ------------------------------------------------------------------------------- */

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        struct sbp_degrees degrees;
        const char *says; /* a part of the message */
    } rows[] = {
        {GPT, {.tensor = 3}, "tp: tp 3 x pp 1 x cp 1 do not divide the 16 devices"},
        {GPT,
         {.tensor = 16},
         "tp: 16 ways do not divide the 8 heads of block0.attention, legal "
         "are 1, 2, 4, 8"},
        {GPT, {.tensor = 2, .data = 4}, "dp: tp 2 x pp 1 x cp 1 leave 8 of the 16 devices"},
        {GPT,
         {.pipeline = 16},
         "pp: 16 stages x 1 chunks do not divide the 8 layers, legal are "
         "1, 2, 4, 8"},
        {GPT, {.pipeline = 2, .chunks = 3}, "vpp: "},
        {GPT, {.chunks = 2}, "vpp: 2 chunks take turns with pp 2 and more"},
        {GPT, {.micro_batch = 3}, "micro-batch: 3 sequences on each of dp 16 replicas"},
        {GPT, {.expert = 2}, "ep: gpt has no experts, 1 is legal"},
        {MIXTRAL,
         {.expert = 16},
         "ep: 16 ways do not divide the 8 experts of a layer, legal are "
         "1, 2, 4, 8"},
        {MIXTRAL, {.tensor = 4, .expert_tensor = 8}, "etp: 8 does not divide tp 4, legal are 1, 2"},
        {MLP, {.tensor = 2}, "tp: mlp has no attention"},
        {MLP, {.context = 2}, "cp: mlp has no attention"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sbp_degrees degrees = rows[i].degrees;
        struct sbp_degrees_plan made;
        struct sbp_diag diag = {{0}};
        struct sbp_plan plan;
        degrees.zero = degrees.recompute = SBP_ANY;
        open_plan(rows[i].model, 2, &plan);
        assert_int_equal(sbp_degrees_apply(&degrees, &plan, &plan.arena, &made, &diag),
                         SBP_E_INPUT);
        if (strncmp(diag.text, "degrees: ", 9) != 0 || strstr(diag.text, rows[i].says) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", diag.text, rows[i].says);
        sbp_plan_free(&plan);
    }
}

/* Pieces are interleaved unless the plan has another schedule, which stays. */
static void test_schedules_stay(void **state)
{
    (void)state;
    static const enum sbp_schedule schedules[] = {SBP_ONE_F_ONE_B, SBP_INTERLEAVED, SBP_CDP_V1,
                                                  SBP_CDP_V2, SBP_GPIPE};
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) {
        const bool cyclic = sbp_timeline_delays_gradients(schedules[i]);
        struct sbp_degrees degrees = sbp_degrees_none();
        struct sbp_degrees_plan made;
        struct sbp_diag diag = {{0}};
        struct sbp_plan plan;
        open_plan(GPT, 1, &plan);
        plan.cut.parallel.schedule = schedules[i];
        plan.cut.parallel.allow_delayed_gradients = cyclic;
        degrees.pipeline = cyclic ? 1 : 2;
        degrees.chunks = 2;
        const enum sbp_status status =
            sbp_degrees_apply(&degrees, &plan, &plan.arena, &made, &diag);
        if (schedules[i] == SBP_GPIPE)
            assert_non_null(strstr(diag.text, "chunks: schedule gpipe has one chunk a stage"));
        else
            assert_int_equal(plan.cut.parallel.schedule, cyclic ? schedules[i] : SBP_INTERLEAVED);
        assert_int_equal(status, schedules[i] == SBP_GPIPE ? SBP_E_INPUT : SBP_OK);
        sbp_plan_free(&plan);
    }
}

/* A refusal lists the legal divisors, of numbers of any size: looking at all that are smaller would
 * take an hour for the prime below 2^40. */
static void test_divisors(void **state)
{
    (void)state;
    static const struct {
        int64_t tensor;
        const char *legal;
    } rows[] = {
        {1, "1"},
        {7, "1, 7"},
        {12, "1, 2, 3, 4, 6, 12"},
        {36, "1, 2, 3, 4, 6, 9, 12, 18, 36"},
        {INT64_C(1) << 31, "1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, "
                           "32768, 65536, ..."},
        {INT64_C(2147483647) * 2, "1, 2, 2147483647, 4294967294"},
        {(INT64_C(1) << 40) - 87, "1, 1099511627689"},
    };
    struct sbp_plan plan;
    open_plan(MIXTRAL, 1, &plan);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sbp_workload workload = plan.workload;
        struct sbp_degrees asked = sbp_degrees_none(), completed;
        struct sbp_diag diag = {{0}};
        char says[256];
        workload.cluster.level_count = 1;
        workload.cluster.level[0].size = asked.tensor = rows[i].tensor;
        asked.expert_tensor = rows[i].tensor + 1;
        (void)snprintf(says, sizeof says,
                       "degrees: etp: %lld does not divide tp %lld, legal are %s",
                       (long long)asked.expert_tensor, (long long)asked.tensor, rows[i].legal);
        assert_int_equal(sbp_degrees_complete(&asked, &workload, &completed, &diag), SBP_E_INPUT);
        assert_string_equal(diag.text, says);
    }
    sbp_plan_free(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_combination),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_zero_3),
        cmocka_unit_test(test_all_reduces),
        cmocka_unit_test(test_sequence_parallel),
        cmocka_unit_test(test_placement),
        cmocka_unit_test(test_shared_keys),
        cmocka_unit_test(test_published),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_schedules_stay),
        cmocka_unit_test(test_divisors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
