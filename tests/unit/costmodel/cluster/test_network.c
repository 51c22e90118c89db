/* Measured shapes: every refusal, curves and formula by hand, bending by hand, error bars, what is
 * set aside, and the price of groups of a cluster. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/math/random.h"
#include "costmodel/cluster/collective.h"
#include "tests/support/unit.h"

#define SEED UINT64_C(6127)

#define FORMULA                                                                                    \
    "\"formula\": {\"launch_s\": 1e-5, \"intra_step_s\": 1e-6, \"inter_step_s\": 4e-6, "           \
    "\"intra_s_per_byte\": 1e-11, \"inter_s_per_byte\": 4e-11, \"error\": 0.25, "                  \
    "\"beyond_error\": 0.5}"
#define SEGMENT(first, last, alpha, beta)                                                          \
    "{\"first_bytes\": " first ", \"last_bytes\": " last ", \"alpha_s\": " alpha                   \
    ", \"beta_s_per_byte\": " beta "}"
#define CURVE(nodes, ranks, segments)                                                              \
    "{\"nodes\": " nodes ", \"ranks_per_node\": " ranks ", \"error\": 0.1, \"segments\": "         \
    "[" segments "]}"
#define KIND(kind, curves) "{\"" kind "\": {" FORMULA ", \"curves\": [" curves "]}}"

static enum sbp_status read_text(const char *text, struct sbp_network *network,
                                 struct sbp_diag *diag)
{
    struct cJSON *tree;
    struct sbp_json root;
    *diag = (struct sbp_diag){{0}};
    *network = (struct sbp_network){0};
    enum sbp_status status = sbp_json_parse(text, "c.json", &tree, &root, diag);
    if (status == SBP_OK)
        status = sbp_network_read(&root, network);
    cJSON_Delete(tree);
    return status;
}

static void must_read(const char *text, struct sbp_network *network)
{
    struct sbp_diag diag;
    if (read_text(text, network, &diag) != SBP_OK)
        fail_msg("%s was refused: %s", text, diag.text);
}

static void near(double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-12 * fabs(expected)))
        fail_msg("%.17g, expected %.17g", value, expected);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected;
    } rows[] = {
        {"[]", "c.json: expected an object"},
        {"{\"local\": {}}", "c.json: unknown key \"local\""},
        {"{\"all-reduce\": {}}", "c.json: all-reduce: key \"formula\" is missing"},
        {"{\"all-reduce\": {\"formula\": {\"launch_s\": 0, \"intra_step_s\": 0, "
         "\"inter_step_s\": 0, \"intra_s_per_byte\": 0, \"inter_s_per_byte\": 0}}}",
         "c.json: all-reduce.formula: has no term above 0"},
        {KIND("all-reduce", CURVE("1", "1", SEGMENT("1", "2", "1", "1"))),
         "c.json: all-reduce.curves[0]: is a group of one"},
        {KIND("all-reduce", CURVE("2", "1", SEGMENT("1", "2", "1", "1")) "," CURVE(
                                "2", "1", SEGMENT("1", "2", "1", "1"))),
         "c.json: all-reduce.curves[1]: 2 x 1 has a curve already"},
        {KIND("all-reduce", CURVE("2", "1", "")),
         "c.json: all-reduce.curves[0].segments: has 0 segments, legal are 1 to 3"},
        {KIND("all-reduce", CURVE("2", "1", SEGMENT("2", "1", "1", "1"))),
         "c.json: all-reduce.curves[0].segments[0]: ends at 1 bytes, before it begins at 2"},
        {KIND("all-reduce", CURVE("2", "1", SEGMENT("1", "2", "0", "0"))),
         "c.json: all-reduce.curves[0].segments[0]: takes no time at 1 bytes"},
        {KIND("all-reduce",
              CURVE("2", "1", SEGMENT("1", "8", "1", "0") "," SEGMENT("8", "9", "1", "0"))),
         "c.json: all-reduce.curves[0].segments[1]: begins at 8 bytes, inside the segment before"},
        {KIND("all-reduce",
              CURVE("2", "1", SEGMENT("1", "8", "1", "0") "," SEGMENT("9", "9", "0.9", "0"))),
         "c.json: all-reduce.curves[0].segments[1]: begins with 0.9 s, less than the 1 s at"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sbp_network network;
        struct sbp_diag diag;
        assert_int_equal(read_text(rows[i].text, &network, &diag), SBP_E_INPUT);
        if (strncmp(diag.text, rows[i].expected, strlen(rows[i].expected)) != 0)
            fail_msg("\"%s\", expected \"%s\"", diag.text, rows[i].expected);
    }
}

static double price_s(const struct sbp_network *network, enum sbp_collective kind, double nodes,
                      double ranks, double bytes)
{
    return sbp_network_price(network, kind, nodes, ranks, bytes).seconds;
}

static void test_curve(void **state)
{
    (void)state;
    struct sbp_network network;
    must_read(KIND("all-gather", CURVE("2", "4",
                                       SEGMENT("100", "200", "1",
                                               "0.01") "," SEGMENT("400", "800", "2", "0.02"))),
              &network);
    static const double rows[][2] = {{0, 1},    {50, 1.5}, {100, 2},   {200, 3},  {300, 6.5},
                                     {400, 10}, {800, 18}, {1600, 34}, {3200, 66}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        near(price_s(&network, SBP_ALL_GATHER, 2, 4, rows[i][0]), rows[i][1]);
    const struct sbp_network_price inside = sbp_network_price(&network, SBP_ALL_GATHER, 2, 4, 1600);
    const struct sbp_network_price outside =
        sbp_network_price(&network, SBP_ALL_GATHER, 2, 4, 6400);
    assert_int_equal(inside.basis, SBP_BASIS_MEASURED);
    near(inside.error, 0.1);
    assert_int_equal(outside.basis, SBP_BASIS_OTHER_SIZE);
    near(outside.error, 0.3);
    near(sbp_network_bound_s(SBP_HIGHEST, 2, 0.1), 2 * 1.1);
    near(sbp_network_bound_s(SBP_LOWEST, 2, 0.1), 2 / 1.1);
}

/* The factors that the header gives, written down again for 8 nodes of 4, and 2 ports. */
static void test_formula(void **state)
{
    (void)state;
    static const struct {
        enum sbp_collective kind;
        double nodes, ranks;
        double term[SBP_NETWORK_TERMS]; /* of 1 byte */
    } rows[] = {
        {SBP_ALL_REDUCE, 8, 4, {1, 6, 6, 62.0 / 32, 62.0 / 32 / 2}},
        {SBP_ALL_REDUCE, 2, 4, {1, 6, 2, 14.0 / 8, 0.5}},
        {SBP_ALL_REDUCE, 1, 4, {1, 6, 0, 6.0 / 4, 0}},
        {SBP_ALL_REDUCE, 8, 1, {1, 0, 6, 0, 14.0 / 8}},
        {SBP_ALL_GATHER, 8, 4, {1, 24, 7, 31.0 / 32, 31.0 / 64}},
        {SBP_REDUCE_SCATTER, 1, 4, {1, 3, 0, 0.75, 0}},
        {SBP_ALL_TO_ALL, 8, 4, {1, 3, 28, 3.0 / 32, 28.0 / 32 * 2}},
        {SBP_SEND_RECV, 2, 1, {1, 0, 1, 0, 1}},
        {SBP_SEND_RECV, 1, 2, {1, 1, 0, 1, 0}},
        {SBP_BROADCAST_COLL, 8, 4, {1, 24, 7, 1, 0.5}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double term[SBP_NETWORK_TERMS];
        sbp_network_terms(rows[i].kind, rows[i].nodes, rows[i].ranks, 2, 1, term);
        for (int j = 0; j < SBP_NETWORK_TERMS; j++)
            near(term[j], rows[i].term[j]);
    }
    struct sbp_network network;
    must_read(KIND("all-gather", ""), &network);
    near(price_s(&network, SBP_ALL_GATHER, 8, 4, 1e6),
         1e-5 + 24e-6 + 28e-6 + fmax(31.0 / 32 * 1e-5, 31.0 / 32 / 4 * 4e-5));
}

/* Between two curves that lie at k times the formula, at the geometric mean in the middle of
 * nodes; beyond, at the outermost one's. */
static void test_bend(void **state)
{
    (void)state;
    struct sbp_network network;
    must_read(KIND("all-gather", ""), &network);
    const struct sbp_formula *formula = &network.formula[SBP_ALL_GATHER];
    for (int i = 0; i < 2; i++) {
        const int64_t nodes = i == 0 ? 2 : 8;
        const double alpha = sbp_network_formula_s(formula, SBP_ALL_GATHER, (double)nodes, 4, 0, 0);
        const double times = i == 0 ? 3 : 12;
        network.curve[network.curve_count++] = (struct sbp_shape_curve){
            SBP_ALL_GATHER,
            nodes,
            4,
            1,
            {{1, 1e9, times * alpha,
              times * (sbp_network_formula_s(formula, SBP_ALL_GATHER, (double)nodes, 4, 0, 1) -
                       alpha)}},
            0.1};
    }
    static const struct {
        double nodes, ranks, times;
        enum sbp_basis basis;
        double error;
    } rows[] = {
        {2, 4, 3, SBP_BASIS_MEASURED, 0.1},    {4, 4, 6, SBP_BASIS_BETWEEN, 0.25},
        {8, 4, 12, SBP_BASIS_MEASURED, 0.1},   {16, 4, 12, SBP_BASIS_BEYOND, 0.5},
        {64, 4, 12, SBP_BASIS_FAR_SHAPE, 1.5}, {4, 2, 6, SBP_BASIS_BEYOND, 0.5},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct sbp_network_price price =
            sbp_network_price(&network, SBP_ALL_GATHER, rows[i].nodes, rows[i].ranks, 1e5);
        const double expected =
            rows[i].times *
            sbp_network_formula_s(formula, SBP_ALL_GATHER, rows[i].nodes, rows[i].ranks, 0, 1e5);
        if (!(fabs(price.seconds / expected - 1) < 1e-9))
            fail_msg("%g x %g: %.12g, expected %.12g", rows[i].nodes, rows[i].ranks, price.seconds,
                     expected);
        assert_int_equal(price.basis, rows[i].basis);
        near(price.error, rows[i].error);
    }
    assert_false(sbp_network_covers(&network, SBP_ALL_GATHER, 1)); /* nothing within a node */
    assert_false(sbp_network_covers(&network, SBP_ALL_REDUCE, 2));
}

/* nccl-tests, issue 309: of the same machine, 467 GB/s of two nodes and 321 of eight. */
static void test_two_nodes(void **state)
{
    (void)state;
    struct sbp_network network;
    must_read(KIND("all-reduce", CURVE("2", "8", SEGMENT("1", "1e9", "1e-4", "4e-12"))), &network);
    assert_int_equal(sbp_network_price(&network, SBP_ALL_REDUCE, 8, 8, 1e8).basis,
                     SBP_BASIS_TWO_NODES);
    assert_false(sbp_network_sets_aside(&network, &network.curve[0]));
    network.curve[network.curve_count++] =
        (struct sbp_shape_curve){SBP_ALL_REDUCE, 8, 8, 1, {{1, 1e9, 1e-4, 6e-12}}, 0.1};
    assert_true(sbp_network_sets_aside(&network, &network.curve[0]));
    assert_false(sbp_network_sets_aside(&network, &network.curve[1]));
    /* Four nodes from eight: latencies 10 + 14 + 16 and 10 + 14 + 24 us, bytes 62/32 and 126/64. */
    const double times = 40.0 / 48, bytes = 62.0 / 32 / (126.0 / 64) / times * 1e8;
    const double four_s = price_s(&network, SBP_ALL_REDUCE, 4, 8, 1e8);
    if (!(fabs(four_s / (times * (1e-4 + 6e-12 * bytes)) - 1) < 1e-9))
        fail_msg("%.12g, expected %.12g", four_s, times * (1e-4 + 6e-12 * bytes));
    near(price_s(&network, SBP_ALL_REDUCE, 2, 8, 1e8), 1e-4 + 4e-12 * 1e8);
}

/* Each segment begins with what the one before ends with, flatter. */
static struct sbp_shape_curve joined_curve(struct sbp_random *random, enum sbp_collective kind,
                                           int nodes, int ranks_per_node)
{
    struct sbp_shape_curve curve = {
        .kind = kind, .nodes = nodes, .ranks_per_node = ranks_per_node, .segment_count = 3};
    double beta = 1e-6 * sbp_random_unit(random), reached_s = 1e-3 * sbp_random_unit(random);
    for (int k = 0; k < 3; k++) {
        struct sbp_segment *segment = &curve.segment[k];
        *segment = (struct sbp_segment){8 << (8 * k), 1024 << (8 * k), 0, beta};
        segment->alpha_s = fmax(0, reached_s - beta * segment->first_bytes);
        reached_s = segment->alpha_s + beta * segment->last_bytes;
        beta *= 0.1 * sbp_random_unit(random);
    }
    return curve;
}

/* Prices of all groups rise with bytes, whatever the curves. */
static void test_rise(void **state)
{
    (void)state;
    struct sbp_random random;
    sbp_random_seed(&random, SEED);
    for (int round = 0; round < 200; round++) {
        struct sbp_network network = {.ports = (int)sbp_random_below(&random, 5)};
        const enum sbp_collective kind = (enum sbp_collective)sbp_random_below(&random, SBP_LOCAL);
        network.formula[kind].is_given = true;
        for (int j = 0; j < SBP_NETWORK_TERMS; j++)
            network.formula[kind].coefficient[j] =
                sbp_random_unit(&random) * (j < SBP_INTRA_BYTE ? 1e-5 : 1e-10);
        for (int c = 0; c < 4; c++) {
            network.curve[network.curve_count++] =
                joined_curve(&random, kind, 1 << (2 * c), c % 2 == 0 ? 2 : 8);
        }
        for (int nodes = 1; nodes <= 128; nodes *= 2) {
            double before = 0;
            for (double bytes = 1; bytes < 1e10; bytes *= 1.3) {
                const double now = price_s(&network, kind, nodes, 4, bytes);
                if (!(now >= before * (1 - 1e-9)))
                    fail_msg("seed %llu, round %d: %.9g s after %.9g at %g bytes, %d nodes",
                             (unsigned long long)SEED, round, now, before, bytes, nodes);
                before = now;
            }
        }
    }
}

/* Brought from four nodes to eight with the formula's latencies alone, nodes and 1 + 2 log2 nodes:
 * a ring's switch of protocols moves with its steps, a tree's stays where it is. */
static void test_switch(void **state)
{
    (void)state;
    static const enum sbp_collective kinds[] = {SBP_ALL_GATHER, SBP_ALL_REDUCE};
    static const double latencies[] = {8.0 / 4, 7.0 / 5}; /* from four nodes to eight */
    for (int i = 0; i < 2; i++) {
        struct sbp_network network = {.curve_count = 1};
        network.formula[kinds[i]] =
            (struct sbp_formula){.is_given = true, .coefficient = {1e-6, 0, 1e-6, 0, 0}};
        network.curve[0] = (struct sbp_shape_curve){
            kinds[i], 4, 1, 2, {{8, 1000, 1e-5, 0}, {1001, 1e6, 5e-5, 0}}, 0.1};
        const double switched = i == 0 ? latencies[i] : 1;
        near(price_s(&network, kinds[i], 8, 1, 999 * switched), latencies[i] * 1e-5);
        near(price_s(&network, kinds[i], 8, 1, 1002 * switched), latencies[i] * 5e-5);
    }
}

/* Shapes are the innermost level's members by all others; the other groups of a node stretch what
 * leaves it; kinds that were not measured follow the levels. */
static void test_group(void **state)
{
    (void)state;
    struct sbp_cluster cluster = {
        .level_count = 2,
        .level = {{"node", 4, 1e-5, 1e-10, 2}, {"gpu", 4, 1e-6, 1e-11, 0}},
        .memory_bytes = 1};
    struct sbp_group group = sbp_collective_group_one();
    must_read(KIND("all-gather",
                   CURVE("4", "4", SEGMENT("1", "1e9", "1e-4", "1e-10")) "," CURVE(
                       "4", "1",
                       SEGMENT("1", "1e9", "1e-4",
                               "1e-10")) "," CURVE("1", "4", SEGMENT("1", "1e9", "1e-5", "1e-11"))),
              &cluster.network);
    cluster.network.ports = 2;
    group.members[1] = 4;
    near(sbp_collective_group_s(&cluster, SBP_ALL_GATHER, &group, 1e6), 1e-5 + 1e-11 * 1e6);
    group.members[0] = 4;
    near(sbp_collective_group_s(&cluster, SBP_ALL_GATHER, &group, 1e6), 1e-4 + 1e-10 * 1e6);
    group.members[1] = 1; /* four groups over two ports */
    near(sbp_collective_group_s(&cluster, SBP_ALL_GATHER, &group, 1e6), 1e-4 + 2 * 1e-10 * 1e6);
    near(sbp_collective_group_s(&cluster, SBP_REDUCE_SCATTER, &group, 1e6),
         1e-4 + 2 * 1e-10 * 1e6); /* its mirror */
    near(sbp_collective_group_s(&cluster, SBP_ALL_REDUCE, &group, 1e6),
         2 * (1e-4 + 2 * 1e-10 * 1e6)); /* both */
    const struct sbp_network_price other =
        sbp_collective_price(&cluster, SBP_ALL_REDUCE, &group, 1e6);
    assert_int_equal(other.basis, SBP_BASIS_OTHER_KIND);
    near(other.error, 0.6);
    assert_int_equal(sbp_collective_price(&cluster, SBP_ALL_TO_ALL, &group, 1).basis,
                     SBP_BASIS_NOT_MEASURED);
    struct sbp_cluster plain = cluster;
    plain.network = (struct sbp_network){0};
    near(sbp_collective_group_s(&cluster, SBP_ALL_TO_ALL, &group, 1e6),
         sbp_collective_group_s(&plain, SBP_ALL_TO_ALL, &group, 1e6));
    group.members[0] = 1;
    near(sbp_collective_group_s(&cluster, SBP_ALL_GATHER, &group, 1e6), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),  cmocka_unit_test(test_curve),
        cmocka_unit_test(test_formula),   cmocka_unit_test(test_bend),
        cmocka_unit_test(test_two_nodes), cmocka_unit_test(test_rise),
        cmocka_unit_test(test_switch),    cmocka_unit_test(test_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
