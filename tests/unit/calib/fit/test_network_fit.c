/* Fitted networks: a known formula with noise is found again, shapes that were not measured are
 * predicted, two-node all-reduces do not spoil larger ones, the report counts what it should. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/math/random.h"
#include "base/math/stats.h"
#include "calib/fit/level_fit.h"
#include "calib/fit/network_fit.h"
#include "tests/support/unit.h"

#define SEED  UINT64_C(9917)
#define NOISE 0.02

static const struct sbp_formula TRUTH = {true, {1e-5, 1e-6, 5e-6, 3e-12, 4e-11}, 0, 0};
static const int SHAPES[][2] = {{1, 4}, {1, 8}, {2, 8}, {4, 1}, {4, 8}, {8, 8}};

static double truth_s(enum sbp_collective kind, int nodes, int ranks, double bytes)
{
    return sbp_network_formula_s(&TRUTH, kind, nodes, ranks, 0, bytes);
}

static void add(struct sbp_measured *measured, enum sbp_collective kind, int nodes, int ranks,
                double bytes, double time_s)
{
    measured->point[measured->count++] = (struct sbp_measured_point){.kind = kind,
                                                                     .nodes = nodes,
                                                                     .ranks_per_node = ranks,
                                                                     .bytes = bytes,
                                                                     .time_s = time_s,
                                                                     .spread = 0.01};
}

static struct sbp_measured make(enum sbp_collective kind, struct sbp_random *random)
{
    struct sbp_measured measured = {.count = 0};
    measured.point = SBP_NEW(&measured.arena, struct sbp_measured_point, 1000);
    assert_non_null(measured.point);
    for (size_t s = 0; s < sizeof SHAPES / sizeof *SHAPES; s++)
        for (double bytes = 1024; bytes < 2e9; bytes *= 2) {
            const double noise = 1 + NOISE * (2 * sbp_random_unit(random) - 1);
            add(&measured, kind, SHAPES[s][0], SHAPES[s][1], bytes,
                noise * truth_s(kind, SHAPES[s][0], SHAPES[s][1], bytes));
        }
    return measured;
}

static void near(double value, double expected, double share, const char *what)
{
    if (!(fabs(value / expected - 1) <= share))
        fail_msg("%s: %.6g, expected %.6g within %g, seed %llu", what, value, expected, share,
                 (unsigned long long)SEED);
}

static void test_truth(void **state)
{
    (void)state;
    static const enum sbp_collective KINDS[] = {SBP_ALL_REDUCE, SBP_ALL_GATHER, SBP_ALL_TO_ALL};
    static const int OTHERS[][2] = {{3, 8}, {6, 8}, {16, 8}, {4, 4}, {8, 2}, {1, 6}};
    struct sbp_random random;
    sbp_random_seed(&random, SEED);
    for (size_t k = 0; k < sizeof KINDS / sizeof *KINDS; k++) {
        struct sbp_measured measured = make(KINDS[k], &random);
        static struct sbp_network_fit fit;
        const struct sbp_network_options options = {0};
        assert_int_equal(sbp_network_fit(&measured, &options, &fit, NULL), SBP_OK);
        const double *found = fit.network.formula[KINDS[k]].coefficient;
        near(found[SBP_INTRA_BYTE], TRUTH.coefficient[SBP_INTRA_BYTE], 0.03, "intra beta");
        near(found[SBP_INTER_BYTE], TRUTH.coefficient[SBP_INTER_BYTE], 0.03, "inter beta");
        near(found[SBP_INTER_STEP], TRUTH.coefficient[SBP_INTER_STEP], 0.1, "inter step");
        near(found[SBP_INTRA_STEP], TRUTH.coefficient[SBP_INTRA_STEP], 0.3, "intra step");
        for (size_t s = 0; s < sizeof OTHERS / sizeof *OTHERS; s++)
            for (double bytes = 4096; bytes < 1e9; bytes *= 16)
                near(sbp_network_fit_s(&fit, KINDS[k], OTHERS[s][0], OTHERS[s][1], bytes),
                     truth_s(KINDS[k], OTHERS[s][0], OTHERS[s][1], bytes), 0.12, "other shape");
        assert_true(fit.quality.in_sample.median < NOISE);
        assert_true(fit.quality.held_out_sizes.median < 2 * NOISE);
        assert_true(fit.quality.between.median < 3 * NOISE);
        assert_true(fit.quality.held_out_sizes.mis_ordered < 0.01);
        assert_int_equal(fit.quality.in_sample.count, measured.count);
        assert_true(fabs(fit.quality.noise - 0.01) < 1e-12);
        assert_int_equal(fit.nodes, 8);
        assert_int_equal(fit.ranks_per_node, 8);
        sbp_network_fit_free(&fit);
        sbp_arena_free(&measured.arena);
    }
}

/* Two nodes three times as fast as the formula says: told where it was measured, and only there. */
static void test_two_nodes(void **state)
{
    (void)state;
    struct sbp_random random;
    static struct sbp_network_fit fit;
    const struct sbp_network_options options = {0};
    sbp_random_seed(&random, SEED);
    struct sbp_measured measured = make(SBP_ALL_REDUCE, &random);
    for (int i = 0; i < measured.count; i++)
        if (measured.point[i].nodes == 2)
            measured.point[i].time_s /= 3;
    assert_int_equal(sbp_network_fit(&measured, &options, &fit, NULL), SBP_OK);
    near(fit.between.beta_s_per_byte, TRUTH.coefficient[SBP_INTER_BYTE], 0.03, "level beta");
    near(sbp_network_fit_s(&fit, SBP_ALL_REDUCE, 2, 8, 1e9), truth_s(SBP_ALL_REDUCE, 2, 8, 1e9) / 3,
         0.05, "two nodes");
    near(sbp_network_fit_s(&fit, SBP_ALL_REDUCE, 3, 8, 1e9), truth_s(SBP_ALL_REDUCE, 3, 8, 1e9),
         0.05, "three nodes");
    near(sbp_network_fit_s(&fit, SBP_ALL_REDUCE, 16, 8, 1e9), truth_s(SBP_ALL_REDUCE, 16, 8, 1e9),
         0.05, "sixteen nodes");
    sbp_network_fit_free(&fit);
    sbp_arena_free(&measured.arena);
}

/* Ten points, the i-th predicted i % too long; in the middle the larger of a pair comes first. */
static double too_long(const void *model, const struct sbp_measured_group *shape, double bytes)
{
    const double *time_s = model;
    const int i = (int)bytes - 1;
    (void)shape;
    return (1 + 0.01 * i) * (i == 4 ? time_s[5] : i == 5 ? time_s[4] : time_s[i]);
}

static void test_errors(void **state)
{
    (void)state;
    struct sbp_curve_sample sample[10];
    double time_s[10];
    for (int i = 0; i < 10; i++) {
        time_s[i] = i == 9 ? 1 : 1 << i; /* the largest message is as quick as the smallest */
        sample[i] = (struct sbp_curve_sample){i + 1, time_s[i]};
    }
    struct sbp_measured_group shape = {.nodes = 2, .count = 10, .sample = sample};
    const struct sbp_measured_groups shapes = {.count = 1, .shape = &shape};
    struct sbp_arena arena = {0};
    struct sbp_errors errors;
    assert_int_equal(sbp_quality_errors(&shapes, too_long, time_s, &arena, &errors, NULL), SBP_OK);
    assert_int_equal(errors.count, 10);
    /* 0, 1, 2, 3, 108, 47.5, 6, 7, 8, 9 %: sorted, the 5th and 6th, and the 9th. */
    near(errors.median, 0.065, 1e-9, "median");
    near(errors.most, 0.475, 1e-9, "nine of ten");
    /* All of the 45 pairs but that of 1 s differ; that of 16 and 32 s is wrong, and 8 fall. */
    near(errors.mis_ordered, 1.0 / 44, 1e-9, "mis-ordered");
    near(errors.falling, 8.0 / 44, 1e-9, "falling");
    sbp_arena_free(&arena);
}

/* Each of fewer than eight sizes but the smallest is predicted from all others; of eight, the
 * halves predict each other. */
static void test_few_sizes(void **state)
{
    (void)state;
    static const double TIME_S[] = {9e-6, 8e-6, 2e-5, 3e-5, 9e-5, 1.2e-4, 3e-4, 4e-4};
    static struct sbp_network_fit fit;
    const struct sbp_network_options options = {0};
    for (int sizes = 4; sizes <= 8; sizes++) {
        struct sbp_measured measured = {.count = 0};
        double off[8];
        measured.point = SBP_NEW(&measured.arena, struct sbp_measured_point, sizes);
        assert_non_null(measured.point);
        for (int i = 0; i < sizes; i++)
            add(&measured, SBP_ALL_REDUCE, 2, 4, 1024 << (2 * i), TIME_S[i]);
        assert_int_equal(sbp_network_fit(&measured, &options, &fit, NULL), SBP_OK);
        const int first = sizes < 8;
        for (int out = first; out < sizes; out++) {
            struct sbp_curve_sample kept[8];
            struct sbp_curve_fit curve;
            int count = 0;
            for (int i = 0; i < sizes; i++)
                if (sizes < 8 ? i != out : (i - out) % 2 != 0)
                    kept[count++] = (struct sbp_curve_sample){1024 << (2 * i), TIME_S[i]};
            assert_int_equal(sbp_curve_fit(kept, count, &curve, NULL), SBP_OK);
            off[out - first] = fabs(sbp_curve_fit_s(&curve, 1024 << (2 * out)) / TIME_S[out] - 1);
        }
        near(fit.quality.shape[0].held_out_sizes, sbp_median(off, sizes - first), 1e-9,
             "held-out sizes");
        sbp_network_fit_free(&fit);
        sbp_arena_free(&measured.arena);
    }
}

/* Large messages of threads leave the caches, and take longer by the byte than those between: a
 * line through both begins at 0 s. The error is that of sizes which a curve is asked for. */
static void test_no_latency_beyond(void **state)
{
    (void)state;
    static const double BYTES[] = {8, 524288, 16777216};
    static const double TIME_S[] = {1.35e-5, 1.04e-4, 3.7e-3};
    static struct sbp_network_fit fit;
    const struct sbp_network_options options = {0};
    struct sbp_measured measured = {.count = 0};
    measured.point = SBP_NEW(&measured.arena, struct sbp_measured_point, 3);
    assert_non_null(measured.point);
    for (int i = 0; i < 3; i++)
        add(&measured, SBP_ALL_REDUCE, 1, 2, BYTES[i], TIME_S[i]);
    assert_int_equal(sbp_network_fit(&measured, &options, &fit, NULL), SBP_OK);
    /* 16 MiB by the line of the others: 13.5 us and 0.173 ns a byte, 2.91 ms for 3.7. */
    near(fit.network.curve[0].error, 3.7e-3 / 2.91e-3 - 1, 0.02, "error");
    sbp_network_fit_free(&fit);
    sbp_arena_free(&measured.arena);
}

/* Four sizes of messages, of which the small ones cost nothing by the byte: the level between nodes
 * has the rate of the large ones, and is not taken for the one within. */
static void test_few_messages(void **state)
{
    (void)state;
    static const double BYTES[] = {8, 2048, 524288, 16777216};
    static const double BETWEEN_S[] = {1.02e-5, 1.02e-5, 8.4e-3, 0.2732};
    static const double WITHIN_S[] = {3.4e-6, 3.6e-6, 5.02e-5, 1.6e-3};
    static struct sbp_network_fit fit;
    const struct sbp_network_options options = {0};
    struct sbp_measured measured = {.count = 0};
    measured.point = SBP_NEW(&measured.arena, struct sbp_measured_point, 12);
    assert_non_null(measured.point);
    for (int i = 0; i < 4; i++) {
        add(&measured, SBP_SEND_RECV, 1, 2, BYTES[i], WITHIN_S[i]);
        add(&measured, SBP_SEND_RECV, 2, 1, BYTES[i], BETWEEN_S[i]);
        add(&measured, SBP_SEND_RECV, 2, 2, BYTES[i], BETWEEN_S[i]);
    }
    assert_int_equal(sbp_network_fit(&measured, &options, &fit, NULL), SBP_OK);
    assert_true(fit.between.is_measured && fit.within.is_measured);
    near(1 / fit.between.beta_s_per_byte, 6.14e7, 0.05, "bytes a second between nodes");
    near(1 / fit.within.beta_s_per_byte, 1.05e10, 0.1, "bytes a second within nodes");
    sbp_network_fit_free(&fit);
    sbp_arena_free(&measured.arena);
}

/* All shapes of a large cluster: its ends stay, and of the others those that lie apart. */
static void test_more_shapes_than_a_file_holds(void **state)
{
    (void)state;
    static const int MOST[][2] = {{512, 8}, {2, 48}};
    static const enum sbp_collective KINDS[] = {SBP_ALL_REDUCE, SBP_ALL_GATHER, SBP_REDUCE_SCATTER,
                                                SBP_ALL_TO_ALL, SBP_SEND_RECV,  SBP_BROADCAST_COLL};
    static struct sbp_network_fit fit;
    const struct sbp_network_options options = {0};
    for (int m = 0; m < 2; m++) {
        struct sbp_measured measured = {.count = 0};
        int all = 0, seen = 0;
        measured.point = SBP_NEW(&measured.arena, struct sbp_measured_point, 3000);
        assert_non_null(measured.point);
        for (int nodes = 1; nodes <= MOST[m][0]; nodes *= 2)
            for (int ranks = 1; ranks <= MOST[m][1]; ranks += MOST[m][1] > 8 ? 1 : ranks) {
                for (int k = 0; k < 6 && nodes * ranks > 1; k++, all++)
                    for (double bytes = 1024; bytes < 2e9; bytes *= 1024)
                        add(&measured, KINDS[k], nodes, ranks, bytes,
                            truth_s(SBP_ALL_REDUCE, nodes, ranks, bytes));
            }
        assert_true(all > SBP_NETWORK_CURVES);
        assert_int_equal(sbp_network_fit(&measured, &options, &fit, NULL), SBP_OK);
        assert_true(fit.shapes.count <= SBP_NETWORK_CURVES);
        assert_true(fit.shapes.count > SBP_NETWORK_CURVES / 2);
        assert_int_equal(fit.shapes.count + fit.shapes.over_count, all);
        for (int s = 0; s < fit.shapes.count; s++) {
            const struct sbp_measured_group *shape = &fit.shapes.shape[s];
            seen += (shape->nodes == 1 || shape->nodes == MOST[m][0]) &&
                    (shape->ranks_per_node == 1 || shape->ranks_per_node == MOST[m][1]);
            assert_true(m == 1 || shape->nodes != 256); /* between 128 and 512, or farther apart */
        }
        assert_int_equal(seen, 6 * 3); /* all but 1 x 1 */
        sbp_network_fit_free(&fit);
        sbp_arena_free(&measured.arena);
    }
}

/* The paper's fit is that of calib/fit/level_fit.h, over the groups of several nodes and those of
 * one. */
static void test_paper(void **state)
{
    (void)state;
    struct sbp_random random;
    static struct sbp_network_fit fit;
    const struct sbp_network_options options = {.is_paper = true};
    static struct sbp_fit_point point[1000];
    struct sbp_fit expected;
    int count = 0;
    sbp_random_seed(&random, SEED);
    struct sbp_measured measured = make(SBP_ALL_GATHER, &random);
    for (int i = 0; i < measured.count; i++)
        if (measured.point[i].nodes > 1)
            point[count++] = (struct sbp_fit_point){
                SBP_ALL_GATHER, measured.point[i].nodes * measured.point[i].ranks_per_node,
                measured.point[i].bytes, measured.point[i].time_s};
    assert_int_equal(sbp_fit_points(point, count, SBP_FIT_NONE, &expected, NULL), SBP_OK);
    assert_int_equal(sbp_network_fit(&measured, &options, &fit, NULL), SBP_OK);
    assert_true(fabs(fit.between.alpha_s - expected.alpha_s) <= 1e-9 * expected.alpha_s);
    near(fit.between.beta_s_per_byte, expected.beta_s_per_byte, 1e-9, "beta");
    assert_false(sbp_network_is_given(&fit.network));
    assert_int_equal(fit.quality.in_sample.count, measured.count);
    sbp_network_fit_free(&fit);
    sbp_arena_free(&measured.arena);
}

/* Mis-ordered pairs, by hand: 1, 2, 4 and 4.5 s, predicted 2, 1, 4 and 3. The last two differ by
 * less than 1.2x; of the other five pairs one is wrong. */
static double by_hand(const void *model, const struct sbp_measured_group *shape, double bytes)
{
    (void)shape;
    return ((const double *)model)[(int)bytes];
}

static void test_pairs(void **state)
{
    (void)state;
    static const double predicted[] = {0, 2, 1, 4, 3};
    struct sbp_curve_sample sample[] = {{1, 1}, {2, 2}, {3, 4}, {4, 4.5}};
    struct sbp_measured_group shape = {.kind = SBP_ALL_REDUCE, .count = 4, .sample = sample};
    const struct sbp_measured_groups shapes = {.count = 1, .shape = &shape};
    struct sbp_arena arena = {0};
    struct sbp_errors errors;
    assert_int_equal(sbp_quality_errors(&shapes, by_hand, predicted, &arena, &errors, NULL),
                     SBP_OK);
    near(errors.mis_ordered, 0.2, 1e-12, "mis-ordered");
    assert_true(errors.falling == 0);
    near(errors.median, (1.5 / 4.5 + 0.5) / 2, 1e-12, "median"); /* of 1, 1/2, 0, 1/3 */
    assert_int_equal(errors.count, 4);
    sbp_arena_free(&arena);
}

/* 3, 1, 2 s and, in another group, 1 s of a larger message: five pairs differ, of which 3 s before
 * 1 and 2 s of its own group fall. */
static void test_falling(void **state)
{
    (void)state;
    static const double predicted[] = {0, 1, 2, 3, 4};
    struct sbp_curve_sample sample[] = {{1, 3}, {2, 1}, {3, 2}}, other[] = {{4, 1}};
    struct sbp_measured_group shape[] = {{.kind = SBP_ALL_REDUCE, .count = 3, .sample = sample},
                                         {.kind = SBP_ALL_GATHER, .count = 1, .sample = other}};
    const struct sbp_measured_groups shapes = {.count = 2, .shape = shape};
    struct sbp_arena arena = {0};
    struct sbp_errors errors;
    assert_int_equal(sbp_quality_errors(&shapes, by_hand, predicted, &arena, &errors, NULL),
                     SBP_OK);
    near(errors.falling, 2.0 / 5, 1e-12, "falling");
    near(errors.mis_ordered, 4.0 / 5, 1e-12, "mis-ordered");
    sbp_arena_free(&arena);
}

/* Any curve that rises mis-orders the falling pairs of one group and nothing else. */
static double rising(const void *model, const struct sbp_measured_group *shape, double bytes)
{
    (void)model;
    (void)shape;
    return bytes;
}

static void test_floor(void **state)
{
    (void)state;
    struct sbp_random random;
    sbp_random_seed(&random, SEED);
    for (int round = 0; round < 50; round++) {
        struct sbp_curve_sample sample[20];
        struct sbp_measured_group shape = {.kind = SBP_ALL_REDUCE, .count = 20, .sample = sample};
        const struct sbp_measured_groups shapes = {.count = 1, .shape = &shape};
        struct sbp_arena arena = {0};
        struct sbp_errors errors;
        for (int i = 0; i < 20; i++)
            sample[i] = (struct sbp_curve_sample){i + 1, 1 + i * sbp_random_unit(&random)};
        assert_int_equal(sbp_quality_errors(&shapes, rising, NULL, &arena, &errors, NULL), SBP_OK);
        assert_true(errors.falling > 0 && errors.falling == errors.mis_ordered);
        sbp_arena_free(&arena);
    }
}

/* Messages through a buffer that takes the first 64 KiB at once: their levels are the link's. */
static void test_messages(void **state)
{
    (void)state;
    static struct sbp_network_fit fit;
    const struct sbp_network_options options = {.ports = 1};
    struct sbp_measured measured = {.count = 0};
    measured.point = SBP_NEW(&measured.arena, struct sbp_measured_point, 1000);
    assert_non_null(measured.point);
    for (int nodes = 1; nodes <= 2; nodes++) {
        const double beta = nodes == 2 ? 1e-8 : 1e-10, buffer = nodes == 2 ? 65536 : 0;
        for (double bytes = 8; bytes <= 16777216; bytes *= 2)
            add(&measured, SBP_SEND_RECV, nodes, 3 - nodes, bytes,
                1e-5 * nodes + beta * fmax(0.01 * bytes, bytes - buffer));
    }
    assert_int_equal(sbp_network_fit(&measured, &options, &fit, NULL), SBP_OK);
    near(fit.between.alpha_s, 2e-5, 0.02, "alpha between");
    near(fit.between.beta_s_per_byte, 1e-8, 0.04, "beta between");
    near(fit.within.beta_s_per_byte, 1e-10, 0.02, "beta within");
    sbp_network_fit_free(&fit);
    sbp_arena_free(&measured.arena);
}

/* Groups that share ports as costmodel/cluster/collective.h says, with a latency that they do not
 * share, are told apart from those that do not. */
static void test_ports(void **state)
{
    (void)state;
    static const int TRUE_PORTS[] = {1, 2, 3, 4, 8};
    static const enum sbp_collective KINDS[] = {SBP_ALL_GATHER, SBP_SEND_RECV};
    struct sbp_random random;
    sbp_random_seed(&random, SEED);
    for (size_t p = 0; p < sizeof TRUE_PORTS / sizeof *TRUE_PORTS; p++) {
        struct sbp_measured measured = {.count = 0};
        measured.point = SBP_NEW(&measured.arena, struct sbp_measured_point, 1000);
        struct sbp_ports ports;
        assert_non_null(measured.point);
        for (int k = 0; k < 2; k++)
            for (int groups = 1; groups <= 8; groups *= 2)
                for (double bytes = 64; bytes <= 16777216; bytes *= 2) {
                    const double shared = fmax(1, (double)groups / TRUE_PORTS[p]);
                    const double noise = 1 + 3 * NOISE * (2 * sbp_random_unit(&random) - 1);
                    add(&measured, KINDS[k], 2, 1, bytes, noise * (2e-5 + 1e-9 * shared * bytes));
                    measured.point[measured.count - 1].groups = groups;
                }
        assert_int_equal(sbp_network_fit_ports(&measured, &ports, NULL), SBP_OK);
        assert_int_equal(ports.ports, TRUE_PORTS[p]);
        assert_int_equal(ports.groups, 8);
        sbp_arena_free(&measured.arena);
    }
}

/* Groups of several members a node, and logs, which do not say, tell nothing. */
static void test_no_ports(void **state)
{
    (void)state;
    struct sbp_random random;
    sbp_random_seed(&random, SEED);
    struct sbp_measured measured = make(SBP_ALL_GATHER, &random);
    struct sbp_ports ports;
    for (int i = 0; i < measured.count; i++)
        measured.point[i].groups = measured.point[i].ranks_per_node > 1 ? 4 : 0;
    assert_int_equal(sbp_network_fit_ports(&measured, &ports, NULL), SBP_OK);
    assert_int_equal(ports.ports, 1);
    assert_int_equal(ports.groups, 0);
    sbp_arena_free(&measured.arena);
}

/* Medians over tables, few sizes apart. */
static void test_shapes(void **state)
{
    (void)state;
    struct sbp_measured measured = {.count = 0};
    struct sbp_arena arena = {0};
    struct sbp_measured_groups shapes;
    measured.point = SBP_NEW(&measured.arena, struct sbp_measured_point, 20);
    assert_non_null(measured.point);
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++)
            add(&measured, SBP_ALL_GATHER, 2, 4, 1 << (2 - i), (j == 2 ? 100 : j + 1) * 1e-6);
    add(&measured, SBP_ALL_GATHER, 4, 4, 1, 1e-6);
    assert_int_equal(sbp_shapes_group(&measured, &arena, &shapes, NULL), SBP_OK);
    assert_int_equal(shapes.count, 1);
    assert_int_equal(shapes.few_count, 1);
    assert_int_equal(shapes.few[0].nodes, 4);
    assert_int_equal(shapes.points, 9);
    assert_int_equal(shapes.shape[0].count, 3);
    for (int i = 0; i < 3; i++) {
        near(shapes.shape[0].sample[i].bytes, 1 << i, 1e-12, "bytes");
        near(shapes.shape[0].sample[i].time_s, 2e-6, 1e-12, "time");
    }
    measured.count = 0;
    assert_int_equal(sbp_shapes_group(&measured, &arena, &shapes, NULL), SBP_E_INPUT);
    sbp_arena_free(&arena);
    sbp_arena_free(&measured.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_truth),
        cmocka_unit_test(test_two_nodes),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_few_sizes),
        cmocka_unit_test(test_few_messages),
        cmocka_unit_test(test_more_shapes_than_a_file_holds),
        cmocka_unit_test(test_paper),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_falling),
        cmocka_unit_test(test_floor),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_ports),
        cmocka_unit_test(test_no_ports),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_no_latency_beyond),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
