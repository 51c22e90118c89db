#include "executor/bench_report.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json/json_write.h"
#include "base/table.h"
#include "base/text.h"
#include "planner/plan/summary.h"

static const char *const metric_names[SBP_BENCH_METRICS] = {
    [SBP_BENCH_REPLAY] = "replay_s",
    [SBP_BENCH_WALL] = "wall_s",
    [SBP_BENCH_COMPUTE] = "compute_s",
    [SBP_BENCH_COMMUNICATION] = "communication_wall_s",
    [SBP_BENCH_EXPOSED] = "exposed_communication_s",
    [SBP_BENCH_BUBBLE] = "bubble_s",
};

static const char *unit_of(const struct sbp_bench_report *report)
{
    int64_t count;
    return sbp_summary_unit(&report->plans[0].plan.cut.graph, &count);
}

/* The plan with the least predicted time of a unit, among those that were measured. */
static int predicted_best(const struct sbp_bench_result *result)
{
    int best = result->best;
    for (int i = 0; i < result->count; i++)
        if (result->row[i].odd_step == 0 &&
            sbp_bench_each_s(result, i, result->row[i].predicted_s[SBP_BENCH_REPLAY]) <
                sbp_bench_each_s(result, best, result->row[best].predicted_s[SBP_BENCH_REPLAY]))
            best = i;
    return best;
}

static const struct sbp_bench_value *compared(const struct sbp_bench_result *result, int row)
{
    return &result->row[row].value[result->compared];
}

/* ---- the table ----------------------------------------------------------------------------- */

static void add_seconds(struct sbp_table *table, double seconds)
{
    char text[32];
    sbp_table_cell(table, "%s", sbp_format_seconds(seconds, text));
}

static void add_rate(struct sbp_table *table, const struct sbp_bench_row *row, double step_s)
{
    char text[32];
    sbp_table_cell(table, "%s",
                   step_s > 0 ? sbp_format_count((double)row->units / step_s, text) : "-");
}

static void add_bytes(struct sbp_table *table, int64_t bytes)
{
    char text[32];
    sbp_table_cell(table, "%s", sbp_format_bytes((double)bytes, text));
}

static void add_ratio(struct sbp_table *table, double measured, double predicted)
{
    if (predicted > 0)
        sbp_table_cell(table, "%.2f", measured / predicted);
    else
        sbp_table_cell(table, "-");
}

/* Within the wall time it is not known what was waiting for messages and what idleness. */
static void add_measured(struct sbp_table *table, const struct sbp_bench_row *row,
                         enum sbp_bench_metric metric)
{
    const struct sbp_bench_value *value = &row->value[metric];
    const bool wall = metric == SBP_BENCH_WALL;
    char low[32], high[32];
    sbp_table_cell(table, "  measured, %s", wall ? "wall" : "replay");
    add_seconds(table, value->median_s);
    sbp_table_cell(table, "%s .. %s", sbp_format_seconds(value->low_s, low),
                   sbp_format_seconds(value->high_s, high));
    add_rate(table, row, value->median_s);
    add_seconds(table, row->value[SBP_BENCH_COMPUTE].median_s);
    add_seconds(table, row->value[wall ? SBP_BENCH_COMMUNICATION : SBP_BENCH_EXPOSED].median_s);
    if (wall)
        sbp_table_cell(table, "-");
    else
        add_seconds(table, row->value[SBP_BENCH_BUBBLE].median_s);
    add_bytes(table, row->high_water_bytes);
}

static void add_predicted(struct sbp_table *table, const struct sbp_bench_row *row)
{
    sbp_table_cell(table, "  predicted");
    add_seconds(table, row->predicted_s[SBP_BENCH_REPLAY]);
    sbp_table_cell(table, "-");
    add_rate(table, row, row->predicted_s[SBP_BENCH_REPLAY]);
    add_seconds(table, row->predicted_s[SBP_BENCH_COMPUTE]);
    add_seconds(table, row->predicted_s[SBP_BENCH_EXPOSED]);
    add_seconds(table, row->predicted_s[SBP_BENCH_BUBBLE]);
    add_bytes(table, row->arena_bytes);
}

static void add_ratios(struct sbp_table *table, const struct sbp_bench_row *row,
                       enum sbp_bench_metric metric)
{
    static const enum sbp_bench_metric parts[] = {SBP_BENCH_COMPUTE, SBP_BENCH_EXPOSED,
                                                  SBP_BENCH_BUBBLE};
    const double step_s = row->value[metric].median_s, predicted_s = row->predicted_s[metric];
    sbp_table_cell(table, "  measured / predicted");
    add_ratio(table, step_s, predicted_s);
    sbp_table_cell(table, "-");
    add_ratio(table, predicted_s, step_s);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        add_ratio(table, row->value[parts[i]].median_s, row->predicted_s[parts[i]]);
    add_ratio(table, (double)row->high_water_bytes, (double)row->arena_bytes);
}

static void add_head(struct sbp_table *table, const struct sbp_bench_plan *plan,
                     const struct sbp_bench_row *row)
{
    const struct sbp_step *step = &plan->step;
    struct sbp_text head = {0};
    sbp_text_add_shown(&head, plan->file);
    sbp_text_add(&head, ": %d rank%s, %s", row->ranks, row->ranks == 1 ? "" : "s",
                 sbp_real_name(plan->real));
    if (step->stages > 1)
        sbp_text_add(&head, ", %d stages under %s", step->stages,
                     sbp_timeline_schedule_name(step->parallel.schedule));
    if (step->micro_batches > 1)
        sbp_text_add(&head, ", %lld micro-batches", (long long)step->micro_batches);
    sbp_table_head(table, head.failed ? plan->file : head.bytes);
    sbp_text_free(&head);
}

static enum sbp_status print_table(const struct sbp_bench_report *report)
{
    const struct sbp_bench_result *result = report->result;
    char rate[32];
    const char *titles[] = {
        "",       "step",         result->is_confident ? "99 % interval" : "range",
        rate,     "compute",      "exposed comm.",
        "bubble", "memory a rank"};
    struct sbp_table table;
    (void)snprintf(rate, sizeof rate, "%s/s", unit_of(report));
    sbp_table_init(&table, (int)(sizeof titles / sizeof *titles), titles);
    for (int i = 0; i < result->count; i++) {
        const struct sbp_bench_row *row = &result->row[i];
        const bool wall = result->compared == SBP_BENCH_WALL;
        add_head(&table, &report->plans[i], row);
        if (row->odd_step == 0) {
            add_measured(&table, row, result->compared);
            add_measured(&table, row, wall ? SBP_BENCH_REPLAY : SBP_BENCH_WALL);
        }
        add_predicted(&table, row);
        if (row->odd_step == 0)
            add_ratios(&table, row, result->compared);
    }
    const enum sbp_status status = sbp_table_print(&table, stdout, 0);
    sbp_table_free(&table);
    return status;
}

/* ---- the verdict --------------------------------------------------------------------------- */

#define PRINT(...)                                                                                 \
    do {                                                                                           \
        if (!sbp_text_print_line(stdout, __VA_ARGS__))                                             \
            return SBP_E_IO;                                                                       \
    } while (0)

static enum sbp_status print_legend(const struct sbp_bench_report *report)
{
    const struct sbp_bench_options *options = report->options;
    PRINT(
        "\nrounds: %d, in turns, each of %d that count after %d that %s dropped; a round counts as "
        "the median of its steps\n",
        options->rounds, options->steps, options->warmup, options->warmup == 1 ? "is" : "are");
    if (!report->result->is_confident)
        PRINT("too few rounds for an interval of 99 %%: %d are needed\n", SBP_BENCH_ROUNDS);
    PRINT("replay: measured compute on the predicted timeline\n");
    PRINT("wall: its exposed communication is all time inside the backend, waiting included\n");
    if (report->result->compared == SBP_BENCH_WALL)
        PRINT("each rank has a core: plans are compared by wall time\n");
    else
        PRINT(
            "ranks share cores: wall is not the time of a parallel machine, plans are compared by "
            "their replay\n");
    return SBP_OK;
}

/* Plans whose intervals meet that of the best one may be as fast. */
static enum sbp_status print_alike(const struct sbp_bench_report *report)
{
    const struct sbp_bench_result *result = report->result;
    int alike = 0;
    if (!result->is_confident) {
        PRINT("told apart from none: rounds are too few\n");
        return SBP_OK;
    }
    for (int i = 0; i < result->count; i++)
        if (i != result->best && result->row[i].odd_step == 0 && !result->row[i].is_apart)
            PRINT("%s%s", alike++ == 0 ? "not told apart from it: " : ", ", report->plans[i].file);
    if (alike == 0)
        PRINT("told apart from all others: their intervals do not meet\n");
    else
        PRINT(" (their intervals meet)\n");
    return SBP_OK;
}

static enum sbp_status print_best(const struct sbp_bench_report *report)
{
    const struct sbp_bench_result *result = report->result;
    const int best = result->best, predicted = predicted_best(result);
    const double best_s = sbp_bench_each_s(result, best, compared(result, best)->median_s);
    const double predicted_s =
        sbp_bench_each_s(result, predicted, compared(result, predicted)->median_s);
    char rate[32];
    PRINT("\nbest measured: %s, %s %s/s", report->plans[best].file,
          sbp_format_count(1 / best_s, rate), unit_of(report));
    if (best == predicted)
        PRINT(", as predicted\n");
    else
        PRINT("; %s, predicted best, takes %.1f %% longer\n", report->plans[predicted].file,
              100 * (predicted_s / best_s - 1));
    return print_alike(report);
}

static enum sbp_status print_failures(const struct sbp_bench_report *report)
{
    for (int i = 0; i < report->result->count; i++)
        if (report->result->row[i].odd_step > 0)
            PRINT("FAILED: %s: step %d: the %s is no finite number\n", report->plans[i].file,
                  report->result->row[i].odd_step, report->result->row[i].odd_what);
    return SBP_OK;
}

static enum sbp_status print_text(const struct sbp_bench_report *report)
{
    const struct sbp_run_options *run = &report->options->run;
    PRINT("%s (%s, %s), seed %llu\n\n", report->plans[0].plan.cut.graph.name, run->backend,
          run->device, (unsigned long long)run->seed);
    SBP_TRY(print_table(report));
    SBP_TRY(print_legend(report));
    if (report->result->count > 1 && report->result->best >= 0)
        SBP_TRY(print_best(report));
    SBP_TRY(print_failures(report));
    return fflush(stdout) == 0 ? SBP_OK : SBP_E_IO;
}

enum sbp_status sbp_bench_print(const struct sbp_bench_report *report, struct sbp_diag *diag)
{
    const enum sbp_status status = print_text(report);
    return status == SBP_OK
               ? status
               : sbp_fail(diag, status, "standard output: %s",
                          status == SBP_E_IO ? strerror(errno) : sbp_status_text(status));
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static void put_value(struct cJSON *parent, const char *key, const struct sbp_bench_value *value,
                      const double *round_s, int rounds, bool *failed)
{
    struct cJSON *item = sbp_json_put_object(parent, key, failed);
    sbp_json_put_measured(item, "median", value->median_s, failed);
    sbp_json_put_measured(item, "low", value->low_s, failed);
    sbp_json_put_measured(item, "high", value->high_s, failed);
    struct cJSON *list = sbp_json_put_array(item, "rounds", failed);
    for (int i = 0; i < rounds; i++)
        sbp_json_push_measured(list, round_s[i], failed);
}

static void put_measured(struct cJSON *item, const struct sbp_bench_result *result, int index,
                         bool *failed)
{
    const struct sbp_bench_row *row = &result->row[index];
    struct cJSON *measured = sbp_json_put_object(item, "measured", failed);
    for (int metric = 0; metric < SBP_BENCH_METRICS; metric++)
        put_value(measured, metric_names[metric], &row->value[metric], row->round_s[metric],
                  result->rounds, failed);
    sbp_json_put_number(measured, "arena_bytes", (double)row->high_water_bytes, failed);
    sbp_json_put_number(item, "ratio",
                        compared(result, index)->median_s / row->predicted_s[result->compared],
                        failed);
}

static void put_row(struct cJSON *plans, const struct sbp_bench_report *report, int index,
                    bool *failed)
{
    const struct sbp_bench_result *result = report->result;
    const struct sbp_bench_row *row = &result->row[index];
    const struct sbp_step *step = &report->plans[index].step;
    struct cJSON *item = sbp_json_push_object(plans, failed);
    sbp_json_put_text(item, "file", report->plans[index].file, failed);
    sbp_json_put_text(item, "dtype", sbp_real_name(report->plans[index].real), failed);
    sbp_json_put_number(item, "ranks", row->ranks, failed);
    sbp_json_put_number(item, "stages", step->stages, failed);
    sbp_json_put_text(item, "schedule", sbp_timeline_schedule_name(step->parallel.schedule),
                      failed);
    sbp_json_put_number(item, "micro_batches", (double)step->micro_batches, failed);
    sbp_json_put_number(item, unit_of(report), (double)row->units, failed);
    sbp_json_put_bool(item, "wall_is_parallel", row->has_cores, failed);
    struct cJSON *predicted = sbp_json_put_object(item, "predicted", failed);
    for (int metric = 0; metric < SBP_BENCH_METRICS; metric++)
        sbp_json_put_number(predicted, metric_names[metric], row->predicted_s[metric], failed);
    sbp_json_put_number(predicted, "arena_bytes", (double)row->arena_bytes, failed);
    if (row->odd_step > 0)
        sbp_json_put_number(item, "not_finite_step", row->odd_step, failed);
    else
        put_measured(item, result, index, failed);
}

static void put_best(struct cJSON *root, const struct sbp_bench_report *report, bool *failed)
{
    const struct sbp_bench_result *result = report->result;
    sbp_json_put_text(root, "best", report->plans[result->best].file, failed);
    sbp_json_put_text(root, "predicted_best", report->plans[predicted_best(result)].file, failed);
    struct cJSON *alike = sbp_json_put_array(root, "not_told_apart", failed);
    for (int i = 0; i < result->count; i++)
        if (i != result->best && !result->row[i].is_apart)
            sbp_json_push_text(alike, report->plans[i].file, failed);
}

enum sbp_status sbp_bench_print_json(const struct sbp_bench_report *report, struct sbp_diag *diag)
{
    const struct sbp_bench_result *result = report->result;
    const struct sbp_bench_options *options = report->options;
    struct cJSON *root = cJSON_CreateObject();
    bool failed = root == NULL;
    sbp_json_put_text(root, "model", report->plans[0].plan.cut.graph.name, &failed);
    sbp_json_put_text(root, "backend", options->run.backend, &failed);
    sbp_json_put_text(root, "device", options->run.device, &failed);
    sbp_json_put_number(root, "seed", (double)options->run.seed, &failed);
    sbp_json_put_number(root, "rounds", options->rounds, &failed);
    sbp_json_put_number(root, "steps", options->steps, &failed);
    sbp_json_put_number(root, "warmup", options->warmup, &failed);
    sbp_json_put_number(root, "confidence",
                        result->is_confident ? SBP_BENCH_CONFIDENCE : (double)NAN, &failed);
    sbp_json_put_text(root, "compared", metric_names[result->compared], &failed);
    struct cJSON *plans = sbp_json_put_array(root, "plans", &failed);
    for (int i = 0; i < result->count && !failed; i++)
        put_row(plans, report, i, &failed);
    if (result->best >= 0)
        put_best(root, report, &failed);
    return sbp_json_finish(root, failed, diag);
}
