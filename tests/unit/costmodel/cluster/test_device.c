/* Rates of a device: interpolation on grids and among scattered shapes, which table is taken, the
 * factors, and every refusal. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/math/random.h"
#include "base/text.h"
#include "costmodel/cluster/cluster.h"
#include "tests/support/seeded.h"
#include "tests/support/unit.h"

#define SEED UINT64_C(20261124)

static struct sbp_arena tables; /* of the rates of a test */

static enum sbp_status read_text(const char *text, struct sbp_device_rates *rates,
                                 struct sbp_diag *diag)
{
    struct cJSON *tree;
    struct sbp_json root;
    *diag = (struct sbp_diag){{0}};
    enum sbp_status status = sbp_json_parse(text, "d.json", &tree, &root, diag);
    if (status == SBP_OK)
        status = sbp_device_rates_read(&root, &tables, rates);
    cJSON_Delete(tree);
    return status;
}

static struct sbp_device_rates must_read(const char *text)
{
    struct sbp_device_rates rates;
    struct sbp_diag diag;
    if (read_text(text, &rates, &diag) != SBP_OK)
        fail_msg("%s was refused: %s", text, diag.text);
    return rates;
}

static void assert_near(double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-12 * fabs(expected)))
        fail_msg("%.17g, expected %.17g", value, expected);
}

static double share_of(const struct sbp_device_rates *rates, enum sbp_type type, enum sbp_pass pass,
                       double m, double n, double k)
{
    const struct sbp_device_product product = {.type = type, .pass = pass, .m = m, .n = n, .k = k};
    return sbp_device_product_share(rates, &product);
}

static double forward_share(const struct sbp_device_rates *rates, double m, double n, double k)
{
    return share_of(rates, SBP_BF16, SBP_PASS_FORWARD, m, n, k);
}

/* --- grids --- */

/* (2, 3, 2) shares, k fastest. */
#define SHARES       0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.15, 0.25, 0.35, 0.45, 0.55, 1
#define TEXT_OF(...) #__VA_ARGS__
#define LIST(...)    "[" TEXT_OF(__VA_ARGS__) "]"
#define GRID                                                                                       \
    "{\"gemm_grids\": [{\"m\": [128, 1024], \"n\": [64, 256, 4096], \"k\": [512, 2048], "          \
    "\"efficiency\": " LIST(SHARES) "}]}"

static void test_grid_points_are_exact(void **state)
{
    (void)state;
    const struct sbp_device_rates rates = must_read(GRID);
    static const double m[] = {128, 1024}, n[] = {64, 256, 4096}, k[] = {512, 2048};
    static const double shares[] = {SHARES};
    for (int i = 0; i < 12; i++)
        assert_near(forward_share(&rates, m[i / 6], n[i / 2 % 3], k[i % 2]), shares[i]);
}

/* Between two points the logarithm is a straight line; in a cell, the mean of its corners. */
static void test_grid_is_linear_in_logarithms(void **state)
{
    (void)state;
    const struct sbp_device_rates rates = must_read(GRID);
    assert_near(forward_share(&rates, 128, 128, 512), sqrt(0.1 * 0.3));
    assert_near(forward_share(&rates, 128, 64, 1024), sqrt(0.1 * 0.2));
    assert_near(forward_share(&rates, 256, 64, 512), pow(0.1, 2.0 / 3) * pow(0.15, 1.0 / 3));
    double corners = 1;
    static const double of[] = {0.3, 0.4, 0.5, 0.6, 0.35, 0.45, 0.55, 1};
    for (int i = 0; i < 8; i++)
        corners *= pow(of[i], 0.125);
    assert_near(forward_share(&rates, sqrt(128.0 * 1024), 1024, 1024), corners);
}

/* Beyond the largest size the share stays, below the least one the time does. */
static void test_grid_beyond_its_ends(void **state)
{
    (void)state;
    const struct sbp_device_rates rates = must_read(GRID);
    assert_near(forward_share(&rates, 1 << 20, 1 << 20, 1 << 20), 1);
    assert_near(forward_share(&rates, 1 << 20, 64, 512), 0.15);
    assert_near(forward_share(&rates, 32, 64, 512), 0.1 / 4);
    assert_near(forward_share(&rates, 32, 8, 64), 0.1 / 4 / 8 / 8);
    const struct sbp_device_rates flat = must_read(
        "{\"gemm_grids\": [{\"m\": [7], \"n\": [9], \"k\": [5], \"efficiency\": [0.4]}]}");
    assert_near(forward_share(&flat, 1, 1e6, 5), 0.4); /* an axis of one size says nothing of it */
}

/* A grid of shares that rise no faster than the work: larger products never take less time. */
static void test_grid_times_never_fall(void **state)
{
    (void)state;
    const struct sbp_device_rates rates = must_read(GRID);
    struct sbp_random random = seeded(SEED);
    for (int trial = 0; trial < 2000; trial++) {
        double size[3], before = 0;
        const int axis = trial % 3;
        for (int i = 0; i < 3; i++)
            size[i] = 1 + (double)sbp_random_below(&random, 5000);
        for (size[axis] = 1; size[axis] < 1e5; size[axis] *= 1.37) {
            const double share = forward_share(&rates, size[0], size[1], size[2]);
            const double time = size[0] * size[1] * size[2] / share;
            assert_true(share > 0 && share <= 1);
            if (time < before * (1 - 1e-12))
                fail_msg("trial %d: %g x %g x %g takes %.17g, less than %.17g", trial, size[0],
                         size[1], size[2], time, before);
            before = time;
        }
    }
}

/* --- scattered shapes --- */

/* The formula once more, in base-2 logarithms: weights change by one factor, averages do not. */
static double interpolate(const struct sbp_device_rates *rates, double m, double n, double k)
{
    double top = 0, bottom = 0;
    for (int i = 0; i < rates->efficiency_count; i++) {
        const struct sbp_efficiency *e = &rates->efficiency[i];
        const double d2 = pow(log2(m) - log2((double)e->m), 2) +
                          pow(log2(n) - log2((double)e->n), 2) +
                          pow(log2(k) - log2((double)e->k), 2);
        top += e->share / d2;
        bottom += 1 / d2;
    }
    return top / bottom;
}

#define MANY 200 /* more than any fixed table of the program holds */

static void test_scattered_shapes(void **state)
{
    (void)state;
    struct sbp_random random = seeded(SEED);
    struct sbp_text text = {0};
    sbp_text_add(&text, "{\"gemm\": [");
    for (int i = 0; i < MANY; i++)
        sbp_text_add(&text, "%s{\"m\": %d, \"n\": %d, \"k\": %d, \"efficiency\": %.3f}",
                     i > 0 ? ", " : "", 1 << sbp_random_below(&random, 14), i + 2,
                     1 << sbp_random_below(&random, 14), 0.1 + 0.004 * i);
    sbp_text_add(&text, "]}");
    assert_false(text.failed);
    const struct sbp_device_rates rates = must_read(text.bytes);
    sbp_text_free(&text);
    assert_int_equal(rates.efficiency_count, MANY);
    for (int i = 0; i < MANY; i++) {
        const struct sbp_efficiency *e = &rates.efficiency[i];
        assert_near(forward_share(&rates, (double)e->m, (double)e->n, (double)e->k), e->share);
    }
    for (int trial = 0; trial < 500; trial++) {
        const double m = 3 + 7 * (double)sbp_random_below(&random, 900);
        const double n = 300 + 7 * (double)sbp_random_below(&random, 900);
        const double k = 3 + 7 * (double)sbp_random_below(&random, 900);
        const double share = forward_share(&rates, m, n, k);
        const double expected = interpolate(&rates, m, n, k);
        if (fabs(share - expected) > 1e-9 * expected)
            fail_msg("trial %d: %.17g, expected %.17g", trial, share, expected);
    }
}

/* --- which table --- */

#define ENTRY(scope, share) "{" scope "\"m\": 1, \"n\": 1, \"k\": 1, \"efficiency\": " share "}"
#define ONE(scope, share)                                                                          \
    "{" scope "\"m\": [1], \"n\": [1], \"k\": [1], \"efficiency\": [" share "]}"

static void test_best_table(void **state)
{
    (void)state;
    const struct sbp_device_rates rates = must_read(
        "{\"gemm\": [" ENTRY("", "0.1") ", " ENTRY("\"type\": \"fp32\", ", "0.2") ", " ENTRY(
            "\"type\": \"fp32\", \"pass\": \"weight_gradient\", ",
            "0.3") "], \"gemm_grids\": [" ONE("\"type\": \"bf16\", ",
                                              "0.4") ", " ONE("\"type\": \"bf16\", \"pass\": "
                                                              "\"input_gradient\", ",
                                                              "0.5") "]}");
    static const struct {
        enum sbp_type type;
        enum sbp_pass pass;
        double share;
    } rows[] = {
        {SBP_FP64, SBP_PASS_FORWARD, 0.1},         /* no type of its own */
        {SBP_FP32, SBP_PASS_FORWARD, 0.2},         /* its type */
        {SBP_FP32, SBP_PASS_INPUT_GRADIENT, 0.2},  /* its type, any pass */
        {SBP_FP32, SBP_PASS_WEIGHT_GRADIENT, 0.3}, /* type and pass */
        {SBP_BF16, SBP_PASS_FORWARD, 0.4},         {SBP_BF16, SBP_PASS_INPUT_GRADIENT, 0.5},
        {SBP_FP16, SBP_PASS_INPUT_GRADIENT, 0.5}, /* the other half-precision type */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_near(share_of(&rates, rows[i].type, rows[i].pass, 8, 8, 8), rows[i].share);
    /* One table serves all, whatever its type and pass are. */
    const struct sbp_device_rates lone =
        must_read("{\"gemm\": [" ENTRY("\"type\": \"fp64\", \"pass\": \"forward\", ", "0.7") "]}");
    for (int i = 0; i < SBP_TYPES * SBP_PASSES; i++)
        assert_near(share_of(&lone, (enum sbp_type)(i % SBP_TYPES), (enum sbp_pass)(i / SBP_TYPES),
                             8, 8, 8),
                    0.7);
    /* But a grid of quite another type says nothing. */
    const struct sbp_device_rates half =
        must_read("{\"gemm_grids\": [" ONE("\"type\": \"bf16\", ", "0.6") "]}");
    assert_near(share_of(&half, SBP_FP16, SBP_PASS_FORWARD, 8, 8, 8), 0.6);
    assert_near(share_of(&half, SBP_FP32, SBP_PASS_FORWARD, 8, 8, 8), 1);
    /* A grid goes before shapes that fit as well. */
    const struct sbp_device_rates both =
        must_read("{\"gemm\": [" ENTRY("", "0.1") "], \"gemm_grids\": [" ONE("", "0.6") "]}");
    assert_near(forward_share(&both, 8, 8, 8), 0.6);
}

/* --- factors --- */

static void test_factors(void **state)
{
    (void)state;
    const struct sbp_device_rates none = must_read("{}");
    assert_true(forward_share(&none, 3, 5, 7) == 1);
    const struct sbp_device_rates rates =
        must_read("{\"pass_efficiency\": {\"weight_gradient\": 0.5}, \"grouped_efficiency\": "
                  "{\"forward\": 0.25}, \"sustained\": 0.8, \"alignment\": {\"multiple\": 8, "
                  "\"efficiency\": 0.75}}");
    assert_near(forward_share(&rates, 3, 16, 24), 0.8);
    assert_near(forward_share(&rates, 16, 3, 24), 0.8 * 0.75);
    assert_near(forward_share(&rates, 16, 16, 3), 0.8 * 0.75);
    /* dW = X^T dY: its rows and columns are features, its inner size tokens. */
    const enum sbp_pass weights = SBP_PASS_WEIGHT_GRADIENT;
    assert_near(share_of(&rates, SBP_BF16, weights, 16, 16, 3), 0.8 * 0.5);
    assert_near(share_of(&rates, SBP_BF16, weights, 3, 16, 16), 0.8 * 0.5 * 0.75);
    const struct sbp_device_product experts = {
        .type = SBP_BF16, .m = 8, .n = 8, .k = 8, .grouped = true};
    assert_near(sbp_device_product_share(&rates, &experts), 0.8 * 0.25);
    const struct sbp_device_attention attention = {SBP_BF16, SBP_PASS_FORWARD, 100, 4096, 65536};
    assert_near(sbp_device_attention_share(&rates, &attention), 0.8 * 0.75);
}

/* No product and no attention reaches more than what bounds take for the most. */
static void test_most(void **state)
{
    (void)state;
    const struct sbp_device_rates rates = must_read("{\"gemm\": [" ENTRY(
        "\"type\": \"fp32\", ",
        "0.2") ", {\"m\": 64, \"n\": 64, \"k\": 8, "
               "\"efficiency\": 0.7, \"type\": \"fp32\"}], \"gemm_grids\": [{\"type\": \"bf16\", "
               "\"m\": "
               "[4, 64], \"n\": [4], \"k\": [8, 99], \"efficiency\": [0.3, 0.5, 0.4, 0.1]}, " ONE(
                   "\"type\": \"bf16\", \"pass\": \"weight_gradient\", ",
                   "0.6") "], \"sustained\": 0.9, \"pass_efficiency\": {\"input_gradient\": 0.5}, "
                          "\"attention_grids\": [{\"type\": \"bf16\", \"head_size\": [64, 128], "
                          "\"sequence\": [9], \"rows\": [8], \"efficiency\": [0.25, 0.125]}]}");
    static const struct {
        enum sbp_type type;
        enum sbp_pass pass;
        double product, attention;
    } rows[] = {
        {SBP_BF16, SBP_PASS_FORWARD, 0.5 * 0.9, 0.25 * 0.9},
        {SBP_FP16, SBP_PASS_INPUT_GRADIENT, 0.5 * 0.9 * 0.5, 0.25 * 0.9},
        {SBP_BF16, SBP_PASS_WEIGHT_GRADIENT, 0.6 * 0.9, 0.25 * 0.9},
        {SBP_FP32, SBP_PASS_FORWARD, 0.7 * 0.9, 0.9},
        {SBP_FP64, SBP_PASS_FORWARD, 0.7 * 0.9, 0.9},
    };
    struct sbp_random random = seeded(SEED);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const enum sbp_type type = rows[i].type;
        const enum sbp_pass pass = rows[i].pass;
        const double most = sbp_device_most_product_share(&rates, type, pass);
        const double attended = sbp_device_most_attention_share(&rates, type, pass);
        if (fabs(most / rows[i].product - 1) > 1e-8 ||
            fabs(attended / rows[i].attention - 1) > 1e-8)
            fail_msg("row %zu: %.17g and %.17g", i, most, attended);
        for (int trial = 0; trial < 300; trial++) {
            const double a = 1 + (double)sbp_random_below(&random, 200);
            const double b = 1 + (double)sbp_random_below(&random, 200);
            const struct sbp_device_attention attention = {type, pass, a, b, a};
            assert_true(share_of(&rates, type, pass, a, b, trial % 9 + 4) <= most);
            assert_true(sbp_device_attention_share(&rates, &attention) <= attended);
        }
    }
    const struct sbp_device_rates none = {0};
    assert_true(sbp_device_most_product_share(&none, SBP_BF16, SBP_PASS_FORWARD) == 1);
}

static void test_attention_grid(void **state)
{
    (void)state;
    const struct sbp_device_rates rates = must_read(
        "{\"attention_grids\": [{\"pass\": \"forward\", \"head_size\": [64, 128], \"sequence\": "
        "[1024, 4096], \"rows\": [65536], \"efficiency\": [0.1, 0.2, 0.3, 0.6]}, {\"pass\": "
        "\"input_gradient\", \"head_size\": [1], \"sequence\": [1], \"rows\": [1], \"efficiency\": "
        "[0.9]}]}");
    struct sbp_device_attention attention = {SBP_BF16, SBP_PASS_FORWARD, 128, 4096, 1};
    assert_near(sbp_device_attention_share(&rates, &attention), 0.6);
    attention.sequence = 2048;
    assert_near(sbp_device_attention_share(&rates, &attention), sqrt(0.3 * 0.6));
    attention.head_size = 32;
    assert_near(sbp_device_attention_share(&rates, &attention), sqrt(0.1 * 0.2) / 2);
    attention.pass = SBP_PASS_INPUT_GRADIENT;
    assert_near(sbp_device_attention_share(&rates, &attention), 0.9);
}

/* The time of a row between two sizes is a power of its bytes; a row below the least takes as long
 * as it; beyond the largest the share stays. */
static void test_dispatch(void **state)
{
    (void)state;
    static const double rows[][2] = {
        {512, 0.1}, {1024, 0.2}, {2048, 0.4}, {4096, 0.8}, {8192, 0.8}};
    const struct sbp_device_rates rates = must_read(
        "{\"dispatch_efficiency\": {\"row_bytes\": [1024, 4096], \"efficiency\": [0.2, 0.8], "
        "\"source\": \"measured\"}}");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_near(sbp_device_dispatch_share(&rates, rows[i][0]), rows[i][1]);
    const struct sbp_device_rates none = must_read("{\"stream_efficiency\": 0.5}");
    assert_true(sbp_device_dispatch_share(&none, 1024) <= 0);
    /* Rows stream where the device says nothing of them. */
    struct sbp_cluster cluster = {.memory_bytes_per_s = 1e10, .rates = rates};
    assert_near(sbp_cluster_rows_s(&cluster, 1e10, 1024), 5);
    cluster.rates.dispatch_share = 0.5;
    assert_near(sbp_cluster_rows_s(&cluster, 1e10, 1024), 10);
    cluster.rates = none;
    assert_near(sbp_cluster_rows_s(&cluster, 1e10, 1024), 2);
}

static void test_seconds(void **state)
{
    (void)state;
    struct sbp_cluster cluster = {.memory_bytes_per_s = 1e10};
    cluster.flops[SBP_BF16] = 1e12;
    cluster.rates = must_read(
        "{\"stream_efficiency\": 0.5, \"attention_grids\": [{\"head_size\": [1], \"sequence\": "
        "[1], \"rows\": [1], \"efficiency\": [0.25]}], \"unfused_attention\": {\"forward_passes\": "
        "6.5, \"backward_passes\": 9.5, \"efficiency\": 0.5}}");
    const struct sbp_device_attention attention = {SBP_BF16, SBP_PASS_FORWARD, 64, 1024, 1024};
    assert_near(sbp_cluster_kernel_s(&cluster, SBP_BF16, 1e12, 1), 1);
    assert_near(sbp_cluster_kernel_s(&cluster, SBP_BF16, 1, 1e10), 2);
    assert_near(sbp_cluster_attention_s(&cluster, &attention, 1e12, 1), 4);
    assert_near(sbp_cluster_attention_s(&cluster, &attention, 1, 1e10), 2);
    assert_near(sbp_cluster_unfused_attention_s(&cluster, SBP_BF16, 1e12, 1e10), 4);
    assert_true(sbp_cluster_vector_s(&cluster, SBP_FP32, 1e12) <= 0); /* not given */
    cluster.rates = must_read("{\"vector_operations_per_s\": 2e10}");
    assert_near(sbp_cluster_vector_s(&cluster, SBP_FP32, 1e10), 0.5);
    assert_near(sbp_cluster_vector_s(&cluster, SBP_FP64, 1e10), 1);
}

/* A type without units of its own runs on those of another: the product takes as long as one whose
 * operands are of that type would, but for the bytes that it moves. */
static void test_rate_types(void **state)
{
    (void)state;
    static const struct {
        enum sbp_type type;
        double flops[SBP_TYPES]; /* by type */
        enum sbp_type stands;
    } rows[] = {
        {SBP_FP8, {[SBP_FP8] = 4e12, [SBP_BF16] = 2e12, [SBP_FP32] = 1e12}, SBP_FP8},
        {SBP_FP8, {[SBP_BF16] = 2e12, [SBP_FP16] = 3e12, [SBP_FP32] = 1e12}, SBP_BF16},
        {SBP_FP8, {[SBP_FP16] = 3e12, [SBP_FP32] = 1e12}, SBP_FP16},
        {SBP_FP8, {[SBP_FP32] = 1e12, [SBP_FP64] = 5e11}, SBP_FP32},
        {SBP_FP8, {[SBP_FP64] = 5e11}, SBP_FP64},
        {SBP_BF16, {[SBP_FP16] = 3e12, [SBP_FP32] = 1e12, [SBP_FP8] = 4e12}, SBP_FP16},
        {SBP_FP16, {[SBP_FP32] = 1e12, [SBP_FP8] = 4e12}, SBP_FP32},
        {SBP_FP32, {[SBP_FP64] = 5e11, [SBP_BF16] = 2e12}, SBP_FP64},
        {SBP_FP64, {[SBP_FP32] = 1e12, [SBP_BF16] = 2e12}, SBP_FP32},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sbp_cluster cluster = {.memory_bytes_per_s = 1e30};
        const struct sbp_device_product product = {.type = rows[i].type, .m = 10, .n = 20, .k = 30};
        memcpy(cluster.flops, rows[i].flops, sizeof cluster.flops);
        assert_int_equal(sbp_cluster_rate_type(&cluster, rows[i].type), rows[i].stands);
        assert_near(sbp_cluster_product_s(&cluster, &product),
                    2 * 10 * 20 * 30 / rows[i].flops[rows[i].stands]);
        assert_near(sbp_cluster_kernel_s(&cluster, rows[i].type, 1e12, 0),
                    1e12 / rows[i].flops[rows[i].stands]);
    }
    const struct sbp_cluster none = {.memory_bytes_per_s = 1e10};
    const struct sbp_device_product product = {.type = SBP_FP8, .m = 10, .n = 20, .k = 30};
    assert_int_equal(sbp_cluster_rate_type(&none, SBP_FP8), SBP_FP8);
    assert_near(sbp_cluster_product_s(&none, &product), (10 * 30 + 30 * 20 + 10 * 20) / 1e10);
}

/* --- refusals --- */

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected;
    } rows[] = {
        {"{\"gemm\": 0.6}", "d.json: gemm: legal is a list of products"},
        {"{\"gemm\": [{\"m\": 1, \"n\": 1, \"k\": 1, \"efficiency\": 1.5}]}",
         "d.json: gemm[0].efficiency: 1.5 is out of range, legal is 1e-09 to 1"},
        {"{\"gemm\": [" ENTRY("\"type\": \"int8\", ", "1") "]}", "d.json: gemm[0].type: unknown"},
        {"{\"gemm\": [" ENTRY("\"pass\": \"back\", ", "1") "]}", "d.json: gemm[0].pass: unknown"},
        {"{\"gemm_grids\": [{\"m\": [], \"n\": [1], \"k\": [1], \"efficiency\": []}]}",
         "d.json: gemm_grids[0].m: has 0 sizes, legal are 1 to 4096"},
        {"{\"gemm_grids\": [{\"m\": [1], \"n\": [64, 64], \"k\": [1], \"efficiency\": [1, 1]}]}",
         "d.json: gemm_grids[0].n[1]: 64 does not rise above 64, the size before it"},
        {"{\"gemm_grids\": [{\"m\": [1], \"n\": [64, 32], \"k\": [1], \"efficiency\": [1, 1]}]}",
         "d.json: gemm_grids[0].n[1]: 32 does not rise above 64"},
        {"{\"gemm_grids\": [{\"m\": [0], \"n\": [1], \"k\": [1], \"efficiency\": [1]}]}",
         "d.json: gemm_grids[0].m[0]: 0 is out of range"},
        {"{\"gemm_grids\": [{\"m\": [1, 2], \"n\": [1, 2], \"k\": [1], \"efficiency\": [1]}]}",
         "d.json: gemm_grids[0].efficiency: has 1 shares, the sizes make 2 x 2 x 1"},
        {"{\"gemm_grids\": [{\"m\": [1], \"n\": [1], \"k\": [1], \"efficiency\": [0]}]}",
         "d.json: gemm_grids[0].efficiency[0]: 0 is out of range, legal is 1e-09 to 1"},
        {"{\"gemm_grids\": [{\"m\": [1], \"n\": [1], \"k\": [1], \"efficiency\": [1.01]}]}",
         "d.json: gemm_grids[0].efficiency[0]: 1.01 is out of range, legal is 1e-09 to 1"},
        {"{\"gemm_grids\": [" ONE("", "1") ", " ONE("", "1") "]}",
         "d.json: gemm_grids[1]: has the type and the pass of grid 0"},
        {"{\"gemm_grids\": [{\"n\": [1], \"k\": [1], \"efficiency\": [1]}]}",
         "d.json: gemm_grids[0]: key \"m\" is missing"},
        {"{\"attention_grids\": [" ONE("", "1") "]}", "d.json: attention_grids[0]: unknown key"},
        {"{\"pass_efficiency\": {\"forwards\": 1}}", "d.json: pass_efficiency: unknown key"},
        {"{\"grouped_efficiency\": {\"forward\": 2}}",
         "d.json: grouped_efficiency.forward: 2 is out of range"},
        {"{\"alignment\": {\"multiple\": 8}}", "d.json: alignment: key \"efficiency\" is missing"},
        {"{\"alignment\": {\"multiple\": 0, \"efficiency\": 1}}", "d.json: alignment.multiple: 0"},
        {"{\"unfused_attention\": {\"forward_passes\": 6, \"backward_passes\": 1, \"efficiency\": "
         "1}}",
         "d.json: unfused_attention.backward_passes: 1 is out of range, legal is 2 to 1000"},
        {"{\"overlap_efficiency\": 0}", "d.json: overlap_efficiency: 0 is out of range"},
        {"{\"overlap_efficiency\": 1.1}", "d.json: overlap_efficiency: 1.1 is out of range"},
        {"{\"host_launch_s\": -1}", "d.json: host_launch_s: -1 is out of range, legal is 0 to 1"},
        {"{\"host_launch_s\": 2}", "d.json: host_launch_s: 2 is out of range, legal is 0 to 1"},
        {"{\"stream_efficiency\": 0}", "d.json: stream_efficiency: 0 is out of range"},
        {"{\"dispatch_efficiency\": 0.5}", "d.json: dispatch_efficiency: expected an object"},
        {"{\"dispatch_efficiency\": {\"row_bytes\": [8, 8], \"efficiency\": [1, 1]}}",
         "d.json: dispatch_efficiency.row_bytes[1]: 8 does not rise above 8, the size before it"},
        {"{\"dispatch_efficiency\": {\"row_bytes\": [8, 16], \"efficiency\": [1]}}",
         "d.json: dispatch_efficiency.efficiency: has 1 shares, the sizes make 2 x 1 x 1"},
        {"{\"dispatch_efficiency\": {\"row_bytes\": [8], \"efficiency\": [1.5]}}",
         "d.json: dispatch_efficiency.efficiency[0]: 1.5 is out of range, legal is 1e-09 to 1"},
        {"{\"vector_operations_per_s\": 0}",
         "d.json: vector_operations_per_s: 0 is out of range, legal is 1 to 1e+30"},
        {"{\"sustained\": 1.1}", "d.json: sustained: 1.1 is out of range, legal is 1e-09 to 1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sbp_device_rates rates;
        struct sbp_diag diag;
        const enum sbp_status status = read_text(rows[i].text, &rates, &diag);
        if (status != SBP_E_INPUT ||
            strncmp(diag.text, rows[i].expected, strlen(rows[i].expected)) != 0)
            fail_msg("%s: status %d, \"%s\", expected \"%s\"", rows[i].text, status, diag.text,
                     rows[i].expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grid_points_are_exact),
        cmocka_unit_test(test_grid_is_linear_in_logarithms),
        cmocka_unit_test(test_grid_beyond_its_ends),
        cmocka_unit_test(test_grid_times_never_fall),
        cmocka_unit_test(test_scattered_shapes),
        cmocka_unit_test(test_best_table),
        cmocka_unit_test(test_factors),
        cmocka_unit_test(test_most),
        cmocka_unit_test(test_attention_grid),
        cmocka_unit_test(test_dispatch),
        cmocka_unit_test(test_seconds),
        cmocka_unit_test(test_rate_types),
        cmocka_unit_test(test_refusals),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    sbp_arena_free(&tables);
    return failed;
}
