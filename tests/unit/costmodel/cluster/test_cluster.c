/* Cluster files: what is read, every refusal, shrinking, and the price of products. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/json/json.h"
#include "base/math/random.h"
#include "costmodel/cluster/cluster.h"
#include "tests/support/seeded.h"
#include "tests/support/unit.h"

#define SEED UINT64_C(20240811)

static struct sbp_arena tables; /* of the clusters of a test */

static enum sbp_status read_text(const char *text, struct sbp_cluster *cluster,
                                 struct sbp_diag *diag)
{
    struct cJSON *tree;
    struct sbp_json root;
    *diag = (struct sbp_diag){{0}};
    enum sbp_status status = sbp_json_parse(text, "c.json", &tree, &root, diag);
    if (status == SBP_OK)
        status = sbp_cluster_read(&root, &tables, cluster);
    cJSON_Delete(tree);
    return status;
}

static void must_read(const char *text, struct sbp_cluster *cluster)
{
    struct sbp_diag diag;
    if (read_text(text, cluster, &diag) != SBP_OK)
        fail_msg("%s was refused: %s", text, diag.text);
}

#define DEVICE                                                                                     \
    "\"device\": {\"memory_bytes\": 100, \"flops\": {\"fp32\": 1e12}, \"memory_bytes_per_s\": "    \
    "1e11}"
#define LEVEL(name, size)                                                                          \
    "{\"name\": \"" name "\", \"size\": " size ", \"alpha_s\": 1e-5, \"beta_s_per_byte\": 1e-10}"
#define CLUSTER(levels, device) "{\"name\": \"c\", \"levels\": [" levels "], " device "}"

static void test_reads_every_key(void **state)
{
    (void)state;
    struct sbp_cluster cluster;
    must_read(
        "{\"name\": \"two\", \"source\": 1, \"measured\": {\"x\": [1]}, \"collectives\": "
        "\"hierarchical\", \"gradient_overlap\": 0.75, \"levels\": ["
        "{\"name\": \"node\", \"size\": 2, \"alpha_s\": 2e-5, \"beta_s_per_byte\": 8e-11,"
        " \"ports\": 4, \"source\": \"s\", \"curves\": {\"all-gather\": [{\"members\": 2, "
        "\"points\": [[8, 1e-5], [16, 2e-5]]}]}}," LEVEL(
            "gpu",
            "16") "],"
                  "\"device\": {\"name\": \"d\", \"memory_bytes\": 17179869184, \"reserve_bytes\": "
                  "7,"
                  "\"flops\": {\"fp32\": 9.3e12, \"bf16\": 3e14}, \"memory_bytes_per_s\": 7.3e11,"
                  "\"host_memory_bytes\": 99, \"host_link_bytes_per_s\": 1.6e10, "
                  "\"kernel_launch_s\": 5e-6,"
                  "\"gemm\": [{\"m\": 8, \"n\": 16, \"k\": 32, \"efficiency\": 0.5}]}}",
        &cluster);
    assert_string_equal(cluster.name, "two");
    assert_int_equal(cluster.level_count, 2);
    assert_string_equal(cluster.level[0].name, "node");
    assert_int_equal(cluster.level[0].size, 2);
    assert_true(cluster.level[0].alpha_s == 2e-5);
    assert_true(cluster.level[0].beta_s_per_byte == 8e-11);
    assert_int_equal(cluster.level[0].ports, 4);
    assert_int_equal(cluster.level[1].size, 16);
    assert_int_equal(cluster.level[1].ports, 0);
    assert_true(cluster.memory_bytes == INT64_C(17179869184));
    assert_int_equal(cluster.reserve_bytes, 7);
    assert_true(cluster.flops[SBP_FP32] == 9.3e12);
    assert_true(cluster.flops[SBP_BF16] == 3e14);
    assert_true(cluster.flops[SBP_FP64] == 0);
    assert_true(cluster.memory_bytes_per_s == 7.3e11);
    assert_int_equal(cluster.rates.efficiency_count, 1);
    assert_int_equal(cluster.rates.efficiency[0].k, 32);
    assert_true(cluster.rates.efficiency[0].share == 0.5);
    assert_int_equal(sbp_cluster_devices(&cluster), 32);
    assert_int_equal(cluster.collectives, SBP_MODEL_HIERARCHICAL);
    assert_true(cluster.gradient_overlap == 0.75);
    assert_int_equal(cluster.host_memory_bytes, 99);
    assert_true(cluster.host_link_bytes_per_s == 1.6e10);
    assert_true(cluster.kernel_launch_s == 5e-6);
    assert_int_equal(cluster.curves.curve_count, 1);
    assert_true(sbp_curves_has(&cluster.curves, 0, SBP_ALL_GATHER));
}

static void test_defaults(void **state)
{
    (void)state;
    struct sbp_cluster cluster;
    must_read(CLUSTER(LEVEL("a", "2"), DEVICE), &cluster);
    assert_int_equal(cluster.collectives, SBP_MODEL_RING);
    assert_int_equal(cluster.level[0].ports, 0);
    assert_int_equal(cluster.curves.curve_count, 0);
    assert_true(cluster.gradient_overlap == 0);
    assert_int_equal(cluster.host_memory_bytes, 0);
    assert_true(cluster.host_link_bytes_per_s == 0);
    assert_true(cluster.kernel_launch_s == 0);
    assert_true(cluster.slowdown == 1);
}

/* Each of a device's rates is a time's inverse, or a time, and all times are as many times as long.
 */
static void test_a_slow_device_takes_longer(void **state)
{
    (void)state;
#define RATES                                                                                      \
    "\"memory_bytes\": 100, \"flops\": {\"fp32\": 1e12, \"bf16\": 3e12}, "                         \
    "\"memory_bytes_per_s\": 1e11, \"host_link_bytes_per_s\": 1e10, \"kernel_launch_s\": 2e-6, "   \
    "\"vector_operations_per_s\": 1e10, \"stream_efficiency\": 0.5"
    const struct sbp_device_product product = {.type = SBP_FP32, .m = 64, .n = 64, .k = 64};
    struct sbp_cluster cluster, slow;
    must_read(CLUSTER(LEVEL("a", "2"), "\"device\": {" RATES "}"), &cluster);
    must_read(CLUSTER(LEVEL("a", "2"), "\"device\": {" RATES ", \"slowdown\": 4}"), &slow);
    assert_true(cluster.slowdown == 1 && slow.slowdown == 4);
    assert_true(slow.flops[SBP_FP32] == 2.5e11 && slow.flops[SBP_BF16] == 7.5e11);
    assert_true(slow.flops[SBP_FP64] == 0);
    assert_true(slow.host_link_bytes_per_s == 2.5e9);
    assert_true(slow.kernel_launch_s == 8e-6);
    assert_true(sbp_cluster_product_s(&slow, &product) ==
                4 * sbp_cluster_product_s(&cluster, &product));
    assert_true(sbp_cluster_kernel_s(&slow, SBP_FP32, 0, 1e6) ==
                4 * sbp_cluster_kernel_s(&cluster, SBP_FP32, 0, 1e6));
    assert_true(sbp_cluster_vector_s(&slow, SBP_FP32, 1e6) ==
                4 * sbp_cluster_vector_s(&cluster, SBP_FP32, 1e6));
    assert_true(slow.level[0].alpha_s == cluster.level[0].alpha_s);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected;
    } rows[] = {
        {"[]", "c.json: expected an object, found an array"},
        {CLUSTER(LEVEL("a", "0"), DEVICE), "c.json: levels[0].size: "},
        {CLUSTER(LEVEL("a", "-4"), DEVICE), "c.json: levels[0].size: "},
        {CLUSTER(LEVEL("a", "2.5"), DEVICE), "c.json: levels[0].size: "},
        {CLUSTER(LEVEL("a", "4611686018427387904"), DEVICE), "c.json: levels[0].size: "},
        {CLUSTER("", DEVICE), "c.json: levels: has 0 levels, legal are 1 to 4"},
        {CLUSTER(LEVEL("a", "2") "," LEVEL("b", "2") "," LEVEL("c", "2") "," LEVEL(
                     "d", "2") "," LEVEL("e", "2"),
                 DEVICE),
         "c.json: levels: has 5 levels, legal are 1 to 4"},
        {CLUSTER(LEVEL("a", "1099511627776") "," LEVEL("b", "2"), DEVICE),
         "c.json: levels: more than 2^40 devices in all"},
        {CLUSTER(LEVEL("a", "2") "," LEVEL("a", "2"), DEVICE),
         "c.json: levels[1].name: \"a\" is the name of levels[0] already"},
        {"{\"name\": \"c\", \"level\": [], " DEVICE "}",
         "c.json: unknown key \"level\", did you mean \"levels\"?"},
        {"{\"name\": \"c\", \"levels\": [" LEVEL("a", "2") "]}",
         "c.json: key \"device\" is missing"},
        {"{\"levels\": [" LEVEL("a", "2") "], " DEVICE "}", "c.json: key \"name\" is missing"},
        {CLUSTER(LEVEL("a", "2"), "\"device\": {\"memory_bytes\": 1, \"memory_bytes_per_s\": 1,"
                                  "\"flops\": {}}"),
         "c.json: device.flops: give the peak rate of at least one of fp32, fp64, bf16, fp16"},
        {CLUSTER(LEVEL("a", "2"), "\"device\": {\"memory_bytes\": 1, \"memory_bytes_per_s\": 1,"
                                  "\"flops\": {\"fp23\": 1e9}}"),
         "c.json: device.flops: unknown key \"fp23\", did you mean \"fp"},
        {CLUSTER(LEVEL("a", "2"), "\"device\": {\"memory_bytes\": 1, \"memory_bytes_per_s\": 1,"
                                  "\"reserve_bytes\": 2, \"flops\": {\"fp32\": 1e9}}"),
         "c.json: device.reserve_bytes: "},
        {CLUSTER(LEVEL("a", "2"), "\"device\": {\"memory_bytes\": 1, \"memory_bytes_per_s\": 0,"
                                  "\"flops\": {\"fp32\": 1e9}}"),
         "c.json: device.memory_bytes_per_s: "},
        {CLUSTER(LEVEL("a", "2"),
                 "\"device\": {\"memory_bytes\": 1, \"memory_bytes_per_s\": 1, \"flops\": "
                 "{\"fp32\": 1e9}, \"gemm\": [{\"m\": 1, \"n\": 1, \"k\": 1, \"efficiency\": 0}]}"),
         "c.json: device.gemm[0].efficiency: 0 is out of range, legal is 1e-09 to 1"},
        {CLUSTER(LEVEL("a", "2"),
                 "\"device\": {\"memory_bytes\": 1, \"memory_bytes_per_s\": 1, \"flops\": "
                 "{\"fp32\": 1e9}, \"gemm\": [{\"m\": 0, \"n\": 1, \"k\": 1, \"efficiency\": 1}]}"),
         "c.json: device.gemm[0].m: "},
        {"{\"name\": \"c\", \"collectives\": \"rings\", \"levels\": [" LEVEL("a", "2") "], " DEVICE
                                                                                       "}",
         "c.json: collectives: unknown value \"rings\", did you mean \"ring\"?"},
        {"{\"name\": \"c\", \"gradient_overlap\": 1.5, \"levels\": [" LEVEL("a", "2") "], " DEVICE
                                                                                      "}",
         "c.json: gradient_overlap: "},
        {CLUSTER(
             "{\"name\": \"a\", \"size\": 2, \"alpha_s\": 0, \"beta_s_per_byte\": 0, \"ports\": 0}",
             DEVICE),
         "c.json: levels[0].ports: "},
        {CLUSTER(
             "{\"name\": \"a\", \"size\": 2, \"alpha_s\": 0, \"beta_s_per_byte\": 0, \"curves\": "
             "{\"all-gather\": [{\"members\": 2, \"points\": [[1, 2], [2, 1]]}]}}",
             DEVICE),
         "c.json: levels[0].curves.all-gather[0].points[1]: 1 s are less than the 2 s of "
         "points[0]"},
        {CLUSTER(LEVEL("a", "2"),
                 "\"device\": {\"memory_bytes\": 1, \"memory_bytes_per_s\": 1, \"flops\": "
                 "{\"fp32\": 1e9}, \"kernel_launch_s\": -1}"),
         "c.json: device.kernel_launch_s: "},
        {CLUSTER(LEVEL("a", "2"),
                 "\"device\": {\"memory_bytes\": 1, \"memory_bytes_per_s\": 1, \"flops\": "
                 "{\"fp32\": 1e9}, \"slowdown\": 0.5}"),
         "c.json: device.slowdown: "},
        {CLUSTER(LEVEL("a", "2"),
                 "\"device\": {\"memory_bytes\": 1, \"memory_bytes_per_s\": 1, \"flops\": "
                 "{\"fp32\": 1e9}, \"host_link_bytes_per_s\": -1}"),
         "c.json: device.host_link_bytes_per_s: "},
        {CLUSTER(LEVEL("a", "2"),
                 "\"device\": {\"memory_bytes\": 1, \"memory_bytes_per_s\": 1, \"flops\": "
                 "{\"fp32\": 1e9}, \"host_memory_bytes\": 0.5}"),
         "c.json: device.host_memory_bytes: "},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct sbp_cluster cluster;
        struct sbp_diag diag;
        assert_int_equal(read_text(rows[i].text, &cluster, &diag), SBP_E_INPUT);
        if (strncmp(diag.text, rows[i].expected, strlen(rows[i].expected)) != 0)
            fail_msg("row %zu: said \"%s\", expected \"%s...\"", i, diag.text, rows[i].expected);
    }
}

static void test_types(void **state)
{
    (void)state;
    assert_string_equal(sbp_cluster_type_name(SBP_FP32), "fp32");
    assert_string_equal(sbp_cluster_type_name(SBP_BF16), "bf16");
    assert_int_equal(sbp_cluster_type_bytes(SBP_FP64), 8);
    assert_int_equal(sbp_cluster_type_bytes(SBP_FP32), 4);
    assert_int_equal(sbp_cluster_type_bytes(SBP_BF16), 2);
    assert_int_equal(sbp_cluster_type_bytes(SBP_FP16), 2);
}

/* --- shrinking --- */

static int64_t clamp(int64_t value, int64_t most)
{
    return value < most ? value : most;
}

/* Independent rule: a device count is legal when, from the innermost level out, what is left is
 * either a whole multiple of the level or a whole part of it (which takes the rest). */
static bool shrunk_sizes(const int64_t *size, int levels, int64_t devices, int64_t *expected)
{
    for (int i = levels - 1; i >= 0; i--) {
        const int64_t taken = clamp(devices, size[i]);
        if (devices % taken != 0 || size[i] % taken != 0)
            return false;
        expected[i] = taken;
        devices /= taken;
    }
    return devices == 1;
}

static void test_shrink(void **state)
{
    (void)state;
    int legal = 0;
    struct sbp_random random = seeded(SEED);
    for (int trial = 0; trial < 2000; trial++) {
        struct sbp_cluster cluster = {.name = "c"};
        struct sbp_diag diag = {{0}};
        int64_t size[SBP_MAX_LEVELS], expected[SBP_MAX_LEVELS], all = 1;
        cluster.level_count = 1 + (int)sbp_random_below(&random, SBP_MAX_LEVELS);
        for (int i = 0; i < cluster.level_count; i++) {
            size[i] = cluster.level[i].size = 1 + (int64_t)sbp_random_below(&random, 12);
            all *= size[i];
        }
        const int64_t devices = (int64_t)sbp_random_below(&random, (uint64_t)all + 2);
        const struct sbp_cluster before = cluster;
        const bool good = devices > 0 && shrunk_sizes(size, cluster.level_count, devices, expected);
        const enum sbp_status status = sbp_cluster_shrink(&cluster, devices, &diag);
        if (status != (good ? SBP_OK : SBP_E_INPUT))
            fail_msg("trial %d: %lld of %lld devices: %d %s", trial, (long long)devices,
                     (long long)all, (int)status, diag.text);
        for (int i = 0; i < cluster.level_count; i++)
            assert_int_equal(cluster.level[i].size, good ? expected[i] : before.level[i].size);
        if (good)
            assert_int_equal(sbp_cluster_devices(&cluster), devices);
        else
            assert_true(strlen(diag.text) > 0);
        legal += good;
    }
    assert_true(legal > 100);
}

static void test_shrink_outer_levels_first(void **state)
{
    (void)state;
    struct sbp_cluster cluster;
    must_read(CLUSTER(LEVEL("node", "16") "," LEVEL("gpu", "8"), DEVICE), &cluster);
    assert_int_equal(sbp_cluster_shrink(&cluster, 32, NULL), SBP_OK);
    assert_int_equal(cluster.level[0].size, 4);
    assert_int_equal(cluster.level[1].size, 8);
    assert_int_equal(sbp_cluster_shrink(&cluster, 4, NULL), SBP_OK);
    assert_int_equal(cluster.level[0].size, 1);
    assert_int_equal(cluster.level[1].size, 4);
    assert_int_equal(sbp_cluster_shrink(&cluster, 0, NULL), SBP_E_INPUT);
    assert_int_equal(sbp_cluster_shrink(&cluster, 8, NULL), SBP_E_INPUT);
}

static void test_shrink_says_what_is_legal(void **state)
{
    (void)state;
    struct sbp_cluster cluster;
    struct sbp_diag diag = {{0}};
    must_read(CLUSTER(LEVEL("pod", "64") "," LEVEL("node",
                                                   "2") "," LEVEL("one", "1") "," LEVEL("gpu", "3"),
                      DEVICE),
              &cluster);
    assert_int_equal(sbp_cluster_shrink(&cluster, 18, &diag), SBP_E_INPUT);
    assert_string_equal(diag.text, "c: 18 devices do not divide its levels, legal are the divisors "
                                   "of 3, 3 times those of 2, 6 times those of 64");
}

/* --- compute --- */

static void assert_near(double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-12 * fabs(expected)))
        fail_msg("%.17g, expected %.17g", value, expected);
}

static double product_s(const struct sbp_cluster *cluster, double m, double n, double k,
                        double elements)
{
    const struct sbp_device_product product = {
        .type = SBP_FP32, .m = m, .n = n, .k = k, .elements = elements};
    return sbp_cluster_product_s(cluster, &product);
}

static void test_product_is_compute_or_memory_bound(void **state)
{
    (void)state;
    struct sbp_cluster cluster;
    must_read(CLUSTER(LEVEL("a", "2"), DEVICE), &cluster); /* 1e12 flops, 1e11 bytes a second */
    assert_near(product_s(&cluster, 1000, 1000, 1000, 0), 2e9 / 1e12);
    /* Elements said: a product that moves few, and one that memory binds. */
    assert_near(product_s(&cluster, 1000, 1000, 1000, 1), 2e9 / 1e12);
    assert_near(product_s(&cluster, 1000, 1000, 1000, 1e12), 4e12 / cluster.memory_bytes_per_s);
    assert_near(product_s(&cluster, 1, 1000, 1000, 0), 4.0 * (1000 + 1000000 + 1000) / 1e11);
    assert_near(sbp_cluster_kernel_s(&cluster, SBP_FP32, 1e9, 1e6), 1e-3);
    assert_near(sbp_cluster_kernel_s(&cluster, SBP_FP32, 1e3, 1e6), 1e-5);
}

static void test_rate_of_a_type_that_is_not_given(void **state)
{
    (void)state;
    struct sbp_cluster cluster = {.memory_bytes_per_s = 1e30};
    cluster.flops[SBP_FP16] = 4e12;
    cluster.flops[SBP_FP32] = 1e12;
    assert_near(sbp_cluster_kernel_s(&cluster, SBP_BF16, 4e12, 0), 1); /* bf16, else fp16 */
    assert_near(sbp_cluster_kernel_s(&cluster, SBP_FP64, 1e12, 0), 1);
    cluster.flops[SBP_BF16] = 8e12;
    assert_near(sbp_cluster_kernel_s(&cluster, SBP_BF16, 8e12, 0), 1);
    assert_near(sbp_cluster_kernel_s(&cluster, SBP_FP16, 4e12, 0), 1);
}

/* --- shipped files --- */

static void test_shipped_clusters(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t devices;
    } rows[] = {{"flat-64", 64},         {"flat-128", 128},    {"flat-4096", 4096},
                {"gcp-a100-2x16", 32},   {"dgx-a100-8x8", 64}, {"laptop-4", 4},
                {"piz-daint-p100", 256}, {"summit-v100", 384}, {"v100-roce-4x8", 32},
                {"dgx-h100-8x8", 64},    {"gb200-nvl72", 72},  {"polaris", 512},
                {"alps", 1024},          {"h100-ib-10x8", 80}, {"a100-sxm-8", 8},
                {"h100-sxm-8", 8},       {"l40s-8", 8}};
    const char *root = getenv("SBP_SOURCE_ROOT");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct sbp_diag diag = {{0}};
        struct sbp_cluster cluster;
        struct sbp_json at;
        struct cJSON *tree;
        char path[4096];
        (void)snprintf(path, sizeof path, "%s/configs/clusters/%s.json", root == NULL ? "." : root,
                       rows[i].name);
        if (sbp_json_open(path, &tree, &at, &diag) != SBP_OK)
            fail_msg("%s", diag.text);
        /* The planner fills in what other files say of the device and the trainer. */
        cJSON_DeleteItemFromObjectCaseSensitive(cJSON_GetObjectItemCaseSensitive(tree, "device"),
                                                "like");
        cJSON_DeleteItemFromObjectCaseSensitive(tree, "runtime");
        if (sbp_cluster_read(&at, &tables, &cluster) != SBP_OK)
            fail_msg("%s", diag.text);
        assert_string_equal(cluster.name, rows[i].name);
        assert_int_equal(sbp_cluster_devices(&cluster), rows[i].devices);
        cJSON_Delete(tree);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_every_key),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_a_slow_device_takes_longer),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_shrink),
        cmocka_unit_test(test_shrink_outer_levels_first),
        cmocka_unit_test(test_shrink_says_what_is_legal),
        cmocka_unit_test(test_product_is_compute_or_memory_bound),
        cmocka_unit_test(test_rate_of_a_type_that_is_not_given),
        cmocka_unit_test(test_shipped_clusters),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    sbp_arena_free(&tables);
    return failed;
}
