/* Prices of a space with one stage against those of compiled plans: for every operator of the
 * catalogue, whatever is cut, kept and recomputed, and under every schedule. */
#include <math.h>
#include <stdio.h>

#include "costmodel/program/stages.h"
#include "planner/inner/cut_solve.h"
#include "planner/plan/plan.h"
#include "tests/support/space_bench.h"
#include "tests/support/unit.h"

/* how->micro_batch: so many micro-batches. Returns prices.least_bytes. */
static double check_parallel_prices(const char *name, const char *model, const char *levels,
                                    struct sbp_solve_request request,
                                    const struct sbp_parallel *how)
{
    struct prices prices = {.least_bytes = 1};
    struct sbp_plan plan;
    struct sbp_diag why = {{0}};
    open_plan(model, levels, &plan);
    struct sbp_parallel parallel = *how;
    parallel.micro_batch = plan.cut.parallel.micro_batch / how->micro_batch;
    if (sbp_plan_cut(&plan, &parallel, &why) != SBP_OK)
        fail_msg("%s", why.text);
    for (int objective = 0; objective < 2; objective++) {
        struct bench bench;
        request.asked.objective = objective == 0 ? SBP_STEP_TIME : SBP_COMMUNICATION;
        bench_open(&bench, &plan, &request);
        for (uint64_t seed = 0; seed < 60; seed++) {
            struct sbp_random random;
            sbp_random_seed(&random, seed);
            if (bench_draw(&bench, &random))
                check_price(&plan, &bench, seed, &prices);
        }
        bench_close(&bench);
    }
    sbp_plan_free(&plan);
    print_message("%-12s %3d plans, %3d at the unlabelled price, largest gap %.3g %%, sums at most "
                  "%.3g %% below the step, bytes at least %.3g %%, at work %.3g %% in the mean, %d "
                  "without labels\n",
                  name, prices.run, prices.equal, 100 * prices.largest_gap, 100 * prices.loosest,
                  100 * prices.least_bytes, 100 * prices.working_bytes / prices.run,
                  prices.not_labelled);
    assert_true(prices.run > 0);
    return prices.least_bytes;
}

/* Plain but for a number of micro-batches and ZeRO, as check_parallel_prices takes it. */
static struct sbp_parallel cut(int micro_batches, int zero)
{
    const struct sbp_graph graph = {.global_batch = micro_batches};
    struct sbp_parallel parallel = sbp_parallel_default(&graph);
    parallel.zero = zero;
    return parallel;
}

static double check_cut_prices(const char *name, const char *model, const char *levels,
                               struct sbp_solve_request request, int micro_batches, int zero)
{
    const struct sbp_parallel parallel = cut(micro_batches, zero);
    return check_parallel_prices(name, model, levels, request, &parallel);
}

static void check_prices(const char *name, const char *model, const char *levels,
                         struct sbp_solve_request request)
{
    (void)check_cut_prices(name, model, levels, request, 1, 0);
}

/* --- models --- */

static const char *const chain =
    "{\"name\": \"m\", \"global_batch\": 144, \"sequence\": 144, \"input\": \"split\", "
    "\"features\": 144, \"layers\": [{\"op\": \"linear\", \"out\": 288, \"bias\": true}, "
    "{\"op\": \"gelu\"}, {\"op\": \"linear\", \"out\": 144}, {\"op\": \"layernorm\"}, "
    "{\"op\": \"linear\", \"out\": 144, \"bias\": true}, {\"op\": \"cross_entropy\"}]}";

#define HEAD(name, more) "{\"name\": \"" name "\", \"global_batch\": 48, " more " \"layers\": ["

/* Between them, every operator of the catalogue but those of the chain and of GPT. */
/* clang-format off */
static const char *const decoder =
    HEAD("decoder", "\"sequence\": 48, \"precision\": \"mixed\",")
    "{\"op\": \"embedding\", \"name\": \"e\", \"vocab\": 96, \"hidden\": 48, \"types\": 2}, "
    "{\"op\": \"rmsnorm\", \"name\": \"n\"}, "
    "{\"op\": \"linear\", \"name\": \"q\", \"out\": 96, \"out_heads\": 48}, "
    "{\"op\": \"head_norm\", \"name\": \"h\"}, {\"op\": \"rotary\", \"name\": \"r\"}, "
    "{\"op\": \"linear\", \"name\": \"kv\", \"inputs\": [\"n\"], \"out\": 48, \"out_heads\": 12}, "
    "{\"op\": \"grouped_attention\", \"name\": \"a\", \"inputs\": [\"r\", \"kv\"], "
    "\"heads\": 48, \"kv_heads\": 12, \"head_dim\": 2}, "
    "{\"op\": \"linear\", \"name\": \"gu\", \"out\": 96, \"out_heads\": 48}, {\"op\": \"swiglu\"}, "
    "{\"op\": \"linear\", \"name\": \"d\", \"out\": 48}, "
    "{\"op\": \"moe\", \"experts\": 24, \"top_k\": 2, \"ffn\": 48, \"capacity\": 1.25, "
    "\"gated\": true, \"router_bias\": true}]}";
static const char *const latent =
    HEAD("latent", "\"sequence\": 48, \"features\": 48, \"input\": \"split\",")
    "{\"op\": \"summa_linear\", \"name\": \"s\", \"out\": 48}, "
    "{\"op\": \"linear\", \"name\": \"lq\", \"out\": 144, \"out_heads\": 48}, "
    "{\"op\": \"linear\", \"name\": \"lk\", \"inputs\": [\"s\"], \"out\": 192, \"out_heads\": 48}, "
    "{\"op\": \"linear\", \"name\": \"lr\", \"inputs\": [\"s\"], \"out\": 1}, "
    "{\"op\": \"latent_attention\", \"inputs\": [\"lq\", \"lk\", \"lr\"], \"heads\": 48, "
    "\"nope\": 2, \"rope\": 1, \"value\": 2}]}";
static const char *const images =
    HEAD("images",
         "\"input\": {\"height\": 48, \"width\": 10, \"channels\": 48, \"split\": true},")
    "{\"op\": \"conv2d\", \"name\": \"c\", \"out\": 48, \"kernel\": [3, 5], \"padding\": [1, 2], "
    "\"bias\": true}, {\"op\": \"batchnorm\"}, {\"op\": \"relu\", \"name\": \"r\"}, "
    "{\"op\": \"conv2d\", \"name\": \"d\", \"out\": 48, \"kernel\": 1}, "
    "{\"op\": \"add\", \"inputs\": [\"r\", \"d\"]}, {\"op\": \"maxpool\", \"kernel\": 2}, "
    "{\"op\": \"avgpool\", \"global\": true}, {\"op\": \"flatten\"}, "
    "{\"op\": \"linear\", \"out\": 48}, {\"op\": \"tanh\"}]}";
static const char *const patches =
    HEAD("patches", "\"input\": {\"height\": 48, \"width\": 48, \"channels\": 3},")
    "{\"op\": \"patch_embedding\", \"patch\": 4, \"hidden\": 48, \"positions\": true}, "
    "{\"op\": \"layernorm\"}, {\"op\": \"linear\", \"out\": 48}]}";
static const char *const own =
    HEAD("own", "\"sequence\": 2, \"features\": 48,")
    "{\"op\": \"custom\", \"name\": \"u\", \"inputs\": [\"input\"], \"out\": 96, "
    "\"out_heads\": 48, \"weights\": [[48, 96], [96]], \"saved_bytes\": 3, \"roles\": ["
    "{\"name\": \"batch\", \"input\": \"S0\", \"weight\": \"B\", \"output\": \"S0\"}, "
    "{\"name\": \"sum\", \"input\": [\"S2\"], \"weight\": [\"S0\", \"B\"], "
    "\"gradient\": [\"S0\", \"B\"], \"output\": \"P\"}], "
    "\"flops\": {\"forward\": 1e9, \"input_gradient\": 1e9, \"weight_gradient\": 1e9}, "
    "\"bytes\": {\"forward\": 5}, \"collectives\": [{\"pass\": \"forward\", \"role\": \"sum\", "
    "\"kind\": \"all-to-all\", \"bytes\": 99, \"divided\": false}]}, "
    "{\"op\": \"linear\", \"out\": 48}]}";
/* Blocks of either attention of theirs. */
static const char *const llama =
    "{\"name\": \"llama\", \"architecture\": \"llama\", \"layers\": 3, \"hidden\": 96, \"heads\": 48, "
    "\"kv_heads\": 24, \"ffn\": 192, \"sequence\": 48, \"vocab\": 96, \"global_batch\": 48}";
static const char *const deepseek =
    "{\"name\": \"deepseek\", \"architecture\": \"deepseek\", \"layers\": 3, \"hidden\": 96, "
    "\"heads\": 24, \"q_rank\": 48, \"kv_rank\": 24, \"nope\": 2, \"rope\": 2, \"value\": 4, "
    "\"dense_layers\": 1, \"experts\": 12, \"top_k\": 2, \"expert_ffn\": 24, \"ffn\": 192, "
    "\"sequence\": 24, \"vocab\": 96, \"global_batch\": 24}";
/* clang-format on */

/* --- tests --- */

static void test_prices(void **state)
{
    (void)state;
    static const char *const flat = LEVEL("l", 12), *const two = LEVEL("o", 4) ", " LEVEL("i", 6);
    const struct sbp_solve_request full = {.asked.space = SBP_SPACE_FULL, .asked.quick = true},
                                   paper = {.asked.space = SBP_SPACE_AUTODDL};
    check_prices("chain", chain, flat, full);
    check_prices("chain", chain, two, full);
    check_prices("chain", chain, two, paper);
    check_prices("gpt", GPT(1, ""), flat, full);
    check_prices("gpt", GPT(3, ""), two, full);
    check_prices("gpt", GPT(2, ", \"tied\": false, \"dropout\": 0.1"), two, paper);
    check_prices("gpt mixed", GPT(2, ", \"precision\": \"mixed\", \"clip_norm\": 1"), flat, full);
}

static void test_operators(void **state)
{
    (void)state;
    static const char *const flat = LEVEL("l", 12), *const two = LEVEL("o", 2) ", " LEVEL("i", 6);
    const struct sbp_solve_request full = {.asked.space = SBP_SPACE_FULL, .asked.quick = true},
                                   paper = {.asked.space = SBP_SPACE_AUTODDL};
    check_prices("decoder", decoder, flat, full);
    check_prices("decoder", decoder, two, full);
    check_prices("latent", latent, flat, full);
    check_prices("latent", latent, two, paper);
    check_prices("images", images, flat, full);
    check_prices("images", images, two, full);
    check_prices("patches", patches, two, full);
    check_prices("own", own, flat, full);
}

/* Weights that are converted before use, gradients summed in a type of their own, a wide loss. */
#define COPIES                                                                                     \
    "{\"param\": \"fp32\", \"compute\": \"bf16\", \"activation\": \"bf16\", \"grad\": "            \
    "\"bf16\", \"accumulate\": \"fp32\", \"loss\": \"fp32\"}"

/* One stage: micro-batches and ZeRO are sums, too, and the space's own. Where weights and gradients
 * are most of what a device holds, the space knows of most of it. */
static void test_cuts(void **state)
{
    (void)state;
    static const char *const flat = LEVEL("l", 12);
    static const double known_share[] = {0.61, 0.56, 0.52, 0.48};
    const struct sbp_solve_request full = {.asked.space = SBP_SPACE_FULL, .asked.quick = true};
    for (int zero = 0; zero <= 3; zero++) {
        (void)check_cut_prices("zero", GPT(2, ", \"clip_norm\": 1"), flat, full, 1, zero);
        (void)check_cut_prices("zero of 3", GPT(2, ", \"precision\": \"mixed\""), flat, full, 3,
                               zero);
        (void)check_cut_prices("decoder of 4", decoder, flat, full, 4, zero);
        assert_true(check_cut_prices("copies of 2", GPT(2, ", \"precision\": " COPIES), flat, full,
                                     2, zero) > known_share[zero]);
    }
}

/* However little a step keeps, the space takes no more for it than the program does. */
static void test_kept_again(void **state)
{
    (void)state;
    static const char *const flat = LEVEL("l", 12);
    static const char *const models[] = {GPT(3, ""), llama, deepseek};
    const struct sbp_solve_request full = {.asked.space = SBP_SPACE_FULL, .asked.quick = true};
    for (int m = 0; m < 3; m++)
        for (int again = 0; again < SBP_RECOMPUTES; again++) {
            struct sbp_parallel parallel = cut(2, 0);
            parallel.recompute = (enum sbp_recompute)again;
            parallel.regather = true;
            (void)check_parallel_prices("kept again", models[m], flat, full, &parallel);
        }
}

/* Where many micro-batches are kept, they are most of what a device holds, and the space knows of
 * most of them. */
static void test_kept_in_flight(void **state)
{
    (void)state;
    static const char *const flat = LEVEL("l", 12);
    static const double known_share[SBP_RECOMPUTES] = {[SBP_RECOMPUTE_NONE] = 0.92,
                                                       [SBP_RECOMPUTE_ATTENTION] = 0.9,
                                                       [SBP_RECOMPUTE_SELECTIVE] = 0.84,
                                                       [SBP_RECOMPUTE_FULL] = 0.74};
    const struct sbp_solve_request full = {.asked.space = SBP_SPACE_FULL, .asked.quick = true};
    for (int again = 0; again < SBP_RECOMPUTES; again++) {
        struct sbp_parallel parallel = cut(36, 3);
        parallel.schedule = SBP_GPIPE;
        parallel.recompute = (enum sbp_recompute)again;
        const double share =
            check_parallel_prices(sbp_parallel_recompute_name(parallel.recompute),
                                  GPT(3, ", \"precision\": \"mixed\""), flat, full, &parallel);
        assert_true(share > known_share[again]);
    }
}

/* One stage under every schedule but that of several: what it keeps in flight is never less than
 * the space takes. */
static void test_schedules(void **state)
{
    (void)state;
    static const char *const flat = LEVEL("l", 12);
    const struct sbp_solve_request full = {.asked.space = SBP_SPACE_FULL, .asked.quick = true};
    for (int schedule = 0; schedule < SBP_SCHEDULES; schedule++)
        for (int limit = 0; limit <= 3; limit += 3) {
            struct sbp_parallel parallel = cut(6, 1);
            parallel.schedule = (enum sbp_schedule)schedule;
            if (parallel.schedule == SBP_INTERLEAVED)
                continue;
            parallel.allow_delayed_gradients = sbp_timeline_delays_gradients(parallel.schedule);
            if (schedule == SBP_MESSAGE_DRIVEN || schedule == SBP_ZERO_BUBBLE)
                parallel.pipeline_limit = limit;
            (void)check_parallel_prices(sbp_timeline_schedule_name(parallel.schedule), GPT(2, ""),
                                        flat, full, &parallel);
        }
}

/* Repeats of norms, each with a ZeRO level of its own. */
static void test_levels_of_repeats(void **state)
{
    (void)state;
    enum { NORMS = 3 };
    struct sbp_fix fix[NORMS];
    const struct sbp_solve_request request = {.asked.space = SBP_SPACE_FULL,
                                              .asked.quick = true,
                                              .asked.fix_count = NORMS,
                                              .asked.fix = fix};
    for (int n = 0; n < NORMS; n++) {
        fix[n] = (struct sbp_fix){.zero = NORMS - n};
        (void)snprintf(fix[n].layer, sizeof fix[n].layer, "block%d.norm1", n);
        for (int role = 0; role < SBP_MAX_ROLES; role++)
            for (int level = 0; level < SBP_MAX_LEVELS; level++)
                fix[n].factor[role][level] = SBP_ANY;
    }
    for (int zero = 0; zero <= 3; zero += 3)
        (void)check_cut_prices("repeats", GPT(3, ""), LEVEL("l", 12), request, 2, zero);
}

/* The least that a device of two needs for a model in two stages. */
static double least_bytes(enum sbp_schedule schedule, struct sbp_plan *plan)
{
    const struct sbp_solve_request full = {.asked.space = SBP_SPACE_FULL, .asked.quick = true};
    struct sbp_diag why = {{0}};
    double bytes = 0;
    open_plan(GPT(3, ""), LEVEL("l", 2), plan);
    struct sbp_parallel parallel = plan->cut.parallel;
    parallel.pipeline = 2;
    parallel.micro_batch /= 4;
    parallel.schedule = schedule;
    parallel.allow_delayed_gradients = true;
    if (sbp_plan_cut(plan, &parallel, &why) != SBP_OK ||
        sbp_inner_least_bytes(&plan->cut, &full, &bytes, &why) != SBP_OK)
        fail_msg("%s", why.text);
    return bytes;
}

static double weight_bytes(const struct sbp_graph *graph, int first_op, int end_op)
{
    double elements = 0;
    for (int op = first_op; op < end_op; op++)
        for (int w = 0; w < graph->op[op].weight_count; w++) {
            double of_tensor = 1;
            for (int dim = 0; dim < SBP_MAX_DIMS; dim++)
                of_tensor *= (double)graph->tensor[graph->op[op].weight[w]].shape.size[dim];
            elements += of_tensor;
        }
    return elements * sizeof(float);
}

/* Without a flush the first stage, which is the fullest here, has its weights twice. */
static void test_versions(void **state)
{
    (void)state;
    static const enum sbp_schedule cyclic[] = {SBP_CDP_V1, SBP_CDP_V2};
    for (int i = 0; i < 2; i++) {
        struct sbp_plan plan;
        struct sbp_diag why = {{0}};
        int first[3];
        const double once = least_bytes(SBP_ONE_F_ONE_B, &plan);
        assert_int_equal(sbp_stages_cut_as(&plan.cut.graph, 2, &plan.cut.parallel, first, &why),
                         SBP_OK);
        const double weights = weight_bytes(&plan.cut.graph, 0, first[1]);
        sbp_plan_free(&plan);
        const double twice = least_bytes(cyclic[i], &plan);
        sbp_plan_free(&plan);
        assert_true(fabs(twice - once - weights) <= 1e-9 * once);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prices),
        cmocka_unit_test(test_operators),
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_kept_again),
        cmocka_unit_test(test_kept_in_flight),
        cmocka_unit_test(test_schedules),
        cmocka_unit_test(test_levels_of_repeats),
        cmocka_unit_test(test_versions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
