/* sbplan-run: trains some steps as a plan says, measures them, and compares with one device.
 *
 * Runs as every rank of an MPI job, or as all ranks of a process with the threads backend. The
 * process that holds rank 0 prints.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/launcher.h"
#include "base/options.h"
#include "base/signals.h"
#include "costmodel/program/runnable.h"
#include "executor/device/device.h"
#include "executor/run_report.h"
#include "executor/run_shrink.h"
#include "planner/plan/plan.h"

#define PROGRAM "sbplan-run"

static struct sbp_done progress; /* steps */
static struct sbp_alarm run_alarm;
/* The run that is under way, for its end before time; of rank 0 alone. */
static const struct sbp_run_report *_Atomic under_way;
static atomic_bool printed; /* its JSON */

struct options {
    const char *plan, *trace;
    struct sbp_run_options run;
    int verify; /* enum sbp_verify_mode */
    bool json, help;
};

/* ---- command line -------------------------------------------------------------------------- */

#define FIELD(kind, field) SBP_OPTION_FIELD(kind, struct options, field)

static const char *const real_names[] = {[SBP_F32] = "f32", [SBP_F64] = "f64", NULL};

/* The lists without "auto", which is what stands without the option. */
static const struct sbp_option option_table[] = {
    {"--steps", "N", "training steps (default 1)", FIELD(INT, run.steps), .least = 1,
     .most = 1000000},
    {"--verify", NULL,
     "compute every step once more on one device in double and compare; --verify=shrunk: run the "
     "same plan on a smaller model, which is verified",
     FIELD(CHOICE, verify), .names = sbp_verify_names, .least = SBP_VERIFY_FULL},
    {"--backend", "NAME", "mpi (default when started by an MPI launcher), threads or nccl",
     FIELD(NAME, run.backend), .names = sbp_backend_names + 1},
    {"--device", "NAME", "where the ranks compute: cpu (default) or cuda", FIELD(NAME, run.device),
     .names = sbp_device_names + 1},
    {"--dtype", "NAME", "f32 (default) or f64: of the run", FIELD(CHOICE, run.real),
     .names = real_names},
    {"--seed", "N", "of weights, data and dropout (default 0)", FIELD(WHOLE, run.seed),
     .most = (int64_t)1 << 53},
    {"--deadline", "S",
     "seconds beside a step's predicted time for which ranks may wait (default 60)",
     FIELD(RATE, run.deadline_s), .most = 1000000000},
    {"--trace", "FILE", "write the timeline of the last step", FIELD(TEXT, trace)},
    {"--json", NULL, "print one JSON object", FIELD(FLAG, json)},
    {"--help", NULL, "print this", FIELD(FLAG, help)},
    {.name = NULL},
};

static enum sbp_status parse(int argc, char **argv, struct options *options, struct sbp_diag *diag)
{
    SBP_TRY(sbp_options_read(option_table, argc, argv, options, &options->plan, diag));
    options->run.trace = options->trace != NULL;
    options->run.verify = options->verify != SBP_VERIFY_NONE;
    if (options->help)
        return SBP_OK;
    if (options->plan == NULL)
        return sbp_fail(diag, SBP_E_USAGE, "no plan given, see --help");
    if (sbp_device(options->run.device, diag) == NULL)
        return SBP_E_UNSUPPORTED;
    return strcmp(options->run.backend, "threads") == 0 ? sbp_launcher_alone(diag) : SBP_OK;
}

static void print_help(void)
{
    (void)printf(
        "Usage: " PROGRAM " PLAN [options]\n"
        "       mpirun -n RANKS " PROGRAM " PLAN [options]\n"
        "Trains some steps as a plan says, and measures them beside its prediction.\n"
        "Exit status: 0 done, 1 verification failed, a loss or gradient is no finite number, or a "
        "rank is lost,\n2 bad usage or bad input; interrupted: 130 by SIGINT, 143 by SIGTERM, 129 "
        "by SIGHUP.\n\n");
    sbp_options_print(option_table, stdout);
}

/* ---- the run ------------------------------------------------------------------------------- */

struct table {
    const struct sbp_run_report *report;
    struct sbp_run_rows rows;
};

static enum sbp_status print_rows(void *context, const struct sbp_run_result *result, int steps,
                                  struct sbp_diag *diag)
{
    struct table *table = context;
    (void)result; /* the report's */
    return sbp_run_print_rows(&table->rows, table->report, steps, diag);
}

/* The object is printed once, here or by the watch, which then ends the program. */
static enum sbp_status print_json(const struct sbp_run_report *report, int steps,
                                  const char *stopped, struct sbp_diag *diag)
{
    return atomic_exchange(&printed, true) ? SBP_OK
                                           : sbp_run_print_json(report, steps, stopped, diag);
}

static enum sbp_status report_run(const struct options *options,
                                  const struct sbp_run_report *report, struct sbp_diag *diag)
{
    const struct sbp_run_result *result = report->result;
    SBP_TRY(options->json ? print_json(report, result->steps, NULL, diag)
                          : sbp_run_print_end(report, diag));
    if (options->trace != NULL)
        SBP_TRY(sbp_run_write_trace(report, options->trace, diag));
    return result->finding.found || result->odd.step > 0 ? SBP_NO : SBP_OK;
}

static enum sbp_status run_step(const struct options *options, const struct sbp_plan *plan,
                                const struct sbp_step *step, struct sbp_diag *diag)
{
    struct sbp_run_result result;
    struct sbp_run_options run = options->run;
    const struct sbp_graph *whole =
        options->verify == SBP_VERIFY_SHRUNK ? &plan->workload.model : NULL;
    const struct sbp_run_report report = {options->plan, step, &run, &result, whole};
    struct table table = {.report = &report};
    if (!options->json) {
        run.on_step = print_rows;
        run.context = &table;
    } else if (sbp_launcher_rank() <= 0) {
        atomic_store(&under_way, &report);
    }
    enum sbp_status status = sbp_run(step, &plan->workload.cluster, &run, &result, diag);
    sbp_table_free(&table.rows.table);
    if (status != SBP_OK)
        return status;
    progress.total = progress.done; /* it may have ended before; from here on it is not stopped */
    status = result.filled ? report_run(options, &report, diag) : SBP_OK;
    sbp_run_free(&result);
    return status;
}

/* The plan that runs: the file's, or that of a smaller model. On failure nothing is left allocated.
 */
static enum sbp_status make_step(const struct options *options, const struct sbp_plan *plan,
                                 struct sbp_plan *small, struct sbp_step *step,
                                 struct sbp_diag *diag)
{
    const struct sbp_element_bytes bytes = sbp_program_run_bytes(options->run.real);
    const struct sbp_step_request request = {.graph = &plan->cut.graph,
                                             .cluster = plan->cut.cluster,
                                             .parallel = &plan->cut.parallel,
                                             .strategy = &plan->strategy,
                                             .bytes = &bytes,
                                             .runs = true};
    SBP_TRY(sbp_runnable_check(&plan->cut.graph, &plan->cut.mesh, &plan->strategy,
                               &plan->cut.parallel, diag));
    return options->verify == SBP_VERIFY_SHRUNK ? sbp_run_shrink(plan, &bytes, small, step, diag)
                                                : sbp_step_make(&request, step, diag);
}

static enum sbp_status load(const struct options *options, struct sbp_plan *plan,
                            struct sbp_plan *small, struct sbp_step *step, struct sbp_diag *diag)
{
    if (options->trace != NULL && sbp_launcher_rank() <= 0) /* rank 0 writes it */
        SBP_TRY(sbp_file_check_writable(options->trace, diag));
    SBP_TRY(sbp_plan_read(options->plan, plan, diag));
    const enum sbp_status status = make_step(options, plan, small, step, diag);
    if (status != SBP_OK)
        sbp_plan_free(plan);
    return status;
}

static enum sbp_status run_plan(const struct options *options, struct sbp_diag *diag)
{
    struct sbp_plan plan, small = {0};
    struct sbp_step step;
    enum sbp_status status = load(options, &plan, &small, &step, diag);
    if (status != SBP_OK)
        return strcmp(options->run.backend, "mpi") == 0 ? sbp_run_refuse(status, diag) : status;
    status = run_step(options, &plan, &step, diag);
    sbp_step_free(&step);
    sbp_plan_free(&small);
    sbp_plan_free(&plan);
    return status;
}

/* ---- the end before time ------------------------------------------------------------------- */

/* What there is by then: rows are printed, an object of the finished steps is not. */
static void print_stopped(const char *why)
{
    struct sbp_diag diag = {0};
    const struct sbp_run_report *report = atomic_load(&under_way);
    if (report != NULL && print_json(report, progress.done, why, &diag) != SBP_OK)
        (void)fprintf(stderr, PROGRAM ": %s\n", diag.text);
    if (report != NULL)
        (void)fflush(stdout); /* it ends with another status than 0 anyway */
}

/* Called by the watch: see struct sbp_alarm. */
static void end_run(int number, const char *fault)
{
    if (fault == NULL && (progress.total == 0 || progress.done < progress.total))
        print_stopped(number == SBP_SIGNAL_ASKS ? "interrupted" : sbp_signals_name(number));
    if (fault != NULL) {
        print_stopped(fault[0] == '\0' ? "a rank is lost" : fault);
        if (fault[0] != '\0')
            (void)sbp_text_print_line(stderr, PROGRAM SBP_LOST_MARK "%s\n", fault);
        _exit(sbp_status_exit_code(SBP_NO));
    }
    if (sbp_signals_answer(number, PROGRAM, &progress, "steps are finished"))
        _exit(sbp_status_exit_code(sbp_signals_status(number)));
}

/* While a run is watched, the watch answers; a second signal ends the program at once. */
static void on_signal(int number)
{
    if (!atomic_load(&run_alarm.watched)) {
        if (sbp_signals_answer(number, PROGRAM, &progress, "steps are finished"))
            _exit(sbp_status_exit_code(sbp_signals_status(number)));
    } else if (number == SBP_SIGNAL_ASKS) {
        atomic_store(&run_alarm.asked, true);
    } else {
        atomic_store(&run_alarm.signal, number);
        sbp_signals_restore();
    }
}

int main(int argc, char **argv)
{
    struct sbp_diag diag = {0};
    struct options options = {
        .run = {
            .steps = 1, .real = SBP_F32, .device = "cpu", .deadline_s = 60, .alarm = &run_alarm}};
    options.run.backend = sbp_launcher_rank() >= 0 ? "mpi" : "threads";
    const bool speaks = sbp_launcher_rank() <= 0;
    run_alarm.end = end_run;
    enum sbp_status status = sbp_signals_catch(on_signal, &diag);
    (void)signal(SBP_SIGNAL_ASKS, on_signal); /* else it ends the program, which was to come */
    if (status == SBP_OK)
        status = parse(argc, argv, &options, &diag);
    options.run.progress = &progress;
    progress.total = options.run.steps;
    sbp_kernels_cpu_setup();
    if (status == SBP_OK && options.help && speaks)
        print_help();
    else if (status == SBP_OK && !options.help)
        status = run_plan(&options, &diag);
    if ((fflush(stdout) != 0 || ferror(stdout)) && status >= 0)
        status = sbp_fail(&diag, SBP_E_IO, "standard output: %s", strerror(errno));
    if (status < 0 && speaks)
        (void)fprintf(stderr, PROGRAM ": %s\n",
                      diag.text[0] != '\0' ? diag.text : sbp_status_text(status));
    if (status < 0)
        sbp_launcher_yield();
    return sbp_status_exit_code(status);
}
