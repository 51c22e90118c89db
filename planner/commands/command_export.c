/* `sbplan export PLAN --to NAME -o FILE`: a plan as a trainer's own files say it. */
#include <cjson/cJSON.h>

#include "base/file.h"
#include "base/json/json_write.h"
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

static enum sbp_status print_text(const struct sbp_export *export, const struct sbp_report *given,
                                  const struct sbp_report *exported, const char *path)
{
    SBP_TRY(print_layout("plan", given));
    SBP_TRY(print_layout("exported", exported));
    SBP_TRY(print_losses(export));
    SBP_TRY(print_price(export));
    SBP_PRINT_LINE("\nwrote %s, %s\n", path, sbp_export_what(export->target));
    return SBP_OK;
}

/* --- JSON --- */

static enum sbp_status print_json(const struct sbp_export *export, const struct sbp_report *given,
                                  const struct sbp_report *exported, const char *path,
                                  struct sbp_diag *diag)
{
    const struct {
        const char *key;
        const struct sbp_report *report;
    } plans[] = {{"plan", given}, {"exported", exported}};
    struct cJSON *json = cJSON_CreateObject();
    bool failed = json == NULL;
    sbp_json_put_text(json, "file", path, &failed);
    sbp_json_put_text(json, "is", sbp_export_what(export->target), &failed);
    struct cJSON *lost = sbp_json_put_array(json, "lost", &failed);
    for (int i = 0; i < export->loss_count; i++)
        sbp_json_push_text(lost, export->loss[i], &failed);
    sbp_json_put_bool(json, "fits", fits(export), &failed);
    for (int i = 0; i < 2 && !failed; i++)
        sbp_report_put(sbp_json_put_object(json, plans[i].key, &failed), plans[i].report,
                       &(struct sbp_report_options){0}, &failed);
    return sbp_json_finish(json, failed, diag);
}

/* --- either --- */

static enum sbp_status report(const struct sbp_arguments *arguments,
                              const struct sbp_export *export, struct sbp_diag *diag)
{
    struct sbp_report given = {0}, exported = {0};
    const char *path = arguments->output;
    enum sbp_status status = sbp_report_make(export->given, &given, diag);
    if (status == SBP_OK)
        status = sbp_report_make(&export->plan, &exported, diag);
    if (status == SBP_OK)
        status = arguments->json ? print_json(export, &given, &exported, path, diag)
                                 : print_text(export, &given, &exported, path);
    sbp_report_free(&given);
    sbp_report_free(&exported);
    return status;
}

static enum sbp_status write_file(struct sbp_export *export, const char *path,
                                  struct sbp_diag *diag)
{
    struct sbp_text text = {0};
    enum sbp_status status = sbp_export_write(export, &text, diag);
    if (status == SBP_OK)
        status = sbp_file_write(path, text.bytes, text.length, diag);
    sbp_text_free(&text);
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
static enum sbp_status make(const struct sbp_arguments *arguments, const struct sbp_plan *plan,
                            struct sbp_export *export, struct sbp_diag *diag)
{
    const struct sbp_solver_options options = {.time_limit_s = SBP_COMMANDS_TIME_LIMIT_S,
                                               .stop = arguments->stop};
    struct sbp_diag why = {{0}};
    const enum sbp_status status =
        sbp_export_make(plan, sbp_export_target(arguments->to), &options, export, &why);
    return status == SBP_OK
               ? SBP_OK
               : sbp_fail(diag, status, "%s: %s", arguments->operands.word[0], why.text);
}

enum sbp_status sbp_command_export(const struct sbp_arguments *arguments, struct sbp_diag *diag)
{
    struct sbp_plan plan;
    struct sbp_export export = {0};
    SBP_TRY(check_arguments(arguments, diag));
    SBP_TRY(sbp_plan_read(arguments->operands.word[0], &plan, diag));
    enum sbp_status status = make(arguments, &plan, &export, diag);
    if (status == SBP_OK)
        status = write_file(&export, arguments->output, diag);
    if (status == SBP_OK)
        status = report(arguments, &export, diag);
    sbp_export_free(&export);
    sbp_plan_free(&plan);
    return status;
}
