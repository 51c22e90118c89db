#include "planner/commands/search_session_priv.h"

#include <math.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/clock.h"
#include "base/json/json_write.h"
#include "base/text.h"
#include "costmodel/program/runnable.h"
#include "costmodel/program/task.h"
#include "planner/cli/degree_options.h"
#include "planner/export/export.h"
#include "planner/limits.h"
#include "planner/space/space_table.h"
#include "planner/verify/verify.h"

/* The keys that --set gives. */
static unsigned given_keys(const struct cJSON *parallel)
{
    const char *const *keys = sbp_parallel_keys();
    unsigned given = 0;
    for (int i = 0; keys[i] != NULL; i++)
        if (cJSON_GetObjectItemCaseSensitive(parallel, keys[i]) != NULL)
            given |= sbp_request_bit(keys[i]);
    return given;
}

static enum sbp_space_kind space_of(const struct sbp_arguments *arguments)
{
    return arguments->space < 0 ? SBP_SPACE_FULL : (enum sbp_space_kind)arguments->space;
}

struct sbp_request sbp_search_request(const struct sbp_arguments *arguments,
                                      const struct sbp_settings *settings)
{
    static const struct sbp_export_search any = {.space = SBP_SPACE_FULL};
    const struct sbp_export_search *kept =
        arguments->target < 0 ? &any
                              : sbp_export_search(sbp_export_search_target(arguments->target));
    return (struct sbp_request){
        .zero_levels = kept->zero_levels,
        .recomputes = kept->recomputes,
        .space = space_of(arguments),
        .solver = arguments->algorithm > 0 ? &sbp_solvers[arguments->algorithm - 1] : NULL,
        .objective = (enum sbp_objective)arguments->objective,
        .boxing = settings->boxing,
        .max_batch_split = settings->max_batch_split,
        .given = given_keys(settings->parallel),
        .runnable = arguments->runnable,
        .quick = arguments->quick,
        .memory_limit_bytes = arguments->memory_limit_bytes,
        .solver_options = {.seed = (uint64_t)arguments->seed,
                           .time_limit_s = arguments->time_limit_s.is_given
                                               ? arguments->time_limit_s.most
                                               : SBP_COMMANDS_TIME_LIMIT_S,
                           .max_evaluations = arguments->max_evaluations,
                           .restarts = (int)arguments->restarts,
                           .stop = arguments->stop},
    };
}

/* Shows progress; the time counts from the start of the command's line, not of the round. */
static void show_progress(void *context, int64_t evaluations, double best, double round_s)
{
    const struct sbp_search_job *const job = context;
    char count[32], cost[32];
    (void)round_s;
    if (!sbp_progress_is_due(job->progress))
        return;
    sbp_progress_show(job->progress, "searching%s%s: %s strategies, best %s, %.0f s",
                      job->label == NULL ? "" : " ", job->label == NULL ? "" : job->label,
                      sbp_format_count((double)evaluations, count),
                      isfinite(best) ? sbp_format_seconds(best, cost) : "none yet",
                      sbp_clock_s() - job->progress->start_s);
}

/* Makes a plan of the pool the plan. */
static enum sbp_status take(struct sbp_plan *plan, const struct sbp_pool_plan *found,
                            struct sbp_diag *diag)
{
    SBP_TRY(sbp_plan_cut(plan, &found->parallel, diag));
    plan->strategy = found->strategy;
    return SBP_OK;
}

static double memory_limit(const struct sbp_arguments *arguments)
{
    return arguments->search_memory_bytes.is_given ? arguments->search_memory_bytes.most
                                                   : SBP_COMMANDS_SEARCH_MEMORY;
}

/* Gives a search its memory; without a limit it has no budget. */
static void limit_memory(struct sbp_search_job *job, struct sbp_request *request)
{
    const double most_bytes = SBP_COMMANDS_MEMORY_SHARE * memory_limit(job->arguments);
    job->search_memory = (struct sbp_arena_budget){.most_bytes = (size_t)most_bytes};
    request->search_memory = most_bytes > 0 ? &job->search_memory : NULL;
}

const struct sbp_export_target *sbp_search_layouts_of(const struct sbp_search_job *job)
{
    const int place = job->arguments->target;
    const struct sbp_export_target *target = place < 0 ? NULL : sbp_export_search_target(place);
    return target != NULL && sbp_export_search(target)->layouts ? target : NULL;
}

/* Searches the layouts of a target; the best one becomes the plan, and its degrees the fixes that
 * the plan is checked against. */
static enum sbp_status run_layouts(struct sbp_search_job *job, const struct sbp_request *request,
                                   const struct sbp_export_target *target, struct sbp_diag *diag)
{
    struct sbp_export_found found;
    struct sbp_degrees_plan made;
    struct sbp_plan *plan = &job->plan;
    const enum sbp_status status =
        sbp_export_find(plan, target, request, &plan->arena, &found, diag);
    job->outcome = found.outcome;
    job->layouts = found.layouts;
    if (status != SBP_OK || !sbp_search_outcome_has_plan(&job->outcome))
        return status;
    SBP_TRY(
        sbp_export_lay_out(plan, target, &found.degrees, found.schedule, &job->arena, &made, diag));
    SBP_TRY(sbp_plan_cut(plan, &found.parallel, diag));
    plan->strategy = found.outcome.strategy;
    job->request.fix = made.fix;
    job->request.fix_count = made.fix_count;
    for (int i = 0; i < made.note_count; i++)
        SBP_TRY(sbp_search_job_note(job, made.note[i], diag));
    return SBP_OK;
}

static enum sbp_status run(struct sbp_search_job *job, const struct sbp_request *request, int most,
                           struct sbp_diag *diag)
{
    const struct sbp_export_target *target = sbp_search_layouts_of(job);
    if (target != NULL)
        return run_layouts(job, request, target, diag);
    const enum sbp_status status = sbp_outer_search(&job->plan, request, most, &job->plan.arena,
                                                    &job->pool, &job->outcome, diag);
    return status == SBP_OK && job->pool.count > 0 ? take(&job->plan, &job->pool.plan[0], diag)
                                                   : status;
}

enum sbp_status sbp_search_job_run(struct sbp_search_job *job, int most, struct sbp_diag *diag)
{
    struct sbp_progress own;
    struct sbp_request watched = job->request;
    watched.solver_options.progress = show_progress;
    watched.solver_options.progress_context = job;
    limit_memory(job, &watched);
    const bool has_own = job->progress == NULL;
    if (has_own) {
        sbp_progress_start(&own);
        job->progress = &own;
    }
    const enum sbp_status status = run(job, &watched, most, diag);
    if (has_own) {
        sbp_progress_end(&own);
        job->progress = NULL;
    }
    return status;
}

bool sbp_search_outcome_has_plan(const struct sbp_outcome *outcome)
{
    return outcome->status == SBP_PLAN_OPTIMAL || outcome->status == SBP_PLAN_FEASIBLE;
}

/* --- records --- */

/* The roles over which status and bound hold. */
static const char *covered(const struct sbp_search_job *job, const struct sbp_outcome *outcome)
{
    const struct sbp_request *request = &job->request;
    if (outcome->is_narrow)
        return "common roles and rests";
    if (sbp_search_layouts_of(job) != NULL)
        return "layouts of the target";
    return sbp_space_rule(request->space)->plays_spare ? "every role of every operator"
                                                       : "roles of the space";
}

void sbp_search_put(struct cJSON *json, const struct sbp_search_job *job,
                    const struct sbp_outcome *outcome, bool *failed)
{
    const struct sbp_request *request = &job->request;
    const bool communication = request->objective == SBP_COMMUNICATION;
    sbp_json_put_text(json, "status", sbp_solver_status_name(outcome->status), failed);
    if (outcome->stopped)
        sbp_json_put_bool(json, "stopped", true, failed);
    if (outcome->left_out)
        sbp_json_put_bool(json, "left_out", true, failed);
    if (outcome->is_plain)
        sbp_json_put_bool(json, "plain", true, failed);
    sbp_json_put_text(json, "space", sbp_request_space_name(request->space), failed);
    sbp_json_put_text(json, "objective", communication ? "communication" : "step-time", failed);
    sbp_json_put_number(json, "objective_s", outcome->objective_s, failed);
    sbp_json_put_number(json, "lower_bound_s", outcome->lower_bound_s, failed);
    sbp_json_put_text(json, "covers", covered(job, outcome), failed);
    sbp_json_put_text(json, "algorithm", outcome->algorithm == NULL ? "none" : outcome->algorithm,
                      failed);
    sbp_json_put_number(json, "seed", (double)request->solver_options.seed, failed);
    sbp_json_put_number(json, "evaluations", (double)outcome->evaluations, failed);
    if (request->memory_limit_bytes > 0)
        sbp_json_put_number(json, "memory_limit_bytes", (double)request->memory_limit_bytes,
                            failed);
    if (request->max_batch_split > 0)
        sbp_json_put_number(json, "max_batch_split", (double)request->max_batch_split, failed);
    sbp_json_put_text(json, "command", job->arguments->record, failed);
}

enum sbp_status sbp_search_json(const struct sbp_search_job *job, struct sbp_plan *plan,
                                const struct sbp_step *step, const struct sbp_outcome *outcome,
                                int rank, struct cJSON **json, struct sbp_diag *diag)
{
    bool failed = false;
    cJSON_Delete(plan->search);
    plan->search = cJSON_CreateObject();
    sbp_search_put(plan->search, job, outcome, &failed);
    if (rank > 0)
        sbp_json_put_number(plan->search, "rank", rank, &failed);
    if (failed)
        return sbp_fail(diag, SBP_E_MEMORY, "%s: out of memory", job->arguments->output);
    return sbp_plan_json(plan, step, json, diag);
}

/* --- jobs --- */

/* Fails with a space's complaint about the model or the cluster, with its file in front. */
static enum sbp_status refuse_space(const struct sbp_arguments *arguments, enum sbp_status status,
                                    const struct sbp_diag *why, struct sbp_diag *diag)
{
    static const char *const inputs[] = {"model: ", "cluster: "}; /* the operands, in order */
    for (int i = 0; i < 2 && i < arguments->operands.count; i++)
        if (strncmp(why->text, inputs[i], strlen(inputs[i])) == 0)
            return sbp_fail(diag, status, "%s: %s", arguments->operands.word[i],
                            why->text + strlen(inputs[i]));
    return sbp_inputs_refuse(NULL, status, why, diag);
}

enum sbp_status sbp_search_job_note(struct sbp_search_job *job, const char *note,
                                    struct sbp_diag *diag)
{
    if (job->note_count == (int)(sizeof job->note / sizeof *job->note))
        return SBP_OK;
    const char *copy = sbp_arena_strdup(&job->arena, note);
    if (copy == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    job->note[job->note_count++] = copy;
    return SBP_OK;
}

enum sbp_status sbp_search_job_take_degrees(struct sbp_search_job *job,
                                            const struct sbp_degrees *degrees,
                                            struct sbp_diag *diag)
{
    struct sbp_diag why = {{0}};
    struct sbp_degrees_plan made;
    const enum sbp_status status = sbp_degrees_apply(degrees, &job->plan, &job->arena, &made, &why);
    if (status != SBP_OK)
        return sbp_degree_options_refuse(job->arguments, status, &why, diag);
    job->request.fix = made.fix;
    job->request.fix_count = made.fix_count;
    for (int i = 0; i < made.note_count; i++)
        SBP_TRY(sbp_search_job_note(job, made.note[i], diag));
    return SBP_OK;
}

/* The degrees of a search fix its layers, which needs the devices of a stage to be known, and a
 * micro-batch where they give one; the search finds the rest of the step. */
static enum sbp_status fix_degrees(struct sbp_search_job *job, struct sbp_diag *diag)
{
    const struct sbp_arguments *arguments = job->arguments;
    const struct sbp_degrees degrees = sbp_degree_options_all(arguments, &job->settings);
    if (!sbp_degree_options_of_layers(arguments) && degrees.micro_batch == 0)
        return SBP_OK;
    if (arguments->fix.count > 0 || job->request.space != SBP_SPACE_FULL)
        return sbp_fail(diag, SBP_E_USAGE,
                        "sbplan search: --tp, --dp, --cp, --ep, --etp, --sequence-parallel and "
                        "--micro-batch say the strategy of every layer, legal without --fix and in "
                        "space full");
    if (!sbp_degree_options_of_layers(arguments) || !sbp_request_gives(&job->request, "pipeline"))
        return sbp_fail(diag, SBP_E_USAGE,
                        "sbplan search: --tp, --dp, --cp and --micro-batch share out the devices "
                        "of a stage, legal together with --pp");
    SBP_TRY(sbp_search_job_take_degrees(job, &degrees, diag));
    if (degrees.micro_batch > 0)
        job->request.given |= sbp_request_bit("micro_batch");
    return SBP_OK;
}

enum sbp_status sbp_search_job_open(struct sbp_search_job *job, struct sbp_diag *diag)
{
    SBP_TRY(sbp_inputs_read(job->arguments, space_of(job->arguments), &job->arena, &job->settings,
                            &job->plan, diag));
    job->request = sbp_search_request(job->arguments, &job->settings);
    struct sbp_diag why = {{0}};
    if (job->arguments->target >= 0 &&
        sbp_export_check_model(sbp_export_search_target(job->arguments->target),
                               &job->plan.workload, &why) != SBP_OK)
        return sbp_fail(diag, SBP_E_INPUT, "%s: %s", job->arguments->operands.word[0], why.text);
    const enum sbp_status status = sbp_space_begin(&job->request, &job->plan, &why);
    if (status != SBP_OK)
        return refuse_space(job->arguments, status, &why, diag);
    if (job->request.runnable)
        SBP_TRY(sbp_runnable_check(&job->plan.cut.graph, &job->plan.cut.parallel, diag));
    SBP_TRY(sbp_fixes_parse(&job->plan, &job->arguments->fix, &job->arena, &job->request.fix,
                            &job->request.fix_count, diag));
    return fix_degrees(job, diag);
}

/* Refuses what `run` does once the plan is compiled for its own type. */
static enum sbp_status check_run(const struct sbp_search_job *job, const struct sbp_step *step,
                                 struct sbp_diag *diag)
{
    const struct sbp_cut *cut = &job->plan.cut;
    struct sbp_arena scratch;
    struct sbp_tasks tasks;
    enum sbp_status status = SBP_OK;
    SBP_TRY(sbp_runnable_check(&cut->graph, &cut->parallel, diag));
    sbp_arena_init(&scratch);
    for (int stage = 0; cut->parallel.chunk_factor > 0 && stage < step->stages; stage++)
        if (status == SBP_OK)
            status = sbp_tasks_make(step, stage, &scratch, &tasks, diag);
    sbp_arena_free(&scratch);
    return status;
}

/* A plan that is priced by hand may be too large. */
enum sbp_status sbp_search_job_check(const struct sbp_search_job *job,
                                     const struct sbp_report *report, struct sbp_diag *diag)
{
    struct sbp_request request = job->request;
    if (job->may_be_too_large)
        request.memory_limit_bytes = INT64_MAX;
    const struct sbp_claim claim = {
        .plan = &job->plan, .step = &report->step, .request = &request, .outcome = &job->outcome};
    if (request.runnable)
        SBP_TRY(check_run(job, &report->step, diag));
    return sbp_verify_plan(&claim, diag);
}

void sbp_search_job_free(struct sbp_search_job *job)
{
    sbp_plan_free(&job->plan);
    sbp_inputs_free_settings(&job->settings);
    sbp_arena_free(&job->arena);
}

/* --- verdicts --- */

#define GAP_BYTES 32

/* The gap, "1.2 %", of the objective above a positive lower bound. */
static const char *gap_of(const struct sbp_outcome *outcome, char *buffer)
{
    const double percent = 100 * (outcome->objective_s / outcome->lower_bound_s - 1);
    (void)snprintf(buffer, GAP_BYTES, percent < 1000 ? "%.3g %%" : "%.0f %%", percent);
    return buffer;
}

const char *sbp_search_outcome_word(const struct sbp_outcome *outcome, char *buffer)
{
    char gap[GAP_BYTES];
    if (outcome->status == SBP_PLAN_FEASIBLE && outcome->lower_bound_s > 0)
        (void)snprintf(buffer, SBP_VERDICT_BYTES, "gap %s", gap_of(outcome, gap));
    else
        (void)snprintf(buffer, SBP_VERDICT_BYTES, "%s",
                       outcome->status == SBP_PLAN_TIME_LIMIT ? "none found"
                       : outcome->status == SBP_PLAN_OPTIMAL && outcome->is_narrow
                           ? "optimal, common roles"
                           : sbp_solver_status_name(outcome->status));
    return buffer;
}

const char *sbp_search_stop_reason(const struct sbp_search_job *job, char *buffer)
{
    const struct sbp_arguments *arguments = job->arguments;
    if (arguments->stop != NULL && *arguments->stop != 0)
        (void)snprintf(buffer, SBP_REASON_BYTES, "an interrupt");
    else if (arguments->max_evaluations > 0 &&
             job->outcome.evaluations >= arguments->max_evaluations)
        (void)snprintf(buffer, SBP_REASON_BYTES, "--max-evaluations");
    else
        (void)snprintf(buffer, SBP_REASON_BYTES, "the time limit of %g s%s",
                       job->request.solver_options.time_limit_s,
                       arguments->time_limit_s.is_given ? "" : " (default)");
    return buffer;
}

/* Says which limits ended a search; "" where none did. */
static const char *limits_of(const struct sbp_search_job *job, char buffer[SBP_VERDICT_BYTES])
{
    char reason[SBP_REASON_BYTES], bytes[32];
    buffer[0] = '\0';
    if (job->outcome.stopped)
        (void)snprintf(buffer, SBP_VERDICT_BYTES, ", stopped early by %s",
                       sbp_search_stop_reason(job, reason));
    const size_t length = strlen(buffer);
    if (job->outcome.left_out)
        (void)snprintf(buffer + length, SBP_VERDICT_BYTES - length,
                       ", without what needs more than %s of search memory%s",
                       sbp_format_bytes(memory_limit(job->arguments), bytes),
                       job->arguments->search_memory_bytes.is_given ? "" : " (default)");
    if (job->outcome.is_plain)
        (void)snprintf(buffer + strlen(buffer), SBP_VERDICT_BYTES - strlen(buffer),
                       ", large meshes by plain splits alone");
    return buffer;
}

const char *sbp_search_outcome_verdict(const struct sbp_search_job *job, char *buffer)
{
    const struct sbp_outcome *const outcome = &job->outcome;
    char bound[32], gap[GAP_BYTES], limits[SBP_VERDICT_BYTES];
    const char *const stopped = limits_of(job, limits);
    if (outcome->status == SBP_PLAN_FEASIBLE && outcome->lower_bound_s > 0) {
        (void)snprintf(buffer, SBP_VERDICT_BYTES, "feasible, at most %s above the bound %s%s%s",
                       gap_of(outcome, gap), sbp_report_seconds(outcome->lower_bound_s, bound),
                       outcome->is_narrow ? " of common roles and rests" : "", stopped);
    } else if (outcome->status == SBP_PLAN_FEASIBLE && outcome->unbounded != NULL) {
        (void)snprintf(buffer, SBP_VERDICT_BYTES, "feasible, %s%s", outcome->unbounded, stopped);
    } else if (outcome->status == SBP_PLAN_TIME_LIMIT) {
        (void)snprintf(buffer, SBP_VERDICT_BYTES, "neither a plan nor a proof%s", stopped);
    } else {
        (void)snprintf(buffer, SBP_VERDICT_BYTES, "%s%s%s", sbp_solver_status_name(outcome->status),
                       outcome->is_narrow && outcome->status != SBP_PLAN_FEASIBLE
                           ? " among common roles and rests"
                           : "",
                       stopped);
    }
    return buffer;
}

enum sbp_status sbp_search_shortage(struct sbp_search_job *job, struct sbp_shortage *shortage,
                                    struct sbp_diag *diag)
{
    const struct sbp_outcome *outcome = &job->outcome;
    struct sbp_report report;
    *shortage = (struct sbp_shortage){
        .needed_bytes = (double)outcome->needed_bytes,
        .least_bytes = outcome->stopped ? 0 : ceil(outcome->least_bytes),
        .limit_bytes = (double)sbp_request_limit_bytes(&job->request, &job->plan.workload.cluster)};
    if (shortage->needed_bytes <= shortage->limit_bytes)
        shortage->needed_bytes = 0; /* time was short */
    if (shortage->needed_bytes == 0 || outcome->least_memory == NULL)
        return SBP_OK;
    SBP_TRY(take(&job->plan, outcome->least_memory, diag));
    SBP_TRY(sbp_report_make(&job->plan, &report, diag));
    (void)sbp_report_memory_parts(&report.summary, shortage->parts);
    (void)snprintf(shortage->largest, sizeof shortage->largest, "%s",
                   sbp_report_largest_part(&report.summary));
    sbp_report_free(&report);
    return SBP_OK;
}

/* --- rows --- */

enum sbp_status sbp_search_row_fill(struct sbp_search_job *job, struct sbp_search_row *row,
                                    struct sbp_diag *diag)
{
    struct sbp_report report;
    row->outcome = job->outcome;
    row->found = sbp_search_outcome_has_plan(&job->outcome);
    if (!row->found)
        return sbp_search_shortage(job, &row->shortage, diag);
    SBP_TRY(sbp_report_make(&job->plan, &report, diag));
    enum sbp_status status = sbp_search_job_check(job, &report, diag);
    if (status == SBP_OK)
        status = sbp_price_interval_make(&job->plan, &report.step, &row->trust, diag);
    row->summary = report.summary;
    row->parallel = job->plan.cut.parallel;
    (void)sbp_report_rate(&report, row->rate);
    (void)sbp_plan_line(&job->plan, job->request.space, row->line);
    sbp_report_free(&report);
    return status;
}
