/* Windows of smaller models: in proportion to the sequence, and never one key alone, which would
 * give the scores no gradient. */
#include <cjson/cJSON.h>

#include "executor/run_shrink.h"
#include "tests/support/check_bench.h"
#include "tests/support/solve_plan.h"
#include "tests/support/unit.h"

/* The window of the first attention that has one. */
static int64_t window_of(const struct sbp_graph *graph)
{
    for (int op = 0; op < graph->op_count; op++)
        if (graph->op[op].attention.own_window > 0)
            return graph->op[op].attention.own_window;
    return 0;
}

static void expect_window(int sequence, int window, int64_t small_window)
{
    char model[512];
    struct sbp_plan plan, small;
    struct sbp_step step;
    struct sbp_diag diag = {0};
    const struct sbp_element_bytes bytes = sbp_program_run_bytes(SBP_F32);
    (void)snprintf(model, sizeof model,
                   "{\"name\": \"w\", \"architecture\": \"llama\", \"layers\": 2, \"hidden\": 64, "
                   "\"heads\": 4, \"ffn\": 64, \"sequence\": %d, \"vocab\": 64, "
                   "\"global_batch\": 8, \"window\": %d, \"precision\": \"fp32\"}",
                   sequence, window);
    const struct sbp_request request = {.space = SBP_SPACE_FULL,
                                        .quick = true,
                                        .solver = sbp_solver_find("random"),
                                        .solver_options = {.seed = SEED, .max_evaluations = 1}};
    struct sbp_outcome outcome;
    if (sbp_plan_begin(parsed(model), "model", parsed(FLAT), "cluster", &plan, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    const struct sbp_parallel parallel = plan.cut.parallel;
    if (sbp_plan_cut(&plan, &parallel, &diag) != SBP_OK ||
        solve_plan(&plan, &request, &outcome, &diag) != SBP_OK ||
        sbp_run_shrink(&plan, &bytes, &small, &step, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    assert_int_equal(window_of(&small.cut.graph), small_window);
    sbp_step_free(&step);
    sbp_plan_free(&small);
    sbp_plan_free(&plan);
}

static void test_windows_keep_some_keys(void **state)
{
    (void)state;
    expect_window(4096, 128, 4); /* in proportion it were half a key of 16 */
    expect_window(4096, 2048, 8);
    expect_window(4096, 3, 3);
    expect_window(4, 3, 3);
    expect_window(2, 2, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_windows_keep_some_keys)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
