/* Rates of attention out of times: those that a made-up machine has are found again, and what was
 * not timed is filled in. */
#include <math.h>

#include "calib/fit/attention_fit.h"
#include "tests/support/unit.h"

enum { HEADS = 2, ROWS = 1024 };

/* The machine: its rate depends on every size and on the pass. */
static double rate_at(int pass, int64_t head_size, int64_t sequence)
{
    return 1e9 * (1 + pass) + 1e6 * (double)head_size + 1e4 * (double)sequence;
}

/* Counts the flops of a head one query at a time: products with each key that it sees, two forward
 * and five backward, and six operations a score. */
static double flops_of(int pass, int64_t head_size, int64_t sequence, int64_t rows)
{
    double flops = 0;
    for (int64_t query = 0; query < sequence; query++)
        for (int64_t key = 0; key <= query; key++)
            flops += 2 * (double)(pass == 0 ? 2 : 5) * (double)head_size + 6;
    return flops * (double)rows / (double)sequence;
}

static void add(struct sbp_compute_times *times, int pass, int64_t head_size, int64_t sequence,
                int64_t rows)
{
    const struct sbp_attention_point point = {
        SBP_FP32, (enum sbp_pass)pass, head_size, sequence, HEADS, rows / (HEADS * sequence)};
    const double time_s =
        flops_of(pass, head_size, sequence, rows) / rate_at(pass, head_size, sequence);
    const double samples[] = {time_s, 1.2 * time_s, 0.9 * time_s}; /* of three runs */
    times->attention[times->attention_count] = point;
    sbp_samples_add(&times->attention_samples[times->attention_count++], samples, 3);
}

static const int64_t head_sizes[] = {32, 64, 128}, sequences[] = {16, 64, 256};

/* All combinations in an order that does not rise, but for one; -1: all. */
static void add_grid(struct sbp_compute_times *times, int pass, int without)
{
    for (int i = 8; i >= 0; i--)
        if (i != without)
            add(times, pass, head_sizes[i % 3], sequences[i / 3], ROWS);
}

static void expect_rates(const struct sbp_attention_fit *fit, int pass)
{
    const struct sbp_grid_fit *grid = &fit->grid[pass];
    assert_int_equal(grid->count[2], 1);
    for (int i = 0; i < sbp_grid_fit_rates(grid); i++) {
        const int64_t head_size = grid->size[0][i / grid->count[1]];
        const int64_t sequence = grid->size[1][i % grid->count[1]];
        const double expected = rate_at(pass, head_size, sequence);
        if (!(fabs(grid->flops[i] / expected - 1) < 1e-12))
            fail_msg("pass %d, heads of %lld over %lld: %.9g FLOP/s, expected %.9g", pass,
                     (long long)head_size, (long long)sequence, grid->flops[i], expected);
    }
}

static struct sbp_compute_times times; /* large */

/* Products alone: of fp32, and of fp16, of which every run was bad. */
static int make_empty(void **state)
{
    const double time_s = 1e-3;
    (void)state;
    times = (struct sbp_compute_times){.gemm_count = 2,
                                       .gemm = {{.type = SBP_FP16}, {.type = SBP_FP32}}};
    sbp_samples_add(&times.samples[2], &time_s, 1);
    return 0;
}

static void test_rates_are_found_again(void **state)
{
    (void)state;
    struct sbp_attention_fit fit;
    for (int pass = 0; pass < SBP_ATTENTION_PASSES; pass++)
        add_grid(&times, pass, -1);
    sbp_attention_fit(&times, &fit);
    assert_int_equal(fit.type, SBP_FP32);
    for (int pass = 0; pass < SBP_ATTENTION_PASSES; pass++) {
        const struct sbp_grid_fit *grid = &fit.grid[pass];
        assert_int_equal(grid->count[0], 3);
        assert_int_equal(grid->count[1], 3);
        assert_memory_equal(grid->size[0], head_sizes, sizeof head_sizes);
        assert_memory_equal(grid->size[1], sequences, sizeof sequences);
        assert_int_equal(grid->size[2][0], ROWS);
        expect_rates(&fit, pass);
    }
}

/* One combination that is missing, as where the time was over, costs none of the others. */
static void test_holes_are_filled(void **state)
{
    for (int hole = 0; hole < 9; hole++) {
        static struct sbp_attention_fit fit;
        (void)make_empty(state);
        add_grid(&times, SBP_PASS_INPUT_GRADIENT, hole);
        sbp_attention_fit(&times, &fit);
        const struct sbp_grid_fit *grid = &fit.grid[SBP_PASS_INPUT_GRADIENT];
        assert_int_equal(fit.grid[SBP_PASS_FORWARD].timed, 0);
        assert_int_equal(grid->timed, 8);
        assert_int_equal(sbp_grid_fit_rates(grid), 9);
        for (int i = 0; i < 9; i++) {
            const double expected =
                rate_at(SBP_PASS_INPUT_GRADIENT, head_sizes[i / 3], sequences[i % 3]);
            assert_true(fabs(grid->flops[i] / expected - 1) < 0.05);
        }
        assert_false(sbp_attention_fit_is_empty(&fit));
    }
}

/* Of cells of other rows, as older samples may have, the last ones count where there are as many.
 */
static void test_rows_are_not_mixed(void **state)
{
    (void)state;
    struct sbp_attention_fit fit;
    add(&times, 0, 32, 16, ROWS);
    add(&times, 0, 32, 64, 4 * ROWS);
    sbp_attention_fit(&times, &fit);
    assert_int_equal(fit.grid[0].timed, 1);
    assert_int_equal(fit.grid[0].size[1][0], 64);
    assert_int_equal(fit.grid[0].size[2][0], 4 * ROWS);
}

/* A calibration that was cut off behind its first cell does not cost what an older one has. */
static void test_most_rows_count(void **state)
{
    (void)state;
    struct sbp_attention_fit fit;
    add_grid(&times, 0, -1);
    add(&times, 0, 32, 64, 4 * ROWS);
    sbp_attention_fit(&times, &fit);
    assert_int_equal(fit.grid[0].size[2][0], ROWS);
    assert_int_equal(fit.grid[0].timed, 9);
}

/* Shares are of a product's rate: a type without one has none, and costs no other type its own. */
static void test_types_without_a_peak_do_not_count(void **state)
{
    static const enum sbp_type without[] = {SBP_BF16, SBP_FP16};
    for (int i = 0; i < 2; i++) {
        struct sbp_attention_fit fit;
        (void)make_empty(state);
        add_grid(&times, 0, -1);
        for (int j = 0; j < times.attention_count; j++)
            times.attention[j].type = without[i];
        sbp_attention_fit(&times, &fit);
        assert_true(sbp_attention_fit_is_empty(&fit));
        add(&times, 0, 32, 16, ROWS);
        sbp_attention_fit(&times, &fit);
        assert_int_equal(fit.type, SBP_FP32);
        assert_int_equal(fit.grid[0].timed, 1);
    }
}

static void test_nothing_was_timed(void **state)
{
    (void)state;
    struct sbp_attention_fit fit;
    sbp_attention_fit(&times, &fit);
    assert_true(sbp_attention_fit_is_empty(&fit));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_rates_are_found_again, make_empty),
        cmocka_unit_test_setup(test_holes_are_filled, make_empty),
        cmocka_unit_test_setup(test_rows_are_not_mixed, make_empty),
        cmocka_unit_test_setup(test_most_rows_count, make_empty),
        cmocka_unit_test_setup(test_types_without_a_peak_do_not_count, make_empty),
        cmocka_unit_test_setup(test_nothing_was_timed, make_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
