/* Measured curves: every refusal, the interpolation by hand, exactness on times that follow alpha
 * and beta, and monotony of random curves. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/math/random.h"
#include "base/text.h"
#include "costmodel/cluster/collective.h"
#include "tests/support/seeded.h"
#include "tests/support/unit.h"

#define SEED UINT64_C(4205)

static enum sbp_status read_text(const char *text, int level, struct sbp_curves *curves,
                                 struct sbp_diag *diag)
{
    struct cJSON *tree;
    struct sbp_json root;
    *diag = (struct sbp_diag){{0}};
    enum sbp_status status = sbp_json_parse(text, "c.json", &tree, &root, diag);
    if (status == SBP_OK)
        status = sbp_curves_read(&root, level, curves);
    cJSON_Delete(tree);
    return status;
}

static void must_read(const char *text, int level, struct sbp_curves *curves)
{
    struct sbp_diag diag;
    if (read_text(text, level, curves, &diag) != SBP_OK)
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
        {"{\"all-reduec\": []}",
         "c.json: unknown key \"all-reduec\", did you mean \"all-reduce\"?"},
        {"{\"local\": []}", "c.json: unknown key \"local\""},
        {"{\"all-reduce\": []}",
         "c.json: all-reduce: is empty: give a curve, or leave the key out"},
        {"{\"all-reduce\": {}}", "c.json: all-reduce: expected an array"},
        {"{\"all-reduce\": [{\"points\": [[1, 1], [2, 2]]}]}",
         "c.json: all-reduce[0]: key \"members\" is missing"},
        {"{\"all-reduce\": [{\"members\": 1, \"points\": [[1, 1], [2, 2]]}]}",
         "c.json: all-reduce[0].members: "},
        {"{\"all-reduce\": [{\"members\": 4, \"points\": [[1, 1], [2, 2]]}, "
         "{\"members\": 4, \"points\": [[1, 1], [2, 2]]}]}",
         "c.json: all-reduce[1].members: 4 do not follow 4, members must rise"},
        {"{\"all-reduce\": [{\"members\": 4}]}",
         "c.json: all-reduce[0]: key \"points\" is missing"},
        {"{\"all-reduce\": [{\"members\": 4, \"point\": []}]}",
         "c.json: all-reduce[0]: unknown key \"point\", did you mean \"points\"?"},
        {"{\"all-reduce\": [{\"members\": 4, \"points\": [[1, 1]]}]}",
         "c.json: all-reduce[0].points: has 1 points, at least 2 are needed"},
        {"{\"all-reduce\": [{\"members\": 4, \"points\": [[1, 1], [2]]}]}",
         "c.json: all-reduce[0].points[1]: has 1 numbers, expected [bytes, seconds]"},
        {"{\"all-reduce\": [{\"members\": 4, \"points\": [[0, 1], [2, 2]]}]}",
         "c.json: all-reduce[0].points[0][0]: "},
        {"{\"all-reduce\": [{\"members\": 4, \"points\": [[1, 1], [2, -2]]}]}",
         "c.json: all-reduce[0].points[1][1]: "},
        {"{\"all-reduce\": [{\"members\": 4, \"points\": [[1, 1], [1, 2]]}]}",
         "c.json: all-reduce[0].points[1]: 1 bytes do not follow the 1 of points[0], bytes must "
         "rise"},
        {"{\"broadcast\": [{\"members\": 4, \"points\": [[1, 1], [2, 3], [4, 2]]}]}",
         "c.json: broadcast[0].points[2]: 2 s are less than the 3 s of points[1], a curve must not "
         "fall"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct sbp_curves curves = {0};
        struct sbp_diag diag;
        assert_int_equal(read_text(rows[i].text, 0, &curves, &diag), SBP_E_INPUT);
        if (strncmp(diag.text, rows[i].expected, strlen(rows[i].expected)) != 0)
            fail_msg("row %zu: said \"%s\", expected \"%s...\"", i, diag.text, rows[i].expected);
    }
}

/* A curve of so many points after others. */
static enum sbp_status read_long(int points, struct sbp_curves *curves, struct sbp_diag *diag)
{
    struct sbp_text text = {0};
    sbp_text_add(&text, "{\"all-gather\": [{\"members\": 2, \"points\": [");
    for (int i = 0; i < points; i++)
        sbp_text_add(&text, "%s[%d, 1]", i == 0 ? "" : ",", i + 1);
    sbp_text_add(&text, "]}]}");
    assert_false(text.failed);
    const enum sbp_status status = read_text(text.bytes, 1, curves, diag);
    sbp_text_free(&text);
    return status;
}

static void test_room(void **state)
{
    (void)state;
    struct sbp_curves curves = {0};
    struct sbp_diag diag;
    assert_int_equal(read_long(SBP_MAX_CURVE_POINTS - 2, &curves, &diag), SBP_OK);
    assert_int_equal(read_long(3, &curves, &diag), SBP_E_INPUT);
    assert_string_equal(diag.text, "c.json: all-gather[0].points: more than 1024 points in all "
                                   "curves of the cluster");
    assert_int_equal(read_long(2, &curves, &diag), SBP_OK);
    assert_int_equal(curves.point_count, SBP_MAX_CURVE_POINTS);

    curves = (struct sbp_curves){0};
    for (int i = 0; i < SBP_MAX_CURVES; i++)
        assert_int_equal(read_long(2, &curves, &diag), SBP_OK);
    assert_int_equal(read_long(2, &curves, &diag), SBP_E_INPUT);
    assert_string_equal(diag.text, "c.json: all-gather: more than 96 curves in the cluster");
}

static void test_between_points(void **state)
{
    (void)state;
    struct sbp_curves curves = {0};
    must_read("{\"all-reduce\": [{\"members\": 4, \"source\": \"s\", \"points\": [[1e3, 1e-5], "
              "[1e5, 1e-3], [2e5, 1e-3], [4e5, 3e-3]]}]}",
              2, &curves);
    const double alpha = 1e-6, beta = 4e-9; /* 6 alpha + 1.5 n beta */
    const struct {
        double bytes, seconds;
    } rows[] = {
        {1e3, 1e-5},
        {1e5, 1e-3},
        {2e5, 1e-3},
        {4e5, 3e-3}, /* as measured */
        {1e4, 1e-4}, /* halfway in logarithms */
        {1.5e5, 1e-3},
        {2e5 * 1.4142135623730951, 1e-3 * 1.7320508075688772},
        {5e5, 4e-3},                    /* on along the last stretch */
        {1e3 / 6, 1e-5 * 7e-6 / 12e-6}, /* below: as the formula of four members has it */
        {0, 1e-5 * 6e-6 / 12e-6},
    };
    assert_true(sbp_curves_has(&curves, 2, SBP_ALL_REDUCE));
    assert_false(sbp_curves_has(&curves, 1, SBP_ALL_REDUCE));
    assert_false(sbp_curves_has(&curves, 2, SBP_ALL_GATHER));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        near(sbp_curves_s(&curves, 2, SBP_ALL_REDUCE, alpha, beta, 4, rows[i].bytes),
             rows[i].seconds);
    near(sbp_curves_s(&curves, 2, SBP_ALL_REDUCE, 0, 0, 4, 10), 1e-5); /* nothing to scale by */
}

/* A group of 2 takes 2 steps of n/2, one of 4 six of n/4, one of 16 thirty of n/16. */
static void test_between_sizes(void **state)
{
    (void)state;
    struct sbp_curves curves = {0};
    must_read("{\"all-reduce\": [{\"members\": 4, \"points\": [[1e3, 1e-5], [1e5, 1e-3]]}, "
              "{\"members\": 16, \"points\": [[1e3, 2e-5], [1e5, 8e-3]]}]}",
              0, &curves);
    near(sbp_curves_s(&curves, 0, SBP_ALL_REDUCE, 1, 1, 2, 500), 2.0 / 6 * 1e-5);
    near(sbp_curves_s(&curves, 0, SBP_ALL_REDUCE, 1, 1, 64, 4000), 126.0 / 30 * 2e-5);
    /* 8 members, n = 2000: steps of 250, as 1000 of the four and 4000 of the sixteen */
    const double four = 14.0 / 6 * 1e-5;
    const double sixteen = 14.0 / 30 * 2e-5 * pow(400, log(4) / log(100));
    near(sbp_curves_s(&curves, 0, SBP_ALL_REDUCE, 1, 1, 8, 2000), sqrt(four * sixteen));
}

/* Curves of a kind at several sizes, sampled from alpha and beta: below the first point and above
 * the last, where no straight line in logarithms has a part, every price is the formula's. */
static void test_exact_on_alpha_and_beta(void **state)
{
    (void)state;
    struct sbp_random random = seeded(SEED);
    for (int kind = 0; kind < SBP_COLLECTIVES; kind++) {
        const double alpha = 1e-5, beta = 1e-10;
        struct sbp_curves curves = {0};
        if (kind == SBP_LOCAL)
            continue;
        for (int i = 0; i < 3; i++) {
            const double members = (double[]){2, 5, 16}[i];
            curves.curve[curves.curve_count++] =
                (struct sbp_curve){.kind = (enum sbp_collective)kind,
                                   .members = (int64_t)members,
                                   .first = curves.point_count,
                                   .count = 2};
            for (int j = 0; j < 2; j++) {
                const double bytes = 1e4 * (1 + j);
                curves.point[curves.point_count++] = (struct sbp_time_point){
                    bytes,
                    sbp_collective_steps((enum sbp_collective)kind, members) * alpha +
                        sbp_collective_share((enum sbp_collective)kind, members) * bytes * beta};
            }
        }
        for (int trial = 0; trial < 200; trial++) {
            const double members = 2 + (double)sbp_random_below(&random, 40);
            const double bytes = trial % 2 == 0
                                     ? (double)sbp_random_below(&random, 600)
                                     : 1e6 + (double)sbp_random_below(&random, 1000000000);
            const double seconds =
                sbp_curves_s(&curves, 0, (enum sbp_collective)kind, alpha, beta, members, bytes);
            near(seconds,
                 sbp_collective_steps((enum sbp_collective)kind, members) * alpha +
                     sbp_collective_share((enum sbp_collective)kind, members) * bytes * beta);
        }
    }
}

/* Random curves of random kinds: more bytes never cost less, at any group size. */
static void test_monotone(void **state)
{
    (void)state;
    struct sbp_random random = seeded(SEED + 1);
    for (int round = 0; round < 300; round++) {
        struct sbp_curves curves = {0};
        const enum sbp_collective kind = (enum sbp_collective)sbp_random_below(&random, SBP_LOCAL);
        const int sizes = 1 + (int)sbp_random_below(&random, 4);
        int64_t members = 2;
        for (int i = 0; i < sizes; i++, members += 1 + (int64_t)sbp_random_below(&random, 9)) {
            const int count = 2 + (int)sbp_random_below(&random, 9);
            curves.curve[curves.curve_count++] =
                (struct sbp_curve){kind, 0, members, curves.point_count, count};
            struct sbp_time_point point = {100, 1e-6};
            for (int j = 0; j < count; j++) {
                point.bytes *= 1.1 + 5 * sbp_random_unit(&random);
                if (sbp_random_below(&random, 3) > 0) /* else level: a plateau */
                    point.seconds *= 1 + 6 * sbp_random_unit(&random);
                curves.point[curves.point_count++] = point;
            }
        }
        for (double g = 2; g < 40; g += 3) {
            double last = 0;
            for (double n = 0; n < 1e7; n = n * 1.07 + 20) {
                const double seconds = sbp_curves_s(&curves, 0, kind, 1e-6, 1e-9, g, n);
                if (!(seconds >= last * (1 - 1e-12)))
                    fail_msg("%s of %g, %g bytes: %.17g s after %.17g s", sbp_collective_name(kind),
                             g, n, seconds, last);
                last = seconds;
            }
        }
    }
}

/* Prices go through the curves: ring at the slower of the levels that have one, by the whole group,
 * and of the others; phases by level. */
static void test_prices(void **state)
{
    (void)state;
    struct sbp_cluster cluster = {.level_count = 2};
    cluster.level[0] =
        (struct sbp_level){.size = 2, .alpha_s = 1, .beta_s_per_byte = 1, .ports = 1};
    cluster.level[1] = (struct sbp_level){.size = 4, .alpha_s = 1, .beta_s_per_byte = 0.5};
    must_read("{\"all-reduce\": [{\"members\": 2, \"points\": [[10, 7], [100, 7], [1000, 70]]}, "
              "{\"members\": 8, \"points\": [[10, 5], [100, 50]]}]}",
              0, &cluster.curves);
    must_read("{\"reduce-scatter\": [{\"members\": 4, \"points\": [[10, 3], [100, 30]]}]}", 1,
              &cluster.curves);
    const struct sbp_group all = {{2, 4, 1, 1}}, pair = {{2, 1, 1, 1}}, node = {{1, 4, 1, 1}};
    near(sbp_collective_group_s(&cluster, SBP_ALL_REDUCE, &all, 10), 14 + 17.5 * 0.5);
    struct sbp_cluster quick = cluster;
    quick.level[1].alpha_s = quick.level[1].beta_s_per_byte = 0.25;
    near(sbp_collective_group_s(&quick, SBP_ALL_REDUCE, &all, 100), 50);
    near(sbp_collective_group_s(&cluster, SBP_ALL_REDUCE, &pair, 25), 7); /* as 100: four share */
    near(sbp_collective_group_s(&cluster, SBP_ALL_REDUCE, &node, 10), 6 + 15 * 0.5);
    near(sbp_collective_group_s(&cluster, SBP_REDUCE_SCATTER, &node, 10), 3);
    near(sbp_collective_group_s(&cluster, SBP_ALL_GATHER, &node, 10), 3 + 7.5 * 0.5);
    cluster.collectives = SBP_MODEL_HIERARCHICAL;
    near(sbp_collective_group_s(&cluster, SBP_ALL_REDUCE, &all, 100),
         30 + 7 + (3 + 75 * 0.5)); /* scatter, 25 bytes a device over one port, gather */
    near(sbp_collective_group_s(&cluster, SBP_REDUCE_SCATTER, &all, 100), 30 + 1 + 12.5 * 4);
    assert_true(sbp_collective_grows(&cluster, SBP_ALL_TO_ALL));
    must_read("{\"all-to-all\": [{\"members\": 4, \"points\": [[10, 3], [100, 30]]}]}", 1,
              &cluster.curves);
    assert_false(sbp_collective_grows(&cluster, SBP_ALL_TO_ALL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_room),
        cmocka_unit_test(test_between_points),
        cmocka_unit_test(test_between_sizes),
        cmocka_unit_test(test_exact_on_alpha_and_beta),
        cmocka_unit_test(test_monotone),
        cmocka_unit_test(test_prices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
