/* Starting the MPI library, its errors, and launchers that it does not know. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "base/launcher.h"
#include "executor/comm/comm_mpi_priv.h"

enum sbp_status sbp_mpi_check(struct sbp_diag *diag, const char *call, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length = 0;
    if (code == MPI_SUCCESS)
        return SBP_OK;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS)
        (void)snprintf(text, sizeof text, "error %d", code);
    return sbp_fail(diag, SBP_E_BACKEND, "%s: %s", call, text);
}

void sbp_mpi_library(char *text, int size)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    if (MPI_Get_library_version(version, &length) != MPI_SUCCESS)
        version[0] = '\0';
    (void)snprintf(text, (size_t)size, "%.*s", (int)strcspn(version, ",\n"), version);
}

enum sbp_status sbp_mpi_refuse_launcher(int64_t processes, struct sbp_diag *diag)
{
    return sbp_fail(diag, SBP_E_USAGE,
                    "the launcher started %lld processes, which MPI does not connect: start them "
                    "with srun --mpi=pmix (srun --mpi=list names the kinds there are), or the "
                    "mpirun of this MPI library",
                    (long long)processes);
}

/* Open MPI ends a process of srun that has no PMI to find the others by, inside of MPI_Init. Other
 * libraries find each other in ways of their own, or are alone, which shows later. */
static enum sbp_status check_before_start(struct sbp_diag *diag)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    const int64_t processes = sbp_launcher_size();
    if (processes <= 1 || sbp_launcher_connects())
        return SBP_OK;
    SBP_MPI_TRY(diag, MPI_Get_library_version, text, &length);
    return strncmp(text, "Open MPI", strlen("Open MPI")) == 0
               ? sbp_mpi_refuse_launcher(processes, diag)
               : SBP_OK;
}

/* Collectives block one thread while another one sends and receives (comm.h), so all threads may
 * call MPI at a time. A library without that still runs what one thread does alone. */
enum sbp_status sbp_mpi_start(bool *started, struct sbp_diag *diag)
{
    int initialised = 0;
    int finalised = 0;
    int provided = MPI_THREAD_SINGLE;
    *started = false;
    SBP_MPI_TRY(diag, MPI_Initialized, &initialised);
    SBP_MPI_TRY(diag, MPI_Finalized, &finalised);
    if (finalised)
        return sbp_fail(diag, SBP_E_BACKEND, "mpi: already finalised, starts once a process");
    if (initialised) {
        SBP_MPI_TRY(diag, MPI_Query_thread, &provided);
    } else {
        SBP_TRY(check_before_start(diag));
        SBP_MPI_TRY(diag, MPI_Init_thread, NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
        *started = true;
    }
    if (provided < MPI_THREAD_FUNNELED)
        return sbp_fail(diag, SBP_E_BACKEND, "mpi: has no support for threads (level %d of %d)",
                        provided, MPI_THREAD_FUNNELED);
    return SBP_OK;
}
