#include <math.h>
#include <stddef.h>

#include <cjson/cJSON.h>

#include "base/text.h"
#include "planner/json_out.h"
#include "planner/search_run.h"

/* The baselines first, then the spaces that hold them. */
static const enum sbp_space_kind ORDER[] = {SBP_SPACE_DATA_PARALLEL, SBP_SPACE_MEGATRON,
                                            SBP_SPACE_AUTODDL, SBP_SPACE_FULL};
enum { ROWS = sizeof ORDER / sizeof *ORDER };

struct row {
    struct sbp_outcome outcome;
    bool refused, found;
    struct sbp_diag why; /* refused */
    struct sbp_summary summary;
    char line[SBP_PLAN_LINE_BYTES];
    struct sbp_shortage shortage;
};

struct comparison {
    struct sbp_search_job job;
    struct row row[ROWS];
    int found;
};

/* A space without a legal strategy, or too large for the solver, is a row, not the end. */
static enum sbp_status search_row(struct sbp_search_job *job, struct row *row,
                                  struct sbp_diag *diag)
{
    struct sbp_report report;
    const enum sbp_status status =
        sbp_search_run(&job->plan, &job->request, &row->outcome, &row->why);
    row->refused = status == SBP_E_INPUT || status == SBP_E_UNSUPPORTED;
    if (row->refused)
        return SBP_OK;
    if (status != SBP_OK)
        return sbp_fail(diag, status, "%s", row->why.text);
    row->found = sbp_outcome_has_plan(&row->outcome);
    if (!row->found) {
        sbp_shortage_find(&job->plan, &job->request, &row->outcome, &row->shortage);
        return SBP_OK;
    }
    SBP_TRY(sbp_report_make(&job->plan, &report, diag));
    row->summary = report.summary;
    (void)sbp_report_plan_line(&job->plan, row->line);
    sbp_report_free(&report);
    return SBP_OK;
}

static double objective_s(const struct comparison *comparison, int row)
{
    return comparison->row[row].outcome.objective_s;
}

/* How many times the first baseline's time; 0 where there is none to compare. */
static double gain(const struct comparison *comparison, int row)
{
    for (int first = 0; first < ROWS; first++)
        if (comparison->row[first].found)
            return comparison->row[row].found && objective_s(comparison, row) > 0
                       ? objective_s(comparison, first) / objective_s(comparison, row)
                       : 0;
    return 0;
}

/* --- text --- */

static void why_cell(struct sbp_table *table, const struct row *row)
{
    char needed[32], limit[32];
    if (row->refused)
        sbp_table_cell(table, "refused, see below");
    else if (row->shortage.needed_bytes > 0)
        sbp_table_cell(
            table, "%s: %s of %s a device%s%s",
            row->outcome.status == SBP_PLAN_INFEASIBLE ? "infeasible"
                                                       : "no strategy that fits was found",
            sbp_format_bytes(row->shortage.needed_bytes, needed),
            sbp_format_bytes(row->shortage.limit_bytes, limit),
            row->shortage.largest[0] == '\0' ? "" : ", most of it ", row->shortage.largest);
    else
        sbp_table_cell(table, row->outcome.status == SBP_PLAN_INFEASIBLE
                                  ? "infeasible"
                                  : "no strategy that fits was found");
}

static void print_row(struct sbp_table *table, const struct comparison *comparison, int index)
{
    const struct row *row = &comparison->row[index];
    char unit[32];
    sbp_table_cell(table, "%s", sbp_space_name(ORDER[index]));
    if (!row->found) {
        for (int i = 0; i < 5; i++)
            sbp_table_cell(table, "-");
        why_cell(table, row);
        return;
    }
    const struct sbp_step_totals *totals = &row->summary.totals;
    sbp_table_cell(table, "%s", sbp_plan_status_name(row->outcome.status));
    sbp_table_cell(table, "%.6g", 1e3 * totals->step_s);
    sbp_table_cell(table, "%.6g", 1e3 * totals->communication_s);
    sbp_table_cell(table, "%s", sbp_format_bytes((double)totals->device_bytes, unit));
    sbp_table_cell(table, "%.3f", gain(comparison, index));
    sbp_table_cell(table, "%s", row->line);
}

/* Too long for a cell. */
static enum sbp_status print_refusals(const struct comparison *comparison)
{
    for (int i = 0; i < ROWS; i++)
        if (comparison->row[i].refused &&
            printf("\n%s: %s\n", sbp_space_name(ORDER[i]), comparison->row[i].why.text) < 0)
            return SBP_E_IO;
    return SBP_OK;
}

static enum sbp_status print_text(const struct comparison *comparison)
{
    static const char *const TITLES[] = {"space",  "status", "step ms",      "communication ms",
                                         "memory", "gain",   "plan (layers)"};
    struct sbp_table table;
    SBP_TRY(sbp_report_print_model(&comparison->job.plan, stdout));
    if (printf("\n") < 0)
        return SBP_E_IO;
    sbp_table_init(&table, 7, TITLES);
    for (int i = 0; i < ROWS; i++)
        print_row(&table, comparison, i);
    const enum sbp_status status = sbp_table_print(&table, stdout, 0);
    sbp_table_free(&table);
    SBP_TRY(status);
    SBP_TRY(print_refusals(comparison));
    if (comparison->found > 0)
        return SBP_OK;
    return printf("\n") < 0 ? SBP_E_IO : sbp_search_advise(&comparison->job);
}

/* --- JSON --- */

static void put_row(struct cJSON *rows, const struct comparison *comparison, int index,
                    bool *failed)
{
    const struct row *row = &comparison->row[index];
    struct cJSON *item = sbp_push_object(rows, failed);
    sbp_put_text(item, "space", sbp_space_name(ORDER[index]), failed);
    if (row->refused) {
        sbp_put_text(item, "status", "refused", failed);
        sbp_put_text(item, "why", row->why.text, failed);
        return;
    }
    sbp_put_text(item, "status", sbp_plan_status_name(row->outcome.status), failed);
    sbp_put_number(item, "evaluations", (double)row->outcome.evaluations, failed);
    sbp_put_number(item, "wall_s", row->outcome.wall_s, failed);
    if (!row->found) {
        sbp_put_number(item, "needed_bytes", row->shortage.needed_bytes, failed);
        return;
    }
    sbp_put_number(item, "lower_bound_s", row->outcome.lower_bound_s, failed);
    sbp_put_number(item, "gain", gain(comparison, index), failed);
    sbp_put_text(item, "plan", row->line, failed);
    sbp_put_cost(item, &row->summary, failed);
    sbp_put_memory(item, &row->summary, failed);
}

static enum sbp_status print_json(const struct comparison *comparison, struct sbp_diag *diag)
{
    struct cJSON *json = cJSON_CreateObject();
    bool failed = json == NULL;
    sbp_put_text(json, "version", SBP_VERSION, &failed);
    sbp_put_text(json, "command", comparison->job.arguments->record, &failed);
    sbp_put_model(json, &comparison->job.plan.graph, &failed);
    struct cJSON *cluster = sbp_put_object(json, "cluster", &failed);
    sbp_put_text(cluster, "name", comparison->job.plan.cluster.name, &failed);
    sbp_put_number(cluster, "devices", (double)sbp_plan_devices(&comparison->job.plan), &failed);
    sbp_put_parallel(json, &comparison->job.plan.parallel, &failed);
    struct cJSON *rows = sbp_put_array(json, "spaces", &failed);
    for (int i = 0; i < ROWS && !failed; i++)
        put_row(rows, comparison, i, &failed);
    const enum sbp_status status = sbp_json_print(failed ? NULL : json, stdout, diag);
    cJSON_Delete(json);
    return status;
}

static enum sbp_status compare(struct comparison *comparison, struct sbp_diag *diag)
{
    struct sbp_search_job *job = &comparison->job;
    job->request = sbp_search_request(job->arguments, &job->settings);
    for (int i = 0; i < ROWS; i++) {
        job->request.space = ORDER[i];
        SBP_TRY(search_row(job, &comparison->row[i], diag));
        comparison->found += comparison->row[i].found;
    }
    SBP_TRY(job->arguments->json ? print_json(comparison, diag) : print_text(comparison));
    return comparison->found > 0 ? SBP_OK : SBP_NO;
}

enum sbp_status sbp_command_compare(const struct sbp_arguments *arguments, struct sbp_diag *diag)
{
    struct comparison comparison = {.job = {.arguments = arguments}};
    struct sbp_search_job *job = &comparison.job;
    enum sbp_status status =
        sbp_inputs_read(arguments, &job->arena, &job->settings, &job->plan, diag);
    if (status == SBP_OK)
        status = compare(&comparison, diag);
    sbp_search_job_free(job);
    return status;
}
