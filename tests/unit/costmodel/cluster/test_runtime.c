/* Trainers' profiles: what is read, every refusal, and the time of a pass. */
#include <string.h>

#include <cjson/cJSON.h>

#include "costmodel/cluster/cluster.h"
#include "tests/support/unit.h"

#define CLUSTER(runtime)                                                                           \
    "{\"name\": \"c\", \"levels\": [{\"name\": \"l\", \"size\": 2, \"alpha_s\": 0, "               \
    "\"beta_s_per_byte\": 0}], \"device\": {\"memory_bytes\": 100, \"reserve_bytes\": 10, "        \
    "\"flops\": {\"fp32\": 1}, \"memory_bytes_per_s\": 1}, \"runtime\": " runtime "}"

static enum sbp_status read_text(const char *text, struct sbp_cluster *cluster,
                                 struct sbp_diag *diag)
{
    struct cJSON *tree;
    struct sbp_json root;
    struct sbp_arena arena = {0}; /* of no table that is used */
    *diag = (struct sbp_diag){{0}};
    enum sbp_status status = sbp_json_parse(text, "c.json", &tree, &root, diag);
    if (status == SBP_OK)
        status = sbp_cluster_read(&root, &arena, cluster);
    sbp_arena_free(&arena);
    cJSON_Delete(tree);
    return status;
}

static void test_reads_every_key(void **state)
{
    (void)state;
    struct sbp_cluster cluster;
    struct sbp_diag diag;
    assert_int_equal(
        read_text(CLUSTER("{\"name\": \"t\", \"hides\": {\"gradients\": 0.5, \"weights\": 0.25, "
                          "\"activations\": 0.125, \"context\": 1, \"experts\": 0.75}, "
                          "\"host_s\": 1e-5, \"messages\": \"block\", \"reserve_bytes\": 20, "
                          "\"source\": 1}"),
                  &cluster, &diag),
        SBP_OK);
    const struct sbp_runtime *runtime = &cluster.runtime;
    assert_string_equal(runtime->name, "t");
    assert_true(runtime->hidden[SBP_HIDES_GRADIENTS] == 0.5);
    assert_true(runtime->hidden[SBP_HIDES_WEIGHTS] == 0.25);
    assert_true(runtime->hidden[SBP_HIDES_ACTIVATIONS] == 0.125);
    assert_true(runtime->hidden[SBP_HIDES_CONTEXT] == 1);
    assert_true(runtime->hidden[SBP_HIDES_EXPERTS] == 0.75);
    assert_true(runtime->host_s == 1e-5 && runtime->sends_block);
    assert_int_equal(cluster.reserve_bytes, 30); /* the device's and the trainer's */
    assert_true(cluster.gradient_overlap == 0.5);
}

static void test_defaults_hide_nothing(void **state)
{
    (void)state;
    struct sbp_cluster cluster;
    struct sbp_diag diag;
    assert_int_equal(read_text(CLUSTER("{\"name\": \"t\"}"), &cluster, &diag), SBP_OK);
    for (int i = 0; i < SBP_HIDINGS; i++)
        assert_true(cluster.runtime.hidden[i] == 0);
    assert_true(cluster.runtime.host_s == 0 && !cluster.runtime.sends_block);
    assert_true(cluster.gradient_overlap == 0);
    assert_int_equal(cluster.reserve_bytes, 10);
}

static void test_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {CLUSTER("\"megatron-core\""), "c.json: runtime: "},
        {CLUSTER("{\"hides\": {}}"), "c.json: runtime: key \"name\" is missing"},
        {CLUSTER("{\"name\": \"t\", \"hide\": {}}"), "did you mean \"hides\""},
        {CLUSTER("{\"name\": \"t\", \"hides\": {\"gradient\": 1}}"), "did you mean \"gradients\""},
        {CLUSTER("{\"name\": \"t\", \"hides\": {\"experts\": 1.5}}"), "runtime.hides.experts: "},
        {CLUSTER("{\"name\": \"t\", \"host_s\": -1}"), "runtime.host_s: "},
        {CLUSTER("{\"name\": \"t\", \"host_s\": 20}"), "runtime.host_s: "},
        {CLUSTER("{\"name\": \"t\", \"messages\": \"wait\"}"), "runtime.messages: "},
        {CLUSTER("{\"name\": \"t\", \"reserve_bytes\": 91}"), "runtime.reserve_bytes: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sbp_cluster cluster;
        struct sbp_diag diag;
        if (read_text(cases[i].text, &cluster, &diag) != SBP_E_INPUT)
            fail_msg("%s was read", cases[i].text);
        if (strstr(diag.text, cases[i].says) == NULL)
            fail_msg("%s: says %s, not %s", cases[i].text, diag.text, cases[i].says);
    }
}

static void test_pass_takes_the_slowest(void **state)
{
    (void)state;
    const struct sbp_runtime runtime = {.host_s = 0.5};
    static const struct {
        struct sbp_pass_time time;
        double seconds;
    } cases[] = {
        {{.device_s = 5, .communication_s = 4, .launches = 8}, 5},
        {{.device_s = 5, .communication_s = 6, .launches = 8}, 6},
        {{.device_s = 5, .communication_s = 6, .launches = 16}, 8},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_true(sbp_runtime_pass_s(&runtime, &cases[i].time) == cases[i].seconds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_every_key),
        cmocka_unit_test(test_defaults_hide_nothing),
        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_pass_takes_the_slowest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
