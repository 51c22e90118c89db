#include <math.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/file.h"
#include "base/json/json_write.h"
#include "base/table.h"
#include "base/text.h"
#include "planner/commands/commands.h"
#include "planner/configs/config_files.h"
#include "planner/validate/validation.h"

/* The sets of a command line, read and validated one after the other. */
struct job {
    const struct sbp_arguments *arguments;
    struct sbp_arena arena;
    int count;
    const char **path, **name;         /* (count) */
    struct sbp_run_set *set;           /* (count) */
    struct sbp_validation *validation; /* (count) */
};

/* ---- text ----------------------------------------------------------------------------------- */

#define CELL_BYTES 32

static const char *percent(double share, char *cell)
{
    if (isnan(share))
        (void)snprintf(cell, CELL_BYTES, "-");
    else
        (void)snprintf(cell, CELL_BYTES, "%.1f %%", 100 * share);
    return cell;
}

static const char *signed_percent(double share, char *cell)
{
    if (isnan(share))
        (void)snprintf(cell, CELL_BYTES, "-");
    else
        (void)snprintf(cell, CELL_BYTES, "%+.1f %%", 100 * share);
    return cell;
}

static const char *number(double value, char *cell)
{
    if (isnan(value))
        (void)snprintf(cell, CELL_BYTES, "-");
    else
        (void)snprintf(cell, CELL_BYTES, "%.2f", value);
    return cell;
}

static void add_factor(struct sbp_table *table, const struct sbp_agreement *agreement)
{
    char error[CELL_BYTES];
    if (isnan(agreement->factor))
        sbp_table_cell(table, "-");
    else
        sbp_table_cell(table, "%s (x %.2f)", percent(agreement->factor_error, error),
                       agreement->factor);
}

static void add_regret(struct sbp_table *table, const struct sbp_agreement *agreement)
{
    char mean[CELL_BYTES], worst[CELL_BYTES];
    if (agreement->groups == 0)
        sbp_table_cell(table, "-");
    else
        sbp_table_cell(table, "%s, %s", percent(agreement->regret, mean),
                       percent(agreement->worst_regret, worst));
}

static void add_row(struct sbp_table *table, const char *name, const struct sbp_validation *v)
{
    char cell[CELL_BYTES];
    sbp_table_cell(table, "%s", name);
    sbp_table_cell(table, "%d", v->time.count);
    sbp_table_cell(table, "%s", percent(v->time.error, cell));
    sbp_table_cell(table, "%s", signed_percent(v->time.bias, cell));
    add_factor(table, &v->time);
    sbp_table_cell(table, "%s", percent(v->constant.factor_error, cell));
    sbp_table_cell(table, "%s", number(v->time.rank, cell));
    sbp_table_cell(table, "%d", v->time.groups);
    sbp_table_cell(table, "%s", number(v->time.group_rank, cell));
    add_regret(table, &v->time);
    sbp_table_cell(table, "%s", percent(v->memory.error, cell));
    sbp_table_cell(table, "%s", percent(v->settled.median_error, cell));
    sbp_table_cell(table, "%s", v->holds ? "holds" : "above");
}

static enum sbp_status print_table(const struct job *job)
{
    static const char *const TITLES[] = {
        "runs of", "runs", "error",         "bias",   "one factor", "constant use", "rank",
        "groups",  "rank", "regret, worst", "memory", "settled",    "bounds"};
    struct sbp_table table;
    sbp_table_init(&table, sizeof TITLES / sizeof *TITLES, TITLES);
    for (int i = 0; i < job->count; i++)
        add_row(&table, job->name[i], &job->validation[i]);
    const enum sbp_status status = sbp_table_print(&table, stdout, 0);
    sbp_table_free(&table);
    return status;
}

/* A bound that does not hold, and what was found. */
static enum sbp_status print_check(const char *name, const struct sbp_validation_check *check)
{
    char value[CELL_BYTES], bound[CELL_BYTES];
    const bool plain = strcmp(check->figure, "rank") == 0 || strcmp(check->figure, "refused") == 0;
    SBP_PRINT_LINE("%s: %s is %s, allowed is %s %s\n", name, check->figure,
                   plain ? number(check->value, value) : percent(check->value, value),
                   strcmp(check->figure, "rank") == 0 ? "at least" : "at most",
                   plain ? number(check->bound, bound) : percent(check->bound, bound));
    return SBP_OK;
}

/* Runs that cannot be expressed, those for one reason on one line. */
static enum sbp_status print_refused(const char *name, const struct sbp_validation *v)
{
    for (int i = 0; i < v->set->run_count; i++) {
        int same = 0, before = 0;
        if (v->refused[i] == NULL)
            continue;
        for (int j = 0; j < v->set->run_count; j++)
            if (v->refused[j] != NULL && strcmp(v->refused[i], v->refused[j]) == 0) {
                same++;
                before += j < i;
            }
        if (before == 0)
            SBP_PRINT_LINE("%s: not expressed: %d run%s, run %s first: %s\n", name, same,
                           same == 1 ? "" : "s", v->set->run[i].id, v->refused[i]);
    }
    return SBP_OK;
}

/* One run: its time, its memory, or both. */
static enum sbp_status print_run(const struct sbp_run *run, const struct sbp_run_price *price)
{
    char measured[CELL_BYTES], predicted[CELL_BYTES], error[CELL_BYTES];
    SBP_PRINT_LINE("  %s (group %d):", run->id, run->group);
    if (run->step_s > 0)
        SBP_PRINT(" %s measured, %s predicted, %s%s", sbp_format_seconds(run->step_s, measured),
                  sbp_format_seconds(price->step_s, predicted),
                  signed_percent(price->step_s / run->step_s - 1, error),
                  run->memory_bytes > 0 ? ";" : "");
    if (run->memory_bytes > 0)
        SBP_PRINT(" %s measured, %s predicted, %s", sbp_format_bytes(run->memory_bytes, measured),
                  sbp_format_bytes(price->memory_bytes, predicted),
                  signed_percent(price->memory_bytes / run->memory_bytes - 1, error));
    SBP_PRINT("\n");
    return SBP_OK;
}

static enum sbp_status print_runs(const char *name, const struct sbp_validation *v)
{
    SBP_PRINT_LINE("%s: %s\n", name, v->set->title);
    for (int i = 0; i < v->set->run_count; i++)
        if (v->refused[i] == NULL)
            SBP_TRY(print_run(&v->set->run[i], &v->price[i]));
    return SBP_OK;
}

static enum sbp_status print_text(const struct job *job)
{
    SBP_TRY(print_table(job));
    for (int i = 0; i < job->count; i++) {
        const struct sbp_validation *v = &job->validation[i];
        SBP_TRY(print_refused(job->name[i], v));
        for (int c = 0; c < v->check_count; c++)
            if (!v->check[c].holds)
                SBP_TRY(print_check(job->name[i], &v->check[c]));
        if (job->arguments->rows)
            SBP_TRY(print_runs(job->name[i], v));
    }
    return SBP_OK;
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static void put_agreement(struct cJSON *parent, const char *key,
                          const struct sbp_agreement *agreement, bool *failed)
{
    struct cJSON *object = sbp_json_put_object(parent, key, failed);
    sbp_json_put_number(object, "runs", agreement->count, failed);
    sbp_json_put_measured(object, "error", agreement->error, failed);
    sbp_json_put_measured(object, "median_error", agreement->median_error, failed);
    sbp_json_put_measured(object, "bias", agreement->bias, failed);
    sbp_json_put_measured(object, "factor", agreement->factor, failed);
    sbp_json_put_measured(object, "factor_error", agreement->factor_error, failed);
    sbp_json_put_measured(object, "rank", agreement->rank, failed);
    sbp_json_put_number(object, "groups", agreement->groups, failed);
    sbp_json_put_measured(object, "group_rank", agreement->group_rank, failed);
    sbp_json_put_measured(object, "regret", agreement->regret, failed);
    sbp_json_put_measured(object, "worst_regret", agreement->worst_regret, failed);
}

static void put_checks(struct cJSON *parent, const struct sbp_validation *v, bool *failed)
{
    struct cJSON *list = sbp_json_put_array(parent, "checks", failed);
    for (int i = 0; i < v->check_count; i++) {
        struct cJSON *object = sbp_json_push_object(list, failed);
        sbp_json_put_text(object, "figure", v->check[i].figure, failed);
        sbp_json_put_measured(object, "value", v->check[i].value, failed);
        sbp_json_put_measured(object, "bound", v->check[i].bound, failed);
        sbp_json_put_bool(object, "holds", v->check[i].holds, failed);
    }
}

static void put_runs(struct cJSON *parent, const struct sbp_validation *v, bool *failed)
{
    struct cJSON *list = sbp_json_put_array(parent, "runs", failed);
    for (int i = 0; i < v->set->run_count; i++) {
        const struct sbp_run *run = &v->set->run[i];
        const struct sbp_run_price *price = &v->price[i];
        struct cJSON *object = sbp_json_push_object(list, failed);
        sbp_json_put_text(object, "id", run->id, failed);
        sbp_json_put_text(object, "refused", v->refused[i], failed);
        sbp_json_put_number(object, "group", run->group, failed);
        if (run->step_s > 0)
            sbp_json_put_measured(object, "measured_s", run->step_s, failed);
        if (v->refused[i] == NULL)
            sbp_json_put_measured(object, "predicted_s", price->step_s, failed);
        if (run->settled_bytes > 0)
            sbp_json_put_number(object, "measured_settled_bytes", run->settled_bytes, failed);
        if (v->refused[i] == NULL)
            sbp_json_put_number(object, "predicted_settled_bytes", price->settled_bytes, failed);
        if (run->memory_bytes > 0)
            sbp_json_put_number(object, "measured_bytes", run->memory_bytes, failed);
        if (v->refused[i] == NULL)
            sbp_json_put_number(object, "predicted_bytes", price->memory_bytes, failed);
    }
}

static enum sbp_status print_json(const struct job *job, struct sbp_diag *diag)
{
    bool failed = false;
    struct cJSON *root = cJSON_CreateObject();
    struct cJSON *list = sbp_json_put_array(root, "sets", &failed);
    for (int i = 0; i < job->count; i++) {
        const struct sbp_validation *v = &job->validation[i];
        struct cJSON *object = sbp_json_push_object(list, &failed);
        sbp_json_put_text(object, "name", job->name[i], &failed);
        sbp_json_put_text(object, "title", v->set->title, &failed);
        sbp_json_put_text(object, "source", v->set->source, &failed);
        sbp_json_put_text(object, "trainer", v->set->trainer, &failed);
        sbp_json_put_number(object, "refused", v->refused_count, &failed);
        put_agreement(object, "step_time", &v->time, &failed);
        put_agreement(object, "constant_utilisation", &v->constant, &failed);
        put_agreement(object, "memory", &v->memory, &failed);
        put_agreement(object, "settled_memory", &v->settled, &failed);
        put_checks(object, v, &failed);
        sbp_json_put_bool(object, "holds", v->holds, &failed);
        put_runs(object, v, &failed);
    }
    return sbp_json_finish(root, failed, diag);
}

/* ---- sets ----------------------------------------------------------------------------------- */

static enum sbp_status out_of_memory(struct sbp_diag *diag)
{
    return sbp_fail(diag, SBP_E_MEMORY, "sbplan validate: out of memory");
}

/* The name of a file without folder and ending. */
static const char *name_of(const char *path, struct sbp_arena *arena)
{
    char *name = sbp_arena_strdup(arena, sbp_file_name(path));
    char *dot = name == NULL ? NULL : strrchr(name, '.');
    if (dot != NULL && dot != name)
        *dot = '\0';
    return name;
}

/* The sets that are named, or all that are listed. */
static enum sbp_status find_sets(struct job *job, struct sbp_diag *diag)
{
    const struct sbp_word_list *words = &job->arguments->operands;
    struct sbp_config_names all;
    if (words->count == 0) {
        SBP_TRY(sbp_config_list(SBP_CONFIG_RUNS, &job->arena, &all, diag));
        job->count = all.count;
        job->name = all.name;
        job->path = all.path;
        return all.count > 0 ? SBP_OK
                             : sbp_fail(diag, SBP_E_INPUT,
                                        "sbplan validate: no sets of runs are "
                                        "installed");
    }
    job->count = words->count;
    job->name = SBP_NEW(&job->arena, const char *, words->count);
    job->path = SBP_NEW(&job->arena, const char *, words->count);
    if (job->name == NULL || job->path == NULL)
        return out_of_memory(diag);
    for (int i = 0; i < job->count; i++) {
        SBP_TRY(sbp_config_find(SBP_CONFIG_RUNS, words->word[i], &job->arena, &job->path[i], diag));
        job->name[i] = name_of(job->path[i], &job->arena);
        if (job->name[i] == NULL)
            return out_of_memory(diag);
    }
    return SBP_OK;
}

static enum sbp_status validate(struct job *job, struct sbp_diag *diag)
{
    struct sbp_progress progress;
    enum sbp_status status = SBP_OK;
    SBP_TRY(find_sets(job, diag));
    job->set = SBP_NEW(&job->arena, struct sbp_run_set, job->count);
    job->validation = SBP_NEW(&job->arena, struct sbp_validation, job->count);
    if (job->set == NULL || job->validation == NULL)
        return out_of_memory(diag);
    for (int i = 0; i < job->count; i++)
        SBP_TRY(sbp_run_set_open(job->path[i], job->arguments->runtime, &job->arena, &job->set[i],
                                 diag));
    sbp_progress_start(&progress);
    for (int i = 0; i < job->count && status == SBP_OK; i++) {
        sbp_progress_show(&progress, "pricing runs of %s, set %d of %d", job->name[i], i + 1,
                          job->count);
        status = sbp_validation_make(&job->set[i], job->arguments->stop, &job->validation[i], diag);
    }
    sbp_progress_end(&progress);
    return status == SBP_STOPPED ? sbp_fail(diag, SBP_E_IO,
                                            "sbplan validate: interrupted before "
                                            "all runs were priced")
                                 : status;
}

static enum sbp_status answer(const struct job *job, struct sbp_diag *diag)
{
    SBP_TRY(job->arguments->json ? print_json(job, diag) : print_text(job));
    for (int i = 0; i < job->count; i++)
        if (!job->validation[i].holds)
            return SBP_NO;
    return SBP_OK;
}

enum sbp_status sbp_command_validate(const struct sbp_arguments *arguments, struct sbp_diag *diag)
{
    struct job job = {.arguments = arguments};
    enum sbp_status status = validate(&job, diag);
    if (status == SBP_OK)
        status = answer(&job, diag);
    for (int i = 0; job.validation != NULL && i < job.count; i++) {
        sbp_validation_free(&job.validation[i]);
        sbp_run_set_free(&job.set[i]);
    }
    sbp_arena_free(&job.arena);
    return status;
}
