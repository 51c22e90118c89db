/* The plan of measurements: its cells, their order, and which ranks meet. */
#include <stdlib.h>
#include <string.h>

#include "calib/samples/points.h"
#include "calib/samples/sweep.h"
#include "tests/support/unit.h"

static struct sbp_sample_sweep make_of(const struct sbp_sweep_options *options)
{
    struct sbp_sample_sweep sweep;
    struct sbp_diag diag = {0};
    if (sbp_sweep_init(&sweep, options, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    return sweep;
}

static struct sbp_sample_sweep make(int nodes, int ranks_per_node, int64_t max_bytes)
{
    const struct sbp_sweep_options options = {
        nodes, ranks_per_node, max_bytes, 1 << 20, SBP_PRODUCTS_CPU, 0, 0, 0};
    return make_of(&options);
}

static int count_shape(const struct sbp_sample_sweep *sweep, int nodes, int ranks_per_node,
                       int groups)
{
    int count = 0;
    for (int i = 0; i < sweep->count; i++) {
        const struct sbp_cell *cell = &sweep->cell[i];
        count += cell->work == SBP_CELL_COLLECTIVE && cell->nodes == nodes &&
                 cell->ranks_per_node == ranks_per_node && cell->groups == groups;
    }
    return count;
}

static void test_shapes_are_all_pairs_of_divisors(void **state)
{
    (void)state;
    struct sbp_sample_sweep sweep = make(4, 6, 4096);
    for (int n = 1; n <= 5; n++)
        for (int r = 1; r <= 7; r++)
            for (int groups = 1; groups <= 7; groups++) {
                const bool is_shape = 4 % n == 0 && 6 % r == 0 && n * r > 1;
                const int most = is_shape ? 6 / r : 0;
                const bool is_between = n > 1 && r == 1 && most > 0 && most % groups == 0;
                const bool expected = is_shape && (groups == 1 || groups == most || is_between);
                const int found = count_shape(&sweep, n, r, groups);
                if ((found > 0) != expected)
                    fail_msg("%d x %d, %d groups: %d cells, expected %s", n, r, groups, found,
                             expected ? "some" : "none");
            }
    /* 8 B .. 4 KiB are 10 sizes; those in blocks of 4 B for each of 24 members begin at 96 B, which
     * 128 B come to as well. */
    assert_int_equal(count_shape(&sweep, 2, 1, 1), 6 * 10);
    assert_int_equal(count_shape(&sweep, 4, 6, 1), 3 * 10 + 3 * 6);
    sbp_sweep_free(&sweep);
}

static void test_cells_are_whole_and_differ(void **state)
{
    (void)state;
    struct sbp_sample_sweep sweep = make(3, 4, 1 << 30);
    for (int i = 0; i < sweep.count; i++) {
        const struct sbp_cell *cell = &sweep.cell[i];
        for (int j = 0; j < i; j++)
            assert_false(sbp_cell_same(cell, &sweep.cell[j]));
        if (cell->work != SBP_CELL_COLLECTIVE)
            continue;
        const bool in_blocks = cell->kind == SBP_ALL_GATHER || cell->kind == SBP_ALL_TO_ALL ||
                               cell->kind == SBP_REDUCE_SCATTER;
        assert_int_equal(cell->bytes % (in_blocks ? 4 * cell->nodes * cell->ranks_per_node : 4), 0);
        assert_true(cell->bytes >= 8 && cell->bytes <= 1 << 30);
    }
    sbp_sweep_free(&sweep);
}

/* Required cells hold every kind in the widest shape of each tier, at two sizes and more. */
static void test_what_is_required_can_be_fitted(void **state)
{
    (void)state;
    struct sbp_sample_sweep sweep = make(4, 2, 1 << 24);
    static const enum sbp_collective kinds[] = {SBP_ALL_REDUCE, SBP_ALL_GATHER, SBP_REDUCE_SCATTER,
                                                SBP_ALL_TO_ALL, SBP_SEND_RECV,  SBP_BROADCAST_COLL};
    static const int shapes[][2] = {{4, 2}, {4, 1}, {1, 2}};
    for (int k = 0; k < 6; k++)
        for (int s = 0; s < 3; s++) {
            int sizes = 0;
            for (int i = 0; i < sweep.required; i++) {
                const struct sbp_cell *cell = &sweep.cell[i];
                sizes += cell->work == SBP_CELL_COLLECTIVE && cell->kind == kinds[k] &&
                         cell->nodes == shapes[s][0] && cell->ranks_per_node == shapes[s][1] &&
                         cell->groups == 1;
            }
            assert_in_range(sizes, 2, 5);
        }
    assert_true(sweep.required < sweep.count / 4);
    sbp_sweep_free(&sweep);
}

static void test_orders_are_permutations_by_stage(void **state)
{
    (void)state;
    struct sbp_sample_sweep sweep = make(2, 4, 1 << 20);
    int *order = calloc((size_t)sweep.count, sizeof *order);
    int *again = calloc((size_t)sweep.count, sizeof *again);
    assert_true(order != NULL && again != NULL);
    int moved = 0;
    for (int run = 0; run < 3; run++) {
        sbp_sweep_order(&sweep, 7, run, order);
        sbp_sweep_order(&sweep, 7, run, again);
        assert_memory_equal(order, again, (size_t)sweep.count * sizeof *order);
        memset(again, 0, (size_t)sweep.count * sizeof *again);
        for (int stage = 0; stage < SBP_SWEEP_STAGES; stage++)
            for (int i = sweep.first[stage]; i < sweep.first[stage + 1]; i++) {
                assert_in_range(order[i], sweep.first[stage], sweep.first[stage + 1] - 1);
                assert_int_equal(again[order[i]]++, 0);
                moved += order[i] != i;
            }
    }
    assert_true(moved > sweep.count);
    sbp_sweep_order(&sweep, 7, 0, order);
    for (int i = 0; i < sweep.required; i++)
        assert_int_equal(order[i], i);
    free(again);
    free(order);
    sbp_sweep_free(&sweep);
}

/* Every two ranks of a node, and every two nodes by each local rank, meet in exactly one round; a
 * round's pairs are disjoint. */
static void expect_tournament(int nodes, int ranks_per_node)
{
    struct sbp_sample_sweep sweep = make(nodes, ranks_per_node, 4096);
    enum { MOST = 12 };
    static int met[MOST][MOST];
    const int ranks = nodes * ranks_per_node;
    assert_true(ranks <= MOST);
    memset(met, 0, sizeof met);
    for (int i = 0; i < sweep.count; i++) {
        if (sweep.cell[i].work != SBP_CELL_PAIRS)
            continue;
        for (int r = 0; r < ranks; r++) {
            int node, local, back_node, back_local;
            if (!sbp_sweep_partner(&sweep.options, sweep.cell[i].round, r / ranks_per_node,
                                   r % ranks_per_node, &node, &local))
                continue;
            assert_true(sbp_sweep_partner(&sweep.options, sweep.cell[i].round, node, local,
                                          &back_node, &back_local));
            assert_int_equal(back_node * ranks_per_node + back_local, r);
            met[r][node * ranks_per_node + local]++;
        }
    }
    for (int a = 0; a < ranks; a++)
        for (int b = 0; b < ranks; b++) {
            const bool same_node = a / ranks_per_node == b / ranks_per_node;
            const bool same_place = a % ranks_per_node == b % ranks_per_node;
            const int expected = a != b && (same_node || same_place);
            if (met[a][b] != expected)
                fail_msg("%d x %d: ranks %d and %d meet %d times, expected %d", nodes,
                         ranks_per_node, a, b, met[a][b], expected);
        }
    sbp_sweep_free(&sweep);
}

static void test_pairs_meet_once(void **state)
{
    (void)state;
    for (int nodes = 1; nodes <= 6; nodes++)
        for (int ranks = 1; nodes * ranks <= 12; ranks++)
            if (nodes * ranks > 1)
                expect_tournament(nodes, ranks);
}

static int count_work(const struct sbp_sample_sweep *sweep, enum sbp_cell_work work)
{
    int count = 0;
    for (int i = 0; i < sweep->count; i++)
        count += sweep->cell[i].work == work;
    return count;
}

/* A table of a cluster file has a share for every combination of its sizes, of the same rows. */
static void test_attention_is_a_whole_grid(void **state)
{
    (void)state;
    struct sbp_sample_sweep sweep = make(1, 1, 4096);
    int64_t rows = 0;
    int cells[2] = {0}, sizes[2] = {0}, sequences[2] = {0};
    for (int i = 0; i < sweep.count; i++) {
        const struct sbp_attention_point *at = &sweep.cell[i].attention;
        if (sweep.cell[i].work != SBP_CELL_ATTENTION)
            continue;
        assert_true(at->type == SBP_FP32 && at->pass <= SBP_PASS_INPUT_GRADIENT);
        rows = rows == 0 ? at->batch * at->heads * at->sequence : rows;
        assert_int_equal(at->batch * at->heads * at->sequence, rows);
        cells[at->pass]++;
        sizes[at->pass] += at->sequence == 64;
        sequences[at->pass] += at->head_size == 64;
    }
    for (int pass = 0; pass < 2; pass++) {
        assert_true(sizes[pass] >= 2 && sequences[pass] >= 3);
        assert_int_equal(cells[pass], sizes[pass] * sequences[pass]);
    }
    assert_int_equal(count_work(&sweep, SBP_CELL_STREAM), 1);
    sbp_sweep_free(&sweep);
}

static bool has_single(const struct sbp_sample_sweep *sweep, const struct sbp_cell *grouped)
{
    const struct sbp_gemm_point wanted = sbp_cell_product(grouped);
    for (int i = 0; i < sweep->count; i++) {
        const struct sbp_gemm_point product = sbp_cell_product(&sweep->cell[i]);
        if (sweep->cell[i].work == SBP_CELL_GEMM && sbp_cell_product_same(&product, &wanted))
            return true;
    }
    return false;
}

/* Their share is formed of a single product of the same sizes, and those of a group fit beside each
 * other where matrices lie. */
static void test_products_of_experts_have_single_ones(void **state)
{
    (void)state;
    for (int which = SBP_PRODUCTS_CPU; which <= SBP_PRODUCTS_GPU; which++) {
        const struct sbp_sweep_options options = {1, 1, 4096, 1 << 20, (enum sbp_products)which,
                                                  0, 0, 0};
        const struct sbp_product_list *list = sbp_sweep_products((enum sbp_products)which);
        struct sbp_sample_sweep sweep = make_of(&options);
        int64_t y_bytes = 0, a_bytes = 0, b_bytes = 0;
        int cells[SBP_PASSES] = {0};
        sbp_sweep_product_bytes(list, &y_bytes, &a_bytes, &b_bytes);
        for (int i = 0; i < sweep.count; i++) {
            const struct sbp_cell *cell = &sweep.cell[i];
            const int64_t bytes = cell->experts * sbp_cluster_type_bytes(cell->type);
            char name[SBP_CELL_NAME];
            if (cell->work != SBP_CELL_GROUPED)
                continue;
            cells[cell->pass]++;
            if (cell->experts < 2 || !has_single(&sweep, cell))
                fail_msg("%s: no single product beside it", sbp_cell_name(cell, name));
            assert_true(cell->m * cell->n * bytes <= y_bytes);
            assert_true(cell->m * cell->k * bytes <= a_bytes);
            assert_true(cell->k * cell->n * bytes <= b_bytes);
        }
        for (int pass = 0; pass < SBP_PASSES; pass++)
            assert_in_range(cells[pass], 6, SBP_MAX_GROUPED / SBP_PASSES);
        sbp_sweep_free(&sweep);
    }
}

/* A build without kernels for GPUs lists neither it nor rows; and who asks for collectives alone
 * gets them alone. */
static void test_where_attention_is_not_timed(void **state)
{
    (void)state;
    const struct sbp_sweep_options gpu = {
        1, 2, 4096, 1 << 20, SBP_PRODUCTS_GPU, 0, SBP_LACKS_KERNELS, 0};
    const struct sbp_sweep_options few = {
        1, 2, 4096, 1 << 20, SBP_PRODUCTS_CPU, 1u << SBP_ALL_REDUCE, 0, 0};
    struct sbp_sample_sweep sweep = make_of(&gpu);
    assert_int_equal(count_work(&sweep, SBP_CELL_ATTENTION), 0);
    assert_int_equal(count_work(&sweep, SBP_CELL_ROWS), 0);
    assert_int_equal(count_work(&sweep, SBP_CELL_STREAM), 1);
    sbp_sweep_free(&sweep);
    sweep = make_of(&few);
    assert_int_equal(count_work(&sweep, SBP_CELL_ATTENTION), 0);
    assert_int_equal(count_work(&sweep, SBP_CELL_STREAM), 0);
    sbp_sweep_free(&sweep);
}

static int count_type(const struct sbp_sample_sweep *sweep, enum sbp_type type)
{
    int count = 0;
    for (int i = 0; i < sweep->count; i++)
        count += sweep->cell[i].work == SBP_CELL_GEMM && sweep->cell[i].type == type;
    return count;
}

/* A GPU without fp8 is asked for no product in it, and for all others. */
static void test_what_a_processor_lacks(void **state)
{
    (void)state;
    struct sbp_sweep_options options = {1, 2, 4096, 1 << 20, SBP_PRODUCTS_GPU, 0, 0, 0};
    struct sbp_sample_sweep all = make_of(&options);
    options.lacks = SBP_LACKS_FP8;
    struct sbp_sample_sweep rest = make_of(&options);
    assert_in_range(count_type(&all, SBP_FP8), 100, SBP_MAX_GEMMS - count_type(&all, SBP_BF16));
    assert_int_equal(count_type(&rest, SBP_FP8), 0);
    assert_int_equal(rest.count, all.count - count_type(&all, SBP_FP8));
    assert_int_equal(rest.required, all.required - 1);
    sbp_sweep_free(&rest);
    sbp_sweep_free(&all);
}

/* Collectives beside products: the widest shapes, all groups at once, each alone as well; not where
 * nobody may call beside, nor with --collectives. */
static void test_collectives_beside_products(void **state)
{
    (void)state;
    for (int which = SBP_PRODUCTS_CPU; which <= SBP_PRODUCTS_GPU; which++) {
        struct sbp_sweep_options options = {2, 4, 1 << 20, 1 << 20, (enum sbp_products)which,
                                            0, 0, 0};
        struct sbp_sample_sweep sweep = make_of(&options);
        const struct sbp_product_shape *shape =
            &sbp_sweep_products((enum sbp_products)which)->beside;
        int shapes[3] = {0};
        for (int i = 0; i < sweep.count; i++) {
            const struct sbp_cell *cell = &sweep.cell[i];
            struct sbp_cell twin = *cell;
            if (cell->work != SBP_CELL_BESIDE)
                continue;
            assert_true(cell->bytes == 1 << 18 || cell->bytes == 1 << 16);
            assert_int_equal(cell->groups, 4 / cell->ranks_per_node);
            shapes[cell->nodes == 1 ? 0 : cell->ranks_per_node == 1 ? 1 : 2]++;
            assert_true(cell->ranks_per_node == 4 || cell->nodes == 2);
            const bool alone = sbp_cell_is_alone(cell);
            twin.type = alone ? shape->type : SBP_FP32;
            twin.m = alone ? shape->m : 0;
            twin.n = alone ? shape->n : 0;
            twin.k = alone ? shape->k : 0;
            int twins = 0;
            for (int j = 0; j < sweep.count; j++)
                twins += sbp_cell_same(&sweep.cell[j], &twin);
            assert_int_equal(twins, 1);
            assert_true(i >= sweep.required);
        }
        for (int i = 0; i < 3; i++)
            assert_int_equal(shapes[i], 3 * 2 * 2);
        assert_true(3 * 3 * 2 * 2 <= SBP_MAX_BESIDE);
        assert_int_equal(count_work(&sweep, SBP_CELL_HOST), which == SBP_PRODUCTS_GPU);
        assert_int_equal(count_work(&sweep, SBP_CELL_LINK), which == SBP_PRODUCTS_GPU);
        sbp_sweep_free(&sweep);
        options.lacks = SBP_LACKS_LANE;
        sweep = make_of(&options);
        assert_int_equal(count_work(&sweep, SBP_CELL_BESIDE), 0);
        sbp_sweep_free(&sweep);
        options.lacks = 0;
        options.kinds = 1u << SBP_ALL_REDUCE;
        sweep = make_of(&options);
        assert_int_equal(count_work(&sweep, SBP_CELL_BESIDE), 0);
        sbp_sweep_free(&sweep);
    }
}

/* A minute of load where the budget has ten, else a tenth of it. */
static void test_load_follows_the_budget(void **state)
{
    (void)state;
    static const struct {
        double budget_s;
        int64_t load_s;
    } cases[] = {{0.5, 1}, {10, 1}, {30, 3}, {120, 12}, {600, 60}, {86400, 60}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct sbp_sweep_options options = {
            1, 1, 4096, 1 << 20, SBP_PRODUCTS_GPU, 0, 0, cases[i].budget_s};
        struct sbp_sample_sweep sweep = make_of(&options);
        int found = 0;
        for (int c = 0; c < sweep.count; c++)
            if (sweep.cell[c].work == SBP_CELL_SUSTAINED) {
                assert_int_equal(sweep.cell[c].load_s, cases[i].load_s);
                found++;
            }
        assert_int_equal(found, 1);
        sbp_sweep_free(&sweep);
    }
}

/* Rows are whole, as many as the copy has bytes. */
static void test_rows_of_every_size(void **state)
{
    (void)state;
    const struct sbp_product_list *list = sbp_sweep_products(SBP_PRODUCTS_CPU);
    struct sbp_sample_sweep sweep = make(1, 1, 4096);
    assert_int_equal(count_work(&sweep, SBP_CELL_ROWS), list->row_sizes);
    for (int i = 0; i < sweep.count; i++) {
        const struct sbp_cell *cell = &sweep.cell[i];
        if (cell->work == SBP_CELL_ROWS)
            assert_true(cell->bytes % cell->row_bytes == 0 && cell->bytes <= 1 << 20 &&
                        cell->bytes + cell->row_bytes > 1 << 20);
    }
    sbp_sweep_free(&sweep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes_are_all_pairs_of_divisors),
        cmocka_unit_test(test_cells_are_whole_and_differ),
        cmocka_unit_test(test_what_is_required_can_be_fitted),
        cmocka_unit_test(test_orders_are_permutations_by_stage),
        cmocka_unit_test(test_pairs_meet_once),
        cmocka_unit_test(test_attention_is_a_whole_grid),
        cmocka_unit_test(test_products_of_experts_have_single_ones),
        cmocka_unit_test(test_where_attention_is_not_timed),
        cmocka_unit_test(test_what_a_processor_lacks),
        cmocka_unit_test(test_rows_of_every_size),
        cmocka_unit_test(test_collectives_beside_products),
        cmocka_unit_test(test_load_follows_the_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
