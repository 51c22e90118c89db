/* The constant part of the memory model. test_choice_costs.c and test_space_stages.c check that
 * the model never exceeds a compiled program. */
#include <cjson/cJSON.h>

#include "planner/plan/plan.h"
#include "planner/pricing/pricing.h"
#include "planner/space/space.h"
#include "tests/support/unit.h"

#define DEVICES 4
#define A       (512 * 1024)
#define B       (1024 * 256)
#define C       (256 * 128)
#define D       (128 * 64)

static const char model[] =
    "{\"name\": \"m\", \"global_batch\": 64, \"precision\": \"mixed\", \"layers\": ["
    "{\"op\": \"linear\", \"name\": \"a\", \"in\": 512, \"out\": 1024}, "
    "{\"op\": \"linear\", \"name\": \"b\", \"in\": 1024, \"out\": 256}, "
    "{\"op\": \"linear\", \"name\": \"c\", \"in\": 256, \"out\": 128}, "
    "{\"op\": \"linear\", \"name\": \"d\", \"in\": 128, \"out\": 64}]}";
static const char cluster[] =
    "{\"name\": \"c\", \"levels\": [{\"name\": \"l\", \"size\": 4, \"alpha_s\": 1e-6, "
    "\"beta_s_per_byte\": 1e-9}], \"device\": {\"memory_bytes\": 1e15, \"flops\": "
    "{\"bf16\": 1e12}, \"memory_bytes_per_s\": 1e11, \"host_link_bytes_per_s\": 1e10}}";

/* Constant bytes of a stage, without a bucket (bucket_parameters 0: nothing is offloaded) or with
 * one. */
static double constant_bytes(int64_t stages, int64_t chunks, int stage, int64_t bucket_parameters)
{
    const struct sbp_solve_request request = {.asked.space = SBP_SPACE_FULL, .asked.quick = true};
    struct sbp_diag diag = {{0}};
    struct sbp_plan plan;
    struct sbp_space space;
    if (sbp_plan_begin(cJSON_Parse(model), "model", cJSON_Parse(cluster), "cluster", &plan,
                       &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    struct sbp_parallel parallel = plan.cut.parallel;
    parallel.pipeline = stages;
    parallel.chunks = chunks;
    parallel.schedule = chunks > 1 ? SBP_INTERLEAVED : parallel.schedule;
    parallel.micro_batch = plan.cut.graph.global_batch / stages;
    parallel.offload = bucket_parameters > 0;
    if (parallel.offload)
        parallel.bucket_parameters = bucket_parameters;
    if (sbp_plan_cut(&plan, &parallel, &diag) != SBP_OK ||
        sbp_space_make(&plan.cut, &request, NULL, NULL, &space, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    assert_int_equal(space.weights->memory_stages, stages);
    const double bytes = sbp_pricing_constant_bytes(&space, stage);
    sbp_space_free(&space);
    sbp_plan_free(&plan);
    return bytes;
}

/* Master copies, two moments and gradients in their type pass through it, 16 bytes a parameter
 * (Myelin, section V.B); expected: so many of them. */
static void check_bucket(int64_t stages, int64_t chunks, int stage, int64_t bucket_parameters,
                         double expected)
{
    const double bytes = constant_bytes(stages, chunks, stage, bucket_parameters) -
                         constant_bytes(stages, chunks, stage, 0);
    if (bytes != 16 * expected)
        fail_msg("%d stages of %d chunks, stage %d: %.17g bytes, expected %.17g", (int)stages,
                 (int)chunks, stage, bytes, 16 * expected);
}

/* It is no larger than what a device updates, of the chunk that has most. */
static void test_bucket(void **state)
{
    (void)state;
    const int64_t huge = INT64_C(1) << 40;
    check_bucket(1, 1, 0, 64, 64);
    check_bucket(1, 1, 0, (A + B + C + D) / DEVICES, (A + B + C + D) / DEVICES);
    check_bucket(1, 1, 0, huge, (A + B + C + D) / DEVICES);
    check_bucket(2, 1, 0, huge, 2.0 * A / DEVICES); /* a, then the rest */
    check_bucket(2, 1, 1, huge, 2.0 * (B + C + D) / DEVICES);
    check_bucket(2, 2, 0, huge, 2.0 * A / DEVICES); /* chunks a and c */
    check_bucket(2, 2, 1, huge, 2.0 * B / DEVICES); /* chunks b and d */
    check_bucket(2, 2, 1, 64, 64);
}

/* Operators whose weight gradients may read the same block. s hands its output's gradient on to b
 * and c, which nothing else reads; t to d, and not as it is to r, which d reads, too. b and c read
 * the same input, and that of a is free. */
static void test_late_readers(void **state)
{
    (void)state;
    static const char text[] =
        "{\"name\": \"m\", \"global_batch\": 8, \"sequence\": 4, \"features\": 16, \"layers\": ["
        "{\"op\": \"linear\", \"name\": \"a\", \"out\": 16}, "
        "{\"op\": \"linear\", \"name\": \"b\", \"out\": 16}, "
        "{\"op\": \"linear\", \"name\": \"c\", \"inputs\": [\"a\"], \"out\": 16}, "
        "{\"op\": \"add\", \"name\": \"s\", \"inputs\": [\"b\", \"c\"]}, "
        "{\"op\": \"gelu\", \"name\": \"r\"}, "
        "{\"op\": \"linear\", \"name\": \"d\", \"out\": 16}, "
        "{\"op\": \"add\", \"name\": \"t\", \"inputs\": [\"r\", \"d\"]}, "
        "{\"op\": \"linear\", \"name\": \"e\", \"out\": 16}]}";
    static const int gradient[] = {1, 2, 2, 0, 0, 1, 0, 1}, input[] = {0, 2, 2, 0, 0, 1, 0, 1};
    int found_gradient[8] = {0}, found_input[8] = {0};
    struct sbp_diag diag = {{0}};
    struct sbp_arena arena;
    struct sbp_plan plan;
    sbp_arena_init(&arena);
    if (sbp_plan_begin(cJSON_Parse(text), "model", cJSON_Parse(cluster), "cluster", &plan, &diag) !=
        SBP_OK)
        fail_msg("%s", diag.text);
    assert_int_equal(plan.cut.graph.op_count, 8);
    assert_int_equal(
        sbp_pricing_count_late_readers(&plan.cut.graph, &arena, found_gradient, found_input),
        SBP_OK);
    for (int op = 0; op < 8; op++) {
        assert_int_equal(found_gradient[op], gradient[op]);
        assert_int_equal(found_input[op], input[op]);
    }
    sbp_plan_free(&plan);
    sbp_arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bucket),
                                       cmocka_unit_test(test_late_readers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
