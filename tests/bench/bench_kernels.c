/* Times a training step of GPT-2 small on one rank, operator by operator, beside its matrix
 * products alone: the same products in the same step, one before and one after the operator in
 * turn, so that both see the same machine. Times are the thread's CPU times, the least of a few
 * steps for every instruction. Then the time that initial weights take. Checks nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/clock.h"
#include "base/json/json.h"
#include "base/table.h"
#include "executor/rank/rank.h"

enum { STEPS = 4, SEQUENCE = 256, BATCH = 2, MOST_ROWS = 64 };

/* ---- the model on one rank ------------------------------------------------------------------ */

struct setting {
    struct sbp_arena arena;
    struct sbp_cluster cluster;
    struct sbp_mesh mesh;
    struct sbp_graph graph;
    struct sbp_strategy strategy;
    struct sbp_program program;
    struct sbp_stage_layout layout;
    struct sbp_rank rank;
    float *product; /* that nobody reads */
};

static enum sbp_status read_graph(struct sbp_graph *graph, struct sbp_diag *diag)
{
    struct cJSON *root = NULL;
    struct sbp_json at;
    SBP_TRY(sbp_json_open(SBP_SOURCE_ROOT "/configs/models/gpt2-small.json", &root, &at, diag));
    cJSON_SetNumberValue(cJSON_GetObjectItem(root, "sequence"), SEQUENCE);
    cJSON_SetNumberValue(cJSON_GetObjectItem(root, "global_batch"), BATCH);
    const enum sbp_status status = sbp_graph_read(&at, graph);
    cJSON_Delete(root);
    return status;
}

static enum sbp_status read_cluster(struct setting *s, struct sbp_diag *diag)
{
    struct cJSON *root = NULL;
    struct sbp_json at;
    SBP_TRY(sbp_json_open(SBP_SOURCE_ROOT "/configs/clusters/laptop-4.json", &root, &at, diag));
    const enum sbp_status status = sbp_cluster_read(&at, &s->arena, &s->cluster);
    cJSON_Delete(root);
    return status == SBP_OK ? sbp_cluster_shrink(&s->cluster, 1, diag) : status;
}

static enum sbp_status open_setting(struct setting *s, struct sbp_diag *diag)
{
    const struct sbp_element_bytes bytes = sbp_program_run_bytes(SBP_F32);
    const struct sbp_device_ops *device = sbp_device("cpu", diag);
    SBP_TRY(read_cluster(s, diag));
    SBP_TRY(sbp_mesh_make(&s->cluster, &s->mesh, diag));
    SBP_TRY(read_graph(&s->graph, diag));
    SBP_TRY(sbp_strategy_alloc(&s->graph, &s->arena, &s->strategy));
    SBP_TRY(sbp_strategy_close(&s->graph, &s->mesh, &s->strategy, diag));
    SBP_TRY(sbp_program_make(&s->graph, &s->cluster, &s->mesh, &s->strategy, &bytes, &s->program,
                             diag));
    SBP_TRY(sbp_stage_layout_alone(&s->program, &s->arena, &s->layout, diag));
    SBP_TRY(sbp_rank_open(&s->rank, &s->layout, device, SBP_F32, 0, 0, NULL, diag));
    int64_t most = 1;
    for (int i = 0; i < s->program.buffer_count; i++)
        if (s->program.buffer[i].elements > most)
            most = s->program.buffer[i].elements;
    s->product = calloc((size_t)most, sizeof *s->product);
    return s->product != NULL ? SBP_OK : SBP_E_MEMORY;
}

static void close_setting(struct setting *s)
{
    free(s->product);
    sbp_rank_close(&s->rank);
    sbp_program_free(&s->program);
    sbp_graph_free(&s->graph);
    sbp_arena_free(&s->arena);
}

/* ---- matrix products alone ------------------------------------------------------------------ */

static struct sbp_gemm_factor plain(const void *at)
{
    return (struct sbp_gemm_factor){at, false};
}

static struct sbp_gemm_factor transposed(const void *at)
{
    return (struct sbp_gemm_factor){at, true};
}

static const void *operand(struct setting *s, const struct sbp_instr *instr, int place)
{
    return sbp_rank_buffer(&s->rank, instr->buffer[place]);
}

static void multiply(struct setting *s, struct sbp_gemm_factor a, struct sbp_gemm_factor b,
                     int64_t m, int64_t n, int64_t k)
{
    sbp_kernels_cpu_gemm(SBP_F32, s->product, a, b, m, n, k);
}

static void linear_products(struct setting *s, const struct sbp_instr *instr)
{
    const bool forward = instr->kind == SBP_INSTR_FORWARD;
    const bool weight = !forward && instr->phase == 1;
    const bool turned = s->graph.op[instr->op].transposed_weight;
    const int in = forward || weight ? SBP_AT_IN : SBP_AT_OUT;
    const int out = forward ? SBP_AT_OUT : SBP_AT_DY;
    const int64_t t = sbp_rank_tokens(&s->rank, instr, out);
    const int64_t i = sbp_rank_features(&s->rank, instr, in);
    const int64_t o = sbp_rank_features(&s->rank, instr, out);
    const void *w = operand(s, instr, SBP_AT_W), *x = operand(s, instr, SBP_AT_IN);
    const void *dy = operand(s, instr, SBP_AT_DY);
    if (forward)
        multiply(s, plain(x), turned ? transposed(w) : plain(w), t, o, i);
    else if (!weight)
        multiply(s, plain(dy), turned ? plain(w) : transposed(w), t, i, o);
    else if (turned)
        multiply(s, transposed(dy), plain(x), o, i, t);
    else
        multiply(s, transposed(x), plain(dy), i, o, t);
}

/* A head's products, tile by tile; they read anywhere in what the operator reads. */
static void attention_products(struct setting *s, const struct sbp_instr *instr)
{
    const int64_t d = s->graph.tensor[s->graph.op[instr->op].output].shape.size[SBP_DIM_INNER];
    const int64_t heads = sbp_rank_tokens(&s->rank, instr, SBP_AT_IN) / SEQUENCE *
                          sbp_rank_features(&s->rank, instr, SBP_AT_IN) / (3 * d);
    const float *x = operand(s, instr, SBP_AT_IN), *p = operand(s, instr, SBP_AT_SAVED);
    for (int64_t i = 0; i < heads * SEQUENCE; i += SBP_ATTENTION_TILE) {
        const int64_t rows = SBP_ATTENTION_TILE, columns = i % SEQUENCE + rows;
        const float *q = x + i * d, *k = x + (i - i % SEQUENCE) * d, *tile = p + i * SEQUENCE;
        if (instr->kind == SBP_INSTR_FORWARD) {
            multiply(s, plain(q), transposed(k), rows, columns, d);
            multiply(s, plain(tile), plain(k), rows, d, columns);
            continue;
        }
        multiply(s, transposed(tile), plain(q), columns, d, rows);
        multiply(s, plain(q), transposed(k), rows, columns, d);
        multiply(s, plain(tile), plain(k), rows, d, columns);
        multiply(s, transposed(tile), plain(q), columns, d, rows);
    }
}

static bool is_operator(const struct sbp_instr *instr)
{
    return instr->kind == SBP_INSTR_FORWARD || instr->kind == SBP_INSTR_BACKWARD;
}

static enum sbp_op_kind kind_of(const struct setting *s, const struct sbp_instr *instr)
{
    return s->graph.op[instr->op].kind;
}

static void products(struct setting *s, const struct sbp_instr *instr)
{
    if (!is_operator(instr))
        return;
    if (kind_of(s, instr) == SBP_OP_LINEAR)
        linear_products(s, instr);
    if (kind_of(s, instr) == SBP_OP_ATTENTION)
        attention_products(s, instr);
}

/* ---- times ---------------------------------------------------------------------------------- */

struct times {
    double run_s, products_s;
};

static double least(double a, double b)
{
    return a < b ? a : b;
}

static double time_products(struct setting *s, const struct sbp_instr *instr)
{
    const double begin_s = sbp_thread_cpu_s();
    products(s, instr);
    return sbp_thread_cpu_s() - begin_s;
}

static enum sbp_status time_step(struct setting *s, int step, struct times *times,
                                 struct sbp_diag *diag)
{
    sbp_rank_begin_step(&s->rank, step + 1);
    SBP_TRY(sbp_rank_begin_micro_batch(&s->rank, 0, diag));
    for (int i = 0; i < s->program.instr_count; i++) {
        const struct sbp_instr *instr = &s->program.instr[i];
        double products_s = step % 2 == 0 ? time_products(s, instr) : 0;
        const double begin_s = sbp_thread_cpu_s();
        SBP_TRY(sbp_rank_execute(&s->rank, instr, diag));
        const double run_s = sbp_thread_cpu_s() - begin_s;
        if (step % 2 != 0)
            products_s = time_products(s, instr);
        times[i].run_s = step == 0 ? run_s : least(times[i].run_s, run_s);
        times[i].products_s = step == 0 ? products_s : least(times[i].products_s, products_s);
    }
    return SBP_OK;
}

/* A row of the table: all instructions of one name. */
struct row {
    char name[64];
    struct times times;
};

static void name_instr(const struct setting *s, const struct sbp_instr *instr, char *name,
                       size_t bytes)
{
    if (is_operator(instr))
        (void)snprintf(name, bytes, "%s %s", sbp_op(kind_of(s, instr))->name,
                       sbp_program_instr_name(instr->kind));
    else
        (void)snprintf(name, bytes, "%s", sbp_program_instr_name(instr->kind));
}

static int sum_rows(const struct setting *s, const struct times *times, struct row *rows)
{
    int count = 1;
    rows[0] = (struct row){.name = "step"};
    for (int i = 0; i < s->program.instr_count; i++) {
        struct row row = {.times = times[i]};
        name_instr(s, &s->program.instr[i], row.name, sizeof row.name);
        int at = 1;
        while (at < count && strcmp(rows[at].name, row.name) != 0)
            at++;
        if (at == MOST_ROWS)
            continue;
        if (at == count)
            rows[count++] = (struct row){0};
        memcpy(rows[at].name, row.name, sizeof row.name);
        for (int sum = 0; sum <= at; sum += at) {
            rows[sum].times.run_s += row.times.run_s;
            rows[sum].times.products_s += row.times.products_s;
        }
    }
    return count;
}

static int by_time(const void *left, const void *right)
{
    const struct row *a = left, *b = right;
    return (a->times.run_s < b->times.run_s) - (a->times.run_s > b->times.run_s);
}

static enum sbp_status print_rows(struct row *rows, int count)
{
    static const char *const titles[] = {"instructions", "run (ms)", "products alone", "beside",
                                         "ratio"};
    struct sbp_table table;
    sbp_table_init(&table, 5, titles);
    qsort(rows, (size_t)count, sizeof *rows, by_time);
    for (int i = 0; i < count; i++) {
        const struct times *t = &rows[i].times;
        sbp_table_cell(&table, "%s", rows[i].name);
        sbp_table_cell(&table, "%.1f", t->run_s * 1e3);
        sbp_table_cell(&table, "%.1f", t->products_s * 1e3);
        sbp_table_cell(&table, "%.1f", (t->run_s - t->products_s) * 1e3);
        if (t->products_s > 1e-6 * t->run_s && t->products_s > 1e-3)
            sbp_table_cell(&table, "%.3f", t->run_s / t->products_s);
        else
            sbp_table_cell(&table, "-");
    }
    const enum sbp_status status = sbp_table_print(&table, stdout, 2);
    sbp_table_free(&table);
    return status;
}

static enum sbp_status time_weights(struct setting *s)
{
    double best_s = 0;
    for (int i = 0; i < 3; i++) {
        const double begin_s = sbp_thread_cpu_s();
        sbp_rank_fill_weights(&s->rank);
        const double took_s = sbp_thread_cpu_s() - begin_s;
        best_s = i == 0 ? took_s : least(best_s, took_s);
    }
    return printf("initial values of %.1f million weights: %.2f s\n",
                  (double)s->program.parameters * 1e-6, best_s) < 0
               ? SBP_E_IO
               : SBP_OK;
}

static enum sbp_status time_all(struct setting *s, struct sbp_diag *diag)
{
    static struct row rows[MOST_ROWS];
    SBP_TRY(time_weights(s));
    struct times *times = SBP_NEW(&s->arena, struct times, s->program.instr_count);
    if (times == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for times");
    for (int step = 0; step < STEPS; step++)
        SBP_TRY(time_step(s, step, times, diag));
    printf("GPT-2 small, sequence %d, batch %d, one rank: thread CPU time of a step\n", SEQUENCE,
           BATCH);
    return print_rows(rows, sum_rows(s, times, rows));
}

int main(void)
{
    static struct setting setting;
    struct sbp_diag diag = {{0}};
    enum sbp_status status = open_setting(&setting, &diag);
    if (status == SBP_OK)
        status = time_all(&setting, &diag);
    close_setting(&setting);
    if (status != SBP_OK)
        (void)fprintf(stderr, "bench_kernels: %s\n",
                      diag.text[0] != '\0' ? diag.text : sbp_status_text(status));
    return sbp_status_exit_code(status);
}
