/* Compiled programs: what must hold of any, of random strategies. */
#include "tests/support/program_oracle.h"
#include "tests/support/seeded.h"
#include "tests/support/unit.h"

#define SEED   UINT64_C(4210)
#define ROUNDS 600

static void check_random_programs(uint64_t seed, bool wide, enum sbp_boxing_mode boxing)
{
    struct sbp_random random = seeded(seed);
    int checked[ORACLE_MODELS] = {0};
    for (int round = 0; round < ROUNDS; round++) {
        struct oracle_setting s = {0};
        oracle_model_read(&s.model, oracle_models[round % ORACLE_MODELS]);
        struct sbp_cluster cluster =
            oracle_cluster(3, oracle_meshes[oracle_below(&random, ORACLE_MESHES)]);
        cluster.reserve_bytes = 1000;
        oracle_set_cluster(&s, &cluster);
        (wide ? oracle_draw_wide : oracle_draw)(&random, &s.model.graph, &s.mesh, &s.strategy);
        s.strategy.boxing = boxing;
        if (oracle_close(&s) == SBP_OK) {
            const struct sbp_element_bytes bytes[] = {
                sbp_program_element_bytes(&s.model.graph.precision), sbp_program_run_bytes(SBP_F32),
                sbp_program_run_bytes(SBP_F64)};
            oracle_compile(&s, &bytes[oracle_below(&random, 3)]);
            oracle_check_program(&s);
            checked[round % ORACLE_MODELS]++;
        }
        oracle_drop(&s);
    }
    for (int i = 0; i < ORACLE_MODELS; i++) {
        print_message("model %d: %d programs\n", i, checked[i]);
        assert_true(checked[i] > ROUNDS / ORACLE_MODELS / (wide ? 8 : 2));
    }
}

static void test_random_programs(void **state)
{
    (void)state;
    check_random_programs(SEED, false, SBP_BOXING_FULL);
}

/* Any role, and outputs that rest whole or partial. */
static void test_random_rests(void **state)
{
    (void)state;
    check_random_programs(SEED + 5, true, SBP_BOXING_FULL);
}

/* Lists that are cut, begin with slices or pass through other splits. */
static void test_random_paths(void **state)
{
    (void)state;
    check_random_programs(SEED + 3, false, SBP_BOXING_PATH);
    check_random_programs(SEED + 4, true, SBP_BOXING_PATH);
}

/* Every operator of the catalogue. */
static void test_every_operator(void **state)
{
    (void)state;
    struct sbp_random random = seeded(SEED + 3);
    int checked[ORACLE_WIDE_MODELS] = {0};
    bool seen[SBP_OP_KINDS] = {false};
    for (int round = 0; round < ROUNDS; round++) {
        struct oracle_setting s = {0};
        const int model = round % ORACLE_WIDE_MODELS;
        oracle_model_read(&s.model, oracle_wide_models[model]);
        const struct sbp_cluster cluster =
            oracle_cluster(3, oracle_meshes[oracle_below(&random, ORACLE_MESHES)]);
        oracle_set_cluster(&s, &cluster);
        (round % 8 < 4 ? oracle_draw : oracle_draw_wide)(&random, &s.model.graph, &s.mesh,
                                                         &s.strategy);
        for (int op = 0; op < s.model.graph.op_count; op++)
            seen[s.model.graph.op[op].kind] = true;
        if (oracle_close(&s) == SBP_OK) {
            const struct sbp_element_bytes bytes =
                sbp_program_element_bytes(&s.model.graph.precision);
            oracle_compile(&s, &bytes);
            oracle_check_program(&s);
            checked[model]++;
        }
        oracle_drop(&s);
    }
    for (int i = 0; i < ORACLE_WIDE_MODELS; i++) {
        print_message("model %d: %d programs\n", i, checked[i]);
        assert_true(checked[i] > 10);
    }
    for (int kind = 0; kind < SBP_OP_KINDS; kind++)
        if (!seen[kind] && kind != SBP_OP_GELU && kind != SBP_OP_DROPOUT &&
            kind != SBP_OP_ATTENTION)
            fail_msg("no model has %s", sbp_op((enum sbp_op_kind)kind)->name);
}

/* --- arithmetic --- */

/* Every role divides a product by its axis: with memory that costs nothing, a chain of layers takes
 * its flops over all devices, and the first layer needs no gradient of a free input. */
static void test_products_are_shared(void **state)
{
    (void)state;
    struct sbp_random random;
    sbp_random_seed(&random, SEED + 1);
    for (int round = 0; round < 100; round++) {
        struct oracle_setting s = {0};
        oracle_model_read(&s.model, oracle_models[round % 2]);
        struct sbp_cluster cluster =
            oracle_cluster(3, oracle_meshes[oracle_below(&random, ORACLE_MESHES)]);
        cluster.memory_bytes_per_s = 1e300;
        oracle_set_cluster(&s, &cluster);
        oracle_draw(&random, &s.model.graph, &s.mesh, &s.strategy);
        if (oracle_close(&s) == SBP_OK) {
            const struct sbp_element_bytes bytes =
                sbp_program_element_bytes(&s.model.graph.precision);
            oracle_compile(&s, &bytes);
            const double flops = round % 2 == 0
                                     ? 2.0 * 24 * (2 * 24 * 48 + 3 * 48 * 72 + 3 * 72 * 24)
                                     : 2.0 * 24 * (3 * 48 * 24 + 3 * 24 * 48);
            const double peak = cluster.flops[round % 2 == 0 ? SBP_FP32 : SBP_BF16];
            oracle_near("compute", sbp_program_totals(&s.program, &s.cluster).compute_s,
                        flops / peak / (double)s.mesh.devices);
        }
        oracle_drop(&s);
    }
}

/* A loss that works in another type than its logits has buffers of that type; in theirs it holds
 * what the trainer does, also where the model says so. */
static void test_bytes_of_losses(void **state)
{
    (void)state;
    struct sbp_precision precision = {.activation = SBP_BF16, .loss = SBP_BF16, .logit_bytes = 2};
    struct sbp_element_bytes bytes = sbp_program_element_bytes(&precision);
    assert_int_equal(bytes.loss, 0);
    assert_int_equal(bytes.logit, 2);
    precision.loss = SBP_FP32;
    bytes = sbp_program_element_bytes(&precision);
    assert_int_equal(bytes.loss, 4);
    assert_int_equal(bytes.logit, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_programs),     cmocka_unit_test(test_random_rests),
        cmocka_unit_test(test_random_paths),        cmocka_unit_test(test_every_operator),
        cmocka_unit_test(test_products_are_shared), cmocka_unit_test(test_bytes_of_losses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
