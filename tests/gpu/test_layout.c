/* Permutations and initial values on the GPU: the CPU's, bit for bit. */
#include <string.h>

#include "tests/gpu/device.h"

static void shuffle(struct check *check, int *order, int dims)
{
    for (int i = 0; i < dims; i++) {
        const int to = (int)check_integer(check, 0, i);
        order[i] = order[to];
        order[to] = i;
    }
}

static void compare(struct device *d, int dims, const int64_t *shape, const int *order)
{
    struct check *check = d->check;
    int64_t n = 1;
    for (int i = 0; i < dims; i++)
        n *= shape[i];
    const void *from = device_reals(d, check_uniform(check, n), n);
    void *to = device_reals(d, NULL, n), *want = check_blank(check, n);
    check->kernels->permute(want, from, dims, shape, order);
    d->kernels.permute(&d->cuda, to, from, dims, shape, order);
    device_same(d, "permuted", to, want, n * check->kernels->real_bytes);
}

static void any_order(struct check *check)
{
    DEVICE_BEGIN(d, check)
    int64_t shape[7], n = 1;
    int order[7];
    const int dims = (int)check_integer(check, 0, 7);
    for (int i = 0; i < dims; i++) {
        shape[i] = check_integer(check, 0, 3) == 0 ? 8 : check_integer(check, 1, 5);
        n *= shape[i];
    }
    shuffle(check, order, dims);
    if (n <= 20000)
        compare(&d, dims, shape, order);
}

/* Transpositions, of planes or of pairs, with tiles that are cut. */
static void transposed(struct check *check)
{
    DEVICE_BEGIN(d, check)
    const int64_t shape[] = {check_integer(check, 1, 3), check_integer(check, 16, 70),
                             check_integer(check, 1, 2), check_integer(check, 16, 70)};
    static const int orders[][4] = {{0, 3, 2, 1}, {3, 0, 2, 1}, {2, 3, 0, 1}, {3, 2, 1, 0}};
    compare(&d, 4, shape, orders[check_integer(check, 0, 3)]);
}

/* Runs that stay together, as most of the boxing's: 16 bytes at a time. */
static void runs(struct check *check)
{
    DEVICE_BEGIN(d, check)
    const int64_t shape[] = {check_integer(check, 1, 5), check_integer(check, 1, 6),
                             check_integer(check, 1, 20) * (check_integer(check, 0, 1) ? 8 : 1)};
    static const int order[] = {1, 0, 2};
    compare(&d, 3, shape, order);
}

/* In units of 16 bytes where lengths and distances allow it; what lies between rows stays. */
static void rows(struct check *check)
{
    DEVICE_BEGIN(d, check)
    const int64_t unit = check_integer(check, 0, 1) ? 8 : 1, first = check_integer(check, 0, 3);
    const int64_t n = unit * check_integer(check, 0, 20), rows = check_integer(check, 0, 9);
    const int64_t to_row = n + unit * check_integer(check, 0, 3);
    const int64_t from_row = n + unit * check_integer(check, 0, 3);
    const int64_t to_count = rows * to_row + 1, from_count = rows * from_row + first + 1;
    const int64_t bytes = check->kernels->real_bytes;
    const double *held = check_uniform(check, to_count);
    const char *from = device_reals(&d, check_uniform(check, from_count), from_count);
    void *to = device_reals(&d, held, to_count), *want = check_reals(check, held, to_count);
    check->kernels->copy_rows(want, to_row, from + first * bytes, from_row, n, rows);
    d.kernels.copy_rows(&d.cuda, to, to_row, from + first * bytes, from_row, n, rows);
    device_same(&d, "rows", to, want, to_count * bytes);
}

static void fill_normal(struct check *check)
{
    DEVICE_BEGIN(d, check)
    struct sbp_step_state *const state = (void *)check_bytes(check, sizeof *state);
    const bool is_scaled = check_integer(check, 0, 2) == 0;
    struct sbp_region region = {.first = check_integer(check, 0, 3)};
    state->loss_scale = 8;
    for (int i = 0; i < SBP_MAX_DIMS; i++) {
        const struct check_split split = check_split(check, 4);
        region.dim[i] = check_rank_digits(&split, check_integer(check, 0, split.ranks - 1));
    }
    const int64_t n = sbp_region_elements(&region), rows = sbp_digits_global_size(&region.dim[0]);
    const double spread = check_integer(check, 0, 3) == 0 ? 0 : 0.02;
    const int64_t valid = check_integer(check, 0, region.first + rows + 1);
    void *to = device_reals(&d, NULL, n), *want = check_blank(check, n);
    if (n > 20000)
        return;
    d.kernels.fill_normal(&d.cuda, to, &region, 0.5, spread, check->seed, 7, valid,
                          is_scaled ? state : NULL);
    check->kernels->fill_normal(want, &region, 0.5, spread, check->seed, 7, valid,
                                is_scaled ? state : NULL);
    device_same(&d, "filled", to, want, n * check->kernels->real_bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECK_TABLES(any_order, 40), CHECK_TABLES(transposed, 20),  CHECK_TABLES(runs, 20),
        CHECK_TABLES(rows, 60),      CHECK_TABLES(fill_normal, 40),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
