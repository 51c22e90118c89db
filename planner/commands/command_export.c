/* `sbplan export PLAN --to NAME -o FILE`: a plan as a trainer's own files say it. */
#include <stdlib.h>

#include <cjson/cJSON.h>

#include "base/file.h"
#include "base/json/json_write.h"
#include "planner/cli/inputs.h"
#include "planner/cli/outputs.h"
#include "planner/commands/commands.h"
#include "planner/export/export.h"
#include "planner/limits.h"
#include "planner/report/report.h"

/* --- text --- */

static enum sbp_status print_layout(const char *title, const struct sbp_report *report)
{
    char line[SBP_LAYOUT_BYTES], sizes[SBP_LAYOUT_BYTES];
    SBP_PRINT("%-10s %s\n", title, sbp_layout_line_text(&report->layout, line));
    if (sbp_layout_line_sizes(&report->layout, sizes)[0] != '\0')
        SBP_PRINT("           %s\n", sizes);
    return SBP_OK;
}

static enum sbp_status print_losses(const struct sbp_export *export)
{
    if (export->loss_count == 0)
        SBP_PRINT("lost       nothing\n");
    for (int i = 0; i < export->loss_count; i++)
        SBP_PRINT_LINE("%s%s\n", i == 0 ? "lost       " : "           ", export->loss[i]);
    return SBP_OK;
}

static bool fits(const struct sbp_export *export)
{
    return export->exported_bytes <= export->plan.workload.cluster.memory_bytes;
}

static enum sbp_status print_price(const struct sbp_export *export)
{
    char one[32], two[32], limit[32];
    SBP_PRINT("step       %s by the plan, %s as exported (%+.1f %%)\n",
              sbp_report_seconds(export->given_s, one), sbp_report_seconds(export->exported_s, two),
              100 * (export->exported_s / export->given_s - 1));
    SBP_PRINT("memory     %s by the plan, %s as exported",
              sbp_format_bytes((double)export->given_bytes, one),
              sbp_format_bytes((double)export->exported_bytes, two));
    if (!fits(export))
        SBP_PRINT(", which does not fit %s",
                  sbp_format_bytes((double)export->plan.workload.cluster.memory_bytes, limit));
    SBP_PRINT("\n");
    return SBP_OK;
}

/* "args", or the first and the last of several: "step.0.et ... step.groups.json". */
static enum sbp_status print_files(const struct sbp_export_files *files,
                                   const struct sbp_export_target *target)
{
    const char *first = files->file[0].name.bytes;
    const char *last = files->file[files->count - 1].name.bytes;
    if (files->count == 1)
        SBP_PRINT_LINE("\nwrote %s, %s\n", first, sbp_export_what(target));
    else
        SBP_PRINT_LINE("\nwrote %d files, %s ... %s, %s\n", files->count, first, last,
                       sbp_export_what(target));
    return SBP_OK;
}

static enum sbp_status print_text(const struct sbp_export *export, const struct sbp_report *given,
                                  const struct sbp_report *exported,
                                  const struct sbp_export_files *files)
{
    SBP_TRY(print_layout("plan", given));
    SBP_TRY(print_layout("exported", exported));
    SBP_TRY(print_losses(export));
    SBP_TRY(print_price(export));
    return print_files(files, export->target);
}

/* --- JSON --- */

static enum sbp_status print_json(const struct sbp_export *export, const struct sbp_report *given,
                                  const struct sbp_report *exported,
                                  const struct sbp_export_files *files, struct sbp_diag *diag)
{
    const struct {
        const char *key;
        const struct sbp_report *report;
    } plans[] = {{"plan", given}, {"exported", exported}};
    struct cJSON *json = cJSON_CreateObject();
    bool failed = json == NULL;
    struct cJSON *names = sbp_json_put_array(json, "files", &failed);
    for (int i = 0; i < files->count && !failed; i++)
        sbp_json_push_text(names, files->file[i].name.bytes, &failed);
    sbp_json_put_text(json, "is", sbp_export_what(export->target), &failed);
    struct cJSON *lost = sbp_json_put_array(json, "lost", &failed);
    for (int i = 0; i < export->loss_count; i++)
        sbp_json_push_text(lost, export->loss[i], &failed);
    sbp_json_put_bool(json, "fits", fits(export), &failed);
    sbp_json_put_number(json, "plan_step_s", export->given_s, &failed);
    sbp_json_put_number(json, "exported_step_s", export->exported_s, &failed);
    for (int i = 0; i < 2 && !failed; i++)
        sbp_report_put(sbp_json_put_object(json, plans[i].key, &failed), plans[i].report,
                       &(struct sbp_report_options){0}, &failed);
    return sbp_json_finish(json, failed, diag);
}

/* --- either --- */

static enum sbp_status report(const struct sbp_arguments *arguments,
                              const struct sbp_export *export, const struct sbp_export_files *files,
                              struct sbp_diag *diag)
{
    struct sbp_report given = {0}, exported = {0};
    enum sbp_status status = sbp_report_make(export->given, &given, diag);
    if (status == SBP_OK)
        status = sbp_report_make(&export->plan, &exported, diag);
    if (status == SBP_OK)
        status = arguments->json ? print_json(export, &given, &exported, files, diag)
                                 : print_text(export, &given, &exported, files);
    sbp_report_free(&given);
    sbp_report_free(&exported);
    return status;
}

/* Writes all files or none; none is the plan. */
static enum sbp_status write_files(const struct sbp_export_files *files, const char *plan,
                                   struct sbp_diag *diag)
{
    struct sbp_file_text *all = calloc((size_t)files->count + 1, sizeof *all);
    enum sbp_status status = all == NULL ? sbp_fail(diag, SBP_E_MEMORY, "out of memory") : SBP_OK;
    for (int i = 0; i < files->count && status == SBP_OK; i++) {
        const struct sbp_export_file *file = &files->file[i];
        all[i] = (struct sbp_file_text){
            .path = file->name.bytes, .text = file->text.bytes, .length = file->text.length};
        if (file->name.failed)
            status = sbp_fail(diag, SBP_E_MEMORY, "out of memory");
        else if (sbp_file_is_same(file->name.bytes, plan))
            status = sbp_fail(diag, SBP_E_USAGE,
                              "sbplan export: %s would overwrite what is read from %s",
                              file->name.bytes, plan);
    }
    if (status == SBP_OK)
        status = files->count == 1 ? sbp_file_write(all[0].path, all[0].text, all[0].length, diag)
                                   : sbp_file_write_all(all, files->count, diag);
    free(all);
    return status;
}

static enum sbp_status check_arguments(const struct sbp_arguments *arguments, struct sbp_diag *diag)
{
    struct sbp_text legal = {0};
    if (arguments->output == NULL)
        return sbp_fail(diag, SBP_E_USAGE, "sbplan export: -o FILE is needed");
    if (arguments->to >= 0)
        return sbp_outputs_check_input(arguments, arguments->operands.word[0], diag);
    for (int i = 0; sbp_export_name(i) != NULL; i++)
        sbp_text_add(&legal, "%s%s", i > 0 ? ", " : "", sbp_export_name(i));
    const enum sbp_status status =
        sbp_fail(diag, SBP_E_USAGE, "sbplan export: --to NAME is needed, legal is %s",
                 legal.failed ? "what the help says" : legal.bytes);
    sbp_text_free(&legal);
    return status;
}

/* A target's complaint is about the plan. */
static enum sbp_status refuse(const struct sbp_arguments *arguments, enum sbp_status status,
                              const struct sbp_diag *why, struct sbp_diag *diag)
{
    return status == SBP_OK
               ? SBP_OK
               : sbp_fail(diag, status, "%s: %s", arguments->operands.word[0], why->text);
}

static enum sbp_status export_plan(const struct sbp_arguments *arguments,
                                   const struct sbp_plan *plan, struct sbp_export *export,
                                   struct sbp_export_files *files, struct sbp_diag *diag)
{
    const struct sbp_solver_options options = {.time_limit_s = SBP_COMMANDS_TIME_LIMIT_S,
                                               .stop = arguments->stop};
    struct sbp_diag why = {{0}};
    enum sbp_status status =
        sbp_export_make(plan, sbp_export_target(arguments->to), &options, export, &why);
    if (status == SBP_OK)
        status = sbp_export_write(export, arguments->output, files, &why);
    SBP_TRY(refuse(arguments, status, &why, diag));
    SBP_TRY(write_files(files, arguments->operands.word[0], diag));
    return report(arguments, export, files, diag);
}

enum sbp_status sbp_command_export(const struct sbp_arguments *arguments, struct sbp_diag *diag)
{
    struct sbp_plan plan;
    struct sbp_export export = {0};
    struct sbp_export_files files = {0};
    SBP_TRY(check_arguments(arguments, diag));
    SBP_TRY(sbp_inputs_read_plan(arguments->operands.word[0], &plan, diag));
    const enum sbp_status status = export_plan(arguments, &plan, &export, &files, diag);
    sbp_export_files_free(&files);
    sbp_export_free(&export);
    sbp_plan_free(&plan);
    return status;
}
