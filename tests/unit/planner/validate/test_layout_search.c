/* The search under a layout: a step that it must beat changes nothing of a plan that does; and the
 * simplest layout, which ends with the limits. */
#include <string.h>

#include <cjson/cJSON.h>

#include "planner/plan/plan.h"
#include "planner/validate/layout_search.h"
#include "planner/validate/simplest.h"
#include "tests/support/unit.h"

static const char model_text[] =
    "{\"name\": \"m\", \"architecture\": \"gpt\", \"layers\": 2, \"hidden\": 64, \"heads\": 4, "
    "\"vocab\": 128, \"sequence\": 32, \"global_batch\": 8}";
static const char cluster_text[] =
    "{\"name\": \"c\", \"levels\": [{\"name\": \"gpu\", \"size\": 4, \"alpha_s\": 1e-6, "
    "\"beta_s_per_byte\": 1e-10}], \"device\": {\"memory_bytes\": 1e10, \"flops\": {\"fp32\": "
    "1e13}, \"memory_bytes_per_s\": 1e12}}";

static enum sbp_status search(double most_s, double *step_s, struct sbp_diag *why)
{
    struct sbp_plan plan;
    struct sbp_degrees degrees = sbp_degrees_none();
    degrees.tensor = 2;
    *why = (struct sbp_diag){{0}};
    assert_int_equal(sbp_plan_begin(cJSON_Parse(model_text), "model", cJSON_Parse(cluster_text),
                                    "cluster", &plan, why),
                     SBP_OK);
    const enum sbp_status status =
        sbp_layout_search(&plan, &degrees, 0, most_s, &(struct sbp_solver_options){0}, step_s, why);
    sbp_plan_free(&plan);
    return status;
}

static void test_most(void **state)
{
    (void)state;
    double step_s = 0, again_s = 0;
    struct sbp_diag why;
    assert_int_equal(search(0, &step_s, &why), SBP_OK);
    assert_true(step_s > 0);
    assert_int_equal(search(1.5 * step_s, &again_s, &why), SBP_OK);
    assert_true(again_s == step_s);
}

/* No arithmetic is that fast, so that no candidate is looked at. */
static void test_nothing_is_faster(void **state)
{
    (void)state;
    double step_s = 0;
    struct sbp_diag why;
    assert_int_equal(search(1e-12, &step_s, &why), SBP_NO);
    assert_string_equal(why.text, "no legal strategy has these degrees");
}

/* A simplest layout is found for a slow step, and looked for only as long as the limits say. */
static void test_simplest_ends(void **state)
{
    (void)state;
    const atomic_int stop = 1;
    const struct sbp_solver_options none = {0}, late = {.time_limit_s = 1e-12},
                                    stopped = {.stop = &stop};
    struct sbp_plan plan;
    struct sbp_simplest simplest;
    struct sbp_diag diag;
    assert_int_equal(sbp_plan_begin(cJSON_Parse(model_text), "model", cJSON_Parse(cluster_text),
                                    "cluster", &plan, &diag),
                     SBP_OK);
    plan.workload.cluster.runtime.error = 0.1;
    assert_int_equal(sbp_simplest_find(&plan, 1, 0, &none, &simplest, &diag), SBP_OK);
    assert_true(simplest.is_found);
    assert_int_equal(sbp_simplest_find(&plan, 1, 0, &late, &simplest, &diag), SBP_OK);
    assert_false(simplest.is_found);
    assert_int_equal(sbp_simplest_find(&plan, 1, 0, &stopped, &simplest, &diag), SBP_OK);
    assert_false(simplest.is_found);
    sbp_plan_free(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_most),
        cmocka_unit_test(test_nothing_is_faster),
        cmocka_unit_test(test_simplest_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
