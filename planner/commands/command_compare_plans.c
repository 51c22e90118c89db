/* `sbplan compare PLAN PLAN`: which plan is faster and why, what both cost, and how they differ. */
#include <string.h>

#include <cjson/cJSON.h>

#include "base/json/json_write.h"
#include "base/table.h"
#include "base/text.h"
#include "planner/cli/inputs.h"
#include "planner/commands/commands.h"
#include "planner/plan/plan_diff.h"
#include "planner/report/plan_contrast.h"
#include "planner/report/plan_line.h"
#include "planner/report/report.h"

struct pair {
    const char *path[2];
    struct sbp_plan plan[2];
    struct sbp_report report[2];
    struct sbp_contrast contrast;
    char change[SBP_PLAN_CHANGE_BYTES];
};

/* --- text --- */

static void name_row(struct sbp_table *table, const char *what, const char *one, const char *two)
{
    sbp_table_cell(table, "%s", what);
    sbp_table_cell(table, "%s", one);
    sbp_table_cell(table, "%s", two);
}

static void time_row(struct sbp_table *table, const char *what, double one_s, double two_s)
{
    char one[32], two[32];
    name_row(table, what, sbp_report_seconds(one_s, one), sbp_report_seconds(two_s, two));
}

static void cost_rows(struct sbp_table *table, const struct pair *pair)
{
    const struct sbp_summary *a = &pair->report[0].summary, *b = &pair->report[1].summary;
    char one[SBP_RATE_BYTES], two[SBP_RATE_BYTES];
    time_row(table, "step", a->totals.step_s, b->totals.step_s);
    time_row(table, "compute", sbp_summary_work_s(a), sbp_summary_work_s(b));
    time_row(table, "exposed communication", a->totals.exposed_s, b->totals.exposed_s);
    const bool stages = a->stages > 1 || b->stages > 1;
    if (stages || a->totals.bubble_s > 0 || b->totals.bubble_s > 0)
        time_row(table, stages ? "bubble" : "waiting for hosts", a->totals.bubble_s,
                 b->totals.bubble_s);
    name_row(table, "rate", sbp_report_rate(&pair->report[0], one),
             sbp_report_rate(&pair->report[1], two));
    name_row(table, "memory", sbp_format_bytes((double)a->totals.device_bytes, one),
             sbp_format_bytes((double)b->totals.device_bytes, two));
}

/* Which is faster: by steps of one batch, else by rates. */
static enum sbp_status print_faster(const struct pair *pair)
{
    const struct sbp_contrast *contrast = &pair->contrast;
    const int one = contrast->faster < 0 ? 0 : contrast->faster, other = 1 - one;
    const double ratio = contrast->step_s[other] / contrast->step_s[one];
    char a[SBP_RATE_BYTES], b[SBP_RATE_BYTES];
    if (!contrast->same_batch) {
        (void)sbp_report_rate(&pair->report[one], a);
        (void)sbp_report_rate(&pair->report[other], b);
    } else {
        (void)sbp_report_seconds(contrast->step_s[one], a);
        (void)sbp_report_seconds(contrast->step_s[other], b);
    }
    if (!contrast->same_unit)
        SBP_PRINT_LINE("faster     neither: rates of %s and of %s are not compared\n", a, b);
    else if (contrast->faster < 0)
        SBP_PRINT_LINE("faster     neither: %s both\n", a);
    else if (contrast->same_batch)
        SBP_PRINT_LINE("faster     %s: %s a step, %s takes %.3g %% more, %s\n", pair->path[one], a,
                       pair->path[other], 100 * (ratio - 1), b);
    else
        SBP_PRINT_LINE("faster     %s: %s, %s reaches %.3g %% less, %s\n", pair->path[one], a,
                       pair->path[other], 100 * (1 - 1 / ratio), b);
    return SBP_OK;
}

/* Why: the parts of the step that make the difference, and the words of the layouts. */
static enum sbp_status print_why(const struct pair *pair)
{
    char one[SBP_CONTRAST_BYTES], two[SBP_CONTRAST_BYTES];
    const struct sbp_contrast *contrast = &pair->contrast;
    if (*sbp_contrast_reasons(contrast, one) != '\0')
        SBP_PRINT("because    %s%s\n",
                  contrast->same_batch ? "" : "at the batch of the first plan: ", one);
    (void)sbp_contrast_words(contrast, 0, one);
    (void)sbp_contrast_words(contrast, 1, two);
    if (*one != '\0' || *two != '\0')
        SBP_PRINT_LINE("layout     %s: %s; %s: %s\n", pair->path[0], *one == '\0' ? "-" : one,
                       pair->path[1], *two == '\0' ? "-" : two);
    SBP_PRINT("\n");
    return SBP_OK;
}

static enum sbp_status print_text(const struct pair *pair)
{
    const char *titles[] = {"", pair->path[0], pair->path[1]};
    char one[SBP_PLAN_LINE_BYTES], two[SBP_PLAN_LINE_BYTES];
    struct sbp_table table;
    SBP_TRY(print_faster(pair));
    SBP_TRY(print_why(pair));
    sbp_table_init(&table, 3, titles);
    name_row(&table, "model", pair->plan[0].cut.graph.name, pair->plan[1].cut.graph.name);
    name_row(&table, "cluster", pair->plan[0].workload.cluster.name,
             pair->plan[1].workload.cluster.name);
    cost_rows(&table, pair);
    name_row(&table, "plan (layers)", sbp_plan_line(&pair->plan[0], SBP_SPACE_FULL, one),
             sbp_plan_line(&pair->plan[1], SBP_SPACE_FULL, two));
    const enum sbp_status status = sbp_table_print(&table, stdout, 0);
    sbp_table_free(&table);
    SBP_TRY(status);
    SBP_PRINT("\nfrom the first to the second: %s\n",
              pair->change[0] == '\0' ? "nothing differs in stages, roles, rests and ZeRO"
                                      : pair->change);
    return SBP_OK;
}

/* --- JSON --- */

static void put_contrast(struct cJSON *json, const struct sbp_contrast *contrast, bool *failed)
{
    sbp_json_put_number(json, "faster", contrast->faster, failed);
    struct cJSON *because = sbp_json_put_array(json, "because", failed);
    for (int i = 0; i < contrast->count && !*failed; i++) {
        struct cJSON *part = sbp_json_push_object(because, failed);
        sbp_json_put_text(part, "what", contrast->part[i].what, failed);
        sbp_json_put_number(part, "saved_s", contrast->part[i].saved_s, failed);
    }
}

static enum sbp_status print_json(const struct pair *pair, struct sbp_diag *diag)
{
    struct cJSON *json = cJSON_CreateObject();
    bool failed = json == NULL;
    struct cJSON *plans = sbp_json_put_array(json, "plans", &failed);
    for (int i = 0; i < 2 && !failed; i++) {
        struct cJSON *item = sbp_json_push_object(plans, &failed);
        sbp_json_put_text(item, "file", pair->path[i], &failed);
        sbp_report_put(item, &pair->report[i], &(struct sbp_report_options){0}, &failed);
    }
    sbp_json_put_text(json, "change", pair->change, &failed);
    put_contrast(json, &pair->contrast, &failed);
    return sbp_json_finish(json, failed, diag);
}

/* --- either --- */

/* Plans hold their model, cluster and search: no option changes them. */
static enum sbp_status check_options(const struct sbp_arguments *arguments, struct sbp_diag *diag)
{
    const bool changed = arguments->set.count > 0 || arguments->devices > 0 ||
                         arguments->memory_limit_bytes > 0 || arguments->algorithm > 0 ||
                         arguments->objective > 0 || arguments->max_evaluations > 0 ||
                         arguments->time_limit_s.is_given || arguments->runtime != NULL;
    return changed ? sbp_fail(diag, SBP_E_USAGE,
                              "sbplan compare: two plans are compared as they are, legal is --json")
                   : SBP_OK;
}

static enum sbp_status compare(struct pair *pair, bool json, struct sbp_diag *diag)
{
    for (int i = 0; i < 2; i++) {
        SBP_TRY(sbp_inputs_read_plan(pair->path[i], &pair->plan[i], diag));
        SBP_TRY(sbp_report_make(&pair->plan[i], &pair->report[i], diag));
    }
    sbp_contrast_make(&pair->report[0], &pair->report[1], &pair->contrast);
    (void)sbp_plan_change(&pair->plan[0], &pair->plan[1], pair->change);
    return json ? print_json(pair, diag) : print_text(pair);
}

enum sbp_status sbp_command_compare_plans(const struct sbp_arguments *arguments,
                                          struct sbp_diag *diag)
{
    struct pair pair = {.path = {arguments->operands.word[0], arguments->operands.word[1]}};
    SBP_TRY(check_options(arguments, diag));
    const enum sbp_status status = compare(&pair, arguments->json, diag);
    for (int i = 0; i < 2; i++) {
        sbp_report_free(&pair.report[i]);
        sbp_plan_free(&pair.plan[i]);
    }
    return status;
}
