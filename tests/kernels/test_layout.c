/* Permutations against a naive index loop, fills against the generator element by element. */
#include "tests/kernels/check.h"

enum { MAX_DIMS = SBP_MOST_PERMUTED, MOST_ELEMENTS = 1 << 17 };

static void shuffle(struct check *check, int *order, int dims)
{
    for (int i = 0; i < dims; i++)
        order[i] = i;
    for (int i = dims - 1; i > 0; i--) {
        const int64_t j = check_integer(check, 0, i);
        const int kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
}

/* Where the source element of a row-major destination index lies. */
static int64_t source_index(int dims, const int64_t *shape, const int *order, int64_t index)
{
    int64_t digit[MAX_DIMS] = {0}, source = 0;
    for (int i = dims - 1; i >= 0; i--) {
        digit[order[i]] = index % shape[order[i]];
        index /= shape[order[i]];
    }
    for (int i = 0; i < dims; i++)
        source = source * shape[i] + digit[i];
    return source;
}

static void permute(struct check *check)
{
    const int dims = (int)check_integer(check, 0, check->round % 40 == 0 ? MAX_DIMS : 5);
    int64_t shape[MAX_DIMS], n = 1;
    int order[MAX_DIMS];
    for (int i = 0; i < dims; i++) {
        shape[i] = n == MOST_ELEMENTS ? 1 : check_integer(check, 1, dims > 5 ? 2 : 5);
        n *= shape[i];
    }
    shuffle(check, order, dims);
    double *src = check_zeros(check, n), *want = check_zeros(check, n);
    for (int64_t i = 0; i < n; i++)
        src[i] = (double)i;
    for (int64_t i = 0; i < n; i++)
        want[i] = src[source_index(dims, shape, order, i)];
    void *dst = check_blank(check, n);
    check->kernels->permute(dst, check_reals(check, src, n), dims, shape, order);
    check_equal(check, "dst", dst, want, n);
}

/* Rows apart in both places; what lies between them stays. */
static void copy_rows(struct check *check)
{
    const int64_t n = check_integer(check, 0, 40), rows = check_integer(check, 0, 9);
    const int64_t to_row = n + check_integer(check, 0, 5),
                  from_row = n + check_integer(check, 0, 5);
    const int64_t to_count = rows * to_row + 1, from_count = rows * from_row + 1;
    const double *src = check_whole(check, from_count), *held = check_whole(check, to_count);
    double *want = check_zeros(check, to_count);
    for (int64_t i = 0; i < to_count; i++) {
        const int64_t row = i / (to_row > 0 ? to_row : 1), at = i - row * to_row;
        want[i] = row < rows && at < n ? src[row * from_row + at] : held[i];
    }
    void *dst = check_reals(check, held, to_count);
    check->kernels->copy_rows(dst, to_row, check_reals(check, src, from_count), from_row, n, rows);
    check_equal(check, "rows", dst, want, to_count);
}

static void permute_identity(struct check *check)
{
    const int64_t shape[] = {2, 3, 1, 4}, empty[] = {2, 0, 3};
    const int order[] = {0, 1, 2, 3}, reversed[] = {2, 1, 0};
    const double *src = check_whole(check, 24);
    void *dst = check_blank(check, 24);
    check->kernels->permute(dst, check_reals(check, src, 24), 4, shape, order);
    check_equal(check, "identity", dst, src, 24);
    check->kernels->permute(dst, dst, 3, empty, reversed);
    check_equal(check, "nothing moved", dst, src, 24);
}

static struct sbp_region draw_region(struct check *check)
{
    struct sbp_region region = {.first = check_integer(check, 0, 2)};
    for (int i = 0; i < SBP_MAX_DIMS; i++) {
        const struct check_split split = check_split(check, check->round % 2 ? 3 : 1);
        region.dim[i] = check_rank_digits(&split, check_integer(check, 0, split.ranks - 1));
    }
    return region;
}

static void fill(struct check *check)
{
    const struct sbp_region region = draw_region(check);
    const int64_t n = sbp_region_elements(&region);
    const int64_t rows = region.first + sbp_digits_global_size(&region.dim[0]);
    const int64_t valid = check->round % 3 == 0 ? INT64_MAX : check_integer(check, 0, rows);
    const double spread = check->round % 4 == 0 ? 0 : 0.5;
    double *want = check_zeros(check, n);
    for (int64_t i = 0; i < n; i++) {
        const int64_t global = sbp_region_global(&region, i);
        int64_t row = global;
        for (int d = SBP_MAX_DIMS - 1; d > 0; d--)
            row /= sbp_digits_global_size(&region.dim[d]);
        const double normal = spread == 0 ? 0 : sbp_random_normal_at(5, 9, (uint64_t)global);
        want[i] = row < valid ? 0.25 + spread * normal : 0;
    }
    void *x = check_blank(check, n);
    check->kernels->fill_normal(x, &region, 0.25, spread, 5, 9, valid, NULL);
    check_near(check, "x", x, want, n, check_tolerance(check, 1e-7, 0));
}

static void test_tables(void **state)
{
    (void)state;
    const struct sbp_kernels *f32 = sbp_kernels_cpu(SBP_F32), *f64 = sbp_kernels_cpu(SBP_F64);
    assert_string_equal(f32->name, "cpu-f32");
    assert_string_equal(f64->name, "cpu-f64");
    assert_string_equal(sbp_kernels_cpu(SBP_REAL_BF16)->name, "cpu-bf16");
    assert_string_equal(sbp_kernels_cpu(SBP_REAL_FP16)->name, "cpu-f16");
    for (int real = 0; real < SBP_REALS; real++) {
        const struct sbp_kernels *k = sbp_kernels_cpu((enum sbp_real)real);
        assert_int_equal(k->real, real);
        assert_int_equal(k->real_bytes, sbp_real_bytes(k->real));
        assert_int_equal(k->wide_bytes, sbp_real_bytes(sbp_real_wide(k->real)));
    }
    assert_int_equal(f32->real_bytes, 4);
    assert_int_equal(f64->real_bytes, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECK_TABLES(permute, 200), CHECK_TABLES(permute_identity, 1), CHECK_TABLES(copy_rows, 100),
        CHECK_TABLES(fill, 60),     cmocka_unit_test(test_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
