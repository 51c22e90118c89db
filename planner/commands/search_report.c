/* The answers of the commands search and price: the plan that was found, or the reason why there is
 * none. */
#include <stddef.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/json/json_write.h"
#include "base/text.h"
#include "costmodel/program/runnable.h"
#include "planner/commands/commands.h"
#include "planner/commands/search_session_priv.h"
#include "planner/export/export.h"
#include "planner/limits.h"
#include "planner/report/price_interval.h"
#include "planner/space/space_table.h"
#include "planner/validate/simplest.h"

static struct sbp_report_options report_options(const struct sbp_search_job *job)
{
    return (struct sbp_report_options){.tokens = job->arguments->tokens,
                                       .memory_limit_bytes = job->arguments->memory_limit_bytes};
}

/* --- text --- */

/* A price is no search; where outputs rest may have been one. */
static enum sbp_status print_priced(const struct sbp_search_job *job)
{
    char verdict[SBP_VERDICT_BYTES];
    const bool proved = job->outcome.status == SBP_PLAN_OPTIMAL;
    SBP_PRINT_LINE("priced     as %s, %s boxing%s%s\n", job->priced,
                   sbp_strategy_boxing_name(job->request.boxing), proved ? "" : "; rests: ",
                   proved ? "" : sbp_search_outcome_verdict(job, verdict));
    return SBP_OK;
}

static enum sbp_status print_notes(const struct sbp_search_job *job)
{
    for (int i = 0; i < job->note_count; i++)
        SBP_PRINT_LINE("%s%s\n", i == 0 ? "notes      " : "           ", job->note[i]);
    return SBP_OK;
}

static enum sbp_status print_search(const struct sbp_search_job *job)
{
    const struct sbp_outcome *outcome = &job->outcome;
    char verdict[SBP_VERDICT_BYTES], count[32], wall[32];
    if (job->priced != NULL)
        return print_priced(job);
    if (sbp_search_layouts_of(job) != NULL)
        SBP_PRINT("search     %d layouts of %s, ", job->layouts,
                  sbp_export_search_name(job->arguments->target));
    else
        SBP_PRINT("search     space %s, ", sbp_request_space_name(job->request.space));
    if (outcome->space_size_log10 > 0)
        SBP_PRINT("10^%.1f strategies, ", outcome->space_size_log10);
    else if (outcome->evaluations > 0 && job->layouts == 0) /* 0: not counted */
        SBP_PRINT("1 strategy, ");
    SBP_PRINT("%s boxing; ", sbp_strategy_boxing_name(job->request.boxing));
    if (outcome->algorithm != NULL)
        SBP_PRINT("%s: ", outcome->algorithm);
    SBP_PRINT("%s\n", sbp_search_outcome_verdict(job, verdict));
    SBP_PRINT("           %s evaluations in %s, seed %lld\n",
              sbp_format_count((double)outcome->evaluations, count),
              sbp_format_seconds(outcome->wall_s, wall), (long long)job->arguments->seed);
    return SBP_OK;
}

/* Looks for a simpler layout where all was open to the search, in the time that it left. */
static enum sbp_status find_simplest(const struct sbp_search_job *job, double step_s,
                                     struct sbp_simplest *simplest, struct sbp_diag *diag)
{
    *simplest = (struct sbp_simplest){.is_found = false};
    if (job->priced != NULL || job->request.space != SBP_SPACE_FULL || job->request.runnable ||
        job->request.fix_count > 0 || job->request.given != 0 || job->outcome.stopped ||
        job->request.objective != SBP_STEP_TIME)
        return SBP_OK;
    const struct sbp_solver_options limits = {
        .time_limit_s = SBP_OUTER_TIME_SHARE * job->request.solver_options.time_limit_s,
        .stop = job->request.solver_options.stop};
    const struct sbp_solver_options left = sbp_solver_options_left(limits, job->outcome.wall_s, 0);
    return sbp_simplest_find(&job->plan, step_s, job->request.memory_limit_bytes, &left, simplest,
                             diag);
}

static enum sbp_status print_simplest(const struct sbp_search_job *job, double step_s,
                                      struct sbp_diag *diag)
{
    struct sbp_simplest simplest;
    char options[SBP_SIMPLEST_BYTES], seconds[32];
    SBP_TRY(find_simplest(job, step_s, &simplest, diag));
    if (simplest.is_found)
        SBP_PRINT("simplest   %s with %s of sbplan price: the interval holds both\n",
                  sbp_report_seconds(simplest.step_s, seconds),
                  sbp_simplest_options(&simplest, options));
    return SBP_OK;
}

static enum sbp_status put_simplest(struct cJSON *json, const struct sbp_search_job *job,
                                    double step_s, bool *failed, struct sbp_diag *diag)
{
    struct sbp_simplest simplest;
    char options[SBP_SIMPLEST_BYTES];
    SBP_TRY(find_simplest(job, step_s, &simplest, diag));
    if (!simplest.is_found)
        return SBP_OK;
    struct cJSON *object = sbp_json_put_object(json, "simplest", failed);
    sbp_json_put_text(object, "options", sbp_simplest_options(&simplest, options), failed);
    sbp_json_put_number(object, "step_s", simplest.step_s, failed);
    return SBP_OK;
}

/* A micro-batch that is given in another tool's meaning, of one replica, keeps replicas away. */
static enum sbp_status print_replicas(const struct sbp_search_job *job)
{
    const struct sbp_cut *cut = &job->plan.cut;
    const int64_t micro_batch = cut->parallel.micro_batch;
    const bool given =
        cJSON_GetObjectItemCaseSensitive(job->settings.parallel, "micro_batch") != NULL;
    if (!given || job->priced != NULL ||
        micro_batch * cut->parallel.pipeline >= sbp_cut_devices(cut))
        return SBP_OK;
    SBP_PRINT("           micro_batch=%lld is of all replicas of a stage together: DP is %lld at "
              "most; --micro-batch, beside --pp, is of each\n",
              (long long)micro_batch, (long long)micro_batch);
    return SBP_OK;
}

static enum sbp_status print_text(const struct sbp_search_job *job, const struct sbp_report *report,
                                  struct sbp_diag *diag)
{
    const struct sbp_report_options options = report_options(job);
    struct sbp_price_interval trust;
    SBP_TRY(sbp_price_interval_make(report->plan, &report->step, &trust, diag));
    SBP_TRY(sbp_report_print_model(&job->plan, stdout));
    SBP_TRY(print_search(job));
    SBP_TRY(print_notes(job));
    SBP_TRY(print_replicas(job));
    SBP_TRY(sbp_report_print_cost(report, &options, stdout));
    SBP_TRY(sbp_price_interval_print(&trust, report->summary.totals.step_s, stdout));
    SBP_TRY(print_simplest(job, report->summary.totals.step_s, diag));
    SBP_TRY(sbp_search_measured_print(job, report->summary.totals.step_s, diag));
    SBP_PRINT("\n");
    SBP_TRY(sbp_report_print_layers(report, stdout));
    if (job->arguments->output != NULL)
        SBP_PRINT_LINE("\nwrote %s\n", job->arguments->output);
    return SBP_OK;
}

static enum sbp_status print_top(const struct sbp_search_job *job, const struct sbp_search_top *all)
{
    SBP_TRY(sbp_report_print_model(&job->plan, stdout));
    SBP_TRY(print_search(job));
    SBP_PRINT("\n");
    return sbp_search_top_print(all);
}

/* Whether the search tried all values of a key. */
static bool was_searched(const struct sbp_search_job *job, const char *key)
{
    const struct sbp_outer *outer = &sbp_space_rule(job->request.space)->outer;
    const bool open = strcmp(key, "pipeline") == 0      ? outer->pipeline
                      : strcmp(key, "micro_batch") == 0 ? outer->micro_batch
                      : strcmp(key, "recompute") == 0   ? outer->recompute
                      : strcmp(key, "offload") == 0     ? outer->offload
                                                        : outer->per_layer_zero;
    return open && !sbp_request_gives(&job->request, key);
}

/* Whether a key may be given a value that the search did not try: what --runnable asks for and the
 * rest of the step, as given, must allow it. */
static bool may_give(const struct sbp_search_job *job, const char *key,
                     const struct sbp_parallel *changed)
{
    const struct sbp_workload *workload = &job->plan.workload;
    const bool runs =
        !job->request.runnable || sbp_runnable_check(&job->plan.cut.graph, changed, NULL) == SBP_OK;
    return runs && !was_searched(job, key) &&
           sbp_parallel_check(changed, &workload->model, &workload->cluster, NULL) == SBP_OK;
}

/* Whether the space is of ZeRO level 3, too. */
static bool has_zero_3(const struct sbp_search_job *job)
{
    const unsigned levels = sbp_space_rule(job->request.space)->outer.zero_levels;
    return (levels & 1u) != 0 || (levels >> 3 & 1) != 0;
}

/* Prints the keys of a step that may still be given. Factors of --fix are of the levels of a stage
 * and divide a micro-batch, so that both stay as they are. */
static enum sbp_status advise_step(const struct sbp_search_job *job)
{
    const struct sbp_parallel *parallel = &job->plan.cut.parallel;
    struct sbp_parallel zero = *parallel, recompute = *parallel, offload = *parallel;
    const bool several = sbp_cut_devices(&job->plan.cut) > 1, fixed = job->request.fix_count > 0;
    zero.zero = 3;
    recompute.recompute = SBP_RECOMPUTE_FULL;
    offload.offload = true;
    if (parallel->zero < 3 && several && has_zero_3(job) && may_give(job, "zero", &zero))
        SBP_PRINT(" --set zero=3,");
    if (parallel->recompute != SBP_RECOMPUTE_FULL && may_give(job, "recompute", &recompute))
        SBP_PRINT(" --set recompute=full,");
    if (parallel->micro_batch > 1 && !fixed && may_give(job, "micro_batch", parallel))
        SBP_PRINT(" --set micro_batch=N (now %lld),", (long long)parallel->micro_batch);
    if (several && !fixed && may_give(job, "pipeline", parallel))
        SBP_PRINT(" --set pipeline=N (now %lld),", (long long)parallel->pipeline);
    if (!parallel->offload && job->plan.workload.cluster.host_link_bytes_per_s > 0 &&
        may_give(job, "offload", &offload))
        SBP_PRINT(" --set offload=true,");
    return SBP_OK;
}

enum sbp_status sbp_search_advise(const struct sbp_search_job *job)
{
    const struct sbp_precision *precision = &job->plan.cut.graph.precision;
    SBP_PRINT("may help:");
    SBP_TRY(advise_step(job));
    if (job->request.runnable)
        SBP_PRINT(" no --runnable,");
    if (job->request.fix_count > 0)
        SBP_PRINT(" other --fix,");
    if (!precision->has_master && precision->param == SBP_FP32)
        SBP_PRINT(" --set precision=mixed,");
    if (job->request.space != SBP_SPACE_FULL)
        SBP_PRINT(" --space full,");
    SBP_PRINT(" more devices\n");
    return SBP_OK;
}

/* The reason why a search ended before it found anything. */
static const char *stop_reason(const struct sbp_search_job *job)
{
    const struct sbp_arguments *arguments = job->arguments;
    if (arguments->stop != NULL && *arguments->stop != 0)
        return "it was interrupted";
    if (arguments->max_evaluations > 0 && job->outcome.evaluations >= arguments->max_evaluations)
        return "a larger --max-evaluations may help";
    if (!job->outcome.stopped)
        return "a larger --search-memory may help";
    return "a longer --time-limit may help";
}

/* Prints the least memory: a plan's where its parts are known, else the model's. */
static enum sbp_status print_needed(const struct sbp_shortage *shortage)
{
    char needed[32], least[32];
    (void)sbp_format_bytes(shortage->needed_bytes, needed);
    if (shortage->parts[0] == '\0') {
        SBP_PRINT("; about %s (%.0f bytes) is the least, if a plan can be made of it\n", needed,
                  shortage->needed_bytes);
        return SBP_OK;
    }
    if (shortage->least_bytes >= shortage->needed_bytes) {
        SBP_PRINT("; %s (%.0f bytes) is the least that does", needed, shortage->needed_bytes);
    } else {
        SBP_PRINT("; the least that was seen to do is %s (%.0f bytes)", needed,
                  shortage->needed_bytes);
        if (shortage->least_bytes > 0)
            SBP_PRINT(", none does with less than %s (%.0f bytes)",
                      sbp_format_bytes(shortage->least_bytes, least), shortage->least_bytes);
    }
    SBP_PRINT("\n%s dominate: %s\n", shortage->largest, shortage->parts);
    return SBP_OK;
}

/* Of an answer without a layout, whose line says them: a batch may be too large by mistake. */
static enum sbp_status print_tokens(const struct sbp_graph *graph)
{
    if (graph->sequence > 1)
        SBP_PRINT("           %lld tokens a step\n",
                  (long long)(graph->global_batch * graph->sequence));
    return SBP_OK;
}

static enum sbp_status print_shortage(const struct sbp_search_job *job,
                                      const struct sbp_shortage *shortage)
{
    char limit[32];
    char all[SBP_VERDICT_BYTES];
    if (sbp_search_layouts_of(job) != NULL)
        (void)snprintf(all, sizeof all, "layout of %s",
                       sbp_export_search_name(job->arguments->target));
    else
        (void)snprintf(all, sizeof all, "strategy of space %s",
                       sbp_request_space_name(job->request.space));
    (void)sbp_format_bytes(shortage->limit_bytes, limit);
    SBP_TRY(sbp_report_print_model(&job->plan, stdout));
    SBP_TRY(print_search(job));
    SBP_TRY(print_tokens(&job->plan.cut.graph));
    if ((job->outcome.stopped || job->outcome.left_out) && !(shortage->needed_bytes > 0)) {
        SBP_PRINT("\nno %s was found before the search was stopped: %s\n", all, stop_reason(job));
        return SBP_OK;
    }
    if (job->outcome.status == SBP_PLAN_INFEASIBLE)
        SBP_PRINT("\ninfeasible: no %s fits %s a device", all, limit);
    else
        SBP_PRINT("\nno %s was found that fits %s a device, nor a proof that there is none", all,
                  limit);
    if (shortage->needed_bytes > 0)
        SBP_TRY(print_needed(shortage));
    else
        SBP_PRINT("\n");
    return sbp_search_advise(job);
}

/* --- JSON --- */

static void put_curve(struct cJSON *json, const struct sbp_outcome *outcome, bool *failed)
{
    struct cJSON *curve = sbp_json_put_array(json, "curve", failed);
    for (int i = 0; i < outcome->curve_count && !*failed; i++) {
        struct cJSON *point = sbp_json_push_object(curve, failed);
        sbp_json_put_number(point, "evaluations", (double)outcome->curve[i].evaluations, failed);
        sbp_json_put_number(point, "elapsed_s", outcome->curve[i].elapsed_s, failed);
        sbp_json_put_number(point, "best_s", outcome->curve[i].best, failed);
    }
}

static void put_notes(struct cJSON *json, const struct sbp_search_job *job, bool *failed)
{
    if (job->note_count == 0)
        return;
    struct cJSON *notes = sbp_json_put_array(json, "notes", failed);
    for (int i = 0; i < job->note_count; i++)
        sbp_json_push_text(notes, job->note[i], failed);
}

static struct cJSON *begin_json(const struct sbp_search_job *job, bool *failed)
{
    struct cJSON *json = cJSON_CreateObject();
    *failed = json == NULL;
    sbp_search_put(json, job, &job->outcome, failed);
    sbp_json_put_number(json, "wall_s", job->outcome.wall_s, failed);
    sbp_json_put_number(json, "space_size_log10", (double)job->outcome.space_size_log10, failed);
    sbp_json_put_text(json, "version", SBP_VERSION, failed);
    return json;
}

static enum sbp_status print_json(const struct sbp_search_job *job, const struct sbp_report *report,
                                  const struct sbp_search_top *all, struct sbp_diag *diag)
{
    bool failed;
    const struct sbp_report_options options = report_options(job);
    struct sbp_price_interval trust;
    SBP_TRY(sbp_price_interval_make(report->plan, &report->step, &trust, diag));
    struct cJSON *json = begin_json(job, &failed);
    sbp_report_put(json, report, &options, &failed);
    sbp_price_interval_put(json, &trust, &failed);
    put_notes(json, job, &failed);
    enum sbp_status status = put_simplest(json, job, report->summary.totals.step_s, &failed, diag);
    if (status == SBP_OK)
        status = sbp_search_measured_put(json, job, &failed, diag);
    if (status != SBP_OK) {
        cJSON_Delete(json);
        return status;
    }
    put_curve(json, &job->outcome, &failed);
    if (all != NULL)
        sbp_search_top_put(json, all, &failed);
    return sbp_json_finish(json, failed, diag);
}

static enum sbp_status print_shortage_json(const struct sbp_search_job *job,
                                           const struct sbp_shortage *shortage,
                                           struct sbp_diag *diag)
{
    bool failed;
    struct cJSON *json = begin_json(job, &failed);
    sbp_summary_put_model(json, &job->plan.cut.graph, &failed);
    sbp_summary_put_parallel(json, &job->plan.cut.parallel, &failed);
    struct cJSON *memory = sbp_json_put_object(json, "memory", &failed);
    sbp_json_put_number(memory, "available_bytes", shortage->limit_bytes, &failed);
    if (shortage->needed_bytes > 0)
        sbp_json_put_number(memory, "needed_bytes", shortage->needed_bytes, &failed);
    if (shortage->least_bytes > 0)
        sbp_json_put_number(memory, "lower_bound_bytes", shortage->least_bytes, &failed);
    if (shortage->largest[0] != '\0')
        sbp_json_put_text(memory, "dominates", shortage->largest, &failed);
    return sbp_json_finish(json, failed, diag);
}

/* --- either --- */

static enum sbp_status answer_no(struct sbp_search_job *job, struct sbp_diag *diag)
{
    struct sbp_shortage shortage;
    SBP_TRY(sbp_search_shortage(job, &shortage, diag));
    SBP_TRY(job->arguments->json ? print_shortage_json(job, &shortage, diag)
                                 : print_shortage(job, &shortage));
    return SBP_NO;
}

static enum sbp_status answer_top(struct sbp_search_job *job, struct sbp_diag *diag)
{
    struct sbp_search_top all;
    enum sbp_status status = sbp_search_top_open(job, &all, diag);
    if (status == SBP_OK)
        status = sbp_search_top_write(&all, diag);
    if (status == SBP_OK)
        status = job->arguments->json ? print_json(job, &all.plan[0].report, &all, diag)
                                      : print_top(job, &all);
    sbp_search_top_free(&all);
    return status;
}

static enum sbp_status write_plan(struct sbp_search_job *job, const struct sbp_step *step,
                                  struct sbp_diag *diag)
{
    struct cJSON *json;
    if (job->arguments->output == NULL)
        return SBP_OK;
    SBP_TRY(sbp_search_json(job, &job->plan, step, &job->outcome, 0, &json, diag));
    const enum sbp_status status = sbp_json_write(json, job->arguments->output, diag);
    cJSON_Delete(json);
    return status;
}

enum sbp_status sbp_search_answer(struct sbp_search_job *job, struct sbp_diag *diag)
{
    struct sbp_report report;
    if (!sbp_search_outcome_has_plan(&job->outcome))
        return answer_no(job, diag);
    if (job->arguments->top > 0)
        return answer_top(job, diag);
    SBP_TRY(sbp_report_make(&job->plan, &report, diag));
    enum sbp_status status = sbp_search_job_check(job, &report, diag);
    if (status == SBP_OK)
        status = write_plan(job, &report.step, diag);
    if (status == SBP_OK)
        status = job->arguments->json ? print_json(job, &report, NULL, diag)
                                      : print_text(job, &report, diag);
    sbp_report_free(&report);
    return status;
}
