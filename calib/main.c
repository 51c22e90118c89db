/* sbplan-calibrate: measures this machine's ranks and writes a cluster file.
 *
 * Runs as every rank of an MPI job, or as all ranks of a process with the threads backend. All
 * ranks measure; the process that holds rank 0 fits, writes and prints.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "base/text.h"
#include "calib/compare.h"
#include "calib/job.h"
#include "calib/log.h"
#include "calib/points.h"
#include "calib/report.h"
#include "calib/session.h"
#include "kernels/kernels.h"

#define PROGRAM "sbplan-calibrate"

/* --- results --- */

static enum sbp_status print_json(const struct sbp_calibration_session *session,
                                  const struct sbp_calibrated *calibrated, struct sbp_diag *diag)
{
    char *text;
    SBP_TRY(sbp_calibration_text(&session->found, calibrated, session->record_path, &text, diag));
    const bool done = puts(text) >= 0;
    free(text);
    return done ? SBP_OK : sbp_fail(diag, SBP_E_IO, "standard output: %s", strerror(errno));
}

static enum sbp_status print_table(const struct sbp_calibration_session *session,
                                   const struct sbp_calibrated *calibrated, struct sbp_diag *diag)
{
    SBP_TRY(sbp_calibration_print(&session->found, calibrated, stdout));
    if (printf("wrote %s and %s\n", session->settings->output, session->record_path) < 0)
        return sbp_fail(diag, SBP_E_IO, "standard output: %s", strerror(errno));
    return SBP_OK;
}

/* On stderr where standard output holds JSON. */
static enum sbp_status print_changes(const struct sbp_calibration_session *session,
                                     struct sbp_diag *diag)
{
    return sbp_compare_print(&session->older, &session->record,
                             session->settings->json ? stderr : stdout, diag);
}

static enum sbp_status fit_network(const struct sbp_record *record, enum sbp_statistic statistic,
                                   struct sbp_calibrated_network *network, struct sbp_diag *diag)
{
    struct sbp_measured measured;
    struct sbp_runs runs;
    SBP_TRY(sbp_points(record, statistic, &measured, &runs, diag));
    enum sbp_status status = sbp_ports_find(&measured, &network->ports, diag);
    const struct sbp_network_options options = {.ports = network->ports.ports};
    if (status == SBP_OK)
        status = sbp_network_fit(&measured, &options, &network->fit, diag);
    sbp_measured_free(&measured);
    return status;
}

/* network: NULL, or room for the curves. */
static enum sbp_status write_and_print(const struct sbp_calibration_session *session,
                                       struct sbp_calibrated_network *network,
                                       struct sbp_diag *diag)
{
    const struct sbp_settings *settings = session->settings;
    struct sbp_calibrated calibrated;
    if (network != NULL)
        SBP_TRY(fit_network(&session->record, settings->statistic, network, diag));
    SBP_TRY(sbp_calibrate(&session->found, settings->weights, network, &calibrated, diag));
    SBP_TRY(sbp_calibration_write(&session->found, &calibrated, settings->output, diag));
    if (settings->json)
        SBP_TRY(print_json(session, &calibrated, diag));
    else if (!settings->quiet)
        SBP_TRY(print_table(session, &calibrated, diag));
    return !session->has_older || settings->quiet ? SBP_OK : print_changes(session, diag);
}

static enum sbp_status finish(const struct sbp_calibration_session *session, struct sbp_diag *diag)
{
    if (session->settings->is_paper)
        return write_and_print(session, NULL, diag);
    struct sbp_calibrated_network *network = calloc(1, sizeof *network);
    if (network == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    const enum sbp_status status = write_and_print(session, network, diag);
    sbp_network_fit_free(&network->fit);
    free(network);
    return status;
}

/* What --dry-run and --print-sbatch are about: the ranks that were found, or those asked for. */
static enum sbp_status print_job(const struct sbp_settings *settings,
                                 const struct sbp_sweep_options *found, struct sbp_diag *diag)
{
    struct sbp_job job = {.settings = settings};
    if (found != NULL) {
        job.layout = *found;
    } else {
        job.layout.nodes = settings->nodes > 0 ? (int)settings->nodes : 1;
        job.layout.ranks_per_node = settings->ranks_per_node > 0 ? (int)settings->ranks_per_node
                                    : settings->ranks > 0        ? (int)settings->ranks
                                                                 : 4;
        job.layout.max_bytes = settings->max_bytes;
        job.layout.copy_bytes = SBP_COPY_BYTES;
        job.layout.kinds = settings->kinds;
    }
    if (job.layout.nodes * job.layout.ranks_per_node < 2)
        return sbp_fail(diag, SBP_E_USAGE,
                        "1 node with 1 rank has nothing to measure, legal are 2 ranks and more");
    return settings->print_sbatch ? sbp_job_print_sbatch(&job, stdout, diag)
                                  : sbp_job_print_plan(&job, stdout, diag);
}

/* --- ranks --- */

static enum sbp_status run_ranks(struct sbp_calibration_session *session, struct sbp_diag *diag)
{
    const struct sbp_settings *settings = session->settings;
    const bool launched = sbp_launcher_rank() >= 0 || settings->srun_tasks > 1;
    if (settings->backend == SBP_CALIB_MPI || (settings->backend == SBP_CALIB_AUTO && launched))
        return sbp_mpi_run(sbp_calibration_rank, session, diag);
    if (settings->backend == SBP_CALIB_NCCL)
        return sbp_nccl_run(sbp_calibration_rank, session, diag);
    return sbp_threads_run(settings->ranks > 0 ? (int)settings->ranks : 4, sbp_calibration_rank,
                           session, diag);
}

static enum sbp_status calibrate(const struct sbp_settings *settings, const char *command,
                                 struct sbp_diag *diag)
{
    const bool plans = settings->dry_run || settings->print_sbatch;
    if (plans && (sbp_launcher_rank() < 0 || settings->nodes > 0 || settings->ranks_per_node > 0 ||
                  settings->print_sbatch))
        return sbp_launcher_rank() > 0 ? SBP_OK : print_job(settings, NULL, diag);
    struct sbp_calibration_session session = {.settings = settings, .command = command};
    sbp_kernels_cpu_setup();
    enum sbp_status status = run_ranks(&session, diag);
    if (status == SBP_OK && session.is_root)
        status = session.verdict != SBP_OK
                     ? sbp_fail(diag, session.verdict, "%s", session.diag.text)
                 : session.planned ? print_job(settings, &session.plan, diag)
                                   : finish(&session, diag);
    sbp_calibration_session_free(&session);
    return status;
}

int main(int argc, char **argv)
{
    struct sbp_diag diag = {0};
    struct sbp_settings settings;
    struct sbp_text command = {0};
    for (int i = 0; i < argc; i++)
        sbp_text_add(&command, "%s%s", i == 0 ? "" : " ", argv[i]);
    enum sbp_status status = sbp_settings_read(argc, argv, &settings, &diag);
    if (status == SBP_OK && command.failed)
        status = sbp_fail(&diag, SBP_E_MEMORY, "out of memory");
    const bool speaks =
        sbp_launcher_rank() < 0 ? settings.srun_task == 0 : sbp_launcher_rank() == 0;
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
