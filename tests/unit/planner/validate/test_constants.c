/* The constant that would explain a measured step: the step of a changed cluster gives it back. */
#include <math.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "planner/outer/branch_and_bound.h"
#include "planner/validate/constants.h"
#include "tests/support/unit.h"

#define MODEL                                                                                      \
    "{\"name\": \"m\", \"architecture\": \"gpt\", \"layers\": 4, \"hidden\": 512, \"heads\": 8, "  \
    "\"vocab\": 1024, \"sequence\": 128, \"global_batch\": 32}"
#define CLUSTER                                                                                    \
    "{\"name\": \"c\", \"levels\": [{\"name\": \"gpu\", \"size\": 4, \"alpha_s\": 1e-6, "          \
    "\"beta_s_per_byte\": %g}], \"runtime\": {\"name\": \"r\", \"hides\": {\"gradients\": %g, "    \
    "\"weights\": %g, \"activations\": %g, \"context\": %g, \"experts\": %g}, \"host_s\": %g}, "   \
    "\"device\": {\"memory_bytes\": 1e10, \"flops\": {\"fp32\": %g}, \"memory_bytes_per_s\": "     \
    "%g}}"

/* Constants that differ from those below by what was changed. */
struct constants {
    double beta, hides, host_s, flops, bytes;
};
static const struct constants USUAL = {1e-10, 0.2, 1e-6, 1e13, 1e12};

static struct cJSON *parse(const char *text)
{
    struct cJSON *root = cJSON_Parse(text);
    assert_non_null(root);
    return root;
}

/* A plan whose layers split the batch, whatever the constants are. */
static void make_plan(const struct constants *c, struct sbp_plan *plan)
{
    char cluster[1024];
    struct sbp_diag diag = {{0}};
    struct sbp_pool pool = {0};
    struct sbp_outcome outcome;
    const struct sbp_request request = {.space = SBP_SPACE_DATA_PARALLEL, .given = ~0u};
    (void)snprintf(cluster, sizeof cluster, CLUSTER, c->beta, c->hides, c->hides, c->hides,
                   c->hides, c->hides, c->host_s, c->flops, c->bytes);
    assert_int_equal(sbp_plan_begin(parse(MODEL), "m", parse(cluster), "c", plan, &diag), SBP_OK);
    assert_int_equal(sbp_outer_search(plan, &request, 1, &plan->arena, &pool, &outcome, &diag),
                     SBP_OK);
    assert_int_equal(pool.count, 1);
    plan->strategy = pool.plan[0].strategy;
}

static double step_of(const struct sbp_plan *plan)
{
    struct sbp_step step;
    struct sbp_diag diag = {{0}};
    assert_int_equal(sbp_cut_step(&plan->cut, &plan->strategy, true, &step, &diag), SBP_OK);
    const double step_s = step.totals.step_s;
    sbp_step_free(&step);
    return step_s;
}

/* What explains the usual plan, had it taken as long as one of changed constants. */
static void explain(const struct constants *changed, struct sbp_constant_value *cause)
{
    struct sbp_plan usual, other;
    struct sbp_diag diag = {{0}};
    make_plan(&USUAL, &usual);
    make_plan(changed, &other);
    assert_int_equal(sbp_constants_explain(&usual, step_of(&other), cause, &diag), SBP_OK);
    sbp_plan_free(&usual);
    sbp_plan_free(&other);
}

static void assert_explains(const struct sbp_constant_value *cause, enum sbp_constant at,
                            double value)
{
    if (!cause[at].explains || fabs(cause[at].value / value - 1) > 2e-3)
        fail_msg("%s: %d, %.6g, expected %.6g", sbp_constant_name(at), cause[at].explains,
                 cause[at].value, value);
}

static void test_slower(void **state)
{
    (void)state;
    struct sbp_constant_value cause[SBP_CONSTANTS];
    struct constants changed = USUAL;
    changed.flops *= 0.4;
    explain(&changed, cause);
    assert_explains(cause, SBP_CONSTANT_ARITHMETIC, 0.4);
    assert_false(cause[SBP_CONSTANT_HIDING].explains); /* hiding makes no step longer */
    changed = USUAL;
    changed.bytes *= 0.25;
    explain(&changed, cause);
    assert_explains(cause, SBP_CONSTANT_MEMORY, 0.25);
    changed = USUAL;
    changed.beta /= 0.3;
    explain(&changed, cause);
    assert_explains(cause, SBP_CONSTANT_LINKS, 0.3);
    changed = USUAL;
    changed.host_s = 2e-3;
    explain(&changed, cause);
    assert_explains(cause, SBP_CONSTANT_HOST, 2e-3);
}

static void test_faster(void **state)
{
    (void)state;
    struct sbp_constant_value cause[SBP_CONSTANTS];
    struct constants changed = USUAL;
    changed.flops *= 1.7;
    explain(&changed, cause);
    assert_explains(cause, SBP_CONSTANT_ARITHMETIC, 1.7);
    assert_false(cause[SBP_CONSTANT_HOST].explains);
    changed = USUAL;
    changed.hides = 0.6;
    explain(&changed, cause);
    assert_explains(cause, SBP_CONSTANT_HIDING, 0.6);
}

/* A step a thousand times as long is nobody's fault alone. */
static void test_nothing_explains(void **state)
{
    (void)state;
    struct sbp_constant_value cause[SBP_CONSTANTS];
    struct sbp_plan plan;
    struct sbp_diag diag = {{0}};
    make_plan(&USUAL, &plan);
    assert_int_equal(sbp_constants_explain(&plan, 1000 * step_of(&plan), cause, &diag), SBP_OK);
    for (int at = 0; at < SBP_CONSTANTS; at++)
        assert_false(cause[at].explains);
    sbp_plan_free(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slower),
        cmocka_unit_test(test_faster),
        cmocka_unit_test(test_nothing_explains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
