/* The pool of the best plans: its order, which plans are the same, how many are proved. */
#include <math.h>

#include <cjson/cJSON.h>

#include "planner/inner/solution_pool.h"
#include "planner/plan/plan.h"
#include "tests/support/unit.h"

/* Ways to split one layer; indices that are equal modulo SPLITS give equal ways. */
enum { SPLITS = 4, COPIES = 2 * SPLITS };

struct list {
    struct sbp_plan plan;
    struct sbp_pool pool;
    struct sbp_split layer[COPIES];
    struct sbp_splits split[COPIES];
};

static void open_list(int most, struct list *list)
{
    static const char *const model =
        "{\"name\": \"m\", \"global_batch\": 8, \"precision\": \"fp32\", \"layers\": "
        "[{\"op\": \"linear\", \"name\": \"a\", \"in\": 8, \"out\": 8}]}";
    static const char *const cluster =
        "{\"name\": \"c\", \"levels\": [{\"name\": \"n\", \"size\": 2, \"alpha_s\": 1e-5, "
        "\"beta_s_per_byte\": 1e-10}], \"device\": {\"memory_bytes\": 1e12, \"flops\": {\"fp32\": "
        "1e12}, \"memory_bytes_per_s\": 1e11}}";
    struct sbp_diag diag = {{0}};
    if (sbp_plan_begin(cJSON_Parse(model), "model", cJSON_Parse(cluster), "cluster", &list->plan,
                       &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    struct sbp_plan *plan = &list->plan;
    assert_int_equal(sbp_strategy_alloc(&plan->cut.graph, &plan->arena, &plan->strategy), SBP_OK);
    assert_int_equal(sbp_pool_init(&list->pool, &plan->cut.graph, &plan->arena, most), SBP_OK);
    for (int i = 0; i < COPIES; i++) {
        list->layer[i] = (struct sbp_split){.op = 0, .factor = {{1 + i % SPLITS}}};
        list->split[i] = (struct sbp_splits){.count = 1, .layer = &list->layer[i]};
    }
}

/* Offers a plan that its cost alone tells from others. */
static void offer(struct list *list, double objective_s, int split, double step_s,
                  int64_t device_bytes)
{
    list->plan.cut.parallel.micro_batch = (int64_t)(100 * objective_s);
    list->plan.strategy.op[0].role[0] = (uint8_t)objective_s;
    sbp_pool_offer(&list->pool, &list->plan.cut, &list->plan.strategy,
                   &(struct sbp_pool_plan){.objective_s = objective_s,
                                           .split = split < 0 ? NULL : &list->split[split],
                                           .step_s = step_s,
                                           .device_bytes = device_bytes});
}

static void check(const struct list *list, int count, const double *objective_s)
{
    assert_int_equal(list->pool.count, count);
    for (int i = 0; i < count; i++) {
        const struct sbp_pool_plan *ranked = &list->pool.plan[i];
        assert_true(ranked->objective_s == objective_s[i]);
        assert_int_equal(ranked->parallel.micro_batch, (int64_t)(100 * objective_s[i]));
        assert_int_equal(ranked->strategy.op[0].role[0], (uint8_t)objective_s[i]);
    }
}

static void test_order(void **state)
{
    (void)state;
    struct list list;
    open_list(3, &list);
    assert_true(isinf(sbp_pool_goal_s(&list.pool)));
    offer(&list, 5, 0, 5, 1);
    offer(&list, 3, 1, 3, 1);
    assert_true(isinf(sbp_pool_goal_s(&list.pool)));
    offer(&list, 7, 2, 7, 1);
    assert_true(sbp_pool_goal_s(&list.pool) == 7);
    check(&list, 3, (const double[]){3, 5, 7});
    offer(&list, 7, 3, 7, 2); /* no cheaper than the last */
    assert_ptr_equal(list.pool.plan[2].split, &list.split[2]);
    offer(&list, 4, 3, 4, 1);
    check(&list, 3, (const double[]){3, 4, 5});
    offer(&list, 6, 2, 6, 1);
    check(&list, 3, (const double[]){3, 4, 5});
    sbp_plan_free(&list.plan);
}

/* With one plan asked for, only its cost is known. */
static void test_one(void **state)
{
    (void)state;
    struct list list;
    open_list(1, &list);
    offer(&list, 5, -1, 0, 0);
    offer(&list, 6, -1, 0, 0);
    check(&list, 1, (const double[]){5});
    offer(&list, 4, -1, 0, 0);
    check(&list, 1, (const double[]){4});
    sbp_plan_free(&list.plan);
}

/* A plan that is split as a listed one of the same candidate: the cheaper one stays. */
static void test_same_split(void **state)
{
    (void)state;
    struct list list;
    open_list(3, &list);
    offer(&list, 5, 0, 5, 1);
    offer(&list, 6, 1, 6, 1);
    offer(&list, 7, 0, 7, 1);
    check(&list, 2, (const double[]){5, 6});
    offer(&list, 4, 1, 4, 1);
    check(&list, 2, (const double[]){4, 5});
    assert_ptr_equal(list.pool.plan[0].split, &list.split[1]);
    sbp_plan_free(&list.plan);
}

/* Plans that are cut otherwise, but split alike with equal time and memory, are the same: the
 * cheaper one stays. */
static void test_same_step(void **state)
{
    (void)state;
    struct list list;
    open_list(2, &list);
    offer(&list, 5, 0, 9, 1);
    list.pool.plan[0].parallel.micro_batch = 400;
    offer(&list, 4, SPLITS, 9, 1);
    check(&list, 1, (const double[]){4});
    assert_ptr_equal(list.pool.plan[0].split, &list.split[SPLITS]);
    sbp_plan_free(&list.plan);
}

/* Two plans that differ in one property at a time are distinct. */
static void test_other_steps(void **state)
{
    (void)state;
    for (int differs = 0; differs < 6; differs++) {
        struct list list;
        open_list(2, &list);
        offer(&list, 5, 0, 9, 1);
        list.pool.plan[0].parallel.micro_batch = differs == 1 ? 1 : 600;
        list.plan.cut.parallel.pipeline += differs == 2;
        list.plan.cut.parallel.recompute = SBP_RECOMPUTE_ATTENTION;
        offer(&list, 6, differs == 3 ? SPLITS + 1 : SPLITS, differs == 4 ? 10 : 9,
              differs == 5 ? 2 : 1);
        assert_int_equal(list.pool.count, differs == 0 ? 1 : 2);
        sbp_plan_free(&list.plan);
    }
}

/* One candidate's plans that are split alike are one plan, whatever their rests; sums in another
 * order are the same step. */
static void test_one_candidate(void **state)
{
    (void)state;
    struct list list;
    open_list(3, &list);
    offer(&list, 5, 0, 9, 1);
    list.pool.plan[0].parallel.micro_batch = 600;
    offer(&list, 6, SPLITS, 10, 2);
    assert_int_equal(list.pool.count, 1);
    list.plan.cut.parallel.recompute = SBP_RECOMPUTE_ATTENTION;
    offer(&list, 6, SPLITS, 9 * (1 + 1e-12), 1);
    assert_int_equal(list.pool.count, 1);
    sbp_plan_free(&list.plan);
}

/* A plan that is the same as another listed one leaves the pool; the pool still knows the cost of
 * plans that found no place. */
static void test_turns_out(void **state)
{
    (void)state;
    struct list list;
    open_list(2, &list);
    offer(&list, 8, 2, 8, 1);
    offer(&list, 7, SPLITS, 11, 1);
    list.pool.plan[0].parallel.micro_batch = 600;
    offer(&list, 5, 0, 9, 1);
    list.pool.plan[0].parallel.micro_batch = 600;
    assert_int_equal(list.pool.count, 2);
    offer(&list, 6, SPLITS, 9, 1);
    assert_int_equal(list.pool.count, 1);
    assert_true(list.pool.plan[0].objective_s == 5);
    offer(&list, 9, 3, 9, 3);
    sbp_pool_close(&list.pool, INFINITY);
    assert_int_equal(list.pool.count, 2);
    assert_int_equal(list.pool.proved, 1);
    assert_true(list.pool.rest_s == 8);
    sbp_plan_free(&list.plan);
}

static void test_proofs(void **state)
{
    (void)state;
    struct list list;
    open_list(3, &list);
    sbp_pool_close(&list.pool, 8);
    assert_int_equal(list.pool.proved, 0);
    assert_true(list.pool.rest_s == 8);
    for (int i = 0; i < 3; i++)
        offer(&list, 5 + i, i, 5 + i, 1);
    static const struct {
        double open_s;
        int proved;
        double rest_s;
    } cases[] = {{4, 0, 4},
                 {5, 1, 5},
                 {5 * (1 - 1e-10), 1, 5 * (1 - 1e-10)}, /* sums in another order */
                 {5 * (1 - 1e-8), 0, 5 * (1 - 1e-8)},
                 {6.5, 2, 6.5},
                 {9, 3, 7},
                 {INFINITY, 3, 7}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sbp_pool_close(&list.pool, cases[i].open_s);
        assert_int_equal(list.pool.proved, cases[i].proved);
        assert_true(list.pool.rest_s == cases[i].rest_s);
    }
    sbp_plan_free(&list.plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),       cmocka_unit_test(test_one),
        cmocka_unit_test(test_same_split),  cmocka_unit_test(test_same_step),
        cmocka_unit_test(test_other_steps), cmocka_unit_test(test_one_candidate),
        cmocka_unit_test(test_turns_out),   cmocka_unit_test(test_proofs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
