/* The search of what a target can express, against prices of all its layouts one by one; and the
 * export of what it finds. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "planner/export/export.h"
#include "planner/validate/layout_search.h"
#include "tests/support/unit.h"

static const char *const models[] = {
    "{\"name\": \"m\", \"architecture\": \"gpt\", \"layers\": 2, \"hidden\": 64, \"heads\": 4, "
    "\"vocab\": 128, \"sequence\": 32, \"global_batch\": 4}",
    "{\"name\": \"m\", \"architecture\": \"llama\", \"layers\": 4, \"hidden\": 64, \"heads\": 4, "
    "\"kv_heads\": 2, \"ffn\": 96, \"vocab\": 256, \"sequence\": 32, \"global_batch\": 4, "
    "\"precision\": \"mixed\"}",
    "{\"name\": \"m\", \"architecture\": \"mixtral\", \"layers\": 2, \"hidden\": 64, \"heads\": 4, "
    "\"kv_heads\": 2, \"ffn\": 96, \"vocab\": 128, \"sequence\": 32, \"global_batch\": 4, "
    "\"experts\": 4, \"top_k\": 2, \"precision\": \"mixed\"}",
    "{\"name\": \"m\", \"architecture\": \"mixtral\", \"layers\": 2, \"hidden\": 64, \"heads\": 4, "
    "\"kv_heads\": 2, \"ffn\": 96, \"vocab\": 128, \"sequence\": 32, \"global_batch\": 4294967296, "
    "\"experts\": 4, \"top_k\": 2, \"precision\": \"mixed\"}",
};

static const char cluster_text[] =
    "{\"name\": \"c\", \"levels\": [{\"name\": \"node\", \"size\": %d, \"alpha_s\": 1e-6, "
    "\"beta_s_per_byte\": 1e-9}, {\"name\": \"gpu\", \"size\": 2, \"alpha_s\": 1e-6, "
    "\"beta_s_per_byte\": 1e-10}], \"device\": {\"memory_bytes\": %.0f, "
    "\"host_link_bytes_per_s\": 1e9, \"flops\": {\"fp32\": 1e12, \"bf16\": 2e12}, "
    "\"memory_bytes_per_s\": 1e11}}";

/* What a trainer can express, as docs/export.md states it. */
struct rules {
    const char *name;
    bool context, experts, split_experts, interleaved, gpipe, offload, tied_stages, units;
    const char *zero, *recompute; /* levels and modes, "013" */
};
static const struct rules rules[] = {
    {"megatron", true, true, true, true, false, true, true, false, "0123", "013"},
    {"megatron-bridge", true, true, true, true, false, true, true, false, "0123", "013"},
    {"torchtitan", true, true, false, true, true, false, false, true, "023", "023"},
    {"galvatron", true, false, false, false, true, false, true, false, "023", "03"},
};

#define NODES 2

static void begin(int model, int nodes, double memory_bytes, struct sbp_plan *plan)
{
    char cluster[sizeof cluster_text + 32];
    struct sbp_diag diag = {{0}};
    (void)snprintf(cluster, sizeof cluster, cluster_text, nodes, memory_bytes);
    if (sbp_plan_begin(cJSON_Parse(models[model]), "model", cJSON_Parse(cluster), "cluster", plan,
                       &diag) != SBP_OK)
        fail_msg("%s", diag.text);
}

static const struct sbp_export_target *target_named(const char *name)
{
    int place = 0;
    while (strcmp(sbp_export_name(place), name) != 0)
        place++;
    return sbp_export_target(place);
}

/* ---- prices of all layouts ------------------------------------------------------------------- */

struct all {
    const struct rules *rules;
    int model;
    double memory_bytes;
    int priced;
    double even_s; /* the best whose stages hold equally many blocks */
    double any_s;  /* the best with any blocks of stages */
};

static void price(struct all *all, const struct sbp_degrees *degrees, enum sbp_schedule schedule)
{
    struct sbp_plan plan;
    struct sbp_diag why = {{0}};
    double step_s = INFINITY;
    begin(all->model, NODES, all->memory_bytes, &plan);
    struct sbp_parallel parallel = plan.cut.parallel;
    parallel.gather_blocks = all->rules->units;
    parallel.schedule = degrees->chunks > 1 ? SBP_ONE_F_ONE_B : schedule;
    assert_int_equal(sbp_plan_cut(&plan, &parallel, &why), SBP_OK);
    if (sbp_layout_search(&plan, degrees, 0, 0, &(struct sbp_solver_options){0}, &step_s, &why) ==
        SBP_OK) {
        all->priced++;
        all->any_s = fmin(all->any_s, step_s);
        if (degrees->stage_blocks_count == 0)
            all->even_s = fmin(all->even_s, step_s);
    }
    sbp_plan_free(&plan);
}

/* Stages of equally many blocks; two stages of all others, too. */
static void price_stages(struct all *all, struct sbp_degrees d, enum sbp_schedule schedule)
{
    const int blocks = all->model == 1 ? 4 : 2;
    if (d.pipeline * d.chunks > blocks)
        return;
    price(all, &d, schedule);
    d.stage_blocks_count = 2;
    for (int first = 1; d.pipeline == 2 && d.chunks == 1 && first < blocks; first++) {
        d.stage_blocks[0] = (uint16_t)first;
        d.stage_blocks[1] = (uint16_t)(blocks - first);
        if (2 * first != blocks)
            price(all, &d, schedule);
    }
}

static void price_schedules(struct all *all, struct sbp_degrees d)
{
    for (d.micro_batch = 1; d.micro_batch <= 4; d.micro_batch *= 2) {
        price_stages(all, d, SBP_ONE_F_ONE_B);
        if (all->rules->gpipe && d.pipeline > 1)
            price_stages(all, d, SBP_GPIPE);
        struct sbp_degrees twice = d;
        twice.chunks = 2;
        if (all->rules->interleaved && d.pipeline > 1)
            price_stages(all, twice, SBP_INTERLEAVED);
    }
}

static void price_states(struct all *all, struct sbp_degrees d)
{
    for (const char *zero = all->rules->zero; *zero != '\0'; zero++)
        for (const char *mode = all->rules->recompute; *mode != '\0'; mode++)
            for (int offload = 0; offload <= all->rules->offload; offload++) {
                d.zero = *zero - '0';
                d.recompute = *mode - '0';
                d.offload = offload;
                /* FSDP shards over the groups of context and of experts beyond the tensor group. */
                const bool must_shard =
                    all->rules->units &&
                    (d.context > 1 || (d.expert > 0 && d.tensor % d.expert != 0));
                if (d.zero > 0 || (!offload && !must_shard))
                    price_schedules(all, d);
            }
}

static void price_layers(struct all *all, struct sbp_degrees d)
{
    const bool experts = all->model == 2;
    for (int sequence = experts && d.tensor > 1; sequence <= (d.tensor > 1); sequence++)
        for (int64_t apart = 1; apart <= (experts ? 4 : 1); apart *= 2)
            for (int64_t split = 1; split <= (experts && all->rules->split_experts ? d.tensor : 1);
                 split *= 2) {
                d.sequence_parallel = sequence;
                d.expert = experts ? apart : 0;
                d.expert_tensor = experts ? split : 0;
                price_states(all, d);
            }
}

static void price_all(struct all *all)
{
    struct sbp_degrees d = sbp_degrees_none();
    const bool tied = all->model == 0;
    const int64_t most = tied && !all->rules->tied_stages ? 1 : 4;
    d.chunks = 1;
    all->even_s = all->any_s = INFINITY;
    for (d.pipeline = 1; d.pipeline <= most; d.pipeline *= 2)
        for (d.tensor = 1; d.pipeline * d.tensor <= 4; d.tensor *= 2)
            for (d.context = 1; d.pipeline * d.tensor * d.context <= 4; d.context *= 2)
                price_layers(all, d);
}

/* ---- the search ------------------------------------------------------------------------------ */

/* Searches; the plan then has what was found. False: nothing fits. */
static bool find(const struct sbp_export_target *target, struct sbp_plan *plan,
                 struct sbp_export_found *found)
{
    const struct sbp_request request = {.boxing = SBP_BOXING_FULL};
    struct sbp_degrees_plan made;
    struct sbp_diag diag = {{0}};
    if (sbp_export_find(plan, target, &request, &plan->arena, found, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    if (isinf(found->outcome.objective_s))
        return false;
    assert_int_equal(sbp_export_lay_out(plan, target, &found->degrees, found->schedule,
                                        &plan->arena, &made, &diag),
                     SBP_OK);
    assert_int_equal(sbp_plan_cut(plan, &found->parallel, &diag), SBP_OK);
    plan->strategy = found->outcome.strategy;
    return true;
}

static void check_export(const struct sbp_plan *plan, const struct sbp_export_target *target)
{
    struct sbp_export export;
    struct sbp_diag diag = {{0}};
    if (sbp_export_make(plan, target, &(struct sbp_solver_options){0}, &export, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    for (int i = 0; i < export.loss_count; i++)
        if (strncmp(export.loss[i], "the training script has to say: precision", 41) != 0)
            fail_msg("lost: %s", export.loss[i]);
    assert_true(export.exported_s == export.given_s);
    assert_int_equal(export.exported_bytes, export.given_bytes);
    sbp_export_free(&export);
}

static void check(const struct rules *rule, int model, double memory_bytes)
{
    const struct sbp_export_target *target = target_named(rule->name);
    struct all all = {.rules = rule, .model = model, .memory_bytes = memory_bytes};
    struct sbp_export_found found;
    struct sbp_plan plan;
    price_all(&all);
    begin(model, NODES, memory_bytes, &plan);
    const bool is_found = find(target, &plan, &found);
    const double found_s = found.outcome.objective_s;
    print_message("%s, model %d, %.3g bytes: %d priced, best %.9g s, found %.9g s\n", rule->name,
                  model, memory_bytes, all.priced, all.even_s, found_s);
    if (is_found) {
        assert_true(found_s <= all.even_s * (1 + 1e-9));
        assert_true(found_s >= all.any_s * (1 - 1e-9));
        assert_true(found.degrees.stage_blocks_count > 0 || found_s >= all.even_s * (1 - 1e-9));
        assert_int_equal(found.outcome.status, SBP_PLAN_OPTIMAL);
        check_export(&plan, target);
    } else {
        assert_true(isinf(all.even_s));
        assert_int_equal(found.outcome.status, SBP_PLAN_INFEASIBLE);
    }
    sbp_plan_free(&plan);
}

/* With memory for all, with so little that some layouts do not fit, and with too little for any.
 * Megatron-Bridge has Megatron-LM's table. */
static void test_best(void **state)
{
    (void)state;
    static const struct {
        int rule, model;
        double memory_bytes;
    } cases[] = {{0, 0, 6e5},   {0, 1, 1e9}, {0, 1, 8e5}, {0, 2, 1e9}, {1, 1, 8e5},
                 {2, 1, 1.2e6}, {2, 2, 1e9}, {3, 0, 6e5}, {3, 1, 1e9}, {3, 1, 1e5}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check(&rules[cases[i].rule], cases[i].model, cases[i].memory_bytes);
}

/* A search that is stopped at once has no plan, and no proof that there is none; its layouts are
 * listed in no time, however many devices there are. */
static void test_stops(void **state)
{
    (void)state;
    static const struct {
        int model, nodes;
    } cases[] = {{1, NODES}, {3, 1 << 30}};
    const atomic_int stop = 1;
    const struct sbp_request request = {.boxing = SBP_BOXING_FULL, .solver_options.stop = &stop};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sbp_export_found found;
        struct sbp_plan plan;
        struct sbp_diag diag = {{0}};
        begin(cases[i].model, cases[i].nodes, 1e9, &plan);
        assert_int_equal(
            sbp_export_find(&plan, target_named("megatron"), &request, &plan.arena, &found, &diag),
            SBP_OK);
        assert_int_equal(found.outcome.status, SBP_PLAN_TIME_LIMIT);
        assert_true(found.outcome.stopped);
        assert_true(found.outcome.lower_bound_s > 0);
        sbp_plan_free(&plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_best),
        cmocka_unit_test(test_stops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
