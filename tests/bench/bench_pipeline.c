/* Runs pipelines on threads and holds them to the simulator: bubble, exposed messages and
 * micro-batches in flight of the replayed step, beside the timeline of the plan's prices. Each task
 * counts with the least thread CPU time of a few steps, which others on the machine disturb least;
 * all prices of arithmetic are scaled by the one factor that equals those of a first run. The
 * network is slow, so that messages have something to hide behind. Micro-batches in flight are
 * those of the run; under message-driven, where arrivals between ranks that share cores are no
 * parallel machine's, those of the replay. Fails where a share is over 10 % off. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/json/json.h"
#include "base/table.h"
#include "costmodel/program/cut.h"
#include "kernels/kernels.h"
#include "tests/bench/least.h"

enum { RUNS = 6, MOST_STAGES = 4 };
static const double MOST_OFF = 0.10;

static const char MODEL[] =
    "{\"name\": \"gpt\", \"architecture\": \"gpt\", \"layers\": 8, \"hidden\": 128, \"heads\": 4, "
    "\"sequence\": 32, \"vocab\": 1024, \"global_batch\": 16, \"precision\": \"fp32\", "
    "\"tied\": false}";

static const char CLUSTER[] =
    "{\"name\": \"slow network\", \"levels\": [{\"name\": \"rank\", \"size\": %d, \"alpha_s\": "
    "1e-4, \"beta_s_per_byte\": 4e-9, \"ports\": 1}], \"device\": {\"memory_bytes\": 4294967296, "
    "\"flops\": {\"fp32\": %.17g, \"fp64\": %.17g}, \"memory_bytes_per_s\": %.17g}}";

struct setting {
    struct sbp_arena arena;
    struct sbp_graph model;
    struct sbp_cluster cluster;
    struct sbp_cut cut;
    struct sbp_strategy strategy;
    struct sbp_step step;
};

/* ---- a plan of one device a stage ----------------------------------------------------------- */

static enum sbp_status read_model(struct sbp_graph *model, struct sbp_diag *diag)
{
    struct cJSON *root = NULL;
    struct sbp_json at;
    SBP_TRY(sbp_json_parse(MODEL, "model", &root, &at, diag));
    const enum sbp_status status = sbp_graph_read(&at, model);
    cJSON_Delete(root);
    return status;
}

/* speed: of the arithmetic, against round numbers. */
static enum sbp_status read_cluster(struct setting *s, int stages, double speed,
                                    struct sbp_diag *diag)
{
    struct cJSON *root = NULL;
    struct sbp_json at;
    char text[sizeof CLUSTER + 128];
    (void)snprintf(text, sizeof text, CLUSTER, stages, 5e10 * speed, 2.5e10 * speed, 1e10 * speed);
    SBP_TRY(sbp_json_parse(text, "cluster", &root, &at, diag));
    const enum sbp_status status = sbp_cluster_read(&at, &s->arena, &s->cluster);
    cJSON_Delete(root);
    return status;
}

static enum sbp_status open_setting(struct setting *s, int stages, enum sbp_schedule schedule,
                                    int64_t micro_batch, double speed, struct sbp_diag *diag)
{
    const struct sbp_element_bytes bytes = sbp_program_run_bytes(SBP_F32);
    *s = (struct setting){0};
    SBP_TRY(read_model(&s->model, diag));
    SBP_TRY(read_cluster(s, stages, speed, diag));
    struct sbp_parallel parallel = sbp_parallel_default(&s->model);
    parallel.pipeline = stages;
    parallel.schedule = schedule;
    parallel.chunks = schedule == SBP_INTERLEAVED ? 2 : 1;
    parallel.micro_batch = micro_batch;
    parallel.stage_cut = SBP_CUT_FLOPS;
    SBP_TRY(sbp_cut_make(&s->model, &s->cluster, &parallel, &s->arena, &s->cut, diag));
    SBP_TRY(sbp_strategy_alloc(&s->cut.graph, &s->arena, &s->strategy));
    SBP_TRY(sbp_strategy_close(&s->cut.graph, &s->cut.mesh, &s->strategy, diag));
    const struct sbp_step_request request = {.graph = &s->cut.graph,
                                             .cluster = &s->cluster,
                                             .parallel = &s->cut.parallel,
                                             .strategy = &s->strategy,
                                             .bytes = &bytes,
                                             .runs = true};
    return sbp_step_make(&request, &s->step, diag);
}

static void close_setting(struct setting *s)
{
    sbp_step_free(&s->step);
    sbp_graph_free(&s->model);
    sbp_arena_free(&s->arena);
}

/* ---- what a run measured -------------------------------------------------------------------- */

struct figures {
    double compute_s; /* of all stages */
    double step_s, exposed_s, bubble_s;
    int in_flight[MOST_STAGES];
};

/* Whether a work is the last to need its micro-batch. */
static bool is_last(const struct setting *s, const struct sbp_task *task)
{
    return task->work ==
           (s->step.parallel.schedule == SBP_ZERO_BUBBLE ? SBP_WORK_WEIGHT : SBP_WORK_BACKWARD);
}

static bool is_send(const struct setting *s, int stage, const struct sbp_task *task)
{
    return sbp_task_instr(&s->step, stage, task)->kind == SBP_INSTR_SEND;
}

/* Most micro-batches, of a chunk each, between the begin of their forward work and the end of their
 * last one; what it sends is under way by itself. */
static int count_in_flight(const struct setting *s, int stage, const struct sbp_tasks *tasks,
                           const double *begin_s, const double *end_s)
{
    int most = 0;
    for (int64_t at = 0; at < tasks->count; at++) {
        int now = 0;
        for (int64_t i = 0; i < tasks->count; i++) {
            const struct sbp_task *task = &tasks->task[i];
            now += task->begins && task->work == SBP_WORK_FORWARD && begin_s[i] <= begin_s[at];
            now -= task->ends && is_last(s, task) &&
                   (is_send(s, stage, task) ? begin_s[i] : end_s[i]) <= begin_s[at];
        }
        most = now > most ? now : most;
    }
    return most;
}

static enum sbp_status count_of_run(const struct setting *s, int stage,
                                    const struct sbp_tasks *tasks,
                                    const struct sbp_run_interval *interval, int *in_flight)
{
    double *const begin_s = calloc((size_t)tasks->count * 2 + 1, sizeof *begin_s);
    if (begin_s == NULL)
        return SBP_E_MEMORY;
    for (int64_t i = 0; i < tasks->count; i++) {
        begin_s[i] = interval[i].start_s;
        begin_s[tasks->count + i] = interval[i].start_s + interval[i].wall_s;
    }
    *in_flight = count_in_flight(s, stage, tasks, begin_s, begin_s + tasks->count);
    free(begin_s);
    return SBP_OK;
}

static enum sbp_status run_once(const struct setting *s, struct least *least,
                                struct figures *figures, struct sbp_diag *diag)
{
    struct sbp_run_result run;
    enum sbp_status status = SBP_OK;
    SBP_TRY(least_run(&s->step, &s->cluster, least, &run, diag));
    for (int stage = 0; stage < s->step.stages && status == SBP_OK; stage++)
        status = count_of_run(s, stage, &run.tasks[stage], run.intervals + stage * run.most_tasks,
                              &figures->in_flight[stage]);
    sbp_run_free(&run);
    return status;
}

static enum sbp_status measure(struct setting *s, struct figures *figures, struct sbp_diag *diag)
{
    struct least least;
    struct sbp_run_prediction replay;
    *figures = (struct figures){0};
    SBP_TRY(least_open(&s->step, &s->arena, &least, diag));
    for (int run = 0; run < RUNS; run++)
        SBP_TRY(run_once(s, &least, figures, diag));
    SBP_TRY(sbp_run_replay(&s->step, least.tasks, least.compute_s, &s->arena, &replay, diag));
    figures->compute_s = least_sum(&s->step, &least);
    figures->step_s = replay.step_s;
    figures->exposed_s = replay.exposed_s;
    figures->bubble_s = replay.bubble_s;
    for (int stage = 0; stage < s->step.stages; stage++)
        if (s->step.parallel.schedule == SBP_MESSAGE_DRIVEN)
            figures->in_flight[stage] =
                count_in_flight(s, stage, &least.tasks[stage], replay.play.begin_s[stage],
                                replay.play.end_s[stage]);
    return SBP_OK;
}

static struct figures predict(const struct setting *s)
{
    const struct sbp_step_totals *totals = &s->step.totals;
    struct figures figures = {.compute_s =
                                  s->step.stages * (totals->compute_s + totals->optimizer_s),
                              .step_s = totals->step_s,
                              .exposed_s = totals->exposed_s,
                              .bubble_s = totals->bubble_s};
    for (int stage = 0; stage < s->step.stages; stage++)
        figures.in_flight[stage] = s->step.timeline.device[stage].in_flight;
    return figures;
}

/* ---- the table ------------------------------------------------------------------------------ */

/* Adds a share of the step as simulated and as replayed; whether they are near. */
static bool add_share(struct sbp_table *table, double simulated, double replayed)
{
    sbp_table_cell(table, "%.1f %%", 100 * simulated);
    sbp_table_cell(table, "%.1f %%", 100 * replayed);
    sbp_table_cell(table, "%+.1f %%", 100 * (replayed / simulated - 1));
    return fabs(replayed / simulated - 1) <= MOST_OFF;
}

static bool add_row(struct sbp_table *table, const struct setting *s, const struct figures *plan,
                    const struct figures *run)
{
    const double messages_s = s->step.totals.communication_s;
    bool near = true;
    sbp_table_cell(table, "%s", sbp_timeline_schedule_name(s->step.parallel.schedule));
    sbp_table_cell(table, "%d", s->step.stages);
    sbp_table_cell(table, "%lld", (long long)s->step.micro_batches);
    near &= add_share(table, plan->bubble_s / plan->step_s, run->bubble_s / run->step_s);
    near &= add_share(table, plan->exposed_s / messages_s, run->exposed_s / messages_s);
    const bool equal = memcmp(plan->in_flight, run->in_flight, sizeof plan->in_flight) == 0;
    sbp_table_cell(table, "%d%s", plan->in_flight[0], equal ? "" : " (not so in the run)");
    sbp_table_cell(table, "%.2f ms", 1e3 * plan->step_s);
    sbp_table_cell(table, "%.2f ms", 1e3 * run->step_s);
    return near && equal;
}

/* Finds the arithmetic's speed by a run, then runs what is priced with it. */
static enum sbp_status hold(struct sbp_table *table, enum sbp_schedule schedule, int stages,
                            int64_t micro_batch, double *speed, bool *near, struct sbp_diag *diag)
{
    struct setting s;
    struct figures run;
    enum sbp_status status = open_setting(&s, stages, schedule, micro_batch, *speed, diag);
    if (status == SBP_OK)
        status = measure(&s, &run, diag);
    if (status == SBP_OK) {
        const struct figures plan = predict(&s);
        if (table != NULL)
            *near = add_row(table, &s, &plan, &run) && *near;
        else
            *speed = plan.compute_s / run.compute_s;
    }
    close_setting(&s);
    return status;
}

static enum sbp_status hold_all(struct sbp_table *table, bool *near, struct sbp_diag *diag)
{
    static const enum sbp_schedule schedules[] = {SBP_GPIPE, SBP_ONE_F_ONE_B, SBP_INTERLEAVED,
                                                  SBP_ZERO_BUBBLE, SBP_MESSAGE_DRIVEN};
    static const int count = sizeof schedules / sizeof *schedules;
    for (int stages = 2; stages <= MOST_STAGES; stages *= 2)
        for (int64_t micro_batch = 4; micro_batch >= 1; micro_batch /= 2) {
            double speed = 1; /* smaller products are slower */
            SBP_TRY(hold(NULL, SBP_GPIPE, stages, micro_batch, &speed, near, diag));
            for (int i = 0; i < count; i++)
                SBP_TRY(hold(table, schedules[i], stages, micro_batch, &speed, near, diag));
        }
    return SBP_OK;
}

int main(void)
{
    static const char *const titles[] = {"schedule", "stages",    "micro-batches", "bubble",
                                         "replayed", "off",       "exposed",       "replayed",
                                         "off",      "in flight", "step",          "replayed"};
    struct sbp_diag diag = {{0}};
    struct sbp_table table;
    bool near = true;
    sbp_kernels_cpu_setup();
    sbp_table_init(&table, (int)(sizeof titles / sizeof *titles), titles);
    enum sbp_status status = hold_all(&table, &near, &diag);
    if (status == SBP_OK) {
        printf(
            "bubble: share of the step; exposed: share of the messages' time that nothing hides; "
            "simulated from prices, and replayed: the least of %d steps, task by task\n",
            RUNS);
        status = sbp_table_print(&table, stdout, 2);
    }
    sbp_table_free(&table);
    if (status != SBP_OK)
        fprintf(stderr, "bench_pipeline: %s\n",
                diag.text[0] != '\0' ? diag.text : sbp_status_text(status));
    else if (!near)
        printf("FAILED: over %.0f %% off\n", 100 * MOST_OFF);
    return status != SBP_OK ? sbp_status_exit_code(status) : near ? 0 : 1;
}
