/* Runs pipelines on threads and holds them to the simulator: bubble, exposed messages and
 * micro-batches in flight of the replayed step, beside the timeline. Each task counts with the
 * least thread CPU time of a few steps, which others on the machine disturb least, and of that with
 * the median of its micro-batches. The timeline's passes are as long as their instructions were in
 * runs of GPipe, which take turns with the schedule's; its messages have prices, of a slow network,
 * so that they have something to hide behind. Micro-batches in flight are those of the run; under
 * message-driven, where arrivals between ranks that share cores are no parallel machine's, those of
 * the replay. Fails where a share is over 10 % off. */
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
    "\"flops\": {\"fp32\": 5e10, \"fp64\": 2.5e10}, \"memory_bytes_per_s\": 1e10}}";

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

static enum sbp_status read_cluster(struct setting *s, int stages, struct sbp_diag *diag)
{
    struct cJSON *root = NULL;
    struct sbp_json at;
    char text[sizeof CLUSTER + 16];
    (void)snprintf(text, sizeof text, CLUSTER, stages);
    SBP_TRY(sbp_json_parse(text, "cluster", &root, &at, diag));
    const enum sbp_status status = sbp_cluster_read(&at, &s->arena, &s->cluster);
    cJSON_Delete(root);
    return status;
}

static enum sbp_status open_setting(struct setting *s, int stages, enum sbp_schedule schedule,
                                    int64_t micro_batch, struct sbp_diag *diag)
{
    const struct sbp_element_bytes bytes = sbp_program_run_bytes(SBP_F32);
    *s = (struct setting){0};
    SBP_TRY(read_model(&s->model, diag));
    SBP_TRY(read_cluster(s, stages, diag));
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

/* ---- the simulator, by the passes of another run --------------------------------------------- */

static bool is_same(const struct sbp_instr *a, const struct sbp_instr *b)
{
    return a->kind == b->kind && a->section == b->section && a->op == b->op &&
           a->phase == b->phase && a->tensor == b->tensor;
}

/* What an instruction computed for in a run of other stages, wherever it was; 0: it is in none. */
static double found_s(const struct sbp_step *step, const struct least *least,
                      const struct sbp_instr *instr)
{
    for (int stage = 0; stage < step->stages; stage++)
        for (int64_t i = 0; i < least->tasks[stage].count; i++)
            if (is_same(sbp_task_instr(step, stage, &least->tasks[stage].task[i]), instr))
                return least->compute_s[stage][i];
    return 0;
}

/* Passes of a micro-batch on each chunk, and updates, as long as their instructions were in GPipe's
 * runs. Messages keep their prices. */
static void time_passes(struct sbp_step *step, const struct setting *gpipe,
                        const struct least *least)
{
    const int chunks = sbp_step_chunks(step);
    for (int piece = 0; piece < step->pieces; piece++) {
        const struct sbp_program *program = sbp_step_program(step, piece);
        const int stage = piece % step->stages, chunk = piece / step->stages;
        struct sbp_stage_cost *cost = &step->cost[stage * chunks + chunk];
        double pass_s[SBP_SECTIONS] = {0};
        for (int i = 0; i < program->instr_count; i++)
            pass_s[program->instr[i].section] += found_s(&gpipe->step, least, &program->instr[i]);
        cost->forward_s = pass_s[SBP_SECTION_FORWARD];
        cost->backward_input_s = pass_s[SBP_SECTION_BACKWARD];
        cost->backward_weight_s = pass_s[SBP_SECTION_BACKWARD_WEIGHT];
        step->end[stage].optimizer_s =
            pass_s[SBP_SECTION_STEP] + (chunk > 0 ? step->end[stage].optimizer_s : 0);
    }
}

static double sum_of_passes(const struct sbp_step *step)
{
    double sum_s = 0;
    for (int i = 0; i < step->pieces; i++)
        sum_s += (double)step->micro_batches *
                 (step->cost[i].forward_s + step->cost[i].backward_input_s +
                  step->cost[i].backward_weight_s);
    for (int stage = 0; stage < step->stages; stage++)
        sum_s += step->end[stage].optimizer_s;
    return sum_s;
}

static enum sbp_status simulate(struct setting *s, const struct setting *gpipe,
                                const struct least *least, struct figures *figures,
                                struct sbp_diag *diag)
{
    struct sbp_step *step = &s->step;
    const struct sbp_timeline_request request = {.schedule = step->parallel.schedule,
                                                 .stages = step->stages,
                                                 .micro_batches = (int)step->micro_batches,
                                                 .chunks = sbp_step_chunks(step),
                                                 .stage = step->cost,
                                                 .end = step->end};
    struct sbp_timeline timeline;
    time_passes(step, gpipe, least);
    SBP_TRY(sbp_timeline_simulate(&request, &s->arena, &timeline, diag));
    figures->step_s = timeline.makespan_s;
    figures->exposed_s = fmin(timeline.exposed_s, step->totals.communication_s);
    figures->bubble_s =
        timeline.makespan_s - sum_of_passes(step) / step->stages - figures->exposed_s;
    for (int stage = 0; stage < step->stages; stage++)
        figures->in_flight[stage] = timeline.device[stage].in_flight;
    return SBP_OK;
}

/* ---- a run beside it ------------------------------------------------------------------------ */

/* Plays the step with what its tasks computed for. */
static enum sbp_status replay(struct setting *s, const struct least *least, struct figures *figures,
                              struct sbp_diag *diag)
{
    struct sbp_run_prediction played;
    SBP_TRY(sbp_run_replay(&s->step, least->tasks, least->compute_s, &s->arena, &played, diag));
    figures->step_s = played.step_s;
    figures->exposed_s = played.exposed_s;
    figures->bubble_s = played.bubble_s;
    for (int stage = 0; s->step.parallel.schedule == SBP_MESSAGE_DRIVEN && stage < s->step.stages;
         stage++)
        figures->in_flight[stage] = count_in_flight(
            s, stage, &least->tasks[stage], played.play.begin_s[stage], played.play.end_s[stage]);
    return SBP_OK;
}

/* Runs in turns with GPipe, so that both see the same machine. */
static enum sbp_status measure(struct setting *s, struct setting *gpipe, struct figures *plan,
                               struct figures *run, struct sbp_diag *diag)
{
    struct least least, base;
    struct figures unused = {0};
    SBP_TRY(least_open(&s->step, &s->arena, &least, diag));
    SBP_TRY(least_open(&gpipe->step, &gpipe->arena, &base, diag));
    for (int i = 0; i < RUNS; i++) {
        SBP_TRY(run_once(gpipe, &base, &unused, diag));
        SBP_TRY(run_once(s, &least, run, diag));
    }
    SBP_TRY(least_level(&gpipe->step, &base));
    SBP_TRY(least_level(&s->step, &least));
    SBP_TRY(replay(s, &least, run, diag));
    return simulate(s, gpipe, &base, plan, diag);
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

static enum sbp_status hold(struct sbp_table *table, enum sbp_schedule schedule, int stages,
                            int64_t micro_batch, bool *near, struct sbp_diag *diag)
{
    struct setting s, gpipe = {.step = {.stages = 0}};
    struct figures plan = {0}, run = {0};
    enum sbp_status status = open_setting(&s, stages, schedule, micro_batch, diag);
    if (status == SBP_OK)
        status = open_setting(&gpipe, stages, SBP_GPIPE, micro_batch, diag);
    if (status == SBP_OK)
        status = measure(&s, &gpipe, &plan, &run, diag);
    if (status == SBP_OK)
        *near = add_row(table, &s, &plan, &run) && *near;
    close_setting(&gpipe);
    close_setting(&s);
    return status;
}

static enum sbp_status hold_all(struct sbp_table *table, bool *near, struct sbp_diag *diag)
{
    static const enum sbp_schedule schedules[] = {SBP_GPIPE, SBP_ONE_F_ONE_B, SBP_INTERLEAVED,
                                                  SBP_ZERO_BUBBLE, SBP_MESSAGE_DRIVEN};
    static const int count = sizeof schedules / sizeof *schedules;
    for (int stages = 2; stages <= MOST_STAGES; stages *= 2)
        for (int64_t micro_batch = 4; micro_batch >= 1; micro_batch /= 2)
            for (int i = 0; i < count; i++)
                SBP_TRY(hold(table, schedules[i], stages, micro_batch, near, diag));
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
    sbp_table_init(&table, (int)(sizeof titles / sizeof *titles), titles);
    enum sbp_status status = hold_all(&table, &near, &diag);
    if (status == SBP_OK) {
        printf(
            "bubble: share of the step; exposed: share of the messages' time that nothing hides; "
            "simulated by the passes of GPipe, and replayed: the least of %d steps, task by task, "
            "the "
            "median of micro-batches\n",
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
