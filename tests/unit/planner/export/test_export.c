/* Plans of many kinds, exported: the arguments of Megatron-LM, read back, cost what the export says
 * to the last bit; and what an export loses, it names.
 *
 * Draws: SBP_EXPORT_DRAWS (default 10) random models, cuts and searches; SBP_EXPORT_SEED. */
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/math/random.h"
#include "planner/degrees/megatron.h"
#include "planner/export/export.h"
#include "planner/outer/branch_and_bound.h"
#include "planner/validate/layout_search.h"
#include "tests/support/unit.h"

/* ---- what is drawn --------------------------------------------------------------------------- */

static const char *const models[] = {
    "{\"name\": \"g\", \"architecture\": \"gpt\", \"layers\": 5, \"hidden\": 64, \"heads\": 4, "
    "\"vocab\": 128, \"sequence\": 32, \"global_batch\": 16, \"precision\": \"mixed\"}",
    "{\"name\": \"l\", \"architecture\": \"llama\", \"layers\": 8, \"hidden\": 64, \"heads\": 8, "
    "\"kv_heads\": 2, \"head_dim\": 16, \"ffn\": 96, \"vocab\": 120, \"vocab_multiple\": 16, "
    "\"sequence\": 64, \"global_batch\": 32, \"attention\": \"flash\", \"qk_norm\": true}",
    "{\"name\": \"m\", \"architecture\": \"mixtral\", \"layers\": 4, \"hidden\": 64, \"heads\": 4, "
    "\"kv_heads\": 2, \"experts\": 4, \"top_k\": 2, \"ffn\": 32, \"dense_layers\": 1, "
    "\"dense_ffn\": 128, \"vocab\": 128, \"sequence\": 32, \"global_batch\": 16}",
    "{\"name\": \"d\", \"architecture\": \"deepseek\", \"layers\": 4, \"hidden\": 64, \"heads\": "
    "4, \"q_rank\": 32, \"kv_rank\": 16, \"nope\": 16, \"rope\": 8, \"value\": 16, "
    "\"dense_layers\": 1, \"ffn\": 128, \"experts\": 4, \"top_k\": 2, \"expert_ffn\": 32, "
    "\"shared_experts\": 1, \"vocab\": 128, \"sequence\": 32, \"global_batch\": 16}",
    "{\"name\": \"e\", \"architecture\": \"mixtral\", \"layers\": 8, \"hidden\": 64, \"heads\": 4, "
    "\"experts\": 4, \"top_k\": 2, \"ffn\": 32, \"moe_every\": 2, \"dense_ffn\": 128, \"vocab\": "
    "128, \"sequence\": 32, \"global_batch\": 16}"};
static const char cluster_text[] =
    "{\"name\": \"c\", \"levels\": [{\"name\": \"node\", \"size\": 2, \"alpha_s\": 5e-6, "
    "\"beta_s_per_byte\": 1e-9}, {\"name\": \"gpu\", \"size\": 4, \"alpha_s\": 1e-6, "
    "\"beta_s_per_byte\": 1e-10}], \"device\": {\"host_link_bytes_per_s\": 1e10, "
    "\"memory_bytes\": 1e10, \"flops\": {\"fp32\": 1e13, \"bf16\": 1e13}, "
    "\"memory_bytes_per_s\": 1e12}}";

enum { MODELS = sizeof models / sizeof *models };

static void begin_text(const char *model, struct sbp_plan *plan)
{
    struct sbp_diag diag = {{0}};
    const enum sbp_status status = sbp_plan_begin(
        cJSON_Parse(model), "model", cJSON_Parse(cluster_text), "cluster", plan, &diag);
    if (status != SBP_OK)
        fail_msg("%s", diag.text);
}

static void begin(int model, struct sbp_plan *plan)
{
    begin_text(models[model], plan);
}

static int64_t one_of(struct sbp_random *random, const int64_t *values, uint64_t count)
{
    return values[sbp_random_below(random, count)];
}

/* A cut of the step, which may not be legal. */
static struct sbp_parallel draw_parallel(struct sbp_random *random, const struct sbp_plan *plan)
{
    static const int64_t stages[] = {1, 1, 2, 4}, levels[] = {0, 1, 2, 3}, micro[] = {2, 4, 8, 16};
    static const enum sbp_schedule schedules[] = {SBP_ONE_F_ONE_B, SBP_INTERLEAVED, SBP_ZERO_BUBBLE,
                                                  SBP_GPIPE};
    struct sbp_parallel parallel = plan->cut.parallel;
    parallel.pipeline = one_of(random, stages, 4);
    parallel.zero = one_of(random, levels, 4);
    parallel.micro_batch = one_of(random, micro, 4);
    parallel.recompute = (enum sbp_recompute)sbp_random_below(random, SBP_RECOMPUTES);
    parallel.recompute_every =
        parallel.recompute == SBP_RECOMPUTE_FULL ? 1 + (int64_t)sbp_random_below(random, 2) : 1;
    parallel.offload = sbp_random_below(random, 4) == 0;
    if (parallel.pipeline == 1)
        return parallel;
    parallel.schedule = schedules[sbp_random_below(random, 4)];
    parallel.chunks = parallel.schedule == SBP_INTERLEAVED ? 2 : 1;
    return parallel;
}

/* The cheapest plan of a random cut; false: it has none. */
static bool search(struct sbp_random *random, struct sbp_plan *plan)
{
    struct sbp_diag why = {{0}};
    struct sbp_pool pool = {0};
    struct sbp_outcome outcome;
    const struct sbp_parallel parallel = draw_parallel(random, plan);
    const struct sbp_request request = {.space = SBP_SPACE_FULL,
                                        .given = ~0u,
                                        .quick = sbp_random_below(random, 2) == 0,
                                        .plan_alone = true,
                                        .solver_options = {.max_evaluations = 20000}};
    if (sbp_plan_cut(plan, &parallel, &why) != SBP_OK ||
        sbp_outer_search(plan, &request, 1, &plan->arena, &pool, &outcome, &why) != SBP_OK ||
        pool.count == 0)
        return false;
    assert_int_equal(sbp_plan_cut(plan, &pool.plan[0].parallel, &why), SBP_OK);
    plan->strategy = pool.plan[0].strategy;
    return true;
}

/* ---- there and back -------------------------------------------------------------------------- */

static const struct sbp_export_target *target_named(const char *name)
{
    int place = 0;
    while (strcmp(sbp_export_name(place), name) != 0)
        place++;
    return sbp_export_target(place);
}

/* The price that `price --megatron` gives the words. */
static void read_back(int model, const char *words, double *step_s, int64_t *bytes)
{
    struct sbp_plan plan;
    struct sbp_step step;
    struct sbp_megatron_flags flags;
    struct sbp_diag diag = {{0}};
    begin(model, &plan);
    if (sbp_megatron_read(words, &flags, &diag) != SBP_OK ||
        sbp_megatron_check(&flags, plan.workload.model_json, &plan.workload.model, &diag) !=
            SBP_OK ||
        sbp_layout_search(&plan, &flags.degrees, INT64_MAX, 0, &(struct sbp_solver_options){0},
                          step_s, &diag) != SBP_OK ||
        sbp_cut_step(&plan.cut, &plan.strategy, true, &step, &diag) != SBP_OK)
        fail_msg("%s: of %s", diag.text, words);
    *step_s = step.totals.step_s;
    *bytes = step.totals.device_bytes;
    sbp_step_free(&step);
    sbp_plan_free(&plan);
}

/* Exports a plan and reads it back; an export that loses nothing costs what the plan does. False:
 * the plan's stages begin where no stages of a trainer can. */
static bool round_trip(int model, const struct sbp_plan *plan)
{
    struct sbp_export export;
    struct sbp_export_files files;
    struct sbp_diag diag = {{0}};
    double step_s = 0;
    int64_t bytes = 0;
    const enum sbp_status status = sbp_export_make(plan, target_named("megatron"),
                                                   &(struct sbp_solver_options){0}, &export, &diag);
    if (status == SBP_E_INPUT && strstr(diag.text, "do not divide the") != NULL) {
        sbp_export_free(&export);
        return false;
    }
    if (status != SBP_OK)
        fail_msg("%s", diag.text);
    if (export.loss_count == 0)
        assert_true(export.exported_s <= export.given_s * (1 + 1e-9));
    assert_int_equal(sbp_export_write(&export, "args", &files, &diag), SBP_OK);
    assert_int_equal(files.count, 1);
    const char *words = files.file[0].text.bytes;
    read_back(model, words, &step_s, &bytes);
    if (step_s != export.exported_s || bytes != export.exported_bytes)
        fail_msg("exported %.17g s, %lld bytes; read back %.17g s, %lld bytes of %s",
                 export.exported_s, (long long)export.exported_bytes, step_s, (long long)bytes,
                 words);
    sbp_export_files_free(&files);
    sbp_export_free(&export);
    return true;
}

static int64_t setting(const char *name, int64_t otherwise)
{
    const char *given = getenv(name);
    return given == NULL ? otherwise : (int64_t)strtoll(given, NULL, 10);
}

static void test_reads_back(void **state)
{
    (void)state;
    const int64_t draws = setting("SBP_EXPORT_DRAWS", 10), seed = setting("SBP_EXPORT_SEED", 1);
    struct sbp_random random;
    int64_t found = 0;
    for (int64_t draw = 0; draw < draws; draw++) {
        struct sbp_plan plan;
        sbp_random_seed(&random, (uint64_t)(seed + draw));
        const int model = (int)sbp_random_below(&random, MODELS);
        begin(model, &plan);
        if (search(&random, &plan)) {
            print_message("draw of seed %lld: model %d\n", (long long)(seed + draw), model);
            found += round_trip(model, &plan);
        }
        sbp_plan_free(&plan);
    }
    print_message("%lld of %lld draws have a plan\n", (long long)found, (long long)draws);
    assert_true(3 * found >= draws);
}

/* ---- losses ---------------------------------------------------------------------------------- */

static bool loses(const struct sbp_export *export, const char *words)
{
    for (int i = 0; i < export->loss_count; i++)
        if (strstr(export->loss[i], words) != NULL)
            return true;
    return false;
}

/* Prices degrees on a model and exports the plan to a target. */
static void export_degrees(int model, const struct sbp_degrees *degrees, const char *target,
                           struct sbp_plan *plan, struct sbp_export *export)
{
    struct sbp_diag diag = {{0}};
    double step_s;
    begin(model, plan);
    if (sbp_layout_search(plan, degrees, INT64_MAX, 0, &(struct sbp_solver_options){0}, &step_s,
                          &diag) != SBP_OK ||
        sbp_export_make(plan, target_named(target), &(struct sbp_solver_options){0}, export,
                        &diag) != SBP_OK)
        fail_msg("%s", diag.text);
}

/* A layout that the trainer has loses nothing, at the price that it had. */
static void test_loses_nothing(void **state)
{
    (void)state;
    struct sbp_degrees degrees = sbp_degrees_none();
    struct sbp_plan plan;
    struct sbp_export export;
    degrees.tensor = 2;
    degrees.pipeline = 2;
    degrees.zero = 1;
    degrees.stage_blocks_count = 2;
    degrees.stage_blocks[0] = 5;
    degrees.stage_blocks[1] = 3;
    degrees.sequence_parallel = true;
    export_degrees(1, &degrees, "megatron", &plan, &export);
    assert_int_equal(export.loss_count, 0);
    assert_true(export.exported_s == export.given_s);
    assert_int_equal(export.exported_bytes, export.given_bytes);
    assert_int_equal(export.blocks[0], 5);
    sbp_export_free(&export);
    sbp_plan_free(&plan);
}

/* Segments of several layers, states in host memory, experts and context are read back, too. */
static void test_reads_back_degrees(void **state)
{
    (void)state;
    struct sbp_degrees degrees = sbp_degrees_none();
    struct sbp_plan plan;
    struct sbp_export export;
    degrees.context = 2;
    degrees.expert = 2;
    degrees.recompute = SBP_RECOMPUTE_FULL;
    degrees.recompute_every = 3;
    degrees.offload = true;
    degrees.zero = 1;
    export_degrees(2, &degrees, "megatron", &plan, &export);
    assert_int_equal(export.loss_count, 0);
    assert_true(round_trip(2, &plan));
    sbp_export_free(&export);
    sbp_plan_free(&plan);
}

/* A precision that a trainer lacks is named, and priced as what stands for it. */
static void test_names_losses(void **state)
{
    (void)state;
    struct sbp_degrees degrees = sbp_degrees_none();
    struct sbp_plan plan;
    struct sbp_export export;
    degrees.tensor = 2;
    degrees.zero = 1;
    degrees.recompute = SBP_RECOMPUTE_ATTENTION;
    degrees.sequence_parallel = true;
    export_degrees(1, &degrees, "fsdp2", &plan, &export);
    assert_true(loses(&export, "recompute attention -> none"));
    assert_true(loses(&export, "ZeRO 1 of"));
    assert_true(loses(&export, "block0.add1 x 8, "));
    assert_int_equal(export.degrees.zero, 2);
    assert_int_equal(export.plan.cut.parallel.zero, 2);
    assert_false(export.degrees.sequence_parallel);
    assert_true(export.exported_s != export.given_s);
    sbp_export_free(&export);
    sbp_plan_free(&plan);
}

/* ---- files ----------------------------------------------------------------------------------- */

struct written {
    struct sbp_plan plan;
    struct sbp_export export;
    struct sbp_export_files files;
    struct sbp_diag diag; /* of a refusal */
};

/* Prices degrees on a model, exports the plan and makes the file. False: the target refuses. */
static bool write_degrees(const char *model, const struct sbp_degrees *degrees, const char *target,
                          struct written *w)
{
    struct sbp_diag diag = {{0}};
    double step_s;
    memset(w, 0, sizeof *w);
    begin_text(model, &w->plan);
    if (sbp_layout_search(&w->plan, degrees, INT64_MAX, 0, &(struct sbp_solver_options){0}, &step_s,
                          &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    return sbp_export_make(&w->plan, target_named(target), &(struct sbp_solver_options){0},
                           &w->export, &w->diag) == SBP_OK &&
           sbp_export_write(&w->export, "file", &w->files, &w->diag) == SBP_OK;
}

static bool holds(const struct written *w, const char *words)
{
    return strstr(w->files.file[0].text.bytes, words) != NULL;
}

static void free_written(struct written *w)
{
    sbp_export_files_free(&w->files);
    sbp_export_free(&w->export);
    sbp_plan_free(&w->plan);
}

/* A name from outside is no code. */
static void test_name_is_no_code(void **state)
{
    (void)state;
    static const char model[] =
        "{\"name\": \"\\\"\\\"\\\"+f()+\\\\N{BAD}\", \"architecture\": \"llama\", \"layers\": 2, "
        "\"hidden\": 64, \"heads\": 8, \"ffn\": 96, \"vocab\": 128, \"sequence\": 64, "
        "\"global_batch\": 32}";
    static const char *const targets[] = {"torchtitan", "megatron-bridge", "megatron"};
    const struct sbp_degrees degrees = sbp_degrees_none();
    for (int i = 0; i < 3; i++) {
        struct written w;
        assert_true(write_degrees(model, &degrees, targets[i], &w));
        assert_false(holds(&w, "f()"));
        assert_false(holds(&w, "\\N"));
        free_written(&w);
    }
}

/* Settings that a trainer refuses side by side are not written so. */
static void test_offload_is_sharded(void **state)
{
    (void)state;
    static const char *const targets[] = {"megatron", "megatron-bridge", "deepspeed"};
    static const char *const said[] = {"--use-distributed-optimizer\n",
                                       "ddp.use_distributed_optimizer = True", "\"stage\":\t1"};
    struct sbp_degrees degrees = sbp_degrees_none();
    degrees.offload = true;
    for (int i = 0; i < 3; i++) {
        struct written w;
        assert_true(write_degrees(models[0], &degrees, targets[i], &w));
        assert_true(loses(&w.export, "ZeRO 0 of"));
        assert_int_equal(w.export.plan.cut.parallel.zero, 1);
        assert_true(holds(&w, said[i]));
        assert_true(i == 2 || holds(&w, i == 0 ? "--use-precision-aware-optimizer\n"
                                               : "optimizer.use_precision_aware_optimizer = True"));
        free_written(&w);
    }
}

/* torchtitan: dp_shard x cp x tp is a multiple of ep, and cp shards. */
static void test_torchtitan_shards_groups(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct written w;
        struct sbp_degrees degrees = sbp_degrees_none();
        degrees.tensor = i == 0 ? 4 : 2;
        degrees.expert = i == 2 ? 1 : 4;
        degrees.expert_tensor = 1;
        degrees.context = i == 2 ? 2 : 1;
        assert_true(write_degrees(models[2], &degrees, "torchtitan", &w));
        assert_int_equal(w.export.degrees.zero, i == 0 ? 0 : 2);
        assert_true(holds(&w, i == 0   ? "data_parallel_shard_degree=1,"
                              : i == 1 ? "data_parallel_shard_degree=4,"
                                       : "data_parallel_shard_degree=2,"));
        free_written(&w);
    }
}

static void test_torchtitan_refuses_tied_stages(void **state)
{
    (void)state;
    static const char model[] =
        "{\"name\": \"t\", \"architecture\": \"llama\", \"layers\": 4, \"hidden\": 64, "
        "\"heads\": 8, \"ffn\": 96, \"vocab\": 128, \"sequence\": 64, \"global_batch\": 32, "
        "\"tied\": true}";
    struct sbp_degrees degrees = sbp_degrees_none();
    struct written w;
    assert_true(write_degrees(model, &degrees, "torchtitan", &w));
    free_written(&w);
    degrees.pipeline = 2;
    assert_false(write_degrees(model, &degrees, "torchtitan", &w));
    assert_non_null(strstr(w.diag.text, "tied embeddings"));
    free_written(&w);
}

static void test_deepspeed_keeps_zero_3(void **state)
{
    (void)state;
    struct sbp_degrees degrees = sbp_degrees_none();
    struct written w;
    degrees.tensor = 2;
    degrees.zero = 3;
    assert_true(write_degrees(models[0], &degrees, "deepspeed", &w));
    assert_true(holds(&w, "\"stage\":\t3"));
    assert_false(loses(&w.export, "ZeRO"));
    free_written(&w);
}

static struct cJSON *model_of(int model, const char *key, const char *value)
{
    struct cJSON *json = cJSON_Parse(models[model]);
    cJSON_DeleteItemFromObjectCaseSensitive(json, key);
    assert_true(cJSON_AddItemToObject(json, key, cJSON_Parse(value)));
    return json;
}

/* The same of a model in which a key has another value. */
static bool write_with(int model, const char *key, const char *value,
                       const struct sbp_degrees *degrees, const char *target, struct written *w)
{
    struct cJSON *json = model_of(model, key, value);
    char *text = cJSON_PrintUnformatted(json);
    const bool legal = write_degrees(text, degrees, target, w);
    cJSON_free(text);
    cJSON_Delete(json);
    return legal;
}

/* A precision is in the file, or it is lost and the price is that of the one that is. */
static void test_precision(void **state)
{
    (void)state;
    static const struct {
        const char *target, *precision, *says, *lost;
    } cases[] = {
        {"megatron", "\"mxfp8\"", "--fp8-format e4m3\n--fp8-recipe mxfp8\n", NULL},
        {"megatron", "\"fp8\"", "--bf16\n--fp8-format hybrid\n", NULL},
        {"megatron", "\"fp16\"", "--fp16\n", NULL},
        {"megatron", "{\"param\": \"bf16\", \"accumulate\": \"fp32\"}", "--bf16\n",
         "precision type by type -> mixed"},
        {"megatron-bridge", "\"mxfp8\"", "\"bf16_with_mxfp8_mixed\"", NULL},
        {"megatron-bridge", "\"fp32\"", "\"bf16_mixed\"", "precision fp32 -> mixed"},
        {"torchtitan", "\"fp16\"", "\"bfloat16\"", "precision fp16 -> mixed"},
        {"torchtitan", "\"fp8\"", "\"bfloat16\"", "precision fp8 -> mixed"},
        {"deepspeed", "\"fp8\"", "\"bf16\"", "precision fp8 -> mixed"},
        {"deepspeed", "\"fp16\"", "\"fp16\"", NULL},
        {"fsdp2", "\"mxfp8\"", "mixed_precision: 'bf16'", "precision mxfp8 -> mixed"},
        {"galvatron", "\"fp8\"", "{", "precision fp8 -> mixed"},
        {"galvatron", "\"bf16\"", "{", "has to say: precision mixed"},
        {"dtensor", "\"fp8\"", "{", "has to say: precision fp8"},
    };
    const struct sbp_degrees degrees = sbp_degrees_none();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct written w;
        const bool is_tokens = strcmp(cases[i].target, "dtensor") != 0;
        assert_true(
            write_with(is_tokens, "precision", cases[i].precision, &degrees, cases[i].target, &w));
        if (!holds(&w, cases[i].says) ||
            loses(&w.export, cases[i].lost == NULL ? "precision" : cases[i].lost) !=
                (cases[i].lost != NULL))
            fail_msg("%s of %s: %s", cases[i].target, cases[i].precision,
                     w.files.file[0].text.bytes);
        if (strcmp(cases[i].target, "deepspeed") == 0 && i == 8)
            assert_int_equal(w.export.plan.cut.graph.precision.products, SBP_BF16);
        free_written(&w);
    }
}

/* Two layers repeat together; arguments count layers. */
static void test_segments_count_layers(void **state)
{
    (void)state;
    struct sbp_degrees degrees = sbp_degrees_none();
    struct written w;
    degrees.recompute = SBP_RECOMPUTE_FULL;
    for (int blocks = 1; blocks <= 2; blocks++) {
        degrees.recompute_every = blocks;
        assert_true(write_degrees(models[4], &degrees, "megatron", &w));
        assert_true(
            holds(&w, blocks == 1 ? "--recompute-num-layers 2\n" : "--recompute-num-layers 4\n"));
        assert_true(round_trip(4, &w.plan));
        free_written(&w);
    }
}

/* Layers that are no whole groups are priced as the next ones that are, which a note says. */
static void test_segments_are_whole(void **state)
{
    (void)state;
    struct sbp_plan plan;
    struct sbp_megatron_flags flags;
    struct sbp_diag diag = {{0}};
    begin(4, &plan);
    assert_int_equal(sbp_megatron_read("--recompute-granularity full --recompute-method uniform "
                                       "--recompute-num-layers 3",
                                       &flags, &diag),
                     SBP_OK);
    assert_int_equal(
        sbp_megatron_check(&flags, plan.workload.model_json, &plan.workload.model, &diag), SBP_OK);
    assert_int_equal(flags.degrees.recompute_every, 2);
    assert_non_null(strstr(flags.note[flags.note_count - 1], "3 layers are priced as 4"));
    sbp_plan_free(&plan);
}

/* Keys of models that arguments say, that only some models' arguments say, or that none do. */
static void test_model_keys(void **state)
{
    (void)state;
    static const struct {
        int model;
        const char *target, *key, *value, *says, *lost;
    } cases[] = {
        {1, "megatron", "window", "16", "--window-size 15,0\n", NULL},
        {1, "megatron-bridge", "window", "16", "cfg.model.window_size = 15,0\n", NULL},
        {1, "megatron", "sinks", "true", "--softmax-type learnable\n", NULL},
        {1, "megatron-bridge", "sinks", "true", "cfg.model.softmax_type = \"learnable\"\n", NULL},
        {1, "megatron", "sinks", "true", "--attention-backend fused\n", NULL},
        {1, "megatron", "ffn_bias", "true", "", "the model's ffn_bias is not written"},
        {1, "megatron", "ffn_bias", "true", "", "both prices are of the model"},
        {2, "megatron", "capacity", "1.25", "--moe-expert-capacity-factor 1.25\n", NULL},
        {2, "torchtitan", "capacity", "1.25", "", "the model's capacity is not written"},
        {2, "megatron", "router_bias", "true", "", "the model's router_bias is not written"},
        {3, "megatron", "router_bias", "true", "--moe-router-enable-expert-bias\n", NULL},
        {2, "megatron", "scoring", "\"sigmoid\"", "--moe-router-score-function sigmoid\n", NULL},
        {0, "megatron", "optimizer", "\"sgd\"", "--optimizer sgd\n--sgd-momentum 0\n", NULL},
        {0, "megatron-bridge", "optimizer", "\"sgd\"", "optimizer.optimizer = \"sgd\"", NULL},
        {1, "torchtitan", "optimizer", "\"sgd\"", "", "has to say: optimizer sgd"},
        {0, "galvatron", "optimizer", "\"sgd\"", "", "has to say: optimizer sgd"},
        {0, "megatron", "clip_norm", "0.5", "--clip-grad 0.5\n", NULL},
        {0, "megatron", "optimizer", "\"adam\"", "--clip-grad 0\n", NULL},
        {0, "megatron-bridge", "clip_norm", "0.5", "optimizer.clip_grad = 0.5", NULL},
        {1, "torchtitan", "clip_norm", "0.5", "", "has to say: clip_norm 0.5"},
        {0, "fsdp2", "clip_norm", "0.5", "", "has to say: clip_norm 0.5"},
        {0, "deepspeed", "clip_norm", "0.5", "\"gradient_clipping\":\t0.5", NULL},
    };
    const struct sbp_degrees degrees = sbp_degrees_none();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct written w;
        assert_true(write_with(cases[i].model, cases[i].key, cases[i].value, &degrees,
                               cases[i].target, &w));
        if (!holds(&w, cases[i].says) ||
            loses(&w.export, cases[i].lost == NULL ? cases[i].key : cases[i].lost) !=
                (cases[i].lost != NULL))
            fail_msg("%s of %s: %s", cases[i].key, cases[i].target, w.files.file[0].text.bytes);
        if (strcmp(cases[i].key, "router_bias") == 0 && cases[i].model == 2)
            assert_false(holds(&w, "--moe-router-score-function"));
        free_written(&w);
    }
}

/* Megatron-LM shards and offloads the states of Adam alone. */
static void test_sgd_stays_whole(void **state)
{
    (void)state;
    for (int offload = 0; offload < 2; offload++) {
        struct sbp_degrees degrees = sbp_degrees_none();
        struct written w;
        degrees.zero = 1;
        degrees.offload = offload != 0;
        assert_true(write_with(0, "optimizer", "\"sgd\"", &degrees, "megatron", &w));
        assert_false(holds(&w, "--use-distributed-optimizer"));
        assert_false(holds(&w, "--optimizer-cpu-offload"));
        assert_true(loses(&w.export, "ZeRO 1 of"));
        assert_int_equal(loses(&w.export, "offload true -> false"), offload);
        free_written(&w);
    }
}

/* Experts of a layer on two nodes, of which a token goes to one. */
static void test_node_limit(void **state)
{
    (void)state;
    struct sbp_degrees degrees = sbp_degrees_none();
    struct written w;
    degrees.expert = 4;
    assert_true(write_with(3, "nodes_per_token", "1", &degrees, "megatron", &w));
    assert_false(holds(&w, "--moe-router-num-groups"));
    free_written(&w);
    degrees.tensor = 2;
    degrees.expert_tensor = 2;
    assert_true(write_with(3, "nodes_per_token", "1", &degrees, "megatron", &w));
    assert_true(holds(&w, "--moe-router-num-groups 2\n--moe-router-group-topk 1\n"));
    assert_false(loses(&w.export, "nodes_per_token"));
    free_written(&w);
}

/* A plan that gathers nothing loses nothing by what is gathered together; samples are no sequences.
 */
static void test_true_losses(void **state)
{
    (void)state;
    static const char images[] =
        "{\"name\": \"v\", \"architecture\": \"vgg\", \"depth\": 11, \"image\": 32, \"classes\": "
        "16, \"hidden\": 64, \"global_batch\": 16}";
    const struct sbp_degrees degrees = sbp_degrees_none();
    struct written w;
    assert_true(write_degrees(models[0], &degrees, "deepspeed", &w));
    assert_false(loses(&w.export, "gather_blocks"));
    free_written(&w);
    assert_true(write_degrees(images, &degrees, "fsdp2", &w));
    assert_true(loses(&w.export, "16 samples a step"));
    free_written(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_back),
        cmocka_unit_test(test_loses_nothing),
        cmocka_unit_test(test_reads_back_degrees),
        cmocka_unit_test(test_names_losses),
        cmocka_unit_test(test_name_is_no_code),
        cmocka_unit_test(test_offload_is_sharded),
        cmocka_unit_test(test_torchtitan_shards_groups),
        cmocka_unit_test(test_torchtitan_refuses_tied_stages),
        cmocka_unit_test(test_deepspeed_keeps_zero_3),
        cmocka_unit_test(test_precision),
        cmocka_unit_test(test_segments_count_layers),
        cmocka_unit_test(test_segments_are_whole),
        cmocka_unit_test(test_model_keys),
        cmocka_unit_test(test_sgd_stays_whole),
        cmocka_unit_test(test_node_limit),
        cmocka_unit_test(test_true_losses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
