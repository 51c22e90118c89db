/* Distributions: whose shards partition a tensor, in canonical order, by the digit rule. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "costmodel/layout/distribution.h"
#include "tests/support/sbp_oracle.h"
#include "tests/support/seeded.h"
#include "tests/support/unit.h"

#define SEED   UINT64_C(4203)
#define ROUNDS 1500

static struct sbp_mesh mesh_of(int levels, const int64_t *size)
{
    const struct sbp_cluster cluster = oracle_cluster(levels, size);
    struct sbp_mesh mesh;
    struct sbp_diag diag = {{0}};
    if (sbp_mesh_make(&cluster, &mesh, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    return mesh;
}

static struct sbp_mesh random_mesh(struct sbp_random *random)
{
    static const int64_t sizes[][3] = {{2, 2, 2}, {2, 3, 1}, {3, 2, 1}, {4, 2, 1},
                                       {6, 2, 1}, {1, 1, 1}, {5, 2, 1}, {16, 1, 1}};
    return mesh_of(3, sizes[oracle_below(random, 8)]);
}

/* --- blocks --- */

struct blocks {
    int64_t *expected; /* a rank's block by the oracle */
    int *owners;       /* of every element */
};

static void check_block(const struct oracle_tensor *t, const struct sbp_dist *dist, int64_t rank,
                        const struct blocks *blocks)
{
    struct sbp_region region;
    sbp_dist_region(&t->layout, &t->shape, dist, rank, &region);
    const int64_t count = oracle_block(&t->layout, &t->shape, dist, rank, blocks->expected);
    if (sbp_region_elements(&region) != count)
        fail_msg("rank %lld holds %lld elements, expected %lld", (long long)rank,
                 (long long)sbp_region_elements(&region), (long long)count);
    assert_int_equal(sbp_dist_local_elements(t->layout.mesh, &t->shape, dist), count);
    int64_t product = 1;
    for (int d = 0; d < SBP_MAX_DIMS; d++) {
        assert_int_equal(sbp_dist_local_size(t->layout.mesh, &t->shape, dist, d),
                         sbp_digits_local_size(&region.dim[d]));
        assert_int_equal(sbp_digits_global_size(&region.dim[d]), t->shape.size[d]);
        product *= sbp_digits_local_size(&region.dim[d]);
    }
    assert_int_equal(product, count);
    for (int64_t i = 0; i < count; i++) {
        if (sbp_region_global(&region, i) != blocks->expected[i])
            fail_msg("rank %lld: local %lld is global %lld, expected %lld", (long long)rank,
                     (long long)i, (long long)sbp_region_global(&region, i),
                     (long long)blocks->expected[i]);
        blocks->owners[blocks->expected[i]]++;
    }
}

static void check_digits(const struct oracle_tensor *t, const struct sbp_dist *dist, int64_t rank)
{
    struct sbp_region region;
    sbp_dist_region(&t->layout, &t->shape, dist, rank, &region);
    for (int d = 0; d < SBP_MAX_DIMS; d++) {
        int64_t next = 0;
        for (int64_t at = 0; at < t->shape.size[d]; at++) {
            const bool owns = oracle_owns_index(&t->layout, &t->shape, dist, rank, d, at);
            assert_int_equal(sbp_digits_local(&region.dim[d], at), owns ? next : -1);
            if (owns)
                assert_int_equal(sbp_digits_global(&region.dim[d], next++), at);
        }
    }
}

/* Every element has an owner for each way that the axes which do not split can be set. */
static void test_shards_partition(void **state)
{
    (void)state;
    struct sbp_random random = seeded(SEED);
    for (int round = 0; round < ROUNDS; round++) {
        const struct sbp_mesh mesh = random_mesh(&random);
        const int dims = 1 + (int)oracle_below(&random, 3);
        const struct sbp_dist dist = oracle_random_dist(&random, &mesh, dims, false);
        struct oracle_tensor t;
        oracle_random_tensor(&random, &mesh, dims, &dist, 1, &t);
        const int64_t size = oracle_size(&t.shape);
        if (size > 20000)
            continue;
        struct blocks blocks = {calloc((size_t)size, sizeof(int64_t)),
                                calloc((size_t)size, sizeof(int))};
        assert_non_null(blocks.expected);
        assert_non_null(blocks.owners);
        sbp_axes splitting = 0;
        for (int d = 0; d < dims; d++)
            splitting |= sbp_dist_split(&mesh, &dist, d);
        for (int64_t rank = 0; rank < mesh.devices; rank++) {
            check_block(&t, &dist, rank, &blocks);
            check_digits(&t, &dist, rank);
        }
        for (int64_t i = 0; i < size; i++)
            assert_int_equal(blocks.owners[i], mesh.devices / oracle_product(&mesh, splitting));
        free(blocks.expected);
        free(blocks.owners);
    }
}

/* 12 elements on 2x3: digits 2, 3 and a rest of 2. */
static void test_by_hand(void **state)
{
    (void)state;
    const struct sbp_mesh mesh = mesh_of(2, (int64_t[]){2, 3});
    const sbp_axes both[] = {3};
    const struct sbp_layout layout = {&mesh, 1, both};
    const struct sbp_shape shape = {{12, 1, 1, 1}, {0, SBP_NO_CLASS, SBP_NO_CLASS, SBP_NO_CLASS}};
    struct sbp_dist dist = sbp_dist_all(SBP_STATE_B);
    dist.axis[1] = SBP_STATE_S(0);
    const int64_t inner[] = {2, 3, 8, 9}; /* digit 1 of the axis of three, either outer digit */
    struct sbp_region region;
    sbp_dist_region(&layout, &shape, &dist, 1, &region);
    assert_int_equal(sbp_region_elements(&region), 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(sbp_region_global(&region, i), inner[i]);
    dist.axis[0] = SBP_STATE_S(0);
    sbp_dist_region(&layout, &shape, &dist, 5, &region);
    assert_int_equal(sbp_region_elements(&region), 2);
    assert_int_equal(sbp_region_global(&region, 0), 10);
    assert_int_equal(sbp_region_global(&region, 1), 11);
    /* An axis that splits the class nowhere has no digit: blocks of four in a row. */
    const sbp_axes one[] = {2};
    const struct sbp_layout apart = {&mesh, 1, one};
    dist.axis[0] = SBP_STATE_B;
    sbp_dist_region(&apart, &shape, &dist, 4, &region);
    assert_int_equal(sbp_region_elements(&region), 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(sbp_region_global(&region, i), 4 + i);
}

/* --- states --- */

static void test_mirrored(void **state)
{
    (void)state;
    const struct sbp_cluster cluster = oracle_cluster(3, (int64_t[]){2, 2, 2});
    const struct sbp_dist dist = {{SBP_STATE_M, SBP_STATE_S(2), SBP_STATE_P}};
    struct sbp_mesh mesh;
    struct sbp_diag diag = {{0}};
    char text[64];
    assert_int_equal(sbp_mesh_make(&cluster, &mesh, &diag), SBP_OK);
    const struct sbp_dist held = sbp_dist_held(&mesh, &dist), dual = sbp_dist_dual(&mesh, &dist);
    assert_true(sbp_dist_equal(&mesh, &held,
                               &(struct sbp_dist){{SBP_STATE_B, SBP_STATE_S(2), SBP_STATE_P}}));
    assert_true(sbp_dist_equal(&mesh, &dual,
                               &(struct sbp_dist){{SBP_STATE_B, SBP_STATE_S(2), SBP_STATE_B}}));
    assert_int_equal(sbp_dist_of_kind(&mesh, &dist, SBP_MIRRORED), 1);
    assert_string_equal(sbp_dist_text(&mesh, &dist, text, sizeof text), "S2:2 M:2 P:2");
}

static void test_duals_and_masks(void **state)
{
    (void)state;
    struct sbp_random random;
    sbp_random_seed(&random, SEED + 1);
    for (int round = 0; round < 500; round++) {
        const struct sbp_mesh mesh = random_mesh(&random);
        const struct sbp_dist dist = oracle_random_dist(&random, &mesh, 3, false);
        const struct sbp_dist dual = sbp_dist_dual(&mesh, &dist);
        const struct sbp_dist again = sbp_dist_dual(&mesh, &dual);
        sbp_axes split[SBP_MAX_DIMS] = {0}, broadcast = 0, partial = 0;
        for (int i = 0; i < mesh.axis_count; i++) {
            const struct sbp_state from = dist.axis[i], to = dual.axis[i];
            const sbp_axes bit = (sbp_axes)1 << i;
            if (from.kind == SBP_SPLIT) {
                split[from.dim] |= bit;
                assert_true(to.kind == SBP_SPLIT && to.dim == from.dim);
            } else {
                *(from.kind == SBP_PARTIAL ? &partial : &broadcast) |= bit;
                assert_int_equal(to.kind, from.kind == SBP_PARTIAL ? SBP_BROADCAST : SBP_PARTIAL);
            }
        }
        assert_true(sbp_dist_equal(&mesh, &again, &dist));
        assert_int_equal(sbp_dist_equal(&mesh, &dual, &dist), broadcast == 0 && partial == 0);
        for (int d = 0; d < SBP_MAX_DIMS; d++)
            assert_int_equal(sbp_dist_split(&mesh, &dist, d), split[d]);
        assert_int_equal(sbp_dist_of_kind(&mesh, &dist, SBP_SPLIT), split[0] | split[1] | split[2]);
        assert_int_equal(sbp_dist_of_kind(&mesh, &dist, SBP_BROADCAST), broadcast);
        assert_int_equal(sbp_dist_of_kind(&mesh, &dist, SBP_PARTIAL), partial);
    }
}

static void test_equality(void **state)
{
    (void)state;
    const struct sbp_mesh mesh = mesh_of(1, (int64_t[]){4});
    assert_true(sbp_state_equal(SBP_STATE_S(2), SBP_STATE_S(2)));
    assert_false(sbp_state_equal(SBP_STATE_S(2), SBP_STATE_S(1)));
    assert_false(sbp_state_equal(SBP_STATE_S(0), SBP_STATE_B));
    assert_false(sbp_state_equal(SBP_STATE_P, SBP_STATE_B));
    struct sbp_dist a = sbp_dist_all(SBP_STATE_S(1)), b = a;
    b.axis[2] = SBP_STATE_P; /* beyond the mesh: no axis of it */
    assert_true(sbp_dist_equal(&mesh, &a, &b));
    b.axis[1] = SBP_STATE_S(0);
    assert_false(sbp_dist_equal(&mesh, &a, &b));
}

static void test_text(void **state)
{
    (void)state;
    const struct sbp_mesh mesh = mesh_of(2, (int64_t[]){4, 4});
    char buffer[64], small[6];
    struct sbp_dist dist = {.axis = {SBP_STATE_S(0), SBP_STATE_S(0), SBP_STATE_B, SBP_STATE_P}};
    assert_string_equal(sbp_dist_text(&mesh, &dist, buffer, sizeof buffer), "S0:4 B:2 P:2");
    dist = sbp_dist_all(SBP_STATE_B);
    assert_string_equal(sbp_dist_text(&mesh, &dist, buffer, sizeof buffer), "B:16");
    dist = sbp_dist_all(SBP_STATE_S(1));
    assert_string_equal(sbp_dist_text(&mesh, &dist, buffer, sizeof buffer), "S1:16");
    dist = sbp_dist_all(SBP_STATE_P);
    dist.axis[3] = SBP_STATE_S(2);
    const char *text = sbp_dist_text(&mesh, &dist, buffer, sizeof buffer);
    assert_non_null(strstr(text, "S2:2"));
    assert_non_null(strstr(text, "P:8"));
    memset(small, 'x', sizeof small);
    assert_true(sbp_dist_text(&mesh, &dist, small, sizeof small) == small);
    assert_non_null(memchr(small, '\0', sizeof small));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),  cmocka_unit_test(test_shards_partition),
        cmocka_unit_test(test_mirrored), cmocka_unit_test(test_duals_and_masks),
        cmocka_unit_test(test_equality), cmocka_unit_test(test_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
