/* Shipped device files against the measured products and attention that their tables were not made
 * of, where the data is there; and that no larger product takes less time. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "costmodel/cluster/cluster.h"
#include "tests/support/unit.h"

#define MOST_ROWS  40000
#define HUGE_FLOP  1e12 /* products as large as those of training */
#define LARGE_FLOP 1e11 /* of the few that sbplan timed itself */

/* Bounds of |predicted / measured - 1| of times on rows that the tables were not made of. */
struct errors {
    double bias, median, most; /* bias: the mean of huge products; most: at the 95th percentile */
};

static const struct device {
    const char *name;
    const char *products; /* of ../shared/data/kernels */
    struct errors product;
    const char *attention; /* NULL: not measured */
    struct errors attended;
} devices[] = {
    {"a100-sxm-80gb", "a100_sxm_bf16", {0.02, 0.055, 0.22}, "a100_sxm", {0.03, 0.04, 0.21}},
    {"h100-sxm", "h100_sxm_bf16", {0.02, 0.04, 0.15}, "h100_sxm_fa3", {0.03, 0.06, 0.23}},
    {"h200-sxm", "h200_sxm_bf16", {0.02, 0.04, 0.14}, "h200_sxm", {0.03, 0.03, 0.09}},
    {"b200-sxm", "b200_sxm_bf16", {0.02, 0.05, 0.16}, "b200_sxm", {0.03, 0.03, 0.11}},
    {"gb200", "gb200_bf16", {0.02, 0.05, 0.16}, NULL, {0, 0, 0}},
    {"l40s", "l40s_bf16", {0.02, 0.07, 0.29}, NULL, {0, 0, 0}},
};
#define DEVICES (int)(sizeof devices / sizeof *devices)

static const char *source_root(void)
{
    const char *root = getenv("SBP_SOURCE_ROOT");
    return root == NULL ? "." : root;
}

static void read_device(const char *name, struct sbp_arena *arena, struct sbp_cluster *cluster)
{
    struct sbp_diag diag = {{0}};
    struct sbp_json at;
    struct cJSON *tree;
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/configs/devices/%s.json", source_root(), name);
    if (sbp_json_open(path, &tree, &at, &diag) != SBP_OK ||
        sbp_cluster_read_device(&at, arena, cluster) != SBP_OK)
        fail_msg("%s", diag.text);
    for (int type = 0; type < SBP_TYPES; type++)
        cluster->rates.sustained[type] = 0; /* the rows are bursts, which no power limit slows */
    cJSON_Delete(tree);
}

/* --- time never falls --- */

/* At and between the grid's sizes, where each product doubles one size of another. */
static void test_larger_products_take_no_less(void **state)
{
    (void)state;
    for (int d = 0; d < DEVICES; d++) {
        struct sbp_arena arena = {0};
        struct sbp_cluster cluster;
        read_device(devices[d].name, &arena, &cluster);
        for (int i = 0; i < 15 * 15 * 15; i++) {
            struct sbp_device_product product = {.type = SBP_BF16,
                                                 .m = ldexp(3, i % 15),
                                                 .n = ldexp(3, i / 15 % 15),
                                                 .k = ldexp(3, i / 225)};
            const double one_s = sbp_cluster_product_s(&cluster, &product);
            double *const sizes[] = {&product.m, &product.n, &product.k};
            for (int axis = 0; axis < 3; axis++) {
                *sizes[axis] *= 2;
                const double two_s = sbp_cluster_product_s(&cluster, &product);
                if (two_s < one_s * (1 - 0.01)) /* shares have three digits */
                    fail_msg("%s: %g x %g x %g takes %g s, less than %g s", devices[d].name,
                             product.m, product.n, product.k, two_s, one_s);
                *sizes[axis] /= 2;
            }
        }
        sbp_arena_free(&arena);
    }
}

/* --- measured rows --- */

/* Whether a row went into a table: neighbours m and m + 1 go together. */
static bool is_used(int64_t a, int64_t b, int64_t c)
{
    const uint64_t first = (uint64_t)(a > 32 && a % 2 == 1 ? a - 1 : a);
    const uint64_t key = (first * 1000003 + (uint64_t)b) * 1000003 + (uint64_t)c;
    return key * UINT64_C(0x9E3779B97F4A7C15) >> 63 == 0;
}

struct found {
    int count, huge;
    double bias;   /* sum over huge ones */
    double *error; /* (count) */
};

static void add(struct found *found, double predicted_s, double measured_s, bool huge)
{
    if (found->count == MOST_ROWS)
        fail_msg("more than %d rows", MOST_ROWS);
    found->error[found->count++] = fabs(predicted_s / measured_s - 1);
    if (huge) {
        found->huge++;
        found->bias += predicted_s / measured_s - 1;
    }
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void expect_errors(const char *what, struct found *found, const struct errors *bound)
{
    if (found->count < 100 || found->huge < 20)
        fail_msg("%s: %d rows, %d huge", what, found->count, found->huge);
    qsort(found->error, (size_t)found->count, sizeof *found->error, by_size);
    const double median = found->error[found->count / 2];
    const double most = found->error[found->count * 95 / 100];
    const double bias = found->bias / found->huge;
    print_message("%s: %d rows not used, median error %.1f %%, 95th percentile %.1f %%, bias of "
                  "%d huge ones %+.1f %%\n",
                  what, found->count, 100 * median, 100 * most, found->huge, 100 * bias);
    if (fabs(bias) > bound->bias || median > bound->median || most > bound->most)
        fail_msg("%s: legal are median %g, 95th percentile %g, bias %g", what, bound->median,
                 bound->most, bound->bias);
}

static double least(double a, double b, double c)
{
    return fmin(a, fmin(b, c));
}

static void add_product(const struct sbp_cluster *cluster, const double *row, struct found *found)
{
    const struct sbp_device_product product = {
        .type = SBP_BF16, .m = row[0], .n = row[1], .k = row[2]};
    if (least(row[0], row[1], row[2]) < 128 ||
        is_used((int64_t)row[0], (int64_t)row[1], (int64_t)row[2]))
        return;
    add(found, sbp_cluster_product_s(cluster, &product), row[3] * 1e-3,
        2 * row[0] * row[1] * row[2] > HUGE_FLOP);
}

/* Rows: batch, sequence, heads, heads of keys, head size, milliseconds; causal. */
static void add_attention(const struct sbp_cluster *cluster, const double *row, struct found *found)
{
    const double rows = row[0] * row[1] * row[2];
    const struct sbp_device_attention attention = {SBP_BF16, SBP_PASS_FORWARD, row[4], row[1],
                                                   rows};
    const double flops = rows * (row[1] + 1) / 2 * (4 * row[4] + 6);
    if (rows < 16384 || row[1] < 1024 ||
        is_used((int64_t)rows, (int64_t)(row[1] * 131 + row[2]), (int64_t)(row[4] * 64 + row[3])))
        return;
    add(found, sbp_cluster_attention_s(cluster, &attention, flops, 0), row[5] * 1e-3, true);
}

/* False: the file is not there. */
static bool read_rows(const char *path, int columns, const struct sbp_cluster *cluster,
                      void (*add_row)(const struct sbp_cluster *, const double *, struct found *),
                      struct found *found)
{
    char line[256];
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return false;
    found->error = calloc(MOST_ROWS, sizeof *found->error);
    assert_non_null(found->error);
    assert_non_null(fgets(line, (int)sizeof line, file)); /* titles */
    while (fgets(line, (int)sizeof line, file) != NULL) {
        double row[6];
        char *at = line;
        for (int i = 0; i < columns; i++, at += *at == ',')
            row[i] = strtod(at, &at);
        add_row(cluster, row, found);
    }
    (void)fclose(file);
    return true;
}

static void check_rows(const struct device *device, bool products)
{
    struct sbp_arena arena = {0};
    struct sbp_cluster cluster;
    struct found found = {0};
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/../shared/data/kernels/aic_%s_%s%s.csv", source_root(),
                   products ? "gemm" : "attention_fwd",
                   products ? device->products : device->attention, products ? "" : "_bf16");
    read_device(device->name, &arena, &cluster);
    const bool there =
        read_rows(path, products ? 4 : 6, &cluster, products ? add_product : add_attention, &found);
    sbp_arena_free(&arena);
    if (!there) {
        print_message("skipped: %s is not there\n", path);
        skip();
        return;
    }
    expect_errors(device->name, &found, products ? &device->product : &device->attended);
    free(found.error);
}

static void test_products(void **state)
{
    (void)state;
    for (int d = 0; d < DEVICES; d++)
        check_rows(&devices[d], true);
}

/* Products that sbplan timed itself in all passes, on GPUs that no table was made of. */
static void add_own_product(const struct sbp_cluster *cluster, const double *row,
                            struct found *found)
{
    const struct sbp_device_product product = {
        .type = SBP_BF16, .m = row[0], .n = row[1], .k = row[2]};
    if (least(row[0], row[1], row[2]) >= 128)
        add(found, sbp_cluster_product_s(cluster, &product), row[3] * 1e-3,
            2 * row[0] * row[1] * row[2] > LARGE_FLOP);
}

static void check_own_products(const char *device, const char *rows, const struct errors *bound)
{
    struct sbp_arena arena = {0};
    struct sbp_cluster cluster;
    struct found found = {0};
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/results/%s", source_root(), rows);
    read_device(device, &arena, &cluster);
    assert_true(read_rows(path, 4, &cluster, add_own_product, &found));
    sbp_arena_free(&arena);
    expect_errors(rows, &found, bound);
    free(found.error);
}

static void test_own_products(void **state)
{
    (void)state;
    check_own_products("h100-sxm", "gpu-h100-products.csv", &(struct errors){0.05, 0.05, 0.2});
    check_own_products("h200-sxm", "gpu-h200-products.csv", &(struct errors){0.08, 0.07, 0.2});
}

static void test_attention(void **state)
{
    (void)state;
    for (int d = 0; d < DEVICES; d++)
        if (devices[d].attention != NULL)
            check_rows(&devices[d], false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_larger_products_take_no_less),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_own_products),
        cmocka_unit_test(test_attention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
