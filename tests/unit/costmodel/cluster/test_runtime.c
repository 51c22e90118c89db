/* Trainers' profiles: what is read, every refusal, and the time of a pass. */
#include <string.h>

#include <cjson/cJSON.h>

#include "costmodel/cluster/cluster.h"
#include "costmodel/program/parallel.h"
#include "tests/support/unit.h"

#define CLUSTER(runtime)                                                                           \
    "{\"name\": \"c\", \"levels\": [{\"name\": \"l\", \"size\": 2, \"alpha_s\": 0, "               \
    "\"beta_s_per_byte\": 0}], \"device\": {\"memory_bytes\": 100, \"reserve_bytes\": 10, "        \
    "\"flops\": {\"fp32\": 1}, \"memory_bytes_per_s\": 1}, \"runtime\": " runtime "}"

#define WITH(key) CLUSTER("{\"name\": \"t\", " key "}")

static enum sbp_status read_text(const char *text, struct sbp_cluster *cluster,
                                 struct sbp_diag *diag)
{
    struct sbp_arena arena = {0};
    struct cJSON *tree;
    struct sbp_json root;
    *diag = (struct sbp_diag){{0}};
    enum sbp_status status = sbp_json_parse(text, "c.json", &tree, &root, diag);
    if (status == SBP_OK)
        status = sbp_cluster_read(&root, &arena, cluster);
    cJSON_Delete(tree);
    sbp_arena_free(&arena);
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
                          "\"host_s\": 1e-5, \"launch_s\": 2e-6, \"messages\": \"block\", "
                          "\"dispatch\": \"once\", \"experts_wait_s\": 3e-4, "
                          "\"reserve_bytes\": 20, \"logit_bytes\": 2, "
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
    assert_true(runtime->host_s == 1e-5 && runtime->sends_block && runtime->dispatches_once);
    assert_true(runtime->experts_wait_s == 3e-4);
    assert_true(runtime->launch_s == 2e-6 && cluster.kernel_launch_s == 2e-6);
    assert_int_equal(runtime->logit_bytes, 2);
    assert_int_equal(cluster.reserve_bytes, 30); /* the device's and the trainer's */
    assert_true(cluster.gradient_overlap == 0.5);
}

/* What a trainer reaches multiplies what the device can; its attention replaces the device's. */
static void test_reaches(void **state)
{
    (void)state;
    struct sbp_cluster cluster;
    struct sbp_diag diag;
    assert_int_equal(
        read_text(CLUSTER("{\"name\": \"t\", \"reaches\": {\"products\": 0.5, \"attention\": 0.25, "
                          "\"streams\": 0.125, \"source\": 1}, \"unfused_attention\": "
                          "{\"forward_passes\": 6, \"backward_passes\": 9, \"efficiency\": 0.75}, "
                          "\"error\": 0.2}"),
                  &cluster, &diag),
        SBP_OK);
    const struct sbp_runtime *runtime = &cluster.runtime;
    assert_true(runtime->reach[SBP_REACH_PRODUCTS] == 0.5);
    assert_true(runtime->reach[SBP_REACH_ATTENTION] == 0.25);
    assert_true(runtime->reach[SBP_REACH_STREAMS] == 0.125);
    for (int pass = 0; pass < SBP_PASSES; pass++)
        assert_true(cluster.rates.pass_share[pass] == 0.5);
    assert_true(cluster.rates.attention_share == 0.25 && cluster.rates.stream_share == 0.125);
    assert_true(cluster.rates.dispatch_share == 0.125);
    assert_true(cluster.rates.unfused.forward_passes == 6);
    assert_true(cluster.rates.unfused.backward_passes == 9);
    assert_true(cluster.rates.unfused.share == 0.75);
    assert_true(runtime->error == 0.2);
}

static void test_defaults_hide_nothing(void **state)
{
    (void)state;
    struct sbp_cluster cluster;
    struct sbp_diag diag;
    assert_int_equal(read_text(CLUSTER("{\"name\": \"t\"}"), &cluster, &diag), SBP_OK);
    for (int i = 0; i < SBP_HIDINGS; i++)
        assert_true(cluster.runtime.hidden[i] == 0);
    for (int i = 0; i < SBP_REACHES; i++)
        assert_true(cluster.runtime.reach[i] == 1);
    assert_true(cluster.rates.pass_share[SBP_PASS_FORWARD] == 1 && cluster.rates.stream_share == 1);
    assert_true(cluster.rates.unfused.share == 0 && cluster.runtime.error == 0);
    assert_true(cluster.runtime.host_s == 0 && !cluster.runtime.sends_block);
    assert_true(cluster.runtime.launch_s == 0 && cluster.kernel_launch_s == 0);
    assert_true(!cluster.runtime.dispatches_once);
    assert_true(cluster.gradient_overlap == 0);
    assert_int_equal(cluster.reserve_bytes, 10);
}

#define ON_DEVICE(rates, members)                                                                  \
    "{\"name\": \"c\", \"levels\": [{\"name\": \"l\", \"size\": 2, \"alpha_s\": 0, "               \
    "\"beta_s_per_byte\": 0}], \"device\": {\"memory_bytes\": 100, \"flops\": {\"fp32\": 1}, "     \
    "\"memory_bytes_per_s\": 1, " rates "}" members "}"

/* Of a profile the device leaves no more than it can; what is less stays, for it was fitted on a
 * machine that had this limit, too. */
static void test_device_limits(void **state)
{
    (void)state;
    struct sbp_cluster cluster;
    struct sbp_diag diag;
    const struct sbp_runtime *runtime = &cluster.runtime;
    struct sbp_parallel parallel = {.schedule = SBP_ONE_F_ONE_B, .gradient_overlap = -1};
    assert_int_equal(
        read_text(ON_DEVICE("\"overlap_efficiency\": 0.75, \"host_launch_s\": 2e-6",
                            ", \"runtime\": {\"name\": \"t\", \"hides\": {\"gradients\": 1, "
                            "\"weights\": 0.5, \"activations\": 0.8}, \"host_s\": 1e-6}"),
                  &cluster, &diag),
        SBP_OK);
    assert_true(runtime->hidden[SBP_HIDES_GRADIENTS] == 0.75);
    assert_true(runtime->hidden[SBP_HIDES_ACTIVATIONS] == 0.75);
    assert_true(runtime->hidden[SBP_HIDES_WEIGHTS] == 0.5);
    assert_true(runtime->hidden[SBP_HIDES_CONTEXT] == 0);
    assert_true(cluster.gradient_overlap == 0.75 && runtime->host_s == 2e-6);
    assert_true(sbp_parallel_hidden_share(&parallel, &cluster) == 0.75);
    parallel.gradient_overlap = 1;
    assert_true(sbp_parallel_hidden_share(&parallel, &cluster) == 0.75);
    parallel.gradient_overlap = 0.5;
    assert_true(sbp_parallel_hidden_share(&parallel, &cluster) == 0.5);
    /* A slower trainer keeps its own time. */
    assert_int_equal(read_text(ON_DEVICE("\"host_launch_s\": 2e-6",
                                         ", \"runtime\": {\"name\": \"t\", \"hides\": "
                                         "{\"weights\": 1}, \"host_s\": 3e-6}"),
                               &cluster, &diag),
                     SBP_OK);
    assert_true(runtime->host_s == 3e-6 && runtime->hidden[SBP_HIDES_WEIGHTS] == 1);
    /* Without a trainer the host launches as fast as it can. */
    assert_int_equal(read_text(ON_DEVICE("\"host_launch_s\": 2e-6, \"overlap_efficiency\": 0.25",
                                         ", \"gradient_overlap\": 0.5"),
                               &cluster, &diag),
                     SBP_OK);
    parallel.gradient_overlap = -1;
    assert_true(runtime->host_s == 2e-6);
    assert_true(sbp_parallel_hidden_share(&parallel, &cluster) == 0.25);
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
        {WITH("\"launch_s\": -1e-6"), "c.json: runtime.launch_s: -1e-06 is out of range"},
        {WITH("\"launch_s\": 2"), "c.json: runtime.launch_s: 2 is out of range"},
        {WITH("\"launch_s\": \"2us\""), "c.json: runtime.launch_s: expected a number"},
        {WITH("\"error\": -0.1"), "c.json: runtime.error: -0.1 is out of range"},
        {WITH("\"error\": 1001"), "c.json: runtime.error: 1001 is out of range"},
        {WITH("\"error\": true"), "c.json: runtime.error: expected a number"},
        {WITH("\"reaches\": 0.5"), "c.json: runtime.reaches: expected an object"},
        {WITH("\"reaches\": {\"product\": 1}"),
         "c.json: runtime.reaches: unknown key \"product\", did you mean \"products\""},
        {WITH("\"reaches\": {\"products\": 0}"),
         "c.json: runtime.reaches.products: 0 is out of range"},
        {WITH("\"reaches\": {\"attention\": 1.01}"),
         "c.json: runtime.reaches.attention: 1.01 is out of range"},
        {WITH("\"reaches\": {\"streams\": null}"),
         "c.json: runtime.reaches.streams: expected a number"},
        {WITH("\"unfused_attention\": 6"), "c.json: runtime.unfused_attention: expected an object"},
        {WITH("\"unfused_attention\": {\"forward_passes\": 6, \"efficiency\": 1}"),
         "c.json: runtime.unfused_attention: key \"backward_passes\" is missing"},
        {WITH("\"unfused_attention\": {\"passes\": 6}"),
         "c.json: runtime.unfused_attention: unknown key \"passes\""},
        {WITH("\"unfused_attention\": {\"forward_passes\": 0, \"backward_passes\": 9, "
              "\"efficiency\": 1}"),
         "c.json: runtime.unfused_attention.forward_passes: 0 is out of range"},
        {WITH("\"unfused_attention\": {\"forward_passes\": 6, \"backward_passes\": 9, "
              "\"efficiency\": 1.5}"),
         "c.json: runtime.unfused_attention.efficiency: 1.5 is out of range"},
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
        cmocka_unit_test(test_reads_every_key),        cmocka_unit_test(test_reaches),
        cmocka_unit_test(test_defaults_hide_nothing),  cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_pass_takes_the_slowest), cmocka_unit_test(test_device_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
