/* Meshes: axes, ranks, coordinates and groups against enumeration over random levels. */
#include <stdio.h>
#include <string.h>

#include "costmodel/cluster/mesh.h"
#include "tests/support/sbp_oracle.h"
#include "tests/support/seeded.h"
#include "tests/support/unit.h"

#define SEED UINT64_C(4201)

static void must_make(const struct sbp_cluster *cluster, struct sbp_mesh *mesh)
{
    struct sbp_diag diag = {{0}};
    if (sbp_mesh_make(cluster, mesh, &diag) != SBP_OK)
        fail_msg("a legal mesh was refused: %s", diag.text);
}

static struct sbp_mesh mesh_of(int levels, const int64_t *size)
{
    const struct sbp_cluster cluster = oracle_cluster(levels, size);
    struct sbp_mesh mesh;
    must_make(&cluster, &mesh);
    return mesh;
}

static bool prime(int64_t n)
{
    for (int64_t i = 2; i < n; i++)
        if (n % i == 0)
            return false;
    return n > 1;
}

/* --- axes --- */

static void check_axes(const struct sbp_cluster *cluster, const struct sbp_mesh *mesh)
{
    int64_t product[SBP_MAX_LEVELS] = {1, 1, 1, 1}, stride = 1;
    for (int i = mesh->axis_count - 1; i >= 0; i--) {
        const struct sbp_axis *axis = &mesh->axis[i];
        assert_true(prime(axis->size));
        assert_int_equal(axis->stride, stride);
        stride *= axis->size;
        assert_in_range(axis->level, 0, cluster->level_count - 1);
        product[axis->level] *= axis->size;
        if (i > 0) {
            const struct sbp_axis *outer = &mesh->axis[i - 1];
            assert_true(outer->level <= axis->level);
            if (outer->level == axis->level)
                assert_true(outer->size >= axis->size);
        }
    }
    assert_int_equal(mesh->devices, stride);
    assert_int_equal(mesh->level_count, cluster->level_count);
    for (int i = 0; i < cluster->level_count; i++)
        assert_int_equal(product[i], cluster->level[i].size);
}

static void check_families(const struct sbp_mesh *mesh)
{
    int next = 0;
    for (int f = 0; f < mesh->family_count; f++) {
        const struct sbp_family *family = &mesh->family[f];
        assert_int_equal(family->first, next);
        assert_true(family->count > 0);
        for (int i = family->first; i < family->first + family->count; i++) {
            assert_int_equal(mesh->axis[i].family, f);
            assert_int_equal(mesh->axis[i].level, family->level);
            assert_int_equal(mesh->axis[i].size, family->prime);
        }
        if (f > 0 && mesh->family[f - 1].level == family->level)
            assert_true(mesh->family[f - 1].prime > family->prime);
        next += family->count;
    }
    assert_int_equal(next, mesh->axis_count);
}

/* --- ranks and groups --- */

/* Members in the order of their ranks: the innermost axis fastest. */
static void check_group(const struct sbp_mesh *mesh, sbp_axes axes, int64_t rank)
{
    int64_t place = 0;
    for (int64_t other = 0; other < mesh->devices; other++) {
        if (!oracle_same_group(mesh, axes, rank, other))
            continue;
        if (sbp_mesh_group_rank(mesh, axes, rank, place) != other)
            fail_msg("axes %#x, rank %lld: member %lld is %lld, expected %lld", axes,
                     (long long)rank, (long long)place,
                     (long long)sbp_mesh_group_rank(mesh, axes, rank, place), (long long)other);
        if (sbp_mesh_group_place(mesh, axes, other) != place)
            fail_msg("axes %#x: place of %lld is %lld, expected %lld", axes, (long long)other,
                     (long long)sbp_mesh_group_place(mesh, axes, other), (long long)place);
        place++;
    }
    assert_int_equal(place, sbp_mesh_group_size(mesh, axes));
    assert_int_equal(place, oracle_product(mesh, axes));
}

static void check_coordinates(const struct sbp_mesh *mesh)
{
    for (int64_t rank = 0; rank < mesh->devices; rank++) {
        int64_t back = 0;
        for (int i = 0; i < mesh->axis_count; i++) {
            const int64_t coordinate = sbp_mesh_coordinate(mesh, rank, i);
            assert_int_equal(coordinate, oracle_coordinate(mesh, rank, i));
            back = back * mesh->axis[i].size + coordinate;
        }
        assert_int_equal(back, rank);
    }
}

static void test_random_levels(void **state)
{
    (void)state;
    struct sbp_random random = seeded(SEED);
    for (int round = 0; round < 200; round++) {
        int64_t size[SBP_MAX_LEVELS];
        const int levels = 1 + (int)oracle_below(&random, 3);
        for (int i = 0; i < levels; i++)
            size[i] = 1 + oracle_below(&random, levels == 1 ? 90 : 12);
        const struct sbp_cluster cluster = oracle_cluster(levels, size);
        struct sbp_mesh mesh;
        must_make(&cluster, &mesh);
        check_axes(&cluster, &mesh);
        check_families(&mesh);
        check_coordinates(&mesh);
        for (int i = 0; i < 4; i++)
            check_group(&mesh, (sbp_axes)oracle_below(&random, INT64_C(1) << mesh.axis_count),
                        oracle_below(&random, mesh.devices));
    }
}

static void test_by_hand(void **state)
{
    (void)state;
    const struct sbp_mesh mesh = mesh_of(2, (int64_t[]){2, 12});
    const int64_t size[] = {2, 3, 2, 2}, stride[] = {12, 4, 2, 1}, family[] = {0, 1, 2, 2};
    assert_int_equal(mesh.axis_count, 4);
    assert_int_equal(mesh.family_count, 3);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(mesh.axis[i].size, size[i]);
        assert_int_equal(mesh.axis[i].stride, stride[i]);
        assert_int_equal(mesh.axis[i].family, family[i]);
    }
    /* Rank 19 = 1*12 + 1*4 + 1*2 + 1; over the axes of 3 and the last 2: 14, 15, 18, 19, 22, 23. */
    const int64_t member[] = {14, 15, 18, 19, 22, 23};
    for (int i = 0; i < 6; i++)
        assert_int_equal(sbp_mesh_group_rank(&mesh, 0xa, 19, i), member[i]);
    assert_int_equal(sbp_mesh_group_place(&mesh, 0xa, 19), 3);
}

static void test_no_axes(void **state)
{
    (void)state;
    const struct sbp_mesh mesh = mesh_of(3, (int64_t[]){1, 1, 1});
    assert_int_equal(mesh.devices, 1);
    assert_int_equal(mesh.axis_count, 0);
    assert_int_equal(mesh.family_count, 0);
    assert_int_equal(sbp_mesh_group_size(&mesh, 0), 1);
    assert_int_equal(sbp_mesh_group_rank(&mesh, 0, 0, 0), 0);
    assert_int_equal(sbp_mesh_group_place(&mesh, 0, 0), 0);
}

/* --- bounds --- */

static void test_axis_bound(void **state)
{
    (void)state;
    const struct sbp_mesh mesh = mesh_of(1, (int64_t[]){INT64_C(1) << SBP_MAX_AXES});
    assert_int_equal(mesh.axis_count, SBP_MAX_AXES);
    assert_int_equal(mesh.devices, INT64_C(1) << SBP_MAX_AXES);
    assert_int_equal(sbp_mesh_group_size(&mesh, ~(sbp_axes)0), INT64_C(1) << SBP_MAX_AXES);

    const struct sbp_cluster cluster = oracle_cluster(2, (int64_t[]){INT64_C(1) << 31, 4});
    struct sbp_mesh refused;
    struct sbp_diag diag = {{0}};
    assert_int_equal(sbp_mesh_make(&cluster, &refused, &diag), SBP_E_INPUT);
    assert_true(diag.text[0] != '\0');
}

static void test_large_prime(void **state)
{
    (void)state;
    const struct sbp_mesh mesh = mesh_of(2, (int64_t[]){2, 104729});
    assert_int_equal(mesh.axis_count, 2);
    assert_int_equal(mesh.axis[1].size, 104729);
    assert_int_equal(mesh.axis[0].stride, 104729);
    assert_int_equal(sbp_mesh_coordinate(&mesh, 104729 + 77, 0), 1);
    assert_int_equal(sbp_mesh_coordinate(&mesh, 104729 + 77, 1), 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),     cmocka_unit_test(test_random_levels),
        cmocka_unit_test(test_no_axes),     cmocka_unit_test(test_axis_bound),
        cmocka_unit_test(test_large_prime),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
