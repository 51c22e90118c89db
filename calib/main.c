/* sbplan-calibrate: measures this machine's ranks and writes a cluster file.
 *
 * Runs as every rank of an MPI job, or as all ranks of a process with the threads backend. All
 * ranks measure; the process that holds rank 0 fits, writes and prints.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/launcher.h"
#include "base/machine.h"
#include "base/signals.h"
#include "base/text.h"
#include "calib/output/compare.h"
#include "calib/measure/gpu.h"
#include "calib/measure/job.h"
#include "calib/measure/session.h"
#include "kernels/kernels.h"

#define PROGRAM "sbplan-calibrate"

static struct sbp_done progress; /* cells */

/* --- results --- */

/* Fits the file that the samples went to, so that the report is about what is kept. */
static enum sbp_status finish(const struct sbp_calibration_session *session, struct sbp_diag *diag)
{
    const struct sbp_fit_and_write_options *options = &session->settings->finish;
    struct sbp_record record;
    SBP_TRY(sbp_sample_file_read(session->record_path, &record, diag));
    enum sbp_status status = sbp_fit_and_write(&record, options, diag);
    if (status == SBP_OK && !options->json && !options->quiet)
        (void)sbp_text_print_line(stdout, "wrote %s and %s\n", options->output,
                                  session->record_path);
    if (status == SBP_OK && session->has_older && !options->quiet)
        status = sbp_compare_print(&session->older, &record, options->json ? stderr : stdout, diag);
    sbp_sample_file_free(&record);
    return status;
}

/* Prints the plan or script of --dry-run and --print-sbatch, for the ranks that were found or asked
 * for. */
static enum sbp_status print_job(const struct sbp_measure_settings *settings,
                                 const struct sbp_sweep_options *found, struct sbp_diag *diag)
{
    struct sbp_measure_job job = {.settings = settings};
    if (found != NULL) {
        job.layout = *found;
    } else {
        job.layout.nodes = settings->nodes > 0 ? (int)settings->nodes : 1;
        job.layout.ranks_per_node = settings->ranks_per_node > 0 ? (int)settings->ranks_per_node
                                    : settings->ranks > 0        ? (int)settings->ranks
                                                                 : 4;
        job.layout.max_bytes = settings->max_bytes;
        job.layout.products =
            settings->backend == SBP_BACKEND_NCCL ? SBP_PRODUCTS_GPU : SBP_PRODUCTS_CPU;
        job.layout.copy_bytes = sbp_sweep_products(job.layout.products)->copy_bytes;
        job.layout.kinds = settings->kinds;
        job.layout.budget_s = settings->budget_s;
    }
    if (job.layout.nodes * job.layout.ranks_per_node < 2)
        return sbp_fail(diag, SBP_E_USAGE,
                        "1 node with 1 rank has no collectives to plan, legal are 2 ranks and "
                        "more");
    return settings->print_sbatch ? sbp_job_print_sbatch(&job, stdout, diag)
                                  : sbp_job_print_plan(&job, stdout, diag);
}

/* --- ranks --- */

/* Ends all ranks where this process cannot be one. That may be so on one host alone, whose ranks
 * then end the others; where it is so everywhere, rank 0 speaks first. */
static enum sbp_status refuse_all(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                  void *argument, struct sbp_diag *diag)
{
    const struct sbp_diag *why = argument;
    (void)ops, (void)comm;
    sbp_launcher_yield();
    return sbp_fail(diag, SBP_E_UNSUPPORTED, "%s", why->text);
}

static enum sbp_status run_on_gpus(struct sbp_calibration_session *session, struct sbp_diag *diag)
{
    const struct sbp_gpu *gpu;
    const enum sbp_status status = sbp_gpu_load(&gpu, diag);
    if (status != SBP_OK && sbp_launcher_size() > 1)
        return sbp_mpi_run(refuse_all, diag, diag);
    SBP_TRY(status);
    session->compute = gpu->compute;
    return gpu->run(sbp_session_rank, session, diag);
}

/* BLAS waits for ever for address space that the ranks of this process do not get, so it is kept.
 */
static enum sbp_status keep_space(struct sbp_calibration_session *session, int64_t ranks,
                                  struct sbp_diag *diag)
{
    char what[64];
    void *space;
    session->space_bytes = ranks * SBP_KERNELS_CPU_SPACE_BYTES;
    (void)snprintf(what, sizeof what, "%lld rank%s", (long long)ranks, ranks == 1 ? "" : "s");
    SBP_TRY(sbp_machine_reserve(session->space_bytes, what, &space, diag));
    session->space = space;
    return SBP_OK;
}

static enum sbp_status run_ranks(struct sbp_calibration_session *session, struct sbp_diag *diag)
{
    const struct sbp_measure_settings *settings = session->settings;
    const bool launched = sbp_launcher_rank() >= 0;
    if (settings->backend == SBP_BACKEND_MPI || (settings->backend == SBP_BACKEND_AUTO && launched))
        return keep_space(session, 1, diag) == SBP_OK ? sbp_mpi_run(sbp_session_rank, session, diag)
                                                      : sbp_mpi_run(refuse_all, diag, diag);
    if (settings->backend == SBP_BACKEND_NCCL)
        return run_on_gpus(session, diag);
    const int ranks = settings->ranks > 0 ? (int)settings->ranks : 4;
    SBP_TRY(keep_space(session, ranks, diag));
    return sbp_threads_run(ranks, sbp_session_rank, session, diag);
}

static enum sbp_status calibrate(const struct sbp_measure_settings *settings, const char *command,
                                 struct sbp_diag *diag)
{
    const bool plans = settings->dry_run || settings->print_sbatch;
    if (plans && (sbp_launcher_rank() < 0 || settings->nodes > 0 || settings->ranks_per_node > 0 ||
                  settings->print_sbatch))
        return sbp_launcher_rank() > 0 ? SBP_OK : print_job(settings, NULL, diag);
    struct sbp_calibration_session session = {.settings = settings,
                                              .compute = &sbp_compute_cpu,
                                              .command = command,
                                              .progress = &progress};
    enum sbp_status status = run_ranks(&session, diag);
    if (status == SBP_OK && session.is_root)
        status = session.verdict != SBP_OK
                     ? sbp_fail(diag, session.verdict, "%s", session.diag.text)
                 : session.planned ? print_job(settings, &session.plan, diag)
                                   : finish(&session, diag);
    sbp_session_free(&session);
    return status;
}

static void on_signal(int number)
{
    if (sbp_signals_answer(number, PROGRAM, &progress,
                           "cells are measured and kept, the same command goes on"))
        _exit(sbp_status_exit_code(sbp_signals_status(number)));
}

int main(int argc, char **argv)
{
    struct sbp_diag diag = {0};
    struct sbp_measure_settings settings;
    struct sbp_text command = {0};
    for (int i = 0; i < argc; i++)
        sbp_text_add(&command, "%s%s", i == 0 ? "" : " ", argv[i]);
    enum sbp_status status = sbp_signals_catch(on_signal, &diag);
    (void)signal(SBP_SIGNAL_ASKS, on_signal); /* else it ends the program, which was to come */
    if (status == SBP_OK)
        status = sbp_settings_read(argc, argv, &settings, &diag);
    if (status == SBP_OK && command.failed)
        status = sbp_fail(&diag, SBP_E_MEMORY, "out of memory");
    const bool speaks = sbp_launcher_rank() <= 0;
    if (status == SBP_OK && settings.help) {
        if (speaks)
            sbp_settings_help();
    } else if (status == SBP_OK) {
        status = calibrate(&settings, command.bytes, &diag);
    }
    sbp_text_free(&command);
    if ((fflush(stdout) != 0 || ferror(stdout)) && status == SBP_OK)
        status = sbp_fail(&diag, SBP_E_IO, "standard output: %s", strerror(errno));
    if (status != SBP_OK && speaks)
        (void)fprintf(stderr, PROGRAM ": %s\n",
                      diag.text[0] != '\0' ? diag.text : sbp_status_text(status));
    if (status != SBP_OK)
        sbp_launcher_yield();
    return sbp_status_exit_code(status);
}
