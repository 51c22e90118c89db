#include "executor/run_report.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json/json_write.h"
#include "base/table.h"
#include "base/text.h"

static int stage_of(const struct sbp_run_report *report, int rank)
{
    return (int)(rank / report->step->mesh.devices);
}

/* Ranks that outnumber the cores take turns, and their wall time says nothing about the plan. The
 * replay does: it plays the measured computing with the network times that the plan expects. */
static bool wall_is_parallel(const struct sbp_run_report *report)
{
    return report->result->ranks_here <= report->result->cores;
}

static bool has_loss(const struct sbp_run_report *report)
{
    return sbp_step_program(report->step, report->step->pieces - 1)->loss_buffer >= 0;
}

int sbp_run_odd_step(const struct sbp_run_report *report, const char **what)
{
    for (int i = 0; i < report->result->steps; i++) {
        const struct sbp_run_step *step = &report->result->step[i];
        const bool loss = has_loss(report) && !isfinite(step->loss);
        if (what != NULL)
            *what = loss ? "loss" : "gradient norm";
        const bool is_handled = step->left_out && step->loss_scale > 1;
        if (loss || (!isfinite(step->grad_norm) && !is_handled))
            return i + 1;
    }
    return 0;
}

static enum sbp_status written(int printed, struct sbp_diag *diag)
{
    return printed >= 0 ? SBP_OK : sbp_fail(diag, SBP_E_IO, "standard output: %s", strerror(errno));
}

/* ---- text ---------------------------------------------------------------------------------- */

static void add_optional(struct sbp_table *table, bool present, double value)
{
    if (present)
        sbp_table_cell(table, "%.6g", isnan(value) ? (double)NAN : value); /* without its sign */
    else
        sbp_table_cell(table, "-");
}

static void add_seconds(struct sbp_table *table, double seconds)
{
    char text[32];
    sbp_table_cell(table, "%s", sbp_format_seconds(seconds, text));
}

static bool scales_loss(const struct sbp_run_report *report)
{
    return sbp_step_program(report->step, 0)->bytes.scales_loss;
}

static enum sbp_status print_steps(const struct sbp_run_report *report,
                                   const struct sbp_run_prediction *prediction)
{
    static const char *const titles[] = {"step",    "loss",          "gradient norm", "loss scale",
                                         "compute", "communication", "replay",        "wall"};
    const char *shown[8];
    int columns = 0;
    struct sbp_table table;
    for (int i = 0; i < 8; i++)
        if (i != 3 || scales_loss(report))
            shown[columns++] = titles[i];
    sbp_table_init(&table, columns, shown);
    for (int i = 0; i < report->result->steps; i++) {
        const struct sbp_run_step *step = &report->result->step[i];
        sbp_table_cell(&table, "%d", i + 1);
        add_optional(&table, has_loss(report), step->loss);
        add_optional(&table, step->grad_norm != -1, step->grad_norm);
        if (scales_loss(report))
            sbp_table_cell(&table, "%g%s", step->loss_scale, step->left_out ? ", left out" : "");
        add_seconds(&table, step->compute_s);
        add_seconds(&table, step->communication_s);
        add_seconds(&table, step->replay_s);
        add_seconds(&table, step->wall_s);
    }
    sbp_table_cell(&table, "predicted");
    for (int i = 5; i < columns; i++)
        sbp_table_cell(&table, "-");
    add_seconds(&table, prediction->compute_s);
    add_seconds(&table, prediction->communication_s);
    add_seconds(&table, prediction->step_s);
    add_seconds(&table, prediction->step_s);
    const enum sbp_status status = sbp_table_print(&table, stdout, 0);
    sbp_table_free(&table);
    return status;
}

static int print_legend(const struct sbp_run_report *report)
{
    int printed =
        printf("\ncompute: the slowest rank's %s; communication: wall time inside "
               "the backend, waiting included;\nreplay: measured compute plus predicted "
               "communication\n",
               strcmp(report->options->device, "cpu") == 0 ? "thread CPU time" : "device time");
    if (printed >= 0 && !wall_is_parallel(report))
        printed = printf("%d ranks share %d cores: wall and communication are not times of a "
                         "parallel machine, compare the replay\n",
                         report->result->ranks_here, report->result->cores);
    return printed;
}

/* What ran in the plan's stead. */
static int print_shrunk(const struct sbp_run_report *report)
{
    char has[32], of[32];
    const struct sbp_graph *small = sbp_step_program(report->step, 0)->graph,
                           *whole = report->whole;
    if (whole == NULL)
        return 0;
    return printf(
        "shrunk: a model of %s parameters and %lld tokens a step ran by this plan, instead "
        "of %s and %lld\n",
        sbp_format_count((double)small->parameters, has),
        (long long)(small->global_batch * small->sequence),
        sbp_format_count((double)whole->parameters, of),
        (long long)(whole->global_batch * whole->sequence));
}

/* A plan's own bytes are those of the type that it is for. */
static int print_types(const struct sbp_run_report *report)
{
    if (report->options->real == report->plan_real)
        return 0;
    return printf(
        "tensors are in %s, of which bytes and prediction are; the plan itself is for %s\n",
        sbp_real_name(report->options->real), sbp_real_name(report->plan_real));
}

static int print_verdict(const struct sbp_run_report *report)
{
    char text[512];
    const char *what;
    const struct sbp_run_result *result = report->result;
    const int odd = sbp_run_odd_step(report, &what);
    if (odd > 0 && printf("FAILED: step %d: the %s is no finite number%s\n", odd, what,
                          result->verified ? "" : "; --verify finds the first tensor") < 0)
        return -1;
    if (!result->verified)
        return printf("not verified (--verify)\n");
    if (result->finding.found)
        return printf("verification FAILED: %s\n",
                      sbp_verify_finding_text(&result->finding, text, (int)sizeof text));
    return printf("verified: every gradient, loss and update agrees with one device in double; "
                  "largest difference is %.2f of its bound\n",
                  result->worst_ratio);
}

enum sbp_status sbp_run_print(const struct sbp_run_report *report, struct sbp_diag *diag)
{
    char bytes[32];
    const struct sbp_run_result *result = report->result;
    SBP_TRY(
        written(sbp_text_print_line(stdout, "%s: %s on %d ranks (%s, %s, %s), seed %llu\n\n",
                                    report->plan, sbp_step_program(report->step, 0)->graph->name,
                                    result->ranks, report->options->backend,
                                    report->options->device, sbp_real_name(report->options->real),
                                    (unsigned long long)report->options->seed)
                    ? 0
                    : -1,
                diag));
    const enum sbp_status status = print_steps(report, &result->prediction);
    if (status != SBP_OK)
        return sbp_fail(diag, status, "standard output: %s", sbp_status_text(status));
    SBP_TRY(written(print_legend(report), diag));
    SBP_TRY(
        written(printf("%s%d collective calls a step and %s of arena a rank, as the plan says\n",
                       report->step->stages > 1 ? "at most " : "", result->calls,
                       sbp_format_bytes((double)result->high_water_bytes, bytes)),
                diag));
    SBP_TRY(written(print_shrunk(report), diag));
    SBP_TRY(written(print_types(report), diag));
    SBP_TRY(written(print_verdict(report), diag));
    return written(fflush(stdout) == 0 ? 0 : -1, diag);
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static void put_steps(const struct sbp_run_report *report,
                      const struct sbp_run_prediction *prediction, struct cJSON *root, bool *failed)
{
    struct cJSON *steps = sbp_json_put_array(root, "steps", failed);
    for (int i = 0; i < report->result->steps; i++) {
        const struct sbp_run_step *step = &report->result->step[i];
        struct cJSON *entry = sbp_json_push_object(steps, failed);
        sbp_json_put_number(entry, "loss", step->loss, failed);
        sbp_json_put_number(entry, "grad_norm",
                            step->grad_norm >= 0 ? step->grad_norm : (double)NAN, failed);
        if (scales_loss(report)) {
            sbp_json_put_number(entry, "loss_scale", step->loss_scale, failed);
            sbp_json_put_bool(entry, "left_out", step->left_out, failed);
        }
        sbp_json_put_number(entry, "compute_s", step->compute_s, failed);
        sbp_json_put_number(entry, "communication_wall_s", step->communication_s, failed);
        sbp_json_put_number(entry, "replay_s", step->replay_s, failed);
        sbp_json_put_number(entry, "wall_s", step->wall_s, failed);
    }
    struct cJSON *predicted = sbp_json_put_object(root, "predicted", failed);
    sbp_json_put_number(predicted, "step_s", prediction->step_s, failed);
    sbp_json_put_number(predicted, "compute_s", prediction->compute_s, failed);
    sbp_json_put_number(predicted, "communication_s", prediction->communication_s, failed);
}

static void put_verification(const struct sbp_run_report *report, struct cJSON *root, bool *failed)
{
    const struct sbp_run_result *result = report->result;
    struct cJSON *verification = sbp_json_put_object(root, "verification", failed);
    const struct sbp_finding *finding = &result->finding;
    const char *what;
    const int odd = sbp_run_odd_step(report, &what);
    sbp_json_put_text(verification, "status",
                      finding->found || odd > 0 ? "failed"
                      : result->verified        ? "passed"
                                                : "off",
                      failed);
    if (odd > 0) {
        struct cJSON *not_finite = sbp_json_put_object(verification, "not_finite", failed);
        sbp_json_put_number(not_finite, "step", odd, failed);
        sbp_json_put_text(not_finite, "what", what, failed);
    }
    if (result->verified)
        sbp_json_put_number(verification, "worst_ratio", result->worst_ratio, failed);
    if (report->whole != NULL)
        sbp_json_put_number(verification, "shrunk_parameters",
                            (double)sbp_step_program(report->step, 0)->graph->parameters, failed);
    if (!finding->found)
        return;
    struct cJSON *first = sbp_json_put_object(verification, "first", failed);
    sbp_json_put_number(first, "step", (double)finding->step, failed);
    sbp_json_put_text(first, "what", finding->what, failed);
    sbp_json_put_text(first, "tensor", finding->tensor, failed);
    sbp_json_put_number(first, "index", (double)finding->index, failed);
    sbp_json_put_number(first, "rank", (double)finding->rank, failed);
    sbp_json_put_number(first, "run", finding->run, failed);
    sbp_json_put_number(first, "reference", finding->reference, failed);
    sbp_json_put_number(first, "bound", finding->bound, failed);
}

enum sbp_status sbp_run_print_json(const struct sbp_run_report *report, struct sbp_diag *diag)
{
    const struct sbp_run_result *result = report->result;
    struct cJSON *root = cJSON_CreateObject();
    bool failed = root == NULL;
    sbp_json_put_text(root, "plan", report->plan, &failed);
    sbp_json_put_text(root, "model", sbp_step_program(report->step, 0)->graph->name, &failed);
    sbp_json_put_number(root, "ranks", result->ranks, &failed);
    sbp_json_put_number(root, "ranks_per_host", result->ranks_here, &failed);
    sbp_json_put_number(root, "cores", result->cores, &failed);
    sbp_json_put_text(root, "backend", report->options->backend, &failed);
    sbp_json_put_text(root, "device", report->options->device, &failed);
    sbp_json_put_text(root, "dtype", sbp_real_name(report->options->real), &failed);
    sbp_json_put_number(root, "seed", (double)report->options->seed, &failed);
    sbp_json_put_bool(root, "wall_is_parallel", wall_is_parallel(report), &failed);
    put_steps(report, &result->prediction, root, &failed);
    sbp_json_put_number(root, "stages", report->step->stages, &failed);
    sbp_json_put_text(root, "schedule", sbp_timeline_schedule_name(report->step->parallel.schedule),
                      &failed);
    sbp_json_put_number(root, "micro_batches", (double)report->step->micro_batches, &failed);
    sbp_json_put_number(root, "calls", result->calls, &failed);
    sbp_json_put_number(root, "arena_bytes", (double)result->arena_bytes, &failed);
    sbp_json_put_number(root, "high_water_bytes", (double)result->high_water_bytes, &failed);
    put_verification(report, root, &failed);
    return sbp_json_finish(root, failed, diag);
}

/* ---- trace --------------------------------------------------------------------------------- */

static void name_instr(const struct sbp_program *program, const struct sbp_instr *instr, char *name,
                       int size)
{
    const bool collective = instr->kind == SBP_INSTR_BOX || instr->kind == SBP_INSTR_REDUCE;
    const char *of = instr->tensor >= 0 ? program->graph->tensor[instr->tensor].name
                     : instr->op >= 0   ? program->graph->op[instr->op].name
                                        : "";
    const char *what =
        collective ? sbp_collective_name(instr->box.kind) : sbp_program_instr_name(instr->kind);
    if (instr->phase > 0)
        (void)snprintf(name, (size_t)size, "%s %s.%d", what, of, instr->phase);
    else
        (void)snprintf(name, (size_t)size, "%s%s%s", what, of[0] == '\0' ? "" : " ", of);
}

/* With the micro-batch, where there are several. */
static void name_task(const struct sbp_run_report *report, int stage, int64_t index, char *name,
                      int size)
{
    const struct sbp_task *task = &report->result->tasks[stage].task[index];
    const struct sbp_program *program = sbp_step_chunk(report->step, stage, task->chunk);
    name_instr(program, &program->instr[task->instr], name, size);
    const size_t used = strlen(name);
    if (program->scope.micro_batches > 1 && (int)used < size && task->work != SBP_WORK_UPDATE)
        (void)snprintf(name + used, (size_t)size - used, " [%d]", task->micro_batch);
}

/* Lines of a process: its tasks; and messages on their way, which overlap with these. */
enum { LINE_TASKS, LINE_FORWARD, LINE_BACKWARD };

static int line_of(const struct sbp_instr *instr)
{
    if (instr->kind != SBP_INSTR_SEND)
        return LINE_TASKS;
    return instr->section == SBP_SECTION_FORWARD ? LINE_FORWARD : LINE_BACKWARD;
}

static struct cJSON *push_event(struct cJSON *events, const char *name, const char *phase, int pid,
                                int line, bool *failed)
{
    struct cJSON *event = sbp_json_push_object(events, failed);
    sbp_json_put_text(event, "name", name, failed);
    sbp_json_put_text(event, "ph", phase, failed);
    sbp_json_put_number(event, "pid", pid, failed);
    sbp_json_put_number(event, "tid", line, failed);
    return event;
}

static void push_process(struct cJSON *events, int pid, const char *name, bool *failed)
{
    struct cJSON *event = push_event(events, "process_name", "M", pid, LINE_TASKS, failed);
    sbp_json_put_text(sbp_json_put_object(event, "args", failed), "name", name, failed);
}

/* Chrome's trace format counts in microseconds. */
static void push_interval(struct cJSON *events, const char *name, int pid, int line, double start_s,
                          double length_s, double compute_s, double communication_s, bool *failed)
{
    struct cJSON *event = push_event(events, name, "X", pid, line, failed);
    sbp_json_put_number(event, "ts", 1e6 * start_s, failed);
    sbp_json_put_number(event, "dur", 1e6 * length_s, failed);
    struct cJSON *args = sbp_json_put_object(event, "args", failed);
    sbp_json_put_number(args, "compute_s", compute_s, failed);
    sbp_json_put_number(args, "communication_s", communication_s, failed);
}

/* A process each for what is predicted of the stages, and for what ranks measured. */
static void push_predicted(const struct sbp_run_report *report, int stage, struct cJSON *events,
                           bool *failed)
{
    const struct sbp_tasks *tasks = &report->result->tasks[stage];
    const double *begin_s = report->result->prediction.play.begin_s[stage];
    char name[160];
    (void)snprintf(name, sizeof name,
                   report->step->stages > 1 ? "predicted, stage %d" : "predicted", stage);
    push_process(events, stage, name, failed);
    for (int64_t i = 0; i < tasks->count; i++) {
        const struct sbp_instr *instr = sbp_task_instr(report->step, stage, &tasks->task[i]);
        name_task(report, stage, i, name, (int)sizeof name);
        push_interval(events, name, stage, line_of(instr), begin_s[i],
                      instr->compute_s + instr->communication_s, instr->compute_s,
                      instr->communication_s, failed);
    }
}

static void push_measured(const struct sbp_run_report *report, int rank, struct cJSON *events,
                          bool *failed)
{
    const int stage = stage_of(report, rank), pid = report->step->stages + rank;
    const struct sbp_run_interval *interval =
        report->result->intervals + rank * report->result->most_tasks;
    char name[160];
    char of[32] = "";
    if (report->step->stages > 1)
        (void)snprintf(of, sizeof of, ", stage %d", stage);
    (void)snprintf(name, sizeof name, "measured, rank %d%s%s", rank, of,
                   wall_is_parallel(report) ? "" : " (ranks share cores)");
    push_process(events, pid, name, failed);
    for (int64_t i = 0; i < report->result->tasks[stage].count; i++) {
        name_task(report, stage, i, name, (int)sizeof name);
        push_interval(events, name, pid, LINE_TASKS, interval[i].start_s, interval[i].wall_s,
                      interval[i].compute_s, interval[i].communication_s, failed);
    }
}

enum sbp_status sbp_run_write_trace(const struct sbp_run_report *report, const char *path,
                                    struct sbp_diag *diag)
{
    struct cJSON *root = cJSON_CreateObject();
    bool failed = root == NULL;
    sbp_json_put_text(root, "displayTimeUnit", "ms", &failed);
    struct cJSON *events = sbp_json_put_array(root, "traceEvents", &failed);
    for (int stage = 0; stage < report->step->stages; stage++)
        push_predicted(report, stage, events, &failed);
    for (int rank = 0; rank < report->result->ranks; rank++)
        push_measured(report, rank, events, &failed);
    const enum sbp_status status = sbp_json_write(failed ? NULL : root, path, diag);
    cJSON_Delete(root);
    return status;
}
