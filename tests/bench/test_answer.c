/* The reading of answers: a good one is read as it stands, and each thing that can be wrong with it
 * is refused. */
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "tests/bench/answer.h"
#include "tests/support/unit.h"

/* 16 devices in 2 stages of 8, a batch of 64. */
static const char good[] =
    "{\"status\": \"feasible\", \"objective_s\": 2, \"lower_bound_s\": 1.6,"
    " \"model\": {\"parameters\": 1000}, \"cost\": {\"step_s\": 2, \"mfu\": 0.5},"
    " \"memory\": {\"device_bytes\": 70, \"reserve_bytes\": 30, \"available_bytes\": 80},"
    " \"parallel\": {\"pipeline\": 2, \"micro_batch\": 16, \"chunks\": 1, \"zero\": 1,"
    " \"schedule\": \"1f1b\", \"recompute\": \"full\", \"offload\": false},"
    " \"stages\": [{}, {}], \"layers\": ["
    "{\"repeats\": 1, \"parameters\": 8, \"roles\": {\"batch\": [2, 4]}},"
    "{\"repeats\": 12, \"parameters\": 8, \"roles\": {\"batch\": [2, 1], \"row\": [1, 4]}},"
    "{\"repeats\": 12, \"parameters\": 0, \"roles\": {\"batch\": [2, 4]}}]}";

static const char infeasible[] =
    "{\"status\": \"infeasible\", \"objective_s\": null, \"lower_bound_s\": null,"
    " \"model\": {\"parameters\": 1000}, \"memory\": {\"available_bytes\": 80,"
    " \"needed_bytes\": 90, \"lower_bound_bytes\": 85, \"dominates\": \"activations\"}}";

static enum sbp_status read(const char *text, int exit_code, struct answer *answer,
                            struct sbp_diag *diag)
{
    const struct measured measured = {.exit_code = exit_code, .answer = cJSON_Parse(text)};
    *diag = (struct sbp_diag){{0}};
    assert_non_null(measured.answer);
    const enum sbp_status status = answer_read(&measured, 16, 64, answer, diag);
    cJSON_Delete(measured.answer);
    return status;
}

static void test_good(void **state)
{
    struct answer answer;
    struct sbp_diag diag;
    char verdict[32];
    (void)state;
    assert_int_equal(read(good, 0, &answer, &diag), SBP_OK);
    assert_true(answer.has_plan);
    assert_int_equal(answer.parameters, 1000);
    assert_int_equal(answer.device_bytes, 70);
    assert_int_equal(answer.reserve_bytes, 30);
    assert_string_equal(answer_verdict(&answer, verdict), "gap 25 %");
    assert_string_equal(answer.plan, "pipeline 2 1f1b, micro-batch 16, ZeRO 1, recompute full, "
                                     "batch 2 x row 4 (12), batch 8 (1)");
    assert_int_equal(read(infeasible, 1, &answer, &diag), SBP_OK);
    assert_false(answer.has_plan);
    assert_int_equal(answer.needed_bytes, 90);
    assert_int_equal(answer.needed_bound_bytes, 85);
    assert_string_equal(answer.dominates, "activations");
    assert_string_equal(answer_verdict(&answer, verdict), "infeasible");
}

/* text with `from`, which it holds once, replaced. */
static void replace(const char *text, const char *from, const char *to, char *out, size_t size)
{
    const char *at = strstr(text, from);
    assert_non_null(at);
    assert_null(strstr(at + 1, from));
    (void)snprintf(out, size, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
}

static void test_wrong(void **state)
{
    static const struct {
        const char *text, *from, *to, *complaint;
    } wrong[] = {
        {good, "feasible", "optimal", "leaves a gap"},
        {good, "feasible", "infeasible", "exit status 0"},
        {good, "feasible", "fine", "unknown value"},
        {good, "\"objective_s\": 2", "\"objective_s\": 2.1", "reported 2 s"},
        {good, "\"objective_s\": 2", "\"objective_s\": null", "objective_s"},
        {good, "1.6", "2.1", "above the cost"},
        {good, "0.5", "2.5", "mfu"},
        {good, "\"device_bytes\": 70", "\"device_bytes\": 81", "device_bytes"},
        {good, "\"reserve_bytes\": 30", "\"reserve_bytes\": 71", "reserve_bytes"},
        {good, "\"pipeline\": 2", "\"pipeline\": 3", "3 stages of 16 devices"},
        {good, "\"micro_batch\": 16", "\"micro_batch\": 24", "micro-batch 24 of 64"},
        {good, "[{}, {}]", "[{}]", "has 1, the plan 2"},
        {good, "\"row\": [1, 4]", "\"row\": [1, 2]", "layers[1]: roles multiply to 4"},
        {good, "\"parameters\": 0", "\"parameters\": -1", "layers[2].parameters"},
        {infeasible, "\"needed_bytes\": 90", "\"needed_bytes\": 79", "needed_bytes"},
        {infeasible, "\"lower_bound_bytes\": 85", "\"lower_bound_bytes\": 91", "lower_bound_bytes"},
        {infeasible, ", \"dominates\": \"activations\"", "", "dominates"},
    };
    struct answer answer;
    struct sbp_diag diag;
    char text[2048];
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        replace(wrong[i].text, wrong[i].from, wrong[i].to, text, sizeof text);
        assert_int_equal(read(text, wrong[i].text == infeasible, &answer, &diag), SBP_E_INPUT);
        if (strstr(diag.text, wrong[i].complaint) == NULL)
            fail_msg("%s: \"%s\" is not in \"%s\"", wrong[i].to, wrong[i].complaint, diag.text);
    }
}

static void test_none(void **state)
{
    struct measured crashed = {.exit_code = -1, .signal = 11};
    struct answer answer;
    struct sbp_diag diag = {{0}};
    (void)state;
    assert_int_equal(answer_read(&crashed, 16, 64, &answer, &diag), SBP_E_INPUT);
    assert_non_null(strstr(diag.text, "signal 11"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
