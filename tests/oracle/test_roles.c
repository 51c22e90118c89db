/* The search against every labelled strategy, operator by operator: each with the roles that only
 * it has, and with spare roles and rests that a fix asks for. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "planner/plan/plan.h"
#include "labelled.h"
#include "oracle_plan.h"
#include "planner/inner/cut_solve.h"
#include "small_models.h"
#include "tests/support/solve_plan.h"
#include "tests/support/unit.h"

enum { MOST_STRATEGIES = 100000, MOST_WIDE = 40000 };

#define BATCH(batch, more)                                                                         \
    "{\"name\": \"m\", \"global_batch\": " #batch ", \"input\": \"split\", " more "\"layers\": ["
#define HEAD(more) BATCH(4, more)
#define LINEAR(name, from, out, heads)                                                             \
    "{\"op\": \"linear\", \"name\": \"" name "\", \"inputs\": [\"" from "\"], \"out\": " #out      \
    ", \"out_heads\": " #heads "}"

/* clang-format off */
static const char *const grouped =
    HEAD("\"features\": 8, \"sequence\": 4, ")
    LINEAR("q", "input", 16, 8) ", " LINEAR("kv", "input", 8, 2) ", "
    "{\"op\": \"grouped_attention\", \"name\": \"a\", \"inputs\": [\"q\", \"kv\"], \"heads\": 8, "
    "\"kv_heads\": 2, \"head_dim\": 2}]}";
/* Nothing but heads to split, so that more axes are within reach. */
static const char *const heads_alone =
    BATCH(1, "\"features\": 8, ")
    LINEAR("q", "input", 32, 16) ", " LINEAR("kv", "input", 16, 4) ", "
    "{\"op\": \"grouped_attention\", \"name\": \"a\", \"inputs\": [\"q\", \"kv\"], \"heads\": 16, "
    "\"kv_heads\": 4, \"head_dim\": 2, \"sinks\": true}]}";
static const char *const latent =
    HEAD("\"features\": 8, \"sequence\": 4, ")
    LINEAR("q", "input", 12, 4) ", " LINEAR("kv", "input", 16, 4) ", "
    LINEAR("r", "input", 1, 1) ", "
    "{\"op\": \"latent_attention\", \"name\": \"a\", \"inputs\": [\"q\", \"kv\", \"r\"], "
    "\"heads\": 4, \"nope\": 2, \"rope\": 1, \"value\": 2}]}";
static const char *const mixture =
    HEAD("\"features\": 8, \"sequence\": 4, ")
    "{\"op\": \"rmsnorm\"}, {\"op\": \"moe\", \"name\": \"x\", \"experts\": 4, \"top_k\": 2, "
    "\"ffn\": 4, \"capacity\": 1.5, \"gated\": true, \"expert_bias\": true}, "
    LINEAR("l", "x", 4, 4) "]}";
static const char *const gated =
    HEAD("\"features\": 8, \"sequence\": 4, ")
    LINEAR("gu", "input", 16, 8) ", {\"op\": \"swiglu\", \"name\": \"s\"}, "
    LINEAR("d", "s", 8, 8) ", {\"op\": \"summa_linear\", \"name\": \"z\", \"out\": 8}]}";
static const char *const images =
    "{\"name\": \"m\", \"global_batch\": 4, \"input\": {\"height\": 8, \"width\": 4, "
    "\"channels\": 4, \"split\": true}, \"layers\": [{\"op\": \"conv2d\", \"name\": \"c\", "
    "\"out\": 8, \"kernel\": 3, \"padding\": 1}, {\"op\": \"batchnorm\"}, {\"op\": \"relu\"}, "
    "{\"op\": \"maxpool\", \"kernel\": 2}, {\"op\": \"flatten\"}, "
    "{\"op\": \"linear\", \"name\": \"l\", \"out\": 4}]}";
static const char *const patches =
    "{\"name\": \"m\", \"global_batch\": 4, \"input\": {\"height\": 8, \"width\": 8, "
    "\"channels\": 3}, \"layers\": [{\"op\": \"patch_embedding\", \"name\": \"p\", \"patch\": 4, "
    "\"hidden\": 8}, {\"op\": \"layernorm\"}, {\"op\": \"linear\", \"name\": \"l\", \"out\": 8}]}";
static const char *const pair =
    HEAD("\"features\": 8, \"sequence\": 2, ")
    LINEAR("u", "input", 8, 8) ", " LINEAR("v", "u", 8, 8) "]}";
static const char *const packed =
    HEAD("\"features\": 8, \"sequence\": 4, ")
    LINEAR("qkv", "input", 24, 4) ", {\"op\": \"attention\", \"name\": \"a\", \"heads\": 4}, "
    LINEAR("o", "a", 8, 8) "]}";
/* clang-format on */

/* clang-format off */
/* Sums that meet (two branches of a block that run beside each other), that live on through an
 * operator, and that one reader of two cannot take; a tensor that several readers want whole. */
static const char *const branches =
    BATCH(2, "\"features\": 8, ") LINEAR("u", "input", 8, 8) ", " LINEAR("v", "input", 4, 4) ", "
    LINEAR("w", "v", 8, 8) ", {\"op\": \"add\", \"name\": \"s\", \"inputs\": [\"u\", \"w\"]}]}";
static const char *const chained =
    BATCH(2, "\"features\": 8, ") LINEAR("u", "input", 8, 8) ", {\"op\": \"dropout\", \"name\": "
    "\"e\", \"p\": 0.5}, " LINEAR("v", "e", 2, 2) ", "
    "{\"op\": \"relu\"}]}";
static const char *const residual =
    BATCH(2, "\"features\": 8, ") LINEAR("u", "input", 8, 8) ", " LINEAR("v", "u", 8, 8) ", "
    "{\"op\": \"add\", \"name\": \"s\", \"inputs\": [\"u\", \"v\"]}, {\"op\": \"relu\"}]}";
static const char *const shared =
    BATCH(1, "\"features\": 8, ") LINEAR("u", "input", 8, 8) ", "
    "{\"op\": \"rmsnorm\", \"name\": \"n\"}, "
    LINEAR("q", "n", 16, 16) ", {\"op\": \"relu\", \"name\": \"r\"}, "
    LINEAR("k", "n", 16, 16) ", {\"op\": \"relu\", \"name\": \"t\"}, "
    "{\"op\": \"add\", \"name\": \"s\", \"inputs\": [\"r\", \"t\"]}]}";
static const char *const shared_tokens =
    HEAD("\"features\": 8, \"sequence\": 4, ") LINEAR("u", "input", 8, 8) ", "
    "{\"op\": \"rmsnorm\", \"name\": \"n\"}, "
    LINEAR("q", "n", 16, 16) ", " LINEAR("k", "n", 16, 16) ", "
    "{\"op\": \"add\", \"name\": \"s\", \"inputs\": [\"q\", \"k\"]}]}";
static const char *const pooled =
    "{\"name\": \"m\", \"global_batch\": 2, \"input\": {\"height\": 4, \"width\": 4, "
    "\"channels\": 4, \"split\": true}, \"layers\": [{\"op\": \"conv2d\", \"name\": \"c\", "
    "\"out\": 8, \"kernel\": 1}, {\"op\": \"avgpool\", \"global\": true}, "
    "{\"op\": \"flatten\"}, {\"op\": \"linear\", \"name\": \"l\", \"out\": 4}]}";
/* clang-format on */

struct tally {
    int run, optimal, skipped;
    int64_t strategies;
    double gap; /* largest, of a plan over the least of all */
};

static void check(const struct sbp_plan *plan, const struct labelled_best *best,
                  const struct sbp_outcome *outcome, const char *what, uint64_t seed)
{
    const double slack = CLOSE * best->objective_s;
    if (outcome->objective_s < best->objective_s - slack ||
        (outcome->status == SBP_PLAN_OPTIMAL && outcome->objective_s > best->objective_s + slack) ||
        outcome->lower_bound_s > best->objective_s + slack || isinf(outcome->objective_s))
        fail_msg("%s, seed %" PRIu64 ": %s %.17g above %.17g, of all strategies %.17g\n%s", what,
                 seed, sbp_solver_status_name(outcome->status), outcome->objective_s,
                 outcome->lower_bound_s, best->objective_s,
                 cJSON_PrintUnformatted(plan->workload.cluster_json));
}

/* How a step is cut: so many stages and micro-batches. */
struct cut {
    int stages, micro_batches, zero;
    double overlap;
};

static void set_cut(struct sbp_plan *plan, struct cut cut)
{
    struct sbp_diag diag = {{0}};
    struct sbp_parallel parallel = plan->cut.parallel;
    parallel.pipeline = cut.stages;
    parallel.micro_batch /= cut.micro_batches;
    parallel.zero = cut.zero;
    parallel.gradient_overlap = cut.overlap;
    if (sbp_plan_cut(plan, &parallel, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
}

/* Every labelled strategy, of more than the space holds or of the space alone. */
typedef enum sbp_status labelled_searcher(const struct sbp_plan *plan,
                                          const struct sbp_request *request, int64_t most,
                                          struct labelled_best *best, struct sbp_diag *diag);

/* The search beside all labelled strategies of a plan. */
static void compare(const char *what, uint64_t seed, struct sbp_plan *plan,
                    const struct sbp_request *request, labelled_searcher *search_all, int64_t most,
                    struct tally *tally)
{
    struct sbp_diag diag = {{0}};
    struct labelled_best best;
    struct sbp_outcome outcome;
    if (search_all(plan, request, most, &best, &diag) != SBP_OK ||
        solve_plan(plan, request, &outcome, &diag) != SBP_OK)
        fail_msg("%s, seed %" PRIu64 ": %s", what, seed, diag.text);
    tally->skipped += best.gave_up;
    if (best.gave_up)
        return;
    check(plan, &best, &outcome, what, seed);
    tally->run++;
    tally->optimal += outcome.status == SBP_PLAN_OPTIMAL;
    tally->strategies += best.visited;
    tally->gap = fmax(tally->gap, outcome.objective_s / best.objective_s - 1);
}

/* Objectives in turn. */
static struct sbp_request request_of(uint64_t seed)
{
    return (struct sbp_request){.space = SBP_SPACE_FULL,
                                .quick = true,
                                .solver = sbp_solver_find("exact"),
                                .objective = seed % 2 == 0 ? SBP_STEP_TIME : SBP_COMMUNICATION};
}

static cJSON *random_cluster(uint64_t seed, int outer, int inner)
{
    struct small_text text;
    struct sbp_random random;
    sbp_random_seed(&random, seed);
    small_cluster_draw(&random, outer, inner, false, &text);
    return parsed(text.text);
}

/* A model on random clusters of one shape. */
static void run_cut(const char *what, const char *model, int outer, int inner, struct cut cut,
                    const struct sbp_fix *fix, int fixes, struct tally *tally)
{
    for (uint64_t seed = 0; seed < 4; seed++) {
        struct sbp_plan plan;
        struct sbp_request request = request_of(seed);
        request.fix = fix;
        request.fix_count = fixes;
        begin_plan(parsed(model), random_cluster(seed, outer, inner), &plan);
        set_cut(&plan, cut);
        compare(what, seed, &plan, &request, labelled_search, MOST_STRATEGIES, tally);
        sbp_plan_free(&plan);
    }
}

static void run(const char *what, const char *model, int outer, int inner,
                const struct sbp_fix *fix, int fixes, struct tally *tally)
{
    run_cut(what, model, outer, inner, (struct cut){1, 1, 0, -1}, fix, fixes, tally);
}

static void report(const char *what, const struct tally *tally)
{
    print_message("%-20s %2d run, %d too large, %6" PRId64
                  " strategies, %2d proved optimal, at most %.3g %% above the least\n",
                  what, tally->run, tally->skipped, tally->strategies, tally->optimal,
                  100 * tally->gap);
    assert_true(tally->run > 0);
}

static void test_operators(void **state)
{
    (void)state;
    static const struct {
        const char *what, *const *model;
        int outer, inner;
    } cases[] = {
        {"grouped attention", &grouped, 2, 1},
        {"heads alone", &heads_alone, 4, 1},
        {"heads alone", &heads_alone, 2, 2},
        {"heads alone", &heads_alone, 2, 4},
        {"latent attention", &latent, 2, 1},
        {"mixture", &mixture, 2, 1},
        {"mixture", &mixture, 4, 1},
        {"gated, summa", &gated, 2, 1},
        {"images", &images, 2, 1},
        {"patches", &patches, 2, 1},
        {"patches", &patches, 2, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tally tally = {0};
        run(cases[i].what, *cases[i].model, cases[i].outer, cases[i].inner, NULL, 0, &tally);
        report(cases[i].what, &tally);
    }
}

/* Roles and rests of one layer. */
static struct sbp_fix fix_of(const char *layer, int role, int64_t factor)
{
    struct sbp_fix fix = {.layer = "", .rests = false, .zero = SBP_ANY};
    snprintf(fix.layer, sizeof fix.layer, "%s", layer);
    for (int r = 0; r < SBP_MAX_ROLES; r++)
        for (int level = 0; level < SBP_MAX_LEVELS; level++)
            fix.factor[r][level] = SBP_ANY;
    fix.factor[role][0] = factor;
    return fix;
}

static int role(enum sbp_op_kind kind, const char *name)
{
    return sbp_op_role(sbp_op(kind), name);
}

static void test_spare_roles(void **state)
{
    (void)state;
    const int replicate = role(SBP_OP_LINEAR, "replicate");
    const struct sbp_fix repeated = fix_of("u", replicate, 2);
    const struct sbp_fix second = fix_of("v", replicate, 2);
    const struct sbp_fix sums[2] = {fix_of("u", role(SBP_OP_LINEAR, "row"), 2),
                                    fix_of("v", role(SBP_OP_LINEAR, "partial"), 2)};
    const struct sbp_fix context = fix_of("a", role(SBP_OP_ATTENTION, "context"), 2);
    const struct sbp_fix heads = fix_of("a", role(SBP_OP_ATTENTION, "replicate"), 2);
    for (int devices = 2; devices <= 4; devices += 2) {
        struct tally tally = {0};
        run("replicate", pair, devices, 1, &repeated, 1, &tally);
        run("replicate", pair, devices, 1, &second, 1, &tally);
        run("partial", pair, devices, 1, sums, 2, &tally);
        if (devices == 2) {
            run("context", packed, devices, 1, &context, 1, &tally);
            run("replicated attention", packed, devices, 1, &heads, 1, &tally);
        }
        report("spare roles", &tally);
    }
}

/* Collectives without latency: a ring over many members is as good as rings over few. */
static void drop_latency(cJSON *cluster)
{
    cJSON *level;
    cJSON_ArrayForEach(level, cJSON_GetObjectItem(cluster, "levels"))
        cJSON_SetNumberValue(cJSON_GetObjectItem(level, "alpha_s"), 0);
}

/* Whether a strategy out of more than the space holds is cheaper than its best. */
static void check_wide(const char *what, const char *model, int outer, int inner,
                       struct tally *tally)
{
    for (uint64_t seed = 0; seed < 4; seed++) {
        struct sbp_plan plan;
        struct sbp_request request = request_of(seed);
        cJSON *const cluster = random_cluster(seed, outer, inner);
        request.memory_limit_bytes = INT64_C(1) << 50;
        if (outer * inner > 3)
            drop_latency(cluster);
        begin_plan(parsed(model), cluster, &plan);
        compare(what, seed, &plan, &request, labelled_search_wide, MOST_WIDE, tally);
        sbp_plan_free(&plan);
    }
}

/* The space's own strategies, then all that are legal, on one axis and, where rings cost the same
 * however they are cut, on two. */
static void test_rests(void **state)
{
    (void)state;
    static const struct {
        const char *what, *const *model;
        int own, wide; /* meshes that leave few enough to price them all */
    } cases[] = {{"branches", &branches, 1, 1}, {"chained", &chained, 3, 3},
                 {"residual", &residual, 2, 1}, {"shared", &shared, 2, 1},
                 {"pooled", &pooled, 1, 1},     {"pair", &pair, 2, 1}};
    static const int meshes[][2] = {{2, 1}, {4, 1}, {2, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tally own = {0}, wide = {0};
        for (int m = 0; m < cases[i].own; m++)
            run(cases[i].what, *cases[i].model, meshes[m][0], meshes[m][1], NULL, 0, &own);
        report(cases[i].what, &own);
        for (int m = 0; m < cases[i].wide; m++)
            check_wide(cases[i].what, *cases[i].model, meshes[m][0], meshes[m][1], &wide);
        report(cases[i].what, &wide);
        assert_int_equal(own.optimal + wide.optimal, own.run + wide.run);
    }
}

/* Whether a norm's output rests whole where its input is split, so that it waits split for its
 * readers' weight gradients and is gathered once more. */
static bool waits_split(const struct sbp_plan *plan)
{
    const struct sbp_graph *graph = &plan->cut.graph;
    bool waits = false;
    for (int op = 0; op < graph->op_count; op++)
        for (int axis = 0; axis < plan->cut.mesh.axis_count; axis++)
            waits |= graph->op[op].kind == SBP_OP_RMSNORM &&
                     plan->strategy.rest[graph->op[op].input[0]].axis[axis].kind == SBP_SPLIT &&
                     plan->strategy.rest[graph->op[op].output].axis[axis].kind == SBP_BROADCAST;
    return waits;
}

/* What several linears by column read is gathered once, there and for their weight gradients:
 * optimal among all, and some of the best plans do it. */
static void test_gathered_again(void **state)
{
    struct tally tally = {0};
    int waiting = 0;
    (void)state;
    struct sbp_fix fixes[] = {fix_of("q", role(SBP_OP_LINEAR, "column"), 2),
                              fix_of("k", role(SBP_OP_LINEAR, "column"), 2),
                              fix_of("u", role(SBP_OP_LINEAR, "sequence"), 2)};
    fixes[2].rests = true;
    for (int rest = 0; rest < SBP_REST_STATES; rest++)
        for (int level = 0; level < SBP_MAX_LEVELS; level++)
            fixes[2].rest[rest][level] = rest == SBP_DIM_SEQUENCE && level == 0 ? 2 : 1;
    for (uint64_t seed = 0; seed < 8; seed++) {
        struct sbp_plan plan;
        struct sbp_request request = request_of(seed);
        struct sbp_diag diag = {0};
        request.fix = fixes;
        request.fix_count = 3;
        begin_plan(parsed(shared_tokens), random_cluster(seed, 2, 1), &plan);
        struct sbp_parallel parallel = plan.cut.parallel;
        parallel.regather = true;
        if (sbp_plan_cut(&plan, &parallel, &diag) != SBP_OK)
            fail_msg("%s", diag.text);
        compare("regather", seed, &plan, &request, labelled_search, MOST_STRATEGIES, &tally);
        waiting += waits_split(&plan);
        sbp_plan_free(&plan);
    }
    report("regather", &tally);
    print_message("%d of the plans wait split\n", waiting);
    assert_int_equal(tally.optimal, tally.run);
    assert_int_equal(waiting, tally.run);
}

/* One stage: optimal whatever the micro-batches and the ZeRO level. Several stages, and gradients
 * that hide: a plan, a bound that holds, and no claim that fails. */
static void test_cuts(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        struct cut cut;
        bool optimal;
    } cases[] = {
        {"2 micro-batches", {1, 2, 0, -1}, true},   {"ZeRO 1", {1, 1, 1, -1}, true},
        {"ZeRO 2 of 2", {1, 2, 2, -1}, true},       {"ZeRO 3 of 4", {1, 4, 3, -1}, true},
        {"half hides", {1, 1, 0, 0.5}, false},      {"2 stages", {2, 2, 0, -1}, false},
        {"2 stages, ZeRO 1", {2, 4, 1, -1}, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tally tally = {0};
        run_cut(cases[i].what, gated, 2, 1, cases[i].cut, NULL, 0, &tally);
        run_cut(cases[i].what, pair, 4, 1, cases[i].cut, NULL, 0, &tally);
        run_cut(cases[i].what, mixture, 4, 1, cases[i].cut, NULL, 0, &tally);
        report(cases[i].what, &tally);
        assert_true(!cases[i].optimal || tally.optimal == tally.run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operators), cmocka_unit_test(test_spare_roles),
        cmocka_unit_test(test_rests),     cmocka_unit_test(test_gathered_again),
        cmocka_unit_test(test_cuts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
