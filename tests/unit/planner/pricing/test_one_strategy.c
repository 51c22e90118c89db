/* The answer for a space of one strategy that does not fit: no other strategy might fit, unless
 * the memory model left ZeRO levels out. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "planner/plan/plan.h"
#include "planner/inner/cut_solve.h"
#include "tests/support/space_bench.h"
#include "tests/support/solve_plan.h"
#include "tests/support/unit.h"

/* Gradients are wide, the second layer is nearly all there is: under level 3 its gathered block and
 * then its whole gradient lie beside the shards. */
#define WIDE_GRADIENTS                                                                             \
    "{\"name\": \"w\", \"global_batch\": 2, \"precision\": {\"param\": \"bf16\", \"activation\": " \
    "\"bf16\", \"grad\": \"fp32\", \"master\": \"fp32\"}, \"layers\": [{\"op\": \"linear\", "      \
    "\"name\": \"a\", \"in\": 4, \"out\": 64}, {\"op\": \"linear\", \"name\": \"b\", \"out\": "    \
    "512}]}"

/* Bytes of a device when all weights have one level. */
static int64_t device_bytes(struct sbp_plan *plan, struct sbp_solve_request request, int64_t zero)
{
    const struct sbp_parallel given = plan->cut.parallel;
    struct sbp_parallel parallel = given;
    struct sbp_outcome outcome;
    struct sbp_step step;
    struct sbp_diag diag = {{0}};
    request.zero_is_free = false;
    parallel.zero = zero;
    if (sbp_plan_cut(plan, &parallel, &diag) != SBP_OK ||
        solve_as(plan, &request, &outcome, &diag) != SBP_OK ||
        sbp_cut_step(&plan->cut, &plan->strategy, false, &step, &diag) != SBP_OK ||
        sbp_plan_cut(plan, &given, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    const int64_t bytes = step.totals.device_bytes;
    sbp_step_free(&step);
    return bytes;
}

static void check_status(struct sbp_plan *plan, struct sbp_solve_request request,
                         int64_t limit_bytes, enum sbp_plan_status expected)
{
    struct sbp_outcome outcome;
    struct sbp_diag diag = {{0}};
    request.asked.memory_limit_bytes = limit_bytes;
    if (solve_as(plan, &request, &outcome, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    if (outcome.status != expected)
        fail_msg("within %" PRId64 " bytes: %s, expected %s", limit_bytes,
                 sbp_solver_status_name(outcome.status), sbp_solver_status_name(expected));
}

/* A device by itself has nothing to shard: there is one strategy, whatever the levels. */
static void test_one_device(void **state)
{
    (void)state;
    struct sbp_plan plan;
    const struct sbp_solve_request request = {
        .asked.space = SBP_SPACE_FULL, .asked.quick = true, .zero_is_free = true};
    open_plan(GPT(1, ""), LEVEL("l", 1), &plan);
    const int64_t needed = device_bytes(&plan, request, 0);
    for (int64_t zero = 1; zero <= 3; zero++)
        assert_int_equal(device_bytes(&plan, request, zero), needed);
    check_status(&plan, request, needed, SBP_PLAN_OPTIMAL);
    check_status(&plan, request, needed - 1, SBP_PLAN_INFEASIBLE);
    sbp_plan_free(&plan);
}

static struct sbp_fix split_batch(const char *layer, int64_t devices)
{
    struct sbp_fix fix = {.zero = SBP_ANY, .rests = true};
    (void)snprintf(fix.layer, sizeof fix.layer, "%s", layer);
    for (int role = 0; role < SBP_MAX_ROLES; role++)
        fix.factor[role][0] = role == 0 ? devices : 1;
    for (int rest = 0; rest < SBP_REST_STATES; rest++)
        fix.rest[rest][0] = rest == 0 ? devices : 1;
    return fix;
}

/* Along a weights that counts the end of a step alone, level 3 costs least and, by the model, takes
 * least: the only one left. It is not what takes least. */
static void test_levels_left_out(void **state)
{
    (void)state;
    struct sbp_plan plan;
    struct sbp_space space;
    struct sbp_path_weights weights;
    struct sbp_diag diag = {{0}};
    const struct sbp_fix fix[] = {split_batch("a", 2), split_batch("b", 2)};
    struct sbp_solve_request request = {.asked.space = SBP_SPACE_FULL,
                                        .asked.quick = true,
                                        .zero_is_free = true,
                                        .asked.fix_count = 2,
                                        .asked.fix = fix};
    open_plan(WIDE_GRADIENTS, LEVEL("l", 2), &plan);
    assert_int_equal(sbp_path_weights_mean(&plan.cut, &plan.arena, &weights, &diag), SBP_OK);
    for (int op = 0; op < plan.cut.graph.op_count; op++)
        weights.forward[op] = weights.backward[op] = weights.weight[op] = 0;
    request.weights = &weights;
    make_space(&plan, &request, &space);
    for (int v = 0; v < space.variable_count; v++)
        assert_true(space.variable[v].choice_count == 1 &&
                    (space.variable[v].op < 0 || space.variable[v].zero[0] == 3));
    sbp_space_free(&space);
    const int64_t least = device_bytes(&plan, request, 1);
    assert_true(least < device_bytes(&plan, request, 3));
    check_status(&plan, request, least, SBP_PLAN_OPTIMAL);
    sbp_plan_free(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_device),
                                       cmocka_unit_test(test_levels_left_out)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
