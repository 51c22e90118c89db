/* The memory model of the space: what no choice changes. That it never passes a compiled program is
 * held by test_space.c. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <cjson/cJSON.h>

#include "planner/space.h"

#define DEVICES    4
#define PARAMETERS (512 * 1024 + 1024 * 256)

static const char model[] =
    "{\"name\": \"m\", \"global_batch\": 64, \"precision\": \"mixed\", \"layers\": ["
    "{\"op\": \"linear\", \"name\": \"a\", \"in\": 512, \"out\": 1024}, "
    "{\"op\": \"linear\", \"name\": \"b\", \"in\": 1024, \"out\": 256}]}";
static const char cluster[] =
    "{\"name\": \"c\", \"levels\": [{\"name\": \"l\", \"size\": 4, \"alpha_s\": 1e-6, "
    "\"beta_s_per_byte\": 1e-9}], \"device\": {\"memory_bytes\": 1e15, \"flops\": "
    "{\"bf16\": 1e12}, \"memory_bytes_per_s\": 1e11, \"host_link_bytes_per_s\": 1e10}}";

/* bucket_parameters: of offloaded states; 0: none are. */
static double constant_bytes(int64_t bucket_parameters)
{
    const struct sbp_request request = {.space = SBP_SPACE_FULL};
    struct sbp_diag diag = {{0}};
    struct sbp_plan plan;
    struct sbp_space space;
    if (sbp_plan_begin(cJSON_Parse(model), "model", cJSON_Parse(cluster), "cluster", &plan,
                       &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    struct sbp_parallel parallel = plan.parallel;
    parallel.offload = bucket_parameters > 0;
    if (parallel.offload)
        parallel.bucket_parameters = bucket_parameters;
    if (sbp_plan_set_parallel(&plan, &parallel, &diag) != SBP_OK ||
        sbp_space_make(&plan, &request, NULL, NULL, &space, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    assert_int_equal(space.view->points, 1);
    const double bytes = sbp_space_constant_bytes(&space, 0);
    sbp_space_free(&space);
    sbp_plan_free(&plan);
    return bytes;
}

/* Master copies, two moments and gradients in their type pass through it, 16 bytes a parameter
 * (Myelin, section V.B); it is no larger than what a device updates. */
static void test_bucket(void **state)
{
    (void)state;
    const double none = constant_bytes(0);
    assert_true(constant_bytes(64) - none == 16 * 64);
    assert_true(constant_bytes(PARAMETERS / DEVICES) - none == 16 * (PARAMETERS / DEVICES));
    assert_true(constant_bytes(INT64_C(1) << 40) - none == 16 * (PARAMETERS / DEVICES));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bucket)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
