/* sbplan-run: trains some steps as a plan says, measures them, and compares with one device; or
 * measures several plans beside each other.
 *
 * Runs as every rank of an MPI job, or as all ranks of a process with the threads backend. The
 * process that holds rank 0 prints.
 */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/launcher.h"
#include "base/options.h"
#include "base/signals.h"
#include "costmodel/program/runnable.h"
#include "executor/bench_report.h"
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
    struct sbp_arena arena;
    struct sbp_word_list plans;
    const char *trace;
    struct sbp_run_options run; /* steps: 0, not given */
    int verify;                 /* enum sbp_verify_mode */
    bool bench;
    int rounds, warmup; /* of --bench; -1: not given */
    int dtype;          /* -1: as the plan */
    int math;           /* of math_names */
    int labels;         /* enum sbp_token_labels */
    int messages;       /* enum sbp_message_way */
    bool json, help;
};

/* ---- command line -------------------------------------------------------------------------- */

#define FIELD(kind, field) SBP_OPTION_FIELD(kind, struct options, field)

static const char *const real_names[] = {
    [SBP_F32] = "f32", [SBP_F64] = "f64", [SBP_REAL_BF16] = "bf16", [SBP_REAL_FP16] = "f16", NULL};

static const char *const math_names[] = {"f32", "tf32", NULL};

static const char *const label_names[] = {[SBP_LABELS_DRAWN] = "drawn",
                                          [SBP_LABELS_OF_IDS] = "of-ids",
                                          [SBP_LABELS_MASKED] = "masked",
                                          NULL};

/* The list of backends without "auto", which is what stands without the option. */
static const struct sbp_option option_table[] = {
    {"--steps", "N", "training steps (default 1; of a round 3)", FIELD(INT, run.steps), .least = 1,
     .most = 1000000},
    {"--bench", NULL, "measure plans beside each other, in turns", FIELD(FLAG, bench)},
    {"--rounds", "N", "of --bench (default 8, the fewest that give an interval of 99 %)",
     FIELD(INT, rounds), .least = 1, .most = 100000},
    {"--warmup", "N", "first steps of a round, which are dropped (default 1)", FIELD(INT, warmup),
     .most = 1000000},
    {"--verify", NULL,
     "compute every step once more on one device in double and compare; --verify=sampled: of "
     "gradients a sample, in less memory; --verify=shrunk: run the same plan on a smaller model, "
     "which is verified",
     FIELD(CHOICE, verify), .names = sbp_verify_names, .least = SBP_VERIFY_FULL},
    {"--backend", "NAME", "mpi (default when started by an MPI launcher), threads or nccl",
     FIELD(NAME, run.backend), .names = sbp_backend_names + 1},
    {"--device", "NAME", "where the ranks compute: auto (default), cpu or cuda",
     FIELD(NAME, run.device), .names = sbp_device_names},
    {"--dtype", "NAME", "tensors in f32, f64, bf16 or f16 (default: as the plan)",
     FIELD(CHOICE, dtype), .names = real_names},
    {"--math", "NAME",
     "products of f32 tensors on GPUs in f32 (default), or in tf32, which is faster",
     FIELD(CHOICE, math), .names = math_names},
    {"--seed", "N", "of weights, data and dropout (default 0)", FIELD(WHOLE, run.seed),
     .most = (int64_t)1 << 53},
    {"--labels", "NAME",
     "of tokens: drawn (default); of-ids, seven in eight by their ids, which can be learnt; or "
     "masked, of one token in seven",
     FIELD(CHOICE, labels), .names = label_names},
    {"--deadline", "S",
     "seconds beside a step's predicted time for which ranks may wait (default 60)",
     FIELD(RATE, run.deadline_s), .most = 1000000000},
    {"--check-collectives", NULL,
     "before every collective its ranks compare what they are about to call",
     FIELD(FLAG, run.compares)},
    {"--messages", "NAME",
     "with --backend nccl, between stages: by nccl, by mpi (out of GPU memory where it can), or "
     "auto (default), the faster one by a few of them",
     FIELD(CHOICE, messages), .names = sbp_message_way_names},
    {"--trace", "FILE", "write the timeline of the last step", FIELD(TEXT, trace)},
    {"--json", NULL, "print one JSON object", FIELD(FLAG, json)},
    {"--help", NULL, "print this", FIELD(FLAG, help)},
    {.name = NULL},
};

static enum sbp_status check_mode(const struct options *options, struct sbp_diag *diag)
{
    if (options->plans.count == 0)
        return sbp_fail(diag, SBP_E_USAGE, "no plan given, see --help");
    if (options->bench &&
        (options->verify != SBP_VERIFY_NONE || options->trace != NULL || options->run.compares))
        return sbp_fail(diag, SBP_E_USAGE,
                        "--bench measures alone: no --verify, no --trace, no --check-collectives");
    if (options->bench && strcmp(options->run.backend, "nccl") == 0)
        return sbp_fail(diag, SBP_E_USAGE, "--bench measures over threads and mpi");
    if (options->messages != SBP_MESSAGE_AUTO && strcmp(options->run.backend, "nccl") != 0)
        return sbp_fail(diag, SBP_E_USAGE, "--messages is of --backend nccl");
    if (!options->bench && options->plans.count > 1)
        return sbp_fail(diag, SBP_E_USAGE, "\"%s\" is one plan too many without --bench",
                        options->plans.word[1]);
    if (!options->bench && (options->rounds >= 0 || options->warmup >= 0))
        return sbp_fail(diag, SBP_E_USAGE, "--rounds and --warmup are of --bench");
    return SBP_OK;
}

static void set_defaults(struct options *options)
{
    options->run.trace = options->trace != NULL;
    options->run.tf32 = options->math == 1;
    options->run.labels = (enum sbp_token_labels)options->labels;
    options->run.messages = (enum sbp_message_way)options->messages;
    options->run.steps = options->run.steps > 0 ? options->run.steps : options->bench ? 3 : 1;
    options->rounds = options->rounds >= 0 ? options->rounds : SBP_BENCH_ROUNDS;
    options->warmup = options->warmup >= 0 ? options->warmup : 1;
}

/* CUDA reads both as it starts. A kernel that it loads at its first use, or queues behind another
 * stream's, may wait for a message that waits for another rank. What the user set stays. */
static enum sbp_status keep_kernels_from_waiting(struct sbp_diag *diag)
{
    return setenv("CUDA_MODULE_LOADING", "EAGER", 0) == 0 &&
                   setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0) == 0
               ? SBP_OK
               : sbp_fail(diag, SBP_E_MEMORY, "out of memory");
}

/* From here on the device has the name of one. GPUs have no kernels of f64. */
static enum sbp_status choose_device(struct options *options, struct sbp_diag *diag)
{
    const struct sbp_device_ops *device;
    const bool is_left = strcmp(options->run.device, "auto") == 0;
    if (strcmp(options->run.backend, "nccl") == 0)
        SBP_TRY(keep_kernels_from_waiting(diag));
    SBP_TRY(sbp_device_find(is_left && options->dtype == SBP_F64 ? "cpu" : options->run.device,
                            &device, diag));
    options->run.device = device->name;
    return SBP_OK;
}

static enum sbp_status parse(int argc, char **argv, struct options *options, struct sbp_diag *diag)
{
    options->plans.word = SBP_NEW(&options->arena, const char *, argc);
    if (options->plans.word == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    SBP_TRY(sbp_options_read_list(option_table, argc, argv, options, &options->plans, diag));
    options->run.verify = options->verify != SBP_VERIFY_NONE;
    options->run.sampled = options->verify == SBP_VERIFY_SAMPLED;
    if (options->help)
        return SBP_OK;
    SBP_TRY(check_mode(options, diag));
    set_defaults(options);
    SBP_TRY(choose_device(options, diag));
    return strcmp(options->run.backend, "threads") == 0 ? sbp_launcher_alone(diag) : SBP_OK;
}

static void print_help(void)
{
    (void)printf(
        "Usage: " PROGRAM " PLAN [options]\n"
        "       " PROGRAM " --bench PLAN... [options]\n"
        "       mpirun -n RANKS " PROGRAM " ...\n"
        "Trains some steps as a plan says, and measures them beside its prediction.\n"
        "Exit status: 0 done, 1 verification failed, a loss or gradient is no finite number, or a "
        "rank is lost,\n2 bad usage or bad input; interrupted: 130 by SIGINT, 143 by SIGTERM, 129 "
        "by SIGHUP.\n\n");
    sbp_options_print(option_table, stdout);
}

/* ---- plans --------------------------------------------------------------------------------- */

/* What the plan's precision runs in. */
static enum sbp_real plan_real(const struct sbp_plan *plan)
{
    return sbp_program_run_real(&plan->cut.graph.precision, plan->cut.cluster);
}

/* The step that runs: the plan's, or that of a smaller model (`small`, NULL: not asked for). On
 * failure nothing is left allocated. */
static enum sbp_status make_step(enum sbp_real real, const struct sbp_plan *plan,
                                 struct sbp_plan *small, struct sbp_step *step,
                                 struct sbp_diag *diag)
{
    const struct sbp_element_bytes bytes = sbp_program_run_bytes(real);
    struct sbp_step_request request = sbp_cut_request(&plan->cut, &plan->strategy, &bytes);
    request.runs = true;
    SBP_TRY(sbp_runnable_check(&plan->cut.graph, &plan->cut.parallel, diag));
    return small != NULL ? sbp_run_shrink(plan, &bytes, small, step, diag)
                         : sbp_step_make(&request, step, diag);
}

/* *real becomes the type that the plan runs in. */
static enum sbp_status load(const struct options *options, const char *path, struct sbp_plan *plan,
                            struct sbp_plan *small, struct sbp_step *step, enum sbp_real *real,
                            struct sbp_diag *diag)
{
    struct sbp_diag reason = {0};
    SBP_TRY(sbp_plan_read(path, plan, diag));
    *real = options->dtype < 0 ? plan_real(plan) : (enum sbp_real)options->dtype;
    const enum sbp_status status = make_step(*real, plan, small, step, &reason);
    if (status == SBP_OK)
        return SBP_OK;
    sbp_plan_free(plan);
    return sbp_fail(diag, status, "%s: %s", path, reason.text);
}

/* ---- a run --------------------------------------------------------------------------------- */

static enum sbp_status check_trace(const struct options *options, struct sbp_diag *diag)
{
    if (options->trace == NULL)
        return SBP_OK;
    if (sbp_file_is_same(options->plans.word[0], options->trace))
        return sbp_fail(diag, SBP_E_USAGE, "--trace %s would overwrite the plan", options->trace);
    /* Rank 0 writes it. */
    return sbp_launcher_rank() <= 0 ? sbp_file_check_writable(options->trace, diag) : SBP_OK;
}

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
    const struct sbp_run_report report = {options->plans.word[0], step, &run, &result,
                                          plan_real(plan),        whole};
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

static enum sbp_status run_plan(struct options *options, struct sbp_diag *diag)
{
    struct sbp_plan plan, small = {0};
    struct sbp_step step;
    enum sbp_status status = check_trace(options, diag);
    if (status == SBP_OK)
        status = load(options, options->plans.word[0], &plan,
                      options->verify == SBP_VERIFY_SHRUNK ? &small : NULL, &step,
                      &options->run.real, diag);
    if (status != SBP_OK)
        return sbp_run_starts_mpi(options->run.backend) ? sbp_run_refuse(status, diag) : status;
    progress.total = options->run.steps;
    status = run_step(options, &plan, &step, diag);
    sbp_step_free(&step);
    sbp_plan_free(&small);
    sbp_plan_free(&plan);
    return status;
}

/* ---- several plans ------------------------------------------------------------------------- */

static enum sbp_status report_bench(const struct options *options,
                                    const struct sbp_bench_report *report, struct sbp_diag *diag)
{
    bool failed = false;
    SBP_TRY((options->json ? sbp_bench_print_json : sbp_bench_print)(report, diag));
    for (int i = 0; i < report->result->count; i++)
        failed = failed || report->result->row[i].odd_step > 0;
    return failed ? SBP_NO : SBP_OK;
}

static enum sbp_status measure(const struct options *options, const struct sbp_bench_plan *plans,
                               const struct sbp_bench_options *bench, struct sbp_diag *diag)
{
    struct sbp_bench_result result;
    SBP_TRY(sbp_bench(plans, options->plans.count, bench, &result, diag));
    const struct sbp_bench_report report = {plans, bench, &result};
    const enum sbp_status status = result.filled ? report_bench(options, &report, diag) : SBP_OK;
    sbp_bench_free(&result);
    return status;
}

/* Loads all plans, or *loaded of them on failure. */
static enum sbp_status load_all(const struct options *options, struct sbp_bench_plan *plans,
                                int *loaded, struct sbp_diag *diag)
{
    for (*loaded = 0; *loaded < options->plans.count; ++*loaded) {
        struct sbp_bench_plan *const one = &plans[*loaded];
        one->file = options->plans.word[*loaded];
        SBP_TRY(load(options, one->file, &one->plan, NULL, &one->step, &one->real, diag));
    }
    return SBP_OK;
}

static enum sbp_status bench_plans(struct options *options, struct sbp_diag *diag)
{
    const int count = options->plans.count;
    int loaded = 0;
    struct sbp_bench_plan *plans = SBP_NEW(&options->arena, struct sbp_bench_plan, count);
    enum sbp_status status = plans == NULL ? sbp_fail(diag, SBP_E_MEMORY, "out of memory")
                                           : load_all(options, plans, &loaded, diag);
    const struct sbp_bench_options bench = {options->rounds, options->warmup, options->run.steps,
                                            options->run};
    if (status == SBP_OK)
        status = sbp_bench_check(plans, count, &bench, diag);
    double steps = 0;
    for (int i = 0; i < loaded; i++)
        steps += (double)bench.rounds * sbp_bench_run_steps(&bench, &plans[i]);
    progress.total = (int)fmin(steps, INT_MAX);
    if (status == SBP_OK)
        status = measure(options, plans, &bench, diag);
    else if (sbp_run_starts_mpi(options->run.backend))
        status = sbp_bench_refuse(status, diag);
    for (int i = 0; i < loaded; i++) {
        sbp_step_free(&plans[i].step);
        sbp_plan_free(&plans[i].plan);
    }
    return status;
}

/* ---- the end before time ------------------------------------------------------------------- */

/* What there is by then: rows are printed, an object of the finished steps is not. */
static void print_stopped(int steps, const char *why)
{
    struct sbp_diag diag = {0};
    const struct sbp_run_report *report = atomic_load(&under_way);
    if (report != NULL && print_json(report, steps, why, &diag) != SBP_OK)
        (void)fprintf(stderr, PROGRAM ": %s\n", diag.text);
    if (report != NULL)
        (void)fflush(stdout); /* a failure changes nothing: the status is none of 0 already */
}

/* Called by the watch: see struct sbp_alarm. Steps go on meanwhile, so that what is printed and
 * what is said of it are told by one count. */
static void end_run(int number, const char *fault)
{
    struct sbp_done by_then = {progress.done, progress.total, progress.reported};
    if (fault == NULL && (by_then.total == 0 || by_then.done < by_then.total))
        print_stopped(by_then.done,
                      number == SBP_SIGNAL_ASKS ? "interrupted" : sbp_signals_name(number));
    if (fault != NULL) {
        print_stopped(by_then.done, fault[0] == '\0' ? "a rank is lost" : fault);
        if (fault[0] != '\0')
            (void)sbp_text_print_line(stderr, PROGRAM SBP_LOST_MARK "%s\n", fault);
        _exit(sbp_status_exit_code(SBP_NO));
    }
    if (sbp_signals_answer(number, PROGRAM, &by_then, "steps are finished"))
        _exit(sbp_status_exit_code(sbp_signals_status(number)));
    progress.reported = by_then.reported;
}

/* While a run is watched, the watch answers, within a look. A launcher may send its signal twice in
 * a row, and a rank that the second one ended would look like one that was killed; so it takes a
 * third one to end the program without the watch. */
static void on_signal(int number)
{
    if (!atomic_load(&run_alarm.watched)) {
        if (sbp_signals_answer(number, PROGRAM, &progress, "steps are finished"))
            _exit(sbp_status_exit_code(sbp_signals_status(number)));
    } else if (number == SBP_SIGNAL_ASKS) {
        atomic_store(&run_alarm.asked, true);
    } else {
        if (atomic_exchange(&run_alarm.signal, number) != 0)
            sbp_signals_restore();
    }
}

int main(int argc, char **argv)
{
    struct sbp_diag diag = {0};
    struct options options = {.run = {.device = "auto", .deadline_s = 60, .alarm = &run_alarm},
                              .dtype = -1,
                              .rounds = -1,
                              .warmup = -1};
    options.run.backend = sbp_launcher_rank() >= 0 ? "mpi" : "threads";
    const bool speaks = sbp_launcher_rank() <= 0;
    run_alarm.end = end_run;
    enum sbp_status status = sbp_signals_catch(on_signal, &diag);
    (void)signal(SBP_SIGNAL_ASKS, on_signal); /* without a handler this signal ends the program */
    if (status == SBP_OK)
        status = parse(argc, argv, &options, &diag);
    options.run.progress = &progress;
    if (status == SBP_OK && options.help && speaks)
        print_help();
    else if (status == SBP_OK && !options.help)
        status = (options.bench ? bench_plans : run_plan)(&options, &diag);
    sbp_arena_free(&options.arena);
    if ((fflush(stdout) != 0 || ferror(stdout)) && status >= 0)
        status = sbp_fail(&diag, SBP_E_IO, "standard output: %s", strerror(errno));
    if (status < 0 && speaks)
        (void)fprintf(stderr, PROGRAM ": %s\n",
                      diag.text[0] != '\0' ? diag.text : sbp_status_text(status));
    if (status < 0)
        sbp_launcher_yield();
    return sbp_status_exit_code(status);
}
