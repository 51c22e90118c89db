#include "executor/run_report.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json/json_write.h"
#include "base/table.h"
#include "base/text.h"
#include "costmodel/program/step_trace.h"

static int stage_of(const struct sbp_run_report *report, int rank)
{
    return (int)(rank / report->step->mesh.devices);
}

/* Ranks that outnumber the cores take turns, and their wall time says nothing about the plan. The
 * replay does: it plays the measured computing with the network times that the plan expects. */
static bool wall_is_parallel(const struct sbp_run_report *report)
{
    return sbp_run_has_cores(report->result);
}

static bool has_loss(const struct sbp_run_report *report)
{
    return sbp_step_program(report->step, report->step->pieces - 1)->loss_buffer >= 0;
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

/* A column, and how wide it is: of the longest texts, "-1.23457e+06", "65536, left out". */
struct column {
    const char *title;
    int width;
};

static const struct column columns[] = {
    {"step", 9},    {"loss", 12},          {"gradient norm", 13}, {"loss scale", 15},
    {"compute", 8}, {"communication", 13}, {"replay", 8},         {"wall", 8},
};

enum { COLUMNS = sizeof columns / sizeof *columns, LOSS_SCALE = 3 };

/* The columns of a run, which has a loss scale or not; returns their number. */
static int choose_columns(const struct sbp_run_report *report, const char **titles, int *widths)
{
    int count = 0;
    for (int i = 0; i < COLUMNS; i++)
        if (i != LOSS_SCALE || scales_loss(report)) {
            titles[count] = columns[i].title;
            widths[count++] = columns[i].width;
        }
    return count;
}

static void add_step(struct sbp_table *table, const struct sbp_run_report *report, int index)
{
    const struct sbp_run_step *step = &report->result->step[index];
    sbp_table_cell(table, "%d", index + 1);
    add_optional(table, has_loss(report), step->loss);
    add_optional(table, step->grad_norm != -1, step->grad_norm);
    if (scales_loss(report))
        sbp_table_cell(table, "%g%s", step->loss_scale, step->left_out ? ", left out" : "");
    add_seconds(table, step->compute_s);
    add_seconds(table, step->communication_s);
    add_seconds(table, step->replay_s);
    add_seconds(table, step->wall_s);
}

static void add_prediction(struct sbp_table *table, const struct sbp_run_prediction *prediction,
                           int count)
{
    sbp_table_cell(table, "predicted");
    for (int i = 5; i < count; i++)
        sbp_table_cell(table, "-");
    add_seconds(table, prediction->compute_s);
    add_seconds(table, prediction->communication_s);
    add_seconds(table, prediction->step_s);
    add_seconds(table, prediction->step_s);
}

static const char *mpi_kind(const struct sbp_message_times *times)
{
    return times->direct ? "GPU-aware" : "staged";
}

/* Which way they go, where that was timed, or MPI asked for. */
static int print_messages(const struct sbp_message_times *times)
{
    char nccl[32], mpi[32], size[32];
    if (times->nccl_s > 0)
        return printf("messages: nccl %s, mpi, %s %s a message of %s: %s\n",
                      sbp_format_seconds(times->nccl_s, nccl), mpi_kind(times),
                      sbp_format_seconds(times->mpi_s, mpi),
                      sbp_format_bytes((double)times->bytes, size),
                      sbp_message_way_names[times->way]);
    if (times->way != SBP_MESSAGE_MPI)
        return 0;
    return printf("messages: mpi, %s: the MPI library %s that it takes a GPU's memory\n",
                  mpi_kind(times), times->direct ? "says" : "does not say");
}

static enum sbp_status print_title(const struct sbp_run_report *report, struct sbp_diag *diag)
{
    const bool printed = sbp_text_print_line(
        stdout, "%s: %s on %d ranks (%s, %s, %s%s), seed %llu\n", report->plan,
        sbp_step_program(report->step, 0)->graph->name, report->result->ranks,
        report->options->backend, report->options->device, sbp_real_name(report->options->real),
        report->options->tf32 ? ", products in tf32" : "",
        (unsigned long long)report->options->seed);
    SBP_TRY(written(printed ? 0 : -1, diag));
    SBP_TRY(written(print_messages(&report->result->messages), diag));
    return written(printf("\n"), diag);
}

enum sbp_status sbp_run_print_rows(struct sbp_run_rows *rows, const struct sbp_run_report *report,
                                   int steps, struct sbp_diag *diag)
{
    const char *titles[COLUMNS];
    int widths[COLUMNS];
    const int count = choose_columns(report, titles, widths);
    if (steps == 0) {
        SBP_TRY(print_title(report, diag));
        sbp_table_init(&rows->table, count, titles);
        add_prediction(&rows->table, &report->result->prediction, count);
    }
    for (; rows->printed < steps; rows->printed++)
        add_step(&rows->table, report, rows->printed);
    const enum sbp_status status = sbp_table_flow(&rows->table, widths, stdout);
    if (status == SBP_E_IO)
        return written(-1, diag);
    return status == SBP_OK ? SBP_OK : sbp_fail(diag, status, "out of memory for a row");
}

static int print_legend(const struct sbp_run_report *report)
{
    const bool on_cpu = strcmp(report->options->device, "cpu") == 0;
    int printed = printf("\ncompute: the slowest rank's %s; communication: %s, waiting included;\n"
                         "replay: measured compute on the predicted timeline\n",
                         on_cpu ? "thread CPU time" : "device time",
                         on_cpu ? "wall time inside the backend" : "likewise");
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

static int print_odd(const struct sbp_run_odd *odd)
{
    char text[160];
    return odd->layer.found
               ? printf("FAILED: %s; the %s is no finite number\n",
                        sbp_odd_layer_text(&odd->layer, odd->step, text, (int)sizeof text),
                        odd->what)
               : printf("FAILED: step %d: the %s is no finite number; run again, every layer's "
                        "values are\n",
                        odd->step, odd->what);
}

static bool is_as_planned(const struct sbp_run_report *report)
{
    const struct sbp_precision *precision = &report->step->program[0].graph->precision;
    return report->options->real == report->plan_real &&
           sbp_program_runs_policy(precision, report->plan_real);
}

/* A plan's own bytes are those of the types that it is for. */
static int print_types(const struct sbp_run_report *report)
{
    return is_as_planned(report)
               ? 0
               : printf("tensors are in %s, of which bytes and prediction are; the plan itself is "
                        "for %s\n",
                        sbp_real_name(report->options->real),
                        report->options->real == report->plan_real
                            ? "another mix of types"
                            : sbp_real_name(report->plan_real));
}

static int count_left_out(const struct sbp_run_result *result)
{
    int count = 0;
    for (int i = 0; i < result->steps; i++)
        count += result->step[i].left_out;
    return count;
}

static int print_verdict(const struct sbp_run_report *report)
{
    char text[512], sampled[128] = "", again[80] = "";
    const struct sbp_run_result *result = report->result;
    if (result->odd.step > 0 && print_odd(&result->odd) < 0)
        return -1;
    if (!result->verified)
        return printf("not verified (--verify)\n");
    if (result->finding.found)
        return printf("verification FAILED: %s\n",
                      sbp_verify_finding_text(&result->finding, text, (int)sizeof text));
    const int left_out = count_left_out(result);
    if (result->sampled)
        (void)snprintf(sampled, sizeof sampled,
                       ", and of every gradient one output in %d (drawn by seed %llu),",
                       SBP_VERIFY_ONE_IN, (unsigned long long)report->options->seed);
    if (left_out > 0 && left_out == result->steps)
        return printf("verified: every loss and output agrees with one device in double, but no "
                      "gradient or update: each step overflowed and was left out (--steps)\n");
    if (result->remeasured > 0)
        (void)snprintf(again, sizeof again, "; of %lld step%s round-off was measured again",
                       (long long)result->remeasured, result->remeasured > 1 ? "s" : "");
    return printf("verified: every %sloss and update%s%s agree%s with one device in double; "
                  "largest difference is %.2f of its bound%s\n",
                  result->sampled ? "" : "gradient, ",
                  left_out > 0 ? " of steps that were not left out" : "", sampled,
                  result->sampled ? "" : "s", result->worst_ratio, again);
}

/* What the run had to make and hold as the plan says, or it would have failed. */
static int print_held(const struct sbp_run_report *report)
{
    const struct sbp_run_result *result = report->result;
    const char *most = report->step->stages > 1 ? "at most " : "";
    const char *as = is_as_planned(report) ? "the plan says" : "predicted";
    char bytes[32], host[32], slots[96] = "";
    (void)sbp_format_bytes((double)result->high_water_bytes, bytes);
    if (result->slot_bytes > 0)
        (void)snprintf(slots, sizeof slots, "; %s of slots for messages, as predicted",
                       sbp_format_bytes((double)result->slot_bytes, host));
    if (result->host_bytes == 0)
        return printf("%s%d collective calls a step and %s of arena a rank, as %s%s\n", most,
                      result->calls, bytes, as, slots);
    return printf(
        "%s%d collective calls a step, %s of arena and %s of host memory a rank, as %s%s\n", most,
        result->calls, bytes, sbp_format_bytes((double)result->host_high_water_bytes, host), as,
        slots);
}

enum sbp_status sbp_run_print_end(const struct sbp_run_report *report, struct sbp_diag *diag)
{
    SBP_TRY(written(print_legend(report), diag));
    SBP_TRY(written(print_held(report), diag));
    SBP_TRY(written(print_shrunk(report), diag));
    SBP_TRY(written(print_types(report), diag));
    SBP_TRY(written(print_verdict(report), diag));
    return written(fflush(stdout) == 0 ? 0 : -1, diag);
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static void put_steps(const struct sbp_run_report *report,
                      const struct sbp_run_prediction *prediction, int count, struct cJSON *root,
                      bool *failed)
{
    struct cJSON *steps = sbp_json_put_array(root, "steps", failed);
    for (int i = 0; i < count; i++) {
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

static void put_odd(const struct sbp_run_odd *odd, struct cJSON *verification, bool *failed)
{
    struct cJSON *not_finite = sbp_json_put_object(verification, "not_finite", failed);
    sbp_json_put_number(not_finite, "step", odd->step, failed);
    sbp_json_put_text(not_finite, "what", odd->what, failed);
    if (!odd->layer.found)
        return;
    sbp_json_put_text(not_finite, "layer", odd->layer.layer, failed);
    sbp_json_put_text(not_finite, "of", odd->layer.what, failed);
    sbp_json_put_number(not_finite, "rank", odd->layer.rank, failed);
}

static void put_verification(const struct sbp_run_report *report, struct cJSON *root, bool *failed)
{
    const struct sbp_run_result *result = report->result;
    struct cJSON *verification = sbp_json_put_object(root, "verification", failed);
    const struct sbp_finding *finding = &result->finding;
    sbp_json_put_text(verification, "status",
                      finding->found || result->odd.step > 0 ? "failed"
                      : result->verified                     ? "passed"
                                                             : "off",
                      failed);
    if (result->odd.step > 0)
        put_odd(&result->odd, verification, failed);
    if (result->verified)
        sbp_json_put_number(verification, "worst_ratio", result->worst_ratio, failed);
    if (result->remeasured > 0)
        sbp_json_put_number(verification, "remeasured_steps", (double)result->remeasured, failed);
    if (result->sampled)
        sbp_json_put_number(verification, "sampled_one_in", SBP_VERIFY_ONE_IN, failed);
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

static void put_messages(const struct sbp_message_times *times, struct cJSON *root, bool *failed)
{
    if (times->way != SBP_MESSAGE_AUTO)
        sbp_json_put_text(root, "messages", sbp_message_way_names[times->way], failed);
    if (times->way == SBP_MESSAGE_MPI || times->nccl_s > 0)
        sbp_json_put_text(root, "messages_mpi", mpi_kind(times), failed);
    if (times->nccl_s <= 0)
        return;
    sbp_json_put_number(root, "message_bytes", (double)times->bytes, failed);
    sbp_json_put_number(root, "message_nccl_s", times->nccl_s, failed);
    sbp_json_put_number(root, "message_mpi_s", times->mpi_s, failed);
}

/* What is known of a whole run only. */
static void put_end(const struct sbp_run_report *report, struct cJSON *root, bool *failed)
{
    const struct sbp_run_result *result = report->result;
    sbp_json_put_number(root, "calls", result->calls, failed);
    sbp_json_put_number(root, "arena_bytes", (double)result->arena_bytes, failed);
    sbp_json_put_number(root, "high_water_bytes", (double)result->high_water_bytes, failed);
    sbp_json_put_number(root, "slot_bytes", (double)result->slot_bytes, failed);
    if (result->host_bytes > 0) {
        sbp_json_put_number(root, "host_bytes", (double)result->host_bytes, failed);
        sbp_json_put_number(root, "host_high_water_bytes", (double)result->host_high_water_bytes,
                            failed);
    }
    put_verification(report, root, failed);
}

enum sbp_status sbp_run_print_json(const struct sbp_run_report *report, int steps,
                                   const char *stopped, struct sbp_diag *diag)
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
    if (report->options->tf32)
        sbp_json_put_text(root, "math", "tf32", &failed);
    sbp_json_put_number(root, "seed", (double)report->options->seed, &failed);
    put_messages(&result->messages, root, &failed);
    sbp_json_put_bool(root, "wall_is_parallel", wall_is_parallel(report), &failed);
    put_steps(report, &result->prediction, steps, root, &failed);
    sbp_json_put_number(root, "stages", report->step->stages, &failed);
    sbp_json_put_text(root, "schedule", sbp_timeline_schedule_name(report->step->parallel.schedule),
                      &failed);
    sbp_json_put_number(root, "micro_batches", (double)report->step->micro_batches, &failed);
    if (stopped != NULL)
        sbp_json_put_text(root, "stopped", stopped, &failed);
    else
        put_end(report, root, &failed);
    return sbp_json_finish(root, failed, diag);
}

/* ---- trace --------------------------------------------------------------------------------- */

/* The replayed lane of a stage is as slow as its slowest device, task by task. */
static double **slowest_of(const struct sbp_run_report *report, struct sbp_arena *arena)
{
    const struct sbp_run_result *result = report->result;
    double **slowest_s = SBP_NEW(arena, double *, report->step->stages);
    for (int stage = 0; slowest_s != NULL && stage < report->step->stages; stage++)
        if ((slowest_s[stage] = SBP_NEW(arena, double, result->most_tasks + 1)) == NULL)
            return NULL;
    for (int rank = 0; slowest_s != NULL && rank < result->ranks; rank++) {
        const struct sbp_run_interval *interval = result->intervals + rank * result->most_tasks;
        double *const stage_s = slowest_s[stage_of(report, rank)];
        for (int64_t i = 0; i < result->tasks[stage_of(report, rank)].count; i++)
            stage_s[i] = fmax(stage_s[i], interval[i].compute_s);
    }
    return slowest_s;
}

struct drawing {
    const struct sbp_run_report *report;
    struct sbp_trace trace;
    struct sbp_arena arena;
    struct sbp_task_time *time; /* (most_tasks) of the process under way */
    int pid;                    /* of the last process */
};

static void draw_process(struct drawing *drawing, const char *what, int stage)
{
    const struct sbp_run_report *report = drawing->report;
    char name[SBP_STEP_TRACE_NAME_BYTES];
    sbp_step_trace_tasks(&drawing->trace, ++drawing->pid,
                         sbp_step_trace_name(report->step, what, stage, name), report->step, stage,
                         &report->result->tasks[stage], drawing->time);
}

/* compute_s: (tasks), NULL: by prices. */
static void draw_played(struct drawing *drawing, const char *what, const struct sbp_play *play,
                        const double *compute_s, int stage)
{
    sbp_step_trace_played(drawing->report->step, stage, &drawing->report->result->tasks[stage],
                          play, compute_s, drawing->time);
    draw_process(drawing, what, stage);
}

static void draw_rank(struct drawing *drawing, int rank)
{
    const struct sbp_run_result *result = drawing->report->result;
    const struct sbp_run_interval *interval = result->intervals + rank * result->most_tasks;
    const int stage = stage_of(drawing->report, rank);
    char what[SBP_STEP_TRACE_NAME_BYTES];
    for (int64_t i = 0; i < result->tasks[stage].count; i++)
        drawing->time[i] = (struct sbp_task_time){.begin_s = interval[i].start_s,
                                                  .end_s = interval[i].start_s + interval[i].wall_s,
                                                  .compute_s = interval[i].compute_s,
                                                  .communication_s = interval[i].communication_s};
    (void)snprintf(what, sizeof what, "measured, rank %d%s", rank,
                   wall_is_parallel(drawing->report) ? "" : " (ranks share cores)");
    draw_process(drawing, what, stage);
}

/* Ranks of a stage that are drawn: one, where all are too many for a file. */
static int64_t drawn_ranks(const struct sbp_run_report *report)
{
    const struct sbp_run_result *result = report->result;
    return (result->ranks + 2 * report->step->stages) * result->most_tasks >
                   SBP_STEP_TRACE_MOST_EVENTS
               ? 1
               : report->step->mesh.devices;
}

/* A stage's prediction, its replay where ranks share cores, and its ranks stand below each other.
 */
static enum sbp_status draw(struct drawing *drawing, struct sbp_diag *diag)
{
    const struct sbp_run_report *report = drawing->report;
    const struct sbp_run_result *result = report->result;
    struct sbp_run_prediction replay;
    double **slowest_s = slowest_of(report, &drawing->arena);
    drawing->time = SBP_NEW(&drawing->arena, struct sbp_task_time, result->most_tasks + 1);
    if (slowest_s == NULL || drawing->time == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for the timeline of a step");
    SBP_TRY(sbp_run_replay(report->step, result->tasks, slowest_s, &drawing->arena, &replay, diag));
    for (int stage = 0; stage < report->step->stages; stage++) {
        const int first = (int)(stage * report->step->mesh.devices);
        draw_played(drawing, "predicted", &result->prediction.play, NULL, stage);
        if (!wall_is_parallel(report))
            draw_played(drawing, "replayed", &replay.play, slowest_s[stage], stage);
        for (int i = 0; i < drawn_ranks(report); i++)
            draw_rank(drawing, first + i);
    }
    return SBP_OK;
}

enum sbp_status sbp_run_write_trace(const struct sbp_run_report *report, const char *path,
                                    struct sbp_diag *diag)
{
    struct drawing drawing = {.report = report};
    const enum sbp_status status = draw(&drawing, diag);
    sbp_arena_free(&drawing.arena);
    if (status == SBP_OK)
        return sbp_trace_write(&drawing.trace, path, diag);
    sbp_trace_free(&drawing.trace);
    return status;
}
