#include "planner/commands/commands.h"
#include "planner/commands/search_session_priv.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cjson/cJSON.h>

#include "base/file.h"
#include "base/json/json_write.h"
#include "base/table.h"
#include "base/text.h"
#include "planner/cli/outputs.h"
#include "planner/limits.h"
#include "planner/plan/plan_diff.h"
#include "planner/report/plan_line.h"
#include "planner/verify/verify.h"

/* ---- options -------------------------------------------------------------------------------- */

static bool is_heuristic(const char *solver)
{
    return strcmp(solver, "random") == 0 || strcmp(solver, "coordinate-descent") == 0 ||
           strcmp(solver, "metropolis-hastings") == 0;
}

enum sbp_status sbp_top_check_options(const struct sbp_arguments *arguments, struct sbp_diag *diag)
{
    const char *solver = arguments->algorithm > 0 ? sbp_solvers[arguments->algorithm - 1].name : "";
    struct stat output;
    if (arguments->top > 0 && is_heuristic(solver))
        return sbp_fail(diag, SBP_E_USAGE,
                        "sbplan search: --top: %s finds one plan and proves nothing of others, "
                        "legal is --algorithm auto, exact, ilp or exhaustive",
                        solver);
    if (arguments->top > 1 && arguments->output != NULL && stat(arguments->output, &output) == 0 &&
        !S_ISREG(output.st_mode))
        return sbp_fail(diag, SBP_E_USAGE,
                        "sbplan search: --top: -o %s is not a regular file, and further plans go "
                        "to files beside it",
                        arguments->output);
    return SBP_OK;
}

/* ---- plans ---------------------------------------------------------------------------------- */

static enum sbp_status write_text(struct sbp_search_job *job, struct sbp_alternative *plan,
                                  int rank, struct sbp_diag *diag)
{
    struct cJSON *json;
    const char *output = job->arguments->output;
    if (output == NULL)
        return SBP_OK;
    sbp_outputs_name(output, rank, &plan->file);
    SBP_TRY(
        sbp_search_json(job, &plan->plan, &plan->report.step, &plan->outcome, rank, &json, diag));
    char *text = sbp_json_text(json);
    cJSON_Delete(json);
    if (text != NULL)
        sbp_text_add(&plan->text, "%s", text);
    const bool failed = text == NULL || plan->text.failed || plan->file.failed;
    free(text);
    return failed ? sbp_fail(diag, SBP_E_MEMORY, "%s: out of memory", output) : SBP_OK;
}

/* Opens a plan of the pool; its workload and its strategy's arrays stay the search's. */
static enum sbp_status open_plan(struct sbp_search_job *job, const struct sbp_pool_plan *ranked,
                                 struct sbp_alternative *plan, struct sbp_diag *diag)
{
    plan->plan.workload = job->plan.workload;
    SBP_TRY(sbp_plan_cut(&plan->plan, &ranked->parallel, diag));
    plan->plan.strategy = ranked->strategy;
    const double bound_s = job->outcome.lower_bound_s;
    plan->outcome = job->outcome;
    plan->outcome.objective_s = ranked->objective_s;
    plan->outcome.status = ranked->objective_s <= bound_s * (1 + SBP_INNER_ROUND_OFF)
                               ? SBP_PLAN_OPTIMAL
                               : SBP_PLAN_FEASIBLE;
    SBP_TRY(sbp_report_make(&plan->plan, &plan->report, diag));
    const struct sbp_claim claim = {.plan = &plan->plan,
                                    .step = &plan->report.step,
                                    .request = &job->request,
                                    .outcome = &plan->outcome};
    return sbp_verify_plan(&claim, diag);
}

enum sbp_status sbp_search_top_open(struct sbp_search_job *job, struct sbp_search_top *all,
                                    struct sbp_diag *diag)
{
    *all = (struct sbp_search_top){.job = job};
    all->plan = SBP_NEW(&job->arena, struct sbp_alternative, job->pool.count);
    if (all->plan == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    for (int i = 0; i < job->pool.count; i++) {
        all->count++;
        SBP_TRY(open_plan(job, &job->pool.plan[i], &all->plan[i], diag));
        SBP_TRY(write_text(job, &all->plan[i], i + 1, diag));
    }
    return SBP_OK;
}

void sbp_search_top_free(struct sbp_search_top *all)
{
    for (int i = 0; i < all->count; i++) {
        struct sbp_alternative *plan = &all->plan[i];
        sbp_report_free(&plan->report);
        plan->plan.workload = (struct sbp_workload){0};
        sbp_plan_free(&plan->plan);
        sbp_text_free(&plan->file);
        sbp_text_free(&plan->text);
    }
    *all = (struct sbp_search_top){0};
}

enum sbp_status sbp_search_top_write(struct sbp_search_top *all, struct sbp_diag *diag)
{
    if (all->job->arguments->output == NULL)
        return SBP_OK;
    struct sbp_file_text *files = SBP_NEW(&all->job->arena, struct sbp_file_text, all->count);
    if (files == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    for (int i = 0; i < all->count; i++)
        files[i] = (struct sbp_file_text){all->plan[i].file.bytes, all->plan[i].text.bytes,
                                          all->plan[i].text.length};
    return sbp_file_write_all(files, all->count, diag);
}

/* The difference from the best plan; "" for the best. */
static const char *change_of(const struct sbp_search_top *all, int index, char *buffer)
{
    return sbp_plan_change(&all->plan[0].plan, &all->plan[index].plan, buffer);
}

/* ---- text ----------------------------------------------------------------------------------- */

/* Digits by which the plans' steps read differently. */
static int digits_of(const struct sbp_search_top *all)
{
    double *step_s = SBP_NEW(&all->job->arena, double, all->count);
    for (int i = 0; step_s != NULL && i < all->count; i++)
        step_s[i] = all->plan[i].report.summary.totals.step_s;
    return step_s == NULL ? SBP_REPORT_DIGITS : sbp_report_digits(step_s, all->count);
}

static void print_row(struct sbp_table *table, const struct sbp_search_top *all, int index,
                      int digits)
{
    const struct sbp_alternative *plan = &all->plan[index];
    const struct sbp_summary *summary = &plan->report.summary;
    const double best_s = all->plan[0].outcome.objective_s, tokens = all->job->arguments->tokens;
    char line[SBP_PLAN_LINE_BYTES], change[SBP_PLAN_CHANGE_BYTES], bytes[32];
    sbp_table_cell(table, "%d", index + 1);
    sbp_report_ms_cell(table, summary->totals.step_s, digits);
    sbp_report_ms_cell(table, summary->totals.communication_s, SBP_REPORT_DIGITS);
    const double over = best_s > 0 ? 100 * (plan->outcome.objective_s / best_s - 1) : 0;
    if (index == 0)
        sbp_table_cell(table, "-");
    else
        sbp_table_cell(table, over < 10 ? "%.2g %%" : "%.0f %%", over);
    sbp_table_cell(table, "%s", sbp_format_bytes((double)summary->totals.device_bytes, bytes));
    if (tokens > 0)
        sbp_table_cell(table, "%.4g", sbp_summary_training(summary, tokens).days);
    sbp_table_cell(table, "%s", sbp_plan_line(&plan->plan, all->job->request.space, line));
    sbp_table_cell(table, "%s", index == 0 ? "-" : change_of(all, index, change));
}

static const char *layout_of(const struct sbp_search_top *all, int index, char *buffer)
{
    return sbp_layout_line_text(&all->plan[index].report.layout, buffer);
}

static bool are_of_one_layout(const struct sbp_search_top *all, int a, int b)
{
    char first[SBP_LAYOUT_BYTES], second[SBP_LAYOUT_BYTES];
    return strcmp(layout_of(all, a, first), layout_of(all, b, second)) == 0;
}

/* The best plan of a layout; its own index where it is the first. */
static int first_alike(const struct sbp_search_top *all, int index)
{
    int first = 0;
    while (!are_of_one_layout(all, first, index))
        first++;
    return first;
}

/* Rows of the plans that are laid out as the plan `first`, below their layout and its best step. */
static void print_group(struct sbp_table *table, const struct sbp_search_top *all, int first,
                        int digits)
{
    char layout[SBP_LAYOUT_BYTES], ms[32], head[SBP_LAYOUT_BYTES + 64];
    const double step_s = all->plan[first].report.summary.totals.step_s;
    (void)snprintf(head, sizeof head, "%s: %s ms", layout_of(all, first, layout),
                   sbp_format_digits(1e3 * step_s, digits, ms));
    sbp_table_head(table, head);
    for (int i = first; i < all->count; i++)
        if (are_of_one_layout(all, first, i))
            print_row(table, all, i, digits);
}

static enum sbp_status print_table(const struct sbp_search_top *all)
{
    const bool tokens = all->job->arguments->tokens > 0;
    const char *titles[8] = {"#", "step ms", "comm. ms", "over best", "memory"};
    int columns = 5;
    if (tokens)
        titles[columns++] = "days";
    titles[columns++] = "plan (layers)";
    titles[columns++] = "differs from the best";
    struct sbp_table table;
    sbp_table_init(&table, columns, titles);
    const int digits = digits_of(all);
    for (int i = 0; i < all->count; i++)
        if (first_alike(all, i) == i)
            print_group(&table, all, i, digits);
    const enum sbp_status status = sbp_table_print(&table, stdout, 0);
    sbp_table_free(&table);
    return status;
}

/* Prints how much of the list is proved. */
static enum sbp_status print_proof(const struct sbp_search_top *all)
{
    const struct sbp_pool *pool = &all->job->pool;
    const double last_s = pool->plan[pool->count - 1].objective_s;
    const bool all_proved = pool->proved == pool->count;
    const char *among = all->job->outcome.is_narrow ? " of common roles and rests" : "";
    char rest[32], first[48] = "none is proved: nothing";
    if (all_proved && pool->count == pool->most)
        SBP_PRINT("\nproved: no other plan%s costs less\n", among);
    else if (all_proved && isinf(pool->rest_s))
        SBP_PRINT("\nproved: there are no more%s\n", among);
    else if (!(pool->rest_s > 0))
        SBP_PRINT("\nthe best that were found, none is proved\n");
    else {
        if (pool->proved > 0)
            (void)snprintf(first, sizeof first, "the first %d are proved, nothing else",
                           pool->proved);
        SBP_PRINT("\nthe best that were found, %s costs less than %s, %.3g %% below the last\n",
                  pool->proved == 1 ? "the first is proved, nothing else" : first,
                  sbp_report_seconds(pool->rest_s, rest), 100 * fmax(0, 1 - pool->rest_s / last_s));
    }
    return SBP_OK;
}

enum sbp_status sbp_search_top_print(const struct sbp_search_top *all)
{
    SBP_TRY(print_table(all));
    SBP_TRY(print_proof(all));
    for (int i = 0; i < all->count && all->job->arguments->output != NULL; i++)
        SBP_PRINT_LINE("%s%s", i == 0 ? "wrote " : ", ", all->plan[i].file.bytes);
    if (all->job->arguments->output != NULL)
        SBP_PRINT("\n");
    return SBP_OK;
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static void put_plan(struct cJSON *plans, const struct sbp_search_top *all, int index, bool *failed)
{
    const struct sbp_alternative *plan = &all->plan[index];
    char line[SBP_PLAN_LINE_BYTES], change[SBP_PLAN_CHANGE_BYTES];
    struct cJSON *item = sbp_json_push_object(plans, failed);
    sbp_json_put_number(item, "rank", index + 1, failed);
    sbp_json_put_bool(item, "proved", index < all->job->pool.proved, failed);
    sbp_json_put_number(item, "objective_s", plan->outcome.objective_s, failed);
    sbp_json_put_text(item, "plan", sbp_plan_line(&plan->plan, all->job->request.space, line),
                      failed);
    sbp_json_put_text(item, "change", change_of(all, index, change), failed);
    sbp_layout_line_put(item, &plan->report.layout, failed);
    if (plan->file.length > 0)
        sbp_json_put_text(item, "file", plan->file.bytes, failed);
    sbp_summary_put_cost(item, &plan->report.summary, failed);
    sbp_summary_put_memory(item, &plan->report.summary, failed);
    sbp_summary_put_parallel(item, &plan->plan.cut.parallel, failed);
    sbp_report_put_layers(item, &plan->report, failed);
}

void sbp_search_top_put(struct cJSON *json, const struct sbp_search_top *all, bool *failed)
{
    const struct sbp_pool *pool = &all->job->pool;
    struct cJSON *top = sbp_json_put_object(json, "top", failed);
    sbp_json_put_number(top, "asked", pool->most, failed);
    sbp_json_put_number(top, "found", pool->count, failed);
    sbp_json_put_number(top, "proved", pool->proved, failed);
    sbp_json_put_number(top, "rest_s", pool->rest_s, failed);
    struct cJSON *plans = sbp_json_put_array(top, "plans", failed);
    for (int i = 0; i < all->count && !*failed; i++)
        put_plan(plans, all, i, failed);
}
