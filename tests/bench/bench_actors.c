/* Times actors: what an act costs beside what it does, within a lane, between lanes and between
 * ranks; and the data pipeline beside synthetic data (tests/support/data_pipeline.h). Where lanes
 * have no core each, or others use the machine, wall times say little; then CPU times tell what
 * acts cost, and what a pipeline comes to. Checks nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/machine.h"
#include "base/table.h"
#include "executor/actor/actor_check.h"
#include "executor/comm/comm.h"
#include "tests/support/data_pipeline.h"

enum { REPETITIONS = 7, ACTS = 100000 };

static double process_cpu_s(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- acts that do nothing ------------------------------------------------------------------- */

/* Actors in a row. */
struct row {
    const char *where;
    int actors, ranks, slots;
    bool lanes; /* each on a lane of its own */
};

static enum sbp_status nothing(void *context, const struct sbp_act *act, struct sbp_diag *diag)
{
    (void)context;
    (void)act;
    (void)diag;
    return SBP_OK;
}

static void draw_row(const struct row *row, struct sbp_actor_graph *graph, struct sbp_arena *arena)
{
    static const enum sbp_actor_lane lane[] = {SBP_LANE_COMPUTE, SBP_LANE_COPY_IN,
                                               SBP_LANE_COPY_OUT, SBP_LANE_PREPARE};
    int made = -1;
    sbp_actor_graph_init(graph, arena, row->ranks);
    for (int a = 0; a < row->actors; a++) {
        const int rank = a % row->ranks;
        const int actor =
            sbp_actor_add(graph, "actor", rank, row->lanes ? lane[a % 4] : SBP_LANE_COMPUTE, ACTS);
        if (a > 0 && row->ranks > 1)
            made = sbp_actor_add_pull(graph, made, rank, row->slots);
        if (a > 0)
            (void)sbp_actor_add_read(graph, actor, made, 1);
        made = sbp_actor_add_register(graph, actor, row->slots, 8);
    }
}

static enum sbp_status run_rank(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                void *argument, struct sbp_diag *diag)
{
    const struct sbp_actor_job job = {.graph = argument,
                                      .endpoint = {ops, comm},
                                      .memory = &sbp_device_host_memory,
                                      .action = nothing};
    return sbp_actor_run(&job, diag);
}

/* Seconds of wall and of CPU of all threads, per act; the least of a few runs each. */
static enum sbp_status time_row(const struct row *row, double *wall_s, double *cpu_s,
                                struct sbp_diag *diag)
{
    struct sbp_arena arena = {0};
    struct sbp_actor_graph graph;
    draw_row(row, &graph, &arena);
    enum sbp_status status = sbp_actor_check(&graph, diag);
    const double acts = (double)ACTS * row->actors;
    for (int i = 0; i < REPETITIONS && status == SBP_OK; i++) {
        const double start_s = sbp_clock_s(), start_cpu_s = process_cpu_s();
        status = sbp_threads_run(row->ranks, run_rank, &graph, diag);
        const double took_s = (sbp_clock_s() - start_s) / acts;
        const double took_cpu_s = (process_cpu_s() - start_cpu_s) / acts;
        *wall_s = i == 0 || took_s < *wall_s ? took_s : *wall_s;
        *cpu_s = i == 0 || took_cpu_s < *cpu_s ? took_cpu_s : *cpu_s;
    }
    sbp_arena_free(&arena);
    return status;
}

static enum sbp_status time_rows(struct sbp_diag *diag)
{
    static const char *const titles[] = {"actors in a row", "slots", "wall (us an act)",
                                         "CPU of all threads (us an act)"};
    static const struct row rows[] = {
        {"4 on one lane", 4, 1, 2, false},
        {"64 on one lane", 64, 1, 2, false},
        {"2 on two lanes", 2, 1, 2, true},
        {"2 on two lanes", 2, 1, 64, true},
        {"4 on four lanes", 4, 1, 64, true},
        {"2 on two ranks, a pull between", 2, 2, 2, false},
        {"2 on two ranks, a pull between", 2, 2, 64, false},
    };
    struct sbp_table table;
    enum sbp_status status = SBP_OK;
    sbp_table_init(&table, 4, titles);
    for (size_t i = 0; i < sizeof rows / sizeof *rows && status == SBP_OK; i++) {
        double wall_s = 0, cpu_s = 0;
        status = time_row(&rows[i], &wall_s, &cpu_s, diag);
        sbp_table_cell(&table, "%s", rows[i].where);
        sbp_table_cell(&table, "%d", rows[i].slots);
        sbp_table_cell(&table, "%.2f", wall_s * 1e6);
        sbp_table_cell(&table, "%.2f", cpu_s * 1e6);
    }
    if (status == SBP_OK) {
        printf("%d acts of each actor that do nothing, the least of %d\n", ACTS, REPETITIONS);
        status = sbp_table_print(&table, stdout, 2);
    }
    sbp_table_free(&table);
    return status;
}

/* ---- the data pipeline ---------------------------------------------------------------------- */

enum { SYNTHETIC, PIPELINE, IN_TURN, WAYS };

struct way {
    double wall_s[REPETITIONS]; /* a step */
    double least_spent_s[DATA_STAGES];
};

static enum sbp_status run_way(struct data_pipeline *pipeline, int way, struct sbp_diag *diag)
{
    if (way == SYNTHETIC)
        return data_pipeline_synthetic(pipeline, diag);
    return way == PIPELINE ? data_pipeline_run(pipeline, 2, diag)
                           : data_pipeline_in_turn(pipeline, diag);
}

/* The ways take turns, so that all see the same machine. */
static enum sbp_status time_ways(struct data_pipeline *pipeline, struct way *ways,
                                 struct sbp_diag *diag)
{
    const double steps = pipeline->shape.steps;
    for (int i = 0; i < REPETITIONS; i++)
        for (int w = 0; w < WAYS; w++) {
            data_pipeline_reset(pipeline);
            const double start_s = sbp_clock_s();
            SBP_TRY(run_way(pipeline, w, diag));
            ways[w].wall_s[i] = (sbp_clock_s() - start_s) / steps;
            for (int s = 0; s < DATA_STAGES; s++) {
                const double spent_s = pipeline->spent_s[s] / steps;
                double *least_s = &ways[w].least_spent_s[s];
                *least_s = i == 0 || spent_s < *least_s ? spent_s : *least_s;
            }
        }
    return SBP_OK;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(const double *values)
{
    double sorted[REPETITIONS];
    for (int i = 0; i < REPETITIONS; i++)
        sorted[i] = values[i];
    qsort(sorted, REPETITIONS, sizeof *sorted, compare);
    return sorted[REPETITIONS / 2];
}

/* The median of what each round's run took against the synthetic one of that round. */
static double median_ratio(const struct way *way, const struct way *synthetic)
{
    double ratio[REPETITIONS];
    for (int i = 0; i < REPETITIONS; i++)
        ratio[i] = way->wall_s[i] / synthetic->wall_s[i];
    return median_of(ratio);
}

/* A step where every lane has a core, by CPU times: the first batch passes all stages, then the
 * longest stage sets the pace. */
static double alone_s(int way, const struct way *ways, int steps)
{
    const double *spent_s = ways[way].least_spent_s;
    double sum_s = 0, longest_s = 0;
    for (int s = 0; s < DATA_STAGES; s++) {
        sum_s += spent_s[s];
        longest_s = spent_s[s] > longest_s ? spent_s[s] : longest_s;
    }
    if (way == SYNTHETIC)
        return spent_s[DATA_TRAIN];
    return way == PIPELINE ? (sum_s + (steps - 1) * longest_s) / steps : sum_s;
}

static enum sbp_status print_ways(const struct way *ways, int steps)
{
    static const char *const names[] = {"synthetic data", "pipeline of actors, 2 slots each",
                                        "one stage after the other"};
    static const char *const titles[] = {"way",          "read",        "prepare",
                                         "copy",         "train",       "wall (ms)",
                                         "of synthetic", "by CPU (ms)", "of synthetic"};
    struct sbp_table table;
    sbp_table_init(&table, 9, titles);
    for (int w = 0; w < WAYS; w++) {
        sbp_table_cell(&table, "%s", names[w]);
        for (int s = 0; s < DATA_STAGES; s++)
            sbp_table_cell(&table, "%.2f", ways[w].least_spent_s[s] * 1e3);
        sbp_table_cell(&table, "%.2f", median_of(ways[w].wall_s) * 1e3);
        sbp_table_cell(&table, "%.3f", median_ratio(&ways[w], &ways[SYNTHETIC]));
        sbp_table_cell(&table, "%.2f", alone_s(w, ways, steps) * 1e3);
        sbp_table_cell(&table, "%.3f", alone_s(w, ways, steps) / alone_s(SYNTHETIC, ways, steps));
    }
    const enum sbp_status status = sbp_table_print(&table, stdout, 2);
    sbp_table_free(&table);
    return status;
}

static enum sbp_status time_pipeline(struct sbp_diag *diag)
{
    static const struct data_shape shape = {.batch = 256, .features = 1024, .steps = 30};
    struct data_pipeline pipeline;
    static struct way ways[WAYS];
    struct sbp_machine machine;
    sbp_machine_find(SBP_CONTROL_GROUP, &machine);
    enum sbp_status status = data_pipeline_open(&pipeline, &shape, diag);
    if (status == SBP_OK)
        status = time_ways(&pipeline, ways, diag);
    data_pipeline_close(&pipeline);
    SBP_TRY(status);
    printf(
        "\ntraining from a file: %d steps of %d records of %d bytes, %d cores; CPU ms of each "
        "stage a step, the least of %d runs; wall time and its ratio, medians; and a step with a "
        "core a lane, by CPU times\n",
        shape.steps, shape.batch, shape.features, machine.cores, REPETITIONS);
    return print_ways(ways, shape.steps);
}

int main(void)
{
    struct sbp_diag diag = {{0}};
    enum sbp_status status = time_rows(&diag);
    if (status == SBP_OK)
        status = time_pipeline(&diag);
    if (status != SBP_OK)
        fprintf(stderr, "bench_actors: %s\n",
                diag.text[0] != '\0' ? diag.text : sbp_status_text(status));
    return sbp_status_exit_code(status);
}
