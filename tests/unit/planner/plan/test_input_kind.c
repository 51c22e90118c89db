/* What a file is by its keys, and what is said of one in another's place. */
#include <string.h>

#include <cjson/cJSON.h>

#include "planner/plan/input_kind.h"
#include "tests/support/unit.h"

static void test_kinds(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum sbp_input_kind kind;
    } rows[] = {
        {"{\"name\": \"m\", \"global_batch\": 1}", SBP_INPUT_MODEL},
        {"{\"name\": \"c\", \"levels\": [], \"device\": {}}", SBP_INPUT_CLUSTER},
        {"{\"name\": \"c\", \"levels\": [], \"device\": {}, \"runtime\": {\"host_s\": 1}}",
         SBP_INPUT_CLUSTER},
        {"{\"name\": \"t\", \"hides\": {}}", SBP_INPUT_RUNTIME},
        {"{\"name\": \"t\", \"host_s\": 1e-5}", SBP_INPUT_RUNTIME},
        {"{\"name\": \"t\", \"launch_s\": 1e-5}", SBP_INPUT_RUNTIME},
        {"{\"name\": \"t\", \"messages\": \"block\"}", SBP_INPUT_RUNTIME},
        {"{\"name\": \"t\", \"reaches\": {\"products\": 0.5}}", SBP_INPUT_RUNTIME},
        {"{\"name\": \"t\", \"unfused_attention\": {}}", SBP_INPUT_RUNTIME},
        {"{\"name\": \"t\"}", SBP_INPUT_UNKNOWN},
        {"{\"format\": \"sbplan plan\", \"global_batch\": 1}", SBP_INPUT_PLAN},
        {"{\"layers\": [{\"name\": \"l\", \"roles\": {}}]}", SBP_INPUT_STRATEGY},
        {"{\"problem\": {}}", SBP_INPUT_PROBLEM},
        {"{\"sbplan_samples\": 1}", SBP_INPUT_MEASUREMENTS},
        {"{\"global_batch\": 1, \"levels\": [], \"device\": {}}", SBP_INPUT_UNKNOWN},
        {"{}", SBP_INPUT_UNKNOWN},
        {"[]", SBP_INPUT_UNKNOWN},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct cJSON *root = cJSON_Parse(rows[i].text);
        assert_non_null(root);
        const enum sbp_input_kind kind = sbp_input_kind_of(root);
        if (kind != rows[i].kind)
            fail_msg("%s: kind %d, expected %d", rows[i].text, kind, rows[i].kind);
        cJSON_Delete(root);
    }
}

/* A trainer's profile where a model or a cluster is expected, however little it says. */
static void test_runtime_elsewhere(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"name\": \"t\", \"launch_s\": 1e-5}",
        "{\"name\": \"t\", \"reaches\": {\"products\": 0.5}}",
    };
    static const enum sbp_input_kind wanted[] = {SBP_INPUT_MODEL, SBP_INPUT_CLUSTER};
    static const char *const says[] = {
        "t.json: this is a runtime, not a model: sbplan search MODEL "
        "CLUSTER --runtime t.json takes it",
        "t.json: this is a runtime, not a cluster: sbplan search "
        "MODEL CLUSTER --runtime t.json takes it"};
    for (int i = 0; i < 4; i++) {
        struct cJSON *root;
        struct sbp_json at;
        struct sbp_diag diag = {{0}};
        assert_int_equal(sbp_json_parse(texts[i / 2], "t.json", &root, &at, &diag), SBP_OK);
        assert_int_equal(sbp_input_kind_check(&at, wanted[i % 2]), SBP_E_INPUT);
        assert_string_equal(diag.text, says[i % 2]);
        assert_int_equal(sbp_input_kind_check(&at, SBP_INPUT_RUNTIME), SBP_OK);
        cJSON_Delete(root);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_runtime_elsewhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
