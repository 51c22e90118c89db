/* What-if sweeps: the command searches every row of planner/cli/sweeps.h and prints one table. */
#include <stddef.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/json/json_write.h"
#include "base/table.h"
#include "base/text.h"
#include "planner/cli/sweeps.h"
#include "planner/commands/commands.h"
#include "planner/commands/search_session_priv.h"

struct table {
    const struct sbp_arguments *arguments;
    struct sbp_arena arena;
    struct sbp_sweeps sweep;
    struct sbp_arguments *given; /* (row_count) the command's, with the row's values */
    struct sbp_search_row *row;  /* (row_count), of which the first `searched` are filled */
    /* The row at hand and the last one with a plan, in turns: a plan must not be moved. */
    struct sbp_search_job job[2];
    int last; /* place of the latter; -1: none yet */
    int found, searched;
};

/* ---- searching ------------------------------------------------------------------------------ */

/* Fails with the row in front of a message: "--sweep layers=4 --sweep zero=1". */
static enum sbp_status refuse_row(const struct sbp_word_list *row, enum sbp_status status,
                                  const struct sbp_diag *why, struct sbp_diag *diag)
{
    const char *told = why->text;
    struct sbp_text text = {0};
    if (strncmp(told, "--set", strlen("--set")) == 0) /* a row is read as --set is */
        told = strstr(told, ": ") == NULL ? told : strstr(told, ": ") + strlen(": ");
    if (strncmp(told, "--sweep ", strlen("--sweep ")) == 0) /* the message names the row */
        return sbp_fail(diag, status, "%s", told);
    for (int i = 0; i < row->count; i++)
        sbp_text_add(&text, "%s--sweep %s", i > 0 ? " " : "", row->word[i]);
    (void)sbp_fail(diag, status, "%.300s: %s", text.failed ? "--sweep" : text.bytes, told);
    sbp_text_free(&text);
    return status;
}

/* Checks the inputs of all rows before the first search. */
static enum sbp_status check_rows(const struct table *table, struct sbp_diag *diag)
{
    for (int i = 0; i < table->sweep.row_count; i++) {
        struct sbp_search_job job = {.arguments = &table->given[i]};
        struct sbp_diag why = {{0}};
        const enum sbp_status status = sbp_search_job_open(&job, &why);
        sbp_search_job_free(&job);
        if (status != SBP_OK)
            return refuse_row(&table->given[i].row, status, &why, diag);
    }
    return SBP_OK;
}

/* Searches a row; one without a legal strategy is a row, too. */
static enum sbp_status search_row(struct table *table, struct sbp_search_job *job,
                                  struct sbp_search_row *row, struct sbp_diag *diag)
{
    SBP_TRY(sbp_search_job_open(job, diag));
    const enum sbp_status status = sbp_search_job_run(job, 1, &row->why);
    row->refused = status == SBP_E_INPUT || status == SBP_E_UNSUPPORTED;
    if (row->refused)
        return SBP_OK;
    if (status != SBP_OK)
        return refuse_row(&job->arguments->row, status, &row->why, diag);
    SBP_TRY(sbp_search_row_fill(job, row, diag));
    if (row->found && table->last >= 0)
        (void)sbp_plan_change(&table->job[table->last].plan, &job->plan, row->change);
    return SBP_OK;
}

static bool is_stopped(const struct table *table)
{
    return table->arguments->stop != NULL && *table->arguments->stop != 0;
}

static enum sbp_status search_rows(struct table *table, struct sbp_diag *diag)
{
    for (int i = 0; i < table->sweep.row_count && !is_stopped(table); i++) {
        struct sbp_search_row *row = &table->row[i];
        const int at = table->last == 0 ? 1 : 0;
        table->job[at] = (struct sbp_search_job){.arguments = &table->given[i]};
        const enum sbp_status status = search_row(table, &table->job[at], row, diag);
        table->searched++;
        table->found += row->found;
        if (!row->found)
            sbp_search_job_free(&table->job[at]);
        else if (table->last >= 0)
            sbp_search_job_free(&table->job[table->last]);
        table->last = row->found ? at : table->last; /* the next row is compared with it */
        SBP_TRY(status);
    }
    return SBP_OK;
}

/* ---- text ----------------------------------------------------------------------------------- */

static void memory_cell(struct sbp_table *out, const struct sbp_search_row *row)
{
    char used[32], limit[32];
    if (row->found)
        sbp_table_cell(out, "%s", sbp_format_bytes((double)row->summary.totals.device_bytes, used));
    else if (!row->refused && row->shortage.needed_bytes > 0)
        sbp_table_cell(out, "%s > %s", sbp_format_bytes(row->shortage.needed_bytes, used),
                       sbp_format_bytes(row->shortage.limit_bytes, limit));
    else
        sbp_table_cell(out, "-");
}

static const char *change_of(const struct table *table, int index)
{
    const struct sbp_search_row *row = &table->row[index];
    if (!row->found)
        return "-";
    for (int before = 0; before < index; before++)
        if (table->row[before].found)
            return row->change[0] == '\0' ? "same" : row->change;
    return "";
}

/* Whether any row's cluster holds measured groups. */
static bool has_intervals(const struct table *table)
{
    for (int i = 0; i < table->sweep.row_count; i++)
        if (table->row[i].trust.is_given)
            return true;
    return false;
}

static void print_row(struct sbp_table *out, const struct table *table, int index)
{
    const struct sbp_search_row *row = &table->row[index];
    char seconds[32], word[SBP_VERDICT_BYTES];
    for (int key = 0; key < table->sweep.key_count; key++)
        sbp_table_cell(out, "%s", sbp_sweeps_value(&table->sweep, index, key));
    sbp_table_cell(out, "%s",
                   row->found ? sbp_format_seconds(row->summary.totals.step_s, seconds) : "-");
    if (has_intervals(table))
        sbp_price_interval_cell(out, &row->trust);
    sbp_table_cell(out, "%s", row->found ? row->rate : "-");
    memory_cell(out, row);
    sbp_table_cell(out, "%s",
                   row->refused ? "refused" : sbp_search_outcome_word(&row->outcome, word));
    sbp_table_cell(out, "%s", row->found ? row->line : "-");
    sbp_table_cell(out, "%s", change_of(table, index));
}

/* Prints reasons below the table, since they are too long for a cell; like ones once. */
static enum sbp_status print_refusals(const struct table *table)
{
    for (int i = 0; i < table->sweep.row_count; i++) {
        bool told = !table->row[i].refused;
        for (int before = 0; before < i; before++)
            told |= table->row[before].refused &&
                    strcmp(table->row[before].why.text, table->row[i].why.text) == 0;
        if (!told && printf("refused: %s\n", table->row[i].why.text) < 0)
            return SBP_E_IO;
    }
    if (table->searched < table->sweep.row_count)
        SBP_PRINT("stopped after %d of %d rows\n", table->searched, table->sweep.row_count);
    return SBP_OK;
}

/* Prints what a star means, and the longest doubt of the rows that have one. */
static enum sbp_status print_stars(const struct table *table)
{
    bool is_told = false;
    for (int i = 0; i < table->sweep.row_count; i++) {
        const struct sbp_search_row *row = &table->row[i];
        struct sbp_text name = {0};
        if (!row->trust.is_given || row->trust.doubt_count == 0)
            continue;
        const struct sbp_word_list *words = &table->given[i].row;
        for (int k = 0; k < words->count; k++)
            sbp_text_add(&name, "%s%s", k > 0 ? " " : "", words->word[k]);
        enum sbp_status status = SBP_OK;
        if (!is_told && printf("\n*: prices that were extrapolated or are poorly known, most of "
                               "all\n") < 0)
            status = SBP_E_IO;
        is_told = true;
        if (status == SBP_OK)
            status = sbp_price_interval_print_star(&row->trust, row->summary.totals.step_s,
                                                   name.failed ? "row" : name.bytes, stdout);
        sbp_text_free(&name);
        SBP_TRY(status);
    }
    return SBP_OK;
}

static enum sbp_status print_table(const struct table *table)
{
    static const char *const REST[] = {"rate", "memory", "status", "plan", "changed"};
    const char *titles[SBP_SWEEP_MOST_KEYS + 7];
    int columns = 0;
    struct sbp_table out;
    for (int key = 0; key < table->sweep.key_count; key++)
        titles[columns++] = table->sweep.key[key].name;
    titles[columns++] = "step";
    if (has_intervals(table))
        titles[columns++] = "interval";
    memcpy(titles + columns, REST, sizeof REST);
    sbp_table_init(&out, columns + 5, titles);
    for (int i = 0; i < table->searched; i++)
        print_row(&out, table, i);
    const enum sbp_status status = sbp_table_print(&out, stdout, 0);
    sbp_table_free(&out);
    return status;
}

static enum sbp_status print_text(const struct table *table)
{
    SBP_TRY(print_table(table));
    SBP_TRY(print_stars(table));
    return print_refusals(table);
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static void put_row(struct cJSON *rows, const struct table *table, int index, bool *failed)
{
    const struct sbp_search_row *row = &table->row[index];
    struct cJSON *item = sbp_json_push_object(rows, failed);
    struct cJSON *values = sbp_json_put_object(item, "values", failed);
    for (int key = 0; key < table->sweep.key_count; key++)
        sbp_json_put_text(values, table->sweep.key[key].name,
                          sbp_sweeps_value(&table->sweep, index, key), failed);
    if (row->refused) {
        sbp_json_put_text(item, "status", "refused", failed);
        sbp_json_put_text(item, "why", row->why.text, failed);
        return;
    }
    sbp_json_put_text(item, "status", sbp_solver_status_name(row->outcome.status), failed);
    if (row->outcome.stopped)
        sbp_json_put_bool(item, "stopped", true, failed);
    sbp_json_put_number(item, "evaluations", (double)row->outcome.evaluations, failed);
    sbp_json_put_number(item, "wall_s", row->outcome.wall_s, failed);
    if (!row->found) {
        sbp_json_put_number(item, "needed_bytes", row->shortage.needed_bytes, failed);
        if (row->shortage.largest[0] != '\0')
            sbp_json_put_text(item, "dominates", row->shortage.largest, failed);
        sbp_json_put_number(item, "available_bytes", row->shortage.limit_bytes, failed);
        return;
    }
    const char *change = change_of(table, index);
    sbp_json_put_number(item, "objective_s", row->outcome.objective_s, failed);
    sbp_json_put_number(item, "lower_bound_s", row->outcome.lower_bound_s, failed);
    sbp_json_put_text(item, "plan", row->line, failed);
    sbp_json_put_bool(item, "changed", change[0] != '\0' && strcmp(change, "same") != 0, failed);
    sbp_json_put_text(item, "change", row->change, failed);
    sbp_summary_put_cost(item, &row->summary, failed);
    sbp_price_interval_put(item, &row->trust, failed);
    sbp_summary_put_memory(item, &row->summary, failed);
    sbp_summary_put_parallel(item, &row->parallel, failed);
}

static enum sbp_status print_json(const struct table *table, struct sbp_diag *diag)
{
    struct cJSON *json = cJSON_CreateObject();
    bool failed = json == NULL;
    sbp_json_put_text(json, "version", SBP_VERSION, &failed);
    sbp_json_put_text(json, "command", table->arguments->record, &failed);
    if (table->searched < table->sweep.row_count)
        sbp_json_put_bool(json, "stopped", true, &failed);
    struct cJSON *rows = sbp_json_put_array(json, "rows", &failed);
    for (int i = 0; i < table->searched && !failed; i++)
        put_row(rows, table, i, &failed);
    return sbp_json_finish(json, failed, diag);
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* Checks the options: a sweep prints one table and writes no plan; --set searches for a single one.
 */
static enum sbp_status check_options(const struct sbp_arguments *arguments, struct sbp_diag *diag)
{
    const char *other = arguments->output != NULL    ? "-o"
                        : arguments->problem != NULL ? "--problem"
                        : arguments->top > 0         ? "--top"
                        : arguments->tokens > 0      ? "--tokens"
                                                     : NULL;
    return other == NULL ? SBP_OK
                         : sbp_fail(diag, SBP_E_USAGE,
                                    "sbplan search: %s does not go with --sweep, which prints one "
                                    "table; legal with --set KEY=VALUE for one of its values",
                                    other);
}

static enum sbp_status sweep(struct table *table, struct sbp_diag *diag)
{
    const struct sbp_arguments *arguments = table->arguments;
    SBP_TRY(check_options(arguments, diag));
    SBP_TRY(sbp_sweeps_parse(&arguments->sweep, &table->arena, &table->sweep, diag));
    table->given = SBP_NEW(&table->arena, struct sbp_arguments, table->sweep.row_count);
    table->row = SBP_NEW(&table->arena, struct sbp_search_row, table->sweep.row_count);
    if (table->given == NULL || table->row == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    for (int i = 0; i < table->sweep.row_count; i++) {
        table->given[i] = *arguments;
        SBP_TRY(sbp_sweeps_row(&table->sweep, i, &table->arena, &table->given[i].row));
    }
    SBP_TRY(check_rows(table, diag));
    SBP_TRY(search_rows(table, diag));
    SBP_TRY(arguments->json ? print_json(table, diag) : print_text(table));
    return table->found > 0 ? SBP_OK : SBP_NO;
}

enum sbp_status sbp_command_sweep(const struct sbp_arguments *arguments, struct sbp_diag *diag)
{
    struct table table = {.arguments = arguments, .last = -1};
    const enum sbp_status status = sweep(&table, diag);
    if (table.last >= 0)
        sbp_search_job_free(&table.job[table.last]);
    sbp_arena_free(&table.arena);
    return status;
}
