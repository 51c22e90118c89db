#include <stddef.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/json/json_write.h"
#include "base/table.h"
#include "base/text.h"
#include "planner/commands/commands.h"
#include "planner/commands/search_session_priv.h"
#include "planner/limits.h"
#include "planner/plan/input_kind.h"
#include "planner/space/space_table.h"

/* Rows: the baselines first, then the spaces that contain most of them; `zero` is the best of three
 * searches. */
static const enum sbp_space_kind ORDER[] = {
    SBP_SPACE_DATA_PARALLEL, SBP_SPACE_ZERO_1,        SBP_SPACE_ZERO_2,      SBP_SPACE_ZERO_3,
    SBP_SPACE_MEGATRON,      SBP_SPACE_MEGATRON_NODE, SBP_SPACE_MEGATRON_3D, SBP_SPACE_GSHARD,
    SBP_SPACE_SUMMA,         SBP_SPACE_MYELIN,        SBP_SPACE_CDP,         SBP_SPACE_AUTODDL,
    SBP_SPACE_FULL};
enum { ROWS = sizeof ORDER / sizeof *ORDER, FULL_ROW = ROWS - 1 };

struct comparison {
    struct sbp_search_job job; /* the model, the cluster and what is given of a step */
    struct sbp_search_row row[ROWS];
    int plan_of; /* the row that found full's plan: it may be a space that full contains */
    int found;
    struct sbp_progress progress;
};

/* Searches a row. A space without a legal strategy, or too large for the solver, is a row, too. */
static enum sbp_status search_row(struct sbp_search_job *job, struct sbp_search_row *row,
                                  struct sbp_diag *diag)
{
    enum sbp_status status = sbp_space_begin(&job->request, &job->plan, &row->why);
    if (status == SBP_OK)
        status = sbp_search_job_run(job, 1, &row->why);
    row->outcome = job->outcome;
    row->refused = status == SBP_E_INPUT || status == SBP_E_UNSUPPORTED || status == SBP_E_USAGE;
    if (row->refused)
        return SBP_OK;
    if (status != SBP_OK)
        return sbp_fail(diag, status, "%s", row->why.text);
    return sbp_search_row_fill(job, row, diag);
}

/* Searches a space, from the model and the step that were given. */
static enum sbp_status compare_space(struct comparison *comparison, int index, double limit_s,
                                     struct sbp_search_row *row, struct sbp_diag *diag)
{
    char label[64];
    (void)snprintf(label, sizeof label, "space %s, %d of %d", sbp_request_space_name(ORDER[index]),
                   index + 1, ROWS);
    struct sbp_search_job job = {
        .arguments = comparison->job.arguments, .progress = &comparison->progress, .label = label};
    enum sbp_status status =
        sbp_inputs_read(job.arguments, ORDER[index], &job.arena, &job.settings, &job.plan, diag);
    job.request = comparison->job.request;
    job.request.space = ORDER[index];
    job.request.solver_options.time_limit_s = limit_s;
    if (status == SBP_OK)
        status = search_row(&job, row, diag);
    sbp_search_job_free(&job);
    return status;
}

/* Checks the bound of the full space against all rows: their plans are in it, so that none may cost
 * less. */
static enum sbp_status check_proof(const struct comparison *comparison, struct sbp_diag *diag)
{
    const struct sbp_search_row *full = &comparison->row[FULL_ROW];
    for (int i = 0; i < FULL_ROW; i++) {
        const struct sbp_search_row *row = &comparison->row[i];
        if (full->refused || !row->found || !sbp_space_is_part_of_full(ORDER[i]))
            continue;
        if (full->outcome.status == SBP_PLAN_INFEASIBLE)
            return sbp_fail(diag, SBP_E_INTERNAL,
                            "internal error: space full is called infeasible and space %s, which "
                            "is part of it, has a plan; no table is printed",
                            sbp_request_space_name(ORDER[i]));
        if (full->outcome.lower_bound_s > row->outcome.objective_s * (1 + SBP_INNER_ROUND_OFF))
            return sbp_fail(diag, SBP_E_INTERNAL,
                            "internal error: no plan of space full is said to cost less than "
                            "%.12g s and one of space %s, which is part of it, costs %.12g s; no "
                            "table is printed",
                            full->outcome.lower_bound_s, sbp_request_space_name(ORDER[i]),
                            row->outcome.objective_s);
    }
    return SBP_OK;
}

/* Takes a narrower space's plan for the full space where limits of time or memory kept the full
 * search from it. */
static void take_better_part(struct comparison *comparison)
{
    struct sbp_search_row *full = &comparison->row[FULL_ROW];
    int best = FULL_ROW;
    for (int i = 0; i < ROWS; i++) {
        const struct sbp_search_row *row = &comparison->row[i], *before = &comparison->row[best];
        if (row->found && sbp_space_is_part_of_full(ORDER[i]) &&
            (!before->found ||
             row->outcome.objective_s < before->outcome.objective_s * (1 - SBP_INNER_ROUND_OFF)))
            best = i;
    }
    if (best == FULL_ROW || full->skipped)
        return;
    const struct sbp_search_row *part = &comparison->row[best];
    full->found = true;
    full->refused = false;
    full->outcome.objective_s = part->outcome.objective_s;
    full->outcome.status =
        part->outcome.objective_s <= full->outcome.lower_bound_s * (1 + SBP_INNER_ROUND_OFF)
            ? SBP_PLAN_OPTIMAL
            : SBP_PLAN_FEASIBLE;
    full->parallel = part->parallel;
    full->summary = part->summary;
    full->trust = part->trust;
    memcpy(full->line, part->line, sizeof full->line);
    comparison->plan_of = best;
}

/* Step time of a row over that of the full space; 0 where one of them has no plan. */
static double gain(const struct comparison *comparison, int index)
{
    const struct sbp_search_row *row = &comparison->row[index], *full = &comparison->row[FULL_ROW];
    return row->found && full->found && full->outcome.objective_s > 0
               ? row->outcome.objective_s / full->outcome.objective_s
               : 0;
}

/* --- text --- */

static void why_cell(struct sbp_table *table, const struct sbp_search_row *row)
{
    char needed[32], limit[32];
    if (row->refused)
        sbp_table_cell(table, "see below");
    else if (row->skipped)
        sbp_table_cell(table, "the comparison ended before");
    else if (row->shortage.needed_bytes > 0)
        sbp_table_cell(
            table, "needs %s%s of %s%s%s", row->shortage.parts[0] == '\0' ? "at least " : "",
            sbp_format_bytes(row->shortage.needed_bytes, needed),
            sbp_format_bytes(row->shortage.limit_bytes, limit),
            row->shortage.largest[0] == '\0' ? "" : ", most of it ", row->shortage.largest);
    else if (row->outcome.stopped || row->outcome.left_out)
        sbp_table_cell(table, "its search ended before it found a plan");
    else
        sbp_table_cell(table, "no strategy puts its layers together");
}

static bool has_intervals(const struct comparison *comparison)
{
    return sbp_network_is_given(&comparison->job.plan.workload.cluster.network);
}

/* Digits by which the rows' steps read differently. */
static int digits_of(const struct comparison *comparison)
{
    double step_s[ROWS];
    int count = 0;
    for (int i = 0; i < ROWS; i++)
        if (comparison->row[i].found)
            step_s[count++] = comparison->row[i].summary.totals.step_s;
    return sbp_report_digits(step_s, count);
}

static void print_row(struct sbp_table *table, const struct comparison *comparison, int index,
                      int digits)
{
    const int numbers = has_intervals(comparison) ? 6 : 5;
    const struct sbp_search_row *row = &comparison->row[index];
    char unit[32], word[SBP_VERDICT_BYTES];
    sbp_table_cell(table, "%s", sbp_request_space_name(ORDER[index]));
    sbp_table_cell(table, "%s",
                   row->refused   ? "refused"
                   : row->skipped ? "not searched"
                                  : sbp_search_outcome_word(&row->outcome, word));
    if (!row->found) {
        for (int i = 0; i < numbers; i++)
            sbp_table_cell(table, "-");
        why_cell(table, row);
        return;
    }
    const struct sbp_step_totals *totals = &row->summary.totals;
    sbp_report_ms_cell(table, totals->step_s, digits);
    if (has_intervals(comparison))
        sbp_price_interval_cell(table, &row->trust);
    sbp_report_ms_cell(table, totals->communication_s, SBP_REPORT_DIGITS);
    sbp_report_ms_cell(table, totals->exposed_s, SBP_REPORT_DIGITS);
    sbp_table_cell(table, "%s", sbp_format_bytes((double)totals->device_bytes, unit));
    if (gain(comparison, index) > 0)
        sbp_table_cell(table, "%.3f", gain(comparison, index));
    else
        sbp_table_cell(table, "-");
    sbp_table_cell(table, "%s", row->line);
}

/* Whether two spaces were refused for the same reason. */
static bool same_reason(const struct comparison *comparison, int a, int b)
{
    const char *left = comparison->row[a].why.text, *right = comparison->row[b].why.text;
    while (*left != '\0' && *right != '\0') {
        const char *name[2] = {sbp_request_space_name(ORDER[a]), sbp_request_space_name(ORDER[b])};
        const size_t length[2] = {strlen(name[0]), strlen(name[1])};
        if (strncmp(left, name[0], length[0]) == 0 && strncmp(right, name[1], length[1]) == 0) {
            left += length[0];
            right += length[1];
        } else if (*left++ != *right++) {
            return false;
        }
    }
    return *left == *right;
}

/* Prints reasons below the table, since they are too long for a cell; once for all spaces with the
 * same one. */
static enum sbp_status print_refusals(const struct comparison *comparison)
{
    bool said[ROWS] = {false};
    for (int i = 0; i < ROWS; i++) {
        if (!comparison->row[i].refused || said[i])
            continue;
        SBP_PRINT("\n%s", sbp_request_space_name(ORDER[i]));
        for (int k = i + 1; k < ROWS; k++) {
            said[k] |= comparison->row[k].refused && same_reason(comparison, i, k);
            if (comparison->row[k].refused && same_reason(comparison, i, k))
                SBP_PRINT(", %s", sbp_request_space_name(ORDER[k]));
        }
        SBP_PRINT(": %s\n", comparison->row[i].why.text);
    }
    return SBP_OK;
}

static enum sbp_status print_legend(const struct comparison *comparison)
{
    const bool communication = comparison->job.request.objective == SBP_COMMUNICATION;
    const int plan_of = comparison->plan_of;
    SBP_PRINT("\nfull gains: %s of the row over that of full, the free search; below 1 the row "
              "trains as full may not\n(cdp: gradients a step late; summa: products by panels). "
              "Communication that is not exposed is\noverlapped by computation.\n",
              communication ? "communication" : "step time");
    if (plan_of != FULL_ROW &&
        printf("full: the plan is that of %s, which is one of full's; its own search found none "
               "better\n",
               sbp_request_space_name(ORDER[plan_of])) < 0)
        return SBP_E_IO;
    return SBP_OK;
}

static enum sbp_status print_table(const struct comparison *comparison)
{
    const char *titles[9] = {"space", "status", "step ms", "interval"};
    static const char *const REST[] = {"comm. ms", "exposed ms", "memory", "full gains",
                                       "plan (layers)"};
    const int first = has_intervals(comparison) ? 4 : 3;
    struct sbp_table table;
    memcpy(titles + first, REST, sizeof REST);
    sbp_table_init(&table, first + 5, titles);
    const int digits = digits_of(comparison);
    for (int i = 0; i < ROWS; i++)
        print_row(&table, comparison, i, digits);
    const enum sbp_status status = sbp_table_print(&table, stdout, 0);
    sbp_table_free(&table);
    return status;
}

/* Prints what the interval means, and which rows should not be trusted. */
static enum sbp_status print_trust(const struct comparison *comparison)
{
    if (!has_intervals(comparison))
        return SBP_OK;
    SBP_PRINT("interval: of the step, by the errors of calibration and measured runs; *: some of "
              "it rests on "
              "prices that were\nextrapolated or are poorly known, most of all\n");
    for (int i = 0; i < ROWS; i++)
        if (comparison->row[i].found)
            SBP_TRY(sbp_price_interval_print_star(&comparison->row[i].trust,
                                                  comparison->row[i].summary.totals.step_s,
                                                  sbp_request_space_name(ORDER[i]), stdout));
    return SBP_OK;
}

/* Whether a search ended early, so that none of the rows says that nothing fits. */
static bool is_cut_short(const struct comparison *comparison)
{
    for (int i = 0; i < ROWS; i++)
        if (comparison->row[i].skipped || comparison->row[i].outcome.stopped ||
            comparison->row[i].outcome.left_out)
            return true;
    return false;
}

static enum sbp_status print_text(const struct comparison *comparison)
{
    SBP_TRY(sbp_report_print_model(&comparison->job.plan, stdout));
    SBP_PRINT("\n");
    SBP_TRY(print_table(comparison));
    if (comparison->found > 0) {
        SBP_TRY(print_legend(comparison));
        SBP_TRY(print_trust(comparison));
    }
    SBP_TRY(print_refusals(comparison));
    if (comparison->found > 0 || is_cut_short(comparison))
        return SBP_OK;
    return printf("\n") < 0 ? SBP_E_IO : sbp_search_advise(&comparison->job);
}

/* --- JSON --- */

static void put_row(struct cJSON *rows, const struct comparison *comparison, int index,
                    bool *failed)
{
    const struct sbp_search_row *row = &comparison->row[index];
    struct cJSON *item = sbp_json_push_object(rows, failed);
    sbp_json_put_text(item, "space", sbp_request_space_name(ORDER[index]), failed);
    if (row->refused) {
        sbp_json_put_text(item, "status", "refused", failed);
        sbp_json_put_text(item, "why", row->why.text, failed);
        return;
    }
    if (row->skipped) {
        sbp_json_put_text(item, "status", "not searched", failed);
        return;
    }
    sbp_json_put_text(item, "status", sbp_solver_status_name(row->outcome.status), failed);
    if (row->outcome.stopped)
        sbp_json_put_bool(item, "stopped", true, failed);
    sbp_json_put_number(item, "evaluations", (double)row->outcome.evaluations, failed);
    sbp_json_put_number(item, "wall_s", row->outcome.wall_s, failed);
    if (!row->found) {
        if (row->shortage.needed_bytes > 0)
            sbp_json_put_number(item, "needed_bytes", row->shortage.needed_bytes, failed);
        if (row->shortage.largest[0] != '\0')
            sbp_json_put_text(item, "dominates", row->shortage.largest, failed);
        return;
    }
    sbp_json_put_number(item, "lower_bound_s", row->outcome.lower_bound_s, failed);
    if (gain(comparison, index) > 0)
        sbp_json_put_number(item, "full_gains", gain(comparison, index), failed);
    sbp_json_put_text(item, "plan", row->line, failed);
    if (index == FULL_ROW && comparison->plan_of != FULL_ROW)
        sbp_json_put_text(item, "plan_of", sbp_request_space_name(ORDER[comparison->plan_of]),
                          failed);
    sbp_summary_put_parallel(item, &row->parallel, failed);
    sbp_summary_put_cost(item, &row->summary, failed);
    sbp_price_interval_put(item, &row->trust, failed);
    sbp_summary_put_memory(item, &row->summary, failed);
}

static enum sbp_status print_json(const struct comparison *comparison, struct sbp_diag *diag)
{
    struct cJSON *json = cJSON_CreateObject();
    bool failed = json == NULL;
    sbp_json_put_text(json, "version", SBP_VERSION, &failed);
    sbp_json_put_text(json, "command", comparison->job.arguments->record, &failed);
    sbp_summary_put_model(json, &comparison->job.plan.cut.graph, &failed);
    struct cJSON *cluster = sbp_json_put_object(json, "cluster", &failed);
    sbp_json_put_text(cluster, "name", comparison->job.plan.workload.cluster.name, &failed);
    sbp_json_put_number(cluster, "devices", (double)sbp_cut_devices(&comparison->job.plan.cut),
                        &failed);
    sbp_summary_put_parallel(json, &comparison->job.plan.cut.parallel, &failed);
    struct cJSON *rows = sbp_json_put_array(json, "spaces", &failed);
    for (int i = 0; i < ROWS && !failed; i++)
        put_row(rows, comparison, i, &failed);
    return sbp_json_finish(json, failed, diag);
}

/* Seconds for the next of the rows that are left: an equal share of the time that is left. 0: any
 * time; below 0: there is none, or the user asks to stop. */
static double share_of_time(const struct comparison *comparison, int rows)
{
    const struct sbp_solver_options *options = &comparison->job.request.solver_options;
    const double left_s = options->time_limit_s - (sbp_clock_s() - comparison->progress.start_s);
    if (options->stop != NULL && *options->stop != 0)
        return -1;
    if (options->time_limit_s == 0)
        return 0;
    return left_s > 0 ? left_s / rows : -1;
}

static enum sbp_status search_rows(struct comparison *comparison, struct sbp_diag *diag)
{
    for (int i = 0; i < ROWS; i++) {
        const double limit_s = share_of_time(comparison, ROWS - i);
        comparison->row[i].skipped = limit_s < 0;
        if (limit_s >= 0)
            SBP_TRY(compare_space(comparison, i, limit_s, &comparison->row[i], diag));
        comparison->found += comparison->row[i].found;
    }
    return SBP_OK;
}

static enum sbp_status compare(struct comparison *comparison, struct sbp_diag *diag)
{
    comparison->job.request =
        sbp_search_request(comparison->job.arguments, &comparison->job.settings);
    sbp_progress_start(&comparison->progress);
    const enum sbp_status status = search_rows(comparison, diag);
    sbp_progress_end(&comparison->progress);
    SBP_TRY(status);
    SBP_TRY(check_proof(comparison, diag));
    take_better_part(comparison);
    SBP_TRY(comparison->job.arguments->json ? print_json(comparison, diag)
                                            : print_text(comparison));
    return comparison->found > 0 ? SBP_OK : SBP_NO;
}

static bool has_plan(const struct sbp_word_list *operands)
{
    return sbp_input_kind_is(operands->word[0], SBP_INPUT_PLAN) ||
           sbp_input_kind_is(operands->word[1], SBP_INPUT_PLAN);
}

enum sbp_status sbp_command_compare(const struct sbp_arguments *arguments, struct sbp_diag *diag)
{
    struct comparison comparison = {.job = {.arguments = arguments}, .plan_of = FULL_ROW};
    struct sbp_search_job *job = &comparison.job;
    if (has_plan(&arguments->operands))
        return sbp_command_compare_plans(arguments, diag);
    enum sbp_status status =
        sbp_inputs_read(arguments, SBP_SPACE_FULL, &job->arena, &job->settings, &job->plan, diag);
    if (status == SBP_OK)
        status = compare(&comparison, diag);
    sbp_search_job_free(job);
    return status;
}
