/* Times products and element-wise kernels of this machine beside what cluster files predict.
 *
 *   bench_prices CLUSTER.json...
 *
 * Products are 120 random ones (40 of each pass; m of 64 to 16,384, n and k of 64 to 8,192, evenly
 * in logarithms, up to 8 GFLOP and 256 MiB a matrix), and those of the linear layers of GPT-2 small
 * of 64, 256 and 1,024 tokens, whole and split 4 ways. Products of experts are 60 random groups (20
 * of each pass; 2 to 16 experts, 8 to 512 tokens each, features of 64 to 3,072). All files are held
 * to the same times, so that two calibrations can be compared on a machine that others use, too.
 * Times are the thread's CPU time, the median of repeats with matrices that lie in memory, as
 * calibrations take them. Checks nothing. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/clock.h"
#include "base/json/json.h"
#include "base/math/random.h"
#include "base/math/stats.h"
#include "base/table.h"
#include "calib/measure/compute.h"
#include "costmodel/program/price.h"
#include "kernels/kernels.h"

enum { MOST_FILES = 8, MOST_ITEMS = 512, REPEATS = 7, RANDOM = 40, GROUPS = 20 };
#define MOST_FLOP  8e9
#define QUICK_FLOP 1e10                 /* larger products are repeated less */
#define SPAN_BYTES ((int64_t)256 << 20) /* that every matrix of a layer fits */
#define SEED       UINT64_C(20)
#define TOKENS     1024 /* of element-wise kernels: 4 sequences of 256 */
#define HIDDEN     768
#define VOCABULARY 50304

struct item {
    const char *group;
    const char *name; /* of a kernel; NULL: a product */
    struct sbp_cell cell;
    enum sbp_op_kind kind;
    double moved_bytes, row_bytes; /* of rows in another order; 0: none */
    double time_s, spread;         /* spread: half of what lies between quartiles, of the median */
};

struct file {
    const char *path;
    struct sbp_cluster cluster;
};

struct bench {
    struct sbp_arena arena;
    struct sbp_graph graph; /* of element-wise kernels */
    int item_count, file_count;
    struct item item[MOST_ITEMS];
    struct file file[MOST_FILES];
};

/* ---- what is timed -------------------------------------------------------------------------- */

static void add_product(struct bench *bench, const char *group, enum sbp_pass pass, int64_t tokens,
                        int64_t in, int64_t out)
{
    struct item *item = &bench->item[bench->item_count++];
    *item = (struct item){.group = group,
                          .cell = {.work = SBP_CELL_GEMM, .type = SBP_FP32, .pass = pass}};
    item->cell.m = pass == SBP_PASS_WEIGHT_GRADIENT ? in : tokens;
    item->cell.n = pass == SBP_PASS_INPUT_GRADIENT ? in : out;
    item->cell.k = pass == SBP_PASS_FORWARD ? in : pass == SBP_PASS_INPUT_GRADIENT ? out : tokens;
}

static int64_t draw(struct sbp_random *random, double least, double most)
{
    return (int64_t)(least * pow(most / least, sbp_random_unit(random)));
}

static void add_random(struct bench *bench)
{
    struct sbp_random random;
    sbp_random_seed(&random, SEED);
    for (int pass = 0; pass < SBP_PASSES; pass++)
        for (int drawn = 0; drawn < RANDOM;) {
            const int64_t m = draw(&random, 64, 16384), n = draw(&random, 64, 8192),
                          k = draw(&random, 64, 8192);
            const int64_t most = SPAN_BYTES / (int64_t)sizeof(float);
            if (2 * (double)m * (double)n * (double)k > MOST_FLOP || m * n > most || m * k > most ||
                n * k > most)
                continue;
            add_product(bench, "random", (enum sbp_pass)pass, 0, 0, 0);
            struct sbp_cell *cell = &bench->item[bench->item_count - 1].cell;
            cell->m = m;
            cell->n = n;
            cell->k = k;
            drawn++;
        }
}

/* Matrices of a group lie beside each other, as in a calibration. */
static void add_experts(struct bench *bench)
{
    struct sbp_random random;
    sbp_random_seed(&random, SEED + 1);
    for (int pass = 0; pass < SBP_PASSES; pass++)
        for (int drawn = 0; drawn < GROUPS;) {
            const int64_t experts = draw(&random, 2, 17), tokens = draw(&random, 8, 512),
                          in = draw(&random, 64, 3072), out = draw(&random, 64, 3072);
            const int64_t most = SPAN_BYTES / (int64_t)sizeof(float) / experts;
            if (2.0 * (double)experts * (double)tokens * (double)in * (double)out > MOST_FLOP ||
                in * out > most || tokens * in > most || tokens * out > most)
                continue;
            add_product(bench, "experts", (enum sbp_pass)pass, tokens, in, out);
            struct sbp_cell *cell = &bench->item[bench->item_count - 1].cell;
            cell->work = SBP_CELL_GROUPED;
            cell->experts = experts;
            drawn++;
        }
}

static void add_layers(struct bench *bench)
{
    static const struct {
        const char *group;
        int64_t in, out;
    } layers[] = {
        {"GPT-2", HIDDEN, 3 * HIDDEN},         {"GPT-2", HIDDEN, HIDDEN},
        {"GPT-2", HIDDEN, 4 * HIDDEN},         {"GPT-2", 4 * HIDDEN, HIDDEN},
        {"GPT-2", HIDDEN, VOCABULARY},         {"GPT-2 / 4", HIDDEN, 3 * HIDDEN / 4},
        {"GPT-2 / 4", HIDDEN / 4, HIDDEN},     {"GPT-2 / 4", HIDDEN, HIDDEN},
        {"GPT-2 / 4", HIDDEN, VOCABULARY / 4},
    };
    static const int64_t tokens[] = {64, 256, 1024};
    for (size_t l = 0; l < sizeof layers / sizeof *layers; l++)
        for (size_t t = 0; t < sizeof tokens / sizeof *tokens; t++)
            for (int pass = 0; pass < SBP_PASSES; pass++)
                add_product(bench, layers[l].group, (enum sbp_pass)pass, tokens[t], layers[l].in,
                            layers[l].out);
}

/* ---- times ---------------------------------------------------------------------------------- */

/* time_s (count) is sorted. */
static void sum_up(struct item *item, double *time_s, int count)
{
    item->time_s = sbp_median(time_s, count);
    item->spread = (time_s[count - 1 - count / 4] - time_s[count / 4]) / 2 / item->time_s;
}

static enum sbp_status time_products(struct bench *bench, struct sbp_diag *diag)
{
    struct sbp_compute *compute;
    double time_s[REPEATS];
    enum sbp_status status = sbp_compute_cpu.open(&compute, SPAN_BYTES, diag);
    for (int i = 0; i < bench->item_count && status == SBP_OK; i++) {
        struct item *item = &bench->item[i];
        const int repeats = sbp_cell_product_flops(&item->cell) > QUICK_FLOP ? 3 : REPEATS;
        for (int r = -1; r < repeats && status == SBP_OK; r++) /* the first warms up */
            status = sbp_compute_cpu.repeat(compute, &item->cell, &time_s[r < 0 ? 0 : r], diag);
        if (status == SBP_OK)
            sum_up(item, time_s, repeats);
    }
    if (status == SBP_OK || compute != NULL)
        sbp_compute_cpu.close(compute);
    return status;
}

/* Blocks of every kernel, at different places from one repeat to the next. */
struct blocks {
    float *x, *y, *dy, *sums, *small;
    uint8_t *mask;
    int32_t *labels;
    struct sbp_region region;
    struct sbp_digits vocabulary;
};

static void gelu_forward(const struct sbp_kernels *k, const struct blocks *b, int64_t at)
{
    k->gelu_forward(b->y + at, b->x + at, TOKENS * 4 * HIDDEN);
}

static void gelu_backward(const struct sbp_kernels *k, const struct blocks *b, int64_t at)
{
    k->gelu_backward(b->y + at, b->x + at, b->dy + at, TOKENS * 4 * HIDDEN);
}

static void add_forward(const struct sbp_kernels *k, const struct blocks *b, int64_t at)
{
    k->add(b->y + at, b->x + at, b->dy + at, TOKENS * HIDDEN);
}

static void dropout_forward(const struct sbp_kernels *k, const struct blocks *b, int64_t at)
{
    k->dropout_forward(b->y + at, b->mask + at, b->x + at, &b->region, 0.1, 1, 2);
}

static void dropout_backward(const struct sbp_kernels *k, const struct blocks *b, int64_t at)
{
    k->dropout_backward(b->y + at, b->mask + at, b->dy + at, TOKENS * HIDDEN, 0.1);
}

static void norm_forward(const struct sbp_kernels *k, const struct blocks *b, int64_t at)
{
    k->layernorm_sums(b->sums, b->x + at, TOKENS, HIDDEN);
    k->layernorm_forward(b->y + at, b->x + at, b->sums, b->small, b->small + HIDDEN, TOKENS, HIDDEN,
                         HIDDEN, 1e-5);
}

static void norm_backward(const struct sbp_kernels *k, const struct blocks *b, int64_t at)
{
    float *backward = b->small + (ptrdiff_t)4 * HIDDEN;
    k->layernorm_backward_sums(backward, b->dy + at, b->x + at, b->sums, b->small, TOKENS, HIDDEN,
                               HIDDEN, 1e-5);
    k->layernorm_backward(b->y + at, b->small + (ptrdiff_t)2 * HIDDEN,
                          b->small + (ptrdiff_t)3 * HIDDEN, b->dy + at, b->x + at, b->sums,
                          backward, b->small, TOKENS, HIDDEN, HIDDEN, 1e-5, false);
}

static void loss_forward(const struct sbp_kernels *k, const struct blocks *b, int64_t at)
{
    (void)at;
    k->cross_entropy_maxima(b->small, b->x, TOKENS, VOCABULARY, &b->vocabulary, VOCABULARY);
    k->cross_entropy_sums(b->sums, b->x, b->labels, b->small, TOKENS, VOCABULARY, &b->vocabulary,
                          VOCABULARY);
    k->cross_entropy_loss(b->small + TOKENS, b->sums, TOKENS);
}

static void loss_backward(const struct sbp_kernels *k, const struct blocks *b, int64_t at)
{
    (void)at;
    k->cross_entropy_backward(b->y, b->x, b->labels, b->small, b->sums, TOKENS, VOCABULARY,
                              &b->vocabulary, VOCABULARY, 1.0 / TOKENS, NULL);
}

static const struct kernel {
    const char *name;
    enum sbp_op_kind kind;
    enum sbp_pass pass;
    void (*run)(const struct sbp_kernels *, const struct blocks *, int64_t at);
} kernels[] = {
    {"gelu forward", SBP_OP_GELU, SBP_PASS_FORWARD, gelu_forward},
    {"gelu backward", SBP_OP_GELU, SBP_PASS_INPUT_GRADIENT, gelu_backward},
    {"dropout forward", SBP_OP_DROPOUT, SBP_PASS_FORWARD, dropout_forward},
    {"dropout backward", SBP_OP_DROPOUT, SBP_PASS_INPUT_GRADIENT, dropout_backward},
    {"add", SBP_OP_ADD, SBP_PASS_FORWARD, add_forward},
    {"layer norm forward", SBP_OP_LAYERNORM, SBP_PASS_FORWARD, norm_forward},
    {"layer norm backward", SBP_OP_LAYERNORM, SBP_PASS_INPUT_GRADIENT, norm_backward},
    {"cross-entropy forward", SBP_OP_CROSS_ENTROPY, SBP_PASS_FORWARD, loss_forward},
    {"cross-entropy backward", SBP_OP_CROSS_ENTROPY, SBP_PASS_INPUT_GRADIENT, loss_backward},
};

static bool make_blocks(struct sbp_arena *arena, struct blocks *blocks)
{
    const int64_t elements = (int64_t)TOKENS * VOCABULARY;
    float **const all[] = {&blocks->x, &blocks->y, &blocks->dy};
    struct sbp_random random;
    sbp_random_seed(&random, SEED);
    for (int i = 0; i < 3; i++) {
        *all[i] = SBP_NEW(arena, float, elements);
        for (int64_t j = 0; *all[i] != NULL && j < elements; j++)
            (*all[i])[j] = (float)(4 * sbp_random_unit(&random) - 2);
    }
    blocks->sums = SBP_NEW(arena, float, 2 * TOKENS);
    blocks->small = SBP_NEW(arena, float, 4 * HIDDEN + 2 * TOKENS);
    blocks->mask = SBP_NEW(arena, uint8_t, elements);
    blocks->labels = SBP_NEW(arena, int32_t, TOKENS);
    blocks->vocabulary = (struct sbp_digits){.rest = VOCABULARY};
    for (int i = 0; i < SBP_MAX_DIMS; i++)
        blocks->region.dim[i] = (struct sbp_digits){.rest = 1};
    blocks->region.dim[0].rest = TOKENS;
    blocks->region.dim[1].rest = HIDDEN;
    return blocks->x != NULL && blocks->y != NULL && blocks->dy != NULL && blocks->sums != NULL &&
           blocks->small != NULL && blocks->mask != NULL && blocks->labels != NULL;
}

/* Copies rows into another order, as the dispatch of tokens to experts does. */
static void time_rows(struct bench *bench, const struct blocks *blocks, const char *name,
                      int64_t width, int32_t *row)
{
    const int64_t rows = SPAN_BYTES / 4 / (int64_t)sizeof(float) / width;
    struct item *item = &bench->item[bench->item_count++];
    struct sbp_random random;
    double time_s[REPEATS];
    sbp_random_seed(&random, SEED);
    for (int64_t i = 0; i < rows; i++) { /* shuffled as it grows (Knuth, algorithm P) */
        const int64_t j = (int64_t)sbp_random_below(&random, (uint64_t)i + 1);
        row[i] = row[j];
        row[j] = (int32_t)i;
    }
    for (int r = -1; r < REPEATS; r++) {
        const double begin_s = sbp_thread_cpu_s();
        for (int64_t i = 0; i < rows; i++)
            memcpy(blocks->y + i * width, blocks->x + row[i] * width,
                   (size_t)width * sizeof *blocks->x);
        time_s[r < 0 ? 0 : r] = sbp_thread_cpu_s() - begin_s;
    }
    *item = (struct item){.group = "kernels",
                          .name = name,
                          .moved_bytes = 2 * (double)(rows * width) * sizeof *blocks->x,
                          .row_bytes = (double)width * sizeof *blocks->x};
    sum_up(item, time_s, REPEATS);
}

static enum sbp_status time_dispatch(struct bench *bench, const struct blocks *blocks,
                                     struct sbp_diag *diag)
{
    static const struct {
        const char *name;
        int64_t width;
    } dispatches[] = {{"rows of 256 in another order", 256},
                      {"rows of 768 in another order", 768},
                      {"rows of 4096 in another order", 4096}};
    int32_t *row = SBP_NEW(&bench->arena, int32_t, SPAN_BYTES / (4 * 4 * 256));
    if (row == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for an order of rows");
    for (size_t i = 0; i < sizeof dispatches / sizeof *dispatches; i++)
        time_rows(bench, blocks, dispatches[i].name, dispatches[i].width, row);
    return SBP_OK;
}

static enum sbp_status time_kernels(struct bench *bench, struct sbp_diag *diag)
{
    const struct sbp_kernels *table = sbp_kernels_cpu(SBP_F32);
    const int64_t step = (int64_t)TOKENS * 4 * HIDDEN;
    struct blocks blocks;
    double time_s[REPEATS];
    if (!make_blocks(&bench->arena, &blocks))
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for blocks of kernels");
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        struct item *item = &bench->item[bench->item_count++];
        *item = (struct item){.group = "kernels", .name = kernels[i].name, .kind = kernels[i].kind};
        item->cell.pass = kernels[i].pass;
        for (int r = -1; r < REPEATS; r++) {
            const double begin_s = sbp_thread_cpu_s();
            kernels[i].run(table, &blocks, step * (r + 1));
            time_s[r < 0 ? 0 : r] = sbp_thread_cpu_s() - begin_s;
        }
        sum_up(item, time_s, REPEATS);
    }
    return time_dispatch(bench, &blocks, diag);
}

/* ---- predictions ---------------------------------------------------------------------------- */

static double kernel_s(const struct bench *bench, const struct sbp_cluster *cluster,
                       const struct item *item)
{
    const struct sbp_element_bytes bytes = sbp_program_run_bytes(SBP_F32);
    const struct sbp_pricing pricing = sbp_price_setup(&bench->graph, cluster, &bytes);
    const struct sbp_factor whole = sbp_op_factor_one();
    for (int op = bench->graph.op_count - 1; op >= 0; op--)
        if (bench->graph.op[op].kind == item->kind)
            return sbp_price_pass_s(&pricing, op, &whole, item->cell.pass);
    return NAN;
}

static double predicted_s(const struct bench *bench, const struct sbp_cluster *cluster,
                          const struct item *item)
{
    const bool grouped = item->cell.work == SBP_CELL_GROUPED;
    const struct sbp_device_product product = {.type = SBP_FP32,
                                               .pass = item->cell.pass,
                                               .m = (double)item->cell.m,
                                               .n = (double)item->cell.n,
                                               .k = (double)item->cell.k,
                                               .grouped = grouped};
    if (item->moved_bytes > 0)
        return sbp_cluster_rows_s(cluster, item->moved_bytes, item->row_bytes) +
               cluster->kernel_launch_s;
    if (item->name != NULL)
        return kernel_s(bench, cluster, item);
    return (grouped ? (double)item->cell.experts : 1) *
           (sbp_cluster_product_s(cluster, &product) + cluster->kernel_launch_s);
}

static enum sbp_status open_json(const char *path,
                                 enum sbp_status (*read)(struct bench *, struct sbp_json *),
                                 struct bench *bench, struct sbp_diag *diag)
{
    struct cJSON *root = NULL;
    struct sbp_json at;
    SBP_TRY(sbp_json_open(path, &root, &at, diag));
    const enum sbp_status status = read(bench, &at);
    cJSON_Delete(root);
    return status;
}

static enum sbp_status read_graph(struct bench *bench, struct sbp_json *at)
{
    cJSON *model = (cJSON *)at->node;
    cJSON_SetNumberValue(cJSON_GetObjectItem(model, "sequence"), 256);
    cJSON_SetNumberValue(cJSON_GetObjectItem(model, "global_batch"), TOKENS / 256.0);
    return sbp_graph_read(at, &bench->graph);
}

static enum sbp_status read_file(struct bench *bench, struct sbp_json *at)
{
    return sbp_cluster_read(at, &bench->arena, &bench->file[bench->file_count++].cluster);
}

/* ---- tables --------------------------------------------------------------------------------- */

static void add_summary(struct sbp_table *table, const struct bench *bench, const char *group,
                        const struct file *file)
{
    double error[MOST_ITEMS], spread[MOST_ITEMS], sum = 0;
    int count = 0;
    for (int i = 0; i < bench->item_count; i++) {
        const struct item *item = &bench->item[i];
        if (strcmp(item->group, group) != 0)
            continue;
        const double off = predicted_s(bench, &file->cluster, item) / item->time_s - 1;
        sum += off;
        spread[count] = item->spread;
        error[count++] = fabs(off);
    }
    const double median = sbp_median(error, count); /* sorts */
    sbp_table_cell(table, "%s", group);
    sbp_table_cell(table, "%s", file->path);
    sbp_table_cell(table, "%d", count);
    sbp_table_cell(table, "%.1f %%", 100 * median);
    sbp_table_cell(table, "%.1f %%", 100 * error[count * 95 / 100]);
    sbp_table_cell(table, "%+.1f %%", 100 * sum / count);
    sbp_table_cell(table, "%.1f %%", 100 * sbp_median(spread, count));
}

static enum sbp_status print_summary(const struct bench *bench)
{
    static const char *const groups[] = {"random", "GPT-2", "GPT-2 / 4", "experts"};
    static const char *const titles[] = {"products",   "file",           "count", "median error",
                                         "95 % below", "mean with sign", "noise"};
    struct sbp_table table;
    sbp_table_init(&table, 7, titles);
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
        for (int f = 0; f < bench->file_count; f++)
            add_summary(&table, bench, groups[g], &bench->file[f]);
    const enum sbp_status status = sbp_table_print(&table, stdout, 0);
    sbp_table_free(&table);
    return status;
}

static enum sbp_status print_kernels(const struct bench *bench)
{
    const char *titles[MOST_FILES + 2] = {"kernel", "took (ms)"};
    struct sbp_table table;
    for (int f = 0; f < bench->file_count; f++)
        titles[f + 2] = bench->file[f].path;
    sbp_table_init(&table, bench->file_count + 2, titles);
    for (int i = 0; i < bench->item_count; i++) {
        const struct item *item = &bench->item[i];
        if (item->name == NULL)
            continue;
        sbp_table_cell(&table, "%s", item->name);
        sbp_table_cell(&table, "%.3f", item->time_s * 1e3);
        for (int f = 0; f < bench->file_count; f++)
            sbp_table_cell(
                &table, "%+.0f %%",
                100 * (predicted_s(bench, &bench->file[f].cluster, item) / item->time_s - 1));
    }
    const enum sbp_status status = sbp_table_print(&table, stdout, 0);
    sbp_table_free(&table);
    return status;
}

static enum sbp_status run(struct bench *bench, struct sbp_diag *diag)
{
    add_random(bench);
    add_layers(bench);
    add_experts(bench);
    SBP_TRY(time_products(bench, diag));
    SBP_TRY(time_kernels(bench, diag));
    SBP_TRY(print_summary(bench));
    printf("\n");
    return print_kernels(bench);
}

int main(int argc, char **argv)
{
    static struct bench bench;
    struct sbp_diag diag = {{0}};
    enum sbp_status status = SBP_OK;
    if (argc < 2 || argc - 1 > MOST_FILES) {
        (void)fprintf(stderr, "usage: bench_prices CLUSTER.json... (1 to %d)\n", MOST_FILES);
        return 2;
    }
    for (int f = 0; f < argc - 1 && status == SBP_OK; f++) {
        bench.file[f].path = argv[f + 1];
        status = open_json(argv[f + 1], read_file, &bench, &diag);
    }
    if (status == SBP_OK)
        status =
            open_json(SBP_SOURCE_ROOT "/configs/models/gpt2-small.json", read_graph, &bench, &diag);
    if (status == SBP_OK)
        status = run(&bench, &diag);
    sbp_graph_free(&bench.graph);
    sbp_arena_free(&bench.arena);
    if (status != SBP_OK)
        (void)fprintf(stderr, "bench_prices: %s\n",
                      diag.text[0] != '\0' ? diag.text : sbp_status_text(status));
    return sbp_status_exit_code(status);
}
