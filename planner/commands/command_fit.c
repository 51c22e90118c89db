/* sbplan calibrate --runs RUNS.csv MODEL CLUSTER: fits a trainer's profile to measured steps. */
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/file.h"
#include "base/json/json_write.h"
#include "base/table.h"
#include "planner/cli/outputs.h"
#include "planner/commands/commands.h"
#include "planner/configs/config_files.h"
#include "planner/plan/input_kind.h"
#include "planner/validate/runs_csv.h"
#include "planner/validate/trainer_fit.h"

#define NAME_BYTES 64 /* of a runtime */

struct job {
    const struct sbp_arguments *arguments;
    const char *csv;
    struct sbp_arena arena;
    const int *line; /* (runs) of the table */
    struct sbp_run_set set;
    struct sbp_trainer_fit fit;
};

/* ---- runs as a set --------------------------------------------------------------------------- */

static enum sbp_status open_config(struct job *job, enum sbp_config_kind kind, const char *word,
                                   struct cJSON **tree, struct sbp_diag *diag)
{
    struct sbp_json at;
    const char *path;
    const bool model = kind == SBP_CONFIG_MODEL;
    SBP_TRY(sbp_config_find(kind, word, &job->arena, &path, diag));
    SBP_TRY(sbp_outputs_check_input(job->arguments, path, diag));
    SBP_TRY(
        sbp_input_kind_open(path, model ? SBP_INPUT_MODEL : SBP_INPUT_CLUSTER, tree, &at, diag));
    if (cJSON_IsObject(*tree))
        return SBP_OK;
    cJSON_Delete(*tree);
    *tree = NULL;
    return sbp_fail(diag, SBP_E_INPUT, "%s: is no object, legal is a %s file", path,
                    model ? "model" : "cluster");
}

/* Runs that do not say how many devices they had had all of the cluster's, in its nodes. */
static enum sbp_status put_devices(struct job *job, struct cJSON *root, bool *failed,
                                   struct sbp_diag *diag)
{
    const char *word = job->arguments->operands.word[1];
    struct cJSON *cluster, *run = sbp_json_put_object(root, "run", failed);
    const struct cJSON *level;
    double devices = 1, innermost = 1;
    int levels = 0;
    SBP_TRY(open_config(job, SBP_CONFIG_CLUSTER, word, &cluster, diag));
    cJSON_ArrayForEach(level, cJSON_GetObjectItemCaseSensitive(cluster, "levels"))
    {
        const struct cJSON *size = cJSON_GetObjectItemCaseSensitive(level, "size");
        innermost = cJSON_IsNumber(size) ? size->valuedouble : 1; /* else the reader refuses it */
        devices *= innermost;
        levels++;
    }
    cJSON_Delete(cluster);
    sbp_json_put_number(run, "gpus", devices, failed);
    if (levels > 1)
        sbp_json_put_number(run, "gpus_per_node", innermost, failed);
    return SBP_OK;
}

static enum sbp_status fill_set(struct job *job, struct cJSON *root, struct sbp_diag *diag)
{
    const struct sbp_word_list *words = &job->arguments->operands;
    bool failed = false;
    struct cJSON *model;
    static const char *const texts[] = {"title", "source", "trainer"};
    sbp_json_put_text(root, "format", "sbplan runs", &failed);
    for (int i = 0; i < 3; i++)
        sbp_json_put_text(root, texts[i], job->csv, &failed);
    sbp_json_put_text(root, "cluster", words->word[1], &failed);
    (void)sbp_json_put_object(root, "bounds", &failed);
    SBP_TRY(put_devices(job, root, &failed, diag));
    SBP_TRY(open_config(job, SBP_CONFIG_MODEL, words->word[0], &model, diag));
    sbp_json_put(root, "model", model, &failed);
    SBP_TRY(sbp_runs_csv_read(job->csv, &job->arena, root, &job->line, diag));
    return failed ? sbp_fail(diag, SBP_E_MEMORY, "sbplan calibrate: out of memory") : SBP_OK;
}

static enum sbp_status open_set(struct job *job, struct sbp_diag *diag)
{
    struct cJSON *root = cJSON_CreateObject();
    const enum sbp_status status = fill_set(job, root, diag);
    if (status != SBP_OK) {
        cJSON_Delete(root);
        return status;
    }
    return sbp_run_set_open_tree(root, job->csv, job->line, job->arguments->runtime, &job->arena,
                                 &job->set, diag);
}

/* ---- the profile ----------------------------------------------------------------------------- */

static void replace(struct cJSON *object, const char *key, struct cJSON *item, bool *failed)
{
    cJSON_DeleteItemFromObjectCaseSensitive(object, key);
    sbp_json_put(object, key, item, failed);
}

/* "mine" of "folder/mine.json"; of a longer name whole characters. */
static void name_of(const char *path, char name[NAME_BYTES])
{
    const char *file = sbp_file_name(path), *dot = strrchr(file, '.');
    size_t length = dot != NULL && dot != file ? (size_t)(dot - file) : strlen(file);
    if (length >= NAME_BYTES) {
        length = NAME_BYTES - 1;
        while (length > 0 && ((unsigned char)file[length] & 0xc0) == 0x80)
            length--; /* UTF-8 goes on with these */
    }
    (void)snprintf(name, NAME_BYTES, "%.*s", (int)length, file);
}

static void put_source(const struct job *job, struct cJSON *runtime, bool *failed)
{
    char text[512], hash[SBP_HASH_BYTES];
    *failed |= !sbp_json_hash(cJSON_GetObjectItemCaseSensitive(job->set.root, "runs"), hash);
    (void)snprintf(text, sizeof text,
                   "fitted to %d of %d runs of %.200s (%s), least mean absolute relative error: "
                   "%.4g, of runs left out %.4g; sbplan %s",
                   job->fit.runs, job->set.run_count, sbp_file_name(job->csv), hash, job->fit.error,
                   job->fit.error_left_out, SBP_VERSION);
    struct cJSON *source = cJSON_CreateObject();
    for (int at = 0; at < SBP_FITTED; at++)
        if (job->fit.is_free[at])
            sbp_json_put_text(source, sbp_trainer_fit_name((enum sbp_fitted)at), text, failed);
    sbp_json_put_text(source, "error",
                      "nine of ten runs lie within this factor of predictions by fits without them",
                      failed);
    replace(runtime, "source", source, failed);
}

/* The runtime as fitted, which the caller deletes; NULL: memory ran out. */
static struct cJSON *profile(const struct job *job)
{
    char name[NAME_BYTES];
    bool failed = false;
    struct cJSON *runtime =
        cJSON_Duplicate(cJSON_GetObjectItemCaseSensitive(job->set.cluster, "runtime"), true);
    name_of(job->arguments->output == NULL ? job->csv : job->arguments->output, name);
    replace(runtime, "name", cJSON_CreateString(name), &failed);
    replace(runtime, "error", cJSON_CreateNumber(job->fit.most_left_out), &failed);
    put_source(job, runtime, &failed);
    if (!failed)
        return runtime;
    cJSON_Delete(runtime);
    return NULL;
}

/* ---- what is said ---------------------------------------------------------------------------- */

static enum sbp_status print_constants(const struct sbp_trainer_fit *fit)
{
    static const char *const titles[] = {"constant", "before", "fitted"};
    struct sbp_table table;
    sbp_table_init(&table, 3, titles);
    for (int at = 0; at < SBP_FITTED; at++) {
        sbp_table_cell(&table, "%s", sbp_trainer_fit_name((enum sbp_fitted)at));
        sbp_table_cell(&table, "%.3g", fit->before[at]);
        if (fit->is_free[at])
            sbp_table_cell(&table, "%.3g", fit->value[at]);
        else
            sbp_table_cell(&table, "kept");
    }
    const enum sbp_status status = sbp_table_print(&table, stdout, 0);
    sbp_table_free(&table);
    return status;
}

static enum sbp_status print_fit(const struct job *job)
{
    const struct sbp_trainer_fit *fit = &job->fit;
    SBP_PRINT_LINE("runs       %d of %s", fit->runs, job->csv);
    if (fit->refused > 0)
        SBP_PRINT("; %d cannot be priced:", fit->refused);
    for (int i = 0; i < fit->refused && i < SBP_FIT_REFUSALS; i++)
        SBP_PRINT_LINE("\n           %s", fit->refusal[i].text);
    if (fit->refused > SBP_FIT_REFUSALS)
        SBP_PRINT("\n           and %d more", fit->refused - SBP_FIT_REFUSALS);
    SBP_PRINT("\nerror      %.1f %% before, %.1f %% fitted, %.1f %% of runs that a fit was not "
              "shown\n\n",
              100 * fit->error_before, 100 * fit->error, 100 * fit->error_left_out);
    SBP_TRY(print_constants(fit));
    SBP_PRINT("\nkept: the runs say nothing of it, or are too few: two for each constant\n");
    if (job->arguments->output != NULL)
        SBP_PRINT_LINE("wrote %s: --runtime %s\n", job->arguments->output, job->arguments->output);
    return SBP_OK;
}

static enum sbp_status answer(const struct job *job, struct sbp_diag *diag)
{
    const struct sbp_arguments *arguments = job->arguments;
    struct cJSON *runtime = profile(job);
    enum sbp_status status = SBP_OK;
    if (arguments->output != NULL)
        status = sbp_json_write(runtime, arguments->output, diag);
    if (status == SBP_OK && arguments->json)
        status = sbp_json_print(runtime, stdout, diag);
    else if (status == SBP_OK)
        status = print_fit(job);
    cJSON_Delete(runtime);
    return status;
}

enum sbp_status sbp_command_fit(const struct sbp_arguments *arguments, const char *csv,
                                struct sbp_diag *diag)
{
    struct job job = {.arguments = arguments, .csv = csv};
    if (arguments->operands.count != 2)
        return sbp_fail(diag, SBP_E_USAGE,
                        "sbplan calibrate: --runs RUNS.csv is fitted with MODEL and CLUSTER, here "
                        "are %d of them",
                        arguments->operands.count);
    if (arguments->output != NULL)
        SBP_TRY(sbp_file_check_writable(arguments->output, diag));
    SBP_TRY(sbp_outputs_check_input(arguments, csv, diag));
    enum sbp_status status = open_set(&job, diag);
    if (status == SBP_OK)
        status = sbp_trainer_fit_make(&job.set, arguments->stop, &job.fit, diag);
    if (status == SBP_OK)
        status = answer(&job, diag);
    sbp_run_set_free(&job.set);
    sbp_arena_free(&job.arena);
    return status == SBP_STOPPED
               ? sbp_fail(diag, SBP_E_IO, "sbplan calibrate: interrupted before the fit ended")
               : status;
}
