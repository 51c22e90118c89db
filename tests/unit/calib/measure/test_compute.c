/* The processor of a CPU rank does every work of its sweep, in any order, and times it. */
#include "calib/measure/compute.h"
#include "calib/measure/row_order.h"
#include "tests/support/unit.h"

#define COPY_BYTES ((int64_t)1 << 20)

static struct sbp_sample_sweep make(void)
{
    const struct sbp_sweep_options options = {1, 1, 4096, COPY_BYTES, SBP_PRODUCTS_CPU, 0, 0, 0};
    struct sbp_sample_sweep sweep;
    assert_int_equal(sbp_sweep_init(&sweep, &options, NULL), SBP_OK);
    return sweep;
}

/* Small cells of every kind, backward attention before any forward pass as well. */
static bool is_small(const struct sbp_cell *cell)
{
    if (cell->work == SBP_CELL_ATTENTION)
        return cell->attention.sequence <= 64;
    return cell->work != SBP_CELL_GEMM || cell->m * cell->n * cell->k <= 64 * 64 * 64;
}

static void test_every_work_takes_time(void **state)
{
    (void)state;
    struct sbp_sample_sweep sweep = make();
    struct sbp_compute *compute;
    int done[SBP_CELL_WORKS] = {0};
    assert_int_equal(sbp_compute_cpu.open(&compute, COPY_BYTES, NULL), SBP_OK);
    for (int i = sweep.count - 1; i >= 0; i--) {
        const struct sbp_cell *cell = &sweep.cell[i];
        double time_s = -1;
        if (!is_small(cell))
            continue;
        assert_int_equal(sbp_compute_cpu.repeat(compute, cell, &time_s, NULL), SBP_OK);
        char name[SBP_CELL_NAME];
        if (!(time_s >= 0 && time_s < 60))
            fail_msg("%s: %g s", sbp_cell_name(cell, name), time_s);
        done[cell->work]++;
    }
    assert_true(done[SBP_CELL_GEMM] > 0 && done[SBP_CELL_ATTENTION] > 0);
    assert_true(done[SBP_CELL_GROUPED] > 0);
    assert_true(done[SBP_CELL_COPY] == 1 && done[SBP_CELL_STREAM] == 1);
    assert_true(done[SBP_CELL_LAUNCH] == 1 && done[SBP_CELL_GELU] == 1);
    assert_true(done[SBP_CELL_ROWS] > 0);
    sbp_compute_cpu.close(compute);
    sbp_sweep_free(&sweep);
}

/* Every row once, those of an expert in their own order: it rises but from one expert to the next.
 */
static void test_rows_come_by_expert(void **state)
{
    (void)state;
    enum { ROWS = 1000 };
    int32_t row[ROWS];
    int seen[ROWS] = {0}, falls = 0;
    sbp_row_order(row, ROWS, 1);
    for (int i = 0; i < ROWS; i++) {
        assert_true(row[i] >= 0 && row[i] < ROWS);
        seen[row[i]]++;
        falls += i > 0 && row[i] < row[i - 1];
    }
    for (int i = 0; i < ROWS; i++)
        assert_int_equal(seen[i], 1);
    assert_int_equal(falls, SBP_ROW_EXPERTS - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_work_takes_time),
                                       cmocka_unit_test(test_rows_come_by_expert)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
