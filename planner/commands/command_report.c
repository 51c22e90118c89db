/* `sbplan report FILE... -o page.html`: plans, sweeps and runs as a page to look at. */
#include <stdlib.h>

#include <cjson/cJSON.h>

#include "base/file.h"
#include "base/json/json.h"
#include "planner/cli/outputs.h"
#include "planner/commands/commands.h"
#include "planner/page/page.h"
#include "planner/plan/input_kind.h"

enum { MOST_FILES = 64 };

/* Plans and reports must not be moved, so that they lie where they are made. */
struct shown {
    struct sbp_plan plan[MOST_FILES];
    struct sbp_report report[MOST_FILES];
    struct sbp_price_interval trust[MOST_FILES];
    struct cJSON *json[MOST_FILES]; /* of sweeps and runs */
    struct sbp_page_plan plans[MOST_FILES];
    struct sbp_page_file sweeps[MOST_FILES], runs[MOST_FILES];
    int json_count;
    struct sbp_page page;
};

static enum sbp_status read_plan(struct shown *shown, const char *path, struct sbp_diag *diag)
{
    const int at = shown->page.plan_count;
    SBP_TRY(sbp_plan_read(path, &shown->plan[at], diag));
    shown->page.plan_count++;
    SBP_TRY(sbp_report_make(&shown->plan[at], &shown->report[at], diag));
    shown->plans[at] =
        (struct sbp_page_plan){path, &shown->plan[at], &shown->report[at], &shown->trust[at]};
    return sbp_price_interval_make(&shown->plan[at], &shown->report[at].step, &shown->trust[at],
                                   diag);
}

static bool has(const struct cJSON *json, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(json, key) != NULL;
}

/* Takes what a sweep or a run printed; what is known as something else is refused as that. */
static enum sbp_status take_json(struct shown *shown, const char *path, struct cJSON *json,
                                 const struct sbp_json *at)
{
    const struct sbp_page_file file = {path, json};
    shown->json[shown->json_count++] = json;
    if (has(json, "rows") && has(json, "command")) {
        shown->sweeps[shown->page.sweep_count++] = file;
        return SBP_OK;
    }
    if (has(json, "steps") && has(json, "predicted")) {
        shown->runs[shown->page.run_count++] = file;
        return SBP_OK;
    }
    SBP_TRY(sbp_input_kind_check(at, SBP_INPUT_PLAN));
    return sbp_json_refuse(at, "is neither a plan nor what sbplan search --sweep --json or sbplan "
                               "run --json prints");
}

static enum sbp_status read_file(struct shown *shown, const char *path, struct sbp_diag *diag)
{
    struct cJSON *json;
    struct sbp_json at;
    SBP_TRY(sbp_json_open(path, &json, &at, diag));
    if (sbp_input_kind_of(json) != SBP_INPUT_PLAN)
        return take_json(shown, path, json, &at);
    cJSON_Delete(json);
    return read_plan(shown, path, diag);
}

static enum sbp_status read_files(struct shown *shown, const struct sbp_arguments *arguments,
                                  struct sbp_diag *diag)
{
    const struct sbp_word_list *files = &arguments->operands;
    if (arguments->output == NULL)
        return sbp_fail(diag, SBP_E_USAGE,
                        "sbplan report: -o FILE is needed, such as -o page.html");
    if (files->count > MOST_FILES)
        return sbp_fail(diag, SBP_E_USAGE, "sbplan report: %d files given, at most %d are shown",
                        files->count, MOST_FILES);
    for (int i = 0; i < files->count; i++) {
        SBP_TRY(sbp_outputs_check_input(arguments, files->word[i], diag));
        SBP_TRY(read_file(shown, files->word[i], diag));
    }
    if (shown->page.plan_count == 0)
        return sbp_fail(diag, SBP_E_USAGE,
                        "sbplan report: no plan is among the files: a page shows at least one");
    return SBP_OK;
}

static enum sbp_status write_page(struct shown *shown, const struct sbp_arguments *arguments,
                                  struct sbp_diag *diag)
{
    struct sbp_text html = {0};
    char bytes[32];
    shown->page.command = arguments->record;
    shown->page.plan = shown->plans;
    shown->page.sweep = shown->sweeps;
    shown->page.run = shown->runs;
    enum sbp_status status = sbp_page_write(&shown->page, &html, diag);
    if (status == SBP_OK)
        status = sbp_file_write(arguments->output, html.bytes, html.length, diag);
    (void)sbp_format_bytes((double)html.length, bytes);
    sbp_text_free(&html);
    SBP_TRY(status);
    SBP_PRINT_LINE("wrote %s, %s\n", arguments->output, bytes);
    return SBP_OK;
}

static void free_shown(struct shown *shown)
{
    for (int i = 0; i < shown->page.plan_count; i++) {
        sbp_report_free(&shown->report[i]);
        sbp_plan_free(&shown->plan[i]);
    }
    for (int i = 0; i < shown->json_count; i++)
        cJSON_Delete(shown->json[i]);
    free(shown);
}

enum sbp_status sbp_command_report(const struct sbp_arguments *arguments, struct sbp_diag *diag)
{
    struct shown *shown = calloc(1, sizeof *shown);
    if (shown == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    enum sbp_status status = read_files(shown, arguments, diag);
    if (status == SBP_OK)
        status = write_page(shown, arguments, diag);
    free_shown(shown);
    return status;
}
