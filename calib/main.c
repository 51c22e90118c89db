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

static enum sbp_status finish(const struct sbp_calibration_session *session, struct sbp_diag *diag)
{
    const struct sbp_settings *settings = session->settings;
    struct sbp_calibrated calibrated;
    SBP_TRY(sbp_calibrate(&session->found, settings->weights, &calibrated, diag));
    SBP_TRY(sbp_calibration_write(&session->found, &calibrated, settings->output, diag));
    if (settings->json)
        return print_json(session, &calibrated, diag);
    return settings->quiet ? SBP_OK : print_table(session, &calibrated, diag);
}

static enum sbp_status run_ranks(struct sbp_calibration_session *session, struct sbp_diag *diag)
{
    const struct sbp_settings *settings = session->settings;
    const bool launched = sbp_launcher_rank() >= 0;
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
    struct sbp_calibration_session session = {.settings = settings, .command = command};
    sbp_kernels_cpu_setup();
    enum sbp_status status = run_ranks(&session, diag);
    if (status == SBP_OK && session.is_root)
        status = session.verdict == SBP_OK
                     ? finish(&session, diag)
                     : sbp_fail(diag, session.verdict, "%s", session.diag.text);
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
