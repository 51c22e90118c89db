/* Lower bounds of candidates, which need no strategy, are below the step; and given keys leave the
 * right part of the list.
 *
 * Where every stage has one device there is one way to split every layer, and with very fast memory
 * arithmetic is all that a step takes: bounds are then close to it.
 */
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "planner/inner/cut_solve.h"
#include "planner/outer/step_cuts.h"
#include "planner/plan/plan.h"
#include "tests/support/solve_plan.h"
#include "tests/support/unit.h"

#define CLUSTER(size)                                                                              \
    "{\"name\": \"bare\", \"levels\": [{\"name\": \"rank\", \"size\": " #size                      \
    ", \"alpha_s\": 1e-15, \"beta_s_per_byte\": 1e-24}], \"device\": {\"memory_bytes\": 9e15,"     \
    "\"flops\": {\"fp32\": 1e12}, \"memory_bytes_per_s\": 1e24, \"host_link_bytes_per_s\": 1e24}}"

#define SIZES                                                                                      \
    "\"layers\": 4, \"hidden\": 64, \"heads\": 4, \"sequence\": 16, \"vocab\": 128,"               \
    "\"global_batch\": 8"

static const char *const MODELS[] = {
    "{\"name\": \"gpt\", \"architecture\": \"gpt\", " SIZES "}",
    "{\"name\": \"wide\", \"architecture\": \"gpt\", \"ffn\": 1024, " SIZES "}",
    "{\"name\": \"llama\", \"architecture\": \"llama\", \"kv_heads\": 2, \"ffn\": 512, " SIZES "}",
    "{\"name\": \"bert\", \"architecture\": \"bert\", \"ffn\": 512, " SIZES "}",
    "{\"name\": \"mixtral\", \"architecture\": \"mixtral\", \"kv_heads\": 2, \"ffn\": 512,"
    "\"experts\": 4, \"top_k\": 2, " SIZES "}",
    "{\"name\": \"deepseek\", \"architecture\": \"deepseek\", \"kv_rank\": 12, \"nope\": 4,"
    "\"rope\": 2, \"value\": 4, \"ffn\": 256, \"experts\": 4, \"top_k\": 2, \"expert_ffn\": 64,"
    "\"shared_experts\": 1, " SIZES "}",
    ("{\"name\": \"vit\", \"architecture\": \"vit\", \"layers\": 4, \"hidden\": 64, \"heads\": 4,"
     "\"ffn\": 512, \"image\": 32, \"patch\": 8, \"classes\": 10, \"global_batch\": 8}"),
};
/* Stages of equally many blocks are not those of equally many flops. */
static const char LARGE_HEAD[] =
    "{\"name\": \"gpt\", \"architecture\": \"gpt\", \"layers\": 4, \"hidden\": 64, \"heads\": 4,"
    "\"sequence\": 16, \"vocab\": 8192, \"global_batch\": 8}";
static const char *const CLUSTERS[] = {CLUSTER(1), CLUSTER(2), CLUSTER(4)};

static void open_plan(const char *model, const char *cluster, struct sbp_plan *plan)
{
    struct sbp_diag diag = {0};
    struct cJSON *model_json = cJSON_Parse(model), *cluster_json = cJSON_Parse(cluster);
    if (model_json == NULL || cluster_json == NULL)
        fail_msg("no JSON: %s", model_json == NULL ? model : cluster);
    if (sbp_plan_begin(model_json, "model", cluster_json, "cluster", plan, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
}

/* The step of the one strategy that a candidate has; -1: none is legal. */
static double step_s(const char *model, const char *cluster, const struct sbp_parallel *parallel)
{
    struct sbp_diag diag = {0};
    struct sbp_plan plan;
    struct sbp_outcome outcome;
    const struct sbp_request request = {.given = ~0u};
    double seconds = -1;
    open_plan(model, cluster, &plan);
    if (sbp_plan_cut(&plan, parallel, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    const enum sbp_status status = solve_plan(&plan, &request, &outcome, &diag);
    if (status != SBP_OK && status != SBP_E_INPUT)
        fail_msg("%s", diag.text);
    if (status == SBP_OK &&
        (outcome.status == SBP_PLAN_OPTIMAL || outcome.status == SBP_PLAN_FEASIBLE))
        seconds = outcome.objective_s;
    sbp_plan_free(&plan);
    return seconds;
}

/* Returns the largest ratio of a bound to its step. */
static double check_bounds(const char *model, const char *cluster, int *checked)
{
    struct sbp_diag diag = {0};
    struct sbp_arena arena = {0};
    struct sbp_step_cuts candidates;
    struct sbp_plan plan;
    const struct sbp_request request = {.space = SBP_SPACE_FULL};
    double tightest = 0;
    open_plan(model, cluster, &plan);
    const int64_t devices = sbp_cut_devices(&plan.cut);
    if (sbp_step_cuts_list(&plan.cut, &request, &arena, &candidates, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    for (int i = 0; i < candidates.count; i++) {
        const struct sbp_step_cut *candidate = &candidates.candidate[i];
        if (candidate->parallel.pipeline != devices)
            continue;
        const double step = step_s(model, cluster, &candidate->parallel);
        if (step < 0)
            continue;
        if (candidate->bound_s > step * (1 + 1e-9))
            fail_msg("%s: %lld stages, micro-batches of %lld, %s, recompute %s: a bound of %.12g s "
                     "above a step of %.12g s",
                     plan.cut.graph.name, (long long)candidate->parallel.pipeline,
                     (long long)candidate->parallel.micro_batch,
                     sbp_timeline_schedule_name(candidate->parallel.schedule),
                     sbp_parallel_recompute_name(candidate->parallel.recompute), candidate->bound_s,
                     step);
        if (candidate->bound_s > tightest * step)
            tightest = candidate->bound_s / step;
        ++*checked;
    }
    sbp_plan_free(&plan);
    sbp_arena_free(&arena);
    return tightest;
}

static void test_bounds_lie_below(void **state)
{
    int checked = 0;
    (void)state;
    for (size_t m = 0; m < sizeof MODELS / sizeof *MODELS; m++)
        for (size_t c = 0; c < sizeof CLUSTERS / sizeof *CLUSTERS; c++) {
            const double tightest = check_bounds(MODELS[m], CLUSTERS[c], &checked);
            if (tightest < 0.9)
                fail_msg("model %zu, cluster %zu: the best bound is %g of a step", m, c, tightest);
        }
    print_message("%d candidates\n", checked);
}

static struct sbp_step_cuts list(struct sbp_plan *plan, const char *given, struct sbp_arena *arena)
{
    struct sbp_diag diag = {0};
    struct sbp_request request = {.space = SBP_SPACE_FULL};
    struct sbp_step_cuts candidates;
    for (int i = 0; sbp_parallel_keys()[i] != NULL; i++)
        request.given |= strcmp(given, sbp_parallel_keys()[i]) == 0 ? 1u << i : 0;
    if (sbp_step_cuts_list(&plan->cut, &request, arena, &candidates, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    return candidates;
}

static bool agree(const char *key, const struct sbp_parallel *a, const struct sbp_parallel *b)
{
    return strcmp(key, "pipeline") == 0      ? a->pipeline == b->pipeline
           : strcmp(key, "micro_batch") == 0 ? a->micro_batch == b->micro_batch
           : strcmp(key, "recompute") == 0   ? a->recompute == b->recompute
                                             : a->offload == b->offload;
}

/* Checks that a given key leaves those candidates of the whole list that have its value. */
static void check_given(struct sbp_plan *plan, const char *key, const struct sbp_step_cuts *all,
                        const struct sbp_parallel *wanted, struct sbp_arena *arena)
{
    const struct sbp_parallel plain = plan->cut.parallel;
    plan->cut.parallel.pipeline = wanted->pipeline; /* what is not given does not count */
    plan->cut.parallel.micro_batch = wanted->micro_batch;
    plan->cut.parallel.recompute = wanted->recompute;
    plan->cut.parallel.offload = wanted->offload;
    const struct sbp_step_cuts some = list(plan, key, arena);
    plan->cut.parallel = plain;
    int at = 0;
    for (int i = 0; i < all->count; i++) {
        const struct sbp_parallel *open = &all->candidate[i].parallel;
        if (!agree(key, open, wanted))
            continue;
        if (at == some.count || some.candidate[at].parallel.pipeline != open->pipeline ||
            some.candidate[at].parallel.micro_batch != open->micro_batch ||
            some.candidate[at].parallel.schedule != open->schedule ||
            some.candidate[at].parallel.stage_cut != open->stage_cut ||
            some.candidate[at].parallel.recompute != open->recompute ||
            some.candidate[at].parallel.offload != open->offload)
            fail_msg("%s given: candidate %d, of %lld stages cut by %s, is not listed", key, i,
                     (long long)open->pipeline, sbp_parallel_stage_cut_name(open->stage_cut));
        at++;
    }
    assert_int_equal(at, some.count);
}

static void test_given_keys_leave_the_rest_open(void **state)
{
    static const char *const keys[] = {"pipeline", "micro_batch", "recompute", "offload"};
    struct sbp_plan plan;
    struct sbp_arena arena = {0};
    int by_flops = 0;
    (void)state;
    open_plan(LARGE_HEAD, CLUSTERS[2], &plan);
    const struct sbp_step_cuts all = list(&plan, "", &arena);
    for (int i = 0; i < all.count; i += 7)
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            check_given(&plan, keys[k], &all, &all.candidate[i].parallel, &arena);
    for (int i = 0; i < all.count; i++)
        by_flops += all.candidate[i].parallel.stage_cut == SBP_CUT_FLOPS;
    assert_true(by_flops > 0);
    sbp_plan_free(&plan);
    sbp_arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds_lie_below),
        cmocka_unit_test(test_given_keys_leave_the_rest_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
