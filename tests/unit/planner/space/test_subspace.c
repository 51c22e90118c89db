/* Parts of a space: whatever plans are taken out of it one after the other, the parts that are left
 * share no plan, and hold all others. Which layers choose by themselves. */
#include <string.h>

#include <cjson/cJSON.h>

#include "planner/plan/plan.h"
#include "base/math/random.h"
#include "planner/space/subspace.h"
#include "tests/support/unit.h"

enum { LAYERS = 4, WAYS = 3, PLANS = WAYS * WAYS * WAYS * WAYS, MOST_PARTS = PLANS * LAYERS };

static int way_of(int plan, int layer)
{
    while (layer-- > 0)
        plan /= WAYS;
    return plan % WAYS;
}

/* Operators of layers need not stand side by side. */
static struct sbp_split split_of(int layer, int way)
{
    struct sbp_split split = {.op = 2 * layer + 1};
    split.factor[layer % SBP_MAX_ROLES][way] = 2;
    return split;
}

static struct sbp_splits *splits_of(int plan, struct sbp_arena *arena)
{
    struct sbp_splits *splits = SBP_NEW(arena, struct sbp_splits, 1);
    assert_non_null(splits);
    splits->count = LAYERS;
    splits->layer = SBP_NEW(arena, struct sbp_split, LAYERS);
    assert_non_null(splits->layer);
    for (int layer = 0; layer < LAYERS; layer++)
        splits->layer[layer] = split_of(layer, way_of(plan, layer));
    return splits;
}

static bool has_plan(const struct sbp_subspace *part, int plan)
{
    bool has = true;
    for (int layer = 0; layer < LAYERS; layer++) {
        const struct sbp_split split = split_of(layer, way_of(plan, layer));
        has &= part == NULL || sbp_subspace_has(part, &split);
    }
    return has;
}

/* The parts that are left, some of them empty. */
struct rest {
    const struct sbp_subspace *part[MOST_PARTS + 1];
    int count;
};

static void check_rest(const struct rest *rest, const bool *taken)
{
    for (int plan = 0; plan < PLANS; plan++) {
        int parts = 0;
        for (int i = 0; i < rest->count; i++)
            parts += has_plan(rest->part[i], plan);
        assert_int_equal(parts, !taken[plan]);
    }
}

/* Takes a plan out of the part that has it. */
static void take(struct rest *rest, int plan, struct sbp_arena *arena)
{
    struct sbp_subspace *cut = SBP_NEW(arena, struct sbp_subspace, LAYERS);
    int at = 0;
    assert_non_null(cut);
    while (!has_plan(rest->part[at], plan))
        at++;
    const int count = sbp_subspace_cut(rest->part[at], splits_of(plan, arena), arena, cut);
    assert_true(count >= 1 && count <= LAYERS);
    rest->part[at] = rest->part[--rest->count];
    for (int i = 0; i < count; i++)
        rest->part[rest->count++] = &cut[i];
}

static void test_all_plans(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 10; seed++) {
        struct sbp_arena arena;
        struct sbp_random random;
        static struct rest rest;
        bool taken[PLANS] = {false};
        rest = (struct rest){.part = {NULL}, .count = 1};
        sbp_arena_init(&arena);
        sbp_random_seed(&random, seed);
        for (int left = PLANS; left > 0; left--) {
            int plan = (int)sbp_random_below(&random, PLANS);
            while (taken[plan])
                plan = (plan + 1) % PLANS;
            take(&rest, plan, &arena);
            taken[plan] = true;
            check_rest(&rest, taken);
        }
        sbp_arena_free(&arena);
    }
}

/* All that split every layer as a plan. */
static void test_one_plan(void **state)
{
    (void)state;
    struct sbp_arena arena;
    sbp_arena_init(&arena);
    const struct sbp_subspace part = {.plan = splits_of(7, &arena), .at = LAYERS};
    for (int plan = 0; plan < PLANS; plan++)
        assert_int_equal(has_plan(&part, plan), plan == 7);
    assert_true(sbp_subspace_has(&part, &(struct sbp_split){.op = 2 * LAYERS + 1}));
    assert_int_equal(sbp_subspace_cut(&part, part.plan, &arena, NULL), 0);
    sbp_arena_free(&arena);
}

static void test_equal(void **state)
{
    (void)state;
    struct sbp_arena arena;
    sbp_arena_init(&arena);
    struct sbp_splits *a = splits_of(5, &arena), *b = splits_of(5, &arena);
    assert_true(sbp_subspace_splits_equal(a, b));
    b->count--;
    assert_false(sbp_subspace_splits_equal(a, b));
    assert_false(sbp_subspace_splits_equal(b, a));
    b->count++;
    b->layer[LAYERS - 1].op++;
    assert_false(sbp_subspace_splits_equal(a, b));
    assert_false(sbp_subspace_splits_equal(a, splits_of(5 + PLANS / WAYS, &arena)));
    sbp_arena_free(&arena);
}

/* Layers that repeat another, follow it or share its table do not choose. */
static void test_layers(void **state)
{
    (void)state;
    static const char *const model =
        "{\"name\": \"g\", \"architecture\": \"gpt\", \"layers\": 3, \"hidden\": 64, \"heads\": 4, "
        "\"sequence\": 32, \"vocab\": 512, \"global_batch\": 8}";
    static const char *const cluster =
        "{\"name\": \"c\", \"levels\": [{\"name\": \"n\", \"size\": 2, \"alpha_s\": 1e-5, "
        "\"beta_s_per_byte\": 1e-10}], \"device\": {\"memory_bytes\": 1e12, \"flops\": {\"fp32\": "
        "1e12}, \"memory_bytes_per_s\": 1e11}}";
    struct sbp_plan plan;
    struct sbp_diag diag = {{0}};
    if (sbp_plan_begin(cJSON_Parse(model), "model", cJSON_Parse(cluster), "cluster", &plan,
                       &diag) != SBP_OK ||
        sbp_strategy_alloc(&plan.cut.graph, &plan.arena, &plan.strategy) != SBP_OK)
        fail_msg("%s", diag.text);
    const struct sbp_splits *splits = sbp_subspace_splits(&plan.cut, &plan.strategy, &plan.arena);
    assert_non_null(splits);
    assert_true(splits->count > 4);
    for (int i = 0; i < splits->count; i++) {
        const struct sbp_op_node *node = &plan.cut.graph.op[splits->layer[i].op];
        assert_int_equal(node->site, splits->layer[i].op);
        assert_false(node->entry->follows);
        assert_false(node->transposed_weight);
        assert_true(i == 0 || splits->layer[i - 1].op < splits->layer[i].op);
    }
    for (int op = 0; op < plan.cut.graph.op_count; op++) {
        const struct sbp_op_node *node = &plan.cut.graph.op[op];
        bool chooses = false;
        for (int i = 0; i < splits->count; i++)
            chooses |= splits->layer[i].op == op;
        assert_int_equal(chooses,
                         node->site == op && !node->entry->follows && !node->transposed_weight);
    }
    sbp_plan_free(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_plans),
                                       cmocka_unit_test(test_one_plan),
                                       cmocka_unit_test(test_equal), cmocka_unit_test(test_layers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
